"""Evaluate a decoder's values that depend only on lengths (masks, biases, positions) on the host, for chosen lengths.
Shapes come from the engine's shape inference, elements from onnx's reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.element_types import Array, array_of
from ..importer.build.builder import Builder
from ..importer.file.recipe import ConstantRecipe, NodeRecipe, Recipe
from ..importer.load import composed_of

if TYPE_CHECKING:
    from onnx import NodeProto
    from onnx.reference import ReferenceEvaluator

    from .model_folder import Names

SHIFT = "pumice.padding"  # name of an int64 input: the number of unused rows on the left of the caches
_MAX_ELEMENTS = 1 << 27  # maximum elements of a value that the host evaluates


class Probe(NamedTuple):
    """A run of `rows` tokens after `past` cached tokens, on caches with `padding` unused rows on the left."""

    past: int
    rows: int
    padding: int = 0

    @property
    def total(self) -> int:
        """The number of tokens, including this run's tokens."""
        return self.past + self.rows

    @property
    def capacity(self) -> int:
        """The capacity of the caches, in rows."""
        return self.padding + self.total


class ProbeError(Exception):
    """Raised for a node that cannot be evaluated on the host. where: the name of the node or value."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(why)
        self.where = where


class Size(NamedTuple):
    """The size of an axis: base + per_past * past + per_row * rows."""

    base: int
    per_past: int
    per_row: int

    def at(self, probe: Probe) -> int:
        """Return the size in a run, counting the run's padding as past."""
        return self.base + self.per_past * (probe.past + probe.padding) + self.per_row * probe.rows


Sizes = tuple[Size, ...]


class DecoderSizes:
    """The sizes of all values of a decoder at batch size 1, as functions of the lengths."""

    def __init__(self, recipe: Recipe, names: Names, caches: Iterable[str], longest: Probe) -> None:
        self._recipe, self._names, self._caches = recipe, names, set(caches)
        self.dtypes: dict[str, str] = {}
        past, rows = (3, 2) if longest.total < 16 else (7, 4)
        first = self._shapes(Probe(past, rows))
        more_past, more_rows = self._shapes(Probe(past + 2, rows)), self._shapes(Probe(past, rows + 1))
        self.sizes: dict[str, Sizes] = {}
        for name, shape in first.items():
            others = more_past.get(name), more_rows.get(name)
            if shape is None or any(one is None or len(one) != len(shape) for one in others):
                continue
            self.sizes[name] = tuple(_size(*axis, past, rows) for axis in zip(shape, *others, strict=True))  # type: ignore[arg-type]
        self._drop_others(self._shapes(longest), longest)

    def _drop_others(self, shapes: Mapping[str, Sequence[int] | None], probe: Probe) -> None:
        """Remove sizes that are not linear in the lengths."""
        for name, sizes in [*self.sizes.items()]:
            shape = shapes.get(name)
            if shape is None or [size.at(probe) for size in sizes] != [*shape]:
                del self.sizes[name]

    def _shapes(self, probe: Probe) -> dict[str, Sequence[int] | None]:
        recipe = self._recipe
        builder = Builder(recipe, composed_of(recipe))
        for value in recipe.inputs:
            builder.add_input(value._replace(shape=self._input_shape(value.name, value.shape, probe)))
        for node in recipe.nodes:
            builder.add_node(node)
        self.dtypes |= {name: str(getattr(value, "dtype", "")) for name, value in builder.values.items()}
        shapes = {name: getattr(value, "shape", None) for name, value in builder.values.items()}
        return {name: None if one is None or None in one else one for name, one in shapes.items()}

    def _input_shape(self, name: str, shape: Any, probe: Probe) -> Any:
        names = self._names
        known = {names.words: [1, probe.rows], names.places: [1, probe.rows], names.mask: [1, probe.total]}
        if name in self._caches:
            return [1, shape[1], probe.past, shape[3]]
        return known.get(name, shape)


def _size(first: int, more_past: int, more_rows: int, past: int, rows: int) -> Size:
    per_past, per_row = (more_past - first) // 2, more_rows - first
    return Size(first - per_past * past - per_row * rows, per_past, per_row)


