"""The rule of com.microsoft's DynamicQuantizeLSTM: the input is quantised as a whole, the hidden state at each step."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded import Bounded
from .gemm_conv import integer_contract, subtract_zero_point
from .recurrent import RecurrentNode, recurrent_outputs
from .registry import Call, Unproved, call_operator, rule

_W_SCALE, _R_SCALE = 8, 10  # input indices; each zero point follows its scale


class _DynamicQuantizeLstm(RecurrentNode):
    """LSTM steps with quantised GEMMs."""

    def __init__(self, call: Call) -> None:
        if call.attribute("clip") is not None:
            raise Unproved("DynamicQuantizeLSTM with clip")
        if call.types.other_runtime:  # ONNX Runtime does not quantise all sequences in a step together
            raise Unproved("DynamicQuantizeLSTM of a runtime that quantizes states in groups of its own")
        super().__init__(Call("LSTM", call.inputs, call.attributes, 23, call.types))
        self.hidden = self.r.shape[1]
        self._quantized = Call("LSTM", [call.input(0)], None, 23, self.types)
        self.x, self._scale, self._zero = self._quantize_input(self.x)

    def _quantize_input(self, x: Bounded) -> list[Bounded]:
        """Return the quantised values, their scale and their zero point."""
        codes, scale, zero = call_operator("DynamicQuantizeLinear", [x], like=self._quantized)
        return [codes, self.round_state(scale), zero]

    def project_gates(self, index: int, value: Bounded, direction: int) -> Bounded:
        """Return the integer GEMM times both scales."""
        codes, scale, zero = (value, self._scale, self._zero) if index == 1 else self._quantize_input(value)
        first = _W_SCALE if index == 1 else _R_SCALE
        weights, of_weights, offset = (self.required_direction_of(i, direction) for i in (index, first, first + 1))
        total = integer_contract(np.matmul, subtract_zero_point(codes, zero), subtract_zero_point(weights, offset))
        whole = self.round_state(Bounded(total.value.astype(np.float64), total.error, self.dtype))
        return self.m.mul(whole, self.round_state(self.m.mul(scale, of_weights)))


@rule("DynamicQuantizeLSTM", domain="com.microsoft")
def _dynamic_lstm(call: Call) -> list[Any]:
    return recurrent_outputs(call, _DynamicQuantizeLstm(call))
