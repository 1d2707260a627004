"""Error-bound rules for DFT, STFT, Det, MelWeightMatrix, TensorScatter and BitCast."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor, OperatorCall, UndecidedError, UnprovedError, rule
from .float_types import dtype_from_onnx, is_float
from .gemm_conv import replace_nan_with_infinity


def _find_largest_prime_factor(n: int) -> int:
    largest, rest, factor = 1, n, 2
    while factor * factor <= rest:
        while rest % factor == 0:
            largest, rest = max(largest, factor), rest // factor
        factor += 1
    return max(largest, rest)


def _compute_fft_error(call: OperatorCall, sizes: Array, points: int, dtype: Any) -> Array:
    """Return the error of an FFT. A pass sums up to 16 terms, or as many as a prime factor, with rounded roots of unity."""
    roundings = 20 * max(math.ceil(math.log2(max(points, 2))), 1) + 2 * _find_largest_prime_factor(max(points, 1))
    return math.sqrt(2) * sizes * call.types.compute_sum_error_factor(roundings, dtype)


def _compute_spectrum(
    call: OperatorCall, x: BoundedTensor, points: int, axis: int, inverse: bool, onesided: bool
) -> BoundedTensor:
    """Return the DFT of x [..., 1 or 2] along an axis; the last axis is (real, imaginary)."""
    with np.errstate(all="ignore"):
        signal = x.value[..., 0] + (1j * x.value[..., 1] if x.shape[-1] == 2 else 0)
        sizes, error = (np.sum(array, axis=-1) for array in (np.abs(x.value), x.get_errors()))
        width = [(0, 0)] * sizes.ndim
        width[axis] = (0, max(points - sizes.shape[axis], 0))
        kept_slices = [slice(None)] * sizes.ndim
        kept_slices[axis] = slice(0, points)
        total, propagated = (
            np.sum(np.pad(array[tuple(kept_slices)], width), axis=axis, keepdims=True) for array in (sizes, error)
        )
        if inverse and onesided:
            result = np.fft.irfft(signal, n=points, axis=axis)[..., None]
            total, propagated = 2 * total, 2 * propagated
        else:
            spectrum = (np.fft.ifft if inverse else np.fft.fft)(signal, n=points, axis=axis)
            if onesided:
                spectrum = np.take(spectrum, np.arange(points // 2 + 1), axis)
            result = np.stack([spectrum.real, spectrum.imag], -1)
        scale = 1 / points if inverse else 1.0
        bound = (_compute_fft_error(call, total, points, x.dtype) + propagated) * scale
        return BoundedTensor(
            result, replace_nan_with_infinity(np.broadcast_to(bound[..., None], result.shape).copy()), x.dtype
        )


@rule("DFT")
def _evaluate_dft(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    length_input = call.get_integer_list(1)
    axis_input = (
        int(call.get_decided_input(2).reshape(-1)[0]) if call.opset >= 20 and call.optional_input(2) is not None else -2
    )
    axis = (call.attribute("axis", 1) if call.opset < 20 else axis_input) % x.ndim
    inverse, onesided = bool(call.attribute("inverse", 0)), bool(call.attribute("onesided", 0))
    points = length_input[0] if length_input else (2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis])
    return [_compute_spectrum(call, x, points, axis, inverse, onesided)]


@rule("STFT")
def _evaluate_stft(call: OperatorCall) -> list[Any]:
    x, step = call.input(0), int(call.get_decided_input(1).reshape(-1)[0])
    window, length_input = call.optional_input(2), call.get_integer_list(3)
    length = length_input[0] if length_input else window.shape[0]
    frames = 1 + (x.shape[1] - length) // step
    sample_indices = np.arange(frames)[:, None] * step + np.arange(length)
    if x.ndim == 2:
        x = x.rearrange(lambda v: v[..., None])
    frame_rows = x.rearrange(lambda v: v[:, sample_indices])  # [batch, frames, length, 1 or 2]
    if window is not None:
        frame_rows = call.make_arithmetic(x.dtype).mul(frame_rows, window.rearrange(lambda v: v[:, None]))
    return [_compute_spectrum(call, frame_rows, length, 2, False, bool(call.attribute("onesided", 1)))]


@rule("Det")
def _evaluate_determinant(call: OperatorCall) -> list[Any]:
    """Compute determinants. By Hadamard's inequality, no result or partial result exceeds the product of the row norms."""
    x = call.input(0)
    n = x.shape[-1]
    with np.errstate(all="ignore"):
        value = np.linalg.det(x.value)
        row_norms = np.sqrt(np.sum(np.square(x.max_magnitude()), axis=-1))
        size = np.prod(row_norms, axis=-1) * 2.0 ** max(n - 2, 0)
        error = size * call.types.compute_sum_error_factor(3 * n * n, x.dtype)
        if x.error is not None:
            relative_errors = np.sqrt(np.sum(np.square(x.error), axis=-1)) / np.where(row_norms > 0, row_norms, 1.0)
            error = error + size * np.sum(relative_errors, axis=-1) * n
    return [BoundedTensor(value, replace_nan_with_infinity(error), x.dtype)]


