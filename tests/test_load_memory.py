"""What a load of a large model takes on the host: one staging buffer, wherever the weights lie."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_models import model, node, value
from process import output_of

WIDTH, LAYERS = 1024, 32
STAGING = 64 << 20
SLACK = 24 << 20  # what loads of the same small model differ by

LOAD = """
import json, sys
import numpy as np, pumice
def peak():  # what getrusage says begins with that of the process before this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
context = pumice.Context()
source = open(sys.argv[1], "rb").read() if sys.argv[3] == "bytes" else sys.argv[1]
before = peak()
with pumice.load(source, context, precision=sys.argv[2], progress=False) as model:
    taken = peak() - before
    device = context.memory.buffer_bytes
    result = float(model(np.ones((1, model.inputs[0].shape[1]), "float32"))[0, 0])
print(json.dumps([taken, device, context.info.kind == "software", result]))
"""


def save(folder: Path, width: int) -> dict[str, Path]:
    """The same model as one file and as two."""
    random = np.random.default_rng(1)
    weights = {f"w{i}": random.random((width, width), np.float32) / (width / 2) for i in range(LAYERS)}
    nodes = [node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"]) for i in range(LAYERS)]
    nodes[-1].output[0] = "y"
    proto = model(nodes, [value("x", ["N", width])], constants=weights)
    onnx.save(proto, folder / f"inside{width}.onnx")
    path = folder / f"outside{width}.onnx"
    onnx.save(proto, path, save_as_external_data=True, location=f"weights{width}.bin", size_threshold=0)
    return {"inside": folder / f"inside{width}.onnx", "outside": path}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], dict[str, Path]]:
    """With 134 MB of weights in it, and with next to nothing."""
    folder = tmp_path_factory.mktemp("large")
    return save(folder, WIDTH), save(folder, 32)


@pytest.mark.skipif("PUMICE_SANITIZED" in os.environ, reason="a sanitizer keeps what is freed")
@pytest.mark.parametrize(
    ("form", "precision", "kind"),
    [("inside", "fp32", "path"), ("outside", "fp32", "path"), ("outside", "fp16", "path"), ("inside", "fp32", "bytes")],
)
def test_a_load_takes_one_staging_buffer(
    models: tuple[dict[str, Path], dict[str, Path]], form: str, precision: str, kind: str
) -> None:
    weights = LAYERS * WIDTH * WIDTH * (2 if precision == "fp16" else 4)
    for _ in range(2):  # from the file, and from the cache
        (peak, device, is_software, result), (least, *_) = (
            json.loads(output_of("-c", LOAD, str(paths[form]), precision, kind)) for paths in models
        )
        assert device <= 1.1 * weights
        assert peak - least <= STAGING + SLACK + (device if is_software else 0)
        assert 0.5 < result < 2
