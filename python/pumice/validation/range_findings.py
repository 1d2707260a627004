"""Findings about numbers that a type cannot represent: constants (V5), flushed subnormals, saturated integers (V10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ..base.element_types import Array
from ..model.model import Model
from .bounds.lazy_values import pairs
from .bounds.bounded import Bounded
from .bounds.block_ranges import blocks
from .bounds.decisions import dtype_of
from .bounds.quantized import _spread, limits
from .bounds.registry import Unproved, Value
from .bounds.rule_runner import Runner, attributes_of
from .bounds.float_types import FloatType, is_float
from .live_values import Carried
from .reference import Reference, ReferenceNode
from .report_rows import Finding
from .tensor_sources import Subject

_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Mul")  # linear in their constants if the other input is fixed
_DOMINATES = 2.0  # threshold, in roundings of normal numbers
_BIAS = 2  # index of the bias input
_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


class Lost(NamedTuple):
    """The loss from converting a constant to a type: the number of elements that overflow or become zero, and the
    largest of each.

    coarse: whether subnormal elements dominate some row or channel.
    """

    beyond: int = 0
    most: float = 0.0
    vanished: int = 0
    largest: float = 0.0
    coarse: bool = False


class RangeFindings:
    """Findings about the values of each checked node."""

    def __init__(self, reference: Reference, subject: Subject) -> None:
        rows = subject.program.report() if isinstance(subject, Model) else []
        told = ((row["node"], note) for row in rows for note in row["note"].split("; "))
        # Nodes whose constants the program keeps in float32, with the reason.
        self._wide = {node: note for node, note in told if note.startswith("float32: ") and " holds " in note}
        self._reference = reference
        self._lost: dict[tuple[str, str], Lost] = {}

    def of_node(
        self, node: ReferenceNode, alone: Carried, made: Mapping[str, Value], ours: Mapping[str, Array]
    ) -> Iterator[Finding]:
        """Yield the findings of a node. alone: values on the device's inputs. made: the rules' results. ours: the
        device's tensors.
        """
        types = alone.runner.types.at(node.precision)
        for name in node.outputs:
            value = made.get(name)
            if name in ours and isinstance(value, Bounded) and value.is_float and value.shape == ours[name].shape:
                yield from _flushed(node.name, name, ours[name], value, types.storage(value.dtype))
        if node.op in ("Cast", "QuantizeLinear") and not node.domain:
            yield from _saturated(node, _read(alone, node))
        if node.name in self._wide:
            yield Finding("wide constant", node.name, f"node '{node.name}' computes in {self._wide[node.name]}")
        elif not node.folded:
            yield from self._constants(node, alone)

    def _constants(self, node: ReferenceNode, alone: Carried) -> Iterator[Finding]:
        types, constants = alone.runner.types.at(node.precision), self._reference.constants
        coarse: dict[str, FloatType] = {}
        for name in node.inputs:
            if name not in constants or not is_float(constants[name].dtype):
                continue
            kept = types.constant(constants[name].dtype)
            if (name, kept.name) not in self._lost:
                self._lost[name, kept.name] = _lost(constants[name], kept)
            lost = self._lost[name, kept.name]
            yield from _told(node.name, name, lost, constants[name].size, kept)
            if lost.coarse:
                coarse[name] = kept
        if coarse and node.op in _LINEAR and not node.domain:
            yield from _dominating(node, _read(alone, node), coarse, constants, alone.runner)


def _read(alone: Carried, node: ReferenceNode) -> Mapping[str, Value]:
    """Return a node's inputs; {} if a value is missing, which is reported elsewhere."""
    try:
        return alone.of(node)
    except KeyError:
        return {}


# ---- constants


def _lost(array: Array, kept: FloatType) -> Lost:
    if kept.name == str(array.dtype) or str(array.dtype) not in ("float32", "float64"):
        return Lost()
    # The smallest number that rounds to infinity.
    limit = kept.largest + kept.unit * 2.0 ** np.floor(np.log2(kept.largest))
    beyond = vanished = low = 0
    most = largest = 0.0
    for index in blocks(array.shape):
        part = np.abs(array[index])
        over, gone = (part >= limit) & np.isfinite(part), (part <= kept.step / 2) & (part > 0)
        beyond, vanished = beyond + int(over.sum()), vanished + int(gone.sum())
        low += int(((part < kept.normal) & (part > 0)).sum())
        most = max(most, float(np.max(part, initial=0.0, where=over)))
        largest = max(largest, float(np.max(part, initial=0.0, where=gone)))
    return Lost(beyond, most, vanished, largest, bool(low) and _is_coarse(array, kept))


def _is_coarse(array: Array, kept: FloatType) -> bool:
    """Whether rounding subnormals perturbs a slice along some axis more than rounding normal numbers does."""
    low = (np.abs(array) < kept.normal) & (array != 0)
    moved = np.zeros(array.shape)
    moved[low] = np.square(array[low] - kept.rounded(array[low]))
    with np.errstate(all="ignore"):
        size = np.square(array, dtype=np.float64)
    for axis in range(max(array.ndim, 1)):
        others = tuple(i for i in range(array.ndim) if i != axis)
        if np.any(moved.sum(others) > (_DOMINATES * kept.unit) ** 2 * size.sum(others)):
            return True
    return False


