"""Rules of the engine's own operators for NNAPI's hashes and detections: against the device, and in an ONNX file."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from pumice.validation.report.deviation import RIGHT, compare_tensor
from pumice.validation.rules.bounded_tensor import BoundedTensor, OperatorCall, UndecidedError, find_rule
from pumice.validation.rules.float_types import ProgramTypes
from pumice.validation.rules.program_values import make_bounded_input

Array = np.ndarray[Any, Any]
OWN = ("HashProjection", "SoftNMS")


def bounded(op: str, arrays: list[Array | None], **attributes: Any) -> list[BoundedTensor]:
    types = ProgramTypes("fp32")
    found = find_rule(op, "pumice")
    assert found is not None
    given = [None if one is None else make_bounded_input(one, types) for one in arrays]
    return found(OperatorCall(f"pumice::{op}", given, attributes, 1, types))


def on_device(context: pumice.Context, op: str, arrays: list[Array | None], outputs: int, **attributes: Any) -> Any:
    graph, fed = pumice.Graph(op), dict[str, Array]()
    given: list[Any] = []
    for i, one in enumerate(arrays):
        if one is not None:
            fed[f"x{i}"] = one
        given.append(None if one is None else graph.input(f"x{i}", str(one.dtype), list(one.shape)))
    made = graph.add(f"pumice::{op}", *given, outputs=outputs, **attributes)
    for j, value in enumerate(made if outputs > 1 else (made,)):
        graph.output(f"y{j}", value)
    results = graph.compile(context)(fed)
    return [results[f"y{j}"] for j in range(outputs)]


def floats(random: Any, *shape: int) -> Array:
    return np.asarray(random.standard_normal(shape), "float32").view("uint32")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("length", [1, 3, 7, 15, 40, 130])
def test_hashes_are_exact(context: pumice.Context, length: int, weighted: bool) -> None:
    random = np.random.default_rng(length)
    for dtype in ("uint8", "int32"):
        x = random.integers(0, 120, (3, length)).astype(dtype)
        arrays = [floats(random, 2, 5), x, floats(random, 3) if weighted else None]
        (expected,) = bounded("HashProjection", arrays)
        (made,) = on_device(context, "HashProjection", arrays, 1)
        assert expected.is_exact
        assert compare_tensor(made, expected, ProgramTypes("fp32")).verdict == RIGHT
        assert not compare_tensor(1 - made, expected, ProgramTypes("fp32")).ok


def boxes_of(seed: int, rows: int = 9, classes: int = 3) -> list[Array | None]:
    """Return the boxes of three images; scores are multiples of 1/16, many of them equal."""
    random = np.random.default_rng(seed)
    start = random.integers(0, 12, (rows, classes, 2)) / 2
    boxes = np.concatenate([start, start + random.integers(1, 16, start.shape) / 2], 2)
    scores = random.integers(0, 17, (rows, classes)) / 16
    return [boxes.astype("float32"), scores.astype("float32"), np.sort(random.integers(0, 3, rows)).astype("int32")]


@pytest.mark.parametrize("method", ["hard", "linear", "gaussian"])
def test_boxes_are_exact_and_scores_within_the_error_of_overlaps(context: pumice.Context, method: str) -> None:
    numbers = {"method": method, "threshold": 0.11, "least": 0.0713, "overlap": 0.417, "sigma": 0.53}
    decided = 0
    for seed in range(12):
        for most in (-1, 2):
            arrays = boxes_of(seed)
            made = on_device(context, "SoftNMS", arrays, 4, most=most, **numbers)
            try:
                expected = bounded("SoftNMS", arrays, most=most, **numbers)
            except UndecidedError:
                continue
            decided += 1
            assert [one.is_exact for one in expected] == [True, expected[1].is_exact, True, True]
            for result, one in zip(made, expected, strict=True):
                assert compare_tensor(result, one, ProgramTypes("fp32")).ok
            for j in range(4):  # a wrong result is found
                wrong = made[j].copy()
                wrong[0] += 1 << 10
                assert not compare_tensor(wrong, expected[j], ProgramTypes("fp32")).ok
    assert decided >= 12


def test_scores_that_rounding_may_order_otherwise_are_undecided() -> None:
    arrays = boxes_of(0)
    numbers = {"method": "linear", "threshold": 0.0, "least": 0.0, "overlap": 0.3}
    types = ProgramTypes("fp32")
    scores = BoundedTensor(arrays[1], np.full((9, 3), 0.2), np.float32)
    found = find_rule("SoftNMS", "pumice")
    assert found is not None
    given = [make_bounded_input(arrays[0], types), scores, make_bounded_input(arrays[2], types)]
    with pytest.raises(UndecidedError, match="too close|about as large"):
        found(OperatorCall("pumice::SoftNMS", given, numbers, 1, types))


def test_a_file_with_these_operators_is_proved() -> None:
    """An ONNX file may use these operators, in the domain pumice."""
    nodes = [
        helper.make_node("HashProjection", ["seeds", "x"], ["bits"], "hash", domain="pumice"),
        helper.make_node(
            "SoftNMS",
            ["boxes", "scores", "images"],
            ["chosen", "low", "first", "class"],
            "boxes",
            domain="pumice",
        ),
    ]
    kinds = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "uint32": TensorProto.UINT32}
    random = np.random.default_rng(3)
    names = ["seeds", "x", "boxes", "scores", "images"]
    arrays = [floats(random, 2, 3), random.integers(0, 9, (4, 2)).astype("int32"), *boxes_of(5)]
    given = dict(zip(names, arrays, strict=True))
    graph = helper.make_graph(
        nodes,
        "own",
        [helper.make_tensor_value_info(k, kinds[str(one.dtype)], list(one.shape)) for k, one in given.items()],
        [
            helper.make_tensor_value_info(name, TensorProto.INT32, None)
            for name in ("bits", "chosen", "low", "first", "class")
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("pumice", 1)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    report = pumice.validate(proto, [given])
    assert report.ok, str(report)


def test_both_operators_have_a_rule() -> None:
    assert all(find_rule(op, "pumice") for op in OWN)
