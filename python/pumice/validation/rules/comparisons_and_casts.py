"""Error-bound rules for comparisons, casts and sorting (V8).

A result is exact if the margin exceeds the error. Otherwise it is undecided, and every possible choice is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .alternative_values import IntegerAlternatives, OneHotAlternatives, RankAlternatives
from .bounded_tensor import BoundedTensor, OperatorCall, UndecidedError, UnprovedError, rule
from .elementwise import align_legacy_broadcast, wrap_integer_error
from .float_types import FLOAT32, ProgramTypes, dtype_from_onnx, find_float_type, is_float

# ---- argmax and sorting of values with errors: which elements may be the largest or have a given rank


def find_argmax(
    x: BoundedTensor, axis: int, reference_choice: BoundedTensor, types: ProgramTypes, last: bool = False
) -> BoundedTensor:
    """Return the index of the largest value; it is undecided if several values may be the largest.

    reference_choice: the reference's indices, without the axis. last: whether ties go to the last index
    instead of the first.
    """
    if last:
        flipped = BoundedTensor(np.flip(x.value, axis), np.flip(x.get_errors(), axis), x.dtype)
        flipped_ranking = find_argmax(flipped, axis, reference_choice.rearrange(lambda v: x.shape[axis] - 1 - v), types)
        if not isinstance(flipped_ranking.alternatives, RankAlternatives):
            return reference_choice
        alternatives = flipped_ranking.alternatives
        back = RankAlternatives(
            alternatives.mask,
            alternatives.rows,
            alternatives.ranks,
            np.flip(alternatives.min_rank, 1),
            np.flip(alternatives.max_rank, 1),
        )
        return BoundedTensor(reference_choice.value, flipped_ranking.error, reference_choice.dtype).set_alternatives(
            back
        )
    first = reference_choice.rearrange(lambda v: np.expand_dims(v, axis))
    return find_sorted_indices(x, axis, first, types).rearrange(lambda v: np.squeeze(v, axis))


def find_sorted_indices(
    x: BoundedTensor, axis: int, reference_choice: BoundedTensor, types: ProgramTypes
) -> BoundedTensor:
    """Return the indices of the largest values in descending order; an index is undecided if rounding may change it.

    Ties go to the lower index. reference_choice: the reference's indices.
    """
    count = x.shape[axis]
    rows = np.moveaxis(x.value, axis, -1).reshape(-1, count)
    max_error = types.to_max_deviation(
        np.moveaxis(np.broadcast_to(x.get_errors(), x.shape), axis, -1).reshape(-1, count)
    )
    chosen = np.moveaxis(reference_choice.value, axis, -1)
    ranks = np.arange(chosen.shape[-1])
    min_rank, max_rank = np.zeros(rows.shape, np.int32), np.zeros(rows.shape, np.int32)
    mask = np.zeros((len(rows), len(ranks)), bool)
    for i in np.flatnonzero(_find_rows_with_undecided_ranks(rows, max_error, len(ranks))):
        min_rank[i], max_rank[i] = _count_predecessors(rows[i], max_error[i])
        mask[i] = ((min_rank[i][:, None] <= ranks) & (ranks <= max_rank[i][:, None])).sum(0) > 1
    if not mask.any():
        return reference_choice
    row_index = np.broadcast_to(np.arange(len(rows)).reshape(*chosen.shape[:-1], 1), chosen.shape)
    all_of = (mask.reshape(chosen.shape), row_index, np.broadcast_to(ranks, chosen.shape))
    undecided, row_index, rank_grid = (np.moveaxis(grid, -1, axis) for grid in all_of)
    alternatives = RankAlternatives(undecided, row_index, rank_grid, min_rank, max_rank)
    return BoundedTensor(
        reference_choice.value, np.where(undecided, np.inf, 0.0), reference_choice.dtype
    ).set_alternatives(alternatives)


def _compute_value_intervals(rows: Array, max_error: Array) -> tuple[Array, Array]:
    """Return the lower and upper bound of each value; NaN sorts first."""
    with np.errstate(all="ignore"):
        low, high = (np.where(max_error == 0, rows, rows + sign * max_error) for sign in (-1, 1))
    missing = np.isnan(rows)
    low = np.where(missing, np.inf, np.where(np.isnan(low), -np.inf, low))
    return low, np.where(missing | np.isnan(high), np.inf, high)


def _find_rows_with_undecided_ranks(rows: Array, max_error: Array, num_ranks: int) -> Array:
    """Return a mask of the rows in which one of the first `num_ranks` values may change its rank."""
    if not rows.shape[1]:
        return np.zeros(len(rows), bool)
    low, high = _compute_value_intervals(rows, max_error)
    order = np.argsort(-np.where(np.isnan(rows), np.inf, rows), axis=1, kind="stable")
    low = np.minimum.accumulate(np.take_along_axis(low, order, 1), axis=1)
    high = np.maximum.accumulate(np.take_along_axis(high, order, 1)[:, ::-1], axis=1)[:, ::-1]
    is_separated = low[:, :-1] > high[:, 1:]
    return np.asarray(~is_separated[:, :num_ranks].all(1) & (max_error > 0).any(1))


def _count_predecessors(row: Array, max_error: Array) -> tuple[Array, Array]:
    """Return, for each value of a row, how many other values certainly precede it, and how many may precede it."""
    low, high = _compute_value_intervals(row, max_error)
    count = len(row)
    min_rank = np.asarray(count - np.searchsorted(np.sort(low), high, "right"))
    max_rank = np.asarray(count - np.searchsorted(np.sort(high), low, "left") - 1)
    # Equal values without errors stay in index order.
    exact = np.flatnonzero((max_error == 0) | np.isnan(row))
    if len(exact) > 1:
        _, group = np.unique(high[exact], return_inverse=True)
        group = np.asarray(group).reshape(-1)
        order = np.argsort(group, kind="stable")
        sizes = np.bincount(group)
        ranks = np.empty(len(exact), np.int64)
        ranks[order] = np.arange(len(exact)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        min_rank[exact] += ranks
        max_rank[exact] -= sizes[group] - 1 - ranks
    return min_rank, max_rank


_COMPARISONS: dict[str, Any] = {
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
}


@rule(*_COMPARISONS)
def _evaluate_comparison(call: OperatorCall) -> list[Any]:
    call = align_legacy_broadcast(call)
    a, b = call.input(0), call.input(1)
    value = _COMPARISONS[call.op](a.value, b.value)
    if a.is_exact and b.is_exact:
        return [BoundedTensor(value, None, bool)]
    width = call.types.to_max_deviation(a.get_errors() + b.get_errors())
    with np.errstate(all="ignore"):
        gap = np.abs(np.asarray(a.value, np.float64) - b.value)
    same_infinity = np.isnan(gap) & (width == 0)
    is_undecided = (gap <= width) & (width > 0) & ~same_infinity | np.isinf(width)
    return [BoundedTensor(value, is_undecided * 1.0 if is_undecided.any() else None, bool)]


@rule("Floor", "Ceil", "Round")
def _evaluate_rounding(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    step_function = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint}[call.op]
    value = step_function(x.value)
    return [apply_step_function(step_function, x, BoundedTensor(value, None, x.dtype), call.types)]


def apply_step_function(
    step_function: Any, x: BoundedTensor, result: BoundedTensor, types: ProgramTypes
) -> BoundedTensor:
    """Return the integers step_function(x). If x's interval contains a step, any integer between the ends is possible."""
    if x.error is None:
        return result
    error = types.to_max_deviation(x.error)
    value = np.asarray(result.value, np.float64)
    with np.errstate(all="ignore"):
        ends = step_function(x.value - error), step_function(x.value + error)
        low, high = np.minimum(*ends), np.maximum(*ends)
        moved = np.maximum(np.abs(high - value), np.abs(low - value))
    moved = np.where(np.isnan(moved), np.where(error > 0, np.inf, 0.0), moved)
    if not moved.any():
        return result
    undecided = (moved > 0) & np.isfinite(moved)
    alternatives = IntegerAlternatives(undecided, np.where(undecided, low, value), np.where(undecided, high, value))
    return BoundedTensor(result.value, moved, result.dtype).set_alternatives(alternatives if undecided.any() else None)


