"""Error-bound rules for NNAPI's LSH projection and soft-NMS, which are operators of the domain `pumice`."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor, OperatorCall, UndecidedError, rule
from .float_types import FLOAT32

DOMAIN = "pumice"
_MASK64 = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


# ---- FarmHash Fingerprint64


def _rotate_right(v: int, num_bits: int) -> int:
    return (v >> num_bits | v << (64 - num_bits)) & _MASK64


def _shift_mix(v: int) -> int:
    return v ^ v >> 47


def _hash_pair(u: int, v: int, m: int) -> int:
    a = _shift_mix((u ^ v) * m & _MASK64)
    return _shift_mix((v ^ a) * m & _MASK64) * m & _MASK64


def _hash_17_to_32_bytes(key: _HashKey, m: int) -> int:
    n = len(key.data)
    a, b = key.read_integer(0) * _K1 & _MASK64, key.read_integer(8)
    c, d = key.read_integer(n - 8) * m & _MASK64, key.read_integer(n - 16) * _K2 & _MASK64
    first = _rotate_right(a + b & _MASK64, 43) + _rotate_right(c, 30) + d & _MASK64
    return _hash_pair(first, a + _rotate_right(b + _K2 & _MASK64, 18) + c & _MASK64, m)


def _hash_33_to_64_bytes(key: _HashKey, m: int) -> int:
    n = len(key.data)
    a, b = key.read_integer(0) * _K2 & _MASK64, key.read_integer(8)
    c, d = key.read_integer(n - 8) * m & _MASK64, key.read_integer(n - 16) * _K2 & _MASK64
    u = _rotate_right(a + b & _MASK64, 43) + _rotate_right(c, 30) + d & _MASK64
    v = _hash_pair(u, a + _rotate_right(b + _K2 & _MASK64, 18) + c & _MASK64, m)
    e, f = key.read_integer(16) * m & _MASK64, key.read_integer(24)
    g, h = (u + key.read_integer(n - 32)) * m & _MASK64, (v + key.read_integer(n - 24)) * m & _MASK64
    first = _rotate_right(e + f & _MASK64, 43) + _rotate_right(g, 30) + h & _MASK64
    return _hash_pair(first, e + _rotate_right(f + a & _MASK64, 18) + g & _MASK64, m)


class _LongKeyHash:
    """FarmHash state for a key of more than 64 bytes, which is processed in chunks of 64 bytes."""

    def __init__(self, key: _HashKey) -> None:
        self.key = key
        self.x, self.y = 81 * _K2 + key.read_integer(0) & _MASK64, 81 * _K1 + 113 & _MASK64
        self.z = _shift_mix(self.y * _K2 + 113 & _MASK64) * _K2 & _MASK64
        self.v, self.w = (0, 0), (0, 0)

    def _weak_hash(self, i: int, a: int, b: int) -> tuple[int, int]:
        p, q, r, t = (self.key.read_integer(i + 8 * k) for k in range(4))
        a = a + p & _MASK64
        b = _rotate_right(b + a + t & _MASK64, 21) + _rotate_right(a + q + r & _MASK64, 44) & _MASK64
        return a + q + r + t & _MASK64, b + a & _MASK64

    def mix_chunk(self, i: int, m: int, scale: int) -> None:
        read = self.key.read_integer
        x = _rotate_right(self.x + self.y + self.v[0] + read(i + 8) & _MASK64, 37) * m & _MASK64
        y = _rotate_right(self.y + self.v[1] + read(i + 48) & _MASK64, 42) * m & _MASK64
        x ^= scale * self.w[1] & _MASK64
        y = y + scale * self.v[0] + read(i + 40) & _MASK64
        z = _rotate_right(self.z + self.w[0] & _MASK64, 33) * m & _MASK64
        self.v = self._weak_hash(i, self.v[1] * m & _MASK64, x + self.w[0] & _MASK64)
        self.w = self._weak_hash(i + 32, z + self.w[1] & _MASK64, y + read(i + 16) & _MASK64)
        self.x, self.y, self.z = z, y, x

    def result(self) -> int:
        n = len(self.key.data)
        for i in range(0, 64 * ((n - 1) // 64), 64):
            self.mix_chunk(i, _K1, 1)
        m = _K1 + 2 * (self.z & 255) & _MASK64
        self.w = (self.w[0] + (n - 1 & 63) & _MASK64, self.w[1])
        self.v = (self.v[0] + self.w[0] & _MASK64, self.v[1])
        self.w = (self.w[0] + self.v[0] & _MASK64, self.w[1])
        self.mix_chunk(n - 64, m, 9)
        first = _hash_pair(self.v[0], self.w[0], m) + _shift_mix(self.y) * _K0 + self.z & _MASK64
        return _hash_pair(first, _hash_pair(self.v[1], self.w[1], m) + self.x & _MASK64, m)


class _HashKey:
    """The bytes to hash: at least four, because they include the seed."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_integer(self, i: int, count: int = 8) -> int:
        return int.from_bytes(self.data[i : i + count], "little")

    def hash(self) -> int:
        n = len(self.data)
        m = _K2 + 2 * n
        if n > 64:
            return _LongKeyHash(self).result()
        if n > 32:
            return _hash_33_to_64_bytes(self, m)
        if n > 16:
            return _hash_17_to_32_bytes(self, m)
        if n < 8:
            return _hash_pair(n + 8 * self.read_integer(0, 4), self.read_integer(n - 4, 4), m)
        a, b = self.read_integer(0) + _K2 & _MASK64, self.read_integer(n - 8)
        return _hash_pair(_rotate_right(b, 37) * m + a & _MASK64, (_rotate_right(a, 25) + b) * m & _MASK64, m)


