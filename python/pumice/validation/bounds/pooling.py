"""Rules of pooling: maximum, mean or norm of windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .math_functions import apply
from .elementwise import wrapped
from .registry import Call, rule
from .alternatives import Options
from .gemm_conv import known, window


class _Windows:
    """Geometry of pooling windows; with ceil_mode the last ones may reach beyond the padding."""

    def __init__(self, call: Call, shape: tuple[int, ...]) -> None:
        self.spatial = shape[2:]
        self.kernel = tuple(call.attribute("kernel_shape"))
        strides = call.attribute("strides") or [1] * len(self.kernel)
        self.strides, self.dilations, self.begins, ends = window(call, self.spatial, self.kernel)
        self.strides = list(strides)
        up = bool(call.attribute("ceil_mode", 0)) and str(call.attribute("auto_pad", "NOTSET")) in ("NOTSET", "")
        self.out, self.after = [], []
        parts = zip(self.spatial, self.kernel, self.strides, self.dilations, self.begins, ends, strict=True)
        for size, k, s, d, begin, end in parts:
            room = size + begin + end - (k - 1) * d - 1
            count = (-(-room // s) if up else room // s) + 1
            if up and (count - 1) * s >= size + begin:
                count -= 1
            self.out.append(count)
            self.after.append(max((count - 1) * s + (k - 1) * d + 1 - size - begin, 0))
        self.ends = list(ends)

    def padded(self, x: Array, fill: float) -> Array:
        """Pad the images, including what windows read beyond the padding."""
        return np.pad(x, [(0, 0), (0, 0), *zip(self.begins, self.after, strict=True)], constant_values=fill)

    def parts(self, padded: Array) -> Any:
        """Yield, for each tap, the elements that the windows read at that tap."""
        for tap in np.ndindex(*self.kernel):
            yield padded[
                (
                    slice(None),
                    slice(None),
                    *[
                        slice(t * d, t * d + (o - 1) * s + 1, s)
                        for t, d, o, s in zip(tap, self.dilations, self.out, self.strides, strict=True)
                    ],
                )
            ]

    def counts(self, with_padding: bool) -> Array:
        """Return the number of elements in each window, with or without padding."""
        inside = np.ones((1, 1, *self.spatial))
        if with_padding:
            width = [(b, min(a, e)) for b, a, e in zip(self.begins, self.after, self.ends, strict=True)]
            inside = np.pad(inside, [(0, 0), (0, 0), *width], constant_values=1.0)
            rest = [(0, a - w[1]) for a, w in zip(self.after, width, strict=True)]
            return sum(self.parts(np.pad(inside, [(0, 0), (0, 0), *rest])))  # type: ignore[no-any-return]
        return sum(self.parts(self.padded(inside, 0.0)))  # type: ignore[no-any-return]


def _largest(windows: _Windows, x: Array, lowest: Any) -> Array:
    made: Any = None
    for part in windows.parts(windows.padded(x, lowest)):
        made = part if made is None else np.maximum(made, part)
    return np.asarray(made)


@rule("MaxPool")
def _max_pool(call: Call) -> list[Any]:
    x = call.input(0)
    windows = _Windows(call, x.shape)
    lowest = -np.inf if x.is_float else np.iinfo(x.value.dtype).min
    value = _largest(windows, x.value, lowest)
    error = None
    if x.error is not None:
        with np.errstate(all="ignore"):
            reach = call.types.reach(x.error)
            high = _largest(windows, x.value + reach, lowest) - value
            low = value - _largest(windows, x.value - reach, lowest)
            error = known(call.types.share(np.maximum(high, low)))
            missing = np.isnan(value)  # a window with NaN has the error of its NaN
            if missing.any():
                of_nan = _largest(windows, np.where(np.isnan(x.value), x.errors(), 0.0), 0.0)
                error = np.where(missing, of_nan, 0.0 if error is None else error)
    made = [Bounded(value, error, x.dtype, x.stored)]
    return made if call.outputs < 2 else [*made, _places(call, windows, x, value)]


def _places(call: Call, windows: _Windows, x: Bounded, value: Array) -> Bounded:
    """Return the flat index in x of each maximum, the first of equal ones."""
    if call.attribute("storage_order", 0):
        order = np.arange(x.size).reshape(*x.shape[:2], *x.shape[2:][::-1])
        flat = order.transpose(0, 1, *range(x.ndim - 1, 1, -1))
    else:
        flat = np.arange(x.size).reshape(x.shape)
    lowest = -np.inf if x.is_float else np.iinfo(x.value.dtype).min
    found = np.full(value.shape, -1, np.int64)
    parts = zip(windows.parts(windows.padded(x.value, lowest)), windows.parts(windows.padded(flat, -1)), strict=True)
    for part, place in parts:
        found = np.where((found < 0) & (part == value) & (place >= 0), place, found)
    made = Bounded(found, None, np.int64)
    return made if x.error is None else _open_places(call, windows, x, flat, made)


def _open_places(call: Call, windows: _Windows, x: Bounded, flat: Array, made: Bounded) -> Bounded:
    """Return the indices, undecided if several elements of a window may be its maximum."""
    reach = np.broadcast_to(call.types.reach(x.errors()), x.shape)
    with np.errstate(all="ignore"):
        low, high = (np.where(reach == 0, x.value, x.value + sign * reach) for sign in (-1, 1))
    least = _largest(windows, np.where(np.isnan(low), -np.inf, low), -np.inf)
    highs = windows.parts(windows.padded(np.where(np.isnan(high), np.inf, high), -np.inf))
    values, counts = [], np.zeros(made.shape, int)
    for part, place in zip(highs, windows.parts(windows.padded(flat, -1)), strict=True):
        may = (part >= least) & (place >= 0)
        counts += may
        values.append(np.where(may, place, made.value))
    unsure = counts > 1
    if not unsure.any():
        return made
    sides = Options(unsure, values, [np.zeros(made.shape)] * len(values))
    return Bounded(made.value, np.where(unsure, np.inf, 0.0), np.int64).with_sides(sides)


def _total(windows: _Windows, x: Bounded, call: Call) -> Bounded:
    terms = int(np.prod(windows.kernel, dtype=int))
    with np.errstate(all="ignore"):
        value = sum(windows.parts(windows.padded(x.value, 0.0)))
        sizes = sum(windows.parts(windows.padded(x.magnitude(), 0.0)))
        moved = None if x.error is None else _shaken(windows, x.error, call)
        own = call.types.sum_factor(terms - 1, x.dtype) * sizes if terms > 1 else None
    return Bounded(value, known(call.types.joined(own, moved)), x.dtype)


def _shaken(windows: _Windows, error: Array, call: Call) -> Array:
    if call.types.independent:
        return np.asarray(np.sqrt(sum(windows.parts(windows.padded(np.square(error), 0.0)))))
    return np.asarray(sum(windows.parts(windows.padded(error, 0.0))))


@rule("AveragePool")
def _average_pool(call: Call) -> list[Any]:
    x, m = call.input(0), call.arithmetic()
    windows = _Windows(call, x.shape)
    counts = windows.counts(bool(call.attribute("count_include_pad", 0)))
    return [m.div(_total(windows, x, call), m.of(counts))]


@rule("LpPool")
def _lp_pool(call: Call) -> list[Any]:
    x, m, p = call.input(0), call.arithmetic(), float(call.attribute("p", 2))
    windows = _Windows(call, x.shape)
    return [root(call, _total(windows, powered(call, x, p), call), p) if p != 1 else _total(windows, m.abs(x), call)]


def powered(call: Call, x: Bounded, p: float) -> Bounded:
    """Return |x|^p."""
    m = call.arithmetic()
    from .registry import call as other

    return m.mul(x, x) if p == 2 else m.of(*_pair(other("Pow", [m.abs(x), m.of(p)], like=call)[0]))


def root(call: Call, x: Bounded, p: float) -> Bounded:
    """Return the p-th root of sums of powers."""
    m = call.arithmetic()
    from .registry import call as other

    if p == 2:
        return apply("sqrt", x, m)
    exponent = m.div(m.of(1.0), m.of(p))
    return m.of(*_pair(other("Pow", [x, exponent], like=call)[0]))


def _pair(x: Bounded) -> tuple[Array, Array | None]:
    return x.value, x.error


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global(call: Call) -> list[Any]:
    x = call.input(0)
    axes = tuple(range(2, x.ndim))
    from .reductions import reduced

    kind = {"GlobalAveragePool": "Mean", "GlobalMaxPool": "Max"}.get(call.op)
    if kind:
        return [reduced(call, kind, x, axes, True)]
    p = float(call.attribute("p", 2))
    return [root(call, reduced(call, "Sum", powered(call, x, p), axes, True), p)]


@rule("MaxUnpool")
def _max_unpool(call: Call) -> list[Any]:
    x, places = call.input(0), call.exact(1)
    wanted = call.integers(2)
    kernel = call.attribute("kernel_shape")
    strides, pads = call.attribute("strides") or [1] * len(kernel), call.attribute("pads") or [0] * 2 * len(kernel)
    plain = [
        (size - 1) * s + k - pads[i] - pads[i + len(kernel)]
        for i, (size, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    shape = (*x.shape[:2], *plain)
    value, error = (
        np.zeros(int(np.prod(shape, dtype=int))),
        None if x.exact else np.zeros(int(np.prod(shape, dtype=int))),
    )
    value[places.reshape(-1)] = x.value.reshape(-1)
    if error is not None:
        error[places.reshape(-1)] = x.errors().reshape(-1)
    made = Bounded(value.reshape(shape), None if error is None else error.reshape(shape), x.dtype, x.stored)
    if wanted is None or tuple(wanted) == shape:
        return [made]
    rest = [(0, max(w - s, 0)) for w, s in zip(wanted, shape, strict=True)]
    return [made.moved(lambda v: np.pad(v, rest))]


__all__ = ["powered", "root", "wrapped"]
