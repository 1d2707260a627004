"""Live values during validation: bounded tensors by name, of the model and of the nodes fused into a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ...base.host_arrays import bitwise_equal
from ..reference.monte_carlo import MonteCarloSamples
from ..reference.reference_model import (
    NO_KERNEL_INFO,
    REREADS_RESULTS,
    KernelInfo,
    ReferenceModel,
    ReferenceNode,
    RuleRunner,
)
from ..report.deviation import UNPROVED, Deviation
from ..report.tensor_statistics import TensorStatistics
from ..rules.alternative_values import count_undecided, is_undecided
from ..rules.block_plans import ELEMENTWISE, MIN_OPSET, plan_elementwise_blocks
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value, round_to_type
from ..rules.float_types import SIXTEEN_BIT_FLOATS, ProgramTypes, dtype_name, find_float_type, is_float
from ..rules.lazy_values import MIN_LAZY_SIZE, BlockAssembler, DtypeView, LazyDeviceTensor, StreamedValue
from ..rules.program_values import make_bounded_constant, make_bounded_device_tensor, make_bounded_input

RuleResults = dict[str, Value] | None  # the rules' results of a node; None if missing or not requested


class LiveValues:
    """Bounded tensors by name. Constants are created on access.

    sampled: whether to track correlated errors by sampling; otherwise errors are independent. lazy: whether to keep no
    float64 copies of the model's inputs. device: the device's values, whose integers settle choices that a rule cannot
    leave undecided.
    """

    def __init__(
        self,
        reference: ReferenceModel,
        runner: RuleRunner,
        case_inputs: Mapping[str, Any],
        sampled: bool = False,
        lazy: bool = False,
        device: LiveValues | None = None,
    ) -> None:
        self.device = device
        self.reference = reference
        self.runner = runner
        exact = runner.types.at_precision("fp32")
        types = exact if reference.has_mixed_precision else runner.types  # fp32 nodes read unrounded inputs
        self.values: dict[str, Value] = {
            name: _make_bounded_case_input(value, exact if name in reference.host_inputs else types, lazy)
            for name, value in case_inputs.items()
        }
        self.unproved: dict[str, tuple[str, ...]] = {}  # maps a tensor to the unproved nodes that it depends on
        self.choice_sources: dict[str, str] = {}  # maps a tensor to the node whose undecided choice the device settled
        # Maps a tensor computed only from device tensors to the node that no rule covers.
        self.device_sources: dict[str, str] = {}
        # The reference's results with undecided choices, before the device settled these.
        self.undecided_values: dict[str, BoundedTensor] = {}
        # Maps a node to the additions that its kernel reports; set only if nodes are checked on their own.
        self.additions: Mapping[str, int] = {}
        # Maps a tensor to the device's result; set together with `additions`.
        self.device_results: Mapping[str, Array] = {}
        self.samples = MonteCarloSamples() if sampled else None
        if self.samples is not None:
            self.samples.add_inputs(self.values, types)

    def with_types(self, types: ProgramTypes) -> LiveValues:
        """Return a view of these values for nodes that compute in other types."""
        copied = copy(self)
        copied.runner = self.runner.with_types(types)
        return copied

    def __getitem__(self, name: str) -> Value:
        return self._get_value(name, self.runner)

    def _get_value(self, name: str, runner: RuleRunner) -> Value:
        return self.values[name] if name in self.values else self.reference.get_constant(name, runner)

    def get_inputs(self, node: ReferenceNode) -> dict[str, Value]:
        """Return a node's inputs by name, as the node reads them."""
        runner = self.runner.at_precision(node.precision)
        values = {name: self._get_value(name, runner) for name in node.inputs}
        return {name: self.reference.read_value(node, name, value, runner.types) for name, value in values.items()}

    def run(self, node: ReferenceNode, device_tensors: Mapping[str, Array] = MappingProxyType({})) -> dict[str, Value]:
        """Evaluate a node by the rules. Raise whatever the rule raises.

        device_tensors: device tensors by name; large results are stored as float32 differences from them.
        """
        values = self.get_inputs(node)
        try:
            return self._run_node(node, values, device_tensors)
        except UndecidedError:
            device_values = self.device.values if self.device is not None else {}
            settled = {name: adopt_device_integers(value, device_values.get(name)) for name, value in values.items()}
            if all(settled[name] is value for name, value in values.items()):
                raise
            results = self._run_node(node, settled, device_tensors)
        self.choice_sources.update(dict.fromkeys(node.outputs, node.name))
        return results

    def _run_node(
        self, node: ReferenceNode, values: Mapping[str, Value], device_tensors: Mapping[str, Array]
    ) -> dict[str, Value]:
        if self.samples is not None:
            return self.samples.run(node, values, self.runner)
        names = node.outputs if node.op in REREADS_RESULTS else ()
        stored = {name: BoundedTensor(self.device_results[name]) for name in names if name in self.device_results}
        return node.run(values, self.runner, KernelInfo(self.additions.get(node.name, 0), stored, device_tensors))

    def store_isolated(
        self, node: ReferenceNode, name: str, array: Array | None, device: BoundedTensor | None, results: RuleResults
    ) -> None:
        """Store a result for later nodes that are checked on the device's inputs: the device's tensor if there is one.

        array, device: the device's tensor, as an array and with its error. results: the rules' results.
        """
        value = (results or {}).get(name)
        if node.is_folded and isinstance(value, BoundedTensor):
            # The program folds this node into a constant, possibly without rounding intermediates.
            types = self.reference.types.at_precision(node.precision)
            self.values[name] = (
                round_folded_constant(value, types) if array is None else make_bounded_folded_constant(array, types)
            )
        elif device is not None:
            self.values[name] = device
        elif results is not None:
            self.values[name] = value

    def store_chained(self, node: ReferenceNode, name: str, device: BoundedTensor | None, results: RuleResults) -> None:
        """Store a result for nodes that are checked from the model's inputs on: the reference's value, else the device's."""
        value = (results or {}).get(name)
        if node.is_folded and isinstance(value, BoundedTensor):
            value = round_folded_constant(value, self.runner.types.at_precision(node.precision))
        if source := next((self.choice_sources[x] for x in node.inputs if x in self.choice_sources), ""):
            self.choice_sources[name] = source
        if isinstance(value, BoundedTensor) and device is not None:
            settled = adopt_device_choices(value, device)
            if settled is not value:
                self.choice_sources.setdefault(name, node.name)
                self.undecided_values[name] = value
            self.values[name] = settled
        elif results is not None and name in results:
            self.values[name] = value
        elif device is not None:
            self.values[name] = device
            self.device_sources[name] = node.name

    def get_live_values(self) -> dict[str, Value]:
        """Return all live values by name, without constants."""
        return dict(self.values)

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        self.values.pop(name, None)
        if self.samples is not None:
            self.samples.pop(name)

    def track_device_values(self, node: ReferenceNode) -> None:
        """Record outputs that depend only on device tensors; the reference cannot verify them."""
        variable = [name for name in node.inputs if name not in self.reference.constants]
        if variable and all(name in self.device_sources for name in variable):
            self.device_sources.update(dict.fromkeys(node.outputs, self.device_sources[variable[0]]))

    def describe_choice(self, node: ReferenceNode, results: Mapping[str, Value] | None) -> str:
        """Return a sentence if the node makes an undecided choice although its inputs are decided, else ""."""
        inputs = [self.values.get(name) for name in node.inputs]
        if not results or any(isinstance(value, BoundedTensor) and is_undecided(value) for value in inputs):
            return ""
        for name in node.outputs:
            value = results.get(name)
            if isinstance(value, BoundedTensor) and (count := count_undecided(value)):
                return f"{count} of {value.size} elements of '{name}' depend on a choice that rounding may flip, from the inputs on"
        return ""

    def find_unproved_inputs(self, node: ReferenceNode) -> tuple[str, ...]:
        """Return the unproved nodes that a node depends on."""
        return tuple(dict.fromkeys(source for name in node.inputs for source in self.unproved.get(name, ())))


