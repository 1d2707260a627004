"""Exported models of the corpus, with results confirmed by ONNX Runtime: none is reported wrong, at any precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import false_alarms
import pumice
from corpus import store
from corpus.case import arrays
from onnx_models import model, node, value
from pumice.validation.checker import model_validation
from pumice.validation.reference.reference_model import ReferenceNode
from pumice.validation.report.deviation import compare_tensor
from pumice.validation.rules.bounded_tensor import BoundedTensor

REFUSED = ("sklearn_dictionaries",)
SAMPLE = (
    "attended_gru.dynamo",
    "bert.script",
    "best_anchors.script",
    "detr_fixed.fp16",
    "anchors.qdq_int8",
    "resnet.qdq_int8",
    "sklearn_boosting_classes",
    "sklearn_logistic",
    "vit.fp16",
)
GRIDS = ("grid_sample", "spatial_transformer")
TIGHT = ("bert.script", "resnet.script", "swin.script", "whisper_decoder.script")


def names() -> Iterator[Any]:
    for name in store.names():
        if name not in REFUSED:
            yield pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.slow])


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", list(names()))
def test_nothing_right_is_called_wrong(name: str, precision: str, context: pumice.Context) -> None:
    if name == "script_newton" and precision != "fp32":
        pytest.skip("its loop ends at a precision that 16 bits do not have: test_endless_loops")
    stored = store.load(name)
    cases = [arrays(stored.inputs, sizes) for sizes in stored.sizes]
    report = pumice.validate(stored.model, cases, context=context, precision=precision)
    assert report.first_divergence is None, report.summary
    # Rounding errors change int8 values by whole steps, and bf16 coordinates by a tenth of a pixel.
    ill_conditioned = name.endswith(("qdq_int8", "dynamic_int8")) or (precision == "bf16" and name.startswith(GRIDS))
    assert ill_conditioned or not [row.note for row in report.rows if row.verdict == "ill-conditioned"]
    proved = sum(row.verdict == "right" for row in report.rows)
    few = ill_conditioned or name.startswith(("sklearn_", "script_"))  # tree models, loops with computed trip counts
    assert proved >= 0.9 * len(report.rows) or few, report.summary


@pytest.mark.parametrize("seed", range(20))
def test_random_right_models_have_no_wrong_verdict(seed: int, context: pumice.Context) -> None:
    """One precision per seed. tests/false_alarms.py runs a thousand seeds in all three, ONNX's node tests and the whole corpus."""
    precision = false_alarms.PRECISIONS[seed % len(false_alarms.PRECISIONS)]
    (line,) = false_alarms.results_of("random", str(seed), [precision], context)
    assert line["state"] in ("right", "unproved", "refused"), line
    assert not line.get("wrong"), line


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_eight_units_in_one_element_are_found_in_95_of_100_nodes(
    precision: str, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 ULP of the storage type, at a random element."""
    random = np.random.default_rng(3)
    found: list[bool] = []
    near = model_validation.ModelValidation._compare_isolated

    def spoilt(
        self: model_validation.ModelValidation, node: ReferenceNode, name: str, actual: Any, expected: Any
    ) -> Any:
        if isinstance(expected, BoundedTensor) and expected.is_float and actual.dtype == np.float32:
            places = np.flatnonzero(np.isfinite(actual) & (actual != 0))
            if places.size:
                kept = self.types.get_storage_type(actual.dtype)
                changed, at = actual.copy(), random.choice(places)
                unit = 2 * kept.unit * 2.0 ** np.floor(np.log2(abs(float(changed.flat[at]))))
                changed.flat[at] += 8 * max(unit, kept.step)
                found.append(not compare_tensor(changed, expected, self.types).ok)
        return near(self, node, name, actual, expected)

    monkeypatch.setattr(model_validation.ModelValidation, "_compare_isolated", spoilt)
    for name in TIGHT:
        stored = store.load(name)
        case = arrays(stored.inputs, stored.sizes[0])
        assert pumice.validate(stored.model, [case], context=context, precision=precision).ok
    assert len(found) > 400
    assert np.mean(found) >= 0.95


def test_in_fp32_eight_units_are_found_where_no_right_element_is_as_far_off(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right sums themselves differ from the exact ones by 8 ULP and more: there, 8 ULP do not indicate a fault."""
    random = np.random.default_rng(3)
    found: dict[bool, list[bool]] = {True: [], False: []}  # key: whether a right element is as far off
    near = model_validation.ModelValidation._compare_isolated

    def spoilt(
        self: model_validation.ModelValidation, node: ReferenceNode, name: str, actual: Any, expected: Any
    ) -> Any:
        if isinstance(expected, BoundedTensor) and expected.is_float and actual.dtype == np.float32:
            places = np.flatnonzero(np.isfinite(actual) & (actual != 0))
            if places.size:
                units = 2.0 ** (np.floor(np.log2(np.abs(actual.flat[places].astype(np.float64)))) - 20)  # 8 of 2^-23
                own = np.abs(actual.flat[places].astype(np.float64) - expected.value.flat[places])
                changed, k = actual.copy(), random.integers(len(places))
                with np.errstate(over="ignore"):
                    changed.flat[places[k]] += units[k]
                found[bool((own >= units).any())].append(not compare_tensor(changed, expected, self.types).ok)
        return near(self, node, name, actual, expected)

    monkeypatch.setattr(model_validation.ModelValidation, "_compare_isolated", spoilt)
    for name in TIGHT:
        stored = store.load(name)
        case = arrays(stored.inputs, stored.sizes[0])
        assert pumice.validate(stored.model, [case], context=context, mode="isolated").ok
    assert len(found[True]) + len(found[False]) > 400
    assert len(found[False]) > 300
    assert np.mean(found[False]) >= 0.95


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("op", ["Exp", "Mul", "Pow", "Reciprocal", "ReduceSumSquare", "MatMul", "Gelu", "Sinh"])
def test_inputs_are_rounded_beside_nodes_that_read_them_in_float32(
    op: str, precision: str, context: pumice.Context
) -> None:
    """A Cast to integers reads its input unrounded, so that no input counts as rounded; results that overflow stay float32."""
    random = np.random.default_rng(0)
    second = {"Mul": ["x"], "Pow": ["x"], "MatMul": ["t"]}.get(op, [])
    nodes = [node(op, ["x", *second], ["y"]), node("Cast", ["z"], ["w"], to=6)]
    if op == "MatMul":
        nodes.insert(0, node("Transpose", ["x"], ["t"], perm=[1, 0]))
    made = model(nodes, [value("x", [13, 17]), value("z", [40])], ["y", "w"])
    inputs = {
        "x": random.uniform(0.5, 4, (13, 17)).astype(np.float32),
        "z": random.uniform(-100, 100, 40).astype(np.float32),
    }
    report = pumice.validate(made, [inputs], context=context, precision=precision, allow_ill_conditioned=True)
    assert [row.node for row in report.rows if row.verdict == "wrong"] == []
