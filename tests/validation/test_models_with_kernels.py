"""Models whose nodes run user kernels: validation, repeated runs and tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from custom_models import SOFTCAP, X
from pumice import dv
from pumice.validation.checker.model_validation import ModelValidation
from pumice.validation.checker.options import ValidationOptions
from pumice.validation.reference.subgraph_extraction import compute_expected_results
from pumice.validation.report.repeat_results import ResultTallies
from pumice.validation.search.repeatability import RepeatedRuns
from pumice.validation.validate import Reduction

WRONG = SOFTCAP.replace("tanh(float", "sin(float")
SAME = "float64, and another run"


def proto(shape: Any = ("n", 3)) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Softcap", ["r"], ["s"], "cap_it", domain="my.domain"),
        helper.make_node("Exp", ["s"], ["y"], "exp"),
    ]
    inputs, outputs = ([value(name, TensorProto.FLOAT, shape)] for name in "xy")
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(helper.make_graph(nodes, "capped", inputs, outputs), opset_imports=sets, ir_version=8)


def kernels(text: str = SOFTCAP, cap: float = 2.0, **options: Any) -> dict[str, pumice.KernelOperator]:
    given = {"numbers": {"cap": lambda: cap}, "reference": lambda x: cap * np.tanh(x / cap), **options}
    return {"my.domain::Softcap": pumice.kernel_operator(text, **given)}


def loaded(context: pumice.Context, *given: Any, precision: str = "fp32", **options: Any) -> pumice.Model:
    return pumice.load(proto(), context, precision, kernels=kernels(*given, **options))


@pytest.mark.parametrize("other", [(WRONG,), (SOFTCAP, 2.5)])
def test_other_kernels_are_another_program(context: pumice.Context, other: tuple[Any, ...]) -> None:
    """Kernels with other source, or with another rule that differs only in its closure."""
    with loaded(context) as one, loaded(context) as same, loaded(context, *other) as changed:
        assert pumice.validate(one, [X], reference=same, progress=None).reference == SAME
        report = pumice.validate(one, [X], reference=changed, progress=None)
        assert report.reference != SAME and not report.ok
        first = report.first_divergence
        assert first is not None and first.node == "cap_it"


def test_a_candidate_is_checked_beside_a_program_with_the_kernels(context: pumice.Context) -> None:
    def right(inputs: dict[str, Any]) -> Any:
        return np.exp(2 * np.tanh(np.maximum(inputs["x"], 0) / 2)).astype("float32")

    with loaded(context) as one:
        report = pumice.validate(one, [X], candidate=right, reference=context, progress=None)
        assert report.ok, report.summary
        wrong = pumice.validate(one, [X], candidate=lambda inputs: right(inputs) * 1.1, reference=context)
        assert not wrong.ok


def test_trials_of_other_kernels_are_not_taken_up(context: pumice.Context, tmp_path: Path) -> None:
    def tuned(*given: Any) -> int:
        with loaded(context, *given) as one:
            pumice.tune_precision(one, [X], folder=tmp_path, progress=False)
        return len([*tmp_path.glob("trials-*.json")])

    assert [tuned(), tuned(), tuned(WRONG), tuned(SOFTCAP, 2.5)] == [1, 1, 2, 3]


def test_a_node_that_differs_is_repeated_alone(context: pumice.Context) -> None:
    with loaded(context) as one:
        proof = ModelValidation(one, ValidationOptions({}, frozenset(), "both", repeat=2))
        repeats, kept = RepeatedRuns(proof), ResultTallies()
        kept.add("", {"r": np.maximum(X, 0), "s": np.zeros_like(X)})
        what = "node 'cap_it' alone, with waits around it"
        assert repeats._try_variant(what, {"x": X}, kept, "cap_it", 0.9).startswith("the same bits in 2 runs")
        repeats.close()
        proof.close()


def test_submodels_have_the_results_of_the_references(context: pumice.Context) -> None:
    with loaded(context, WRONG) as one:
        made = pumice.reduce(one, [X])
        assert isinstance(made, Reduction) and set(made.expected) == {"s"}
        given = next(iter(made.inputs.values()))
        np.testing.assert_allclose(made.expected["s"], 2 * np.tanh(given / 2), rtol=1e-6)
        explained = pumice.validate(one, [X], progress=None).explain()
        assert set(explained.expected) == {"s"}
        assert not compute_expected_results(explained.part, "fp32"), "without the table there is no rule"


def test_the_dv_interface_names_the_operator_that_it_lacks(context: pumice.Context) -> None:
    said = "node 'cap_it': my.domain::Softcap: no such operator"
    made = pumice.load(proto((1, 3, 8, 8)), context, kernels=kernels())
    with made as one, pytest.raises(pumice.UnsupportedError, match=said):
        dv.from_graph(one)
