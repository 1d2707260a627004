"""Rewrite ONNX Runtime's DynamicQuantizeLSTM as integer GEMMs and a Scan over the steps.

The whole input is quantised once, the hidden state at each step. The quantisation is dynamic, to uint8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..file.graph_recipe import (
    Attribute,
    ConstantRecipe,
    GraphRecipe,
    InputRecipe,
    NodeRecipe,
    UnrepresentableError,
    get_number_attr,
)
from .node_writer import NodeWriter
from .rewrite_helpers import get_input

if TYPE_CHECKING:
    from .rewrite_helpers import Nodes, RewriteScope

FLOAT = 1  # TensorProto.DataType
_ACTIVATIONS = ["Sigmoid", "Tanh", "Tanh"]
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_X, _W, _R, _B, _LENGTHS, _H, _C, _P, _W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO = range(12)


class _StepBodyBuilder:
    """Collects the nodes of the Scan's body, with unique value names."""

    def __init__(self, node: NodeRecipe, scope: RewriteScope) -> None:
        self.node = node
        self.scope = scope
        self.nodes: Nodes = []

    def make_name(self, role: str) -> str:
        return self.scope.make_name(self.node, f"step/{role}")

    def add_multi_output_op(self, op: str, *inputs: str, outputs: int = 1, **attributes: Attribute) -> list[str]:
        node_outputs = [self.make_name(op) for _ in range(outputs)]
        self.nodes.append(NodeRecipe(op, node_outputs[0], [*inputs], node_outputs, attributes))
        return node_outputs

    def add_op(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        return self.add_multi_output_op(op, *inputs, outputs=1, **attributes)[0]


class _LstmDirectionWriter:
    """Writes the nodes of one LSTM direction. index: its index along the direction axis of the weights."""

    def __init__(self, writer: NodeWriter, index: int, reverse: bool, hidden: int) -> None:
        self.writer, self.index, self.reverse, self.hidden = writer, index, reverse, hidden
        self.node = writer.node

    def _add_constant(self, role: str, value: object, dtype: str = "int64") -> str:
        return self.writer.scope.add_constant(self.node, role, np.array(value, dtype))

    def slice_input(self, index: int) -> str:
        """Return this direction's slice of an input; "" if the input is omitted."""
        input_name = get_input(self.node, index)
        return (
            self.writer.add("Gather", input_name, self._add_constant("direction", self.index), axis=0)
            if input_name
            else ""
        )

    def reverse_if_needed(self, value: str) -> str:
        """Return a sequence [steps, batch, ...], with its steps reversed if this is the reverse direction."""
        if not self.reverse:
            return value
        if lengths := get_input(self.node, _LENGTHS):
            lengths = self.writer.add("Cast", lengths, to=7)
            return self.writer.add("ReverseSequence", value, lengths, time_axis=0, batch_axis=1)
        ends = [
            self._add_constant("begin", [-1]),
            self._add_constant("end", [-(2**62)]),
            self._add_constant("axis", [0]),
        ]
        return self.writer.add("Slice", value, *ends, self._add_constant("step", [-1]))

    def add_input_gates(self, quantized: list[str]) -> str:
        """Return the gate contributions of the input and the biases, [steps, batch, 4 * hidden]."""
        codes, scale, zero = quantized
        add = self.writer.add
        int8_row_sums = add("MatMulInteger", codes, self.slice_input(_W), zero, self.slice_input(_W_ZERO))
        gates = add("Mul", add("Cast", int8_row_sums, to=FLOAT), add("Mul", scale, self.slice_input(_W_SCALE)))
        if biases := self.slice_input(_B):
            bias_halves = [self.writer.scope.make_name(self.node, f"bias {i}") for i in range(2)]
            self.writer.nodes.append(
                NodeRecipe("Split", bias_halves[0], [biases], bias_halves, {"axis": 0, "num_outputs": 2})
            )
            gates = add("Add", gates, add("Add", *bias_halves))
        return self.reverse_if_needed(gates)

    def make_initial_state(self, index: int, gates: str) -> str:
        """Return an initial state [batch, hidden]: input `index`, or zeros if it is omitted."""
        if initial_state := self.slice_input(index):
            return initial_state
        batch = self.writer.add("Shape", gates, start=1, end=2)
        shape = self.writer.add("Concat", batch, self._add_constant("hidden", [self.hidden]), axis=0)
        zero = ConstantRecipe("", "float32", [1], bytes(4))
        return self.writer.add("ConstantOfShape", shape, value=zero)

    def add_scan(self, quantized: list[str]) -> list[str]:
        """Add the Scan. Return all hidden states [steps, batch, hidden], the last hidden state and the last cell state."""
        gates = self.add_input_gates(quantized)
        weights = [self.slice_input(index) for index in (_R, _R_SCALE, _R_ZERO, _P)]
        states = [self.make_initial_state(_H, gates), self.make_initial_state(_C, gates)]
        scanned = [gates]
        if lengths := get_input(self.node, _LENGTHS):
            steps = self.writer.add("Squeeze", self.writer.add("Shape", gates, end=1))
            zero, int_one = (self._add_constant(f"scalar {i}", i) for i in (0, 1))
            scanned.append(self.writer.add("Range", zero, steps, int_one))
            lengths = self.writer.add("Cast", lengths, to=7)
        body = self._make_step_body(weights, lengths)
        scan_outputs = [self.writer.scope.make_name(self.node, role) for role in ("last h", "last c", "all h")]
        attributes: dict[str, Attribute] = {"body": body, "num_scan_inputs": len(scanned)}
        self.writer.nodes.append(NodeRecipe("Scan", scan_outputs[0], [*states, *scanned], scan_outputs, attributes))
        return [self.reverse_if_needed(scan_outputs[2]), scan_outputs[0], scan_outputs[1]]

    def _make_step_body(self, weights: list[str], lengths: str) -> GraphRecipe:
        step = _StepBodyBuilder(self.node, self.writer.scope)
        names = [step.make_name(role) for role in ("h", "c", "gates", "t")[: 4 if lengths else 3]]
        h, c, gates = names[:3]
        h_next, c_next = _add_lstm_cell(
            step, (h, c, gates), weights, bool(get_number_attr(self.node, "input_forget", 0))
        )
        masked_output = h_next
        if lengths:
            axis = self._add_constant("behind", [1])
            inside = step.add_op("Unsqueeze", step.add_op("Less", names[3], lengths), axis)
            masked_output = step.add_op("Where", inside, h_next, self._add_constant("nothing", 0, "float32"))
            h_next, c_next = (step.add_op("Where", inside, h_next, h), step.add_op("Where", inside, c_next, c))
        inputs = [InputRecipe(name, "float32" if i < 3 else "int64", None, []) for i, name in enumerate(names)]
        outputs = [
            InputRecipe(step.add_op("Identity", name), "float32", None, []) for name in (h_next, c_next, masked_output)
        ]
        defined_names = {*names, *(name for step_node in step.nodes for name in step_node.outputs)}
        captured_names = dict.fromkeys(
            name for step_node in step.nodes for name in step_node.inputs if name and name not in defined_names
        )
        return GraphRecipe(
            f"{self.node.name}.step {self.index}", inputs, {}, step.nodes, outputs, [], [*captured_names]
        )


def _add_lstm_cell(
    step: _StepBodyBuilder, values: tuple[str, str, str], weights: list[str], input_forget: bool
) -> tuple[str, str]:
    """Add one LSTM step and return the next hidden and cell states. input_forget: the forget gate is 1 - input gate."""
    h, c, input_gates = values
    recurrent, scale, zero, peepholes = weights
    codes, h_scale, h_zero = step.add_multi_output_op("DynamicQuantizeLinear", h, outputs=3)
    int8_row_sums = step.add_op("Cast", step.add_op("MatMulInteger", codes, recurrent, h_zero, zero), to=FLOAT)
    gates = step.add_op("Add", input_gates, step.add_op("Mul", int8_row_sums, step.add_op("Mul", h_scale, scale)))
    i, o, f, g = step.add_multi_output_op("Split", gates, outputs=4, axis=1, num_outputs=4)
    peephole_i = peephole_o = peephole_f = ""
    if peepholes:
        peephole_i, peephole_o, peephole_f = step.add_multi_output_op(
            "Split", peepholes, outputs=3, axis=0, num_outputs=3
        )

    def activate_gate(gate: str, peephole: str, cell: str) -> str:
        return step.add_op(
            "Sigmoid", step.add_op("Add", gate, step.add_op("Mul", peephole, cell)) if peephole else gate
        )

    gate_i = activate_gate(i, peephole_i, c)
    forgotten_cell = (
        step.add_op("Mul", gate_i, c) if input_forget else step.add_op("Mul", activate_gate(f, peephole_f, c), c)
    )
    if input_forget:  # new cell = (1 - i) * c + ...
        forgotten_cell = step.add_op("Sub", c, forgotten_cell)
    c_next = step.add_op("Add", forgotten_cell, step.add_op("Mul", gate_i, step.add_op("Tanh", g)))
    return step.add_op("Mul", activate_gate(o, peephole_o, c_next), step.add_op("Tanh", c_next)), c_next


def rewrite_dynamic_lstm(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Rewrite a DynamicQuantizeLSTM. Raise UnrepresentableError for non-default activations and for `clip`."""
    writer = NodeWriter(node, scope)
    direction = str(node.attributes.get("direction", "forward"))
    reverses = _DIRECTIONS.get(direction)
    activations = node.attributes.get("activations", [])
    if reverses is None:
        raise UnrepresentableError(f"direction={direction}; supported: {', '.join(_DIRECTIONS)}")
    if activations and activations != _ACTIVATIONS * len(reverses):
        raise UnrepresentableError(f"activations={activations}; supported: {_ACTIVATIONS}")
    writer.reject_attributes("clip")
    hidden = get_number_attr(node, "hidden_size", 0)
    if hidden < 1:
        raise UnrepresentableError("no hidden_size")
    quantized = [scope.make_name(node, role) for role in ("x", "x scale", "x zero")]
    writer.nodes.append(NodeRecipe("DynamicQuantizeLinear", quantized[0], [get_input(node, _X)], quantized, {}))
    results = [
        _LstmDirectionWriter(writer, k, reverse, int(hidden)).add_scan(quantized) for k, reverse in enumerate(reverses)
    ]
    return _concat_directions(writer, results)


def _concat_directions(writer: NodeWriter, results: list[list[str]]) -> Nodes:
    """Stack the directions into the outputs: Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]."""
    outputs = [*writer.node.outputs, "", ""][:3]
    for i, output in enumerate(outputs):
        if not output:
            continue
        axis = 1 if i == 0 else 0
        axis_name = writer.scope.add_constant(writer.node, f"axis {axis}", np.array([axis]))
        direction_slices = [writer.add("Unsqueeze", direction_results[i], axis_name) for direction_results in results]
        writer.add_named(output, "Concat", *direction_slices, axis=axis)
    return writer.nodes
