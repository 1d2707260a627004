"""A profile as one self-contained HTML page without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.printable_text import plain
from ..validation.view.charts import BLUE, GREY, ORANGE
from ..validation.view.document import document
from ..validation.view.markup import Markup, element, joined, path
from ..validation.view.tables import scrolled
from .records import DeviceSpan

if TYPE_CHECKING:
    from .memory import MemoryMap
    from .profile import Profile

_WIDTH, _LANE, _ARENA = 960, 26, 240
_MOST_BARS = 4000  # maximum bars in a plot; a page shows the first bars and the number of omitted ones
_HEADS = ("name", "count", "us", "barriers us", "share", "GB/s", "GFLOP/s", "of peak", "kernel")


def page(profile: Profile, title: str) -> str:
    """Return the page: summary, timeline, tables by node and by kernel, host spans, and memory. Names are escaped."""
    body = [
        element("header", element("h1", plain(title)), element("p", profile.summary())),
        element(
            "main",
            element("section", element("h2", "Timeline"), timeline(profile)),
            element("section", element("h2", "Nodes"), _table("Nodes", profile.cells("node"))),
            element("section", element("h2", "Kernels"), _table("Kernels", profile.cells("kernel"))),
            element("section", element("h2", "Host"), _host(profile)),
            element("section", element("h2", "Memory"), *map(_memory, profile.memory)) if profile.memory else None,
        ),
    ]
    return document(title, body)


def timeline(profile: Profile) -> Markup:
    """Draw three lanes of bars as SVG: host spans, executions, and dispatches with the barriers between them."""
    whole = max(profile.seconds, 1e-9)
    bars: list[tuple[int, float, float, str, str]] = []
    bars += [(0, one.begin, one.end, GREY, f"{one.kind} {one.name}".strip()) for one in profile.host]
    bars += [(1, one.begin, one.end, BLUE, "execution") for one in profile.executions]
    bars += [(2, one.ready, one.end, ORANGE, _said(one)) for one in profile.spans]
    drawn = [
        _bar(lane, begin, end - begin, whole, colour, text) for lane, begin, end, colour, text in bars[:_MOST_BARS]
    ]
    names = [
        element("text", name, x=4, y=lane * _LANE + 18, fill="currentColor", font_size=12)
        for lane, name in enumerate(("host", "executions", "nodes"))
    ]
    height = 3 * _LANE
    picture = element(
        "svg", *drawn, *names, viewBox=f"0 0 {_WIDTH} {height}", width="100%", role="img", aria_label="Timeline"
    )
    left = len(bars) - len(drawn)
    return joined([picture, element("p", f"{left:,} more bars are not drawn") if left > 0 else None])


def _said(span: DeviceSpan) -> str:
    return f"{span.node or 'execution'}: {span.kernel}, {span.seconds * 1e6:,.1f} us"


def _bar(lane: int, begin: float, length: float, whole: float, colour: str, text: str) -> Markup:
    x, width = begin / whole * _WIDTH, max(length / whole * _WIDTH, 0.3)
    inside = element("title", text)
    shape = path(f"M{x:.2f} {lane * _LANE + 2}h{width:.2f}v{_LANE - 4}h-{width:.2f}z", fill=colour)
    return element("g", shape, inside, fill_opacity=0.8)


def _table(label: str, rows: list[tuple[str, ...]]) -> Markup:
    head = element("thead", element("tr", *(element("th", one) for one in _HEADS)))
    lines = [element("tr", *(element("td", one) for one in row)) for row in rows]
    return scrolled(element("table", head, element("tbody", *lines)), label)


def _host(profile: Profile) -> Markup:
    head = element("thead", element("tr", *(element("th", one) for one in ("kind", "count", "us", "bytes"))))
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
    return scrolled(element("table", head, element("tbody", *lines)), "Host")


def _memory(told: MemoryMap) -> Markup:
    """Draw a model's arena, and list the tensors of its peak in a table."""
    head = element("thead", element("tr", *(element("th", one) for one in ("tensor", "made by", "bytes", "waves"))))
    lines = [element("tr", *(element("td", one) for one in row)) for row in told.peak_rows()]
    rows = scrolled(element("table", head, element("tbody", *lines)), "Memory")
    return joined([element("p", told.summary()), arena(told), rows])


def arena(told: MemoryMap) -> Markup:
    """Draw arena offsets (upwards) against waves: one rectangle per tensor, the peak wave between two lines."""
    waves, size = max(told.waves, 1), max(told.arena_bytes, 1)
    wide, high = _WIDTH / waves, _ARENA / size
    drawn = []
    for i, one in enumerate(told.tensors[:_MOST_BARS]):
        x, y = one.first * wide, _ARENA - one.end * high
        width, height = (one.last + 1 - one.first) * wide, max(one.bytes * high, 0.5)
        said = f"{one.name}: {one.bytes:,} bytes, waves {one.first} to {one.last}, made by {one.node}"
        shape = path(f"M{x:.2f} {y:.2f}h{width:.2f}v{height:.2f}h-{width:.2f}z", fill=(BLUE, ORANGE, GREY)[i % 3])
        drawn.append(element("g", shape, element("title", said), fill_opacity=0.8, stroke="white", stroke_width=0.5))
    peak = [
        path(f"M{wave * wide:.2f} 0v{_ARENA}", stroke="currentColor", stroke_width=1, fill="none")
        for wave in (told.peak_wave, told.peak_wave + 1)
    ]
    label = f"Memory of {plain(told.name)}"
    picture = element(
        "svg", *drawn, *peak, viewBox=f"0 0 {_WIDTH} {_ARENA}", width="100%", role="img", aria_label=label
    )
    left = len(told.tensors) - len(drawn)
    return joined([picture, element("p", f"{left:,} more tensors are not drawn") if left > 0 else None])
