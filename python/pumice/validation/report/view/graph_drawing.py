"""Draws a model's graph: nodes in layers by their longest path from the inputs, from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....base.printable_text import shorten_and_escape
from .html_markup import Markup, concat_markup, element, make_svg_path

WIDTH, HEIGHT = 152, 38
_NODE_GAP, _LAYER_STEP, _MARGIN = 20, 70, 28
_SWEEPS = 3
# Of an edge across more layers, only the ends are drawn, and the lower end names the source.
_MAX_DRAWN_LAYERS = 12
_SIGNS = {"right": "\u2713", "wrong": "\u2717", "unproved": "?", "ill-conditioned": "\u2248", "": "\u00b7"}
_FILLS = {"right": "#dff2e6", "wrong": "#fbd9d4", "unproved": "#fbeccb", "ill-conditioned": "#fbd9d4", "": "#ffffff"}


class GraphBox(NamedTuple):
    """A box of the drawing, with its centre. kind: "node", "input" or "output"."""

    name: str
    op: str
    kind: str
    x: float = 0.0
    y: float = 0.0


class GraphLayout(NamedTuple):
    """Boxes, edges as pairs of box indices, and the size in pixels."""

    boxes: list[GraphBox]
    edges: list[tuple[int, int]]
    width: float
    height: float


def compute_layout(graph: Mapping[str, Any]) -> GraphLayout:
    """Return the layout of a record's graph. Edges go from the producer of a tensor to its readers."""
    boxes, edges = make_boxes_and_edges(graph)
    layers = _assign_layers(boxes, edges)
    xs = _assign_columns(layers, edges, len(boxes))
    left, right = min(xs, default=0.0), max(xs, default=0.0)
    depth = {index: level for level, layer in enumerate(layers) for index in layer}
    shift = _MARGIN + WIDTH / 2 - left
    positioned = [
        box._replace(x=xs[i] + shift, y=_MARGIN + HEIGHT / 2 + _LAYER_STEP * depth[i]) for i, box in enumerate(boxes)
    ]
    width = right - left + WIDTH + 2 * _MARGIN if boxes else 0.0
    return GraphLayout(positioned, edges, width, max(len(layers) - 1, 0) * _LAYER_STEP + HEIGHT + 2 * _MARGIN)


def make_boxes_and_edges(graph: Mapping[str, Any]) -> tuple[list[GraphBox], list[tuple[int, int]]]:
    """Return boxes for the inputs that are read, nodes and outputs, and the edges between them, without constants."""
    nodes: Sequence[Mapping[str, Any]] = graph.get("nodes", ())
    read = {name for node in nodes for name in node["inputs"]} | set(graph.get("outputs", ()))
    boxes: list[GraphBox] = []
    maker: dict[str, int] = {}
    edges: dict[tuple[int, int], None] = {}
    for name in graph.get("inputs", ()):
        if name in read:
            maker[name] = len(boxes)
            boxes.append(GraphBox(name, "input", "input"))
    for node in nodes:
        edges.update(dict.fromkeys((maker[name], len(boxes)) for name in node["inputs"] if name in maker))
        maker.update(dict.fromkeys(node["outputs"], len(boxes)))
        boxes.append(GraphBox(node["name"], node["op"], "node"))
    for name in graph.get("outputs", ()):
        if name in maker:
            edges[maker[name], len(boxes)] = None
        boxes.append(GraphBox(name, "output", "output"))
    return boxes, list(edges)


def _assign_layers(boxes: list[GraphBox], edges: list[tuple[int, int]]) -> list[list[int]]:
    """Return the box indices of each layer. Edges go from lower to higher indices."""
    depth = [0] * len(boxes)
    below: dict[int, int] = {}
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        depth[target] = max(depth[target], depth[source] + 1)
    for source, target in edges:
        below[source] = min(below.get(source, depth[target]), depth[target])
    for i, box in enumerate(boxes):  # put an input directly above its first reader
        if box.kind == "input" and i in below:
            depth[i] = max(below[i] - 1, 0)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for i, level in enumerate(depth):
        layers[level].append(i)
    return layers


