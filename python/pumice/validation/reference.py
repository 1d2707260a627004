"""A model's nodes, evaluated in float64 with bounds by the rules of `bounds`, without pumice's importer."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper

from ..base.element_types import Array
from ..importer.file.model_file import Folder, ModelFile, Source
from ..importer.file.node_names import node_names
from ..importer.file.node_order import in_order, needed
from ..importer.file.recipe import NodeRecipe
from ..importer.parse import opsets, parse
from ..model.precision_policy import Policy, Precision, policy_of
from .bounds.bounded import Bounded, replace_beyond, rounded_to
from .bounds.lru_cache import Recent
from .bounds.registry import Value
from .bounds.rule_runner import NOTHING, Evaluation, Runner, Told, constant, constant_of, scaled_constant
from .bounds.float_types import Types, is_float

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    from ..base.string_indices import KeptStrings
    from ..importer.kernel_operator import KernelTable


PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
SCALES = {"BatchNormalization", "Div", "Mul"}  # their constants may be folded into constants of GEMMs and convolutions
# Operator -> indices of float inputs that only the host reads.
_HOST_INPUTS = {"Range": (0, 1, 2), "Resize": (1, 2, 3), "Upsample": (1,)}
# Operators that only move a float tensor's elements; their result keeps the storage type of the input.
_MOVES = {
    *("DepthToSpace", "Expand", "Flatten", "Gather", "Reshape", "Slice"),
    *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}


def _subgraphs(node: NodeProto) -> list[GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]


def _captured(graph: GraphProto) -> list[str]:
    """Return a subgraph's outer-scope values."""
    own = {value.name for value in [*graph.input, *graph.initializer]}.union(*(node.output for node in graph.node))
    read = [name for node in graph.node for name in _reads(node)] + [output.name for output in graph.output]
    return [name for name in read if name and name not in own]


def _reads(node: NodeProto) -> list[str]:
    return [*node.input, *(name for graph in _subgraphs(node) for name in _captured(graph))]


