"""64-bit integers in operators and control flow on devices without them: bit-identical to native integers, and to NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_models
import pumice
from features import need_features
from int64_samples import HIGHEST, LOWEST, Array, divisible_pairs, pairs, points, truncated_quotients
from onnx_models import node, value

CODES = {
    "float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16, "int64": TensorProto.INT64, "uint64": TensorProto.UINT64,
    "int32": TensorProto.INT32, "uint32": TensorProto.UINT32, "int16": TensorProto.INT16, "uint16": TensorProto.UINT16,
    "int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "bool": TensorProto.BOOL,
}  # fmt: skip


def both(
    nodes: Sequence[Any],
    arrays: dict[str, Array],
    context: pumice.Context,
    paired: pumice.Context,
    outputs: Sequence[str] = ("y",),
    **more: Any,
) -> list[Array]:
    """Return the results with pairs of uint32, after comparing them with native 64-bit integers if available. Values are inputs, so
    nothing is constant-folded.
    """
    inputs = [
        value(name, list(array.shape), helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in arrays.items()
    ]
    made = onnx_models.model(nodes, inputs, outputs, opset=21, **more)
    results = []
    for one in (paired, context) if context.feature("shaderInt64") else (paired,):
        with pumice.load(made, one, progress=False) as model:
            given = model(*arrays.values())
            results.append([np.asarray(array) for array in (given if len(outputs) > 1 else [given])])
    for one, other in zip(results[0], results[-1], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(
            one.view(np.uint8) if one.ndim else one, other.view(np.uint8) if other.ndim else other
        )
    return results[0]


UNARY: dict[str, Any] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "BitwiseNot": np.bitwise_not,
    "Identity": np.copy,
}
BINARY: dict[str, Any] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Min": np.minimum,
    "Max": np.maximum,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "Equal": np.equal,
}


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(op, dtype) for op in UNARY | BINARY for dtype in ("int64", "uint64") if (op, dtype) != ("Neg", "uint64")],
)
def test_an_operator_gives_what_it_gives_with_64_bits(
    context: pumice.Context, paired: pumice.Context, op: str, dtype: str
) -> None:
    a, b = pairs(dtype)
    arrays = {"a": a} if op in UNARY else {"a": a, "b": b}
    (y,) = both([node(op, list(arrays))], arrays, context, paired)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, (UNARY | BINARY)[op](*arrays.values()))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_quotients_powers_shifts_and_clips(context: pumice.Context, paired: pumice.Context, dtype: str) -> None:
    a, b = divisible_pairs(dtype)
    nodes = [
        node("Div", ["a", "b"], ["q"]),
        node("Mod", ["a", "b"], ["m"]),
        node("Mod", ["a", "b"], ["f"], fmod=1),
        node("Clip", ["a", "low", "high"], ["c"]),
        node("Where", ["chosen", "a", "b"], ["w"]),
    ]
    more = {"low": np.array(3 if dtype == "uint64" else -(2**40)).astype(dtype), "high": np.array(2**45).astype(dtype)}
    q, m, f, c, w = both(nodes, {"a": a, "b": b, "chosen": a < b, **more}, context, paired, ("q", "m", "f", "c", "w"))
    np.testing.assert_array_equal(q, truncated_quotients(a, b))
    np.testing.assert_array_equal(m, np.mod(a, b))
    np.testing.assert_array_equal(f, np.fmod(a, b))
    np.testing.assert_array_equal(c, np.clip(a, more["low"], more["high"]))
    np.testing.assert_array_equal(w, np.where(a < b, a, b))
    a, b = pairs(dtype)
    b = b & b.dtype.type(31)
    (y,) = both([node("Pow", ["a", "b"])], {"a": a, "b": b}, context, paired) if dtype == "int64" else (a**b,)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, a**b)
    if dtype == "uint64":
        for direction, function in (("LEFT", np.left_shift), ("RIGHT", np.right_shift)):
            (y,) = both([node("BitShift", ["a", "b"], direction=direction)], {"a": a, "b": b}, context, paired)
            np.testing.assert_array_equal(y, function(a, b))


@pytest.mark.parametrize("other", CODES)
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_casts_from_and_to_every_dtype(context: pumice.Context, paired: pumice.Context, dtype: str, other: str) -> None:
    if other == "float64":
        need_features(paired, "shaderFloat64")
    numpy_dtype = np.dtype(getattr(ml_dtypes, other, other))
    x = np.concatenate([points(dtype), np.random.default_rng(3).integers(0, 2**63, 500).astype(dtype)])
    (there,) = both([node("Cast", ["x"], to=CODES[other])], {"x": x}, context, paired)
    with np.errstate(all="ignore"):
        if other != "bfloat16":
            np.testing.assert_array_equal(there, x.astype(numpy_dtype))
        numbers = np.concatenate([x, x]).astype(numpy_dtype)
        if other in ("float64", "float32", "float16", "bfloat16"):
            special = np.array(
                [np.nan, np.inf, -np.inf, 0.5, -0.5, -0.0, 1e-7, 3.99, -3.99, 2.0**63, -(2.0**63), 2.0**64, 1e19]
            )
            numbers = np.concatenate([numbers, special.astype(numpy_dtype)])
    both([node("Cast", ["x"], to=CODES[dtype])], {"x": numbers}, context, paired)


REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "ReduceSum": lambda x: x.sum(1, keepdims=True),
    "ReduceProd": lambda x: x.prod(1, keepdims=True),
    "ReduceMin": lambda x: x.min(1, keepdims=True),
    "ReduceMax": lambda x: x.max(1, keepdims=True),
    "ReduceSumSquare": lambda x: (x * x).sum(1, keepdims=True),
    "ReduceL1": lambda x: np.abs(x).sum(1, keepdims=True),
}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(context: pumice.Context, paired: pumice.Context, op: str) -> None:
    x = np.random.default_rng(2).permutation(points())[:105].reshape(5, 21)
    (y,) = both([node(op, ["x", "axes"])], {"x": x}, context, paired, constants={"axes": np.array([1])})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, REDUCTIONS[op](x))


def test_positions_orders_and_moves(context: pumice.Context, paired: pumice.Context) -> None:
    x = np.random.default_rng(4).permutation(points())[:105].reshape(5, 21)
    nodes = [
        node("ArgMin", ["x"], ["least"], axis=1, keepdims=0),
        node("ArgMax", ["x"], ["most"], axis=0, keepdims=0),
        node("TopK", ["x", "k"], ["top", "places"], axis=1),
        node("CumSum", ["x", "one"], ["sums"]),
        node("CumSum", ["x", "one"], ["before"], exclusive=1, reverse=1),
        node("GatherElements", ["x", "places"], ["gathered"], axis=1),
        node("ScatterElements", ["x", "places", "top"], ["scattered"], axis=1),
        node("NonZero", ["x"], ["found"]),
        node("Transpose", ["x"], ["turned"]),
        node("OneHot", ["most", "depth", "values"], ["hot"]),
        node("MatMul", ["x", "turned"], ["product"]),
        node("Range", ["start", "limit", "delta"], ["range"]),
    ]
    constants = {"k": np.array([7]), "one": np.array(1), "depth": np.array(5), "values": np.array([LOWEST, HIGHEST])}
    arrays = {"x": x, "start": np.array(2**40), "limit": np.array(-(2**40)), "delta": np.array(-(2**36) - 1)}
    names = [name for one in nodes for name in one.output]
    made = dict(zip(names, both(nodes, arrays, context, paired, names, constants=constants), strict=True))
    order = np.argsort(-x.astype(object), axis=1, kind="stable")[:, :7]
    with np.errstate(over="ignore"):
        expected = {
            "least": x.argmin(1), "most": x.argmax(0), "top": np.take_along_axis(x, order, 1), "places": order, "sums": x.cumsum(1),
            "before": x[:, ::-1].cumsum(1)[:, ::-1] - x, "gathered": np.take_along_axis(x, order, 1), "scattered": x,
            "found": np.array(np.nonzero(x)), "product": x @ x.T, "range": np.arange(2**40, -(2**40), -(2**36) - 1),
        }  # fmt: skip
    for name, array in expected.items():
        np.testing.assert_array_equal(made[name], array, name)


def test_fused_chains_and_mixed_types(context: pumice.Context, paired: pumice.Context) -> None:
    a, b = pairs("int64")
    nodes = [
        node("Add", ["a", "b"], ["s"]),
        node("Mul", ["s", "a"], ["p"]),
        node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "half"], ["h"]),
        node("Cast", ["h"], ["back"], to=TensorProto.INT64),
        node("Sub", ["back", "b"], ["y"]),
    ]
    (y,) = both(nodes, {"a": a, "b": b}, context, paired, constants={"half": np.array(0.5, "float32")})
    with np.errstate(over="ignore"):
        half = ((a + b) * a).astype("float32") * np.float32(0.5)
        np.testing.assert_array_equal(y, half.astype("int64") - b)


# --- Control flow


@pytest.mark.parametrize("trips", [0, 1, 9])
def test_loops_count_and_carry(context: pumice.Context, paired: pumice.Context, trips: int) -> None:
    """The counter, a carried 64-bit sum, and a condition on it."""
    body = helper.make_graph(
        [
            node("Mul", ["sum", "three"], ["tripled"]),
            node("Add", ["tripled", "i"], ["next"]),
            node("Less", ["next", "limit"], ["goes_on"]),
            node("Identity", ["next"], ["seen"]),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("goes", [], TensorProto.BOOL), value("sum", [1], TensorProto.INT64)],
        [
            value("goes_on", [1], TensorProto.BOOL),
            value("next", [1], TensorProto.INT64),
            value("seen", [1], TensorProto.INT64),
        ],
        [helper.make_tensor("three", TensorProto.INT64, [], [3])],
    )
    nodes = [node("Loop", ["n", "goes", "x"], ["last", "rows"], body=body)]
    arrays = {"n": np.array(trips), "goes": np.array(True), "x": np.array([2**33 + 1]), "limit": np.array([2**44])}
    last, rows = both(nodes, arrays, context, paired, ("last", "rows"))
    total, seen = 2**33 + 1, []
    for i in range(trips):
        total = 3 * total + i
        seen.append(total)
        if total >= 2**44:
            break
    assert last.tolist() == [total] and rows.reshape(-1).tolist() == seen


def test_a_choice_on_a_number_beyond_32_bits(context: pumice.Context, paired: pumice.Context) -> None:
    def branch(op: str) -> Any:
        return helper.make_graph([node(op, ["x", "x"], ["z"])], op, [], [value("z", [3], TensorProto.INT64)])

    nodes = [
        node("Greater", ["x", "limit"], ["each"]),
        node("Gather", ["each", "first"], ["above"]),
        node("If", ["above"], ["y"], then_branch=branch("Mul"), else_branch=branch("Add")),
    ]
    for x in ([2**33, 1, -1], [2**31, 2**62, 5]):
        array = np.array(x)
        (y,) = both(
            nodes, {"x": array, "limit": np.array([2**32] * 3)}, context, paired, constants={"first": np.array(0)}
        )
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y, array * array if x[0] > 2**32 else array + array)


def test_a_report_says_how_a_device_has_them(context: pumice.Context, paired: pumice.Context) -> None:
    made = onnx_models.model([node("Neg")], [value("x", [3], TensorProto.INT64)])
    for one in (context, paired):
        with pumice.load(made, one, progress=False) as model:
            said = "64-bit integers are pairs of words" in str(model.report())
            assert said is not one.feature("shaderInt64")


def test_arithmetic_of_tensors(paired: pumice.Context) -> None:
    a, b = divisible_pairs("int64")
    x, y = pumice.tensor(a, paired), pumice.tensor(b, paired)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal((x * y + 7 - y).numpy(), a * b + 7 - b)
        np.testing.assert_array_equal((x // y).numpy(), a // b)
        np.testing.assert_array_equal((x % y).numpy(), a % b)
        np.testing.assert_array_equal((x < y).numpy(), a < b)
        np.testing.assert_array_equal(x.to("float32").numpy(), a.astype("float32"))
