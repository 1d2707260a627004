"""References other than the float64 rules: what they decide, what is left to the rules, and what they do not prove."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import cast_at_boundaries, gemm, model, node, value
from pumice.validation.reference import reference_model
from pumice.validation.rules.bounded_tensor import RULES, BoundedTensor, OperatorCall, UndecidedError
from pumice.validation.rules.float_types import DeclaredTypes, ProgramTypes

FLOAT = np.float32
Array = np.ndarray[Any, Any]
DIGITS = Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx"
IMAGES = np.random.default_rng(0).random((3, 1, 8, 8)).astype(FLOAT)
X = np.random.default_rng(2).standard_normal((5, 4)).astype(FLOAT)


def judged(context: pumice.Context, reference: Any, **options: Any) -> pumice.ValidationReport:
    return pumice.validate(DIGITS, [IMAGES], context=context, reference=reference, **options)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("reference", ["float64", "onnx", "onnxruntime", "run", "fp32", "fp16", "bf16"])
def test_a_right_model_is_right_beside_every_reference(context: pumice.Context, reference: str, precision: str) -> None:
    if reference == "onnxruntime":
        pytest.importorskip("onnxruntime")
    report = judged(context, reference, precision=precision)
    assert report.ok, report.summary
    assert not report.unchecked
    assert len(report.rows) == 11
    assert (report.reference == "float64") == (reference == "float64")
    assert report.as_dict()["reference"] == report.reference


@pytest.mark.parametrize("reference", ["onnx", "onnxruntime", "fp16"])
def test_a_wrong_node_is_found_beside_other_references(
    context: pumice.Context, spoil: Callable[..., None], reference: str
) -> None:
    if reference == "onnxruntime":
        pytest.importorskip("onnxruntime")

    def change(results: dict[str, Any]) -> None:
        results["sum"][2, 1] += 0.5

    spoil(change)
    report = pumice.validate(gemm(), [X], context=context, reference=reference)
    first = report.first_divergence
    assert first is not None
    assert (first.node, (first.local is None)) == ("gemm.sum", reference == "fp16")
    assert first.deviation is not None
    assert first.deviation.at == (2, 1)


def stored(dtype: str = "float32") -> dict[str, Array]:
    """Return every tensor of the digits model, computed by onnx's reference in the given dtype."""
    evaluator = onnx.reference.ReferenceEvaluator(str(DIGITS))
    made: dict[str, Array] = {"image": IMAGES, **evaluator.rt_inits_}
    made = {name: array.astype(dtype) if array.dtype == FLOAT else array for name, array in made.items()}
    for one in evaluator.rt_nodes_:
        made.update(zip(one.output, one.run(*[made[name] for name in one.input]), strict=True))
    return {name: made[name] for one in evaluator.rt_nodes_ for name in one.output}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stored_tensors_check(context: pumice.Context, tmp_path: Path, dtype: str) -> None:
    right = stored(dtype)
    assert {str(array.dtype) for array in right.values()} == {dtype}
    np.savez(tmp_path / "right.npz", **right)
    for reference in (right, str(tmp_path / "right.npz"), tmp_path / "right.npz", [right]):
        report = judged(context, reference)
        assert report.ok, report.summary
        assert all(row.local is None for row in report.rows)
    wrong = judged(context, {**right, "fc1": right["fc1"] + 0.01})
    assert wrong.first_divergence is not None
    assert wrong.first_divergence.node == "fc1"
    assert [row.node for row in wrong.rows if not row.ok] == ["fc1"]


def test_stored_outputs_alone_leave_the_nodes_to_the_rules(context: pumice.Context) -> None:
    only = {"probabilities": stored()["probabilities"]}
    assert judged(context, only).ok
    report = judged(context, {"probabilities": only["probabilities"] + FLOAT(0.1)})
    assert {row.node for row in report.rows if not row.ok} == {"probabilities"}


