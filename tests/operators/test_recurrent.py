"""LSTM, GRU and RNN against PyTorch and onnx.reference, over long sequences, and with invalid arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from cases import recurrents
from operator_references import reference_node
from pumice.testing import assert_close

Array = npt.NDArray[Any]


def weights(op: str, directions: int, inputs: int, units: int) -> list[Array]:
    random = np.random.default_rng(units)
    rows = recurrents.GATES[op] * units
    shapes = (directions, rows, inputs), (directions, rows, units), (directions, 2 * rows)
    return [(random.standard_normal(shape) / np.sqrt(units)).astype("float32") for shape in shapes]


def run(context: pumice.Context, op: str, data: Array, constants: list[Array], **attributes: Any) -> list[Array]:
    graph = pumice.Graph()
    values = [graph.constant(array) for array in constants]
    made = graph.add(op, graph.input("x", "float32", list(data.shape)), *values, outputs=2, **attributes)
    for name, value in zip(("y", "h"), made, strict=True):
        graph.output(name, value)
    results = graph.compile(context)({"x": data})
    return [results["y"], results["h"]]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", list(recurrents.GATES))
def test_recurrent_layers_agree_with_the_reference_of_onnx(op: str, direction: str, context: pumice.Context) -> None:
    data = np.random.default_rng(0).standard_normal((5, 3, 7)).astype("float32")
    constants = weights(op, 2 if direction == "bidirectional" else 1, 7, 11)
    attributes = {"direction": direction, "hidden_size": 11}
    if op == "GRU":
        attributes["linear_before_reset"] = 1
    expected = reference_node(op, 2, attributes, [data, *constants])
    for actual, wanted in zip(run(context, op, data, constants, **attributes), expected, strict=True):
        assert_close(actual, wanted, rtol=1e-5, atol=1e-5)


# Index in PyTorch's gate order of each ONNX gate.
TORCH_GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}


@pytest.mark.parametrize("op", list(recurrents.GATES))
def test_recurrent_layers_agree_with_pytorch(op: str, context: pumice.Context) -> None:
    torch = pytest.importorskip("torch")
    steps, batch, inputs, units = 13, 5, 7, 37
    module = getattr(torch.nn, op)(inputs, units, bidirectional=True)
    data = torch.randn(steps, batch, inputs)

    def onnx_order(name: str) -> Array:
        parts = [
            getattr(module, name + suffix).detach().numpy().reshape(recurrents.GATES[op], units, -1)[TORCH_GATES[op]]
            for suffix in ("_l0", "_l0_reverse")
        ]
        return np.stack(parts).reshape(2, recurrents.GATES[op] * units, -1)

    constants = [onnx_order("weight_ih"), onnx_order("weight_hh")]
    constants.append(np.concatenate([onnx_order("bias_ih"), onnx_order("bias_hh")], 1)[..., 0])
    attributes: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    y, h = run(context, op, data.numpy(), constants, direction="bidirectional", **attributes)
    expected, last = module(data)
    assert_close(y.transpose(0, 2, 1, 3).reshape(steps, batch, -1), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    assert_close(h, (last[0] if op == "LSTM" else last).detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", list(recurrents.GATES))
def test_ten_thousand_steps(op: str, context: pumice.Context) -> None:
    """A few dispatches run many steps each."""
    data = np.random.default_rng(1).standard_normal((10_000, 1, 3)).astype("float32")
    constants = weights(op, 1, 3, 5)
    model = recurrents.REFERENCES[op]
    expected = model(data, *constants)[:2]
    for actual, wanted in zip(run(context, op, data, constants), expected, strict=True):
        assert_close(actual, wanted, rtol=1e-4, atol=1e-4)


def shapes_of(op: str, inputs: int = 3, units: int = 5) -> list[list[int]]:
    rows = recurrents.GATES[op] * units
    return [[7, 2, inputs], [1, rows, inputs], [1, rows, units], [1, 2 * rows]]


@pytest.mark.parametrize(
    ("op", "changed", "attributes", "message"),
    [
        ("LSTM", {1: [1, 15, 3]}, {}, r"expected weights of the input of shape \[1, 20, 3\]; given \[1, 15, 3\]"),
        ("LSTM", {2: [2, 20, 5]}, {}, r"expected recurrent weights of shape \[1, 20, 5\]"),
        ("LSTM", {3: [1, 20]}, {}, r"expected biases of shape \[1, 40\]; given \[1, 20\]"),
        ("GRU", {}, {"direction": "bidirectional"}, r"expected weights of the input of shape \[2, 15, 3\]"),
        ("GRU", {}, {"hidden_size": 7}, "'hidden_size' is 7 and the recurrent weights are of 5 units"),
        ("RNN", {}, {"activations": ["Tanh", "Tanh"]}, "'activations': expected 1; given 2"),
        ("LSTM", {}, {"clip": -1.0}, "expected a non-negative 'clip'"),
    ],
)
def test_layers_that_do_not_fit_are_rejected(
    op: str, changed: dict[int, list[int]], attributes: dict[str, Any], message: str
) -> None:
    graph = pumice.Graph()
    shapes = [changed.get(k, shape) for k, shape in enumerate(shapes_of(op))]
    with pytest.raises(pumice.GraphError, match=message):
        graph.add(op, *[graph.input(f"i{k}", "float32", shape) for k, shape in enumerate(shapes)], **attributes)


@pytest.mark.parametrize("op", list(recurrents.GATES))
def test_other_numbers_and_activations_are_rejected_by_name(op: str) -> None:
    graph = pumice.Graph()
    for dtype in ("float64", "int32"):
        inputs = [graph.input(f"{dtype}{k}", dtype, shape) for k, shape in enumerate(shapes_of(op))]
        with pytest.raises(pumice.UnsupportedError, match=f"{op}.*{dtype}"):
            graph.add(op, *inputs)
    inputs = [graph.input(f"i{k}", "float32", shape) for k, shape in enumerate(shapes_of(op))]
    names = ["Swish"] * {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    with pytest.raises(pumice.UnsupportedError, match="activation 'Swish'; supported: Relu, Tanh"):
        graph.add(op, *inputs, activations=names)


def test_thousands_of_dispatches(context: pumice.Context) -> None:
    """A layer too large for one workgroup needs a dispatch per step."""
    data = np.random.default_rng(1).standard_normal((3_000, 1, 3)).astype("float32")
    constants = weights("LSTM", 1, 3, 131)
    expected = recurrents.REFERENCES["LSTM"](data, *constants)[:2]
    for actual, wanted in zip(run(context, "LSTM", data, constants), expected, strict=True):
        assert_close(actual, wanted, rtol=1e-4, atol=1e-4)
