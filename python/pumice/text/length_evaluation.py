"""Evaluate values of a decoder that depend only on lengths, such as masks, biases and positions, on the host for given lengths.

Shapes are computed by the engine's shape inference, elements by onnx's reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.element_types import Array, array_from_bytes
from ..importer.build.builder import GraphBuilder
from ..importer.file.graph_recipe import ConstantRecipe, GraphRecipe, NodeRecipe
from ..importer.load_graph import get_translators

if TYPE_CHECKING:
    from onnx import NodeProto
    from onnx.reference import ReferenceEvaluator

    from .model_folder import IoNames

PADDING_INPUT = "pumice.padding"  # name of a scalar int64 value: the number of unused rows on the left of the caches
_MAX_ELEMENTS = 1 << 27  # maximum number of elements of a value that the host evaluates


class LengthProbe(NamedTuple):
    """The lengths of a run: `new_tokens` tokens after `past` cached tokens, on caches with `padding` unused rows on the left."""

    past: int
    new_tokens: int
    padding: int = 0

    @property
    def total_tokens(self) -> int:
        """The number of tokens after the run."""
        return self.past + self.new_tokens

    @property
    def capacity(self) -> int:
        """The number of cache rows, including padding and the new tokens."""
        return self.padding + self.total_tokens


class LengthEvaluationError(Exception):
    """Raised for a node that cannot be evaluated on the host. location: the name of the node or value."""

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(reason)
        self.location = location


class LinearSize(NamedTuple):
    """The size of an axis: base + per_past * past + per_token * new_tokens."""

    base: int
    per_past: int
    per_token: int

    def evaluate(self, probe: LengthProbe) -> int:
        """Return the size in a run. Padding counts as past."""
        return self.base + self.per_past * (probe.past + probe.padding) + self.per_token * probe.new_tokens


Sizes = tuple[LinearSize, ...]


class DecoderShapes:
    """The shapes of a decoder's values at batch size 1, as linear functions of the lengths. Values with other shapes are omitted."""

    def __init__(self, recipe: GraphRecipe, names: IoNames, caches: Iterable[str], longest: LengthProbe) -> None:
        self._recipe, self._names, self._caches = recipe, names, set(caches)
        self.dtypes: dict[str, str] = {}
        past, new_tokens = (3, 2) if longest.total_tokens < 16 else (7, 4)
        first = self._infer_shapes(LengthProbe(past, new_tokens))
        shapes_more_past, shapes_more_tokens = (
            self._infer_shapes(LengthProbe(past + 2, new_tokens)),
            self._infer_shapes(LengthProbe(past, new_tokens + 1)),
        )
        self.sizes: dict[str, Sizes] = {}
        for name, shape in first.items():
            others = shapes_more_past.get(name), shapes_more_tokens.get(name)
            if shape is None or any(other is None or len(other) != len(shape) for other in others):
                continue
            self.sizes[name] = tuple(
                _fit_linear_size(*axis, past, new_tokens)
                for axis in zip(shape, *others, strict=True)  # type: ignore[arg-type]
            )
        self._drop_nonlinear(self._infer_shapes(longest), longest)

    def _drop_nonlinear(self, shapes: Mapping[str, Sequence[int] | None], probe: LengthProbe) -> None:
        """Remove values whose shapes in a further run show that they are not linear in the lengths."""
        for name, sizes in [*self.sizes.items()]:
            shape = shapes.get(name)
            if shape is None or [size.evaluate(probe) for size in sizes] != [*shape]:
                del self.sizes[name]

    def _infer_shapes(self, probe: LengthProbe) -> dict[str, Sequence[int] | None]:
        recipe = self._recipe
        builder = GraphBuilder(recipe, get_translators(recipe))
        for value in recipe.inputs:
            builder.add_input(value._replace(shape=self._get_input_shape(value.name, value.shape, probe)))
        for node in recipe.nodes:
            builder.add_node(node)
        self.dtypes |= {name: str(getattr(value, "dtype", "")) for name, value in builder.values.items()}
        shapes = {name: getattr(value, "shape", None) for name, value in builder.values.items()}
        return {name: None if shape is None or None in shape else shape for name, shape in shapes.items()}

    def _get_input_shape(self, name: str, shape: Any, probe: LengthProbe) -> Any:
        names = self._names
        known_shapes = {
            names.input_ids: [1, probe.new_tokens],
            names.position_ids: [1, probe.new_tokens],
            names.attention_mask: [1, probe.total_tokens],
        }
        if name in self._caches:
            return [1, shape[1], probe.past, shape[3]]
        return known_shapes.get(name, shape)