class ReferenceNode:
    """One node: its inputs, including those of subgraphs, its outputs, and how to evaluate it."""

    def __init__(self, name: str, node: NodeProto) -> None:
        self.name = name
        self.op = node.op_type
        self.domain = "" if node.domain == "ai.onnx" else node.domain
        self.inputs = list(dict.fromkeys(filter(None, _reads(node))))
        self.outputs = [output for output in node.output if output]
        # Whether this is a GEMM or convolution whose weights may be multiplied by the next node's constants.
        self.is_scaled = False
        self.folded = False  # whether it depends only on constants, so it may be computed before the program runs
        self.proto = node
        self.precision = "fp32"

    @property
    def operator(self) -> str:
        """The operator, with its domain unless that is ONNX's."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    def run(self, values: Mapping[str, Value], runner: Runner, told: Told = NOTHING) -> dict[str, Value]:
        """Return the node's outputs by name. Raise Unproved without a rule, IndexError if an index is out of range.

        told: facts about the kernels under test.
        """
        given = [values[name] if name else None for name in self.proto.input]
        made = runner.at(self.precision).node(self.proto, given, values, told)
        return {name: one for name, one in zip(self.proto.output, made, strict=False) if name}

    def by_blocks(self, values: Mapping[str, Value], runner: Runner, told: Told) -> Evaluation | None:
        """Return how to evaluate the node block by block, or None to evaluate it at once."""
        given = [values[name] if name else None for name in self.proto.input]
        return runner.at(self.precision).by_blocks(self.proto, given, values, told)


class Reference:
    """The nodes that the outputs depend on, in execution order, and the constants by name.

    precision: precision of the program under test, or its types. kernels: operators that run user kernels, with their
    references.
    narrowed: float32 values that a low-precision program rounds for some of their readers. saturated: values whose
    finite elements are rounded to finite ones. strings: maps string indices to strings; None if the program has none.
    """

    def __init__(
        self,
        source: Source,
        folder: Folder | None = None,
        precision: Precision | Types = "fp32",
        kernels: KernelTable | None = None,
    ) -> None:
        file = ModelFile(source, folder)
        model = parse(file, whole=True)
        self._policy = policy = None if isinstance(precision, Types) else policy_of(precision)
        self.mixed = policy is not None and not policy.is_plain and policy.precision != "fp32"
        self.narrowed, self.saturated = set[str](), set[str]()
        self.float32: tuple[Collection[str], Collection[str]] | None = None  # see keep_float32
        self.strings: KeptStrings | None = None
        self.types = precision if isinstance(precision, Types) else Types(policy_of(precision).precision)
        self.opsets = {domain: version for domain, version in opsets(model).items() if domain != "ai.onnx"}
        self.runner = Runner(self.opsets, self.types)
        self.chained = Runner(self.opsets, self.types.as_independent())
        if kernels:
            from .user_kernel_rules import rules_of

            for runner in (self.runner, self.chained):
                runner.operators.update(rules_of(kernels.operators))
        self._recent = Recent()
        self.constants: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor, os.fspath(file.folder or ""))
            for tensor in model.graph.initializer
        }
        protos = dict(zip(node_names(model.graph), model.graph.node, strict=True))
        inputs, self.outputs = ([value.name for value in one] for one in (model.graph.input, model.graph.output))
        recipes = [NodeRecipe(node.op_type, name, _reads(node), list(node.output), {}) for name, node in protos.items()]
        ordered = needed(in_order(recipes, {*self.constants, *inputs}), self.outputs)
        for node in ordered:
            if node.op == "Constant":
                self.constants[node.outputs[0]] = constant_of(protos[node.name])
        self.nodes = [ReferenceNode(node.name, protos[node.name]) for node in ordered if node.op != "Constant"]
        self.host_inputs = self._read_by_the_host(inputs)
        self._mark_scaled()
        self.precision = self._mark_policy(policy)  # a description

    def texts(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Return a program's tensors by name, with string indices replaced by strings."""
        return self.strings.texts(tensors) if self.strings else dict(tensors)

    def text(self, name: str, tensor: Array) -> Array:
        """Return a tensor with string indices replaced by strings."""
        return self.texts({name: tensor})[name]

    def last_readers(self, results: Collection[str]) -> dict[int, list[str]]:
        """Map each node index to the values that no later node reads, except `results`."""
        last: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            for name in [*node.inputs, *node.outputs]:
                last[name] = index
        freed: dict[int, list[str]] = {}
        for name, index in last.items():
            if name not in results:
                freed.setdefault(index, []).append(name)
        return freed

    def _mark_policy(self, policy: Policy | None) -> str:
        """Set each node's precision, and return a description."""
        if policy is None:
            for node in self.nodes:
                node.precision = self.types.precision
            return self.types.precision
        self._mark_float32(policy)
        wide = sum(policy.of(node.name, node.operator) == "fp32" for node in self.nodes)
        mix = f" with {wide} of {len(self.nodes)} nodes in fp32" if self.mixed else ""
        return f"{policy.precision}{mix}"

    def keep_float32(self, computed: Collection[str], stored: Collection[str]) -> None:
        """Set the nodes to fp32 that the program computes in float32 although the policy does not name them.

        computed, stored: names as in reports. stored: nodes whose results are float32; those that only move elements
        become fp32.
        """
        self.float32 = computed, stored
        if self._policy is not None and (computed or self.mixed):
            self.mixed = True
            self._mark_float32(self._policy)

    def _mark_float32(self, policy: Policy) -> None:
        """Set each node's precision; nodes that only move elements have their input's precision."""
        made: set[str] = set()
        for node in self.nodes:
            is_float32 = self._is_float32(node, node.name, made)
            node.precision = "fp32" if is_float32 else policy.of(node.name, node.operator)
            if node.precision == "fp32":
                made.update(node.outputs)
        self._mark_folded_float32()

    def _is_float32(self, node: ReferenceNode, name: str, made: Collection[str]) -> bool:
        """Whether a node is fp32: listed under `name` in the report, or moving a float32 result in `made`."""
        computed, stored = self.float32 or ((), None)
        moves = node.op in _MOVES and not node.domain and node.inputs[0] in made
        return name in computed or (moves and (stored is None or name in stored))

    def _mark_folded_float32(self) -> None:
        """Set folded results to fp32 if only fp32 nodes read them; those nodes have separate copies."""
        left = set(self.outputs)
        for node in reversed(self.nodes):
            if node.folded and left.isdisjoint(node.outputs):
                node.precision = "fp32"
            if node.precision != "fp32":
                left.update(node.inputs)

    def types_of(self, name: str, types: Types) -> Types:
        """Return the types of the node that computes a value."""
        precision = next((node.precision for node in self.nodes if name in node.outputs), types.precision)
        return types.at(precision) if self.mixed else types

    def read(self, node: ReferenceNode, name: str, value: Value, types: Types) -> Value:
        """Return a value as a node reads it. Some nodes round float32 inputs; for a candidate it is unknown whether it
        does.
        """
        if node.is_scaled and types.independent and name in self.constants and isinstance(value, Bounded):
            return scaled_constant(value, types)
        if node.precision == "fp32" or not isinstance(value, Bounded) or not value.is_float:
            return value
        kept = types.storage(value.dtype)
        if name in self.saturated and not (self.float32 and node.name in self.float32[1]):
            return rounded_to(replace_beyond(value, kept.largest, kept.largest), kept, types)
        return rounded_to(value, kept, types) if name in self.narrowed else value

    def _mark_scaled(self) -> None:
        """Mark folded nodes, and GEMMs and convolutions whose only reader multiplies by constants, which may be folded."""
        self._mark_folded()
        readers: dict[str, list[ReferenceNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        for node in self.nodes:
            after = readers.get(node.outputs[0], []) if node.op in PRODUCTS and node.outputs else []
            node.is_scaled = len(after) == 1 and after[0].op in SCALES and node.outputs[0] not in self.outputs

    def _read_by_the_host(self, inputs: list[str]) -> set[str]:
        """Return inputs that only the host reads, such as scales and limits; no program rounds them."""
        on_device = {
            name
            for node in self.nodes
            for index, name in enumerate(node.proto.input)
            if index not in _HOST_INPUTS.get(node.op, ())
        }
        read = {name for node in self.nodes for name in node.proto.input}
        captured = {name for node in self.nodes for graph in _subgraphs(node.proto) for name in _captured(graph)}
        return {name for name in inputs if name in read} - on_device - captured - {*self.outputs}

    def _mark_folded(self) -> None:
        given = set(self.constants)
        for node in self.nodes:
            node.folded = bool(node.inputs) and given.issuperset(node.inputs)
            if node.folded:
                given.update(node.outputs)

    def held(self, name: str, runner: Runner | None = None) -> Value:
        """Return a constant as the program stores it."""
        array, types = self.constants[name], (runner or self.runner).types

        def make() -> Bounded:
            made = constant(array, types)
            made.memo = {}
            return made

        kept = types.constant(array.dtype).name if is_float(array.dtype) else ""
        return self._recent.of((name, kept, types.constants), make)


class BodyReference(Reference):
    """The nodes of a loop body or branch, by default at the precision of the node that runs it."""

    def __init__(self, outer: Reference, graph: GraphProto, node: ReferenceNode, path: str = "") -> None:
        """Create the reference. path: the name of the graph in reports."""
        self.mixed, self.types, self.float32 = outer.mixed, outer.types.at(node.precision), outer.float32
        entering = {value.name for value in graph.input} if outer.mixed else set[str]()  # values stored in float32
        self.narrowed, self.saturated, self.host_inputs = outer.narrowed | entering, outer.saturated, set()
        self.strings = outer.strings
        self.opsets, self.precision = outer.opsets, node.precision
        self.runner, self.chained = outer.runner.at(node.precision), outer.chained.at(node.precision)
        own = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._recent = Recent()
        self.constants = {**outer.constants, **own}
        self.outputs = [value.name for value in graph.output]
        self.nodes = []
        float32: set[str] = set()  # float32 results
        for name, proto in zip(node_names(graph), graph.node, strict=True):
            if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
                self.constants[proto.output[0]] = constant_of(proto)
            else:
                self.nodes.append(ReferenceNode(name, proto))
                is_float32 = self._is_float32(self.nodes[-1], f"{path}/{name}", float32)
                self.nodes[-1].precision = "fp32" if is_float32 else node.precision
                float32.update(proto.output if self.nodes[-1].precision == "fp32" else ())
        self._mark_folded()
