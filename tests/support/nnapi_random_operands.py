"""Random operands of NNAPI's data-movement operations, usually legal, and sequences of bindings for a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nnapi_reference as reference

Random = np.random.Generator


class Tensor(NamedTuple):
    array: np.ndarray


class Numbers(NamedTuple):
    """A list that may be a runtime input; a matrix for paddings."""

    array: np.ndarray


class Indices(NamedTuple):
    """Indices. As runtime inputs they are not checked on the host, so they must be legal."""

    array: np.ndarray


Operand = Tensor | Numbers | Indices | int | float
Operands = tuple[Operand, ...]


class Draw(NamedTuple):
    op: str
    rule: Callable[..., Any]
    bindings: list[Operands]  # operand sets bound in turn to one program; plain numbers are the same in all
    dtype: str


SCALE, ZERO_POINT = 0.5, 3


def numbers(values: Any) -> Numbers:
    return Numbers(np.array(values, "int32"))


def shape_near(random: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape of the same rank with similar sizes."""
    return tuple(max(1, size + int(random.integers(-2, 3))) for size in shape)


def elements(random: Random, shape: tuple[int, ...], dtype: str) -> Tensor:
    return Tensor(random.integers(0, 100, shape).astype(dtype))


# ---- draws: operands for given shapes, usually legal


def draw_slice(random: Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    begin = [int(random.integers(0, size + 1)) for size in shape]
    size = [
        -1 if random.random() < 0.2 else int(random.integers(0, extent - first + 1))
        for extent, first in zip(shape, begin, strict=True)
    ]
    axis = random.integers(0, len(shape))
    if random.random() < 0.3:
        begin[axis] += int(random.choice([-1, 1, 2]))
    if random.random() < 0.2:
        size[axis] += int(random.choice([-2, 1, 3]))
    return numbers(begin), numbers(size)


def draw_strided_slice(random: Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    begin = [int(random.integers(-size - 2, size + 3)) for size in shape]
    end = [int(random.integers(-size - 2, size + 3)) for size in shape]
    strides = [int(random.choice([-3, -2, -1, 1, 1, 1, 2, 3])) for _ in shape]
    masks = [int(random.integers(0, 2 ** len(shape))) if random.random() < 0.5 else 0 for _ in range(3)]
    for axis, size in enumerate(shape):
        if masks[2] >> axis & 1 and random.random() < 0.4:  # one element, written in one of several ways
            masks[0] &= ~(1 << axis)
            masks[1] &= ~(1 << axis)
            begin[axis] = int(random.integers(-size, size))
            strides[axis] = 1
            end[axis] = begin[axis] + 1
    if random.random() < 0.1:
        strides[random.integers(0, len(shape))] = 0
    return numbers(begin), numbers(end), numbers(strides), *masks


def draw_split(random: Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    axis = int(random.integers(-len(shape), len(shape)))
    divisors = [parts for parts in range(1, shape[axis] + 1) if shape[axis] % parts == 0]
    return axis, int(random.choice(divisors)) if random.random() < 0.7 else int(random.integers(1, 6))


def draw_gather(random: Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    axis = int(random.integers(-len(shape), len(shape)))
    return axis, draw_indices(random, shape[axis])


def draw_indices(random: Random, size: int) -> Indices:
    wrong = random.random() < 0.3
    low, high = (-2, size + 2) if wrong else (0, size)
    return Indices(random.integers(low, high, random.integers(1, 4, random.integers(1, 3))).astype("int32"))


def draw_pads(random: Random, shape: tuple[int, ...]) -> Numbers:
    pads = random.integers(0, 3, (len(shape), 2))
    if random.random() < 0.2:
        pads[random.integers(0, len(shape)), random.integers(0, 2)] = -1
    return numbers(pads)


def draw_mirror_pad(random: Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    mode = int(random.integers(0, 2))
    most = [size - (mode == 0) + (random.random() < 0.1) for size in shape]
    return numbers([[random.integers(0, size + 1), random.integers(0, size + 1)] for size in most]), mode


def draw_tile(random: Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    multiples = random.integers(0, 4, len(shape))
    if random.random() < 0.2:
        multiples[random.integers(0, len(shape))] = -1
    return (numbers(multiples),)


def draws(random: Random, op: str) -> Draw:
    """Return a program's operation and the operand sets that it is bound to in turn."""
    rule, draw, dtypes = KINDS[op]
    dtype = str(random.choice(dtypes))
    shape = tuple(int(size) for size in random.integers(1, 6, random.integers(1, 5)))
    shapes = [shape, *(shape_near(random, shape) for _ in range(2))]
    if random.random() < 0.2:
        shapes[-1] = (*shape, 2)  # one shape of another rank
    bindings: list[Operands] = []
    plain: list[int | float] = []
    for i, item in enumerate(shapes):
        x = elements(random, item, dtype)
        if op == "SELECT":
            others = [item if random.random() < 0.7 else shape_near(random, item) for _ in range(2)]
            bindings.append((Tensor(x.array % 2 == 0), *(elements(random, other, dtype) for other in others)))
            continue
        more = draw(random, item)
        if i == 0:
            plain = [operand for operand in more if isinstance(operand, int | float)]
        same = iter(plain)
        more = tuple(next(same) if isinstance(operand, int | float) else operand for operand in more)
        bindings.append((more[0], x) if op == "EMBEDDING_LOOKUP" else (x, *more))
    return Draw(op, rule, bindings, dtype)


REALS, NUMBERS = ["float32", "float16", "uint8", "int8"], ["float32", "float16", "uint8", "int8", "int32"]
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[str]]] = {
    "SLICE": (reference.slice_, draw_slice, NUMBERS),
    "STRIDED_SLICE": (reference.strided_slice, draw_strided_slice, REALS),
    "SPLIT": (reference.split, draw_split, NUMBERS),
    "GATHER": (reference.gather, draw_gather, NUMBERS),
    "EMBEDDING_LOOKUP": (
        reference.embedding_lookup,
        lambda random, shape: (draw_indices(random, shape[0]),),
        NUMBERS,
    ),
    "PAD": (reference.pad, lambda random, shape: (draw_pads(random, shape),), REALS),
    "PAD_V2": (reference.pad, lambda random, shape: (draw_pads(random, shape), 7.5), ["float32", "float16"]),
    "MIRROR_PAD": (reference.mirror_pad, draw_mirror_pad, NUMBERS),
    "TILE": (reference.tile, draw_tile, NUMBERS),
    "SELECT": (reference.select, lambda random, shape: (), ["float32", "int32"]),
}
