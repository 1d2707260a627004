"""Findings of validation on models that constant tolerances passed, failed or skipped."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import model, node, value
from pumice.validation.reference import reference_model
from pumice.validation.report.findings import Finding
from pumice.validation.report.report import ValidationReport
from pumice.validation.rules.bounded_tensor import RULES

FLOAT = np.float32
Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(FLOAT)


def contrib(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=op.lower(), domain="com.microsoft", **attributes)


def of_contrib(nodes: list[onnx.NodeProto], inputs: list[Any], constants: dict[str, Array]) -> onnx.ModelProto:
    made = model(nodes, inputs, constants=constants)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def found(report: ValidationReport, kind: str) -> list[Finding]:
    return [one for one in report.findings if one.kind == kind]


# ---- errors that constant tolerances passed


def test_scores_beside_boxes_are_checked_by_themselves(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["y"][3, 4] -= FLOAT(0.49)

    boxes, scores = RANDOM.uniform(0, 540, (8, 4)).astype(FLOAT), np.full((8, 1), 0.75, FLOAT)
    nodes = [node("Mul", ["boxes", "one"], ["scaled"]), node("Concat", ["scaled", "scores"], axis=1)]
    source = model(nodes, [value("boxes", [8, 4]), value("scores", [8, 1])], constants={"one": np.ones(1, FLOAT)})
    pumice.validate(source, [(boxes, scores)], context=context, precision="fp16").raise_if_failed()
    spoil(change)
    first = pumice.validate(source, [(boxes, scores)], context=context, precision="fp16").first_divergence
    assert first is not None
    assert (first.op, first.local and first.local.at) == ("Concat", (3, 4))


def test_a_fault_behind_a_mask_of_a_billion_is_found(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["s"][0, 2] += FLOAT(1.0)

    mask = np.where(np.arange(6) < 4, 0, -1e9).astype(FLOAT)
    nodes = [node("Add", ["x", "mask"], ["s"], name="masked"), node("Softmax", ["s"], axis=-1)]
    source = model(nodes, [value("x", [2, 6])], constants={"mask": mask})
    case = (10 * normal(2, 6),)
    pumice.validate(source, [case], context=context).raise_if_failed()
    spoil(change)
    first = pumice.validate(source, [case], context=context).first_divergence
    assert first is not None and (first.node, first.local and first.local.at) == ("masked", (0, 2))


def test_a_wrong_row_of_a_smooth_table_is_found(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["y"][1] = table[ids[1] + 1]

    table = np.linspace(0, 1, 4000, dtype=FLOAT).reshape(1000, 4)
    ids = np.array([5, 500, 998])
    source = model(
        [node("Gather", ["table", "ids"])], [value("ids", [3], TensorProto.INT64)], constants={"table": table}
    )
    spoil(change)
    first = pumice.validate(source, [(ids,)], context=context, precision="fp16").first_divergence
    assert first is not None and first.local is not None and first.local.at[0] == 1


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_nodes_of_com_microsoft_are_proved(context: pumice.Context, precision: str, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        for name in ("n", "y"):  # the optimised kernel computes both, and stores the second
            if name in results:
                results[name][1, 2, 3] += FLOAT(0.1)

    constants = {"w": normal(8, 8), "b": normal(8), "scale": normal(8), "shift": normal(8)}
    nodes = [
        contrib("FusedMatMul", ["x", "w"], ["m"], transB=1, alpha=0.5),
        contrib("BiasGelu", ["m", "b"], ["g"]),
        contrib("SkipLayerNormalization", ["g", "x", "scale", "shift"], ["n"]),
        contrib("QuickGelu", ["n"], ["y"]),
    ]
    source = of_contrib(nodes, [value("x", [2, 3, 8])], constants)
    case = (normal(2, 3, 8),)
    report = pumice.validate(source, [case], context=context, precision=precision)
    report.raise_if_failed()
    assert {row.verdict for row in report.rows} == {"right"}
    spoil(change)
    first = pumice.validate(source, [case], context=context, precision=precision).first_divergence
    assert first is not None and first.node == "skiplayernormalization"


def test_what_has_no_rule_is_unproved_and_no_pass(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        helper.make_node(
            "LinearRegressor", ["r"], ["l"], name="line", domain="ai.onnx.ml", coefficients=[1.0, 2.0, 3.0, 4.0]
        ),
        node("Neg", ["l"], ["y"]),
    ]
    source = model(nodes, [value("x", [3, 4])])
    source.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    source.opset_import[0].version = 17
    monkeypatch.delitem(RULES, "ai.onnx.ml::LinearRegressor")
    monkeypatch.setattr(reference_model, "import_node", lambda *_: None)
    report = pumice.validate(source, [(normal(3, 4),)], context=context)
    assert (report.ok, report.state) == (False, "unproved")
    assert {row.node: row.verdict for row in report.rows} == {
        "relu.r": "right",
        "line": "unproved",
        "neg.y": "right",
        "y": "unproved",
    }
    with pytest.raises(pumice.ValidationError, match="no rule for ai.onnx.ml::LinearRegressor"):
        report.raise_if_failed()
    assert "3 unproved" in report.summary and "of the operations and" in report.verdict
    records = json.loads(json.dumps(report.as_dict()))
    assert "ok" not in records["rows"][0]
    verdicts = [one["verdict"] for one in records["rows"] if one["program"] != "kernels"]
    assert verdicts == ["right", "unproved", "right", "unproved"]
    for allowed in (True, ["LinearRegressor"], ["ai.onnx.ml::LinearRegressor"], ["line"]):
        pumice.validate(source, [(normal(3, 4),)], context=context, allow_unchecked=allowed).raise_if_failed()
    with pytest.raises(pumice.ValidationError):
        pumice.validate(source, [(normal(3, 4),)], context=context, allow_unchecked=["Relu"]).raise_if_failed()


# ---- right or unsupported models that constant tolerances failed or skipped


def test_ids_out_of_range_are_a_finding_and_no_exception(context: pumice.Context) -> None:
    nodes = [node("Gather", ["table", "ids"], ["g"], name="lookup"), node("Relu", ["g"])]
    source = model(nodes, [value("ids", [3], TensorProto.INT64)], constants={"table": normal(6, 2)})
    report = pumice.validate(source, [(np.array([0, 9, 2]),)], context=context)
    assert report.state == "wrong"
    (finding,) = found(report, "wrong index")
    assert finding.node == "lookup" and "index 9 at [1]" in finding.text


@pytest.mark.parametrize("opset", [9, 13, 15])
def test_batch_normalisation_is_inference_in_every_set(context: pumice.Context, opset: int) -> None:
    constants = {"s": normal(3), "b": normal(3), "m": 5 * normal(3), "v": np.abs(normal(3)) + FLOAT(0.1)}
    source = model(
        [node("BatchNormalization", ["x", "s", "b", "m", "v"])],
        [value("x", [2, 3, 4, 4])],
        constants=constants,
        opset=opset,
    )
    report = pumice.validate(source, [(normal(2, 3, 4, 4),)], context=context)
    report.raise_if_failed()
    assert {row.verdict for row in report.rows} == {"right"}


@pytest.mark.parametrize("opset", [10, 13, 19])
def test_quantised_tensors_are_proved_in_every_set(context: pumice.Context, opset: int) -> None:
    constants = {"scale": np.array(0.05, FLOAT), "zero": np.array(10, np.uint8)}
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    source = model(nodes, [value("x", [4, 5])], constants=constants, opset=opset)
    report = pumice.validate(source, [(normal(4, 5),)], context=context)
    report.raise_if_failed()
    assert [row.verdict for row in report.rows] == ["right"] * 3


def test_a_normalisation_far_from_zero_is_checked_by_float64(context: pumice.Context) -> None:
    """A float32 reference would be less exact than the device here."""
    x = (normal(4, 768) + 3000).astype(FLOAT)
    source = model(
        [node("LayerNormalization", ["x", "one"])], [value("x", [4, 768])], constants={"one": np.ones(768, FLOAT)}
    )
    report = pumice.validate(source, [(x,)], context=context)
    report.raise_if_failed()
    row = report.rows[0]
    mean = np.cumsum(x, axis=-1, dtype=FLOAT)[:, -1:] / FLOAT(768)
    plain = (x - mean) / np.sqrt(np.mean((x - mean) ** 2, axis=-1, keepdims=True, dtype=FLOAT) + FLOAT(1e-5))
    exact = x.astype(np.float64) - x.mean(axis=-1, keepdims=True, dtype=np.float64)
    exact /= np.sqrt((exact**2).mean(axis=-1, keepdims=True) + 1e-5)
    assert row.local is not None and row.local.error < np.abs(plain - exact).max()


def test_a_row_of_minus_infinity_warns_of_nothing(context: pumice.Context) -> None:
    x = normal(3, 4)
    x[1] = -np.inf
    source = model([node("Softmax", ["x"], axis=-1)], [value("x", [3, 4])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = pumice.validate(source, [(x,)], context=context)
    report.raise_if_failed()


def test_a_loaded_model_is_proved_at_the_precision_that_is_asked_for(context: pumice.Context) -> None:
    source = model([node("Exp", ["x"])], [value("x", [64])])
    with pumice.load(source, context) as loaded:
        rough = pumice.validate(loaded, [(normal(64),)], precision="fp16")
    assert rough.precision == "fp16"
    local = rough.rows[0].local
    assert local is not None and local.error > 1e-5


# ---- findings


def test_an_overflow_in_the_middle_is_named_with_its_number(context: pumice.Context) -> None:
    nodes = [
        node("Mul", ["x", "k"], ["m"], name="mul_3"),
        node("Relu", ["m"], ["r"]),
        node("Div", ["r", "k"], ["y"]),
    ]
    source = model(nodes, [value("x", [4])], constants={"k": np.array(1000, FLOAT)})
    x = np.array([1, 71.204, 3, 4], FLOAT)
    pumice.validate(source, [(x,)], context=context).raise_if_failed()
    report = pumice.validate(source, [(x,)], context=context, precision="fp16")
    (finding, *_) = found(report, "overflow")
    assert finding.node == "mul_3" and finding.number == pytest.approx(71204, rel=1e-3)
    assert "fp16 overflow: 71," in finding.text and "in float32 at node 'mul_3'" in finding.text
    if report.state == "wrong":  # without a tensor in between, the fused program stays in float32
        assert report.first_divergence is not None and report.first_divergence.node == "mul_3"


def test_what_makes_a_small_error_large_is_named_with_what_made_it(context: pumice.Context) -> None:
    nodes = [
        node("Exp", ["x"], ["e"], name="source"),
        node("MatMul", ["e", "w"], ["m"], name="plain"),
        node("Sub", ["m", "c"], ["d"], name="cancels"),
        node("Tanh", ["d"], ["t"]),
        node("Mul", ["t", "k"], ["y"]),
    ]
    w = np.eye(8, dtype=FLOAT)
    x = (RANDOM.uniform(0.9, 1, (4, 8))).astype(FLOAT)
    c = np.exp(x.astype(np.float16).astype(np.float64)).astype(np.float16).astype(FLOAT)
    source = model(nodes, [value("x", [4, 8])], constants={"w": w, "c": c, "k": np.array(3, FLOAT)})
    report = pumice.validate(source, [(x,)], context=context, precision="fp16")
    assert report.state != "wrong"
    amplified = found(report, "amplified")
    assert amplified and amplified[0].node == "cancels" and amplified[0].number > 8
    assert "source" in amplified[0].text
    assert found(report, "ill-conditioned")


def amplified_at_16_bits(context: pumice.Context, nodes: list[onnx.NodeProto], x: Array, **constants: Any) -> Any:
    source = model(nodes, [value("x", list(x.shape))], constants=constants)
    report = pumice.validate(source, [(x,)], context=context, precision="fp16")
    assert report.state != "wrong"
    return [(one.node, one.number, one.text) for one in found(report, "amplified")]


def test_a_threshold_that_turns_is_named_with_what_made_the_small_error(context: pumice.Context) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="source"),
        node("Greater", ["a", "k"], ["g"], name="threshold"),
        node("Where", ["g", "p", "q"], ["t"], name="takes"),
        node("Mul", ["t", "k"], ["y"], name="half"),
    ]
    x = np.linspace(0.4999, 0.5001, 32, dtype=FLOAT).reshape(4, 8)
    constants = {"w": np.eye(8, dtype=FLOAT), "k": FLOAT(0.5), "p": FLOAT(100), "q": FLOAT(-100)}
    ((named, number, text),) = amplified_at_16_bits(context, nodes, x, **constants)
    assert named == "threshold" and number == np.sum(x > 0.5)  # they all round to 0.5
    assert "(Greater) chooses otherwise at 16 of 32 places" in text and "of node 'source'" in text
    assert not amplified_at_16_bits(context, nodes, x * FLOAT(1.5), **constants)


def test_a_cast_to_rows_of_a_table_is_named_with_what_made_the_small_error(context: pumice.Context) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="source"),
        node("Cast", ["a"], ["i"], name="rows", to=TensorProto.INT64),
        node("Gather", ["table", "i"], ["y"], name="table"),
    ]
    table = normal(5000, 2)
    for ids, turned in (
        ([2049, 3001, 4003], 3),
        ([49, 301, 403], 0),
    ):  # float16 has only even numbers beyond 2,048
        told = amplified_at_16_bits(context, nodes, np.array([ids], FLOAT), w=np.eye(3, dtype=FLOAT), table=table)
        assert [(named, number) for named, number, _ in told] == ([("rows", turned)] if turned else [])
        assert all("of node 'source'" in text for _, _, text in told)


def test_full_cancellation_is_named_and_not_the_later_infinity(context: pumice.Context) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="far"),
        node("ReduceMean", ["a"], ["m"], name="mean", axes=[1]),
        node("Mul", ["a", "a"], ["s"], name="squares"),
        node("ReduceMean", ["s"], ["n"], name="mean of squares", axes=[1]),
        node("Mul", ["m", "m"], ["o"], name="square of mean"),
        node("Sub", ["n", "o"], ["v"], name="cancels"),
        node("Div", ["a", "v"], ["y"], name="divides"),
    ]
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(FLOAT) * FLOAT(0.3) + 100
    told = amplified_at_16_bits(context, nodes, x, w=np.eye(16, dtype=FLOAT))
    assert [named for named, _, _ in told] == ["cancels"]


def test_an_underflow_is_named_where_it_is(context: pumice.Context) -> None:
    """Nodes after the one that underflows have zeros too, but are not reported."""
    nodes = [
        node("Mul", ["x", "x"], ["a"], name="squares"),
        node("Neg", ["a"], ["b"], name="turns"),
        node("Mul", ["b", "k"], ["c"], name="grows"),
        node("Mul", ["c", "k"], ["y"], name="grows again"),
    ]
    x = np.array([1e-4, 1e-5, 2e-5, 3e-5], FLOAT)
    source = model(nodes, [value("x", [4])], constants={"k": FLOAT(100)})
    report = pumice.validate(source, [(x,)], context=context, precision="fp16")
    assert [(one.node, one.number) for one in found(report, "underflow")] == [("squares", 4)]


def test_a_zero_for_a_number_that_is_none_is_no_underflow() -> None:
    source = model([node("Log", ["x"], ["a"], name="log"), node("Mul", ["a", "a"], ["y"], name="square")])
    x = np.full((5, 4), -1, FLOAT)
    zeros = np.zeros_like(x)
    report = pumice.validate(source, [x], candidate=lambda inputs: {"a": zeros, "y": zeros})
    assert report.state == "wrong" and not found(report, "underflow")


def test_a_number_that_the_device_made_is_no_number(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["y"][2] = np.nan

    spoil(change)
    report = pumice.validate(model([node("Relu", ["x"])], [value("x", [4])]), [(normal(4),)], context=context)
    assert {finding.node for finding in found(report, "NaN made")} == {"relu.y"}


def test_choices_that_rounding_may_turn_are_counted(context: pumice.Context) -> None:
    """Far from the boundary the choices are exact."""
    nodes = [node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "k"], ["m"]), node("Round", ["m"], ["y"])]
    source = model(nodes, [value("x", [4])], constants={"k": np.array(7, FLOAT)})
    near = np.log(2.5 / 4.5)  # where 7 sigmoid(x) is 2.5
    report = pumice.validate(source, [(np.array([0.1, near, 1, -1], FLOAT),)], context=context)
    assert report.state == "right"
    assert sum(row.accumulated.undecided for row in report.rows if row.accumulated and row.op == "Round") == 1


def test_tolerances_of_single_nodes_and_outputs(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["y"][1] += FLOAT(0.25)

    spoil(change)
    source = model([node("Relu", ["x"])], [value("x", [4])])
    case = (np.abs(normal(4)),)
    for given, state in (({}, "wrong"), ({"relu.y": 0.3}, "right"), ({"y": 0.3}, "right"), ({"y": 0.2}, "wrong")):
        assert pumice.validate(source, [case], context=context, tolerances=given).state == state
    for wrong in ({"y": -1}, {"y": True}, {"y": "1"}):
        with pytest.raises(pumice.Error, match="tolerances"):
            pumice.validate(source, [case], context=context, tolerances=wrong)  # type: ignore[arg-type]


def test_modes_check_nodes_alone_or_from_the_inputs_on(context: pumice.Context) -> None:
    source = model([node("Exp", ["x"], ["e"]), node("Relu", ["e"], ["y"])], [value("x", [4])])
    case = (normal(4),)
    alone = pumice.validate(source, [case], context=context, mode="isolated")
    assert [row.op for row in alone.rows] == ["Exp", "Relu"] and all(row.accumulated is None for row in alone.rows)
    chained = pumice.validate(source, [case], context=context, mode="chained")
    assert [row.op for row in chained.rows] == ["Exp", "Relu", "output"] and all(
        row.local is None for row in chained.rows
    )
    for report in (alone, chained):
        report.raise_if_failed()
    with pytest.raises(pumice.Error, match="mode"):
        pumice.validate(source, [case], context=context, mode="guess")
    with pytest.raises(pumice.Error, match="allow_unchecked"):
        pumice.validate(source, [case], context=context, allow_unchecked="Relu")


def test_names_that_the_model_does_not_have_are_rejected(context: pumice.Context) -> None:
    source = model([node("Relu", ["x"])], [value("x", [4])])
    with pytest.raises(pumice.Error, match="tolerances.*'ghost'"):
        pumice.validate(source, [(normal(4),)], context=context, tolerances={"ghost": 1.0})
    with pytest.raises(pumice.Error, match="allow_unchecked: 'ghost'"):
        pumice.validate(source, [(normal(4),)], context=context, allow_unchecked=["ghost"])
    pumice.validate(source, [(normal(4),)], context=context, allow_unchecked=["Multinomial", "mine::Op", "y"])


@pytest.mark.parametrize(("gap", "state"), [(0.0, "unproved"), (0.5, "wrong")])
def test_an_output_behind_an_undecided_choice_is_unproved_where_it_differs(
    context: pumice.Context, spoil: Callable[..., None], gap: float, state: str
) -> None:
    """The fused program may have chosen differently; without an undecided choice, the output is wrong."""

    def change(results: dict[str, Any]) -> None:
        results["y"][:] = 1 - results["y"]

    nodes = [
        node("Exp", ["x"], ["e"]),
        node("ArgMax", ["e"], ["i"], axis=1, keepdims=0, name="choice"),
        node("Gather", ["table", "i"], ["y"]),
    ]
    table = np.array([[0.0], [1.0]], FLOAT)
    source = model(nodes, [value("x", [3, 2])], constants={"table": table})
    x = np.ones((3, 2), FLOAT)
    x[:, 1] = np.nextafter(x[:, 1], FLOAT(2)) + FLOAT(gap)
    assert pumice.validate(source, [(x,)], context=context).state == "right"
    spoil(change, kept=False)
    report = pumice.validate(source, [(x,)], context=context)
    assert report.state == state
    if state == "unproved":
        assert "depends on a choice of node 'choice'" in report.rows[-1].note


def test_values_are_let_go_after_their_last_reader(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    from pumice.validation.checker.model_validation import ModelValidation

    held: list[int] = []
    judge = ModelValidation._add_node_row

    def counted(self: ModelValidation, *judged: Any) -> None:
        held.append(sum(1 for one in self.isolated.values if one != "x"))
        judge(self, *judged)

    monkeypatch.setattr(ModelValidation, "_add_node_row", counted)
    names = ["x", *(f"t{i}" for i in range(12)), "y"]
    nodes = [node("Exp" if i % 2 else "Tanh", [a], [b]) for i, (a, b) in enumerate(itertools.pairwise(names))]
    pumice.validate(model(nodes, [value("x", [4])]), [(normal(4),)], context=context).raise_if_failed()
    assert len(held) == 13 and max(held) <= 2
