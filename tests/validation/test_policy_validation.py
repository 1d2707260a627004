"""Validation of models with per-node precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import model, node, value
from precision_models import TRAPS, precision_model

DRAW = np.random.default_rng(7)
WEIGHTS = DRAW.standard_normal((8, 8)).astype(np.float32)


@pytest.mark.parametrize("name", TRAPS)
def test_what_the_tuner_repairs_is_proved_right(context: pumice.Context, name: str) -> None:
    """Use float32 bounds for nodes kept in float32, and float16 bounds for all others."""
    proto, case = precision_model(name)
    found = pumice.tune_precision(proto, [case], limit=0.02, context=context)
    report = pumice.validate(proto, [case], precision=found.policy, context=context)
    assert report.state != "wrong", str(report)
    wide = {one.node for one in found.nodes}
    assert {row.node for row in report.rows if row.local is not None and row.node in wide} == wide
    assert not [one for one in report.findings if one.kind == "overflow" and one.node in wide]


MOVES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("DepthToSpace", [], {"blocksize": 2}),
    ("Expand", [np.array([3, 4, 4, 8])], {}),
    ("Flatten", [], {}),
    ("Gather", [np.array([2, 0])], {"axis": 1}),
    ("Reshape", [np.array([4, 32])], {}),
    ("Slice", [np.array([1]), np.array([3]), np.array([2])], {}),
    ("SpaceToDepth", [], {"blocksize": 2}),
    ("Squeeze", [np.array([0])], {}),
    ("Tile", [np.array([1, 1, 2, 1])], {}),
    ("Transpose", [], {"perm": [0, 3, 1, 2]}),
    ("Unsqueeze", [np.array([0])], {}),
]


def moving(op: str, others: list[Any], attributes: dict[str, Any]) -> onnx.ModelProto:
    names = [f"c{i}" for i in range(len(others))]
    constants = {"w": WEIGHTS * 1e5, **dict(zip(names, others, strict=True))}
    nodes = [node("MatMul", ["x", "w"], ["m"], name="far"), node(op, ["m", *names], ["y"], name="moved", **attributes)]
    return model(nodes, [value("x", [1, 4, 4, 8])], constants=constants)


@pytest.mark.parametrize(("op", "others", "attributes"), MOVES)
def test_elements_that_are_moved_stay_what_they_are(
    context: pumice.Context, op: str, others: list[Any], attributes: dict[str, Any]
) -> None:
    proto = moving(op, others, attributes)
    x = DRAW.standard_normal((1, 4, 4, 8)).astype(np.float32)
    with pumice.load(proto, context, {"default": "bf16", "far": "fp32"}) as loaded:
        with pumice.load(proto, context) as exact:
            np.testing.assert_array_equal(loaded(x), exact(x))
        pumice.validate(loaded, [x]).raise_if_failed()


def mixed() -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"),
        node("MatMul", ["a", "w"], ["b"], name="second"),
        node("Add", ["a", "b"], ["c"], name="sum"),
        node("Softmax", ["c"], ["y"], name="softmax"),
    ]
    return model(nodes, [value("x", [4, 8])], constants={"w": WEIGHTS})


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("names", [("first",), ("second",), ("first", "second"), ("sum",), ("softmax",), ("*",)])
def test_bounds_are_those_of_each_node(context: pumice.Context, precision: str, names: tuple[str, ...]) -> None:
    x = np.random.default_rng(7).standard_normal((4, 8)).astype(np.float32)  # independent of which tests ran before
    policy = {"default": precision, **dict.fromkeys(names, "fp32")}
    report = pumice.validate(mixed(), [x], precision=policy, context=context)
    report.raise_if_failed()
    count = 4 if names == ("*",) else len(names)
    assert report.precision == f"{precision} with {count} of 4 nodes in fp32"
    assert report.as_dict()["policy"] == policy
    with pumice.load(mixed(), context, precision) as plain:
        again = pumice.validate(plain, [x], precision=policy)
        assert [row.local for row in again.rows] == [row.local for row in report.rows]
        narrow = pumice.validate(plain, [x])
    for row, other in zip(report.rows, narrow.rows, strict=True):
        if row.node in names and row.local and other.local:  # at least a hundred times tighter
            assert row.local.allowed < other.local.allowed / 100 or names == ("softmax",)


def test_a_node_that_is_not_as_precise_as_the_policy_says_is_wrong(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the fp16 program as if its first node were in fp32."""
    x = DRAW.standard_normal((4, 8)).astype(np.float32)
    with pumice.load(mixed(), context, "fp16") as loaded:
        monkeypatch.setattr(loaded, "policy", {"default": "fp16", "first": "fp32"})
        report = pumice.validate(loaded, [x])
    assert report.first_divergence is not None
    assert report.first_divergence.node == "first"
