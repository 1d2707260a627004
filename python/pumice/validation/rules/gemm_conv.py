"""Error-bound rules for GEMM and convolution (V4): the same operation on magnitudes bounds the rounding errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor, OperatorCall, round_to_storage, rule
from .float_types import BFLOAT16, FLOAT16, FLOAT64, FloatType, ProgramTypes, dtype_name

# ---- sums that are exact in any order of additions: all terms are multiples of one power of two, and the sum of their
# magnitudes fits the significand


_SIGNIFICAND_BITS = 53
_SAMPLE_SIZE = 64  # elements checked first, which rules out most tensors cheaply


def find_common_power_of_two(values: Array) -> float:
    """Return the largest power of two that divides all values; infinity if all are zero, 0 if any value is not finite."""
    finite = np.asarray(values, np.float64)
    if not np.isfinite(finite).all():
        return 0.0
    mantissas, exponents = np.frexp(np.abs(finite[finite != 0]))
    if not mantissas.size:
        return float("inf")
    whole = np.ldexp(mantissas, _SIGNIFICAND_BITS).astype(np.int64)
    return float(np.min(np.ldexp((whole & -whole).astype(np.float64), exponents - _SIGNIFICAND_BITS)))


def _sample_elements(values: Array) -> Array:
    flat = np.asarray(values, np.float64).reshape(-1)
    return flat[:: max(flat.size // _SAMPLE_SIZE, 1)]


def compute_exact_sum_mask(sizes: Array, terms: list[Array], accumulation_type: FloatType) -> Array | None:
    """Return a mask of the sums that are exact in the accumulation type in any order; None if there are none.

    sizes: for each sum, the sum of its terms' magnitudes. terms: the factors of the terms, or one array if the terms are
    not products.
    """
    if not all(factor.size for factor in terms) or not sizes.size:
        return None
    for values in ([_sample_elements(factor) for factor in terms], terms):
        step = float(np.prod([find_common_power_of_two(factor) for factor in values]))
        if not step >= accumulation_type.normal:  # `not >=`, because the step may be NaN (zero times infinity)
            return None
        limit = step / accumulation_type.unit
        if not float(np.min(sizes)) <= limit:
            return None
    exact = np.asarray(sizes) <= min(limit, accumulation_type.largest)
    return exact if exact.any() else None


def is_exact_in_16_bits(values: Array, accumulation_type: FloatType) -> bool:
    """Return whether fp16 and bf16 represent all values exactly, so that every GEMM kernel reads them unrounded."""
    if accumulation_type is FLOAT64:
        return True
    return all(np.array_equal(float_format.round(values), values) for float_format in (BFLOAT16, FLOAT16))


BilinearFunction = Callable[[Array, Array], Array]
_SMALLEST_NORMAL = 2.0**-126  # smaller products may be flushed to zero


def replace_nan_with_infinity(error: Array | None) -> Array | None:
    """Replace NaN errors with infinity, which means unknown."""
    return error if error is None or not np.isnan(error).any() else np.where(np.isnan(error), np.inf, error)


def evaluate_bilinear(
    bilinear: BilinearFunction, a: BoundedTensor, b: BoundedTensor, terms: int, types: ProgramTypes, dtype: Any
) -> BoundedTensor:
    """Evaluate a bilinear operation in which each result is a sum of `terms` products in the accumulation type."""
    a, b = round_constant_matrix(a, types), round_constant_matrix(b, types)
    with np.errstate(all="ignore"):
        value = bilinear(a.value, b.value)
        if types.skips_errors:
            return BoundedTensor(value, None, dtype)
        factor = types.compute_sum_error_factor(types.count_max_roundings(terms), dtype)
        size_a, size_b = a.max_magnitude(), b.max_magnitude()
        if types.independent_errors:
            error = _compute_rss_error(bilinear, a, b, factor)
        else:
            weight = factor * size_a if a.error is None else factor * size_a + a.error
            error = bilinear(weight, size_b)
            if b.error is not None:
                error = error + bilinear(np.abs(a.value), b.error)
        if dtype_name(dtype) != "float64":
            error = error + np.where(error > 0, terms * _SMALLEST_NORMAL, 0.0)
    return BoundedTensor(value, replace_nan_with_infinity(error), dtype)


def compute_exact_product_sum_mask(
    call: OperatorCall, bilinear: BilinearFunction, a: BoundedTensor, b: BoundedTensor
) -> Array | None:
    """Return a mask of the sums of products that are exact in every kernel; None if there are none."""
    if not a.is_exact or not b.is_exact or not call.types.allows_exact_sums or call.types.skips_errors:
        return None
    accumulation = call.types.get_accumulation_type(a.dtype)
    samples = [factor.value.reshape(-1)[: 1 << 8] for factor in (a, b)]
    if not all(is_exact_in_16_bits(factor, accumulation) for factor in (*samples, a.value, b.value)):
        return None
    return compute_exact_sum_mask(bilinear(np.abs(a.value), np.abs(b.value)), [a.value, b.value], accumulation)


def round_constant_matrix(value: BoundedTensor, types: ProgramTypes) -> BoundedTensor:
    """Return a constant matrix as GEMM kernels read it: in the storage type.

    Values beyond bfloat16 have an unknown error, because some kernels saturate and others use infinity. A node with a
    constant beyond float16 keeps all its constants in float32.
    """
    if not value.constant or value.error is None or types.forced_fp32:
        return value
    storage = types.get_storage_type(value.dtype)
    result: BoundedTensor = value.memoize(storage.name, lambda: _round_constant_matrix(value, storage))
    return result


def _round_constant_matrix(value: BoundedTensor, storage: FloatType) -> BoundedTensor:
    is_matrix = value.size > max(value.shape, default=1)
    with np.errstate(all="ignore"):
        beyond = np.isinf(storage.round(value.value)) & np.isfinite(value.value)
    if not beyond.any():
        return BoundedTensor(storage.round(value.value), None, value.dtype, True) if is_matrix else value
    if storage.name != "bfloat16":
        return value
    error = np.where(beyond, np.inf, 0.0 if is_matrix else value.get_errors())
    return BoundedTensor(storage.store_constant(value.value) if is_matrix else value.value, error, value.dtype, True)


def _compute_rss_error(bilinear: BilinearFunction, a: BoundedTensor, b: BoundedTensor, factor: float) -> Array:
    """Return the root-sum-square of the products' errors and the rounding errors of the partial sums."""
    size_a, size_b = np.square(a.max_magnitude()), np.square(b.max_magnitude())
    weight = factor * factor * size_a if a.error is None else factor * factor * size_a + np.square(a.error)
    squares = bilinear(weight, size_b)
    if b.error is not None:
        squares = squares + bilinear(np.square(a.value), np.square(b.error))
    return np.sqrt(squares)


