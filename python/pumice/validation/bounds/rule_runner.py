"""Runs ONNX nodes and graphs by the rules, on bounded values."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.element_types import Array
from ...importer.onnx_functions import unversioned, version_of
from .lazy_values import Collector, packed
from .blockwise import MAPS, READS_ATTRIBUTES, blockwise
from .bounded import Bounded, apart, stored
from .undecided_choices import with_choices
from .block_ranges import Index
from .decisions import dtype_of
from .registry import Call, Rule, Undecided, Unproved, Value, rule_of
from .function_bodies import definition
from .float_types import FLOAT16, FloatType, Types, is_float, name_of

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto

_RULES = """
    attention boxes contrib control decisions dynamic_lstm gathered_blocks learners maps movement norms own_rows pools quantized
    recurrent reductions resampling sequences signal strings sums
"""
for _name in _RULES.split():  # the modules register their rules on import
    importlib.import_module(f"{__package__}.{_name}")

_OLDEST = 7  # oldest opset of onnx's reference, which runs operators without floats
# Operators for which the engine reports the additions of every sum; see LoweredNode::additions.
TOLD = {
    *("Conv", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GroupNormalization", "InstanceNormalization"),
    *("LayerNormalization", "LogSoftmax", "MatMul", "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax"),
}
REREAD = {"DynamicQuantizeLinear"}  # kernels that read back their own stored results
# Operators that compare or round their inputs, which are never folded into a preceding sum. Cast to integers is
# not listed, but treated in the same way.
CHOOSES = {
    *("ArgMax", "ArgMin", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual"),
    *("NonMaxSuppression", "NonZero", "Round", "Sign", "TopK", "Unique"),
}
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node as Python values: tensors as arrays, strings as str."""
    made: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [one.decode(errors="replace") for one in value]
        made[attribute.name] = value
    return made


# Types that are subsets of a type.
_HELD = {"float32": ("float16", "bfloat16", "float32"), "float16": ("float16",), "bfloat16": ("bfloat16",)}


def _apart(array: Array, exact: Array, kept: FloatType) -> Array | None:
    """Return the distance to the nearest number of the type; None if all are representable."""
    return None if name_of(array.dtype) in _HELD.get(kept.name, ()) else apart(exact, kept)


def constant(array: Array, types: Types) -> Bounded:
    """Return a constant, which may be exact or rounded to storage (V5). Kernels keep some constants in float32 and GEMM
    operands in the storage type.

    A node with a constant beyond float16 computes in float32. Constants beyond bfloat16 saturate.
    """
    if not is_float(array.dtype):
        return Bounded(array, None, array.dtype, constant=True)
    exact = np.asarray(array, np.float64)
    kept = types.constant(array.dtype)
    if types.constants == "rounded":
        return Bounded(kept.held(exact), None, array.dtype, stored=True, constant=True)
    if types.constants == "scaled":
        return Bounded(exact, np.abs(exact) * kept.unit + kept.step, array.dtype, stored=True)
    return Bounded(exact, _apart(array, exact, kept), array.dtype, stored=True, constant=True)


def scaled_constant(value: Bounded, types: Types) -> Bounded:
    """Return a constant whose bound allows multiplication by another constant before it is rounded to storage."""
    kept = types.storage(value.dtype)
    if not value.is_float or kept.unit <= 2.0**-24:
        return value
    return Bounded(value.value, np.abs(value.value) * kept.unit + kept.step, value.dtype, stored=True)


def constant_of(node: NodeProto) -> Array:
    """Return the array of a Constant node."""
    (attribute,) = node.attribute
    value = attributes_of(node)[attribute.name]
    if attribute.name == "sparse_value":
        values, indices = numpy_helper.to_array(value.values), numpy_helper.to_array(value.indices)
        dense = np.zeros(list(value.dims), values.dtype)
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
        dense.reshape(-1)[flat] = values
        return dense
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    is_text = attribute.name in ("value_string", "value_strings")
    return np.asarray(value, object if is_text else kinds.get(attribute.name))


