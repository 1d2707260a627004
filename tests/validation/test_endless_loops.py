"""Loops that end only by their condition, which may never become false at 16-bit precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from corpus import store
from corpus.case import arrays
from onnx_models import model, node, value
from pumice.validation.reference import loop_timeouts

LONG = np.array(2**63 - 1)


def counting(limit: str, constants: dict[str, Any], as_node: bool = False) -> onnx.ModelProto:
    """Return a Loop that doubles x and whose condition is always true."""
    body = helper.make_graph(
        [node("Identity", ["on"], ["still"]), node("Add", ["s", "s"], ["twice"])],
        "body",
        [value("i", (), TensorProto.INT64), value("on", (), TensorProto.BOOL), value("s", (4,))],
        [value("still", (), TensorProto.BOOL), value("twice", (4,))],
    )
    nodes = [node("Loop", [limit, "", "x"], ["y"], body=body)]
    if as_node:
        array = constants.pop(limit)
        nodes.insert(0, node("Constant", [], [limit], value=onnx.numpy_helper.from_array(array)))
    return model(nodes, [value("x", (4,))], constants=constants)


@pytest.mark.parametrize(
    ("limit", "constants", "expected"),
    [
        ("", {}, loop_timeouts.MAX_LOOP_SECONDS),
        ("m", {"m": LONG}, loop_timeouts.MAX_LOOP_SECONDS),
        ("m", {"m": np.array([20_000])}, loop_timeouts.MAX_LOOP_SECONDS),
        ("m", {"m": np.array(3)}, None),
    ],
)
@pytest.mark.parametrize("as_node", [False, True])
def test_loops_without_a_count_have_a_limit(
    limit: str, constants: dict[str, Any], expected: float | None, as_node: bool
) -> None:
    assert loop_timeouts.get_loop_timeout(counting(limit, dict(constants), as_node and bool(limit)), None) == expected


def test_a_loop_inside_another_one_is_found() -> None:
    inner = counting("m", {})
    outside = helper.make_graph([*inner.graph.node], "branch", [], [value("y", (4,))])
    choice = node("If", ["c"], ["z"], then_branch=outside, else_branch=outside)
    for limit, expected in ((np.array(3), None), (LONG, loop_timeouts.MAX_LOOP_SECONDS)):
        inputs = [value("x", (4,)), value("c", (), TensorProto.BOOL)]
        assert loop_timeouts.get_loop_timeout(model([choice], inputs, ("z",), {"m": limit}), None) == expected


@pytest.mark.parametrize("mode", ["both", "chained", "bisect"])
def test_a_loop_that_does_not_end_is_rejected(
    mode: str, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_timeouts, "MAX_LOOP_SECONDS", 0.5)
    with pytest.raises(pumice.TimeoutError, match=r"loop '[^']+' of 'small' ran longer than 0\.5 s"):
        pumice.validate(counting("", {}), [np.zeros(4, np.float32)], context=context, precision="fp16", mode=mode)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_an_iteration_ends_at_16_bits_as_in_float32(precision: str, context: pumice.Context) -> None:
    """Newton's iteration: the carried values of the loop stay float32."""
    stored = store.load("script_newton")
    case = arrays(stored.inputs, stored.sizes[0])
    assert pumice.validate(stored.model, [case], context=context, precision=precision).first_divergence is None
