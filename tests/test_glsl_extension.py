"""The GLSL extension: every name in every mode, and every function against a NumPy model of it, bit for bit."""

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

Array = npt.NDArray[Any]

# Mode -> options. `words`: what the device cannot do, so that the extension does it another way.
MODES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp32 half": {"fp16_arithmetic": True},
    "fp16": {"storage": "fp16"},
    "fp16 half": {"storage": "fp16", "fp16_arithmetic": True},
    "fp16 half words": {"storage": "fp16", "fp16_arithmetic": True, "int64": False},
    "fp16 half uniform": {"storage": "fp16", "fp16_arithmetic": True, "fp16_uniform": True},
    "fp16_packed": {"storage": "fp16_packed"},
    "fp16_packed half": {"storage": "fp16_packed", "fp16_arithmetic": True},
    "bf16_packed": {"storage": "bf16_packed", "int16": False},
    "bf16_packed words": {"storage": "bf16_packed", "storage_16bit": False, "fp16_arithmetic": True},
}
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
    """As the Khronos validator sees it."""
    path = folder / "shader.spv"
    path.write_bytes(shader.spirv)
    done = subprocess.run(
        [SPIRV_VAL, "--target-env", "vulkan1.1", str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr + shader.preamble


def run(source: str, options: pumice.ShaderOptions, context: pumice.Context, threads: int, **buffers: Array) -> None:
    """One dispatch; arrays are bits, whatever type the shader declares."""
    shader = pumice.compile(source, options)
    bound: dict[str, Array] = {}
    for binding in shader.interface["bindings"]:
        given = buffers[binding["name"]]
        dtype = given.dtype if binding["type"] == "other" else np.dtype(binding["type"])
        bound[binding["name"]] = given.view(dtype)
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
    """Of an `sfp`."""
    return np.float32 if generation == "2024" and "packed" in storage_of(mode) else element_type(mode)


def convert(values: Array, dtype: npt.DTypeLike) -> Array:
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(dtype)


def bits(values: Array) -> Array:
    return values.view(f"u{values.dtype.itemsize}")


def assert_same(given: Array, expected: Array, what: str) -> None:
    """Bit for bit; any NaN is NaN, and a denormal may be zero."""
    expected = np.ascontiguousarray(expected)
    given = given.view(expected.dtype)
    assert given.shape == expected.shape, what
    wide, narrow = given.astype(np.float32), expected.astype(np.float32)
    tiny = float(ml_dtypes.finfo(expected.dtype).smallest_normal)
    ok = (bits(given) == bits(expected)) | (np.isnan(wide) & np.isnan(narrow)) | ((wide == 0) & (np.abs(narrow) < tiny))
    if not ok.all():
        i = int(np.argmin(ok))
        pytest.fail(f"{what}: {np.count_nonzero(~ok)} differ; [{i}] is {given[i]!r}, expected {expected[i]!r}")


@functools.cache
def numbers() -> Array:
    """All halves, the ties between them and what lies beside the ties; the same of bfloat16; what overflows."""
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
    """Without 32-bit denormals: whether a device keeps those is its own affair."""
    tiny = (np.abs(values) < np.finfo(np.float32).tiny) & (values != 0)
    return np.where(tiny, np.float32(0.5), values)


# --- Stores of floats

STORES = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer S1 { sfp s1[]; };
layout(binding = 2) writeonly buffer S2 { sfpvec2 s2[]; };
layout(binding = 3) writeonly buffer S4 { sfpvec4 s4[]; };
layout(binding = 4) writeonly buffer SM { sfpmat4 sm[]; };
layout(binding = 5) writeonly buffer B { uint b[]; };
void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= x.length()) buffer_st1(s1, i, 0.0); else buffer_st1(s1, i, x[i]);
  if ((i & 1u) == 0u) {
    const vec2 v = vec2(x[i], x[i + 1u]);
    buffer_st2(s2, i >> 1, v);
    b[i >> 1] = packBFloat2x16(v);
  }
  if ((i & 3u) == 0u) buffer_st4(s4, i >> 2, vec4(x[i], x[i + 1u], x[i + 2u], x[i + 3u]));
  if ((i & 15u) == 0u) {
    mat4 m;
    for (uint k = 0u; k < 16u; ++k) m[k >> 2][k & 3u] = x[i + k];
    sm[i >> 4] = afp2sfpmat4(m);
  }
}
"""


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("mode", MODES)
def test_stores_round_to_nearest_even_and_keep_nan(mode: str, generation: str, context: pumice.Context) -> None:
    x = denormal_free(numbers())
    n = len(x)
    stored, vectors = convert(x, scalar_type(mode, generation)), convert(x, element_type(mode))
    s1 = np.zeros_like(stored)
    s2, s4, sm = (np.zeros_like(vectors) for _ in range(3))
    b = np.zeros(n, ml_dtypes.bfloat16)
    options = pumice.ShaderOptions(generation=generation, **MODES[mode])
    as_uint = {"s2": s2, "s4": s4, "sm": sm, "s1": s1, "b": b}
    run(STORES, options, context, n, x=x, **as_uint)
    assert_same(s1, stored, "st1")
    assert_same(s2, vectors, "st2")
    assert_same(s4, vectors, "st4")
    assert_same(sm, vectors, "afp2sfpmat4")
    assert_same(b, convert(x, ml_dtypes.bfloat16), "packBFloat2x16")


# --- Loads, copies, shared memory

LOADS = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer S1 { sfp s1[]; };
layout(binding = 1) readonly buffer S2 { sfpvec2 s2[]; };
layout(binding = 2) readonly buffer S4 { sfpvec4 s4[]; };
layout(binding = 3) readonly buffer SM { sfpmat4 sm[]; };
layout(binding = 4) writeonly buffer Y1 { float y1[]; };
layout(binding = 5) writeonly buffer Y2 { vec2 y2[]; };
layout(binding = 6) writeonly buffer Y4 { vec4 y4[]; };
layout(binding = 7) writeonly buffer YM { mat4 ym[]; };
layout(binding = 8) buffer C1 { sfp c1[]; };
layout(binding = 9) writeonly buffer C2 { sfpvec2 c2[]; };
layout(binding = 10) writeonly buffer C4 { sfpvec4 c4[]; };
layout(binding = 11) writeonly buffer G4 { sfpvec4 g4[]; };
layout(binding = 12) buffer G1 { sfp g1[]; };
layout(binding = 13) writeonly buffer M1 { float m1[]; };
layout(binding = 14) writeonly buffer M4 { vec4 m4[]; };
layout(binding = 15) writeonly buffer R1 { float r1[]; };
layout(binding = 16) writeonly buffer R4 { vec4 r4[]; };
layout(binding = 17) readonly buffer B { uint b[]; };
layout(binding = 18) writeonly buffer YB { vec2 yb[]; };
shared lfp near1[64];
shared lfpvec4 near4[16];
void main() {
  const uint i = gl_GlobalInvocationID.x, last = gl_NumWorkGroups.x * 64u - 1u, local = gl_LocalInvocationID.x;
  const uint quad = i >> 2, last_quad = last >> 2;
  const bool first = (i & 3u) == 0u;
  y1[i] = float(buffer_ld1(s1, i));
  buffer_cp1(c1, last - i, s1, i);
  near1[local] = buffer_sm1(s1, i);
  if (first) near4[local >> 2] = buffer_sm4(s4, quad);
  barrier();
  m1[i] = float(lfp2afp(near1[63u - local]));
  if (first) m4[quad] = vec4(lfp2afpvec4(near4[15u - (local >> 2)]));
  barrier();
  near1[local] = afp2lfp(buffer_ld1(s1, i));
  if (first) near4[local >> 2] = afp2lfpvec4(buffer_ld4(s4, quad));
  barrier();
  r1[i] = float(lfp2afp(near1[local]));
  if (first) {
    r4[quad] = vec4(lfp2afpvec4(near4[local >> 2]));
    y4[quad] = vec4(buffer_ld4(s4, quad));
    buffer_cp4(c4, last_quad - quad, s4, quad);
    const ivec4 lanes = ivec4(i + 2u, i, i + 3u, i + 1u);
    buffer_cp1to4(g4, quad, s1, lanes);
    buffer_cp4to1(g1, lanes, s4, quad);
  }
  if ((i & 1u) == 0u) {
    y2[i >> 1] = vec2(buffer_ld2(s2, i >> 1));
    buffer_cp2(c2, (last - i) >> 1, s2, i >> 1);
    yb[i >> 1] = unpackBFloat2x16(b[i >> 1]);
  }
  if ((i & 15u) == 0u) ym[i >> 4] = mat4(sfp2afpmat4(sm[i >> 4]));
}
"""


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("mode", MODES)
def test_loads_copies_and_shared_memory(mode: str, generation: str, context: pumice.Context) -> None:
    x = denormal_free(numbers())
    n = len(x)
    scalars, vectors = convert(x, scalar_type(mode, generation)), convert(x, element_type(mode))
    arithmetic = np.float16 if is_half(mode) else np.float32

    def seen(values: Array) -> Array:
        return convert(convert(values, arithmetic), np.float32)

    out = {name: np.zeros(n, np.float32) for name in ("y1", "y2", "y4", "ym", "m1", "m4", "r1", "r4", "yb")}
    out |= {name: np.zeros_like(scalars) for name in ("c1", "g1")}
    out |= {name: np.zeros_like(vectors) for name in ("c2", "c4", "g4")}
    brain = convert(x, ml_dtypes.bfloat16)
    options = pumice.ShaderOptions(generation=generation, **MODES[mode])
    run(LOADS, options, context, n, s1=scalars, s2=vectors, s4=vectors, sm=vectors, b=brain, **out)
    for name in ("y2", "y4", "ym", "r4"):
        assert_same(out[name], seen(vectors), name)
    assert_same(out["y1"], seen(scalars), "ld1")
    assert_same(out["r1"], seen(scalars), "afp2lfp, lfp2afp")
    assert_same(out["m1"], seen(scalars).reshape(-1, 64)[:, ::-1].ravel(), "sm1")
    assert_same(out["m4"], seen(vectors).reshape(-1, 16, 4)[:, ::-1].ravel(), "sm4")
    assert_same(out["yb"], convert(brain, np.float32), "unpackBFloat2x16")
    assert_same(out["c1"], scalars[::-1].copy(), "cp1")
    assert_same(out["c2"], vectors.reshape(-1, 2)[::-1].ravel(), "cp2")
    assert_same(out["c4"], vectors.reshape(-1, 4)[::-1].ravel(), "cp4")
    assert_same(out["g4"], convert(scalars, element_type(mode)).reshape(-1, 4)[:, [2, 0, 3, 1]].ravel(), "cp1to4")
    scattered = convert(vectors, scalar_type(mode, generation)).reshape(-1, 4)[:, [1, 3, 0, 2]]
    assert_same(out["g1"], scattered.ravel(), "cp4to1")
