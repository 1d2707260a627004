"""Plan how a decoder with Concat caches runs on fixed-capacity caches: unchanged, or with corrected positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..base.element_types import ONNX_NUMBERS, Array
from ..importer.file.recipe import ConstantRecipe, NodeRecipe, Recipe
from .model_folder import Folder
from .padding_verifier import Attended, Unclear
from .padding_comparison import Layout, layout_of
from .length_evaluation import SHIFT, DecoderSizes, LengthValues, Probe, ProbeError, Size, longest_of, needed_nodes

MASK = "pumice.mask"  # name of the mask of cache rows that hold tokens, bool [batch, capacity]
_PROBES = Probe(3, 2), Probe(3, 2, 2), Probe(3, 2, 5)


class PaddingPlan(NamedTuple):
    """A decoder's nodes for padded caches, and the constants that they read. is_single: whether the plan is valid only for batch size 1."""

    nodes: Sequence[NodeRecipe]
    constants: Mapping[str, ConstantRecipe]
    is_single: bool


class _Planner:
    def __init__(self, recipe: Recipe, folder: Folder, joins: Mapping[str, NodeRecipe]) -> None:
        self.names, self.context, self.joins = folder.names, folder.context, joins
        outputs = [self.names.logits, *(join.inputs[1] for join in joins.values())]
        self.recipe = recipe._replace(nodes=needed_nodes(recipe.nodes, outputs))
        self.sizes = DecoderSizes(recipe, self.names, joins, longest_of(self.context))
        self.constants: dict[str, ConstantRecipe] = {}

    def plan(self) -> PaddingPlan:
        """Try the nodes unchanged, then with padding subtracted from positions, then also with Slices replaced by Gathers."""
        try:
            return self._checked(self.recipe.nodes, False)
        except Unclear as unclear:
            first = unclear
        for has_slices in (True, False):
            if not has_slices:
                self.recipe = self.recipe._replace(nodes=self._with_gathered_slices())
            if (nodes := self._with_true_positions()) is None:
                continue
            try:
                return self._checked(nodes, True)
            except Unclear as unclear:
                first = unclear
        raise first

    def _checked(self, nodes: Sequence[NodeRecipe], is_single: bool) -> PaddingPlan:
        recipe = self.recipe._replace(nodes=[*nodes], constants={**self.recipe.constants, **self.constants})
        attended = Attended(recipe, self.names, self.joins, self.sizes, self.context)
        attended.check()
        self._check_outputs(attended)
        made = [*nodes]
        for node, sizes in attended.unmasked:
            is_batch = len(sizes) == 4 and sizes[0] == Size(1, 0, 0)
            is_single |= not is_batch
            made[made.index(node) : made.index(node) + 1] = self._masked(node, is_batch)
        return PaddingPlan(made, self.constants, is_single)

    def _check_outputs(self, attended: Attended) -> None:
        """Reject logits of only some rows, and results with a key axis."""
        logits, sizes = self.names.logits, self.sizes.sizes.get(self.names.logits)
        if sizes is not None and (len(sizes) != 3 or sizes[1] != Size(0, 0, 1)):
            raise Unclear(logits, "expected logits of all tokens of a run")
        for name in (logits, *(join.inputs[1] for join in self.joins.values())):
            if name in attended.keyed or name not in attended.from_tokens:
                raise Unclear(name, "expected a result for each token of a run")

    def _constant(self, name: str, value: Array) -> str:
        self.constants[name] = ConstantRecipe(name, str(value.dtype), list(value.shape), value.tobytes())
        return name

    def _masked(self, node: NodeRecipe, is_batch: bool) -> list[NodeRecipe]:
        """Return the node with padding masked in its first input, the scores."""
        scores, name = node.inputs[0], f"{node.outputs[0]}.visible"
        dtype = self.sizes.dtypes[scores]
        if dtype not in ("float32", "float16"):
            raise Unclear(node, f"expected scores of float32 or float16, given {dtype}")
        low = self._constant(f"pumice.low.{dtype}", np.array(-65504, dtype))
        axes = self._constant("pumice.mask.axes", np.array([1, 2]))
        spread = [NodeRecipe("Unsqueeze", name, [MASK, axes], [name], {})] if is_batch else []
        hidden = f"{node.outputs[0]}.hidden"
        where = NodeRecipe("Where", hidden, [name if is_batch else MASK, scores, low], [hidden], {})
        return [*spread, where, node._replace(inputs=[hidden, *node.inputs[1:]])]

    # ---- positions

    def _with_gathered_slices(self) -> list[NodeRecipe]:
        """Return the nodes with each length-dependent Slice of a length-independent value replaced by a Gather over a Range."""
        attended = Attended(self.recipe, self.names, self.joins, self.sizes, self.context)
        unmoved = attended.from_lengths | attended.from_tokens
        nodes: list[NodeRecipe] = []
        for node in self.recipe.nodes:
            is_table = node.op == "Slice" and node.inputs[0] not in unmoved and node.inputs[2] in attended.from_lengths
            made = self._gathered_slice(node) if is_table else [node]
            if made[0] is not node:
                unmoved.difference_update(node.outputs)  # a slice of the result is also a slice of the table
            nodes += made
        return nodes

    def _gathered_slice(self, node: NodeRecipe) -> list[NodeRecipe]:
        name, (table, start, end, *others) = node.outputs[0], node.inputs
        axes, *steps = [self.recipe.constants.get(one) for one in [*others, "", ""][:2]]
        axis = 0 if axes is None else int(np.frombuffer(axes.raw, axes.dtype)[0])
        sizes = [self.sizes.sizes.get(one, ()) for one in (start, end, name)]
        is_known = (not others or axes is not None) and (len(others) < 2 or _is_one(steps[0]))
        if not is_known or sizes[0] != (Size(1, 0, 0),) or sizes[1] != (Size(1, 0, 0),) or not sizes[2]:
            return [node]
        first, last, rows = (f"{name}.{one}" for one in ("first", "last", "rows"))
        self.sizes.sizes[rows] = (sizes[2][axis],)
        self.sizes.dtypes[rows] = self.sizes.dtypes[start]
        one = self._constant(f"pumice.one.{self.sizes.dtypes[start]}", np.ones((), self.sizes.dtypes[start]))
        return [
            NodeRecipe("Squeeze", first, [start], [first], {}),
            NodeRecipe("Squeeze", last, [end], [last], {}),
            NodeRecipe("Range", f"{rows}.range", [first, last, one], [rows], {}),
            NodeRecipe("Gather", node.name, [table, rows], [name], {"axis": axis}),
        ]

    def _with_true_positions(self) -> list[NodeRecipe] | None:
        """Return the nodes with padding subtracted from positions that count from the start of the caches; None if there are none."""
        moved = self._moved_positions()
        if not moved:
            return None
        nodes = []
        rows = self._row_numbers()
        for node in self.recipe.nodes:
            if node.outputs and node.outputs[0] in rows:
                node = node._replace(inputs=[f"{name}.padded" if name in moved else name for name in node.inputs])
            if (name := node.outputs[0] if node.outputs else "") not in moved:
                nodes.append(node)
                continue
            times, true = moved[name]
            nodes.append(node._replace(outputs=[f"{name}.padded", *node.outputs[1:]]))
            nodes += self._less_padding(name, times, true)
        return nodes

    def _row_numbers(self) -> set[str]:
        """Return the values by which ScatterND, GatherND or Gather index a mask that is padded like the caches."""
        masks, found = {self.names.mask}, set()
        for node in self.recipe.nodes:
            if not masks.isdisjoint(node.inputs):
                masks.update(node.outputs)
            if node.op == "ScatterND" or (node.op in ("Gather", "GatherND") and node.inputs[0] in masks):
                found.add(node.inputs[1])
        for node in reversed(self.recipe.nodes):
            if node.op in ("Unsqueeze", "Reshape", "Expand", "Concat", "Cast") and not found.isdisjoint(node.outputs):
                found.update(node.inputs)
        return found

    def _less_padding(self, name: str, times: int, true: Array) -> list[NodeRecipe]:
        dtype = str(true.dtype)
        count = self._constant(f"pumice.times.{times}", np.array(times))
        zero = self._constant(f"pumice.zero.{dtype}", np.zeros((), dtype))
        padding, cast, less = (f"{name}.{one}" for one in ("padding", "cast", "less"))
        nodes = [
            NodeRecipe("Mul", padding, [SHIFT, count], [padding], {}),
            NodeRecipe("Cast", cast, [padding], [cast], {"to": ONNX_NUMBERS[dtype]}),
        ]
        if true.min(initial=0) < 0:
            return [*nodes, NodeRecipe("Sub", name, [f"{name}.padded", cast], [name], {})]
        nodes.append(NodeRecipe("Sub", less, [f"{name}.padded", cast], [less], {}))
        return [
            *nodes,
            NodeRecipe("Max", name, [less, zero], [name], {}),
        ]  # positions in the padding may be out of range for other uses

    def _moved_positions(self) -> dict[str, tuple[int, Array]]:
        """Return the first values on each path that grow with the padding: name -> (multiple of padding, unpadded elements)."""
        recipe = self.recipe._replace(constants={**self.recipe.constants, **self.constants})
        attended = Attended(recipe, self.names, self.joins, self.sizes, self.context)
        found = [node for node in self.recipe.nodes if node.outputs and node.outputs[0] in attended.from_lengths]
        layouts = {node.outputs[0]: self._layout(node.outputs[0]) for node in found}
        wanted = [name for name, layout in layouts.items() if layout is not None]
        wanted = [name for name in wanted if self.sizes.dtypes[name] in ("int64", "int32", "float32", "float16")]
        values = LengthValues(recipe, self.names, self.sizes.sizes, attended.from_tokens, wanted, self.context)
        moved: dict[str, int] = {}
        first: dict[str, tuple[int, Array]] = {}
        for node in found:
            name = node.outputs[0]
            if name in wanted and (times := _times_padding(values, name, layouts[name])):
                if moved.keys().isdisjoint(node.inputs):
                    first[name] = times, values.at(_PROBES[0])[name]
                moved[name] = times
        return first

    def _layout(self, name: str) -> Layout | None:
        layout = layout_of(self.sizes.sizes[name]) if name in self.sizes.sizes else None
        return layout if layout is not None and any(layout) else None


def _is_one(steps: ConstantRecipe | None) -> bool:
    return steps is not None and bool((np.frombuffer(steps.raw, steps.dtype) == 1).all())


def _times_padding(values: LengthValues, name: str, layout: Layout | None) -> int:
    """Return the integer multiple of the padding by which all elements grow; 0 if there is none."""
    assert layout is not None
    true, *others = _PROBES
    found = set()
    for probe in others:
        made = values.at(probe)[name]
        if layout.keys:
            made = made.take(range(probe.padding, probe.capacity), layout.keys)
        apart = np.unique((made.astype(np.float64) - values.at(true)[name]) / probe.padding)
        found.add(float(apart[0]) if apart.size == 1 else 0.0)
    (times,) = found if len(found) == 1 else (0.0,)
    return int(times) if times == int(times) else 0


def plan_padding(recipe: Recipe, folder: Folder, joins: Mapping[str, NodeRecipe]) -> PaddingPlan:
    """Plan a decoder's run on padded caches. joins: the Concat of each cache and its new rows, by cache name.

    Raise Unclear for a node whose results cannot be proved independent of padding.
    """
    try:
        return _Planner(recipe, folder, joins).plan()
    except ProbeError as error:
        raise Unclear(error.where, str(error)) from None
