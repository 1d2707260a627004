"""A decoder with grouped heads, rotary positions and a gated feed-forward part, forward and backward, in plain NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Weights = dict[str, Array]
EPSILON = 1e-5


class Sizes(NamedTuple):
    """The sizes of the decoder. `heads` counts query heads, `groups` key and value heads."""

    words: int = 512
    width: int = 128
    layers: int = 3
    heads: int = 4
    groups: int = 2
    inner: int = 256
    context: int = 512

    @property
    def head(self) -> int:
        return self.width // self.heads


def initial(sizes: Sizes, seed: int) -> Weights:
    """Random weights. Matrices are [inputs, outputs]."""
    chance = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Array:
        made: Array = (chance.standard_normal((rows, columns)) * scale / np.sqrt(rows)).astype(np.float32)
        return made

    width, both = sizes.width, sizes.width + 2 * sizes.groups * sizes.head
    weights = {"words": (chance.standard_normal((sizes.words, width)) * 0.05).astype(np.float32)}
    less = 1 / np.sqrt(2 * sizes.layers)
    for i in range(sizes.layers):
        weights[f"{i}.norm1"] = np.ones(width, np.float32)
        weights[f"{i}.qkv"] = matrix(width, both)
        weights[f"{i}.out"] = matrix(width, width, less)
        weights[f"{i}.norm2"] = np.ones(width, np.float32)
        weights[f"{i}.gate"] = matrix(width, sizes.inner)
        weights[f"{i}.up"] = matrix(width, sizes.inner)
        weights[f"{i}.down"] = matrix(sizes.inner, width, less)
    weights["norm"] = np.ones(width, np.float32)
    weights["head"] = matrix(width, sizes.words)
    return weights


def turns(sizes: Sizes) -> tuple[Array, Array]:
    """The cosines and sines of all places, [context, head / 2]."""
    rates = 10000.0 ** (-np.arange(0, sizes.head, 2) / sizes.head)
    angles = np.arange(sizes.context)[:, None] * rates
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _turned(x: Array, cos: Array, sin: Array) -> Array:
    """Rotates the halves of each head; x: [batch, heads, rows, head]."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def _normed(x: Array, gain: Array) -> tuple[Array, tuple[Array, Array]]:
    rate = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)
    return x * rate * gain, (x, rate)


def _back_normed(d: Array, gain: Array, kept: tuple[Array, Array]) -> tuple[Array, Array]:
    x, rate = kept
    dx = d * gain
    return rate * dx - x * rate**3 * (dx * x).mean(-1, keepdims=True), (d * x * rate).reshape(-1, x.shape[-1]).sum(0)


