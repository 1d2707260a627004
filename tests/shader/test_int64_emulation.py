"""64-bit integers in user kernels on devices without them: emulation by pairs of uint32 gives the same results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pumice
from features import need_features
from int64_samples import HIGHEST, LOWEST, Array, divisible_pairs, pairs, points, truncated_quotients

EXTENSION = "#extension GL_EXT_shader_explicit_arithmetic_types : require\n"


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "a + b": np.add,
    "a - b": np.subtract,
    "a * b": np.multiply,
    "a & b": np.bitwise_and,
    "a | b": np.bitwise_or,
    "a ^ b": np.bitwise_xor,
    "min(a, b)": np.minimum,
    "max(a, b)": np.maximum,
    "clamp(a, T(-100000), b)": lambda a, b: np.minimum(np.maximum(a, np.array(-100000).astype(a.dtype)), b),
    "-a": lambda a, b: np.negative(a),
    "~a": lambda a, b: ~a,
    "a << uint(b & T(63))": lambda a, b: a << (b & b.dtype.type(63)),
    "a >> uint(b & T(63))": lambda a, b: a >> (b & b.dtype.type(63)),
    "a << (b & T(63))": lambda a, b: a << (b & b.dtype.type(63)),
    "T(a < b) + T(a <= b) * T(2) + T(a > b) * T(4) + T(a >= b) * T(8) + T(a == b) * T(16) + T(a != b) * T(32)": lambda a, b: sum(
        compare(a, b).astype(a.dtype) << a.dtype.type(i)
        for i, compare in enumerate((np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal))
    ),
    "a < b ? a : b ^ T(5)": lambda a, b: np.where(a < b, a, b ^ b.dtype.type(5)),
}  # fmt: skip
SIGNED: dict[str, Callable[[Array, Array], Array]] = {
    "abs(a)": lambda a, b: np.abs(a),
    "sign(a)": lambda a, b: np.sign(a),
    "T(int(a)) - T(uint(b))": lambda a, b: a.astype("int32").astype("int64") - b.astype("uint32").astype("int64"),
    "packInt2x32(unpackInt2x32(a).yx)": lambda a, b: np.bitwise_or(a << 32, (a >> 32) & 0xFFFFFFFF),
    "T(uint64_t(a) >> 7u)": lambda a, b: (a.view("uint64") >> np.uint64(7)).view("int64"),
}
NARROW: dict[str, Callable[[Array, Array], Array]] = {
    "T(int(a)) + T(int16_t(b)) * T(3) + T(int8_t(a))": lambda a, b: (
        a.astype("int32").astype("int64") + b.astype("int16").astype("int64") * 3 + a.astype("int8").astype("int64")
    ),
    "T(uint(a)) - T(uint16_t(b)) + T(uint8_t(b))": lambda a, b: (
        a.astype("uint32").astype("int64") - b.astype("uint16").astype("int64") + b.astype("uint8").astype("int64")
    ),
}
QUOTIENTS: dict[str, Callable[[Array, Array], Array]] = {
    "a / b": truncated_quotients,
    "a - a / b * b": np.fmod,
}


def computed(context: pumice.Context, dtype: str, texts: Sequence[str], a: Array, b: Array) -> list[Array]:
    """Return the results of a kernel that computes each expression of a and b."""
    stores = "".join(f"y[{i}u * n + i] = {text}; " for i, text in enumerate(texts))
    kernel = pumice.Kernel(
        f"{EXTENSION}#define T {dtype}_t\nlayout(binding = 0) readonly buffer A {{ T xa[]; }};\n"
        "layout(binding = 1) readonly buffer B { T xb[]; };\nlayout(binding = 2) writeonly buffer Y { T y[]; };\n"
        "void main() { uint i = gl_GlobalInvocationID.x, n = xa.length(); T a = xa[i], b = xb[i]; " + stores + "}",
        context,
    )
    y = np.zeros((len(texts), a.size), dtype)
    kernel(xa=a, xb=b, y=y.reshape(-1), threads=a.size)
    return list(y)


def compared(context: pumice.Context, paired: pumice.Context, dtype: str, cases: Any, a: Array, b: Array) -> None:
    given = computed(paired, dtype, list(cases), a, b)
    native = (
        given
        if context is paired or not context.feature("shaderInt64")
        else computed(context, dtype, list(cases), a, b)
    )
    with np.errstate(over="ignore"):
        for one, other, (text, function) in zip(given, native, cases.items(), strict=True):
            np.testing.assert_array_equal(one, function(a, b), text)
            np.testing.assert_array_equal(one, other, text)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_a_kernel_computes_as_with_integers_of_64_bits(
    context: pumice.Context, paired: pumice.Context, dtype: str
) -> None:
    compared(context, paired, dtype, {**BINARY, **(SIGNED if dtype == "int64" else {})}, *pairs(dtype))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_a_kernel_divides_as_with_integers_of_64_bits(
    context: pumice.Context, paired: pumice.Context, dtype: str
) -> None:
    compared(context, paired, dtype, QUOTIENTS, *divisible_pairs(dtype))
    # lavapipe's native remainder has the sign of the dividend; SPIR-V requires the sign of the divisor.
    compared(paired if dtype == "int64" else context, paired, dtype, {"a % b": np.mod}, *divisible_pairs(dtype))


def test_a_kernel_converts_8_and_16_bit_integers(context: pumice.Context, paired: pumice.Context) -> None:
    need_features(context, "shaderInt16", "shaderInt8")
    compared(context, paired, "int64", NARROW, *pairs("int64"))


def test_quotients_that_spirv_leaves_open_are_always_the_same(paired: pumice.Context) -> None:
    for dtype, by_zero in (("int64", [0, -1]), ("uint64", [2**64 - 1, 2**64 - 1])):
        a = points(dtype)
        quotients, remainders = computed(paired, dtype, ["a / b", "a % b"], a, np.zeros_like(a))
        assert set(quotients.tolist()) == {by_zero[0]} and set(remainders.tolist()) == {by_zero[1]}
    quotients, remainders = computed(paired, "int64", ["a / b", "a % b"], np.array([LOWEST]), np.array([-1]))
    assert (quotients[0], remainders[0]) == (LOWEST, 0)


REALS = {
    "float": ("float32", ()),
    "double": ("float64", ("shaderFloat64",)),
    "float16_t": ("float16", ("shaderFloat16",)),
}


def rounds_to_half(context: pumice.Context) -> bool:
    """Return whether float32 -> fp16 -> float32 rounds. NVIDIA's driver removes the round trip."""
    kernel = pumice.Kernel(
        "#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require\n"
        "layout(binding = 0) buffer F { float f[]; };\n"
        "void main() { f[gl_GlobalInvocationID.x] = float(float16_t(f[gl_GlobalInvocationID.x])); }",
        context,
    )
    number = np.array([1e9], "float32")
    kernel(f=number, threads=1)
    return bool(np.isinf(number[0]))