def _assign_columns(layers: list[list[int]], edges: list[tuple[int, int]], count: int) -> list[float]:
    """Return the x coordinates of the boxes, each near the mean of its neighbours, without overlap."""
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    depth = {index: level for level, layer in enumerate(layers) for index in layer}
    for source, target in edges:
        if depth[target] - depth[source] <= _MAX_DRAWN_LAYERS:
            sources[target].append(source)
            targets[source].append(target)
    xs = [0.0] * count
    for layer in layers:
        _spread_layer(layer, xs, sources)
    for _ in range(_SWEEPS):
        for layer in reversed(layers):
            _spread_layer(layer, xs, targets)
        for layer in layers:
            _spread_layer(layer, xs, sources)
    return xs


def _spread_layer(layer: list[int], xs: list[float], neighbours: list[list[int]]) -> None:
    target_x = {
        index: sum(xs[n] for n in near) / len(near) if (near := neighbours[index]) else xs[index] for index in layer
    }
    layer.sort(key=lambda index: target_x[index])
    last = -float("inf")
    moved = 0.0
    for index in layer:
        xs[index] = max(target_x[index], last + WIDTH + _NODE_GAP)
        last = xs[index]
        moved += xs[index] - target_x[index]
    for index in layer:  # boxes were only pushed right, so shift the layer back by the mean shift
        xs[index] -= moved / len(layer)


# ---- SVG drawing