# ---- casts


def is_sub_16_bit_float(name: str) -> bool:
    """Return whether an element type is a float of 8 bits or less."""
    return name.startswith(("float8", "float4"))


def float_to_integer(x: BoundedTensor, dtype: np.dtype[Any], types: ProgramTypes) -> BoundedTensor:
    """Truncate to integers as math.glsl does: saturate, and convert NaN to 0. ONNX leaves these cases undefined."""
    info = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        whole = np.trunc(np.where(np.isnan(x.value), 0.0, x.value))
        inside = np.clip(whole, float(info.min), float(info.max))
        top = inside >= float(info.max)
        value = np.where(top, info.max, np.where(top, 0.0, inside).astype(dtype)).astype(dtype)
        beyond = (whole > float(info.max)) | (whole < float(info.min)) | np.isnan(x.value)
        ends = float(info.min), float(info.max)
        result = apply_step_function(lambda v: np.clip(np.trunc(v), *ends), x, BoundedTensor(value, None, dtype), types)
    if types.other_runtime and beyond.any():
        result.error = np.where(beyond, np.inf, result.get_errors())
        if result.alternatives is not None:
            result.alternatives.mask = result.alternatives.mask & ~beyond
    return result


def cast_value(x: BoundedTensor, dtype: np.dtype[Any], call: OperatorCall) -> BoundedTensor:
    """Cast to another element type. Raise UnprovedError if the types require exact values and x is not exact."""
    if dtype.kind == "O":
        raise UnprovedError("a Cast to strings")
    if is_float(dtype):
        source = x.value
        if x.is_float or x.dtype == bool or np.issubdtype(x.dtype, np.integer):
            value = np.asarray(source, np.float64)
            return BoundedTensor(value, _compute_cast_error(x, value, dtype), dtype)
        return BoundedTensor(np.asarray(source).astype(np.float64), None, dtype)
    if is_sub_16_bit_float(str(dtype)) or dtype.kind == "V" or not (x.is_float or x.value.dtype.kind in "biu"):
        return _cast_small_type(x, dtype, bool(call.attribute("saturate", 1)))
    if dtype.kind == "b":
        with np.errstate(all="ignore"):
            is_undecided = (np.abs(np.asarray(x.value, np.float64)) <= call.types.to_max_deviation(x.get_errors())) & (
                x.get_errors() > 0
            )
        return BoundedTensor(np.asarray(x.value != 0), is_undecided * 1.0 if is_undecided.any() else None, bool)
    if x.is_float:
        return float_to_integer(x, dtype, call.types)
    with np.errstate(all="ignore"):
        return BoundedTensor(x.value.astype(dtype), x.error, dtype)


