"""Attention masks in every form and precision. A fully masked row stays finite if it is finite in float32."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto

import pumice
from exact_sessions import exact_session
from onnx_models import model, node, value

Array = npt.NDArray[Any]
NUMBERS = (float("-inf"), float(np.finfo("float32").min), -1e9, -65504.0, -1e4)
TOLERANCES = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}
BATCH, HEADS, ROWS, SIZE = 2, 2, 4, 8


def masked(form: str, scores: str, result: str) -> list[onnx.NodeProto]:
    """Return nodes that mask scores where `hidden` is true, with the constants `number`, `one` and `zero`."""
    if form == "Where":
        return [node("Where", ["hidden", "number", scores], [result])]
    if form == "Where of zeros, Add":
        return [node("Where", ["hidden", "number", "zero"], ["mask"]), node("Add", [scores, "mask"], [result])]
    cast = node("Cast", ["hidden"], ["ones"], to=TensorProto.FLOAT)
    if form == "Mul, Add":
        return [cast, node("Mul", ["ones", "number"], ["mask"]), node("Add", [scores, "mask"], [result])]
    inverted = [cast, node("Sub", ["one", "ones"], ["seen"]), node("Sub", ["one", "seen"], ["again"])]
    return [*inverted, node("Mul", ["again", "number"], ["mask"]), node("Add", [scores, "mask"], [result])]


FORMS = ("Where", "Where of zeros, Add", "Mul, Add", "Sub, Mul, Add")


def constants(number: float) -> dict[str, Array]:
    return {name: np.array(one, "float32") for name, one in (("number", number), ("one", 1.0), ("zero", 0.0))}


def softmax_model(form: str, number: float) -> onnx.ModelProto:
    nodes = [*masked(form, "x", "s"), node("Softmax", ["s"], axis=-1)]
    return model(
        nodes, [value("hidden", [ROWS, ROWS], TensorProto.BOOL), value("x", [ROWS, ROWS])], constants=constants(number)
    )


def attention_model(form: str, number: float) -> onnx.ModelProto:
    """Attention as exporters decompose it."""
    nodes = [
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["products"]),
        node("Mul", ["products", "scale"], ["scores"]),
        *masked(form, "scores", "s"),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs = [value("hidden", [BATCH, 1, 1, "S"], TensorProto.BOOL)] + [
        value(name, [BATCH, HEADS, "S", SIZE]) for name in "qkv"
    ]
    return model(nodes, inputs, constants=constants(number) | {"scale": np.array(SIZE**-0.5, "float32")})


def operator_model(number: float) -> onnx.ModelProto:
    """ONNX's Attention with an additive mask."""
    nodes = [
        node("Where", ["hidden", "number", "zero"], ["mask"]),
        node("Attention", ["q", "k", "v", "mask"]),
    ]
    inputs = [value("hidden", [1, 1, ROWS, ROWS], TensorProto.BOOL)] + [
        value(name, [BATCH, HEADS, ROWS, SIZE]) for name in "qkv"
    ]
    return model(nodes, inputs, constants=constants(number), opset=23)


def compare(
    proto: onnx.ModelProto, arrays: dict[str, Array], context: pumice.Context, precision: str, fuse: bool, seen: Array
) -> None:
    """seen: the rows that do not depend on the rounding of masked scores. Other rows only have to be finite where expected."""
    expected = exact_session(proto, optimize=False).run(None, arrays)[0]
    with pumice.load(proto, context, precision, fuse=fuse, progress=False) as loaded:
        actual = loaded(*(arrays[one.name] for one in loaded.inputs))
    finite = np.isfinite(expected)
    assert np.isfinite(actual[finite]).all(), actual
    rows = np.broadcast_to(seen, expected.shape) & finite
    np.testing.assert_allclose(actual[rows], expected[rows], atol=TOLERANCES[precision], rtol=TOLERANCES[precision])


def vectors(seed: int, *shape: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype("float32") for name in "qkv"}


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("form", FORMS)
def test_softmax_of_masked_rows(context: pumice.Context, form: str, number: float, precision: str, fuse: bool) -> None:
    hidden = np.array([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 1, 1]], bool)
    x = np.random.default_rng(1).standard_normal((ROWS, ROWS)).astype("float32")
    # Near -1e4 float16 has a spacing of 8, so a fully masked row differs from float32's.
    seen = ~hidden.all(-1, keepdims=True) | (form == "Where") | (number < -1e8)
    compare(softmax_model(form, number), {"hidden": hidden, "x": x}, context, precision, fuse, seen)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(("form", "number"), list(itertools.product(FORMS, NUMBERS)))
def test_decomposed_attention_of_padded_sentences(
    context: pumice.Context, form: str, number: float, precision: str, fuse: bool
) -> None:
    hidden = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]], bool).reshape(BATCH, 1, 1, 5)
    arrays = {"hidden": hidden} | vectors(2, BATCH, HEADS, 5, SIZE)
    seen = ~hidden.all(-1, keepdims=True)
    compare(attention_model(form, number), arrays, context, precision, fuse, seen)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("number", NUMBERS)
def test_attention_with_left_padded_rows(context: pumice.Context, number: float, precision: str) -> None:
    """Two padding tokens on the left: the first two rows attend only to padding."""
    hidden = np.triu(np.ones((ROWS, ROWS), bool), 1)
    hidden[:, :2] = True
    arrays = {"hidden": hidden[None, None]} | vectors(3, BATCH, HEADS, ROWS, SIZE)
    seen = ~arrays["hidden"].all(-1, keepdims=True)
    compare(operator_model(number), arrays, context, precision, True, seen)


@pytest.mark.parametrize(
    "reader",
    ["Softmax", "LogSoftmax", "MatMul", "Transpose", "Concat", "ReduceMax", "Clip", "Less", "LayerNormalization"],
)
def test_what_reads_a_result_beyond_float16_reads_a_finite_number(context: pumice.Context, reader: str) -> None:
    """Each reader handles a float32 result in a float16 program in its own way."""
    constants_ = constants(-1e9) | {
        "w": np.eye(4, dtype="float32"),
        "low": np.array(-10, "float32"),
        "g": np.ones(4, "float32"),
    }
    more = {"MatMul": ["w"], "Concat": ["x"], "Clip": ["low"], "Less": ["low"], "LayerNormalization": ["g"]}.get(
        reader, []
    )
    attributes: dict[str, Any] = {"Concat": {"axis": 0}, "ReduceMax": {"keepdims": 0}}.get(reader, {})
    nodes = [node("Where", ["hidden", "number", "x"], ["s"]), node(reader, ["s", *more], ["r"], **attributes)]
    nodes.append(node("Cast", ["r"], ["y"], to=TensorProto.FLOAT))
    proto = model(nodes, [value("hidden", [4, 4], TensorProto.BOOL), value("x", [4, 4])], constants=constants_)
    hidden = np.array([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 1, 1]], bool)
    with pumice.load(proto, context, "fp16", progress=False) as loaded:
        assert np.isfinite(loaded(hidden, np.ones((4, 4), "float32"))).all()
