"""Error-bound rule for com.microsoft's DynamicQuantizeLSTM, which quantises the whole input at once and the hidden
state at each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded_tensor import BoundedTensor
from .gemm_conv import evaluate_integer_bilinear, subtract_zero_point
from .recurrent import RecurrentNode, make_recurrent_outputs
from .rule_registry import OperatorCall, UnprovedError, evaluate_operator, rule

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