def _flat(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


class Tape:
    """A run over words [batch, rows]; `back` gives the gradients of its mean loss."""

    def __init__(self, weights: Weights, sizes: Sizes, words: Array) -> None:
        self.weights, self.sizes, self.words = weights, sizes, words
        cos, sin = turns(sizes)
        self.cos, self.sin = cos[: words.shape[1]], sin[: words.shape[1]]
        self.kept: list[tuple[Any, ...]] = []
        x = weights["words"][words]
        for i in range(sizes.layers):
            x = self._layer(x, i)
        self.normed, self.last = _normed(x, weights["norm"])
        self.logits = self.normed @ weights["head"]

    def _layer(self, x: Array, i: int) -> Array:
        w, s = self.weights, self.sizes
        batch, rows, _ = x.shape
        a, norm1 = _normed(x, w[f"{i}.norm1"])
        every = (a @ w[f"{i}.qkv"]).reshape(batch, rows, -1, s.head).transpose(0, 2, 1, 3)
        q, k, v = np.split(every, [s.heads, s.heads + s.groups], axis=1)
        q, k = _turned(q, self.cos, self.sin), _turned(k, self.cos, self.sin)
        q = q.reshape(batch, s.groups, -1, rows, s.head)
        scores = q @ k[:, :, None].swapaxes(-1, -2) * np.float32(s.head**-0.5)
        scores[..., np.triu_indices(rows, 1)[0], np.triu_indices(rows, 1)[1]] = -1e9
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = (shares @ v[:, :, None]).reshape(batch, s.heads, rows, s.head).transpose(0, 2, 1, 3)
        mixed = mixed.reshape(batch, rows, -1)
        x = x + mixed @ w[f"{i}.out"]
        b, norm2 = _normed(x, w[f"{i}.norm2"])
        gate, up = b @ w[f"{i}.gate"], b @ w[f"{i}.up"]
        share = 1 / (1 + np.exp(-gate))
        inner = gate * share * up
        self.kept.append((a, norm1, q, k, v, shares, mixed, b, norm2, gate, up, share, inner))
        made: Array = x + inner @ w[f"{i}.down"]
        return made

    def loss(self, targets: Array) -> tuple[float, Array]:
        """The mean of -log p of the targets [batch, rows], where these are not negative, and its gradient by the logits."""
        logits = self.logits - self.logits.max(-1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(-1, keepdims=True)
        wanted = targets >= 0
        at = np.where(wanted, targets, 0)
        chosen = np.take_along_axis(p, at[..., None], -1)[..., 0]
        count = wanted.sum()
        np.put_along_axis(p, at[..., None], chosen[..., None] - 1, -1)
        return float(-(np.log(chosen + 1e-30) * wanted).sum() / count), p * (wanted / count)[..., None].astype(
            np.float32
        )

    def back(self, d_logits: Array) -> Weights:
        """The gradients of all weights for that of the logits."""
        w, made = self.weights, Weights()
        made["head"] = _flat(self.normed).T @ _flat(d_logits)
        d, made["norm"] = _back_normed(d_logits @ w["head"].T, w["norm"], self.last)
        for i in reversed(range(self.sizes.layers)):
            d = self._back_layer(d, i, made)
        made["words"] = np.zeros_like(w["words"])
        np.add.at(made["words"], self.words.reshape(-1), _flat(d))
        return made

    def _back_layer(self, d: Array, i: int, made: Weights) -> Array:
        w, s = self.weights, self.sizes
        a, norm1, q, k, v, shares, mixed, b, norm2, gate, up, share, inner = self.kept[i]
        batch, rows, _ = d.shape
        made[f"{i}.down"] = _flat(inner).T @ _flat(d)
        d_inner = d @ w[f"{i}.down"].T
        d_up, d_gate = d_inner * gate * share, d_inner * up * share * (1 + gate * (1 - share))
        made[f"{i}.gate"], made[f"{i}.up"] = _flat(b).T @ _flat(d_gate), _flat(b).T @ _flat(d_up)
        d_b = d_gate @ w[f"{i}.gate"].T + d_up @ w[f"{i}.up"].T
        more, made[f"{i}.norm2"] = _back_normed(d_b, w[f"{i}.norm2"], norm2)
        d = d + more
        made[f"{i}.out"] = _flat(mixed).T @ _flat(d)
        d_mixed = (d @ w[f"{i}.out"].T).reshape(batch, rows, s.groups, -1, s.head).transpose(0, 2, 3, 1, 4)
        d_v = (shares.swapaxes(-1, -2) @ d_mixed).sum(2)
        d_shares = d_mixed @ v[:, :, None].swapaxes(-1, -2)
        d_scores = shares * (d_shares - (d_shares * shares).sum(-1, keepdims=True)) * np.float32(s.head**-0.5)
        d_q = _turned((d_scores @ k[:, :, None]).reshape(batch, s.heads, rows, s.head), self.cos, -self.sin)
        d_k = _turned((d_scores.swapaxes(-1, -2) @ q).sum(2), self.cos, -self.sin)
        every = np.concatenate([d_q, d_k, d_v], 1).transpose(0, 2, 1, 3).reshape(batch, rows, -1)
        made[f"{i}.qkv"] = _flat(a).T @ _flat(every)
        more, made[f"{i}.norm1"] = _back_normed(every @ w[f"{i}.qkv"].T, w[f"{i}.norm1"], norm1)
        return d + more
