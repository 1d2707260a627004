"""The reference model: evaluates nodes in float64 with error bounds, independently of pumice's importer."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Collection, Container, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from ...base.element_types import Array, Index
from ...importer.file.graph_recipe import NodeRecipe
from ...importer.file.model_file import Folder, ModelFile, Source
from ...importer.file.node_names import make_node_names
from ...importer.file.node_order import keep_required_nodes, sort_topologically
from ...importer.onnx_functions import drop_opset_attribute, get_node_opset
from ...importer.parse_onnx import get_opsets, parse_model
from ...model.precision_policy import Precision, PrecisionPolicy, parse_policy
from ..rules.block_plans import ELEMENTWISE, READS_ATTRIBUTES, plan_blocks
from ..rules.bounded_tensor import (
    BoundedTensor,
    OperatorCall,
    RandomResultError,
    Rule,
    UndecidedError,
    UnprovedError,
    Value,
    find_rule,
    replace_overflow,
    round_to_storage,
    round_to_type,
)
from ..rules.float_types import FLOAT16, ProgramTypes, dtype_from_onnx, is_float
from ..rules.function_bodies import find_function_body
from ..rules.lazy_values import BlockAssembler, pack_value
from ..rules.program_values import (
    make_bounded_constant,
    make_scaled_constant,
    parse_attributes,
    read_constant_node,
    run_onnx_reference,
    strings_to_objects,
)
from ..rules.undecided_choices import evaluate_alternatives
from .imported_nodes import import_node

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto

    from ...base.string_table import TensorStringTable
    from ...importer.kernel_operator import KernelTable

_MAX_CACHE_BYTES = 64 << 20  # maximum total bytes of the cached arrays


class LruCache:
    """Maps keys to values. The least recently used values are evicted if the total exceeds `max_bytes`."""

    def __init__(self, max_bytes: int = _MAX_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: dict[Hashable, tuple[BoundedTensor, int]] = {}

    def get_or_compute(self, key: Hashable, make: Callable[[], BoundedTensor]) -> BoundedTensor:
        """Return the value of a key; on a miss, compute it with `make`."""
        entry = self._values.pop(key, None)
        if entry is None:
            value = make()
            size = value.value.nbytes + (0 if value.error is None else value.error.nbytes)
            if size > self._max_bytes:
                return value
            entry = value, size
            self._bytes += size
        self._values[key] = entry  # reinsert the entry as the most recently used
        while self._bytes > self._max_bytes:
            self._bytes -= self._values.pop(next(iter(self._values)))[1]
        return entry[0]


_RULE_MODULES = """
    attention comparisons_and_casts contrib control_flow data_movement detection elementwise encoders gemm_conv nnapi
    normalization onnx_ml pooling quantized recurrent reductions resampling sequences signal
