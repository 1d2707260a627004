"""Check that a decoder with Concat caches gives the same results on fixed-capacity caches with left padding.

A run of S tokens after `past` tokens sees caches of `capacity - S` rows, of which the last `past` are in use, as in a left-padded batch.
The model's masks, biases and positions depend only on lengths, so they are evaluated on the host for several lengths with and without
padding (`length_probes`). Values computed from tokens are tracked node by node: attention must mask padding and later tokens. Any other
pattern is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..base.element_types import Array, array_of
from ..importer.file.recipe import NodeRecipe, Recipe
from .model_folder import Names
from .padding_comparison import HIDDEN, KEYS, ROWS, Layout, LengthChecks
from .length_evaluation import SHIFT, DecoderSizes, LengthValues, Probe, Size, Sizes

_SHAPE_OPERANDS = {"Reshape": (1,), "Expand": (1,), "Tile": (1,), "Resize": (2, 3)}
_UNARY = ("Cast", "Identity", "Neg", "Tanh", "IsNaN", "CastLike")
_BINARY = ("Add", "Sub", "Mul", "Div", "Where", "Max", "Min", "Clip")
_HIDING = ("Add", "Sub", "Where", "Max")
_MOVES = ("Transpose", "Unsqueeze", "Squeeze", "Expand", "Reshape", "Split", "Slice", "Gather", "Tile", "Concat")


class Keyed(NamedTuple):
    """A value with a key axis, which a layer computes from tokens.

    kind: "rows" (of K or V, finite in the padding), "scores", or "weights" (zero if masked). hides_later, hides_padding: whether the scores
    of later tokens or of padding are masked. is_shifted: scores are correct up to a constant per row, which Softmax ignores.
    """

    kind: str
    axis: int  # negative axis index
    hides_later: bool = False
    hides_padding: bool = False
    is_shifted: bool = False


class Unclear(Exception):
    """Raised for a node whose results cannot be proved independent of padding. where: the node or value."""

    def __init__(self, node: NodeRecipe | str, why: str) -> None:
        what = "" if isinstance(node, str) else f"{node.qualified_op}: "
        super().__init__(f"{what}{why}")
        self.where = node if isinstance(node, str) else node.name


class Attended:
    """Tracks the values that a decoder computes from tokens. Raise Unclear for the first node that cannot be verified."""

    def __init__(
        self,
        recipe: Recipe,
        names: Names,
        joins: Mapping[str, NodeRecipe],
        sizes: DecoderSizes,
        context: int | None,
    ) -> None:
        self.recipe, self.sizes, self.joins = recipe, sizes.sizes, joins
        self.nodes = recipe.nodes
        known = {names.mask, names.places, SHIFT}
        self.from_tokens = self._dependents({value.name for value in recipe.inputs} - known)
        self.from_lengths = self._length_dependents(names)
        wanted = {name for node in self.nodes if self._is_token_node(node) for name in self._evaluated_inputs(node)}
        values = LengthValues(recipe, names, self.sizes, self.from_tokens, sorted(wanted), context)
        self.checks = LengthChecks(values, self.sizes, context)
        self.keyed: dict[str, Keyed] = {}
        self.unmasked: list[tuple[NodeRecipe, Sizes]] = []  # nodes whose padding scores must be masked

    # ---- dependencies between values

    def _dependents(self, names: set[str]) -> set[str]:
        found = set(names)
        for node in self.nodes:
            is_size = node.op in ("Shape", "Size") and node.inputs[0] in self.sizes
            if not is_size and not found.isdisjoint(node.reads):
                found.update(node.outputs)
        return found

    def _length_dependents(self, names: Names) -> set[str]:
        """Return the values that depend on the lengths of the past or of this run, but not on tokens."""
        found = {names.mask, SHIFT}
        for node in self.nodes:
            if node.op in ("Shape", "Size") and (sizes := self.sizes.get(node.inputs[0])) is not None:
                if any(size.per_past or size.per_row for size in sizes):
                    found.update(node.outputs)
            elif not self._is_token_node(node) and not found.isdisjoint(node.reads):
                found.update(node.outputs)
        return found

    def _is_token_node(self, node: NodeRecipe) -> bool:
        return any(name in self.from_tokens for name in node.outputs)

    def _length_inputs(self, node: NodeRecipe) -> list[str]:
        """Return the inputs whose elements depend on lengths, except shape operands."""
        shapes = _SHAPE_OPERANDS.get(node.op, ())
        inputs = [name for i, name in enumerate(node.inputs) if i not in shapes]
        return [name for name in [*inputs, *node.reads[len(node.inputs) :]] if name in self.from_lengths]

    def _evaluated_inputs(self, node: NodeRecipe) -> list[str]:
        """Return the inputs whose elements must be evaluated: those that depend on lengths, and any that may mask scores."""
        found = self._length_inputs(node)
        if node.op in _HIDING:
            found += node.inputs
        elif node.op == "Slice":
            found += node.inputs[1:]
        return [name for name in found if name and name not in self.from_tokens | self.recipe.constants.keys()]

    # ---- nodes

    def check(self) -> None:
        for node in self.nodes:
            if self._is_token_node(node):
                self._check_node(node)

    def _check_node(self, node: NodeRecipe) -> None:
        if any(node is join for join in self.joins.values()):
            self._keep(node, Keyed("rows", -2))
            return
        if any(name in self.joins for name in node.reads):
            raise Unclear(node, "it reads a cache before new rows are in it")
        given = [self.keyed[name] for name in node.reads if name in self.keyed]
        if not given and not any(self._has_keys(name) for name in node.outputs):
            if any(self._is_keyed_length(name) for name in self._length_inputs(node)):
                raise Unclear(node, "it reads a value with an axis of keys, and its result has none")
            is_sized = all(name in self.sizes for name in filter(None, node.outputs))
            for name in self._length_inputs(node) if is_sized else node.reads:
                if name in self.from_lengths:
                    self._require(node, name)
            return
        if node.domain or not given:
            raise Unclear(node, "it computes with an axis of keys")
        if node.op in (*_UNARY, *_BINARY):
            self._keep(node, self._elementwise(node, given), self.sizes[self._first_keyed(node)][given[0].axis])
        elif node.op in _MOVES:
            self._move(node, given)
        elif node.op in _RULES:
            _RULES[node.op](self, node)
        else:
            raise Unclear(node, "it computes with an axis of keys")

    def _is_keyed_length(self, name: str) -> bool:
        return name not in self.sizes or any(size.per_past for size in self.sizes[name])

    def _has_keys(self, name: str) -> bool:
        sizes = self.sizes.get(name)
        return name in self.from_tokens and sizes is not None and any(size.per_past for size in sizes)

    def _keep(self, node: NodeRecipe, made: Keyed, keys: Size = KEYS) -> None:
        """Record the properties of the outputs. Raise Unclear if their key axis differs."""
        for name in filter(None, node.outputs):
            sizes = self.sizes.get(name)
            axes = [] if sizes is None else [i - len(sizes) for i, size in enumerate(sizes) if size.per_past]
            if sizes is None or axes != [made.axis] or sizes[made.axis] != keys:
                raise Unclear(node, f"the shape of '{name}' does not follow from the lengths")
            self.keyed[name] = made

    def _require(self, node: NodeRecipe, name: str) -> None:
        if not self.checks.is_right(name):
            raise Unclear(
                node, f"its input '{name}' depends on how many rows a cache has, or on how many tokens a run has"
            )

    def _axis_of(self, node: NodeRecipe) -> int:
        """Return the key axis of the first output. Raise Unclear if there is not exactly one."""
        sizes = self.sizes.get(node.outputs[0])
        axes = [] if sizes is None else [i - len(sizes) for i, size in enumerate(sizes) if size.per_past]
        if len(axes) != 1:
            raise Unclear(node, "its result has no axis of keys, or several")
        return axes[0]

    def _one_kind(self, node: NodeRecipe, given: list[Keyed]) -> Keyed:
        if len({one[:2] for one in given}) != 1:
            raise Unclear(node, "it mixes scores, weights and rows of keys")
        return given[0]._replace(
            hides_later=any(one.hides_later for one in given),
            hides_padding=any(one.hides_padding for one in given),
            is_shifted=any(one.is_shifted for one in given),
        )

    def _elementwise(self, node: NodeRecipe, given: list[Keyed]) -> Keyed:
        made = self._one_kind(node, given)
        for name in self._length_inputs(node):
            is_bias = made.kind == "scores" and node.op in ("Add", "Sub")
            if is_bias and not self.checks.is_right(name) and self.checks.is_right(name, up_to_shift=True):
                made = made._replace(is_shifted=True)
            else:
                self._require(node, name)
        if made.kind != "scores":
            return self._rows_or_weights(node, made)
        hidden = self._hidden(node) if node.op in (*_HIDING, "Cast", "Identity") else (False, False)
        if made.is_shifted and not self._keeps_shift(node):
            raise Unclear(node, "it changes scores that are known up to a number of each row")
        return made._replace(hides_later=hidden[0], hides_padding=hidden[1])

    def _keeps_shift(self, node: NodeRecipe) -> bool:
        """Return whether a node keeps scores correct up to a constant per row; the other operand of Where may only mask."""
        if node.op != "Where":
            return node.op in ("Add", "Sub", "Cast", "Identity")
        others = [name for name in node.inputs[1:] if name not in self.keyed]
        is_known = node.inputs[0] not in self.from_tokens and self.from_tokens.isdisjoint(others)
        return is_known and all(
            bool((self._elements(name, run) <= HIDDEN).all()) for name in others for run, _ in self.checks.pairs
        )

    def _rows_or_weights(self, node: NodeRecipe, made: Keyed) -> Keyed:
        """Check that rows stay finite in the padding, and that masked weights stay zero."""
        if made.kind == "rows" and node.op in ("Cast", "Identity", "Neg", "Add", "Sub", "Mul", "Tanh"):
            for name in self._length_inputs(node):
                if not all(np.isfinite(self._elements(name, run)).all() for run, _ in self.checks.pairs):
                    raise Unclear(node, f"its input '{name}' is not finite for padding")
            return made
        if node.op == "Div" and node.inputs[1] not in self.from_lengths | self.from_tokens:
            return made
        if made.kind == "weights" and node.op in ("Cast", "Identity", "IsNaN", "Neg"):
            return made
        if made.kind == "weights" and node.op == "Mul":
            return made
        if made.kind == "weights" and node.op == "Where" and self._is_zero(node.inputs[1]):
            return made
        raise Unclear(node, f"it computes with {made.kind}")

    def _is_zero(self, name: str) -> bool:
        one = self.recipe.constants.get(name)
        return one is not None and not np.any(array_of(one.raw, one.dtype, one.shape))

    # ---- masking of scores

    def _hidden(self, node: NodeRecipe) -> tuple[bool, bool]:
        """Return whether a node's scores are masked for later tokens, and for padding."""
        axis, sizes = self._axis_of(node), self.sizes[node.outputs[0]]
        rows = [i - len(sizes) for i, size in enumerate(sizes) if size == ROWS]
        layout = Layout(rows[0] if len(rows) == 1 else 0, axis)
        if node.op == "Where":
            return self._hidden_where(node, layout)
        found = [
            self._hidden_part(name, layout, -1.0 if node.op == "Sub" and i else 1.0)
            for i, name in enumerate(node.inputs)
        ]
        if node.op == "Max":
            return all(one[0] for one in found), all(one[1] for one in found)
        return any(one[0] for one in found), any(one[1] for one in found)

    def _hidden_part(self, name: str, layout: Layout, factor: float) -> tuple[bool, bool]:
        if name in self.keyed:
            one = self.keyed[name]
            return (one.hides_later, one.hides_padding) if factor > 0 else (False, False)
        if name in self.from_tokens:
            return False, False
        parts = [factor * self._elements(name, run).astype(np.float64) for run, _ in self.checks.pairs]
        return self.checks.hides(parts, layout)

    def _hidden_where(self, node: NodeRecipe, layout: Layout) -> tuple[bool, bool]:
        condition, *branches = node.inputs
        if condition in self.from_tokens:
            return False, False
        found = []
        for which in range(2):
            parts = []
            for run, _ in self.checks.pairs:
                scores = [self._branch(name, which, run) for name in branches]
                parts.append(np.where(self._elements(condition, run), *scores))
            found.append(self.checks.hides(parts, layout)[which])
        return found[0], found[1]

    def _branch(self, name: str, which: int, run: Probe) -> Array:
        """Return the elements of a Where branch; for scores from tokens, -inf if they are masked in region `which` (0: later tokens, 1:
        padding).
        """
        if name in self.keyed:
            one = self.keyed[name]
            return np.array(-np.inf if (one.hides_later, one.hides_padding)[which] else 0.0)
        return np.array(0.0) if name in self.from_tokens else self._elements(name, run).astype(np.float64)

    def _elements(self, name: str, run: Probe) -> Array:
        one = self.recipe.constants.get(name)
        return self.checks.values.at(run)[name] if one is None else array_of(one.raw, one.dtype, one.shape)

    # ---- nodes that move, multiply and normalise

    def _move(self, node: NodeRecipe, given: list[Keyed]) -> None:
        """Handle Transpose, Reshape and similar nodes that keep the key axis, and Concat that appends columns to scores."""
        made, axis = self._one_kind(node, given), self._axis_of(node)
        before, after = self.sizes[self._first_keyed(node)], self.sizes[node.outputs[0]]
        keys = before[made.axis]
        if made.kind != "scores":
            made = made._replace(hides_later=False, hides_padding=False)
        elif node.op == "Concat":
            made = made._replace(
                hides_later=all(one.hides_later for one in given), hides_padding=all(one.hides_padding for one in given)
            )
        if node.op in ("Concat", "Slice"):
            self._check_cut(node, made)
            keys = after[axis]
            if node.op == "Concat" and keys != before[made.axis]:
                self._hide_padding(node, made)
                made = made._replace(hides_padding=True)
        elif node.op == "Reshape" and _count(before[: made.axis]) != _count(after[:axis]):
            raise Unclear(node, "it moves keys to other axes")
        elif node.op == "Gather" and (node.inputs[0] not in self.keyed or self._axis_in(node, before) == made.axis):
            raise Unclear(node, "it selects keys")
        for name in self._length_inputs(node):
            if node.op != "Slice":
                self._require(node, name)
        self._keep(node, made._replace(axis=axis), keys)

    def _first_keyed(self, node: NodeRecipe) -> str:
        return next(name for name in node.inputs if name in self.keyed)

    @staticmethod
    def _axis_in(node: NodeRecipe, sizes: Sizes) -> int:
        axis = int(node.attributes.get("axis", 0))  # type: ignore[arg-type]
        return axis - len(sizes) if axis >= 0 else axis

    def _check_cut(self, node: NodeRecipe, made: Keyed) -> None:
        """Check that Concat only appends a constant number of columns and Slice only removes trailing columns, so that key offsets do not
        change.
        """
        if node.op == "Concat":
            sizes = self.sizes[self._first_keyed(node)]
            if self._axis_in(node, sizes) != made.axis:
                if any(name not in self.keyed for name in node.inputs):
                    raise Unclear(node, "it joins values with and without an axis of keys")
            elif (
                node.inputs[0] not in self.keyed
                or sum(name in self.keyed for name in node.inputs) != 1
                or made[0] != "scores"
                or made.is_shifted
            ):
                raise Unclear(node, "it joins keys with others")
            return
        for run, _ in self.checks.pairs:
            starts, _, axes, steps = self._slice_operands(node, run)
            rank, size = len(self.sizes[node.inputs[0]]), self.sizes[node.inputs[0]][made.axis].at(run)
            for start, axis, step in zip(starts, axes, steps, strict=True):
                if (axis - rank if axis >= 0 else axis) == made.axis and (
                    step != 1 or max(start + size if start < 0 else start, 0)
                ):
                    raise Unclear(node, "it selects keys")

    def _slice_operands(self, node: NodeRecipe, run: Probe) -> list[list[int]]:
        if any(name in self.from_tokens for name in node.inputs[1:]):
            raise Unclear(node, "what it selects depends on tokens")
        given = [
            self._elements(name, run).reshape(-1).tolist() if name else [] for name in [*node.inputs[1:], "", ""][:4]
        ]
        count = len(given[0])
        return [*given[:2], given[2] or [*range(count)], given[3] or [1] * count]

    def _multiply(self, node: NodeRecipe) -> None:
        """Check a MatMul of Q and K, or of weights and V."""
        sides = [self.keyed.get(name) for name in node.inputs]
        first, second = sides
        for name in self._length_inputs(node):
            self._require(node, name)
        inner = [one is not None and one.axis == axis for one, axis in zip(sides, (-1, -2), strict=True)]
        if not any(inner):
            if (first is not None and second is not None) or any(
                one is not None and one.kind != "rows" for one in sides
            ):
                raise Unclear(node, "it multiplies two values with an axis of keys each")
            made = first or second
            assert made is not None
            is_product = made.axis == (-2 if first is not None else -1) and not self._is_weight(node)
            self._keep(node, Keyed("scores" if is_product else "rows", made.axis))
            return
        if not all(inner) or {one.kind for one in sides if one is not None} != {"rows", "weights"}:
            raise Unclear(node, "it sums over keys without weights that are zero for padding and later tokens")
        if any(self._has_keys(name) for name in node.outputs):
            raise Unclear(node, "its result has an axis of keys")

    def _is_weight(self, node: NodeRecipe) -> bool:
        return any(name not in self.from_tokens for name in node.inputs)

    def _normalise(self, node: NodeRecipe) -> None:
        """Check a Softmax over the keys."""
        scores = self.keyed[node.inputs[0]]
        sizes = self.sizes[node.inputs[0]]
        axis = int(node.attributes.get("axis", -1))  # type: ignore[arg-type]
        if scores.kind != "scores" or (axis - len(sizes) if axis >= 0 else axis) != scores.axis:
            raise Unclear(node, "it is no Softmax of scores over the keys")
        if not scores.hides_later:
            raise Unclear(node, "its mask does not hide later tokens, or not in all runs")
        self._hide_padding(node, scores)
        self._keep(node, Keyed("weights", scores.axis), sizes[scores.axis])

    def _hide_padding(self, node: NodeRecipe, scores: Keyed) -> None:
        """Request masking of padding in a node's first input, the scores, unless a mask already does it."""
        sizes = self.sizes[node.inputs[0]]
        if scores.hides_padding:
            return
        if scores.axis != -1 or sizes[-1] != KEYS:
            raise Unclear(node, "its mask does not hide padding (attention_mask)")
        self.unmasked.append((node, sizes))

    def _largest(self, node: NodeRecipe) -> None:
        """Check a ReduceMax of scores over the keys."""
        scores = self.keyed[node.inputs[0]]
        if scores.kind != "scores" or scores.is_shifted or not scores.hides_later:
            raise Unclear(node, "it reduces keys, some of which are later tokens")
        self._hide_padding(node, scores)
        if any(self._has_keys(name) for name in node.outputs):
            raise Unclear(node, "its result has an axis of keys")

    def _attend(self, node: NodeRecipe) -> None:
        """Check that ONNX's Attention has a mask for padding and later tokens."""
        query, keys, values, mask, *others = [*node.inputs, "", "", "", ""][:7]
        if node.attributes.get("is_causal") or any(others):
            raise Unclear(node, "expected a mask alone for what it hides (no is_causal, no past, no nonpad_kv_seqlen)")
        is_known = all(self.keyed.get(name, Keyed("", 0))[:2] == ("rows", -2) for name in (keys, values))
        if not is_known or query in self.keyed or not mask or mask in self.from_tokens:
            raise Unclear(node, "expected keys and values of a cache, and a mask")
        self._require(node, mask)
        parts = [_as_scores(self._elements(mask, run)) for run, _ in self.checks.pairs]
        if self.checks.hides(parts, Layout(-2, -1)) != (True, True):
            raise Unclear(node, "its mask does not hide padding and later tokens")
        if any(self._has_keys(name) for name in node.outputs if name):
            raise Unclear(node, "its result has an axis of keys")


def _as_scores(mask: Array) -> Array:
    return np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask


def _count(sizes: Sizes) -> tuple[int, ...]:
    """Return the element count in each of three runs, for comparing products of sizes."""
    probes = Probe(5, 3), Probe(11, 3), Probe(5, 7)
    return tuple(int(np.prod([size.at(probe) for size in sizes])) for probe in probes)


_RULES = {
    "MatMul": Attended._multiply,
    "Softmax": Attended._normalise,
    "ReduceMax": Attended._largest,
    "Attention": Attended._attend,
}
