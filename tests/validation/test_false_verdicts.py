"""Results that could deceive a validation: a wrong or unknown result is never reported as right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import model, node, value
from pumice.validation.report.deviation import compare_tensor
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import DeclaredTypes, ProgramTypes

Array = np.ndarray[Any, Any]
FLOAT, HALF = np.float32, np.float16


# ---- an output after an overflow


def overflowing() -> tuple[onnx.ModelProto, Array]:
    """Return x / max(x w): the product overflows fp16, the quotient does not."""
    nodes = [
        node("MatMul", ["x", "w"], ["b"], name="product"),
        node("ReduceMax", ["b"], ["s"], name="largest", axes=[1]),
        node("Div", ["x", "s"], ["y"], name="div"),
    ]
    weight = np.zeros((8, 8), FLOAT)
    weight[::2] = 20
    x = np.full((4, 8), 1000, FLOAT)
    x[:, 1::2] = -500
    return model(nodes, [value("x", (4, 8))], constants={"w": weight}), x + np.arange(32, dtype=FLOAT).reshape(4, 8)


@pytest.mark.parametrize("reference", ["float64", "onnx", "fp32"])
@pytest.mark.parametrize("mode", ["both", "chained"])
def test_zeros_behind_an_overflow_are_wrong(mode: str, reference: str, context: pumice.Context) -> None:
    source, x = overflowing()
    with pumice.Model(source, context, "fp16") as loaded:
        assert not np.any(loaded(x))
    report = pumice.validate(source, [x], context=context, precision="fp16", mode=mode, reference=reference)
    assert (report.state, report.rows[-1].verdict) == ("wrong", "wrong")
    assert report.undecided == 0
    told = [one for one in report.findings if one.kind == "overflow" and one.node == "product"]
    assert [one.text for one in told] == ["fp16 overflow: 82,160 in float32 at node 'product'"]
    assert report.first_divergence is not None and report.first_divergence.node == "product"
    with pytest.raises(pumice.ValidationError, match="fp16 overflow: 82,160"):
        report.raise_if_failed()


def test_a_search_finds_the_overflow(context: pumice.Context) -> None:
    source, x = overflowing()
    report = pumice.validate(source, [x], context=context, precision="fp16", mode="bisect")
    assert report.state == "wrong"
    assert "fp16 overflow: 82,160 in float32 at node 'product'" in [one.text for one in report.findings]


def test_results_are_not_compared_with_a_tensor_of_the_device(context: pumice.Context) -> None:
    """The result of NonZero is undecided, and another result of the same device cannot decide it."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"], name="product"),
        node("NonZero", ["m"], ["n"], name="found"),
        node("Transpose", ["n"], ["y"], name="turned", perm=[1, 0]),
    ]
    weight = np.eye(4, dtype=FLOAT)
    weight[1, 0] = -1
    source = model(nodes, [value("x", (1, 4))], constants={"w": weight})
    x = FLOAT([[0.1, 0.1, 2, 3]])
    report = pumice.validate(source, [x], context=context)
    assert report.rows[-1].verdict == "unproved"
    assert report.rows[-1].note == "depends on node 'found'"
    assert not report.ok
    searched = pumice.validate(source, [x], context=context, mode="bisect")
    assert (searched.state, searched.rows[-1].note) == (
        "unproved",
        "depends on a choice of node 'found' that rounding may flip",
    )
    waived = pumice.validate(source, [x], context=context, allow_unchecked=["NonZero"])
    assert waived.ok

    def garbage(inputs: dict[str, Array]) -> dict[str, Array]:
        return {"m": inputs["x"], "n": np.int64([[7], [9]]), "y": np.int64([[7, 9]])}

    report = pumice.validate(source, [x], candidate=garbage)
    assert not report.ok


# ---- elements without a bound


def poles() -> onnx.ModelProto:
    """Return 1 / (log(exp(x)) - c): within rounding, the first four elements are 1 / 0."""
    names = [("Exp", ["x"], "e"), ("Log", ["e"], "l"), ("Sub", ["l", "c"], "d"), ("Reciprocal", ["d"], "y")]
    nodes = [node(op, inputs, [output], name=op.lower()) for op, inputs, output in names]
    return model(nodes, [value("x", (1, 8))], constants={"c": FLOAT([[1, 1, 1, 1, 5, 5, 5, 5]])})