@pytest.mark.parametrize("real", REALS)
def test_a_kernel_rounds_to_the_nearest_float_and_truncates(paired: pumice.Context, real: str) -> None:
    dtype, needed = REALS[real]
    need_features(paired, *needed)
    if real == "float16_t" and not rounds_to_half(paired):
        pytest.skip("the driver keeps more of a number than a half has")
    random = np.random.default_rng(5)
    wide = random.integers(LOWEST, HIGHEST, 4000, endpoint=True) >> random.integers(0, 63, 4000)
    numbers = np.concatenate([points(), wide])
    stored = "float" if real == "float16_t" else real
    kernel = pumice.Kernel(
        f"{EXTENSION}#define REAL {real}\nlayout(binding = 0) readonly buffer X {{ int64_t x[]; }};\n"
        f"layout(binding = 1) writeonly buffer F {{ {stored} f[]; }};\n"
        """layout(binding = 2) writeonly buffer Y { int64_t y[]; };
        void main() {
          uint i = 2u * gl_GlobalInvocationID.x;
          int64_t n = x[gl_GlobalInvocationID.x];
          REAL signed_n = REAL(n), unsigned_n = REAL(uint64_t(n));
          f[i] = signed_n;
          f[i + 1u] = unsigned_n;
          y[i] = int64_t(signed_n * REAL(0.375));
          y[i + 1u] = int64_t(uint64_t(unsigned_n * REAL(0.375)));
        }""",
        paired,
    )
    f = np.zeros((numbers.size, 2), "float64" if real == "double" else "float32")
    y = np.zeros((numbers.size, 2), "int64")
    kernel(x=numbers, f=f.reshape(-1), y=y.reshape(-1), threads=numbers.size)
    for k, kind in enumerate(("int64", "uint64")):
        with np.errstate(over="ignore"):
            rounded = numbers.view(kind).astype(dtype)
            parts = rounded * np.array(0.375, dtype)
        np.testing.assert_array_equal(f[:, k], rounded.astype(f.dtype))
        finite = np.isfinite(parts)
        np.testing.assert_array_equal(y[finite, k], parts[finite].astype(kind).view("int64"))


