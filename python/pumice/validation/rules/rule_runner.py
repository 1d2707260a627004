"""Evaluates ONNX nodes and graphs on bounded tensors by the rules."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.element_types import Array, Index
from ...importer.onnx_functions import drop_opset_attribute, get_node_opset
from .block_plans import ELEMENTWISE, READS_ATTRIBUTES, plan_blocks
from .bounded_tensor import (
    BoundedTensor,
    OperatorCall,
    Rule,
    UndecidedError,
    UnprovedError,
    Value,
    compute_storage_distance,
    find_rule,
    round_to_storage,
)
from .float_types import FLOAT16, FloatType, ProgramTypes, dtype_from_onnx, dtype_name, is_float
from .function_bodies import find_function_body
from .lazy_values import BlockAssembler, pack_value
from .undecided_choices import evaluate_alternatives

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto

_RULE_MODULES = """
    attention comparisons_and_casts contrib control_flow data_movement detection elementwise encoders gemm_conv nnapi
    normalization onnx_ml pooling quantized recurrent reductions resampling sequences signal
"""
for _name in _RULE_MODULES.split():  # modules register their rules on import
    importlib.import_module(f"{__package__}.{_name}")

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


def parse_attributes(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node as Python values: tensors as arrays, strings as str."""
    attributes_by_name: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [item.decode(errors="replace") for item in value]
        attributes_by_name[attribute.name] = value
    return attributes_by_name


# Storage type -> the types that it represents exactly.
_EXACTLY_REPRESENTABLE_TYPES = {
    "float32": ("float16", "bfloat16", "float32"),
    "float16": ("float16",),
    "bfloat16": ("bfloat16",),
}


def _compute_storage_distance(array: Array, exact_value: Array, storage: FloatType) -> Array | None:
    """Return each value's distance to the nearest number of the type; None if the type represents all values."""
    return (
        None
        if dtype_name(array.dtype) in _EXACTLY_REPRESENTABLE_TYPES.get(storage.name, ())
        else compute_storage_distance(exact_value, storage)
    )


def make_bounded_constant(array: Array, types: ProgramTypes) -> BoundedTensor:
    """Return a constant whose bound covers rounding it to storage and leaving it exact (V5).

    Kernels read some constants in float32, and GEMM operands in the storage type. A node with a constant beyond float16
    computes in float32. Constants beyond bfloat16 saturate.
    """
    if not is_float(array.dtype):
        return BoundedTensor(array, None, array.dtype, constant=True)
    exact_value = np.asarray(array, np.float64)
    storage = types.get_constant_type(array.dtype)
    if types.constant_rounding == "rounded":
        return BoundedTensor(storage.store_constant(exact_value), None, array.dtype, stored=True, constant=True)
    if types.constant_rounding == "scaled":
        return BoundedTensor(exact_value, np.abs(exact_value) * storage.unit + storage.step, array.dtype, stored=True)
    return BoundedTensor(
        exact_value, _compute_storage_distance(array, exact_value, storage), array.dtype, stored=True, constant=True
    )


def make_scaled_constant(value: BoundedTensor, types: ProgramTypes) -> BoundedTensor:
    """Return a constant whose bound covers multiplying it by another constant before it is rounded to storage."""
    storage = types.get_storage_type(value.dtype)
    if not value.is_float or storage.unit <= 2.0**-24:
        return value
    return BoundedTensor(value.value, np.abs(value.value) * storage.unit + storage.step, value.dtype, stored=True)


def read_constant_node(node: NodeProto) -> Array:
    """Return the value of a Constant node."""
    (attribute,) = node.attribute
    value = parse_attributes(node)[attribute.name]
    if attribute.name == "sparse_value":
        values, indices = numpy_helper.to_array(value.values), numpy_helper.to_array(value.indices)
        dense = np.zeros(list(value.dims), values.dtype)
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
        dense.reshape(-1)[flat] = values
        return dense
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    is_string = attribute.name in ("value_string", "value_strings")
    return np.asarray(value, object if is_string else kinds.get(attribute.name))


def make_bounded_input(array: Any, types: ProgramTypes) -> Value:
    """Return a model input with the error of rounding it to storage."""
    if isinstance(array, list | tuple):
        return [make_bounded_input(item, types) for item in array]
    if array is None:
        return None
    array = np.asarray(array)
    if not is_float(array.dtype):
        return _make_exact_value(array)
    exact_value = np.asarray(array, np.float64)
    return BoundedTensor(
        exact_value,
        _compute_storage_distance(array, exact_value, types.get_storage_type(array.dtype)),
        array.dtype,
        stored=True,
    )


def make_bounded_device_tensor(array: Array, types: ProgramTypes) -> BoundedTensor:
    """Return a device tensor with its read-back error: reading a float32 tensor back in 16 bits rounds it once."""
    if not is_float(array.dtype):
        return BoundedTensor(array, None, array.dtype)
    storage, read = types.get_storage_type(array.dtype), types.get_read_back_type(array.dtype)
    value = np.asarray(array, np.float64)
    if read.unit < storage.unit or (read == storage and not read.is_16_bit):
        # The program keeps some tensors in float32, and some kernels round what they read.
        return BoundedTensor(value, _compute_storage_distance(array, value, storage), array.dtype, stored=True)
    error = np.abs(value) * read.unit + read.step
    return BoundedTensor(
        value, np.where(np.isinf(value), np.inf, np.where(np.isnan(value), 0.0, error)), array.dtype, stored=True
    )


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
            raise UnprovedError("random numbers, which are not compared")
        if node.op_type == "Constant" and not node.domain:
            return [make_bounded_constant(read_constant_node(node), self.types)]
        domain = "" if node.domain == "ai.onnx" else node.domain
        name = f"{domain}::{node.op_type}" if domain else node.op_type
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
            raise UndecidedError(f"{name} of undecided numbers")
        if self.opsets.get("", _MIN_REFERENCE_OPSET) < _MIN_REFERENCE_OPSET:
            raise UnprovedError(f"no rule for {name}")
        try:
            results = run_onnx_reference(node, arrays, self.opsets)
        except Exception as error:  # onnx.reference may raise any exception
            raise UnprovedError(f"no rule for {name}, and onnx's reference fails: {error}") from None
        outputs = [_make_exact_value(item) if isinstance(item, np.ndarray) else item for item in results]
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


def _make_exact_value(array: Array) -> BoundedTensor:
    """Return an array of non-float elements as a BoundedTensor; strings become objects."""
    return BoundedTensor(array.astype(object) if array.dtype.kind in "UT" else array)


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


def run_onnx_reference(node: NodeProto, arrays: list[Any], opsets: Mapping[str, int]) -> list[Any]:
    """Run a node in onnx.reference. Raise whatever onnx.reference raises."""
    from onnx.reference import ReferenceEvaluator

    names = [name for name, array in zip(node.input, arrays, strict=False) if name and array is not None]
    feeds = {name: array for name, array in zip(node.input, arrays, strict=False) if name and array is not None}
    single_node = onnx.NodeProto()
    single_node.CopyFrom(node)
    inputs = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names)]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([single_node], "one", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports)).run(None, feeds)
    result_iterator = iter(results)
    return [next(result_iterator) if name else None for name in node.output]
