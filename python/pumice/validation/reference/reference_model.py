"""The reference model: evaluates nodes in float64 with error bounds, independently of pumice's importer."""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Mapping
from typing import TYPE_CHECKING, Any

import onnx
from onnx import numpy_helper

from ...base.element_types import Array
from ...importer.file.graph_recipe import NodeRecipe
from ...importer.file.model_file import Folder, ModelFile, Source
from ...importer.file.node_names import make_node_names
from ...importer.file.node_order import keep_required_nodes, sort_topologically
from ...importer.parse_onnx import get_opsets, parse_model
from ...model.precision_policy import Precision, PrecisionPolicy, parse_policy
from ..rules.bounded_tensor import BoundedTensor, Value, replace_overflow, round_to_type
from ..rules.float_types import ProgramTypes, is_float
from ..rules.lru_cache import LruCache
from ..rules.rule_runner import (
    NO_KERNEL_INFO,
    BlockEvaluation,
    KernelInfo,
    RuleRunner,
    make_bounded_constant,
    make_scaled_constant,
    read_constant_node,
)

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    from ...base.string_table import TensorStringTable
    from ...importer.kernel_operator import KernelTable


GEMM_AND_CONV = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
# Operators whose constants may be folded into the weights of the GEMM or convolution before them.
SCALING_OPERATORS = {"BatchNormalization", "Div", "Mul"}
# Maps an operator to the indices of float inputs that only the host reads.
_HOST_INPUT_INDICES = {"Range": (0, 1, 2), "Resize": (1, 2, 3), "Upsample": (1,)}
# Operators that only move the elements of a float tensor; the result has the storage type of the input.
_DATA_MOVEMENT = {
    *("DepthToSpace", "Expand", "Flatten", "Gather", "Reshape", "Slice"),
    *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}


def _find_subgraphs(node: NodeProto) -> list[GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]


def _find_outer_scope_values(graph: GraphProto) -> list[str]:
    """Return the names of the outer-scope values that a subgraph reads."""
    defined = {value.name for value in [*graph.input, *graph.initializer]}.union(*(node.output for node in graph.node))
    read = [name for node in graph.node for name in _list_all_inputs(node)] + [output.name for output in graph.output]
    return [name for name in read if name and name not in defined]


def _list_all_inputs(node: NodeProto) -> list[str]:
    return [*node.input, *(name for graph in _find_subgraphs(node) for name in _find_outer_scope_values(graph))]


def _sort_required_nodes(protos: Mapping[str, NodeProto], available: set[str], outputs: list[str]) -> list[NodeRecipe]:
    """Return the nodes that the outputs depend on, in execution order. available: values that need no producer."""
    recipes = [
        NodeRecipe(proto.op_type, name, _list_all_inputs(proto), list(proto.output), {})
        for name, proto in protos.items()
    ]
    return keep_required_nodes(sort_topologically(recipes, available), outputs)


