"""Attention test cases: programs, inputs and expected results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import pumice

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A case. counts: valid keys per batch item; after, before: visible keys relative to a query's position; mask: its dtype.

    mask_axes: axes of the mask among batch, heads, queries and keys (bhrk); others are broadcast. mask_keys: number of keys that the mask
    covers, if fewer than all; the rest is masked.
    """

    heads: int
    groups: int
    rows: int
    keys: int
    size: int
    v_size: int = 0
    batch: int = 1
    counts: tuple[int, ...] = ()
    causal: bool = False
    before: int = -1
    cap: float = 0.0
    scale: float = 0.0
    mask: str = ""
    then: str = ""
    mask_axes: str = "bhrk"
    mask_keys: int = 0

    @property
    def shapes(self) -> tuple[list[int], list[int], list[int]]:
        keys = [self.batch, self.groups, self.keys]
        return [self.batch, self.heads, self.rows, self.size], [*keys, self.size], [*keys, self.v_size or self.size]

    def given(self, seed: int = 0) -> list[Array]:
        random = np.random.default_rng(seed)
        result: list[Array] = [random.standard_normal(shape).astype(np.float16) for shape in self.shapes]
        if self.mask:
            sizes = (self.batch, self.heads, self.rows, self.mask_keys or self.keys)
            shape = tuple(size if axis in self.mask_axes else 1 for axis, size in zip("bhrk", sizes, strict=True))
            result.append(
                random.random(shape) < 0.6 if self.mask == "bool" else random.standard_normal(shape).astype("f2")
            )
        if self.counts:
            result.append(np.array(self.counts, np.int64))
        return result

    def program(
        self, context: pumice.Context, precision: str = "fp16", measured: dict[str, str] | None = None
    ) -> pumice.Program:
        graph = pumice.Graph(str(self))
        names = ["q", "k", "v", *(["mask"] if self.mask else []), *(["counts"] if self.counts else [])]
        inputs: list[pumice.Value | None] = []
        for name, array in zip(names, self.given(), strict=True):
            if name == "counts":
                inputs += [None] * (6 - len(inputs))
            inputs.append(graph.input(name, str(array.dtype), list(array.shape)))
        more: dict[str, Any] = {"softcap": self.cap, "left_window_size": self.before, "is_causal": int(self.causal)}
        if self.scale:
            more["scale"] = self.scale
        result = graph.add("Attention", *inputs, **more)
        graph.output("y", graph.add(self.then, result) if self.then else result)
        return graph.compile(context, precision, measured=measured)

    def expected(self, inputs: list[Array]) -> Array:
        """Return the result in float64; a query that sees no key gives zero."""
        q, k, v = (array.astype(np.float64) for array in inputs[:3])
        k, v = (array.repeat(self.heads // self.groups, axis=1) for array in (k, v))
        scores = q @ k.transpose(0, 1, 3, 2) * (self.scale or self.size**-0.5)
        if self.cap:
            scores = self.cap * np.tanh(scores / self.cap)
        if self.mask:
            added = np.where(inputs[3], 0, -np.inf) if self.mask == "bool" else inputs[3].astype(np.float64)
            beyond = self.keys - added.shape[-1] if self.mask_keys else 0
            scores = scores + np.pad(added, [(0, 0)] * 3 + [(0, beyond)], constant_values=-np.inf)
        counts = np.array(self.counts or [self.keys] * self.batch)[:, None, None]
        positions = np.arange(self.rows)[None, :, None] + (counts - self.rows if self.counts else 0)
        key = np.arange(self.keys)[None, None, :]
        sees = (key < counts) & (key >= (positions - self.before if self.before >= 0 else 0))
        sees = sees & (key <= positions) if self.causal else sees
        scores = np.where(sees[:, None], scores, -np.inf)
        largest = scores.max(-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
        sums = weights.sum(-1, keepdims=True)
        result = weights / np.where(sums == 0, 1, sums) @ v
        return np.asarray(np.maximum(result, 0) if self.then else result)
