"""Rules of the engine's operators for NNAPI's hashes and detections, also available in the domain pumice."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .registry import Call, Undecided, rule
from .float_types import FLOAT32

DOMAIN = "pumice"
_ALL = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


# ---- FarmHash Fingerprint64


def _turned(v: int, by: int) -> int:
    return (v >> by | v << (64 - by)) & _ALL


def _mixed(v: int) -> int:
    return v ^ v >> 47


def _joined(u: int, v: int, m: int) -> int:
    a = _mixed((u ^ v) * m & _ALL)
    return _mixed((v ^ a) * m & _ALL) * m & _ALL


def _of_32(key: _Key, m: int) -> int:
    n = len(key.data)
    a, b = key.at(0) * _K1 & _ALL, key.at(8)
    c, d = key.at(n - 8) * m & _ALL, key.at(n - 16) * _K2 & _ALL
    first = _turned(a + b & _ALL, 43) + _turned(c, 30) + d & _ALL
    return _joined(first, a + _turned(b + _K2 & _ALL, 18) + c & _ALL, m)


def _of_64(key: _Key, m: int) -> int:
    n = len(key.data)
    a, b = key.at(0) * _K2 & _ALL, key.at(8)
    c, d = key.at(n - 8) * m & _ALL, key.at(n - 16) * _K2 & _ALL
    u = _turned(a + b & _ALL, 43) + _turned(c, 30) + d & _ALL
    v = _joined(u, a + _turned(b + _K2 & _ALL, 18) + c & _ALL, m)
    e, f = key.at(16) * m & _ALL, key.at(24)
    g, h = (u + key.at(n - 32)) * m & _ALL, (v + key.at(n - 24)) * m & _ALL
    first = _turned(e + f & _ALL, 43) + _turned(g, 30) + h & _ALL
    return _joined(first, e + _turned(f + a & _ALL, 18) + g & _ALL, m)


class _Long:
    """Hash state of a key of more than 64 bytes, processed 64 bytes at a time."""

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.x, self.y = 81 * _K2 + key.at(0) & _ALL, 81 * _K1 + 113 & _ALL
        self.z = _mixed(self.y * _K2 + 113 & _ALL) * _K2 & _ALL
        self.v, self.w = (0, 0), (0, 0)

    def _weak(self, i: int, a: int, b: int) -> tuple[int, int]:
        p, q, r, t = (self.key.at(i + 8 * k) for k in range(4))
        a = a + p & _ALL
        b = _turned(b + a + t & _ALL, 21) + _turned(a + q + r & _ALL, 44) & _ALL
        return a + q + r + t & _ALL, b + a & _ALL

    def take(self, i: int, m: int, scale: int) -> None:
        at = self.key.at
        x = _turned(self.x + self.y + self.v[0] + at(i + 8) & _ALL, 37) * m & _ALL
        y = _turned(self.y + self.v[1] + at(i + 48) & _ALL, 42) * m & _ALL
        x ^= scale * self.w[1] & _ALL
        y = y + scale * self.v[0] + at(i + 40) & _ALL
        z = _turned(self.z + self.w[0] & _ALL, 33) * m & _ALL
        self.v = self._weak(i, self.v[1] * m & _ALL, x + self.w[0] & _ALL)
        self.w = self._weak(i + 32, z + self.w[1] & _ALL, y + at(i + 16) & _ALL)
        self.x, self.y, self.z = z, y, x

    def result(self) -> int:
        n = len(self.key.data)
        for i in range(0, 64 * ((n - 1) // 64), 64):
            self.take(i, _K1, 1)
        m = _K1 + 2 * (self.z & 255) & _ALL
        self.w = (self.w[0] + (n - 1 & 63) & _ALL, self.w[1])
        self.v = (self.v[0] + self.w[0] & _ALL, self.v[1])
        self.w = (self.w[0] + self.v[0] & _ALL, self.w[1])
        self.take(n - 64, m, 9)
        first = _joined(self.v[0], self.w[0], m) + _mixed(self.y) * _K0 + self.z & _ALL
        return _joined(first, _joined(self.v[1], self.w[1], m) + self.x & _ALL, m)


class _Key:
    """Bytes to hash: at least the seed's four."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def at(self, i: int, count: int = 8) -> int:
        return int.from_bytes(self.data[i : i + count], "little")

    def hash(self) -> int:
        n = len(self.data)
        m = _K2 + 2 * n
        if n > 64:
            return _Long(self).result()
        if n > 32:
            return _of_64(self, m)
        if n > 16:
            return _of_32(self, m)
        if n < 8:
            return _joined(n + 8 * self.at(0, 4), self.at(n - 4, 4), m)
        a, b = self.at(0) + _K2 & _ALL, self.at(n - 8)
        return _joined(_turned(b, 37) * m + a & _ALL, (_turned(a, 25) + b) * m & _ALL, m)