def _cast_small_type(x: BoundedTensor, dtype: np.dtype[Any], saturate: bool) -> BoundedTensor:
    """Cast exact values to or from 8-bit floats and sub-byte integers."""
    if not x.is_exact or x.dtype == object or str(dtype) == "float8_e8m0fnu":
        raise UnprovedError(f"a Cast from {x.dtype} to {dtype}")
    value = np.asarray(x.value).astype(np.float32)
    if is_sub_16_bit_float(str(dtype)) and saturate:
        import ml_dtypes

        largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        value = np.where(np.isnan(value), value, np.clip(value, -largest, largest))
    elif not is_sub_16_bit_float(str(dtype)) and dtype.kind == "V":
        value = np.trunc(value)
        result = value.astype(np.int8).astype(dtype)
        if not np.array_equal(result.astype(np.float32), value):
            raise UnprovedError(f"a Cast to {dtype} beyond its range")
        return BoundedTensor(result, None, dtype)
    return BoundedTensor(value.astype(dtype), None, dtype)


def _compute_cast_error(x: BoundedTensor, value: Array, dtype: np.dtype[Any]) -> Array | None:
    """Return the error of a float cast. It covers the rounded and the unrounded value, because a kernel may skip rounding."""
    with np.errstate(all="ignore"):
        if str(dtype) == "float64" and x.is_float:
            return x.error
        float_format = FLOAT32 if str(dtype) != "float64" else find_float_type("float64")
        target = find_float_type(str(dtype))
        moved = np.maximum(np.abs(target.round(value) - value), np.abs(float_format.round(value) - value))
        moved = np.where(np.isfinite(moved), moved, 0.0)
        if x.error is not None:
            moved = np.where(x.error > 0, x.error + (np.abs(value) + x.error) * target.unit + target.step, moved)
    return moved if moved.any() else None


