"""Shared tensor memory: the buffer protocol, host memory without a copy, DLPack."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pumice
from dlpack_devices import on_device
from tensor_arrays import WHOLE_BYTES, Array, counted, page_aligned


@pytest.fixture
def can_import(context: pumice.Context) -> None:
    if "VK_EXT_external_memory_host" not in context.info.extensions:
        pytest.skip("the device has no VK_EXT_external_memory_host")


# Memory visible to the host.


def test_the_buffer_protocol_gives_mapped_memory(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 24, "upload")
    tensor = pumice.Tensor(pumice.TensorDesc("int16", [3, 4]), buffer)
    with pytest.raises(BufferError, match="not mapped"):
        memoryview(tensor)  # type: ignore[arg-type]
    buffer.map()
    view = memoryview(tensor)  # type: ignore[arg-type]
    assert (view.shape, view.format, view.strides, view.readonly) == ((3, 4), "h", (8, 2), False)
    np.asarray(view)[:] = counted((3, 4))
    np.testing.assert_array_equal(tensor.numpy(), counted((3, 4)))
    turned = memoryview(tensor.T)  # type: ignore[arg-type]
    assert turned.tolist() == counted((3, 4), "int16").T.tolist()
    assert bytes(tensor[1]) == counted((3, 4), "int16")[1].tobytes()  # type: ignore[arg-type]
    with pytest.raises(pumice.StateError, match="2 views"):
        buffer.close()
    view.release()
    turned.release()
    buffer.close()
    with pytest.raises(BufferError):
        memoryview(tensor)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bfloat16", "int4"])
def test_elements_without_a_name_have_no_buffer_protocol(context: pumice.Context, dtype: str) -> None:
    tensor = pumice.Tensor(pumice.TensorDesc(dtype, [4]), pumice.Buffer(context, 8, "upload"))
    tensor.buffer.map()
    with pytest.raises(BufferError, match="no format for a dtype that NumPy lacks"):
        memoryview(tensor)  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.asarray(tensor).shape, (4,))


ADD_ONE = """layout(binding = 0) buffer X { float x[]; };
void main() { x[gl_GlobalInvocationID.x] += 1.0; }"""


@pytest.mark.usefixtures("can_import")
def test_host_memory_is_used_without_a_copy(context: pumice.Context) -> None:
    array = page_aligned((32, 36))
    array[...] = counted((32, 36))
    tensor = pumice.from_host(array, context)
    pumice.Kernel(ADD_ONE, context)(x=tensor, threads=array.size)
    np.testing.assert_array_equal(array, counted((32, 36)) + 1)
    array[0, 0] = 50
    assert tensor[0, 0].item() == 50
    turned = pumice.from_host(array.T[:, ::2], context)
    np.testing.assert_array_equal(turned.numpy(), array.T[:, ::2])
    turned[0] = np.full(16, -1, "float32")
    assert (array[::2, 0] == -1).all()


@pytest.mark.usefixtures("can_import")
def test_imported_memory_lives_until_the_device_is_done(context: pumice.Context) -> None:
    class Owner(np.ndarray[Any, Any]):
        pass

    array = page_aligned(1024).view(Owner)
    gone = weakref.ref(array)
    gc.collect()
    before = context.memory
    tensor = pumice.from_host(array, context)
    assert context.memory.buffers == before.buffers + 1
    del array
    gc.collect()
    assert gone() is not None
    view = tensor[512:]
    del tensor
    gc.collect()
    assert gone() is not None
    view.fill(1)
    assert view.numpy().sum() == 512
    del view
    context.wait_idle()
    pumice.zeros(1, context=context)
    gc.collect()
    assert gone() is None
    assert context.memory.buffers == before.buffers


@pytest.mark.usefixtures("can_import")
def test_imported_memory_goes_with_its_context() -> None:
    own = pumice.Context()
    array = page_aligned(1024)
    tensor = pumice.from_host(array, own)
    own.close()
    with pytest.raises(pumice.StateError, match="closed"):
        tensor.numpy()
    del tensor
    array[:] = 1


IMPORTS: list[tuple[str, Callable[[], Array], str]] = [
    ("misaligned", lambda: page_aligned(1024)[1:], "begin at a multiple of 4096 .* 4 past"),
    ("odd length", lambda: page_aligned(1023), "multiple of 16 bytes long; given 4092"),
    ("read-only", lambda: np.frombuffer(bytes(4096), "float32"), "read-only"),
    ("reversed", lambda: page_aligned(1024)[::-1], "a stride of -4 bytes"),
    ("4-bit", lambda: np.zeros(4096, ml_dtypes.int4), "int4"),
    ("split", lambda: np.ndarray((4,), "float32", page_aligned(1024), 0, (6,)), "a stride of 6 bytes"),
]


@pytest.mark.usefixtures("can_import")
@pytest.mark.parametrize(("make", "text"), [case[1:] for case in IMPORTS], ids=[case[0] for case in IMPORTS])
def test_memory_that_cannot_be_shared_is_rejected_by_name(
    context: pumice.Context, make: Callable[[], Array], text: str
) -> None:
    with pytest.raises(pumice.UnsupportedError, match=f"host memory without a copy: .*{text}"):
        pumice.from_host(make(), context)


def test_other_rejections_of_host_memory(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match="native byte order"):
        pumice.from_host(page_aligned(1024, ">f4"), context)
    with pytest.raises(pumice.BindingError, match="without a mask"):
        pumice.from_host(np.ma.masked_array(page_aligned(1024)), context)
    with pytest.raises(TypeError, match="given list"):
        pumice.from_host([1.0], context)  # type: ignore[arg-type]
    assert pumice.from_host(np.empty((0, 3), "float32"), context).shape == (0, 3)
    without = pumice.Context(without=["VK_EXT_external_memory_host"])
    with pytest.raises(pumice.UnsupportedError, match="has no VK_EXT_external_memory_host"):
        pumice.from_host(page_aligned(1024), without)
    assert pumice.asarray(page_aligned(1024), context=without).shape == (1024,)


# DLPack.

EXPORTED = [dtype for dtype in WHOLE_BYTES if dtype is not ml_dtypes.bfloat16]


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("dtype", EXPORTED, ids=str)
def test_numpy_takes_tensors_by_dlpack(context: pumice.Context, dtype: str, copy: bool | None) -> None:
    array = counted((3, 4, 5), dtype)
    tensor = pumice.tensor(array, context)
    for view, expected in (
        (tensor, array),
        (tensor.T, array.T),
        (tensor[1:, ::2, 1], array[1:, ::2, 1]),
        (tensor[0, 0, 0], array[0, 0, 0]),
        (tensor[:0], array[:0]),
        (tensor[:1].broadcast_to((3, 4, 5)), np.broadcast_to(array[:1], (3, 4, 5))),
    ):
        taken = np.from_dlpack(view, copy=copy)  # type: ignore[arg-type]
        assert taken.dtype == array.dtype
        np.testing.assert_array_equal(taken, expected)


def test_exported_memory_outlives_the_tensor(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted(1000), context)
    buffer = tensor.buffer
    taken = np.from_dlpack(tensor)  # type: ignore[arg-type]
    copied = np.from_dlpack(tensor, copy=True)  # type: ignore[arg-type]
    del tensor
    gc.collect()
    np.testing.assert_array_equal(taken, counted(1000))
    np.testing.assert_array_equal(copied, counted(1000))
    if buffer.mappable:
        with pytest.raises(pumice.StateError, match="1 views"):
            buffer.close()
    del taken
    gc.collect()
    buffer.close()
    np.testing.assert_array_equal(copied, counted(1000))


def test_exports_share_where_the_host_sees_the_memory(context: pumice.Context) -> None:
    tensor = pumice.Tensor(pumice.TensorDesc("float32", [4]), pumice.Buffer(context, 16, "upload"))
    tensor.fill(1)
    shared = np.from_dlpack(tensor, copy=False)  # type: ignore[arg-type]
    copied = np.from_dlpack(tensor, copy=True)  # type: ignore[arg-type]
    tensor.fill(2)
    assert (shared == 2).all()
    assert (copied == 1).all()
    copied[:] = 3
    assert tensor.tolist() == [2] * 4


def test_dlpack_requests_that_cannot_be_met_are_buffer_errors(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted((2, 1)), context)
    assert tensor.__dlpack_device__() == (1, 0)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"dl_device": (2, 0)}, r"given \(2, 0\)"),
        ({"stream": 1}, "stream"),
    ]
    for arguments, text in refusals:
        with pytest.raises(BufferError, match=text):
            tensor.__dlpack__(**arguments)
    with pytest.raises(BufferError, match="copy"):
        tensor.broadcast_to((2, 3)).__dlpack__(copy=False)
    with pytest.raises(BufferError, match="int4"):
        pumice.zeros(4, "int4", context).__dlpack__()
    with pytest.raises(TypeError):
        tensor.__dlpack__(None)  # type: ignore[misc]


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (2, 5)])
def test_capsules_that_nobody_takes_are_released(context: pumice.Context, version: tuple[int, int] | None) -> None:
    tensor = pumice.tensor(counted(8), context)
    capsule = tensor.__dlpack__(max_version=version)
    versioned = version is not None and version[0] >= 1
    assert ("dltensor_versioned" in repr(capsule)) == versioned
    assert "dltensor" in repr(capsule)
    del capsule
    gc.collect()
    tensor.buffer.close()


ARRAYS: dict[str, Callable[[Array], Array]] = {
    "packed": lambda array: array,
    "reversed": lambda array: array[::-1, :, ::-1],
    "turned": lambda array: array.T,
    "sliced": lambda array: array[1:, ::2, 1:],
    "broadcast": lambda array: np.broadcast_to(array[:1], array.shape),
    "scalar": lambda array: array[1, 1, 1, ...],
    "empty": lambda array: array[:0],
}


@pytest.mark.parametrize("arrange", ARRAYS)
@pytest.mark.parametrize("dtype", EXPORTED, ids=str)
def test_arrays_of_others_are_taken_by_dlpack(context: pumice.Context, arrange: str, dtype: str) -> None:
    array = ARRAYS[arrange](counted((3, 4, 5), dtype))
    tensor = pumice.from_dlpack(array, context)
    assert tensor.dtype == array.dtype
    np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(pumice.from_dlpack(tensor, context).numpy(), array)


@pytest.mark.usefixtures("can_import")
def test_page_aligned_arrays_of_others_are_shared(context: pumice.Context) -> None:
    array = page_aligned((32, 32))
    tensor = pumice.from_dlpack(array.T, context, copy=False)
    tensor.fill(3)
    assert (array == 3).all()
    array.flags.writeable = False
    with pytest.raises(pumice.UnsupportedError, match="read-only"):
        pumice.from_dlpack(array, context, copy=False)
    assert pumice.from_dlpack(array, context).shape == (32, 32)


class Legacy:
    """An array of a library from before DLPack 1.0."""

    def __init__(self, array: Array, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self) -> Any:
        return on_device(self.array.__dlpack__(), self.device)


def test_libraries_from_before_version_1_are_understood(context: pumice.Context) -> None:
    array = counted((3, 4))
    gone = weakref.ref(array)
    np.testing.assert_array_equal(pumice.from_dlpack(Legacy(array), context).numpy(), array)
    del array
    gc.collect()
    assert gone() is None
    with pytest.raises(
        pumice.UnsupportedError, match="device type 4; expected 1 .CPU., or memory shared with 2 .CUDA."
    ):
        pumice.from_dlpack(Legacy(counted(3), (4, 0)), context)
    with pytest.raises(pumice.UnsupportedError, match="CUDA device 0 whose memory this context does not share"):
        pumice.from_dlpack(Legacy(counted(3), (2, 0)), context)
    with pytest.raises(pumice.UnsupportedError, match="code 5 with 128 bits"):
        pumice.from_dlpack(np.zeros(3, complex), context)
    with pytest.raises(pumice.BindingError, match="__dlpack_device__"):
        pumice.from_dlpack([1, 2], context)


def test_torch_and_tensors_exchange_arrays(context: pumice.Context) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    given = torch.arange(12, dtype=torch.int32).reshape(3, 4).T
    tensor = pumice.from_dlpack(given, context)
    np.testing.assert_array_equal(tensor.numpy(), given.numpy())
    taken = torch.from_dlpack(tensor.T)
    assert taken.dtype == torch.int32
    assert torch.equal(taken, given.T)
    halves = torch.arange(5).to(torch.bfloat16)
    there = pumice.from_dlpack(halves, context)
    assert there.dtype == ml_dtypes.bfloat16
    assert torch.equal(torch.from_dlpack(there), halves)
    del there, tensor
    gc.collect()
    assert torch.equal(taken, given.T)
