"""Every function of the GLSL extension in every mode against a NumPy model, bit for bit."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import pumice
from glsl_kernel_sources import INTEGERS, LOADS, STORES, VEC8
from glsl_modes import (
    GENERATIONS,
    INTEGER_MODES,
    MODES,
    Array,
    assert_same,
    convert,
    denormal_free,
    element_type,
    is_half,
    numbers,
    run,
    scalar_type,
    storage_of,
    validate,
)

# --- Stores of floats


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


ADJACENT = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer S1 { sfp s1[]; };
layout(binding = 2) buffer C1 { sfp c1[]; };
void main() {
  const uint i = gl_GlobalInvocationID.x, to = i * 5u & 4095u;
  for (uint round = 0u; round < 4u; ++round) {
    buffer_st1(s1, to, x[(to + round) & 4095u]);
    buffer_cp1(c1, i, s1, to);
  }
  buffer_st1(s1, to, x[to]);
  buffer_cp1(c1, to, s1, to);
}
"""


@pytest.mark.parametrize("mode", [mode for mode in MODES if "packed" in mode])
def test_scalar_stores_leave_the_other_lane_alone(mode: str, context: pumice.Context) -> None:
    x = np.random.default_rng(7).normal(size=4096).astype(np.float32)
    stored = convert(x, element_type(mode))
    s1, c1 = np.zeros_like(stored), np.zeros_like(stored)
    run(ADJACENT, pumice.ShaderOptions(**MODES[mode]), context, 4096, x=x, s1=s1, c1=c1)
    assert_same(s1, stored, "st1")


# --- Integers


def float2int8(values: Array) -> Array:
    clipped = np.clip(np.nan_to_num(values, nan=0.0, posinf=127, neginf=-127), -127, 127).astype(np.float64)
    return (np.sign(clipped) * np.floor(np.abs(clipped) + 0.5)).astype(np.int32)


