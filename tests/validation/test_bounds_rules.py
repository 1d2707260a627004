"""Every rule against the stored results of ONNX's own operator tests."""

from __future__ import annotations

import functools
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.report.deviation import compare_tensor
from pumice.validation.rules import function_bodies
from pumice.validation.rules.bounded_tensor import RULES, BoundedTensor, UnprovedError
from pumice.validation.rules.float_types import ProgramTypes
from pumice.validation.rules.function_bodies import has_function_body
from pumice.validation.rules.program_values import make_bounded_input

# Their stored results are rounded to a few digits, or were computed in fp16 throughout.
ROUNDED = (
    "test_averagepool_2d_ceil_last_window_starts_on_pad",
    "test_gridsample_bicubic",
    "test_roialign_aligned_false",
    "test_roialign_aligned_true",
)
OF_NO_USE = ("string", "expanded", "training_dropout", "bernoulli", "label_encoder")


@functools.cache
def cases() -> dict[str, list[Any]]:
    """Return ONNX's node tests by operator."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, list[Any]] = {}
        for case in collect_testcases(None):
            (*_, node) = case.model.graph.node
            if len(case.model.graph.node) == 1 and not any(word in case.name for word in OF_NO_USE):
                found.setdefault(f"{node.domain}::{node.op_type}" if node.domain else node.op_type, []).append(case)
    return found


def array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def is_computed_in_halves(case: Any) -> bool:
    half = any(str(getattr(array(one), "dtype", "")) in ("float16", "bfloat16") for one in case.data_sets[0][0])
    return half or case.name in ROUNDED or "softmax_precision" in case.name


def compared(case: Any) -> int:
    """Return how many results of a case were checked; all have to be right. Raise Unproved if there is no rule."""
    types = ProgramTypes("fp32")
    opsets = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in case.model.opset_import}
    count = 0
    for inputs, outputs in case.data_sets:
        arrays = [array(one) for one in inputs]
        if any(str(getattr(one, "dtype", "")) == "object" for one in arrays):
            raise UnprovedError("strings")
        results = RuleRunner(opsets, types).run_graph(
            case.model.graph, [make_bounded_input(one, types) for one in arrays], {}
        )
        for result, stored in zip(results, outputs, strict=False):
            if isinstance(result, BoundedTensor):
                found = compare_tensor(np.asarray(array(stored)), result, types)
                assert found.ok, f"{case.name}: {found}"
                count += 1
    return count


RANDOM = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def test_every_operator_has_a_rule_or_a_function() -> None:
    """An operator that becomes other nodes needs none: test_rewritten_operators.py."""
    import pumice

    rows = [row for row in pumice.operators() if row.skeleton != "composed" and row.domain.startswith("ai.onnx")]
    own = {row.name for row in rows} - {"Constant", *RANDOM, *RULES}
    assert not {name for name in own if not has_function_body(*name.split("::")[::-1])}


def test_a_definition_in_the_table_bounds_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes have their defaults, and an omitted input is omitted in the definition's nodes."""
    (x, axes), y = (SimpleNamespace(name=name) for name in ("x", "axes")), SimpleNamespace(name="y")
    alpha = SimpleNamespace(name="alpha", default=0.5)
    text = "c = Constant <value_float: float = @alpha> () a = Mul (x, c) t = Tanh (a) y = ReduceSum <keepdims = 0> (t, axes)"
    row = SimpleNamespace(inputs=[x, axes], outputs=[y], attributes=[alpha], definition=text)
    monkeypatch.setattr(function_bodies, "_get_defined_rows", lambda: {"pumice::SumOfTanh": row})
    array = np.linspace(-2, 2, 15, dtype=np.float32).reshape(3, 5)
    inputs = {"x": array, "axes": np.array([1])}
    for attributes, names in (({}, ["x"]), ({"alpha": 1.5}, ["x", "axes"])):
        made = helper.make_node("SumOfTanh", names, ["y"], domain="pumice", **attributes)
        types = ProgramTypes("fp32")
        values = [make_bounded_input(inputs[name], types) for name in names]
        (result,) = RuleRunner({"": 22, "pumice": 1}, types).run_node(made, values, {})
        assert isinstance(result, BoundedTensor)
        exact = np.tanh(array.astype(float) * attributes.get("alpha", 0.5)).sum(1 if "axes" in names else None)
        np.testing.assert_allclose(result.value, exact, rtol=1e-12)
        assert 0 < result.get_errors().max() < 1e-5


# Operators that have both a rule and an ONNX function body. Excluded: bodies that cannot be proved, because of a loop with a float count, a
# map over sequences or a cast beyond the range of a low-precision type.
UNLIKE = ("CastLike", "Range", "SequenceMap")
DEFINED = sorted(op for op in RULES if "::" not in op and has_function_body(op) and op not in UNLIKE)


@pytest.mark.parametrize("op", DEFINED)
def test_the_parts_of_an_operator_bound_it_where_it_has_no_rule(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that ONNX defines by a function body needs no rule of its own."""
    monkeypatch.delitem(RULES, op)
    given = [case for case in cases().get(op, ()) if not is_computed_in_halves(case)]
    assert given
    assert sum(map(compared, given))


@pytest.mark.parametrize("op", ["BlackmanWindow", "HammingWindow", "HannWindow", "NegativeLogLikelihoodLoss"])
def test_operators_that_the_importer_expands_are_proved(op: str) -> None:
    assert op not in RULES
    assert sum(map(compared, cases()[op]))


PROVED = sorted(set(RULES) - {"Scan", "Optional"})


@pytest.mark.parametrize("op", PROVED)
def test_what_the_standard_stores_is_within_the_bound(op: str) -> None:
    given = [case for case in cases().get(op, ()) if not is_computed_in_halves(case)]
    if not given:
        pytest.skip("the standard has no test of it alone, or none of float16")
    count, missing = 0, []
    for case in given:
        try:
            count += compared(case)
        except UnprovedError as error:
            missing.append(f"{case.name}: {error}")
    assert len(missing) <= len(given) / 2, missing
    assert count or all(isinstance(array(one), list) for case in given for one in case.data_sets[0][1])
