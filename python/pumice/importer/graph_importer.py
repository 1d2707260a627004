"""Convert one ONNX graph to a Recipe, checking its initializers, inputs, nodes and outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx import NodeProto, SparseTensorProto, TensorProto

from ..base.errors import binding_error, graph_error
from .composed.random import RANDOM_NODES, STREAM
from .composed.operator_table import COMPOSED
from .file.model_file import ModelFile
from .file.node_names import node_names
from .file.node_order import in_order, needed
from .file.onnx_tensor import DTYPES, constant_of, sparse_constant_of
from .file.recipe import (
    RANDOM_STATE,
    STRING,
    ConstantRecipe,
    InputRecipe,
    NodeRecipe,
    NotExpressible,
    Overridable,
    Recipe,
    packed,
    without_trailing_gaps,
)
from .onnx_functions import OPSET, schema_of, version_of
from .onnx_values import ONNX_DOMAINS, attribute_of, attributes_of, constant_value, declared_output, value_of
from .rewrites.rewrite_helpers import Scope
from .rewrites.rewrite_table import CONTRIB_DOMAIN, NEWEST, OLDEST, rewritten

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto


class GraphImporter:
    """Converts one graph to a Recipe. For a subgraph, `outer` is the importer of the enclosing graph."""

    def __init__(
        self,
        graph: GraphProto,
        versions: dict[str, int],
        file: ModelFile,
        outer: GraphImporter | None = None,
        wanted: Overridable = False,
    ) -> None:
        self.graph = graph
        self.file = file
        self.opsets = versions
        self.outer = outer
        self.visible: set[str] = set()  # outer-scope values visible in this subgraph
        if outer:
            self.visible = outer.visible.union(outer.known, *(node.output for node in outer.graph.node))
        self.unsupported: list[str] = []
        self.constants: dict[str, ConstantRecipe] = {}
        self.inputs: list[InputRecipe] = []
        self.wanted = wanted
        self.overridable: list[str] = []
        self.defaults: dict[str, ConstantRecipe] = {}
        self.refused: dict[str, str] = {}  # constant that a Recipe cannot hold -> reason
        self.known: set[str] = set() if outer else {RANDOM_STATE}  # inputs and constants, including rejected ones
        self.streams: Iterator[int] = outer.streams if outer else itertools.count(1)

    def check_opset(self) -> None:
        """Check the ONNX opset version. Raise GraphError if it is missing although a node needs it."""
        version = self.opsets.get("")
        if version is None:
            if any(node.domain in ONNX_DOMAINS for node in self.graph.node):
                raise graph_error("model", self.file.name, "expected a version of ONNX's operator set, given none")
        elif not OLDEST <= version <= NEWEST:
            self.unsupported.append(f"operator set {version} (known are {OLDEST} to {NEWEST})")

    def read_initializers(self) -> None:
        """Read initializers into constants. Raise GraphError for duplicate names."""
        for tensor in self.graph.initializer:
            if tensor.name in self.known:
                raise graph_error("initializer", tensor.name, "is given twice")
            self._read_constant(tensor, tensor.name, f"initializer '{tensor.name}'")
        for sparse in self.graph.sparse_initializer:
            if sparse.values.name in self.known:
                raise graph_error("initializer", sparse.values.name, "is given twice")
            self._read_constant(sparse, sparse.values.name, f"initializer '{sparse.values.name}'")

    def _read_constant(self, tensor: TensorProto | SparseTensorProto, name: str, what: str) -> None:
        self.known.add(name)
        try:
            if isinstance(tensor, SparseTensorProto):
                self.constants[name] = sparse_constant_of(tensor, name, self.file)
            else:
                self.constants[name] = constant_of(tensor, name, self.file)
        except NotExpressible as reason:
            self.refused[name] = f"{what}: {reason}"

    def read_inputs(self) -> None:
        """Read the graph inputs. An input with an initializer becomes a constant unless it is listed in `wanted`.

        Raise GraphError, or BindingError (K4) if a name in `wanted` is not such an input.
        """
        with_defaults: list[InputRecipe] = []
        seen: set[str] = set()
        for info in self.graph.input:
            if not info.name or info.name in seen:
                raise graph_error("input", info.name, "is given twice" if info.name else "has no name")
            seen.add(info.name)
            if info.name in self.known:
                if self.outer:
                    raise graph_error("input", info.name, "of a subgraph is an initializer too")
                if info.name in self.constants:
                    self.overridable.append(info.name)
                    if self.wanted is True or (self.wanted and info.name in self.wanted):
                        with_defaults.append(self._with_default(info))
                continue
            try:
                is_open = self.outer is not None and info.type.WhichOneof("value") is None
                self.inputs.append(InputRecipe(info.name, "", None, []) if is_open else value_of(info))
            except NotExpressible as reason:
                self.unsupported.append(f"input '{info.name}': {reason}")
        self.inputs += with_defaults
        self.known |= seen
        names = () if self.wanted is True else self.wanted or ()
        for name in names:
            if name not in self.defaults:
                known = ", ".join(self.overridable) or "of which there are none"
                raise binding_error("K4", name, f"an initializer that is an input too: {known}", f"'{name}'")

    def _with_default(self, info: ValueInfoProto) -> InputRecipe:
        given = self.defaults[info.name] = self.constants.pop(info.name)
        declared = value_of(info)
        sizes = zip(declared.shape or (), given.shape, strict=False)
        fits = declared.shape is None or len(declared.shape) == len(given.shape)
        if declared.dtype != given.dtype or not fits or any(size not in (None, own) for size, own in sizes):
            expected, found = f"{declared.dtype}{declared.shape or ''}", f"{given.dtype}{given.shape}"
            raise graph_error("input", info.name, f"expected an initializer of {expected}, given {found}")
        return declared

    def read_nodes(self) -> Iterator[NodeRecipe]:
        """Yield the nodes, but read Constant nodes into `constants`. Raise GraphError for a node without an operator."""
        for node, name in zip(self.graph.node, node_names(self.graph), strict=True):
            if not node.op_type:
                raise graph_error("node", name, "has no operator")
            domain = "" if node.domain in ONNX_DOMAINS else node.domain
            if domain == "" and node.op_type == "Constant":
                self._read_constant_node(node, name)
                continue
            inputs, outputs = without_trailing_gaps(list(node.input)), _outputs_of(node, domain, name)
            recipe = NodeRecipe(node.op_type, name, inputs, outputs, {}, domain)
            try:
                yield recipe._replace(attributes=attributes_of(node, name, self.file, self._subgraph))
            except NotExpressible as reason:
                yield recipe._replace(unsupported=str(reason))

    def _subgraph(self, graph: GraphProto) -> Recipe:
        return GraphImporter(graph, self.opsets, self.file, self).recipe()

    def _read_constant_node(self, node: NodeProto, name: str) -> None:
        if len(node.output) != 1 or len(node.attribute) != 1:
            given = f"{len(node.attribute)} and {len(node.output)}"
            raise graph_error("node", name, f"expected one attribute and one output of a Constant, given {given}")
        output = node.output[0]
        if output in self.known:
            raise graph_error("node", name, f"makes '{output}', which is an input or an initializer")
        attribute = node.attribute[0]
        if attribute.name in ("value", "sparse_value"):
            tensor = attribute.t if attribute.name == "value" else attribute.sparse_tensor
            self._read_constant(tensor, output, f"node '{name}'")
            return
        self.known.add(output)
        try:
            array = constant_value(attribute.name, attribute_of(attribute, name, self.file))
        except NotExpressible as reason:
            self.refused[output] = f"node '{name}': {reason}"
        else:
            strings = array.dtype == object
            raw = packed(array.reshape(-1).tolist()) if strings else array.tobytes()
            dtype = STRING if strings else str(array.dtype)
            self.constants[output] = ConstantRecipe(output, dtype, list(array.shape), raw)

    def _numbered(self, node: NodeRecipe) -> NodeRecipe:
        """Add RANDOM_STATE to the inputs of a random node, and a stream number to the node and to any loop around it."""
        is_random = not node.domain and node.op in RANDOM_NODES
        if node.op == "Dropout":
            is_random = len(node.inputs) > 2 and bool(node.inputs[2]) and not self._is_false(node.inputs[2])
        if is_random:
            node = node._replace(inputs=[*node.inputs, RANDOM_STATE])
        if RANDOM_STATE not in node.reads:
            return node
        return node._replace(attributes={**node.attributes, STREAM: next(self.streams)})

    def _is_false(self, name: str) -> bool:
        if name in self.constants:
            return not any(bytes(self.constants[name].raw))
        return self.outer is not None and self.outer._is_false(name)

    def check_outputs(self, nodes: list[NodeRecipe]) -> list[InputRecipe]:
        """Return the declared outputs. Raise GraphError if there are none, or one is undefined or listed twice."""
        made = self.known.union(self.visible, *(node.outputs for node in nodes))
        outputs = [declared_output(info) for info in self.graph.output]
        if not outputs:
            raise graph_error("model", self.file.name, "expected at least one output, given none")
        for index, output in enumerate(outputs):
            if not output.name or output.name not in made:
                expected = "the name of an input, an initializer or a node's output"
                raise graph_error("output", output.name, f"expected {expected}, given '{output.name}'")
            if not self.outer and output.name in (other.name for other in outputs[:index]):
                raise graph_error("output", output.name, "is given twice")
        return outputs

    def check_counts(self, nodes: list[NodeRecipe]) -> None:
        """Check the input and output counts of composed operators; the engine checks its own.

        Raise GraphError if a count does not match the operator's schema."""
        for node in nodes:
            if node.domain or node.op not in COMPOSED:
                continue
            version = version_of(node, self.opsets.get("", NEWEST))
            # Check an operator that is newer than the model's opset against its latest schema.
            schema = schema_of(node.op, version, "") or schema_of(node.op, NEWEST, "")
            if not schema:
                continue
            given = [name for name in node.inputs if name != RANDOM_STATE]
            for what, names, roles, most in (
                ("input", given, schema.inputs, schema.max_input),
                ("output", node.outputs, schema.outputs, schema.max_output),
            ):
                needed_roles = [
                    i
                    for i, role in enumerate(roles)
                    if role.option == role.option.Single
                    or (
                        what == "input"
                        and role.option == role.option.Variadic
                        and role.min_arity > 0
                        and len(names) <= i
                    )
                ]
                left_out = [i for i in needed_roles if i >= len(names) or not names[i]]
                if left_out or len(names) > most:
                    expected = (
                        f"{roles[left_out[0]].name} as {what} {left_out[0]}" if left_out else f"at most {most} {what}s"
                    )
                    raise graph_error("node", node.name, f"{node.op}: expected {expected}, given {names}")

    def without_unread(self, nodes: list[NodeRecipe], outputs: set[str]) -> list[NodeRecipe]:
        """Return the nodes without unused optional outputs, so that an unsupported output is no error if nothing reads it."""
        read = outputs.union(*(node.reads for node in nodes))
        version = self.opsets.get("", NEWEST)
        kept = []
        for node in nodes:
            if not all(name in read for name in node.outputs[1:]):
                optional = _optional_outputs(node, version_of(node, version))
                names = [name if i not in optional or name in read else "" for i, name in enumerate(node.outputs)]
                node = node._replace(outputs=without_trailing_gaps(names))
            kept.append(node)
        return kept

    def upgraded(self, nodes: list[NodeRecipe]) -> list[NodeRecipe]:
        """Return the nodes converted to the latest opset."""
        producers = {name: node.op for node in nodes for name in node.outputs}
        scope = Scope(self.constants, self.known | self.visible, producers, self._float_types(nodes))
        newest: list[NodeRecipe] = []
        version = self.opsets.get("", NEWEST)
        if version < OLDEST:
            return nodes
        for node in nodes:
            own = version_of(node, version)
            node.attributes.pop(OPSET, None)
            try:
                if not OLDEST <= own <= NEWEST:
                    raise NotExpressible(
                        f"of a function that imports a set which is not known ({OLDEST} to {NEWEST} are)"
                    )
                newest += [node] if node.unsupported else rewritten(node, own, scope)
            except NotExpressible as reason:
                where = "" if node.domain else f" (operator set {own})"
                newest.append(node._replace(unsupported=f"{reason}{where}"))
        return newest

    def _float_types(self, nodes: list[NodeRecipe]) -> set[str]:
        types = {value.dtype for value in self.inputs} | {constant.dtype for constant in self.constants.values()}
        for node in nodes:
            types |= {
                DTYPES.get(value, "")
                for value in node.attributes.values()
                if node.op == "Cast" and isinstance(value, int)
            }
            types |= {value.dtype for value in node.attributes.values() if isinstance(value, ConstantRecipe)}
        if self.outer:
            types |= self.outer._float_types([])
        return {name for name in types if "float" in name}

    def recipe(self) -> Recipe:
        """Return the Recipe of the graph. Raise GraphError if the graph is invalid, BindingError for an unknown overridable name."""
        if not self.outer:
            self.check_opset()
        self.read_initializers()
        self.read_inputs()
        nodes = [self._numbered(node) for node in self.read_nodes()]
        outputs = self.check_outputs(nodes)
        from_outside = self.visible - self.known.union(*(node.outputs for node in nodes))
        nodes = needed(in_order(nodes, self.known | from_outside), [output.name for output in outputs])
        nodes = self.without_unread(nodes, {output.name for output in outputs})
        self.check_counts(nodes)
        nodes = self.upgraded(nodes)
        reads = [name for node in nodes for name in node.reads] + [output.name for output in outputs]
        used = set(reads)
        if RANDOM_STATE in used and not self.outer:
            self.inputs.append(InputRecipe(RANDOM_STATE, "uint32", [4], []))
        constants = {name: constant for name, constant in self.constants.items() if name in used}
        unsupported = self.unsupported + [reason for name, reason in self.refused.items() if name in used]
        captured = [name for name in dict.fromkeys(reads) if name in from_outside]
        name = self.graph.name or self.file.name
        made = Recipe(name, self.inputs, constants, nodes, outputs, unsupported, captured)
        return made._replace(overridable=self.overridable, defaults=self.defaults)


def _outputs_of(node: NodeProto, domain: str, name: str) -> list[str]:
    """Return the node's output names. Split's chunk count is its number of outputs, so unnamed outputs get a name."""
    if (domain, node.op_type) != ("", "Split"):
        return without_trailing_gaps(list(node.output))
    return [output or f"{name}:{i}" for i, output in enumerate(node.output)]


def _optional_outputs(node: NodeRecipe, version: int) -> set[int]:
    """Return the indices of outputs that a node may omit.

    ONNX Runtime's contrib operators have no schema here; only their first output is required. MultiHeadAttention with a
    past always needs its present outputs, even if unused.
    """
    if node.domain == CONTRIB_DOMAIN:
        if node.op == "MultiHeadAttention":
            return set(range(3, len(node.outputs)))
        return set(range(1, len(node.outputs)))
    schema = None if node.domain else schema_of(node.op, version, "")
    return {i for i, role in enumerate(schema.outputs) if role.option == role.option.Optional} if schema else set()
