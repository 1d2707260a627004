"""PUMICE_SHADERS: a folder whose files replace embedded shaders."""

from __future__ import annotations

from pathlib import Path

import pytest

import pumice._pumice as engine
from process import python

EXPONENTIAL = """
import numpy as np
import pumice

graph = pumice.Graph()
graph.output("y", graph.add("Exp", graph.input("x", "float32", [4])))
print(graph.compile(pumice.Context())({"x": np.zeros(4, "float32")})["y"].tolist())
"""


def run(folder: Path) -> str:
    """Return all output of a process with that shader folder."""
    done = python("-c", EXPONENTIAL, PUMICE_SHADERS=str(folder))
    return done.stdout + done.stderr


def test_a_file_replaces_a_kernel_and_that_is_logged(tmp_path: Path) -> None:
    text = engine.embedded_shader("elementwise.comp")
    faulty = text.replace("precise RESULT_TYPE result = RESULT;", "precise RESULT_TYPE result = RESULT_TYPE(7);")
    assert faulty != text
    (tmp_path / "elementwise.comp").write_text(faulty)
    said = run(tmp_path)
    assert "[7.0, 7.0, 7.0, 7.0]" in said
    assert "PUMICE_SHADERS: the engine's own elementwise.comp replaced" in said


def test_an_included_file_is_replaced_as_well(tmp_path: Path) -> None:
    text = engine.embedded_shader("include/math.glsl")
    (tmp_path / "include").mkdir()
    (tmp_path / "include/math.glsl").write_text(
        text.replace("float pm_exp(float x) {", "float pm_exp(float x) { return 3.0;")
    )
    assert "[3.0, 3.0, 3.0, 3.0]" in run(tmp_path)


@pytest.mark.parametrize(
    ("file", "message"),
    [("mop.comp", "'mop.comp', which is not the path of an embedded shader"), (None, "contains no files")],
)
def test_a_folder_that_replaces_nothing_is_rejected(tmp_path: Path, file: str | None, message: str) -> None:
    if file:
        (tmp_path / file).write_text("void main() {}")
    said = run(tmp_path)
    assert message in said and "PUMICE_SHADERS" in said


def test_a_folder_that_is_none_is_rejected(tmp_path: Path) -> None:
    assert "PUMICE_SHADERS: expected a folder" in run(tmp_path / "missing")
