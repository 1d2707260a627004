"""Convert an ONNX graph to a GraphRecipe and check its initializers, inputs, nodes and outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx import NodeProto, SparseTensorProto, TensorProto

from ..base.errors import binding_error, graph_error
from .file.graph_recipe import (
    RANDOM_STATE,
    STRING,
    ConstantRecipe,
    GraphRecipe,
    InputRecipe,
    NodeRecipe,
    Overridable,
    UnrepresentableError,
    pack_strings,
    strip_trailing_empty,
)
from .file.model_file import ModelFile
from .file.node_names import make_node_names
from .file.node_order import keep_required_nodes, sort_topologically
from .file.onnx_tensor import DTYPES, make_constant, make_sparse_constant
from .onnx_functions import OPSET, find_schema, get_node_opset
from .onnx_values import (
    ONNX_DOMAINS,
    make_constant_array,
    read_attribute,
    read_attributes,
    read_declared_output,
    read_value_info,
)
from .rewrites.rewrite_helpers import RewriteScope
from .rewrites.rewrite_table import CONTRIB_DOMAIN, MAX_OPSET, MIN_OPSET, rewrite_node
from .translators.operator_table import TRANSLATORS
from .translators.random import RANDOM_NODES, STREAM

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto


class GraphImporter:
    """Converts one graph to a GraphRecipe. outer: for a subgraph, the importer of the enclosing graph."""

    def __init__(
        self,
        graph: GraphProto,
        versions: dict[str, int],
        file: ModelFile,
        outer: GraphImporter | None = None,
        overridable_request: Overridable = False,
    ) -> None:
        self.graph = graph
        self.file = file
        self.opsets = versions
        self.outer = outer
        self.outer_names: set[str] = set()  # outer-scope values visible in this subgraph
        if outer:
            self.outer_names = outer.outer_names.union(outer.defined_names, *(node.output for node in outer.graph.node))
        self.unsupported: list[str] = []
        self.constants: dict[str, ConstantRecipe] = {}
        self.inputs: list[InputRecipe] = []
        self.overridable_request = overridable_request
        self.overridable: list[str] = []
        self.defaults: dict[str, ConstantRecipe] = {}
        self.rejected_constants: dict[str, str] = {}  # name of an unrepresentable constant -> reason
        self.defined_names: set[str] = (
            set() if outer else {RANDOM_STATE}
        )  # names of inputs and constants, including rejected constants
        self.streams: Iterator[int] = outer.streams if outer else itertools.count(1)

    def check_opset(self) -> None:
        """Check the version of the ONNX opset. Raise GraphError if it is missing although a node needs it."""
        version = self.opsets.get("")
        if version is None:
            if any(node.domain in ONNX_DOMAINS for node in self.graph.node):
                raise graph_error("model", self.file.name, "expected a version of ONNX's operator set, given none")
        elif not MIN_OPSET <= version <= MAX_OPSET:
            self.unsupported.append(f"operator set {version} (supported: {MIN_OPSET} to {MAX_OPSET})")

    def read_initializers(self) -> None:
        """Read the initializers into `constants`. Raise GraphError for duplicate names."""
        for tensor in self.graph.initializer:
            if tensor.name in self.defined_names:
                raise graph_error("initializer", tensor.name, "is given twice")
            self._read_constant(tensor, tensor.name, f"initializer '{tensor.name}'")
        for sparse in self.graph.sparse_initializer:
            if sparse.values.name in self.defined_names:
                raise graph_error("initializer", sparse.values.name, "is given twice")
            self._read_constant(sparse, sparse.values.name, f"initializer '{sparse.values.name}'")

    def _read_constant(self, tensor: TensorProto | SparseTensorProto, name: str, label: str) -> None:
        self.defined_names.add(name)
        try:
            if isinstance(tensor, SparseTensorProto):
                self.constants[name] = make_sparse_constant(tensor, name, self.file)
            else:
                self.constants[name] = make_constant(tensor, name, self.file)
        except UnrepresentableError as reason:
            self.rejected_constants[name] = f"{label}: {reason}"

    def read_inputs(self) -> None:
        """Read the graph inputs. An input with an initializer becomes a constant unless it is listed in `overridable_request`.

        Raise GraphError, or BindingError (K4) if a name in `overridable_request` is not such an input.
        """
        with_defaults: list[InputRecipe] = []
        input_names: set[str] = set()
        for info in self.graph.input:
            if not info.name or info.name in input_names:
                raise graph_error("input", info.name, "is given twice" if info.name else "has no name")
            input_names.add(info.name)
            if info.name in self.defined_names:
                if self.outer:
                    raise graph_error("input", info.name, "of a subgraph is an initializer too")
                if info.name in self.constants:
                    self.overridable.append(info.name)
                    if self.overridable_request is True or (
                        self.overridable_request and info.name in self.overridable_request
                    ):
                        with_defaults.append(self._make_overridable_input(info))
                continue
            try:
                is_open = self.outer is not None and info.type.WhichOneof("value") is None
                self.inputs.append(InputRecipe(info.name, "", None, []) if is_open else read_value_info(info))
            except UnrepresentableError as reason:
                self.unsupported.append(f"input '{info.name}': {reason}")
        self.inputs += with_defaults
        self.defined_names |= input_names
        names = () if self.overridable_request is True else self.overridable_request or ()
        for name in names:
            if name not in self.defaults:
                choices = ", ".join(self.overridable) or "of which there are none"
                raise binding_error("K4", name, f"an initializer that is an input too: {choices}", f"'{name}'")

    def _make_overridable_input(self, info: ValueInfoProto) -> InputRecipe:
        initializer_constant = self.defaults[info.name] = self.constants.pop(info.name)
        declared = read_value_info(info)
        sizes = zip(declared.shape or (), initializer_constant.shape, strict=False)
        rank_matches = declared.shape is None or len(declared.shape) == len(initializer_constant.shape)
        if (
            declared.dtype != initializer_constant.dtype
            or not rank_matches
            or any(size not in (None, initializer_size) for size, initializer_size in sizes)
        ):
            expected, actual = (
                f"{declared.dtype}{declared.shape or ''}",
                f"{initializer_constant.dtype}{initializer_constant.shape}",
            )
            raise graph_error("input", info.name, f"expected an initializer of {expected}, given {actual}")
        return declared

    def read_nodes(self) -> Iterator[NodeRecipe]:
        """Yield the nodes, except Constant nodes, which are read into `constants`. Raise GraphError for a node without an operator."""
        for node, name in zip(self.graph.node, make_node_names(self.graph), strict=True):
            if not node.op_type:
                raise graph_error("node", name, "has no operator")
            domain = "" if node.domain in ONNX_DOMAINS else node.domain
            if domain == "" and node.op_type == "Constant":
                self._read_constant_node(node, name)
                continue
            inputs, outputs = strip_trailing_empty(list(node.input)), _get_output_names(node, domain, name)
            recipe = NodeRecipe(node.op_type, name, inputs, outputs, {}, domain)
            try:
                yield recipe._replace(attributes=read_attributes(node, name, self.file, self._import_subgraph))
            except UnrepresentableError as reason:
                yield recipe._replace(unsupported=str(reason))

    def _import_subgraph(self, graph: GraphProto) -> GraphRecipe:
        return GraphImporter(graph, self.opsets, self.file, self).import_graph()

    def _read_constant_node(self, node: NodeProto, name: str) -> None:
        if len(node.output) != 1 or len(node.attribute) != 1:
            counts_text = f"{len(node.attribute)} and {len(node.output)}"
            raise graph_error("node", name, f"expected one attribute and one output of a Constant, given {counts_text}")
        output = node.output[0]
        if output in self.defined_names:
            raise graph_error("node", name, f"produces '{output}', which is an input or an initializer")
        attribute = node.attribute[0]
        if attribute.name in ("value", "sparse_value"):
            tensor = attribute.t if attribute.name == "value" else attribute.sparse_tensor
            self._read_constant(tensor, output, f"node '{name}'")
            return
        self.defined_names.add(output)
        try:
            array = make_constant_array(attribute.name, read_attribute(attribute, name, self.file))
        except UnrepresentableError as reason:
            self.rejected_constants[output] = f"node '{name}': {reason}"
        else:
            strings = array.dtype == object
            raw = pack_strings(array.reshape(-1).tolist()) if strings else array.tobytes()
            dtype = STRING if strings else str(array.dtype)
            self.constants[output] = ConstantRecipe(output, dtype, list(array.shape), raw)

    def _add_random_stream(self, node: NodeRecipe) -> NodeRecipe:
        """Append RANDOM_STATE to the inputs of a random node. Add a stream number to it and to nodes whose subgraphs contain one."""
        is_random = not node.domain and node.op in RANDOM_NODES
        if node.op == "Dropout":
            is_random = len(node.inputs) > 2 and bool(node.inputs[2]) and not self._is_constant_false(node.inputs[2])
        if is_random:
            node = node._replace(inputs=[*node.inputs, RANDOM_STATE])
        if RANDOM_STATE not in node.reads:
            return node
        return node._replace(attributes={**node.attributes, STREAM: next(self.streams)})

    def _is_constant_false(self, name: str) -> bool:
        if name in self.constants:
            return not any(bytes(self.constants[name].raw))
        return self.outer is not None and self.outer._is_constant_false(name)

    def check_outputs(self, nodes: list[NodeRecipe]) -> list[InputRecipe]:
        """Return the declared outputs. Raise GraphError if there are none, or one is undefined or listed twice."""
        available_names = self.defined_names.union(self.outer_names, *(node.outputs for node in nodes))
        outputs = [read_declared_output(info) for info in self.graph.output]
        if not outputs:
            raise graph_error("model", self.file.name, "expected at least one output, given none")
        for index, output in enumerate(outputs):
            if not output.name or output.name not in available_names:
                expected = "the name of an input, an initializer or a node's output"
                raise graph_error("output", output.name, f"expected {expected}, given '{output.name}'")
            if not self.outer and output.name in (other.name for other in outputs[:index]):
                raise graph_error("output", output.name, "is given twice")
        return outputs

    def check_operand_counts(self, nodes: list[NodeRecipe]) -> None:
        """Check the input and output counts of operators with a translator; the engine checks its own operators.

        Raise GraphError if a count does not match the operator's schema."""
        for node in nodes:
            if node.domain or node.op not in TRANSLATORS:
                continue
            version = get_node_opset(node, self.opsets.get("", MAX_OPSET))
            # If the operator is newer than the model's opset, use its latest schema.
            schema = find_schema(node.op, version, "") or find_schema(node.op, MAX_OPSET, "")
            if not schema:
                continue
            node_inputs = [name for name in node.inputs if name != RANDOM_STATE]
            for label, names, roles, max_count in (
                ("input", node_inputs, schema.inputs, schema.max_input),
                ("output", node.outputs, schema.outputs, schema.max_output),
            ):
                needed_roles = [
                    i
                    for i, role in enumerate(roles)
                    if role.option == role.option.Single
                    or (
                        label == "input"
                        and role.option == role.option.Variadic
                        and role.min_arity > 0
                        and len(names) <= i
                    )
                ]
                missing = [i for i in needed_roles if i >= len(names) or not names[i]]
                if missing or len(names) > max_count:
                    expected = (
                        f"{roles[missing[0]].name} as {label} {missing[0]}"
                        if missing
                        else f"at most {max_count} {label}s"
                    )
                    raise graph_error("node", node.name, f"{node.op}: expected {expected}, given {names}")

    def drop_unread_outputs(self, nodes: list[NodeRecipe], outputs: set[str]) -> list[NodeRecipe]:
        """Return the nodes without unused optional outputs, so that an unsupported output is an error only if it is used."""
        read_names = outputs.union(*(node.reads for node in nodes))
        version = self.opsets.get("", MAX_OPSET)
        trimmed_nodes = []
        for node in nodes:
            if not all(name in read_names for name in node.outputs[1:]):
                optional = _get_optional_outputs(node, get_node_opset(node, version))
                names = [name if i not in optional or name in read_names else "" for i, name in enumerate(node.outputs)]
                node = node._replace(outputs=strip_trailing_empty(names))
            trimmed_nodes.append(node)
        return trimmed_nodes

    def upgrade_nodes(self, nodes: list[NodeRecipe]) -> list[NodeRecipe]:
        """Return the nodes, upgraded to the latest opset."""
        producers = {name: node.op for node in nodes for name in node.outputs}
        scope = RewriteScope(
            self.constants, self.defined_names | self.outer_names, producers, self._collect_float_types(nodes)
        )
        upgraded_nodes: list[NodeRecipe] = []
        version = self.opsets.get("", MAX_OPSET)
        if version < MIN_OPSET:
            return nodes
        for node in nodes:
            node_version = get_node_opset(node, version)
            node.attributes.pop(OPSET, None)
            try:
                if not MIN_OPSET <= node_version <= MAX_OPSET:
                    raise UnrepresentableError(
                        f"of a function that imports an unknown set ({MIN_OPSET} to {MAX_OPSET} are known)"
                    )
                upgraded_nodes += [node] if node.unsupported else rewrite_node(node, node_version, scope)
            except UnrepresentableError as reason:
                where = "" if node.domain else f" (operator set {node_version})"
                upgraded_nodes.append(node._replace(unsupported=f"{reason}{where}"))
        return upgraded_nodes

    def _collect_float_types(self, nodes: list[NodeRecipe]) -> set[str]:
        types = {value.dtype for value in self.inputs} | {constant.dtype for constant in self.constants.values()}
        for node in nodes:
            types |= {
                DTYPES.get(value, "")
                for value in node.attributes.values()
                if node.op == "Cast" and isinstance(value, int)
            }
            types |= {value.dtype for value in node.attributes.values() if isinstance(value, ConstantRecipe)}
        if self.outer:
            types |= self.outer._collect_float_types([])
        return {name for name in types if "float" in name}

    def import_graph(self) -> GraphRecipe:
        """Import the graph as a GraphRecipe. Raise GraphError if the graph is invalid, BindingError for an unknown overridable name."""
        if not self.outer:
            self.check_opset()
        self.read_initializers()
        self.read_inputs()
        nodes = [self._add_random_stream(node) for node in self.read_nodes()]
        outputs = self.check_outputs(nodes)
        outer_values = self.outer_names - self.defined_names.union(*(node.outputs for node in nodes))
        nodes = keep_required_nodes(
            sort_topologically(nodes, self.defined_names | outer_values), [output.name for output in outputs]
        )
        nodes = self.drop_unread_outputs(nodes, {output.name for output in outputs})
        self.check_operand_counts(nodes)
        nodes = self.upgrade_nodes(nodes)
        all_reads = [name for node in nodes for name in node.reads] + [output.name for output in outputs]
        used = set(all_reads)
        if RANDOM_STATE in used and not self.outer:
            self.inputs.append(InputRecipe(RANDOM_STATE, "uint32", [4], []))
        constants = {name: constant for name, constant in self.constants.items() if name in used}
        unsupported = self.unsupported + [reason for name, reason in self.rejected_constants.items() if name in used]
        captured = [name for name in dict.fromkeys(all_reads) if name in outer_values]
        name = self.graph.name or self.file.name
        result_recipe = GraphRecipe(name, self.inputs, constants, nodes, outputs, unsupported, captured)
        return result_recipe._replace(overridable=self.overridable, defaults=self.defaults)


def _get_output_names(node: NodeProto, domain: str, name: str) -> list[str]:
    """Return the node's output names. Unnamed outputs of Split get a name, because their number is the number of chunks."""
    if (domain, node.op_type) != ("", "Split"):
        return strip_trailing_empty(list(node.output))
    return [output or f"{name}:{i}" for i, output in enumerate(node.output)]


def _get_optional_outputs(node: NodeRecipe, version: int) -> set[int]:
    """Return the indices of the node's optional outputs.

    ONNX Runtime's contrib operators have no schema here; all outputs but the first are optional. The exception is
    MultiHeadAttention, which needs its present outputs if it has a past, even if they are unused.
    """
    if node.domain == CONTRIB_DOMAIN:
        if node.op == "MultiHeadAttention":
            return set(range(3, len(node.outputs)))
        return set(range(1, len(node.outputs)))
    schema = None if node.domain else find_schema(node.op, version, "")
    return {i for i, role in enumerate(schema.outputs) if role.option == role.option.Optional} if schema else set()