class ReferenceNode:
    """A node of the model, which can be evaluated by the rules. Its inputs include the values that its subgraphs read."""

    def __init__(self, name: str, node: NodeProto) -> None:
        self.name = name
        self.op = node.op_type
        self.domain = "" if node.domain == "ai.onnx" else node.domain
        self.inputs = list(dict.fromkeys(filter(None, _list_all_inputs(node))))
        self.outputs = [output for output in node.output if output]
        # Whether this is a GEMM or convolution into whose weights the next node's constants may be folded.
        self.is_scaled = False
        # Whether it depends only on constants, so that it may be computed before the program runs.
        self.is_folded = False
        self.proto = node
        self.precision = "fp32"

    @property
    def operator(self) -> str:
        """The operator's name, with its domain unless that is ONNX's."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    def run(
        self,
        values: Mapping[str, Value],
        runner: RuleRunner,
        kernel_info: KernelInfo = NO_KERNEL_INFO,
    ) -> dict[str, Value]:
        """Return the node's outputs by name. Raise UnprovedError without a rule, IndexError if an index is out of range.

        kernel_info: properties of the kernels under test.
        """
        inputs = [values[name] if name else None for name in self.proto.input]
        results = runner.at_precision(self.precision).run_node(self.proto, inputs, values, kernel_info)
        return {name: value for name, value in zip(self.proto.output, results, strict=False) if name}

    def plan_blocks(
        self, values: Mapping[str, Value], runner: RuleRunner, kernel_info: KernelInfo
    ) -> BlockEvaluation | None:
        """Return how to evaluate the node block by block; None if it must be evaluated at once."""
        inputs = [values[name] if name else None for name in self.proto.input]
        return runner.at_precision(self.precision).plan_blocks(self.proto, inputs, values, kernel_info)


class ReferenceModel:
    """The nodes that the outputs depend on, in execution order, and the constants by name.

    precision: precision of the program under test, or its types. kernels: operators that run user kernels, with their
    references. rounded_reads: float32 values that a low-precision program rounds for some of their readers.
    saturated_reads: values that saturate when they are rounded: finite elements stay finite. strings: table that maps
    string indices to strings; None if the program has no strings.
    """

    def __init__(
        self,
        source: Source,
        folder: Folder | None = None,
        precision: Precision | ProgramTypes = "fp32",
        kernels: KernelTable | None = None,
    ) -> None:
        file = ModelFile(source, folder)
        model = parse_model(file, with_weights=True)
        graph = model.graph
        self._policy = policy = None if isinstance(precision, ProgramTypes) else parse_policy(precision)
        self.has_mixed_precision = policy is not None and not policy.is_uniform and policy.precision != "fp32"
        self.rounded_reads, self.saturated_reads = set[str](), set[str]()
        # Arguments of the last set_float32_nodes call.
        self.float32: tuple[Collection[str], Collection[str]] | None = None
        self.strings: TensorStringTable | None = None
        self.types = (
            precision if isinstance(precision, ProgramTypes) else ProgramTypes(parse_policy(precision).precision)
        )
        self.opsets = {domain: version for domain, version in get_opsets(model).items() if domain != "ai.onnx"}
        self.runner = RuleRunner(self.opsets, self.types)
        self.chained = RuleRunner(self.opsets, self.types.with_independent_errors())
        if kernels:
            from ..rules.user_kernel_rules import make_kernel_rules

            for runner in (self.runner, self.chained):
                runner.custom_rules.update(make_kernel_rules(kernels.operators))
        self._constant_cache = LruCache()
        data_folder = os.fspath(file.folder or "")
        self.constants = {tensor.name: numpy_helper.to_array(tensor, data_folder) for tensor in graph.initializer}
        protos = dict(zip(make_node_names(graph), graph.node, strict=True))
        inputs, self.outputs = ([value.name for value in values] for values in (graph.input, graph.output))
        ordered = _sort_required_nodes(protos, {*self.constants, *inputs}, self.outputs)
        for node in ordered:
            if node.op == "Constant":
                self.constants[node.outputs[0]] = read_constant_node(protos[node.name])
        self.nodes = [ReferenceNode(node.name, protos[node.name]) for node in ordered if node.op != "Constant"]
        self.host_inputs = self._find_host_inputs(inputs)
        self._mark_scalable_weights()
        self.precision = self._apply_precision_policy(policy)  # precision as described in reports

    def decode_strings(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Return tensors by name, with string indices replaced by strings."""
        return self.strings.decode_tensors(tensors) if self.strings else dict(tensors)

    def decode_string(self, name: str, tensor: Array) -> Array:
        """Return a tensor with string indices replaced by strings."""
        return self.decode_strings({name: tensor})[name]

    def select_case_inputs(self, case_inputs: Mapping[str, Any], program_inputs: Container[str]) -> dict[str, Any]:
        """Return a case's inputs, except those for constants that are no inputs of the program."""
        return {
            name: value for name, value in case_inputs.items() if name not in self.constants or name in program_inputs
        }

    def find_last_readers(self, results: Collection[str]) -> dict[int, list[str]]:
        """Return, for each node index, the values that this node reads last, except those in `results`."""
        last: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            for name in [*node.inputs, *node.outputs]:
                last[name] = index
        freed: dict[int, list[str]] = {}
        for name, index in last.items():
            if name not in results:
                freed.setdefault(index, []).append(name)
        return freed

    def _apply_precision_policy(self, policy: PrecisionPolicy | None) -> str:
        """Set the precision of each node, and return a description of the policy."""
        if policy is None:
            for node in self.nodes:
                node.precision = self.types.precision
            return self.types.precision
        self._propagate_float32(policy)
        num_fp32 = sum(policy.get_precision(node.name, node.operator) == "fp32" for node in self.nodes)
        mix = f" with {num_fp32} of {len(self.nodes)} nodes in fp32" if self.has_mixed_precision else ""
        return f"{policy.precision}{mix}"

    def set_float32_nodes(self, computed: Collection[str], stored: Collection[str]) -> None:
        """Mark as fp32 the nodes that the program computes in float32 although the policy does not name them.

        computed: names of these nodes, as in reports. stored: names of nodes with float32 results; those that only move
        elements become fp32 as well.
        """
        self.float32 = computed, stored
        if self._policy is not None and (computed or self.has_mixed_precision):
            self.has_mixed_precision = True
            self._propagate_float32(self._policy)

    def _propagate_float32(self, policy: PrecisionPolicy) -> None:
        """Set the precision of each node. Nodes that only move elements take the precision of their input."""
        float32_values: set[str] = set()
        for node in self.nodes:
            is_float32 = self._is_float32(node, node.name, float32_values)
            node.precision = "fp32" if is_float32 else policy.get_precision(node.name, node.operator)
            if node.precision == "fp32":
                float32_values.update(node.outputs)
        self._mark_folded_float32()

    def _is_float32(self, node: ReferenceNode, name: str, float32_values: Collection[str]) -> bool:
        """Return whether a node is fp32: the report lists `name`, or it only moves the elements of a float32 value."""
        computed, stored = self.float32 or ((), None)
        moves = node.op in _DATA_MOVEMENT and not node.domain and node.inputs[0] in float32_values
        return name in computed or (moves and (stored is None or name in stored))

    def _mark_folded_float32(self) -> None:
        """Mark folded nodes as fp32 if only fp32 nodes read their results."""
        needed = set(self.outputs)
        for node in reversed(self.nodes):
            if node.is_folded and needed.isdisjoint(node.outputs):
                node.precision = "fp32"
            if node.precision != "fp32":
                needed.update(node.inputs)

    def get_types(self, name: str, types: ProgramTypes) -> ProgramTypes:
        """Return the types for the precision of the node that computes the value `name`."""
        precision = next((node.precision for node in self.nodes if name in node.outputs), types.precision)
        return types.at_precision(precision) if self.has_mixed_precision else types

    def read_value(self, node: ReferenceNode, name: str, value: Value, types: ProgramTypes) -> Value:
        """Return a value as a node reads it. Some nodes round float32 inputs."""
        if node.is_scaled and types.independent_errors and name in self.constants and isinstance(value, BoundedTensor):
            return make_scaled_constant(value, types)
        if node.precision == "fp32" or not isinstance(value, BoundedTensor) or not value.is_float:
            return value
        storage = types.get_storage_type(value.dtype)
        if name in self.saturated_reads and not (self.float32 and node.name in self.float32[1]):
            return round_to_type(replace_overflow(value, storage.largest, storage.largest), storage, types)
        return round_to_type(value, storage, types) if name in self.rounded_reads else value

    def _mark_scalable_weights(self) -> None:
        """Mark folded nodes, and GEMMs and convolutions into whose weights their only reader's constants may be folded."""
        self._mark_folded_nodes()
        readers: dict[str, list[ReferenceNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        for node in self.nodes:
            after = readers.get(node.outputs[0], []) if node.op in GEMM_AND_CONV and node.outputs else []
            node.is_scaled = (
                len(after) == 1 and after[0].op in SCALING_OPERATORS and node.outputs[0] not in self.outputs
            )

    def _find_host_inputs(self, inputs: list[str]) -> set[str]:
        """Return the inputs that only the host reads, such as scales and limits. Programs do not round these."""
        on_device = {
            name
            for node in self.nodes
            for index, name in enumerate(node.proto.input)
            if index not in _HOST_INPUT_INDICES.get(node.op, ())
        }
        read = {name for node in self.nodes for name in node.proto.input}
        captured = {
            name
            for node in self.nodes
            for graph in _find_subgraphs(node.proto)
            for name in _find_outer_scope_values(graph)
        }
        return {name for name in inputs if name in read} - on_device - captured - {*self.outputs}

    def _mark_folded_nodes(self) -> None:
        known_values = set(self.constants)
        for node in self.nodes:
            node.is_folded = bool(node.inputs) and known_values.issuperset(node.inputs)
            if node.is_folded:
                known_values.update(node.outputs)

    def get_constant(self, name: str, runner: RuleRunner | None = None) -> Value:
        """Return a constant as the program stores it."""
        array, types = self.constants[name], (runner or self.runner).types

        def make_constant() -> BoundedTensor:
            value = make_bounded_constant(array, types)
            value.memo = {}
            return value

        type_name = types.get_constant_type(array.dtype).name if is_float(array.dtype) else ""
        return self._constant_cache.get_or_compute((name, type_name, types.constant_rounding), make_constant)


class ReferenceSubgraph(ReferenceModel):
    """The nodes of a loop body or branch. By default, they have the precision of the node that runs it."""

    def __init__(self, outer: ReferenceModel, graph: GraphProto, node: ReferenceNode, path: str = "") -> None:
        """Create the reference of a subgraph. path: name of the graph in reports."""
        self.has_mixed_precision = outer.has_mixed_precision
        self.float32 = outer.float32
        self.types = outer.types.at_precision(node.precision)
        # The inputs of the graph are stored in float32.
        graph_inputs = {value.name for value in graph.input} if outer.has_mixed_precision else set[str]()
        self.rounded_reads = outer.rounded_reads | graph_inputs
        self.saturated_reads = outer.saturated_reads
        self.host_inputs = set()
        self.strings = outer.strings
        self.opsets, self.precision = outer.opsets, node.precision
        self.runner = outer.runner.at_precision(node.precision)
        self.chained = outer.chained.at_precision(node.precision)
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._constant_cache = LruCache()
        self.constants = {**outer.constants, **constants}
        self.outputs = [value.name for value in graph.output]
        self.nodes = []
        float32: set[str] = set()  # names of float32 results
        for name, proto in zip(make_node_names(graph), graph.node, strict=True):
            if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
                self.constants[proto.output[0]] = read_constant_node(proto)
            else:
                self.nodes.append(ReferenceNode(name, proto))
                is_float32 = self._is_float32(self.nodes[-1], f"{path}/{name}", float32)
                self.nodes[-1].precision = "fp32" if is_float32 else node.precision
                float32.update(proto.output if self.nodes[-1].precision == "fp32" else ())
        self._mark_folded_nodes()
