"""What a load of a large model takes on the host: one staging buffer, wherever the weights lie."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_models import model, node, value
from process import output_of

WIDTH, LAYERS = 1024, 32
STAGING = 64 << 20
SLACK = 56 << 20  # the importer and the driver's compiler; less than half of the weights

LOAD = """
import json, resource, sys
import numpy as np, pumice
context = pumice.Context()
source = open(sys.argv[1], "rb").read() if sys.argv[3] == "bytes" else sys.argv[1]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with pumice.load(source, context, precision=sys.argv[2], progress=False) as model:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    device = context.memory.buffer_bytes
    result = float(model(np.ones((1, 1024), "float32"))[0, 0])
print(json.dumps([peak << 10, device, context.info.kind == "software", result]))
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same model as one file and as two, 134 MB of weights in it."""
    folder = tmp_path_factory.mktemp("large")
    random = np.random.default_rng(1)
    weights = {f"w{i}": random.random((WIDTH, WIDTH), np.float32) / (WIDTH / 2) for i in range(LAYERS)}
    nodes = [node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"]) for i in range(LAYERS)]
    nodes[-1].output[0] = "y"
    proto = model(nodes, [value("x", ["N", WIDTH])], constants=weights)
    onnx.save(proto, folder / "inside.onnx")
    onnx.save(proto, folder / "outside.onnx", save_as_external_data=True, location="weights.bin")
    return {"inside": folder / "inside.onnx", "outside": folder / "outside.onnx"}


@pytest.mark.parametrize(
    ("form", "precision", "kind"),
    [("inside", "fp32", "path"), ("outside", "fp32", "path"), ("outside", "fp16", "path"), ("inside", "fp32", "bytes")],
)
def test_a_load_takes_one_staging_buffer(paths: dict[str, Path], form: str, precision: str, kind: str) -> None:
    weights = LAYERS * WIDTH * WIDTH * (2 if precision == "fp16" else 4)
    for _ in range(2):  # from the file, and from the cache
        peak, device, is_software, result = json.loads(output_of("-c", LOAD, str(paths[form]), precision, kind))
        assert device <= 1.1 * weights
        assert peak <= STAGING + SLACK + (device if is_software else 0)
        assert 0.5 < result < 2
