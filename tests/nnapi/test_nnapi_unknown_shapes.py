"""NNAPI's operations on operands of unknown rank or sizes: what is accepted with known shapes is accepted without
them, also in a loop body, with the same results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, assert_near, operands_of, random_quantized, run


def reals(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).integers(-16, 17, shape) / 8).astype(dtype)


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype("int32")


def truths(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def quantized(*shape: int, dtype: str = "uint8", scale: float = 0.25, seed: int = 0) -> Quantized:
    return random_quantized(shape, dtype, scale, seed)


class Call(NamedTuple):
    operands: tuple[Any, ...]
    declared: dict[str, Any]


def call(*operands: Any, **declared: Any) -> Call:
    return Call(operands, declared)


X, Y, ROW = reals(2, 3, 4), reals(2, 3, 4, seed=1), reals(4, seed=2)
Q, R = quantized(2, 3, 4), quantized(2, 3, 4, seed=1)
IMAGE, BYTES = reals(2, 6, 4, 3), quantized(2, 6, 4, 3, scale=0.125)
OUT = {"scale": 0.5, "zero_point": 9}
UNARY = ("ABS", "NEG", "EXP", "LOG", "SIN", "SQRT", "RSQRT", "FLOOR")
WIDE = call(X, ROW), call(truths(2, 3), truths(3))
COMPARED = {
    op: (call(X, ROW), call(Q, R), call(truths(2, 3), truths(3)))
    for op in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
}
POOLED = (
    call(IMAGE, 1, 2, 1, 3, 2, 1),
    call(np.ascontiguousarray(IMAGE.transpose(0, 3, 1, 2)), 1, 0, 1, 0, 1, 2, 3, 2, 0, True),
)
FILTER, BIAS = reals(5, 3, 2, 3, seed=1), reals(5, seed=2)

RNN_CELL = (reals(4, 3, seed=1) / 8, reals(4, 4, seed=2) / 8, reals(4, seed=3), reals(2, 4, seed=4))
LSTM_CELL = (
    *(reals(4, 3, seed=k) / 8 for k in range(4)),
    *(reals(4, 4, seed=k) / 8 for k in range(4, 8)),
    *[None] * 3,
    *(reals(4, seed=k) for k in range(4)),
    *[None] * 2,
)
BOXES = np.array([[1, 2, 5, 4], [0, 3, 6, 8]], "float32")
LSTM_STATE = (reals(2, 4, seed=5), reals(2, 4, seed=6))

CALLS: dict[str, tuple[Call, ...]] = {
    **{op: (call(X, ROW, 1), call(Q, R, 0, **OUT), call(integers(2, 3), integers(3), 0)) for op in ("ADD", "SUB")},
    "MUL": (call(X, ROW, 3), call(Q, R, 0, **OUT)),
    "DIV": (call(X, ROW + 3, 0), call(integers(2, 3), integers(3), 0)),
    **{op: (call(X, ROW), call(Q, R, **OUT), call(integers(2, 3), integers(3))) for op in ("MAXIMUM", "MINIMUM")},
    "POW": (call(np.abs(X), ROW),),
    "PRELU": (call(X, ROW), call(Q, quantized(4), **OUT)),
    **{op: (call(np.abs(X) + 0.5),) for op in UNARY},
    **{op: (call(X), call(Q)) for op in ("RELU", "RELU1", "RELU6", "LOGISTIC", "TANH")},
    "HARD_SWISH": (call(X), call(Q, **OUT)),
    "ELU": (call(X, 0.5),),
    **COMPARED,
    "LOGICAL_AND": (call(truths(2, 3), truths(3)),),
    "LOGICAL_OR": (call(truths(2, 3), truths(3)),),
    "LOGICAL_NOT": (call(truths(2, 3)),),
    "SELECT": (call(truths(2, 3, 4), X, Y), call(truths(2, 3, 4), Q, R, **OUT)),
    "QUANTIZE": (call(X, **OUT),),
    "DEQUANTIZE": (call(Q),),
    "CAST": (call(X, dtype="int32"), call(Q, dtype="float32")),
    "SLICE": (call(X, [1, 0, 2], [1, -1, 2]), call(Q, [0, 1, 0], [2, 1, 3])),
    "STRIDED_SLICE": (
        call(X, [0, -1, 1], [1, -5, 4], [1, -1, 2], 0, 0, 1),
        call(Q, [1, 0, 0], [2, 3, 4], [1, 2, 3], 0, 0, 0),
    ),
    "GATHER": (call(X, -2, np.array([[2, 0]], "int32")), call(Q, 0, np.array([1], "int32"))),
    "EMBEDDING_LOOKUP": (call(np.array([1, 0, 1], "int32"), X),),
    "SPLIT": (call(X, -1, 2), call(Q, 1, 3)),
    "TOPK_V2": (call(X, 3), call(Q, 1)),
    "REVERSE": (call(X, [-2]), call(Q, [0])),
    "TILE": (call(X, [1, 2, 3]), call(Q, [2, 1, 1])),
    "EXPAND_DIMS": (call(X, -2), call(Q, 0)),
    "RESHAPE": (call(X, [4, -1]), call(Q, [6, 4])),
    "SQUEEZE": (call(reals(1, 3, 1)), call(reals(1, 3, 1), [-1]), call(quantized(1, 1), [0, 1])),
    "TRANSPOSE": (call(X), call(X, [1, 2, 0]), call(Q, [2, 1, 0])),
    "PACK": (call(-1, X, Y), call(1, Q, Q)),
    "CONCATENATION": (call(X, Y, -1), call(Q, quantized(2, 1, 4, scale=0.5), 1, **OUT)),
    "FILL": (call([2, 3], 1.5),),
    "RANK": (call(X), call(truths(2))),
    "PAD": (call(X, [[0, 1], [1, 0], [2, 2]]), call(Q, [[1, 0], [0, 0], [0, 3]])),
    "PAD_V2": (call(X, [[0, 1], [1, 0], [2, 2]], 1.5), call(Q, [[1, 0], [0, 0], [0, 3]], 7)),
    "MIRROR_PAD": (call(X, [[1, 0], [2, 1], [0, 3]], 0), call(Q, [[2, 0], [3, 3], [0, 4]], 1)),
    **{
        op: (call(np.abs(X), [0, -1], keep), call(np.abs(X), [0, 1, 2], False))
        for op, keep in (("REDUCE_SUM", True), ("REDUCE_PROD", False))
    },
    **{
        op: (call(X, [1], True), call(Q, [-3, 2], False), call(X, [0, 1, 2], False))
        for op in ("REDUCE_MAX", "REDUCE_MIN")
    },
    **{op: (call(truths(2, 3), [1], False),) for op in ("REDUCE_ANY", "REDUCE_ALL")},
    "MEAN": (call(X, [0, -1], 1), call(Q, [1], 0)),
    **{op: (call(X, -2), call(Q, 0), call(ROW, 0)) for op in ("ARGMAX", "ARGMIN")},
    "SOFTMAX": (call(X, 0.5), call(X, 1.0, 1), call(Q, 1.0, -3)),
    "LOG_SOFTMAX": (call(X, 0.5, -2),),
    "L2_NORMALIZATION": (call(X + 3), call(X + 3, 0), call(Q, -1)),
    "FULLY_CONNECTED": (
        call(X, reals(5, 12, seed=1), BIAS, 1),
        call(quantized(3, 7), quantized(5, 7, seed=1), integers(5), 0, scale=4.0, zero_point=100),
    ),
    "BATCH_MATMUL": (
        call(X, reals(2, 4, 5, seed=1), False, False),
        call(X, Y, False, True),
        call(Q, R, True, False, scale=8.0),
    ),
    "CONV_2D": (
        call(IMAGE, FILTER, BIAS, 1, 2, 1, 1),
        call(
            BYTES,
            quantized(5, 3, 2, 3, scale=0.25, seed=1),
            integers(5),
            0,
            1,
            1,
            0,
            1,
            1,
            2,
            scale=4.0,
            zero_point=100,
        ),
    ),
    "DEPTHWISE_CONV_2D": (
        call(IMAGE, reals(1, 3, 2, 6, seed=1), reals(6, seed=2), 2, 1, 1, 2, 0),
        call(BYTES, quantized(1, 3, 2, 3, scale=0.25, seed=1), integers(3), 1, 1, 1, 1, 0, scale=2.0, zero_point=100),
    ),
    "GROUPED_CONV_2D": (call(reals(1, 4, 5, 4), reals(6, 3, 2, 2, seed=1), reals(6, seed=2), 1, 1, 1, 2, 0, False),),
    "AVERAGE_POOL_2D": (*POOLED, call(BYTES, 1, 1, 1, 2, 2, 0)),
    "MAX_POOL_2D": (*POOLED, call(BYTES, 1, 1, 1, 2, 2, 0)),
    "L2_POOL_2D": POOLED,
    **{op: (call(IMAGE, 5, 9), call(BYTES, 1.5, 0.5)) for op in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")},
    "DEPTH_TO_SPACE": (call(reals(1, 2, 3, 8), 2), call(quantized(1, 8, 2, 3), 2, True)),
    "SPACE_TO_DEPTH": (call(IMAGE, 2), call(BYTES, 2)),
    "BATCH_TO_SPACE_ND": (call(reals(6, 2, 3, 2), [2, 3]), call(quantized(4, 3, 1, 2), [2, 2], True)),
    "SPACE_TO_BATCH_ND": (call(IMAGE, [3, 2], [[0, 0], [1, 1]]), call(BYTES, [2, 2], [[1, 1], [0, 0]])),
    "CHANNEL_SHUFFLE": (call(reals(2, 6, 5), 3, 1), call(quantized(2, 2, 6), 2, -1)),
    "INSTANCE_NORMALIZATION": (call(IMAGE, 1.5, 0.5, 0.25, False), call(IMAGE, 1.5, 0.5, 0.25, True)),
    "TRANSPOSE_CONV_2D": (
        call(IMAGE, FILTER, BIAS, 1, 0, 0, 1, 2, 2, 1, False),
        call(BYTES, quantized(5, 3, 2, 3, scale=0.25, seed=1), integers(5), 0, 0, 1, 0, 1, 2, 0, False, **OUT),
    ),
    "RNN": (call(reals(2, 3), *RNN_CELL, 4),),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (call(reals(2, 5, 3), *RNN_CELL, 4, 0), call(reals(5, 2, 3), *RNN_CELL, 1, 1)),
    "BIDIRECTIONAL_SEQUENCE_RNN": (
        call(reals(2, 5, 3), *RNN_CELL, *RNN_CELL, None, None, None, 4, False, False),
        call(reals(5, 2, 3), *RNN_CELL, *RNN_CELL, reals(5, 2, 3, seed=1), None, None, 3, True, True),
    ),
    "LSTM": (
        call(reals(2, 3), *LSTM_CELL, *LSTM_STATE, 4, 0.0, 0.0),
        call(reals(2, 3), *LSTM_CELL, *LSTM_STATE, 4, 0.1, 0.0),
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        call(reals(2, 5, 3), *LSTM_CELL, *LSTM_STATE, 4, 0.0, 0.0, False),
        call(reals(5, 2, 3), *LSTM_CELL, *LSTM_STATE, 4, 0.1, 0.0, True),
    ),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (
        call(reals(2, 5, 3), *LSTM_CELL, *LSTM_CELL, *LSTM_STATE, *LSTM_STATE, *[None] * 9, 4, 0.0, 0.0, True, False),
    ),
    "SVDF": (call(reals(2, 3), reals(8, 3), reals(8, 4, seed=1), reals(4), reals(2, 32), 2, 1),),
    "HASHTABLE_LOOKUP": (
        call(np.array([1, 4, 3], "int32"), np.array([1, 3], "int32"), reals(2, 3)),
        call(np.array([1, 4, 3], "int32"), np.array([1, 3], "int32"), quantized(2, 3, 4)),
    ),
    "DENSIFY": (call(reals(2), [0, 1], None, [0, 1], [2, 3], None, None, [0, 1, 2], [2, 0]),),
    "AXIS_ALIGNED_BBOX_TRANSFORM": (
        call(BOXES, reals(2, 8) / 8, np.array([1, 0], "int32"), np.array([[9, 8], [7, 9]], "float32")),
    ),
    "HEATMAP_MAX_KEYPOINT": (
        call(reals(2, 4, 4, 3), BOXES, False),
        call(quantized(2, 3, 4, 4), Quantized(BOXES.astype("uint16"), 0.125, 0), True, **OUT),
    ),
    "QUANTIZED_16BIT_LSTM": (
        call(
            Quantized(quantized(2, 3).array, 1 / 128, 128),
            *(Quantized(quantized(4, 3, seed=k).array, 0.01, 100) for k in range(4)),
            *(Quantized(quantized(4, 4, seed=k).array, 0.01, 100) for k in range(4)),
            *(integers(4) for _ in range(4)),
            Quantized(integers(2, 4).astype("int16"), 2.0**-11, 0),
            Quantized(quantized(2, 4).array, 1 / 128, 128),
        ),
    ),
    "QUANTIZED_LSTM": (
        call(
            quantized(2, 3, dtype="int8"),
            *(Quantized(quantized(4, 3, dtype="int8", seed=k).array, 0.01, 0) for k in range(4)),
            *(Quantized(quantized(4, 4, dtype="int8", seed=k).array, 0.01, 0) for k in range(4)),
            *[None] * 3,
            *(integers(4) for _ in range(4)),
            *[None] * 2,
            quantized(2, 4, dtype="int8"),
            Quantized(integers(2, 4).astype("int16"), 2.0**-11, 0),
            *(Quantized(1000 * integers(4, seed=k).astype("int16"), 2.0**-15, 0) for k in range(4)),
            *[0.5, 0.0],
            *[0.01] * 4,
            *[3, 0.01],
        ),
    ),
    "DETECTION_POSTPROCESSING": (
        call(np.abs(X), reals(2, 3, 4, seed=1), np.abs(reals(3, 4)) + 1, *[8.0] * 4, True, 5, 1, 2, 0.1, 0.5, True),
        call(np.abs(X), reals(2, 3, 5, seed=1), np.abs(reals(3, 4)) + 1, *[8.0] * 4, False, 2, 2, 1, 0.1, 0.5, False),
    ),
    "GENERATE_PROPOSALS": (
        call(
            *(reals(2, 3, 4, 2), reals(2, 3, 4, 8, seed=1) / 8, BOXES, np.array([[9, 8], [7, 9]], "float32")),
            *(2.0, 2.0, 9, 5, 0.5, 0.25, False),
        ),
    ),
    "BOX_WITH_NMS_LIMIT": (
        call(np.abs(reals(2, 3)), np.tile(BOXES, 3), np.array([0, 1], "int32"), 0.1, 3, 1, 0.5, 0.5, 0.1),
    ),
    "LSH_PROJECTION": (
        call(reals(3, 4), quantized(5, 3), None, 3),
        call(reals(3, 4), integers(5, 3), reals(5, seed=1), 2),
    ),
    "RANDOM_MULTINOMIAL": (call(X[0], 5, [1, 2]),),
    "ROI_ALIGN": (call(IMAGE, BOXES / 2, np.array([1, 0], "int32"), 2, 3, 1.0, 1.0, 0, 2, False),),
    "ROI_POOLING": (call(IMAGE, BOXES / 2, np.array([1, 0], "int32"), 2, 3, 1.0, 1.0, False),),
    "LOCAL_RESPONSE_NORMALIZATION": (call(IMAGE, 1, 2.0, 0.5, 0.5), call(X, 1, 2.0, 0.5, 0.5, -2)),
}
# Only the first call of each operation is in the fast tier.
EVERY = [
    pytest.param(op, i, id=f"{op}-{i}", marks=[pytest.mark.slow] if i else [])
    for op in CALLS
    for i in range(len(CALLS[op]))
]
SHAPES = ["rank", "sizes"]


def test_every_operation_is_called() -> None:
    names = {one.name.removeprefix("nnapi::") for one in pumice.operators() if one.name.startswith("nnapi::")}
    assert len(names) == 107
    assert set(CALLS) == names - {"IF", "WHILE"}  # these have graph operands


def parameters_of(value: Any) -> dict[str, Any]:
    return {} if value.scale is None else {"scale": value.scale, "zero_point": value.zero_point}


def declared_shape(rank: int, unknown: str) -> list[None] | None:
    return None if unknown == "rank" else [None] * rank


def unknown_operands(
    graph: pumice.Graph, operands: tuple[Any, ...], fed: dict[str, np.ndarray], unknown: str
) -> list[Any]:
    """Return operands as operands_of() does, without their shapes."""
    made = []
    for i, one in enumerate(operands):
        array = one.array if isinstance(one, Quantized) else one
        if not isinstance(array, np.ndarray) or array.ndim == 0:
            made.append(one)
            continue
        fed[f"x{i}"] = array
        parameters = {"scale": one.scale, "zero_point": one.zero_point} if isinstance(one, Quantized) else {}
        made.append(graph.input(f"x{i}", array.dtype, declared_shape(array.ndim, unknown), **parameters))
    return made


def results_in_a_loop(context: pumice.Context, op: str, given: Call, unknown: str) -> list[np.ndarray]:
    """Return the results of an operation in a loop body that runs twice, with all body inputs of unknown shape."""
    graph, body, condition = pumice.Graph("main"), pumice.Graph("body"), pumice.Graph("condition")
    known = pumice.Graph()
    made = known.add(f"nnapi::{op}", *operands_of(known, given.operands, {}), **given.declared)
    results = made if isinstance(made, tuple) else (made,)
    carried = [graph.input("i", "int32", [1])]
    states = [body.input("i", "int32", [1])]
    condition.output("more", condition.add("nnapi::LESS", condition.input("i", "int32", [1]), [2]))
    fed: dict[str, np.ndarray] = {"i": np.zeros(1, "int32")}
    for j, value in enumerate(results):
        parameters = parameters_of(value)
        shape = declared_shape(len(value.shape), unknown)
        fed[f"y{j}"] = np.zeros([1] * len(value.shape), value.dtype)
        carried.append(graph.input(f"y{j}", value.dtype, list(fed[f"y{j}"].shape), **parameters))
        states.append(body.input(f"y{j}", value.dtype, shape, **parameters))
        condition.input(f"y{j}", value.dtype, shape, **parameters)
    inside = unknown_operands(body, given.operands, {}, unknown)
    unknown_operands(condition, given.operands, {}, unknown)
    outside = [one for one in operands_of(graph, given.operands, fed) if isinstance(one, pumice.Value)]
    body.output("i", body.add("nnapi::ADD", states[0], [1], 0))
    again = body.add(f"nnapi::{op}", *inside, name="it", **given.declared)
    for j, value in enumerate(again if isinstance(again, tuple) else (again,)):
        assert (value.dtype, parameters_of(value)) == (results[j].dtype, parameters_of(results[j]))
        body.output(f"y{j}", value)
    last = graph.while_(condition, body, carried=carried, invariant=outside)
    for j, value in enumerate(last):
        graph.output(f"z{j}", value)
    made = graph.compile(context)(fed)
    assert made["z0"].tolist() == [2]
    return [made[f"z{j + 1}"] for j in range(len(results))]


def check(made: list[np.ndarray], expected: Any) -> None:
    for one, right in zip(made, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert_near(one, right)


@pytest.mark.parametrize("unknown", SHAPES)
@pytest.mark.parametrize(("op", "i"), EVERY)
def test_what_is_accepted_with_known_shapes_is_accepted_in_a_loop_without(
    context: pumice.Context, op: str, i: int, unknown: str
) -> None:
    given = CALLS[op][i]
    check(results_in_a_loop(context, op, given, unknown), run(context, op, *given.operands, **given.declared))


@pytest.mark.slow
@pytest.mark.parametrize("unknown", SHAPES)
@pytest.mark.parametrize(("op", "i"), EVERY)
def test_every_call_is_accepted_on_inputs_of_unknown_shape(
    context: pumice.Context, op: str, i: int, unknown: str
) -> None:
    given = CALLS[op][i]
    graph, fed = pumice.Graph(), dict[str, np.ndarray]()
    made = graph.add(f"nnapi::{op}", *unknown_operands(graph, given.operands, fed, unknown), **given.declared)
    values = made if isinstance(made, tuple) else (made,)
    for j, value in enumerate(values):
        graph.output(f"y{j}", value)
    outputs = graph.compile(context)(fed)
    check([outputs[f"y{j}"] for j in range(len(values))], run(context, op, *given.operands, **given.declared))


VALUES: list[tuple[str, str, list[int] | None]] = [("i", "int32", [1]), ("state", "float32", None), ("n", "int32", [1])]


def values_of(graph: pumice.Graph) -> list[pumice.Value]:
    return [graph.input(name, dtype, shape) for name, dtype, shape in VALUES]


def loop_over(body: pumice.Graph, i: pumice.Value, state: pumice.Value) -> pumice.Graph:
    """A loop of n iterations with a loop-carried state."""
    graph, condition = pumice.Graph("grows"), pumice.Graph("condition")
    body.output("i", body.add("nnapi::ADD", i, [1], 0))
    body.output("state", state)
    values = values_of(condition)
    condition.output("more", condition.add("nnapi::LESS", values[0], values[2]))
    *carried, limit = values_of(graph)
    graph.output("state", graph.while_(condition, body, carried=carried, invariant=[limit])[1])
    return graph


def test_a_state_without_a_rank_grows_by_one_a_trip(context: pumice.Context) -> None:
    body = pumice.Graph("body")
    i, state, _ = values_of(body)
    longer = body.add("nnapi::CONCATENATION", state, body.add("nnapi::CAST", i, dtype="float32"), 0)
    program = loop_over(body, i, longer).compile(context)
    for trips in (0, 1, 5):
        fed = {"i": np.zeros(1, "int32"), "state": np.full(2, 9, "float32"), "n": np.array([trips], "int32")}
        assert program(fed)["state"].tolist() == [9, 9, *range(trips)]


def test_a_state_has_one_more_axis_each_trip(context: pumice.Context) -> None:
    """The nodes of the mean depend on the rank, which changes in each iteration."""
    body = pumice.Graph("body")
    i, state, _ = values_of(body)
    mean = body.add("nnapi::MEAN", state, [-1], 1)
    program = loop_over(body, i, body.add("nnapi::EXPAND_DIMS", body.add("nnapi::SUB", state, mean, 0), 0)).compile(
        context
    )
    array = np.array([[1, 3], [2, 8]], "float32")
    for trips in (0, 1, 3):
        made = program({"i": np.zeros(1, "int32"), "state": array, "n": np.array([trips], "int32")})["state"]
        expected = array if trips == 0 else array - array.mean(-1, keepdims=True)
        assert_near(made, expected.reshape([1] * trips + [2, 2]).astype("float32"))


def test_branches_of_two_ranks_are_followed_by_what_takes_any(context: pumice.Context) -> None:
    graph = pumice.Graph()
    decides, x = graph.input("decides", "bool", [1]), graph.input("x", "float32", [2, 3])
    branches = []
    for op, more in (("EXPAND_DIMS", (0,)), ("NEG", ())):
        branch = pumice.Graph(op)
        branch.output("y", branch.add(f"nnapi::{op}", branch.input("x", "float32", [2, 3]), *more))
        branches.append(branch)
    (either,) = graph.if_(decides, *branches, inputs=[x])
    assert either.shape is None
    graph.output("y", graph.add("nnapi::REDUCE_MAX", either, [0], False))
    program = graph.compile(context)
    array = reals(2, 3)
    for taken, expected in ((True, array), (False, (-array).max(0))):
        assert_near(program({"decides": np.array([taken]), "x": array})["y"], expected)
