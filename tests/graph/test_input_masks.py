"""Masks that are graph inputs, or computed from inputs, at 16 bits: finite float32 numbers stay finite in the scores."""

from __future__ import annotations

from collections.abc import Callable
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
Nodes = list[onnx.NodeProto]
LOWEST = float(np.finfo("float32").min)
NUMBERS = (LOWEST, -1e9, -65504.0)
TOLERANCES = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}
BATCH, HEADS, ROWS, SIZE = 2, 2, 5, 8
# The first sequence is padded on the left, the second is padding only.
HIDDEN = np.zeros((BATCH, ROWS), bool)
HIDDEN[0, :2] = HIDDEN[1] = True
CAUSAL = np.triu(np.ones((ROWS, ROWS), bool), 1)
BOTH = HIDDEN[:, None, None] | CAUSAL

MASK = value("mask", [BATCH, 1, ROWS, ROWS])
KEYS = value("keys", [BATCH, ROWS])
NUMBER = value("number", [])


def added(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    return [node("Add", ["scores", "mask"], ["s"])], [MASK], {"mask": np.where(BOTH, number, 0)}


def subtracted(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    return [node("Sub", ["scores", "mask"], ["s"])], [MASK], {"mask": np.where(BOTH, -number, 0)}


def times_a_constant(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    nodes = [
        node("Sub", ["one", "mask"], ["hides"]),
        node("Mul", ["hides", "number"], ["low"]),
        node("Add", ["scores", "low"], ["s"]),
    ]
    return nodes, [MASK], {"mask": 1.0 - BOTH, "number": np.array(number)}


def times_an_input(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    nodes, inputs, arrays = times_a_constant(number)
    return nodes, [*inputs, NUMBER], arrays


def chosen(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    nodes = [
        node("Cast", ["mask"], ["hides"], to=TensorProto.BOOL),
        node("Where", ["hides", "number", "scores"], ["s"]),
    ]
    return nodes, [MASK, NUMBER], {"mask": BOTH, "number": np.array(number)}


def expanded(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    nodes = [
        node("Unsqueeze", ["keys", "middle"], ["four"]),
        node("Expand", ["four", "sizes"], ["square"]),
        node("Add", ["scores", "square"], ["s"]),
    ]
    return nodes, [KEYS], {"keys": np.where(HIDDEN, number, 0)}


def moved(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    nodes = [
        node("Transpose", ["mask"], ["turned"], perm=[0, 1, 3, 2]),
        node("Slice", ["turned", "zero", "two", "three"], ["left"]),
        node("Slice", ["turned", "two", "five", "three"], ["right"]),
        node("Concat", ["left", "right"], ["joined"], axis=3),
        node("Reshape", ["joined", "flat"], ["flattened"]),
        node("Reshape", ["flattened", "shape"], ["again"]),
        node("Add", ["scores", "again"], ["s"]),
    ]
    return nodes, [MASK], {"mask": np.where(BOTH, number, 0).swapaxes(2, 3)}


def two(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    """Add two masks whose sum exceeds float16 even if each of them does not."""
    nodes = [
        node("Unsqueeze", ["keys", "middle"], ["four"]),
        node("Add", ["mask", "four"], ["sum"]),
        node("Add", ["sum", "scores"], ["s"]),
    ]
    half = number / 2
    given = {"mask": np.where(CAUSAL[None, None], half, 0).repeat(BATCH, 0), "keys": np.where(HIDDEN, half, 0)}
    return nodes, [MASK, KEYS], given


def integers(number: float) -> tuple[Nodes, list[Any], dict[str, Array]]:
    nodes = [node("Cast", ["whole"], ["low"], to=TensorProto.FLOAT), node("Add", ["scores", "low"], ["s"])]
    given = np.where(BOTH, max(number, -(2.0**31)), 0).astype("int64")
    return nodes, [value("whole", given.shape, TensorProto.INT64)], {"whole": given}


FORMS = {
    one.__name__: one
    for one in (added, subtracted, times_a_constant, times_an_input, chosen, expanded, moved, two, integers)
}
CONSTANTS: dict[str, Any] = {
    "one": np.float32(1),
    "middle": np.array([1, 2]),
    "sizes": np.array([1, 1, ROWS, 1]),
    "zero": np.array([0]),
    "two": np.array([2]),
    "three": np.array([3]),
    "five": np.array([5]),
    "flat": np.array([-1]),
    "shape": np.array([BATCH, 1, ROWS, ROWS]),
}


def softmax_written_out() -> Nodes:
    return [
        node("ReduceMax", ["s"], ["most"], axes=[-1], keepdims=1),
        node("Sub", ["s", "most"], ["less"]),
        node("Exp", ["less"], ["e"]),
        node("ReduceSum", ["e", "last"], ["total"], keepdims=1),
        node("Div", ["e", "total"], ["y"]),
    ]


READERS: dict[str, Callable[[], Nodes]] = {
    "Softmax": lambda: [node("Softmax", ["s"], ["y"], axis=-1)],
    "LogSoftmax": lambda: [node("LogSoftmax", ["s"], ["y"], axis=-1)],
    "Exp": softmax_written_out,
    "attention": lambda: [node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["y"])],
}


def masked_model(form: str, reader: str, number: float) -> tuple[onnx.ModelProto, dict[str, Array]]:
    masked, inputs, arrays = FORMS[form](number)
    scores = [
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["products"]),
        node("Mul", ["products", "scale"], ["scores"]),
    ]
    names = {one.name for one in inputs}
    constants = CONSTANTS | {"scale": np.float32(SIZE**-0.5), "last": np.array([-1])}
    constants |= {name: np.float32(one) for name, one in arrays.items() if name not in names}
    inputs = inputs + [value(name, [BATCH, HEADS, ROWS, SIZE]) for name in "qkv"]
    random = np.random.default_rng(3)
    given = {one.name: random.standard_normal((BATCH, HEADS, ROWS, SIZE)).astype("float32") for one in inputs[-3:]}
    given |= {
        name: one if one.dtype == np.int64 else one.astype("float32") for name, one in arrays.items() if name in names
    }
    nodes = [*scores, *masked, *READERS[reader]()]
    used = {name for one in nodes for name in one.input}
    inputs = [one for one in inputs if one.name in used]
    constants = {name: one for name, one in constants.items() if name in used}
    return model(nodes, inputs, ["y"], constants, opset=17), {one.name: given[one.name] for one in inputs}


def compare(proto: onnx.ModelProto, given: dict[str, Array], actual: Array, reader: str, precision: str) -> None:
    expected = exact_session(proto, optimize=False).run(None, given)[0]
    assert np.isfinite(expected).all()
    assert np.isfinite(actual).all(), actual
    seen = np.broadcast_to(~BOTH.all(-1, keepdims=True), expected.shape)
    if reader == "LogSoftmax":  # for masked keys the result is limited by the range of the type
        seen = seen & ~np.broadcast_to(BOTH, expected.shape)
    np.testing.assert_allclose(actual[seen], expected[seen], atol=TOLERANCES[precision], rtol=TOLERANCES[precision])


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_masked_by_inputs_are_finite(
    context: pumice.Context, form: str, reader: str, number: float, precision: str, fuse: bool
) -> None:
    proto, given = masked_model(form, reader, number)
    with pumice.load(proto, context, precision, fuse=fuse, progress=False) as loaded:
        compare(proto, given, loaded(*(given[one.name] for one in loaded.inputs)), reader, precision)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("reader", ["Softmax", "attention"])
def test_scores_that_are_all_masked_alike_are_uniform(
    context: pumice.Context, reader: str, precision: str, fuse: bool
) -> None:
    """Includes large scores: in float32, -3.4e38 absorbs them all."""
    proto, given = masked_model("added", reader, LOWEST)
    given["q"] *= 100
    with pumice.load(proto, context, precision, fuse=fuse, progress=False) as loaded:
        actual = loaded(*(given[one.name] for one in loaded.inputs))
    expected: Array = np.full(ROWS, 0.2) if reader == "Softmax" else given["v"][1].mean(1, keepdims=True)
    np.testing.assert_allclose(actual[1], np.broadcast_to(expected, actual[1].shape), atol=TOLERANCES[precision])


@pytest.mark.parametrize("precision", TOLERANCES)
def test_infinities_of_the_caller_keep_their_meaning(context: pumice.Context, precision: str) -> None:
    proto = model(
        [node("Add", ["x", "mask"], ["s"]), node("Softmax", ["s"], ["y"], axis=-1)],
        [value("x", [4, 3]), value("mask", [4, 3])],
    )
    inf = np.inf
    mask = np.array([[0, -inf, -inf], [-inf, -inf, -inf], [0, np.nan, 0], [LOWEST, -inf, -inf]], "float32")
    x = np.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [-20, 2, 3]], "float32")
    with pumice.load(proto, context, precision, progress=False) as loaded:
        actual = loaded(x, mask)
    np.testing.assert_array_equal(actual[0], [1, 0, 0])
    assert np.isnan(actual[1:3]).all()
    np.testing.assert_array_equal(actual[3], [1, 0, 0])


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("number", [-np.inf, *NUMBERS])
def test_masks_of_the_operator(context: pumice.Context, number: float, precision: str) -> None:
    """ONNX's Attention reads the input mask directly."""
    shape = [BATCH, HEADS, ROWS, SIZE]
    inputs = [*(value(name, shape) for name in "qkv"), MASK]
    proto = model([node("Attention", ["q", "k", "v", "mask"])], inputs, opset=23)
    random = np.random.default_rng(4)
    given = {name: random.standard_normal(shape).astype("float32") for name in "qkv"}
    given["mask"] = np.where(BOTH, np.float32(number), np.float32(0))
    expected = exact_session(proto, optimize=False).run(None, given)[0]
    with pumice.load(proto, context, precision, progress=False) as loaded:
        actual = loaded(*given.values())
    finite = np.isfinite(expected)
    assert np.isfinite(actual[finite]).all()
    seen = np.broadcast_to(~BOTH.all(-1, keepdims=True), expected.shape)
    np.testing.assert_allclose(actual[seen], expected[seen], atol=TOLERANCES[precision])


@pytest.mark.parametrize("reader", ["Softmax", "attention"])
@pytest.mark.parametrize("form", ["added", "times_an_input", "expanded", "moved"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_validation_calls_masks_of_inputs_right(
    context: pumice.Context, form: str, reader: str, precision: str
) -> None:
    proto, given = masked_model(form, reader, LOWEST)
    report = pumice.validate(proto, [given], context=context, precision=precision)
    assert report.ok, report.summary


@pytest.mark.parametrize(("form", "reader"), [("added", "Exp"), ("added", "LogSoftmax"), ("two", "Softmax")])
def test_validation_finds_nothing_wrong_where_it_cannot_prove(context: pumice.Context, form: str, reader: str) -> None:
    """The difference of two sums near -3.4e38 has no bound, and float16 cannot tell them apart from their halves."""
    proto, given = masked_model(form, reader, LOWEST)
    report = pumice.validate(proto, [given], context=context, precision="fp16")
    assert "wrong" not in {row.verdict for row in report.rows}, report.summary


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_validation_knows_what_the_operator_reads_of_a_mask(context: pumice.Context, precision: str) -> None:
    shape = [BATCH, HEADS, ROWS, SIZE]
    proto = model(
        [node("Attention", ["q", "k", "v", "mask"])], [*(value(name, shape) for name in "qkv"), MASK], opset=23
    )
    random = np.random.default_rng(4)
    given = {name: random.standard_normal(shape).astype("float32") for name in "qkv"}
    given["mask"] = np.where(BOTH, np.float32(LOWEST), np.float32(0))
    report = pumice.validate(proto, [given], context=context, precision=precision)
    assert report.ok, report.summary


def test_the_report_names_what_stays_in_float32(context: pumice.Context) -> None:
    proto, _ = masked_model("added", "Softmax", LOWEST)
    with pumice.load(proto, context, "fp16", progress=False) as loaded:
        notes = {row["op"]: row["note"] for row in loaded.program.report()}
    assert "float32: computes scores" in notes["Add"]
    assert "float32" not in notes["Softmax"] + notes["MatMul"]
