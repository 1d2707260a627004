"""NNAPI's recurrent operations compared with the ONNX operators that share their kernels, and a quantised network in both forms.

Both forms of a row have the same sizes and random weights, and their programs alternate. Times are device times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pumice
from nnapi_mobilenet import nnapi_program, onnx_model

from . import on_device
from .contender import Array
from .kernels import US
from .rows import Row, Table, figure
from .session import Session
from .timing import Sampler, Times, measure, sampler

NOISE = 1.05  # the largest ratio that counts as equal
ROUNDS = 5  # alternations of a pair, so that clock changes affect both
LOADS, COMPARED_LOADS = 3, 6  # loads of each form; and of forms that share all kernels
SIZES = ((1, 64, 512, 512), (16, 64, 512, 512))  # batch, steps, inputs, units
SIZES_ON_SOFTWARE = ((1, 16, 64, 64), (4, 16, 96, 160))
IMAGE, IMAGE_ON_SOFTWARE = 224, 64
FILTERS, MEMORY = 2, 10  # SVDF: filters per unit, steps that they remember


@dataclass(frozen=True)
class Sizes:
    batch: int
    steps: int
    inputs: int
    units: int

    def __str__(self) -> str:
        return f"batch {self.batch}, {self.steps} steps, {self.inputs} to {self.units}"


@dataclass
class Built:
    """A graph and its inputs by name."""

    graph: pumice.Graph
    given: dict[str, Array] = dataclasses.field(default_factory=dict)
    random: Any = dataclasses.field(default_factory=lambda: np.random.default_rng(0))

    def floats(self, *shape: int) -> Array:
        return np.asarray(self.random.uniform(-1, 1, shape) / np.sqrt(shape[-1]), "float32")

    def integers(self, dtype: str, *shape: int) -> Array:
        return np.asarray(self.random.integers(0, 127, shape).astype(dtype))

    def input(self, array: Array, **quantization: Any) -> pumice.Value:
        name = f"x{len(self.given)}"
        self.given[name] = array
        return self.graph.input(name, str(array.dtype), list(array.shape), **quantization)

    def outputs(self, *values: pumice.Value) -> None:
        for i, value in enumerate(values):
            self.graph.output(f"y{i}", value)


Build = Callable[[Built, Sizes], None]


@dataclass(frozen=True)
class Pair:
    """An NNAPI operation and its ONNX counterpart. `same`: both compute the same, so the first must not be slower."""

    name: str
    nnapi: Build
    onnx: Build
    peer: str
    same: bool = True


# ---- LSTM and RNN


def _nnapi_cell(made: Built, gates: int, inputs: int, units: int) -> list[Any]:
    """Return input weights, recurrent weights and biases, each by gate."""
    weights = [made.floats(units, inputs) for _ in range(gates)]
    recurrent = [made.floats(units, units) for _ in range(gates)]
    return [weights, recurrent, [made.floats(units) for _ in range(gates)]]


def _lstm_operands(made: Built, s: Sizes, projection: int = 0) -> list[Any]:
    weights, recurrent, biases = _nnapi_cell(made, 4, s.inputs, s.units)
    if projection:
        recurrent = [made.floats(s.units, projection) for _ in range(4)]
    last = [made.floats(projection, s.units), made.floats(projection)] if projection else [None, None]
    return [*weights, *recurrent, None, None, None, *biases, *last]


def _states(made: Built, s: Sizes, widths: Sequence[int]) -> list[pumice.Value]:
    return [made.input(made.floats(s.batch, width)) for width in widths]


def nnapi_lstm(made: Built, s: Sizes) -> None:
    x = made.input(made.floats(s.batch, s.inputs))
    operands = _lstm_operands(made, s)
    made.outputs(*made.graph.add("nnapi::LSTM", x, *operands, *_states(made, s, [s.units] * 2), 4, 0.0, 0.0)[1:])


def _sequence(made: Built, s: Sizes, time_major: bool) -> pumice.Value:
    return made.input(made.floats(*((s.steps, s.batch) if time_major else (s.batch, s.steps)), s.inputs))


def nnapi_sequence_lstm(time_major: bool, projection: int = 0) -> Build:
    def build(made: Built, s: Sizes) -> None:
        width = s.units // projection if projection else s.units
        x = _sequence(made, s, time_major)
        operands = _lstm_operands(made, s, width if projection else 0)
        states = _states(made, s, [width, s.units])
        made.outputs(
            *made.graph.add("nnapi::UNIDIRECTIONAL_SEQUENCE_LSTM", x, *operands, *states, 4, 0.0, 0.0, time_major)
        )

    return build


def nnapi_both_lstm(made: Built, s: Sizes) -> None:
    x = _sequence(made, s, True)
    operands = [*_lstm_operands(made, s), *_lstm_operands(made, s), *_states(made, s, [s.units] * 4)]
    numbers = [4, 0.0, 0.0, False, True]
    made.outputs(*made.graph.add("nnapi::BIDIRECTIONAL_SEQUENCE_LSTM", x, *operands, *[None] * 9, *numbers))


def nnapi_rnn(made: Built, s: Sizes) -> None:
    x = made.input(made.floats(s.batch, s.inputs))
    cell = [one[0] for one in _nnapi_cell(made, 1, s.inputs, s.units)]
    made.outputs(made.graph.add("nnapi::RNN", x, *cell, *_states(made, s, [s.units]), 4)[1])


def nnapi_sequence_rnn(made: Built, s: Sizes) -> None:
    x = _sequence(made, s, True)
    cell = [one[0] for one in _nnapi_cell(made, 1, s.inputs, s.units)]
    state = _states(made, s, [s.units])
    made.outputs(*made.graph.add("nnapi::UNIDIRECTIONAL_SEQUENCE_RNN", x, *cell, *state, 4, 1))


def nnapi_both_rnn(made: Built, s: Sizes) -> None:
    x = _sequence(made, s, True)
    cells: list[Any] = []
    for _ in range(2):
        cells += [*[one[0] for one in _nnapi_cell(made, 1, s.inputs, s.units)], *_states(made, s, [s.units])]
    made.outputs(*made.graph.add("nnapi::BIDIRECTIONAL_SEQUENCE_RNN", x, *cells, None, None, None, 4, True, False))


def onnx_layer(op: str, *, steps: bool = True, both: bool = False, time_major: bool = True) -> Build:
    """Return a builder of the layer with initial states; of one step if `steps` is false."""

    def build(made: Built, s: Sizes) -> None:
        gates, directions, time = {"LSTM": 4, "RNN": 1}[op], 2 if both else 1, s.steps if steps else 1
        x = made.input(made.floats(*((time, s.batch) if time_major else (s.batch, time)), s.inputs))
        rows = gates * s.units
        weights = [made.floats(directions, rows, width) for width in (s.inputs, s.units)]
        state = (directions, s.batch, s.units) if time_major else (s.batch, directions, s.units)
        states = [made.input(made.floats(*state)) for _ in range(2 if op == "LSTM" else 1)]
        more = {"direction": "bidirectional" if both else "forward", "layout": int(not time_major)}
        outputs = 3 if op == "LSTM" else 2
        biases = made.floats(directions, 2 * rows)
        layer = made.graph.add(op, x, *weights, biases, None, *states, outputs=outputs, **more)
        made.outputs(*(layer if steps else layer[1:] if op == "LSTM" else layer[:1]))

    return build


# ---- SVDF


def _svdf_parts(made: Built, s: Sizes) -> tuple[list[pumice.Value], list[Array]]:
    filters = s.units * FILTERS
    x, state = made.input(made.floats(s.batch, s.inputs)), made.input(made.floats(s.batch, MEMORY * filters))
    return [x, state], [made.floats(filters, s.inputs), made.floats(filters, MEMORY), made.floats(s.units)]


def nnapi_svdf(made: Built, s: Sizes) -> None:
    (x, state), (feature, time, bias) = _svdf_parts(made, s)
    made.outputs(*made.graph.add("nnapi::SVDF", x, feature, time, bias, state, FILTERS, 1))


def onnx_svdf(made: Built, s: Sizes) -> None:
    """Build SVDF with Slice and Concat to shift the memory, and Mul and a sum as time filters."""
    (x, state), (feature, time, bias) = _svdf_parts(made, s)
    g, axis = made.graph, np.array([2])
    newest = g.add("Unsqueeze", g.add("Gemm", x, feature, transB=1), axis)
    before = g.add("Reshape", state, np.array([s.batch, -1, MEMORY]))
    old = g.add("Slice", before, np.array([0]), np.array([MEMORY - 1]), axis)
    now = g.add("Concat", old, newest, axis=2)
    felt = g.add("ReduceSum", g.add("Mul", now, time), axis, keepdims=0)
    y = g.add("ReduceSum", g.add("Reshape", felt, np.array([s.batch, s.units, FILTERS])), axis, keepdims=0)
    later = g.add("Slice", now, np.array([1]), np.array([MEMORY]), axis)
    moved = g.add("Pad", later, np.array([0, 0, 0, 0, 0, 1]))
    made.outputs(g.add("Reshape", moved, np.array([s.batch, -1])), g.add("Relu", g.add("Add", y, bias)))


# ---- quantised cells


def nnapi_16bit_lstm(made: Built, s: Sizes) -> None:
    x = made.input(made.integers("uint8", s.batch, s.inputs), scale=1 / 128, zero_point=128)

    def weights(width: int) -> list[Any]:
        return [
            made.graph.constant(made.integers("uint8", s.units, width), scale=0.004, zero_point=64) for _ in range(4)
        ]

    operands = [*weights(s.inputs), *weights(s.units), *[made.integers("int32", s.units) for _ in range(4)]]
    cell = made.input(made.integers("int16", s.batch, s.units), scale=2.0**-11, zero_point=0)
    state = made.input(made.integers("uint8", s.batch, s.units), scale=1 / 128, zero_point=128)
    made.outputs(*made.graph.add("nnapi::QUANTIZED_16BIT_LSTM", x, *operands, cell, state))


def nnapi_quantized_lstm(made: Built, s: Sizes) -> None:
    x = made.input(made.integers("int8", s.batch, s.inputs), scale=0.007, zero_point=3)

    def weights(width: int) -> list[Any]:
        return [made.graph.constant(made.integers("int8", s.units, width), scale=0.002, zero_point=0) for _ in range(4)]

    operands = [*weights(s.inputs), *weights(s.units), None, None, None]
    operands += [*[made.integers("int32", s.units) for _ in range(4)], None, None]
    state = made.input(made.integers("int8", s.batch, s.units), scale=0.007, zero_point=-5)
    cell = made.input(made.integers("int16", s.batch, s.units), scale=2.0**-11, zero_point=0)
    numbers = [0.0, 0.0, *[2.0**-12] * 4, 7, 0.006]
    made.outputs(*made.graph.add("nnapi::QUANTIZED_LSTM", x, *operands, state, cell, *[None] * 4, *numbers)[:2])


def onnx_quantized_lstm(dtype: str) -> Build:
    """Return a builder of one step as written by quantising converters: integer products, float activations, quantised states."""

    def build(made: Built, s: Sizes) -> None:
        g, scale, zero = made.graph, np.array(1 / 128, "float32"), np.array(0, dtype)
        cell_scale, cell_zero = np.array(2.0**-11, "float32"), np.array(0, "int16")
        x, h = (made.input(made.integers(dtype, s.batch, width)) for width in (s.inputs, s.units))
        c = made.input(made.integers("int16", s.batch, s.units))
        weights = made.integers(dtype, s.inputs + s.units, 4 * s.units)
        sums = g.add("MatMulInteger", g.add("Concat", x, h, axis=1), weights, zero, zero)
        real = g.add("Mul", g.add("Cast", sums, to=1), np.array(0.0001, "float32"))
        gates = g.add("Split", g.add("Add", real, made.floats(4 * s.units)), axis=1, num_outputs=4, outputs=4)
        i, f, o = (g.add("Sigmoid", gates[k]) for k in (0, 1, 3))
        before = g.add("DequantizeLinear", c, cell_scale, cell_zero)
        cell = g.add("Add", g.add("Mul", f, before), g.add("Mul", i, g.add("Tanh", gates[2])))
        hidden = g.add("Mul", o, g.add("Tanh", cell))
        made.outputs(g.add("QuantizeLinear", cell, cell_scale, cell_zero), g.add("QuantizeLinear", hidden, scale, zero))

    return build


FLOATS = "MatMulInteger and a cell of floats, which is not exact"
PAIRS = (
    Pair("LSTM", nnapi_lstm, onnx_layer("LSTM", steps=False), "LSTM"),
    Pair("UNIDIRECTIONAL_SEQUENCE_LSTM, time first", nnapi_sequence_lstm(True), onnx_layer("LSTM"), "LSTM"),
    Pair(
        "UNIDIRECTIONAL_SEQUENCE_LSTM, batch first",
        nnapi_sequence_lstm(False),
        onnx_layer("LSTM", time_major=False),
        "LSTM",
    ),
    Pair("BIDIRECTIONAL_SEQUENCE_LSTM", nnapi_both_lstm, onnx_layer("LSTM", both=True), "LSTM"),
    Pair(
        "UNIDIRECTIONAL_SEQUENCE_LSTM, projected to a half",
        nnapi_sequence_lstm(True, projection=2),
        onnx_layer("LSTM"),
        "LSTM, which has no projection",
        same=False,
    ),
    Pair("RNN", nnapi_rnn, onnx_layer("RNN", steps=False), "RNN"),
    Pair("UNIDIRECTIONAL_SEQUENCE_RNN", nnapi_sequence_rnn, onnx_layer("RNN"), "RNN"),
    Pair("BIDIRECTIONAL_SEQUENCE_RNN", nnapi_both_rnn, onnx_layer("RNN", both=True), "RNN"),
    Pair("SVDF", nnapi_svdf, onnx_svdf, "Gemm, Concat, Mul, ReduceSum"),
    Pair("QUANTIZED_16BIT_LSTM", nnapi_16bit_lstm, onnx_quantized_lstm("uint8"), FLOATS, same=False),
    Pair("QUANTIZED_LSTM", nnapi_quantized_lstm, onnx_quantized_lstm("int8"), FLOATS, same=False),
)


# ---- measuring


def device_sampler(program: pumice.Program, given: Mapping[str, Array]) -> tuple[Sampler, int]:
    """Return a sampler of device seconds per run, with arguments and results in device memory; and the number of dispatches."""
    arrays = tuple(given[value.name] for value in program.inputs)
    compiled = program.compiled([list(array.shape) for array in arrays])
    results = program.call(arrays)
    named = zip((*program.inputs, *program.outputs), (*arrays, *results), strict=True)
    tensors = {value.name: pumice.tensor(array, program.context) for value, array in named}
    commands = pumice.CommandList(program.context)
    on_device.dispatch(commands, program, compiled, tensors)
    return on_device.sampler(commands), commands.dispatches


def in_turns(session: Session, samplers: Mapping[str, Sampler], runs: int) -> tuple[Times, Times]:
    """Return NNAPI's and ONNX's times, measured alternately."""
    rounds = session.effort.rounds if session.effort.rounds == 1 else ROUNDS
    effort = dataclasses.replace(session.effort, rounds=rounds, budget=min(session.effort.budget, 0.3))
    times = measure(samplers, effort, runs)
    return times["nnapi"], times["onnx"]


def compared(what: str, pair: tuple[Times, Times], unit: float, peer: str, same: bool) -> Row:
    """Return a row of NNAPI's times with ONNX's best as target, within the noise."""
    mine, theirs = pair
    if mine.absent or theirs.absent:
        return Row(what, absent=mine.absent or f"{peer}: {theirs.absent}")
    ratios = f"ratio {mine.best / theirs.best:.3f} of the best, {mine.median / theirs.median:.3f} of the medians"
    note = f"{ratios}; {peer}: best {figure(theirs.best * unit)}, median {figure(theirs.median * unit)}"
    target = theirs.best * unit * NOISE if same else None
    return Row(what, mine.best * unit, mine.median * unit, target=target, judged="best", note=note)


def recurrent_row(session: Session, pair: Pair, sizes: Sizes, precision: str) -> Row:
    """Return a row for both forms. Each is loaded several times and kept alive, because the memory address changes the time by up to 10%,
    as the bests of ONNX's form in the note show.
    """
    times, dispatches, alive = {"nnapi": Times(), "onnx": Times()}, {}, []
    forms = [("nnapi", pair.nnapi), ("onnx", pair.onnx)]
    loads, bests = COMPARED_LOADS if pair.same else LOADS, []
    for i in range(loads if session.effort.rounds > 1 else 1):
        samplers = {}
        for label, build in forms if i % 2 == 0 else forms[::-1]:
            made = Built(pumice.Graph(f"{label} {pair.name}"))
            build(made, sizes)
            program = made.graph.compile(session.context, precision=precision)
            samplers[label], dispatches[label] = device_sampler(program, made.given)
            alive.append((program, samplers[label]))
        for label, found in zip(times, in_turns(session, samplers, 20), strict=True):
            times[label].rounds += found.rounds
            times[label].absent = times[label].absent or found.absent
            if label == "onnx" and not found.absent:
                bests.append(found.best * US)
    row = compared(pair.name, (times["nnapi"], times["onnx"]), US, pair.peer, pair.same)
    row.note += f"; dispatches {dispatches['nnapi']} and {dispatches['onnx']}"
    if bests:
        row.note += f"; bests of {pair.peer}'s loads: {figure(min(bests))} to {figure(max(bests))}"
    return row


def network_rows(session: Session, size: int) -> Iterator[Row]:
    """Yield the times on the device, and of calls from NumPy to NumPy."""
    image = np.random.default_rng(0).integers(0, 256, (1, size, size, 3)).astype("uint8")
    planes = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    program = nnapi_program(size).compile(session.context)
    model = pumice.load(onnx_model(size), session.context, progress=False)
    theirs = {model.program.inputs[0].name: planes}
    on_the_device = {
        "nnapi": device_sampler(program, {"x": image})[0],
        "onnx": device_sampler(model.program, theirs)[0],
    }
    calls = {"nnapi": sampler(lambda: program.call((image,))), "onnx": sampler(lambda: model.program.call((planes,)))}
    for what, samplers in (("on the device", on_the_device), ("NumPy to NumPy", calls)):
        yield compared(what, in_turns(session, samplers, 30), US, "its ONNX QDQ form", True)


def run(session: Session) -> Iterator[Table]:
    chosen = SIZES_ON_SOFTWARE if session.software else SIZES
    for sizes in (Sizes(*one) for one in chosen):
        for precision in ("fp32",) if session.software else ("fp32", "fp16"):
            table = Table(f"NNAPI's recurrent operations, {sizes}, {precision}, {session.context.info.name}", "us")
            for pair in PAIRS:
                try:
                    table.rows.append(recurrent_row(session, pair, sizes, precision))
                except pumice.Error as error:  # continue with the others after an error
                    table.rows.append(Row(pair.name, absent=str(error), wrong=True))
            yield table
    size = IMAGE_ON_SOFTWARE if session.software else IMAGE
    title = f"A quantized network of depthwise convolutions, {size} x {size}, {session.context.info.name}"
    yield Table(title, "us", list(network_rows(session, size)))