class LengthValues:
    """Evaluates values that depend only on lengths, for any run."""

    def __init__(
        self,
        recipe: Recipe,
        names: Names,
        sizes: Mapping[str, Sizes],
        from_tokens: set[str],
        wanted: Sequence[str],
        context: int | None,
    ) -> None:
        self._longest = longest_of(context)
        self._names, self._sizes, self._wanted, self._from_tokens = names, sizes, [*wanted], from_tokens
        self._shapes: list[NodeRecipe] = []  # Shape and Size nodes, which this class computes itself
        self._dtypes = {value.name: value.dtype for value in recipe.inputs}
        self._evaluator = self._compile(recipe)
        self._cached: dict[Probe, dict[str, Array]] = {}

    def _compile(self, recipe: Recipe) -> ReferenceEvaluator:
        import onnx
        from onnx import helper, numpy_helper
        from onnx.reference import ReferenceEvaluator

        needed, nodes = set(self._wanted), []
        for node in reversed(recipe.nodes):
            if needed.isdisjoint(node.outputs):
                continue
            if node.op in ("Shape", "Size") and node.inputs[0] in self._from_tokens:
                self._shapes.append(node)
                continue
            needed.update(filter(None, node.inputs))
            self._check_node(node)
            nodes.append(_proto(node))
        self._inputs = [one for one in (self._names.mask, self._names.places, SHIFT) if one in needed]
        given = [*self._inputs, *(node.outputs[0] for node in self._shapes)]
        constants = [
            numpy_helper.from_array(np.asarray(array_of(one.raw, one.dtype, one.shape)), name)
            for name, one in recipe.constants.items()
            if name in needed
        ]
        graph = helper.make_graph(
            nodes[::-1],
            "lengths",
            [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None) for name in given],
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in self._wanted],
            constants,
        )
        version = helper.make_opsetid("", onnx.defs.onnx_opset_version())
        return ReferenceEvaluator(helper.make_model(graph, opset_imports=[version]))

    def _check_node(self, node: NodeRecipe) -> None:
        """Reject a node that onnx's reference does not implement, or whose results are too large for the host."""
        if node.domain or node.subgraphs or node.unsupported:
            what = "with a subgraph" if node.subgraphs else "that is not ONNX's own"
            raise ProbeError(node.name, f"{node.qualified_op}: a mask or position is computed by an operator {what}")
        for name in node.outputs:
            elements = 1
            for size in self._sizes.get(name, ()):
                elements *= size.at(self._longest)
            if elements > _MAX_ELEMENTS:
                raise ProbeError(
                    node.name, f"{node.qualified_op}: '{name}' has {elements} elements at the model's context"
                )

    def at(self, probe: Probe) -> dict[str, Array]:
        """Return the values in a run, keyed by name."""
        if probe not in self._cached:
            feeds = {name: self._input(name, probe) for name in self._inputs}
            feeds |= {node.outputs[0]: self._shape(node, probe) for node in self._shapes}
            with np.errstate(all="ignore"):
                made = self._run(feeds, probe)
            self._cached[probe] = dict(zip(self._wanted, made, strict=True))
        return self._cached[probe]

    def _run(self, feeds: dict[str, Array], probe: Probe) -> list[Array]:
        try:
            return [*map(np.asarray, self._evaluator.run(None, feeds))] if self._wanted else []
        except Exception as error:  # the reference kernels do not validate, so anything can be raised
            why = f"a mask or position for {probe.capacity} tokens fails: {error!s:.200}"
            raise ProbeError(self._wanted[0], why) from None

    def _input(self, name: str, probe: Probe) -> Array:
        if name == SHIFT:
            return np.array(probe.padding, np.int64)
        made = (
            np.arange(probe.past, probe.total)
            if name == self._names.places
            else np.arange(probe.capacity) >= probe.padding
        )
        return made[None].astype(self._dtypes[name])

    def _shape(self, node: NodeRecipe, probe: Probe) -> Array:
        shape = np.array([size.at(probe) for size in self._sizes[node.inputs[0]]], np.int64)
        if node.op == "Size":
            return np.array(shape.prod(), np.int64)
        return shape[node.attributes.get("start", 0) : node.attributes.get("end", len(shape))]


def _proto(node: NodeRecipe) -> NodeProto:
    from onnx import helper, numpy_helper

    attributes: dict[str, Any] = {
        name: numpy_helper.from_array(np.asarray(array_of(value.raw, value.dtype, value.shape)))
        if isinstance(value, ConstantRecipe)
        else value
        for name, value in node.attributes.items()
    }
    return helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain, **attributes)


def probes_of(context: int | None) -> list[tuple[Probe, Probe]]:
    """Return pairs (run, unpadded run that it must match): short runs, which are checked against one full prompt, and long runs."""
    limit = 4096 if context is None else context
    short = min(limit, 40)
    splits = [(0, short), (0, 3), (3, 1), (4, 4), (short // 2, short // 3), (short - 1, 1), (short - 5, 5)]
    paddings = (5, 13, 0, 64, 1)
    pairs = []
    for i, (past, rows) in enumerate(splits):
        rows = max(1, min(rows, short))
        past = max(0, min(past, short - rows))
        for padding in {paddings[i % 5], paddings[(i + 1) % 5]}:
            pairs.append((Probe(past, rows, min(padding, limit - past - rows)), Probe(0, short)))
    for total in {limit, limit // 2 + 1} if limit > short else ():
        padding = min(limit - total + 7, total // 2)
        true = Probe(total - padding - 2, 2)
        pairs += [(true._replace(padding=padding), true), (Probe(true.total - 1, 1, padding), true)]
    return pairs + [(last._replace(padding=capacity - short), last) for last, capacity in _few_rows(short, limit)]


def _few_rows(short: int, limit: int) -> list[tuple[Probe, int]]:
    """Return a one-token step after a short text for each possible cache capacity, which covers steps at any length in between."""
    capacities = [1 << power for power in range(6, limit.bit_length()) if short < 1 << power < limit]
    return [(Probe(short - 1, 1), capacity) for capacity in [*capacities, limit] if capacity > short]


def longest_of(context: int | None) -> Probe:
    """Return the longest run of probes_of(), without padding."""
    return max((true for _, true in probes_of(context)), key=lambda probe: probe.total)


def needed_nodes(nodes: Sequence[NodeRecipe], outputs: Iterable[str]) -> list[NodeRecipe]:
    """Return the nodes on which these values depend."""
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.reads)
            kept.append(node)
    return kept[::-1]
