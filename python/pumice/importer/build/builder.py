"""Build the engine's Graph from a GraphRecipe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pumice._pumice as _pumice

from ..._pumice import Graph, GraphError, UnsupportedError
from ...base.element_types import Array, Bytes, array_from_bytes
from ...base.errors import graph_error, unsupported_error
from ..file.graph_recipe import ConstantRecipe, GraphRecipe, InputRecipe, NodeRecipe, strip_trailing_empty
from .non_tensor_values import BuiltValue, OptionalValue, SequenceValue, ValueKind, get_value_kind, to_tensors

if TYPE_CHECKING:
    from ..._pumice import Value
    from .float32_node_collector import Float32NodeCollector

    TranslatorTable = Mapping[str, Callable[["GraphBuilder", NodeRecipe], None]]


_MULTI_TENSOR_TYPES = (SequenceValue, OptionalValue)  # types of values that consist of several tensors
_LOW_BIT_PREFIXES = (
    "int4",
    "uint4",
    "int2",
    "uint2",
    "float4",
    "float8",
)  # name prefixes of low-bit dtypes, which few kernels can read
_USER_KERNEL_OP = "pumice::Kernel"  # rejected in model files, where it could make the engine read arbitrary paths

_has_operator = functools.lru_cache(1024)(_pumice.has_operator)  # cacheable: the engine's operator table never changes


class NodeRejectedError(Exception):
    """Raised if a node cannot be built; the builder has recorded the reason."""


class GraphBuilder:
    """Builds a Graph node by node. It continues after a rejected node, so that one error lists everything unsupported."""

    def __init__(
        self,
        recipe: GraphRecipe,
        translators: TranslatorTable,
        name: str = "",
        outer: GraphBuilder | None = None,
        float32: Float32NodeCollector | None = None,
    ) -> None:
        self.recipe = recipe
        self.float32: Float32NodeCollector | None = outer.float32 if outer else float32
        self.translators = translators  # operator -> function that adds a node with this operator
        self.outer = outer
        self.graph = Graph(name or recipe.name)
        self.values: dict[str, BuiltValue] = {}
        self.unsupported: list[str] = outer.unsupported if outer else list(recipe.unsupported)
        self.first_error: GraphError | None = None
        self.node_outputs: set[str] = set()  # names of node outputs that are not graph outputs yet
        # Cache of built subgraphs, keyed by recipes and operand types.
        self.subgraphs: dict[Any, Any] = outer.subgraphs if outer else {}
        self.constants: Mapping[str, ConstantRecipe] = recipe.constants
        if outer:
            captured = {name: outer.constants[name] for name in recipe.captured if name in outer.constants}
            self.constants = {**captured, **recipe.constants}
        self._num_helpers = 0
        self._derived_constants: dict[tuple[Any, ...], Value] = {}

    def add_input(self, value: InputRecipe) -> None:
        """Add a graph input, or several for a sequence or an optional value."""
        kind = ValueKind.parse(value.dtype)
        try:
            if not kind.is_non_tensor:
                self.values[value.name] = self.graph.input(value.name, value.dtype, value.shape, value.dimension_names)
                return
            names_and_specs = zip(kind.get_tensor_names(value.name), kind.tensor_specs, strict=True)
            parts = [self.graph.input(name, dtype, shape) for name, (_, dtype, shape) in names_and_specs]
            self.values[value.name] = kind.make_value(iter(parts))
        except UnsupportedError as error:
            self.unsupported.extend(error.items)

    def get_constant_array(self, name: str) -> Array | None:
        """Return a constant as an array; None if the value is not a constant."""
        constant = self.constants.get(name)
        return None if constant is None else array_from_bytes(constant.raw, constant.dtype, constant.shape)

    def derive_constant(self, name: str, dtype: str, shape: list[int], *form: Any, raw: Callable[[], Bytes]) -> Value:
        """Return a constant derived from a constant of the file, creating it once. raw: computes its bytes; form: part of the cache key."""
        key = (name, dtype, *shape, *form)
        if key not in self._derived_constants:
            label = self.make_unique_name(f"{name} as {dtype}{shape}")
            self._derived_constants[key] = self.graph.constant_bytes(raw(), dtype, shape, label)
        return self._derived_constants[key]

    @functools.cached_property
    def _used_names(self) -> set[str]:
        """All names in use: values and nodes of the file, and names returned by make_unique_name."""
        recipe = self.recipe
        names = {*recipe.constants, *recipe.captured, *(value.name for value in recipe.inputs)}
        for node in recipe.nodes:
            names.update((node.name, *node.outputs))
        return names

    def make_unique_name(self, stem: str) -> str:
        """Return an unused name: the stem, with a number appended if it is taken."""
        name, count = stem, 1
        while name in self._used_names:
            count += 1
            name = f"{stem}#{count}"
        self._used_names.add(name)
        return name

    def get_value(self, name: str) -> BuiltValue | None:
        """Return the value with this name; None if it could not be built."""
        value = self.values.get(name)
        if value is None and (constant_recipe := self.constants.get(name)) is not None:
            value = self.values[name] = self.graph.constant_bytes(
                constant_recipe.raw, constant_recipe.dtype, constant_recipe.shape, name
            )
        return value

    def require_value(self, name: str) -> BuiltValue:
        """Return the value with this name. Raise NodeRejectedError if it could not be built."""
        value = self.get_value(name)
        if value is None:
            raise NodeRejectedError
        return value

    def require_tensor(self, name: str) -> Value:
        """Return the tensor with this name.

        Raise GraphError if it is a sequence or an optional value, NodeRejectedError if it could not be built.
        """
        value = self.require_value(name)
        if isinstance(value, _MULTI_TENSOR_TYPES):
            raise graph_error("value", name, f"expected a tensor, given {get_value_kind(value)}")
        return value

    def require_tensors(self, node: NodeRecipe, min_inputs: int, max_inputs: int) -> list[Value]:
        """Return the input tensors of a node.

        Raise GraphError unless the node has `min_inputs` to `max_inputs` inputs, none of them omitted. Raise NodeRejectedError if an input
        could not be built.
        """
        if not min_inputs <= len(node.inputs) <= max_inputs or "" in node.inputs:
            expected = f"{min_inputs}" if min_inputs == max_inputs else f"{min_inputs} to {max_inputs}"
            raise graph_error("node", node.name, f"expected {expected} inputs of {node.op}, given {node.inputs}")
        return [self.require_tensor(name) for name in node.inputs]

    def add_helper(
        self, node: NodeRecipe, op: str, *inputs: Value | Array | None, output: str = "", **attributes: Any
    ) -> Value:
        """Add a helper node and return its output."""
        name = self.make_helper_name(node, op)
        output = output or self.make_unique_name(f"{name}:0")
        value: Value = self.graph.add(op, *inputs, name=name, output_names=[output], **attributes)
        return value

    def make_helper_name(self, node: NodeRecipe, op: str) -> str:
        """Return an unused name for a helper node with this operator."""
        self._num_helpers += 1
        return self.make_unique_name(f"{node.name}/{op.removeprefix('pumice::')}.{self._num_helpers}")

    def add_node(self, node: NodeRecipe) -> None:
        """Add a node of the file. Record unsupported features in `unsupported` and the first GraphError in `first_error`."""
        if reason := self.get_unsupported_reason(node, self.get_node_path(node)):
            self.unsupported.append(reason)
            return
        first = len(self.graph)
        try:
            if compose := self.translators.get(node.qualified_op):
                compose(self, node)
            else:
                self.add_single_node(node)
        except UnsupportedError as error:
            self.unsupported.extend(error.items)
        except GraphError as error:
            self.first_error = self.first_error or error
        except NodeRejectedError:
            pass
        if self.float32 and self.float32.is_selected(node, self.get_node_path(node)):
            self.float32.record_nodes(self.graph, self.get_node_path(node).removesuffix(node.name), first)

    def get_unsupported_reason(self, node: NodeRecipe, path: str) -> str:
        """Return why the node is unsupported; "" if it is supported."""
        op = node.qualified_op
        is_known = _has_operator(node.op, node.domain) or op in self.translators
        if is_known and op != _USER_KERNEL_OP and not node.unsupported:
            return ""
        return f"node '{path}': operator {op}{': ' if node.unsupported else ''}{node.unsupported}"

    def reject(self, node: NodeRecipe, why: str) -> NodeRejectedError:
        """Record why the node cannot be built, and return the exception for the caller to raise."""
        self.unsupported.append(f"node '{self.get_node_path(node)}': operator {node.qualified_op}: {why}")
        return NodeRejectedError()

    def set_node_outputs(self, node: NodeRecipe, *results: Value) -> None:
        """Bind the results to the node's output names, skipping unnamed outputs."""
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                self.set_values([name], (self.add_helper(node, "Identity", result, output=name),))

    def get_node_path(self, node: NodeRecipe) -> str:
        """Return the node's name, prefixed with the graph's name in a subgraph."""
        return f"{self.graph.name}/{node.name}" if self.outer else node.name

    def add_single_node(self, node: NodeRecipe) -> None:
        """Add a node that becomes one engine node. Raise the errors of Graph.add, and NodeRejectedError if an input could not be built."""
        if node.op == "Identity" and len(node.inputs) == len(node.outputs) == 1:
            value = self.values.get(node.inputs[0])
            # An Identity of a sequence or an optional value needs no engine node.
            if isinstance(value, _MULTI_TENSOR_TYPES):
                self.set_values(node.outputs, (value,))
                return
        inputs = [self.require_tensor(name) if name else None for name in node.inputs]
        names = strip_trailing_empty(node.outputs)
        if any(value is not None and value.dtype.startswith(_LOW_BIT_PREFIXES) for value in inputs):
            from .low_bit_movement_ops import add_low_bit_movement_op, get_low_bit_dtype

            if get_low_bit_dtype(node, inputs):
                self.set_values(names, add_low_bit_movement_op(self, node, inputs, names))
                return
        engine_outputs = self.graph.add(
            node.qualified_op,
            *inputs,
            outputs=len(names),
            name=node.name,
            output_names=names,
            **self.get_attributes(node),
        )
        self.set_values(names, engine_outputs if isinstance(engine_outputs, tuple) else (engine_outputs,))

    @staticmethod
    def get_attributes(node: NodeRecipe) -> dict[str, Any]:
        """Return the node's attributes, with tensors converted to arrays."""
        return {
            name: array_from_bytes(value.raw, value.dtype, value.shape) if isinstance(value, ConstantRecipe) else value
            for name, value in node.attributes.items()
        }

    def set_values(self, names: list[str], values: tuple[BuiltValue, ...]) -> None:
        """Register values under these names."""
        self.values.update(zip(names, values, strict=True))
        self.node_outputs.update(names)

    def add_nodes(self) -> None:
        """Add the nodes of a subgraph. Raise the first GraphError, or NodeRejectedError if a node is unsupported."""
        num_unsupported = len(self.unsupported)
        for node in self.recipe.nodes:
            self.add_node(node)
        if self.first_error:
            raise self.first_error
        if len(self.unsupported) > num_unsupported:
            raise NodeRejectedError

    def make_subgraph_outputs(self, node: NodeRecipe, name: str, kind: ValueKind) -> list[Value]:
        """Return the tensors of a subgraph output of this kind. Inputs, constants and repeated outputs get an Identity (rule B2.9)."""
        value = self.require_value(name)
        parts = to_tensors(self, node, value, kind)
        if not kind.is_non_tensor and name in self.node_outputs:
            self.node_outputs.remove(name)
            return parts
        return [self.add_helper(node, "Identity", part_value) for part_value in parts]

    def finish(self) -> Graph:
        """Set the outputs and return the finished graph.

        Raise UnsupportedError listing everything unsupported, GraphError if the model is invalid.
        """
        if self.unsupported:
            raise unsupported_error(f"model '{self.recipe.name}'", list(dict.fromkeys(self.unsupported)))
        if self.first_error:
            raise self.first_error
        for output in self.recipe.outputs:
            value = self.get_value(output.name)
            if value is None:
                raise graph_error("output", output.name, "nothing produces it")
            kind = get_value_kind(value)
            node = NodeRecipe("", output.name, [], [], {})
            for name, part_value in zip(
                kind.get_tensor_names(output.name), to_tensors(self, node, value, kind), strict=True
            ):
                self.graph.output(name, part_value)
        self.graph.finish()
        return self.graph


def build_graph(
    recipe: GraphRecipe,
    translators: TranslatorTable,
    progress: Callable[[int, int], None] | None = None,
    float32: Float32NodeCollector | None = None,
) -> Graph:
    """Build the engine's Graph from a recipe.

    translators: operator -> function that adds a node with this operator. progress: called with the number of nodes added and their
    total. float32: collects the engine nodes that must compute in fp32.
    Raise UnsupportedError listing everything unsupported, GraphError if the model is invalid.
    """
    builder = GraphBuilder(recipe, translators, float32=float32)
    for value in recipe.inputs:
        builder.add_input(value)
    for done, node in enumerate(recipe.nodes):
        if progress:
            progress(done, len(recipe.nodes))
        builder.add_node(node)
    return builder.finish()
