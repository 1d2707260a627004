"""ONNX float attributes are float32: an operator in float64 uses exactly that value, explicit or default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice
from features import need_features
from onnx_models import model, node, value
from pumice.tools.operator_catalogue import render_markdown

Array = np.ndarray[Any, Any]
DOUBLE = 11
X = np.array([-7.0, -2.5, -1.0, -0.3, -0.001, 0.0, 0.001, 0.3, 1.0, 2.5, 7.0])
# Operators with their float attributes, defaults, and the function they compute.
OPERATORS: dict[str, tuple[dict[str, float], Callable[..., Array]]] = {
    "LeakyRelu": ({"alpha": 0.01}, lambda x, alpha: np.where(x < 0, alpha * x, x)),
    "ThresholdedRelu": ({"alpha": 1.0}, lambda x, alpha: np.where(x > alpha, x, 0)),
    "Elu": ({"alpha": 1.0}, lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x)),
    "Celu": ({"alpha": 1.0}, lambda x, alpha: np.where(x < 0, alpha * np.expm1(x / alpha), x)),
    "Selu": (
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(x)),
    ),
    "HardSigmoid": ({"alpha": 0.2, "beta": 0.5}, lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1)),
    "Swish": ({"alpha": 1.0}, lambda x, alpha: x / (1 + np.exp(-alpha * x))),
    "Shrink": (
        {"lambd": 0.5, "bias": 0.0},
        lambda x, lambd, bias: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)),
    ),
}


def expected_of(op: str, given: dict[str, float]) -> Array:
    defaults, compute = OPERATORS[op]
    with np.errstate(over="ignore"):
        return compute(X, **{name: np.float64(np.float32(one)) for name, one in (defaults | given).items()})


@pytest.mark.parametrize("op", OPERATORS)
def test_an_attribute_of_a_float64_operator_is_that_float32(context: pumice.Context, op: str) -> None:
    """Values that float32 cannot represent: rounding changes them by about 1e-9, while the operator's error is below 1e-14."""
    need_features(context, "shaderFloat64")
    for given in ({}, dict(zip(OPERATORS[op][0], (0.1, 0.3), strict=False))):
        nodes = [node(op, **given)]
        loaded = pumice.load(model(nodes, [value("x", [None], DOUBLE)], opset=24), context, progress=False)
        np.testing.assert_allclose(loaded(X), expected_of(op, given), rtol=1e-14, atol=1e-16, err_msg=f"{op} {given}")


def test_the_defaults_in_the_table_are_the_numbers_used() -> None:
    schema = pumice.operators("LeakyRelu")
    assert [one.default for one in schema.attributes] == [float(np.float32(0.01))]
    assert "| 0.01 |" in render_markdown()
