"""Floats read by the host (scales of Resize, limits of Range) keep full precision in 16-bit programs, because they decide sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pumice
from onnx_models import model, node, value

FLOAT = np.float32
X = np.arange(12, dtype=FLOAT).reshape(1, 1, 3, 4)
SCALES = np.array([1, 1, 5 / 3, 1.25], FLOAT)  # 5 / 3 is 1.6640625 in bfloat16: four rows instead of five
Made = tuple[onnx.ModelProto, tuple[Any, ...]]


def resized(mode: str, *before: onnx.NodeProto, **constants: Any) -> Made:
    """Resize with scales that are an input, or computed from an input `s` by the nodes `before`."""
    name = before[-1].output[0] if before else "s"
    nodes = [*before, node("Resize", ["x", "", name], ["y"], mode=mode)]
    given = SCALES[2:] if "ones" in constants else SCALES * FLOAT(0.5) if "two" in constants else SCALES
    return model(nodes, [value("x", X.shape), value("s", [given.size])], constants=constants), (X, given)


def ranged(*limits: float) -> Made:
    inputs = [value(name, []) for name in ("start", "limit", "delta")]
    proto = model([node("Range", ["start", "limit", "delta"], ["y"])], inputs)
    return proto, tuple(np.array(one, FLOAT) for one in limits)


def ranged_by_product() -> Made:
    nodes = [node("Mul", ["n", "ten"], ["limit"]), node("Range", ["zero", "limit", "one"], ["y"])]
    constants = {"ten": np.array(10, FLOAT), "zero": np.array(0, FLOAT), "one": np.array(1, FLOAT)}
    return model(nodes, [value("n", [])], constants=constants), (np.array(205.3, FLOAT),)


def scales_of_sizes() -> Made:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["have"], to=TensorProto.FLOAT),
        node("Cast", ["size"], ["want"], to=TensorProto.FLOAT),
        node("Div", ["want", "have"], ["scales"]),
        node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
    ]
    return model(nodes, [value("x", [1, 1, "h", "w"])], constants={"size": np.array([1, 1, 5, 7])}), (X,)


MODELS: dict[str, Callable[[], Made]] = {
    "scales, nearest": lambda: resized("nearest"),
    "scales, linear": lambda: resized("linear"),
    "scales, cubic": lambda: resized("cubic"),
    "scales joined": lambda: resized("nearest", node("Concat", ["ones", "s"], ["c"], axis=0), ones=np.ones(2, FLOAT)),
    "scales multiplied": lambda: resized("nearest", node("Mul", ["s", "two"], ["c"]), two=np.array(2, FLOAT)),
    "scales of sizes": scales_of_sizes,
    "range by tenths": lambda: ranged(0, 1, 0.1),
    "range of large numbers": lambda: ranged(2047, 2051, 1),
    "range by a product": ranged_by_product,
}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("made", MODELS)
def test_sizes_and_coordinates_are_those_of_float32(made: str, precision: str, context: pumice.Context) -> None:
    proto, given = MODELS[made]()
    with pumice.load(proto, context) as loaded:
        expected = loaded(*given)
    with pumice.load(proto, context, precision=precision) as loaded:
        actual = loaded(*given)
    assert actual.shape == expected.shape
    unit = 2.0**-11 if precision == "fp16" else 2.0**-8
    np.testing.assert_allclose(actual, expected, rtol=2 * unit, atol=unit)
    # If a node computes the limit, its rounding may decide the length.
    allowed = made == "range by a product"
    report = pumice.validate(proto, [given], context=context, precision=precision, allow_unchecked=allowed)
    assert report.ok, report.summary
