"""The unproved share of a model's work, in the operations and bytes that a profile counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import pumice
from onnx_models import model, node, value
from pumice.validation.report.node_costs import NodeCost, describe_cost_share, format_percent

FLOAT = np.float32
RANDOM = np.random.default_rng(1)


def noisy(depth: int = 256) -> onnx.ModelProto:
    """Return a MatMul, which is proved, and an independent branch of random numbers, which are not."""
    nodes = [
        node("MatMul", ["x", "w"], ["y"], name="product"),
        node("RandomNormalLike", ["x"], ["r"], name="noise"),
        node("Neg", ["r"], ["z"], name="turns"),
    ]
    constants = {"w": RANDOM.standard_normal((depth, 16)).astype(FLOAT)}
    return model(nodes, [value("x", [4, depth])], ("y", "z"), constants=constants)


def test_the_unproved_share_is_that_of_the_work(context: pumice.Context) -> None:
    """Counted in elements, nearly the whole model would be unproved."""
    x = RANDOM.standard_normal((4, 256)).astype(FLOAT)
    report = pumice.validate(noisy(), [x], context=context)
    assert report.state == "unproved"
    assert {row.node for row in report.unchecked if row.program == "nodes"} == {"noise"}
    with pumice.load(noisy(), context, fuse=False) as loaded, pumice.profile("dispatch") as profile:
        loaded(x)
    spans = [span for run in profile.executions for span in run.spans]
    product = next(span for span in spans if span.node == "product")
    assert report.work["product"] == NodeCost(product.flop, product.read_bytes + product.written_bytes)
    assert product.flop == 2 * 4 * 16 * 256
    noise = sum(
        one.num_bytes for name, one in report.work.items() if name.startswith("noise")
    )  # expanded to several nodes
    share = noise / sum(one.num_bytes for one in report.work.values())
    assert f"unproved, 0% of the operations and {share:.0%} of the bytes that are moved" in report.verdict
    assert 0.05 < share < 0.2


def test_where_nothing_is_known_of_the_work_the_elements_are_counted(context: pumice.Context) -> None:
    x = RANDOM.standard_normal((4, 256)).astype(FLOAT)

    def candidate(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"y": np.zeros((4, 16), FLOAT), "z": -inputs["x"], "r": inputs["x"]}

    made = noisy()
    report = pumice.validate(made, [x], candidate=candidate)
    assert "of the elements, because the work is not known" in report.verdict
    with pumice.profile("execution"):  # the caller's own profile
        report = pumice.validate(made, [x], context=context)
    assert "of the elements, because the work is not known" in report.verdict


def test_shares_in_words() -> None:
    work = {"a": NodeCost(30, 100), "b/Mul": NodeCost(10, 100), "b/c": NodeCost(0, 200), "/d/e": NodeCost(60, 0)}
    known = {"a", "b", "b/c", "/d/e"}
    assert describe_cost_share({"b"}, known, work) == "10% of the operations and 25% of the bytes that are moved"
    assert describe_cost_share({"b/c"}, known, work) == "0% of the operations and 50% of the bytes that are moved"
    assert describe_cost_share({"a"}, {"a"}, {"a": NodeCost(0, 5)}) == "100% of the bytes that are moved"
    assert describe_cost_share({"a"}, known, {}) == ""
    assert (format_percent(0), format_percent(0.001), format_percent(0.5)) == ("0%", "under 1%", "50%")