def given_input(array: Any, types: Types) -> Value:
    """Return a model input with the error from storing it."""
    if isinstance(array, list | tuple):
        return [given_input(one, types) for one in array]
    if array is None:
        return None
    array = np.asarray(array)
    if not is_float(array.dtype):
        return _exact(array)
    exact = np.asarray(array, np.float64)
    return Bounded(exact, _apart(array, exact, types.storage(array.dtype)), array.dtype, stored=True)


def from_device(array: Array, types: Types) -> Bounded:
    """Return a device tensor. Read-back in 16 bits may hide a float32 value, which is then known to within one
    rounding.
    """
    if not is_float(array.dtype):
        return Bounded(array, None, array.dtype)
    kept, read = types.storage(array.dtype), types.read_back(array.dtype)
    value = np.asarray(array, np.float64)
    if read.unit < kept.unit or (read == kept and not read.is_half):
        # Some tensors are kept in float32, and some kernels round their inputs.
        return Bounded(value, _apart(array, value, kept), array.dtype, stored=True)
    error = np.abs(value) * read.unit + read.step
    return Bounded(
        value, np.where(np.isinf(value), np.inf, np.where(np.isnan(value), 0.0, error)), array.dtype, stored=True
    )


class Told(NamedTuple):
    """Facts about the kernels of a node that is checked on its own.

    additions: longest chain in their sums, from the program's plan; 0 if unknown. stored: their results by output name,
    for operators in `REREAD`. beside: device tensors by output name; large reference outputs are kept as float32
    differences from them.
    """

    additions: int = 0
    stored: Mapping[str, Bounded] = MappingProxyType({})
    beside: Mapping[str, Array] = MappingProxyType({})


NOTHING = Told()


class Evaluation(NamedTuple):
    """A node whose only output is evaluated block by block: shape, block indices, and the function of a block."""

    shape: tuple[int, ...]
    blocks: Iterator[Index]
    block: Callable[[Index], Bounded]


