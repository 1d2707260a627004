"""Verify that a decoder with Concat caches gives the same results on fixed-capacity caches with left padding.

In a run of S tokens after `past` tokens, the caches have `capacity - S` rows, and the last `past` of them are in use, as in a left-padded
batch. Masks, biases and positions depend only on lengths, so they are evaluated on the host for several lengths, with and without padding
(make_probe_pairs). Values computed from tokens are tracked node by node: attention must mask padding and later tokens. Any other pattern
is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..base.element_types import Array, array_from_bytes
from ..importer.file.graph_recipe import GraphRecipe, NodeRecipe
from .length_evaluation import PADDING_INPUT, DecoderShapes, LengthEvaluator, LengthProbe, LinearSize, Sizes
from .model_folder import IoNames
from .padding_comparison import KEY_AXIS_SIZE, MASKED_SCORE, QUERY_AXIS_SIZE, AttentionAxes, PaddingComparison

_SHAPE_OPERANDS = {"Reshape": (1,), "Expand": (1,), "Tile": (1,), "Resize": (2, 3)}
_UNARY_OPS = ("Cast", "Identity", "Neg", "Tanh", "IsNaN", "CastLike")
_ELEMENTWISE_OPS = ("Add", "Sub", "Mul", "Div", "Where", "Max", "Min", "Clip")
_MASKING_OPS = ("Add", "Sub", "Where", "Max")
_MOVEMENT_OPS = ("Transpose", "Unsqueeze", "Squeeze", "Expand", "Reshape", "Split", "Slice", "Gather", "Tile", "Concat")


class AttentionValueProperties(NamedTuple):
    """Properties of a value with a key axis that depends on tokens.

    kind: "rows" (K or V, finite in the padding), "scores", or "weights" (attention probabilities, zero where masked). masks_future,
    masks_padding: whether scores of later tokens, or of padding, are masked. is_shifted: whether scores are correct only up to a constant
    per query, which Softmax ignores.
    """

    kind: str
    axis: int  # negative axis index
    masks_future: bool = False
    masks_padding: bool = False
    is_shifted: bool = False


class PaddingError(Exception):
    """Raised for a node whose results cannot be proved independent of padding. location: the name of the node or value."""

    def __init__(self, node: NodeRecipe | str, reason: str) -> None:
        op = "" if isinstance(node, str) else f"{node.qualified_op}: "
        super().__init__(f"{op}{reason}")
        self.location = node if isinstance(node, str) else node.name


class PaddingVerifier:
    """Tracks values with a key axis through a decoder. check() raises PaddingError for the first node that cannot be verified."""

    def __init__(
        self,
        recipe: GraphRecipe,
        names: IoNames,
        concats: Mapping[str, NodeRecipe],
        sizes: DecoderShapes,
        context: int | None,
    ) -> None:
        self.recipe, self.sizes, self.concats = recipe, sizes.sizes, concats
        self.nodes = recipe.nodes
        length_inputs = {names.attention_mask, names.position_ids, PADDING_INPUT}
        self.token_dependent = self._find_dependent_values({value.name for value in recipe.inputs} - length_inputs)
        self.length_dependent = self._find_length_dependents(names)
        evaluated = {
            name for node in self.nodes if self._depends_on_tokens(node) for name in self._get_evaluated_inputs(node)
        }
        values = LengthEvaluator(recipe, names, self.sizes, self.token_dependent, sorted(evaluated), context)
        self.checks = PaddingComparison(values, self.sizes, context)
        self.attention_values: dict[str, AttentionValueProperties] = {}
        self.unmasked: list[
            tuple[NodeRecipe, Sizes]
        ] = []  # nodes whose first input needs a padding mask, and its sizes

    # ---- dependencies between values

    def _find_dependent_values(self, names: set[str]) -> set[str]:
        dependents = set(names)
        for node in self.nodes:
            is_size = node.op in ("Shape", "Size") and node.inputs[0] in self.sizes
            if not is_size and not dependents.isdisjoint(node.reads):
                dependents.update(node.outputs)
        return dependents

    def _find_length_dependents(self, names: IoNames) -> set[str]:
        """Return the values that depend on the lengths of the past or of the run, but not on tokens."""
        length_values = {names.attention_mask, PADDING_INPUT}
        for node in self.nodes:
            if node.op in ("Shape", "Size") and (sizes := self.sizes.get(node.inputs[0])) is not None:
                if any(size.per_past or size.per_token for size in sizes):
                    length_values.update(node.outputs)
            elif not self._depends_on_tokens(node) and not length_values.isdisjoint(node.reads):
                length_values.update(node.outputs)
        return length_values

    def _depends_on_tokens(self, node: NodeRecipe) -> bool:
        return any(name in self.token_dependent for name in node.outputs)

    def _get_length_inputs(self, node: NodeRecipe) -> list[str]:
        """Return the inputs whose elements depend on lengths, except shape operands."""
        shapes = _SHAPE_OPERANDS.get(node.op, ())
        inputs = [name for i, name in enumerate(node.inputs) if i not in shapes]
        return [name for name in [*inputs, *node.reads[len(node.inputs) :]] if name in self.length_dependent]

    def _get_evaluated_inputs(self, node: NodeRecipe) -> list[str]:
        """Return the inputs whose elements must be evaluated: they depend on lengths, or may mask scores or bound a Slice."""
        evaluated = self._get_length_inputs(node)
        if node.op in _MASKING_OPS:
            evaluated += node.inputs
        elif node.op == "Slice":
            evaluated += node.inputs[1:]
        return [name for name in evaluated if name and name not in self.token_dependent | self.recipe.constants.keys()]

    # ---- checks of single nodes

    def check(self) -> None:
        for node in self.nodes:
            if self._depends_on_tokens(node):
                self._check_node(node)

    def _check_node(self, node: NodeRecipe) -> None:
        if any(node is concat for concat in self.concats.values()):
            self._record_outputs(node, AttentionValueProperties("rows", -2))
            return
        if any(name in self.concats for name in node.reads):
            raise PaddingError(node, "it reads a cache before new rows are in it")
        operands = [self.attention_values[name] for name in node.reads if name in self.attention_values]
        if not operands and not any(self._has_key_axis(name) for name in node.outputs):
            if any(self._may_have_key_axis(name) for name in self._get_length_inputs(node)):
                raise PaddingError(node, "it reads a value with an axis of keys, and its result has none")
            is_sized = all(name in self.sizes for name in filter(None, node.outputs))
            for name in self._get_length_inputs(node) if is_sized else node.reads:
                if name in self.length_dependent:
                    self._require_invariant(node, name)
            return
        if node.domain or not operands:
            raise PaddingError(node, "it computes with an axis of keys")
        if node.op in (*_UNARY_OPS, *_ELEMENTWISE_OPS):
            self._record_outputs(
                node,
                self._check_elementwise(node, operands),
                self.sizes[self._get_first_attention_input(node)][operands[0].axis],
            )
        elif node.op in _MOVEMENT_OPS:
            self._check_data_movement(node, operands)
        elif node.op in _NODE_CHECKS:
            _NODE_CHECKS[node.op](self, node)
        else:
            raise PaddingError(node, "it computes with an axis of keys")

    def _may_have_key_axis(self, name: str) -> bool:
        return name not in self.sizes or any(size.per_past for size in self.sizes[name])

    def _has_key_axis(self, name: str) -> bool:
        sizes = self.sizes.get(name)
        return name in self.token_dependent and sizes is not None and any(size.per_past for size in sizes)

    def _record_outputs(
        self, node: NodeRecipe, value: AttentionValueProperties, keys: LinearSize = KEY_AXIS_SIZE
    ) -> None:
        """Record the properties of a node's outputs. Raise PaddingError unless their key axis is `value.axis` with the size `keys`."""
        for name in filter(None, node.outputs):
            sizes = self.sizes.get(name)
            axes = [] if sizes is None else [i - len(sizes) for i, size in enumerate(sizes) if size.per_past]
            if sizes is None or axes != [value.axis] or sizes[value.axis] != keys:
                raise PaddingError(node, f"the shape of '{name}' does not follow from the lengths")
            self.attention_values[name] = value

    def _require_invariant(self, node: NodeRecipe, name: str) -> None:
        if not self.checks.is_padding_invariant(name):
            raise PaddingError(
                node, f"its input '{name}' depends on how many rows a cache has, or on how many tokens a run has"
            )

    def _get_key_axis(self, node: NodeRecipe) -> int:
        """Return the key axis of a node's first output. Raise PaddingError unless it has exactly one."""
        sizes = self.sizes.get(node.outputs[0])
        axes = [] if sizes is None else [i - len(sizes) for i, size in enumerate(sizes) if size.per_past]
        if len(axes) != 1:
            raise PaddingError(node, "its result has no key axis, or more than one")
        return axes[0]

    def _merge_operand_properties(
        self, node: NodeRecipe, operands: list[AttentionValueProperties]
    ) -> AttentionValueProperties:
        if len({operand[:2] for operand in operands}) != 1:
            raise PaddingError(node, "it mixes scores, weights and rows of keys")
        return operands[0]._replace(
            masks_future=any(operand.masks_future for operand in operands),
            masks_padding=any(operand.masks_padding for operand in operands),
            is_shifted=any(operand.is_shifted for operand in operands),
        )

    def _check_elementwise(
        self, node: NodeRecipe, operands: list[AttentionValueProperties]
    ) -> AttentionValueProperties:
        value = self._merge_operand_properties(node, operands)
        for name in self._get_length_inputs(node):
            is_bias = value.kind == "scores" and node.op in ("Add", "Sub")
            if (
                is_bias
                and not self.checks.is_padding_invariant(name)
                and self.checks.is_padding_invariant(name, up_to_shift=True)
            ):
                value = value._replace(is_shifted=True)
            else:
                self._require_invariant(node, name)
        if value.kind != "scores":
            return self._check_kv_or_probabilities(node, value)
        masked = self._find_masked_regions(node) if node.op in (*_MASKING_OPS, "Cast", "Identity") else (False, False)
        if value.is_shifted and not self._preserves_shift(node):
            raise PaddingError(node, "it changes scores that are known only up to a constant per row")
        return value._replace(masks_future=masked[0], masks_padding=masked[1])

    def _preserves_shift(self, node: NodeRecipe) -> bool:
        """Return whether a node keeps scores correct up to a constant per query. The other branch of a Where must be masked scores."""
        if node.op != "Where":
            return node.op in ("Add", "Sub", "Cast", "Identity")
        others = [name for name in node.inputs[1:] if name not in self.attention_values]
        is_constant_operand = node.inputs[0] not in self.token_dependent and self.token_dependent.isdisjoint(others)
        return is_constant_operand and all(
            bool((self._get_elements(name, run) <= MASKED_SCORE).all())
            for name in others
            for run, _ in self.checks.pairs
        )

    def _check_kv_or_probabilities(self, node: NodeRecipe, value: AttentionValueProperties) -> AttentionValueProperties:
        """Check that a node keeps K or V finite in the padding, or masked probabilities zero."""
        if value.kind == "rows" and node.op in ("Cast", "Identity", "Neg", "Add", "Sub", "Mul", "Tanh"):
            for name in self._get_length_inputs(node):
                if not all(np.isfinite(self._get_elements(name, run)).all() for run, _ in self.checks.pairs):
                    raise PaddingError(node, f"its input '{name}' is not finite for padding")
            return value
        if node.op == "Div" and node.inputs[1] not in self.length_dependent | self.token_dependent:
            return value
        if value.kind == "weights" and node.op in ("Cast", "Identity", "IsNaN", "Neg"):
            return value
        if value.kind == "weights" and node.op == "Mul":
            return value
        if value.kind == "weights" and node.op == "Where" and self._is_zero(node.inputs[1]):
            return value
        raise PaddingError(node, f"it computes with {value.kind}")

    def _is_zero(self, name: str) -> bool:
        constant = self.recipe.constants.get(name)
        return constant is not None and not np.any(array_from_bytes(constant.raw, constant.dtype, constant.shape))

    # ---- masking of scores

    def _find_masked_regions(self, node: NodeRecipe) -> tuple[bool, bool]:
        """Return whether a node's output scores are masked for later tokens, and for padding."""
        axis, sizes = self._get_key_axis(node), self.sizes[node.outputs[0]]
        query_axes = [i - len(sizes) for i, size in enumerate(sizes) if size == QUERY_AXIS_SIZE]
        axes = AttentionAxes(query_axes[0] if len(query_axes) == 1 else 0, axis)
        if node.op == "Where":
            return self._find_regions_masked_by_where(node, axes)
        regions = [
            self._find_regions_masked_by_operand(name, axes, -1.0 if node.op == "Sub" and i else 1.0)
            for i, name in enumerate(node.inputs)
        ]
        if node.op == "Max":
            return all(region[0] for region in regions), all(region[1] for region in regions)
        return any(region[0] for region in regions), any(region[1] for region in regions)

    def _find_regions_masked_by_operand(self, name: str, axes: AttentionAxes, factor: float) -> tuple[bool, bool]:
        if name in self.attention_values:
            scores = self.attention_values[name]
            return (scores.masks_future, scores.masks_padding) if factor > 0 else (False, False)
        if name in self.token_dependent:
            return False, False
        scores_by_run = [factor * self._get_elements(name, run).astype(np.float64) for run, _ in self.checks.pairs]
        return self.checks.find_masked_regions(scores_by_run, axes)

    def _find_regions_masked_by_where(self, node: NodeRecipe, axes: AttentionAxes) -> tuple[bool, bool]:
        condition, *branches = node.inputs
        if condition in self.token_dependent:
            return False, False
        regions = []
        for region in range(2):
            scores_by_run = []
            for run, _ in self.checks.pairs:
                scores = [self._evaluate_where_branch(name, region, run) for name in branches]
                scores_by_run.append(np.where(self._get_elements(condition, run), *scores))
            regions.append(self.checks.find_masked_regions(scores_by_run, axes)[region])
        return regions[0], regions[1]

    def _evaluate_where_branch(self, name: str, region: int, run: LengthProbe) -> Array:
        """Return the elements of a Where branch. region: 0 for later tokens, 1 for padding.

        Scores that depend on tokens are represented by -inf if they are masked in this region, else by 0.
        """
        if name in self.attention_values:
            scores = self.attention_values[name]
            return np.array(-np.inf if (scores.masks_future, scores.masks_padding)[region] else 0.0)
        return np.array(0.0) if name in self.token_dependent else self._get_elements(name, run).astype(np.float64)

    def _get_elements(self, name: str, run: LengthProbe) -> Array:
        constant = self.recipe.constants.get(name)
        return (
            self.checks.values.evaluate(run)[name]
            if constant is None
            else array_from_bytes(constant.raw, constant.dtype, constant.shape)
        )

    # ---- nodes that move, multiply and normalise

    def _check_data_movement(self, node: NodeRecipe, operands: list[AttentionValueProperties]) -> None:
        """Check a node that moves elements: it must keep the key axis, or be a Concat that appends columns to scores."""
        value, axis = self._merge_operand_properties(node, operands), self._get_key_axis(node)
        before, after = self.sizes[self._get_first_attention_input(node)], self.sizes[node.outputs[0]]
        keys = before[value.axis]
        if value.kind != "scores":
            value = value._replace(masks_future=False, masks_padding=False)
        elif node.op == "Concat":
            value = value._replace(
                masks_future=all(operand.masks_future for operand in operands),
                masks_padding=all(operand.masks_padding for operand in operands),
            )
        if node.op in ("Concat", "Slice"):
            self._check_concat_or_slice(node, value)
            keys = after[axis]
            if node.op == "Concat" and keys != before[value.axis]:
                self._request_padding_mask(node, value)
                value = value._replace(masks_padding=True)
        elif node.op == "Reshape" and _compute_element_counts(before[: value.axis]) != _compute_element_counts(
            after[:axis]
        ):
            raise PaddingError(node, "it moves keys to other axes")
        elif node.op == "Gather" and (
            node.inputs[0] not in self.attention_values or self._get_negative_axis(node, before) == value.axis
        ):
            raise PaddingError(node, "it selects keys")
        for name in self._get_length_inputs(node):
            if node.op != "Slice":
                self._require_invariant(node, name)
        self._record_outputs(node, value._replace(axis=axis), keys)

    def _get_first_attention_input(self, node: NodeRecipe) -> str:
        return next(name for name in node.inputs if name in self.attention_values)

    @staticmethod
    def _get_negative_axis(node: NodeRecipe, sizes: Sizes) -> int:
        axis = int(node.attributes.get("axis", 0))  # type: ignore[arg-type]
        return axis - len(sizes) if axis >= 0 else axis

    def _check_concat_or_slice(self, node: NodeRecipe, value: AttentionValueProperties) -> None:
        """Check that a Concat only appends keys and a Slice only removes trailing keys, so that the offsets of keys do not change."""
        if node.op == "Concat":
            sizes = self.sizes[self._get_first_attention_input(node)]
            if self._get_negative_axis(node, sizes) != value.axis:
                if any(name not in self.attention_values for name in node.inputs):
                    raise PaddingError(node, "it combines values with and without an axis of keys")
            elif (
                node.inputs[0] not in self.attention_values
                or sum(name in self.attention_values for name in node.inputs) != 1
                or value[0] != "scores"
                or value.is_shifted
            ):
                raise PaddingError(node, "it combines keys with others")
            return
        for run, _ in self.checks.pairs:
            starts, _, axes, steps = self._get_slice_operands(node, run)
            rank, size = len(self.sizes[node.inputs[0]]), self.sizes[node.inputs[0]][value.axis].evaluate(run)
            for start, axis, step in zip(starts, axes, steps, strict=True):
                if (axis - rank if axis >= 0 else axis) == value.axis and (
                    step != 1 or max(start + size if start < 0 else start, 0)
                ):
                    raise PaddingError(node, "it selects keys")

    def _get_slice_operands(self, node: NodeRecipe, run: LengthProbe) -> list[list[int]]:
        if any(name in self.token_dependent for name in node.inputs[1:]):
            raise PaddingError(node, "what it selects depends on tokens")
        operands = [
            self._get_elements(name, run).reshape(-1).tolist() if name else []
            for name in [*node.inputs[1:], "", ""][:4]
        ]
        count = len(operands[0])
        return [*operands[:2], operands[2] or [*range(count)], operands[3] or [1] * count]

    def _check_matmul(self, node: NodeRecipe) -> None:
        """Check a MatMul of Q and K, of attention probabilities and V, or of K or V and a constant matrix."""
        operands = [self.attention_values.get(name) for name in node.inputs]
        left, right = operands
        for name in self._get_length_inputs(node):
            self._require_invariant(node, name)
        contracts_keys = [
            operand is not None and operand.axis == axis for operand, axis in zip(operands, (-1, -2), strict=True)
        ]
        if not any(contracts_keys):
            if (left is not None and right is not None) or any(
                operand is not None and operand.kind != "rows" for operand in operands
            ):
                raise PaddingError(node, "it multiplies two values with an axis of keys each")
            value = left or right
            assert value is not None
            is_scores = value.axis == (-2 if left is not None else -1) and not self._has_constant_operand(node)
            self._record_outputs(node, AttentionValueProperties("scores" if is_scores else "rows", value.axis))
            return
        if not all(contracts_keys) or {operand.kind for operand in operands if operand is not None} != {
            "rows",
            "weights",
        }:
            raise PaddingError(node, "it sums over keys without weights that are zero for padding and later tokens")
        if any(self._has_key_axis(name) for name in node.outputs):
            raise PaddingError(node, "its result has an axis of keys")

    def _has_constant_operand(self, node: NodeRecipe) -> bool:
        return any(name not in self.token_dependent for name in node.inputs)

    def _check_softmax(self, node: NodeRecipe) -> None:
        """Check a Softmax over the keys."""
        scores = self.attention_values[node.inputs[0]]
        sizes = self.sizes[node.inputs[0]]
        axis = int(node.attributes.get("axis", -1))  # type: ignore[arg-type]
        if scores.kind != "scores" or (axis - len(sizes) if axis >= 0 else axis) != scores.axis:
            raise PaddingError(node, "it is not a Softmax of scores over the keys")
        if not scores.masks_future:
            raise PaddingError(node, "its mask does not hide later tokens, or not in all runs")
        self._request_padding_mask(node, scores)
        self._record_outputs(node, AttentionValueProperties("weights", scores.axis), sizes[scores.axis])

    def _request_padding_mask(self, node: NodeRecipe, scores: AttentionValueProperties) -> None:
        """Record that padding must be masked in a node's first input (the scores), unless the model's mask already does that."""
        sizes = self.sizes[node.inputs[0]]
        if scores.masks_padding:
            return
        if scores.axis != -1 or sizes[-1] != KEY_AXIS_SIZE:
            raise PaddingError(node, "its mask does not hide padding (attention_mask)")
        self.unmasked.append((node, sizes))

    def _check_reduce_max(self, node: NodeRecipe) -> None:
        """Check a ReduceMax of scores over the keys."""
        scores = self.attention_values[node.inputs[0]]
        if scores.kind != "scores" or scores.is_shifted or not scores.masks_future:
            raise PaddingError(node, "it reduces keys, some of which are later tokens")
        self._request_padding_mask(node, scores)
        if any(self._has_key_axis(name) for name in node.outputs):
            raise PaddingError(node, "its result has an axis of keys")

    def _check_attention(self, node: NodeRecipe) -> None:
        """Check that an ONNX Attention node has a mask for padding and later tokens."""
        query, keys, values, mask, *others = [*node.inputs, "", "", "", ""][:7]
        if node.attributes.get("is_causal") or any(others):
            raise PaddingError(node, "expected only a mask to hide tokens (no is_causal, no past, no nonpad_kv_seqlen)")
        has_cache_inputs = all(
            self.attention_values.get(name, AttentionValueProperties("", 0))[:2] == ("rows", -2)
            for name in (keys, values)
        )
        if not has_cache_inputs or query in self.attention_values or not mask or mask in self.token_dependent:
            raise PaddingError(node, "expected keys and values of a cache, and a mask")
        self._require_invariant(node, mask)
        scores_by_run = [_convert_mask_to_scores(self._get_elements(mask, run)) for run, _ in self.checks.pairs]
        if self.checks.find_masked_regions(scores_by_run, AttentionAxes(-2, -1)) != (True, True):
            raise PaddingError(node, "its mask does not hide padding and later tokens")
        if any(self._has_key_axis(name) for name in node.outputs if name):
            raise PaddingError(node, "its result has an axis of keys")


def _convert_mask_to_scores(mask: Array) -> Array:
    return np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask


def _compute_element_counts(sizes: Sizes) -> tuple[int, ...]:
    """Return the product of the sizes in three runs, to compare products of linear sizes."""
    probes = LengthProbe(5, 3), LengthProbe(11, 3), LengthProbe(5, 7)
    return tuple(int(np.prod([size.evaluate(probe) for size in sizes])) for probe in probes)


_NODE_CHECKS = {
    "MatMul": PaddingVerifier._check_matmul,
    "Softmax": PaddingVerifier._check_softmax,
    "ReduceMax": PaddingVerifier._check_reduce_max,
    "Attention": PaddingVerifier._check_attention,
}
