"""Plans to evaluate operators block by block: which operators allow it, and which input elements a block reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Index
from .alternative_values import (
    assign_labels_before_broadcast,
    is_undecided,
    list_alternatives,
)
from .block_ranges import BLOCK_ELEMENTS, broadcast_index, iter_blocks
from .bounded_tensor import BoundedTensor

# Elementwise operators with broadcasting.
ELEMENTWISE = {
    *("Exp", "Log", "Sqrt", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
    *("Sigmoid", "Softplus", "Abs", "Neg", "Sign", "Relu", "Reciprocal", "Softsign", "Mish", "HardSwish", "Add", "Sub", "Mul", "Div"),
    *("Sum", "Mean", "Max", "Min", "LeakyRelu", "PRelu", "ThresholdedRelu", "Shrink", "Elu", "Celu", "Selu", "HardSigmoid", "Gelu"),
    *("Swish", "Clip", "Mod", "Not", "And", "Or", "Xor", "Where", "IsNaN", "IsInf", "Equal", "Less", "Greater", "LessOrEqual"),
    *("GreaterOrEqual", "Floor", "Ceil", "Round", "Cast"),
}  # fmt: skip
_ROWWISE_AXES = {"Softmax": -1, "LogSoftmax": -1, "LayerNormalization": -1, "RMSNormalization": -1}  # default `axis`
BLOCKWISE = {*ELEMENTWISE, *_ROWWISE_AXES, "BatchNormalization", "Concat", "MatMul"}
READS_ATTRIBUTES = BLOCKWISE - ELEMENTWISE - {"MatMul"}
MIN_OPSET = 13  # earlier opsets broadcast differently, and their Softmax normalises over several axes
MIN_BLOCK_ROWS = 256  # minimum rows of a GEMM block; fewer do not amortise reading the other matrix

BlockInputs = Callable[[Index], list[Any]]


class BlockPlan(NamedTuple):
    """Shape of the result, the indices of its blocks, and a function that returns the inputs of a block."""

    shape: tuple[int, ...]
    blocks: Iterator[Index]
    inputs: BlockInputs


def plan_blocks(
    op: str, opset: int, attributes: Mapping[str, Any], inputs: Sequence[Any], outputs: int
) -> BlockPlan | None:
    """Return a plan to evaluate an ONNX operator block by block; None if it must be evaluated at once or is small."""
    if op not in BLOCKWISE or opset < MIN_OPSET or outputs != 1 or not inputs:
        return None
    if any(value is not None and not isinstance(value, BoundedTensor) for value in inputs):
        return None
    if op in ELEMENTWISE:
        return plan_elementwise_blocks(inputs)
    if op in _ROWWISE_AXES and inputs[0].ndim:
        return _plan_row_blocks(inputs, int(attributes.get("axis", _ROWWISE_AXES[op])))
    if op == "BatchNormalization" and not attributes.get("training_mode", 0) and inputs[0].ndim > 1:
        return _plan_channel_blocks(inputs)
    if op == "Concat":
        return _plan_concat_blocks(inputs, int(attributes["axis"]))
    return _plan_gemm_blocks(inputs) if op == "MatMul" else None


def plan_elementwise_blocks(inputs: Iterable[Any]) -> BlockPlan | None:
    """Return a plan to evaluate an elementwise expression of these inputs block by block; None if the result is small."""
    inputs = [*inputs]
    if any(value is not None and not isinstance(value, BoundedTensor) for value in inputs):
        return None
    shape = _compute_broadcast_shape([value.shape for value in inputs if value is not None])
    if math.prod(shape) <= BLOCK_ELEMENTS:
        return None
    labelled = [None if value is None else label_value(value, shape) for value in inputs]
    return BlockPlan(shape, iter_blocks(shape), lambda index: slice_inputs(labelled, index))


def _compute_broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common broadcast shape of these shapes."""
    rank = max(map(len, shapes))
    padded_shapes = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded_shapes, strict=True))


def slice_inputs(inputs: Sequence[Any], index: Index) -> list[Any]:
    """Return the slices of the inputs that the elementwise result at `index` depends on."""
    return [None if value is None else value.get_block(broadcast_index(index, value.shape)) for value in inputs]


