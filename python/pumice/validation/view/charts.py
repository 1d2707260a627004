"""Charts of a record's rows along the model, as SVG that is readable without a style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .markup import Markup, element, joined, path

BLUE, RED, GREY, ORANGE = "#3b82c4", "#d9483b", "#8a8f98", "#c77d12"
_WIDTH, _HEIGHT = 960, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 16, 34
# fp16: largest number, smallest normal, smallest subnormal.
FP16 = ((65504.0, "65504: largest"), (2.0**-14, "6.1e-5: smallest normal"), (2.0**-24, "6.0e-8: smallest"))
_LEAST, _MOST = 1e-45, 3.5e38

Row = Mapping[str, Any]


class _Frame(NamedTuple):
    """Coordinates on a chart with a logarithmic axis from 10^low to 10^high, and that many rows side by side."""

    low: float
    high: float
    rows: int

    def x(self, index: int) -> float:
        return _LEFT + (index + 0.5) * (_WIDTH - _LEFT - _RIGHT) / max(self.rows, 1)

    def y(self, value: float) -> float:
        """Return the y coordinate, clamped to the axis."""
        level = math.log10(min(max(value, _LEAST), _MOST))
        part = (min(max(level, self.low), self.high) - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)


def _frame(values: Iterable[float], count: int) -> _Frame:
    levels = [math.log10(min(max(value, _LEAST), _MOST)) for value in values if value > 0]
    low, high = (math.floor(min(levels)), math.ceil(max(levels))) if levels else (-8, 0)
    return _Frame(low - 1, max(high, low + 1), count)


def _axis(frame: _Frame, unit: str) -> Markup:
    step = max(1, math.ceil((frame.high - frame.low) / 8))
    levels = range(math.ceil(frame.low) + 1, math.floor(frame.high) + 1, step)
    lines = "".join(f"M{_LEFT} {frame.y(10.0**level):.1f}H{_WIDTH - _RIGHT}" for level in levels)
    labels = [_text(_LEFT - 6, frame.y(10.0**level) + 4, f"1e{level}", "end") for level in levels]
    ends = f"M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"
    return joined(
        [
            path(lines, class_="grid", fill="none", stroke=GREY, stroke_opacity="0.25"),
            path(ends, class_="axis", fill="none", stroke=GREY),
            *labels,
            _text(_WIDTH - _RIGHT, _HEIGHT - 8, f"{unit} along the model, {frame.rows} tensors", "end"),
        ]
    )


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "currentColor") -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill=colour, font_size=11)


def _dots(points: Iterable[tuple[float, float]], colour: str, name: str, width: float = 5) -> Markup:
    line = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
    return path(line, class_=name, fill="none", stroke=colour, stroke_width=width, stroke_linecap="round")


def _crosses(points: Iterable[tuple[float, float]], name: str) -> Markup:
    line = "".join(f"M{x - 5:.1f} {y - 5:.1f}l10 10m-10 0l10 -10" for x, y in points)
    return path(line, class_=name, fill="none", stroke=RED, stroke_width=2.2)


def _chart(frame: _Frame, label: str, *parts: object) -> Markup:
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width=_WIDTH,
        height=_HEIGHT,
        role="img",
        aria_label=label,
        class_="chart",
        data_left=_LEFT,
        data_right=_RIGHT,
        data_count=frame.rows,
    )


def error_chart(rows: Sequence[Row]) -> Markup:
    """Return a chart of every tensor's error and bound on a logarithmic axis, and the error from the model's inputs on.

    Errors of 0 are drawn on the axis, infinite errors at the top.
    """
    seen = [v for row in rows for v in (row["error"], row["allowed"], row["accumulated"]) if v]
    frame = _frame(seen, len(rows))
    bound = _steps(frame, [row["allowed"] for row in rows])
    right: list[tuple[float, float]] = []
    wrong: list[tuple[float, float]] = []
    open_: list[tuple[float, float]] = []
    for i, row in enumerate(rows):
        if not row["compared"]:
            open_.append((frame.x(i), frame.y(0)))
            continue
        error = _MOST if row["error"] is None else row["error"]
        (wrong if row["verdict"] == "wrong" else right).append((frame.x(i), frame.y(error)))
    size = 5 if len(rows) < 400 else 3
    return _chart(
        frame,
        f"Error against bound of {len(rows)} tensors, {len(wrong)} beyond it; the table below has the numbers",
        _axis(frame, "absolute error"),
        path(
            _steps(frame, [row["accumulated"] for row in rows]),
            class_="whole",
            fill="none",
            stroke=GREY,
            stroke_width=1.4,
        ),
        path(bound, class_="bound", fill="none", stroke=ORANGE, stroke_width=1.8),
        _dots(right, BLUE, "within", size),
        _crosses(wrong, "beyond"),
        _dots(open_, GREY, "open", size),
    )


def _steps(frame: _Frame, values: Sequence[float | None]) -> str:
    """Return a path with a horizontal line across each row that has a value."""
    half = max((_WIDTH - _LEFT - _RIGHT) / max(frame.rows, 1) / 2, 0.8)
    parts = []
    for i, value in enumerate(values):
        if value is not None:
            parts.append(f"M{frame.x(i) - half:.1f} {frame.y(value):.1f}h{2 * half:.1f}")
    return "".join(parts)


def beyond_fp16(statistics: Mapping[str, Any] | None) -> str:
    """Return how a tensor exceeds fp16, or "". Use the reference's range if there is one, which is not
    clipped by any precision.
    """
    if statistics is None:
        return ""
    of = statistics["reference"] or statistics
    largest = max(abs(of["least"] or 0.0), abs(of["most"] or 0.0))
    if largest >= 65520:
        return "overflows"
    if of["smallest"] is not None and of["smallest"] < 2.0**-25:
        return "loses small numbers"
    return ""


def range_chart(rows: Sequence[Row]) -> Markup:
    """Return a chart of every tensor's range of magnitudes, with the limits of fp16."""
    spans = [(i, *span) for i, row in enumerate(rows) if (span := _span(row["statistics"]))]
    limits = [limit for limit, _ in FP16]
    frame = _frame([*limits, *(v for _, low, high in spans for v in (low, high))], len(rows))
    inside: list[str] = []
    over: list[str] = []
    for i, low, high in spans:
        line = f"M{frame.x(i):.1f} {frame.y(low):.1f}V{min(frame.y(high), frame.y(low) - 3):.1f}"
        (over if high >= 65520 else inside).append(line)
    width = min(max(0.6 * (_WIDTH - _LEFT - _RIGHT) / max(len(rows), 1), 1.0), 14.0)
    marks = "".join(f"M{frame.x(i) - 5:.1f} {_TOP}l5 -9l5 9z" for i, _, high in spans if high >= 65520)
    lines = [
        joined(
            [
                path(f"M{_LEFT} {frame.y(v):.1f}H{_WIDTH - _RIGHT}", stroke=ORANGE, stroke_dasharray="5 4"),
                _text(_LEFT + 6, frame.y(v) - 4, f"fp16 {name}", "start", ORANGE),
            ]
        )
        for v, name in FP16
    ]
    return _chart(
        frame,
        f"Magnitudes of {len(spans)} tensors against the limits of fp16; {len(over)} are beyond its largest number",
        _axis(frame, "magnitude"),
        path("".join(inside), class_="span", stroke=BLUE, stroke_width=width, stroke_opacity="0.75"),
        path("".join(over), class_="over", stroke=RED, stroke_width=width),
        *lines,
        path(marks, class_="over", fill=RED),
    )


def _span(statistics: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """Return the smallest and largest magnitude, from the reference if available, because infinity cannot be drawn."""
    if statistics is None:
        return None
    of = statistics["reference"] or statistics
    if of["smallest"] is None:
        return None
    return of["smallest"], max(abs(of["least"]), abs(of["most"]))


def legend(entries: Sequence[tuple[str, str, str]]) -> Markup:
    """Return a legend. entries: (sign, colour, text)."""
    lines = []
    for sign, colour, text in entries:
        shown = element("span", sign, style=f"color:{colour};font-weight:bold", aria_hidden="true")
        lines.append(element("li", shown, f" {text}"))
    return element("ul", *lines, class_="legend")
