"""Gather, scatter and sort operators."""

from __future__ import annotations

import numpy as np

from random_nodes.maker import ALL, FLOATS, Maker, SkipError, Value
from random_nodes.movement import axis_of
from random_nodes.table import makes


def places(m: Maker, shapes: list[tuple[int, ...]], ends: list[int], negative: bool = True) -> Value:
    """Return indices below a bound that differs between calls; some are negative."""
    if min(ends) < 1 and any(np.prod(shape, dtype=int) for shape in shapes):
        raise SkipError("no element to point to")
    dtype = m.one(["int64", "int64", "int32"])
    arrays = [
        m.random.integers(-end if negative and end else 0, max(end, 1), shape).astype(dtype)
        for shape, end in zip(shapes, ends, strict=True)
    ]
    constant = m.chance(0.5) and len(set(shapes)) == 1
    if constant:
        least = min(ends)
        return m.constant(
            m.random.integers(-least if negative and least else 0, max(least, 1), shapes[0]).astype(dtype)
        )
    return m.input(arrays)


@makes("Gather")
def gather(m: Maker, op: str) -> None:
    x = m.pick(ALL, 1)
    axis, told = axis_of(m, x)
    sizes = m.shape(0, 2)
    shapes = [tuple(size[k] for size in sizes) for k in range(m.calls)]
    m.node(op, x, places(m, shapes, list(x.sizes[axis])), axis=told if m.chance(0.9) or axis else None)


@makes("GatherElements")
def gather_elements(m: Maker, op: str) -> None:
    x = m.pick(ALL, 1)
    axis, told = axis_of(m, x)
    sizes = list(x.sizes)
    sizes[axis] = m.size()
    shapes = [tuple(size[k] for size in sizes) for k in range(m.calls)]
    m.node(op, x, places(m, shapes, list(x.sizes[axis])), axis=told)


def tuples(m: Maker, x: Value, batch: int, count: int, lead: list[tuple[int, ...]]) -> Value:
    """Return rows of `count` indices into the axes after `batch`."""
    arrays = []
    for k in range(m.calls):
        ends = x.data[k].shape[batch : batch + count]
        shape = tuple(size[k] for size in lead)
        if min(ends, default=1) < 1:
            raise SkipError("no element to point to")
        arrays.append(np.stack([m.random.integers(-end, end, shape) for end in ends], axis=-1).astype("int64"))
    if all(one.shape == arrays[0].shape for one in arrays) and m.calls == 1 and m.chance(0.5):
        return m.constant(arrays[0])
    return m.input(arrays)


@makes("GatherND")
def gather_nd(m: Maker, op: str) -> None:
    x = m.pick(ALL, 1, nonempty=True)
    batch = m.whole(0, x.rank - 1) if m.chance(0.4) else 0
    count = m.whole(1, x.rank - batch)
    lead = [*x.sizes[:batch], *[m.size() for _ in range(m.whole(0, 1))]]
    m.node(op, x, tuples(m, x, batch, count, lead), batch_dims=batch if batch or m.chance(0.3) else None)


@makes("ScatterElements")
def scatter_elements(m: Maker, op: str) -> None:
    reduction = m.one([None, None, "add", "max", "min", "mul"])
    x = m.pick(
        ("float32", "float32", "float16", "int64", "int32", "uint8", "bool")
        if not reduction
        else ("float32", "int32", "int64", "float16"),
        1,
        4,
        nonempty=True,
        exact=bool(reduction),
    )
    axis, told = axis_of(m, x)
    shapes, rows = [], []
    for one in x.data:
        # Without a reduction, each element is written only once; otherwise any update may win.
        order = np.argsort(m.random.random(one.shape), axis=axis)
        keep = one.shape[axis] if m.chance(0.5) else m.whole(1, one.shape[axis])
        rows.append(np.take(order, range(keep), axis=axis).astype("int64"))
        shapes.append(rows[-1].shape)
    sizes = [tuple(shape[k] for shape in shapes) for k in range(x.rank)]
    indices = m.constant(rows[0]) if m.calls == 1 and m.chance(0.5) else m.input(rows)
    updates = m.pick(x.dtype, sizes=sizes, exact=bool(reduction))
    m.node(op, x, indices, updates, axis=told, reduction=reduction)