def sum_axes(x: BoundedTensor, axes: tuple[int, ...], types: ProgramTypes, keepdims: bool = True) -> BoundedTensor:
    """Sum elements along axes. The first element needs no addition."""
    terms = int(np.prod([x.shape[i] for i in axes], dtype=int))
    with np.errstate(all="ignore"):
        value = np.sum(x.value, axis=axes, keepdims=keepdims)
        sizes = np.sum(x.max_magnitude(), axis=axes, keepdims=keepdims)
        own_error = (
            types.compute_sum_error_factor(types.count_max_roundings(terms - 1), x.dtype) * sizes if terms > 1 else None
        )
        propagated = None if x.error is None else compute_sum_error(x.error, axes, types, keepdims)
        error = types.combine_errors(own_error, propagated)
        if (
            error is not None and np.isinf(value).any()
        ):  # an infinite term with a finite error makes the sum exactly infinite
            error = np.where(np.isinf(value) & np.isfinite(0.0 if propagated is None else propagated), 0.0, error)
        return BoundedTensor(value, replace_nan_with_infinity(error), x.dtype)


def compute_sum_error(error: Array, axes: tuple[int, ...], types: ProgramTypes, keepdims: bool = True) -> Array:
    """Return the error of a sum along axes, given the errors of its elements."""
    if types.independent_errors:
        return np.asarray(np.sqrt(np.sum(np.square(error), axis=axes, keepdims=keepdims)))
    return np.asarray(np.sum(error, axis=axes, keepdims=keepdims))


