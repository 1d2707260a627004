"""Adapt a decoder with Concat caches to fixed-capacity caches with left padding, by correcting positions and masking padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..base.element_types import ONNX_TYPE_CODES, Array
from ..importer.file.graph_recipe import ConstantRecipe, GraphRecipe, NodeRecipe
from .length_evaluation import (
    PADDING_INPUT,
    DecoderShapes,
    LengthEvaluationError,
    LengthEvaluator,
    LengthProbe,
    LinearSize,
    find_longest_probe,
    find_needed_nodes,
)
from .model_folder import ModelFolder
from .padding_comparison import AttentionAxes, find_attention_axes
from .padding_verifier import PaddingError, PaddingVerifier

CACHE_MASK = "pumice.mask"  # name of a bool mask [batch, capacity] that is true for cache rows with tokens
_PROBES = LengthProbe(3, 2), LengthProbe(3, 2, 2), LengthProbe(3, 2, 5)


class PaddingPlan(NamedTuple):
    """The nodes of a decoder for padded caches, and new constants. requires_batch_one: whether they support only batch size 1."""

    nodes: Sequence[NodeRecipe]
    constants: Mapping[str, ConstantRecipe]
    requires_batch_one: bool


class _PaddingPlanner:
    def __init__(self, recipe: GraphRecipe, folder: ModelFolder, concats: Mapping[str, NodeRecipe]) -> None:
        self.names, self.context_length, self.concats = folder.names, folder.context_length, concats
        outputs = [self.names.logits, *(concat.inputs[1] for concat in concats.values())]
        self.recipe = recipe._replace(nodes=find_needed_nodes(recipe.nodes, outputs))
        self.sizes = DecoderShapes(recipe, self.names, concats, find_longest_probe(self.context_length))
        self.constants: dict[str, ConstantRecipe] = {}

    def plan(self) -> PaddingPlan:
        """Return the first version that can be verified: unchanged, with corrected positions, or also with Gathers in place of Slices."""
        try:
            return self._verify_plan(self.recipe.nodes, False)
        except PaddingError as unclear:
            first = unclear
        for has_slices in (True, False):
            if not has_slices:
                self.recipe = self.recipe._replace(nodes=self._replace_slices_by_gathers())
            if (nodes := self._correct_positions()) is None:
                continue
            try:
                return self._verify_plan(nodes, True)
            except PaddingError as unclear:
                first = unclear
        raise first

    def _verify_plan(self, nodes: Sequence[NodeRecipe], requires_batch_one: bool) -> PaddingPlan:
        recipe = self.recipe._replace(nodes=[*nodes], constants={**self.recipe.constants, **self.constants})
        verifier = PaddingVerifier(recipe, self.names, self.concats, self.sizes, self.context_length)
        verifier.check()
        self._check_outputs(verifier)
        planned = [*nodes]
        for node, sizes in verifier.unmasked:
            is_batch = len(sizes) == 4 and sizes[0] == LinearSize(1, 0, 0)
            requires_batch_one |= not is_batch
            planned[planned.index(node) : planned.index(node) + 1] = self._mask_padding(node, is_batch)
        return PaddingPlan(planned, self.constants, requires_batch_one)

    def _check_outputs(self, verifier: PaddingVerifier) -> None:
        """Raise PaddingError unless logits and new cache rows are computed for each token of a run and have no key axis."""
        logits, sizes = self.names.logits, self.sizes.sizes.get(self.names.logits)
        if sizes is not None and (len(sizes) != 3 or sizes[1] != LinearSize(0, 0, 1)):
            raise PaddingError(logits, "expected logits of all tokens of a run")
        for name in (logits, *(concat.inputs[1] for concat in self.concats.values())):
            if name in verifier.attention_values or name not in verifier.token_dependent:
                raise PaddingError(name, "expected a result for each token of a run")

    def _add_constant(self, name: str, value: Array) -> str:
        self.constants[name] = ConstantRecipe(name, str(value.dtype), list(value.shape), value.tobytes())
        return name

    def _mask_padding(self, node: NodeRecipe, is_batch: bool) -> list[NodeRecipe]:
        """Return nodes that mask padding in the node's first input (the scores), followed by the node."""
        scores, name = node.inputs[0], f"{node.outputs[0]}.visible"
        dtype = self.sizes.dtypes[scores]
        if dtype not in ("float32", "float16"):
            raise PaddingError(node, f"expected scores of float32 or float16, given {dtype}")
        low = self._add_constant(f"pumice.low.{dtype}", np.array(-65504, dtype))
        axes = self._add_constant("pumice.mask.axes", np.array([1, 2]))
        expand = [NodeRecipe("Unsqueeze", name, [CACHE_MASK, axes], [name], {})] if is_batch else []
        masked = f"{node.outputs[0]}.hidden"
        where = NodeRecipe("Where", masked, [name if is_batch else CACHE_MASK, scores, low], [masked], {})
        return [*expand, where, node._replace(inputs=[masked, *node.inputs[1:]])]

    # ---- correction of token positions

    def _replace_slices_by_gathers(self) -> list[NodeRecipe]:
        """Return the nodes with a Gather over a Range in place of each length-dependent Slice of a constant table."""
        verifier = PaddingVerifier(self.recipe, self.names, self.concats, self.sizes, self.context_length)
        padding_sensitive = verifier.length_dependent | verifier.token_dependent
        nodes: list[NodeRecipe] = []
        for node in self.recipe.nodes:
            is_table = (
                node.op == "Slice"
                and node.inputs[0] not in padding_sensitive
                and node.inputs[2] in verifier.length_dependent
            )
            replacement = self._slice_to_gather(node) if is_table else [node]
            if replacement[0] is not node:
                padding_sensitive.difference_update(node.outputs)  # so that a Slice of the result is replaced too
            nodes += replacement
        return nodes

    def _slice_to_gather(self, node: NodeRecipe) -> list[NodeRecipe]:
        name, (table, start, end, *others) = node.outputs[0], node.inputs
        axes, *steps = [self.recipe.constants.get(operand) for operand in [*others, "", ""][:2]]
        axis = 0 if axes is None else int(np.frombuffer(axes.raw, axes.dtype)[0])
        sizes = [self.sizes.sizes.get(operand, ()) for operand in (start, end, name)]
        is_simple = (not others or axes is not None) and (len(others) < 2 or _is_all_ones(steps[0]))
        if not is_simple or sizes[0] != (LinearSize(1, 0, 0),) or sizes[1] != (LinearSize(1, 0, 0),) or not sizes[2]:
            return [node]
        first, last, rows = (f"{name}.{suffix}" for suffix in ("first", "last", "rows"))
        self.sizes.sizes[rows] = (sizes[2][axis],)
        self.sizes.dtypes[rows] = self.sizes.dtypes[start]
        one_constant = self._add_constant(
            f"pumice.one.{self.sizes.dtypes[start]}", np.ones((), self.sizes.dtypes[start])
        )
        return [
            NodeRecipe("Squeeze", first, [start], [first], {}),
            NodeRecipe("Squeeze", last, [end], [last], {}),
            NodeRecipe("Range", f"{rows}.range", [first, last, one_constant], [rows], {}),
            NodeRecipe("Gather", node.name, [table, rows], [name], {"axis": axis}),
        ]

    def _correct_positions(self) -> list[NodeRecipe] | None:
        """Return the nodes with padding subtracted from positions that count from the start of the cache; None without such positions."""
        shifted = self._find_padding_dependent_positions()
        if not shifted:
            return None
        nodes = []
        indices = self._find_mask_indices()
        for node in self.recipe.nodes:
            if node.outputs and node.outputs[0] in indices:
                node = node._replace(inputs=[f"{name}.padded" if name in shifted else name for name in node.inputs])
            if (name := node.outputs[0] if node.outputs else "") not in shifted:
                nodes.append(node)
                continue
            multiple, unpadded = shifted[name]
            nodes.append(node._replace(outputs=[f"{name}.padded", *node.outputs[1:]]))
            nodes += self._subtract_padding(name, multiple, unpadded)
        return nodes

    def _find_mask_indices(self) -> set[str]:
        """Return the values that index a mask in ScatterND, GatherND or Gather. They keep the padding, because the mask is padded too."""
        masks, index_values = {self.names.attention_mask}, set()
        for node in self.recipe.nodes:
            if not masks.isdisjoint(node.inputs):
                masks.update(node.outputs)
            if node.op == "ScatterND" or (node.op in ("Gather", "GatherND") and node.inputs[0] in masks):
                index_values.add(node.inputs[1])
        for node in reversed(self.recipe.nodes):
            if node.op in ("Unsqueeze", "Reshape", "Expand", "Concat", "Cast") and not index_values.isdisjoint(
                node.outputs
            ):
                index_values.update(node.inputs)
        return index_values

    def _subtract_padding(self, name: str, multiple: int, unpadded: Array) -> list[NodeRecipe]:
        dtype = str(unpadded.dtype)
        count = self._add_constant(f"pumice.times.{multiple}", np.array(multiple))
        zero = self._add_constant(f"pumice.zero.{dtype}", np.zeros((), dtype))
        padding, cast, corrected = (f"{name}.{suffix}" for suffix in ("padding", "cast", "less"))
        nodes = [
            NodeRecipe("Mul", padding, [PADDING_INPUT, count], [padding], {}),
            NodeRecipe("Cast", cast, [padding], [cast], {"to": ONNX_TYPE_CODES[dtype]}),
        ]
        if unpadded.min(initial=0) < 0:
            return [*nodes, NodeRecipe("Sub", name, [f"{name}.padded", cast], [name], {})]
        nodes.append(NodeRecipe("Sub", corrected, [f"{name}.padded", cast], [corrected], {}))
        return [
            *nodes,
            NodeRecipe("Max", name, [corrected, zero], [name], {}),
        ]  # clamp the positions of padding rows, because other readers require them in range

    def _find_padding_dependent_positions(self) -> dict[str, tuple[int, Array]]:
        """Return name -> (multiple of the padding, unpadded elements) for the first values on each path that grow with the padding."""
        recipe = self.recipe._replace(constants={**self.recipe.constants, **self.constants})
        verifier = PaddingVerifier(recipe, self.names, self.concats, self.sizes, self.context_length)
        length_nodes = [
            node for node in self.recipe.nodes if node.outputs and node.outputs[0] in verifier.length_dependent
        ]
        axes_by_name = {node.outputs[0]: self._find_axes(node.outputs[0]) for node in length_nodes}
        candidates = [name for name, axes in axes_by_name.items() if axes is not None]
        candidates = [
            name for name in candidates if self.sizes.dtypes[name] in ("int64", "int32", "float32", "float16")
        ]
        values = LengthEvaluator(
            recipe, self.names, self.sizes.sizes, verifier.token_dependent, candidates, self.context_length
        )
        shifted: dict[str, int] = {}
        first: dict[str, tuple[int, Array]] = {}
        for node in length_nodes:
            name = node.outputs[0]
            if name in candidates and (multiple := _find_padding_multiple(values, name, axes_by_name[name])):
                if shifted.keys().isdisjoint(node.inputs):
                    first[name] = multiple, values.evaluate(_PROBES[0])[name]
                shifted[name] = multiple
        return first

    def _find_axes(self, name: str) -> AttentionAxes | None:
        axes = find_attention_axes(self.sizes.sizes[name]) if name in self.sizes.sizes else None
        return axes if axes is not None and any(axes) else None


