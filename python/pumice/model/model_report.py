"""Model.report(): the kernels, precision and fusion of each node, as text and in notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..base.printable_text import MAX_SENTENCE_CHARS, escape_unprintable, shorten_and_escape
from .pipeline_table import PIPELINE_COLUMNS, format_pipelines, make_pipeline_row

if TYPE_CHECKING:
    from .._pumice import Context, Program
    from .model import Model

_DROPPED_NOTES = ("folded", "not needed")
_NOTES_WITHOUT_KERNEL = ("view", "host")


class ModelReport(list[dict[str, str]]):
    """One row (a dict) per node: node, op, kernel, precision, note, added, fusion. str() returns a table.

    warnings: wrong or ignored declarations of the file. pipelines: in a compile-only context, its pipelines in use with the driver's
    statistics, one dict each; else empty. Kernels, views and host computations describe the last call; before the
    first call, only shape-independent ones are known.
    """

    def __init__(
        self,
        rows: list[dict[str, str]],
        device: str,
        warnings: Sequence[str] = (),
        pipelines: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__(rows)
        self.device = device
        self.warnings = tuple(warnings)
        self.pipelines = tuple(pipelines)

    @property
    def before(self) -> int:
        """The number of nodes before fusion, without added nodes such as casts of inputs and outputs."""
        return sum(not row["added"] for row in self)

    @property
    def after(self) -> int:
        """The number of nodes after fusion, constant folding and removal of unused nodes, including added casts."""
        return len(self) - sum(self.fused.values()) - self._count_rows_with_note(_DROPPED_NOTES)

    @property
    def fused(self) -> dict[str, int]:
        """Name of a fusion (see `pumice.fusions()`) -> number of nodes that it merged into others."""
        return dict(Counter(row["fusion"] for row in self if row["fusion"]).most_common())

    def _count_rows_with_note(self, notes: tuple[str, ...]) -> int:
        return sum(row["note"] in notes for row in self)

    @property
    def summary(self) -> str:
        """The number of nodes before and after fusion, in one line."""
        fused = ", ".join(f"{name} {count}" for name, count in self.fused.items())
        counts = [
            f"{sum(self.fused.values())} fused ({fused})" if fused else "none fused",
            f"{self._count_rows_with_note(_DROPPED_NOTES)} folded or not needed",
            f"{self._count_rows_with_note(_NOTES_WITHOUT_KERNEL)} views or on the host",
        ]
        return f"{self.before} nodes before, {self.after} after: {', '.join(counts)}"

    def _get_columns(self) -> list[str]:
        return list(dict.fromkeys(key for row in self for key in row))

    def __str__(self) -> str:
        columns = self._get_columns()
        cells = [
            columns,
            *([shorten_and_escape(row.get(column, ""), MAX_SENTENCE_CHARS) for column in columns] for row in self),
        ]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
        warnings = [f"warning: {escape_unprintable(warning)}" for warning in self.warnings]
        return "\n".join(
            [
                f"on {escape_unprintable(self.device)}",
                self.summary,
                *warnings,
                *(line.rstrip() for line in lines),
                *(["", *format_pipelines(self.pipelines)] if self.pipelines else ()),
            ]
        )

    def _repr_html_(self) -> str:
        from ..base.html import render_properties, render_table

        columns = self._get_columns()
        summary_rows = {"device": self.device, "nodes": self.summary}
        if self.warnings:
            summary_rows["warnings"] = "; ".join(map(escape_unprintable, self.warnings))
        table = render_table(
            columns, ([shorten_and_escape(row.get(key, ""), MAX_SENTENCE_CHARS) for key in columns] for row in self)
        )
        pipelines = render_table(PIPELINE_COLUMNS, map(make_pipeline_row, self.pipelines)) if self.pipelines else ""
        return render_properties("Report", summary_rows) + table + pipelines


def make_report(program: Program, context: Context, random: str, warnings: Sequence[str]) -> ModelReport:
    """Return the report on a program. random: a description of its random seed; "" without random numbers."""
    info = context.info
    quirks = ", ".join(quirk.name for quirk in context.driver_quirks)
    device = f"{info.name} ({info.kind}), {context.choice}; driver quirks: {quirks or 'none'}"
    if not context.feature("shaderInt64"):
        device += "; 64-bit integers are pairs of words"
    pipelines = [dict(record) for record in context.pipelines if record["used"]]
    return ModelReport(program.report(), f"{device}; {random}" if random else device, warnings, pipelines)


def render_model(model: Model) -> str:
    """Return the HTML that notebooks show for a model."""
    from ..base.html import render_properties, render_table

    info = model.context.info
    pairs = {"precision": model.precision, "device": f"{info.name} ({info.kind}), {model.context.choice}"}
    values = [("input", value) for value in model.inputs] + [("output", value) for value in model.outputs]
    return render_properties(f"Model {shorten_and_escape(model.name)}", pairs) + render_table(("", "value"), values)
