"""Operators that the importer replaces by other nodes are proved by their own rules or by those of these nodes."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_node_tests
import pumice
from process import python
from pumice.importer.rewrites.rewrite_table import CONTRIB, UPGRADES
from pumice.importer.translators.operator_table import TRANSLATORS
from recorded_models import RecordedModel, read_models

ROOT = Path(__file__).resolve().parents[2]
# Tests with one-node models of these operators; onnx's node tests have more.
SOURCES = (
    *(f"onnx/test_contrib_{name}.py" for name in ("operators", "attention", "quantized", "families")),
    *(f"onnx/test_{name}.py" for name in ("ml_nodes", "composed_nodes", "first_opsets")),
    *("operators/test_opset_versions.py::test_old_forms", "validation/test_contrib_rules.py"),
)
OPERATORS = sorted({*TRANSLATORS, *UPGRADES, *(f"com.microsoft::{name}" for name in CONTRIB)} - {"Loop", "Scan", "If"})
FIRST = 2  # models of an operator in the default tier
# Part of the reason for which a model is not proved.
REASONS = {
    "random numbers, which are not compared": {"Bernoulli", "Dropout", "Multinomial"},
    "BatchNormalization in training": {"BatchNormalization"},  # of opset 9, where it also depends on the running mean
    "beyond its range": {"CastLike"},  # ONNX leaves a cast beyond the range of a low-precision integer undefined
    "a choice that rounding may flip": {"ai.onnx.ml::SVMClassifier", "OneHot"},  # votes, with ties
    "no rule for pumice::PairwiseCoupling": {"ai.onnx.ml::SVMClassifier"},  # an iteration
    "no rule for pumice::TreeEnsemble": {"ai.onnx.ml::TreeEnsemble"},  # one kernel; older forms have a rule
    "BRANCH_NEQ of NaN": {"ai.onnx.ml::TreeEnsembleRegressor", "ai.onnx.ml::TreeEnsembleClassifier"},
    "nothing was checked": {"Split"},  # outputs without elements
}
# The same of any operator in fp16, where rounded inputs may flip a comparison or a code, or cancel in a divisor.
FP16_REASONS = (
    "a choice that rounding may flip",
    "undecided",
    "no finite bound",
    "trees of numbers that are not exact",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, plugin_arguments: list[str]) -> list[RecordedModel]:
    """The models with one node of the tests in SOURCES."""
    file = tmp_path_factory.mktemp("models") / "models.pickle"
    plugins = [*plugin_arguments, "-p", "recorded_models", "-p", "no:xdist", "-p", "no:cacheprovider"]
    tests = [str(ROOT / "tests" / source) for source in SOURCES]
    path = ":".join(map(str, (ROOT / "tests" / "support", ROOT / "tests", Path(pumice.__file__).parents[1])))
    done = python("-m", "pytest", *plugins, "--record", str(file), "-q", *tests, cwd=ROOT, seconds=900, PYTHONPATH=path)
    assert file.exists(), done.stdout + done.stderr
    return read_models(file)


@functools.cache
def node_tests() -> list[RecordedModel]:
    """Return onnx's node tests of one node whose inputs are tensors."""
    found = []
    for name, test in onnx_node_tests.all_tests().items():
        names = [item.name for item in test.model.graph.input]
        inputs = dict(zip(names, test.data_sets[0][0], strict=False)) if test.data_sets else {}
        arrays = {
            key: numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item
            for key, item in inputs.items()
        }
        if len(test.model.graph.node) == 1 and all(isinstance(item, np.ndarray) for item in arrays.values()):
            found.append(RecordedModel(test.model, arrays, name))
    return sorted(found, key=lambda item: item.test)


def is_rewritten(model: RecordedModel) -> bool:
    version = max((one.version for one in model.proto.opset_import if one.domain in ("", "ai.onnx")), default=1)
    if model.op in UPGRADES and model.op not in TRANSLATORS:
        return any(version < since for since, _ in UPGRADES[model.op])
    return True


def models_of(op: str, models: list[RecordedModel]) -> list[RecordedModel]:
    found = [one for one in [*models, *node_tests()] if one.op == op and is_rewritten(one)]
    if not found:
        pytest.skip("no test has a model of this operator alone")
    return found


def is_refused(model: RecordedModel, context: pumice.Context) -> bool:
    """Whether pumice rejects the model, as some tests expect."""
    try:
        pumice.load(model.proto, context)(**model.inputs)
    except pumice.Error:
        return True
    return False


def check(model: RecordedModel, context: pumice.Context, precision: str = "fp32") -> bool:
    """Return whether the model is proved. Fail if it is called wrong, or unproved for a reason that is not in REASONS."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = pumice.validate(
            model.proto, [model.inputs], context=context, precision=precision, allow_ill_conditioned=True
        )
    if report.state == "right":
        return True
    assert report.first_divergence is None, f"{model.test}: {report.summary}"
    notes = " ".join(row.note for row in report.rows)
    notes += report.summary
    reasons = [reason for reason, ops in REASONS.items() if model.op in ops] + [*FP16_REASONS] * (precision == "fp16")
    assert any(reason in notes for reason in reasons), f"{model.test}: {notes}"
    return False


def with_a_fault(result: Any) -> Any:
    """Return a result with one wrong element; None if it is not a tensor of numbers."""
    array = np.array(result)
    if not isinstance(result, np.ndarray) or not array.size or array.dtype.kind not in "fiub":
        return None
    middle = array.size // 2
    if array.dtype.kind == "f":
        array.flat[middle] += np.asarray(0.01 + 0.02 * np.abs(array[np.isfinite(array)]).max(initial=0), array.dtype)
    else:
        array.flat[middle] = not array.flat[middle] if array.dtype == bool else array.flat[middle] ^ 8
    return array


def check_fault(model: RecordedModel, context: pumice.Context) -> None:
    """Check that the model is called wrong if its results are compared with a wrong one."""
    with pumice.load(model.proto, context) as loaded:
        made = loaded(**model.inputs)
        names = [output.name for output in loaded.outputs]
    for name, result in zip(names, [made] if len(names) == 1 else made, strict=True):
        if (wrong := with_a_fault(result)) is not None:
            report = pumice.validate(model.proto, [model.inputs], context=context, reference={name: wrong})
            assert report.state == "wrong", f"{model.test}: {report.summary}"


@pytest.mark.parametrize("op", OPERATORS)
def test_an_operator_is_proved_and_a_fault_is_found(
    op: str, models: list[RecordedModel], context: pumice.Context
) -> None:
    proved = [model for model in models_of(op, models)[:FIRST] if check(model, context)]
    if proved:
        check_fault(proved[0], context)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("op", OPERATORS)
def test_every_model_of_an_operator_is_proved(
    op: str, precision: str, models: list[RecordedModel], context: pumice.Context
) -> None:
    for model in models_of(op, models):
        if not is_refused(model, context):
            check(model, context, precision)
