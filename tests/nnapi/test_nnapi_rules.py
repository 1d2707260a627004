"""Errors of NNAPI's operations in the graph builder, the builder's state after them, and small models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import assert_near, operands_of, quantize, random_quantized


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


def integers(*shape: int) -> np.ndarray:
    return np.zeros(shape, "int32")


Q = random_quantized((2, 3))

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    # counts
    ("ADD", (floats(2), floats(2)), {}, r"takes 3 operands \(a, b, activation\); given 2"),
    ("ADD", (floats(2), floats(2), 0, 0), {}, "takes 3 operands .*; given 4"),
    ("SOFTMAX", (floats(2),), {}, r"takes 2 to 3 operands \(x, beta, axis\?\); given 1"),
    ("CONCATENATION", (0,), {}, r"takes 2 or more operands \(x\.\.\., axis\); given 1"),
    (
        "CONV_2D",
        (floats(1, 4, 4, 1), floats(1, 1, 1, 1), floats(1)),
        {},
        "takes 7 to 10 operands .*padding_scheme.*; given 3",
    ),
    ("NEG", (None,), {}, "operand 0, 'x': it is required"),
    # element types
    ("ADD", (floats(2), integers(2), 0), {}, "operand 1, 'b': float32 expected, as operand 0, 'a'; given int32"),
    ("ADD", (np.zeros(2, bool), np.zeros(2, bool), 0), {}, "operand 0, 'a': .*int32.* expected; given bool"),
    ("ADD", (np.zeros(2, "float64"), np.zeros(2, "float64"), 0), {}, "expected; given float64"),
    ("LOGICAL_AND", (integers(2), integers(2)), {}, "operand 0, 'a': bool expected; given int32"),
    ("SELECT", (integers(2), integers(2), integers(2)), {}, "'condition': bool expected; given int32"),
    ("REDUCE_SUM", (floats(2), [0], 1), {}, "operand 2, 'keep_dims': bool expected; given int32"),
    ("MEAN", (floats(2), [0], True), {}, "operand 2, 'keep_dims': int32 expected; given bool"),
    ("FULLY_CONNECTED", (Q, Q, floats(2), 0), {"scale": 1.0}, "'bias': int32 expected with uint8; given float32"),
    ("FULLY_CONNECTED", (floats(2, 3), Q, floats(2), 0), {}, "'weights': float32 expected, as operand 0; given uint8"),
    # operations that are not defined for INT32
    *(
        (op, operands, {}, "expected; given int32")
        for op, operands in {
            "CONCATENATION": (integers(2), integers(2), 0),
            "TRANSPOSE": (integers(2, 3),),
            "STRIDED_SLICE": (integers(2), [0], [1], [1], 0, 0, 0),
            "SQUEEZE": (integers(1),),
            "POW": (integers(2), integers(2)),
            "REDUCE_SUM": (integers(2), [0], True),
            "SOFTMAX": (integers(2), 1.0),
        }.items()
    ),
    # enumeration codes
    ("ADD", (floats(2), floats(2), 4), {}, r"'activation': 0 \(NONE\), .* or 3 \(RELU6\) expected; given 4"),
    ("ADD", (integers(2), integers(2), 1), {}, r"'activation': 0 \(NONE\) expected for int32; given 1"),
    ("MIRROR_PAD", (floats(4), [[1, 1]], 2), {}, r"0 \(REFLECT\) or 1 \(SYMMETRIC\) expected; given 2"),
    ("MAX_POOL_2D", (floats(1, 4, 4, 1), 3, 1, 1, 2, 2, 0), {}, r"1 \(SAME\) or 2 \(VALID\) expected; given 3"),
    ("MAX_POOL_2D", (floats(1, 4, 4, 1), 1, 0, 1, 2, 2, 0), {}, "'stride_width': a positive number expected; given 0"),
    (
        "MAX_POOL_2D",
        (floats(1, 4, 4, 1), 0, 0, 0, -1, 1, 1, 2, 2, 0),
        {},
        "'padding_bottom': a non-negative number expected; given -1",
    ),
    # shapes and ranks
    ("ADD", (floats(2), floats(3), 0), {}, r"\[2\].*\[3\]"),
    ("ADD", (floats(2), floats(2), [0]), {}, r"'activation': a scalar expected; given \[1\]"),
    ("SLICE", (floats(2, 3), [[0, 0]], [1, 1]), {}, r"'begin': a vector expected; given \[1, 2\]"),
    ("SLICE", (floats(2, 3), [0], [1, 1]), {}, "'begin': 2 numbers expected, one for each axis of operand 0; given 1"),
    (
        "SLICE",
        (floats(2, 3), [0, 1], [1, 3]),
        {},
        "'size': at most 3 elements expected on axis 1; given 3 from index 1",
    ),
    ("SLICE", (floats(2, 3), [0, -1], [1, 1]), {}, "'begin': at least 0 expected on axis 1; given -1"),
    ("SLICE", (floats(2, 3), [0, 0], [1, -2]), {}, "'size': non-negative sizes, or -1"),
    (
        "SELECT",
        (np.zeros(2, bool), floats(1), floats(2)),
        {},
        r"operand 1, 'a': the shape of operand 0, \[2\], expected; given \[1\]",
    ),
    ("SPLIT", (floats(2, 5), 1, 2), {}, r"'num_splits': a number that divides axis 1 of \[2, 5\] expected; given 2"),
    ("REVERSE", (floats(2, 5), [0, 1]), {}, r"one axis expected; given \[0, 1\]"),
    ("SOFTMAX", (floats(2, 5), 1.0, 2), {}, "'axis': an axis from -2 to 1 expected; given 2"),
    ("REDUCE_MAX", (floats(2, 5), [-3], True), {}, "axes from -2 to 1 expected; given -3"),
    ("EXPAND_DIMS", (floats(2, 5), 3), {}, "an axis from -3 to 2 expected; given 3"),
    ("TILE", (floats(2, 5), [1]), {}, "'multiples': 2 numbers expected"),
    ("PAD", (floats(2, 5), [[1, 1]]), {}, r"a pair of numbers for each axis of operand 0 expected; given \[1, 2\]"),
    ("MIRROR_PAD", (floats(2), [[2, 0]], 0), {}, "at most 1 on axis 0 expected; given 2"),
    ("SOFTMAX", (floats(2, 5), 0.0), {}, "'beta': a positive number expected; given 0.0"),
    ("RESHAPE", (floats(2, 5), [3, 3]), {}, r"\[2, 5\] reshaped to \[3, 3\]"),
    (
        "FULLY_CONNECTED",
        (floats(3), floats(2, 3), floats(2), 0),
        {},
        r"'x': a rank of at least 2 expected; given \[3\]",
    ),
    (
        "FULLY_CONNECTED",
        (floats(1, 4), floats(2, 3), floats(2), 0),
        {},
        r"'x': rows of 3 elements expected; given \[1, 4\]",
    ),
    ("FULLY_CONNECTED", (floats(1, 3), floats(2, 3), floats(3), 0), {}, r"'bias': \[2\] expected; given \[3\]"),
    (
        "CONV_2D",
        (floats(4, 4, 1), floats(1, 1, 1, 1), floats(1), 1, 1, 1, 0),
        {},
        r"a rank of 4 expected; given \[4, 4, 1\]",
    ),
    (
        "CONV_2D",
        (floats(1, 4, 4, 2), floats(1, 1, 1, 3), floats(1), 1, 1, 1, 0),
        {},
        "2 channels and a weight of 3 channels",
    ),
    (
        "DEPTHWISE_CONV_2D",
        (floats(1, 4, 4, 2), floats(1, 1, 1, 3), floats(3), 1, 1, 1, 1, 0),
        {},
        "makes 3 channels of 2 .*; given 1",
    ),
    (
        "GROUPED_CONV_2D",
        (floats(1, 4, 4, 2), floats(3, 1, 1, 1), floats(3), 1, 1, 1, 2, 0, False),
        {},
        "divides 3 channels expected; given 2",
    ),
    ("RESIZE_BILINEAR", (floats(1, 4, 4, 2), 2, 1.5), {}, "'height': int32 expected, as operand 1; given float32"),
    (
        "RESIZE_BILINEAR",
        (floats(1, 4, 4, 2), 2, 2, False, True, True),
        {},
        "false expected if align_corners is true; given true",
    ),
    (
        "BATCH_TO_SPACE_ND",
        (floats(5, 2, 2, 1), [2, 2]),
        {},
        r"whose product divides a batch of 5 expected; given \[2, 2\]",
    ),
    ("BATCH_TO_SPACE_ND", (floats(4, 2, 2, 1), [2]), {}, r"two positive numbers expected; given \[2\]"),
    (
        "SPACE_TO_BATCH_ND",
        (floats(1, 3, 2, 1), [2, 2], [[0, 0], [0, 0]]),
        {},
        r"that divide \[3, 2\] expected; given \[2, 2\]",
    ),
    (
        "SPACE_TO_BATCH_ND",
        (floats(1, 3, 2, 1), [1, 1], [[0, -1], [0, 0]]),
        {},
        "two pairs of non-negative numbers expected",
    ),
    ("CHANNEL_SHUFFLE", (floats(2, 5), 2, 1), {}, "a number that divides 5 channels expected; given 2"),
    (
        "LOCAL_RESPONSE_NORMALIZATION",
        (floats(2, 5), -1, 1.0, 1.0, 1.0),
        {},
        "'radius': a non-negative number expected; given -1",
    ),
    # numbers out of any range
    ("SPLIT", (floats(0, 2), 0, 2**31 - 1), {}, "'num_splits': .* expected; given 2147483647"),
    ("RESIZE_BILINEAR", (floats(1, 4, 4, 2), 1e30, 1.0), {}, r"'width': a size below 2\^32 expected"),
    ("TILE", (floats(2, 5), [2**31 - 1, 2**31 - 1]), {}, "does not fit in 64 bits"),
    # scales
    (
        "ADD",
        (np.zeros(2, "uint8"), np.zeros(2, "uint8"), 0),
        {"scale": 1.0},
        "operand 0, 'a': a scale is needed for uint8; given none",
    ),
    ("ADD", (Q, Q, 0), {}, "'scale' of the output is needed"),
    ("MUL", (Q, Q, 0), {"scale": 0.0625}, "'scale' of the output has to exceed .*0.0625.*; given 0.0625"),
    ("RELU", (Q,), {"scale": 0.5}, "scale 0.25 and zero point 128 expected, as operand 0, 'x'; given scale 0.5"),
    ("RESHAPE", (Q, [6]), {"zero_point": 1}, "zero point 128 expected.*; given .* zero point 1"),
    (
        "SOFTMAX",
        (Q, 1.0),
        {"scale": 0.5},
        "scale 0.00390625 and zero point 0 expected; given scale 0.5 and zero point 0",
    ),
    ("ADD", (floats(2), floats(2), 0), {"scale": 1.0}, "a scale or zero point is given for an output of float32"),
    ("ADD", (Q, Q, 0), {"scale": 0.0}, "greater than 0"),
    ("ADD", (Q, Q, 0), {"scale": 1.0, "zero_point": 256}, "256"),
    (
        "PACK",
        (0, Q, random_quantized((2, 3), scale=0.5)),
        {},
        "scale 0.25 and zero point 128 expected, as operand 1; given scale 0.5",
    ),
    # declared element types
    (
        "QUANTIZE",
        (floats(2),),
        {"scale": 1.0, "dtype": "int32"},
        "int8, uint8 expected; given int32|uint8.* expected; given int32",
    ),
    ("DEQUANTIZE", (Q,), {"dtype": "int32"}, "expected; given int32"),
    ("NEG", (floats(2),), {"dtype": "int32"}, "'dtype': the operands determine that of the output"),
    ("CAST", (floats(2),), {"dtype": "float99"}, "float99"),
    ("NEG", (floats(2),), {"axis": 1}, "unknown keyword 'axis'"),
]


@pytest.mark.parametrize(
    ("op", "given", "declared", "text"), REFUSED, ids=[f"{i}-{row[0]}" for i, row in enumerate(REFUSED)]
)
def test_what_does_not_fit_is_rejected_by_name(
    op: str, given: tuple[Any, ...], declared: dict[str, Any], text: str
) -> None:
    graph = pumice.Graph()
    operands = operands_of(graph, given, {})
    kept = graph.add("Identity", graph.input("kept", "float32", [1]), name="kept node")
    with pytest.raises(pumice.GraphError, match=text) as caught:
        graph.add(f"nnapi::{op}", *operands, name="culprit", **declared)
    assert caught.value.node == "culprit"
    assert f"nnapi::{op}: " in str(caught.value)
    assert len(graph) == 1
    graph.output("y", graph.add("nnapi::NEG", kept, name="culprit"))


def test_an_unknown_operation_is_unsupported_by_name() -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.UnsupportedError, match="operator nnapi::FFT_2D"):
        graph.add("nnapi::FFT_2D", graph.input("x", "float32", [1]))


def test_numbers_are_constants_only_for_nnapi() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [2])
    with pytest.raises(pumice.GraphError, match="expected a Value of this graph, an array or None; given int"):
        graph.add("Add", x, 1)
    for given in (2**31, [1, -(2**40)]):
        with pytest.raises(pumice.GraphError, match="expected integers that fit in int32; given"):
            graph.add("nnapi::RESHAPE", x, given)
    with pytest.raises(pumice.GraphError, match="given str"):
        graph.add("nnapi::RESHAPE", x, "2")


def test_a_scalar_that_the_program_would_compute_is_unsupported() -> None:
    graph = pumice.Graph()
    x, axis = graph.input("x", "float32", [2, 3]), graph.input("axis", "int32", [])
    with pytest.raises(
        pumice.UnsupportedError, match="node 'it': nnapi::EXPAND_DIMS with operand 1, 'axis', which is not a constant"
    ):
        graph.add("nnapi::EXPAND_DIMS", x, axis, name="it")
    with pytest.raises(pumice.UnsupportedError, match="operand 2, 'axis', which is not a constant"):
        graph.add("nnapi::SOFTMAX", graph.input("any", "float32", None), 1.0, axis)
    assert len(graph) == 0


def test_names_and_outputs() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4, 6])
    values, indices = graph.add("nnapi::TOPK_V2", x, 2, name="best", output_names=["values", "indices"])
    assert (values.name, indices.name, indices.dtype) == ("values", "indices", "int32")
    parts = graph.add("nnapi::SPLIT", x, 1, 3, outputs=3)
    assert [part.shape for part in parts] == [(4, 2)] * 3
    with pytest.raises(pumice.GraphError, match="has 3 outputs here; requested 2"):
        graph.add("nnapi::SPLIT", x, 1, 3, outputs=2)
    with pytest.raises(pumice.GraphError, match="another node has this name"):
        graph.add("nnapi::NEG", x, name="best")
    nodes = len(graph)
    with pytest.raises(pumice.GraphError, match="'values', but another value"):
        graph.add("nnapi::SUB", x, x, 1, name="again", output_names=["values"])
    assert len(graph) == nodes
    assert graph.add("nnapi::SUB", x, x, 1, name="again").name == "again:0"


def test_unknown_sizes_pass_through() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None, 6])
    y = graph.add("nnapi::FULLY_CONNECTED", x, np.zeros((4, 6), "float32"), np.zeros(4, "float32"), 1)
    assert y.shape == (None, 4)
    image = graph.input("image", "uint8", [None, 8, 8, 3], scale=0.5, zero_point=3)
    w = graph.constant(np.zeros((5, 3, 3, 3), "uint8"), scale=0.5)
    y = graph.add("nnapi::CONV_2D", image, w, np.zeros(5, "int32"), 1, 2, 2, 0, scale=1.0)
    assert (y.shape, y.scale, y.zero_point) == ((None, 4, 4, 5), 1.0, 0)
    assert graph.add("nnapi::CONCATENATION", x, x, 0).shape == (None, 6)


def test_sizes_that_follow_are_known_where_others_are_not() -> None:
    graph = pumice.Graph()
    image = graph.input("image", "float32", [None] * 4)
    w, b = np.zeros((5, 3, 3, 3), "float32"), np.zeros(5, "float32")
    assert graph.add("nnapi::CONV_2D", image, w, b, 1, 2, 2, 0).shape == (None, None, None, 5)
    fixed = graph.input("fixed", "float32", [None, 8, 8, None])
    assert graph.add("nnapi::CONV_2D", fixed, w, b, 1, 2, 2, 0).shape == (None, 4, 4, 5)
    each = np.zeros((1, 3, 3, 6), "float32")
    y = graph.add("nnapi::DEPTHWISE_CONV_2D", fixed, each, np.zeros(6, "float32"), 2, 1, 1, 2, 0)
    assert y.shape == (None, 6, 6, 6)
    for name, shape in (("any", None), ("rows", [None, 7]), ("cube", [None, None, 3])):
        x = graph.input(name, "float32", shape)
        assert graph.add("nnapi::RESHAPE", x, [3, 4]).shape == (3, 4)
        assert graph.add("nnapi::RESHAPE", x, [7, -1]).shape == (7, None)
        rows = graph.add("nnapi::FULLY_CONNECTED", x, np.zeros((4, 7), "float32"), np.zeros(4, "float32"), 0)
        assert rows.shape == (None, 4)
        assert graph.add("nnapi::SLICE", graph.add("nnapi::RESHAPE", x, [7, -1]), [2, 0], [3, -1]).shape == (3, None)
    any_image = graph.input("any image", "float32", None)
    assert graph.add("nnapi::RESIZE_BILINEAR", any_image, 6, 4).shape == (None, 4, 6, None)
    assert graph.add("nnapi::SPACE_TO_BATCH_ND", fixed, [2, 4], [[0, 0], [4, 4]]).shape == (None, 4, 4, None)


def test_a_program_is_compiled_for_each_rank(context: pumice.Context) -> None:
    """Reduces an input of any rank, multiplied by constant weights, then runs ARGMAX on axis 1, which not all ranks have."""
    graph = pumice.Graph()
    x = graph.input("x", "float32", None)
    weights = np.arange(3, dtype="float32")
    y = graph.add("nnapi::REDUCE_SUM", graph.add("nnapi::MUL", x, weights, 0), [-1], False, name="sum")
    assert (y.shape, y.dtype) == (None, "float32")
    graph.output("y", graph.add("nnapi::ARGMAX", y, 1, name="best"))
    with graph.compile(context) as program:
        for shape in ((2, 2, 3), (4, 2, 5, 3), (5, 4, 3), (1, 2, 1), (2, 2, 2, 2, 3)):
            array = np.random.default_rng(len(shape)).integers(-9, 10, shape).astype("float32")
            expected = np.argmax((array * weights).sum(-1), 1).astype("int32")
            assert_near(program({"x": array})["y"], expected)
        with pytest.raises(pumice.GraphError, match="nnapi::ARGMAX: operand 1, 'axis'") as refused:
            program({"x": np.zeros((2, 3), "float32")})
        assert refused.value.node == "best"
        with pytest.raises(pumice.UnsupportedError, match="depend on unknown ranks"):
            program.compiled([(2, 2, 3)])
        assert {row["op"] for row in program.report()} >= {"ReduceSum", "ArgMax"}


def test_a_batch_of_unknown_size_needs_no_check(context: pumice.Context) -> None:
    """The network's size constraints are checked at construction; none remain for binding time."""
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None, 8, 8, 3])
    y = graph.add("nnapi::CONV_2D", x, np.ones((4, 3, 3, 3), "float32"), np.zeros(4, "float32"), 1, 2, 2, 1)
    y = graph.add("nnapi::SLICE", y, [0, 1, 0, 0], [-1, 2, -1, -1])
    y = graph.add("nnapi::FULLY_CONNECTED", y, np.ones((5, 8), "float32"), np.zeros(5, "float32"), 0)
    graph.output("y", graph.add("nnapi::SOFTMAX", y, 1.0))
    made = graph.compile(context)
    assert "pumice::Require" not in {row["op"] for row in made.report()}
    for batch in (1, 3):
        assert_near(made({"x": np.ones((batch, 8, 8, 3), "float32")})["y"], np.full((batch * 4, 5), 0.2, "float32"))


