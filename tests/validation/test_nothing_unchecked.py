"""A report is right only if something was checked, and lists what was not: empty cases, branches never taken, NaN without a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import pumice
from onnx_models import model, node, value
from pumice.plugin.baselines import find_regressions

FLOAT = np.float32

BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (float[4] x) => (float[4] y) {
  total = ReduceSum<keepdims = 0>(x)
  zero = Constant<value = float {0.0}>()
  positive = Greater(total, zero)
  y = If(positive)<
    then_branch = then_graph () => (float[4] t) { e = Exp(x)  t = Neg(e) },
    else_branch = else_graph () => (float[4] f) { n = Sin(x)  f = Cos(n) }>
}"""


def rows(size: Any = None) -> bytes:
    nodes = [node("Exp", ["x"], ["e"], name="exp"), node("Neg", ["e"], ["y"], name="neg")]
    return bytes(model(nodes, [value("x", [size, 8])]).SerializeToString())


def draws(behind: bool) -> bytes:
    """Return a model with a random operator, which no rule covers; `behind`: also with a checked node after it."""
    nodes = [node("RandomNormalLike", ["x"], ["y"], name="draw", seed=1.0)]
    outputs = ["y"]
    if behind:
        nodes.append(node("Exp", ["x"], ["z"], name="exp"))
        outputs.append("z")
    return bytes(model(nodes, [value("x", [4])], outputs).SerializeToString())


@pytest.mark.parametrize("mode", ["both", "isolated", "chained", "bisect"])
def test_a_case_without_elements_proves_nothing(context: pumice.Context, mode: str) -> None:
    empty, full = np.zeros((0, 8), FLOAT), np.ones((2, 8), FLOAT)
    for cases in ([empty], [full, empty]):
        report = pumice.validate(rows(), cases, context=context, mode=mode)
        assert (report.ok, report.state) == (False, "unproved")
        assert "has elements: nothing was checked" in report.summary
        with pytest.raises(pumice.ValidationError):
            report.raise_if_failed()
    assert pumice.validate(rows(), [full, empty], context=context, mode=mode, allow_unchecked=["y"]).ok
    assert not pumice.validate(rows(), [empty], context=context, mode=mode, allow_unchecked=True).ok


def test_an_empty_output_beside_a_full_one_is_right(context: pumice.Context) -> None:
    """Its shape and dtype, which is all it has, are checked."""
    nodes = [
        node("Exp", ["x"], ["y"], name="exp"),
        node("Slice", ["x", "from", "to"], ["z"], name="nothing"),
    ]
    constants = {"from": np.array([2]), "to": np.array([2])}
    source = model(nodes, [value("x", [4])], ["y", "z"], constants).SerializeToString()
    assert pumice.validate(source, [np.ones(4, FLOAT)], context=context).ok


def test_what_is_allowed_to_be_unchecked_is_reported(context: pumice.Context) -> None:
    x = np.ones(4, FLOAT)
    nothing = pumice.validate(draws(behind=False), [x], context=context, allow_unchecked=True)
    assert (nothing.ok, nothing.state) == (False, "unproved")
    with pytest.raises(pumice.ValidationError, match="not checked"):
        nothing.raise_if_failed()
    some = pumice.validate(draws(behind=True), [x], context=context, allow_unchecked=True)
    assert (some.ok, some.state) == (True, "right")
    assert "not checked: node 'draw'" in some.summary and "output 'y'" in some.summary


@pytest.mark.parametrize("mode", ["both", "isolated", "chained"])
def test_a_branch_that_no_case_takes_is_unproved(context: pumice.Context, mode: str) -> None:
    source = onnx.parser.parse_model(BRANCHES)
    positive, negative = np.ones(4, FLOAT), -np.ones(4, FLOAT)
    report = pumice.validate(source, [positive], context=context, mode=mode)
    assert report.state == "unproved"
    (row,) = [row for row in report.kernels if row.verdict == "unproved"]
    assert row.op == "If" and row.output.endswith(".else") and "did not run in any case" in row.note
    assert pumice.validate(source, [positive, negative], context=context, mode=mode).ok
    assert pumice.validate(source, [positive], context=context, mode=mode, allow_unchecked=[row.node]).ok