def _told(node: str, name: str, lost: Lost, size: int, kept: FloatType) -> Iterator[Finding]:
    precision = _NAMES[kept.name]
    if lost.beyond:
        text = (
            f"{lost.beyond} of {size} elements of constant '{name}' are held at the limit of {precision}, {kept.largest:.5g}, or as "
            f"infinity: the largest is {lost.most:.5g}"
        )
        yield Finding("clamped constant", node, text, lost.most)
    if lost.vanished:
        text = f"{lost.vanished} of {size} elements of constant '{name}' become 0 in {precision}; the largest is {lost.largest:.3g}"
        yield Finding("vanished constant", node, text, lost.vanished)


def _dominating(
    node: ReferenceNode,
    values: Mapping[str, Value],
    coarse: Mapping[str, FloatType],
    constants: Mapping[str, Array],
    runner: Runner,
) -> Iterator[Finding]:
    """Yield a finding if rounding subnormal weights moves a result by more than rounding normal weights would."""
    moved, sizes = dict(values), dict(values)
    for place, name in enumerate(node.proto.input):
        value = values.get(name)
        if not isinstance(value, Bounded):
            continue
        exact = constants[name].astype(np.float64) if name in constants else value.value
        change = exact - coarse[name].rounded(exact) if name in coarse else np.zeros(exact.shape)
        is_data = name not in constants and place < _BIAS
        moved[name] = Bounded(exact if is_data else change, None, value.dtype, True, value.constant)
        sizes[name] = Bounded(np.abs(exact), None, value.dtype, True, value.constant)
    exactly = runner.with_types(runner.types.for_values())
    try:
        change_of, size_of = node.run(moved, exactly)[node.outputs[0]], node.run(sizes, exactly)[node.outputs[0]]
    except (Unproved, IndexError, KeyError, MemoryError):
        return
    if not isinstance(change_of, Bounded) or not isinstance(size_of, Bounded) or not change_of.size:
        return
    change, size = np.abs(change_of.value), size_of.value
    unit = max(one.unit for one in coarse.values())
    with np.errstate(all="ignore"):
        share = np.where(size > 0, change / size, 0.0)
    over = share > _DOMINATES * unit
    if not over.any():
        return
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(share), 0.0, share))), share.shape)
    text = (
        f"rounding {' and '.join(repr(name) for name in coarse)} moves {int(over.sum())} of {over.size} elements of "
        f"'{node.outputs[0]}' by more than that of normal numbers would: by {float(change[at]):.3g} at {[int(i) for i in at]}, where the "
        f"terms come to {float(size[at]):.3g}"
    )
    yield Finding("rounded weights dominate", node.name, text, float(share[at]))


# ---- results of a node


def _flushed(node: str, name: str, actual: Array, value: Bounded, kept: FloatType) -> Iterator[Finding]:
    """Yield a finding for zeros on the device that should be subnormal numbers."""
    count, largest = 0, 0.0
    if np.count_nonzero(actual) == actual.size:
        return
    for _, array, block in pairs(actual, value):
        zero = np.asarray(array) == 0
        if not zero.any():
            continue
        size = np.abs(block.value[zero])
        size = size[(size > 0) & (size < kept.normal)]
        size = size[kept.rounded(size) != 0]
        count, largest = count + size.size, max(largest, float(np.max(size, initial=0.0)))
    if count:
        text = (
            f"{count} of {actual.size} elements of '{name}' are 0 on the device, and numbers below {kept.normal:.3g} that "
            f"{_NAMES[kept.name]} has; the largest is {largest:.3g}"
        )
        yield Finding("flushed denormals", node, text, count)


def _saturated(node: ReferenceNode, values: Mapping[str, Value]) -> Iterator[Finding]:
    """Yield a finding for numbers beyond the integer range of a Cast or QuantizeLinear."""
    x = values.get(node.inputs[0])
    if not isinstance(x, Bounded) or not x.size or (node.op == "Cast" and not x.is_float):
        return
    attributes = attributes_of(node.proto)
    if node.op == "Cast":
        scale = zero = None
        dtype = dtype_of(attributes["to"])
        if dtype.kind == "O":
            return
    else:
        scale, zero = (_broadcast(values.get(name), x, attributes) for name in [*node.proto.input[1:], ""][:2])
        number = attributes.get("output_dtype", 0)
        given = values.get(node.proto.input[2]) if len(node.proto.input) > 2 else None
        dtype = given.dtype if isinstance(given, Bounded) else dtype_of(number) if number else np.dtype(np.uint8)
    if not str(dtype).startswith(("int", "uint")):
        return
    low, high = limits(dtype)
    count, farthest = 0, 0.0
    for index in blocks(x.shape):
        with np.errstate(all="ignore"):
            part = x.part(index).value.astype(np.float64)
            part = np.trunc(part) if scale is None else np.rint(part / scale[index])
            part = part if zero is None else part + zero[index]
        beyond = (part < low) | (part > high)
        count += int(beyond.sum())
        if beyond.any():
            farthest = max(farthest, *map(float, part[beyond]), key=abs)
    if count:
        text = (
            f"{count} of {x.size} elements of '{node.outputs[0]}' are beyond {dtype}, which ends at {low:.6g} and {high:.6g}; the farthest "
            f"would be {farthest:.5g}"
        )
        yield Finding("saturated integers", node.name, text, count)


def _broadcast(value: Value, x: Bounded, attributes: Mapping[str, int]) -> Array | None:
    """Broadcast a scale or zero point to all elements."""
    if not isinstance(value, Bounded):
        return None
    axis = attributes.get("axis", 1) % x.ndim if x.ndim else 0
    spread = _spread(value, x.shape, axis, attributes.get("block_size", 0))
    return np.broadcast_to(spread.value.astype(np.float64), x.shape)
