"""Endless device work: every wait has a timeout, Ctrl-C interrupts it, and a process can exit while the device is still busy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NoReturn

import pytest

import pumice
from slow_kernels import SLOW

# ENDLESS is days of work for a CPU. A single endless loop is no use here: software drivers end it.
START = f"""
import signal, time
import numpy as np
import pumice
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background shells start processes that ignore it
context = pumice.Context()
if context.info.kind != "software":
    raise SystemExit("a GPU is not given endless work")
kernel = pumice.Kernel({SLOW!r}, context=context, name="endless")
x = pumice.zeros((1,), "uint32", context)
ENDLESS = (65535, 65535)

def list_of(groups):
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=x, groups=groups))
    commands.commit()
    return commands

def expect(error, work):
    begin = time.monotonic()
    try:
        work()
    except error as caught:
        print(type(caught).__name__, flush=True)
        assert time.monotonic() - begin < 20, "it took too long"
        return caught
    raise SystemExit("no " + error.__name__)
"""


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + code],
        env={**os.environ, "PUMICE_ABANDON_SECONDS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def skip_on_a_gpu(process: subprocess.Popen[str]) -> NoReturn:
    _, err = process.communicate(timeout=60)
    if "a GPU is not given endless work" in err:
        pytest.skip("a GPU is not given endless work")
    pytest.fail(err)


def run(code: str, **environment: str) -> tuple[list[str], str]:
    """Run a script that has to exit by itself, and return its printed words and its stderr."""
    process = start(code, **environment)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    if "a GPU is not given endless work" in err:
        pytest.skip("a GPU is not given endless work")
    assert process.returncode == 0, err
    return out.split(), err


def test_a_call_of_a_kernel_has_a_timeout_and_the_process_ends() -> None:
    """The arrays of the call stay unchanged, and the exit waits only for PUMICE_ABANDON_SECONDS."""
    out, err = run("""
array = np.full(4, 5, "uint32")
error = expect(pumice.TimeoutError, lambda: kernel(x=array, groups=ENDLESS, timeout=0.2))
assert error.transient and "0.2" in str(error), error
assert (array == 5).all()
""")
    assert out == ["TimeoutError"]
    assert "is abandoned" in err
    assert "not freed" in err


@pytest.mark.parametrize("given", ["-1", "'soon'", "float('nan')"])
def test_a_timeout_that_is_no_time_is_rejected(context: pumice.Context, given: str) -> None:
    kernel = pumice.Kernel("layout(binding = 0) buffer X { uint x[]; };\nvoid main() { x[0] = 1u; }", context=context)
    with pytest.raises(pumice.BindingError, match="seconds"):
        kernel(x=pumice.zeros((1,), "uint32", context), threads=1, timeout=eval(given))
    with pytest.raises((pumice.BindingError, TypeError)):
        context.close(timeout=eval(given))
    assert not context.closed


def test_close_gives_a_context_up_after_its_timeout() -> None:
    out, err = run("""
list_of(ENDLESS).exec()
assert context.patience >= 1
context.close(timeout=0.3)
assert context.closed and context.abandoned
error = expect(pumice.Error, lambda: x.numpy())
other = pumice.Context()  # the device still answers
print(pumice.tensor(np.arange(3.0, dtype="float32"), other).numpy().sum())
""")
    assert out[-1] == "3.0"
    assert err.count("is abandoned") == 1


def test_a_wait_in_another_thread_raises_if_its_context_was_abandoned() -> None:
    out, _ = run("""
import threading
submission = list_of(ENDLESS).exec()
seen = []
def wait():
    try:
        submission.wait()
    except pumice.Error as error:
        seen.append(error)
thread = threading.Thread(target=wait)
thread.start()
time.sleep(0.2)
context.close(timeout=0.2)
thread.join(10)
print(type(seen[0]).__name__)
expect(pumice.Error, lambda: submission.wait())
""")
    assert out[0] in ("DeviceLostError", "StateError")


def test_a_process_with_endless_work_ends_by_itself() -> None:
    out, err = run("list_of(ENDLESS).exec()\nprint('leaving', flush=True)\n")
    assert out == ["leaving"]
    assert "PUMICE_ABANDON_SECONDS" in err


def test_dropping_all_objects_of_endless_work_does_not_wait_for_ever() -> None:
    out, _ = run("""
import gc
commands = list_of(ENDLESS)
commands.exec()
del commands, x, kernel, context
gc.collect()
print("dropped", flush=True)
""")
    assert out == ["dropped"]


def test_the_patience_grows_with_what_was_waited_for() -> None:
    out, _ = run("""
before = context.patience
list_of((3000,)).exec().wait()
print(context.patience > before)
""")
    assert out == ["True"]


INTERRUPTED = {
    "kernel": "kernel(x=x, groups=ENDLESS)",
    "submission": "list_of(ENDLESS).exec().wait()",
    "context": "list_of(ENDLESS).exec(); context.wait_idle()",
    "download": "list_of(ENDLESS).exec(); x.numpy()",
    "upload": "list_of(ENDLESS).exec(); x.upload(np.ones(1, 'uint32'))",
    "close": "list_of(ENDLESS).exec(); context.close(timeout=1000)",
}


@pytest.mark.parametrize("way", INTERRUPTED)
def test_ctrl_c_interrupts(way: str) -> None:
    process = start(f"""
print("begin", flush=True)
try:
    {INTERRUPTED[way]}
except KeyboardInterrupt:
    print("interrupted", flush=True)
""")
    assert process.stdout is not None
    first = process.stdout.readline().strip()
    if first != "begin":
        skip_on_a_gpu(process)
    time.sleep(0.7)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "interrupted" in out, err
    assert process.returncode == 0, err
    assert time.monotonic() - begin < 30


def test_ctrl_c_at_the_end_of_a_process_ends_it() -> None:
    process = start("list_of(ENDLESS).exec()\nprint('leaving', flush=True)\n", PUMICE_ABANDON_SECONDS="1000")
    assert process.stdout is not None
    if process.stdout.readline().strip() != "leaving":
        skip_on_a_gpu(process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "abandoned" in err


def test_ctrl_c_interrupts_a_compilation_between_kernels() -> None:
    """Each pair of functions is a separate kernel; 150 of them take seconds, and the interrupt stops after about a tenth."""
    out, _ = run(
        """
import itertools, os, threading
NAMES = "Tan Softplus Atanh Erf Exp Log Sin Cos Tanh Sigmoid Asin Acos Sinh Cosh".split()
pairs = list(itertools.permutations(NAMES, 2))

def graph_of(pairs):
    graph = pumice.Graph("pairs")
    x = graph.input("x", "float32", [8])
    for k, (first, second) in enumerate(pairs):
        graph.output(f"y{k}", graph.add(second, graph.add(first, x)))
    return graph

begin = time.monotonic()
graph_of(pairs[150:]).compile(context)
each = (time.monotonic() - begin) / len(pairs[150:])
graph = graph_of(pairs[:150])
timer = threading.Timer(10 * each, os.kill, (os.getpid(), signal.SIGINT))
begin = time.monotonic()
timer.start()
try:
    graph.compile(context)
    print("compiled", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert time.monotonic() - begin < 75 * each, (time.monotonic() - begin, each)
""",
        PUMICE_NO_CACHE="1",
        MESA_SHADER_CACHE_DISABLE="true",
    )
    assert out == ["interrupted"]
