"""Draws a model's graph: nodes in layers by their longest path from the inputs, from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...base.printable_text import plain
from .markup import Markup, element, joined, path

WIDTH, HEIGHT = 152, 38
_GAP, _STEP, _EDGE = 20, 70, 28
_SWEEPS = 3
# Edges across more layers than this are cut: only their ends are drawn, and the lower end names the source.
_FAR = 12
_SIGNS = {"right": "\u2713", "wrong": "\u2717", "unproved": "?", "ill-conditioned": "\u2248", "": "\u00b7"}
_FILLS = {"right": "#dff2e6", "wrong": "#fbd9d4", "unproved": "#fbeccb", "ill-conditioned": "#fbd9d4", "": "#ffffff"}


class Spot(NamedTuple):
    """A box in the picture, with its centre. kind: "node", "input" or "output"."""

    name: str
    op: str
    kind: str
    x: float = 0.0
    y: float = 0.0


class Layout(NamedTuple):
    """The boxes, and edges as pairs of box indices; sizes in pixels."""

    spots: list[Spot]
    edges: list[tuple[int, int]]
    width: float
    height: float


def layout(graph: Mapping[str, Any]) -> Layout:
    """Return the layout of a record's graph. An edge goes from a tensor's producer to a reader."""
    spots, edges = spots_and_edges(graph)
    layers = _layers(spots, edges)
    xs = _across(layers, edges, len(spots))
    left, right = min(xs, default=0.0), max(xs, default=0.0)
    depth = {one: level for level, layer in enumerate(layers) for one in layer}
    shift = _EDGE + WIDTH / 2 - left
    placed = [spot._replace(x=xs[i] + shift, y=_EDGE + HEIGHT / 2 + _STEP * depth[i]) for i, spot in enumerate(spots)]
    width = right - left + WIDTH + 2 * _EDGE if spots else 0.0
    return Layout(placed, edges, width, max(len(layers) - 1, 0) * _STEP + HEIGHT + 2 * _EDGE)


def spots_and_edges(graph: Mapping[str, Any]) -> tuple[list[Spot], list[tuple[int, int]]]:
    """Return the inputs that are read, the nodes and outputs, and the edges between them; constants are omitted."""
    nodes: Sequence[Mapping[str, Any]] = graph.get("nodes", ())
    read = {name for node in nodes for name in node["inputs"]} | set(graph.get("outputs", ()))
    spots: list[Spot] = []
    maker: dict[str, int] = {}
    edges: dict[tuple[int, int], None] = {}
    for name in graph.get("inputs", ()):
        if name in read:
            maker[name] = len(spots)
            spots.append(Spot(name, "input", "input"))
    for node in nodes:
        edges.update(dict.fromkeys((maker[name], len(spots)) for name in node["inputs"] if name in maker))
        maker.update(dict.fromkeys(node["outputs"], len(spots)))
        spots.append(Spot(node["name"], node["op"], "node"))
    for name in graph.get("outputs", ()):
        if name in maker:
            edges[maker[name], len(spots)] = None
        spots.append(Spot(name, "output", "output"))
    return spots, list(edges)


def _layers(spots: list[Spot], edges: list[tuple[int, int]]) -> list[list[int]]:
    """Return the box indices of each layer. Edges go from lower to higher indices."""
    depth = [0] * len(spots)
    below: dict[int, int] = {}
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        depth[target] = max(depth[target], depth[source] + 1)
    for source, target in edges:
        below[source] = min(below.get(source, depth[target]), depth[target])
    for i, spot in enumerate(spots):  # put an input directly above its first reader
        if spot.kind == "input" and i in below:
            depth[i] = max(below[i] - 1, 0)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for i, level in enumerate(depth):
        layers[level].append(i)
    return layers


def _across(layers: list[list[int]], edges: list[tuple[int, int]], count: int) -> list[float]:
    """Return the x coordinates of the boxes, each near the mean of its neighbours, without overlap."""
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    depth = {one: level for level, layer in enumerate(layers) for one in layer}
    for source, target in edges:
        if depth[target] - depth[source] <= _FAR:
            sources[target].append(source)
            targets[source].append(target)
    xs = [0.0] * count
    for layer in layers:
        _spread(layer, xs, sources)
    for _ in range(_SWEEPS):
        for layer in reversed(layers):
            _spread(layer, xs, targets)
        for layer in layers:
            _spread(layer, xs, sources)
    return xs


def _spread(layer: list[int], xs: list[float], neighbours: list[list[int]]) -> None:
    wanted = {one: sum(xs[n] for n in near) / len(near) if (near := neighbours[one]) else xs[one] for one in layer}
    layer.sort(key=lambda one: wanted[one])
    last = -float("inf")
    moved = 0.0
    for one in layer:
        xs[one] = max(wanted[one], last + WIDTH + _GAP)
        last = xs[one]
        moved += xs[one] - wanted[one]
    for one in layer:  # boxes are only pushed right, so shift the layer back by the mean
        xs[one] -= moved / len(layer)


# ---- drawing


def picture(graph: Mapping[str, Any], verdicts: Mapping[str, str], prefix: str = "") -> Markup:
    """Return the graph as SVG.

    verdicts: by node name, or "output NAME" for outputs. prefix: prefix of the node ids, for the script that navigates
    them; without a prefix the picture is static.
    """
    placed = layout(graph)
    nodes = joined(_node(i, spot, verdicts, prefix) for i, spot in enumerate(placed.spots))
    lines, width = _lines(placed)
    hint = "; arrow keys walk along its edges" if prefix else ""
    return element(
        "svg",
        path(lines, class_="edge", fill="none", stroke="#888888"),
        _far_edges(placed),
        nodes,
        width=f"{width:.0f}",
        height=f"{placed.height:.0f}",
        viewBox=f"0 0 {width:.0f} {placed.height:.0f}",
        role="group" if prefix else "img",
        aria_label=f"Graph of {len(graph.get('nodes', ()))} nodes{hint}",
        font_family="sans-serif",
        font_size=11,
        text_anchor="middle",
    )


def _is_far(source: Spot, target: Spot) -> bool:
    return target.y - source.y > _FAR * _STEP


def _far_edges(placed: Layout) -> Markup:
    """Return the ends of edges over many layers, labelled with their sources."""
    read: dict[int, list[str]] = {}
    lines: dict[str, None] = {}
    for a, b in placed.edges:
        source, target = placed.spots[a], placed.spots[b]
        if _is_far(source, target):
            read.setdefault(b, []).append(source.name)
            lines[f"M{source.x - 56:.0f} {source.y + HEIGHT / 2:.0f}v12"] = None
            lines[f"M{target.x - 56:.0f} {target.y - HEIGHT / 2 - 14:.0f}v14"] = None
    labels = []
    for b, names in read.items():
        shown = f"{_cut(names[0], 18)}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
        x, y = placed.spots[b].x - 52, placed.spots[b].y - HEIGHT / 2 - 6
        labels.append(
            element("text", shown, x=f"{x:.0f}", y=f"{y:.0f}", class_="far", fill="#888888", text_anchor="start")
        )
    ends = path("".join(lines), class_="edge far", fill="none", stroke="#888888", stroke_dasharray="3 2")
    return joined([ends, *labels])


def _lines(placed: Layout) -> tuple[str, float]:
    """Return edges as curves between layers, and the resulting width.

    An edge over several layers goes straight down in a lane free of nodes and other such edges.
    """
    width = placed.width
    taken: dict[int, list[tuple[float, float]]] = {}
    for spot in placed.spots:
        taken.setdefault(_level(spot), []).append((spot.x - WIDTH / 2 - 6, spot.x + WIDTH / 2 + 6))
    lines = []
    for source, target in ((placed.spots[a], placed.spots[b]) for a, b in placed.edges):
        top, bottom = source.y + HEIGHT / 2, target.y - HEIGHT / 2
        if _level(target) - _level(source) <= 1:
            lines.append(f"M{source.x:.0f} {top:.0f}{_curve(source.x, top, target.x, bottom)}")
        elif not _is_far(source, target):
            lane = _lane(source, target, taken)
            width = max(width, lane + _EDGE)
            first, last = top + _STEP - HEIGHT, bottom - _STEP + HEIGHT
            down = f"{_curve(source.x, top, lane, first)}V{last:.0f}{_curve(lane, last, target.x, bottom)}"
            lines.append(f"M{source.x:.0f} {top:.0f}{down}")
    return "".join(lines), width


def _level(spot: Spot) -> int:
    return round((spot.y - _EDGE - HEIGHT / 2) / _STEP)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (y + to_y) / 2
    return f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}"


def _lane(source: Spot, target: Spot, taken: dict[int, list[tuple[float, float]]]) -> float:
    """Return the free x coordinate nearest to both ends in all layers between, and mark it as taken."""
    between = range(_level(source) + 1, _level(target))
    spans = [span for level in between for span in taken.get(level, ())]
    places = [source.x, target.x, *(end + step for low, high in spans for end, step in ((low, -1.0), (high, 1.0)))]
    free = [x for x in places if x > 0 and not any(low < x < high for low, high in spans)]
    lane = min(free, key=lambda x: abs(x - source.x) + abs(x - target.x))
    for level in between:
        taken.setdefault(level, []).append((lane - 7, lane + 7))
    return lane


def _node(index: int, spot: Spot, verdicts: Mapping[str, str], prefix: str) -> Markup:
    verdict, sign, said = "", "", ""
    if spot.kind != "input":
        verdict = verdicts.get(f"output {spot.name}" if spot.kind == "output" else spot.name, "")
        sign, said = f"{_SIGNS[verdict]} ", f", {verdict or 'not judged'}"
    box = element(
        "rect",
        x=f"{spot.x - WIDTH / 2:.0f}",
        y=f"{spot.y - HEIGHT / 2:.0f}",
        width=WIDTH,
        height=HEIGHT,
        rx=4 if spot.kind == "node" else HEIGHT // 2,
        fill=_FILLS[verdict],
        stroke="#888888",
    )
    walked = {"id": f"{prefix}g{index}", "tabindex": -1 if index else 0, "role": "button"} if prefix else {}
    return element(
        "g",
        element("title", plain(spot.name, 400)),
        box,
        _line(f"{sign}{_cut(spot.op, 20)}", spot.x, spot.y - 3, class_="op", font_weight="bold"),
        _line(_short(spot.name), spot.x, spot.y + 12),
        class_=f"node {spot.kind} {verdict or 'none'}",
        **walked,
        aria_label=f"{plain(spot.op)} {plain(spot.name)}{said}" if prefix else None,
    )


def _line(text: str, x: float, y: float, **attributes: object) -> Markup:
    return element("text", text, x=f"{x:.0f}", y=f"{y:.0f}", fill="#1d2330", **attributes)


def _cut(text: str, most: int) -> str:
    shown = plain(text, 60)
    return shown if len(shown) <= most else f"{shown[: most - 1]}\u2026"


def _short(name: str) -> str:
    """Shorten a name to its end, which is the most specific part."""
    shown = plain(name, 60)
    return shown if len(shown) <= 22 else f"\u2026{shown[-21:]}"