def answers(first: list[float]) -> Any:
    def run(inputs: dict[str, Array]) -> dict[str, Array]:
        return {"y": FLOAT([[*first, -0.25, -0.25, -0.25, -0.25]])}

    return run


ONES = np.ones((1, 8), FLOAT)
GARBAGE = [np.nan, 123.0, -7.0, np.inf]


@pytest.mark.parametrize("first", [GARBAGE[:1], GARBAGE[1:2], GARBAGE], ids=["NaN", "a number", "four"])
def test_elements_without_a_bound_are_unproved_and_counted(first: list[float]) -> None:
    given = answers([*first, 1e6, 1e6, 1e6, 1e6][:4])
    report = pumice.validate(poles(), [ONES], candidate=given)
    assert (report.state, report.ok) == ("unproved", False)
    assert "4 of 8 elements have no finite bound" in report.summary
    assert "elements without a finite bound" in str(report)
    record = report.as_dict()
    assert record["unknown"] == 8 and record["rows"][-1]["unknown"] == 4  # of the node, and of the output
    unproved = [one for one in report.findings if one.kind == "unproved"]
    assert unproved and all("4 of 8 elements have no finite bound" in one.text for one in unproved)
    with pytest.raises(pumice.ValidationError, match="4 of 8 elements have no finite bound"):
        report.raise_if_failed()


def test_one_element_of_many_is_enough(context: pumice.Context) -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Sub", ["a", "x"], ["d"]), node("Log", ["d"], ["y"], name="log")]
    weight = 2 * np.eye(8, dtype=FLOAT)
    weight[3, 3] = 1
    source = model(nodes, [value("x", (1, 8))], constants={"w": weight})
    report = pumice.validate(source, [ONES * FLOAT(1.1)], context=context)  # for ones, the sums would be exact
    assert report.rows[-1].verdict == "unproved"
    assert report.rows[-1].note == "1 of 8 elements have no finite bound"


def test_what_has_no_bound_is_allowed_by_name() -> None:
    given = answers(GARBAGE)
    report = pumice.validate(poles(), [ONES], candidate=given, allow_unchecked=["Reciprocal", "y"])
    assert all(row.ok and not row.checked for row in report.rows)
    assert (report.state, report.ok) == ("unproved", False)  # nothing else was checked
    assert "unproved" in report.verdict and "(allowed)" in report.verdict
    wrong = pumice.validate(poles(), [ONES + 1], candidate=given, allow_unchecked=True)
    assert wrong.state == "wrong"


@pytest.mark.parametrize(
    ("first", "state"),
    [(GARBAGE, "wrong"), ([np.inf] * 4, "right"), ([np.inf, np.inf, np.inf, np.nan], "wrong"), ([1e30] * 4, "wrong")],
)
def test_a_tolerance_counts_for_every_element(first: list[float], state: str) -> None:
    report = pumice.validate(poles(), [ONES], candidate=answers(first), tolerances={"y": 1e-3})
    assert (report.state, report.unknown) == (state, 0)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
def test_what_is_no_number_is_wrong_where_the_bound_is_finite(number: float, dtype: Any) -> None:
    x = np.linspace(-3, 3, 8)
    spoilt = x.astype(dtype)
    spoilt[5] = number
    for error in (None, np.full(8, 0.5), np.full(8, 100.0)):
        found = compare_tensor(spoilt, BoundedTensor(x, error, dtype), DeclaredTypes())
        assert found.kind == ("NaN made" if np.isnan(number) else "infinity made")


# ---- infinity for large numbers


@pytest.mark.parametrize(
    ("reference", "error", "is_right"),
    [
        (65472.0, 0.0, False),
        (65504.0, 0.0, False),
        (65519.0, 0.0, False),  # rounds to the largest number
        (65520.0, 0.0, True),  # halfway to the next power of two
        (70000.0, 0.0, True),
        (65519.0, 4.0, True),
        (65500.0, 4.0, False),
        (-65520.0, 0.0, False),
    ],
)
def test_infinity_stands_for_numbers_that_round_to_it(reference: float, error: float, is_right: bool) -> None:
    """The kernel's store adds half a ULP to the error, which must not push a number over the limit."""
    for types in (DeclaredTypes(), ProgramTypes("fp16"), ProgramTypes("fp16").with_independent_errors()):
        kept = types.get_storage_type(HALF).unit * abs(reference)
        whole = np.hypot(error, kept) if types.independent_errors else error + kept
        expected = BoundedTensor(np.float64([reference, 1.0]), np.float64([whole, 0.0]), HALF)
        assert compare_tensor(HALF([np.inf, 1.0]), expected, types).ok == is_right, types


