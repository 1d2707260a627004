"""Nodes that a 16-bit program computes in float32 have float32 bounds in validation, and right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pumice
from onnx_models import model, node, value
from pumice.validation.reference import streaming

STEPS = np.array([[1], [257], [2049], [4097], [9999]])
FREQUENCIES = 1 / 10000 ** (np.arange(0, 64, 2) / 64)
FLOATS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def embedding(dtype: str) -> onnx.ModelProto:
    """Return the timestep embedding of a diffusion model: cos and sin of steps times frequencies, then a layer in the program's dtype."""
    nodes = [
        node("Cast", ["t"], ["f"], name="cast", to=FLOATS[dtype]),
        node("Mul", ["f", "frequencies"], ["angles"], name="angle"),
        node("Cos", ["angles"], ["cos"], name="cos"),
        node("Sin", ["angles"], ["sin"], name="sin"),
        node("Concat", ["cos", "sin"], ["e"], name="concat", axis=1),
        node("MatMul", ["e", "w"], ["y"], name="layer"),
    ]
    w = np.random.default_rng(0).standard_normal((64, 8)) / 8
    constants = {"frequencies": FREQUENCIES[None].astype(dtype), "w": w.astype(dtype)}
    return model(nodes, [value("t", ["n", 1], TensorProto.INT64)], constants=constants)


@pytest.fixture(params=[False, True], ids=["at once", "in parts"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(streaming, "WINDOW_BYTES", 700)


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_angles_have_bounds_of_float32(dtype: str, precision: str, context: pumice.Context) -> None:
    report = pumice.validate(
        embedding(dtype), [STEPS], context=context, precision=precision, allow_ill_conditioned=True
    )
    assert report.ok, report.summary
    rows = {row.node: row.local for row in report.rows if row.program == "nodes"}
    # A float16 model rounds the angle to float16, so its cosine is uncertain by half a ULP of the angle.
    largest = 1e-5 if dtype == "float32" else 4.1
    for name in ("cos", "sin"):
        local = rows[name]
        assert local is not None and local.allowed < largest
    layer = rows["layer"]
    assert layer is not None and layer.allowed > 1e-4


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_an_angle_rounded_to_16_bits_is_found(
    precision: str, context: pumice.Context, spoil: Callable[..., None]
) -> None:
    def round_angles(made: dict[str, Any]) -> None:
        if "angles" in made:
            angles = made["angles"].astype(np.float32)
            if precision == "fp16":
                made["angles"] = angles.astype(np.float16).astype(np.float32)
            else:
                made["angles"] = (angles.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)

    spoil(round_angles)
    report = pumice.validate(
        embedding("float32"), [STEPS], context=context, precision=precision, allow_ill_conditioned=True
    )
    wrong = {row.node for row in report.rows if row.verdict == "wrong"}
    assert wrong == {"angle", "cos", "sin"}, report.summary
