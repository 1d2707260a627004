"""Node-by-node validation: right results pass, and wrong ones are found and reported with their node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import pumice
from onnx_models import gemm, model, node
from pumice.validation.reference.reference_model import ReferenceModel
from pumice.validation.report.deviation import Deviation, compare_tensor
from pumice.validation.report.report import ValidationReport
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import ProgramTypes

DIGITS = Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx"
FLOAT = np.float32


def x(rows: int = 5) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(2).standard_normal((rows, 4)).astype(FLOAT)


def validated(context: pumice.Context, *cases: Any, source: Any = None) -> ValidationReport:
    data = gemm().SerializeToString() if source is None else source
    with pumice.load(data, context) as loaded:
        return pumice.validate(loaded, list(cases) or [(x(),)])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_right_model_passes(context: pumice.Context, precision: str) -> None:
    images = np.random.default_rng(0).random((3, 1, 8, 8)).astype(FLOAT)
    report = pumice.validate(DIGITS, [(images,), {"image": images[:1]}, images], context=context, precision=precision)
    assert report.ok, report.summary
    assert report.first_divergence is None
    assert not report.unchecked
    assert (report.cases, report.precision) == (3, precision)
    nodes = [row.node for row in report.rows if row.op != "output"]
    assert nodes == ["conv1", "relu1", "conv2", "relu2", "pool", "flat", "fc1", "relu3", "logits", "probabilities"]
    assert [row.output for row in report.rows if row.op == "output"] == ["probabilities"]
    assert all(row.accumulated is not None for row in report.rows)
    report.raise_if_failed()


def test_the_first_wrong_node_is_named_with_its_error(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["sum"][2, 1] += 0.5

    spoil(change)
    report = validated(context)
    assert not report.ok
    first = report.first_divergence
    assert first is not None
    assert (first.node, first.op, first.output) == ("gemm.sum", "Gemm", "sum")
    assert first.local is not None
    assert first.local.at == (2, 1)
    assert first.local.error == pytest.approx(0.5, rel=1e-4)
    with pytest.raises(pumice.ValidationError, match=r"node 'gemm\.sum' \(Gemm\).*0\.5 at \[2, 1\]") as caught:
        report.raise_if_failed()
    assert caught.value.node == "gemm.sum"
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, pumice.Error)
    assert "DIVERGES" in str(report)


def test_a_node_behind_a_wrong_one_is_checked_by_what_it_was_given(
    context: pumice.Context, spoil: Callable[..., None]
) -> None:
    def change(results: dict[str, Any]) -> None:
        results["sum"] += FLOAT(0.5)
        results["y"][:] = np.maximum(results["sum"], 0)

    spoil(change)
    rows = {row.node: row for row in validated(context).rows if row.op != "output"}
    assert not rows["gemm.sum"].ok
    assert rows["relu.y"].ok
    accumulated = rows["relu.y"].accumulated
    assert accumulated is not None
    assert accumulated.error == pytest.approx(0.5, rel=1e-4)


def test_a_fault_of_the_fused_program_alone_is_found(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["y"][0, 0] += 1

    spoil(change, kept=False)
    report = validated(context)
    assert [(row.op, row.output) for row in report.rows if not row.ok] == [("output", "y")]
    assert "output 'y'" in report.summary


def test_the_worst_case_is_kept(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["sum"] += FLOAT(0.25) if len(results["sum"]) == 2 else FLOAT(0.125)

    spoil(change)
    first = validated(context, (x(5),), (x(2),), (x(3),)).first_divergence
    assert first is not None
    assert first.case == 1
    assert first.shape == (2, 3)


def test_nan_where_the_reference_has_a_number_is_a_divergence(
    context: pumice.Context, spoil: Callable[..., None]
) -> None:
    def change(results: dict[str, Any]) -> None:
        results["y"][4, 2] = np.nan

    spoil(change)
    first = validated(context).first_divergence
    assert first is not None
    assert first.local is not None
    assert first.local.at == (4, 2)
    assert first.local.error == np.inf


def test_a_case_that_does_not_fit_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match="input 'x'"):
        validated(context, (x().astype(np.float64),))
    with pytest.raises(pumice.BindingError, match="ghost"):
        validated(context, {"ghost": x()})


def test_the_report_is_a_record_for_json(context: pumice.Context) -> None:
    import json

    record = json.loads(json.dumps(validated(context).as_dict()))
    assert record["ok"]
    rows = {
        kind: [row["node"] for row in record["rows"] if row["program"] == kind]
        for kind in ("nodes", "kernels", "outputs")
    }
    assert rows == {"nodes": ["gemm.sum", "relu.y"], "kernels": ["gemm.sum", "relu.y"], "outputs": ["y", "sum"]}
    assert all(row["error"] <= row["allowed"] for row in record["rows"])


def test_progress_reaches_its_end(context: pumice.Context) -> None:
    steps: list[tuple[int, int]] = []
    pumice.validate(gemm(), [x(), x()], context=context, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(i, 6) for i in range(1, 7)]


# ---- without a device


def test_the_reference_reads_constants_by_itself() -> None:
    constant = node("Constant", [], ["c"], value=numpy_helper.from_array(np.array([1, 2], FLOAT)))
    reference = ReferenceModel(model([node("Add", ["s", "c"]), constant, node("Relu", ["x"], ["s"])]))
    assert [n.op for n in reference.nodes] == ["Relu", "Add"]
    np.testing.assert_array_equal(reference.constants["c"], [1, 2])
    values = {"s": BoundedTensor(np.zeros(2, FLOAT)), "c": reference.get_constant("c")}
    results = reference.nodes[1].run(values, reference.runner)
    made = results["y"]
    assert isinstance(made, BoundedTensor)
    np.testing.assert_array_equal(made.value, [1, 2])


def ok(actual: Any, expected: Any, error: float | None = None) -> bool:
    """Compare arrays of one dtype; `error` applies to all elements of the reference."""
    bounded = BoundedTensor(expected, None if error is None else np.full(np.shape(expected), error))
    return compare_tensor(np.asarray(actual), bounded, ProgramTypes("fp32")).ok


@pytest.mark.parametrize(
    ("actual", "expected", "error", "right"),
    [
        ([1.0, 1000.0], [1.01, 1000.0], 0.02, True),
        ([1.0, 1000.0], [1.01, 1000.0], 0.005, False),  # large numbers next to it do not matter
        ([np.nan, np.inf], [np.nan, np.inf], 0.0, True),
        ([np.inf], [-np.inf], 1e9, False),
        ([np.inf], [3e38], 1e30, False),
        ([0.0], [np.nan], 1.0, False),
        ([np.nan], [0.0], 1.0, False),
        ([0.0, 0.0], [0.0, 1e-9], None, False),
        ([], [], None, True),
    ],
)
def test_judgements_of_floats(actual: list[float], expected: list[float], error: float | None, right: bool) -> None:
    assert ok(np.array(actual, FLOAT), np.array(expected, FLOAT), error) == right


def test_judgements_of_scalars() -> None:
    assert ok(FLOAT(1.0), FLOAT(1.0))
    wrong = compare_tensor(np.array(2.0, FLOAT), BoundedTensor(np.array(1.0, FLOAT)), ProgramTypes("fp32"))
    assert (wrong.error, wrong.at, wrong.ok) == (1.0, (), False)
    assert not ok(FLOAT(np.nan), FLOAT(1.0))
    assert not ok(np.array(3), np.array(4))


def test_integers_have_to_be_equal_to_the_last_bit() -> None:
    large = np.array([2**62 + 1, 5])
    assert ok(large, large.copy())
    assert not ok(large, np.array([2**62, 5]))
    assert not ok(np.array([True]), np.array([False]))


def test_another_shape_or_type_is_a_divergence() -> None:
    for other in (np.zeros((3, 2), FLOAT), np.zeros((2, 3))):
        found = compare_tensor(
            np.zeros((2, 3), FLOAT), BoundedTensor(other, np.full(other.shape, np.inf)), ProgramTypes("fp32")
        )
        assert (found.verdict, found.kind) == ("wrong", "wrong shape or dtype")


def test_what_has_no_bound_is_unproved() -> None:
    x = np.ones(4, FLOAT)
    for unknown, verdict in ((0, "right"), (1, "unproved"), (3, "unproved")):
        error = np.where(np.arange(4) < unknown, np.inf, 0.0)
        found = compare_tensor(
            x + np.where(np.arange(4) < unknown, FLOAT(5), FLOAT(0)), BoundedTensor(x, error), ProgramTypes("fp32")
        )
        assert (found.verdict, found.unknown) == (verdict, unknown)


def test_severity_orders_deviations() -> None:
    assert Deviation(2.0, 1.0, (), 0, 0).severity == 2
    assert Deviation(1.0, 0.0, (), 0, 0).severity == np.inf
    assert Deviation(0.0, 0.0, (), 0, 0).severity == 0
