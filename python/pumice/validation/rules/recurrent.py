"""Error-bound rules for LSTM, GRU and RNN. Time steps compute in the accumulation type; their roundings are independent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .bounded_tensor import (
    BoundedArithmetic,
    BoundedTensor,
    OperatorCall,
    UnprovedError,
    evaluate_operator,
    round_to_storage,
    rule,
)
from .data_movement import concat_values
from .float_types import COVERAGE_FACTOR, ProgramTypes
from .gemm_conv import evaluate_bilinear, evaluate_integer_bilinear, subtract_zero_point
from .math_functions import apply_function

Activation = Callable[[BoundedTensor], BoundedTensor]
_DEFAULT_ACTIVATIONS: dict[str, list[str]] = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}
_DEFAULT_ALPHA = {
    "leakyrelu": 0.01,
    "thresholdedrelu": 1.0,
    "hardsigmoid": 0.2,
    "elu": 1.0,
    "scaledtanh": 1.0,
    "affine": 1.0,
}
_DEFAULT_BETA = {"hardsigmoid": 0.5, "scaledtanh": 1.0, "affine": 0.0}
_ACTIVATION_OPERATORS = {"relu": "Relu", "leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu", "hardsigmoid": "HardSigmoid",
          "elu": "Elu", "softsign": "Softsign", "softplus": "Softplus"}  # fmt: skip


class RecurrentNode:
    """Evaluates an LSTM, GRU or RNN node: directions, gates and time steps."""

    def __init__(self, call: OperatorCall) -> None:
        self.call = call
        self.types: ProgramTypes = call.types.with_independent_errors()
        x = call.input(0)
        self.batch_first = bool(call.attribute("layout", 0))
        self.x = x.rearrange(lambda v: np.swapaxes(v, 0, 1)) if self.batch_first else x
        self.dtype = x.dtype
        self.m = BoundedArithmetic(self.types, x.dtype)
        self.w, self.r = call.input(1), call.input(2)
        self.hidden = self.r.shape[2]
        self.directions = self.w.shape[0]
        self.clip = call.attribute("clip")
        self.lengths = call.get_decided_input(4) if call.optional_input(4) is not None else None
        names = call.attribute("activations") or _DEFAULT_ACTIVATIONS[call.op] * self.directions
        self.activations = self._parse_activations([str(name) for name in names])

    def _parse_activations(self, names: list[str]) -> list[Activation]:
        alphas, betas = (list(self.call.attribute(f"activation_{name}") or []) for name in ("alpha", "beta"))
        results = []
        for name in (name.lower() for name in names):
            alpha = alphas.pop(0) if name in _DEFAULT_ALPHA and alphas else _DEFAULT_ALPHA.get(name)
            beta = betas.pop(0) if name in _DEFAULT_BETA and betas else _DEFAULT_BETA.get(name)
            results.append(self._make_activation(name, alpha, beta))
        return results

    def _make_activation(self, name: str, alpha: float | None, beta: float | None) -> Activation:
        m = self.m
        if name in ("sigmoid", "tanh"):
            return lambda v: apply_function(name, v, m)
        if name == "affine":
            return lambda v: m.add(m.mul(m.make_constant(alpha or 0.0), v), m.make_constant(beta or 0.0))
        if name == "scaledtanh":
            return lambda v: m.mul(
                m.make_constant(alpha or 0.0), apply_function("tanh", m.mul(m.make_constant(beta or 0.0), v), m)
            )
        if name not in _ACTIVATION_OPERATORS:
            raise UnprovedError(f"the activation {name} of {self.call.op}")
        activation_attributes = {key: value for key, value in (("alpha", alpha), ("beta", beta)) if value is not None}
        inner = OperatorCall(self.call.op, [], None, 23, self.types)
        return lambda v: evaluate_operator(_ACTIVATION_OPERATORS[name], [v], activation_attributes, inner)[0]

    def get_direction(self, index: int, direction: int) -> BoundedTensor | None:
        """Return the slice of an optional input for one direction; None if the input is omitted."""
        value = self.call.optional_input(index)
        return None if value is None else value.rearrange(lambda v: v[direction])

    def get_required_direction(self, index: int, direction: int) -> BoundedTensor:
        """Return the slice of a required input for one direction."""
        value = self.get_direction(index, direction)
        assert value is not None
        return value

    def project_gates(self, index: int, value: BoundedTensor, direction: int) -> BoundedTensor:
        """Multiply the input sequence or a state by the weights in input `index`."""
        return self.multiply(value, self.get_required_direction(index, direction))

    def clip_gate(self, value: BoundedTensor) -> BoundedTensor:
        """Clip a gate's pre-activation by the attribute `clip`, if it is set."""
        if self.clip is None:
            return value
        limit = self.m.make_constant(float(self.clip))
        return self.m.maximum(self.m.minimum(value, limit), self.m.neg(limit))

    def multiply(self, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Compute a GEMM whose result may be rounded to storage before the time steps."""
        return self.round_state(
            evaluate_bilinear(np.matmul, a, b.rearrange(np.transpose), a.shape[-1], self.types, self.dtype)
        )

    def slice_gate(self, value: BoundedTensor, index: int) -> BoundedTensor:
        """Return the slice of gate number `index`."""
        return value.rearrange(lambda v: v[..., index * self.hidden : (index + 1) * self.hidden])

    def get_initial_state(self, index: int, direction: int) -> BoundedTensor:
        """Return the initial state of one direction; zeros if the input is omitted."""
        value = self.call.optional_input(index)
        if value is None:
            return self.m.wrap(np.zeros((self.x.shape[1], self.hidden)))
        return value.rearrange(lambda v: v[:, direction] if self.batch_first else v[direction])  # type: ignore[no-any-return]

    def round_state(self, value: BoundedTensor) -> BoundedTensor:
        """Return a state whose bound covers rounding it to storage between time steps."""
        return round_to_storage(BoundedTensor(value.value, value.error, self.dtype), self.types)

    def run(self) -> tuple[BoundedTensor, list[BoundedTensor]]:
        """Return Y [steps, directions, batch, hidden] and the last states, each [directions, batch, hidden]."""
        outputs_by_direction, last_states = [], []
        for direction in range(self.directions):
            reverse = direction == 1 or str(self.call.attribute("direction", "forward")) == "reverse"
            outputs, states = self._run_direction(direction, reverse)
            outputs_by_direction.append(outputs)
            last_states.append(states)
        y = concat_values(outputs_by_direction, 1, new_axis=True)
        count = len(last_states[0])
        return y, [
            concat_values([states_of_direction[i] for states_of_direction in last_states], 0, new_axis=True)
            for i in range(count)
        ]

    def _run_direction(self, direction: int, reverse: bool) -> tuple[BoundedTensor, list[BoundedTensor]]:
        """Return the outputs of all time steps and the last states. Each sequence is reversed within its own length."""
        steps, batch = self.x.shape[:2]
        lengths = np.full(batch, steps) if self.lengths is None else self.lengths.reshape(-1).astype(int)
        step_indices = np.arange(steps)[:, None] + np.zeros(batch, int)
        step_indices = (
            np.where(step_indices < lengths, lengths - 1 - step_indices, step_indices)[..., None]
            if reverse
            else step_indices[..., None]
        )
        x = self.x.rearrange(lambda v: np.take_along_axis(v, step_indices, 0))
        states = [self.get_initial_state(5, direction)] + (
            [self.get_initial_state(6, direction)] if self.call.op == "LSTM" else []
        )
        outputs = []
        for step in range(steps):
            results = _CELLS[self.call.op](self, direction, x.rearrange(lambda v, step=step: v[step]), states)  # type: ignore[misc]
            is_active = (step < lengths)[:, None]
            states = [_select_active(is_active, new, old) for new, old in zip(results, states, strict=True)]
            outputs.append(_select_active(is_active, results[0], self.m.wrap(np.zeros(results[0].shape))))
        if not outputs:
            return BoundedTensor(np.zeros((0, batch, self.hidden)), None, self.dtype, True), states
        return concat_values(outputs, 0, new_axis=True).rearrange(
            lambda v: np.take_along_axis(v, step_indices, 0)
        ), states


def _select_active(is_active: Any, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
    error = None if a.is_exact and b.is_exact else np.where(is_active, a.get_errors(), b.get_errors())
    return BoundedTensor(np.where(is_active, a.value, b.value), error, a.dtype)


def _run_lstm_step(
    node: RecurrentNode, direction: int, x: BoundedTensor, states: list[BoundedTensor]
) -> list[BoundedTensor]:
    m, (h, c) = node.m, states
    f, g, o_of = node.activations[3 * direction : 3 * direction + 3]
    total = _add_biases(
        node, m.add(node.project_gates(1, x, direction), node.project_gates(2, h, direction)), direction, 4
    )
    peepholes = node.get_direction(7, direction)
    i, o, forget, cell = (node.slice_gate(total, k) for k in range(4))
    if peepholes is not None:
        i = m.add(i, m.mul(node.slice_gate(peepholes, 0), c))
        forget = m.add(forget, m.mul(node.slice_gate(peepholes, 2), c))
    i, cell = f(node.clip_gate(i)), g(node.clip_gate(cell))
    forget = m.sub(m.wrap(1.0), i) if node.call.attribute("input_forget", 0) else f(node.clip_gate(forget))
    c = m.add(m.mul(forget, c), m.mul(i, cell))
    if peepholes is not None:
        o = m.add(o, m.mul(node.slice_gate(peepholes, 1), c))
    h = m.mul(f(node.clip_gate(o)), o_of(node.clip_gate(c)))
    return [node.round_state(h), node.round_state(c)]


def _add_biases(node: RecurrentNode, total: BoundedTensor, direction: int, gates: int) -> BoundedTensor:
    bias = node.get_direction(3, direction)
    if bias is None:
        return total
    size = gates * node.hidden
    bias_sum = node.m.add(bias.rearrange(lambda v: v[:size]), bias.rearrange(lambda v: v[size:]))
    return node.m.add(total, bias_sum)


def _run_gru_step(
    node: RecurrentNode, direction: int, x: BoundedTensor, states: list[BoundedTensor]
) -> list[BoundedTensor]:
    m, (h,) = node.m, states
    f, g = node.activations[2 * direction : 2 * direction + 2]
    size = 3 * node.hidden
    bias = node.get_direction(3, direction)
    of_x, of_h = node.project_gates(1, x, direction), node.project_gates(2, h, direction)
    if bias is not None:
        of_x = m.add(of_x, bias.rearrange(lambda v: v[:size]))
    reset_after = bool(node.call.attribute("linear_before_reset", 0))
    if bias is not None:
        of_h = m.add(of_h, bias.rearrange(lambda v: v[size:]))
    z = f(node.clip_gate(m.add(node.slice_gate(of_x, 0), node.slice_gate(of_h, 0))))
    r = f(node.clip_gate(m.add(node.slice_gate(of_x, 1), node.slice_gate(of_h, 1))))
    if reset_after:
        new = m.add(node.slice_gate(of_x, 2), m.mul(r, node.slice_gate(of_h, 2)))
    else:
        rows = node.get_required_direction(2, direction).rearrange(lambda v: v[2 * node.hidden :])
        inner = node.multiply(m.mul(r, h), rows)
        if bias is not None:
            inner = m.add(inner, bias.rearrange(lambda v: v[size + 2 * node.hidden :]))
        new = m.add(node.slice_gate(of_x, 2), inner)
    new = g(node.clip_gate(new))
    return [node.round_state(m.add(m.mul(m.sub(m.wrap(1.0), z), new), m.mul(z, h)))]


def _run_rnn_step(
    node: RecurrentNode, direction: int, x: BoundedTensor, states: list[BoundedTensor]
) -> list[BoundedTensor]:
    total = node.m.add(node.project_gates(1, x, direction), node.project_gates(2, states[0], direction))
    return [node.round_state(node.activations[direction](node.clip_gate(_add_biases(node, total, direction, 1))))]


_CELLS: dict[str, Any] = {"LSTM": _run_lstm_step, "GRU": _run_gru_step, "RNN": _run_rnn_step}


@rule("LSTM", "GRU", "RNN")
def _evaluate_recurrent_node(call: OperatorCall) -> list[Any]:
    if call.opset < 7 and call.attribute("output_sequence", 0):
        raise UnprovedError("output_sequence of the first operator sets")
    return make_recurrent_outputs(call, RecurrentNode(call))


def make_recurrent_outputs(call: OperatorCall, node: RecurrentNode) -> list[Any]:
    """Return the node's outputs, with root-sum-square errors multiplied by COVERAGE_FACTOR."""
    y, last_states = node.run()
    if node.batch_first:
        y = y.rearrange(lambda v: v.transpose(2, 0, 1, 3))
        last_states = [tensor.rearrange(lambda v: np.swapaxes(v, 0, 1)) for tensor in last_states]
    spread = 1.0 if call.types.independent_errors else COVERAGE_FACTOR
    results = [y, *last_states]
    return [
        BoundedTensor(tensor.value, None if tensor.error is None else tensor.error * spread, y.dtype)
        for tensor in results
    ][: call.outputs]


# ---- DynamicQuantizeLSTM, which quantises the whole input at once and the hidden state at each step


_W_SCALE, _R_SCALE = 8, 10  # input indices of the scales; each zero point follows its scale


class _DynamicQuantizeLstm(RecurrentNode):
    """An LSTM node whose GEMMs use quantised operands."""

    def __init__(self, call: OperatorCall) -> None:
        if call.attribute("clip") is not None:
            raise UnprovedError("DynamicQuantizeLSTM with clip")
        if call.types.other_runtime:  # ONNX Runtime does not quantise a whole batch together
            raise UnprovedError("DynamicQuantizeLSTM of a runtime that quantizes states in its own groups")
        super().__init__(OperatorCall("LSTM", call.inputs, call.attributes, 23, call.types))
        self.hidden = self.r.shape[1]
        self._quantized = OperatorCall("LSTM", [call.input(0)], None, 23, self.types)
        self.x, self._scale, self._zero = self._quantize_input(self.x)

    def _quantize_input(self, x: BoundedTensor) -> list[BoundedTensor]:
        """Return the quantised values, their scale and their zero point."""
        codes, scale, zero = evaluate_operator("DynamicQuantizeLinear", [x], like=self._quantized)
        return [codes, self.round_state(scale), zero]

    def project_gates(self, index: int, value: BoundedTensor, direction: int) -> BoundedTensor:
        """Return the integer GEMM of a quantised operand and its weights, times both scales."""
        codes, scale, zero = (value, self._scale, self._zero) if index == 1 else self._quantize_input(value)
        first = _W_SCALE if index == 1 else _R_SCALE
        weights, of_weights, offset = (self.get_required_direction(i, direction) for i in (index, first, first + 1))
        total = evaluate_integer_bilinear(
            np.matmul, subtract_zero_point(codes, zero), subtract_zero_point(weights, offset)
        )
        whole = self.round_state(BoundedTensor(total.value.astype(np.float64), total.error, self.dtype))
        return self.m.mul(whole, self.round_state(self.m.mul(scale, of_weights)))


@rule("DynamicQuantizeLSTM", domain="com.microsoft")
def _evaluate_dynamic_quantize_lstm(call: OperatorCall) -> list[Any]:
    return make_recurrent_outputs(call, _DynamicQuantizeLstm(call))
