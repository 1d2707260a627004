"""LSTM, GRU and RNN, with a float64 model of their ONNX definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases.rows import Array, Case, Given, case, w, x

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
TOLERANCES: dict[str, Any] = {"fp32": (1e-5, 1e-5), "fp16": (4e-3, 4e-3)}


def layer(
    op: str,
    note: str,
    steps: int,
    batch: int,
    inputs: int,
    units: int,
    *,
    bias: bool = True,
    lengths: list[int] | None = None,
    initial: bool = False,
    peepholes: bool = False,
    make: Any = w,
    largest: float = 0.5,
    **attributes: Any,
) -> Case:
    """A layer with weights up to `largest`; small values keep large layers from diverging."""
    spread = {"low": -largest, "high": largest}
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op] * units
    first = attributes.get("layout", 0) == 1
    given: list[Given | None] = [
        x(*((batch, steps) if first else (steps, batch)), inputs),
        make(directions, rows, inputs, **spread),
        make(directions, rows, units, **spread),
        make(directions, 2 * rows, **spread) if bias else None,
        None if lengths is None else Given((len(lengths),), "int32", written=np.array(lengths, "int32")),
    ]
    state = (batch, directions, units) if first else (directions, batch, units)
    given.append(x(*state) if initial else None)
    if op == "LSTM":
        given.append(x(*state) if initial else None)
        given.append(make(directions, 3 * units, **spread) if peepholes else None)
    while given[-1] is None:
        given.pop()
    return case(op, note, *given, outputs=3 if op == "LSTM" else 2, **{**TOLERANCES, **attributes})


def recurrents() -> Iterator[Case]:
    both = {"direction": "bidirectional"}
    for op in GATES:
        yield layer(op, "forward", 7, 3, 5, 11)
        yield layer(op, "no biases, one sequence", 5, 1, 3, 13, bias=False)
        yield layer(op, "reverse, two sequences", 5, 2, 7, 17, direction="reverse", initial=True)
        yield layer(op, "both directions, initial states", 5, 5, 3, 19, initial=True, **both)
        yield layer(op, "past a workgroup of units", 3, 2, 31, 67)
        many = {"lengths": [3, 0, 2, 1, 3], "initial": True, "layout": 1, **both}
        yield layer(op, "a dispatch a step", 3, 5, 7, 131, **many)
        yield layer(op, "a dispatch a step, one sequence", 3, 1, 7, 137, direction="reverse", bias=False)
        yield layer(op, "a dispatch a step, clipped", 2, 2, 7, 131, clip=0.25)
        yield layer(op, "sequences of several lengths", 7, 5, 3, 11, lengths=[7, 1, 0, 3, 6], initial=True, **both)
        yield layer(op, "sequences first", 5, 3, 7, 11, layout=1, initial=True, lengths=[2, 5, 4], **both)
        yield layer(op, "clipped", 5, 3, 7, 11, clip=0.25)
        yield layer(op, "weights given at the call", 5, 3, 7, 11, make=x, initial=True)
        yield layer(op, "one step of one unit", 1, 1, 1, 1)
        yield layer(op, "no steps", 0, 3, 5, 7, initial=True)
        yield layer(op, "no sequences", 5, 0, 3, 7)
        yield layer(op, "many steps", 131, 2, 3, 5)
    yield layer("LSTM", "peepholes", 5, 3, 7, 11, peepholes=True, initial=True, **both)
    yield layer("LSTM", "peepholes, a dispatch a step", 2, 3, 7, 131, peepholes=True, initial=True, input_forget=1)
    yield layer("LSTM", "peepholes, clipped, coupled", 5, 3, 7, 11, peepholes=True, clip=0.5, input_forget=1)
    yield layer("GRU", "linear before reset", 5, 3, 7, 11, linear_before_reset=1, initial=True, **both)
    yield layer(
        "GRU", "linear before reset, no biases, clipped", 5, 3, 7, 11, linear_before_reset=1, bias=False, clip=0.5
    )
    yield layer(
        "GRU", "linear before reset, a dispatch a step", 3, 3, 7, 131, linear_before_reset=1, initial=True, **both
    )
    yield layer("GRU", "linear before reset, several lengths", 5, 3, 7, 11, linear_before_reset=1, lengths=[5, 0, 2])
    for names in (
        ["Relu", "LeakyRelu", "Affine"],
        ["HardSigmoid", "Softsign", "ScaledTanh"],
        ["Elu", "ThresholdedRelu", "Softplus"],
    ):
        for op, own in (("LSTM", 3), ("GRU", 2), ("RNN", 1)):
            numbers = {"activation_alpha": [0.3, 0.2], "activation_beta": [0.1]}
            yield layer(op, ", ".join(names[-own:]), 3, 3, 5, 7, activations=names[-own:], **numbers)
    yield layer("RNN", "another activation backwards", 5, 3, 5, 7, activations=["Relu", "Sigmoid"], **both)
    yield layer("LSTM", "default numbers", 3, 3, 5, 7, activations=["HardSigmoid", "LeakyRelu", "Elu"])


ACTIVATIONS: dict[str, tuple[float | None, float | None, Callable[..., Array]]] = {
    "Relu": (None, None, lambda v: np.maximum(v, 0)),
    "Tanh": (None, None, np.tanh),
    "Sigmoid": (None, None, lambda v: 1 / (1 + np.exp(-v))),
    "Affine": (1, 0, lambda v, alpha, beta: alpha * v + beta),
    "LeakyRelu": (0.01, None, lambda v, alpha: np.where(v >= 0, v, alpha * v)),
    "ThresholdedRelu": (1, None, lambda v, alpha: np.where(v >= alpha, v, 0)),
    "ScaledTanh": (1, 1, lambda v, alpha, beta: alpha * np.tanh(beta * v)),
    "HardSigmoid": (0.2, 0.5, lambda v, alpha, beta: np.clip(alpha * v + beta, 0, 1)),
    "Elu": (1, None, lambda v, alpha: np.where(v >= 0, v, alpha * (np.exp(v) - 1))),
    "Softsign": (None, None, lambda v: v / (1 + np.abs(v))),
    "Softplus": (None, None, lambda v: np.log1p(np.exp(v))),
}


def activations(names: list[str], alphas: list[float], betas: list[float], clip: float | None) -> list[Any]:
    alphas, betas = list(alphas), list(betas)

    def made(name: str) -> Callable[[Array], Array]:
        alpha, beta, function = ACTIVATIONS[name]
        numbers = [
            given.pop(0) if given else default
            for default, given in ((alpha, alphas), (beta, betas))
            if default is not None
        ]
        limit = np.inf if clip is None else clip
        return lambda v: function(np.clip(v, -limit, limit), *numbers)

    return [made(name) for name in names]


def lstm_step(
    given: list[Array], h: Array, c: Array, recurrent: Array, acts: list[Any], options: Any
) -> tuple[Array, Array]:
    f, g, last = acts
    peep_i, peep_o, peep_f = options["p"]
    i, o, forget, cell = (v + h @ r.T for v, r in zip(given, recurrent, strict=True))
    i = f(i + peep_i * c)
    forget = 1 - i if options.get("input_forget") else f(forget + peep_f * c)
    c = forget * c + i * g(cell)
    return f(o + peep_o * c) * last(c), c


def gru_step(given: list[Array], h: Array, recurrent: Array, acts: list[Any], options: Any) -> Array:
    f, g = acts
    z, reset = (f(v + h @ r.T) for v, r in zip(given[:2], recurrent[:2], strict=True))
    if options.get("linear_before_reset"):
        hidden = given[2] + reset * (h @ recurrent[2].T + options["rb"])
    else:
        hidden = given[2] + options["rb"] + (reset * h) @ recurrent[2].T
    return (1 - z) * g(hidden) + z * h


def recurrent(op: str) -> Callable[..., list[Array]]:
    def model(
        x: Array,
        weights: Array,
        recurrent: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        p: Array | None = None,
        *,
        direction: str = "forward",
        layout: int = 0,
        clip: float | None = None,
        **options: Any,
    ) -> list[Array]:
        gates, directions, units = GATES[op], recurrent.shape[0], recurrent.shape[2]
        if layout == 1:
            x = x.swapaxes(0, 1)
            initial_h, initial_c = (None if v is None else v.swapaxes(0, 1) for v in (initial_h, initial_c))
        steps, batch = x.shape[:2]
        default = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[op]
        numbers = options.get("activation_alpha", []), options.get("activation_beta", [])
        acts = activations(options.get("activations", default * directions), *numbers, clip)
        y = np.zeros((steps, directions, batch, units))
        states = np.zeros((2, directions, batch, units))  # hidden, cell
        for kind, given in enumerate((initial_h, initial_c)):
            if given is not None:
                states[kind] = given
        for d in range(directions):
            own = acts[d * len(default) : (d + 1) * len(default)]
            kernel, loop = (v[d].astype("float64").reshape(gates, units, -1) for v in (weights, recurrent))
            bias = np.zeros((2, gates, units)) if b is None else b[d].astype("float64").reshape(2, gates, units)
            told = {**options, "p": np.zeros((3, units)) if p is None else p[d].astype("float64").reshape(3, units)}
            told["rb"] = bias[1, -1]
            inner = bias[0] + bias[1]
            if op == "GRU":
                inner[2] = bias[0, 2]
            for sequence in range(batch):
                length = steps if lengths is None else min(max(int(lengths[sequence]), 0), steps)
                order = range(length)
                h, c = states[:, d, sequence]
                for t in reversed(order) if d == 1 or direction == "reverse" else order:
                    given = [x[t, sequence].astype("float64") @ kernel[k].T + inner[k] for k in range(gates)]
                    if op == "LSTM":
                        h, c = lstm_step(given, h, c, loop, own, told)
                    elif op == "GRU":
                        h = gru_step(given, h, loop, own, told)
                    else:
                        h = own[0](given[0] + h @ loop[0].T)
                    y[t, d, sequence] = h
                states[:, d, sequence] = h, c
        results = [y, states[0], states[1]] if op == "LSTM" else [y, states[0]]
        if layout == 1:
            results = [y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in results[1:])]
        return [result.astype("float32") for result in results]

    return model


REFERENCES = {op: recurrent(op) for op in GATES}
