"""References of a validation, and candidates checked in place of a device."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

import pumice
from onnx_models import gemm, model, node
from signature_probes.probe import covers, differ, expect_error


@covers(
    "validate.reference",
    "validate.candidate",
    "validate.candidate_precision",
    "onnxruntime_candidate.intermediate",
    "onnxruntime_candidate.providers",
    "onnxruntime_candidate.folder",
    "ValidationReport.__init__.reference",
)
def references(context: pumice.Context) -> None:
    """A reference decides the verdict; a candidate replaces the device, and its precision sets the bounds."""
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    shifted = {"Relu": lambda attributes, inputs: np.maximum(inputs[0], 0) + 1}
    oks = [pumice.validate(gemm(), [x], context=context, reference=one).ok for one in ("onnx", shifted)]
    assert oks == [True, False]
    expect_error(lambda: pumice.validate(gemm(), [x], context=context, reference=3), "reference")
    twice = model([node("Neg", ["x"], ["n"]), node("Relu", ["n"])])
    differ(*(sorted(pumice.onnxruntime_candidate(twice, intermediate=one)({"x": x})) for one in (True, False)))
    outputs = pumice.onnxruntime_candidate(gemm())

    def coarse(inputs: Any) -> Any:
        return {name: array.astype("float16") for name, array in outputs(inputs).items()}

    oks = [pumice.validate(gemm(), [x], candidate=coarse, candidate_precision=one).ok for one in (None, "fp16")]
    assert oks == [False, True]
    expect_error(lambda: pumice.onnxruntime_candidate(gemm(), providers=["GhostProvider"]), "GhostProvider")
    with TemporaryDirectory() as folder:
        onnx.save(gemm(), f"{folder}/m.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
        data = Path(f"{folder}/m.onnx").read_bytes()
        assert pumice.validate(f"{folder}/m.onnx", [x], candidate=pumice.onnxruntime_candidate(data, folder=folder)).ok
        expect_error(lambda: pumice.onnxruntime_candidate(data), "give the folder")
    reports = [pumice.ValidationReport("m", "d", "fp32", 1, [], [], name) for name in ("float64", "onnx")]
    differ(*(report.as_dict()["reference"] for report in reports))