def _fit_linear_size(
    first: int, shapes_more_past: int, shapes_more_tokens: int, past: int, new_tokens: int
) -> LinearSize:
    per_past, per_token = (shapes_more_past - first) // 2, shapes_more_tokens - first
    return LinearSize(first - per_past * past - per_token * new_tokens, per_past, per_token)


class LengthEvaluator:
    """Evaluates values that depend only on lengths. requested: their names. token_dependent: values that depend on tokens."""

    def __init__(
        self,
        recipe: GraphRecipe,
        names: IoNames,
        sizes: Mapping[str, Sizes],
        token_dependent: set[str],
        requested: Sequence[str],
        context: int | None,
    ) -> None:
        self._longest = find_longest_probe(context)
        self._names, self._sizes, self._requested, self._token_dependent = names, sizes, [*requested], token_dependent
        self._shape_nodes: list[
            NodeRecipe
        ] = []  # Shape and Size nodes of token-dependent values, which this class computes itself
        self._dtypes = {value.name: value.dtype for value in recipe.inputs}
        self._evaluator = self._compile_reference(recipe)
        self._cached: dict[LengthProbe, dict[str, Array]] = {}

    def _compile_reference(self, recipe: GraphRecipe) -> ReferenceEvaluator:
        import onnx
        from onnx import helper, numpy_helper
        from onnx.reference import ReferenceEvaluator

        needed, nodes = set(self._requested), []
        for node in reversed(recipe.nodes):
            if needed.isdisjoint(node.outputs):
                continue
            if node.op in ("Shape", "Size") and node.inputs[0] in self._token_dependent:
                self._shape_nodes.append(node)
                continue
            needed.update(filter(None, node.inputs))
            self._check_node(node)
            nodes.append(_make_node_proto(node))
        self._inputs = [
            name for name in (self._names.attention_mask, self._names.position_ids, PADDING_INPUT) if name in needed
        ]
        input_names = [*self._inputs, *(node.outputs[0] for node in self._shape_nodes)]
        constants = [
            numpy_helper.from_array(np.asarray(array_from_bytes(constant.raw, constant.dtype, constant.shape)), name)
            for name, constant in recipe.constants.items()
            if name in needed
        ]
        graph = helper.make_graph(
            nodes[::-1],
            "lengths",
            [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None) for name in input_names],
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in self._requested],
            constants,
        )
        version = helper.make_opsetid("", onnx.defs.onnx_opset_version())
        return ReferenceEvaluator(helper.make_model(graph, opset_imports=[version]))

    def _check_node(self, node: NodeRecipe) -> None:
        """Raise LengthEvaluationError for a node that onnx's reference does not implement, or whose outputs are too large for the host."""
        if node.domain or node.subgraphs or node.unsupported:
            kind = "with a subgraph" if node.subgraphs else "that is not ONNX's own"
            raise LengthEvaluationError(
                node.name, f"{node.qualified_op}: a mask or position is computed by an operator {kind}"
            )
        for name in node.outputs:
            elements = 1
            for size in self._sizes.get(name, ()):
                elements *= size.evaluate(self._longest)
            if elements > _MAX_ELEMENTS:
                raise LengthEvaluationError(
                    node.name, f"{node.qualified_op}: '{name}' has {elements} elements at the model's context"
                )

    def evaluate(self, probe: LengthProbe) -> dict[str, Array]:
        """Return the requested values in a run, by name."""
        if probe not in self._cached:
            feeds = {name: self._make_input(name, probe) for name in self._inputs}
            feeds |= {node.outputs[0]: self._compute_shape(node, probe) for node in self._shape_nodes}
            with np.errstate(all="ignore"):
                results = self._run_reference(feeds, probe)
            self._cached[probe] = dict(zip(self._requested, results, strict=True))
        return self._cached[probe]

    def _run_reference(self, feeds: dict[str, Array], probe: LengthProbe) -> list[Array]:
        try:
            return [*map(np.asarray, self._evaluator.run(None, feeds))] if self._requested else []
        except Exception as error:  # the reference kernels do not validate their inputs and may raise anything
            reason = f"a mask or position for {probe.capacity} tokens fails: {error!s:.200}"
            raise LengthEvaluationError(self._requested[0], reason) from None

    def _make_input(self, name: str, probe: LengthProbe) -> Array:
        if name == PADDING_INPUT:
            return np.array(probe.padding, np.int64)
        values = (
            np.arange(probe.past, probe.total_tokens)
            if name == self._names.position_ids
            else np.arange(probe.capacity) >= probe.padding
        )
        return values[None].astype(self._dtypes[name])

    def _compute_shape(self, node: NodeRecipe, probe: LengthProbe) -> Array:
        shape = np.array([size.evaluate(probe) for size in self._sizes[node.inputs[0]]], np.int64)
        if node.op == "Size":
            return np.array(shape.prod(), np.int64)
        return shape[node.attributes.get("start", 0) : node.attributes.get("end", len(shape))]