@pytest.mark.parametrize("mode", INTEGER_MODES)
def test_integers(mode: str, context: pumice.Context) -> None:
    n = 65536
    short = np.int32 if mode == "none" else np.int16
    order = np.random.default_rng(1).permutation(n)
    a, b = order.astype(np.uint8).view(np.int8), order.astype(np.uint16).view(np.int16)
    stored = b.astype(short)
    halves = np.arange(-260, 261, dtype=np.float32) / 2
    beside = [np.nextafter(halves, np.float32(s)) for s in (-1e9, 1e9)]
    odd = np.array([np.nan, np.inf, -np.inf, 1e30, 0.49999997, -0.49999997, 8388609], np.float32)
    f = np.resize(np.concatenate([halves, *beside, odd]), n)
    out = {name: np.zeros(n, np.int8) for name in ("ya", "ya4", "ca", "ca4", "ga4", "ga")}
    out |= {name: np.zeros(n, short) for name in ("yb", "yb2", "yb4")}
    out |= {name: np.zeros(n, np.int32) for name in ("wa", "wa4", "wb", "wb4", "lb", "lb4", "yf", "yf4", "p")}
    out["wb2"] = np.zeros(2 * n, np.int32)
    run(INTEGERS, pumice.ShaderOptions(**INTEGER_MODES[mode]), context, n, a=a, a4=a, b=stored, b4=stored, f=f, **out)
    quads = a.reshape(-1, 4)
    wrapped = stored + 32768 if mode == "none" else (stored.astype(np.int32) + 32768).astype(np.int16)
    pairs = np.stack([b[:-1], b[1:]], 1).ravel().astype(np.int32)
    shorts = a.view(np.int16).reshape(-1, 2).astype(np.int32)
    expected = {
        "ya": (a.astype(np.int32) + 128).astype(np.int8),
        "ya4": (a.astype(np.int32) + 128).astype(np.int8),
        "ca": a[::-1],
        "ca4": quads[::-1].ravel(),
        "ga4": quads[:, [2, 0, 3, 1]].ravel(),
        "ga": quads[:, [1, 3, 0, 2]].ravel(),
        "wa": a,
        "wa4": a,
        "wb": b,
        "wb4": b,
        "yb": wrapped,
        "yb4": wrapped,
        "yb2": np.concatenate([[0], b[1:-1], [0]]),
        "lb": b.reshape(-1, 64)[:, ::-1].ravel(),
        "lb4": b.reshape(-1, 16, 4)[:, ::-1].ravel(),
        "yf": float2int8(f),
        "yf4": float2int8(f),
        "p": np.stack([a.view(np.int32), a.view(np.int32), *shorts.T], 1).ravel(),
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(out[name], values, name)
    np.testing.assert_array_equal(out["wb2"][: 2 * n - 2], pairs)


STORE_PAIRS = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { int x[]; };
layout(binding = 1) buffer Y { sint16 y[]; };
void main() { const uint i = gl_GlobalInvocationID.x * 2u; i16buffer_st2(y, i, ivec2(x[i], x[i + 1u])); }
"""


@pytest.mark.parametrize("mode", INTEGER_MODES)
def test_pairs_of_short_integers(mode: str, context: pumice.Context) -> None:
    x = np.arange(-64, 64, dtype=np.int32)
    y = np.zeros(128, np.int32 if mode == "none" else np.int16)
    run(STORE_PAIRS, pumice.ShaderOptions(**INTEGER_MODES[mode]), context, 64, x=x, y=y)
    np.testing.assert_array_equal(y, x)


# --- The generation of 2024


@pytest.mark.parametrize("mode", MODES)
def test_vec8_functions(mode: str, context: pumice.Context) -> None:
    x = denormal_free(numbers())
    n = len(x) // 8
    scalars, vectors = convert(x, scalar_type(mode, "2024")), convert(x, element_type(mode))
    arithmetic = np.float16 if is_half(mode) else np.float32

    def seen(values: Array) -> Array:
        return convert(convert(values, arithmetic), np.float32)

    out = {"y8": np.zeros(len(x), np.float32), "h1": np.zeros_like(scalars)}
    out |= {"m1": np.zeros(n, np.float32), "m4": np.zeros(n * 4, np.float32)}
    out |= {name: np.zeros_like(vectors) for name in ("w8", "c8", "g1", "g4", "h4")}
    options = pumice.ShaderOptions(generation="2024", **MODES[mode])
    run(VEC8, options, context, n, s1=scalars, s4=vectors, s8=vectors, x=x, **out)
    order = [2, 0, 3, 1, 7, 5, 4, 6]
    eights = vectors.reshape(-1, 8)
    assert_same(out["y8"], seen(vectors), "ld8")
    stored = convert(x, arithmetic) if storage_of(mode) == "fp16" else x
    assert_same(out["w8"], convert(stored, element_type(mode)), "st8")
    assert_same(out["c8"], eights[::-1].ravel(), "cp8")
    assert_same(out["g1"], convert(scalars, element_type(mode)).reshape(-1, 8)[:, order].ravel(), "cp1to8")
    assert_same(out["g4"], eights.reshape(-1, 2, 4)[:, ::-1].ravel(), "cp4to8")
    scattered = convert(vectors, scalar_type(mode, "2024")).reshape(-1, 8)[:, np.argsort(order)]
    assert_same(out["h1"], scattered.ravel(), "cp8to1")
    assert_same(out["h4"], eights.reshape(-1, 2, 4)[:, ::-1].ravel(), "cp8to4")
    assert_same(out["m1"], seen(scalars[:n]).reshape(-1, 64)[:, ::-1].ravel(), "sfp2lfp")
    assert_same(out["m4"], seen(vectors[: n * 4]).reshape(-1, 64, 4)[:, ::-1].ravel(), "sfp2lfpvec4")


# --- Traps of the original


TRAPS = """
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer S { sfpvec4 s[]; };
layout(binding = 2) buffer S2 { sfpvec2 s2[]; };
layout(binding = 3) buffer S1 { sfp s1[]; };
void main() {
  afpvec4 a = afpvec4(x[0], x[1], x[2], x[3]), b = afpvec4(x[4], x[5], x[6], x[7]);
  buffer_st4(s, 0, a + b);
  buffer_st4(s, 1, a + afp(x[4]));
  buffer_st4(s, 0 + 2, x[0] > 0.0 ? a : b);
  if (x[0] > 5.0) buffer_st4(s, 3, a); else buffer_st4(s, 3, b);
  if (x[0] > 5.0) buffer_st1(s1, 0, a.x); else buffer_st1(s1, 0, b.x);
  if (x[0] > 5.0) buffer_cp1to4(s, 4, s1, ivec4(0)); else buffer_cp4(s, 4, s, 0);
  if (x[0] > 5.0) buffer_cp4to1(s1, ivec4(1), s, 0); else buffer_cp1(s1, 1, s1, 0);
  buffer_st2(s2, 0, a.xy + b.zw);
  int i = 0;
  buffer_st4(s, 5, buffer_ld4(s, i++));
  if (i == 1) buffer_st1(s1, 2, buffer_ld1(s1, i++ - 1)); else buffer_st1(s1, 2, afp(0));
  if (i == 2) buffer_st1(s1, i++ + 1, afp(9));
}
"""


@pytest.mark.parametrize("mode", MODES)
def test_arguments_are_expressions_and_stores_are_statements(mode: str, context: pumice.Context) -> None:
    x = np.arange(1, 9, dtype=np.float32)
    dtype = element_type(mode)
    s, s2, s1 = np.zeros(24, dtype), np.zeros(2, dtype), np.zeros(4, dtype)
    run(TRAPS, pumice.ShaderOptions(**MODES[mode]), context, 1, x=x, s=s, s2=s2, s1=s1)
    added = [6, 8, 10, 12]
    assert s.astype(np.float32).tolist() == [*added, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, *added, *added]
    assert s2.astype(np.float32).tolist() == [8, 10]
    assert s1.astype(np.float32).tolist() == [5, 5, 5, 9]


def test_bfloat16_scalars_need_no_16_bit_arithmetic(tmp_path: Path) -> None:
    options = pumice.ShaderOptions(storage="bf16_packed", int16=False, int64=False, int8=False)
    for source in (STORES, LOADS, TRAPS):
        shader = pumice.compile(source, options)
        validate(shader, tmp_path)
        assert not {"Int16", "Float16", "Int64", "Int8"} & {*shader.interface["capabilities"]}


def test_float16_arithmetic_needs_no_64_bit_integers() -> None:
    shader = pumice.compile(LOADS, pumice.ShaderOptions(**MODES["fp16 half words"]))
    assert "Int64" not in shader.interface["capabilities"]
    assert "Int64" in pumice.compile(LOADS, pumice.ShaderOptions(**MODES["fp16 half"])).interface["capabilities"]