STRUCTURED = (
    EXTENSION
    + """
struct Pair { int64_t low; uint64_t high; float weight; };
layout(local_size_x = 8) in;
layout(constant_id = 3) const int64_t STEP = 5l;
layout(binding = 0) buffer X { int64_t head; int64_t pad[2]; Pair items[]; };
layout(binding = 1) uniform U { uint64_t mask; int64_t table[3]; };
layout(binding = 2) writeonly buffer Y { int64_t y[]; };
layout(push_constant) uniform P { int64_t bias; uint places[2]; int64_t last; } p;
shared int64_t rows[8];
const int64_t powers[4] = { 1l, -3l, 9l, 0x7fffffffffffffffl };
int64_t collatz(int64_t n, inout int64_t steps) {
  int64_t most = n;
  for (; n != 1l; ++steps) { n = (n & 1l) == 0l ? n >> 1 : 3l * n + 1l; most = max(most, n); }
  return most;
}
Pair changed(Pair one, uint64_t by) { one.high += by; one.low = -one.low; return one; }
void main() {
  uint i = gl_LocalInvocationID.x;
  rows[i] = head + int64_t(i) * STEP;
  barrier();
  precise int64_t sum = 0l, steps = 0l;
  for (int64_t k = 0l; k < 8l; ++k) sum += rows[uint(k)] * powers[uint(k & 3l)];
  Pair one = changed(items[i], mask);
  items[i] = one;
  int64_t most = collatz(int64_t(i) + 27l, steps);
  y[8u * i] = sum;
  y[8u * i + 1u] = one.low + int64_t(one.high);
  y[8u * i + 2u] = most;
  y[8u * i + 3u] = steps;
  y[8u * i + 4u] = p.bias - p.last;
  y[8u * i + 5u] = table[i % 3u] * STEP;
  switch (int(sum & 3l)) { case 0: steps = -1l; break; case 1: steps = sum; default: steps += 2l; }
  y[8u * i + 6u] = steps;
  y[8u * i + 7u] = i > 3u ? sum : pad[i & 1u];
}
"""
)


def test_a_kernel_has_them_in_structures_arrays_loops_and_constants(
    context: pumice.Context, paired: pumice.Context
) -> None:
    items = np.zeros(8, [("low", "i8"), ("high", "u8"), ("weight", "f4"), ("_", "f4")])
    items["low"], items["high"] = points()[::15][:8], points("uint64")[::13][:8]
    found = []
    for one in (paired, context) if context.feature("shaderInt64") else (paired,):
        kernel = pumice.Kernel(STRUCTURED, one, spec={"STEP": -(2**40) - 3})
        block = np.concatenate([np.array([2**33 + 1, 2**50, LOWEST], "int64").view("u1"), items.view("u1")])
        uniform = np.zeros(64, "u1")
        uniform[:8].view("u8")[:] = 2**63 + 2**31
        uniform[16:].view("i8")[::2] = LOWEST, 77, -(2**34)
        y = np.zeros(64, "int64")
        kernel(items=block, table=uniform, y=y, bias=HIGHEST, places=[1, 2], last=LOWEST + 9, groups=1)
        found.append((y, block))
    for y, block in found:
        np.testing.assert_array_equal(y, found[0][0])
        np.testing.assert_array_equal(block, found[0][1])
    with np.errstate(over="ignore"):
        rows = 2**33 + 1 + np.arange(8) * (-(2**40) - 3)
        sum_ = (rows * np.array([1, -3, 9, HIGHEST] * 2)).sum()
        y = found[0][0].reshape(8, 8)
        assert (y[:, 0] == sum_).all() and (y[:, 4] == HIGHEST - np.int64(LOWEST + 9)).all()
        assert y[0, 2:4].tolist() == [9232, 111]
        np.testing.assert_array_equal(y[:, 1], -items["low"] + (items["high"] + np.uint64(2**63 + 2**31)).view("int64"))


