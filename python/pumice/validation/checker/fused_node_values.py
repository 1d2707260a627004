"""Evaluates the nodes fused into a kernel (its members) on the kernel's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ...base.host_arrays import bitwise_equal
from ..reference.reference_model import ReferenceModel, ReferenceNode
from ..rules.block_plans import ELEMENTWISE, MIN_OPSET, plan_elementwise_blocks
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value, round_to_type
from ..rules.float_types import SIXTEEN_BIT_FLOATS, ProgramTypes, dtype_name, find_float_type, is_float
from ..rules.lazy_values import BlockAssembler, DtypeView, StreamedValue
from ..rules.rule_runner import NO_KERNEL_INFO, REREADS_RESULTS, KernelInfo, RuleRunner, make_bounded_device_tensor
from .live_values import LiveValues, adopt_device_choices, adopt_device_integers, widen_error

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