_EDGE_TOLERANCE = 1e-9  # relative tolerance that exceeds the float64 rounding of a triangle's edges


@rule("MelWeightMatrix")
def _evaluate_mel_weight_matrix(call: OperatorCall) -> list[Any]:
    """Return triangular filters whose edges are evenly spaced on the mel scale and rounded down to frequency bins."""
    bins, length, rate = (int(call.get_decided_input(i).reshape(-1)[0]) for i in range(3))
    (low, off_low), (high, off_high) = call.get_scalar(3, 0.0), call.get_scalar(4, 0.0)
    dtype = dtype_from_onnx(call.attribute("output_datatype", 1))
    if not is_float(dtype):
        raise UnprovedError(f"MelWeightMatrix of {dtype}")
    ends = [2595 * math.log10(1 + hertz / 700) for hertz in (low, high)]
    mels = ends[0] + np.arange(bins + 2) * (ends[1] - ends[0]) / (bins + 2)
    edges = (length + 1) * 700 * (10 ** (mels / 2595) - 1) / rate
    near = (np.abs(edges - np.rint(edges)) <= _EDGE_TOLERANCE * (np.abs(edges) + 1)) & (edges != 0)
    if off_low or off_high or near.any():
        raise UndecidedError("MelWeightMatrix whose edges are between two frequencies")
    whole = np.floor(edges)
    frequency, left, center, right = np.arange(length // 2 + 1)[:, None], whole[:-2], whole[1:-1], whole[2:]
    m = call.make_arithmetic(dtype)
    rising = m.div(m.wrap(np.clip(frequency - left, 0, None)), m.wrap(np.maximum(center - left, 1)))
    falling = m.div(m.wrap(np.clip(right - frequency, 0, None)), m.wrap(np.maximum(right - center, 1)))
    value = np.where(frequency < center, rising.value, np.where(frequency > center, falling.value, 1.0))
    error = np.where(frequency < center, rising.get_errors(), falling.get_errors())
    error = np.where((value == 0) | (frequency == center), 0.0, error)
    return [BoundedTensor(value, error if error.any() else None, dtype)]


@rule("TensorScatter")
def _evaluate_tensor_scatter(call: OperatorCall) -> list[Any]:
    past, update, first = call.input(0), call.input(1), call.optional_input(2)
    axis = call.attribute("axis", -2) % past.ndim
    begins = np.zeros(past.shape[0], np.int64) if first is None else call.get_decided_input(2).astype(np.int64)
    positions = begins[:, None] + np.arange(update.shape[axis])
    if str(call.attribute("mode", "linear")) == "circular":
        positions %= past.shape[axis]
    value, error = np.array(past.value), np.array(past.get_errors())
    for batch in range(past.shape[0]):
        index = (*[slice(None)] * (axis - 1), positions[batch])
        value[batch][index], error[batch][index] = update.value[batch], update.get_errors()[batch]
    is_stored = past.stored and update.stored
    return [BoundedTensor(value, error if error.any() else None, past.dtype, is_stored)]


@rule("BitCast")
def _evaluate_bit_cast(call: OperatorCall) -> list[Any]:
    x, dtype = call.input(0), dtype_from_onnx(call.attribute("to"))
    if x.is_float and (not x.is_exact or x.dtype != np.float64):
        x = BoundedTensor(x.value.astype(x.dtype).view(f"u{x.dtype.itemsize}"), None) if x.is_exact else x
    if x.is_float and not x.is_exact:
        raise UnprovedError("BitCast of numbers that are not exact")
    return [BoundedTensor(np.ascontiguousarray(x.value).view(dtype).reshape(x.shape), None, dtype, stored=True)]