def test_the_body_of_a_loop_that_never_runs_is_unproved(context: pumice.Context) -> None:
    source = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[4] x, int64 count) => (float[4] y) {
      go = Constant<value = bool {1}>()
      y = Loop(count, go, x)<body = turn (int64 i, bool c, float[4] v) => (bool d, float[4] w) {
        d = Identity(c)  s = Sin(v)  w = Exp(s) }>
    }""")
    x = np.ones(4, FLOAT)
    never = pumice.validate(source, [(x, np.array(0))], context=context)
    assert never.state == "unproved" and "did not run in any case" in never.summary
    assert pumice.validate(source, [(x, np.array(0)), (x, np.array(2))], context=context).ok


def undefined(size: int = 128) -> tuple[Any, Any]:
    """Half of the rows have a negative variance in fp16; its root is NaN, without a finite bound."""
    source = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[N,128] x) => (float[N,128] y) {
      x2 = Mul(x, x)  a = ReduceMean<axes = [-1]>(x2)  b = ReduceMean<axes = [-1]>(x)  b2 = Mul(b, b)
      v = Sub(a, b2)  s = Sqrt(v)  c = Sub(x, b)  y = Div(c, s) }""")
    x = np.random.default_rng(5).standard_normal((4, size)) * 0.05 + 10
    return source, x.astype(FLOAT)


def test_nan_is_named_with_its_count_whatever_the_bound(context: pumice.Context) -> None:
    source, x = undefined()
    with pumice.load(source, context, precision="fp16") as loaded:
        count = int(np.isnan(loaded(x)).sum())
    assert count
    report = pumice.validate(source, [x], context=context, precision="fp16")
    texts = {finding.node: finding.text for finding in report.findings if finding.kind == "NaN made"}
    assert f"{count} of {x.size} elements are NaN where the reference is finite" in texts["y"]
    assert "elements NaN or infinite where the reference is finite" in report.summary
    record = next(row for row in report.as_dict()["rows"] if row["op"] == "output")
    assert (record["nans"], record["infinities"]) == (count, 0)


def test_nan_is_counted_in_a_wrong_row_and_under_any_tolerance() -> None:
    def candidate(inputs: dict[str, Any]) -> Any:
        made = -np.exp(inputs["x"])
        made[0, :3], made[1, 0] = np.nan, np.inf
        return made

    x = np.ones((2, 8), FLOAT)
    report = pumice.validate(rows(), [x], candidate=candidate)
    text, *_ = [finding.text for finding in report.findings if finding.kind == "NaN made"]
    assert "3 of 16 elements are NaN and 1 of 16 elements are infinite where the reference is finite" in text
    infinite = pumice.validate(rows(), [x], candidate=candidate, tolerances={"y": float("inf")})
    assert any(finding.kind == "NaN made" for finding in infinite.findings)


def test_infinity_that_storage_makes_of_a_large_number_is_not_counted(context: pumice.Context) -> None:
    nodes = [node("Mul", ["x", "x"], ["y"], name="square")]
    source = model(nodes, [value("x", [2])]).SerializeToString()
    report = pumice.validate(source, [np.array([300, 2], FLOAT)], context=context, precision="fp16")
    assert not [finding for finding in report.findings if finding.kind == "infinity made"]


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"y": 0.5}, {"y": 0.5}, ""),
        ({"y": 0.5}, {"y": 0.5, "z": 0.1}, "output 'z' is not in the baseline"),
        ({"y": 0.5, "z": 0.1}, {"y": 0.5}, "output 'z' is in the baseline, but not in the model"),
        ({"y": float("nan")}, {"y": 0.5}, "error of output 'y'"),
        ({"y": 0.5}, {"y": float("nan")}, "error of output 'y'"),
        ({"y": 0.5}, {"y": None}, "error of output 'y': unknown"),
    ],
)
def test_a_baseline_without_a_number_is_no_pass(then: dict[str, Any], now: dict[str, Any], said: str) -> None:
    def entry(ratios: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "outputs": {name: {"ratio": one} for name, one in ratios.items()},
            "dispatches": 1,
            "time_ratio": 1.0,
            "model_sha256": "0",
            **more,
        }

    factors = {"error": 2.0, "dispatches": 1.0, "time": 2.0}
    found = find_regressions(entry(now), entry(then), factors)
    assert (said in found[0] and len(found) == 1) if said else found == []
    for key in ("dispatches", "time_ratio"):
        assert find_regressions(entry({}, **{key: float("nan")}), entry({}), factors)
        assert find_regressions(entry({}), entry({}, **{key: float("nan")}), factors)