def _is_all_ones(steps: ConstantRecipe | None) -> bool:
    return steps is not None and bool((np.frombuffer(steps.raw, steps.dtype) == 1).all())


def _find_padding_multiple(values: LengthEvaluator, name: str, axes: AttentionAxes | None) -> int:
    """Return the integer multiple of the padding by which padding increases all elements of a value; 0 if there is none."""
    assert axes is not None
    unpadded, *others = _PROBES
    multiples = set()
    for probe in others:
        shifted_values = values.evaluate(probe)[name]
        if axes.keys:
            shifted_values = shifted_values.take(range(probe.padding, probe.capacity), axes.keys)
        offsets = np.unique((shifted_values.astype(np.float64) - values.evaluate(unpadded)[name]) / probe.padding)
        multiples.add(float(offsets[0]) if offsets.size == 1 else 0.0)
    (multiple,) = multiples if len(multiples) == 1 else (0.0,)
    return int(multiple) if multiple == int(multiple) else 0


def plan_padding(recipe: GraphRecipe, folder: ModelFolder, concats: Mapping[str, NodeRecipe]) -> PaddingPlan:
    """Adapt a decoder to padded caches. concats: cache name -> the Concat of the cache and its new rows.

    Raise PaddingError for a node whose results cannot be proved independent of padding.
    """
    try:
        return _PaddingPlanner(recipe, folder, concats).plan()
    except LengthEvaluationError as error:
        raise PaddingError(error.location, str(error)) from None
