"""Memory shared with CUDA: errors without CUDA, and the calls made to a stand-in CUDA library."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pumice
import pumice._pumice as engine
from dlpack_devices import on_device
from pumice.device import cuda_driver, cuda_sharing
from stand_in_cuda import StandInCuda

MEMORY, SEMAPHORE = "VK_KHR_external_memory_fd", "VK_KHR_external_semaphore_fd"
TWICE = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; y[i] = 2 * x[i]; }
"""
OTHER = "00112233445566778899aabbccddeeff"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def stand_in(tmp_path: Path, context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInCuda]:
    """A stand-in CUDA driver with two devices; the second is the context's."""
    if MEMORY not in context.info.extensions:
        pytest.skip(f"the device lacks {MEMORY}")
    library = StandInCuda(tmp_path, [OTHER, context.info.uuid])
    monkeypatch.setattr(cuda_driver, "LIBRARY", library.path)
    monkeypatch.setattr(cuda_sharing, "_interops", type(cuda_sharing._interops)())
    library.reset()
    yield library
    gc.collect()


def empty(context: pumice.Context, count: int = 1000) -> pumice.Tensor:
    return pumice.empty(count, "float32", context, share="cuda")


# ---- missing requirements


def test_another_interface_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match="expected 'cuda' or None; given 'opencl'"):
        pumice.empty(3, "float32", context, share="opencl")