def _sum_weighted_hashes(seed: bytes, chunks: list[bytes], weights: Array | None) -> float:
    """Sum weighted hashes in float64, rounding each product before it is added."""
    total = 0.0
    for k, chunk in enumerate(chunks):
        value = _HashKey(seed + chunk).hash()
        signed = float(value - 2**64 if value >= 2**63 else value)
        total += signed if weights is None else float(weights[k]) * signed
    return total


@rule("HashProjection", domain=DOMAIN)
def _evaluate_hash_projection(call: OperatorCall) -> list[Any]:
    """Evaluate HashProjection exactly. The float32 hash seeds and the weights are hashed as bit patterns."""
    seeds, x = np.asarray(call.get_decided_input(0), np.uint32), call.get_decided_input(1)
    weights = (
        None if call.optional_input(2) is None else np.asarray(call.get_decided_input(2), np.uint32).view(np.float32)
    )
    chunks = [np.ascontiguousarray(row).tobytes() for row in x]
    sums = [_sum_weighted_hashes(seed.tobytes(), chunks, weights) for seed in seeds.reshape(-1)]
    bits = np.array([hash_sum > 0 for hash_sum in sums], np.int32).reshape(seeds.shape)
    return [BoundedTensor(bits, None, np.int32)]


# ---- soft-NMS per class


class _NmsParams(NamedTuple):
    """The attributes of soft-NMS as the kernel reads them."""

    method: str
    max_boxes: int
    score_threshold: float
    min_score: float
    iou_threshold: float
    sigma: float


class _ClassCandidates:
    """Candidate boxes of one class in one batch item: indices, scores and score errors."""

    tolerance = 1e-5  # relative error of float32 areas, quotients and exponentials

    def __init__(self, params: _NmsParams, boxes: Array, scores: Array, errors: Array) -> None:
        self.params, self.boxes = params, boxes
        self.scores, self.errors = scores.copy(), errors.copy()
        self._require_margin(scores - params.score_threshold, errors, "a score about as large as the threshold")
        self.remaining = [i for i in range(len(scores)) if scores[i] > params.score_threshold]

    @staticmethod
    def _require_margin(distance: Any, error: Any, description: str) -> None:
        if np.any((np.abs(distance) <= error) & (np.asarray(error) > 0)):
            raise UndecidedError(f"SoftNMS with {description}")

    def _find_best(self, first: int) -> int:
        """Return the position in `remaining` of the largest score; ties go to the first."""
        best = max(range(first, len(self.remaining)), key=lambda k: (self.scores[self.remaining[k]], -k))
        others = [self.remaining[k] for k in range(first, len(self.remaining)) if k != best]
        chosen = self.remaining[best]
        gaps = self.scores[chosen] - self.scores[others]
        self._require_margin(
            gaps, self.errors[chosen] + self.errors[others], "scores that are too close to distinguish"
        )
        return best

    def _compute_score_factor(self, iou: float) -> tuple[float, float]:
        """Return the factor by which this IoU lowers a score, and the error of the factor."""
        method, _, _, _, iou_threshold, sigma = self.params
        if method == "gaussian":
            factor = float(np.exp(-iou * iou / sigma))
            return factor, 0.0 if iou == 0 else self.tolerance * (1 + iou * iou / sigma) * factor
        if iou > 0:
            self._require_margin(
                iou - iou_threshold, self.tolerance * iou, "an overlap about as large as the threshold"
            )
        if iou < iou_threshold:
            return 1.0, 0.0
        return (0.0, 0.0) if method == "hard" else (1.0 - iou, self.tolerance)

    def _lower_score(self, best: int, other: int) -> bool:
        """Lower the score of a box by its IoU with the best box. Return whether the box is dropped."""
        a, b = self.boxes[best], self.boxes[other]
        overlap_sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
        intersection = float(overlap_sides[0] * overlap_sides[1])
        union = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - intersection
        factor, factor_error = self._compute_score_factor(
            intersection / union if intersection > 0 and union > 0 else 0.0
        )
        score = self.scores[other]
        rounding = 0.0 if factor in (0.0, 1.0) else abs(score * factor) * FLOAT32.unit
        self.errors[other] = self.errors[other] * factor + abs(score) * factor_error + rounding
        self.scores[other] = score * factor
        error = self.errors[other]
        self._require_margin(self.scores[other] - self.params.min_score, error, "a score about as large as the minimum")
        return bool(self.scores[other] < self.params.min_score)

    def run_nms(self) -> list[int]:
        """Return the indices of the selected boxes. The last candidate takes the place of a dropped one and comes next."""
        index, remaining, max_boxes = 0, self.remaining, self.params.max_boxes
        while index < len(remaining) and (max_boxes < 0 or index < max_boxes):
            best = self._find_best(index)
            remaining[index], remaining[best] = remaining[best], remaining[index]
            k = index + 1
            while k < len(remaining):
                if self._lower_score(remaining[index], remaining[k]):
                    remaining[k] = remaining[-1]
                    remaining.pop()
                else:
                    k += 1
            index += 1
        return remaining[:index]


