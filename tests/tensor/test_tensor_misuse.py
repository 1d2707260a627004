"""Misuse of tensors: odd requests, numbers beyond every range, memory shared twice, buffers closed while in use."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice

SHAPED: list[Callable[[pumice.Context, Any], Any]] = [
    lambda context, shape: pumice.empty(shape, "float32", context),
    lambda context, shape: pumice.zeros(6, "float32", context).reshape(shape),
]


@pytest.mark.parametrize("shape", ["abc", (2.5,), None, {"a": 1}], ids=repr)
def test_shapes_that_are_none_are_type_errors(context: pumice.Context, shape: Any) -> None:
    for call in SHAPED:
        with pytest.raises(TypeError, match="shape: expected an integer or a sequence of integers"):
            call(context, shape)


def test_an_offset_is_bounded_before_it_is_counted_in_bits(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 64)
    for dtype, offset in (("float64", 2**61), ("float64", 2**58 + 1), ("float32", 2**63 - 1), ("int4", 2**62)):
        with pytest.raises((pumice.BindingError, pumice.GraphError)) as caught:
            pumice.Tensor(pumice.TensorDesc(dtype, [1]), buffer, offset)
        assert caught.value.rule in ("R1", "R8")
    with pytest.raises(pumice.BindingError, match="non-negative offset in elements; given -1"):
        pumice.Tensor(pumice.TensorDesc("float32", [1]), buffer, -1)


def test_a_tensor_needs_its_own_bytes_and_no_more(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 6)
    halves = pumice.Tensor(pumice.TensorDesc("float16", [3]), buffer)
    halves.upload(np.arange(3, dtype="float16"))
    last = pumice.Tensor(pumice.TensorDesc("float16", [1]), buffer, 2)
    assert last.tolist() == [2]
    with pytest.raises(pumice.BindingError, match="at least 8 bytes; given 6 bytes"):
        pumice.Tensor(pumice.TensorDesc("float32", [2]), buffer)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "int4"])
@pytest.mark.parametrize("values", [[1.5, 1], [300, 2**40], [float("nan"), 0], ["a", "b"], [2**70, 0]], ids=repr)
def test_lists_of_numbers_that_a_dtype_does_not_hold_are_rejected(
    context: pumice.Context, dtype: str, values: list[Any]
) -> None:
    tensor = pumice.zeros(4, dtype, context)
    if (dtype, values) == ("int32", [300, 2**40]):
        tensor[:2] = [300, 2**30]
        assert tensor.tolist() == [300, 2**30, 0, 0]
    with pytest.raises(pumice.BindingError, match=f"numbers that {dtype} can hold") as caught:
        tensor[1:3] = values
    assert caught.value.rule == "K6"
    assert tensor[2:].tolist() == [0, 0]


def test_lists_of_numbers_are_elements(context: pumice.Context) -> None:
    for dtype in ("int32", "int4", "bool", "float16", "uint64", "bfloat16"):
        tensor = pumice.zeros((2, 2), dtype, context)
        tensor[0] = [1, 0]
        tensor[1] = [1.0, True]
        assert tensor.tolist() == [[1, 0], [1, 1]]
    tensor = pumice.zeros(2, "uint64", context)
    tensor[:] = [2**64 - 1, 2**63]
    assert tensor.tolist() == [2**64 - 1, 2**63]


class PyBuffer(ctypes.Structure):
    """Py_buffer, with spare capacity."""

    _fields_ = (("memory", ctypes.c_void_p), ("owner", ctypes.c_void_p), ("rest", ctypes.c_void_p * 16))


def requested(tensor: pumice.Tensor, flags: int) -> bool:
    view = PyBuffer()
    try:
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(tensor), ctypes.byref(view), flags)
    except BufferError:
        return False
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return True


def test_the_buffer_protocol_keeps_what_is_asked_of_it(context: pumice.Context) -> None:
    writable, strides, rows, columns, any_order = 0x1, 0x18, 0x38, 0x58, 0x98
    tensor = pumice.Tensor(pumice.TensorDesc("int32", [3, 4]), pumice.Buffer(context, 48, "upload"))
    tensor.buffer.map()
    cases = [
        (tensor, {rows, any_order}),
        (tensor.T, {columns, any_order}),
        (tensor[:, ::2], set()),
        (tensor[:, 0], set()),
    ]
    for view, granted in cases:
        assert requested(view, strides | writable)
        assert {flags for flags in (rows, columns, any_order) if requested(view, flags)} == granted
    repeated = tensor[:1].broadcast_to((3, 4))
    assert requested(repeated, strides)
    assert not requested(repeated, strides | writable)
    assert memoryview(repeated).readonly  # type: ignore[arg-type]
    tensor.buffer.close()


def test_a_tensor_that_was_never_initialised_has_no_memory() -> None:
    with pytest.raises(BufferError, match="not initialised"):
        memoryview(pumice.Tensor.__new__(pumice.Tensor))  # type: ignore[arg-type]


def test_a_device_of_dlpack_that_is_no_pair_is_rejected(context: pumice.Context) -> None:
    class Odd:
        def __dlpack_device__(self) -> str:
            return "cpu"

        def __dlpack__(self, **_: object) -> object:
            return None

    with pytest.raises(pumice.BindingError, match="__dlpack_device__ returns a pair of integers.*given 'cpu'"):
        pumice.from_dlpack(Odd(), context)


def test_memory_imported_twice_is_known_to_be_one(context: pumice.Context) -> None:
    if "VK_EXT_external_memory_host" not in context.info.extensions:
        pytest.skip("the device cannot import host memory")
    array = np.frombuffer(mmap.mmap(-1, 8192), "float32")
    first, second = (pumice.from_host(array, context) for _ in range(2))
    desc = pumice.TensorDesc("float32", [1024])
    relu = pumice.Operator("Softmax", [desc], [desc]).compile(context)
    table = pumice.BindingTable(relu)
    table.bind_inputs([first[:1024]])
    with pytest.raises(pumice.BindingError) as caught:
        table.bind_outputs([second[512:1536]])
    assert caught.value.rule == "H5"
    table.bind_outputs([second[1024:]])
    first[:] = np.arange(2048, dtype="float32")
    first[1:] = second[:-1]
    assert array[1:].tolist() == list(range(2047))


CLOSED_MEANWHILE: list[Callable[[pumice.Tensor], object]] = [
    lambda one: one.upload(np.ones(1 << 20, "float32")),
    lambda one: one[::2].numpy(),
    lambda one: one.copy(),
    lambda one: one.to("float16"),
    lambda one: one.fill(3),
]


@pytest.mark.parametrize("call", CLOSED_MEANWHILE, ids=["upload", "numpy", "copy", "to", "fill"])
def test_a_buffer_may_be_closed_while_other_threads_use_it(
    context: pumice.Context, call: Callable[[pumice.Tensor], object]
) -> None:
    errors: list[BaseException] = []
    call(pumice.zeros(1 << 20, "float32", context))  # compile everything that the threads need

    def work(tensor: pumice.Tensor, begun: threading.Event) -> None:
        try:
            for _ in range(100):
                begun.set()
                call(tensor)
            errors.append(AssertionError("it was never closed"))
        except pumice.StateError:
            pass
        except BaseException as error:
            errors.append(error)

    for _ in range(5):
        tensor, begun = pumice.zeros(1 << 20, "float32", context), threading.Event()
        threads = [threading.Thread(target=work, args=(tensor, begun)) for _ in range(2)]
        for thread in threads:
            thread.start()
        begun.wait()
        tensor.buffer.close()
        for thread in threads:
            thread.join()
    assert not errors
    assert pumice.ones(3, "float32", context).tolist() == [1, 1, 1]
