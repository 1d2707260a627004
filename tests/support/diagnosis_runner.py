"""A program that repeats, explains and reduces small models with faulty shaders, each task in its own process.

Tasks are read from standard input as a JSON list of objects with `folder` (replacement shaders; empty: none), `action`, `sample` and, if
the action writes files, `target`. Results are written to standard output, one line of JSON each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import pumice
from fault_models import SAMPLES, Sample
from fault_runner import answers, in_fork
from onnx_models import model, node, value
from pumice.validation.report.junit import make_junit_xml

SHADERS = Path(__file__).parent.parent.parent / "shaders"

# Shader code, and replacements that flip the last bit of some values relative to the previous run's memory.
_TURNED = "uintBitsToFloat((floatBitsToUint(v) & ~1u) | ((floatBitsToUint(pm_load(y, to + i)) & 1u) ^ 1u))"
_STORE = "    SET_Y(to + i, epilogue(v));"
RESTLESS = {
    "norm": (
        "layer_norm.comp",
        _STORE,
        f"    v = epilogue(v);\n    if (row == 7u && i < 16u) v = {_TURNED};\n    SET_Y(to + i, v);",
    ),
    "fused norm": (
        "layer_norm.comp",
        _STORE,
        f"    const float made = epilogue(v);\n    const bool fused = made != v;\n    v = made;\n"
        f"    if (fused && row % 4u == 1u) v = {_TURNED};\n    SET_Y(to + i, v);",
    ),
}


def replaced(folder: Path, path: str, old: str, new: str, count: int = 1) -> Path:
    """Return a folder with one shader in which some source text is replaced."""
    text = (SHADERS / path).read_text(encoding="utf-8")
    assert text.count(old) == count, f"{path} does not hold the text that is replaced"
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace(old, new), encoding="utf-8")
    return folder


def run(tasks: list[dict[str, Any]], **environment: str) -> list[dict[str, Any]]:
    """Return this program's results for the tasks. environment: additional variables."""
    lines = answers(__file__, tasks, **environment)
    for line in lines:
        assert "failed" not in line, line["failed"]
    return lines


def scattered() -> Sample:
    """Many floats are added to the same few elements, in thread arrival order."""
    count, random = 1 << 17, np.random.default_rng(0)
    nodes = [
        node("Neg", ["x"], ["a"], name="before"),
        node("ScatterElements", ["a", "i", "u"], ["s"], name="scatter", axis=0, reduction="add"),
        node("Neg", ["s"], ["y"], name="behind"),
    ]
    updates = random.standard_normal(count) * np.exp(3 * random.standard_normal(count))
    inputs = [value("x", [8]), value("u", [count])]
    proto = model(nodes, inputs, constants={"i": random.integers(0, 8, count)}, opset=18)
    return Sample(proto, (np.zeros(8, np.float32), updates.astype(np.float32)))


def repeated(task: dict[str, Any]) -> dict[str, Any]:
    sample = scattered() if task["sample"] == "scattered" else SAMPLES[task["sample"]]()
    report = pumice.validate(
        sample.proto.SerializeToString(),
        [sample.inputs],
        repeat=task["repeat"],
        allow_nondeterministic=task.get("allowed", False),
    )
    try:
        report.raise_if_failed()
        raised = ""
    except pumice.ValidationError as error:
        raised = error.node
    record = report.as_dict()
    return {"raised": raised, "repr": repr(report), "junit": make_junit_xml([record]), **record}


def long_model(sample: Sample) -> onnx.ModelProto:
    """Surround the sample with unrelated nodes before, after and in parallel."""
    proto = onnx.ModelProto()
    proto.CopyFrom(sample.proto)
    (result,) = (item for item in proto.graph.node if "y" in item.output)
    result.output[0] = "inner"
    nodes = [node("Abs", ["inner"], ["p0"], name="abs"), node("Neg", ["inner"], ["q0"], name="neg")]
    nodes += [node("Sigmoid", [f"p{i}"], [f"p{i + 1}"], name=f"sigmoid {i}") for i in range(5)]
    nodes += [node("Relu", [f"q{i}"], [f"q{i + 1}"], name=f"relu {i}") for i in range(5)]
    proto.graph.node.extend([*nodes, node("Add", ["p5", "q5"], ["y"], name="join")])
    return proto


def explained(task: dict[str, Any]) -> dict[str, Any]:
    sample = SAMPLES[task["sample"]]()
    options = {"precision": task.get("precision", "fp32"), "repeat": task.get("repeat", 0)}
    report = pumice.validate(long_model(sample), [sample.inputs], **options)
    explanation = report.explain(task["target"])
    return {
        "node": explanation.node,
        "nodes": explanation.part.nodes,
        "fails": explanation.fails,
        "kernels": explanation.kernels,
        "trials": explanation.trials,
        "line": explanation.line,
        "text": str(explanation),
    }


def reduced(task: dict[str, Any]) -> dict[str, Any]:
    sample = SAMPLES[task["sample"]]()
    found = pumice.reduce(long_model(sample), [sample.inputs], repeat=task.get("repeat", 0))
    found.save(task["target"])
    shapes = {name: list(array.shape) for name, array in found.inputs.items()}
    ops = [item.op_type for item in found.proto.graph.node]
    return {"before": found.before, "after": found.after, "ops": ops, "shapes": shapes, "text": str(found)}


def again(task: dict[str, Any]) -> dict[str, Any]:
    """Validate the folder that a task has written, and return the result."""
    folder = Path(task["target"])
    tensors = map(onnx.load_tensor, (folder / "test_data_set_0").glob("input_*.pb"))
    case = {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}
    return {"state": pumice.validate(folder / "model.onnx", [case]).state}


ACTIONS = {"repeat": repeated, "explain": explained, "reduce": reduced, "again": again}

if __name__ == "__main__":
    for each in json.load(sys.stdin):
        print(in_fork(each, lambda task: ACTIONS[task["action"]](task)), flush=True)