def _compute_bit_pattern_error(scores: Array, errors: Array) -> Array:
    """Return the error of the scores' float32 bit patterns as integers."""
    steps = np.abs(np.spacing(scores.astype(np.float32))).astype(np.float64)
    bit_error = np.where(errors > 0, np.ceil(errors / steps) + 1, 0.0)
    return np.asarray(np.where((errors >= np.abs(scores)) & (errors > 0), np.inf, bit_error))


@rule("SoftNMS", domain=DOMAIN)
def _evaluate_soft_nms(call: OperatorCall) -> list[Any]:
    """Evaluate soft-NMS. Indices are exact; scores are float32 bit patterns, with the error caused by the IoUs."""
    boxes, scores, batch_indices = call.input(0), call.input(1), call.get_decided_input(2)
    if boxes.error is not None and np.any(boxes.error > 0):
        raise UndecidedError("SoftNMS of boxes that are not known exactly")
    attributes = (("threshold", 0.0), ("least", 0.0), ("overlap", 0.0), ("sigma", 1.0))
    float_params = (float(np.float32(call.attribute(name, default))) for name, default in attributes)
    params = _NmsParams(call.attribute("method", "hard"), int(call.attribute("most", -1)), *float_params)
    num_boxes, labels = scores.shape[0], scores.shape[1] - 1
    errors = call.types.to_max_deviation(scores.get_errors())
    outputs = {name: np.zeros(num_boxes * labels, np.int32) for name in ("chosen", "lowered", "image", "class")}
    score_errors = np.zeros(num_boxes * labels)
    edges = [i for i in range(num_boxes) if i == 0 or batch_indices[i] != batch_indices[i - 1]] + [num_boxes]
    for first, end in itertools.pairwise(edges):
        for label in range(1, labels + 1):
            base = labels * first + (label - 1) * (end - first)
            slots = slice(base, base + end - first)
            outputs["image"][slots], outputs["class"][slots] = labels * first, base
            class_column = (slice(first, end), label)
            candidates = _ClassCandidates(
                params, boxes.value[class_column], scores.value[class_column], np.asarray(errors[class_column])
            )
            selected = candidates.run_nms()
            slots = slice(base, base + len(selected))
            outputs["chosen"][slots] = [(first + i) * (labels + 1) + label + 1 for i in selected]
            outputs["lowered"][slots] = candidates.scores[selected].astype(np.float32).view(np.int32)
            score_errors[slots] = _compute_bit_pattern_error(candidates.scores[selected], candidates.errors[selected])
    exact = [BoundedTensor(outputs[name], None, np.int32) for name in ("chosen", "image", "class")]
    return [
        exact[0],
        BoundedTensor(outputs["lowered"], score_errors if score_errors.any() else None, np.int32),
        *exact[1:],
    ]
