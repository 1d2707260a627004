"""Bidirectional recurrent layers: states and results of each direction as separate tensors, or interleaved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import pumice
from benchmarks.nnapi import PAIRS, Built, Pair, Sizes

Array = np.ndarray[Any, Any]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HELD, STEPWISE = 11, 131  # hidden sizes: one dispatch for many steps, or one per step
PRECISIONS_16_BIT = ["fp16", "bf16"]


def halves(*shape: int, seed: int = 0) -> Array:
    """Return numbers that are exact in all 16-bit floats."""
    return (np.random.default_rng(seed + sum(shape)).integers(-16, 17, shape) / 32).astype("float32")


def rounded(array: Array, precision: str) -> Array:
    if precision == "fp32":
        return array
    if precision == "fp16":
        return array.astype("float16").astype("float32")
    bits = array.view("uint32")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view("float32")


class Layer:
    """A graph of a bidirectional layer, and the input arrays."""

    def __init__(self, op: str, units: int, *, layout: int = 0, lengths: bool = False, steps: int = 5) -> None:
        self.op, self.units, self.layout, self.steps, self.batch = op, units, layout, steps, 3
        self.graph = pumice.Graph("layer")
        self.given: dict[str, Array] = {}
        rows = GATES[op] * units
        shape = (self.batch, steps, 7) if layout else (steps, self.batch, 7)
        self.x = self.input("x", halves(*shape))
        self.parts = [halves(2, rows, 7), halves(2, rows, units) / 8, halves(2, 2 * rows)]
        self.lengths = self.input("lengths", np.array([4, 0, 5], "int32")) if lengths else None
        self.kinds = "hc" if op == "LSTM" else "h"

    @property
    def axis(self) -> int:
        return self.layout

    def input(self, name: str, array: Array) -> pumice.Value:
        self.given[name] = array
        return self.graph.input(name, str(array.dtype), list(array.shape))

    def state(self, name: str, directions: int = 1) -> pumice.Value:
        sizes = (self.batch, directions, self.units) if self.layout else (directions, self.batch, self.units)
        return self.input(name, halves(*sizes, seed=len(self.given)))

    def joined(self, *states: pumice.Value, axis: int | None = None) -> pumice.Value:
        return self.graph.add(
            "Concat", *states, axis=self.axis if axis is None else axis, name=f"join {states[0].name}"
        )

    def add(self, *states: pumice.Value) -> list[pumice.Value]:
        outputs = len(self.kinds) + 1
        more: dict[str, Any] = {
            "direction": "bidirectional",
            "layout": self.layout,
            "outputs": outputs,
            "name": "layer",
        }
        made = self.graph.add(self.op, self.x, *self.parts, self.lengths, *states, **more)
        return list(made)

    def split(self, value: pumice.Value, axis: int) -> list[pumice.Value]:
        return list(self.graph.add("Split", value, axis=axis, num_outputs=2, outputs=2))

    def output(self, *values: pumice.Value) -> None:
        for value in values:
            self.graph.output(f"y{len(self.graph.outputs)}", value)

    def apart(self) -> None:
        """Use a separate input and output for the state of each direction."""
        made = self.add(*(self.joined(self.state(f"{k}0"), self.state(f"{k}1")) for k in self.kinds))
        for i, one in enumerate(made):
            axis = self.axis + (i == 0)
            for part in self.split(one, axis):
                self.output(self.graph.add("Squeeze", part, np.array([axis])))


def run(layer: Layer, context: pumice.Context, precision: str, fuse: bool | list[str] = True) -> Mapping[str, Array]:
    return layer.graph.compile(context, precision, fuse=fuse)(layer.given)


def kernels(layer: Layer, context: pumice.Context, precision: str, fuse: bool | list[str] = True) -> Counter[str]:
    program = layer.graph.compile(context, precision, fuse=fuse)
    return Counter(step["kernel"] for step in program.plan([array.shape for array in layer.given.values()]))


def agree(found: Array, wanted: Array, context: pumice.Context, precision: str) -> None:
    """Compare exactly on software devices; a GPU compiler may contract the same sums differently in other kernels."""
    if context.info.kind == "software":
        np.testing.assert_array_equal(found, wanted)
    else:
        tolerance = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}[precision]
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def same(layer: Layer, context: pumice.Context, precision: str) -> None:
    """Check that, before rounding, the fused program returns the same numbers as the unfused one."""
    found, wanted = run(layer, context, precision), run(layer, context, precision, False)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        agree(rounded(found[name], precision), rounded(value, precision), context, precision)
        assert np.any(value)


@pytest.mark.parametrize("precision", ["fp32", *PRECISIONS_16_BIT])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("units", [HELD, STEPWISE])
@pytest.mark.parametrize("op", GATES)
def test_states_and_results_of_each_direction_are_read_and_made_apart(
    context: pumice.Context, op: str, units: int, layout: int, lengths: bool, precision: str
) -> None:
    layer = Layer(op, units, layout=layout, lengths=lengths)
    layer.apart()
    same(layer, context, precision)
    rows = {row["op"]: (row["note"], row["fusion"]) for row in layer.graph.compile(context, precision).report()}
    assert rows["Concat"] == rows["Split"] == ("fused into layer", "recurrent")
    assert rows["Squeeze"][0] in ("", "view")
    counts = kernels(layer, context, precision)
    assert counts["recurrent_initial_states.comp"] == counts["recurrent_final_states.comp"] == 1
    assert counts["elementwise.comp"] == (precision != "fp32")  # casts x to 16 bits
    assert not counts.keys() & {"transpose.comp", "strided_copy.comp", "copy_words.comp"}


@pytest.mark.parametrize("precision", ["fp32", *PRECISIONS_16_BIT])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("units", [HELD, STEPWISE])
@pytest.mark.parametrize("op", GATES)
def test_results_are_made_side_by_side(
    context: pumice.Context, op: str, units: int, lengths: bool, precision: str
) -> None:
    """As PyTorch exports a bidirectional layer, with another layer after it."""
    layer = Layer(op, units, lengths=lengths)
    y = layer.add()[0]
    turned = layer.graph.add("Transpose", y, perm=[0, 2, 1, 3], name="turned")
    flat = layer.graph.add("Reshape", turned, np.array([0, 0, -1]))
    rows = GATES[op] * units
    parts = [halves(1, rows, 2 * units) / 8, halves(1, rows, units) / 8]
    layer.output(flat, layer.graph.add(op, flat, *parts, outputs=1))
    same(layer, context, precision)
    rows_of = {row["node"]: row["note"] for row in layer.graph.compile(context, precision).report()}
    assert rows_of["turned"] == "fused into layer"
    assert not kernels(layer, context, precision).keys() & {"transpose.comp", "strided_copy.comp"}
    assert kernels(layer, context, precision, False).keys() & {"transpose.comp", "strided_copy.comp"}


@pytest.mark.parametrize("wanted", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("units", [HELD, STEPWISE])
def test_one_result_alone(context: pumice.Context, units: int, wanted: int) -> None:
    layer = Layer("LSTM", units)
    made = layer.add(*(layer.joined(layer.state(f"{k}0"), layer.state(f"{k}1")) for k in "hc"))
    layer.output([part for i, one in enumerate(made) for part in layer.split(one, int(i == 0))][wanted])
    same(layer, context, "fp32")
    assert "strided_copy.comp" not in kernels(layer, context, "fp32")


def test_states_read_by_other_nodes_are_concatenated(context: pumice.Context) -> None:
    layer = Layer("GRU", HELD)
    whole = layer.joined(layer.state("h0"), layer.state("h1"))
    y, last = layer.add(whole)
    layer.output(whole, *layer.split(y, 1), last, layer.graph.add("Neg", last), *layer.split(last, 0))
    same(layer, context, "fp32")
    rows = {row["node"]: row["note"] for row in layer.graph.compile(context).report()}
    assert rows["join h0"] == ""


def test_other_axes_and_parts_stay(context: pumice.Context) -> None:
    layer = Layer("RNN", HELD)
    both = [layer.input(f"h{k}", halves(2, size, HELD)) for k, size in enumerate((1, 2))]
    y, last = layer.add(layer.joined(*both, axis=1))
    layer.output(*layer.graph.add("Split", y, axis=0, num_outputs=5, outputs=5))
    layer.output(layer.graph.add("Transpose", last, perm=[1, 0, 2]))
    same(layer, context, "fp32")
    assert {row["fusion"] for row in layer.graph.compile(context).report()} == {""}


def test_unknown_sizes(context: pumice.Context) -> None:
    graph, units = pumice.Graph(), STEPWISE
    x = graph.input("x", "float32", [None, None, 7])
    states = [graph.input(f"h{k}", "float32", [1, None, units]) for k in range(2)]
    parts = [halves(2, units, 7), halves(2, units, units) / 8, halves(2, 2 * units)]
    joined = graph.add("Concat", *states, axis=0)
    y, last = graph.add("RNN", x, *parts, None, joined, outputs=2, direction="bidirectional")
    for i, one in enumerate([y, last]):
        for k, part in enumerate(graph.add("Split", one, axis=1 - i, num_outputs=2, outputs=2)):
            graph.output(f"y{i}{k}", part)
    fused, plain = graph.compile(context), graph.compile(context, fuse=False)
    assert [row["fusion"] for row in fused.report()].count("recurrent") == 3
    for steps, batch in ((1, 1), (4, 2), (3, 5), (4, 2)):
        given = {"x": halves(steps, batch, 7), "h0": halves(1, batch, units), "h1": halves(1, batch, units, seed=1)}
        for name, value in plain(given).items():
            agree(fused(given)[name], value, context, "fp32")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.same], ids=lambda pair: pair.name)
def test_both_forms_have_as_many_dispatches(context: pumice.Context, pair: Pair, precision: str) -> None:
    counts = []
    for build in (pair.nnapi, pair.onnx):
        made = Built(pumice.Graph("form"))
        build(made, Sizes(2, 16, 8, 132))
        program = made.graph.compile(context, precision)
        counts.append(Counter(step["kernel"] for step in program.plan([one.shape for one in made.given.values()])))
    assert counts[0] == counts[1]