# ---- NNAPI models


def test_the_body_and_the_condition_of_a_fibonacci_loop(context: pumice.Context) -> None:
    """A WHILE over a growing vector: computes i + 1, appends the sum of the last two elements, and tests i < n."""
    body = pumice.Graph("body")
    i, n = body.input("i", "int32", [1]), body.input("n", "int32", [1])
    fib = body.input("fib", "float32", [None])
    body.output("i", body.add("nnapi::ADD", i, [1], 0))
    first = body.add("nnapi::SLICE", fib, i, [1])
    second = body.add("nnapi::SLICE", fib, body.add("nnapi::ADD", i, [1], 0), [1])
    body.output("fib", body.add("nnapi::CONCATENATION", fib, body.add("nnapi::ADD", first, second, 0), 0))
    condition = pumice.Graph("condition")
    state = [condition.input(name, "int32", [1]) for name in ("i", "n")]
    condition.output("more", condition.add("nnapi::LESS", *state))
    run, more = body.compile(context), condition.compile(context)
    assert n.dtype == "int32"
    at, values, end = np.zeros(1, "int32"), np.ones(2, "float32"), np.array([8], "int32")
    while more({"i": at, "n": end})["more"][0]:
        made = run({"i": at, "n": end, "fib": values})
        at, values = made["i"], made["fib"]
    assert values.tolist() == [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]


