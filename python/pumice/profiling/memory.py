"""Map of a model's temporary memory over its dispatches, and the composition of its peak."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from .._pumice import Error, UnsupportedError
from ..base.errors import InputError
from ..base.printable_text import plain
from ..model.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base.element_types import Array

_MOST_NAMED = 12  # maximum number of labelled tensors in the plot


class ArenaTensor(NamedTuple):
    """A tensor in temporary memory: arena bytes from `begin` to `end`, live from wave `first` to wave `last`.

    node: name of the node whose dispatch writes it first. A wave is a group of dispatches that may run concurrently; scratch
    memory of a node has the node's name.
    """

    name: str
    node: str
    begin: int
    end: int
    first: int
    last: int

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.end - self.begin


class MemoryMap:
    """The result of `memory_map()`.

    tensors: in order of creation. arena_bytes: size of temporary memory.
    lower_bound_bytes: the minimum size for these lifetimes. persistent_bytes: size of the weights. waves: number of waves.
    nodes: the nodes of each wave.
    peak_bytes: the maximum live memory, in wave `peak_wave`. Slices of one tensor that are written separately (for a
    Concat) count once.
    """

    def __init__(self, name: str, tensors: Sequence[ArenaTensor], nodes: Sequence[tuple[str, ...]], sizes: Any) -> None:
        self.name = name
        self.tensors = tuple(tensors)
        self.nodes = tuple(nodes)
        self.waves = len(self.nodes)
        self.arena_bytes: int = sizes["arena_bytes"]
        self.lower_bound_bytes: int = sizes["lower_bound_bytes"]
        self.persistent_bytes: int = sizes["persistent_bytes"]
        kept = [_covered(self.kept(wave)) for wave in range(self.waves)]
        self.peak_bytes = max(kept, default=0)
        self.peak_wave = kept.index(self.peak_bytes) if kept else 0

    def kept(self, wave: int) -> list[ArenaTensor]:
        """Return the tensors live in a wave, the largest first."""
        found = [one for one in self.tensors if one.first <= wave <= one.last]
        return sorted(found, key=lambda one: -one.bytes)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        return {
            "name": self.name,
            "arena_bytes": self.arena_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "persistent_bytes": self.persistent_bytes,
            "peak_bytes": self.peak_bytes,
            "peak_wave": self.peak_wave,
            "nodes": [list(one) for one in self.nodes],
            "tensors": [one._asdict() for one in self.tensors],
        }

    def plot(self, axes: Any = None) -> Any:
        """Plot arena offsets against waves with matplotlib, with the peak wave between two lines. Return the axes; raise UnsupportedError
        without matplotlib.
        """
        if axes is None:
            try:
                from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]
            except ImportError:
                raise UnsupportedError("MemoryMap.plot needs matplotlib: pip install 'pumice[plot]'") from None
            _, axes = pyplot.subplots(figsize=(10, 4))
        named = sorted(self.tensors, key=lambda one: -one.bytes)[:_MOST_NAMED]
        for i, one in enumerate(self.tensors):
            span = [(one.first, one.last + 1 - one.first)]
            axes.broken_barh(span, (one.begin, one.bytes), facecolors=f"C{i % 10}", edgecolors="white", alpha=0.8)
            if one in named:
                middle = (one.first + one.last + 1) / 2, (one.begin + one.end) / 2
                axes.annotate(one.name, middle, ha="center", va="center", fontsize=7)
        axes.axvline(self.peak_wave, color="black", linewidth=0.5)
        axes.axvline(self.peak_wave + 1, color="black", linewidth=0.5)
        axes.set_xlabel("wave")
        axes.set_ylabel("bytes of the arena")
        return axes

    def peak_rows(self) -> list[tuple[str, str, str, str]]:
        """Return the tensors live at the peak, the largest first, as text: name, producing node, bytes, waves."""
        peak = self.kept(self.peak_wave)
        return [(plain(one.name), plain(one.node), f"{one.bytes:,}", f"{one.first} to {one.last}") for one in peak]

    def summary(self) -> str:
        """Return one sentence with the sizes of the peak, the arena and the weights."""
        nodes = ", ".join(map(plain, self.nodes[self.peak_wave])) if self.nodes else "nothing"
        return (
            f"{plain(self.name)}: {self.peak_bytes:,} bytes at the peak, in wave {self.peak_wave} of {self.waves} ({nodes}); "
            f"arena {self.arena_bytes:,} bytes, {self.lower_bound_bytes:,} at the least; weights {self.persistent_bytes:,}"
        )

    def __repr__(self) -> str:
        rows = [("tensor", "made by", "bytes", "waves"), *self.peak_rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.summary(), *lines])

    def _repr_html_(self) -> str:
        from ..base.html import table, text

        return text(self.summary()) + table(("tensor", "made by", "bytes", "waves"), self.peak_rows())


def _covered(tensors: Sequence[ArenaTensor]) -> int:
    """Return the total size of the union of the ranges in bytes."""
    covered = end = 0
    for one in sorted(tensors, key=lambda one: one.begin):
        covered += max(one.end - max(one.begin, end), 0)
        end = max(end, one.end)
    return covered


def memory_map(model: Model, /, *arrays: Any, **by_name: Any) -> MemoryMap:
    """Return the map of a model's temporary memory for these arguments, without running it.

    Raise BindingError for invalid arguments; UnsupportedError for a model with control flow or host sync points, which
    has several arenas.
    """
    if not isinstance(model, Model):
        raise InputError(f"memory_map: expected a Model, given {type(model).__name__}")
    return _map_of(model, list(model.arguments(*arrays, **by_name)))


def maps_of(calls: Sequence[tuple[Model, tuple[Array, ...]]]) -> tuple[MemoryMap, ...]:
    """Return the memory maps for calls, skipping closed models and models with several arenas."""
    found = []
    for model, given in calls:
        with contextlib.suppress(Error):
            found.append(_map_of(model, list(given)))
    return tuple(found)


def _map_of(model: Model, given: list[Array]) -> MemoryMap:
    plan = model.program.plan(given)
    made: dict[tuple[str, int, int], ArenaTensor] = {}
    nodes: dict[int, list[str]] = {}
    for step in plan:
        wave, node = step["wave"], step["label"]
        nodes.setdefault(wave, []).append(node)
        for operand in step["operands"]:
            if operand["place"] != "temporary" or operand["end"] <= operand["begin"]:
                continue
            _keep(made, operand, node, wave)
    waves = max(nodes, default=-1) + 1
    named = [tuple(dict.fromkeys(nodes.get(wave, ()))) for wave in range(waves)]
    tensors = sorted(made.values(), key=lambda one: (one.first, one.begin))
    return MemoryMap(model.name, tensors, named, model.program.arena(given))


def _keep(made: dict[tuple[str, int, int], ArenaTensor], operand: dict[str, Any], node: str, wave: int) -> None:
    """Record an operand of a dispatch: add a new tensor, or extend a known tensor's lifetime."""
    name, begin, end = operand["value"] or f"scratch of {node}", operand["begin"], operand["end"]
    known = made.get((name, begin, end))
    made[name, begin, end] = (
        ArenaTensor(name, node, begin, end, wave, wave)
        if known is None
        else known._replace(first=min(known.first, wave), last=max(known.last, wave))
    )
