"""Tensor lifetimes: closed buffers, threads, signals, forks."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import pumice
from tensor_arrays import counted
from threads import in_threads

# Lifetimes, threads, waits.


def test_views_keep_the_memory_of_their_parents(context: pumice.Context) -> None:
    gc.collect()
    before = context.memory.buffers
    tensor = pumice.tensor(counted((100, 100)), context)
    view = tensor.T[5:, ::3][None]
    del tensor
    gc.collect()
    assert context.memory.buffers == before + 1
    np.testing.assert_array_equal(view.numpy(), counted((100, 100)).T[5:, ::3][None])
    del view
    gc.collect()
    assert context.memory.buffers == before


def test_tensors_of_closed_buffers_and_contexts_say_so() -> None:
    own = pumice.Context()
    tensor, other = pumice.tensor(counted(4), own), pumice.tensor(counted(4), own)
    tensor.buffer.close()
    calls: list[Callable[[pumice.Tensor], object]] = [
        pumice.Tensor.numpy,
        pumice.Tensor.copy,
        lambda one: one.fill(1),
        lambda one: one.upload(counted(4)),
        lambda one: one.to("int8"),
        lambda one: one.__dlpack__(),
        lambda one: one.__setitem__(0, 1),
    ]
    for call in calls:
        with pytest.raises(pumice.StateError, match="Buffer.*is closed|closed"):
            call(tensor)
    own.close()
    for call in calls:
        with pytest.raises(pumice.StateError, match="closed"):
            call(other)
    assert other.reshape((2, 2)).shape == (2, 2)


def test_threads_write_and_read_views_of_one_tensor(context: pumice.Context) -> None:
    tensor = pumice.zeros((64, 8), "float32", context)

    def work(column: int) -> None:
        for turn in range(20):
            tensor[:, column] = float(turn + column)
            values = tensor[:, column].numpy()
            assert (values == turn + column).all()
            assert (tensor[:, column].copy().to("int32").numpy() == turn + column).all()

    in_threads(work, range(8))
    np.testing.assert_array_equal(tensor.numpy(), np.broadcast_to(np.arange(8) + 19, (64, 8)))


def test_transfers_larger_than_the_staging_memory(context: pumice.Context) -> None:
    array = np.arange(18 << 20, dtype="uint32").reshape(3, -1)  # 72 MiB
    tensor = pumice.tensor(array, context)
    assert (tensor.numpy() == array).all()
    tensor[:, :: 1 << 20] = 0
    array[:, :: 1 << 20] = 0
    assert (tensor[1].numpy() == array[1]).all()


BUSY = """layout(binding = 0) buffer X { float x[]; };
void main() { uint i = gl_GlobalInvocationID.x; float v = x[i]; for (int k = 0; k < 2000; ++k) v = sin(v) + 1.0; x[i] = v; }"""


class Interrupted(Exception):
    """Raised by the signal handler of these tests."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_signals_interrupt_transfers(context: pumice.Context) -> None:
    """A signal acts like Ctrl-C: the wait is abandoned, submitted work continues, and the tensors stay usable."""
    tensor = pumice.zeros(1 << 16, "float32", context)
    kernel = pumice.Kernel(BUSY, context).bind(x=tensor, threads=1 << 16)

    def busy(dispatches: int) -> pumice.CommandList:
        commands = pumice.CommandList(context)
        for _ in range(dispatches):
            commands.dispatch(kernel)
        commands.commit()
        commands.exec().wait()
        return commands

    one = busy(1)
    mapped = pumice.Buffer(context, 64, "upload")
    mapped.map()
    calls: list[Callable[[], object]] = [
        tensor.numpy,
        lambda: tensor.upload(np.ones(1 << 16, "float32")),
        lambda: tensor.fill(1),
        lambda: tensor.copy(),
        lambda: tensor[::2].to("int32"),
        lambda: tensor.__dlpack__(),
        lambda: mapped.sync_start(),
        lambda: one.time(50),
    ]
    # A device that was idle or shared gets faster, so the number of dispatches for a quarter of a second is found by trying.
    # Use a few long command lists: drivers block if many are in flight.
    dispatches = max(1, int(0.05 / min(one.time(3))) + 1)

    def is_interrupted(call: Callable[[], object]) -> bool:
        for _ in range(5):
            submission = long.exec()
        try:
            with alarm(0.05):
                call()
        except Interrupted:
            return True
        finally:
            submission.wait()
        return False

    long = busy(dispatches)
    for position, call in enumerate(calls):
        while not is_interrupted(call):
            dispatches *= 4
            assert dispatches < 1 << 16, f"call {position} was never interrupted"
            long = busy(dispatches)
    tensor.fill(2)
    assert (tensor.numpy() == 2).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_gets_an_error_for_its_parents_tensors(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted(4), context)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            tensor.numpy()
            answer = b"read"
        except pumice.StateError as error:
            answer = str(error).encode()
        os.write(write, answer)
        os._exit(0)
    os.waitpid(child, 0)
    assert b"fork" in os.read(read, 1000)
    os.close(read)
    os.close(write)
    np.testing.assert_array_equal(tensor.numpy(), counted(4))