def _make_bounded_case_input(value: Any, types: ProgramTypes, lazy: bool) -> Value:
    if not lazy or not isinstance(value, np.ndarray) or not is_float(value.dtype):
        return make_bounded_input(value, types)

    def make_value(block: Array) -> BoundedTensor:
        value = make_bounded_input(block, types)
        assert isinstance(value, BoundedTensor)
        return value

    return LazyDeviceTensor(value, make_value)


def make_bounded_folded_constant(array: Array, types: ProgramTypes) -> BoundedTensor:
    """Return a folded constant as the program computed it. If it was read back in 16 bits, the device may have float32."""
    device_value = make_bounded_device_tensor(array, types)
    return device_value if str(array.dtype) in SIXTEEN_BIT_FLOATS else make_bounded_constant(array, types)


def round_folded_constant(value: BoundedTensor, types: ProgramTypes) -> BoundedTensor:
    """Return a folded constant rounded to its declared type.

    The host stores it in that type, which may be 16-bit even in an fp32 program.
    """
    constant = value.as_constant()
    if str(value.dtype) not in SIXTEEN_BIT_FLOATS or types.get_storage_type(value.dtype).name == str(value.dtype):
        return constant
    return round_to_type(constant, find_float_type(str(value.dtype)), types)


def make_device_value(array: Array, types: ProgramTypes, chained_value: Value, lazy: bool) -> BoundedTensor:
    """Return a device tensor as later nodes read it. lazy: whether to convert blocks on access instead of keeping a copy."""
    if not lazy or array.size < MIN_LAZY_SIZE or (is_float(array.dtype) and np.isinf(array).any()):
        return confirm_infinities(make_bounded_device_tensor(array, types), chained_value)
    return LazyDeviceTensor(array, lambda block: make_bounded_device_tensor(block, types))


