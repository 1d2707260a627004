"""The notebooks run as they stand, and are committed without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pumice

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4


@each
def test_notebook_is_committed_without_outputs(path: Path) -> None:
    assert not [cell for cell in code_cells(path) if cell["outputs"] or cell["execution_count"] is not None]


@each
def test_notebook_runs(path: Path, context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell after cell in one IPython shell, as a kernel does, from a folder that holds nothing."""
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    try:
        for cell in code_cells(path):
            shell.run_cell("".join(cell["source"])).raise_error()
    finally:
        InteractiveShell.clear_instance()
