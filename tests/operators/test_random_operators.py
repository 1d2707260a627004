"""Random operators on random tensors, through descriptions and binding tables, against NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pumice
from described_operators import Array, Operand, executed

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
MOST_ELEMENTS = 600
NUMBERS = ["float32", "float16", "int64", "int32", "int16", "uint8", "int8"]

UNARY: dict[str, tuple[Callable[[Array], Any], list[str]]] = {
    "Abs": (np.abs, NUMBERS),
    "Neg": (np.negative, ["float32", "float16", "int64", "int32", "int16", "int8"]),
    "Relu": (lambda x: np.maximum(x, 0), ["float32", "float16", "int32"]),
    "Floor": (np.floor, ["float32", "float16"]),
    "Sign": (np.sign, ["float32", "float16", "int64", "int32"]),
    "Not": (np.logical_not, ["bool"]),
    "Identity": (lambda x: x, [*NUMBERS, "bool", "float64"]),
    "BitwiseNot": (np.invert, ["int64", "int32", "int16", "uint8", "int8"]),
}
BINARY: dict[str, tuple[Callable[[Array, Array], Any], list[str]]] = {
    "Add": (np.add, [*NUMBERS, "float64"]),
    "Sub": (np.subtract, NUMBERS),
    "Mul": (np.multiply, NUMBERS),
    "Max": (np.maximum, NUMBERS),
    "Min": (np.minimum, NUMBERS),
    "Less": (np.less, NUMBERS),
    "Equal": (np.equal, [*NUMBERS, "bool"]),
    "Xor": (np.logical_xor, ["bool"]),
}
REDUCTIONS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "ReduceSum": (np.sum, ["float32", "int32", "int64"]),
    "ReduceMax": (np.max, ["float32", "int32", "int64", "uint8", "int8"]),
    "ReduceMin": (np.min, ["float32", "int32", "int64", "uint8", "int8"]),
    "ReduceMean": (np.mean, ["float32"]),
    "ReduceL1": (lambda x, **options: np.abs(x).sum(**options), ["float32"]),
}
MOVED = [*NUMBERS, "bool", "float64", "uint16", "uint64"]

Shape = tuple[int, ...]


@st.composite
def shapes(draw: st.DrawFn, least: int = 0, empty: bool = True) -> Shape:
    rank = draw(st.integers(least, 8))
    shape: list[int] = []
    for _ in range(rank):
        room = MOST_ELEMENTS // max(1, int(np.prod([*shape, 1])))
        sizes = st.sampled_from([1, 2, 3, 5, 7, 17, 33]).filter(lambda size, room=room: size <= max(room, 1))
        shape.append(draw(sizes))
    if rank and empty and draw(st.integers(0, 11)) == 0:
        shape[draw(st.integers(0, rank - 1))] = 0
    return tuple(shape)


def elements(draw: st.DrawFn, shape: Shape, dtype: str) -> Array:
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if "float" in dtype:
        return (random.integers(-64, 65, shape) / 8).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(max(limits.min, -50), min(limits.max, 50), shape, endpoint=True).astype(dtype)


def strides_of(draw: st.DrawFn, shape: Shape) -> list[int] | None:
    """Return packed strides, or permuted ones with gaps."""
    if not shape or draw(st.booleans()):
        return None
    strides = [0] * len(shape)
    reach = 1
    for axis in draw(st.permutations(range(len(shape)))):
        strides[axis] = reach
        reach = max(reach, 1) * max(shape[axis], 1) + draw(st.sampled_from([0, 0, 1, 3]))
    return strides if reach < 1 << 20 else None


def operand(draw: st.DrawFn, array: Array) -> Operand:
    """Draw an input; some axes are broadcast from one element."""
    offset = 16 * draw(st.integers(0, 5))
    strides = strides_of(draw, array.shape)
    if array.ndim and array.size and draw(st.integers(0, 3)) == 0:
        axis = draw(st.integers(0, array.ndim - 1))
        strides = list(strides or pumice.TensorDesc(str(array.dtype), array.shape).strides)
        strides[axis] = 0
        array = np.broadcast_to(np.take(array, [0], axis), array.shape).copy()
    return Operand(array, strides, offset)


def target(draw: st.DrawFn, array: Array) -> Operand:
    return Operand(array, strides_of(draw, array.shape), 16 * draw(st.integers(0, 5)))


def narrowed(draw: st.DrawFn, shape: Shape) -> Shape:
    """Draw a shape that broadcasts to the given shape."""
    kept = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.integers(0, 2)) == 0 else size for size in kept)


Drawn = tuple[str, list[Operand | Array | None], list[Array], dict[str, Any]]


def unary(draw: st.DrawFn) -> Drawn:
    name = draw(st.sampled_from(sorted(UNARY)))
    function, dtypes = UNARY[name]
    x = operand(draw, elements(draw, draw(shapes()), draw(st.sampled_from(dtypes))))
    return name, [x], [function(x.array)], {}


def binary(draw: st.DrawFn) -> Drawn:
    name = draw(st.sampled_from(sorted(BINARY)))
    function, dtypes = BINARY[name]
    shape, dtype = draw(shapes()), draw(st.sampled_from(dtypes))
    pair = [shape, narrowed(draw, shape)]
    a, b = (operand(draw, elements(draw, one, dtype)) for one in draw(st.permutations(pair)))
    return name, [a, b], [np.asarray(function(a.array, b.array))], {}


def reduction(draw: st.DrawFn) -> Drawn:
    name = draw(st.sampled_from(sorted(REDUCTIONS)))
    function, dtypes = REDUCTIONS[name]
    x = operand(draw, elements(draw, draw(shapes(1, empty=name == "ReduceSum")), draw(st.sampled_from(dtypes))))
    axes = draw(st.lists(st.integers(0, x.array.ndim - 1), min_size=1, unique=True))
    keep = draw(st.booleans())
    y = np.asarray(function(x.array, axis=tuple(axes), keepdims=keep)).astype(x.array.dtype)
    signed = [axis - x.array.ndim if draw(st.booleans()) else axis for axis in axes]
    return name, [x, np.array(signed)], [y], {"keepdims": int(keep)}


def move(draw: st.DrawFn) -> Drawn:
    dtype = draw(st.sampled_from(MOVED))
    name = draw(
        st.sampled_from(["Transpose", "Reshape", "Slice", "Split", "Concat", "Expand", "Tile", "Pad", "Gather"])
    )
    shape = draw(shapes(0 if name in ("Transpose", "Reshape", "Expand") else 1))
    x = operand(draw, elements(draw, shape, dtype))
    array, rank = x.array, len(shape)
    axis = draw(st.integers(0, max(rank - 1, 0)))
    if name == "Transpose":
        perm = draw(st.permutations(range(rank)))
        return name, [x], [array.transpose(perm)], {"perm": perm} if rank else {}
    if name == "Reshape":
        flat = (array.size,) if draw(st.booleans()) else tuple(reversed(shape))
        return name, [x, np.array(flat, "int64")], [array.reshape(flat)], {"allowzero": 1}
    if name == "Slice":
        start, stop = draw(st.integers(-9, 9)), draw(st.integers(-9, 9))
        step = draw(st.sampled_from([1, 2, 3, -1, -2]))
        picked = array[(slice(None),) * axis + (slice(start, stop, step),)]
        if start < -shape[axis] or stop < -shape[axis]:
            picked = array
            start, stop, step = 0, shape[axis], 1
        return name, [x, *(np.array([value]) for value in (start, stop, axis, step))], [picked], {}
    if name == "Split":
        cut = draw(st.integers(0, shape[axis]))
        parts = np.split(array, [cut], axis)
        return name, [x, np.array([cut, shape[axis] - cut])], list(parts), {"axis": axis}
    if name == "Concat":
        others = [elements(draw, (*shape[:axis], draw(st.integers(0, 5)), *shape[axis + 1 :]), dtype) for _ in range(2)]
        operands = [x, *(operand(draw, one) for one in others)]
        return name, list(operands), [np.concatenate([one.array for one in operands], axis)], {"axis": axis}
    if name == "Expand":
        x = operand(draw, elements(draw, narrowed(draw, shape), dtype))
        return name, [x, np.array(shape, "int64")], [np.broadcast_to(x.array, shape)], {}
    if name == "Tile":
        repeats = [draw(st.sampled_from([1, 1, 1, 2, 3, 0])) for _ in range(rank)]
        return name, [x, np.array(repeats)], [np.tile(array, repeats)], {}
    if name == "Pad":
        pads = [[0, 0] for _ in range(rank)]
        for one in draw(st.lists(st.integers(0, rank - 1), max_size=2, unique=True)):
            pads[one] = [draw(st.integers(0, 4)), draw(st.integers(0, 4))]
        flat_pads = np.array(pads).T.ravel()
        return name, [x, flat_pads], [np.pad(array, pads)], {}
    if shape[axis] == 0:
        return "Identity", [x], [array], {}
    indices = np.array(draw(st.lists(st.integers(-shape[axis], shape[axis] - 1), max_size=6)), "int64")
    return name, [x, Operand(indices)], [np.take(array, indices, axis)], {"axis": axis}


def other(draw: st.DrawFn) -> Drawn:
    name = draw(st.sampled_from(["ArgMax", "CumSum", "Softmax", "Where", "Clip", "Sum", "Max", "GatherElements"]))
    dtype = "float32" if name in ("Softmax", "Sum") else draw(st.sampled_from(["float32", "int32", "int64"]))
    shape = draw(shapes(1, empty=name in ("Where", "Clip", "Sum", "Max")))
    x = operand(draw, elements(draw, shape, dtype))
    array, axis = x.array, draw(st.integers(0, len(shape) - 1))
    if name == "ArgMax":
        keep = draw(st.booleans())
        return name, [x], [np.argmax(array, axis, keepdims=keep)], {"axis": axis, "keepdims": int(keep)}
    if name == "CumSum":
        return name, [x, np.array(axis)], [np.cumsum(array, axis, dtype=dtype)], {}
    if name == "Softmax":
        powers = np.exp(array - array.max(axis, keepdims=True))
        return name, [x], [powers / powers.sum(axis, keepdims=True)], {"axis": axis}
    if name == "Where":
        condition = operand(draw, elements(draw, narrowed(draw, shape), "bool"))
        b = operand(draw, elements(draw, narrowed(draw, shape), dtype))
        return name, [condition, x, b], [np.where(condition.array, array, b.array)], {}
    if name == "Clip":
        bounds = [operand(draw, np.array(bound, dtype)) for bound in (-3, 4)]
        return name, [x, *bounds], [np.clip(array, -3, 4)], {}
    if name == "GatherElements":
        limit = shape[axis]
        random = np.random.default_rng(draw(st.integers(0, 99)))
        indices = operand(draw, random.integers(-limit, limit, shape))
        return name, [x, indices], [np.take_along_axis(array, indices.array % limit, axis)], {"axis": axis}
    many = [x, *(operand(draw, elements(draw, narrowed(draw, shape), dtype)) for _ in range(draw(st.integers(0, 20))))]
    fold = sum if name == "Sum" else lambda arrays: functools.reduce(np.maximum, arrays)
    return name, list(many), [np.asarray(fold([one.array for one in many]))], {}


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Operand | Array | None], list[Operand], dict[str, Any]]:
    kind = draw(st.sampled_from([unary, binary, reduction, move, move, other]))
    name, inputs, results, attributes = kind(draw)
    return name, inputs, [target(draw, np.array(result)) for result in results], attributes


def check(
    context: pumice.Context, case: tuple[str, list[Operand | Array | None], list[Operand], dict[str, Any]]
) -> None:
    name, inputs, outputs, attributes = case
    for made, one in zip(executed(context, name, inputs, outputs, **attributes), outputs, strict=True):
        if one.array.dtype.kind == "f" and name.startswith(("Reduce", "Softmax", "CumSum")):
            np.testing.assert_allclose(made, one.array, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(made, one.array)


@given(case=cases())
@settings(max_examples=100, deadline=None, suppress_health_check=QUIET, derandomize=True)
def test_random_operators(context: pumice.Context, case: Any) -> None:
    check(context, case)


@pytest.mark.slow
@pytest.mark.parametrize("_part", range(10))
@given(case=cases())
@settings(max_examples=200, deadline=None, suppress_health_check=QUIET)
def test_many_random_operators(context: pumice.Context, _part: int, case: Any) -> None:
    check(context, case)
