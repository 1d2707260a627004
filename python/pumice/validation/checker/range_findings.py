"""Findings about values that a type cannot represent: constants (V5), flushed subnormals, saturated integers (V10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ...base.element_types import Array
from ...model.model import Model
from ..reference.oracle import ValidationSubject
from ..reference.reference_model import ReferenceModel, ReferenceNode, RuleRunner
from ..report.findings import Finding
from ..rules.block_ranges import iter_blocks
from ..rules.bounded_tensor import BoundedTensor, UnprovedError, Value
from ..rules.float_types import FloatType, dtype_from_onnx, is_float
from ..rules.gemm_conv import broadcast_parameter, get_integer_limits
from ..rules.lazy_values import iter_block_pairs
from ..rules.program_values import parse_attributes
from .live_values import LiveValues

# Operators that are linear in their constants if the other input is fixed.
_LINEAR_OPERATORS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Mul")
# Subnormals dominate if they cause more than this multiple of the normal numbers' rounding error.
_DOMINANCE_FACTOR = 2.0
_BIAS_INPUT = 2  # index of the bias input
_PRECISION_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


class ConversionLoss(NamedTuple):
    """Loss of converting a constant to a type: how many elements overflow or become zero, and the largest of each.

    subnormals_dominate: whether rounding subnormals dominates the error of some row or channel.
    """

    overflowed: int = 0
    largest_overflowed: float = 0.0
    num_vanished: int = 0
    largest_vanished: float = 0.0
    subnormals_dominate: bool = False


class RangeFindings:
    """Derives findings from the values of each checked node."""

    def __init__(self, reference: ReferenceModel, subject: ValidationSubject) -> None:
        rows = subject.program.report() if isinstance(subject, Model) else []
        notes = ((row["node"], note) for row in rows for note in row["note"].split("; "))
        # Maps nodes whose constants the program keeps in float32 to the reason.
        self._fp32_notes = {node: note for node, note in notes if note.startswith("float32: ") and " holds " in note}
        self._reference = reference
        self._conversion_loss: dict[tuple[str, str], ConversionLoss] = {}

    def iter_node_findings(
        self,
        node: ReferenceNode,
        isolated: LiveValues,
        rule_results: Mapping[str, Value],
        device_tensors: Mapping[str, Array],
    ) -> Iterator[Finding]:
        """Yield the findings about a node. isolated: live values, with the device's inputs."""
        types = isolated.runner.types.at_precision(node.precision)
        for name in node.outputs:
            value, tensor = rule_results.get(name), device_tensors.get(name)
            if (
                isinstance(value, BoundedTensor)
                and value.is_float
                and tensor is not None
                and value.shape == tensor.shape
            ):
                yield from _find_flushed_subnormals(node.name, name, tensor, value, types.get_storage_type(value.dtype))
        if node.op in ("Cast", "QuantizeLinear") and not node.domain:
            yield from _find_saturated_integers(node, _read_node_inputs(isolated, node))
        if node.name in self._fp32_notes:
            yield Finding("wide constant", node.name, f"node '{node.name}' computes in {self._fp32_notes[node.name]}")
        elif not node.is_folded:
            yield from self._iter_constant_findings(node, isolated)

    def _iter_constant_findings(self, node: ReferenceNode, isolated: LiveValues) -> Iterator[Finding]:
        types, constants = isolated.runner.types.at_precision(node.precision), self._reference.constants
        coarse: dict[str, FloatType] = {}
        for name in node.inputs:
            if name not in constants or not is_float(constants[name].dtype):
                continue
            target = types.get_constant_type(constants[name].dtype)
            if (name, target.name) not in self._conversion_loss:
                self._conversion_loss[name, target.name] = _measure_conversion_loss(constants[name], target)
            loss = self._conversion_loss[name, target.name]
            yield from _iter_conversion_findings(node.name, name, loss, constants[name].size, target)
            if loss.subnormals_dominate:
                coarse[name] = target
        if coarse and node.op in _LINEAR_OPERATORS and not node.domain:
            yield from _find_dominating_weights(
                node, _read_node_inputs(isolated, node), coarse, constants, isolated.runner
            )


