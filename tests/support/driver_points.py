"""Inputs that expose how drivers implement math functions; as a script, prints wrong results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

import onnx_models
import pumice

Array = npt.NDArray[Any]

ROUNDED = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint}
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def points(dtype: str) -> Array:
    """Return integers, half-integers and their neighbours in every binade with fractions, its ends, and the first binades without."""
    digits = np.finfo(dtype).nmant
    powers = np.ldexp(np.ones(digits + 4), np.arange(-2, digits + 2)).astype(dtype)
    near = np.concatenate([powers * k / 4 for k in (1, 2, 3, 4, 5, 6, 7)])
    small = np.arange(0, 40, dtype=dtype) / 4
    all_of_them = np.concatenate([near, small, near + np.asarray(0.5, dtype), near + 1, near - np.asarray(0.5, dtype)])
    beside = [np.nextafter(all_of_them, np.asarray(towards, dtype)) for towards in (-np.inf, np.inf)]
    ends = np.array([0.0, np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
    every = np.concatenate([all_of_them, *beside, ends])
    return np.unique(np.concatenate([every, -every]).view(f"u{every.itemsize}")).view(dtype)


def same_bits(actual: Array, expected: Array) -> Array:
    """Compare bits; all NaNs are equal."""
    bits = f"u{actual.itemsize}"
    return (actual.view(bits) == expected.view(bits)) | ((actual != actual) & (expected != expected))


def truncated(x: Array, dtype: str) -> Array:
    """Convert floats to integers like the engine's Cast: saturated, 0 for NaN."""
    info = np.iinfo(dtype)
    inside = np.where(x != x, 0, np.clip(np.trunc(x), -float(2**62), float(2**62))).astype(np.int64).astype(dtype)
    beyond = np.where(x >= float(info.max) + 1, np.asarray(info.max, dtype), inside)
    whole = np.where((x >= 2.0**62) & (x < 2.0**63), x, 0).astype(np.int64).astype(dtype)
    beyond = np.where((x >= 2.0**62) & (x < min(2.0**63, float(info.max) + 1)), whole, beyond)
    if dtype == "uint64":
        high = (x >= 2.0**63) & (x < 2.0**64)
        beyond = np.where(high, np.where(high, x - 2.0**63, 0).astype(np.uint64) + np.uint64(2**63), beyond)
    if dtype == "int64":
        low = (x < -(2.0**62)) & (x > -(2.0**63))
        beyond = np.where(low, np.where(low, x, 0).astype(np.int64), beyond)
    return np.where(x <= float(info.min), np.asarray(info.min, dtype), beyond).astype(dtype)


def run(op: str, x: Array, context: pumice.Context, **attributes: Any) -> Array:
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    proto = onnx_models.model([onnx_models.node(op, **attributes)], [onnx_models.value("x", [x.size], dtype)], opset=21)
    return np.asarray(pumice.load(proto, context)(x))


def wrong_points(context: pumice.Context) -> Iterator[str]:
    """Yield a line for each wrong function and dtype, with the first such point. If the driver flushes denormals in some operations, they
    may give the result of zero."""
    flushes = any(quirk.name == "flushed_denormals" for quirk in context.driver_quirks)
    for dtype in ("float32", "float64"):
        if dtype == "float64" and not context.info.features.get("shaderFloat64"):
            continue
        x = points(dtype)
        cases = [(op, run(op, x, context), function(x)) for op, function in ROUNDED.items()]
        for to in INTEGERS:
            code = getattr(TensorProto, to.upper())
            cases.append((f"Cast to {to}", run("Cast", x, context, to=code), truncated(x, to)))
        for name, actual, expected in cases:
            right = same_bits(actual, expected)
            if flushes:
                right |= (np.abs(x) < np.finfo(dtype).tiny) & (actual == 0)
            wrong = np.flatnonzero(~right)
            if wrong.size:
                at = wrong[0]
                yield f"{name} of {dtype}: {wrong.size} of {x.size}, {x[at]!r} gives {actual[at]!r}, not {expected[at]!r}"


if __name__ == "__main__":
    print("\n".join(wrong_points(pumice.Context())), end="")
    sys.exit(0)