"""
for _name in _RULE_MODULES.split():  # modules register their rules on import
    importlib.import_module(f"..rules.{_name}", __package__)

_MIN_REFERENCE_OPSET = 7  # oldest opset that onnx.reference supports; it evaluates operators without floats
# Operators for which the engine reports the number of additions in every sum; see LoweredNode::additions.
REPORTS_ADDITIONS = {
    *("Conv", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GroupNormalization", "InstanceNormalization"),
    *("LayerNormalization", "LogSoftmax", "MatMul", "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax"),
}
REREADS_RESULTS = {"DynamicQuantizeLinear"}  # operators whose kernels read back their own stored results
# Operators that compare or round their inputs. No kernel fuses them into a preceding sum. Casts to integers are
# treated in the same way, but not listed.
DECISION_OPERATORS = {
    *("ArgMax", "ArgMin", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual"),
    *("NonMaxSuppression", "NonZero", "Round", "Sign", "TopK", "Unique"),
}
RANDOM_OPERATORS = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


class KernelInfo(NamedTuple):
    """Properties of the device kernels that compute a node which is checked on its own.

    additions: longest chain of additions in their sums, from the program's plan; 0 if unknown. stored_results: their
    results by output name, for operators in `REREADS_RESULTS`. device_tensors: device tensors by output name; large
    reference outputs are kept as float32 differences from these.
    """

    additions: int = 0
    stored_results: Mapping[str, BoundedTensor] = MappingProxyType({})
    device_tensors: Mapping[str, Array] = MappingProxyType({})


NO_KERNEL_INFO = KernelInfo()


class BlockEvaluation(NamedTuple):
    """Block-by-block evaluation of a node with one output: its shape, the block indices, and a function that evaluates a block."""

    shape: tuple[int, ...]
    blocks: Iterator[Index]
    evaluate_block: Callable[[Index], BoundedTensor]


class RuleRunner:
    """Evaluates nodes by the rules, for a model with these opsets."""

    def __init__(self, opsets: Mapping[str, int], types: ProgramTypes) -> None:
        self.opsets = dict(opsets)
        self.types = types
        self.custom_rules: dict[str, Rule] = {}  # the caller's rules, which override the registry's
        self.imports_nodes = (
            True  # whether nodes without a rule are evaluated as the nodes that replace them in the engine
        )
        self._others: dict[str, RuleRunner] = {}
        # Keyed by id(node). The entry holds the node, so that the id stays valid.
        self._attributes: dict[int, tuple[NodeProto, dict[str, Any]]] = {}

    def at_precision(self, precision: str) -> RuleRunner:
        """Return a runner for nodes that compute at this precision."""
        if precision == self.types.precision:
            return self
        return self._others.setdefault(precision, self.with_types(self.types.at_precision(precision)))

    def with_types(self, types: ProgramTypes) -> RuleRunner:
        """Return a copy of the runner that uses other types."""
        runner = RuleRunner(self.opsets, types)
        runner.custom_rules, runner._attributes = self.custom_rules, self._attributes
        runner.imports_nodes = self.imports_nodes
        return runner

    def _get_attributes(self, node: NodeProto) -> dict[str, Any]:
        """Return the attributes of a node, parsed once."""
        if id(node) not in self._attributes:
            self._attributes[id(node)] = node, parse_attributes(node)
        return self._attributes[id(node)][1]

    def run_node(
        self,
        node: NodeProto,
        inputs: list[Value],
        outer: Mapping[str, Value],
        kernel_info: KernelInfo = NO_KERNEL_INFO,
    ) -> list[Value]:
        """Return the outputs of a node, rounded as the program stores them.

        kernel_info: properties of the kernels under test. Raise UnprovedError if no rule covers the node, or IndexError if an
        index is out of range.
        """
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if (block_evaluation := self.plan_blocks(node, inputs, outer, kernel_info)) is not None:
                assembler = BlockAssembler(block_evaluation.shape, kernel_info.device_tensors.get(node.output[0]))
                for index in block_evaluation.blocks:
                    assembler.add_block(index, block_evaluation.evaluate_block(index))
                return [assembler.assemble()]
            full_inputs = [item.materialize() if isinstance(item, BoundedTensor) else item for item in inputs]
            outputs = self._apply_rule(node, full_inputs, outer, kernel_info)
            outputs = [
                round_to_storage(item, self.types) if isinstance(item, BoundedTensor) else item for item in outputs
            ]
        if not kernel_info.device_tensors:
            return outputs
        names = [*node.output, *[""] * len(outputs)]
        return [
            pack_value(item, kernel_info.device_tensors.get(name)) if isinstance(item, BoundedTensor) else item
            for item, name in zip(outputs, names, strict=False)
        ]

    def plan_blocks(
        self,
        node: NodeProto,
        inputs: list[Value],
        outer: Mapping[str, Value],
        kernel_info: KernelInfo = NO_KERNEL_INFO,
    ) -> BlockEvaluation | None:
        """Return how to evaluate a node block by block; None if it cannot be. Blocks raise the same errors as `run_node`."""
        if node.domain not in ("", "ai.onnx") or node.op_type in self.custom_rules or not node.output[0]:
            return None
        attributes = self._get_attributes(node) if node.op_type in READS_ATTRIBUTES else {}
        plan = plan_blocks(node.op_type, self.opsets.get("", 1), attributes, inputs, len([*filter(None, node.output)]))
        if plan is None:
            return None

        def evaluate_block(index: Index) -> BoundedTensor:
            return round_to_storage(self._apply_rule(node, plan.inputs(index), outer, kernel_info)[0], self.types)

        return BlockEvaluation(plan.shape, plan.blocks, evaluate_block)

    def _apply_rule(
        self, node: NodeProto, inputs: list[Value], outer: Mapping[str, Value], kernel_info: KernelInfo
    ) -> list[Any]:
        if version := get_node_opset(node, 0):  # the node belongs to a function that imports another opset
            inner = self.with_types(self.types)
            inner.opsets = {**self.opsets, "": version}
            return inner._apply_rule(drop_opset_attribute(node), inputs, outer, kernel_info)
        if node.op_type in RANDOM_OPERATORS:
            raise RandomResultError
        if node.op_type == "Constant" and not node.domain:
            return [make_bounded_constant(read_constant_node(node), self.types)]
        domain = "" if node.domain == "ai.onnx" else node.domain
        name = f"{domain}::{node.op_type}" if domain else node.op_type
        try:
            return self._run_rule(node, name, domain, inputs, outer, kernel_info)
        except (UndecidedError, RandomResultError):
            raise
        except UnprovedError as reason:
            is_replaced = self.imports_nodes and name not in self.custom_rules
            graph = import_node(node, inputs, self.opsets) if is_replaced else None
            if graph is None:
                raise
            return self._run_imported_nodes(node, graph, inputs, str(reason))

    def _run_rule(
        self,
        node: NodeProto,
        name: str,
        domain: str,
        inputs: list[Value],
        outer: Mapping[str, Value],
        kernel_info: KernelInfo,
    ) -> list[Any]:
        rule = self.custom_rules.get(name) or find_rule(node.op_type, domain)
        if rule is None:
            return self._run_without_rule(node, inputs)
        opset = self.opsets.get(domain, 1)
        types = self.types.with_additions(kernel_info.additions) if name in REPORTS_ADDITIONS else self.types
        is_scaled = name == "Gemm" and len(inputs) > 1
        if types.is_float16 and (
            any(map(_exceeds_float16, inputs)) or (is_scaled and _alpha_exceeds_float16(node, inputs[1]))
        ):
            types = types.with_forced_fp32()
        if name in DECISION_OPERATORS or (
            name == "Cast" and not is_float(dtype_from_onnx(self._get_attributes(node)["to"]))
        ):
            inputs = [item.assume_unfused_sums() if isinstance(item, BoundedTensor) else item for item in inputs]
        call = OperatorCall(name, inputs, self._get_attributes(node), opset, types, len(node.output))
        call.node, call.opsets, call.run_graph, call.outer = node, self.opsets, self.run_graph, outer
        call.stored = [kernel_info.stored_results.get(output) for output in node.output]
        is_map = name in ELEMENTWISE and opset >= _MIN_REFERENCE_OPSET and name not in self.custom_rules
        try:
            outputs = rule(call)
            return evaluate_alternatives(rule, call, outputs) if is_map else outputs
        except (UnprovedError, IndexError):
            raise
        except (AssertionError, AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
            raise UnprovedError(f"the rule for {node.op_type} fails: {type(error).__name__}: {error}") from None

    def _run_without_rule(self, node: NodeProto, inputs: list[Value]) -> list[Any]:
        """Run onnx.reference if no tensor is a float, else the ONNX function body. Raise UnprovedError if there is no body."""
        try:
            return self._run_onnx_reference(node, inputs)
        except UndecidedError:
            raise
        except UnprovedError:
            opset = self.opsets.get("" if node.domain == "ai.onnx" else node.domain, 1)
            body = find_function_body(node, inputs, opset)
            if body is None:
                raise
        return self.run_function(body, inputs)

    def _run_imported_nodes(self, node: NodeProto, graph: GraphProto, inputs: list[Value], reason: str) -> list[Value]:
        """Return the outputs of the nodes that replace a node in the engine. Raise UnprovedError if one of them has no rule."""
        inner = self.with_types(self.types)
        inner.opsets, inner.imports_nodes = {**self.opsets, "": onnx.defs.onnx_opset_version()}, False
        try:
            outputs = iter(inner.run_graph(graph, inputs, {}))
        except UndecidedError:
            raise
        except (UnprovedError, KeyError) as error:
            raise UnprovedError(f"{reason}; of the nodes that replace it: {error}") from None
        return [next(outputs) if name else None for name in node.output]

    def run_function(self, body: FunctionProto, inputs: list[Value]) -> list[Value]:
        """Return the outputs of a function body with bound attributes. Raise UnprovedError if one of its nodes has no rule."""
        opsets = {"" if item.domain == "ai.onnx" else item.domain: item.version for item in body.opset_import}
        inner = self.with_types(self.types)
        inner.opsets = {**self.opsets, **opsets}
        values: dict[str, Value] = dict.fromkeys(body.input)
        values.update(zip(body.input, inputs, strict=False))
        for body_node in body.node:
            outputs = inner.run_node(
                body_node, [values.get(name) if name else None for name in body_node.input], values
            )
            values.update({name: item for name, item in zip(body_node.output, outputs, strict=False) if name})
        return [values.get(name) for name in body.output]

    def _run_onnx_reference(self, node: NodeProto, inputs: list[Value]) -> list[Any]:
        """Run an operator without a rule in onnx.reference. Without floats, its results are exact."""
        name = f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        arrays: list[Any] = []
        is_undecided = any(
            isinstance(item, BoundedTensor) and not item.is_float and not item.is_exact for item in inputs
        )
        for value in inputs:
            if isinstance(value, BoundedTensor) and value.is_float:
                raise UnprovedError(f"no rule for {name}")
            if isinstance(value, list):
                raise UnprovedError(f"no rule for {name}")
            arrays.append(None if value is None else value.value)
        if is_undecided:
            raise UndecidedError(f"{name} of integers that rounding may change")
        if self.opsets.get("", _MIN_REFERENCE_OPSET) < _MIN_REFERENCE_OPSET:
            raise UnprovedError(f"no rule for {name}")
        try:
            results = run_onnx_reference(node, arrays, self.opsets)
        except Exception as error:  # onnx.reference may raise any exception
            raise UnprovedError(f"no rule for {name}, and onnx's reference fails: {error}") from None
        outputs = [
            BoundedTensor(strings_to_objects(item)) if isinstance(item, np.ndarray) else item for item in results
        ]
        if any(not isinstance(item, BoundedTensor) or item.is_float for item in outputs):
            raise UnprovedError(f"no rule for {name}")
        return outputs

    def run_graph(self, graph: GraphProto, inputs: list[Value], outer: Mapping[str, Value]) -> list[Value]:
        """Return the outputs of a subgraph. outer: outer-scope values that its nodes may read."""
        values: dict[str, Value] = dict(outer)
        for tensor in graph.initializer:
            values[tensor.name] = make_bounded_constant(numpy_helper.to_array(tensor), self.types)
        values.update(zip((item.name for item in graph.input), inputs, strict=False))
        for node in graph.node:
            node_inputs = [values[name] if name else None for name in node.input]
            outputs = self.run_node(node, node_inputs, values)
            values.update({name: item for name, item in zip(node.output, outputs, strict=False) if name})
        return [values[item.name] for item in graph.output]


class UniformPrecisionRunner(RuleRunner):
    """Evaluates every node with this runner's types, whatever the node's own precision."""

    def at_precision(self, precision: str) -> RuleRunner:
        """Return self."""
        return self


_FLOAT16_OVERFLOW = 65520.0  # smallest value that rounds to infinity in float16


def _exceeds_float16(value: Value) -> bool:
    """Return whether a constant has a finite element beyond float16."""
    if not isinstance(value, BoundedTensor) or not value.constant or not value.is_float:
        return False

    def has_large_element() -> bool:
        sizes = np.abs(value.value)
        return bool((np.isfinite(sizes) & (sizes >= _FLOAT16_OVERFLOW)).any())

    return bool(value.memoize("wide", has_large_element))


def _alpha_exceeds_float16(node: NodeProto, b: Value) -> bool:
    """Return whether alpha * B overflows float16 or becomes subnormal, so that the engine computes the Gemm in float32."""
    alpha = float(parse_attributes(node).get("alpha", 1.0))
    if not isinstance(b, BoundedTensor) or not b.is_float or alpha == 1:
        return False
    sizes = np.abs(b.value[np.isfinite(b.value)]) if b.constant else np.ones(1)
    largest = float(sizes.max(initial=0.0))
    is_small = 0 < largest * abs(alpha) < FLOAT16.normal <= largest
    return largest * abs(alpha) >= _FLOAT16_OVERFLOW or is_small


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
        is_rounded = name in self.rounded_reads
        if name in self.saturated_reads:
            # A node with a float32 result may read the value before or after it is rounded and saturated.
            reads_either = self.float32 is not None and node.name in self.float32[1]
            if not reads_either:
                value, is_rounded = replace_overflow(value, storage.largest, storage.largest), True
            elif self.has_mixed_precision:
                is_rounded = not np.any(np.abs(value.value) > storage.largest)
        return round_to_type(value, storage, types) if is_rounded else value

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