def _read_node_inputs(isolated: LiveValues, node: ReferenceNode) -> Mapping[str, Value]:
    """Return a node's inputs by name; {} if one is missing, which another check reports."""
    try:
        return isolated.get_inputs(node)
    except KeyError:
        return {}


# ---- constants


def _measure_conversion_loss(array: Array, target: FloatType) -> ConversionLoss:
    if target.name == str(array.dtype) or str(array.dtype) not in ("float32", "float64"):
        return ConversionLoss()
    # The smallest number that rounds to infinity.
    limit = target.largest + target.unit * 2.0 ** np.floor(np.log2(target.largest))
    beyond = vanished = low = 0
    largest_overflowed = largest_vanished = 0.0
    for index in iter_blocks(array.shape):
        magnitudes = np.abs(array[index])
        overflows = (magnitudes >= limit) & np.isfinite(magnitudes)
        vanishes = (magnitudes <= target.step / 2) & (magnitudes > 0)
        beyond, vanished = beyond + int(overflows.sum()), vanished + int(vanishes.sum())
        low += int(((magnitudes < target.normal) & (magnitudes > 0)).sum())
        largest_overflowed = max(largest_overflowed, float(np.max(magnitudes, initial=0.0, where=overflows)))
        largest_vanished = max(largest_vanished, float(np.max(magnitudes, initial=0.0, where=vanishes)))
    return ConversionLoss(
        beyond, largest_overflowed, vanished, largest_vanished, bool(low) and _is_dominated_by_subnormals(array, target)
    )


def _is_dominated_by_subnormals(array: Array, target: FloatType) -> bool:
    """Return whether in a slice along any axis, rounding subnormals causes a larger error than rounding normal numbers."""
    low = (np.abs(array) < target.normal) & (array != 0)
    moved = np.zeros(array.shape)
    moved[low] = np.square(array[low] - target.round(array[low]))
    with np.errstate(all="ignore"):
        size = np.square(array, dtype=np.float64)
    for axis in range(max(array.ndim, 1)):
        others = tuple(i for i in range(array.ndim) if i != axis)
        if np.any(moved.sum(others) > (_DOMINANCE_FACTOR * target.unit) ** 2 * size.sum(others)):
            return True
    return False


def _iter_conversion_findings(
    node: str, name: str, loss: ConversionLoss, size: int, target: FloatType
) -> Iterator[Finding]:
    precision = _PRECISION_NAMES[target.name]
    if loss.overflowed:
        text = (
            f"{loss.overflowed} of {size} elements of constant '{name}' are held at the limit of {precision}, "
            f"{target.largest:.5g}, or as infinity: the largest is {loss.largest_overflowed:.5g}"
        )
        yield Finding("clamped constant", node, text, loss.largest_overflowed)
    if loss.num_vanished:
        text = (
            f"{loss.num_vanished} of {size} elements of constant '{name}' become 0 in {precision}; "
            f"the largest is {loss.largest_vanished:.3g}"
        )
        yield Finding("vanished constant", node, text, loss.num_vanished)


def _find_dominating_weights(
    node: ReferenceNode,
    values: Mapping[str, Value],
    coarse: Mapping[str, FloatType],
    constants: Mapping[str, Array],
    runner: RuleRunner,
) -> Iterator[Finding]:
    """Yield a finding if rounding subnormal weights changes a result more than rounding normal weights does."""
    perturbed, sizes = dict(values), dict(values)
    for input_index, name in enumerate(node.proto.input):
        value = values.get(name)
        if not isinstance(value, BoundedTensor):
            continue
        exact = constants[name].astype(np.float64) if name in constants else value.value
        change = exact - coarse[name].round(exact) if name in coarse else np.zeros(exact.shape)
        is_data = name not in constants and input_index < _BIAS_INPUT
        perturbed[name] = BoundedTensor(exact if is_data else change, None, value.dtype, True, value.constant)
        sizes[name] = BoundedTensor(np.abs(exact), None, value.dtype, True, value.constant)
    exact_runner = runner.with_types(runner.types.without_errors())
    try:
        moved = node.run(perturbed, exact_runner)[node.outputs[0]]
        total = node.run(sizes, exact_runner)[node.outputs[0]]
    except (UnprovedError, IndexError, KeyError, MemoryError):
        return
    if not isinstance(moved, BoundedTensor) or not isinstance(total, BoundedTensor) or not moved.size:
        return
    change, size = np.abs(moved.value), total.value
    unit = max(target.unit for target in coarse.values())
    with np.errstate(all="ignore"):
        ratio = np.where(size > 0, change / size, 0.0)
    over = ratio > _DOMINANCE_FACTOR * unit
    if not over.any():
        return
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(ratio), 0.0, ratio))), ratio.shape)
    text = (
        f"rounding {' and '.join(repr(name) for name in coarse)} moves {int(over.sum())} of {over.size} elements of "
        f"'{node.outputs[0]}' by more than that of normal numbers would: by {float(change[at]):.3g} at "
        f"{[int(i) for i in at]}, where the terms come to {float(size[at]):.3g}"
    )
    yield Finding("rounded weights dominate", node.name, text, float(ratio[at]))


