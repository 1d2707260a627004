"""Tensors as users meet them: from and to NumPy, views, assignment, copies, conversion, DLPack, memory that is shared."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pumice

Array = npt.NDArray[Any]

DTYPES = [
    *(
        "float64",
        "float32",
        "float16",
        "int64",
        "uint64",
        "int32",
        "uint32",
        "int16",
        "uint16",
        "int8",
        "uint8",
        "bool",
    ),
    *(ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4),
]
WHOLE_BYTES = DTYPES[:-2]


def counted(shape: Any, dtype: Any = "float32") -> Array:
    """Elements that differ from their neighbours in every dtype."""
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype)


def page_aligned(shape: Any, dtype: Any = "float32") -> Array:
    count = int(np.prod(shape))
    memory = mmap.mmap(-1, max(count * np.dtype(dtype).itemsize, 1))
    return np.frombuffer(memory, dtype, count).reshape(shape)


@pytest.fixture
def can_import(context: pumice.Context) -> None:
    if "VK_EXT_external_memory_host" not in context.info.extensions:
        pytest.skip("the device has no VK_EXT_external_memory_host")


# From and to NumPy.


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(), (1,), (0,), (3, 0, 2), (7,), (3, 5), (2, 1, 3, 1), (1, 2, 1, 2, 1, 2, 1, 3)], ids=str
)
def test_elements_go_to_the_device_and_back(context: pumice.Context, dtype: Any, shape: tuple[int, ...]) -> None:
    array = counted(shape, dtype)
    tensor = pumice.tensor(array, context)
    assert (tensor.shape, tensor.dtype, tensor.ndim, tensor.size) == (shape, array.dtype, array.ndim, array.size)
    back = tensor.numpy()
    assert (back.dtype, back.shape) == (array.dtype, shape)
    np.testing.assert_array_equal(back, array)


ARRANGEMENTS: dict[str, Callable[[Array], Array]] = {
    "Fortran": np.asfortranarray,
    "reversed": lambda array: array[::-1, :, ::-1],
    "transposed": lambda array: array.transpose(1, 2, 0),
    "sliced": lambda array: array[1:, ::2, 1:],
    "broadcast": lambda array: np.broadcast_to(array[:, :1], array.shape),
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "big-endian, reversed": lambda array: array.astype(array.dtype.newbyteorder(">"))[::-1],
    "read-only": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
    "misaligned": lambda array: np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1).reshape(array.shape),
    "memory map": lambda array: array.view(np.memmap),
}


@pytest.mark.parametrize("arrange", ARRANGEMENTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool", ml_dtypes.bfloat16, ml_dtypes.int4], ids=str)
def test_arrays_of_any_strides_and_byte_order_arrive_right(context: pumice.Context, arrange: str, dtype: Any) -> None:
    if "endian" in arrange and np.dtype(dtype).kind == "V":
        pytest.skip("ml_dtypes are of native byte order")
    array = ARRANGEMENTS[arrange](counted((3, 5, 4), dtype))
    tensor = pumice.tensor(array, context)
    assert tensor.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(tensor.numpy(), np.asarray(array).astype(dtype))


REFUSED: list[tuple[Any, str]] = [
    (np.zeros(2, [("a", "f4"), ("b", "i4")]), "given .*'a'"),
    (np.array([object()]), "given object"),
    (np.array(["text"]), "given <U4"),
    (np.array([1j]), "given complex128"),
    (np.array(["2020-01-01"], "datetime64[D]"), "given datetime64"),
    (np.ma.masked_array([1.0, 2.0], [False, True]), "without a mask"),
    ([[1, 2], ["a", 3]], "given <U21"),
]


@pytest.mark.parametrize(("array", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_elements_that_no_tensor_has_are_refused(context: pumice.Context, array: Any, text: str) -> None:
    with pytest.raises(pumice.BindingError, match=text) as caught:
        pumice.tensor(array, context)
    assert caught.value.rule == "K5"


def test_special_floats_keep_their_bits(context: pumice.Context) -> None:
    """Also where the copy is made by a kernel."""
    words = np.array([0x7FC00001, 0x7F800001, 0x80000000, 0x00000001, 0xFF800000, 0x7F800000], "uint32")
    tensor = pumice.tensor(words.view("float32").reshape(2, 3), context)
    np.testing.assert_array_equal(tensor.numpy().view("uint32").ravel(), words)
    np.testing.assert_array_equal(tensor.T.copy().numpy().view("uint32"), words.reshape(2, 3).T)


def test_an_array_of_a_tensor_is_a_copy_of_the_dtype_asked_for(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted((2, 3)), context)
    array = np.asarray(tensor)
    array[:] = -1
    np.testing.assert_array_equal(np.array(tensor, copy=True), counted((2, 3)))
    assert np.asarray(tensor, "float64").dtype == np.float64
    np.testing.assert_array_equal(tensor + np.ones(3, "float32"), counted((2, 3)) + 1)  # type: ignore[operator]
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="always a copy"):
            np.array(tensor, copy=False)


def test_tensors_tell_their_facts(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted((2, 3), "int16"), context)
    assert (len(tensor), tensor.nbytes, tensor.strides, tensor.is_contiguous) == (2, 12, (3, 1), True)
    assert repr(tensor) == f"<Tensor int16[2, 3] on '{context.info.name}'>"
    assert "strides [1, 3]" in repr(tensor.T)
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [row.tolist() for row in tensor] == [[0, 1, 2], [3, 4, 5]]  # type: ignore[attr-defined]
    assert tensor[1, 2].item() == 5
    assert isinstance(tensor[1, 2].item(), int)
    with pytest.raises(pumice.BindingError, match="one element"):
        tensor.item()
    with pytest.raises(TypeError, match="rank 0"):
        len(tensor[0, 0])


# Views.

INDICES: list[Any] = [
    *(0, -1, slice(None), slice(1, None), slice(None, None, 2), slice(-2, None), slice(3, 1), slice(0, 100, 3)),
    *(..., None, (..., 0), (0, ...), (..., None), (None, ..., None), (1, 2, 3), (0, ..., -1), ()),
    *((slice(None), 1), (slice(1, 2), slice(None), slice(1, 4, 2)), (slice(None), None, slice(2, 3)), np.int64(1)),
    *((slice(0, 1, -1),), (slice(None), slice(None), slice(None, None, 7))),
]


@pytest.mark.parametrize("key", INDICES, ids=str)
def test_indexing_gives_the_views_that_numpy_gives(context: pumice.Context, key: Any) -> None:
    array = counted((3, 4, 5))
    tensor = pumice.tensor(array, context)
    view = tensor[key]
    assert (view.shape, view.buffer) == (array[key].shape, tensor.buffer)
    np.testing.assert_array_equal(view.numpy(), array[key])
    np.testing.assert_array_equal(view.copy().numpy(), array[key])


BAD_INDICES: list[tuple[Any, type[Exception], str]] = [
    (slice(None, None, -1), pumice.GraphError, "a step of -1.*the operator Slice"),
    ((0, slice(3, 0, -2)), pumice.GraphError, "a step of -2"),
    (3, IndexError, "index 3 of an axis of 3"),
    ((0, -5), IndexError, "index -5 of an axis of 4"),
    (1 << 80, IndexError, "index"),
    ((0, 0, 0, 0), pumice.GraphError, "4 indices for a tensor of rank 3"),
    ((..., ...), pumice.GraphError, "more than one ellipsis"),
    (True, pumice.GraphError, "given bool"),
    ([0, 1], pumice.GraphError, "given list: the operators Gather"),
    (np.array([0, 1]), pumice.GraphError, "given ndarray"),
    (1.0, pumice.GraphError, "given float"),
    ("a", pumice.GraphError, "given str"),
    (slice(None, None, 0), ValueError, "zero"),
    ((None,) * 6, pumice.GraphError, "rank 9"),
]


@pytest.mark.parametrize(("key", "error", "text"), BAD_INDICES, ids=[str(key) for key, _, _ in BAD_INDICES])
def test_what_is_no_view_is_refused(context: pumice.Context, key: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pumice.tensor(counted((3, 4, 5)), context)[key]


keys = st.tuples(
    *[st.one_of(st.just(slice(None)), st.builds(slice, st.integers(0, 4), st.integers(0, 5), st.integers(1, 3)))] * 3
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.tuples(keys, st.permutations([0, 1, 2])), min_size=1, max_size=3), st.sampled_from(DTYPES))
def test_views_of_views_are_numpys(context: pumice.Context, steps: list[tuple[Any, list[int]]], dtype: Any) -> None:
    array = counted((4, 5, 3), dtype)
    view = pumice.tensor(array, context)
    for key, axes in steps:
        view, array = view[key].transpose(axes), array[key].transpose(axes)
    np.testing.assert_array_equal(view.numpy(), array)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.tuples(keys, st.permutations([0, 1, 2])), min_size=1, max_size=2), st.sampled_from(WHOLE_BYTES))
def test_writing_to_a_view_writes_its_elements_alone(
    context: pumice.Context, steps: list[tuple[Any, list[int]]], dtype: Any
) -> None:
    array = counted((4, 5, 3), dtype)
    tensor = pumice.tensor(array, context)
    view, part = tensor, array
    for key, axes in steps:
        view, part = view[key].transpose(axes), part[key].transpose(axes)
    part[...] = part + part
    view.upload(part)
    np.testing.assert_array_equal(tensor.numpy(), array)


RESHAPES: list[tuple[Any, Any]] = [
    ((slice(None), slice(None)), (2, 2, 6)),
    ((slice(None), slice(None)), (-1,)),
    ((slice(None), slice(0, 3)), (2, 2, 3)),
    ((slice(None, None, 2), slice(None)), (1, 2, 6, 1)),
    ((slice(None), slice(None, None, 2)), (4, 1, 3)),
    ((slice(None), 0), (2, 2)),
    ((0, slice(None)), (3, -1)),
    ((slice(0, 0), slice(None)), (6, 0)),
    ((slice(0, 1), slice(0, 1)), ()),
]


@pytest.mark.parametrize(("key", "shape"), RESHAPES, ids=str)
def test_reshaping_is_a_view_where_the_strides_allow_it(context: pumice.Context, key: Any, shape: Any) -> None:
    array = counted((4, 6))
    tensor = pumice.tensor(array, context)
    view = tensor[key].reshape(shape)
    assert view.buffer is tensor.buffer
    np.testing.assert_array_equal(view.numpy(), array[key].reshape(shape))


def test_a_view_may_be_a_whole_number_long(context: pumice.Context) -> None:
    assert pumice.tensor(counted((4, 6)), context).reshape(24).shape == (24,)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(st.permutations([0, 1, 2]), keys, st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 10, 12]), min_size=1, max_size=4))
def test_reshaping_moves_elements_where_numpy_does(
    context: pumice.Context, axes: list[int], key: Any, shape: list[int]
) -> None:
    array = counted((4, 5, 3))[key].transpose(axes)
    tensor = pumice.tensor(counted((4, 5, 3)), context)[key].transpose(axes)
    if array.size != np.prod(shape):
        with pytest.raises(pumice.GraphError, match="element counts differ"):
            tensor.reshape(shape)
        return
    moved = array.reshape(shape)
    if array.size and not np.shares_memory(moved, array):
        with pytest.raises(pumice.GraphError, match="contiguous"):
            tensor.reshape(shape)
        tensor = tensor.contiguous()
    np.testing.assert_array_equal(tensor.reshape(shape).numpy(), moved)


@pytest.mark.parametrize(
    ("shape", "text"), [((5, -1), "counts differ"), ((-1, -1), "negative"), ((0, -1), "negative"), ((-2,), "negative")]
)
def test_shapes_of_other_counts_are_refused(context: pumice.Context, shape: Any, text: str) -> None:
    with pytest.raises(pumice.GraphError, match=text):
        pumice.tensor(counted((4, 6)), context).reshape(shape)


def test_axes_are_turned_dropped_and_added_without_a_copy(context: pumice.Context) -> None:
    array = counted((2, 1, 3, 1))
    tensor = pumice.tensor(array, context)
    pairs = [
        (tensor.T, array.T),
        (tensor.transpose([2, 0, -1, 1]), array.transpose([2, 0, -1, 1])),
        (tensor.squeeze(), array.squeeze()),
        (tensor.squeeze(1), array.squeeze(1)),
        (tensor.squeeze([1, -1]), array.squeeze((1, -1))),
        (tensor.squeeze([]), array),
        (tensor.expand_dims(0), np.expand_dims(array, 0)),
        (tensor.expand_dims(-1), np.expand_dims(array, -1)),
        (tensor.T.expand_dims(2), np.expand_dims(array.T, 2)),
        (tensor.broadcast_to([4, 2, 5, 3, 2]), np.broadcast_to(array, (4, 2, 5, 3, 2))),
    ]
    for view, expected in pairs:
        assert (view.shape, view.buffer) == (expected.shape, tensor.buffer)
        np.testing.assert_array_equal(view.numpy(), expected)
        np.testing.assert_array_equal(view.copy().numpy(), expected)
    for refused, text in (
        (lambda: tensor.squeeze(0), "axis 0 .* is of size 2"),
        (lambda: tensor.squeeze(4), "axis 4 of a tensor of rank 4"),
        (lambda: tensor.expand_dims(6), "axis 6"),
        (lambda: tensor.transpose([0, 1]), "2 axes"),
        (lambda: tensor.broadcast_to([2, 1, 4, 1]), "does not broadcast"),
    ):
        with pytest.raises(pumice.GraphError, match=text):
            refused()


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4], ids=str)
def test_views_of_4_bit_tensors_may_start_within_a_byte(context: pumice.Context, dtype: Any) -> None:
    array = counted((3, 5), dtype)
    tensor = pumice.tensor(array, context)
    for view, expected in (
        (tensor[1], array[1]),
        (tensor[:, 1::2], array[:, 1::2]),
        (tensor.T[2:], array.T[2:]),
        (tensor[2, 4], array[2, 4]),
    ):
        np.testing.assert_array_equal(view.numpy(), expected)
        np.testing.assert_array_equal(view.copy().numpy(), expected)
    tensor.reshape(-1)[:3].upload(np.full(3, 1, dtype))
    array.reshape(-1)[:3] = 1
    np.testing.assert_array_equal(tensor.numpy(), array)  # the fourth element shares the third one's byte
    with pytest.raises(pumice.StateError, match="middle of a byte"):
        tensor[1].upload(array[1])
    with pytest.raises(pumice.UnsupportedError, match="strided view of a 4-bit"):
        tensor.T.upload(array.T)


# Writing.


@pytest.mark.parametrize("dtype", WHOLE_BYTES, ids=str)
@pytest.mark.parametrize(
    "key", [..., 1, (slice(None), slice(1, 4, 2)), (slice(None), -1), (2, 3), slice(0, 0)], ids=str
)
def test_assignment_overwrites_the_view(context: pumice.Context, dtype: Any, key: Any) -> None:
    array = counted((3, 5), dtype)
    for heap in ("default", "upload"):
        buffer = pumice.Buffer(context, array.nbytes, heap)
        tensor = pumice.Tensor(pumice.TensorDesc(array.dtype, array.shape), buffer)
        tensor[...] = array
        expected = array.copy()
        tensor[key] = 1
        expected[key] = 1
        np.testing.assert_array_equal(tensor.numpy(), expected)
        values = counted(expected[key].shape, dtype)
        tensor[key] = expected[key] = values
        np.testing.assert_array_equal(tensor.numpy(), expected)


def test_what_is_assigned_broadcasts(context: pumice.Context) -> None:
    tensor, array = pumice.zeros((2, 3, 4), "float32", context), np.zeros((2, 3, 4), "float32")
    values: list[Any] = [
        np.arange(4, dtype="float32"),
        np.float32(3),
        [[1], [2], [3]],
        np.ones((1, 1, 1), "float32"),
        True,
    ]
    for value in values:
        tensor[:, 1:] = value if not isinstance(value, list) else value[1:]
        array[:, 1:] = value if not isinstance(value, list) else value[1:]
        np.testing.assert_array_equal(tensor.numpy(), array)
    for refused, error, text in (
        (np.zeros(5, "float32"), pumice.GraphError, r"\[5\] does not broadcast to \[2, 3, 4\]"),
        (np.zeros(4, "float64"), pumice.BindingError, "float64"),
        (np.zeros(4, "int32"), pumice.BindingError, "int32"),
        ("many", ValueError, "many"),
        (1j, pumice.BindingError, "a number that float32 holds"),
    ):
        with pytest.raises(error, match=text):
            tensor[...] = refused
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_tensors_are_assigned_on_the_device(context: pumice.Context) -> None:
    array = counted((4, 6), "int16")
    tensor, other = pumice.tensor(array, context), pumice.tensor(array.T.copy(), context)
    tensor[:, 1:3] = other[1:3].T
    array[:, 1:3] = array.copy()[:, 1:3]
    tensor[1:] = tensor[:-1]  # within one buffer, where they overlap
    array[1:] = array[:-1].copy()
    tensor[0] = tensor[3, :1]
    array[0] = array[3, :1]
    np.testing.assert_array_equal(tensor.numpy(), array)
    with pytest.raises(pumice.BindingError, match="int16.*given float32") as caught:
        tensor[0] = pumice.zeros(6, "float32", context)
    assert caught.value.rule == "K5"
    with pytest.raises(pumice.GraphError, match="does not broadcast"):
        tensor[0] = other


def test_a_view_whose_elements_share_memory_is_not_written(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted((3, 1)), context)
    wide = tensor.broadcast_to((3, 4))
    for write in (
        lambda: wide.fill(1),
        lambda: wide.upload(np.ones((3, 4), "float32")),
        lambda: wide.__setitem__(..., tensor),
    ):
        with pytest.raises(pumice.GraphError, match=r"strides \[1, 0\] share memory"):
            write()
    np.testing.assert_array_equal(tensor.numpy(), counted((3, 1)))


def test_an_upload_is_of_the_same_dtype_and_shape(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted((2, 3)), context)
    for refused in (np.zeros((3, 2), "float32"), np.zeros((2, 3)), np.zeros(6, "float32")):
        with pytest.raises(pumice.BindingError, match=r"expected float32\[2, 3\]") as caught:
            tensor.upload(refused)
        assert caught.value.rule == "K5"
    tensor.upload(counted((2, 3), ">f4")[::-1])
    np.testing.assert_array_equal(tensor.numpy(), counted((2, 3))[::-1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (1001,), (3, 5)], ids=str)
def test_fills_of_every_dtype_and_length(context: pumice.Context, dtype: Any, shape: tuple[int, ...]) -> None:
    guarded = pumice.tensor(counted(np.prod(shape, dtype=int) + 16, dtype), context)
    count = int(np.prod(shape, dtype=int))
    guarded[:count].reshape(shape).fill(1)
    expected = counted(count + 16, dtype)
    expected[:count] = 1
    np.testing.assert_array_equal(guarded.numpy(), expected)
    number = 1 if dtype == "bool" else 3
    np.testing.assert_array_equal(pumice.full(shape, number, dtype, context).numpy(), np.full(shape, number, dtype))


NUMBERS: list[tuple[str, Any]] = [
    *(("uint8", 300), ("uint8", -1), ("int32", 1.5), ("int64", 1 << 63), ("bool", 2), ("int32", float("nan"))),
    *(("int32", float("inf")), ("float32", 1j), ("float32", "1"), ("float32", None), ("float32", [1.0])),
]


@pytest.mark.parametrize(("dtype", "value"), NUMBERS, ids=str)
def test_numbers_that_a_dtype_does_not_hold_are_refused(context: pumice.Context, dtype: str, value: Any) -> None:
    with pytest.raises(pumice.BindingError, match=f"a number that {dtype} holds") as caught:
        pumice.full(3, value, dtype, context)
    assert caught.value.rule == "K6"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 1e-40, np.float16(0.1)], ids=str)
def test_floats_are_filled_with_their_bits(context: pumice.Context, value: Any) -> None:
    for dtype in ("float32", "float64"):
        made = pumice.full(5, value, dtype, context).numpy()
        assert made.tobytes() == np.full(5, value, dtype).tobytes()


def test_new_tensors_are_made_as_numpys_are(context: pumice.Context) -> None:
    assert pumice.zeros((2, 3), context=context).numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert pumice.ones(3, "int8", context).numpy().tolist() == [1, 1, 1]
    assert pumice.empty((), "bool", context).shape == ()
    assert pumice.full((), 2, "float16", context).item() == 2
    with pytest.raises(pumice.GraphError, match="negative size"):
        pumice.zeros(-1, context=context)


# Copies and conversions on the device.


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_are_packed_and_their_own(context: pumice.Context, dtype: Any) -> None:
    array = counted((3, 4, 5), dtype)
    tensor = pumice.tensor(array, context)
    for view, expected in (
        (tensor, array),
        (tensor.T, array.T),
        (tensor[1:, ::2, 1:], array[1:, ::2, 1:]),
        (tensor[0, 0, 1:], array[0, 0, 1:]),
        (tensor[:, 1].broadcast_to((2, 3, 5)), np.broadcast_to(array[:, 1], (2, 3, 5))),
        (tensor[:0], array[:0]),
    ):
        copy = view.copy()
        assert copy.buffer is not tensor.buffer
        assert copy.is_contiguous
        np.testing.assert_array_equal(copy.numpy(), expected)


def test_contiguous_is_the_tensor_itself_where_kernels_take_it(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted((64, 64)), context)
    assert tensor.contiguous().buffer is tensor.buffer
    assert tensor[1:].contiguous().buffer is tensor.buffer
    for view in (tensor.T, tensor[:, 1:], tensor.reshape(-1)[1:9]):
        assert not view.is_contiguous
        made = view.contiguous()
        assert made.is_contiguous
        assert made.buffer is not tensor.buffer
        np.testing.assert_array_equal(made.numpy(), view.numpy())


CASTS = [dtype for dtype in WHOLE_BYTES if dtype != "float64"]


@pytest.mark.parametrize("target", CASTS, ids=str)
@pytest.mark.parametrize("source", CASTS, ids=str)
def test_dtypes_convert_on_the_device(context: pumice.Context, source: Any, target: Any) -> None:
    array = counted((3, 4, 5), source)
    tensor = pumice.tensor(array, context)
    converted = tensor.to(target)
    assert converted.dtype == np.dtype(target)
    np.testing.assert_array_equal(converted.numpy(), array.astype(target))
    np.testing.assert_array_equal(tensor[:, 1:, ::2].T.to(target).numpy(), array[:, 1:, ::2].T.astype(target))
    assert tensor[:0].to(target).shape == (0, 4, 5)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16], ids=str)
def test_floats_round_to_nearest_even(context: pumice.Context, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [
            rng.standard_normal(1000).astype("float32") * 100,
            np.array([2049, 2051, 257, 259, 65504, 65519, 65520, 1e30, -1e30], "float32"),
            np.array([np.inf, -np.inf, 0.0, -0.0], "float32"),
        ]
    )
    with np.errstate(over="ignore"):
        expected = values.astype(dtype)
    narrow = pumice.tensor(values, context).to(dtype)
    np.testing.assert_array_equal(narrow.numpy(), expected)
    np.testing.assert_array_equal(narrow.to("float32").numpy(), expected.astype("float32"))
    assert np.isnan(pumice.tensor(np.array([np.nan], "float32"), context).to(dtype).numpy()[0])


def test_a_conversion_to_its_own_dtype_is_the_tensor_itself(context: pumice.Context) -> None:
    tensor = pumice.tensor(counted(3), context)
    assert tensor.to("float32") is tensor


def test_float64_is_moved_bit_by_bit(context: pumice.Context) -> None:
    array = np.random.default_rng(0).standard_normal((5, 7))
    tensor = pumice.tensor(array, context)
    np.testing.assert_array_equal(tensor.T.copy().numpy(), array.T)
    tensor[1:3, ::2] = array[2:4, ::2]
    assert (tensor.numpy()[1:3, ::2] == array[2:4, ::2]).all()


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_4_bit_tensors_are_not_converted(context: pumice.Context, dtype: str) -> None:
    tensor = pumice.zeros(4, "float32", context)
    with pytest.raises(pumice.UnsupportedError, match=dtype):
        tensor.to(dtype)


def test_asarray_copies_no_more_than_it_is_told_to(context: pumice.Context) -> None:
    tensor, array = pumice.tensor(counted(16), context), counted(16)
    assert pumice.asarray(tensor) is tensor
    assert pumice.asarray(tensor, "float32", context) is tensor
    assert pumice.asarray(tensor, copy=True).buffer is not tensor.buffer
    assert pumice.asarray(tensor, "int8").dtype == np.int8
    assert pumice.asarray([1, 2], "int32", context).tolist() == [1, 2]
    assert pumice.asarray(array, ml_dtypes.bfloat16, context).dtype == ml_dtypes.bfloat16
    with pytest.raises(pumice.UnsupportedError, match="without a copy"):
        pumice.asarray(tensor, "int8", copy=False)
    with pytest.raises(pumice.UnsupportedError, match="float32 as int8 without a copy"):
        pumice.asarray(array, "int8", context, copy=False)
    with pytest.raises(pumice.UnsupportedError, match="without a copy: expected it to begin at a multiple of"):
        pumice.asarray(np.empty(1000, "float32")[1:], context=context, copy=False)
    other = pumice.Context()
    with pytest.raises(pumice.BindingError, match="a tensor of this context") as caught:
        pumice.asarray(tensor, context=other)
    assert caught.value.rule == "M3"
    with pytest.raises(pumice.BindingError, match="a tensor of this context"):
        tensor[...] = pumice.tensor(array, other)


# Memory that the host sees.


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
    with pytest.raises(BufferError, match="no name"):
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
def test_memory_that_cannot_be_shared_is_refused_by_name(
    context: pumice.Context, make: Callable[[], Array], text: str
) -> None:
    with pytest.raises(pumice.UnsupportedError, match=f"host memory without a copy: .*{text}"):
        pumice.from_host(make(), context)


def test_other_refusals_of_host_memory(context: pumice.Context) -> None:
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
    """An array of a library from before version 1 of DLPack."""

    def __init__(self, array: Array, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


def test_libraries_from_before_version_1_are_understood(context: pumice.Context) -> None:
    array = counted((3, 4))
    gone = weakref.ref(array)
    np.testing.assert_array_equal(pumice.from_dlpack(Legacy(array), context).numpy(), array)
    del array
    gc.collect()
    assert gone() is None
    with pytest.raises(pumice.UnsupportedError, match="device type 2; expected 1, the CPU"):
        pumice.from_dlpack(Legacy(counted(3), (2, 0)), context)
    with pytest.raises(pumice.UnsupportedError, match="code 5, 128 bits"):
        pumice.from_dlpack(np.zeros(3, complex), context)
    with pytest.raises(AttributeError, match="__dlpack_device__"):
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
    errors: list[BaseException] = []

    def work(column: int) -> None:
        try:
            for turn in range(20):
                tensor[:, column] = float(turn + column)
                values = tensor[:, column].numpy()
                assert (values == turn + column).all()
                assert (tensor[:, column].copy().to("int32").numpy() == turn + column).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(column,)) for column in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    np.testing.assert_array_equal(tensor.numpy(), np.broadcast_to(np.arange(8) + 19, (64, 8)))


def test_transfers_larger_than_the_staging_memory(context: pumice.Context) -> None:
    array = np.arange(18 << 20, dtype="uint32").reshape(3, -1)  # 72 MiB
    tensor = pumice.tensor(array, context)
    assert (tensor.numpy() == array).all()
    tensor[:, :: 1 << 20] = 0
    array[:, :: 1 << 20] = 0
    assert (tensor[1].numpy() == array[1]).all()


BUSY = """layout(binding = 0) buffer X { float x[]; };
void main() { uint i = gl_GlobalInvocationID.x; float v = x[i]; for (int k = 0; k < 20000; ++k) v = sin(v) + 1.0; x[i] = v; }"""


class Interrupted(Exception):
    """What the signal handler of these tests raises."""


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


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_signals_interrupt_transfers(context: pumice.Context) -> None:
    """As Ctrl-C does: the wait is given up, what was submitted runs on, and the tensors stay usable."""
    tensor = pumice.zeros(1 << 16, "float32", context)
    commands = pumice.CommandList(context)
    commands.dispatch(pumice.Kernel(BUSY, context).bind(x=tensor, threads=1 << 16))
    commands.commit()
    commands.exec().wait()
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
        lambda: commands.time(50),
    ]
    begin = time.perf_counter()
    commands.exec().wait()
    turns = max(1, int(0.5 / (time.perf_counter() - begin)) + 1)
    for call in calls:
        for _ in range(turns):
            submission = commands.exec()
        with pytest.raises(Interrupted), alarm(0.05):
            call()
        submission.wait()
    tensor.fill(2)
    assert (tensor.numpy() == 2).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_told_that_its_tensors_are_the_parents(context: pumice.Context) -> None:
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
