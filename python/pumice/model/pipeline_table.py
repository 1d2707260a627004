"""The table of a compile-only context's pipelines, with the driver's statistics of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base.printable_text import shorten_and_escape

PIPELINE_COLUMNS = ("kernel", "registers", "spills", "shared", "occupancy", "code", "ms", "variant")
_STATISTICS = ("registers", "spills", "shared_bytes", "occupancy", "code_bytes")


def make_pipeline_row(pipeline: Mapping[str, Any]) -> list[str]:
    """Return the cells of a record of `Context.pipelines`; empty ones if the driver does not report a statistic."""
    numbers = [pipeline["summary"][name] for name in _STATISTICS]
    cells = ["" if number is None else f"{number:,}" for number in numbers]
    size = "x".join(map(str, pipeline["local_size"]))
    variant = " ".join(filter(None, (pipeline["storage"], size, pipeline["constants"])))
    return [
        shorten_and_escape(pipeline["kernel"]),
        *cells,
        f"{pipeline['compile_seconds'] * 1e3:.1f}",
        shorten_and_escape(variant),
    ]


def format_pipelines(pipelines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the table, sorted by kernel."""
    rows = [list(PIPELINE_COLUMNS), *sorted(map(make_pipeline_row, pipelines))]
    last = len(PIPELINE_COLUMNS) - 1
    widths = [max(len(row[i]) for row in rows) for i in range(last)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, last)), row[last]]).rstrip()
        for row in rows
    ]
