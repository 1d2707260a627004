"""Generated inputs: drawn by the model's dtypes and by its first nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pumice
from onnx_models import model, node, value
from pumice.model.input_sources import GeneratedInputs
from pumice.validation.reference.input_generation import generate_inputs

INT, BOOL, BYTE, SIGNED = TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8, TensorProto.INT8
FLOAT = np.float32


def made(context: pumice.Context, *given: Any, sizes: dict[str, int] | None = None, **options: Any) -> GeneratedInputs:
    with pumice.load(model(*given, **options), context) as loaded:
        return generate_inputs(loaded, sizes)


def transformer() -> Any:
    """Return a model with token ids, positions and a mask, as an exported encoder reads them."""
    nodes = [
        node("Identity", ["ids"], ["same"]),
        node("Gather", ["words", "same"], ["e"]),
        node("Gather", ["places", "position_ids"], ["p"]),
        node("Add", ["e", "p"], ["s"]),
        node("Unsqueeze", ["attended", "axis"], ["m1"]),
        node("Cast", ["m1"], ["m2"], to=TensorProto.FLOAT),
        node("Sub", ["one", "m2"], ["m3"]),
        node("Mul", ["m3", "low"], ["m4"]),
        node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["s", "t"], ["q"]),
        node("Add", ["q", "m4"], ["y"]),
    ]
    inputs = [value(name, ["batch", "time"], INT) for name in ("ids", "position_ids", "attended")]
    random = np.random.default_rng(0)
    constants = {
        "words": random.standard_normal((7, 8)).astype(FLOAT),
        "places": random.standard_normal((16, 8)).astype(FLOAT),
        "axis": np.array([1]),
        "one": np.array(1, FLOAT),
        "low": np.array(-1e9, FLOAT),
    }
    return model(nodes, inputs, constants=constants)


def test_inputs_of_a_transformer(context: pumice.Context) -> None:
    with pumice.load(transformer(), context) as loaded:
        found = generate_inputs(loaded, {"batch": 3, "time": 12})
        ids = found.arrays["ids"]
        assert (ids.shape, ids.dtype, ids.min(), ids.max()) == ((3, 12), np.int64, 0, 6)
        np.testing.assert_array_equal(found.arrays["position_ids"], np.broadcast_to(np.arange(12), (3, 12)))
        assert (found.arrays["attended"] == 1).all()
        assert found.how == {
            "ids": "ids within the 7 rows of 'words', which Gather reads",
            "position_ids": "positions counting from 0, within the 16 rows of 'places', which Gather reads",
            "attended": "a mask of ones, by the nodes that read it",
        }
        assert pumice.validate(loaded, [found.arrays]).ok
        again = generate_inputs(loaded, {"batch": 3, "time": 12})
        np.testing.assert_array_equal(again.arrays["ids"], ids)


def test_the_smallest_of_several_tables_counts(context: pumice.Context) -> None:
    nodes = [
        node("Gather", ["a", "x"], ["p"]),
        node("Gather", ["b", "x"], ["q"], axis=-1),
    ]
    tables = {"a": np.ones((50, 4), FLOAT), "b": np.ones((50, 4), FLOAT)}
    found = made(context, nodes, [value("x", [50], INT)], ["p", "q"], constants=tables)
    assert found.arrays["x"].max() == 3
    assert "the 4 rows of 'b'" in found.how["x"]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_a_convolution(context: pumice.Context, channels: int) -> None:
    constants = {"w": np.ones((2, channels, 3, 3), FLOAT), "mean": np.full((1, channels, 1, 1), 0.5, FLOAT)}
    nodes = [node("Sub", ["x", "mean"], ["centred"]), node("Conv", ["centred", "w"])]
    found = made(context, nodes, [value("x", [1, channels, 16, 16])], constants=constants)
    x = found.arrays["x"]
    assert 0 <= x.min() < 0.1 < 0.9 < x.max() < 1
    assert found.how["x"] == "an image of numbers from 0 to 1"
    nodes = [node("Cast", ["x"], ["real"], to=TensorProto.FLOAT), *nodes[1:]]
    nodes[1].input[0] = "real"
    found = made(context, nodes, [value("x", [1, channels, 16, 16], BYTE)], constants=constants)
    assert found.arrays["x"].max() > 200
    assert found.how["x"] == "an image of bytes from 0 to 255"


def test_features_are_normal_numbers(context: pumice.Context) -> None:
    found = made(context, [node("MatMul", ["x", "w"])], [value("x", [50, 4])], constants={"w": np.ones((4, 2), FLOAT)})
    x = found.arrays["x"]
    assert x.min() < -1 and x.max() > 1
    assert found.how["x"] == "normal numbers, for MatMul reads them"
    found = made(context, [node("Log", ["x"])], [value("x", [50])])
    assert found.arrays["x"].min() >= 0
    assert found.how["x"] == "numbers from 0 to 1 at random"


@pytest.mark.parametrize(("op", "expected"), [("Mul", 1), ("Add", 0)])
def test_masks_by_their_name(context: pumice.Context, op: str, expected: int) -> None:
    inputs = [value("x", [2, 4]), value("attention_mask", [2, 4])]
    found = made(context, [node(op, ["x", "attention_mask"])], inputs)
    assert (found.arrays["attention_mask"] == expected).all()
    assert "mask" in found.how["attention_mask"]
    nodes = [node("Where", ["mask", "x", "x"])]
    assert made(context, nodes, [value("x", [2, 4]), value("mask", [2, 4], BOOL)]).arrays["mask"].all()


def test_lengths_are_whole(context: pumice.Context) -> None:
    nodes = [node("LSTM", ["x", "w", "r", "", "valid"], ["h"], hidden_size=2), node("Identity", ["h"])]
    constants = {"w": np.ones((1, 8, 4), FLOAT), "r": np.ones((1, 8, 2), FLOAT)}
    inputs = [value("x", [9, 3, 4]), value("valid", [3], TensorProto.INT32)]
    found = made(context, nodes, inputs, constants=constants)
    assert found.arrays["valid"].tolist() == [9, 9, 9]
    assert found.how["valid"] == "lengths of 9, the whole of 'x', for LSTM reads them"
    inputs = [value("x", [2, 6, 4]), value("x_lengths", [2], INT)]
    nodes = [node("Cast", ["x_lengths"], ["l"], to=1), node("ReduceMax", ["l"], ["most"]), node("Mul", ["x", "most"])]
    found = made(context, nodes, inputs)
    assert found.arrays["x_lengths"].tolist() == [6, 6]


def test_quantised_numbers_conditions_and_counts(context: pumice.Context) -> None:
    constants = {"scale": np.array(0.5, FLOAT)}
    found = made(context, [node("DequantizeLinear", ["x", "scale"])], [value("x", [400], SIGNED)], constants=constants)
    assert (found.arrays["x"].min(), found.arrays["x"].max()) <= (-120, 127)
    assert found.how["x"] == "all numbers of the type"
    nodes = [node("TopK", ["x", "k"], ["y", "i"])]
    found = made(context, nodes, [value("x", [4]), value("k", [1], INT)])
    assert found.arrays["k"].tolist() == [1]
    assert found.how["k"] == "ones, as TopK reads a size or a count"


def test_what_nothing_is_known_of(context: pumice.Context) -> None:
    found = made(context, [node("Neg", ["x"])], [value("x", [300], INT)])
    assert set(found.arrays["x"].tolist()) == {0, 1}
    assert found.how["x"] == "0 and 1 at random"


def test_a_web_of_additions_is_surveyed_in_no_time(context: pumice.Context) -> None:
    """Every node is reached in two ways: there are 2^64 paths to the last one."""
    names = ["x", *(f"t{i}" for i in range(63)), "y"]
    nodes = [node("Add", [a, a], [b]) for a, b in pairwise(names)]
    assert made(context, nodes, [value("x", [2])]).how["x"] == "numbers from 0 to 1 at random"
