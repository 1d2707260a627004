"""Data movement operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_nodes.maker import ALL, Maker, SkipError, Value
from random_nodes.table import makes

ANY = ALL


def axis_of(m: Maker, x: Value, low: int = 0) -> tuple[int, int]:
    """Return an axis, and its attribute value, which may be negative."""
    if x.rank <= low:
        raise SkipError("no axis")
    axis = m.whole(low, x.rank - 1)
    return axis, axis - x.rank if m.chance(0.35) else axis


@makes("Transpose")
def transpose(m: Maker, op: str) -> None:
    x = m.pick(ANY, 0)
    perm = [int(k) for k in m.random.permutation(x.rank)]
    m.node(op, x, perm=perm if x.rank and m.chance(0.85) else None)


@makes("Reshape")
def reshape(m: Maker, op: str) -> None:
    x = m.pick(ANY)
    rows: list[list[int]] = []
    kind = m.random.random()
    a, b = m.whole(0, x.rank), m.whole(0, x.rank)
    a, b = min(a, b), max(a, b)
    for k in range(m.calls):
        shape = list(x.data[k].shape)
        if kind < 0.3:
            row = [*[0] * a, -1, *shape[b:]] if a < b else [*[0] * a, *shape[a:]]
        elif kind < 0.5:
            row = [*shape[:a], int(np.prod(shape[a:b], dtype=int)), *shape[b:]]
        elif kind < 0.65:
            row = [-1]
        elif kind < 0.8:
            row = [*shape[:a], 1, *shape[a:]]
        else:
            row = shape[::-1]
        rows.append(row)
    if m.symbolic and m.chance(0.3):
        (shape_value,) = m.node("Shape", x)
        m.node(op, x, shape_value)
        return
    m.node(op, x, m.lists_of(rows))


@makes("Flatten")
def flatten(m: Maker, op: str) -> None:
    x = m.pick(ANY)
    m.node(op, x, axis=m.whole(-x.rank, x.rank) if m.chance(0.8) or not x.rank else None)


@makes("Squeeze")
def squeeze(m: Maker, op: str) -> None:
    x = m.pick(ANY, 1, 5, test=lambda v: any(set(size) == {1} for size in v.sizes))
    axes = [k for k, size in enumerate(x.sizes) if set(size) == {1}]
    chosen = [k if m.chance(0.6) else k - x.rank for k in axes if m.chance(0.7)] or axes[:1]
    has_one_rank = all(set(size) == {1} or 1 not in size for size in x.sizes)
    if has_one_rank and m.chance(0.2):
        m.node(op, x)
    else:
        m.node(op, x, m.list_of(chosen))


@makes("Unsqueeze")
def unsqueeze(m: Maker, op: str) -> None:
    x = m.pick(ANY, 0, 4)
    count = m.one([1, 1, 2])
    rank = x.rank + count
    axes = [int(k) for k in m.random.choice(rank, count, replace=False)]
    m.node(op, x, m.list_of([k if m.chance(0.7) else k - rank for k in axes]))


@makes("Concat")
def concat(m: Maker, op: str) -> None:
    x = m.pick(ANY, 1)
    axis, told = axis_of(m, x)
    parts = [x]
    for _ in range(m.one([0, 1, 1, 2, 3])):
        sizes = list(x.sizes)
        if m.chance(0.5):
            sizes[axis] = m.size()
        parts.append(m.pick(x.dtype, sizes=sizes) if m.chance(0.9) else x)
    order = [parts[int(k)] for k in m.random.permutation(len(parts))]
    m.node(op, *order, axis=told)


@makes("Split")
def split(m: Maker, op: str) -> None:
    x = m.pick(ANY, 1)
    axis, told = axis_of(m, x)
    sizes = x.sizes[axis]
    count = m.one([1, 2, 3])
    if m.chance(0.5):
        rows = []
        for size in sizes:
            cuts = sorted(m.whole(0, size) for _ in range(count - 1))
            rows.append([b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)])
        m.node(op, x, m.lists_of(rows), outputs=count, axis=told)
    elif all(size % count == 0 for size in sizes) and min(sizes) > 0:
        m.node(op, x, outputs=count, axis=told, num_outputs=count)
    else:
        if min(sizes) < count or any(-(-size // count) * (count - 1) >= size for size in sizes):
            raise SkipError("too few")
        m.node(op, x, outputs=count, axis=told, num_outputs=count)


@makes("Slice")
def cut(m: Maker, op: str) -> None:
    x = m.pick(ANY, 1)
    count = m.whole(1, x.rank)
    axes = [int(k) for k in m.random.choice(x.rank, count, replace=False)]
    starts, ends, steps = [], [], []
    for _ in axes:
        step = m.one([1, 1, 1, 2, -1, -2, 3])
        start, end = m.one([0, 1, 2, -3, -1]), m.one([3, 4, -1, 100, 2**31 - 1, 2**63 - 1])
        if step < 0:
            start, end = m.one([-1, 100, 3, 2**31 - 1]), m.one([0, 1, -100, -(2**31), -4])
        starts.append(start)
        ends.append(end)
        steps.append(step)
    dtype = "int64" if max(map(abs, [*starts, *ends])) > 2**31 - 2 else m.one(["int64", "int32"])
    told = [k if m.chance(0.6) else k - x.rank for k in axes]
    computed = m.chance(0.12)
    given = [m.list_of(row, dtype, computed) for row in (starts, ends, told)]
    if any(step != 1 for step in steps):
        given.append(m.list_of(steps, dtype, computed))
    m.node(op, x, *given)


@makes("Expand")
def expand(m: Maker, op: str) -> None:
    x = m.pick(ANY, 0, 4)
    target = [size if set(size) != {1} or m.chance(0.3) else m.size() for size in x.sizes]
    extra = [m.size() for _ in range(m.one([0, 0, 1]))]
    row_sizes = [*extra, *[size if m.chance(0.7) else m.fixed(1)[0] for size in target]]
    rows = [[size[k] for size in row_sizes] for k in range(m.calls)]
    m.node(op, x, m.lists_of(rows))


@makes("Tile")
def tile(m: Maker, op: str) -> None:
    x = m.pick(ANY, 1, 4)
    m.node(op, x, m.list_of([m.one([1, 1, 2, 3, 0 if m.chance(0.05) else 1]) for _ in range(x.rank)]))


@makes("Pad")
def pad(m: Maker, op: str) -> None:
    mode = m.one(["constant", "constant", "edge", "reflect", "wrap"])
    x = m.pick(ANY, 1, 4, nonempty=True)
    axes = list(range(x.rank))
    axes_value: Value | None = None
    if m.chance(0.3):
        axes = sorted(int(k) for k in m.random.choice(x.rank, m.whole(1, x.rank), replace=False))
        axes_value = m.list_of([k if m.chance(0.6) else k - x.rank for k in axes], computed=False)
    begins, ends = [], []
    for k in axes:
        least = min(x.sizes[k])
        most = least - 1 if mode == "reflect" else least if mode == "wrap" else 2
        low = -1 if mode == "constant" and least > 2 and m.chance(0.2) else 0
        begins.append(m.whole(low, min(2, most)))
        ends.append(m.whole(low, min(2, most)))
    value = None
    if mode == "constant" and m.chance(0.5):
        value = m.leaf(x.dtype, [], 1, 4, exact=True, constant=m.chance(0.8))
    m.node(op, x, m.list_of([*begins, *ends]), value, axes_value, mode=mode)


@makes("DepthToSpace SpaceToDepth")
def blocks(m: Maker, op: str) -> None:
    n, c, h, w = m.size(), m.one([1, 2, 3]), m.one([1, 2, 3]), m.one([1, 2])
    if op == "DepthToSpace":
        sizes = [n, *m.fixed(c * 4, h), m.size()]
        x = m.pick(("float32", "float32", "float16", "int32", "uint8"), sizes=sizes)
        m.node(op, x, blocksize=2, mode=m.one(["DCR", "CRD", None]))
    else:
        x = m.pick(("float32", "float32", "float16", "int32", "uint8"), sizes=[n, *m.fixed(c, 2 * h, 2 * w)])
        m.node(op, x, blocksize=2)


@makes("Trilu")
def trilu(m: Maker, op: str) -> None:
    x = m.pick(ANY, 2)
    k = m.list_of(m.whole(-2, 3)) if m.chance(0.6) else None  # type: ignore[arg-type]
    m.node(op, x, k, upper=m.one([0, 1, None]))


@makes("ReverseSequence")
def reverse_sequence(m: Maker, op: str) -> None:
    x = m.pick(ANY, 2, 5, nonempty=True)
    time = m.whole(0, 1)
    rows = []
    for one in x.data:
        rows.append([m.whole(1, one.shape[time]) for _ in range(one.shape[1 - time])])
    lengths = m.lists_of(rows) if m.chance(0.5) else m.input([np.array(row) for row in rows])
    m.node(op, x, lengths, time_axis=time, batch_axis=1 - time)


@makes("Compress")
def compress(m: Maker, op: str) -> None:
    x = m.pick(ANY, 1)
    if m.chance(0.3):
        count, attributes = 5, {}
    else:
        axis, told = axis_of(m, x)
        count, attributes = m.one([x.sizes[axis][0], 1, 2]), {"axis": told}
        if any(count > size for size in x.sizes[axis]):
            raise SkipError("longer than the axis")
    if not attributes and x.least < 5:
        raise SkipError("longer than the tensor")
    m.node(op, x, m.pick("bool", sizes=m.fixed(count)), **attributes)


@makes("NonZero")
def nonzero(m: Maker, op: str) -> None:
    m.node(op, m.pick(("float32", "int32", "int64", "bool", "uint8"), 1, 4, exact=True))


@makes("Unique")
def unique(m: Maker, op: str) -> None:
    x = m.pick(("float32", "int64", "int8"), 1, 3, exact=True, nonempty=True)
    attributes: dict[str, Any] = {"axis": m.whole(0, x.rank - 1)} if m.chance(0.3) else {}
    m.node(op, x, outputs=m.one([1, 1, 2, 3, 4]), sorted=m.one([None, 0, 1]), **attributes)


@makes("SequenceConstruct SequenceAt SequenceInsert SequenceErase SequenceLength ConcatFromSequence SplitToSequence")
def sequences(m: Maker, op: str) -> None:
    x = m.pick(("float32", "int64", "int32", "float16"), 1, 3)
    if op == "SplitToSequence" or m.chance(0.2):
        axis, told = axis_of(m, x)
        if min(x.sizes[axis]) < 1:
            raise SkipError("nothing to split")
        part = None if m.chance(0.5) else m.constant(np.array(1))
        attributes = {"axis": told, "keepdims": None if part else m.one([None, 0, 1])}
        (whole,) = m.node("SplitToSequence", x, part, **attributes)
    else:
        more = [m.pick(x.dtype, sizes=x.sizes) for _ in range(m.whole(0, 2))]
        (whole,) = m.node("SequenceConstruct", x, *more)
    length = min(len(one) for one in whole.data)
    if op == "SequenceInsert":
        y = m.pick(x.dtype, sizes=[tuple(one[0].shape[k] for one in whole.data) for k in range(whole.data[0][0].ndim)])
        at = m.list_of(m.whole(-length, length)) if m.chance(0.6) else None  # type: ignore[arg-type]
        (whole,) = m.node(op, whole, y, at)
        length += 1
    elif op == "SequenceErase" and length > 1:
        (whole,) = m.node(op, whole, m.list_of(m.whole(-length, length - 1)))  # type: ignore[arg-type]
        length -= 1
    elif op == "SequenceErase":
        raise SkipError("an empty list has no type")
    if op == "SequenceLength":
        m.node(op, whole)
    elif op == "ConcatFromSequence":
        m.node(op, whole, axis=m.one([0, -1]), new_axis=m.one([None, 0, 1]))
    else:
        m.node("SequenceAt", whole, m.list_of(m.whole(-length, length - 1)))  # type: ignore[arg-type]
