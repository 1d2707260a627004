"""Sizes that are known only when a model is called, told by others: the model is built twice more with prime numbers for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .graph_builder import Builder
from .recipe import InputRecipe, NodeRecipe

if TYPE_CHECKING:
    from ._pumice import Value
    from .loop_builder import LoopBuilder

_PRIMES = ((37, 41, 43, 47, 53, 59, 61, 67), (71, 73, 79, 83, 89, 97, 101, 103))


class Twins:
    """The graph of an outermost builder as far as it is built, with all sizes known."""

    def __init__(self, builder: Builder) -> None:
        self._recipe = builder.recipe
        self._builders = [Builder(builder.recipe, builder.control_nodes) for _ in _PRIMES]
        self._added = 0
        for twin, primes in zip(self._builders, _PRIMES, strict=True):
            left, named = iter(primes), dict[str, int]()
            for value in builder.recipe.inputs:
                twin.add_input(_concrete(value, left, named))
            twin.loops = {}

    def loops(self, node: NodeRecipe) -> list[LoopBuilder]:
        """The loop that the node is, in each; empty where it cannot be built."""
        while self._added < len(self._recipe.nodes):
            added = self._recipe.nodes[self._added]
            self._added += 1
            for twin in self._builders:
                twin.add_node(added)
            if added.name == node.name:
                break
        return [twin.loops[node.name] for twin in self._builders if twin.loops and node.name in twin.loops]


def _concrete(value: InputRecipe, primes: Iterator[int], named: dict[str, int]) -> InputRecipe:
    if value.shape is None:
        return value
    sizes: list[int | None] = []
    for axis, size in enumerate(value.shape):
        name = value.dimension_names[axis] if axis < len(value.dimension_names) else ""
        if size is None and name:
            size = named[name] if name in named else named.setdefault(name, next(primes, 0))
        sizes.append(size if size is not None else next(primes, None))
    return value._replace(shape=sizes, dimension_names=[])


def sources(values: list[list[Value]], twins: list[list[list[Value]]]) -> dict[tuple[int, ...], tuple[Value, int]]:
    """By what a size is in the twins, a value that has it, and on which axis.

    The parts of each value: a sequence whose length the twins alone know is made of others there, and tells nothing.
    """
    alike = (parts for parts in zip(values, *twins, strict=True) if len({len(part) for part in parts}) == 1)
    found: dict[tuple[int, ...], tuple[Value, int]] = {}
    for value, *others in (same for parts in alike for same in zip(*parts, strict=True)):
        shapes = [other.shape for other in others]
        if value.shape is None:
            continue
        for axis in range(len(value.shape)):
            sizes = [shape[axis] for shape in shapes if shape is not None and len(shape) == len(value.shape)]
            known = tuple(size for size in sizes if size is not None)
            if len(known) == len(twins):
                found.setdefault(known, (value, axis))
    return found