def _sum_of_hashes(seed: bytes, parts: list[bytes], weights: Array | None) -> float:
    """Sum the hashes in float64; each product is rounded before it is added."""
    total = 0.0
    for k, part in enumerate(parts):
        value = _Key(seed + part).hash()
        signed = float(value - 2**64 if value >= 2**63 else value)
        total += signed if weights is None else float(weights[k]) * signed
    return total


@rule("HashProjection", domain=DOMAIN)
def _projection(call: Call) -> list[Any]:
    """Return exact bits; seeds and weights are given as float32 bit patterns."""
    seeds, x = np.asarray(call.exact(0), np.uint32), call.exact(1)
    weights = None if call.optional(2) is None else np.asarray(call.exact(2), np.uint32).view(np.float32)
    parts = [np.ascontiguousarray(part).tobytes() for part in x]
    sums = [_sum_of_hashes(seed.tobytes(), parts, weights) for seed in seeds.reshape(-1)]
    bits = np.array([one > 0 for one in sums], np.int32).reshape(seeds.shape)
    return [Bounded(bits, None, np.int32)]


# ---- soft-NMS per class


class _Numbers(NamedTuple):
    """The attributes, as the kernel reads them."""

    method: str
    most: int
    threshold: float
    least: float
    overlap: float
    sigma: float


class _Class:
    """Candidates of one class of a batch item: indices, scores and score errors."""

    near = 1e-5  # relative error of float32 areas, quotients and exponentials

    def __init__(self, numbers: _Numbers, boxes: Array, scores: Array, errors: Array) -> None:
        self.numbers, self.boxes = numbers, boxes
        self.scores, self.errors = scores.copy(), errors.copy()
        self._decided(scores - numbers.threshold, errors, "a score about as large as the threshold")
        self.left = [i for i in range(len(scores)) if scores[i] > numbers.threshold]

    @staticmethod
    def _decided(distance: Any, error: Any, what: str) -> None:
        if np.any((np.abs(distance) <= error) & (np.asarray(error) > 0)):
            raise Undecided(f"SuppressBoxes with {what}")

    def _best(self, first: int) -> int:
        """Return the list position of the largest score, the first of equal ones."""
        best = max(range(first, len(self.left)), key=lambda k: (self.scores[self.left[k]], -k))
        others = [self.left[k] for k in range(first, len(self.left)) if k != best]
        chosen = self.left[best]
        gaps = self.scores[chosen] - self.scores[others]
        self._decided(gaps, self.errors[chosen] + self.errors[others], "scores that are too close to be told apart")
        return best

    def _factor(self, part: float) -> tuple[float, float]:
        """Return the factor by which an IoU lowers a score, and the error of the factor."""
        kind, _, _, _, limit, sigma = self.numbers
        if kind == "gaussian":
            made = float(np.exp(-part * part / sigma))
            return made, 0.0 if part == 0 else self.near * (1 + part * part / sigma) * made
        if part > 0:
            self._decided(part - limit, self.near * part, "an overlap about as large as the threshold")
        if part < limit:
            return 1.0, 0.0
        return (0.0, 0.0) if kind == "hard" else (1.0 - part, self.near)

    def _lower(self, best: int, other: int) -> bool:
        """Lower the score of a box by its IoU with a better box. Return whether it is dropped."""
        a, b = self.boxes[best], self.boxes[other]
        sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
        shared = float(sides[0] * sides[1])
        both = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - shared
        factor, off = self._factor(shared / both if shared > 0 and both > 0 else 0.0)
        score = self.scores[other]
        rounding = 0.0 if factor in (0.0, 1.0) else abs(score * factor) * FLOAT32.unit
        self.errors[other] = self.errors[other] * factor + abs(score) * off + rounding
        self.scores[other] = score * factor
        error = self.errors[other]
        self._decided(self.scores[other] - self.numbers.least, error, "a score about as large as the least")
        return bool(self.scores[other] < self.numbers.least)

    def walk(self) -> list[int]:
        """Return the selected rows in order. The last candidate replaces a dropped one and is processed next."""
        at, left, most = 0, self.left, self.numbers.most
        while at < len(left) and (most < 0 or at < most):
            best = self._best(at)
            left[at], left[best] = left[best], left[at]
            k = at + 1
            while k < len(left):
                if self._lower(left[at], left[k]):
                    left[k] = left[-1]
                    left.pop()
                else:
                    k += 1
            at += 1
        return left[:at]


