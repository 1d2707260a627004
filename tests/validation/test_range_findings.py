"""Findings of numbers beyond the range of a type, each with a model that triggers it and models that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pumice
from onnx_models import model, node, value
from pumice.validation.report.findings import Finding

FLOAT = np.float32
RANDOM = np.random.default_rng(5)
KINDS = (
    "saturated integers",
    "clamped constant",
    "wide constant",
    "vanished constant",
    "rounded weights dominate",
    "flushed denormals",
)


def told(report: pumice.ValidationReport) -> dict[tuple[str, str], Finding]:
    return {(one.kind, one.node): one for one in report.findings if one.kind in KINDS}


def weights(op: str, array: Any, shape: list[int], **attributes: Any) -> onnx.ModelProto:
    made = node(op, ["x", "w"], ["y"], name="sum", **attributes)
    return model([made], [value("x", shape)], constants={"w": np.asarray(array, FLOAT)})


def test_integers_beyond_their_type_are_counted(context: pumice.Context) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quant"),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], name="back"),
    ]
    constants = {"s": np.array([0.01, 0.1], FLOAT), "z": np.array([5, 0], np.int8)}
    source = model(nodes, [value("x", [2, 2])], constants=constants)
    x = np.array([[1.2, 1.23], [-3, 12.6]], FLOAT)  # along axis 1: 125, 12, -295 and 126 steps
    found = told(pumice.validate(source, [x], context=context))
    assert list(found) == [("saturated integers", "quant")]
    finding = found["saturated integers", "quant"]
    assert finding.number == 1 and "1 of 4 elements of 'q' are beyond int8" in finding.text and "-295" in finding.text
    assert not told(pumice.validate(source, [x / FLOAT(4)], context=context))


def test_a_cast_beyond_its_integers_is_reported(context: pumice.Context) -> None:
    source = model([node("Cast", ["x"], ["y"], name="cast", to=TensorProto.INT8)], [value("x", [4])])
    report = pumice.validate(source, [np.array([1, 127.5, 300, -128.9], FLOAT)], context=context)
    assert [(one.kind, one.number) for one in told(report).values()] == [("saturated integers", 1)]
    assert not told(pumice.validate(source, [np.array([1, 127.5, 0, -128.9], FLOAT)], context=context))


def test_a_constant_clamped_to_the_limit_is_reported(context: pumice.Context) -> None:
    lowest = np.array([0, np.finfo(FLOAT).min, 1, 2], FLOAT)  # of a mask; infinity in bfloat16
    source = model([node("Add", ["x", "m"], ["y"], name="masks")], [value("x", [4])], constants={"m": lowest})
    x = RANDOM.standard_normal(4).astype(FLOAT)
    report = pumice.validate(source, [x], context=context, precision="bf16")
    assert list(told(report)) == [("clamped constant", "masks")]
    assert "1 of 4 elements of constant 'm' are held at the limit of bf16, 3.3895e+38" in report.findings[0].text
    assert not told(pumice.validate(source, [x], context=context))


def test_a_constant_for_which_a_node_computes_in_float32_is_reported(context: pumice.Context) -> None:
    nodes = [node("Mul", ["x", "k"], ["t"], name="times"), node("Neg", ["t"], ["y"], name="neg")]  # one kernel
    source = model(nodes, [value("x", [4])], constants={"k": np.array(1e5, FLOAT)})
    x = np.array([1e-3, 1, 2, 3], FLOAT)
    report = pumice.validate(source, [x], context=context, precision="fp16")
    report.raise_if_failed()
    assert list(told(report)) == [("wide constant", "times")]
    assert "computes in float32: 'k' holds 100000" in report.findings[0].text
    assert not [one for one in report.findings if one.kind == "overflow"]  # float32 does not overflow


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_weights_that_underflow_or_lose_precision_are_reported(context: pumice.Context, precision: str) -> None:
    least = 1e-9 if precision == "fp16" else 1e-42
    w = RANDOM.standard_normal((64, 8))
    w[:, 0] *= least
    x = RANDOM.standard_normal((2, 64)).astype(FLOAT)
    found = told(pumice.validate(weights("MatMul", w, [2, 64]), [x], context=context, precision=precision))
    assert list(found) == [("vanished constant", "sum"), ("rounded weights dominate", "sum")]
    assert found["vanished constant", "sum"].number == np.sum((w != 0) & (np.abs(w) < least * 10))
    assert "2 of 16 elements of 'y'" in found["rounded weights dominate", "sum"].text
    if precision == "fp16":
        kernels = np.full((4, 3, 3, 3), 1.51e-6)  # 25.3 steps of float16's denormals: not zero
        image = RANDOM.uniform(1, 2, (1, 3, 6, 6)).astype(FLOAT)
        report = pumice.validate(weights("Conv", kernels, [1, 3, 6, 6]), [image], context=context, precision=precision)
        found = told(report)
        assert list(found) == [("rounded weights dominate", "sum")]
        assert found["rounded weights dominate", "sum"].number == pytest.approx(1 - 25 / (1.51e-6 * 2**24), rel=0.1)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_weights_of_usual_sizes_are_not_told_of(context: pumice.Context, precision: str) -> None:
    w = RANDOM.standard_normal((64, 8)) * 0.01
    w[3, 4] = 1e-7  # one small number
    x = RANDOM.standard_normal((2, 64)).astype(FLOAT)
    assert not told(pumice.validate(weights("MatMul", w, [2, 64]), [x], context=context, precision=precision))


def test_numbers_below_the_normal_ones_that_become_zero_are_reported() -> None:
    """Reported for a device that flushes denormals, not for one that supports them."""
    source = model([node("Mul", ["x", "x"], ["a"], name="square"), node("Neg", ["a"], ["y"], name="neg")])
    x = np.full((5, 4), 1e-20, FLOAT)
    x[0, :2] = 1, 1e-30  # the square of the second underflows in float32

    def candidate(inputs: dict[str, Any]) -> dict[str, Any]:
        a = inputs["x"] * inputs["x"]
        a[np.abs(a) < np.finfo(FLOAT).tiny] = 0
        return {"a": a, "y": -a}

    found = told(pumice.validate(source, [x], candidate=candidate))
    assert list(found) == [("flushed denormals", "square")]
    assert found["flushed denormals", "square"].number == 18
    exact = {"a": x * x, "y": -(x * x)}
    assert not told(pumice.validate(source, [x], candidate=lambda inputs: exact))
