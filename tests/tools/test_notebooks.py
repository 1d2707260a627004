"""The notebooks run unmodified, and are committed without outputs."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import pumice

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL = re.compile(r"^```(?:py|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)

NEEDS = {"10_pytorch_together": ("torch", "onnxscript")}  # packages not installed in the default tier

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4


@each
def test_notebook_is_committed_without_outputs(path: Path) -> None:
    assert not [cell for cell in code_cells(path) if cell["outputs"] or cell["execution_count"] is not None]


RAISES = "raises-exception"  # tag that makes nbclient and Jupyter continue after a cell's error


def run(cells: list[str], raising: Collection[int] = ()) -> None:
    """Run the cells in one IPython shell, as a kernel does. raising: indices of cells that must fail."""
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    try:
        for index, cell in enumerate(cells):
            result = shell.run_cell(cell)
            if index in raising:
                assert result.error_in_exec is not None, cell
            else:
                result.raise_error()
    finally:
        InteractiveShell.clear_instance()


@each
def test_notebook_runs(path: Path, context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in an empty folder."""
    for module in NEEDS.get(path.stem, ()):
        pytest.importorskip(module, reason=f"{path.stem} needs {module} (the extra [torch])")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        if path.stem in NEEDS:
            warnings.simplefilter("ignore")  # torch's exporter warns about its own deprecated APIs
        cells = code_cells(path)
        raising = [i for i, cell in enumerate(cells) if RAISES in cell["metadata"].get("tags", ())]
        run(["".join(cell["source"]) for cell in cells], raising)


def test_the_cells_of_the_tutorial_run(context: pumice.Context, capsys: pytest.CaptureFixture[str]) -> None:
    cells = CELL.findall((ROOT / "docs" / "tutorial_notebooks.md").read_text())
    assert sum(cell.startswith("%%glsl") for cell in cells) >= 3
    run(cells)
    shown = capsys.readouterr().out
    assert "'gain'" in shown and "index 4" in shown, "the cells print the refusal and the access out of bounds"