# ---- results of nodes


def _find_flushed_subnormals(
    node: str, name: str, actual: Array, value: BoundedTensor, storage: FloatType
) -> Iterator[Finding]:
    """Yield a finding about elements that are zero on the device but should be subnormal."""
    count, largest = 0, 0.0
    if np.count_nonzero(actual) == actual.size:
        return
    for _, array, block in iter_block_pairs(actual, value):
        zero = np.asarray(array) == 0
        if not zero.any():
            continue
        size = np.abs(block.value[zero])
        size = size[(size > 0) & (size < storage.normal)]
        size = size[storage.round(size) != 0]
        count, largest = count + size.size, max(largest, float(np.max(size, initial=0.0)))
    if count:
        text = (
            f"{count} of {actual.size} elements of '{name}' are 0 on the device, and numbers below {storage.normal:.3g} that "
            f"{_PRECISION_NAMES[storage.name]} has; the largest is {largest:.3g}"
        )
        yield Finding("flushed denormals", node, text, count)


def _find_saturated_integers(node: ReferenceNode, values: Mapping[str, Value]) -> Iterator[Finding]:
    """Yield a finding about inputs of a Cast or QuantizeLinear that exceed the range of the integer type."""
    x = values.get(node.inputs[0])
    if not isinstance(x, BoundedTensor) or not x.size or (node.op == "Cast" and not x.is_float):
        return
    attributes = parse_attributes(node.proto)
    if node.op == "Cast":
        scale = zero = None
        dtype = dtype_from_onnx(attributes["to"])
        if dtype.kind == "O":
            return
    else:
        scale, zero = (_broadcast_scale(values.get(name), x, attributes) for name in [*node.proto.input[1:], ""][:2])
        number = attributes.get("output_dtype", 0)
        zero_input = values.get(node.proto.input[2]) if len(node.proto.input) > 2 else None
        default_dtype = dtype_from_onnx(number) if number else np.dtype(np.uint8)
        dtype = zero_input.dtype if isinstance(zero_input, BoundedTensor) else default_dtype
    if not str(dtype).startswith(("int", "uint")):
        return
    low, high = get_integer_limits(dtype)
    count, farthest = 0, 0.0
    for index in iter_blocks(x.shape):
        with np.errstate(all="ignore"):
            quantized = x.get_block(index).value.astype(np.float64)
            quantized = np.trunc(quantized) if scale is None else np.rint(quantized / scale[index])
            quantized = quantized if zero is None else quantized + zero[index]
        beyond = (quantized < low) | (quantized > high)
        count += int(beyond.sum())
        if beyond.any():
            farthest = max(farthest, *map(float, quantized[beyond]), key=abs)
    if count:
        text = (
            f"{count} of {x.size} elements of '{node.outputs[0]}' are beyond {dtype}, which ends at {low:.6g} and {high:.6g}; the farthest "
            f"would be {farthest:.5g}"
        )
        yield Finding("saturated integers", node.name, text, count)


def _broadcast_scale(value: Value, x: BoundedTensor, attributes: Mapping[str, int]) -> Array | None:
    """Broadcast a scale or zero point to the shape of x."""
    if not isinstance(value, BoundedTensor):
        return None
    axis = attributes.get("axis", 1) % x.ndim if x.ndim else 0
    broadcast = broadcast_parameter(value, x.shape, axis, attributes.get("block_size", 0))
    return np.broadcast_to(broadcast.value.astype(np.float64), x.shape)