def test_another_device_is_a_reference(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as other, pumice.load(DIGITS, other, "fp16") as loaded:
        report = judged(context, loaded)
        assert report.ok, report.summary
        assert report.reference == f"{other.info.name}, fp16"
        assert judged(loaded.context, "fp32", precision="fp16").reference == f"{other.info.name}, fp32"


def test_the_same_program_proves_nothing(context: pumice.Context, spoil: Callable[..., None]) -> None:
    """A program's own results are no reference, under any name: a fault in both is still found."""

    def change(results: dict[str, Any]) -> None:
        results["sum"][2, 1] += 0.5

    spoil(change)
    with pumice.load(gemm().SerializeToString(), context) as loaded, pumice.load(gemm(), context) as again:
        for reference in ("run", "fp32", context, f"uuid:{context.info.uuid}", loaded, again):
            report = pumice.validate(loaded, [X], reference=reference)
            assert report.reference == "float64, and another run"
            assert report.first_divergence is not None
            assert report.first_divergence.node == "gemm.sum"


def test_a_policy_by_node_is_kept_on_another_device_and_is_no_reference_of_another(context: pumice.Context) -> None:
    policy = {"default": "fp16", "fc1": "fp32"}
    with pumice.load(DIGITS, context, policy) as mixed:
        assert pumice.validate(mixed, [IMAGES], reference=context).reference == "float64, and another run"
        assert pumice.validate(mixed, [IMAGES], reference=mixed).reference == "float64, and another run"
        report = pumice.validate(mixed, [IMAGES], reference="fp16")
        assert report.reference == f"{context.info.name}, fp16"
        assert report.ok, report.summary
        with pytest.raises(pumice.base.errors.InputError, match="with 1 nodes in fp32"):
            judged(context, mixed)


def test_other_bits_in_another_run_are_a_finding_and_no_fault(
    context: pumice.Context, spoil: Callable[..., None]
) -> None:
    calls = []

    def change(results: dict[str, Any]) -> None:
        calls.append(results)
        if len(calls) == 2:
            results["sum"][2, 1] = np.nextafter(results["sum"][2, 1], FLOAT(np.inf))

    spoil(change)
    report = pumice.validate(gemm(), [X], context=context, reference="run", allow_nondeterministic=True)
    assert report.ok, report.summary
    assert [(one.kind, one.node, one.number) for one in report.findings] == [("not deterministic", "gemm.sum", 1)]


def test_another_run_proves_no_random_numbers(context: pumice.Context) -> None:
    made = model([node("RandomNormalLike", ["x"], ["r"], name="draw"), node("Add", ["x", "r"], name="add")])
    report = pumice.validate(made, [X], context=context, reference="run")
    assert report.state == "unproved"
    assert next(row for row in report.rows if row.node == "draw").verdict == "unproved"


def test_floats_of_a_wider_type_than_they_were_computed_in_are_reported(context: pumice.Context) -> None:
    wide = {name: array.astype(np.float64) for name, array in stored().items()}
    first = judged(context, wide).first_divergence
    assert first is not None
    assert "stored tensors differs from the rules" in first.fault


def test_two_that_are_wrong_alike_are_not_right(context: pumice.Context, spoil: Callable[..., None]) -> None:
    """Stored results of the faulty program do not hide its fault: they exceed the bounds of the rules."""

    def change(results: dict[str, Any]) -> None:
        results["sum"][2, 1] += 0.5
        results["y"][:] = np.maximum(results["sum"], 0)

    spoil(change)
    right = onnx.reference.ReferenceEvaluator(gemm()).run(None, {"x": X})
    own = dict(zip(("y", "sum"), (array.copy() for array in right), strict=True))
    change(own)
    report = pumice.validate(gemm(), [X], context=context, reference=own)
    first = report.first_divergence
    assert first is not None
    assert first.node == "gemm.sum"
    assert "stored tensors differs from the rules by 0.5 at [2, 1]" in first.fault
    assert next(one for one in report.findings if one.node == "gemm.sum").kind == "reference apart"


def test_a_runtime_is_no_reference_of_itself() -> None:
    pytest.importorskip("onnxruntime")
    sound = pumice.onnxruntime_candidate(DIGITS)
    assert pumice.validate(DIGITS, [IMAGES], candidate=sound, reference="onnxruntime").ok
    wrong = sound({"image": IMAGES})
    wrong["fc1"] = wrong["fc1"] + FLOAT(0.01)
    report = pumice.validate(DIGITS, [IMAGES], candidate=lambda inputs: dict(wrong), reference=wrong)
    assert report.first_divergence is not None
    assert report.first_divergence.node == "fc1"


# ---- operators without a rule


def words() -> onnx.ModelProto:
    """Return a model with TfIdfVectorizer, which has no rule in these tests, and a sum of its counts."""
    counts = node(
        "TfIdfVectorizer",
        ["ids"],
        ["c"],
        name="counts",
        max_gram_length=1,
        min_gram_length=1,
        max_skip_count=0,
        mode="TF",
        ngram_counts=[0],
        ngram_indexes=[0, 1, 2],
        pool_int64s=[2, 3, 5],
    )
    return model([counts, node("Neg", ["c"], ["y"], name="neg")], [value("ids", [2, 6], TensorProto.INT64)])


IDS = np.array([[2, 3, 3, 5, 5, 5], [2, 2, 2, 9, 9, 3]])


def count(attributes: dict[str, Any], inputs: list[Array]) -> Array:
    return np.array([[np.sum(row == word) for word in attributes["pool_int64s"]] for row in inputs[0]], np.float64)


@pytest.fixture
def no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the rule of TfIdfVectorizer, and the nodes that replace it."""
    monkeypatch.delitem(RULES, "TfIdfVectorizer")
    monkeypatch.setattr(reference_model, "import_node", lambda *_: None)


@pytest.mark.usefixtures("no_rule")
def test_a_function_of_the_callers_judges_its_operator(context: pumice.Context) -> None:
    assert pumice.validate(words(), [IDS], context=context).state == "unproved"
    report = pumice.validate(words(), [IDS], context=context, reference={"TfIdfVectorizer": count})
    assert report.state == "right", report.summary
    for result in (lambda a, i: count(a, i) + 0.25, lambda a, i: (count(a, i) + 0.25, 0.125)):
        report = pumice.validate(words(), [IDS], context=context, reference={"TfIdfVectorizer": result})
        assert report.first_divergence is not None
        assert report.first_divergence.node == "counts"
    wide = {"TfIdfVectorizer": lambda a, i: (count(a, i) + 0.25, np.full((2, 3), 0.25))}
    report = pumice.validate(words(), [IDS], context=context, reference=wide, mode="isolated")
    assert next(row for row in report.rows if row.node == "counts").verdict == "right"


def test_a_function_replaces_a_rule(context: pumice.Context) -> None:
    assert judged(context, {"Relu": lambda a, i: np.maximum(i[0], 0)}).ok
    report = judged(context, {"Relu": lambda a, i: np.maximum(i[0], 0.01)})
    assert report.first_divergence is not None
    assert report.first_divergence.node == "relu1"


def fails(attributes: dict[str, Any], inputs: list[Array]) -> Array:
    raise RuntimeError("no such table")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (fails, "fails: RuntimeError: no such table"),
        (lambda a, i: [i[0], i[0]], "expected 1 outputs, given 2"),
        (lambda a, i: (i[0], -1.0), "a negative bound"),
        (lambda a, i: None, "does not return a tensor"),
    ],
)
def test_a_function_that_fails_proves_nothing(context: pumice.Context, function: Callable[..., Any], text: str) -> None:
    report = pumice.validate(gemm(), [X], context=context, reference={"Relu": function})
    assert report.state == "unproved"
    assert text in report.summary


@pytest.mark.usefixtures("no_rule")
@pytest.mark.parametrize("reference", ["onnx", "onnxruntime"])
def test_a_runtime_judges_what_has_no_rule_by_a_tolerance_alone(context: pumice.Context, reference: str) -> None:
    if reference == "onnxruntime":
        pytest.importorskip("onnxruntime")
    plain = pumice.validate(words(), [IDS], context=context, reference=reference)
    assert plain.state == "unproved", plain.summary
    for name in ("counts", "c"):
        report = pumice.validate(words(), [IDS], context=context, reference=reference, tolerances={name: 1e-6})
        assert report.state == "right", report.summary


def test_a_node_that_onnx_cannot_run_is_checked_by_the_rules(context: pumice.Context) -> None:
    """onnx's reference lacks operators of other domains, and the report names them."""
    made = model([helper.make_node("QuickGelu", ["x"], ["y"], name="gelu", domain="com.microsoft")])
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    report = pumice.validate(made, [X], context=context, reference="onnx")
    assert report.ok, report.summary
    assert "by the rules, not by onnx" in report.rows[0].note


def test_batch_normalization_of_old_sets_is_not_accused(context: pumice.Context) -> None:
    names = ["x", "s", "b", "m", "v"]
    numbers = {name: np.linspace(0.5, 1.5, 4).astype(FLOAT) for name in names[1:]}
    made = model([node("BatchNormalization", names)], constants=numbers, opset=9)
    for reference in ("onnx", "float64"):
        report = pumice.validate(made, [X], context=context, reference=reference)
        assert report.ok, report.summary


def test_a_choice_that_two_references_make_otherwise_is_no_fault(context: pumice.Context) -> None:
    """Nodes after an undecided Round are checked with the device's choice, not with the other precision's."""
    made, x = cast_at_boundaries()
    for reference in ("fp16", "fp32", "onnx"):
        for precision in ("fp32", "fp16"):
            report = pumice.validate(made, [x], context=context, reference=reference, precision=precision)
            assert report.first_divergence is None, f"{reference}, {precision}: {report.summary}"


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        (3, "reference: expected 'float64'"),
        ({}, "given none or other objects"),
        ("ghost.npz", "expected an .npz file"),
        ({"ghost": X}, "no node of the model makes a tensor 'ghost'"),
        ([{"y": X}, {"y": X}], "stored tensors of 1 cases, given those of 2"),
        ({"Ghost": count}, "the model has no operator 'Ghost'"),
        ({"Gemm": count, "y": X}, "given none or other objects"),
    ],
)
def test_a_reference_that_does_not_fit_is_rejected(context: pumice.Context, reference: Any, text: str) -> None:
    with pytest.raises(pumice.base.errors.InputError, match=text):
        pumice.validate(gemm(), [X], context=context, reference=reference)


