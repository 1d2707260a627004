"""deterministic=True: several updates of one element are applied in order, with the same result on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import helper

import onnx_models
import pumice
from features import need_features

Array = npt.NDArray[Any]
COMBINED = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": lambda a, b: a if a > b or a != a else b,
    "min": lambda a, b: a if a < b or a != a else b,
    "none": lambda a, b: b,
}
DTYPES = ["float32", "float16", "int32", "int64", "uint8"]


def in_order(x: Array, indices: Array, updates: Array, reduction: str, axis: int) -> Array:
    """Apply updates sequentially, rounding each to the element type; out-of-range updates are skipped."""
    y = x.copy()
    with np.errstate(all="ignore"):
        for at in np.ndindex(indices.shape):
            index = int(indices[at])
            place = list(at)
            place[axis] = index
            if -x.shape[axis] <= index < x.shape[axis]:
                y[tuple(place)] = COMBINED[reduction](y[tuple(place)], updates[at])
    return y


def scattered(context: pumice.Context, x: Array, indices: Array, updates: Array, **attributes: Any) -> Array:
    graph = pumice.Graph("scatter")
    values = [
        graph.input(name, str(one.dtype), list(one.shape))
        for name, one in zip("xiu", (x, indices, updates), strict=True)
    ]
    graph.output("y", graph.add("ScatterElements", *values, **attributes))
    program = graph.compile(context, "fp16" if x.dtype == np.float16 else "fp32", deterministic=True)
    return np.asarray(program({"x": x, "i": indices, "u": updates})["y"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", COMBINED)
def test_updates_of_one_element_are_combined_in_their_order(
    context: pumice.Context, reduction: str, dtype: str
) -> None:
    if dtype == "int64" and reduction != "none":
        need_features(context, "shaderBufferInt64Atomics")
    random = np.random.default_rng(3)
    for rows, columns, count in ((1, 7, 3000), (5, 3, 200), (4, 900, 1030)):
        if dtype.startswith("float"):
            x, updates = (random.standard_normal((rows, size)).astype(dtype) for size in (columns, count))
            updates[:, ::5] = random.choice([0.0, -0.0, 1e4, -1e4], updates[:, ::5].shape).astype(dtype)
        else:
            x, updates = (random.integers(0, 100, (rows, size)).astype(dtype) for size in (columns, count))
        indices = random.integers(-columns, columns, (rows, count)).astype("int64")
        given = scattered(context, x, indices, updates, axis=1, reduction=reduction)
        expected = in_order(x, indices, updates, reduction, 1)
        same = (given.view(f"u{given.itemsize}") == expected.view(f"u{given.itemsize}")) | (
            (given != given) & (expected != expected)
        )
        assert same.all(), f"{(~same).sum()} of {same.size}"


def test_more_updates_of_one_element_than_a_loop_may_have(context: pumice.Context) -> None:
    """Some drivers end a loop after 65,535 iterations."""
    random = np.random.default_rng(6)
    x, updates = np.zeros(3, "float32"), random.standard_normal(140000).astype("float32")
    indices = np.where(random.random(140000) < 0.9, 1, random.integers(0, 3, 140000)).astype("int64")
    for reduction in ("add", "none"):
        given = scattered(context, x, indices, updates, axis=0, reduction=reduction)
        np.testing.assert_array_equal(given, in_order(x, indices, updates, reduction, 0))


def test_a_model_scatters_rows_in_their_order(context: pumice.Context) -> None:
    """ScatterND through pumice.load; another order of summation would change the last digits."""
    random = np.random.default_rng(4)
    x, updates = (
        random.standard_normal((6, 33)).astype("float32"),
        random.standard_normal((500, 33)).astype("float32") * 1e4,
    )
    indices = random.integers(0, 6, (500, 1)).astype("int64")
    inputs = [
        onnx_models.value(name, list(one.shape), helper.np_dtype_to_tensor_dtype(one.dtype))
        for name, one in (("x", x), ("i", indices), ("u", updates))
    ]
    made = onnx_models.model([onnx_models.node("ScatterND", ["x", "i", "u"], reduction="add")], inputs, opset=18)
    expected = x.copy()
    for row, update in zip(indices[:, 0], updates, strict=True):
        expected[row] += update
    model = pumice.load(made, context, deterministic=True)
    first = model(x, indices, updates)
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(model(x, indices, updates), first)
    np.testing.assert_allclose(pumice.load(made, context)(x, indices, updates), expected, rtol=1e-3, atol=1.0)


def test_an_operator_takes_the_flag(context: pumice.Context) -> None:
    desc = pumice.TensorDesc("float32", [4])
    operator = pumice.Operator(
        "ScatterElements",
        [desc, pumice.TensorDesc("int64", [9]), pumice.TensorDesc("float32", [9])],
        [desc],
        reduction="add",
    )
    plain = operator.compile(context).binding_properties.temporary_bytes
    assert operator.compile(context, flags=["DETERMINISTIC"]).binding_properties.temporary_bytes > plain
    with pytest.raises(pumice.UnsupportedError, match="supported: ALLOW_HALF_PRECISION_COMPUTATION, DETERMINISTIC"):
        operator.compile(context, flags=["EXACT"])
