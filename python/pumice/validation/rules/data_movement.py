"""Error-bound rules for operators that only move data: errors move with the values, and nothing is rounded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.element_types import Array
from .alternative_values import MAX_ALTERNATIVES, list_alternatives, reserve_choice_labels
from .bounded_tensor import BoundedTensor, OperatorCall, RandomResultError, UndecidedError, rule
from .float_types import dtype_from_onnx
from .undecided_choices import add_alternatives, concat_alternatives, gather_alternatives


def _to_int64_array(value: Any) -> Array:
    return np.asarray(value, np.int64)


@rule("Reshape")
def _evaluate_reshape(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    target_shape = call.get_integer_list(1) if call.attribute("shape") is None else list(call.attribute("shape"))
    assert target_shape is not None
    if not call.attribute("allowzero", 0):
        target_shape = [x.shape[i] if size == 0 else size for i, size in enumerate(target_shape)]
    if -1 in target_shape:  # exclude axes of size 0 from the division
        left, rest = (
            int(np.prod([value for value in sizes if value > 0], dtype=int)) for sizes in (x.shape, target_shape)
        )
        left = 0 if x.size == 0 and 0 not in target_shape else left
        target_shape = [left // rest if size == -1 else size for size in target_shape]
    return [x.rearrange(lambda v: v.reshape(target_shape))]


@rule("Flatten")
def _evaluate_flatten(call: OperatorCall) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 1)
    rows = int(np.prod(x.shape[: axis + x.ndim if axis < 0 else axis], dtype=int))
    rest = int(np.prod(x.shape[axis + x.ndim if axis < 0 else axis :], dtype=int))
    return [x.rearrange(lambda v: v.reshape(rows, rest))]


@rule("Transpose")
def _evaluate_transpose(call: OperatorCall) -> list[Any]:
    return [call.input(0).rearrange(lambda v: np.transpose(v, call.attribute("perm")))]


@rule("Squeeze")
def _evaluate_squeeze(call: OperatorCall) -> list[Any]:
    axes = call.get_axes()
    return [call.input(0).rearrange(lambda v: np.squeeze(v, None if axes is None else tuple(axes)))]


@rule("Unsqueeze")
def _evaluate_unsqueeze(call: OperatorCall) -> list[Any]:
    axes = call.get_axes()
    return [call.input(0).rearrange(lambda v: np.expand_dims(v, tuple(axes or [])))]


@rule("Expand")
def _evaluate_expand(call: OperatorCall) -> list[Any]:
    x, target_shape = call.input(0), call.get_integer_list(1)
    shape = np.broadcast_shapes(x.shape, tuple(target_shape or []))
    return [x.rearrange(lambda v: np.broadcast_to(v, shape))]


@rule("Tile")
def _evaluate_tile(call: OperatorCall) -> list[Any]:
    x, repeats = call.input(0), call.get_integer_list(1) or []
    if len(call) == 3:  # opset 1 has inputs `tiles` and `axis`
        repeats, axis = [1] * x.ndim, int(call.get_decided_input(2).reshape(-1)[0])
        repeats[axis] = int(call.get_decided_input(1).reshape(-1)[0])
    return [x.rearrange(lambda v: np.tile(v, repeats))]


@rule("Concat")
def _evaluate_concat(call: OperatorCall) -> list[Any]:
    return [concat_values([call.input(i) for i in range(len(call))], call.attribute("axis", 1))]


def concat_values(values: list[BoundedTensor], axis: int, new_axis: bool = False) -> BoundedTensor:
    """Concatenate tensors along an axis, or stack them along a new one."""
    join = np.stack if new_axis else np.concatenate
    error = (
        None if all(value.is_exact for value in values) else join([value.get_errors() for value in values], axis=axis)
    )
    is_stored = all(value.stored for value in values)
    result = BoundedTensor(join([value.value for value in values], axis=axis), error, values[0].dtype, is_stored)
    return result.set_alternatives(concat_alternatives(values, lambda arrays: np.asarray(join(arrays, axis=axis))))


@rule("Split")
def _evaluate_split(call: OperatorCall) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    sizes_attribute = call.attribute("split")
    sizes = list(sizes_attribute) if sizes_attribute is not None else call.get_integer_list(1)
    if sizes is None:
        count = call.attribute("num_outputs", call.outputs)
        each = -(-x.shape[axis] // count)
        sizes = [min(each, max(x.shape[axis] - i * each, 0)) for i in range(count)]
    ends = np.cumsum([0, *sizes])
    return [
        x.rearrange(lambda v, a=a, b=b: np.take(v, np.arange(a, b), axis))  # type: ignore[misc]
        for a, b in itertools.pairwise(ends)
    ]


@rule("Slice")
def _evaluate_slice(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    if call.attribute("starts") is not None:
        starts, ends, axes, steps = call.attribute("starts"), call.attribute("ends"), call.attribute("axes"), None
    else:
        starts, ends, axes, steps = (call.get_integer_list(i) for i in range(1, 5))
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    index: list[Any] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        begin = min(max(start + size if start < 0 else start, max(low, 0)), high)
        stop = min(max(end + size if end < 0 else end, low), high if step > 0 else size)
        positions = np.arange(begin, stop, step)
        index[axis] = slice(begin, None if step < 0 and stop < 0 else stop, step) if len(positions) else slice(0, 0)
    return [x.rearrange(lambda v: v[tuple(index)])]


@rule("Shape", "Size")
def _evaluate_shape_or_size(call: OperatorCall) -> list[Any]:
    value = call.inputs[0]
    shape = value.shape
    if call.op == "Size":
        return [BoundedTensor(_to_int64_array(value.size), None, np.int64)]
    return [
        BoundedTensor(
            _to_int64_array(list(shape)[call.attribute("start", 0) : call.attribute("end", len(shape))]), None, np.int64
        )
    ]


@rule("Pad")
def _evaluate_pad(call: OperatorCall) -> list[Any]:
    x, mode = call.input(0), call.attribute("mode", "constant")
    pads_attribute = call.attribute("pads", call.attribute("paddings"))
    pads = list(pads_attribute) if pads_attribute is not None else call.get_integer_list(1) or []
    axes = (
        call.get_integer_list(3)
        if pads_attribute is None and call.optional_input(3) is not None
        else list(range(x.ndim))
    )
    fill = call.optional_input(2) if pads_attribute is None else None
    width = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes or []):
        width[axis] = (pads[i], pads[i + len(pads) // 2])
    inner = tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(width, x.shape, strict=True))
    widths = [(max(a, 0), max(b, 0)) for a, b in width]
    names = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode != "constant":
        return [x.rearrange(lambda v: np.pad(v[inner], widths, mode=names[mode]))]  # type: ignore[call-overload]
    default_fill = "" if x.dtype == object else 0
    number = (
        fill.value.reshape(-1)[0]
        if fill is not None
        else np.asarray(call.attribute("value", default_fill), x.value.dtype)
    )
    error = None if x.error is None else np.pad(x.error[inner], widths)
    value = np.pad(x.value[inner], widths, constant_values=number)
    if x.is_float and (pads_attribute is not None or (fill is not None and not fill.is_exact)):
        own_error = call.types.get_storage_type(x.dtype).compute_storage_error(number)
        outside = np.pad(np.zeros(x.value[inner].shape), widths, constant_values=own_error)
        error = outside if error is None else error + outside
    return [BoundedTensor(value, error, x.dtype, x.stored)]


@rule("Gather")
def _evaluate_gather(call: OperatorCall) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    indices, undecided = normalize_indices(call.input(1), x.shape[axis])

    def gather_at(at: Array) -> BoundedTensor:
        at = normalize_indices(BoundedTensor(at), x.shape[axis])[0]
        return x.rearrange(lambda v: np.take(v, at, axis))

    result = gather_at(indices)
    if undecided is None:
        return [result]

    def expand_to_result(v: Array) -> Array:
        return np.broadcast_to(v.reshape(v.shape + (1,) * (x.ndim - 1 - axis % x.ndim)), result.shape)

    return [gather_alternatives(call.input(1), gather_at, result, expand_to_result, rows=x.size > x.shape[axis])]


def normalize_indices(indices_value: BoundedTensor, size: int) -> tuple[Array, Array | None]:
    """Return non-negative indices, and a mask of the undecided ones. Raise IndexError if an index is out of range."""
    indices = indices_value.value.astype(np.int64)
    undecided = None if indices_value.error is None or not (indices_value.error > 0).any() else indices_value.error > 0
    wrong = (indices < -size) | (indices >= size)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise IndexError(f"index {int(indices[at])} at {list(at)}; expected {-size} to {size - 1}")
    return np.where(indices < 0, indices + size, indices), undecided


@rule("GatherElements")
def _evaluate_gather_elements(call: OperatorCall) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    indices, undecided = normalize_indices(call.input(1), x.shape[axis])
    inner = tuple(slice(None) if i == axis % x.ndim else slice(0, n) for i, n in enumerate(indices.shape))

    def gather_at(at: Array) -> BoundedTensor:
        at = normalize_indices(BoundedTensor(at), x.shape[axis])[0]
        return x.rearrange(lambda v: np.take_along_axis(v[inner], at, axis))

    result = gather_at(indices)
    return [
        result if undecided is None else gather_alternatives(call.input(1), gather_at, result, np.asarray, rows=False)
    ]


@rule("GatherND")
def _evaluate_gather_nd(call: OperatorCall) -> list[Any]:
    x, indices_value = call.input(0), call.input(1)
    batch = call.attribute("batch_dims", 0)
    index_depth = indices_value.shape[-1]
    limits = np.array(x.shape[batch : batch + index_depth], np.int64)
    lead: Any = np.indices(indices_value.shape[:batch], sparse=True)
    batch_indices = tuple(value.reshape(*value.shape, *[1] * (indices_value.ndim - 1 - batch)) for value in lead)

    def gather_at(at: Array) -> BoundedTensor:
        indices = _normalize_index_rows(at.astype(np.int64), limits)
        return x.rearrange(lambda v: v[(*batch_indices, *np.moveaxis(indices, -1, 0))])

    if indices_value.is_exact or not (indices_value.get_errors() > 0).any():
        return [gather_at(indices_value.value)]
    return [_gather_alternatives(indices_value, gather_at, call)]


def _normalize_index_rows(indices: Array, limits: Array) -> Array:
    """Return the index tuples with non-negative indices. Raise IndexError if an index is out of range."""
    if ((indices < -limits) | (indices >= limits)).any():
        at = tuple(int(i) for i in np.argwhere((indices < -limits) | (indices >= limits))[0])
        size = int(limits[at[-1]])
        raise IndexError(f"index {int(indices[at])} at {list(at)}; expected {-size} to {size - 1}")
    return np.where(indices < 0, indices + limits, indices)


def _gather_alternatives(
    indices_value: BoundedTensor, gather_at: Callable[[Array], BoundedTensor], call: OperatorCall
) -> BoundedTensor:
    """Run GatherND with undecided indices, for every combination of alternatives. Raise UndecidedError if there are too
    many.
    """
    options = list_alternatives(indices_value)
    open_columns = [] if options is None else [k for k in range(indices_value.shape[-1]) if options.mask[..., k].any()]
    if options is None or len(options.values) ** len(open_columns) > MAX_ALTERNATIVES:
        raise UndecidedError(f"{call.op} at indices that rounding may change")
    result = gather_at(indices_value.value)
    gathered = []
    for combination in itertools.product(options.values, repeat=len(open_columns)):
        at = np.array(indices_value.value)
        for k, alternative in zip(open_columns, combination, strict=True):
            at[..., k] = np.where(options.mask[..., k], alternative[..., k], at[..., k])
        try:
            gathered.append(gather_at(at))
        except IndexError:
            raise UndecidedError(
                f"{call.op} at indices that rounding may change, some of which are out of range"
            ) from None

    def expand_to_result(v: Array) -> Array:
        return np.broadcast_to(v.reshape(v.shape + (1,) * (result.ndim - v.ndim)), result.shape)

    rows = np.asarray(options.mask.any(-1))
    return add_alternatives(
        result,
        gathered,
        expand_to_result(rows),
        expand_to_result(reserve_choice_labels() + np.arange(rows.size).reshape(rows.shape)),
    )


_REDUCTIONS: dict[str, Any] = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@rule("ScatterElements", "Scatter")
def _evaluate_scatter_elements(call: OperatorCall) -> list[Any]:
    x, updates, axis = call.input(0), call.input(2), call.attribute("axis", 0)
    indices, undecided = normalize_indices(call.input(1), x.shape[axis])
    if undecided is not None:
        raise UndecidedError(f"{call.op} at indices that rounding may change")
    grid: Any = np.indices(indices.shape, sparse=True)
    scatter_indices = list(grid)
    scatter_indices[axis] = indices
    return [_scatter_updates(call, x, tuple(scatter_indices), updates)]


@rule("ScatterND")
def _evaluate_scatter_nd(call: OperatorCall) -> list[Any]:
    x, updates = call.input(0), call.input(2)
    indices = call.get_decided_input(1).astype(np.int64)
    indices = _normalize_index_rows(indices, np.array(x.shape[: indices.shape[-1]], np.int64))
    return [_scatter_updates(call, x, tuple(np.moveaxis(indices, -1, 0)), updates)]


def _scatter_updates(
    call: OperatorCall, x: BoundedTensor, scatter_indices: Any, updates: BoundedTensor
) -> BoundedTensor:
    """Scatter updates into x. Reductions may run in any order; without a reduction, the last update of an element wins."""
    reduction = call.attribute("reduction", "none")
    value = np.array(x.value)
    error = None if x.is_exact and updates.is_exact else np.array(x.get_errors())
    if reduction == "none":
        value[scatter_indices] = updates.value
        if error is not None:
            error[scatter_indices] = updates.get_errors()
        return BoundedTensor(value, error, x.dtype, x.stored and updates.stored)
    with np.errstate(all="ignore"):
        _REDUCTIONS[reduction].at(value, scatter_indices, updates.value)
        if reduction in ("max", "min") or not x.is_float:
            if error is not None:
                np.maximum.at(error, scatter_indices, updates.get_errors())
            return BoundedTensor(value, error, x.dtype, x.stored and updates.stored)
        counts, sizes = np.zeros(x.shape), np.abs(x.value) + x.get_errors()
        np.add.at(counts, scatter_indices, np.ones(updates.shape))
        _REDUCTIONS[reduction].at(sizes, scatter_indices, np.abs(updates.value) + updates.get_errors())
        # Each partial result may be rounded to storage.
        unit = call.types.get_storage_type(x.dtype).unit + call.types.get_accumulation_type(x.dtype).unit
        rounding_growth = counts * unit / np.maximum(1 - counts * unit, 1e-30) * sizes
        if error is None:
            return BoundedTensor(value, np.where(counts > 0, rounding_growth, 0.0), x.dtype)
        if reduction == "add":
            np.add.at(error, scatter_indices, updates.get_errors())
            return BoundedTensor(value, np.where(counts > 0, rounding_growth + error, error), x.dtype)
        return BoundedTensor(value, np.where(counts > 0, rounding_growth + (sizes - np.abs(value)), error), x.dtype)


@rule("Trilu")
def _evaluate_trilu(call: OperatorCall) -> list[Any]:
    k = int(call.get_decided_input(1).reshape(-1)[0]) if call.optional_input(1) is not None else 0
    triangle = np.triu if call.attribute("upper", 1) else np.tril
    return [call.input(0).rearrange(lambda v: triangle(v, k))]


@rule("DepthToSpace", "SpaceToDepth")
def _evaluate_depth_to_space_variant(call: OperatorCall) -> list[Any]:
    x, b = call.input(0), call.attribute("blocksize")
    n, c, h, w = x.shape

    def permute_blocks(v: Array) -> Array:
        if call.op == "SpaceToDepth":
            order = (0, 3, 5, 1, 2, 4) if call.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
            permuted = v.reshape(n, c, h // b, b, w // b, b).transpose(order)
            return permuted.reshape(n, c * b * b, h // b, w // b)
        if call.attribute("mode", "DCR") == "DCR":
            permuted = v.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            permuted = v.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return permuted.reshape(n, c // (b * b), h * b, w * b)

    return [x.rearrange(permute_blocks)]


@rule("ReverseSequence")
def _evaluate_reverse_sequence(call: OperatorCall) -> list[Any]:
    x, lengths = call.input(0), call.get_decided_input(1)
    batch, time = call.attribute("batch_axis", 1), call.attribute("time_axis", 0)
    steps = np.arange(x.shape[time])
    source_steps = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)  # [batch, time]
    shape = [1] * x.ndim
    shape[batch], shape[time] = source_steps.shape
    order = (source_steps if batch < time else source_steps.T).reshape(shape)
    return [x.rearrange(lambda v: np.take_along_axis(v, np.broadcast_to(order, v.shape), time))]


@rule("Compress")
def _evaluate_compress(call: OperatorCall) -> list[Any]:
    axis, mask = call.attribute("axis"), call.get_decided_input(1).astype(bool)
    return [call.input(0).rearrange(lambda v: np.compress(mask, v, axis))]


@rule("ConstantOfShape")
def _evaluate_constant_of_shape(call: OperatorCall) -> list[Any]:
    fill_value = call.attribute("value")
    number = np.zeros(1, np.float32) if fill_value is None else np.asarray(fill_value).reshape(-1)
    shape = call.get_integer_list(0) or []
    value = BoundedTensor(np.broadcast_to(number[0], shape), None, number.dtype)
    if not value.is_float:
        return [value]
    own_error = call.types.get_storage_type(value.dtype).compute_storage_error(value.value)
    return [BoundedTensor(value.value, own_error if own_error.any() else None, number.dtype)]


@rule("Range")
def _evaluate_range(call: OperatorCall) -> list[Any]:
    start, limit, delta = (call.input(i) for i in range(3))
    first, last, step = (value.value.reshape(-1)[0] for value in (start, limit, delta))
    if not start.is_float:
        return [BoundedTensor(np.arange(first, last, step, dtype=start.value.dtype), None, start.dtype)]
    if not (start.is_exact and limit.is_exact and delta.is_exact):
        storage = call.types.get_storage_type(start.dtype)
        if any(float(storage.round(value)) != float(value) for value in (first, last, step)):
            raise UndecidedError("Range between numbers that are not exact")
    count = max(int(np.ceil((last - first) / step)), 0)
    steps = np.arange(count, dtype=np.float64)
    unit = call.types.get_accumulation_type(start.dtype).unit
    value = first + steps * step
    exact = (call.types.get_accumulation_type(start.dtype).round(value) == value).all()
    error = None if exact else unit * (2 * np.abs(steps * step) + np.abs(value))
    return [BoundedTensor(value, error, start.dtype)]


@rule("OneHot")
def _evaluate_one_hot(call: OperatorCall) -> list[Any]:
    indices = call.input(0)
    num_classes = int(call.get_decided_input(1).reshape(-1)[0])
    values, axis = call.input(2), call.attribute("axis", -1)
    axis += indices.ndim + 1 if axis < 0 else 0
    shape = [1] * (indices.ndim + 1)
    shape[axis] = num_classes

    def gather_at(at: Array) -> BoundedTensor:
        class_ids = np.where(at < 0, at + num_classes, at) if call.opset >= 11 else at
        hot = np.expand_dims(class_ids, axis) == np.arange(num_classes).reshape(shape)
        return values.rearrange(lambda v: np.where(hot, v[1], v[0]))

    result = gather_at(indices.value)
    if indices.is_exact or not (indices.get_errors() > 0).any():
        return [result]
    if list_alternatives(indices) is None:
        raise UndecidedError("OneHot of indices that rounding may change")
    return [
        gather_alternatives(
            indices, gather_at, result, lambda v: np.broadcast_to(np.expand_dims(v, axis), result.shape)
        )
    ]


@rule("EyeLike")
def _evaluate_eye_like(call: OperatorCall) -> list[Any]:
    x, number = call.input(0), call.attribute("dtype")
    dtype = x.dtype if number is None else dtype_from_onnx(number)
    eye: Array = np.eye(x.shape[0], x.shape[1], k=call.attribute("k", 0))
    return [BoundedTensor(eye if BoundedTensor(np.zeros(0), None, dtype).is_float else eye.astype(dtype), None, dtype)]


@rule("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _evaluate_array_feature_extractor(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    indices = call.get_decided_input(1).reshape(-1)
    result = x.rearrange(lambda v: np.take(v, indices, -1))
    return [result.rearrange(lambda v: v.reshape(1, -1)) if x.ndim == 1 else result]


@rule("Dropout")
def _evaluate_dropout(call: OperatorCall) -> list[Any]:
    training = call.optional_input(2)
    if training is not None and bool(training.value.reshape(-1)[0]):
        raise RandomResultError
    x = call.input(0)
    return [x, BoundedTensor(np.ones(x.shape, bool), None, bool)][: max(call.outputs, 1)]


@rule("Unique")
def _evaluate_unique(call: OperatorCall) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis")
    if not x.is_exact:
        raise UndecidedError("Unique of numbers that are not exact")
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
    result = [BoundedTensor(values, None, x.dtype, x.stored)]
    result += [BoundedTensor(_to_int64_array(value), None, np.int64) for value in (first, inverse, counts)]
    return result[: call.outputs]
