"""A program that runs and validates a small model with a missing barrier, like fault_runner.py does for faulty shaders."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import onnx

import fault_runner
import pumice
from fault_models import numbers
from onnx_models import model, node, value


def two_ends() -> onnx.ModelProto:
    """Two products, and two readers of the second one, which are outputs. No device fuses these with the product."""
    nodes = [
        node("MatMul", ["x", "w1"], ["a"], name="first"),
        node("MatMul", ["a", "w2"], ["b"], name="second"),
        node("CumSum", ["b", "one"], ["y"], name="rows"),
        node("CumSum", ["b", "zero"], ["z"], name="columns"),
    ]
    constants = {f"w{i}": numbers(12, 12, seed=i) * np.float32(0.2) for i in (1, 2)}
    constants |= {"one": np.array(1), "zero": np.array(0)}
    return model(nodes, [value("x", [None, 12])], ["y", "z"], constants=constants)


def raced(task: dict[str, Any]) -> dict[str, Any]:
    """Return which of three runs are right, the last on filled memory, and the validation's result in each mode."""
    x = numbers(7, 12)
    source = two_ends().SerializeToString()
    with pumice.load(source) as loaded:
        observed = loaded.program.observe((x,))["outputs"]
        runs = [loaded.program({"x": x}), loaded.program({"x": x}), loaded.program({"x": x}, filled=True)]
    right = [all(run[name].tobytes() == array.tobytes() for name, array in observed.items()) for run in runs]
    reports = {mode: pumice.validate(source, [x, x], mode=mode) for mode in ("both", "bisect")}
    return {
        "right": right,
        "states": {mode: report.state for mode, report in reports.items()},
        "first": {mode: getattr(report.first_divergence, "node", None) for mode, report in reports.items()},
        "race": {mode: _texts(report, "race") for mode, report in reports.items()},
        "differing": {mode: _texts(report, "not deterministic") for mode, report in reports.items()},
        "nodes": [row.verdict for row in reports["both"].rows if row.program == "nodes"],
        "junit": reports["both"].as_dict()["ok"],
    }


def _texts(report: pumice.ValidationReport, kind: str) -> list[str]:
    return [finding.text for finding in report.findings if finding.kind == kind]


if __name__ == "__main__":
    for each in json.load(sys.stdin):
        print(fault_runner.in_fork(each, raced), flush=True)
