"""Scaling of time and memory with a model's nodes, batch, attention tokens and weights.

Each figure is measured at several sizes; the result is the slope of its logarithm over that of the size. A slope of 1 is linear; full
attention has 2.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import pumice

from .contender import Array
from .rows import Row, Table
from .session import Session
from .timing import measure, sampler

MS = 1e3
MB = 1e6
SLACK = 0.15  # allowed excess of a slope: data that no longer fits in a cache takes disproportionately longer

Point = Mapping[str, float]  # figures by name: milliseconds, or megabytes of device memory


@dataclass
class Sweep:
    """Figures at each size, and the maximum slope of each."""

    title: str
    axis: str
    sizes: Sequence[int]
    point: Callable[[int], Point]
    linear: float = 1.0  # expected slope of the work
    points: dict[int, Point] = field(default_factory=dict)
    ended: str = ""  # why the larger sizes have no points

    def measure(self) -> None:
        self.point(self.sizes[0])  # compiles the kernels that all sizes share
        for size in self.sizes:
            try:
                self.points[size] = self.point(size)
            except pumice.OutOfMemoryError as error:
                self.ended = f"{size:,} {self.axis}: {error}"
                return

    def series(self) -> dict[str, list[tuple[int, float]]]:
        names = next(iter(self.points.values()), {})
        return {name: [(size, point[name]) for size, point in self.points.items()] for name in names}


def slope(points: Iterable[tuple[float, float]]) -> float:
    """Return the least-squares slope of log(y) over log(x), over the larger half of the sizes, where constant costs matter least."""
    all_points = [(x, y) for x, y in points if x > 0 and y > 0]
    xs, ys = (np.log([point[axis] for point in all_points[len(all_points) // 2 - 1 :]]) for axis in (0, 1))
    return float(np.polyfit(xs, ys, 1)[0])


# ---- measurements


def timed(session: Session, call: Callable[[], object]) -> float:
    """Return milliseconds per call, the median of the quietest round."""
    return measure({"": sampler(call)}, session.effort, runs=50)[""].median * MS


def loaded(session: Session, make: Callable[[], pumice.Graph], inputs: Mapping[str, Array]) -> Point:
    """Measure compiling a graph, its first and later calls, and its memory."""
    with pumice.Context(f"uuid:{session.context.info.uuid}") as context:
        graph = make()
        begin = time.perf_counter()
        program = graph.compile(context)
        compiled = time.perf_counter()
        given = tuple(inputs.values())
        program.call(given)
        called = time.perf_counter()
        return {
            "compile (ms)": (compiled - begin) * MS,
            "first call (ms)": (called - compiled) * MS,
            "call (ms)": timed(session, lambda: program.call(given)),
            "memory (MB)": context.memory.buffer_bytes / MB,
        }


def of_nodes(session: Session) -> Callable[[int], Point]:
    x = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)

    def chain(count: int) -> pumice.Graph:
        graph = pumice.Graph("chain")
        value = graph.input("x", "float32", list(x.shape))
        for _ in range(count):  # each is a dispatch: nothing is fused with a sum over rows
            value = graph.add("Softmax", value, axis=-1)
        graph.output("y", value)
        return graph

    return lambda count: loaded(session, lambda: chain(count), {"x": x})


def of_batches(session: Session) -> Callable[[int], Point]:
    weights = np.linspace(-0.1, 0.1, 32 * 16 * 9, dtype=np.float32).reshape(32, 16, 3, 3)

    def convolutions(batch: int) -> pumice.Graph:
        graph = pumice.Graph("convolutions")
        value = graph.input("x", "float32", [batch, 16, 32, 32])
        value = graph.add("Relu", graph.add("Conv", value, weights, pads=[1, 1, 1, 1]))
        graph.output("y", graph.add("GlobalAveragePool", value))
        return graph

    def point(batch: int) -> Point:
        x = np.ones((batch, 16, 32, 32), np.float32)
        return loaded(session, lambda: convolutions(batch), {"x": x})

    return point


def of_tokens(session: Session) -> Callable[[int], Point]:
    heads, size = (1, 32) if session.software else (8, 64)

    def attention(tokens: int) -> pumice.Graph:
        graph = pumice.Graph("attention")
        q, k, v = (graph.input(name, "float32", [1, heads, tokens, size]) for name in "qkv")
        graph.output("y", graph.add("Attention", q, k, v))
        return graph

    def point(tokens: int) -> Point:
        rng = np.random.default_rng(1)
        inputs = {name: rng.standard_normal((1, heads, tokens, size), np.float32) for name in "qkv"}
        return loaded(session, lambda: attention(tokens), inputs)

    return point


def of_weights(session: Session) -> Callable[[int], Point]:
    depth = 4096

    def layers(megabytes: int) -> pumice.Graph:
        graph = pumice.Graph("layers")
        value = graph.input("x", "float32", [1, depth])
        columns = max(megabytes * 1_000_000 // 4 // depth // 8 * 8, 8)
        whole, rest = divmod(columns, depth)  # square layers of 67 MB, and one with the remainder
        layer = np.full((depth, depth), 1 / depth, np.float32) if whole else None
        for _ in range(whole):
            assert layer is not None
            value = graph.add("MatMul", value, layer.copy())
        if rest:
            value = graph.add("MatMul", value, np.full((depth, rest), 1 / depth, np.float32))
        graph.output("y", value)
        return graph

    return lambda megabytes: loaded(session, lambda: layers(megabytes), {"x": np.ones((1, depth), np.float32)})


def sizes(first: int, last: int, each: float) -> list[int]:
    """Return sizes from first to last, growing by the factor `each`."""
    steps = round(math.log(last / first) / math.log(each))
    return [round(first * (last / first) ** (i / steps)) for i in range(steps + 1)]


def sweeps(session: Session) -> list[Sweep]:
    software = session.software
    room = int(session.context.info.memory_bytes / MB * (0.05 if software else 0.45))
    most_weights = min(room, 512 if software else 60_000)
    return [
        Sweep("Nodes", "nodes", sizes(10, 1_000 if software else 10_000, 10**0.5), of_nodes(session)),
        Sweep("Batch", "images", sizes(1, 64 if software else 512, 2), of_batches(session)),
        Sweep("Tokens", "tokens", sizes(128, 2_048 if software else 32_768, 2), of_tokens(session), linear=2),
        Sweep("Weights", "MB", sizes(1, most_weights, 4), of_weights(session)),
    ]


def run(session: Session) -> Iterator[Table]:
    for sweep in sweeps(session):
        sweep.measure()
        yield table_of(sweep)


def table_of(sweep: Sweep) -> Table:
    table = Table(
        f"Slopes over {sweep.title.lower()}, {sweep.sizes[0]:,} to {sweep.sizes[-1]:,} {sweep.axis}",
        "1",
        axis=sweep.axis,
    )
    for name, points in sweep.series().items():
        if len(points) < 3:
            continue
        expected = sweep.linear if "call" in name else 1.0
        shown = ", ".join(f"{size:,}: {value:.3g}" for size, value in points)
        table.rows.append(Row(name, median=slope(points), target=expected + SLACK, note=shown, points=points))
    if sweep.ended:
        table.rows.append(Row("larger sizes", absent=sweep.ended))
    return table
