"""Map of a model's temporary memory over its dispatches, and the composition of its peak."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from .._pumice import Error, UnsupportedError
from ..base.errors import InputError
from ..base.printable_text import shorten_and_escape
from ..model.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base.element_types import Array

_MAX_LABELS = 12  # maximum number of labelled tensors in the plot


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
        kept = [_count_union_bytes(self.kept(wave)) for wave in range(self.waves)]
        self.peak_bytes = max(kept, default=0)
        self.peak_wave = kept.index(self.peak_bytes) if kept else 0

    def kept(self, wave: int) -> list[ArenaTensor]:
        """Return the tensors live in a wave, the largest first."""
        live = [tensor for tensor in self.tensors if tensor.first <= wave <= tensor.last]
        return sorted(live, key=lambda tensor: -tensor.bytes)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        return {
            "name": self.name,
            "arena_bytes": self.arena_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "persistent_bytes": self.persistent_bytes,
            "peak_bytes": self.peak_bytes,
            "peak_wave": self.peak_wave,
            "nodes": [list(names) for names in self.nodes],
            "tensors": [tensor._asdict() for tensor in self.tensors],
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
        labelled = sorted(self.tensors, key=lambda tensor: -tensor.bytes)[:_MAX_LABELS]
        for i, tensor in enumerate(self.tensors):
            span = [(tensor.first, tensor.last + 1 - tensor.first)]
            axes.broken_barh(span, (tensor.begin, tensor.bytes), facecolors=f"C{i % 10}", edgecolors="white", alpha=0.8)
            if tensor in labelled:
                middle = (tensor.first + tensor.last + 1) / 2, (tensor.begin + tensor.end) / 2
                axes.annotate(tensor.name, middle, ha="center", va="center", fontsize=7)
        axes.axvline(self.peak_wave, color="black", linewidth=0.5)
        axes.axvline(self.peak_wave + 1, color="black", linewidth=0.5)
        axes.set_xlabel("wave")
        axes.set_ylabel("bytes of the arena")
        return axes

    def peak_rows(self) -> list[tuple[str, str, str, str]]:
        """Return the tensors live at the peak, the largest first, as text: name, producing node, bytes, waves."""
        peak = self.kept(self.peak_wave)
        return [
            (
                shorten_and_escape(tensor.name),
                shorten_and_escape(tensor.node),
                f"{tensor.bytes:,}",
                f"{tensor.first} to {tensor.last}",
            )
            for tensor in peak
        ]

    def summary(self) -> str:
        """Return one sentence with the sizes of the peak, the arena and the weights."""
        nodes = ", ".join(map(shorten_and_escape, self.nodes[self.peak_wave])) if self.nodes else "nothing"
        return (
            f"{shorten_and_escape(self.name)}: {self.peak_bytes:,} bytes at the peak, in wave {self.peak_wave} of {self.waves} ({nodes}); "
            f"arena {self.arena_bytes:,} bytes, {self.lower_bound_bytes:,} at the least; weights {self.persistent_bytes:,}"
        )

    def __repr__(self) -> str:
        rows = [("tensor", "made by", "bytes", "waves"), *self.peak_rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.summary(), *lines])

    def _repr_html_(self) -> str:
        from ..base.html import render_preformatted, render_table

        return render_preformatted(self.summary()) + render_table(
            ("tensor", "made by", "bytes", "waves"), self.peak_rows()
        )


def _count_union_bytes(tensors: Sequence[ArenaTensor]) -> int:
    """Return the size in bytes of the union of the tensors' ranges."""
    total_bytes = end = 0
    for tensor in sorted(tensors, key=lambda tensor: tensor.begin):
        total_bytes += max(tensor.end - max(tensor.begin, end), 0)
        end = max(end, tensor.end)
    return total_bytes


def memory_map(model: Model, /, *arrays: Any, **by_name: Any) -> MemoryMap:
    """Return the map of a model's temporary memory for these arguments, without running it.

    Raise BindingError for invalid arguments; UnsupportedError for a model with control flow or host sync points, which
    has several arenas.
    """
    if not isinstance(model, Model):
        raise InputError(f"memory_map: expected a Model, given {type(model).__name__}")
    return _build_memory_map(model, list(model.arguments(*arrays, **by_name)))


def build_memory_maps(calls: Sequence[tuple[Model, tuple[Array, ...]]]) -> tuple[MemoryMap, ...]:
    """Return the memory maps for calls, skipping closed models and models with several arenas."""
    maps = []
    for model, input_arrays in calls:
        with contextlib.suppress(Error):
            maps.append(_build_memory_map(model, list(input_arrays)))
    return tuple(maps)


def _build_memory_map(model: Model, input_arrays: list[Array]) -> MemoryMap:
    plan = model.program.plan(input_arrays)
    tensors_by_range: dict[tuple[str, int, int], ArenaTensor] = {}
    nodes: dict[int, list[str]] = {}
    for step in plan:
        wave, node = step["wave"], step["label"]
        nodes.setdefault(wave, []).append(node)
        for operand in step["operands"]:
            if operand["place"] != "temporary" or operand["end"] <= operand["begin"]:
                continue
            _record_operand(tensors_by_range, operand, node, wave)
    waves = max(nodes, default=-1) + 1
    node_names = [tuple(dict.fromkeys(nodes.get(wave, ()))) for wave in range(waves)]
    tensors = sorted(tensors_by_range.values(), key=lambda tensor: (tensor.first, tensor.begin))
    return MemoryMap(model.name, tensors, node_names, model.program.arena(input_arrays))


def _record_operand(
    tensors_by_range: dict[tuple[str, int, int], ArenaTensor], operand: dict[str, Any], node: str, wave: int
) -> None:
    """Add a dispatch's operand as a new tensor, or extend the lifetime of the tensor that is already known."""
    name, begin, end = operand["value"] or f"scratch of {node}", operand["begin"], operand["end"]
    existing = tensors_by_range.get((name, begin, end))
    tensors_by_range[name, begin, end] = (
        ArenaTensor(name, node, begin, end, wave, wave)
        if existing is None
        else existing._replace(first=min(existing.first, wave), last=max(existing.last, wave))
    )
