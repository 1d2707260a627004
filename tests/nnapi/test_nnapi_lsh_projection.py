"""LSH_PROJECTION in every form and type, against Python's integers and floats, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, operands_of, run

Array = np.ndarray[Any, Any]
OLD_SPARSE, DENSE, SPARSE = 1, 2, 3
ALL = 2**64 - 1
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def rot(v: int, by: int) -> int:
    return (v >> by | v << (64 - by)) & ALL


def mix(v: int) -> int:
    return v ^ v >> 47


def join(u: int, v: int, m: int) -> int:
    a = mix((u ^ v) * m & ALL)
    b = mix((v ^ a) * m & ALL)
    return b * m & ALL


class Key:
    def __init__(self, data: bytes) -> None:
        self.data, self.n = data, len(data)

    def load(self, i: int, count: int = 8) -> int:
        return int.from_bytes(self.data[i : i + count], "little")


def short(key: Key) -> int:
    n, m = key.n, K2 + 2 * key.n
    if n == 0:
        return K2
    if n < 4:
        y, z = key.data[0] + 256 * key.data[n // 2], n + 4 * key.data[n - 1]
        return mix(((y * K2) ^ (z * K0)) & ALL) * K2 & ALL
    if n < 8:
        return join(n + 8 * key.load(0, 4), key.load(n - 4, 4), m)
    a, b = key.load(0) + K2 & ALL, key.load(n - 8)
    return join(rot(b, 37) * m + a & ALL, (rot(a, 25) + b) * m & ALL, m)


def middle(key: Key) -> int:
    n, m = key.n, K2 + 2 * key.n
    a = key.load(0) * (K1 if n <= 32 else K2) & ALL
    b, c, d = key.load(8), key.load(n - 8) * m & ALL, key.load(n - 16) * K2 & ALL
    y = rot(a + b & ALL, 43) + rot(c, 30) + d & ALL
    z = join(y, a + rot(b + K2 & ALL, 18) + c & ALL, m)
    if n <= 32:
        return z
    e, f = key.load(16) * m & ALL, key.load(24)
    g, h = (y + key.load(n - 32)) * m & ALL, (z + key.load(n - 24)) * m & ALL
    return join(rot(e + f & ALL, 43) + rot(g, 30) + h & ALL, e + rot(f + a & ALL, 18) + g & ALL, m)


def weak(key: Key, i: int, a: int, b: int) -> tuple[int, int]:
    p, q, r, t = (key.load(i + 8 * k) for k in range(4))
    a = a + p & ALL
    b = rot(b + a + t & ALL, 21)
    c = a
    a = a + q + r & ALL
    b = b + rot(a, 44) & ALL
    return a + t & ALL, b + c & ALL


def long(key: Key) -> int:
    n = key.n
    x, y = 81 * K2 + key.load(0) & ALL, 81 * K1 + 113 & ALL
    z = mix(y * K2 + 113 & ALL) * K2 & ALL
    v, w = (0, 0), (0, 0)

    def step(i: int, m: int, scale: int) -> None:
        nonlocal x, y, z, v, w
        x = rot(x + y + v[0] + key.load(i + 8) & ALL, 37) * m & ALL
        y = rot(y + v[1] + key.load(i + 48) & ALL, 42) * m & ALL
        x ^= scale * w[1] & ALL
        y = y + scale * v[0] + key.load(i + 40) & ALL
        z = rot(z + w[0] & ALL, 33) * m & ALL
        v = weak(key, i, v[1] * m & ALL, x + w[0] & ALL)
        w = weak(key, i + 32, z + w[1] & ALL, y + key.load(i + 16) & ALL)
        x, z = z, x

    for i in range(0, 64 * ((n - 1) // 64), 64):
        step(i, K1, 1)
    m = K1 + 2 * (z & 255) & ALL
    w = (w[0] + (n - 1 & 63) & ALL, w[1])
    v = (v[0] + w[0] & ALL, v[1])
    w = (w[0] + v[0] & ALL, w[1])
    step(n - 64, m, 9)
    first = join(v[0], w[0], m) + mix(y) * K0 + z & ALL
    return join(first, join(v[1], w[1], m) + x & ALL, m)


def hash_of(data: bytes) -> int:
    key = Key(data)
    return short(key) if key.n <= 16 else middle(key) if key.n <= 64 else long(key)


def bits(seeds: Array, x: Array, weights: Array | None) -> Array:
    """Rule N18.3: Python floats are float64, and no multiply-add is fused."""
    out = np.zeros(seeds.shape, "int32")
    for place in np.ndindex(*seeds.shape):
        score = 0.0
        for k, part in enumerate(x):
            value = hash_of(np.float32(seeds[place]).tobytes() + np.ascontiguousarray(part).tobytes())
            signed = float(value - 2**64 if value >= 2**63 else value)
            score += signed if weights is None else float(weights[k]) * signed
        out[place] = score > 0
    return out


def model(seeds: Array, x: Array, weights: Array | None, form: int) -> list[int]:
    found = bits(seeds, x, weights)
    if form == DENSE:
        return [int(one) for one in found.reshape(-1)]
    count = seeds.shape[1]
    signatures = [sum(int(bit) << count - 1 - t for t, bit in enumerate(row)) for row in found]
    totals = [one + (f << count if form == SPARSE else 0) for f, one in enumerate(signatures)]
    return [(one + 2**31) % 2**32 - 2**31 for one in totals]


def drawn(seed: int, shape: tuple[int, ...], dtype: str) -> Any:
    random = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return random.standard_normal(shape).astype(dtype)
    if dtype == "uint8":
        return Quantized(random.integers(0, 256, shape).astype("uint8"), 0.25, 3)
    return random.integers(-(2**31), 2**31, shape).astype("int32")


def plain(one: Any) -> Array:
    return np.asarray(one.array if isinstance(one, Quantized) else one)


def test_N18_5_check_values() -> None:
    assert hash_of(b"") == 0x9AE16A3B2F90404F
    assert hash_of(b"abc") == 0x24A5B3A074E7F369


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("real", ["float32", "float16"])
def test_N18_3_and_N18_4_every_form_and_type(context: pumice.Context, dtype: str, real: str) -> None:
    seeds, x = drawn(0, (3, 5), real), drawn(1, (7, 3), dtype)
    weights = drawn(2, (7,), real)
    for form in (OLD_SPARSE, SPARSE):
        y = run(context, "LSH_PROJECTION", seeds, x, None, form)
        assert (y.dtype, y.tolist()) == (np.int32, model(seeds, plain(x), None, form))
    assert run(context, "LSH_PROJECTION", seeds, x, weights, DENSE).tolist() == model(seeds, plain(x), weights, DENSE)


def test_N18_2_outputs() -> None:
    for functions, count in ((1, 1), (3, 5), (2, 32)):
        for form in (OLD_SPARSE, DENSE, SPARSE):
            graph = pumice.Graph()
            seeds, x = (
                graph.input(name, dtype, shape)
                for name, dtype, shape in (("seeds", "float32", [functions, count]), ("x", "int32", [4, 2]))
            )
            weights = np.ones(4, "float32") if form == DENSE else None
            y = graph.add("nnapi::LSH_PROJECTION", seeds, x, weights, form)
            assert (y.dtype, y.shape) == ("int32", (functions * count if form == DENSE else functions,))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 12, 13, 28, 29, 60, 61, 62, 124, 125, 200])
def test_N18_5_keys_of_every_length(context: pumice.Context, length: int) -> None:
    """Elements may start at any byte of a 32-bit word."""
    seeds, x = drawn(3, (2, 8), "float32"), drawn(length, (3, length), "uint8")
    assert run(context, "LSH_PROJECTION", seeds, x, None, SPARSE).tolist() == model(seeds, plain(x), None, SPARSE)


def test_N18_1_inputs_of_every_rank(context: pumice.Context) -> None:
    seeds = drawn(4, (2, 4), "float32")
    for shape in ((1,), (9,), (70, 2), (3, 2, 4), (2, 1, 3, 5)):
        x = drawn(5, shape, "int32")
        assert run(context, "LSH_PROJECTION", seeds, x, None, SPARSE).tolist() == model(seeds, x, None, SPARSE)


def test_N18_4_signatures_of_32_bits_wrap(context: pumice.Context) -> None:
    for count in (31, 32):
        seeds, x = drawn(6, (3, count), "float32"), drawn(7, (4,), "int32")
        for form in (OLD_SPARSE, SPARSE):
            assert run(context, "LSH_PROJECTION", seeds, x, None, form).tolist() == model(seeds, x, None, form)


def cancelling(seeds: Array, x: Array) -> Array:
    """Return weights that nearly cancel the sum of the first two terms, for the first seed."""
    values = [hash_of(seeds[0, 0].tobytes() + part.tobytes()) for part in x]
    signed = [one - 2**64 if one >= 2**63 else one for one in values]
    return np.array([1.0, -signed[0] / signed[1], *[0.0] * (len(x) - 2)], "float32")


def test_N18_6_sums_as_doubles_round_them(context: pumice.Context) -> None:
    """The other terms are below one ulp of the first two, so only float64 rounding decides the sign."""
    for seed in range(40):
        seeds, x = drawn(seed, (1, 1), "float32"), drawn(seed + 1, (4,), "int32")
        weights = cancelling(seeds, x)
        random = np.random.default_rng(seed)
        weights[2:] = (random.standard_normal(2) * 10.0 ** random.integers(-45, -5, 2)).astype("float32")
        expected = model(seeds, x, weights, DENSE)
        assert run(context, "LSH_PROJECTION", seeds, x, weights, DENSE).tolist() == expected


def test_N18_6_a_half_is_rounded_to_the_even_one(context: pumice.Context) -> None:
    """Equal terms cancel only if float64 ties round to even: weights are powers of two with tiny additions."""
    seeds = drawn(8, (1, 6), "float32")
    x = np.repeat(drawn(9, (1, 2), "int32"), 6, 0)
    for small in (2.0**-52, 2.0**-53, 2.0**-54, 3 * 2.0**-54, 2.0**-60):
        for sign in (1, -1):
            weights = np.array([1, small, -1, sign * small, -sign * small, small / 4], "float32")
            assert run(context, "LSH_PROJECTION", seeds, x, weights, DENSE).tolist() == model(seeds, x, weights, DENSE)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 1e-45, 3e38, 0.0, -0.0])
def test_N18_3_odd_weights(context: pumice.Context, odd: float) -> None:
    seeds, x = drawn(10, (2, 8), "float32"), drawn(11, (3,), "int32")
    for weights in ([odd, 1, -1], [odd, odd, 1], [odd, -odd, 1], [odd] * 3):
        array = np.array(weights, "float32")
        assert run(context, "LSH_PROJECTION", seeds, x, array, DENSE).tolist() == model(seeds, x, array, DENSE)


def test_the_bits_of_floats_are_those_of_the_input_at_every_precision(context: pumice.Context) -> None:
    seeds, x = drawn(12, (2, 8), "float32"), drawn(13, (5, 2), "float32")
    graph, fed = pumice.Graph(), dict[str, np.ndarray]()
    graph.output("y", graph.add("nnapi::LSH_PROJECTION", *operands_of(graph, (seeds, x, None, SPARSE), fed)))
    for precision in ("fp32", "fp16"):
        assert graph.compile(context, precision=precision)(fed)["y"].tolist() == model(seeds, x, None, SPARSE)


def expect_error(match: str, *given: Any) -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=match):
        graph.add("nnapi::LSH_PROJECTION", *operands_of(graph, given, {}))


def test_N18_1_rules() -> None:
    seeds, x, weights = np.zeros((2, 4), "float32"), np.zeros((3, 2), "int32"), np.zeros(3, "float32")
    for form in (0, 4, -1):
        expect_error("N18.1", seeds, x, None, form)
    expect_error("N18.1", seeds, x, None, DENSE)
    expect_error("N18.1", seeds, x, weights, SPARSE)
    expect_error("N18.1", seeds, x, weights, OLD_SPARSE)
    expect_error("N18.1", np.zeros((2, 33), "float32"), x, None, SPARSE)
    expect_error("N18.1", seeds, x, np.zeros(4, "float32"), DENSE)
    expect_error("N18.1", seeds, x, np.zeros(3, "float16"), DENSE)
    expect_error("rank", np.zeros(4, "float32"), x, None, SPARSE)
    expect_error("rank", seeds, x, np.zeros((3, 1), "float32"), DENSE)


def test_G2_no_elements_are_rejected(context: pumice.Context) -> None:
    seeds, x = np.zeros((2, 4), "float32"), np.zeros((3, 2), "int32")
    for given in ((seeds, x[:0]), (seeds, x[:, :0]), (seeds[:0], x)):
        with pytest.raises(pumice.GraphError, match="G2"):
            run(context, "LSH_PROJECTION", *given, None, SPARSE)
