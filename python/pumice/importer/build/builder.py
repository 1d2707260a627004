"""Build the engine's Graph from a Recipe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pumice._pumice as _pumice

from ..._pumice import Graph, GraphError, UnsupportedError
from ...base.element_types import Array, Bytes, array_of
from ...base.errors import graph_error, unsupported_error
from ..file.recipe import ConstantRecipe, InputRecipe, NodeRecipe, Recipe, without_trailing_gaps
from .compound_values import Kind, Made, OptionalValue, SequenceValue, kind_of, parts_of

if TYPE_CHECKING:
    from ..._pumice import Value
    from .float32_nodes import Float32Nodes

    Composed = Mapping[str, Callable[["Builder", NodeRecipe], None]]


_SEVERAL = (SequenceValue, OptionalValue)  # values represented by several tensors
_NARROW = ("int4", "uint4", "int2", "uint2", "float4", "float8")  # prefixes of low-bit dtypes that few kernels can read
_OWN_KERNELS = "pumice::Kernel"  # only load(kernels=) may add it: in a file, it could name arbitrary paths to read

_has_operator = functools.lru_cache(1024)(_pumice.has_operator)  # the engine's operator table is constant


class Refused(Exception):
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
        self.values: dict[str, Made] = {}
        self.unsupported: list[str] = outer.unsupported if outer else list(recipe.unsupported)
        self.first_error: GraphError | None = None
        self.made: set[str] = set()  # node outputs that are not yet graph outputs
        # Subgraphs that are already built, keyed by their recipes and operands.
        self.subgraphs: dict[Any, Any] = outer.subgraphs if outer else {}
        self.constants: Mapping[str, ConstantRecipe] = recipe.constants
        if outer:
            captured = {name: outer.constants[name] for name in recipe.captured if name in outer.constants}
            self.constants = {**captured, **recipe.constants}
        self._helpers = 0
        self._derived: dict[tuple[Any, ...], Value] = {}

    def add_input(self, value: InputRecipe) -> None:
        """Add a graph input, or several for a sequence or an optional value."""
        kind = Kind.of(value.dtype)
        try:
            if not kind.compound:
                self.values[value.name] = self.graph.input(value.name, value.dtype, value.shape, value.dimension_names)
                return
            named = zip(kind.names(value.name), kind.parts, strict=True)
            parts = [self.graph.input(name, dtype, shape) for name, (_, dtype, shape) in named]
            self.values[value.name] = kind.packed(iter(parts))
        except UnsupportedError as error:
            self.unsupported.extend(error.items)

    def array(self, name: str) -> Array | None:
        """Return the elements of a constant; None for other values."""
        constant = self.constants.get(name)
        return None if constant is None else array_of(constant.raw, constant.dtype, constant.shape)

    def derived(self, name: str, dtype: str, shape: list[int], *form: Any, raw: Callable[[], Bytes]) -> Value:
        """Return a derived form of one of the file's constants, shared by all nodes that need it. raw: returns its bytes."""
        key = (name, dtype, *shape, *form)
        if key not in self._derived:
            label = self.free_name(f"{name} as {dtype}{shape}")
            self._derived[key] = self.graph.constant_bytes(raw(), dtype, shape, label)
        return self._derived[key]

    @functools.cached_property
    def _names(self) -> set[str]:
        """Every name in use: values and nodes of the file, and results of free_name."""
        recipe = self.recipe
        names = {*recipe.constants, *recipe.captured, *(value.name for value in recipe.inputs)}
        for node in recipe.nodes:
            names.update((node.name, *node.outputs))
        return names

    def free_name(self, stem: str) -> str:
        """Return an unused name: the stem, with a number appended if it is taken."""
        name, count = stem, 1
        while name in self._names:
            count += 1
            name = f"{stem}#{count}"
        self._names.add(name)
        return name

    def value(self, name: str) -> Made | None:
        """Return the value of that name; None if it could not be built."""
        value = self.values.get(name)
        if value is None and (given := self.constants.get(name)) is not None:
            value = self.values[name] = self.graph.constant_bytes(given.raw, given.dtype, given.shape, name)
        return value

    def operand(self, name: str) -> Made:
        """Return the value of that name. Raise Refused if it could not be built."""
        value = self.value(name)
        if value is None:
            raise Refused
        return value

    def tensor(self, name: str) -> Value:
        """Return the tensor of that name.

        Raise GraphError for a sequence or an optional value, Refused if it could not be built.
        """
        value = self.operand(name)
        if isinstance(value, _SEVERAL):
            raise graph_error("value", name, f"expected a tensor, given {kind_of(value)}")
        return value

    def operands(self, node: NodeRecipe, least: int, most: int) -> list[Value]:
        """Return the inputs of a node.

        Raise GraphError unless there are `least` to `most`, none omitted; Refused if one could not be built.
        """
        if not least <= len(node.inputs) <= most or "" in node.inputs:
            expected = f"{least}" if least == most else f"{least} to {most}"
            raise graph_error("node", node.name, f"expected {expected} inputs of {node.op}, given {node.inputs}")
        return [self.tensor(name) for name in node.inputs]

    def helper(
        self, node: NodeRecipe, op: str, *inputs: Value | Array | None, output: str = "", **attributes: Any
    ) -> Value:
        """Add a helper node and return its output."""
        name = self.helper_name(node, op)
        output = output or self.free_name(f"{name}:0")
        value: Value = self.graph.add(op, *inputs, name=name, output_names=[output], **attributes)
        return value

    def helper_name(self, node: NodeRecipe, op: str) -> str:
        """Return a free name for a helper node of this operator."""
        self._helpers += 1
        return self.free_name(f"{node.name}/{op.removeprefix('pumice::')}.{self._helpers}")

    def add_node(self, node: NodeRecipe) -> None:
        """Add a node of the file. Errors are recorded: unsupported features in `unsupported`, the first GraphError in `first_error`."""
        if reason := self.unsupported_node(node, self.path(node)):
            self.unsupported.append(reason)
            return
        first = len(self.graph)
        try:
            if compose := self.composed.get(node.qualified_op):
                compose(self, node)
            else:
                self.add_plain(node)
        except UnsupportedError as error:
            self.unsupported.extend(error.items)
        except GraphError as error:
            self.first_error = self.first_error or error
        except Refused:
            pass
        if self.float32 and self.float32.wants(node, self.path(node)):
            self.float32.note(self.graph, self.path(node).removesuffix(node.name), first)

    def unsupported_node(self, node: NodeRecipe, path: str) -> str:
        """Return why the node is unsupported; "" if it is supported."""
        op = node.qualified_op
        known = _has_operator(node.op, node.domain) or op in self.composed
        if known and op != _OWN_KERNELS and not node.unsupported:
            return ""
        return f"node '{path}': operator {op}{': ' if node.unsupported else ''}{node.unsupported}"

    def refuse(self, node: NodeRecipe, why: str) -> Refused:
        """Record why the node cannot be built, and return the exception that the caller raises."""
        self.unsupported.append(f"node '{self.path(node)}': operator {node.qualified_op}: {why}")
        return Refused()

    def keep_results(self, node: NodeRecipe, *results: Value) -> None:
        """Name the results after the node's outputs, skipping outputs without a name."""
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                self.keep([name], (self.helper(node, "Identity", result, output=name),))

    def path(self, node: NodeRecipe) -> str:
        """Return the node's name; in a subgraph, prefixed with the graph's name."""
        return f"{self.graph.name}/{node.name}" if self.outer else node.name

    def add_plain(self, node: NodeRecipe) -> None:
        """Add a node that maps to a single engine node. Raise the errors of Graph.add, and Refused if an input could not be built."""
        if node.op == "Identity" and len(node.inputs) == len(node.outputs) == 1:
            value = self.values.get(node.inputs[0])
            # the Identity of a value that consists of several tensors adds no node
            if isinstance(value, _SEVERAL):
                self.keep(node.outputs, (value,))
                return
        inputs = [self.tensor(name) if name else None for name in node.inputs]
        names = without_trailing_gaps(node.outputs)
        if any(value is not None and value.dtype.startswith(_NARROW) for value in inputs):
            from .low_bit_moves import add_moved, narrow_dtype

            if narrow_dtype(node, inputs):
                self.keep(names, add_moved(self, node, inputs, names))
                return
        made = self.graph.add(
            node.qualified_op, *inputs, outputs=len(names), name=node.name, output_names=names, **self.attributes(node)
        )
        self.keep(names, made if isinstance(made, tuple) else (made,))

    @staticmethod
    def attributes(node: NodeRecipe) -> dict[str, Any]:
        """Return the node's attributes, with tensors as arrays."""
        return {
            name: array_of(value.raw, value.dtype, value.shape) if isinstance(value, ConstantRecipe) else value
            for name, value in node.attributes.items()
        }

    def keep(self, names: list[str], values: tuple[Made, ...]) -> None:
        """Register values under these names."""
        self.values.update(zip(names, values, strict=True))
        self.made.update(names)

    def add_nodes(self) -> None:
        """Add the nodes of a subgraph. Raise the first GraphError; Refused if a node is unsupported."""
        before = len(self.unsupported)
        for node in self.recipe.nodes:
            self.add_node(node)
        if self.first_error:
            raise self.first_error
        if len(self.unsupported) > before:
            raise Refused

    def made_values(self, node: NodeRecipe, name: str, kind: Kind) -> list[Value]:
        """Return a subgraph output's parts as a kind. Identity nodes stand in for inputs, constants and duplicates (rule B2.9)."""
        value = self.operand(name)
        parts = parts_of(self, node, value, kind)
        if not kind.compound and name in self.made:
            self.made.remove(name)
            return parts
        return [self.helper(node, "Identity", part) for part in parts]

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
            kind = kind_of(value)
            node = NodeRecipe("", output.name, [], [], {})
            for name, part in zip(kind.names(output.name), parts_of(self, node, value, kind), strict=True):
                self.graph.output(name, part)
        self.graph.finish()
        return self.graph


def build(
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