def confirm_infinities(device: BoundedTensor, chained_value: Value) -> BoundedTensor:
    """Return a device tensor whose infinities count as exact only where the reference is infinite too.

    A value that was read back as infinity in 16 bits may be finite on the device.
    """
    if (
        device.error is None
        or not isinstance(chained_value, BoundedTensor)
        or chained_value.shape != device.shape
        or not np.isinf(device.error).any()
    ):
        return device
    error = np.where(np.isinf(device.value) & (chained_value.value == device.value), 0.0, device.error)
    return BoundedTensor(device.value, error, device.dtype, device.stored)


def adopt_device_choices(expected: BoundedTensor, device: BoundedTensor) -> BoundedTensor:
    """Replace undecided elements with the device's values where these are valid alternatives.

    Elements without a bound stay unknown. If the device's value is not a valid alternative, the element stays
    undecided, and the tensor is reported as wrong at this element.
    """
    if expected.is_float or expected.error is None or expected.alternatives is None or expected.shape != device.shape:
        return expected
    alternative, error = expected.alternatives.find_nearest(device.value, expected.value)
    is_settled = expected.alternatives.mask & np.isinf(expected.error) & (alternative == device.value) & (error == 0)
    if not is_settled.any():
        return expected
    remaining_error = np.where(is_settled, 0.0, expected.error)
    result = BoundedTensor(
        np.where(is_settled, device.value, expected.value),
        remaining_error if remaining_error.any() else None,
        expected.dtype,
    )
    return result if result.error is None else result.set_alternatives(expected.alternatives.drop_decided(is_settled))


def adopt_device_integers(value: Value, device: Value) -> Value:
    """Return the device's integers if all of them are valid alternatives, else the unchanged value."""
    if (
        not isinstance(value, BoundedTensor)
        or value.dtype.kind not in "iu"
        or value.is_exact
        or value.alternatives is None
    ):
        return value
    if not isinstance(device, BoundedTensor) or not device.is_exact or device.shape != value.shape:
        return value
    alternative, error = value.alternatives.find_nearest(device.value, value.value)
    has_alternatives = value.alternatives.mask & (error == 0)
    agrees = np.where(has_alternatives, alternative, value.value) == device.value
    is_sure = np.where(has_alternatives, 0.0, value.get_errors()) == 0
    return BoundedTensor(device.value, None, value.dtype) if (agrees & is_sure).all() else value


def to_declared_arrays(value: Value, errors: bool) -> Any:
    """Return the arrays or errors of a sequence or optional value, in the declared types."""
    if isinstance(value, list):
        return [to_declared_arrays(item, errors) for item in value]
    if value is None:
        return None
    array = value.get_errors() if errors else value.value
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(value.dtype, order="C")


def widen_error(value: Value, allowed: float | None, types: ProgramTypes) -> Value:
    """Return the value with an error of at least the caller's tolerance."""
    if not allowed or not isinstance(value, BoundedTensor) or not value.is_float:
        return value
    error = np.maximum(value.get_errors(), types.from_max_deviation(np.asarray(allowed)))
    return BoundedTensor(value.value, error, value.dtype, value.stored, value.constant).set_alternatives(
        value.alternatives
    )


