"""NNAPI's recurrent cells in NumPy, in float64, following sections L, N2 and N5 to N10 of the specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
GATES = "ifco"
FLOATS = ["float32", "float16"]
CODES = [0, 1, 3, 4, 6]  # activations of a cell


def near(actual: Array, expected: Array) -> None:
    """Check rule G9: float32 within 1e-5, float16 within 5 units of its precision."""
    assert actual.shape == expected.shape
    least = 1e-5 if actual.dtype == np.float32 else 5 * 2.0**-10
    np.testing.assert_allclose(actual.astype("float64"), expected, rtol=least, atol=least)


def draw(seed: int, dtype: str) -> Callable[..., Array]:
    random = np.random.default_rng(seed)
    return lambda *shape: (random.integers(-16, 17, shape) / 32).astype(dtype)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def act(code: int, x: Array) -> Array:
    functions = {
        0: lambda: x,
        1: lambda: np.maximum(x, 0),
        2: lambda: np.clip(x, -1, 1),
        3: lambda: np.clip(x, 0, 6),
        4: lambda: np.tanh(x),
        6: lambda: sigmoid(x),
    }
    return np.asarray(functions[code]())


class Lstm:
    """Operands of one direction by name, float64: wx_i, wh_i, p_i, b_i, ln_i, wa_i and so on, wp, bp, h, c; None if omitted."""

    def __init__(self, parts: dict[str, Array | None]) -> None:
        self.parts = {name: None if array is None else array.astype("float64") for name, array in parts.items()}

    def get(self, name: str) -> Array | None:
        return self.parts.get(name)

    def gate(self, gate: str, x: Array, h: Array, c: Array, aux: Array | None) -> Array:
        """L2 and L3: return the input of the sigmoid or activation; `c` is the peephole's cell state."""
        z = x @ self.parts[f"wx_{gate}"].T + h @ self.parts[f"wh_{gate}"].T
        norm, peephole, bias = self.get(f"ln_{gate}"), self.get(f"p_{gate}"), self.parts[f"b_{gate}"]
        if aux is not None:
            z = z + aux @ self.parts[f"wa_{gate}"].T
        if norm is None:
            z = z + bias
        if peephole is not None:
            z = z + peephole * c
        if norm is None:
            return np.asarray(z)
        return np.asarray((z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-8) * norm + bias)

    def step(
        self, x: Array, h: Array, c: Array, aux: Array | None, code: int, clips: tuple[float, float]
    ) -> tuple[Array, Array]:
        """Compute one step by L4 and L5."""
        f = sigmoid(self.gate("f", x, h, c, aux))
        i = 1 - f if self.get("wx_i") is None else sigmoid(self.gate("i", x, h, c, aux))
        new = f * c + i * act(code, self.gate("c", x, h, c, aux))
        if clips[0] > 0:
            new = np.clip(new, -clips[0], clips[0])
        m = sigmoid(self.gate("o", x, h, new, aux)) * act(code, new)
        projection, bias = self.get("wp"), self.get("bp")
        if projection is None:
            return m, new
        y = m @ projection.T + (0 if bias is None else bias)
        return (np.clip(y, -clips[1], clips[1]) if clips[1] > 0 else y), new

    def run(
        self, x: Array, aux: Array | None, code: int, clips: tuple[float, float], backward: bool = False
    ) -> tuple[Array, Array, Array]:
        """Return all hidden states of a sequence, time first, and the last state."""
        h, c = self.parts["h"], self.parts["c"]
        y: list[Any] = [None] * len(x)
        for t in reversed(range(len(x))) if backward else range(len(x)):
            h, c = self.step(x[t], h, c, None if aux is None else aux[t], code, clips)
            y[t] = h
        return np.stack(y), h, c


def rnn(x: Array, w: Array, r: Array, b: Array, h: Array, code: int, backward: bool = False) -> tuple[Array, Array]:
    """Run N7 over a sequence, time first."""
    y: list[Any] = [None] * len(x)
    for t in reversed(range(len(x))) if backward else range(len(x)):
        h = act(code, b + x[t] @ w.T + h @ r.T)
        y[t] = h
    return np.stack(y), h


def svdf(
    x: Array, feature: Array, time: Array, bias: Array | None, state: Array, rank: int, code: int
) -> tuple[Array, Array]:
    """N10.3: return the new state and the result."""
    filters, memory = time.shape
    st = state.reshape(len(x), filters, memory).copy()
    st[:, :, -1] = x @ feature.T
    y = (st * time).sum(2).reshape(len(x), filters // rank, rank).sum(2)
    after = np.concatenate([st[:, :, 1:], np.zeros_like(st[:, :, :1])], 2).reshape(len(x), -1)
    return after, act(code, y if bias is None else y + bias)
