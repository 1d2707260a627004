"""Recurrent layers at the border of a program: float32 states and results, with 16-bit floats inside."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import pumice

Array = np.ndarray[Any, Any]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
PRECISIONS_16_BIT = ["fp16", "bf16"]
FINE = np.float32(1 + 2.0**-12)  # not representable in 16-bit floats


def halves(*shape: int) -> Array:
    """Return numbers that are exact in all 16-bit floats."""
    return (np.random.default_rng(sum(shape)).integers(-16, 17, shape) / 32).astype("float32")


class Layer:
    """A graph of a recurrent layer with its states as inputs, and the input arrays."""

    def __init__(self, op: str, direction: str = "forward", *, steps: int = 3, units: int = 5) -> None:
        self.graph, self.kinds = pumice.Graph("layer"), "hc" if op == "LSTM" else "h"
        directions, rows = 2 if direction == "bidirectional" else 1, GATES[op] * units
        self.given = {"x": halves(steps, 2, 3), **{k: np.full((directions, 2, units), FINE) for k in self.kinds}}
        self.inputs = {k: self.graph.input(k, "float32", list(array.shape)) for k, array in self.given.items()}
        parts = [halves(directions, rows, 3), halves(directions, rows, units), halves(directions, 2 * rows)]
        states = [self.inputs[k] for k in self.kinds]
        more: dict[str, Any] = {"direction": direction, "outputs": len(self.kinds) + 1, "name": "layer"}
        self.made = list(self.graph.add(op, self.inputs["x"], *parts, None, *states, **more))

    def run(self, context: pumice.Context, precision: str, **options: Any) -> dict[str, Array]:
        return dict(self.graph.compile(context, precision, **options)(self.given))

    def kernels(self, context: pumice.Context, precision: str) -> Counter[str]:
        program = self.graph.compile(context, precision)
        return Counter(step["kernel"] for step in program.plan([array.shape for array in self.given.values()]))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("precision", PRECISIONS_16_BIT)
@pytest.mark.parametrize("op", GATES)
def test_float32_states_go_in_and_out_as_they_are(
    context: pumice.Context, op: str, precision: str, direction: str
) -> None:
    layer = Layer(op, direction, steps=0)
    for k, value in zip(layer.kinds, layer.made[1:], strict=True):
        layer.graph.output(f"last_{k}", value)
    for k, value in layer.run(context, precision).items():
        np.testing.assert_array_equal(value, layer.given[k.removeprefix("last_")])
    assert layer.kernels(context, precision) == {"recurrent_initial_states.comp": 1, "recurrent_final_states.comp": 1}


@pytest.mark.parametrize("precision", PRECISIONS_16_BIT)
@pytest.mark.parametrize("op", GATES)
def test_results_are_float32_but_for_what_others_read(context: pumice.Context, op: str, precision: str) -> None:
    """The states pass through views; x is cast, and so is the last state for Neg, which is cast back to float32."""
    layer = Layer(op, steps=0)
    layer.graph.output("y", layer.graph.add("Squeeze", layer.made[0], np.array([1])))
    layer.graph.output("h_last", layer.graph.add("Reshape", layer.made[1], np.array([2, -1])))
    if op == "LSTM":
        layer.graph.output("c_last", layer.made[2])
        layer.graph.output("turned", layer.graph.add("Neg", layer.made[2]))
    found = layer.run(context, precision)
    np.testing.assert_array_equal(found["h_last"], np.full((2, 5), FINE))
    if op == "LSTM":
        np.testing.assert_array_equal(found["c_last"], np.ones((1, 2, 5)))
        np.testing.assert_array_equal(found["turned"], -np.ones((1, 2, 5)))


@pytest.mark.parametrize("precision", PRECISIONS_16_BIT)
@pytest.mark.parametrize("op", GATES)
def test_a_state_that_others_read_too(context: pumice.Context, op: str, precision: str) -> None:
    layer = Layer(op)
    for value in layer.made:
        layer.graph.output(f"{value.name}", value)
    layer.graph.output("product", layer.graph.add("MatMul", layer.inputs["h"], halves(5, 4)))
    found, wanted = layer.run(context, precision), layer.run(context, "fp32")
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol={"fp16": 4e-3, "bf16": 4e-2}[precision])
        is_product = name == "product"
        rounded = found[name].astype("float16" if precision == "fp16" else "float32")
        assert precision == "bf16" or np.all(rounded == found[name]) == is_product


@pytest.mark.parametrize("op", GATES)
def test_states_of_a_float16_model(context: pumice.Context, op: str) -> None:
    """float16 states are read and written directly, in programs of every precision."""
    graph, units, rows = pumice.Graph(), 5, GATES[op] * 5
    kinds = "hc" if op == "LSTM" else "h"
    given = {"x": halves(3, 2, 3).astype("float16"), **{k: halves(1, 2, units).astype("float16") for k in kinds}}
    inputs = [graph.input(k, "float16", list(array.shape)) for k, array in given.items()]
    parts = [halves(1, rows, width).astype("float16") for width in (3, units)]
    made = graph.add(op, inputs[0], *parts, None, None, *inputs[1:], outputs=len(kinds) + 1)
    for i, value in enumerate(made):
        graph.output(f"y{i}", value)
    results = [graph.compile(context, precision)(given) for precision in ("fp32", "fp16", "bf16")]
    for found in results:
        for name, value in found.items():
            assert value.dtype == "float16"
            np.testing.assert_allclose(value, results[0][name], rtol=0, atol=2e-2)


@pytest.mark.parametrize("op", GATES)
def test_a_policy_of_float32_keeps_the_layer_in_float32(context: pumice.Context, op: str) -> None:
    layer = Layer(op)
    for value in layer.made:
        layer.graph.output(value.name, value)
    exact = layer.run(context, "fp32")
    for name, value in layer.run(context, "fp16", float32_nodes=["layer"]).items():
        np.testing.assert_array_equal(value, exact[name])


def test_the_report_names_the_layers_compute_precision(context: pumice.Context) -> None:
    layer = Layer("LSTM")
    for value in layer.made:
        layer.graph.output(value.name, value)
    rows = {row["node"]: row["precision"] for row in layer.graph.compile(context, "fp16").report()}
    assert rows["layer"].startswith("fp16")