class StoredTensor(NamedTuple):
    """A tensor stored by a kernel, in the program's dtype.

    reads: names of the kernel's inputs. additions: longest chain of additions in the kernel's sums, 0 if unknown.
    source, size: name of the tensor in the program, and size in bytes. array: empty before the tensor is loaded and
    after it is freed.
    """

    array: Array
    kernel: str
    reads: frozenset[str]
    additions: int = 0
    source: str = ""
    size: int = 0


class KernelCheck(NamedTuple):
    """Check of a stored tensor. members: the model's nodes between the kernel's inputs and the tensor."""

    name: str
    stored: StoredTensor
    members: tuple[str, ...]
    deviation: Deviation | None
    note: str
    unproved: tuple[str, ...]  # names of nodes without a rule
    statistics: TensorStatistics | None = None
    fault: str = ""  # describes how a reference contradicts the rules

    @property
    def verdict(self) -> str:
        """ "right", "wrong" or "unproved"."""
        return self.deviation.verdict if self.deviation else UNPROVED


# ---- nodes that are fused into a kernel, evaluated on the kernel's inputs


# Prefix of the note on a tensor that is not checked because an input of its kernel is unknown.
UNKNOWN_VALUE_NOTE = "nothing is known of "
# Errors raised if no rule covers a member or its inputs.
_EVALUATION_ERRORS = (UndecidedError, UnprovedError, IndexError, KeyError, MemoryError)


class MissingRuleError(Exception):
    """Raised if no rule covers a member of a kernel."""

    def __init__(self, node: str, note: str) -> None:
        super().__init__(note)
        self.node = node


class IsolatedNodeResult(NamedTuple):
    """Results of a node that was checked on its own, on the same inputs. additions: as reported by its unfused kernel."""

    values: Mapping[str, Value]
    additions: int


