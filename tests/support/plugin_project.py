"""A project that uses pumice with its own tests, run in a separate pytest."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnx_models import gemm

X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)

VALIDATE = """
import numpy as np
X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)

def test_model(pumice_validate):
    pumice_validate("gemm.onnx", [(X,)])
"""


class PluginProject:
    """Files in a folder, and pytest runs on it in another process."""

    def __init__(self, pytester: pytest.Pytester, arguments: list[str]) -> None:
        self.pytester = pytester
        self.arguments = ["-p", "no:cacheprovider", *arguments]
        pytester.makeini("[pytest]\n")

    @property
    def path(self) -> Path:
        """The folder."""
        return self.pytester.path

    def write(self, name: str, text: str) -> Path:
        """Write a text file, creating its parent folders."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def model(self, name: str = "gemm.onnx", proto: onnx.ModelProto | None = None) -> Path:
        """Write a model file."""
        path = self.write(name, "")
        onnx.save(proto or gemm(), path)
        return path

    def run(self, *arguments: str | Path) -> pytest.RunResult:
        """Run pytest in the folder."""
        return self.pytester.runpytest_subprocess(*self.arguments, *arguments)

    def properties(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Return each test's properties from the JUnit XML."""
        self.run("--junitxml=junit.xml", *arguments)
        cases = ElementTree.parse(self.path / "junit.xml").iter("testcase")
        return {
            case.get("name", ""): {element.get("name"): element.get("value") for element in case.iter("property")}
            for case in cases
        }


def write_data_set(folder: Path, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """Write a data set in ONNX's format."""
    folder.mkdir(parents=True)
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for i, (name, array) in enumerate(arrays.items()):
            (folder / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())


def expected_of_gemm() -> dict[str, Any]:
    """Return the outputs of the small model on X, computed in float64 and rounded once."""
    weights = {element.name: numpy_helper.to_array(element).astype(np.float64) for element in gemm().graph.initializer}
    total = X.astype(np.float64) @ weights["w"] + weights["b"]
    return {"y": np.maximum(total, 0).astype(np.float32), "sum": total.astype(np.float32)}


def plugin_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolate the inner pytest from this run's environment."""
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "PUMICE_DEVICE"))]:
        monkeypatch.delenv(name)
