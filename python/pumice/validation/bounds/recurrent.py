"""Rules of LSTM, GRU and RNN. Steps compute in the accumulation type, with independent roundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .bounded import Arithmetic, Bounded, stored
from .math_functions import apply
from .data_movement import joined
from .registry import Call, Unproved, rule
from .registry import call as other
from .gemm_conv import contracted
from .float_types import SPREAD, Types

Activation = Callable[[Bounded], Bounded]
_DEFAULTS: dict[str, list[str]] = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_ALPHA = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0, "scaledtanh": 1.0, "affine": 1.0}
_BETA = {"hardsigmoid": 0.5, "scaledtanh": 1.0, "affine": 0.0}
_RULES = {"relu": "Relu", "leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu", "hardsigmoid": "HardSigmoid",
          "elu": "Elu", "softsign": "Softsign", "softplus": "Softplus"}  # fmt: skip


class Recurrent:
    """One recurrent node: directions, gates and per-step operations."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.types: Types = call.types.as_independent()
        x = call.input(0)
        self.batch_first = bool(call.attribute("layout", 0))
        self.x = x.moved(lambda v: np.swapaxes(v, 0, 1)) if self.batch_first else x
        self.dtype = x.dtype
        self.m = Arithmetic(self.types, x.dtype)
        self.w, self.r = call.input(1), call.input(2)
        self.hidden = self.r.shape[2]
        self.directions = self.w.shape[0]
        self.clip = call.attribute("clip")
        self.lengths = call.exact(4) if call.optional(4) is not None else None
        names = call.attribute("activations") or _DEFAULTS[call.op] * self.directions
        self.activations = self._activations([str(name) for name in names])

    def _activations(self, names: list[str]) -> list[Activation]:
        alphas, betas = (list(self.call.attribute(f"activation_{one}") or []) for one in ("alpha", "beta"))
        made = []
        for name in (one.lower() for one in names):
            alpha = alphas.pop(0) if name in _ALPHA and alphas else _ALPHA.get(name)
            beta = betas.pop(0) if name in _BETA and betas else _BETA.get(name)
            made.append(self._activation(name, alpha, beta))
        return made

    def _activation(self, name: str, alpha: float | None, beta: float | None) -> Activation:
        m = self.m
        if name in ("sigmoid", "tanh"):
            return lambda v: apply(name, v, m)
        if name == "affine":
            return lambda v: m.add(m.mul(m.constant(alpha or 0.0), v), m.constant(beta or 0.0))
        if name == "scaledtanh":
            return lambda v: m.mul(m.constant(alpha or 0.0), apply("tanh", m.mul(m.constant(beta or 0.0), v), m))
        if name not in _RULES:
            raise Unproved(f"the activation {name} of {self.call.op}")
        given = {key: value for key, value in (("alpha", alpha), ("beta", beta)) if value is not None}
        inner = Call(self.call.op, [], None, 23, self.types)
        return lambda v: other(_RULES[name], [v], given, inner)[0]

    def part(self, index: int, direction: int) -> Bounded | None:
        """Return one direction of an input, or None if it is omitted."""
        value = self.call.optional(index)
        return None if value is None else value.moved(lambda v: v[direction])

    def needed(self, index: int, direction: int) -> Bounded:
        """Return one direction of a required input."""
        value = self.part(index, direction)
        assert value is not None
        return value

    def gates(self, index: int, value: Bounded, direction: int) -> Bounded:
        """Multiply the input or a state by the weights in input `index`."""
        return self.product(value, self.needed(index, direction))

    def clipped(self, value: Bounded) -> Bounded:
        """Apply the node's `clip`, if it has one."""
        if self.clip is None:
            return value
        limit = self.m.constant(float(self.clip))
        return self.m.maximum(self.m.minimum(value, limit), self.m.neg(limit))

    def product(self, a: Bounded, b: Bounded) -> Bounded:
        """Compute a GEMM; the result may be stored before the steps begin."""
        return self.kept(contracted(np.matmul, a, b.moved(np.transpose), a.shape[-1], self.types, self.dtype))

    def gate(self, value: Bounded, index: int) -> Bounded:
        """Return the slice of one gate."""
        return value.moved(lambda v: v[..., index * self.hidden : (index + 1) * self.hidden])

    def start(self, index: int, direction: int) -> Bounded:
        """Return the initial state; zeros if it is omitted."""
        value = self.call.optional(index)
        if value is None:
            return self.m.of(np.zeros((self.x.shape[1], self.hidden)))
        return value.moved(lambda v: v[:, direction] if self.batch_first else v[direction])  # type: ignore[no-any-return]

    def kept(self, value: Bounded) -> Bounded:
        """Return a state, which may be rounded to storage between steps."""
        return stored(Bounded(value.value, value.error, self.dtype), self.types)

    def run(self) -> tuple[Bounded, list[Bounded]]:
        """Return Y [steps, directions, batch, hidden] and the last states, each [directions, batch, hidden]."""
        every, lasts = [], []
        for direction in range(self.directions):
            back = direction == 1 or str(self.call.attribute("direction", "forward")) == "reverse"
            outputs, states = self._direction(direction, back)
            every.append(outputs)
            lasts.append(states)
        y = joined(every, 1, new=True)
        count = len(lasts[0])
        return y, [joined([one[i] for one in lasts], 0, new=True) for i in range(count)]

    def _direction(self, direction: int, back: bool) -> tuple[Bounded, list[Bounded]]:
        """Return all outputs and the last states. A reversed sequence starts at step 0, whatever its length."""
        steps, batch = self.x.shape[:2]
        lengths = np.full(batch, steps) if self.lengths is None else self.lengths.reshape(-1).astype(int)
        places = np.arange(steps)[:, None] + np.zeros(batch, int)
        places = np.where(places < lengths, lengths - 1 - places, places)[..., None] if back else places[..., None]
        x = self.x.moved(lambda v: np.take_along_axis(v, places, 0))
        states = [self.start(5, direction)] + ([self.start(6, direction)] if self.call.op == "LSTM" else [])
        outputs = []
        for step in range(steps):
            made = _STEPS[self.call.op](self, direction, x.moved(lambda v, step=step: v[step]), states)  # type: ignore[misc]
            live = (step < lengths)[:, None]
            states = [_where(live, new, old) for new, old in zip(made, states, strict=True)]
            outputs.append(_where(live, made[0], self.m.of(np.zeros(made[0].shape))))
        if not outputs:
            return Bounded(np.zeros((0, batch, self.hidden)), None, self.dtype, True), states
        return joined(outputs, 0, new=True).moved(lambda v: np.take_along_axis(v, places, 0)), states