@rule("Cast", "CastLike")
def _evaluate_cast(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    if call.op == "CastLike":
        dtype = call.input(1).dtype
    else:
        to = call.attribute("to")
        dtype = np.dtype(to.lower().replace("double", "float64")) if isinstance(to, str) and to.lower() not in ("float",) else (
            np.dtype(np.float32) if isinstance(to, str) else dtype_from_onnx(to)
        )  # fmt: skip
    result = cast_value(x, dtype, call)
    is_stored = x.stored and x.is_float and x.dtype == result.dtype
    error = result.error if x.is_float or result.is_float else wrap_integer_error(result.value, result.error)
    return [BoundedTensor(result.value, error, result.dtype, is_stored).set_alternatives(result.alternatives)]


# ---- ArgMax, TopK, NonZero and Hardmax


@rule("ArgMax", "ArgMin")
def _evaluate_arg_min_max(call: OperatorCall) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    values = x.value if call.op == "ArgMax" else -x.value.astype(np.float64 if x.is_float else x.value.dtype)
    if not x.is_float and call.op == "ArgMin":
        best = (np.argmin if not call.attribute("select_last_index", 0) else _find_last_argmin)(x.value, axis=axis)
    elif call.attribute("select_last_index", 0):
        best = x.shape[axis] - 1 - np.argmax(np.flip(values, axis), axis=axis)
    else:
        best = np.argmax(values, axis=axis)
    keep = bool(call.attribute("keepdims", 1))
    result = BoundedTensor(best.astype(np.int64), None, np.int64)
    if x.error is not None:
        descending = BoundedTensor(np.asarray(values, np.float64), x.error, np.float64)
        result = find_argmax(descending, axis, result, call.types, bool(call.attribute("select_last_index", 0)))
    return [result.rearrange(lambda v: np.expand_dims(v, axis)) if keep else result]


def _find_last_argmin(values: Array, axis: int) -> Array:
    return np.asarray(values.shape[axis] - 1 - np.argmin(np.flip(values, axis), axis=axis))


@rule("TopK")
def _evaluate_top_k(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    axis = call.attribute("axis", -1)
    count_list = call.get_integer_list(1)
    k = int(call.attribute("k")) if count_list is None else count_list[0]
    largest = bool(call.attribute("largest", 1))
    keys = x.value
    ordered = _argsort_descending(keys, axis) if largest else np.argsort(keys, axis=axis, kind="stable")
    indices = np.take(ordered, np.arange(k), axis=axis)
    values = np.take_along_axis(x.value, indices, axis)
    if x.error is None:
        return [BoundedTensor(values, None, x.dtype, x.stored), BoundedTensor(indices, None, np.int64)]
    # The k-th largest value changes by at most the largest error of the row.
    worst = np.broadcast_to(np.max(x.error, axis=axis, keepdims=True), values.shape)
    with np.errstate(all="ignore"):
        negated = -np.where(np.isnan(keys), np.inf, keys) if x.is_float else -keys.astype(np.float64)
    descending = BoundedTensor(np.asarray(keys if largest else negated, np.float64), x.error, np.float64)
    chosen = find_sorted_indices(descending, axis, BoundedTensor(indices, None, np.int64), call.types)
    return [BoundedTensor(values, np.array(worst), x.dtype), chosen]


def _argsort_descending(keys: Array, axis: int) -> Array:
    """Return the indices of a stable descending sort; NaN comes first."""
    ascending = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return np.asarray(keys.shape[axis] - 1 - np.flip(ascending, axis))


@rule("NonZero")
def _evaluate_non_zero(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    near = (np.abs(np.asarray(x.value, np.float64)) <= call.types.to_max_deviation(x.get_errors())) & (
        x.get_errors() > 0
    )
    if near.any():
        raise UndecidedError("NonZero of numbers that may be zero")
    return [BoundedTensor(np.stack(np.nonzero(x.value)).astype(np.int64).reshape(max(x.ndim, 0), -1), None, np.int64)]


@rule("Hardmax")
def _evaluate_hardmax(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    axis = call.attribute("axis", 1 if call.opset < 13 else -1)
    shape = x.shape
    if call.opset < 13:
        axis += x.ndim if axis < 0 else 0
        rows = int(np.prod(shape[:axis], dtype=int))
        x, axis = x.rearrange(lambda v: v.reshape(rows, -1)), 1
    axis %= max(x.ndim, 1)
    (best,) = _evaluate_arg_min_max(OperatorCall("ArgMax", [x], {"axis": axis}, 23, call.types))
    value = np.zeros(x.shape)
    np.put_along_axis(value, best.value, 1.0, axis)
    result = BoundedTensor(value, None, x.dtype)
    if best.alternatives is not None:
        assert isinstance(best.alternatives, RankAlternatives)
        is_possible = np.moveaxis(best.alternatives.find_possible_indices().squeeze(axis), -1, axis)
        result = BoundedTensor(value, np.where(is_possible, np.inf, 0.0), x.dtype).set_alternatives(
            OneHotAlternatives(is_possible, axis)
        )
    return [result if result.shape == shape else result.rearrange(lambda v: v.reshape(shape))]