VECTORS = (
    EXTENSION
    + """
struct Row { i64vec3 a; i64vec2 b; float weight; };
layout(local_size_x = 4) in;
layout(binding = 0) readonly buffer X { i64vec2 x[]; };
layout(binding = 1) buffer R { uint count; Row rows[]; };
layout(binding = 2) writeonly buffer Y { u64vec4 y[]; };
layout(binding = 3) writeonly buffer N { ivec4 narrow[]; };
shared i64vec3 kept[4];
const i64vec2 table[2] = { i64vec2(5l, -7l), i64vec2(0x100000000l, 3l) };
i64vec3 turned(i64vec3 v, inout i64vec2 w) {
  w = w.yx + table[uint(w.x) & 1u];
  return v.zxy * w.x - abs(v);
}
Row changed(Row row) { row.a.y += row.b[1]; row.b = -row.b; return row; }
void main() {
  uint i = gl_LocalInvocationID.x;
  precise i64vec2 w = x[i], sum = i64vec2(0l);
  i64vec3 v = i64vec3(w, w.x ^ w.y);
  for (uint k = 0u; k < 4u; ++k) {
    sum = (k & 1u) == 0u ? sum * 3l + x[k] : max(sum, x[k] >> i64vec2(k));
    v = turned(v, w);
  }
  v[i % 3u] = 11l + v[(i + 1u) % 3u];
  kept[i] = v;
  barrier();
  Row row = changed(rows[i]);
  rows[i] = row;
  bvec2 less = lessThan(w, sum);
  i64vec2 chosen = mix(w, sum, less);
  y[2u * i] = u64vec4(chosen, kept[3u - i].yz);
  y[2u * i + 1u] = u64vec4(i64vec4(row.a, int64_t(w == sum)) / i64vec4(3l)) + u64vec4(uvec4(i));
  narrow[i] = ivec4(ivec2(v.xz), ivec2(less)) + ivec4(i64vec4(row.a.zyx, v[(i + 2u) % 3u]) >> 32);
}
"""
)


CONSTANTS = (
    EXTENSION
    + """
layout(local_size_x = 1) in;
layout(constant_id = 0) const int64_t N = 3l;
layout(constant_id = 1) const int K = 5;
layout(constant_id = 2) const uint64_t U = 9ul;
const int64_t SUM = N * 5l + int64_t(K), LESS = -SUM / 7l;
const uint64_t BITS = (U >> 3) ^ (U << 5) ^ ~U;
const bool IS_LARGE = SUM > 0x100000000l;
const int64_t CHOSEN = IS_LARGE ? SUM : LESS;
const int NARROW = int(SUM & 0xffffl) + K;
layout(binding = 0) buffer Y { int64_t y[]; };
int shortened[IS_LARGE ? 3 : 7];
void main() {
  y[0] = SUM; y[1] = LESS; y[2] = int64_t(BITS); y[3] = IS_LARGE ? 1l : 0l; y[4] = CHOSEN; y[5] = int64_t(NARROW);
  y[6] = int64_t(shortened.length());
}
"""
)


@pytest.mark.parametrize("n", [3, -(2**40), 2**62 + 12345, 2**36 + 7])
def test_constants_are_computed_from_specialization_constants(paired: pumice.Context, n: int) -> None:
    kernel = pumice.Kernel(CONSTANTS, paired, spec={"N": n, "K": -9, "U": 2**64 - 2**33 + 5})
    y, u = np.zeros(7, "int64"), np.uint64(2**64 - 2**33 + 5)
    kernel(y=y, groups=1)
    with np.errstate(over="ignore"):
        total = np.int64(n) * np.int64(5) + np.int64(-9)
        less = truncated_quotients(-total[None], np.array([7]))[0]
        bits = ((u >> np.uint64(3)) ^ (u << np.uint64(5)) ^ ~u).view("int64")
    large = total > 2**32
    narrow = (int(total) & 0xFFFF) - 9
    assert y[:6].tolist() == [total, less, bits, int(large), total if large else less, narrow]
    assert y[6] == (3 if large else 7)


