"""Tensors from and to NumPy, and their views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pumice
from tensor_arrays import DTYPES, WHOLE_BYTES, Array, counted

# Copies from and to NumPy.


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
def test_elements_that_no_tensor_has_are_rejected(context: pumice.Context, array: Any, text: str) -> None:
    with pytest.raises(pumice.BindingError, match=text) as caught:
        pumice.tensor(array, context)
    assert caught.value.rule == "K5"


def test_special_floats_keep_their_bits(context: pumice.Context) -> None:
    """The bits are also kept by a copy kernel."""
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
        with pytest.raises(ValueError, match="always copies"):
            np.array(tensor, copy=False)


def test_tensors_report_their_attributes(context: pumice.Context) -> None:
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
    ([0, 1], pumice.GraphError, "given list: for arrays, use the operators Gather"),
    (np.array([0, 1]), pumice.GraphError, "given ndarray"),
    (1.0, pumice.GraphError, "given float"),
    ("a", pumice.GraphError, "given str"),
    (slice(None, None, 0), ValueError, "zero"),
    ((None,) * 6, pumice.GraphError, "rank 9"),
]


@pytest.mark.parametrize(("key", "error", "text"), BAD_INDICES, ids=[str(key) for key, _, _ in BAD_INDICES])
def test_what_is_no_view_is_rejected(context: pumice.Context, key: Any, error: type[Exception], text: str) -> None:
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
def test_shapes_of_other_counts_are_rejected(context: pumice.Context, shape: Any, text: str) -> None:
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
        (lambda: tensor.squeeze(0), "axis 0 .* has size 2"),
        (lambda: tensor.squeeze(4), "a tensor of rank 4 has no axis 4"),
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
    np.testing.assert_array_equal(tensor.numpy(), array)  # the fourth element shares a byte with the third
    with pytest.raises(pumice.StateError, match="middle of a byte"):
        tensor[1].upload(array[1])
    with pytest.raises(pumice.UnsupportedError, match="strided view of a 4-bit"):
        tensor.T.upload(array.T)