class FusedNodeValues:
    """Values of a kernel's members, computed from the kernel's inputs under one rounding assumption.

    choices: integers and booleans of the unfused program. host_values: inputs, constants, and values that the host
    computes from them. stored_tensors: the kernel's inputs. kernel_info: properties of each member. allowed: the
    caller's absolute errors, by output of a member.
    """

    def __init__(
        self,
        reference: ReferenceModel,
        choices: Mapping[str, Array],
        host_values: LiveValues,
        stored_tensors: Mapping[str, Value],
        kernel_info: Mapping[str, KernelInfo],
        allowed: Mapping[str, float],
    ) -> None:
        self._allowed = allowed
        self._reference = reference
        self._choices = choices
        self._kernel_facts = kernel_info
        self._host_values = host_values
        self._results: dict[str, Value] = {}
        self._stored_tensors = stored_tensors
        # Results of members that were checked on their own, if they were computed with the same rounding.
        self.isolated_results: Mapping[str, IsolatedNodeResult] = {}
        self.depends_on_choice = False  # whether a result uses a choice of the unfused program

    def __getitem__(self, name: str) -> Value:
        # A tensor stored by another kernel is recomputed, unless this kernel reads it.
        if name in self._results:
            return self._results[name]
        return self._stored_tensors[name] if name in self._stored_tensors else self._host_values[name]

    def _has_result(self, node: ReferenceNode) -> bool:
        """Return whether a member was already evaluated on the same tensors with the same number of additions."""
        isolated = self.isolated_results.get(node.name)
        is_same = (
            isolated is not None and isolated.additions == self._kernel_facts.get(node.name, NO_KERNEL_INFO).additions
        )
        return is_same and self._results.keys().isdisjoint(node.inputs) and node.op not in REREADS_RESULTS

    def evaluate_fused_nodes(self, members: Sequence[ReferenceNode], name: str, device_tensor: Array) -> Value:
        """Evaluate the members that compute `device_tensor`. Raise MissingRuleError if no rule covers one of them."""
        last_uses = {used: i for i, member in enumerate(members) for used in [*member.inputs, *member.outputs]}
        begin = len(members) - self._count_trailing_elementwise(members)
        has_matmul = 0 < begin < len(members) and members[begin - 1].op == "MatMul"
        has_matmul = has_matmul and not self._has_result(members[begin - 1])
        value: Value = None
        for i, member in enumerate(members):
            if i == begin or (has_matmul and i == begin - 1):
                first = member if i < begin else None
                value = self._evaluate_elementwise(members[begin:], name, device_tensor, first)
                if value is not None:
                    break
            value = self._evaluate(member, member is members[-1]).get(name)
            for used in [*member.inputs, *member.outputs]:
                if last_uses[used] == i:
                    self._results.pop(used, None)
        return value

    def _count_trailing_elementwise(self, members: Sequence[ReferenceNode]) -> int:
        """Return the number of consecutive elementwise members at the end."""
        if self._reference.opsets.get("", 1) < MIN_OPSET:
            return 0
        count = 0
        custom_rules = self._reference.runner.custom_rules
        for member in reversed(members):
            is_map = member.op in ELEMENTWISE and not member.domain and member.op not in custom_rules
            if not is_map or len(member.outputs) != 1 or member.is_folded:
                break
            count += 1
        return count

    def _evaluate(self, node: ReferenceNode, is_last: bool) -> dict[str, Value]:
        """Return the results of a member. Raise MissingRuleError if no rule covers it."""
        runner = self._reference.runner if is_last else self._host_values.runner
        choices = self._choices
        try:
            results = (
                dict(self.isolated_results[node.name].values)
                if self._has_result(node)
                else self._evaluate_member(node, runner)
            )
        except UndecidedError as error:
            if not is_last and set(node.outputs) <= set(choices):
                results = {name: make_bounded_device_tensor(choices[name], runner.types) for name in node.outputs}
            elif (settled := self._evaluate_with_choices(node, runner)) is not None:
                results = settled
            else:
                raise MissingRuleError(node.name, f"undecided: {error}") from None
            self.depends_on_choice = True
        except UnprovedError as error:
            raise MissingRuleError(node.name, str(error)) from None
        except IndexError as error:
            raise MissingRuleError(node.name, f"an index is out of range: {error}") from None
        except KeyError as error:
            raise MissingRuleError(node.name, f"{UNKNOWN_VALUE_NOTE}{error}") from None
        except MemoryError as error:
            raise MissingRuleError(node.name, f"the reference fails: {type(error).__name__}: {error}") from None
        if not is_last:
            types, allowed = runner.types, self._allowed
            results = {name: widen_error(value, allowed.get(name), types) for name, value in results.items()}
            self._results.update({name: self._adopt_choice(name, value) for name, value in results.items()})
        return results

    def _evaluate_member(self, node: ReferenceNode, runner: RuleRunner) -> dict[str, Value]:
        inputs = {name: self._read_input(node, name, runner) for name in node.inputs}
        return node.run(inputs, runner, self._kernel_facts.get(node.name, NO_KERNEL_INFO))

    def _evaluate_with_choices(self, node: ReferenceNode, runner: RuleRunner) -> dict[str, Value] | None:
        """Evaluate a member with its undecided inputs replaced by the unfused program's integers; None if there are none."""
        inputs = {name: self._read_input(node, name, runner) for name in node.inputs}
        device_choices = {
            name: make_bounded_device_tensor(self._choices[name], runner.types)
            for name in inputs
            if name in self._choices
        }
        settled = {name: adopt_device_integers(value, device_choices.get(name)) for name, value in inputs.items()}
        if all(settled[name] is value for name, value in inputs.items()):
            return None
        try:
            return node.run(settled, runner, self._kernel_facts.get(node.name, NO_KERNEL_INFO))
        except _EVALUATION_ERRORS:
            return None

    def _evaluate_elementwise(
        self, nodes: Sequence[ReferenceNode], name: str, device_tensor: Array, first: ReferenceNode | None = None
    ) -> Value | None:
        """Evaluate a chain of elementwise members block by block, and return its result `name`.

        first: a member before the chain, read only by the chain, that is also evaluated block by block. Return None if
        the result is small, depends on a choice, or cannot be evaluated block by block.
        """
        produced = {output for node in [*nodes, *([first] if first else [])] for output in node.outputs}
        if not self._choices.keys().isdisjoint(produced) or not self._allowed.keys().isdisjoint(produced - {name}):
            return None
        try:
            inputs = {
                input_name: self[input_name]
                for node in nodes
                for input_name in node.inputs
                if input_name not in produced
            }
            streamed = self._stream_blocks(first) if first else None
        except _EVALUATION_ERRORS:
            return None
        if first and streamed is None:
            return None
        plan = plan_elementwise_blocks([*inputs.values(), *([streamed] if streamed else [])])
        if plan is None or plan.shape != device_tensor.shape or (streamed and streamed.shape != device_tensor.shape):
            return None
        assembler = BlockAssembler(plan.shape, device_tensor)
        names = [*inputs, *(first.outputs if first else ())]
        try:
            with np.errstate(all="ignore"):
                for index in streamed.iter_indices() if streamed else plan.blocks:
                    block = self._evaluate_block(nodes, dict(zip(names, plan.inputs(index), strict=True)))[name]
                    if not isinstance(block, BoundedTensor):
                        return None
                    assembler.add_block(index, block)
        except _EVALUATION_ERRORS:
            return None  # `_evaluate` will report the error for the member that causes it
        return assembler.assemble()

    def _stream_blocks(self, node: ReferenceNode) -> StreamedValue | None:
        """Return the result of a member as a tensor that is evaluated block by block."""
        runner = self._host_values.runner
        inputs = {name: self._read_input(node, name, runner) for name in node.inputs}
        evaluation = node.plan_blocks(inputs, runner, self._kernel_facts.get(node.name, NO_KERNEL_INFO))
        return evaluation and StreamedValue(evaluation.shape, evaluation.blocks, evaluation.evaluate_block)

    def _evaluate_block(self, nodes: Sequence[ReferenceNode], values: dict[str, Value]) -> dict[str, Value]:
        """Evaluate the chain on one block of its inputs."""
        host_values, runner = self._host_values, self._reference.runner
        last = {tensor_name: node for node in nodes for tensor_name in [*node.inputs, *node.outputs]}
        for node in nodes:
            node_runner = runner if node is nodes[-1] else host_values.runner
            inputs = {
                tensor_name: self._reference.read_value(
                    node, tensor_name, values[tensor_name], node_runner.at_precision(node.precision).types
                )
                for tensor_name in node.inputs
            }
            values.update(node.run(inputs, node_runner, self._kernel_facts.get(node.name, NO_KERNEL_INFO)))
            for tensor_name in node.inputs:
                if last[tensor_name] is node:
                    values.pop(tensor_name, None)
        return values

    def _read_input(self, node: ReferenceNode, name: str, runner: RuleRunner) -> Value:
        return self._reference.read_value(node, name, self[name], runner.at_precision(node.precision).types)

    def _adopt_choice(self, name: str, value: Value) -> Value:
        """Return the value with the unfused program's choice, if that is a valid alternative.

        Any valid choice that explains the kernel's result is right.
        """
        if not isinstance(value, BoundedTensor) or name not in self._choices:
            return value
        agreed = adopt_device_choices(value, make_bounded_device_tensor(self._choices[name], self._reference.types))
        self.depends_on_choice = self.depends_on_choice or agreed is not value
        return agreed