def test_a_kernel_has_vectors_of_them(context: pumice.Context, paired: pumice.Context) -> None:
    numbers = points()
    found = []
    for one in (paired, context) if context.feature("shaderInt64") else (paired,):
        rows = np.zeros(32 + 4 * 64, "u1")
        for k in range(4):
            row = rows[32 + 64 * k :][:64].view("i8")
            row[:3], row[4:6] = numbers[7 * k :: 11][:3], numbers[5 * k :: 13][:2]
        y, narrow = np.zeros((8, 4), "uint64"), np.zeros((4, 4), "int32")
        kernel = pumice.Kernel(VECTORS, one)
        kernel(x=numbers[::9][:8].reshape(4, 2).copy(), rows=rows, y=y, narrow=narrow, groups=1)
        found.append((rows, y, narrow))
    for made, other in zip(found[0], found[-1], strict=True):
        np.testing.assert_array_equal(made, other)
    before, after = numbers[::13][:2], found[0][0][32:96].view("i8")
    assert after[4:6].tolist() == (-before).tolist() and after[1] == numbers[11] + before[1]


def test_messages_print_them(paired: pumice.Context) -> None:
    kernel = pumice.Kernel(
        f'{EXTENSION}layout(local_size_x = 1) in; void main() {{ printf("%ld %lu %v3ld", -5000000000l, ~0ul, i64vec3(1, -2, 1l << 40)); }}',
        paired,
    )
    kernel(groups=1)
    assert [str(message) for message in kernel.messages] == [f"-5000000000 {2**64 - 1} 1, -2, {2**40}"]


@pytest.mark.parametrize("index", [3, -1, 2**40])
def test_bounds_are_checked_with_them(paired: pumice.Context, index: int) -> None:
    text = (
        f"{EXTENSION}layout(local_size_x = 1) in; layout(binding = 0) buffer Y {{ int64_t y[]; }};\n"
        "layout(push_constant) uniform P { int64_t at; } p; void main() { y[0] = 7l; y[int(p.at)] = y[1] << 33; }"
    )
    y = np.array([0, 5, 0], "int64")
    kernel = pumice.Kernel(text, paired, debug=True)
    if index == 2**40:
        kernel(y=y, at=index, groups=1)
        assert y.tolist() == [5 << 33, 5, 0]
        return
    with pytest.raises(pumice.OutOfBoundsError):
        kernel(y=y, at=index, groups=1)
    assert y.tolist() == [7, 5, 0]


def test_emulation_is_logged_once(paired: pumice.Context, caplog: pytest.LogCaptureFixture) -> None:
    text = "layout(binding = 0) buffer Y { int64_t y[]; }; void main() { y[gl_GlobalInvocationID.x] *= int64_t(WIDE); }"
    with caplog.at_level(logging.INFO, "pumice"):
        for wide in (3, 5):
            y = np.array([2**40], "int64")
            pumice.Kernel(text, paired, name="tripled", macros={"WIDE": wide})(y=y, threads=1)
            assert y[0] == 2**40 * wide
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("kernel 'tripled'")]
    assert (
        said
        == ["kernel 'tripled': 64-bit integers are computed as pairs of words because the device lacks shaderInt64"] * 2
    )


@pytest.mark.parametrize(
    ("declared", "body", "use"),
    [
        (
            "layout(binding = 1) uniform U { i64vec2 u; };",
            "y[0] = u.x;",
            "vectors of 64-bit integers in uniform blocks",
        ),
        ("int64_t sum(const i64vec2 v) { return v.x + v.y; }", "y[0] = sum(i64vec2(y[0]));", "constant parameters"),
        (
            "layout(constant_id = 1) const int64_t N = 3l; const i64vec2 M = i64vec2(N, 2l) * 2l;",
            "y[0] = M.y;",
            "computed from specialization constants",
        ),
        (
            "#extension GL_EXT_shader_atomic_int64 : require",
            "atomicAdd(y[0], 1l);",
            "atomic operations on 64-bit integers",
        ),
    ],
)
def test_what_emulation_cannot_do_is_rejected_by_name(
    paired: pumice.Context, declared: str, body: str, use: str
) -> None:
    text = f"{EXTENSION}{declared}\nlayout(local_size_x = 1) in; layout(binding = 0) buffer Y {{ int64_t y[]; }}; void main() {{ {body} }}"
    with pytest.raises(pumice.UnsupportedError) as caught:
        pumice.Kernel(text, paired)
    assert "needs the feature shaderInt64 (Int64)" in str(caught.value) and use in str(caught.value)
