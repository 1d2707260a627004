"""Operators that can be evaluated block by block, and the inputs that each block reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .bounded import Bounded
from .block_ranges import BLOCK, Index, blocks, cut
from .choice_groups import of_one_choice

# Elementwise operators with broadcasting.
MAPS = {
    *("Exp", "Log", "Sqrt", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
    *("Sigmoid", "Softplus", "Abs", "Neg", "Sign", "Relu", "Reciprocal", "Softsign", "Mish", "HardSwish", "Add", "Sub", "Mul", "Div"),
    *("Sum", "Mean", "Max", "Min", "LeakyRelu", "PRelu", "ThresholdedRelu", "Shrink", "Elu", "Celu", "Selu", "HardSigmoid", "Gelu"),
    *("Swish", "Clip", "Mod", "Not", "And", "Or", "Xor", "Where", "IsNaN", "IsInf", "Equal", "Less", "Greater", "LessOrEqual"),
    *("GreaterOrEqual", "Floor", "Ceil", "Round", "Cast"),
}  # fmt: skip
_ROWS = {"Softmax": -1, "LogSoftmax": -1, "LayerNormalization": -1, "RMSNormalization": -1}  # default `axis`
BLOCKWISE = {*MAPS, *_ROWS, "BatchNormalization", "Concat", "MatMul"}
READS_ATTRIBUTES = BLOCKWISE - MAPS - {"MatMul"}
OLDEST = 13  # oldest supported opset; earlier ones broadcast differently and normalise over several axes
LEAST_ROWS = 256  # minimum rows of a GEMM block, enough to amortise reading the other matrix

Cut = Callable[[Index], list[Any]]


class Blockwise(NamedTuple):
    """Shape of the result, its blocks, and a function from a block to its inputs."""

    shape: tuple[int, ...]
    blocks: Iterator[Index]
    inputs: Cut


def blockwise(
    op: str, opset: int, attributes: Mapping[str, Any], inputs: Sequence[Any], outputs: int
) -> Blockwise | None:
    """Return how to evaluate an ONNX operator by blocks, or None to evaluate it at once (small results)."""
    if op not in BLOCKWISE or opset < OLDEST or outputs != 1 or not inputs:
        return None
    if any(one is not None and not isinstance(one, Bounded) for one in inputs):
        return None
    if op in MAPS:
        return blocks_of(inputs)
    if op in _ROWS and inputs[0].ndim:
        return _of_rows(inputs, int(attributes.get("axis", _ROWS[op])))
    if op == "BatchNormalization" and not attributes.get("training_mode", 0) and inputs[0].ndim > 1:
        return _of_channels(inputs)
    if op == "Concat":
        return _of_parts(inputs, int(attributes["axis"]))
    return _of_product(inputs) if op == "MatMul" else None


def blocks_of(inputs: Iterable[Any]) -> Blockwise | None:
    """Return how to evaluate elementwise operators on these inputs by blocks; None if the result is small."""
    inputs = [*inputs]
    if any(one is not None and not isinstance(one, Bounded) for one in inputs):
        return None
    shape = _broadcast([one.shape for one in inputs if one is not None])
    if math.prod(shape) <= BLOCK:
        return None
    given = [None if one is None else of_one_choice(one, shape) for one in inputs]
    return Blockwise(shape, blocks(shape), lambda index: parts(given, index))


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the broadcast shape."""
    rank = max(map(len, shapes))
    wide = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*wide, strict=True))


def parts(inputs: Sequence[Any], index: Index) -> list[Any]:
    """Return the blocks of the inputs that an elementwise block reads."""
    return [None if one is None else one.part(cut(index, one.shape)) for one in inputs]


def _of_rows(inputs: Sequence[Any], axis: int) -> Blockwise | None:
    x = inputs[0]
    rows = axis % x.ndim
    if x.size <= BLOCK or rows == 0 or any(one is not None and one.ndim > x.ndim - rows for one in inputs[1:]):
        return None
    rest = [None if one is None else one.whole() for one in inputs[1:]]
    return Blockwise(x.shape, blocks(x.shape, rows), lambda index: [x.part(index), *rest])


def _of_channels(inputs: Sequence[Any]) -> Blockwise | None:
    x, rest = inputs[0], [one.whole() for one in inputs[1:]]
    if x.size <= BLOCK or any(one.shape != x.shape[1:2] for one in rest):
        return None
    return Blockwise(x.shape, blocks(x.shape), lambda index: [x.part(index), *(one.part(index[1:2]) for one in rest)])


def _of_parts(inputs: Sequence[Any], axis: int) -> Blockwise | None:
    """Concatenate by blocks, each of which is within one input."""
    if len({(one.stored, one.dtype, one.ndim) for one in inputs}) > 1:
        return None
    along = axis % inputs[0].ndim
    ends = np.cumsum([one.shape[along] for one in inputs])
    shape = (*inputs[0].shape[:along], int(ends[-1]), *inputs[0].shape[along + 1 :])
    if math.prod(shape) <= BLOCK:
        return None

    def part(index: Index) -> list[Any]:
        source = int(np.searchsorted(ends, index[along].start, "right"))
        return [inputs[source].part(_shifted(index, along, inputs[source].shape[along] - int(ends[source])))]

    cuts = (
        _shifted(index, along, int(end) - one.shape[along])
        for one, end in zip(inputs, ends, strict=True)
        for index in blocks(one.shape)
        if one.size
    )
    return Blockwise(shape, cuts, part)


def _shifted(index: Index, along: int, by: int) -> Index:
    here = index[along]
    return (*index[:along], slice(here.start + by, here.stop + by), *index[along + 1 :])


def _of_product(inputs: Sequence[Any]) -> Blockwise | None:
    a, b = inputs
    if not a.is_float or a.ndim < 2 or b.ndim < 2 or (b.ndim > 2 and a.shape[:-2] != b.shape[:-2]):
        return None
    shape = (*a.shape[:-1], b.shape[-1])
    if math.prod(shape) <= 4 * BLOCK:  # many small GEMMs take longer than one large GEMM
        return None
    if b.ndim > 2:
        cuts = blocks(shape, len(shape) - 2)
        return Blockwise(shape, cuts, lambda index: [_rows(a, index, 2), _rows(b, index, 2)])
    whole = b.whole()
    cuts = blocks(shape, len(shape) - 1, max(4 * BLOCK, LEAST_ROWS * shape[-1]))
    return Blockwise(shape, cuts, lambda index: [_rows(a, index, 1), whole])


def _rows(value: Bounded, index: Index, last: int) -> Bounded:
    """Return the rows of a block, each with all elements of its last axes."""
    kept = tuple(slice(0, size) for size in value.shape[len(value.shape) - last :])
    return value.part((*index[: len(index) - last], *kept))