def use_attention_mask_types(host_values: LiveValues, members: Sequence[ReferenceNode]) -> LiveValues:
    """Return the same values with the types for attention masks if the members are attention built from small operators."""
    ops = [member.op for member in members]
    if members[-1].precision == "fp32" or "Softmax" not in ops or "MatMul" not in ops[ops.index("Softmax") :]:
        return host_values
    return host_values.with_types(host_values.runner.types.with_attention_masks())


def to_common_float_type(array: Array, expected: BoundedTensor) -> tuple[Array, BoundedTensor]:
    """Convert the device's array and the reference's value to a common float type.

    They differ if the storage type is not the declared type.
    """
    widened = widen_float_array(array, expected.dtype)
    if widened is array:
        return array, expected
    return widened, DtypeView(expected, widened.dtype)


def round_at_subgraph_border(array: Array, value: BoundedTensor, types: ProgramTypes) -> BoundedTensor:
    """Round a float32 tensor that is declared as 16-bit, if it has crossed a subgraph boundary.

    Tensors have their declared type at subgraph boundaries.
    """
    dtype = str(value.dtype)
    if dtype not in SIXTEEN_BIT_FLOATS or dtype_name(array.dtype) != "float32":
        return value
    with np.errstate(all="ignore"):
        was_rounded = bitwise_equal(array.astype(value.dtype).astype(array.dtype), array)
    return round_to_type(value, find_float_type(dtype), types) if was_rounded else value


def widen_float_array(array: Array, dtype: Any) -> Array:
    """Convert an array to the wider of its type and the declared float type."""
    if array.dtype == dtype or not (is_float(array.dtype) and is_float(dtype)):
        return array
    return array.astype(np.float64 if "float64" in (dtype_name(array.dtype), dtype_name(dtype)) else np.float32)
