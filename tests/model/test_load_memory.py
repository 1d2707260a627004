"""Host memory of loading large models: one staging buffer, wherever the weights are stored; and every weight arrives."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import model, node, value
from process import output_of
from pumice import _pumice

WIDTH, LAYERS = 1024, 32
STAGING = 48 << 20
BASE = 64 << 20  # bytes used by a load besides the model: the importer, kernels, the shader compiler
COMPILER = 16 << 20  # bytes that the GPU driver's compiler keeps after the trial of a new driver
SLACK = 24 << 20  # bytes by which loads of the same small model differ

LOAD = """
import json, sys
import numpy as np, pumice
def status_bytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))
def peak():  # getrusage's value begins with the peak of the process before this one
    return status_bytes("VmHWM")
context = pumice.Context()
source = open(sys.argv[1], "rb").read() if sys.argv[3] == "bytes" else sys.argv[1]
before = peak()
with pumice.load(source, context, precision=sys.argv[2], progress=False) as model:
    taken = peak() - before
    device = context.memory.buffer_bytes
    result = float(model(np.ones((1, model.inputs[0].shape[1]), "float32"))[0, 0])
before = status_bytes("VmRSS")
allocated = pumice.Buffer(context, 64 << 20)
touches = status_bytes("VmRSS") - before > 32 << 20
print(json.dumps([taken, device, context.info.kind == "software", result, touches]))
"""


def save(folder: Path, width: int) -> dict[str, Path]:
    """Save a model as one file, and as a file with external weights."""
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
    """The files of a model with 134 MB of weights, and of one with almost none."""
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
    for _ in range(2):  # the second load hits the cache
        (peak, device, is_software, result, _), (least, *_) = (
            json.loads(output_of("-c", LOAD, str(paths[form]), precision, kind)) for paths in models
        )
        assert device <= 1.1 * weights
        assert peak - least <= STAGING + SLACK + (device if is_software else 0)
        assert 0.5 < result < 2


@pytest.mark.skipif("PUMICE_SANITIZED" in os.environ, reason="a sanitizer keeps what is freed")
def test_a_first_load_takes_one_staging_buffer_and_little_else(
    models: tuple[dict[str, Path], dict[str, Path]], tmp_path: Path
) -> None:
    """With empty caches, the load imports onnx and compiles its kernels.

    Device memory is allocated while the file's bytes are still held; both count if the driver touches new memory at
    once.
    """
    caches = {"PUMICE_CACHE_DIR": str(tmp_path), "PUMICE_VALIDATION": "0"}
    path = str(models[0]["inside"])
    peak, device, is_software, _, touches = json.loads(output_of("-c", LOAD, path, "fp32", "path", **caches))
    held = LAYERS * WIDTH * WIDTH * 4 if touches else 0
    assert peak <= STAGING + BASE + held + (device if is_software else COMPILER)


# Rows of 64 elements in each weight.
ROWS = {"empty": 0, "one": 1, "small": 999, "part": 1 << 15, "parts": (1 << 16) + 5, "many": 3 << 16}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("outside", [False, True])
def test_weights_of_all_sizes_arrive(tmp_path: Path, outside: bool, precision: str) -> None:
    """Mixes packed weights, which are staged whole, with weights that are staged in chunks."""
    weights = {name: np.arange(rows * 64, dtype=np.float32).reshape(rows, 64) % 2039 for name, rows in ROWS.items()}
    wide = np.eye(64, dtype=np.float32)
    packed = {"wide": wide, "tall": wide[:, np.arange(1 << 16) % 64]}
    nodes = [node("Gather", [name, f"{name}.rows"], [f"{name}.y"]) for name in ROWS]
    for position, name in zip((2, 5), packed, strict=True):
        nodes.insert(position, node("MatMul", ["x", name], [f"{name}.y"]))
    inputs = [value("x", ["N", 64]), *(value(f"{name}.rows", [None], onnx.TensorProto.INT64) for name in ROWS)]
    proto = model(nodes, inputs, [f"{name}.y" for name in (*ROWS, *packed)], weights | packed)
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=outside, location="weights.bin", size_threshold=0)
    asked = {name: np.linspace(0, max(rows - 1, 0), min(rows, 50)).astype("int64") for name, rows in ROWS.items()}
    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    with pumice.load(tmp_path / "model.onnx", precision=precision) as loaded:
        results = loaded(x, *asked.values())
    for name, rows in asked.items():
        np.testing.assert_array_equal(results[f"{name}.y"], weights[name][rows])
    for name, matrix in packed.items():
        np.testing.assert_array_equal(results[f"{name}.y"], x @ matrix)


# ---- uploads that start before the graph is complete

LARGE = 12 << 20  # float32 elements: more than one staging buffer


def scaled_constant(factor: float) -> pumice.Graph:
    graph = pumice.Graph("large")
    values = np.arange(LARGE, dtype=np.float32) % 7 * factor
    graph.output("y", graph.add("Mul", graph.input("x", "float32", (1,)), values.astype(np.float32)))
    return graph


def test_programs_take_memory_that_was_begun_before(context: pumice.Context) -> None:
    memory = _pumice.UploadMemory(context, 0)
    memory.expect(4 * LARGE)
    for factor in (1, 3):
        with scaled_constant(factor).compile(context, memory=memory) as program:
            y = program({"x": np.array([2], np.float32)})["y"]
        np.testing.assert_array_equal(y, np.arange(LARGE) % 7 * (2 * factor))


@pytest.mark.parametrize("begun", [0, 4 * LARGE])
def test_memory_is_of_the_programs_context(context: pumice.Context, begun: int) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as other:
        memory = _pumice.UploadMemory(other, begun)
        memory.expect(begun)
        with pytest.raises(pumice.BindingError, match=r"M3.*program 'large'.*memory.*memory of the program's context"):
            scaled_constant(1).compile(context, memory=memory)


def test_a_rejected_model_leaves_no_memory(context: pumice.Context) -> None:
    large = np.zeros(LARGE, np.float32)
    proto = model(
        [node("Mul", ["x", "w"], ["h"]), node("Nonsense", ["h"], ["y"])], [value("x", [1])], constants={"w": large}
    )
    before = context.memory.buffer_bytes
    with pytest.raises(pumice.UnsupportedError, match="Nonsense"):
        pumice.load(proto, context, folder=".")
    assert context.memory.buffer_bytes == before