def evaluate_integer_bilinear(bilinear: BilinearFunction, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
    """Evaluate a bilinear operation on integers exactly, as int64."""
    x, y = a.value.astype(np.int64), b.value.astype(np.int64)
    # float64 matmul is fast, and float64 represents every integer up to 2^53.
    value = np.rint(bilinear(x.astype(np.float64), y.astype(np.float64))).astype(np.int64)
    if a.error is None and b.error is None:
        return BoundedTensor(value, None, np.int64)
    ea, eb = a.get_errors(), b.get_errors()
    with np.errstate(all="ignore"):
        error = bilinear(ea, np.abs(y) + eb) + bilinear(np.abs(x).astype(np.float64), np.asarray(eb))
    return BoundedTensor(value, replace_nan_with_infinity(error), np.int64)


@rule("MatMul")
def _evaluate_matmul(call: OperatorCall) -> list[Any]:
    a, b = call.input(0), call.input(1)
    if not a.is_float:
        result = evaluate_integer_bilinear(np.matmul, a, b)
        return [BoundedTensor(result.value.astype(a.value.dtype), result.error, a.dtype)]
    result = evaluate_bilinear(np.matmul, a, b, a.shape[-1], call.types, a.dtype)
    return [result.set_exact_sums(compute_exact_product_sum_mask(call, np.matmul, a, b))]


def _scale_matrix(call: OperatorCall, b: BoundedTensor, alpha: float) -> BoundedTensor:
    """Scale a matrix by alpha. Kernels round the result to a 16-bit storage type.

    Constants are scaled in float32 or float64 before they are rounded.
    """
    if not b.constant or b.error is not None:
        m = call.make_arithmetic()
        return round_to_storage(m.mul(b, m.make_constant(alpha)), call.types)
    storage = call.types.get_storage_type(b.dtype)
    with np.errstate(all="ignore"):
        result = storage.round((b.value.astype(np.float32) * np.float32(alpha)).astype(np.float64))
        difference = np.abs(storage.round(b.value * alpha) - result)
    return BoundedTensor(result, replace_nan_with_infinity(difference) if difference.any() else None, b.dtype, True)


@rule("Gemm")
def _evaluate_gemm(call: OperatorCall) -> list[Any]:
    a, b, c = call.input(0), call.input(1), call.optional_input(2)
    if call.attribute("transA", 0):
        a = a.rearrange(np.transpose)
    if call.attribute("transB", 0):
        b = b.rearrange(np.transpose)
    m = call.make_arithmetic()
    terms = a.shape[-1]
    if not a.is_float:
        whole = evaluate_integer_bilinear(np.matmul, a, b).value * int(call.attribute("alpha", 1.0))
        if c is not None:
            whole = whole + c.value.astype(np.int64) * int(call.attribute("beta", 1.0))
        return [BoundedTensor(whole.astype(a.value.dtype), None, a.dtype)]
    alpha = call.attribute("alpha", 1.0)
    if alpha != 1 and call.types.get_storage_type(b.dtype).unit > 2.0**-24:
        b, alpha = _scale_matrix(call, b, alpha), 1.0
    result = evaluate_bilinear(np.matmul, a, b, terms + (c is not None), call.types, a.dtype)
    if alpha != 1:
        result = m.mul(result, m.make_constant(alpha))
    if c is not None:
        if (beta := call.attribute("beta", 1.0)) != 1:
            c = m.mul(c, m.make_constant(beta))
        result = _add_initial_bias(call, result, c, terms)
    return [result]


def _add_initial_bias(call: OperatorCall, result: BoundedTensor, bias: BoundedTensor, terms: int) -> BoundedTensor:
    """Add a bias. A kernel may initialise its accumulator with it, so the bias enlarges every addition's rounding error."""
    result = call.make_arithmetic(result.dtype).add(result, bias)
    with np.errstate(all="ignore"):
        factor = call.types.compute_sum_error_factor(call.types.count_max_roundings(terms), result.dtype)
        own_error = factor * np.broadcast_to(bias.max_magnitude(), result.shape)
        return BoundedTensor(
            result.value, replace_nan_with_infinity(call.types.combine_errors(result.error, own_error)), result.dtype
        )


@rule("Einsum")
def _evaluate_einsum(call: OperatorCall) -> list[Any]:
    values = [call.input(i) for i in range(len(call))]
    equation = str(call.attribute("equation")).replace(" ", "")
    sizes: dict[str, int] = {}
    left, _, right = equation.partition("->")
    for term, value in zip(left.split(","), values, strict=True):
        names = term.replace("...", "")
        ellipsis_index = term.index("...") if "..." in term else len(names)
        shape = value.shape
        sizes |= dict(zip(names[:ellipsis_index], shape[:ellipsis_index], strict=False))
        sizes |= dict(zip(names[ellipsis_index:], shape[len(shape) - len(names[ellipsis_index:]) :], strict=False))
    if "->" not in equation:
        names = left.replace("...", "").replace(",", "")
        right = ("..." if "..." in left else "") + "".join(sorted(n for n in set(names) if names.count(n) == 1))
        equation = f"{left}->{right}"
    terms = int(np.prod([size for name, size in sizes.items() if name not in right], dtype=int))

    def einsum(*arrays: Array) -> Array:
        return np.asarray(np.einsum(equation, *arrays, optimize=True))

    x = values[0]
    if not x.is_float:
        return [BoundedTensor(einsum(*[operand.value for operand in values]).astype(x.value.dtype), None, x.dtype)]
    if len(values) == 1:
        with np.errstate(all="ignore"):
            factor = call.types.compute_sum_error_factor(terms - 1, x.dtype)
            own_error = factor * einsum(x.max_magnitude()) if terms > 1 else None
            error = call.types.combine_errors(own_error, None if x.error is None else einsum(x.error))
            return [BoundedTensor(einsum(x.value), error, x.dtype)]
    if len(values) == 2:
        return [evaluate_bilinear(einsum, values[0], values[1], terms, call.types, x.dtype)]
    with np.errstate(all="ignore"):  # the engine contracts the operands step by step and stores each intermediate
        total = einsum(*[operand.value for operand in values])
        sizes_of = einsum(*[operand.max_magnitude() for operand in values])
        steps = len(values) * (
            call.types.get_storage_type(x.dtype).unit + call.types.compute_sum_error_factor(terms, x.dtype)
        )
        low = einsum(*[np.abs(operand.value) for operand in values])
        return [BoundedTensor(total, replace_nan_with_infinity(sizes_of * steps + (sizes_of - low)), x.dtype)]


# ---- convolutions


def compute_window_geometry(
    call: OperatorCall, spatial: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[Any, Any, list[int], list[int]]:
    """Return strides, dilations, begin pads and end pads of a convolution or a pooling with ceil_mode = 0."""
    rank = len(spatial)
    strides = list(call.attribute("strides") or [1] * rank)
    dilations = list(call.attribute("dilations") or [1] * rank)
    auto = str(call.attribute("auto_pad", "NOTSET"))
    if auto in ("NOTSET", ""):
        pads = list(call.attribute("pads") or [0] * (2 * rank))
        return strides, dilations, pads[:rank], pads[rank:]
    begins, ends = [], []
    for size, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        extent = (k - 1) * d + 1
        total = 0 if auto == "VALID" else max((-(-size // s) - 1) * s + extent - size, 0)
        begins.append(total // 2 if auto == "SAME_UPPER" else total - total // 2)
        ends.append(total - begins[-1])
    return strides, dilations, begins, ends


def iter_taps(shape: tuple[int, ...]) -> Any:
    """Iterate over all filter taps."""
    return np.ndindex(*shape)


_MAX_COLUMNS = 1 << 18  # elements per block of the im2col matrix, which then fits into the CPU cache


def make_convolution(strides: Any, dilations: Any, begins: Any, ends: Any, groups: int) -> BilinearFunction:
    """Return a convolution: x [N, C, ...], w [M, C / groups, ...] -> [N, M, ...], by im2col over blocks of output rows."""

    def convolve(x: Array, w: Array) -> Array:
        if any(begins) or any(ends):
            x = np.pad(x, [(0, 0), (0, 0), *zip(begins, ends, strict=True)])
        kernel, rank = w.shape[2:], w.ndim - 2
        extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
        windows = np.lib.stride_tricks.sliding_window_view(x, extents, axis=tuple(range(2, 2 + rank)))
        steps = [slice(None, None, factor) for factor in (*strides, *dilations)]
        # [N, C, out..., kernel...] -> [N, C, kernel..., out...]
        windows = np.moveaxis(windows[(slice(None), slice(None), *steps)], range(2, 2 + rank), range(-rank, 0))
        out, n, m = windows.shape[2 + rank :], x.shape[0], w.shape[0]
        total = np.empty((n, m, *out))
        weight = w.reshape(groups, m // groups, -1)
        row = max(x.shape[1] * int(np.prod([*kernel, *out[1:]], dtype=int)), 1)
        rows = max(1, _MAX_COLUMNS // row)
        batches_per_block = max(1, rows // max(out[0], 1)) if rank else rows
        for batch in range(0, n, batches_per_block):
            for start in range(0, out[0] if rank else 1, rows):
                row_slices = (slice(start, start + rows),) if rank else ()
                window_block = windows[
                    (slice(batch, batch + batches_per_block), *[slice(None)] * (1 + rank), *row_slices)
                ]
                im2col = window_block.reshape(len(window_block), groups, weight.shape[2], -1)
                result = np.matmul(weight, im2col).reshape(len(window_block), m, *window_block.shape[2 + rank :])
                total[(slice(batch, batch + batches_per_block), slice(None), *row_slices)] = result
        return total

    return convolve


@rule("Conv")
def _evaluate_conv(call: OperatorCall) -> list[Any]:
    x, w, bias = call.input(0), call.input(1), call.optional_input(2)
    geometry = compute_window_geometry(call, x.shape[2:], w.shape[2:])
    run = make_convolution(*geometry, call.attribute("group", 1))
    terms = int(np.prod(w.shape[1:], dtype=int)) + (bias is not None)
    result = evaluate_bilinear(run, x, w, terms, call.types, x.dtype)
    if bias is None:
        return [result.set_exact_sums(compute_exact_product_sum_mask(call, run, x, w))]
    return [_add_channel_bias(call, result, bias, terms)]


def _add_channel_bias(
    call: OperatorCall, result: BoundedTensor, bias: BoundedTensor | None, terms: int
) -> BoundedTensor:
    if bias is None:
        return result
    return _add_initial_bias(call, result, bias.rearrange(lambda v: v.reshape(-1, *[1] * (result.ndim - 2))), terms)


def make_transposed_convolution(
    strides: Any, dilations: Any, begins: Any, out: list[int], groups: int
) -> BilinearFunction:
    """Return a transposed convolution: x [N, C, ...], w [C, M / groups, ...] -> [N, M, ...].

    It scatters the products of each input element to an output window.
    """

    def convolve_transposed(x: Array, w: Array) -> Array:
        n, c = x.shape[:2]
        each, kernel = w.shape[1], w.shape[2:]
        full = [
            max((size - 1) * s + (k - 1) * d + 1, begin + o)
            for size, s, k, d, begin, o in zip(x.shape[2:], strides, kernel, dilations, begins, out, strict=True)
        ]
        total = np.zeros((n, groups * each, *full))
        flat = x.reshape(n, groups, c // groups, int(np.prod(x.shape[2:], dtype=int)))
        for tap in iter_taps(kernel):
            weight = w[(slice(None), slice(None), *tap)].reshape(groups, c // groups, each)
            tap_product = np.matmul(np.swapaxes(weight, 1, 2), flat).reshape(n, groups * each, *x.shape[2:])
            tap_slices = tuple(
                slice(t * d, t * d + (size - 1) * s + 1, s)
                for t, d, size, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            )
            total[(slice(None), slice(None), *tap_slices)] += tap_product
        return total[(slice(None), slice(None), *[slice(b, b + o) for b, o in zip(begins, out, strict=True)])]

    return convolve_transposed


@rule("ConvTranspose")
def _evaluate_conv_transpose(call: OperatorCall) -> list[Any]:
    x, w, bias = call.input(0), call.input(1), call.optional_input(2)
    rank = x.ndim - 2
    kernel, groups = w.shape[2:], call.attribute("group", 1)
    strides = list(call.attribute("strides") or [1] * rank)
    dilations = list(call.attribute("dilations") or [1] * rank)
    extra = list(call.attribute("output_padding") or [0] * rank)
    full = [
        (size - 1) * s + (k - 1) * d + 1 + e
        for size, s, k, d, e in zip(x.shape[2:], strides, kernel, dilations, extra, strict=True)
    ]
    auto, output_shape = str(call.attribute("auto_pad", "NOTSET")), call.attribute("output_shape")
    if output_shape is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        out = (
            list(output_shape)[-rank:]
            if output_shape is not None
            else [size * s for size, s in zip(x.shape[2:], strides, strict=True)]
        )
        totals = [max(f - o, 0) for f, o in zip(full, out, strict=True)]
        begins = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
    else:
        pads = list(call.attribute("pads") or [0] * (2 * rank)) if auto in ("NOTSET", "") else [0] * (2 * rank)
        begins = pads[:rank]
        out = [f - a - b for f, a, b in zip(full, pads[:rank], pads[rank:], strict=True)]
    run = make_transposed_convolution(strides, dilations, begins, out, groups)
    terms = (w.shape[0] // groups) * int(np.prod(kernel, dtype=int)) + (bias is not None)
    return [_add_channel_bias(call, evaluate_bilinear(run, x, w, terms, call.types, x.dtype), bias, terms)]


# ---- integer GEMM and convolution


def subtract_zero_point(
    value: BoundedTensor, zero: BoundedTensor | None, shape: tuple[int, ...] | None = None
) -> BoundedTensor:
    whole = value.value.astype(np.int64)
    error = value.error
    if zero is not None:
        z, ez = zero.value.astype(np.int64), zero.error
        if shape is not None and z.size > 1:
            z, ez = z.reshape(shape), None if ez is None else ez.reshape(shape)
        whole = whole - z
        if ez is not None:
            error = np.broadcast_to(ez, whole.shape) if error is None else error + ez
    return BoundedTensor(whole, error, np.int64)


@rule("MatMulInteger")
def _evaluate_matmul_integer(call: OperatorCall) -> list[Any]:
    a, b = call.input(0), call.input(1)
    az, bz = call.optional_input(2), call.optional_input(3)
    shifted = subtract_zero_point(a, az, (*az.shape, 1) if az is not None and az.ndim == 1 else None)
    result = evaluate_integer_bilinear(np.matmul, shifted, subtract_zero_point(b, bz))
    return [BoundedTensor(result.value.astype(np.int32), result.error, np.int32)]


def convolve_integers(call: OperatorCall, x: BoundedTensor, w: BoundedTensor, xz: Any, wz: Any) -> BoundedTensor:
    """Subtract the zero points from integer operands and convolve them exactly, as int64."""
    run = make_convolution(*compute_window_geometry(call, x.shape[2:], w.shape[2:]), call.attribute("group", 1))
    shape = (-1, *[1] * (w.ndim - 1))
    return evaluate_integer_bilinear(run, subtract_zero_point(x, xz), subtract_zero_point(w, wz, shape))


@rule("ConvInteger")
def _evaluate_conv_integer(call: OperatorCall) -> list[Any]:
    result = convolve_integers(call, call.input(0), call.input(1), call.optional_input(2), call.optional_input(3))
    return [BoundedTensor(result.value.astype(np.int32), result.error, np.int32)]


def broadcast_parameter(value: BoundedTensor, shape: tuple[int, ...], axis: int, block: int) -> BoundedTensor:
    """Broadcast scales or zero points that are per tensor, per channel or per block."""
    if value.size == 1:
        return value.rearrange(lambda v: v.reshape(()))
    if value.ndim == 1 and not (block and len(shape) == 1):
        sizes = [1] * len(shape)
        sizes[axis] = value.size
        return value.rearrange(lambda v: v.reshape(sizes))
    return value.rearrange(lambda v: np.take(np.repeat(v, block, axis), np.arange(shape[axis]), axis))


def get_integer_limits(dtype: Any) -> tuple[float, float]:
    """Return the range of an integer type, including sub-byte types."""
    name = str(dtype)
    if name in ("int4", "uint4", "int2", "uint2"):
        bits = int(name[-1])
        return (0.0, 2.0**bits - 1) if name[0] == "u" else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)
