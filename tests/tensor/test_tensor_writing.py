"""Writes to tensors: assignment, fills, copies and conversions on the device."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pumice
from tensor_arrays import DTYPES, WHOLE_BYTES, counted

# Writes.


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
        (1j, pumice.BindingError, "a number that float32 can hold"),
    ):
        with pytest.raises(error, match=text):
            tensor[...] = refused
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_tensors_are_assigned_on_the_device(context: pumice.Context) -> None:
    array = counted((4, 6), "int16")
    tensor, other = pumice.tensor(array, context), pumice.tensor(array.T.copy(), context)
    tensor[:, 1:3] = other[1:3].T
    array[:, 1:3] = array.copy()[:, 1:3]
    tensor[1:] = tensor[:-1]  # overlapping ranges of one buffer
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
def test_numbers_that_a_dtype_does_not_hold_are_rejected(context: pumice.Context, dtype: str, value: Any) -> None:
    with pytest.raises(pumice.BindingError, match=f"a number that {dtype} can hold") as caught:
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
def test_tensors_become_those_of_four_bits_and_back(context: pumice.Context, dtype: str) -> None:
    tensor = pumice.tensor(np.array([3, 1, 7, 0, 5], "float32"), context)
    narrow = tensor.to(dtype)
    assert narrow.dtype == dtype and narrow.numpy().astype("float32").tolist() == [3, 1, 7, 0, 5]
    assert narrow.to("float32").tolist() == [3, 1, 7, 0, 5]


def test_asarray_copies_only_if_asked(context: pumice.Context) -> None:
    tensor, array = pumice.tensor(counted(16), context), counted(16)
    assert pumice.asarray(tensor) is tensor
    assert pumice.asarray(tensor, "float32", context) is tensor
    assert pumice.asarray(tensor, copy=True).buffer is not tensor.buffer
    assert pumice.asarray(tensor, "int8").dtype == np.int8
    assert pumice.asarray([1, 2], "int32", context).tolist() == [1, 2]
    assert pumice.asarray(array, ml_dtypes.bfloat16, context).dtype == ml_dtypes.bfloat16
    with pytest.raises(pumice.UnsupportedError, match="without a copy"):
        pumice.asarray(tensor, "int8", copy=False)
    with pytest.raises(pumice.UnsupportedError, match="float32 cannot become one of int8 without a copy"):
        pumice.asarray(array, "int8", context, copy=False)
    can_import = "VK_EXT_external_memory_host" in context.info.extensions
    why = "expected it to begin at a multiple of" if can_import else "has no VK_EXT_external_memory_host"
    with pytest.raises(pumice.UnsupportedError, match=f"without a copy: .*{why}"):
        pumice.asarray(np.empty(1000, "float32")[1:], context=context, copy=False)
    other = pumice.Context()
    with pytest.raises(pumice.BindingError, match="a tensor of this context") as caught:
        pumice.asarray(tensor, context=other)
    assert caught.value.rule == "M3"
    with pytest.raises(pumice.BindingError, match="a tensor of this context"):
        tensor[...] = pumice.tensor(array, other)