def test_what_has_no_nodes_by_themselves_rejects_that_mode(context: pumice.Context) -> None:
    for reference in ("fp16", {"y": np.zeros((5, 3), FLOAT)}):
        with pytest.raises(pumice.base.errors.InputError, match="expected 'chained' or 'both'"):
            pumice.validate(gemm(), [X], context=context, reference=reference, mode="isolated")


def test_onnx_runtime_is_asked_for_by_name(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(pumice.base.errors.InputError, match="pip install onnxruntime"):
        pumice.validate(gemm(), [X], context=context, reference="onnxruntime")


def test_declared_types_store_what_is_declared() -> None:
    declared, narrow = DeclaredTypes(), DeclaredTypes(low_precision=True).with_independent_errors()
    assert [declared.get_storage_type(name).name for name in ("float16", "float32", "float64")] == [
        "float16",
        "float32",
        "float64",
    ]
    assert (declared.get_accumulation_type("float16").name, narrow.get_accumulation_type("float16").name) == (
        "float32",
        "float16",
    )
    assert narrow.independent_errors
    assert not declared.independent_errors
    assert (
        ProgramTypes("fp16", accumulation="fp16").with_independent_errors().get_accumulation_type("float32").name
        == "float16"
    )


def pooled_regions() -> onnx.ModelProto:
    """Return MaxRoiPool with computed regions whose borders lie between two elements."""
    nodes = [
        node("Mul", ["rois", "one"], ["r"]),
        node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 2], spatial_scale=1.0),
    ]
    inputs = [value("x", [1, 1, 8, 8], TensorProto.FLOAT16), value("rois", [1, 5], TensorProto.FLOAT16)]
    return model(nodes, inputs, constants={"one": np.float16(1)})