class Runner:
    """Evaluates nodes by the rules, with a model's opsets."""

    def __init__(self, opsets: Mapping[str, int], types: Types) -> None:
        self.opsets = dict(opsets)
        self.types = types
        self.operators: dict[str, Rule] = {}  # the caller's rules, which override the table
        self._others: dict[str, Runner] = {}
        # By id(node); the node is stored to keep the id valid.
        self._attributes: dict[int, tuple[NodeProto, dict[str, Any]]] = {}

    def at(self, precision: str) -> Runner:
        """Return a runner for nodes at another precision."""
        if precision == self.types.precision:
            return self
        return self._others.setdefault(precision, self.with_types(self.types.at(precision)))

    def with_types(self, types: Types) -> Runner:
        """Return a runner with the same operators and other types."""
        made = Runner(self.opsets, types)
        made.operators, made._attributes = self.operators, self._attributes
        return made

    def _attributes_of(self, node: NodeProto) -> dict[str, Any]:
        """Return the attributes of a node, parsed once."""
        if id(node) not in self._attributes:
            self._attributes[id(node)] = node, attributes_of(node)
        return self._attributes[id(node)][1]

    def node(
        self, node: NodeProto, inputs: list[Value], outer: Mapping[str, Value], told: Told = NOTHING
    ) -> list[Value]:
        """Return the outputs of a node, rounded as the program stores them. Raise Unproved if no rule covers the node,
        or IndexError if an index is out of range.

        told: facts about the kernels under test.
        """
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if (found := self.by_blocks(node, inputs, outer, told)) is not None:
                joined = Collector(found.shape, told.beside.get(node.output[0]))
                for index in found.blocks:
                    joined.add(index, found.block(index))
                return [joined.value()]
            whole = [one.whole() if isinstance(one, Bounded) else one for one in inputs]
            made = self._made(node, whole, outer, told)
            made = [stored(one, self.types) if isinstance(one, Bounded) else one for one in made]
        if not told.beside:
            return made
        names = [*node.output, *[""] * len(made)]
        return [
            packed(one, told.beside.get(name)) if isinstance(one, Bounded) else one
            for one, name in zip(made, names, strict=False)
        ]

    def by_blocks(
        self, node: NodeProto, inputs: list[Value], outer: Mapping[str, Value], told: Told = NOTHING
    ) -> Evaluation | None:
        """Return how to evaluate a node block by block, or None if it is evaluated at once. A block raises the same
        errors as `node`.
        """
        if node.domain not in ("", "ai.onnx") or node.op_type in self.operators or not node.output[0]:
            return None
        attributes = self._attributes_of(node) if node.op_type in READS_ATTRIBUTES else {}
        plan = blockwise(node.op_type, self.opsets.get("", 1), attributes, inputs, len([*filter(None, node.output)]))
        if plan is None:
            return None

        def block(index: Index) -> Bounded:
            return stored(self._made(node, plan.inputs(index), outer, told)[0], self.types)

        return Evaluation(plan.shape, plan.blocks, block)

    def _made(self, node: NodeProto, inputs: list[Value], outer: Mapping[str, Value], told: Told) -> list[Any]:
        if version := version_of(node, 0):  # inside a function that imports another opset
            inner = self.with_types(self.types)
            inner.opsets = {**self.opsets, "": version}
            return inner._made(unversioned(node), inputs, outer, told)
        if node.op_type in RANDOM:
            raise Unproved("random numbers, compared with none")
        if node.op_type == "Constant" and not node.domain:
            return [constant(constant_of(node), self.types)]
        domain = "" if node.domain == "ai.onnx" else node.domain
        name = f"{domain}::{node.op_type}" if domain else node.op_type
        found = self.operators.get(name) or rule_of(node.op_type, domain)
        if found is None:
            return self._without_rule(node, inputs)
        opset = self.opsets.get(domain, 1)
        types = self.types.with_additions(told.additions) if name in TOLD else self.types
        is_scaled = name == "Gemm" and len(inputs) > 1
        if types.is_float16 and (any(map(_is_wide, inputs)) or (is_scaled and _scales_beyond(node, inputs[1]))):
            types = types.with_wide()
        if name in CHOOSES or (name == "Cast" and not is_float(dtype_of(self._attributes_of(node)["to"]))):
            inputs = [one.unfolded() if isinstance(one, Bounded) else one for one in inputs]
        call = Call(name, inputs, self._attributes_of(node), opset, types, len(node.output))
        call.node, call.opsets, call.run_graph, call.outer = node, self.opsets, self.graph, outer
        call.stored = [told.stored.get(output) for output in node.output]
        is_map = node.op_type in MAPS and not domain and opset >= _OLDEST and name not in self.operators
        try:
            made = found(call)
            return with_choices(found, call, made) if is_map else made
        except (Unproved, IndexError):
            raise
        except (AssertionError, AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
            raise Unproved(f"the rule for {node.op_type} fails: {type(error).__name__}: {error}") from None

    def _without_rule(self, node: NodeProto, inputs: list[Value]) -> list[Any]:
        """Run onnx's reference if there are no floats, else the ONNX function body. Raise Unproved if there is none."""
        try:
            return self._by_onnx(node, inputs)
        except Undecided:
            raise
        except Unproved:
            opset = self.opsets.get("" if node.domain == "ai.onnx" else node.domain, 1)
            body = definition(node, inputs, opset)
            if body is None:
                raise
        return self.function(body, inputs)

    def function(self, body: FunctionProto, inputs: list[Value]) -> list[Value]:
        """Return the outputs of a function whose attributes are bound. Raise Unproved if a node in it has no rule."""
        opsets = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in body.opset_import}
        inner = self.with_types(self.types)
        inner.opsets = {**self.opsets, **opsets}
        values: dict[str, Value] = dict.fromkeys(body.input)
        values.update(zip(body.input, inputs, strict=False))
        for part in body.node:
            made = inner.node(part, [values.get(name) if name else None for name in part.input], values)
            values.update({name: one for name, one in zip(part.output, made, strict=False) if name})
        return [values.get(name) for name in body.output]

    def _by_onnx(self, node: NodeProto, inputs: list[Value]) -> list[Any]:
        """Run an operator without a rule in onnx's reference; without floats, results are exact."""
        name = f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        arrays: list[Any] = []
        unsure = any(isinstance(one, Bounded) and not one.is_float and not one.exact for one in inputs)
        for value in inputs:
            if isinstance(value, Bounded) and value.is_float:
                raise Unproved(f"no rule for {name}")
            if isinstance(value, list):
                raise Unproved(f"no rule for {name}")
            arrays.append(None if value is None else value.value)
        if unsure:
            raise Undecided(f"{name} of undecided numbers")
        if self.opsets.get("", _OLDEST) < _OLDEST:
            raise Unproved(f"no rule for {name}")
        try:
            results = run_by_onnx(node, arrays, self.opsets)
        except Exception as error:  # the reference may raise anything
            raise Unproved(f"no rule for {name}, and onnx's reference fails: {error}") from None
        made = [_exact(one) if isinstance(one, np.ndarray) else one for one in results]
        if any(not isinstance(one, Bounded) or one.is_float for one in made):
            raise Unproved(f"no rule for {name}")
        return made

    def graph(self, graph: GraphProto, inputs: list[Value], outer: Mapping[str, Value]) -> list[Value]:
        """Return the outputs of a subgraph, whose nodes may read outer-scope values."""
        values: dict[str, Value] = dict(outer)
        for tensor in graph.initializer:
            values[tensor.name] = constant(numpy_helper.to_array(tensor), self.types)
        values.update(zip((one.name for one in graph.input), inputs, strict=False))
        for node in graph.node:
            given = [values[name] if name else None for name in node.input]
            made = self.node(node, given, values)
            values.update({name: one for name, one in zip(node.output, made, strict=False) if name})
        return [values[one.name] for one in graph.output]