def _bits_off(scores: Array, errors: Array) -> Array:
    """Return the error of the scores when their float32 bits are read as integers."""
    steps = np.abs(np.spacing(scores.astype(np.float32))).astype(np.float64)
    off = np.where(errors > 0, np.ceil(errors / steps) + 1, 0.0)
    return np.asarray(np.where((errors >= np.abs(scores)) & (errors > 0), np.inf, off))


@rule("SuppressBoxes", domain=DOMAIN)
def _suppressed(call: Call) -> list[Any]:
    """Run soft-NMS. Indices are exact; the scores, as float32 bit patterns, have the error of the IoUs."""
    boxes, scores, images = call.input(0), call.input(1), call.exact(2)
    if boxes.error is not None and np.any(boxes.error > 0):
        raise Undecided("SuppressBoxes of boxes that are not known exactly")
    given = {"threshold": 0.0, "least": 0.0, "overlap": 0.0, "sigma": 1.0}
    reals = {name: float(np.float32(call.attribute(name, value))) for name, value in given.items()}
    numbers = _Numbers(call.attribute("method", "hard"), int(call.attribute("most", -1)), **reals)
    rows, labels = scores.shape[0], scores.shape[1] - 1
    errors = call.types.reach(scores.errors())
    made = {name: np.zeros(rows * labels, np.int32) for name in ("chosen", "lowered", "image", "class")}
    off = np.zeros(rows * labels)
    edges = [i for i in range(rows) if i == 0 or images[i] != images[i - 1]] + [rows]
    for first, end in itertools.pairwise(edges):
        for label in range(1, labels + 1):
            base = labels * first + (label - 1) * (end - first)
            slots = slice(base, base + end - first)
            made["image"][slots], made["class"][slots] = labels * first, base
            one = (slice(first, end), label)
            walked = _Class(numbers, boxes.value[one], scores.value[one], np.asarray(errors[one]))
            found = walked.walk()
            slots = slice(base, base + len(found))
            made["chosen"][slots] = [(first + i) * (labels + 1) + label + 1 for i in found]
            made["lowered"][slots] = walked.scores[found].astype(np.float32).view(np.int32)
            off[slots] = _bits_off(walked.scores[found], walked.errors[found])
    exact = [Bounded(made[name], None, np.int32) for name in ("chosen", "image", "class")]
    return [exact[0], Bounded(made["lowered"], off if off.any() else None, np.int32), *exact[1:]]