def _make_node_proto(node: NodeRecipe) -> NodeProto:
    from onnx import helper, numpy_helper

    attributes: dict[str, Any] = {
        name: numpy_helper.from_array(np.asarray(array_from_bytes(value.raw, value.dtype, value.shape)))
        if isinstance(value, ConstantRecipe)
        else value
        for name, value in node.attributes.items()
    }
    return helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain, **attributes)


def make_probe_pairs(context: int | None) -> list[tuple[LengthProbe, LengthProbe]]:
    """Return pairs (padded run, unpadded run with the same results): short runs, compared with one full prompt, and long runs."""
    limit = 4096 if context is None else context
    short = min(limit, 40)
    splits = [(0, short), (0, 3), (3, 1), (4, 4), (short // 2, short // 3), (short - 1, 1), (short - 5, 5)]
    paddings = (5, 13, 0, 64, 1)
    pairs = []
    for i, (past, new_tokens) in enumerate(splits):
        new_tokens = max(1, min(new_tokens, short))
        past = max(0, min(past, short - new_tokens))
        for padding in {paddings[i % 5], paddings[(i + 1) % 5]}:
            pairs.append(
                (LengthProbe(past, new_tokens, min(padding, limit - past - new_tokens)), LengthProbe(0, short))
            )
    for total in {limit, limit // 2 + 1} if limit > short else ():
        padding = min(limit - total + 7, total // 2)
        unpadded = LengthProbe(total - padding - 2, 2)
        pairs += [
            (unpadded._replace(padding=padding), unpadded),
            (LengthProbe(unpadded.total_tokens - 1, 1, padding), unpadded),
        ]
    return pairs + [
        (last._replace(padding=capacity - short), last) for last, capacity in _make_single_token_probes(short, limit)
    ]


def _make_single_token_probes(short: int, limit: int) -> list[tuple[LengthProbe, int]]:
    """Return (one-token run after a short text, capacity) for each possible cache capacity above `short`."""
    capacities = [1 << power for power in range(6, limit.bit_length()) if short < 1 << power < limit]
    return [(LengthProbe(short - 1, 1), capacity) for capacity in [*capacities, limit] if capacity > short]


def find_longest_probe(context: int | None) -> LengthProbe:
    """Return the longest unpadded run of make_probe_pairs()."""
    return max((unpadded for _, unpadded in make_probe_pairs(context)), key=lambda probe: probe.total_tokens)


def find_needed_nodes(nodes: Sequence[NodeRecipe], outputs: Iterable[str]) -> list[NodeRecipe]:
    """Return the nodes on which these outputs depend, in order. `nodes` must be topologically sorted."""
    needed, result = set(outputs), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.reads)
            result.append(node)
    return result[::-1]