def test_a_quantized_fibonacci_body(context: pumice.Context) -> None:
    graph = pumice.Graph()
    fib = graph.input("fib", "uint8", [2], scale=1.5, zero_point=4)
    weights = graph.constant(np.array([[4, 6], [6, 6]], "uint8"), scale=0.5, zero_point=4)
    y = graph.add(
        "nnapi::FULLY_CONNECTED", graph.add("nnapi::RESHAPE", fib, [1, 2]), weights, [0, 0], 0, scale=1.5, zero_point=4
    )
    graph.output("fib", graph.add("nnapi::RESHAPE", y, [2]))
    program = graph.compile(context)
    values = np.array([5, 5], "uint8")  # 1.5 and 1.5
    for _ in range(7):
        values = program({"fib": values})["fib"]
    assert ((values - 4.0) * 1.5).tolist() == [31.5, 51.0]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_integers_are_exact_at_every_precision(context: pumice.Context, precision: str) -> None:
    graph = pumice.Graph()
    x, w = random_quantized((4, 64), "int8", 0.125), random_quantized((8, 64), "int8", 0.0625, 1)
    operands = operands_of(graph, (x, w), fed := {})
    y = graph.add("nnapi::FULLY_CONNECTED", *operands, np.arange(8, dtype="int32"), 0, scale=4.0, zero_point=3)
    graph.output("y", y)
    graph.output("z", graph.add("nnapi::ADD", y, y, 1, scale=8.0, zero_point=3))
    made = graph.compile(context, precision=precision)(fed)
    sums = (x.array.astype(int) - x.zero_point) @ (w.array.astype(int) - w.zero_point).T + np.arange(8)
    expected = quantize(sums * np.float32(0.0078125), 4, 3, "int8")
    assert_near(made["y"], expected)
    assert_near(made["z"], quantize(np.maximum(2 * (expected - 3.0) * 4, 0), 8, 3, "int8"))


def test_the_kernels_of_scales_are_bounded(context: pumice.Context) -> None:
    """Each distinct scale in a fused kernel costs a pipeline; beyond a limit, generic kernels dequantize the operands."""
    graph = pumice.Graph()
    y = graph.input("x", "uint8", [16], scale=0.5, zero_point=7)
    given = random_quantized((16,), scale=0.5)._replace(zero_point=7)
    reals, scale = given.reals, 0.5
    expected = given.array
    for k in range(40):
        step = 0.5 + k / 64
        y = graph.add("nnapi::ADD", y, y, 0, scale=step, zero_point=k)
        expected = quantize(2 * reals, step, k)
        reals, scale = (expected.astype("float32") - np.float32(k)) * np.float32(step), step
    graph.output("y", y)
    program = graph.compile(context)
    assert_near(program({"x": given.array})["y"], expected)
    fused = [row for row in program.report() if row["op"] == "QuantizeLinear" and row["kernel"] == "elementwise.comp"]
    assert len(fused) == 32
    assert scale > 1
