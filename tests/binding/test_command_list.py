"""Tests of kernels by name, command lists, barriers, waits, and processes that exit during a run."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import pumice
from slow_kernels import SLOW

ADD_ONE = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; y[i] = x[i] + 1.0; }
"""

SCALE = """
layout(binding = 0) buffer X { float x[]; };
layout(push_constant) uniform parameter { float factor; int offset; } p;
void main() { uint i = gl_GlobalInvocationID.x; x[i] = x[i] * p.factor + float(p.offset); }
"""

# Runs for at least a second, both on a software device and on a GPU, which runs many workgroups in parallel.
KEEP_BUSY = f"""
def keep_busy(context, groups):
    import numpy as np, pumice
    x = pumice.tensor(np.ones(1, "uint32"), context)
    kernel = pumice.Kernel({SLOW!r}, context=context)
    commands = pumice.CommandList(context)
    for _ in range(1 if context.info.kind == "software" else 6000):
        commands.dispatch(kernel.bind(x=x, groups=groups))
    commands.commit()
    return commands.exec()
"""
names: dict[str, Any] = {}
exec(KEEP_BUSY, names)
keep_busy = names["keep_busy"]


@pytest.fixture
def add_one(context: pumice.Context) -> pumice.Kernel:
    return pumice.Kernel(ADD_ONE, context=context, name="add_one")


def tensors(context: pumice.Context, count: int, n: int = 1000) -> list[pumice.Tensor]:
    return [pumice.tensor(np.full(n, float(i), "float32"), context) for i in range(count)]


def test_a_kernel_runs_on_arrays_by_name(add_one: pumice.Kernel) -> None:
    x = np.arange(1003, dtype="float32")
    y = np.zeros_like(x)
    add_one(x=x, y=y, threads=1003)
    np.testing.assert_array_equal(y, x + 1)


def test_extra_invocations_are_guarded(context: pumice.Context, add_one: pumice.Kernel) -> None:
    x, y = tensors(context, 2, 200)
    add_one(x=x, y=y, threads=70)
    np.testing.assert_array_equal(y.numpy(), np.r_[np.full(70, 1.0), np.full(130, 1.0)])
    z = pumice.tensor(np.full(200, 9, "float32"), context)
    add_one(x=x, y=z, threads=70)
    np.testing.assert_array_equal(z.numpy(), np.r_[np.full(70, 1.0), np.full(130, 9.0)])


def test_a_strided_and_a_reversed_array_arrive_right(add_one: pumice.Kernel) -> None:
    base = np.arange(40, dtype="float32").reshape(5, 8)
    for x in (base.T, base[::-1], base[:, ::2]):
        y = np.zeros(x.shape, "float32")
        add_one(x=x, y=y, threads=x.size)
        np.testing.assert_array_equal(y, x + 1)


def test_push_constants_are_converted_by_the_reflected_type(context: pumice.Context) -> None:
    kernel = pumice.Kernel(SCALE, context=context)
    x = np.ones(10, "float32")
    kernel(x=x, factor=np.float16(2.5), offset=np.int64(-3), threads=10)
    np.testing.assert_array_equal(x, np.full(10, -0.5))


@pytest.mark.parametrize(
    ("arguments", "rule", "text"),
    [
        ({"factor": 1.0, "offset": 1.5}, "K6", "1.5"),
        ({"factor": 1.0, "offset": 1 << 31}, "K6", "2147483648"),
        ({"factor": 1e300, "offset": 0}, "K6", "float32"),
        ({"factor": 1.0}, "K3", "offset"),
        ({"factor": 1.0, "offset": 1, "speed": 3}, "K4", "speed"),
        ({"factor": "much", "offset": 1}, "K5", "str"),
        ({"factor": 1.0, "offset": 1, "groups": 4}, "K8", "threads"),
    ],
)
def test_wrong_numbers_are_rejected_by_name(
    context: pumice.Context, arguments: dict[str, object], rule: str, text: str
) -> None:
    kernel = pumice.Kernel(SCALE, context=context)
    if "groups" not in arguments:
        arguments = {**arguments, "threads": 10}
    with pytest.raises(pumice.BindingError, match=text) as caught:
        kernel(x=np.ones(10, "float32"), **arguments)
    assert caught.value.rule == rule


def test_a_float64_array_is_rejected_for_a_float_kernel(add_one: pumice.Kernel) -> None:
    with pytest.raises(pumice.BindingError, match="float64") as caught:
        add_one(x=np.ones(4), y=np.zeros(4, "float32"), threads=4)
    assert caught.value.rule == "K5"
    assert caught.value.tensor == "x"


def test_a_written_read_only_array_is_rejected_before_anything_runs(add_one: pumice.Kernel) -> None:
    y = np.zeros(4, "float32")
    y.flags.writeable = False
    with pytest.raises(pumice.BindingError, match="read-only"):
        add_one(x=np.ones(4, "float32"), y=y, threads=4)


def test_a_view_that_starts_unaligned_names_contiguous(context: pumice.Context, add_one: pumice.Kernel) -> None:
    x, y = tensors(context, 2)
    with pytest.raises(pumice.BindingError, match=r"\.contiguous\(\)") as caught:
        add_one(x=x[1:101], y=y, threads=100)
    assert caught.value.rule == "K7"
    add_one(x=x[1:101].contiguous(), y=y, threads=100)
    np.testing.assert_array_equal(y.numpy()[:100], np.ones(100))