def _plan_row_blocks(inputs: Sequence[Any], axis: int) -> BlockPlan | None:
    x = inputs[0]
    rows = axis % x.ndim
    if (
        x.size <= BLOCK_ELEMENTS
        or rows == 0
        or any(value is not None and value.ndim > x.ndim - rows for value in inputs[1:])
    ):
        return None
    rest = [None if value is None else value.materialize() for value in inputs[1:]]
    return BlockPlan(x.shape, iter_blocks(x.shape, rows), lambda index: [x.get_block(index), *rest])


def _plan_channel_blocks(inputs: Sequence[Any]) -> BlockPlan | None:
    x, rest = inputs[0], [value.materialize() for value in inputs[1:]]
    if x.size <= BLOCK_ELEMENTS or any(value.shape != x.shape[1:2] for value in rest):
        return None
    return BlockPlan(
        x.shape,
        iter_blocks(x.shape),
        lambda index: [x.get_block(index), *(value.get_block(index[1:2]) for value in rest)],
    )


def _plan_concat_blocks(inputs: Sequence[Any], axis: int) -> BlockPlan | None:
    """Return a plan for Concat; each block of the result comes from a single input."""
    if len({(value.stored, value.dtype, value.ndim) for value in inputs}) > 1:
        return None
    along = axis % inputs[0].ndim
    ends = np.cumsum([value.shape[along] for value in inputs])
    shape = (*inputs[0].shape[:along], int(ends[-1]), *inputs[0].shape[along + 1 :])
    if math.prod(shape) <= BLOCK_ELEMENTS:
        return None

    def slice_block_inputs(index: Index) -> list[Any]:
        source = int(np.searchsorted(ends, index[along].start, "right"))
        return [
            inputs[source].get_block(_shift_block_index(index, along, inputs[source].shape[along] - int(ends[source])))
        ]

    block_indices = (
        _shift_block_index(index, along, int(end) - value.shape[along])
        for value, end in zip(inputs, ends, strict=True)
        for index in iter_blocks(value.shape)
        if value.size
    )
    return BlockPlan(shape, block_indices, slice_block_inputs)


def _shift_block_index(index: Index, axis: int, offset: int) -> Index:
    axis_slice = index[axis]
    return (*index[:axis], slice(axis_slice.start + offset, axis_slice.stop + offset), *index[axis + 1 :])


def _plan_gemm_blocks(inputs: Sequence[Any]) -> BlockPlan | None:
    a, b = inputs
    if not a.is_float or a.ndim < 2 or b.ndim < 2 or (b.ndim > 2 and a.shape[:-2] != b.shape[:-2]):
        return None
    shape = (*a.shape[:-1], b.shape[-1])
    if math.prod(shape) <= 4 * BLOCK_ELEMENTS:  # for a small result, a single GEMM is faster
        return None
    if b.ndim > 2:
        block_indices = iter_blocks(shape, len(shape) - 2)
        return BlockPlan(
            shape, block_indices, lambda index: [_slice_block_rows(a, index, 2), _slice_block_rows(b, index, 2)]
        )
    whole = b.materialize()
    block_indices = iter_blocks(shape, len(shape) - 1, max(4 * BLOCK_ELEMENTS, MIN_BLOCK_ROWS * shape[-1]))
    return BlockPlan(shape, block_indices, lambda index: [_slice_block_rows(a, index, 1), whole])


def _slice_block_rows(value: BoundedTensor, index: Index, last: int) -> BoundedTensor:
    """Return the rows that a block reads; the last axes are read completely."""
    last_slices = tuple(slice(0, size) for size in value.shape[len(value.shape) - last :])
    return value.get_block((*index[: len(index) - last], *last_slices))


def label_value(value: BoundedTensor, shape: tuple[int, ...]) -> BoundedTensor:
    """Label the alternatives of a value that is broadcast, before the result is split into blocks."""
    alternatives = list_alternatives(value) if value.size != math.prod(shape) and is_undecided(value) else None
    if alternatives is None:
        return value
    whole = value.materialize()
    combined = BoundedTensor(whole.value, whole.error, whole.dtype, whole.stored, whole.constant)
    return combined.set_alternatives(assign_labels_before_broadcast(alternatives, shape))
