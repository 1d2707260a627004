"""Convert ONNX tree ensembles to the arrays of pumice::TreeEnsemble (pumice::TreeEnsemble64 for float64 features)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array, array_from_bytes
from ...base.errors import graph_error
from ..file.graph_recipe import ConstantRecipe, NodeRecipe

_LEAF, _NAN_IS_TRUE = 0, 8
_MODES = {"LEAF": 0, "BRANCH_LEQ": 1, "BRANCH_LT": 2, "BRANCH_GTE": 3, "BRANCH_GT": 4, "BRANCH_EQ": 5, "BRANCH_NEQ": 6}
_MEMBER = 6  # set-membership mode of TreeEnsemble, whose numeric modes are one less than the values in _MODES


class TreeEnsembleArrays(NamedTuple):
    """The arrays that shaders/tree_ensemble.comp reads. Thresholds and weights occupy one 32-bit word each, or two for float64."""

    nodes: Array  # int32[n, 4 + words]: feature, mode, true child, false child, threshold bits; leaves: see _add_child
    entries: Array  # int32[m, 1 + words]: target, weight bits
    roots: Array  # int32[trees]
    depth: int


def _to_int32_words(values: Any, dtype: str) -> Array:
    """Return the bits of the values as 32-bit words, int32[count, words]."""
    return np.asarray(values, dtype).reshape(-1, 1).view(np.int32)


def _get_list_attribute(node: NodeRecipe, name: str, dtype: Any, count: int | None = None) -> Array:
    attribute_value = node.attributes.get(name, node.attributes.get(f"{name}_as_tensor"))
    if isinstance(attribute_value, ConstantRecipe):
        values = (
            array_from_bytes(attribute_value.raw, attribute_value.dtype, attribute_value.shape)
            .reshape(-1)
            .astype(dtype)
        )
    else:
        try:
            values = np.array([] if attribute_value is None else attribute_value, dtype)
        except (TypeError, ValueError):
            raise graph_error(
                "node", node.name, f"attribute '{name}': expected a list, given {attribute_value!r}"
            ) from None
    if attribute_value is None and count is not None and dtype is not np.str_:
        values = np.zeros(count, dtype)
    if values.ndim != 1 or (count is not None and values.size != count):
        raise graph_error("node", node.name, f"attribute '{name}': expected {count} values, given {values.size}")
    return values


def _compute_tree_depth(node: NodeRecipe, nodes: Array, roots: Array) -> int:
    """Return the length of the longest path from a root to a leaf. Raise GraphError if the nodes do not form trees."""
    count = len(nodes)
    level = np.array(roots)
    for depth in range(count):
        if np.any((level < 0) | (level >= count)):
            raise graph_error(
                "node", node.name, f"expected child indices below {count}, the number of nodes; given one out of range"
            )
        inner = level[nodes[level, 1] & 7 != _LEAF]
        if not len(inner):
            return depth
        level = np.unique(nodes[inner][:, 2:4])
    raise graph_error("node", node.name, "expected trees, given nodes in a cycle")


def _make_ensemble_arrays(node: NodeRecipe, nodes: Array, entries: Array, roots: Array) -> TreeEnsembleArrays:
    if not len(roots) or nodes[:, 0].min() < 0:
        raise graph_error("node", node.name, "expected at least one tree, and non-negative feature indices")
    nodes, entries = np.ascontiguousarray(nodes, np.int32), np.ascontiguousarray(entries, np.int32)
    return TreeEnsembleArrays(
        nodes, entries, np.ascontiguousarray(roots, np.int32), _compute_tree_depth(node, nodes, roots)
    )


def parse_ensemble_attributes(node: NodeRecipe, role: str, dtype: str) -> TreeEnsembleArrays:
    """Return the arrays of a TreeEnsembleRegressor (role "target") or TreeEnsembleClassifier (role "class").

    dtype: of thresholds and weights, "float32" or "float64". Raise GraphError if the attributes do not form trees.
    """
    modes = _get_list_attribute(node, "nodes_modes", np.str_)
    count = len(modes)
    trees, numbers = (_get_list_attribute(node, f"nodes_{name}", np.int64, count) for name in ("treeids", "nodeids"))
    if unknown := sorted(set(modes) - set(_MODES)):
        raise graph_error("node", node.name, f"attribute 'nodes_modes': expected {', '.join(_MODES)}, given {unknown}")
    row_of_node = {key: i for i, key in enumerate(zip(trees.tolist(), numbers.tolist(), strict=True))}
    if len(row_of_node) != count:
        raise graph_error("node", node.name, "expected one node with each id in a tree, given two")
    limits = _to_int32_words(_get_list_attribute(node, "nodes_values", np.dtype(dtype), count), dtype)
    nodes = np.zeros((count, 4 + limits.shape[1]), np.int64)
    nodes[:, 0] = _get_list_attribute(node, "nodes_featureids", np.int64, count)
    nodes[:, 1] = [_MODES[mode] for mode in modes]
    leaves = nodes[:, 1] == _LEAF
    nodes[:, 1] += _NAN_IS_TRUE * (_get_list_attribute(node, "nodes_missing_value_tracks_true", np.int64, count) != 0)
    for column, name in ((2, "true"), (3, "false")):
        children = _get_list_attribute(node, f"nodes_{name}nodeids", np.int64, count)
        child_rows = [row_of_node.get(key, -1) for key in zip(trees.tolist(), children.tolist(), strict=True)]
        nodes[:, column] = np.where(leaves, 0, child_rows)
    nodes[:, 4:] = limits
    weights = _get_list_attribute(node, f"{role}_weights", np.dtype(dtype))
    leaf_trees, leaf_nodes, targets = (
        _get_list_attribute(node, f"{role}_{name}", np.int64, len(weights)) for name in ("treeids", "nodeids", "ids")
    )
    leaf = np.array(
        [row_of_node.get(key, -1) for key in zip(leaf_trees.tolist(), leaf_nodes.tolist(), strict=True)], np.int64
    )
    if np.any(leaf < 0):
        raise graph_error(
            "node", node.name, f"attribute '{role}_nodeids': expected nodes of the trees, given a node of no tree"
        )
    order = np.argsort(leaf, kind="stable")
    counts = np.bincount(leaf, minlength=count)
    nodes[leaves, 2] = (np.cumsum(counts) - counts)[leaves]
    nodes[leaves, 3] = counts[leaves]
    entries = np.column_stack([targets, _to_int32_words(weights, dtype)])[order]
    roots = np.unique(trees, return_index=True)[1]
    return _make_ensemble_arrays(node, nodes, entries, roots)


def parse_ensemble_tensors(node: NodeRecipe, dtype: str) -> TreeEnsembleArrays:
    """Return the arrays of a TreeEnsemble. A set-membership test becomes a chain of equality tests.

    dtype: of thresholds and weights, "float32" or "float64". Raise GraphError if the attributes do not form trees.
    """
    trees = _TreeTableBuilder(node, dtype)
    for i in range(len(trees.modes)):
        trees.add_node(i)
    entries = np.column_stack([trees.targets, _to_int32_words(trees.weights, dtype)])
    return _make_ensemble_arrays(
        node, np.array(trees.rows, np.int64), entries, _get_list_attribute(node, "tree_roots", np.int64)
    )


class _TreeTableBuilder:
    """Converts a TreeEnsemble to rows of `nodes`: one row per node, followed by rows for extra tests and for leaves."""

    def __init__(self, node: NodeRecipe, dtype: str) -> None:
        self._node = node
        self._dtype = dtype
        self.modes = _get_list_attribute(node, "nodes_modes", np.int64)
        count = len(self.modes)
        if np.any((self.modes < 0) | (self.modes > _MEMBER)):
            raise graph_error(
                "node", node.name, f"attribute 'nodes_modes': expected values from 0 to {_MEMBER}, given other values"
            )
        names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs", "missing_value_tracks_true")
        numbers = {name: _get_list_attribute(node, f"nodes_{name}", np.int64, count) for name in names}
        self._features, self._nan_is_true = numbers["featureids"], numbers["missing_value_tracks_true"]
        self._when_true = numbers["truenodeids"], numbers["trueleafs"]
        self._when_false = numbers["falsenodeids"], numbers["falseleafs"]
        self._splits = _get_list_attribute(node, "nodes_splits", np.dtype(dtype), count)
        self.weights = _get_list_attribute(node, "leaf_weights", np.dtype(dtype))
        self.targets = _get_list_attribute(node, "leaf_targetids", np.int64, len(self.weights))
        self._split_sets = iter(
            _split_membership_values(node, _get_list_attribute(node, "membership_values", np.dtype(dtype)))
        )
        self._empty = [0] * (4 + np.dtype(dtype).itemsize // 4)
        self.rows: list[list[int]] = [[*self._empty] for _ in range(count)]

    def add_node(self, i: int) -> None:
        """Fill the row of node i, and append a row for each further member of its set."""
        mode, limits = int(self.modes[i]) + 1, [float(self._splits[i])]
        if self.modes[i] == _MEMBER:
            mode, limits = _MODES["BRANCH_EQ"], next(self._split_sets, [])
            if not limits:
                expected = "attribute 'membership_values': expected a set for each such node"
                raise graph_error("node", self._node.name, expected)
        mode += _NAN_IS_TRUE * int(self._nan_is_true[i] != 0)
        row_index = i
        for k, limit in enumerate(limits):
            self.rows[row_index] = [
                int(self._features[i]),
                mode,
                0,
                0,
                *_to_int32_words(limit, self._dtype)[0].tolist(),
            ]
            self.rows[row_index][2] = self._add_child(i, self._when_true)
            if k + 1 == len(limits):
                self.rows[row_index][3] = self._add_child(i, self._when_false)
                continue
            self.rows.append([*self._empty])
            self.rows[row_index][3] = len(self.rows) - 1
            row_index = self.rows[row_index][3]

    def _add_child(self, i: int, branch: tuple[Array, Array]) -> int:
        """Return the row of a child of node i, appending a row for a leaf. branch: child ids, and flags that mark leaves."""
        index, is_leaf = int(branch[0][i]), int(branch[1][i])
        if not is_leaf:
            return index
        if not 0 <= index < len(self.weights):
            raise graph_error("node", self._node.name, f"expected one of {len(self.weights)} leaves, given {index}")
        self.rows.append([0, _LEAF, index, 1, *self._empty[4:]])
        return len(self.rows) - 1


def _split_membership_values(node: NodeRecipe, values: Array) -> list[list[float]]:
    """Return the sets in membership_values, in which NaN ends each set."""
    sets: list[list[float]] = []
    current: list[float] = []
    for value in values.tolist():
        if np.isnan(value):
            sets.append(current)
            current = []
        else:
            current.append(value)
    return sets
