"""Opsets 1 to 6: broadcasting along a named axis, and attributes that later became inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import model, node, value
from pumice.testing import assert_close

Array = np.ndarray[Any, Any]


def r(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng([seed, *shape]).integers(-64, 65, shape) / 32).astype("float32")


def run(context: pumice.Context, proto: onnx.ModelProto, *arrays: Array) -> Any:
    with pumice.load(proto, context, progress=False) as loaded:
        return loaded(*arrays)


ARITHMETIC = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}
# Shape of the first operand, axis (None: omitted), shape of the second.
ALIGNMENTS: list[tuple[tuple[int, ...], int | None, tuple[int, ...]]] = [
    ((2, 3, 4, 5), 1, (3,)),
    ((2, 3, 4, 5), 1, (3, 4)),
    ((2, 3, 4, 5), 0, (2, 3)),
    ((2, 3, 4, 5), 2, (4, 5)),
    ((2, 3, 4, 5), 3, (5,)),
    ((2, 3, 4, 5), -1, (5,)),
    ((2, 3, 4, 5), -3, (3,)),
    ((2, 3, 4, 5), None, (4, 5)),
    ((2, 3, 4, 5), None, (1,)),
    ((2, 3, 4, 5), 0, (2, 3, 4, 5)),
    ((3,), 0, (3,)),
]


def aligned(b: Array, rank: int, axis: int | None) -> Array:
    if axis is None:
        return b
    begin = axis + rank if axis < 0 else axis
    return b.reshape(b.shape + (1,) * (rank - begin - b.ndim))


@pytest.mark.parametrize("known", ["sizes", "rank", "nothing"])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_the_second_operand_begins_at_the_axis_that_is_named(context: pumice.Context, op: str, known: str) -> None:
    logical = op in ("And", "Or", "Xor")
    nodes, inputs, outputs, constants, expected, arrays = [], [], [], {}, [], []
    for k, (shape, axis, other) in enumerate(ALIGNMENTS):
        a, b = r(*shape, seed=k), r(*other, seed=k + 99)
        if op == "Equal":
            a, b = (array.astype("int32") for array in (a, b))
        if logical:
            a, b = a > 0, b > 0
        if op in ("Div", "Pow"):
            a, b = abs(a) + 1, abs(b) + 1
        attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
        constants[f"b{k}"] = b
        nodes.append(node(op, [f"a{k}", f"b{k}"], [f"y{k}"], **attributes))
        sizes: Any = {"sizes": shape, "rank": [None] * len(shape), "nothing": None}[known]
        inputs.append(value(f"a{k}", sizes, helper.np_dtype_to_tensor_dtype(a.dtype)))
        outputs.append(f"y{k}")
        expected.append(ARITHMETIC[op](a, aligned(b, len(shape), axis)))
        arrays.append(a)
    for version in (1, 6):
        made = run(context, model(nodes, inputs, outputs, constants, version), *arrays)
        for one, wanted in zip(made, expected, strict=True):
            assert one.shape == wanted.shape
            assert_close(one, wanted, rtol=1e-5)


def test_a_second_operand_that_is_computed_begins_there_too(context: pumice.Context) -> None:
    a, b = r(2, 3, 4, 5), r(3, 4)
    proto = model(
        [node("Neg", ["b"], ["n"]), node("Add", ["a", "n"], ["y"], broadcast=1, axis=1)],
        [value("a", [None] * 4), value("b", [None, None])],
        opset=6,
    )
    np.testing.assert_array_equal(run(context, proto, a, b), a - b[:, :, None])


def one(op: str, version: int, arrays: list[Array], outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    """The first array is an input, all others are constants."""
    names = [f"x{k}" for k in range(len(arrays))]
    return model(
        [node(op, names, [f"y{j}" for j in range(outputs)], **attributes)],
        [value("x0", arrays[0].shape, helper.np_dtype_to_tensor_dtype(arrays[0].dtype))],
        [f"y{j}" for j in range(outputs)],
        dict(zip(names[1:], arrays[1:], strict=True)),
        version,
    )


def selu(x: Array, alpha: float, gamma: float) -> Array:
    return np.where(x > 0, gamma * x, gamma * alpha * np.expm1(x))


X = r(2, 3, 4, 5)
STATISTICS = [r(3), r(3, seed=1), r(3, seed=2), abs(r(3, seed=3)) + 1]
# Operator, opsets, attributes, inputs, expected output.
FORMS: list[tuple[str, tuple[int, ...], dict[str, Any], list[Array], Any]] = [
    ("Relu", (1,), {"consumed_inputs": [0]}, [X], np.maximum(X, 0)),
    ("Clip", (1,), {"consumed_inputs": [0], "min": -1.0, "max": 0.5}, [X], np.clip(X, -1, 0.5)),
    ("Clip", (1, 6), {"min": -1.0}, [X], np.maximum(X, -1)),
    ("Selu", (1,), {}, [X], selu(X, 1.6732, 1.0507)),
    ("Selu", (6,), {}, [X], selu(X, 1.67326319217681884765625, 1.05070102214813232421875)),
    ("Cast", (1,), {"to": "INT32"}, [X], X.astype("int32")),
    ("Cast", (1,), {"to": "double"}, [X], X.astype("float64")),
    ("Cast", (6,), {"to": TensorProto.INT64}, [X], X.astype("int64")),
    ("Concat", (1,), {}, [X, X], np.concatenate([X, X], 1)),
    ("Concat", (1, 4), {"axis": 2}, [X, X], np.concatenate([X, X], 2)),
    ("Reshape", (1,), {"shape": [0, -1]}, [X], X.reshape(2, -1)),
    ("Reshape", (5,), {}, [X, np.array([3, -1])], X.reshape(3, -1)),
    ("Pad", (1,), {"paddings": [0, 0, 1, 0, 0, 0, 0, 2], "value": 3.0}, [X],
     np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=3)),
    ("Pad", (2,), {"pads": [0, 0, 1, 0, 0, 0, 0, 2]}, [X], np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)])),
    ("Split", (1, 2), {"axis": 1, "split": [1, 2]}, [X], [X[:, :1], X[:, 1:]]),
    ("Split", (1,), {"axis": 1}, [X, np.array([1, 2], "float32")], [X[:, :1], X[:, 1:]]),
    ("Tile", (1,), {}, [X, np.array([3], "float32"), np.array([1], "float32")], np.tile(X, (1, 3, 1, 1))),
    ("Tile", (6,), {}, [X, np.array([1, 2, 1, 2])], np.tile(X, (1, 2, 1, 2))),
    ("Gemm", (1, 6), {"broadcast": 1, "transB": 1}, [r(3, 4), r(5, 4), r(5)], r(3, 4) @ r(5, 4).T + r(5)),
    ("PRelu", (1, 6), {}, [X, r(3)], np.where(X < 0, X * r(3)[:, None, None], X)),
    ("PRelu", (1, 6), {}, [X, r(1)], np.where(X < 0, X * r(1), X)),
    ("Upsample", (1,), {"height_scale": 2.0, "width_scale": 3.0, "mode": "nearest"}, [X], X.repeat(2, 2).repeat(3, 3)),
    ("GlobalLpPool", (1,), {"p": 2.0}, [X], np.sqrt((X**2).sum((2, 3), keepdims=True))),
    ("LpPool", (1,), {"kernel_shape": [4, 5], "p": 1.0}, [X], abs(X).sum((2, 3), keepdims=True)),
    ("Dropout", (1, 6), {"is_test": 1, "ratio": 0.5}, [X], X),
    (
        "BatchNormalization",
        (1, 6),
        {"is_test": 1, "epsilon": 1e-3, "consumed_inputs": [0, 0, 0, 1, 1]},
        [X, *STATISTICS],
        (X - STATISTICS[2][:, None, None]) / np.sqrt(STATISTICS[3] + 1e-3)[:, None, None] * STATISTICS[0][:, None, None]
        + STATISTICS[1][:, None, None],
    ),
    ("Sum", (1, 6), {}, [X, X, X], 3 * X),
    ("Max", (1, 6), {}, [X, -X], abs(X)),
    ("ReduceSum", (1,), {"axes": [1], "keepdims": 0}, [X], X.sum(1)),
    ("TopK", (1,), {"k": 2, "axis": 3}, [X], [-np.sort(-X, -1)[..., :2], None]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "version"),
    [(form, version) for form in FORMS for version in form[1]],
    ids=lambda given: str(given) if isinstance(given, int) else f"{given[0]}{list(given[2])}",
)
def test_forms_of_the_first_sets(context: pumice.Context, form: tuple[Any, ...], version: int) -> None:
    op, _, attributes, arrays, expected = form
    wanted = expected if isinstance(expected, list) else [expected]
    if version > 5 and "consumed_inputs" in attributes:
        attributes = {key: given for key, given in attributes.items() if key != "consumed_inputs"}
    made = run(context, one(op, version, arrays, len(wanted), **attributes), arrays[0])
    for result, exact in zip([made] if len(wanted) == 1 else made, wanted, strict=True):
        if exact is not None:
            assert result.shape == exact.shape
            assert_close(result, exact.astype(result.dtype), rtol=1e-5, atol=1e-5)


def test_a_network_of_set_3_gives_what_it_does_in_the_newest_set(context: pumice.Context) -> None:
    """The nodes are as exporters of that time wrote them, with unused Dropout masks."""
    weights = {
        "w": r(4, 3, 3, 3),
        "b": r(4),
        "scale": r(4, seed=1),
        "fw": r(5, 4 * 3 * 3),
        "fb": r(5),
    }
    weights["fw"] /= 8
    old = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Add", ["c", "b"], ["cb"], broadcast=1, axis=1),
        node("Mul", ["cb", "scale"], ["s"], broadcast=1, axis=1),
        node("Relu", ["s"], ["a"], consumed_inputs=[0]),
        node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Dropout", ["p"], ["d", "mask"], is_test=1, ratio=0.5),
        node("Reshape", ["d"], ["f"], shape=[0, -1]),
        node("Gemm", ["f", "fw", "fb"], ["g"], transB=1, broadcast=1),
        node("Softmax", ["g"], ["y"]),
    ]
    new = [
        node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Unsqueeze", ["scale", "axes"], ["wide"]),
        node("Mul", ["c", "wide"], ["s"]),
        node("Relu", ["s"], ["a"]),
        node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "fw", "fb"], ["g"], transB=1),
        node("Softmax", ["g"], ["y"], axis=1),
    ]
    x = r(2, 3, 6, 6)
    for shape in ([2, 3, 6, 6], ["N", 3, "H", "W"], None):
        inputs = [value("x", shape)]
        made = run(context, model(old, inputs, constants=weights, opset=3), x)
        wanted = run(context, model(new, inputs, constants={**weights, "axes": np.array([1, 2])}, opset=13), x)
        assert_close(made, wanted, rtol=1e-4, atol=1e-6)


def test_nodes_of_the_first_sets_are_proved(context: pumice.Context) -> None:
    nodes = [
        node("Neg", ["x"], ["n"], consumed_inputs=[0]),
        node("Add", ["n", "b"], ["s"], broadcast=1, axis=0),
        node("AveragePool", ["s"], ["p"], kernel_shape=[3], pads=[1, 1]),
        node("Relu", ["p"], ["y"]),
    ]
    proto = model(nodes, [value("x", [2, 3, 5])], constants={"b": r(2)}, opset=3)
    report = pumice.validate(proto, [r(2, 3, 5)], context=context)
    report.raise_if_failed()
    assert {row.node for row in report.rows} == {"neg.n", "add.s", "averagepool.p", "relu.y", "y"}


@pytest.mark.parametrize("op", ["Dropout", "BatchNormalization"])
@pytest.mark.parametrize("version", [1, 6])
def test_what_is_said_to_be_in_training_is_rejected(context: pumice.Context, op: str, version: int) -> None:
    arrays = [X] if op == "Dropout" else [X, *STATISTICS]
    with pytest.raises(pumice.UnsupportedError, match=f"{op}: is_test=0.*operator set {version}"):
        pumice.load(one(op, version, arrays), context)


def dropout(version: int, mask_is_read: bool) -> onnx.ModelProto:
    nodes = [
        node("Dropout", ["x"], ["d", "mask"], ratio=0.5, **({"is_test": 1} if version < 7 else {})),
        node("Relu", ["d"], ["y"]),
    ]
    if mask_is_read:
        nodes.append(node("Neg", ["mask"], ["z"]))
    return model(nodes, outputs=["y", "z"] if mask_is_read else ["y"], opset=version)


@pytest.mark.parametrize("version", [1, 6, 7, 8, 9, 10, 12])
def test_a_mask_that_nobody_reads_rejects_no_dropout(context: pumice.Context, version: int) -> None:
    x = r(3, 4)
    np.testing.assert_array_equal(run(context, dropout(version, False), x), np.maximum(x, 0))


@pytest.mark.parametrize("version", [7, 9])
def test_a_mask_that_is_read_is_rejected_by_name(context: pumice.Context, version: int) -> None:
    with pytest.raises(pumice.UnsupportedError, match="node 'dropout.d.mask': operator Dropout: a mask of the input's"):
        pumice.load(dropout(version, True), context)


def test_outputs_that_nothing_reads_are_no_reason_to_reject_a_node(context: pumice.Context) -> None:
    """Each of these nodes has unused outputs that the engine does not support."""
    x, scale, bias = r(2, 3, 4), np.ones(3, "float32"), np.zeros(3, "float32")
    statistics = {"s": scale, "b": bias, "m": bias, "v": scale}
    batch = model(
        [node("BatchNormalization", ["x", *statistics], ["y", "mean", "var", "saved", "kept"])],
        [value("x", [2, 3, 4])],
        constants=statistics,
        opset=9,
    )
    assert_close(run(context, batch, x), x, rtol=1e-4)
    skip = node("SkipLayerNormalization", ["x", "x", "g", "h"], ["y", "mean", "inverse", "sum"], domain="com.microsoft")
    proto = model([skip], [value("x", [2, 3, 4])], constants={"g": np.ones(4, "float32"), "h": np.zeros(4, "float32")})
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    doubled = 2 * x
    wanted = (doubled - doubled.mean(-1, keepdims=True)) / np.sqrt(doubled.var(-1, keepdims=True) + 1e-12)
    assert_close(run(context, proto, x), wanted, rtol=1e-4, atol=1e-5)


def test_there_is_no_set_0(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match=r"operator set 0 \(supported: 1 to"):
        pumice.load(model([node("Relu")], opset=0), context)