@pytest.mark.parametrize("reference", [None, "onnx", "onnxruntime"])
def test_a_kernel_of_one_node_is_checked_where_the_node_is_not(context: pumice.Context, reference: str | None) -> None:
    """An fp16 tensor is known to within its rounding, which may cross a border; the kernel reads the program's unrounded value."""
    if reference == "onnxruntime":
        pytest.importorskip("onnxruntime")
    x = np.arange(64).reshape(1, 1, 8, 8).astype(np.float16)
    rois = np.array([[0, 0.5, 0.5, 4.5, 4.5]], np.float16)
    report = pumice.validate(pooled_regions(), [(x, rois)], context=context, reference=reference)
    node_row = next(row for row in report.rows if row.op == "MaxRoiPool")
    assert (node_row.verdict, "between two elements" in node_row.note) == ("unproved", True)
    kernel = next(row for row in report.kernels if row.op == "MaxRoiPool")
    assert kernel.members == (node_row.node,)
    assert (kernel.verdict, kernel.local is not None) == ("right", True)


@pytest.mark.parametrize("reference", [None, "onnx", "onnxruntime"])
def test_a_kernel_that_no_rule_judges_says_why(context: pumice.Context, reference: str | None) -> None:
    if reference == "onnxruntime":
        pytest.importorskip("onnxruntime")
    noise = model([node("RandomUniformLike", ["x"], ["r"]), node("Exp", ["r"], ["y"])], [value("x", [2, 4])])
    report = pumice.validate(noise, [(np.ones((2, 4), FLOAT),)], context=context, reference=reference)
    notes = [row.note for row in report.kernels if row.verdict == "unproved"]
    assert notes == ["random numbers, which are not compared"]


@pytest.mark.parametrize("border", [0.5, 0.5001, 0.4999])
def test_a_border_that_an_error_may_carry_over_is_undecided(border: float) -> None:
    x = BoundedTensor(np.arange(64.0).reshape(1, 1, 8, 8), None, FLOAT)
    rois = np.array([[0, border, border, 4, 4]])
    attributes = {"pooled_shape": [2, 2], "spatial_scale": 1.0}
    exact = OperatorCall("MaxRoiPool", [x, BoundedTensor(rois, None, FLOAT)], attributes)
    assert RULES["MaxRoiPool"](exact)
    with pytest.raises(UndecidedError, match="between two elements"):
        RULES["MaxRoiPool"](
            OperatorCall("MaxRoiPool", [x, BoundedTensor(rois, np.full(rois.shape, 1e-3), FLOAT)], attributes)
        )
    if border != 0.5:
        assert RULES["MaxRoiPool"](
            OperatorCall("MaxRoiPool", [x, BoundedTensor(rois, np.full(rois.shape, 1e-5), FLOAT)], attributes)
        )
