"""Rewrite ONNX Runtime's DynamicQuantizeLSTM as integer GEMMs and a Scan over the steps.

The whole input is quantised at once, and the hidden state at each step; both are quantised dynamically to uint8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..file.recipe import Attribute, ConstantRecipe, InputRecipe, NodeRecipe, NotExpressible, Recipe, number
from .node_writer import Writer
from .rewrite_helpers import input_of

if TYPE_CHECKING:
    from .rewrite_helpers import Nodes, Scope

FLOAT = 1  # TensorProto.DataType
_ACTIVATIONS = ["Sigmoid", "Tanh", "Tanh"]
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_X, _W, _R, _B, _LENGTHS, _H, _C, _P, _W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO = range(12)


class _Step:
    """Builds the nodes of the Scan's body, with unique value names."""

    def __init__(self, node: NodeRecipe, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.nodes: Nodes = []

    def fresh(self, role: str) -> str:
        return self.scope.fresh(self.node, f"step/{role}")

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Attribute) -> list[str]:
        made = [self.fresh(op) for _ in range(outputs)]
        self.nodes.append(NodeRecipe(op, made[0], [*inputs], made, attributes))
        return made

    def value(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        return self.add(op, *inputs, outputs=1, **attributes)[0]


class _Direction:
    """One direction: its weights and the Scan over the steps."""

    def __init__(self, writer: Writer, index: int, reverse: bool, hidden: int) -> None:
        self.writer, self.index, self.reverse, self.hidden = writer, index, reverse, hidden
        self.node = writer.node

    def _constant(self, role: str, value: object, dtype: str = "int64") -> str:
        return self.writer.scope.constant(self.node, role, np.array(value, dtype))

    def part(self, index: int) -> str:
        """Return this direction's slice of an input; "" if the input is omitted."""
        given = input_of(self.node, index)
        return self.writer.add("Gather", given, self._constant("direction", self.index), axis=0) if given else ""

    def reversed_steps(self, value: str) -> str:
        """Return the sequence, with its steps reversed if this is the reverse direction."""
        if not self.reverse:
            return value
        if lengths := input_of(self.node, _LENGTHS):
            lengths = self.writer.add("Cast", lengths, to=7)
            return self.writer.add("ReverseSequence", value, lengths, time_axis=0, batch_axis=1)
        ends = [self._constant("begin", [-1]), self._constant("end", [-(2**62)]), self._constant("axis", [0])]
        return self.writer.add("Slice", value, *ends, self._constant("step", [-1]))

    def gates_of_input(self, quantized: list[str]) -> str:
        """Return the gate contributions of the input and the biases, [steps, batch, 4 hidden]."""
        codes, scale, zero = quantized
        add = self.writer.add
        sums = add("MatMulInteger", codes, self.part(_W), zero, self.part(_W_ZERO))
        gates = add("Mul", add("Cast", sums, to=FLOAT), add("Mul", scale, self.part(_W_SCALE)))
        if biases := self.part(_B):
            halves = [self.writer.scope.fresh(self.node, f"bias {i}") for i in range(2)]
            self.writer.nodes.append(NodeRecipe("Split", halves[0], [biases], halves, {"axis": 0, "num_outputs": 2}))
            gates = add("Add", gates, add("Add", *halves))
        return self.reversed_steps(gates)

    def initial(self, index: int, gates: str) -> str:
        """Return an initial state [batch, hidden]; zeros if not provided."""
        if given := self.part(index):
            return given
        batch = self.writer.add("Shape", gates, start=1, end=2)
        shape = self.writer.add("Concat", batch, self._constant("hidden", [self.hidden]), axis=0)
        zero = ConstantRecipe("", "float32", [1], bytes(4))
        return self.writer.add("ConstantOfShape", shape, value=zero)

    def run(self, quantized: list[str]) -> list[str]:
        """Return all hidden states [steps, batch, hidden], the last one, and the last cell state."""
        gates = self.gates_of_input(quantized)
        weights = [self.part(index) for index in (_R, _R_SCALE, _R_ZERO, _P)]
        states = [self.initial(_H, gates), self.initial(_C, gates)]
        scanned = [gates]
        if lengths := input_of(self.node, _LENGTHS):
            steps = self.writer.add("Squeeze", self.writer.add("Shape", gates, end=1))
            zero, one = (self._constant(f"scalar {i}", i) for i in (0, 1))
            scanned.append(self.writer.add("Range", zero, steps, one))
            lengths = self.writer.add("Cast", lengths, to=7)
        body = self._body(weights, lengths)
        made = [self.writer.scope.fresh(self.node, role) for role in ("last h", "last c", "all h")]
        attributes: dict[str, Attribute] = {"body": body, "num_scan_inputs": len(scanned)}
        self.writer.nodes.append(NodeRecipe("Scan", made[0], [*states, *scanned], made, attributes))
        return [self.reversed_steps(made[2]), made[0], made[1]]

    def _body(self, weights: list[str], lengths: str) -> Recipe:
        step = _Step(self.node, self.writer.scope)
        names = [step.fresh(role) for role in ("h", "c", "gates", "t")[: 4 if lengths else 3]]
        h, c, gates = names[:3]
        h_next, c_next = _cell(step, (h, c, gates), weights, bool(number(self.node, "input_forget", 0)))
        every = h_next
        if lengths:
            axis = self._constant("behind", [1])
            inside = step.value("Unsqueeze", step.value("Less", names[3], lengths), axis)
            every = step.value("Where", inside, h_next, self._constant("nothing", 0, "float32"))
            h_next, c_next = step.value("Where", inside, h_next, h), step.value("Where", inside, c_next, c)
        inputs = [InputRecipe(name, "float32" if i < 3 else "int64", None, []) for i, name in enumerate(names)]
        outputs = [InputRecipe(step.value("Identity", name), "float32", None, []) for name in (h_next, c_next, every)]
        own = {*names, *(name for one in step.nodes for name in one.outputs)}
        read = dict.fromkeys(name for one in step.nodes for name in one.inputs if name and name not in own)
        return Recipe(f"{self.node.name}.step {self.index}", inputs, {}, step.nodes, outputs, [], [*read])


def _cell(step: _Step, values: tuple[str, str, str], weights: list[str], couples: bool) -> tuple[str, str]:
    """Return the next hidden and cell states. couples: the forget gate is 1 - input gate."""
    h, c, given = values
    recurrent, scale, zero, peepholes = weights
    codes, h_scale, h_zero = step.add("DynamicQuantizeLinear", h, outputs=3)
    sums = step.value("Cast", step.value("MatMulInteger", codes, recurrent, h_zero, zero), to=FLOAT)
    gates = step.value("Add", given, step.value("Mul", sums, step.value("Mul", h_scale, scale)))
    i, o, f, g = step.add("Split", gates, outputs=4, axis=1, num_outputs=4)
    of_i = of_o = of_f = ""
    if peepholes:
        of_i, of_o, of_f = step.add("Split", peepholes, outputs=3, axis=0, num_outputs=3)

    def activated(gate: str, peephole: str, cell: str) -> str:
        return step.value("Sigmoid", step.value("Add", gate, step.value("Mul", peephole, cell)) if peephole else gate)

    gate_i = activated(i, of_i, c)
    kept = step.value("Mul", gate_i, c) if couples else step.value("Mul", activated(f, of_f, c), c)
    if couples:  # new cell = (1 - i) * c + ...
        kept = step.value("Sub", c, kept)
    c_next = step.value("Add", kept, step.value("Mul", gate_i, step.value("Tanh", g)))
    return step.value("Mul", activated(o, of_o, c_next), step.value("Tanh", c_next)), c_next


def dynamic_lstm(node: NodeRecipe, scope: Scope) -> Nodes:
    """Rewrite a DynamicQuantizeLSTM. Raise NotExpressible for non-default activations, and for a clip."""
    writer = Writer(node, scope)
    direction = str(node.attributes.get("direction", "forward"))
    reverses = _DIRECTIONS.get(direction)
    activations = node.attributes.get("activations", [])
    if reverses is None:
        raise NotExpressible(f"direction={direction}; supported: {', '.join(_DIRECTIONS)}")
    if activations and activations != _ACTIVATIONS * len(reverses):
        raise NotExpressible(f"activations={activations}; supported: {_ACTIVATIONS}")
    writer.refuse("clip")
    hidden = number(node, "hidden_size", 0)
    if hidden < 1:
        raise NotExpressible("no hidden_size")
    quantized = [scope.fresh(node, role) for role in ("x", "x scale", "x zero")]
    writer.nodes.append(NodeRecipe("DynamicQuantizeLinear", quantized[0], [input_of(node, _X)], quantized, {}))
    results = [_Direction(writer, k, reverse, int(hidden)).run(quantized) for k, reverse in enumerate(reverses)]
    return _joined(writer, results)


def _joined(writer: Writer, results: list[list[str]]) -> Nodes:
    """Finish with the requested outputs among Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]."""
    outputs = [*writer.node.outputs, "", ""][:3]
    for i, output in enumerate(outputs):
        if not output:
            continue
        axis = 1 if i == 0 else 0
        where = writer.scope.constant(writer.node, f"axis {axis}", np.array([axis]))
        parts = [writer.add("Unsqueeze", made[i], where) for made in results]
        writer.make(output, "Concat", *parts, axis=axis)
    return writer.nodes
