"""Rules of operators that only move data: values and errors move together, and nothing is rounded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .undecided_choices import gathered, joined_sides, taken
from .registry import Call, Undecided, Unproved, rule
from .alternatives import MOST, as_options, new_labels


def _ints(value: Any) -> Array:
    return np.asarray(value, np.int64)


@rule("Reshape")
def _reshape(call: Call) -> list[Any]:
    x = call.input(0)
    wanted = call.integers(1) if call.attribute("shape") is None else list(call.attribute("shape"))
    assert wanted is not None
    if not call.attribute("allowzero", 0):
        wanted = [x.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
    if -1 in wanted:  # axes of size 0 on both sides cancel
        left, rest = (int(np.prod([one for one in sizes if one > 0], dtype=int)) for sizes in (x.shape, wanted))
        left = 0 if x.size == 0 and 0 not in wanted else left
        wanted = [left // rest if size == -1 else size for size in wanted]
    return [x.moved(lambda v: v.reshape(wanted))]


@rule("Flatten")
def _flatten(call: Call) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 1)
    rows = int(np.prod(x.shape[: axis + x.ndim if axis < 0 else axis], dtype=int))
    rest = int(np.prod(x.shape[axis + x.ndim if axis < 0 else axis :], dtype=int))
    return [x.moved(lambda v: v.reshape(rows, rest))]


@rule("Transpose")
def _transpose(call: Call) -> list[Any]:
    return [call.input(0).moved(lambda v: np.transpose(v, call.attribute("perm")))]


@rule("Squeeze")
def _squeeze(call: Call) -> list[Any]:
    axes = call.axes()
    return [call.input(0).moved(lambda v: np.squeeze(v, None if axes is None else tuple(axes)))]


@rule("Unsqueeze")
def _unsqueeze(call: Call) -> list[Any]:
    axes = call.axes()
    return [call.input(0).moved(lambda v: np.expand_dims(v, tuple(axes or [])))]


@rule("Expand")
def _expand(call: Call) -> list[Any]:
    x, wanted = call.input(0), call.integers(1)
    shape = np.broadcast_shapes(x.shape, tuple(wanted or []))
    return [x.moved(lambda v: np.broadcast_to(v, shape))]


@rule("Tile")
def _tile(call: Call) -> list[Any]:
    x, repeats = call.input(0), call.integers(1) or []
    if len(call) == 3:  # opset 1: the count and the axis
        repeats, axis = [1] * x.ndim, int(call.exact(2).reshape(-1)[0])
        repeats[axis] = int(call.exact(1).reshape(-1)[0])
    return [x.moved(lambda v: np.tile(v, repeats))]


@rule("Concat")
def _concat(call: Call) -> list[Any]:
    return [joined([call.input(i) for i in range(len(call))], call.attribute("axis", 1))]


def joined(values: list[Bounded], axis: int, new: bool = False) -> Bounded:
    """Concatenate tensors along an axis, or stack them along a new one."""
    join = np.stack if new else np.concatenate
    error = None if all(one.exact for one in values) else join([one.errors() for one in values], axis=axis)
    kept = all(one.stored for one in values)
    made = Bounded(join([one.value for one in values], axis=axis), error, values[0].dtype, kept)
    return made.with_sides(joined_sides(values, lambda arrays: np.asarray(join(arrays, axis=axis))))


@rule("Split")
def _split(call: Call) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    given = call.attribute("split")
    sizes = list(given) if given is not None else call.integers(1)
    if sizes is None:
        count = call.attribute("num_outputs", call.outputs)
        each = -(-x.shape[axis] // count)
        sizes = [min(each, max(x.shape[axis] - i * each, 0)) for i in range(count)]
    ends = np.cumsum([0, *sizes])
    return [
        x.moved(lambda v, a=a, b=b: np.take(v, np.arange(a, b), axis))  # type: ignore[misc]
        for a, b in itertools.pairwise(ends)
    ]


@rule("Slice")
def _slice(call: Call) -> list[Any]:
    x = call.input(0)
    if call.attribute("starts") is not None:
        starts, ends, axes, steps = call.attribute("starts"), call.attribute("ends"), call.attribute("axes"), None
    else:
        starts, ends, axes, steps = (call.integers(i) for i in range(1, 5))
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    index: list[Any] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        begin = min(max(start + size if start < 0 else start, max(low, 0)), high)
        stop = min(max(end + size if end < 0 else end, low), high if step > 0 else size)
        places = np.arange(begin, stop, step)
        index[axis] = slice(begin, None if step < 0 and stop < 0 else stop, step) if len(places) else slice(0, 0)
    return [x.moved(lambda v: v[tuple(index)])]


@rule("Shape", "Size")
def _shape(call: Call) -> list[Any]:
    value = call.given[0]
    shape = value.shape
    if call.op == "Size":
        return [Bounded(_ints(value.size), None, np.int64)]
    return [Bounded(_ints(list(shape)[call.attribute("start", 0) : call.attribute("end", len(shape))]), None, np.int64)]


@rule("Pad")
def _pad(call: Call) -> list[Any]:
    x, mode = call.input(0), call.attribute("mode", "constant")
    given = call.attribute("pads", call.attribute("paddings"))
    pads = list(given) if given is not None else call.integers(1) or []
    axes = call.integers(3) if given is None and call.optional(3) is not None else list(range(x.ndim))
    fill = call.optional(2) if given is None else None
    width = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes or []):
        width[axis] = (pads[i], pads[i + len(pads) // 2])
    cut = tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(width, x.shape, strict=True))
    wide = [(max(a, 0), max(b, 0)) for a, b in width]
    names = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode != "constant":
        return [x.moved(lambda v: np.pad(v[cut], wide, mode=names[mode]))]  # type: ignore[call-overload]
    unsaid = "" if x.dtype == object else 0
    number = (
        fill.value.reshape(-1)[0] if fill is not None else np.asarray(call.attribute("value", unsaid), x.value.dtype)
    )
    error = None if x.error is None else np.pad(x.error[cut], wide)
    value = np.pad(x.value[cut], wide, constant_values=number)
    if x.is_float and (given is not None or (fill is not None and not fill.exact)):
        own = call.types.storage(x.dtype).apart(number)
        outside = np.pad(np.zeros(x.value[cut].shape), wide, constant_values=own)
        error = outside if error is None else error + outside
    return [Bounded(value, error, x.dtype, x.stored)]


@rule("Gather")
def _gather(call: Call) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    indices, unsure = indices_of(call.input(1), x.shape[axis])

    def take(at: Array) -> Bounded:
        at = indices_of(Bounded(at), x.shape[axis])[0]
        return x.moved(lambda v: np.take(v, at, axis))

    made = take(indices)
    if unsure is None:
        return [made]

    def spread(v: Array) -> Array:
        return np.broadcast_to(v.reshape(v.shape + (1,) * (x.ndim - 1 - axis % x.ndim)), made.shape)

    return [gathered(call.input(1), take, made, spread, rows=x.size > x.shape[axis])]


def indices_of(given: Bounded, size: int) -> tuple[Array, Array | None]:
    """Return non-negative indices, and which of them are undecided. Raise IndexError if one is out of range."""
    indices = given.value.astype(np.int64)
    unsure = None if given.error is None or not (given.error > 0).any() else given.error > 0
    wrong = (indices < -size) | (indices >= size)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise IndexError(f"index {int(indices[at])} at {list(at)}; expected {-size} to {size - 1}")
    return np.where(indices < 0, indices + size, indices), unsure


@rule("GatherElements")
def _gather_elements(call: Call) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    indices, unsure = indices_of(call.input(1), x.shape[axis])
    cut = tuple(slice(None) if i == axis % x.ndim else slice(0, n) for i, n in enumerate(indices.shape))

    def take(at: Array) -> Bounded:
        at = indices_of(Bounded(at), x.shape[axis])[0]
        return x.moved(lambda v: np.take_along_axis(v[cut], at, axis))

    made = take(indices)
    return [made if unsure is None else gathered(call.input(1), take, made, np.asarray, rows=False)]


@rule("GatherND")
def _gather_nd(call: Call) -> list[Any]:
    x, given = call.input(0), call.input(1)
    batch = call.attribute("batch_dims", 0)
    depth = given.shape[-1]
    limits = np.array(x.shape[batch : batch + depth], np.int64)
    lead: Any = np.indices(given.shape[:batch], sparse=True)
    places = tuple(one.reshape(*one.shape, *[1] * (given.ndim - 1 - batch)) for one in lead)

    def take(at: Array) -> Bounded:
        indices = _within(at.astype(np.int64), limits)
        return x.moved(lambda v: v[(*places, *np.moveaxis(indices, -1, 0))])

    if given.exact or not (given.errors() > 0).any():
        return [take(given.value)]
    return [_of_several(given, take, call)]


def _within(indices: Array, limits: Array) -> Array:
    """Return non-negative index rows. Raise IndexError if one is out of range."""
    if ((indices < -limits) | (indices >= limits)).any():
        at = tuple(int(i) for i in np.argwhere((indices < -limits) | (indices >= limits))[0])
        size = int(limits[at[-1]])
        raise IndexError(f"index {int(indices[at])} at {list(at)}; expected {-size} to {size - 1}")
    return np.where(indices < 0, indices + limits, indices)


def _of_several(given: Bounded, take: Callable[[Array], Bounded], call: Call) -> Bounded:
    """Run GatherND with undecided indices, for every combination of alternatives. Raise Undecided if there are too
    many.
    """
    options = as_options(given)
    open_ = [] if options is None else [k for k in range(given.shape[-1]) if options.mask[..., k].any()]
    if options is None or len(options.values) ** len(open_) > MOST:
        raise Undecided(f"{call.op} at undecided indices")
    made = take(given.value)
    several = []
    for sides in itertools.product(options.values, repeat=len(open_)):
        at = np.array(given.value)
        for k, side in zip(open_, sides, strict=True):
            at[..., k] = np.where(options.mask[..., k], side[..., k], at[..., k])
        try:
            several.append(take(at))
        except IndexError:
            raise Undecided(f"{call.op} at undecided indices, some of which are out of range") from None

    def spread(v: Array) -> Array:
        return np.broadcast_to(v.reshape(v.shape + (1,) * (made.ndim - v.ndim)), made.shape)

    rows = np.asarray(options.mask.any(-1))
    return taken(made, several, spread(rows), spread(new_labels() + np.arange(rows.size).reshape(rows.shape)))


_REDUCED: dict[str, Any] = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@rule("ScatterElements", "Scatter")
def _scatter_elements(call: Call) -> list[Any]:
    x, updates, axis = call.input(0), call.input(2), call.attribute("axis", 0)
    indices, unsure = indices_of(call.input(1), x.shape[axis])
    if unsure is not None:
        raise Undecided(f"{call.op} at undecided indices")
    every: Any = np.indices(indices.shape, sparse=True)
    places = list(every)
    places[axis] = indices
    return [_scattered(call, x, tuple(places), updates)]


@rule("ScatterND")
def _scatter_nd(call: Call) -> list[Any]:
    x, updates = call.input(0), call.input(2)
    indices = call.exact(1).astype(np.int64)
    indices = _within(indices, np.array(x.shape[: indices.shape[-1]], np.int64))
    return [_scattered(call, x, tuple(np.moveaxis(indices, -1, 0)), updates)]


def _scattered(call: Call, x: Bounded, places: Any, updates: Bounded) -> Bounded:
    """Scatter updates: reductions in any order; without a reduction, the last update of an element wins."""
    how = call.attribute("reduction", "none")
    value = np.array(x.value)
    error = None if x.exact and updates.exact else np.array(x.errors())
    if how == "none":
        value[places] = updates.value
        if error is not None:
            error[places] = updates.errors()
        return Bounded(value, error, x.dtype, x.stored and updates.stored)
    with np.errstate(all="ignore"):
        _REDUCED[how].at(value, places, updates.value)
        if how in ("max", "min") or not x.is_float:
            if error is not None:
                np.maximum.at(error, places, updates.errors())
            return Bounded(value, error, x.dtype, x.stored and updates.stored)
        counts, sizes = np.zeros(x.shape), np.abs(x.value) + x.errors()
        np.add.at(counts, places, np.ones(updates.shape))
        _REDUCED[how].at(sizes, places, np.abs(updates.value) + updates.errors())
        # Each update may go through storage.
        unit = call.types.storage(x.dtype).unit + call.types.accumulation(x.dtype).unit
        grown = counts * unit / np.maximum(1 - counts * unit, 1e-30) * sizes
        if error is None:
            return Bounded(value, np.where(counts > 0, grown, 0.0), x.dtype)
        if how == "add":
            np.add.at(error, places, updates.errors())
            return Bounded(value, np.where(counts > 0, grown + error, error), x.dtype)
        return Bounded(value, np.where(counts > 0, grown + (sizes - np.abs(value)), error), x.dtype)


@rule("Trilu")
def _trilu(call: Call) -> list[Any]:
    k = int(call.exact(1).reshape(-1)[0]) if call.optional(1) is not None else 0
    cut = np.triu if call.attribute("upper", 1) else np.tril
    return [call.input(0).moved(lambda v: cut(v, k))]


@rule("DepthToSpace", "SpaceToDepth")
def _blocks(call: Call) -> list[Any]:
    x, b = call.input(0), call.attribute("blocksize")
    n, c, h, w = x.shape

    def move(v: Array) -> Array:
        if call.op == "SpaceToDepth":
            order = (0, 3, 5, 1, 2, 4) if call.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
            parts = v.reshape(n, c, h // b, b, w // b, b).transpose(order)
            return parts.reshape(n, c * b * b, h // b, w // b)
        if call.attribute("mode", "DCR") == "DCR":
            parts = v.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            parts = v.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return parts.reshape(n, c // (b * b), h * b, w * b)

    return [x.moved(move)]


@rule("ReverseSequence")
def _reverse_sequence(call: Call) -> list[Any]:
    x, lengths = call.input(0), call.exact(1)
    batch, time = call.attribute("batch_axis", 1), call.attribute("time_axis", 0)
    steps = np.arange(x.shape[time])
    places = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)  # [batch, time]
    shape = [1] * x.ndim
    shape[batch], shape[time] = places.shape
    order = (places if batch < time else places.T).reshape(shape)
    return [x.moved(lambda v: np.take_along_axis(v, np.broadcast_to(order, v.shape), time))]


@rule("Compress")
def _compress(call: Call) -> list[Any]:
    axis, mask = call.attribute("axis"), call.exact(1).astype(bool)
    return [call.input(0).moved(lambda v: np.compress(mask, v, axis))]


@rule("ConstantOfShape")
def _constant_of_shape(call: Call) -> list[Any]:
    given = call.attribute("value")
    number = np.zeros(1, np.float32) if given is None else np.asarray(given).reshape(-1)
    shape = call.integers(0) or []
    value = Bounded(np.broadcast_to(number[0], shape), None, number.dtype)
    if not value.is_float:
        return [value]
    own = call.types.storage(value.dtype).apart(value.value)
    return [Bounded(value.value, own if own.any() else None, number.dtype)]


@rule("Range")
def _range(call: Call) -> list[Any]:
    start, limit, delta = (call.input(i) for i in range(3))
    first, last, step = (one.value.reshape(-1)[0] for one in (start, limit, delta))
    if not start.is_float:
        return [Bounded(np.arange(first, last, step, dtype=start.value.dtype), None, start.dtype)]
    if not (start.exact and limit.exact and delta.exact):
        storage = call.types.storage(start.dtype)
        if any(float(storage.rounded(one)) != float(one) for one in (first, last, step)):
            raise Undecided("Range between numbers that are not exact")
    count = max(int(np.ceil((last - first) / step)), 0)
    steps = np.arange(count, dtype=np.float64)
    unit = call.types.accumulation(start.dtype).unit
    value = first + steps * step
    exact = (call.types.accumulation(start.dtype).rounded(value) == value).all()
    error = None if exact else unit * (2 * np.abs(steps * step) + np.abs(value))
    return [Bounded(value, error, start.dtype)]


@rule("OneHot")
def _one_hot(call: Call) -> list[Any]:
    indices = call.input(0)
    depth = int(call.exact(1).reshape(-1)[0])
    values, axis = call.input(2), call.attribute("axis", -1)
    axis += indices.ndim + 1 if axis < 0 else 0
    shape = [1] * (indices.ndim + 1)
    shape[axis] = depth

    def take(at: Array) -> Bounded:
        places = np.where(at < 0, at + depth, at) if call.opset >= 11 else at
        hot = np.expand_dims(places, axis) == np.arange(depth).reshape(shape)
        return values.moved(lambda v: np.where(hot, v[1], v[0]))

    made = take(indices.value)
    if indices.exact or not (indices.errors() > 0).any():
        return [made]
    if as_options(indices) is None:
        raise Undecided("OneHot of undecided indices")
    return [gathered(indices, take, made, lambda v: np.broadcast_to(np.expand_dims(v, axis), made.shape))]


@rule("EyeLike")
def _eye(call: Call) -> list[Any]:
    from .decisions import dtype_of

    x, number = call.input(0), call.attribute("dtype")
    dtype = x.dtype if number is None else dtype_of(number)
    eye: Array = np.eye(x.shape[0], x.shape[1], k=call.attribute("k", 0))
    return [Bounded(eye if Bounded(np.zeros(0), None, dtype).is_float else eye.astype(dtype), None, dtype)]


@rule("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _features(call: Call) -> list[Any]:
    x = call.input(0)
    indices = call.exact(1).reshape(-1)
    made = x.moved(lambda v: np.take(v, indices, -1))
    return [made.moved(lambda v: v.reshape(1, -1)) if x.ndim == 1 else made]


@rule("Dropout")
def _dropout(call: Call) -> list[Any]:
    training = call.optional(2)
    if training is not None and bool(training.value.reshape(-1)[0]):
        raise Unproved("random numbers, compared with none")
    x = call.input(0)
    return [x, Bounded(np.ones(x.shape, bool), None, bool)][: max(call.outputs, 1)]


@rule("Unique")
def _unique(call: Call) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis")
    if not x.exact:
        raise Undecided("Unique of numbers that are not exact")
    flat = x.value if axis is not None else x.value.reshape(-1)
    values, first, inverse, counts = np.unique(
        flat, return_index=True, return_inverse=True, return_counts=True, axis=axis if axis is not None else None
    )
    inverse = inverse.reshape(-1)
    if not call.attribute("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    made = [Bounded(values, None, x.dtype, x.stored)]
    made += [Bounded(_ints(one), None, np.int64) for one in (first, inverse, counts)]
    return made[: call.outputs]
