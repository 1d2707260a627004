"""The engine's random numbers in NumPy: the same integers, and floats by the same float32 operations."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F = np.float32
_LOG = (-0.07866667956113815, 0.12821748852729797, -0.131016343832016, 0.1418900042772293, -0.1662759929895401)
_LOG += (0.2000196874141693, -0.2500077188014984, 0.33333322405815125, -0.4999999701976776)
_SIN = (0.0001516751217423007, -0.004674150608479977, 0.07968991994857788, -0.6459637880325317, 1.5707963705062866)
_COS = (
    -2.3824535674066283e-05,
    0.0009177238680422306,
    -0.02086268737912178,
    0.2536693215370178,
    -1.2337005138397217,
    1.0,
)


def philox(counters: Array, key: tuple[int, int]) -> Array:
    """Apply Philox 4x32-10 to counters [n, 4]."""
    c = [counters[:, i].astype(np.uint64) for i in range(4)]
    k = list(key)
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        one, two = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        high = np.uint64(32)
        c = [
            (two >> high) ^ c[1] ^ np.uint64(k[0]),
            two & mask,
            (one >> high) ^ c[3] ^ np.uint64(k[1]),
            one & mask,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=1).astype(np.uint32)


def words(count: int, state: Array, stream: int, key: int | None = None) -> Array:
    """Return the random uint32 words for `count` numbers, in blocks of four."""
    blocks = -(-count // 4)
    counters = np.zeros((blocks, 4), np.uint32)
    counters[:, 0] = np.arange(blocks)
    counters[:, 1:3] = state[2:]
    counters[:, 3] = stream
    key_words = (int(state[0]), int(state[1])) if key is None else (key & 0xFFFFFFFF, key >> 32)
    return philox(counters, key_words)


def uniform(count: int, state: Array, stream: int = 0, key: int | None = None) -> Array:
    return ((words(count, state, stream, key) >> np.uint32(8)).astype(F) * F(2**-24)).reshape(-1)[:count]


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y = y * x + F(c)
    return y


def log(u: Array) -> Array:
    bits = u.view(np.uint32)
    e = (bits - np.uint32(0x3F3504F3)).view(np.int32) >> 23
    t = (bits - (e.view(np.uint32) << np.uint32(23))).view(F) - F(1)
    return (t + t * t * polynomial(_LOG, t)) + e.astype(F) * F(0.693147182464599609375)


def root(s: Array) -> Array:
    y = (np.uint32(0x5F3759DF) - (s.view(np.uint32) >> np.uint32(1))).view(F)
    for _ in range(4):
        y = y * (F(1.5) - F(0.5) * s * y * y)
    return s * y


def normal(count: int, state: Array, stream: int = 0, key: int | None = None) -> Array:
    result = words(count, state, stream, key).reshape(-1, 2)
    distance, angle = result[:, 0], result[:, 1] >> np.uint32(8)
    u = (distance >> np.uint32(8)).astype(F) * F(2**-24) + ((distance & np.uint32(255)) + np.uint32(1)).astype(F) * F(
        2**-32
    )
    r = root(F(-2) * log(u))
    f = (angle & np.uint32(0x3FFFFF)).astype(F) * F(2**-22)
    z = f * f
    s, c = polynomial(_SIN, z) * f, polynomial(_COS, z)
    odd = (angle >> np.uint32(22) & 1) == 1
    c, s = np.where(odd, -s, c), np.where(odd, c, s)
    sign = np.where(angle >> np.uint32(23) & 1, F(-1), F(1))
    return (r[:, None] * np.stack([c * sign, s * sign], axis=1)).reshape(-1)[:count]
