"""Build the engine's Graph from a Recipe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pumice._pumice as _pumice

from ..._pumice import Graph, GraphError, UnsupportedError
from ...base.element_types import Array, Bytes, array_from_bytes
from ...base.errors import graph_error, unsupported_error
from ..file.recipe import ConstantRecipe, InputRecipe, NodeRecipe, Recipe, strip_trailing_empty
from .compound_values import BuiltValue, OptionalValue, SequenceValue, ValueKind, get_parts, get_value_kind

if TYPE_CHECKING:
    from ..._pumice import Value
    from .float32_nodes import Float32Nodes

    Composed = Mapping[str, Callable[["Builder", NodeRecipe], None]]


_MULTI_TENSOR_TYPES = (SequenceValue, OptionalValue)  # values represented by several tensors
_LOW_BIT_PREFIXES = (
    "int4",
    "uint4",
    "int2",
    "uint2",
    "float4",
    "float8",
)  # prefixes of low-bit dtypes that few kernels can read
_USER_KERNEL_OP = "pumice::Kernel"  # only load(kernels=) may add it: in a file, it could name arbitrary paths to read

_has_operator = functools.lru_cache(1024)(_pumice.has_operator)  # the engine's operator table is constant


class NodeRejected(Exception):
    """Raised if a node cannot be built; the builder has recorded the reason."""


class Builder:
    """Builds engine values by name. After a rejected node it continues, in order to report everything unsupported."""

    def __init__(
        self,
        recipe: Recipe,
        composed: Composed,
        name: str = "",
        outer: Builder | None = None,
        float32: Float32Nodes | None = None,
    ) -> None:
        self.recipe = recipe
        self.float32: Float32Nodes | None = outer.float32 if outer else float32
        self.composed = composed  # operator -> function that adds a node with this operator
        self.outer = outer
        self.graph = Graph(name or recipe.name)
        self.values: dict[str, BuiltValue] = {}
        self.unsupported: list[str] = outer.unsupported if outer else list(recipe.unsupported)
        self.first_error: GraphError | None = None
        self.node_outputs: set[str] = set()  # node outputs that are not yet graph outputs
        # Subgraphs that are already built, keyed by their recipes and operands.
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
            if not kind.is_compound:
                self.values[value.name] = self.graph.input(value.name, value.dtype, value.shape, value.dimension_names)
                return
            names_and_specs = zip(kind.get_part_names(value.name), kind.tensor_specs, strict=True)
            parts = [self.graph.input(name, dtype, shape) for name, (_, dtype, shape) in names_and_specs]
            self.values[value.name] = kind.packed(iter(parts))
        except UnsupportedError as error:
            self.unsupported.extend(error.items)

    def array(self, name: str) -> Array | None:
        """Return the elements of a constant; None for other values."""
        constant = self.constants.get(name)
        return None if constant is None else array_from_bytes(constant.raw, constant.dtype, constant.shape)

    def derive_constant(self, name: str, dtype: str, shape: list[int], *form: Any, raw: Callable[[], Bytes]) -> Value:
        """Return a derived form of one of the file's constants, shared by all nodes that need it. raw: returns its bytes."""
        key = (name, dtype, *shape, *form)
        if key not in self._derived_constants:
            label = self.make_unique_name(f"{name} as {dtype}{shape}")
            self._derived_constants[key] = self.graph.constant_bytes(raw(), dtype, shape, label)
        return self._derived_constants[key]

    @functools.cached_property
    def _names(self) -> set[str]:
        """Every name in use: values and nodes of the file, and results of make_unique_name."""
        recipe = self.recipe
        names = {*recipe.constants, *recipe.captured, *(value.name for value in recipe.inputs)}
        for node in recipe.nodes:
            names.update((node.name, *node.outputs))
        return names

    def make_unique_name(self, stem: str) -> str:
        """Return an unused name: the stem, with a number appended if it is taken."""
        name, count = stem, 1
        while name in self._names:
            count += 1
            name = f"{stem}#{count}"
        self._names.add(name)
        return name

    def value(self, name: str) -> BuiltValue | None:
        """Return the value of that name; None if it could not be built."""
        value = self.values.get(name)
        if value is None and (constant_recipe := self.constants.get(name)) is not None:
            value = self.values[name] = self.graph.constant_bytes(
                constant_recipe.raw, constant_recipe.dtype, constant_recipe.shape, name
            )
        return value

    def require_value(self, name: str) -> BuiltValue:
        """Return the value of that name. Raise Refused if it could not be built."""
        value = self.value(name)
        if value is None:
            raise NodeRejected
        return value

    def tensor(self, name: str) -> Value:
        """Return the tensor of that name.

        Raise GraphError for a sequence or an optional value, Refused if it could not be built.
        """
        value = self.require_value(name)
        if isinstance(value, _MULTI_TENSOR_TYPES):
            raise graph_error("value", name, f"expected a tensor, given {get_value_kind(value)}")
        return value

    def require_tensors(self, node: NodeRecipe, min_inputs: int, max_inputs: int) -> list[Value]:
        """Return the inputs of a node.

        Raise GraphError unless there are `min_inputs` to `max_inputs`, none omitted; Refused if one could not be built.
        """
        if not min_inputs <= len(node.inputs) <= max_inputs or "" in node.inputs:
            expected = f"{min_inputs}" if min_inputs == max_inputs else f"{min_inputs} to {max_inputs}"
            raise graph_error("node", node.name, f"expected {expected} inputs of {node.op}, given {node.inputs}")
        return [self.tensor(name) for name in node.inputs]

    def add_helper(
        self, node: NodeRecipe, op: str, *inputs: Value | Array | None, output: str = "", **attributes: Any
    ) -> Value:
        """Add a helper node and return its output."""
        name = self.make_helper_name(node, op)
        output = output or self.make_unique_name(f"{name}:0")
        value: Value = self.graph.add(op, *inputs, name=name, output_names=[output], **attributes)
        return value

    def make_helper_name(self, node: NodeRecipe, op: str) -> str:
        """Return a free name for a helper node of this operator."""
        self._num_helpers += 1
        return self.make_unique_name(f"{node.name}/{op.removeprefix('pumice::')}.{self._num_helpers}")

    def add_node(self, node: NodeRecipe) -> None:
        """Add a node of the file. Errors are recorded: unsupported features in `unsupported`, the first GraphError in `first_error`."""
        if reason := self.get_unsupported_reason(node, self.path(node)):
            self.unsupported.append(reason)
            return
        first = len(self.graph)
        try:
            if compose := self.composed.get(node.qualified_op):
                compose(self, node)
            else:
                self.add_single_node(node)
        except UnsupportedError as error:
            self.unsupported.extend(error.items)
        except GraphError as error:
            self.first_error = self.first_error or error
        except NodeRejected:
            pass
        if self.float32 and self.float32.is_selected(node, self.path(node)):
            self.float32.record_nodes(self.graph, self.path(node).removesuffix(node.name), first)

    def get_unsupported_reason(self, node: NodeRecipe, path: str) -> str:
        """Return why the node is unsupported; "" if it is supported."""
        op = node.qualified_op
        is_known = _has_operator(node.op, node.domain) or op in self.composed
        if is_known and op != _USER_KERNEL_OP and not node.unsupported:
            return ""
        return f"node '{path}': operator {op}{': ' if node.unsupported else ''}{node.unsupported}"

    def reject(self, node: NodeRecipe, why: str) -> NodeRejected:
        """Record why the node cannot be built, and return the exception that the caller raises."""
        self.unsupported.append(f"node '{self.path(node)}': operator {node.qualified_op}: {why}")
        return NodeRejected()

    def set_results(self, node: NodeRecipe, *results: Value) -> None:
        """Name the results after the node's outputs, skipping outputs without a name."""
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                self.set_values([name], (self.add_helper(node, "Identity", result, output=name),))

    def path(self, node: NodeRecipe) -> str:
        """Return the node's name; in a subgraph, prefixed with the graph's name."""
        return f"{self.graph.name}/{node.name}" if self.outer else node.name

    def add_single_node(self, node: NodeRecipe) -> None:
        """Add a node that maps to a single engine node. Raise the errors of Graph.add, and Refused if an input could not be built."""
        if node.op == "Identity" and len(node.inputs) == len(node.outputs) == 1:
            value = self.values.get(node.inputs[0])
            # the Identity of a value that consists of several tensors adds no node
            if isinstance(value, _MULTI_TENSOR_TYPES):
                self.set_values(node.outputs, (value,))
                return
        inputs = [self.tensor(name) if name else None for name in node.inputs]
        names = strip_trailing_empty(node.outputs)
        if any(value is not None and value.dtype.startswith(_LOW_BIT_PREFIXES) for value in inputs):
            from .low_bit_moves import add_low_bit_move, get_low_bit_dtype

            if get_low_bit_dtype(node, inputs):
                self.set_values(names, add_low_bit_move(self, node, inputs, names))
                return
        engine_outputs = self.graph.add(
            node.qualified_op, *inputs, outputs=len(names), name=node.name, output_names=names, **self.attributes(node)
        )
        self.set_values(names, engine_outputs if isinstance(engine_outputs, tuple) else (engine_outputs,))

    @staticmethod
    def attributes(node: NodeRecipe) -> dict[str, Any]:
        """Return the node's attributes, with tensors as arrays."""
        return {
            name: array_from_bytes(value.raw, value.dtype, value.shape) if isinstance(value, ConstantRecipe) else value
            for name, value in node.attributes.items()
        }

    def set_values(self, names: list[str], values: tuple[BuiltValue, ...]) -> None:
        """Register values under these names."""
        self.values.update(zip(names, values, strict=True))
        self.node_outputs.update(names)

    def add_nodes(self) -> None:
        """Add the nodes of a subgraph. Raise the first GraphError; Refused if a node is unsupported."""
        num_unsupported = len(self.unsupported)
        for node in self.recipe.nodes:
            self.add_node(node)
        if self.first_error:
            raise self.first_error
        if len(self.unsupported) > num_unsupported:
            raise NodeRejected

    def make_subgraph_outputs(self, node: NodeRecipe, name: str, kind: ValueKind) -> list[Value]:
        """Return a subgraph output's parts as a kind. Identity nodes stand in for inputs, constants and duplicates (rule B2.9)."""
        value = self.require_value(name)
        parts = get_parts(self, node, value, kind)
        if not kind.is_compound and name in self.node_outputs:
            self.node_outputs.remove(name)
            return parts
        return [self.add_helper(node, "Identity", part_value) for part_value in parts]

    def finish(self) -> Graph:
        """Set the outputs and return the graph.

        Raise UnsupportedError that lists everything unsupported, GraphError if the model is invalid.
        """
        if self.unsupported:
            raise unsupported_error(f"model '{self.recipe.name}'", list(dict.fromkeys(self.unsupported)))
        if self.first_error:
            raise self.first_error
        for output in self.recipe.outputs:
            value = self.value(output.name)
            if value is None:
                raise graph_error("output", output.name, "nothing makes it")
            kind = get_value_kind(value)
            node = NodeRecipe("", output.name, [], [], {})
            for name, part_value in zip(
                kind.get_part_names(output.name), get_parts(self, node, value, kind), strict=True
            ):
                self.graph.output(name, part_value)
        self.graph.finish()
        return self.graph


def build_graph(
    recipe: Recipe,
    composed: Composed,
    progress: Callable[[int, int], None] | None = None,
    float32: Float32Nodes | None = None,
) -> Graph:
    """Build the engine's Graph of a recipe.

    composed: operator -> function that adds a node with this operator. progress: called with the number of nodes added and their
    total.
    float32: selects nodes in the file and collects the engine nodes built from them.
    Raise UnsupportedError that lists everything unsupported, GraphError if the model is invalid.
    """
    builder = Builder(recipe, composed, float32=float32)
    for value in recipe.inputs:
        builder.add_input(value)
    for done, node in enumerate(recipe.nodes):
        if progress:
            progress(done, len(recipe.nodes))
        builder.add_node(node)
    return builder.finish()
