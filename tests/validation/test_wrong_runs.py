"""Programs that are wrong in some of their runs: later right runs do not cancel a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice
from onnx_models import model, node, value

FLOAT = np.float32
Change = Callable[[dict[str, Any]], None]


def small(size: int = 8) -> bytes:
    nodes = [node("Exp", ["x"], ["e"], name="exp"), node("Neg", ["e"], ["y"], name="neg")]
    return bytes(model(nodes, [value("x", [size])]).SerializeToString())


def on_odd_calls(change: Change) -> Change:
    """Apply the change at the first, third, ... call that has the output."""
    calls: list[int] = []

    def changed(results: dict[str, Any]) -> None:
        if "y" in results and results["y"] is not None:
            calls.append(1)
            if len(calls) % 2:
                change(results)

    return changed


def double(results: dict[str, Any]) -> None:
    results["y"] *= FLOAT(2)


def one_bit(results: dict[str, Any]) -> None:
    results["y"].reshape(-1).view(np.uint32)[3] ^= 1


def test_a_candidate_is_called_once_for_each_case() -> None:
    calls: list[Any] = []

    def flaky(inputs: dict[str, Any]) -> list[Any]:
        calls.append(inputs["x"][0])
        return [-np.exp(inputs["x"]) * (2 if len(calls) % 2 else 1)]

    cases = [(np.full(8, number, FLOAT),) for number in (1, 2, 3)]
    report = pumice.validate(small(), cases, candidate=flaky)
    assert sorted(calls) == [1, 2, 3]
    assert report.state == "wrong"


def test_an_output_that_is_wrong_in_every_second_run_is_wrong(
    context: pumice.Context, spoil: Callable[..., None]
) -> None:
    spoil(on_odd_calls(double), kept=False)
    report = pumice.validate(small(), [np.ones(8, FLOAT)], context=context)
    assert report.state == "wrong"
    assert report.first_divergence is not None and report.first_divergence.op == "output"
    assert [finding.node for finding in report.findings if finding.kind == "not deterministic"] == ["y"]


def test_a_node_that_is_wrong_in_every_second_run_is_wrong(context: pumice.Context, spoil: Callable[..., None]) -> None:
    """mode="chained" checks the accumulated errors of the nodes in several ways."""
    spoil(on_odd_calls(double))
    report = pumice.validate(small(), [np.ones(8, FLOAT)], context=context, mode="chained")
    assert report.state == "wrong"
    assert report.first_divergence is not None and report.first_divergence.node == "neg"


@pytest.mark.parametrize("mode", ["both", "isolated", "chained", "bisect"])
def test_the_observed_run_and_the_plain_one_have_the_same_bits(
    context: pumice.Context, spoil: Callable[..., None], mode: str
) -> None:
    spoil(one_bit, kept=False)
    x = np.ones(8, FLOAT)
    report = pumice.validate(small(), [x], context=context, mode=mode)
    assert all(row.verdict == "right" for row in (*report.rows, *report.kernels))
    assert (report.ok, report.state, report.deterministic) == (False, "unproved", False)
    assert [finding.text for finding in report.findings if finding.kind == "not deterministic"] == [
        "1 of 8 elements of output 'y' have other bits in the run that is observed, with a copy after each step"
    ]
    assert "not deterministic" in report.summary
    with pytest.raises(pumice.ValidationError, match="other bits"):
        report.raise_if_failed()
    assert pumice.validate(small(), [x], context=context, mode=mode, allow_nondeterministic=True).ok


def test_a_report_that_fails_by_its_findings_fails_in_junit(
    context: pumice.Context, spoil: Callable[..., None], tmp_path: Any
) -> None:
    spoil(one_bit, kept=False)
    report = pumice.validate(small(), [np.ones(8, FLOAT)], context=context)
    report.to_junit(tmp_path / "junit.xml")
    assert 'failures="1"' in (tmp_path / "junit.xml").read_text()


def test_bisection_judges_one_run_of_the_whole(context: pumice.Context, spoil: Callable[..., None]) -> None:
    spoil(on_odd_calls(double), kept=False)
    report = pumice.validate(small(), [np.ones(8, FLOAT)], context=context, mode="bisect")
    assert report.state == "wrong"


def test_a_model_rerun_in_windows_gives_the_same_bits(
    context: pumice.Context, spoil: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tensors are too many to keep, so the windows run again if an output is wrong; the second run alone does not decide."""
    import pumice.validation.reference.streaming

    monkeypatch.setattr(pumice.validation.reference.streaming, "WINDOW_BYTES", 16)
    calls: list[int] = []

    def change(results: dict[str, Any]) -> None:
        if "y" in results:
            calls.append(1)
            results["y"] *= FLOAT(1 + 1 / len(calls))

    spoil(change)
    report = pumice.validate(small(), [np.ones(8, FLOAT)], context=context, mode="chained")
    assert report.state == "wrong"
    assert any("runs again" in finding.text for finding in report.findings if finding.kind == "not deterministic")


def test_cases_run_in_another_order_and_keep_their_numbers() -> None:
    order: list[int] = []

    def candidate(inputs: dict[str, Any]) -> Any:
        number = int(inputs["x"][0])
        order.append(number)
        return -np.exp(inputs["x"]) * (2 if number == 3 else 1)

    cases = [(np.full(8, number, FLOAT),) for number in range(6)]
    reports = [pumice.validate(small(), cases, candidate=candidate) for _ in range(2)]
    assert sorted(order[:6]) == list(range(6)) != order[:6]
    assert order[:6] != order[6:] or order[1:6] == order[7:]
    assert {row.case for row in reports[0].rows if row.verdict == "wrong"} == {3}
    assert str(reports[0]) == str(reports[1])


def test_another_case_runs_before_each(context: pumice.Context, spoil: Callable[..., None]) -> None:
    """So that uninitialised memory does not hold results of the same inputs."""
    seen: list[float] = []
    spoil(lambda results: seen.append(float(results["y"][0])), kept=False)
    cases = [np.full(8, number, FLOAT) for number in (1, 2)]
    assert pumice.validate(small(), cases, context=context).ok
    assert len(seen) == 3 and seen[0] != seen[1] != seen[2]