def draw_graph(graph: Mapping[str, Any], verdicts: Mapping[str, str], prefix: str = "") -> Markup:
    """Return the graph as SVG.

    verdicts: by node name, or by "output NAME" for outputs. prefix: prefix of the node ids, which the script uses for
    navigation; without a prefix, the drawing is static.
    """
    placed = compute_layout(graph)
    nodes = concat_markup(_draw_node(i, box, verdicts, prefix) for i, box in enumerate(placed.boxes))
    lines, width = _draw_edges(placed)
    hint = "; arrow keys walk along its edges" if prefix else ""
    return element(
        "svg",
        make_svg_path(lines, class_="edge", fill="none", stroke="#888888"),
        _draw_far_edges(placed),
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


def _is_far(source: GraphBox, target: GraphBox) -> bool:
    return target.y - source.y > _MAX_DRAWN_LAYERS * _LAYER_STEP


def _draw_far_edges(placed: GraphLayout) -> Markup:
    """Draw only the ends of edges that span many layers, labelled with their sources."""
    read: dict[int, list[str]] = {}
    lines: dict[str, None] = {}
    for a, b in placed.edges:
        source, target = placed.boxes[a], placed.boxes[b]
        if _is_far(source, target):
            read.setdefault(b, []).append(source.name)
            lines[f"M{source.x - 56:.0f} {source.y + HEIGHT / 2:.0f}v12"] = None
            lines[f"M{target.x - 56:.0f} {target.y - HEIGHT / 2 - 14:.0f}v14"] = None
    labels = []
    for b, names in read.items():
        label = f"{_truncate(names[0], 18)}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
        x, y = placed.boxes[b].x - 52, placed.boxes[b].y - HEIGHT / 2 - 6
        labels.append(
            element("text", label, x=f"{x:.0f}", y=f"{y:.0f}", class_="far", fill="#888888", text_anchor="start")
        )
    ends = make_svg_path("".join(lines), class_="edge far", fill="none", stroke="#888888", stroke_dasharray="3 2")
    return concat_markup([ends, *labels])


def _draw_edges(placed: GraphLayout) -> tuple[str, float]:
    """Draw edges as curves between layers. Return them and the resulting width of the drawing.

    An edge over several layers runs straight down in a lane without nodes or other long edges.
    """
    width = placed.width
    occupied: dict[int, list[tuple[float, float]]] = {}
    for box in placed.boxes:
        occupied.setdefault(_get_layer(box), []).append((box.x - WIDTH / 2 - 6, box.x + WIDTH / 2 + 6))
    lines = []
    for source, target in ((placed.boxes[a], placed.boxes[b]) for a, b in placed.edges):
        top, bottom = source.y + HEIGHT / 2, target.y - HEIGHT / 2
        if _get_layer(target) - _get_layer(source) <= 1:
            lines.append(f"M{source.x:.0f} {top:.0f}{_make_curve_path(source.x, top, target.x, bottom)}")
        elif not _is_far(source, target):
            lane = _reserve_free_lane(source, target, occupied)
            width = max(width, lane + _MARGIN)
            first, last = top + _LAYER_STEP - HEIGHT, bottom - _LAYER_STEP + HEIGHT
            down = f"{_make_curve_path(source.x, top, lane, first)}V{last:.0f}{_make_curve_path(lane, last, target.x, bottom)}"
            lines.append(f"M{source.x:.0f} {top:.0f}{down}")
    return "".join(lines), width


def _get_layer(box: GraphBox) -> int:
    return round((box.y - _MARGIN - HEIGHT / 2) / _LAYER_STEP)


def _make_curve_path(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (y + to_y) / 2
    return f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}"


def _reserve_free_lane(source: GraphBox, target: GraphBox, occupied: dict[int, list[tuple[float, float]]]) -> float:
    """Reserve and return the x coordinate nearest to both ends that is free in all layers between them."""
    between = range(_get_layer(source) + 1, _get_layer(target))
    spans = [span for level in between for span in occupied.get(level, ())]
    candidates = [source.x, target.x, *(end + step for low, high in spans for end, step in ((low, -1.0), (high, 1.0)))]
    free = [x for x in candidates if x > 0 and not any(low < x < high for low, high in spans)]
    lane = min(free, key=lambda x: abs(x - source.x) + abs(x - target.x))
    for level in between:
        occupied.setdefault(level, []).append((lane - 7, lane + 7))
    return lane


def _draw_node(index: int, box: GraphBox, verdicts: Mapping[str, str], prefix: str) -> Markup:
    verdict, sign, verdict_text = "", "", ""
    if box.kind != "input":
        verdict = verdicts.get(f"output {box.name}" if box.kind == "output" else box.name, "")
        sign, verdict_text = f"{_SIGNS[verdict]} ", f", {verdict or 'not judged'}"
    rectangle = element(
        "rect",
        x=f"{box.x - WIDTH / 2:.0f}",
        y=f"{box.y - HEIGHT / 2:.0f}",
        width=WIDTH,
        height=HEIGHT,
        rx=4 if box.kind == "node" else HEIGHT // 2,
        fill=_FILLS[verdict],
        stroke="#888888",
    )
    walked = {"id": f"{prefix}g{index}", "tabindex": -1 if index else 0, "role": "button"} if prefix else {}
    return element(
        "g",
        element("title", shorten_and_escape(box.name, 400)),
        rectangle,
        _make_text_line(f"{sign}{_truncate(box.op, 20)}", box.x, box.y - 3, class_="op", font_weight="bold"),
        _make_text_line(_shorten_name(box.name), box.x, box.y + 12),
        class_=f"node {box.kind} {verdict or 'none'}",
        **walked,
        aria_label=f"{shorten_and_escape(box.op)} {shorten_and_escape(box.name)}{verdict_text}" if prefix else None,
    )


def _make_text_line(text: str, x: float, y: float, **attributes: object) -> Markup:
    return element("text", text, x=f"{x:.0f}", y=f"{y:.0f}", fill="#1d2330", **attributes)


def _truncate(text: str, max_length: int) -> str:
    plain_name = shorten_and_escape(text, 60)
    return plain_name if len(plain_name) <= max_length else f"{plain_name[: max_length - 1]}\u2026"


def _shorten_name(name: str) -> str:
    """Shorten a name to its end, which is the most specific part."""
    plain_name = shorten_and_escape(name, 60)
    return plain_name if len(plain_name) <= 22 else f"\u2026{plain_name[-21:]}"
