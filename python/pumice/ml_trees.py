"""The trees of an ONNX ensemble as tables, one row a node, through which all rows of the input go down at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .element_types import Array
from .recipe import NodeRecipe

_LEAF = "LEAF"


class Forest(NamedTuple):
    """A leaf's branches lead to itself, so that shallow trees wait for deep ones."""

    places: dict[tuple[int, int], int]  # (tree, node) -> row
    roots: Array
    features: Array
    values: Array
    true: Array
    false: Array
    missing: Array  # whether NaN takes the true branch
    modes: set[str]
    depth: int

    @staticmethod
    def of(node: NodeRecipe) -> Forest:
        """Raises ValueError where the tables do not fit together."""
        trees, numbers = _column(node, "nodes_treeids", None), _column(node, "nodes_nodeids", None)
        count = len(trees)
        kinds = [str(kind) for kind in _column(node, "nodes_modes", count)]
        places = {pair: row for row, pair in enumerate(zip(trees, numbers, strict=True))}
        if len(places) < count or not count:
            raise ValueError(f"{count} nodes of trees, {len(places)} of them different")
        true, false = np.arange(count), np.arange(count)
        for branch, ids in ((true, "nodes_truenodeids"), (false, "nodes_falsenodeids")):
            for row, number in enumerate(_column(node, ids, count)):
                if kinds[row] == _LEAF:
                    continue
                if (trees[row], number) not in places:
                    raise ValueError(f"{ids}[{row}]: tree {trees[row]} has no node {number}")
                branch[row] = places[trees[row], number]
        first: dict[int, int] = {}
        for row, tree in enumerate(trees):
            first.setdefault(tree, row)
        roots = np.array(list(first.values()))
        leaf = np.array([kind == _LEAF for kind in kinds])
        features = np.where(leaf, 0, np.array(_column(node, "nodes_featureids", count)))
        missing = node.attributes.get("nodes_missing_value_tracks_true") or [0] * count
        values = np.array(_column(node, "nodes_values", count), np.float32)
        modes = set(kinds) - {_LEAF}
        depth = _depth(roots, true, false)
        return Forest(places, roots, features, values, true, false, np.array(missing, bool), modes, depth)

    def weights(self, node: NodeRecipe, role: str, targets: int) -> Array:
        """[nodes, targets] of the attributes "target_..." or "class_...". Raises ValueError."""
        made = np.zeros((len(self.values), targets), np.float32)
        numbers = _column(node, f"{role}_weights", None)
        names = (f"{role}_treeids", f"{role}_nodeids", f"{role}_ids")
        for tree, number, target, weight in zip(
            *(_column(node, name, len(numbers)) for name in names), numbers, strict=True
        ):
            if (tree, number) not in self.places or not 0 <= target < targets:
                raise ValueError(f"a weight of tree {tree}, node {number}, {role} {target}: there is none")
            made[self.places[tree, number], target] += weight
        return made


def _column(node: NodeRecipe, name: str, count: int | None) -> list[Any]:
    value = node.attributes.get(name)
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise ValueError(
            f"attribute '{name}': expected a list{'' if count is None else f' of {count}'}, given {value!r:.80}"
        )
    return value


def _depth(roots: Array, true: Array, false: Array) -> int:
    """Branches on the longest way. Raises ValueError for ways without an end."""
    front, depth = roots, 0
    while True:
        below = np.concatenate((true[front], false[front]))
        below = np.unique(below[below != np.concatenate((front, front))])
        if not below.size:
            return depth
        front, depth = below, depth + 1
        if depth > len(true):
            raise ValueError("nodes of a tree lead round in a circle")
