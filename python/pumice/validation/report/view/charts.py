"""Draws a report's rows along the model as SVG charts that are readable without a style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .html_markup import Markup, concat_markup, element, make_svg_path

BLUE, RED, GREY, ORANGE = "#3b82c4", "#d9483b", "#8a8f98", "#c77d12"
_WIDTH, _HEIGHT = 960, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 16, 34
# Largest number, smallest normal and smallest subnormal of fp16.
FP16_LIMITS = ((65504.0, "65504: largest"), (2.0**-14, "6.1e-5: smallest normal"), (2.0**-24, "6.0e-8: smallest"))
_MIN_VALUE, _MAX_VALUE = 1e-45, 3.5e38

Row = Mapping[str, Any]


class _ChartFrame(NamedTuple):
    """Chart coordinates: a logarithmic y axis from 10^low to 10^high, and `rows` columns on the x axis."""

    low: float
    high: float
    rows: int

    def x(self, index: int) -> float:
        return _LEFT + (index + 0.5) * (_WIDTH - _LEFT - _RIGHT) / max(self.rows, 1)

    def y(self, value: float) -> float:
        """Return the y coordinate, clamped to the axis."""
        level = math.log10(min(max(value, _MIN_VALUE), _MAX_VALUE))
        fraction = (min(max(level, self.low), self.high) - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - fraction * (_HEIGHT - _TOP - _BOTTOM)


def _make_frame(values: Iterable[float], count: int) -> _ChartFrame:
    levels = [math.log10(min(max(value, _MIN_VALUE), _MAX_VALUE)) for value in values if value > 0]
    low, high = (math.floor(min(levels)), math.ceil(max(levels))) if levels else (-8, 0)
    return _ChartFrame(low - 1, max(high, low + 1), count)


def _draw_axis(frame: _ChartFrame, unit: str) -> Markup:
    step = max(1, math.ceil((frame.high - frame.low) / 8))
    levels = range(math.ceil(frame.low) + 1, math.floor(frame.high) + 1, step)
    lines = "".join(f"M{_LEFT} {frame.y(10.0**level):.1f}H{_WIDTH - _RIGHT}" for level in levels)
    labels = [_draw_text(_LEFT - 6, frame.y(10.0**level) + 4, f"1e{level}", "end") for level in levels]
    ends = f"M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"
    return concat_markup(
        [
            make_svg_path(lines, class_="grid", fill="none", stroke=GREY, stroke_opacity="0.25"),
            make_svg_path(ends, class_="axis", fill="none", stroke=GREY),
            *labels,
            _draw_text(_WIDTH - _RIGHT, _HEIGHT - 8, f"{unit} along the model, {frame.rows} tensors", "end"),
        ]
    )


def _draw_text(x: float, y: float, text: str, anchor: str = "start", colour: str = "currentColor") -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill=colour, font_size=11)


def _draw_dots(points: Iterable[tuple[float, float]], colour: str, name: str, width: float = 5) -> Markup:
    line = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
    return make_svg_path(line, class_=name, fill="none", stroke=colour, stroke_width=width, stroke_linecap="round")


def _draw_crosses(points: Iterable[tuple[float, float]], name: str) -> Markup:
    line = "".join(f"M{x - 5:.1f} {y - 5:.1f}l10 10m-10 0l10 -10" for x, y in points)
    return make_svg_path(line, class_=name, fill="none", stroke=RED, stroke_width=2.2)


def _make_chart(frame: _ChartFrame, label: str, *children: object) -> Markup:
    return element(
        "svg",
        *children,
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


def draw_error_chart(rows: Sequence[Row]) -> Markup:
    """Return a chart of every tensor's error and bound on a logarithmic axis, and the error from the model's inputs on.

    Errors of 0 are drawn on the axis, infinite errors at the top.
    """
    plotted = [v for row in rows for v in (row["error"], row["allowed"], row["accumulated"]) if v]
    frame = _make_frame(plotted, len(rows))
    bound = _make_step_path(frame, [row["allowed"] for row in rows])
    right: list[tuple[float, float]] = []
    wrong: list[tuple[float, float]] = []
    not_compared: list[tuple[float, float]] = []
    for i, row in enumerate(rows):
        if not row["compared"]:
            not_compared.append((frame.x(i), frame.y(0)))
            continue
        error = _MAX_VALUE if row["error"] is None else row["error"]
        (wrong if row["verdict"] == "wrong" else right).append((frame.x(i), frame.y(error)))
    size = 5 if len(rows) < 400 else 3
    return _make_chart(
        frame,
        f"Error against bound of {len(rows)} tensors, {len(wrong)} beyond it; the table below has the numbers",
        _draw_axis(frame, "absolute error"),
        make_svg_path(
            _make_step_path(frame, [row["accumulated"] for row in rows]),
            class_="whole",
            fill="none",
            stroke=GREY,
            stroke_width=1.4,
        ),
        make_svg_path(bound, class_="bound", fill="none", stroke=ORANGE, stroke_width=1.8),
        _draw_dots(right, BLUE, "within", size),
        _draw_crosses(wrong, "beyond"),
        _draw_dots(not_compared, GREY, "open", size),
    )


def _make_step_path(frame: _ChartFrame, values: Sequence[float | None]) -> str:
    """Return a path with a horizontal line across each row that has a value."""
    half = max((_WIDTH - _LEFT - _RIGHT) / max(frame.rows, 1) / 2, 0.8)
    segments = []
    for i, value in enumerate(values):
        if value is not None:
            segments.append(f"M{frame.x(i) - half:.1f} {frame.y(value):.1f}h{2 * half:.1f}")
    return "".join(segments)


def describe_fp16_overflow(statistics: Mapping[str, Any] | None) -> str:
    """Return a phrase about how a tensor exceeds fp16, or "".

    The reference's range is used if there is one, because no storage type clips it.
    """
    if statistics is None:
        return ""
    value_range = statistics["reference"] or statistics
    largest = max(abs(value_range["least"] or 0.0), abs(value_range["most"] or 0.0))
    if largest >= 65520:
        return "overflows"
    if value_range["smallest"] is not None and value_range["smallest"] < 2.0**-25:
        return "loses small numbers"
    return ""


def draw_range_chart(rows: Sequence[Row]) -> Markup:
    """Return a chart of every tensor's range of magnitudes, with the limits of fp16."""
    spans = [(i, *span) for i, row in enumerate(rows) if (span := _get_magnitude_range(row["statistics"]))]
    limits = [limit for limit, _ in FP16_LIMITS]
    frame = _make_frame([*limits, *(v for _, low, high in spans for v in (low, high))], len(rows))
    inside: list[str] = []
    over: list[str] = []
    for i, low, high in spans:
        line = f"M{frame.x(i):.1f} {frame.y(low):.1f}V{min(frame.y(high), frame.y(low) - 3):.1f}"
        (over if high >= 65520 else inside).append(line)
    width = min(max(0.6 * (_WIDTH - _LEFT - _RIGHT) / max(len(rows), 1), 1.0), 14.0)
    marks = "".join(f"M{frame.x(i) - 5:.1f} {_TOP}l5 -9l5 9z" for i, _, high in spans if high >= 65520)
    lines = [
        concat_markup(
            [
                make_svg_path(f"M{_LEFT} {frame.y(v):.1f}H{_WIDTH - _RIGHT}", stroke=ORANGE, stroke_dasharray="5 4"),
                _draw_text(_LEFT + 6, frame.y(v) - 4, f"fp16 {name}", "start", ORANGE),
            ]
        )
        for v, name in FP16_LIMITS
    ]
    return _make_chart(
        frame,
        f"Magnitudes of {len(spans)} tensors against the limits of fp16; {len(over)} are beyond its largest number",
        _draw_axis(frame, "magnitude"),
        make_svg_path("".join(inside), class_="span", stroke=BLUE, stroke_width=width, stroke_opacity="0.75"),
        make_svg_path("".join(over), class_="over", stroke=RED, stroke_width=width),
        *lines,
        make_svg_path(marks, class_="over", fill=RED),
    )


def _get_magnitude_range(statistics: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """Return the smallest and largest magnitude: the reference's if available, because infinity cannot be drawn."""
    if statistics is None:
        return None
    value_range = statistics["reference"] or statistics
    if value_range["smallest"] is None:
        return None
    return value_range["smallest"], max(abs(value_range["least"]), abs(value_range["most"]))


def make_legend(entries: Sequence[tuple[str, str, str]]) -> Markup:
    """Return a legend. entries: triples (sign, colour, text)."""
    lines = []
    for sign, colour, text in entries:
        marker = element("span", sign, style=f"color:{colour};font-weight:bold", aria_hidden="true")
        lines.append(element("li", marker, f" {text}"))
    return element("ul", *lines, class_="legend")