def _where(live: Any, a: Bounded, b: Bounded) -> Bounded:
    error = None if a.exact and b.exact else np.where(live, a.errors(), b.errors())
    return Bounded(np.where(live, a.value, b.value), error, a.dtype)


def _lstm(node: Recurrent, direction: int, x: Bounded, states: list[Bounded]) -> list[Bounded]:
    m, (h, c) = node.m, states
    f, g, o_of = node.activations[3 * direction : 3 * direction + 3]
    total = _biased(node, m.add(node.gates(1, x, direction), node.gates(2, h, direction)), direction, 4)
    peepholes = node.part(7, direction)
    i, o, forget, cell = (node.gate(total, k) for k in range(4))
    if peepholes is not None:
        i = m.add(i, m.mul(node.gate(peepholes, 0), c))
        forget = m.add(forget, m.mul(node.gate(peepholes, 2), c))
    i, cell = f(node.clipped(i)), g(node.clipped(cell))
    forget = m.sub(m.of(1.0), i) if node.call.attribute("input_forget", 0) else f(node.clipped(forget))
    c = m.add(m.mul(forget, c), m.mul(i, cell))
    if peepholes is not None:
        o = m.add(o, m.mul(node.gate(peepholes, 1), c))
    h = m.mul(f(node.clipped(o)), o_of(node.clipped(c)))
    return [node.kept(h), node.kept(c)]


def _biased(node: Recurrent, total: Bounded, direction: int, gates: int) -> Bounded:
    bias = node.part(3, direction)
    if bias is None:
        return total
    size = gates * node.hidden
    both = node.m.add(bias.moved(lambda v: v[:size]), bias.moved(lambda v: v[size:]))
    return node.m.add(total, both)


def _gru(node: Recurrent, direction: int, x: Bounded, states: list[Bounded]) -> list[Bounded]:
    m, (h,) = node.m, states
    f, g = node.activations[2 * direction : 2 * direction + 2]
    size = 3 * node.hidden
    bias = node.part(3, direction)
    of_x, of_h = node.gates(1, x, direction), node.gates(2, h, direction)
    if bias is not None:
        of_x = m.add(of_x, bias.moved(lambda v: v[:size]))
    behind = bool(node.call.attribute("linear_before_reset", 0))
    if bias is not None:
        of_h = m.add(of_h, bias.moved(lambda v: v[size:]))
    z = f(node.clipped(m.add(node.gate(of_x, 0), node.gate(of_h, 0))))
    r = f(node.clipped(m.add(node.gate(of_x, 1), node.gate(of_h, 1))))
    if behind:
        new = m.add(node.gate(of_x, 2), m.mul(r, node.gate(of_h, 2)))
    else:
        rows = node.needed(2, direction).moved(lambda v: v[2 * node.hidden :])
        inner = node.product(m.mul(r, h), rows)
        if bias is not None:
            inner = m.add(inner, bias.moved(lambda v: v[size + 2 * node.hidden :]))
        new = m.add(node.gate(of_x, 2), inner)
    new = g(node.clipped(new))
    return [node.kept(m.add(m.mul(m.sub(m.of(1.0), z), new), m.mul(z, h)))]


def _rnn(node: Recurrent, direction: int, x: Bounded, states: list[Bounded]) -> list[Bounded]:
    total = node.m.add(node.gates(1, x, direction), node.gates(2, states[0], direction))
    return [node.kept(node.activations[direction](node.clipped(_biased(node, total, direction, 1))))]


_STEPS: dict[str, Any] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


@rule("LSTM", "GRU", "RNN")
def _recurrent(call: Call) -> list[Any]:
    if call.opset < 7 and call.attribute("output_sequence", 0):
        raise Unproved("output_sequence of the first operator sets")
    return finished(call, Recurrent(call))


def finished(call: Call, node: Recurrent) -> list[Any]:
    """Return the node's outputs; root-sum-square errors are scaled by SPREAD."""
    y, lasts = node.run()
    if node.batch_first:
        y = y.moved(lambda v: v.transpose(2, 0, 1, 3))
        lasts = [one.moved(lambda v: np.swapaxes(v, 0, 1)) for one in lasts]
    spread = 1.0 if call.types.independent else SPREAD
    made = [y, *lasts]
    return [Bounded(one.value, None if one.error is None else one.error * spread, y.dtype) for one in made][
        : call.outputs
    ]
