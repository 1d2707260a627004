"""A profile as one self-contained HTML page without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.printable_text import shorten_and_escape
from ..validation.report.view.charts import BLUE, GREY, ORANGE
from ..validation.report.view.html_document import make_document
from ..validation.report.view.html_markup import Markup, concat_markup, element, make_svg_path
from ..validation.report.view.tables import make_scroll_box
from .profile_records import DeviceSpan

if TYPE_CHECKING:
    from .memory import MemoryMap
    from .profile import Profile

_WIDTH, _LANE_HEIGHT, _ARENA_HEIGHT = 960, 26, 240
_MAX_BARS = 4000  # maximum bars per plot; the rest are only counted
_HEADERS = ("name", "count", "us", "barriers us", "share", "GB/s", "GFLOP/s", "of peak", "kernel")


def render_page(profile: Profile, title: str) -> str:
    """Return the HTML page: summary, timeline, tables by node and by kernel, host spans, and memory maps. Names are escaped."""
    body = [
        element("header", element("h1", shorten_and_escape(title)), element("p", profile.summary())),
        element(
            "main",
            element("section", element("h2", "Timeline"), render_timeline(profile)),
            element("section", element("h2", "Nodes"), _render_table("Nodes", profile.cells("node"))),
            element("section", element("h2", "Kernels"), _render_table("Kernels", profile.cells("kernel"))),
            element("section", element("h2", "Host"), _render_host_table(profile)),
            element("section", element("h2", "Memory"), *map(_render_memory, profile.memory))
            if profile.memory
            else None,
        ),
    ]
    return make_document(title, body)


def render_timeline(profile: Profile) -> Markup:
    """Draw an SVG with three lanes: host spans, executions, and node spans, with gaps for the barriers."""
    total_seconds = max(profile.seconds, 1e-9)
    bars: list[tuple[int, float, float, str, str]] = []
    bars += [(0, span.begin, span.end, GREY, f"{span.kind} {span.name}".strip()) for span in profile.host]
    bars += [(1, execution.begin, execution.end, BLUE, "execution") for execution in profile.executions]
    bars += [(2, span.ready, span.end, ORANGE, _format_span_label(span)) for span in profile.spans]
    bar_elements = [
        _draw_bar(lane, begin, end - begin, total_seconds, colour, text)
        for lane, begin, end, colour, text in bars[:_MAX_BARS]
    ]
    names = [
        element("text", name, x=4, y=lane * _LANE_HEIGHT + 18, fill="currentColor", font_size=12)
        for lane, name in enumerate(("host", "executions", "nodes"))
    ]
    height = 3 * _LANE_HEIGHT
    svg = element(
        "svg", *bar_elements, *names, viewBox=f"0 0 {_WIDTH} {height}", width="100%", role="img", aria_label="Timeline"
    )
    num_omitted = len(bars) - len(bar_elements)
    return concat_markup([svg, element("p", f"{num_omitted:,} more bars are not drawn") if num_omitted > 0 else None])


def _format_span_label(span: DeviceSpan) -> str:
    return f"{span.node or 'execution'}: {span.kernel}, {span.seconds * 1e6:,.1f} us"


def _draw_bar(lane: int, begin: float, length: float, total_seconds: float, colour: str, text: str) -> Markup:
    x, width = begin / total_seconds * _WIDTH, max(length / total_seconds * _WIDTH, 0.3)
    tooltip_element = element("title", text)
    shape = make_svg_path(
        f"M{x:.2f} {lane * _LANE_HEIGHT + 2}h{width:.2f}v{_LANE_HEIGHT - 4}h-{width:.2f}z", fill=colour
    )
    return element("g", shape, tooltip_element, fill_opacity=0.8)


def _render_table(label: str, rows: list[tuple[str, ...]]) -> Markup:
    head = element("thead", element("tr", *(element("th", header) for header in _HEADERS)))
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    return make_scroll_box(element("table", head, element("tbody", *lines)), label)


def _render_host_table(profile: Profile) -> Markup:
    head = element("thead", element("tr", *(element("th", header) for header in ("kind", "count", "us", "bytes"))))
    lines = [
        element(
            "tr",
            element("td", kind),
            element("td", count),
            element("td", f"{seconds * 1e6:,.1f}"),
            element("td", f"{moved:,}"),
        )
        for kind, count, seconds, moved in profile.host_rows()
    ]
    return make_scroll_box(element("table", head, element("tbody", *lines)), "Host")


def _render_memory(memory_map: MemoryMap) -> Markup:
    """Draw a model's arena, with a table of the tensors that are live at the peak."""
    head = element(
        "thead", element("tr", *(element("th", header) for header in ("tensor", "made by", "bytes", "waves")))
    )
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in memory_map.peak_rows()]
    rows = make_scroll_box(element("table", head, element("tbody", *lines)), "Memory")
    return concat_markup([element("p", memory_map.summary()), draw_arena(memory_map), rows])


def draw_arena(memory_map: MemoryMap) -> Markup:
    """Draw an SVG of arena offsets (upwards) over waves: one rectangle per tensor, the peak wave between two lines."""
    waves, size = max(memory_map.waves, 1), max(memory_map.arena_bytes, 1)
    wave_width, byte_height = _WIDTH / waves, _ARENA_HEIGHT / size
    bar_elements = []
    for i, tensor in enumerate(memory_map.tensors[:_MAX_BARS]):
        x, y = tensor.first * wave_width, _ARENA_HEIGHT - tensor.end * byte_height
        width, height = (tensor.last + 1 - tensor.first) * wave_width, max(tensor.bytes * byte_height, 0.5)
        tooltip = f"{tensor.name}: {tensor.bytes:,} bytes, waves {tensor.first} to {tensor.last}, made by {tensor.node}"
        shape = make_svg_path(
            f"M{x:.2f} {y:.2f}h{width:.2f}v{height:.2f}h-{width:.2f}z", fill=(BLUE, ORANGE, GREY)[i % 3]
        )
        bar_elements.append(
            element("g", shape, element("title", tooltip), fill_opacity=0.8, stroke="white", stroke_width=0.5)
        )
    peak = [
        make_svg_path(f"M{wave * wave_width:.2f} 0v{_ARENA_HEIGHT}", stroke="currentColor", stroke_width=1, fill="none")
        for wave in (memory_map.peak_wave, memory_map.peak_wave + 1)
    ]
    label = f"Memory of {shorten_and_escape(memory_map.name)}"
    svg = element(
        "svg", *bar_elements, *peak, viewBox=f"0 0 {_WIDTH} {_ARENA_HEIGHT}", width="100%", role="img", aria_label=label
    )
    num_omitted = len(memory_map.tensors) - len(bar_elements)
    return concat_markup(
        [svg, element("p", f"{num_omitted:,} more tensors are not drawn") if num_omitted > 0 else None]
    )