def test_infinity_is_no_answer_where_the_type_has_the_number() -> None:
    source = model(
        [node("Mul", ["x", "k"], name="mul")],
        [value("x", (4,), onnx.TensorProto.FLOAT16)],
        constants={"k": HALF([1])},
    )
    x = HALF([65472, 1, 2, 3])
    spoilt = HALF([np.inf, 1, 2, 3])
    report = pumice.validate(source, [x], candidate=lambda inputs: spoilt)
    assert report.state == "wrong"
    assert {one.kind for one in report.findings} == {"infinity made"}
    assert pumice.validate(source, [x], candidate=lambda inputs: inputs["x"]).ok


# ---- undecided choices


def test_undecided_choices_of_a_candidate_are_one_of_both_sides() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Greater", ["a", "half"], ["g"], name="greater"),
        node("Where", ["g", "up", "down"], ["y"], name="where"),
    ]
    constants = {"w": np.eye(8, dtype=FLOAT), "half": FLOAT(0.5), "up": FLOAT(100), "down": FLOAT(-100)}
    source = model(nodes, [value("x", (4, 8))], constants=constants)
    x = np.full((4, 8), 0.2, FLOAT)
    x[0, 0] = 0.5
    for number, state in ((-100, "right"), (100, "right"), (37, "wrong"), (690, "wrong"), (np.nan, "wrong")):
        y = np.full((4, 8), -100, FLOAT)
        y[0, 0] = number
        report = pumice.validate(source, [x], candidate=lambda inputs, y=y: {"y": y})
        assert report.state == state, report.summary
        told = [one.text for one in report.findings if one.kind == "undecided decisions"]
        assert any("1 of 32 elements" in text for text in told)


def test_a_choice_that_sums_hide_is_reported() -> None:
    """After the MatMul, the alternatives are no longer tracked."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Round", ["a"], ["r"], name="round"), node("MatMul", ["r", "w"])]
    source = model(nodes, [value("x", (2, 8))], constants={"w": np.eye(8, dtype=FLOAT)})
    x = np.full((2, 8), 0.25, FLOAT)
    x[0, 0] = 2.5
    report = pumice.validate(source, [x], candidate=lambda inputs: np.round(inputs["x"]))
    assert report.ok, report.summary
    told = [(one.node, one.text) for one in report.findings if one.kind == "undecided decisions"]
    assert told == [("round", "1 of 16 elements of 'r' depend on a choice that rounding may flip, from the inputs on")]


def test_indices_of_ties_are_those_of_the_ties() -> None:
    nodes = [node("MatMul", ["x", "w"], ["s"]), node("ArgMax", ["s"], name="best", axis=1, keepdims=0)]
    source = model(nodes, [value("x", (8, 4))], constants={"w": np.eye(4, dtype=FLOAT)})
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(FLOAT)
    x[0] = [1, 1, -5, -5]
    for index, state in ((0, "right"), (1, "right"), (2, "wrong"), (99, "wrong"), (-7, "wrong")):
        y = x.argmax(1)
        y[0] = index
        assert pumice.validate(source, [x], candidate=lambda inputs, y=y: y).state == state


def test_a_stored_output_is_one_of_both_sides(tmp_path: Path, context: pumice.Context) -> None:
    from pumice.validation.checker.stored_output_comparison import compare_stored_outputs

    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Round", ["a"], name="round")]
    source = model(nodes, [value("x", (2, 8))], constants={"w": np.eye(8, dtype=FLOAT)})
    x = np.full((2, 8), 0.25, FLOAT)
    x[0, 0] = 2.5
    with pumice.Model(source, context, "fp32") as loaded:
        for number, verdict in ((2, "right"), (3, "right"), (2.5, "wrong"), (5, "wrong")):
            y = np.zeros((2, 8), FLOAT)
            y[0, 0] = number
            assert [one.verdict for one in compare_stored_outputs(loaded, {"x": x}, {"y": y})] == [verdict]
