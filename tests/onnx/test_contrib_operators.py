"""Operators of ONNX Runtime's own domain match ONNX Runtime; unsupported forms are rejected by name."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import pumice
from contrib_nodes import Case, expect_error, ids, random

W = 24
X = {"x": random(2, 5, W)}
SKIPPED = {"x": random(2, 5, W), "skip": random(2, 5, W, seed=1)}
NORM = {"gamma": random(W, seed=2), "beta": random(W, seed=3)}
TABLES = {"words": random(11, W), "places": random(9, W, seed=1), "kinds": random(2, W, seed=2)}
TOKENS = {"ids": ids(2, 5, below=11), "kind": ids(2, 5, below=2)}
EMBED = ["ids", "kind", "words", "places", "kinds", "gamma", "beta"]

CASES = [
    Case("Gelu", X, {}),
    Case("FastGelu", X, {}),
    Case("FastGelu", X, {"b": random(W, seed=1)}),
    Case("BiasGelu", X, {"b": random(W, seed=1)}),
    Case("QuickGelu", X, {}),
    Case("QuickGelu", X, {}, alpha=0.5),
    Case("FusedMatMul", X, {"w": random(W, 7)}, alpha=0.25),
    Case("FusedMatMul", X, {"w": random(7, W)}, transB=1),
    Case("FusedMatMul", {"a": random(3, 5, 4), "b": random(3, 6, 5)}, {}, transA=1, transB=1, alpha=2.0),
    Case("SkipLayerNormalization", SKIPPED, NORM, epsilon=1e-5),
    Case("SkipLayerNormalization", SKIPPED, {**NORM, "b": random(W, seed=4)}, "y,,,sum"),
    Case("SkipLayerNormalization", SKIPPED, NORM, "y,,,sum"),
    Case("SkipSimplifiedLayerNormalization", SKIPPED, {"gamma": NORM["gamma"]}, "y,,,sum", epsilon=1e-4),
    Case("SkipSimplifiedLayerNormalization", SKIPPED, {"gamma": NORM["gamma"], "b": random(W, seed=4)}),
    Case("SimplifiedLayerNormalization", X, {"gamma": NORM["gamma"]}, domain="", axis=-1, epsilon=1e-5),
    Case("EmbedLayerNormalization", TOKENS, {**TABLES, **NORM}, "y,", order=EMBED),
    Case(
        "EmbedLayerNormalization",
        {**TOKENS, "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")},
        {**TABLES, **NORM},
        "y,count,sum",
        order=[*EMBED, "mask"],
        epsilon=1e-5,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_as_onnx_runtime(case: Case, context: pumice.Context) -> None:
    expected = case.expected()
    given = pumice.load(case.model, context)(**case.inputs)
    for one, other in zip(given if isinstance(given, tuple) else [given], expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("FusedMatMul", X, {"w": random(W, 7)}, transBatchA=1), "transBatchA=1"),
        (Case("SkipLayerNormalization", SKIPPED, NORM, "y,mean"), "the output 'mean'"),
        (Case("QMoE", X, {}), "com.microsoft::QMoE"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value),
)
def test_what_is_not_known_is_rejected_by_name(case: Case, reason: str, context: pumice.Context) -> None:
    expect_error(case, reason, context)


def test_operators_of_other_domains_are_not_taken_for_them(context: pumice.Context) -> None:
    case = Case("Gelu", X, {}, domain="elsewhere")
    case.model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    with pytest.raises(pumice.UnsupportedError, match="elsewhere::Gelu"):
        pumice.load(case.model, context)