def test_a_missing_library_is_named(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libcuda-that-is-not-there.so.1")
    monkeypatch.setattr(cuda_sharing, "_interops", type(cuda_sharing._interops)())
    with pytest.raises(
        pumice.UnsupportedError, match="CUDA driver library, libcuda-that-is-not-there.so.1, cannot be loaded"
    ):
        empty(context)


def test_a_missing_function_is_named(tmp_path: Path, context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandInCuda(tmp_path, [context.info.uuid], without="cuStreamGetId")
    monkeypatch.setattr(cuda_driver, "LIBRARY", library.path)
    monkeypatch.setattr(cuda_sharing, "_interops", type(cuda_sharing._interops)())
    with pytest.raises(pumice.UnsupportedError, match="has no cuStreamGetId: expected a CUDA 12 driver"):
        empty(context)


def test_a_driver_that_does_not_start_is_named(
    tmp_path: Path, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = StandInCuda(tmp_path, [context.info.uuid])
    library.reset("cuInit", 999)
    monkeypatch.setattr(cuda_driver, "LIBRARY", library.path)
    monkeypatch.setattr(cuda_sharing, "_interops", type(cuda_sharing._interops)())
    with pytest.raises(
        pumice.UnsupportedError, match=r"cuInit failed: CUDA_ERROR_STAND_IN \(999\): a failure on purpose"
    ):
        empty(context)


def test_a_gpu_that_cuda_does_not_have_is_named(
    tmp_path: Path, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = StandInCuda(tmp_path, [OTHER])
    monkeypatch.setattr(cuda_driver, "LIBRARY", library.path)
    monkeypatch.setattr(cuda_sharing, "_interops", type(cuda_sharing._interops)())
    with pytest.raises(pumice.UnsupportedError, match=f"no device with the UUID {context.info.uuid}; it has {OTHER}"):
        empty(context)


def test_a_missing_extension_is_named(stand_in: StandInCuda) -> None:
    with pumice.Context(without=[MEMORY, SEMAPHORE]) as lesser:
        with pytest.raises(pumice.UnsupportedError, match=f"has no {MEMORY}"):
            empty(lesser)
        with pytest.raises(pumice.UnsupportedError, match=f"has no {SEMAPHORE}"):
            engine.SharedTimeline(lesser)


# ---- calls to CUDA


def test_memory_is_imported_and_given_back(stand_in: StandInCuda, context: pumice.Context) -> None:
    before = descriptors()
    tensor = empty(context)
    size = tensor.buffer._allocated_bytes
    assert size >= 4000
    assert stand_in.calls == [
        "cuDevicePrimaryCtxRetain 41",
        f"cuImportExternalMemory type 1 size {size} flags 1",
        f"cuExternalMemoryGetMappedBuffer offset 0 size {size}",
    ]
    assert tensor.buffer._mapping is not None and tensor.buffer._mapping[1] == 1
    assert tensor.__dlpack_device__() == (2, 1)
    stand_in.reset()
    del tensor
    gc.collect()
    assert stand_in.calls == ["cuCtxSynchronize", "cuMemFree_v2", "cuDestroyExternalMemory"]
    assert descriptors() <= before


def test_pumice_computes_on_such_memory_as_on_any(stand_in: StandInCuda, context: pumice.Context) -> None:
    tensor = empty(context)
    tensor.fill(2)
    assert (tensor + tensor).numpy().tolist() == [4] * 1000
    tensor[3:5] = [7, 8]
    assert tensor.numpy()[2:6].tolist() == [2, 7, 8, 2]


def test_the_library_of_two_devices_sees_a_view(stand_in: StandInCuda, context: pumice.Context) -> None:
    tensor = empty(context)
    address = tensor.buffer._mapping[0]  # type: ignore[index]
    found = engine.shared_tensor(context, address + 40, "int32", [3, 2], [4, 1])
    assert found is not None and found.offset == 10 and found.buffer.id == tensor.buffer.id
    assert engine.shared_tensor(context, address + 4000, "int32", [1], [1]) is None
    assert engine.shared_tensor(context, address - 4, "int32", [1], [1]) is None
    assert engine.shared_tensor(context, address + 2, "int32", [1], [1]) is None
    with pytest.raises(pumice.BindingError):
        engine.shared_tensor(context, address + 3996, "int32", [2], [1])


def test_an_array_of_cuda_keeps_the_memory(stand_in: StandInCuda, context: pumice.Context) -> None:
    tensor = empty(context)
    kept = tensor.__dlpack__(max_version=(1, 0), stream=-1)
    assert tensor.buffer._views == 1
    stand_in.reset()
    del tensor
    gc.collect()
    assert stand_in.calls == []
    del kept
    assert stand_in.calls == ["cuCtxSynchronize", "cuMemFree_v2", "cuDestroyExternalMemory"]


class OfCuda:
    """An array of another library in a tensor's memory."""

    def __init__(self, tensor: pumice.Tensor, number: int = 1) -> None:
        self.tensor, self.number = tensor, number

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.tensor.__dlpack__(max_version=options["max_version"])
        return on_device(capsule, self.__dlpack_device__())


def test_a_kernel_takes_arrays_of_cuda(stand_in: StandInCuda, context: pumice.Context) -> None:
    kernel = pumice.Kernel(TWICE, context=context)
    x, y = empty(context), empty(context)
    x.fill(4)
    y.fill(0)
    kernel(x=OfCuda(x[64:]), y=OfCuda(y), threads=936)
    assert y.numpy().tolist() == [8] * 936 + [0] * 64
    assert x.buffer._views == 0
    foreign = OfCuda(pumice.empty(3, "float32", context), 0)
    with pytest.raises(pumice.UnsupportedError, match='memory this context does not share; pumice.empty.*share="cuda"'):
        kernel(x=foreign, y=y, threads=3)


def test_an_array_of_the_cpu_is_a_copy(stand_in: StandInCuda, context: pumice.Context) -> None:
    tensor = empty(context, 3)
    tensor.fill(5)
    tensor.__dlpack__(dl_device=(1, 0))
    assert tensor.buffer._views == 0
    with pytest.raises(BufferError, match="memory shared with CUDA is exported without a copy"):
        tensor.__dlpack__(copy=True)


@pytest.mark.parametrize("name", ["cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"])
def test_a_call_that_fails_is_named(stand_in: StandInCuda, context: pumice.Context, name: str) -> None:
    empty(context)
    gc.collect()
    before, blocks = descriptors(), context.memory.buffers
    stand_in.reset(name, 801)
    with pytest.raises(pumice.DeviceError, match=rf"{name} failed: CUDA_ERROR_STAND_IN \(801\): a failure on purpose"):
        empty(context)
    gc.collect()
    assert descriptors() <= before and context.memory.buffers == blocks


# ---- ordering between both sides


class Timeline:
    """A stand-in for a timeline semaphore, which this driver cannot export."""

    def __init__(self, context: pumice.Context) -> None:
        self.value = 0

    def export_semaphore(self) -> int:
        return os.open("/dev/null", os.O_RDONLY)


@pytest.fixture
def begun(stand_in: StandInCuda, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the timeline values the engine receives; the execution id is 7."""
    told: list[Any] = []
    monkeypatch.setattr(
        cuda_sharing,
        "_pumice",
        SimpleNamespace(
            SharedTimeline=Timeline,
            begin_order=lambda ready, value, done: told.append(value),
            end_order=lambda: 7 if told[-1] != 3 else 0,
        ),
    )
    return told


def test_calls_of_an_order(stand_in: StandInCuda, context: pumice.Context, begun: list[Any]) -> None:
    order = cuda_sharing.StreamOrder(context, 0x20)
    with order:
        assert stand_in.calls == [
            "cuDevicePrimaryCtxRetain 41",
            "cuImportExternalSemaphore type 9 flags 0",
            "cuImportExternalSemaphore type 9 flags 0",
            "cuSignalExternalSemaphoresAsync 1 of 1 on 32",
        ]
        stand_in.reset()
    assert stand_in.calls == ["cuWaitExternalSemaphoresAsync 7 of 1 on 32"]
    stand_in.reset()
    with order:
        pass
    with cuda_sharing.StreamOrder(context, 0x20):  # the third submits nothing
        pass
    assert stand_in.calls == [
        "cuSignalExternalSemaphoresAsync 2 of 1 on 32",
        "cuWaitExternalSemaphoresAsync 7 of 1 on 32",
        "cuSignalExternalSemaphoresAsync 3 of 1 on 32",
    ]
    assert begun == [1, 2, 3]


def test_each_stream_has_a_timeline(stand_in: StandInCuda, context: pumice.Context, begun: list[Any]) -> None:
    for stream in (0x20, 0x30, 0x20):
        with cuda_sharing.StreamOrder(context, stream):
            pass
    assert [call for call in stand_in.calls if "Signal" in call] == [
        "cuSignalExternalSemaphoresAsync 1 of 1 on 32",
        "cuSignalExternalSemaphoresAsync 1 of 1 on 48",
        "cuSignalExternalSemaphoresAsync 2 of 1 on 32",
    ]
    with (
        cuda_sharing.StreamOrder(context, 0x20),
        pytest.raises(pumice.StateError, match="has already begun an order of this context with another stream"),
    ):
        cuda_sharing.StreamOrder(context, 0x30).__enter__()


def test_a_tensor_of_another_interfaces_array_counts_as_a_view(stand_in: StandInCuda, context: pumice.Context) -> None:
    """The pool of results reuses memory that has no views."""
    made = empty(context)
    address, _ = made.buffer._mapping
    again = engine.shared_tensor(context, address, "float32", [2], [1])
    assert again is not None and made.buffer._views == 1
    other = engine.shared_tensor(context, address, "float32", [2], [1])
    assert other is not None and made.buffer._views == 2
    del again, other
    gc.collect()
    assert made.buffer._views == 0


def test_a_stream_that_is_captured_is_rejected(
    stand_in: StandInCuda, context: pumice.Context, begun: list[Any]
) -> None:
    """The stand-in reports stream 99 as being captured."""
    with pytest.raises(pumice.StateError, match="captured into a CUDA graph"):
        cuda_sharing.StreamOrder(context, 99).__enter__()
    assert not begun
    with cuda_sharing.StreamOrder(context, 0x20):
        pass


def test_a_descriptor_is_closed_where_no_context_can_be_made_current(
    stand_in: StandInCuda, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary = cuda_sharing.get_cuda_interop(context).primary
    read, write = os.pipe()
    with monkeypatch.context() as patched:
        patched.setitem(primary.cuda.functions, "cuCtxPushCurrent_v2", lambda handle: 201)
        with pytest.raises(pumice.DeviceError, match="cuCtxPushCurrent_v2"):
            cuda_driver.ImportedMemory(primary, write, 64)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write)
    os.close(read)


def test_a_signal_that_fails_begins_no_order(stand_in: StandInCuda, context: pumice.Context, begun: list[Any]) -> None:
    with cuda_sharing.StreamOrder(context, 0x20):
        pass
    stand_in.reset("cuSignalExternalSemaphoresAsync", 700)
    with (
        pytest.raises(pumice.DeviceError, match="cuSignalExternalSemaphoresAsync failed"),
        cuda_sharing.StreamOrder(context, 0x20),
    ):
        pass
    stand_in.reset()
    with cuda_sharing.StreamOrder(context, 0x20):
        pass
    assert begun == [1, 2]


def test_semaphores_are_given_back(
    stand_in: StandInCuda, context: pumice.Context, begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    with cuda_sharing.StreamOrder(context, 0x20):
        pass
    stand_in.reset()
    cuda_sharing._interops.clear()
    gc.collect()
    assert sorted(stand_in.calls) == sorted(
        ["cuCtxSynchronize", "cuDestroyExternalSemaphore"] * 2 + ["cuDevicePrimaryCtxRelease_v2 41"]
    )
    assert descriptors() <= before


def test_other_memory_is_not_exported(context: pumice.Context) -> None:
    with pytest.raises(pumice.StateError, match="was not created for mapping by another interface"):
        pumice.empty(3, "float32", context).buffer._export_memory()


def test_no_order_ends_that_has_not_begun() -> None:
    with pytest.raises(pumice.StateError, match="no order has begun on this thread"):
        engine.end_order()