def test_a_list_replays_and_derives_its_barriers(context: pumice.Context, add_one: pumice.Kernel) -> None:
    a, b, c, d = tensors(context, 4)
    commands = pumice.CommandList(context)
    commands.dispatch(add_one.bind(x=a, y=b, threads=1000))  # b = a + 1
    commands.dispatch(add_one.bind(x=a, y=c, threads=1000))  # independent
    commands.dispatch(add_one.bind(x=b, y=d, threads=1000))  # reads b: a barrier
    commands.dispatch(add_one.bind(x=d, y=a, threads=1000))  # reads d, writes a: a barrier
    commands.commit()
    assert (commands.dispatches, commands.barriers) == (4, 2)
    for _ in range(5):
        submission = commands.exec()
    submission.wait(timeout=10)
    assert submission.done
    assert int(submission) == context.completed
    np.testing.assert_array_equal(a.numpy(), np.full(1000, 15.0))


def test_disjoint_ranges_of_one_buffer_need_no_barrier(context: pumice.Context, add_one: pumice.Kernel) -> None:
    x = pumice.tensor(np.zeros(2048, "float32"), context)
    commands = pumice.CommandList(context)
    commands.dispatch(add_one.bind(x=x[:1024], y=x[1024:], threads=1024))
    commands.dispatch(add_one.bind(x=x[:1024], y=x[:1024], threads=0))
    commands.commit()
    assert commands.barriers == 0
    assert commands.dispatches == 1  # the empty one is a no-op
    commands.exec().wait()
    np.testing.assert_array_equal(x.numpy()[1024:], np.ones(1024))


@pytest.mark.parametrize("n", [4, 8, 1000, 1 << 20])
def test_a_copy_copies(context: pumice.Context, n: int) -> None:
    source = pumice.tensor(np.arange(n // 4, dtype="uint32"), context)
    target = pumice.tensor(np.zeros(n // 4, "uint32"), context)
    commands = pumice.CommandList(context)
    commands.copy(source, target)
    commands.commit()
    commands.exec().wait()
    np.testing.assert_array_equal(target.numpy(), source.numpy())


def test_states_are_checked(context: pumice.Context, add_one: pumice.Kernel) -> None:
    x, y = tensors(context, 2)
    commands = pumice.CommandList(context)
    with pytest.raises(pumice.StateError, match="commit"):
        commands.exec()
    commands.dispatch(add_one.bind(x=x, y=y, threads=10))
    commands.commit()
    with pytest.raises(pumice.StateError, match="already"):
        commands.commit()
    with pytest.raises(pumice.StateError, match="committed"):
        commands.dispatch(add_one.bind(x=x, y=y, threads=10))
    x.buffer.close()
    with pytest.raises(pumice.StateError, match="closed"):
        commands.exec()


def test_waiting_for_an_id_that_was_never_submitted_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.StateError, match="not been submitted"):
        context.wait(context.submitted + 1)


def test_device_times_are_measured_on_request(context: pumice.Context, add_one: pumice.Kernel) -> None:
    a, b, c = tensors(context, 3)
    commands = pumice.CommandList(context)
    commands.dispatch(add_one.bind(x=a, y=b, threads=1000))
    commands.dispatch(add_one.bind(x=b, y=c, threads=1000))
    commands.commit(profile=True)
    submission = commands.exec()
    submission.wait()
    assert [one.label for one in commands.dispatch_times] == ["add_one", "add_one"]
    assert all(0 <= one.seconds < 60 for one in commands.dispatch_times)
    assert submission.device_seconds is not None
    assert submission.device_seconds > 0
    assert submission.device_time == submission.device_seconds


def test_dropping_everything_with_work_in_flight(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as own:
        x = pumice.tensor(np.ones(1, "uint32"), own)
        commands = pumice.CommandList(own)
        commands.dispatch(pumice.Kernel(SLOW, context=own).bind(x=x, groups=500))
        commands.commit()
        for _ in range(3):
            commands.exec()
        del x, commands
    gc.collect()


def test_a_wait_times_out_and_the_context_goes_on(context: pumice.Context) -> None:
    submission = keep_busy(context, 8000)
    with pytest.raises(pumice.TimeoutError, match="0.05") as caught:
        submission.wait(timeout=0.05)
    assert not submission.done
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.transient
    submission.wait(timeout=600)
    assert submission.done


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


START = f"""import pumice, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background shells start processes that ignore it
{KEEP_BUSY}
context = pumice.Context()
submission = keep_busy(context, GROUPS)
print("running", flush=True)
"""


def test_the_interpreter_may_exit_with_work_in_flight() -> None:
    process = python(START.replace("GROUPS", "5000"))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.strip() == "running"


def test_ctrl_c_interrupts_a_wait() -> None:
    process = python(START.replace("GROUPS", "10000") + "submission.wait()\n")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "running"
    time.sleep(0.3)
    begin = time.perf_counter()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in err
    assert process.returncode != 0
    assert time.perf_counter() - begin < 60