class SingleTypeRunner(Runner):
    """Evaluates every node in this runner's types, ignoring the node's own precision."""

    def at(self, precision: str) -> Runner:
        """Return self."""
        return self


def _exact(array: Array) -> Bounded:
    """Return an array without floats as a Bounded value; strings become objects."""
    return Bounded(array.astype(object) if array.dtype.kind in "UT" else array)


_BEYOND_FLOAT16 = 65520.0  # smallest value that rounds to infinity in float16


def _is_wide(value: Value) -> bool:
    """Whether a constant has a finite element beyond float16."""
    if not isinstance(value, Bounded) or not value.constant or not value.is_float:
        return False

    def found() -> bool:
        sizes = np.abs(value.value)
        return bool((np.isfinite(sizes) & (sizes >= _BEYOND_FLOAT16)).any())

    return bool(value.once("wide", found))


def _scales_beyond(node: NodeProto, b: Value) -> bool:
    """Whether the engine computes a Gemm in float32 because alpha * B overflows float16 or becomes subnormal."""
    alpha = float(attributes_of(node).get("alpha", 1.0))
    if not isinstance(b, Bounded) or not b.is_float or alpha == 1:
        return False
    sizes = np.abs(b.value[np.isfinite(b.value)]) if b.constant else np.ones(1)
    largest = float(sizes.max(initial=0.0))
    is_small = 0 < largest * abs(alpha) < FLOAT16.normal <= largest
    return largest * abs(alpha) >= _BEYOND_FLOAT16 or is_small


def run_by_onnx(node: NodeProto, arrays: list[Any], opsets: Mapping[str, int]) -> list[Any]:
    """Run a node in onnx's reference implementation. Raise whatever it raises."""
    from onnx.reference import ReferenceEvaluator

    names = [name for name, array in zip(node.input, arrays, strict=False) if name and array is not None]
    given = {name: array for name, array in zip(node.input, arrays, strict=False) if name and array is not None}
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    inputs = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names)]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([alone], "one", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports)).run(None, given)
    found = iter(results)
    return [next(found) if name else None for name in node.output]
