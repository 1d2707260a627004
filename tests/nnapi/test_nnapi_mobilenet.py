"""A whole quantized NNAPI network against the same network as an ONNX model with Q/DQ between its operators."""

from __future__ import annotations

import numpy as np
import onnxruntime

import pumice
from nnapi_mobilenet import CLASSES, nnapi_program, onnx_model

SIZE = 32


def test_a_network_gives_what_its_onnx_form_gives(context: pumice.Context) -> None:
    """Results differ by at most one unit, also from ONNX Runtime, and are not constant."""
    proto = onnx_model(SIZE)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with nnapi_program(SIZE).compile(context) as program, pumice.load(proto, context, progress=False) as model:
        # The range of the quantized output is already that of RELU6, so no Clip is needed.
        assert "Clip" not in {one["op"] for one in program.report()}
        found = []
        for seed in range(3):
            image = np.random.default_rng(seed).integers(0, 256, (1, SIZE, SIZE, 3)).astype("uint8")
            planes = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
            made = program({"x": image})["y"].astype("int32")
            assert made.shape == (1, CLASSES)
            for other in (model(planes), session.run(None, {"x": planes})[0]):
                assert np.abs(made - np.asarray(other, "int32")).max() <= 1
            found.append(made)
    assert len({one.tobytes() for one in found}) == 3
