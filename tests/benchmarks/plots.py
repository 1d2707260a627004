"""Plot results of `./dev bench --json` from any machine: python -m benchmarks.plots docs/benchmarks/*.json

Each table is a panel: a line for each row with points, else a bar for each row with a figure, and a mark at its target.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

COLUMNS = 2
LINES_HEIGHT = 4.5  # inches
BAR_HEIGHT = 0.24
MOST_NAME = 44  # characters of a bar's name


def draw(measured: Mapping[str, Any], path: Path) -> None:
    """Draw one page with panels for all tables with figures; the path's extension selects the format.

    measured: contents of the --json file. Raise ValueError if no table has a figure.
    """
    tables = [table for table in measured["tables"] if figures_of(table) or lines_of(table)]
    if not tables:
        raise ValueError("nothing to draw: no table has a figure")
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "pumice", "font.size": 8})  # keep text as text
    pyplot: Any = import_module("matplotlib.pyplot")
    rows = [tables[i : i + COLUMNS] for i in range(0, len(tables), COLUMNS)]
    heights = [max(height_of(table) for table in row) for row in rows]
    figure = pyplot.figure(figsize=(6.5 * min(len(tables), COLUMNS), sum(heights) + 0.8), layout="constrained")
    figure.suptitle(f"{wrapped(measured['device'], 120)}\n{measured['driver']}, {measured['date']}")
    grid = figure.add_gridspec(len(rows), min(len(tables), COLUMNS), height_ratios=heights)
    for i, row in enumerate(rows):
        for j, table in enumerate(row):
            panel = figure.add_subplot(grid[i, j])
            panel.set_title(wrapped(table["title"]), fontsize=9)
            (draw_lines if lines_of(table) else draw_bars)(panel, table)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def figure_of(row: Mapping[str, Any]) -> float | None:
    """Return the figure that a row is judged by."""
    value: float | None = row["best"] if row["judged"] == "best" or row["median"] is None else row["median"]
    return value if value is not None and math.isfinite(value) else None


def figures_of(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in table["rows"] if figure_of(row) is not None]


def lines_of(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in table["rows"] if row.get("points")]


def height_of(table: Mapping[str, Any]) -> float:
    return LINES_HEIGHT if lines_of(table) else 1.0 + BAR_HEIGHT * len(figures_of(table))


def wrapped(text: str, width: int = 70) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))


def draw_lines(panel: Any, table: Mapping[str, Any]) -> None:
    for row in lines_of(table):
        known = [(x, y) for x, y in row["points"] if y > 0]
        label = row["what"] if figure_of(row) is None else f"{row['what']}, slope {figure_of(row):.2f}"
        panel.plot([x for x, _ in known], [y for _, y in known], marker="o", label=label)
    panel.set(xscale="log", yscale="log", xlabel=table.get("axis", ""))
    panel.grid(visible=True, which="both", alpha=0.3)
    panel.legend()


def draw_bars(panel: Any, table: Mapping[str, Any]) -> None:
    rows = figures_of(table)
    values = [figure_of(row) or 0.0 for row in rows]
    positive = [value for value in values if value > 0]
    panel.barh(range(len(rows)), values, color=["tab:red" if row["met"] is False else "tab:blue" for row in rows])
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        panel.text(value, place, f" {value:,.4g}", va="center")
        if row["target"] is not None:
            panel.plot([row["target"]] * 2, [place - 0.4, place + 0.4], color="black")
    names = [row["what"] for row in rows]
    panel.set_yticks(
        range(len(rows)), [name if len(name) <= MOST_NAME else name[: MOST_NAME - 1] + "…" for name in names]
    )
    panel.invert_yaxis()
    panel.set_xlabel(table["unit"])
    panel.margins(x=0.15)
    if positive and max(positive) > 50 * min(positive):
        panel.set_xscale("log")


def main(paths: Sequence[str]) -> int:
    """Draw each file next to itself."""
    for name in paths:
        path = Path(name)
        draw(json.loads(path.read_text()), path.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
