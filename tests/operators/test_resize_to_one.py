"""Resize with pytorch_half_pixel to one element: the coordinate is 0 for any scale, as in the specification and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from onnx_control_flow_models import by_runtime, typed
from onnx_models import model, node, value

MODES: list[dict[str, Any]] = [
    {"mode": "nearest", "nearest_mode": "floor"},
    {"mode": "nearest", "nearest_mode": "ceil"},
    {"mode": "nearest"},
    {"mode": "linear"},
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
]


@pytest.mark.parametrize("attributes", MODES, ids=lambda one: ", ".join(map(str, one.values())))
@pytest.mark.parametrize("to", [0.25, 0.3, 0.4, 1])
def test_one_element_is_taken_from_the_first_position(
    context: pumice.Context, attributes: dict[str, Any], to: float
) -> None:
    """The size is given by scales (0.4 also leaves one of 4 elements) or by sizes."""
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 4)).astype("float32")
    x[0, 0, 0] = [1, 2, 4, 8]
    constants = {"scales": np.array([1, 1, 1, to], "float32")} if to < 1 else {"sizes": np.array([1, 1, 4, 1])}
    names = ["x", "", "scales"] if to < 1 else ["x", "", "", "sizes"]
    resize = node("Resize", names, coordinate_transformation_mode="pytorch_half_pixel", **attributes)
    proto = typed(model([resize], [value("x", x.shape)], constants=constants))
    made = pumice.load(proto, context, progress=False)(x)
    np.testing.assert_allclose(made, by_runtime(proto, {"x": x})[0], rtol=1e-5, atol=1e-6)
    if attributes["mode"] == "nearest" and attributes.get("nearest_mode") == "floor":
        np.testing.assert_array_equal(made, x[..., :1])