@makes("ScatterND")
def scatter_nd(m: Maker, op: str) -> None:
    reduction = m.one([None, None, "add", "max", "min"])
    x = m.pick(
        ("float32", "float32", "float16", "int64", "int32")
        if reduction
        else ("float32", "float16", "int64", "uint8", "bool"),
        1,
        4,
        nonempty=True,
        exact=bool(reduction),
    )
    count = m.whole(1, x.rank)
    rows = []
    updates_count = None
    for one in x.data:
        total = int(np.prod(one.shape[:count], dtype=int))
        updates_count = min(total, updates_count or m.one([1, 2, 3]))
    for one in x.data:
        total = int(np.prod(one.shape[:count], dtype=int))
        flat = m.random.choice(total, updates_count, replace=False)
        rows.append(np.stack(np.unravel_index(flat, one.shape[:count]), axis=-1).astype("int64"))
    indices = m.constant(rows[0]) if m.calls == 1 and m.chance(0.5) else m.input(rows)
    sizes = [*m.fixed(updates_count or 1), *x.sizes[count:]]
    m.node(op, x, indices, m.pick(x.dtype, sizes=sizes, exact=bool(reduction)), reduction=reduction)


@makes("TensorScatter")
def tensor_scatter(m: Maker, op: str) -> None:
    x = m.pick(("float32", "float16", "int64"), 3, 4, nonempty=True)
    length = min(x.sizes[-2])
    count = m.whole(1, length)
    update = m.pick(x.dtype, sizes=[*x.sizes[:-2], *m.fixed(count), x.sizes[-1]])
    mode = m.one(["linear", "circular", None])
    most = length - 1 if mode == "circular" else length - count
    rows = [m.random.integers(0, most + 1, one.shape[0]).astype("int64") for one in x.data]
    places_value = m.input(rows) if m.chance(0.8) else None
    m.node(op, x, update, places_value, mode=mode)


@makes("OneHot")
def one_hot(m: Maker, op: str) -> None:
    indices = m.pick(("int64", "int32"), 0, 3, low=-4, high=4)
    dtype = m.one(["float32", "int64", "int32", "float16"])
    values = m.constant(np.array([m.whole(-1, 0), m.whole(1, 4)], dtype))
    depth = m.constant(np.array(m.one([4, 5]), m.one(["int64", "int32"])).reshape([] if m.chance(0.6) else [1]))
    m.node(op, indices, depth, values, axis=m.one([None, -1, 0]), exact=True)


@makes("TopK")
def top_k(m: Maker, op: str) -> None:
    x = m.pick((*FLOATS, "int64", "int32", "uint8", "int8"), 1, 4, exact=True, nonempty=True)
    axis, told = axis_of(m, x)
    k = m.whole(1, min(x.sizes[axis]))
    largest = m.one([None, 0, 1])
    m.node(op, x, m.list_of([k]), outputs=2, axis=told, largest=largest, exact=True)


@makes("ArgMax ArgMin")
def positions(m: Maker, op: str) -> None:
    x = m.pick((*FLOATS, "int64", "int32", "uint8", "int8"), 1, 4, exact=True, nonempty=True)
    _, told = axis_of(m, x)
    m.node(op, x, axis=told, keepdims=m.one([None, 0, 1]), select_last_index=m.one([None, 0, 1]))


@makes("Hardmax")
def hardmax(m: Maker, op: str) -> None:
    x = m.pick(("float32", "float32", "float16"), 1, 4, exact=True, nonempty=True)
    m.node(op, x, axis=axis_of(m, x)[1])


@makes("NonMaxSuppression")
def suppression(m: Maker, op: str) -> None:
    count = m.one([1, 3, 5])
    boxes = m.leaf("float32", m.fixed(1, count, 4), 0, 6, exact=True)
    scores = m.pick("float32", sizes=m.fixed(1, m.one([1, 2]), count), exact=True)
    most = m.constant(np.array([m.one([1, 2, 5])]))
    overlap = m.constant(np.array([m.one([0.3, 0.55])], np.float32))
    m.node(op, boxes, scores, most, overlap, exact=True, center_point_box=m.one([None, 0]))
