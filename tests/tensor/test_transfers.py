"""Large transfers: through staging memory in chunks, copied by several threads, or by the host alone."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import numpy as np
import pytest

import pumice
from process import output_of
from small_programs import add_one, compiled
from tensor_arrays import WHOLE_BYTES, Array
from threads import in_threads

CHUNK = 4 << 20  # bytes per chunk of a large transfer
RING = 8 * CHUNK
LEAST = 1 << 20  # bytes per chunk of a small transfer
SIZES = [
    0,
    1,
    LEAST - 1,
    LEAST,
    LEAST + 1,
    2 * LEAST + 3,
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    3 * CHUNK + 5,
    RING,
    RING + 1,
    2 * RING + CHUNK + 7,
]


def random_bytes(count: int, seed: int = 0) -> Array:
    return np.frombuffer(np.random.default_rng(seed).bytes(count), "uint8")


def added(staging_device: pumice.Context, count: int) -> tuple[pumice.Program, Array]:
    """Compile a program that adds one, and return it with an input array."""
    return compiled(staging_device, add_one), np.arange(count, dtype="float32") % 1000


def test_the_feature_says_whose_memory_it_is(staging_device: pumice.Context) -> None:
    buffer = pumice.Buffer(staging_device, 64)
    if staging_device.feature("unifiedMemory"):
        buffer.map()
        buffer.unmap()
    else:
        with pytest.raises(pumice.StateError, match="cannot be mapped"):
            buffer.map()


@pytest.mark.parametrize("count", SIZES)
def test_bytes_of_every_count_come_back(staging_device: pumice.Context, count: int) -> None:
    given = random_bytes(count, seed=count)
    tensor = pumice.tensor(given, staging_device)
    np.testing.assert_array_equal(tensor.numpy(), given)


@pytest.mark.parametrize("dtype", WHOLE_BYTES, ids=str)
def test_elements_of_every_dtype_come_back(staging_device: pumice.Context, dtype: Any) -> None:
    given = (np.arange(CHUNK + 3) % 120).astype(dtype)
    np.testing.assert_array_equal(pumice.tensor(given, staging_device).numpy(), given)


def test_strided_and_read_only_arrays_and_views_of_tensors(staging_device: pumice.Context) -> None:
    base = random_bytes(3 * CHUNK).reshape(3, -1, 64)
    turned = base.transpose(2, 0, 1)[::-1]
    assert not base.flags.writeable
    tensor = pumice.tensor(turned, staging_device)
    np.testing.assert_array_equal(tensor.numpy(), turned)
    tensor[:, 1] = base[0].T
    expected = turned.copy()
    expected[:, 1] = base[0].T
    np.testing.assert_array_equal(tensor.numpy(), expected)
    np.testing.assert_array_equal(tensor[5:9, 1:].numpy(), expected[5:9, 1:])


def test_threads_transfer_at_once(staging_device: pumice.Context) -> None:
    def work(seed: int) -> None:
        given = random_bytes(2 * CHUNK + seed, seed)
        for _ in range(3):
            np.testing.assert_array_equal(pumice.tensor(given, staging_device).numpy(), given)

    in_threads(work, range(6))


def test_uploads_and_downloads_follow_the_work_in_flight(staging_device: pumice.Context) -> None:
    """Staged transfers do not wait for the device; on the device they run in the order of the calls."""
    count = CHUNK // 4 + 9
    tensor = pumice.zeros(count, "float32", staging_device)
    kernel = pumice.Kernel(
        """layout(binding = 0) buffer X { float x[]; };
        void main() { uint i = gl_GlobalInvocationID.x; x[i] = x[i] * 2.0 + 1.0; }""",
        staging_device,
    )
    commands = pumice.CommandList(staging_device)
    commands.dispatch(kernel.bind(x=tensor, threads=count))
    commands.commit()
    given = np.arange(count, dtype="float32") % 1000
    for turn in range(4):
        commands.exec()
        tensor.upload(given + turn)
        commands.exec()
        np.testing.assert_array_equal(tensor.numpy(), (given + turn) * 2 + 1)


@pytest.mark.parametrize(
    "count", [1, LEAST // 4, LEAST // 4 + 1, CHUNK // 4 - 1, CHUNK // 4, CHUNK // 4 + 1, 3 * CHUNK // 4 + 5]
)
def test_programs_take_and_give_arrays_of_every_size(staging_device: pumice.Context, count: int) -> None:
    program, x = added(staging_device, count)
    for turn in range(3):
        (y,) = program.call((x + turn,))
        np.testing.assert_array_equal(y, x + turn + 1)
    named = program({"x": x})
    np.testing.assert_array_equal(named["y"], x + 1)
    execution = program.execution(measure=True)
    for measured in (execution, program.execution()):
        measured.set("x", x)
        np.testing.assert_array_equal(measured.compute()["y"], x + 1)
        y = np.zeros(count, "float32")
        measured.set_output("y", y)
        measured.compute()
        np.testing.assert_array_equal(y, x + 1)


def test_runs_in_flight_hold_their_own_bytes(staging_device: pumice.Context) -> None:
    program, x = added(staging_device, 2 * CHUNK // 4 + 3)
    runs = [program.run_async((x + turn,)) for turn in range(5)]
    for turn, run in enumerate(runs):
        (y,) = run.result()
        np.testing.assert_array_equal(y, x + turn + 1)
        assert run.done
    dropped = [program.run_async((x,)) for _ in range(4)]
    del dropped  # the device still writes results nobody reads
    np.testing.assert_array_equal(program.call((x,))[0], x + 1)
    run = program.run_async((x,))
    run.wait()
    assert run.done
    np.testing.assert_array_equal(run.result()[0], x + 1)


def test_timeouts_at_any_time_leave_a_program_usable(staging_device: pumice.Context) -> None:
    """Includes timeouts during the download of results."""
    program, x = added(staging_device, 6 * CHUNK // 4 + 3)
    execution = program.execution()
    execution.set("x", x)
    for turn in range(12):
        with contextlib.suppress(pumice.TimeoutError):
            np.testing.assert_array_equal(program.call((x,), timeout=0.003 * turn)[0], x + 1)
        with contextlib.suppress(pumice.TimeoutError):
            np.testing.assert_array_equal(execution.compute(timeout=0.003 * turn)["y"], x + 1)
    np.testing.assert_array_equal(program.call((x,))[0], x + 1)
    np.testing.assert_array_equal(execution.compute()["y"], x + 1)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_a_signal_in_a_transfer_leaves_the_tensor_usable(staging_device: pumice.Context) -> None:
    class Rung(Exception):
        pass

    def ring(*_: object) -> None:
        raise Rung

    given = random_bytes(2 * RING)
    tensor = pumice.tensor(given, staging_device)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for turn in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002 * (turn + 1))
                while True:
                    tensor.upload(given)
                    tensor.numpy()
            except Rung:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    tensor.upload(given)
    np.testing.assert_array_equal(tensor.numpy(), given)


FORKED = """
import os, sys
import numpy as np, pumice
context = pumice.Context(without=["unifiedMemory"])
x = np.arange(3 << 20, dtype="float32")
assert (pumice.tensor(x, context).numpy() == x).all()
child = os.fork()
if child == 0:
    try:
        with pumice.Context(without=["unifiedMemory"]) as own:
            assert (pumice.tensor(x, own).numpy() == x).all()
        print("child", flush=True)
    except (pumice.DeviceError, pumice.StateError) as error:  # only llvmpipe survives a fork
        print("refused" if "fork" in str(error) else error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert (pumice.tensor(x, context).numpy() == x).all()
print("parent")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_copies_with_threads_of_its_own() -> None:
    first, last = output_of("-W", "ignore", "-c", FORKED).split()
    assert first in ("child", "refused")
    assert last == "parent"


LEFT = """
import threading
import numpy as np, pumice
context = pumice.Context(without=["unifiedMemory"])
x = np.ones(6 << 20, "float32")
def work():
    while True:
        pumice.tensor(x, context).numpy()
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
pumice.tensor(x, context).numpy()
print("left")
"""


def test_a_process_ends_while_threads_transfer() -> None:
    assert output_of("-c", LEFT).split() == ["left"]


def test_memory_of_results_is_theirs_until_they_are_dropped(staging_device: pumice.Context) -> None:
    """Memory of large results is reused, except while views keep it alive."""
    given = random_bytes(2 * CHUNK)
    tensor = pumice.tensor(given, staging_device)

    def work(seed: int) -> None:
        kept: list[tuple[int, Array]] = []
        for turn in range(12):
            array = tensor.numpy()
            np.testing.assert_array_equal(array, given)
            mark = (seed * 12 + turn) % 251
            array[:] = mark
            kept.append((mark, array[seed::2] if turn % 2 else array))
            if turn % 3 == 2:
                del kept[0]
            assert all((one == value).all() for value, one in kept)

    in_threads(work, range(3))
    assert tensor.numpy().flags.writeable


SIGNALS_OF_THREADS = """
import os, signal
import numpy as np, pumice
def masks():  # of the engine's own threads, those that compile kernels for a while among them
    found = {}
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as comm, open(f"/proc/self/task/{task}/status") as status:
                name, facts = comm.read().strip(), status.read()
        except OSError:  # it has ended
            continue
        if name.startswith("pumice"):
            found[task] = int(next(line for line in facts.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    return found
context = pumice.Context()
pumice.tensor(np.ones(6 << 20, "float32"), context).numpy()
made = masks()
print(len(made), all(mask >> (number - 1) & 1 for mask in made.values() for number in (signal.SIGINT, signal.SIGUSR1)))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc")
def test_threads_that_copy_take_no_signals() -> None:
    count, blocked = output_of("-c", SIGNALS_OF_THREADS).split()
    assert blocked == "True" and (int(count) > 0 or os.cpu_count() == 1)
