"""Shape inference tries sizes for unknown axes. A trial size that a tensor or rule rejects is ignored and is no error of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import pumice
from corpus import store
from onnx_models import model, node, value
from pumice import _pumice
from pumice.importer.load_graph import load_graph

Array = np.ndarray[Any, Any]
# Trial sizes for an axis and for a first axis. The last two of eight are small, as in the engine's default set.
SETS = {
    "default": None,
    "powers of two": ([64, 256, 1024, 2048, 65536, 1 << 20, 2, 1], [4, 2, 8, 16, 32, 1, 2, 1]),
    "primes": ([101, 211, 997, 1789, 104729, 65537, 5, 0], [3, 5, 2, 7, 13, 11, 1, 0]),
    "long": ([4096, 6144, 100_000, 131_072, 999_983, 3_000_000, 7, 0], [64, 96, 1000, 512, 257, 4096, 3, 0]),
}


@contextmanager
def tried(name: str) -> Iterator[None]:
    _pumice._set_trial_sizes(*(SETS[name] or (None, None)))
    try:
        yield
    finally:
        _pumice._set_trial_sizes()


def attention_scores(first: str, second: str) -> onnx.ModelProto:
    """Scores of dynamic length, reshaped by sizes from Shape: with 132,640 rows, the scores exceed the maximum tensor size."""
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]>
        g (float[{first}, {second}, 8] x) => (float[a, b, c, d] y) <int64[1] any = {{-1}}, int64[1] heads = {{4}}> {{
          s = Shape<start=1, end=2>(x)  t = Transpose<perm=[0, 2, 1]>(x)  scores = MatMul(x, t)
          shape = Concat<axis=0>(any, heads, s, s)  y = Reshape(scores, shape) }}"""
    )


def two_lengths(op: str) -> onnx.ModelProto:
    """Return a tensor with two axes of equal length, created by ConstantOfShape or Expand, and reshaped."""
    make = [node("Expand", ["one", "sizes"], ["big"])] if op == "Expand" else [node(op, ["sizes"], ["big"])]
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Concat", ["heads", "s", "s", "two"], ["sizes"], axis=0),
        *make,
        node("Concat", ["two", "any", "s", "s"], ["to"], axis=0),
        node("Reshape", ["big", "to"], ["r"]),
        node("ReduceSum", ["r", "axes"], ["m"], keepdims=0),
        node("Add", ["m", "x"]),
    ]
    constants = {
        "one": np.ones(1, "float32"),
        "heads": np.array([8]),
        "two": np.array([2]),
        "any": np.array([-1]),
        "axes": np.array([0, 1, 2]),
    }
    return model(nodes, [value("x", ["S"])], constants=constants, opset=18)


def large_with_a_batch() -> onnx.ModelProto:
    """Only a batch of 1 fits in a tensor, and no trial batch size does."""
    nodes = [node("Gather", ["x", "first"], ["row"], axis=2), node("ReduceSum", ["row", "axes"], keepdims=1)]
    constants = {"first": np.array(0), "axes": np.array([1])}
    return model(nodes, [value("x", ["N", 65536, 65535])], constants=constants, opset=18)


@pytest.mark.parametrize("sizes", SETS)
@pytest.mark.parametrize("names", [("batch", "seq"), ("batch", "8"), ("N", "N")])
def test_scores_of_a_dynamic_length_are_reshaped(context: pumice.Context, sizes: str, names: tuple[str, str]) -> None:
    length = int(names[1]) if names[1].isdigit() else 5
    x = np.random.default_rng(0).standard_normal((length if names[0] == names[1] else 4, length, 8)).astype("float32")
    expected = (x @ x.transpose(0, 2, 1)).reshape(-1, 4, length, length) if len(x) % 4 == 0 else None
    with tried(sizes), pumice.load(attention_scores(*names), context) as loaded:
        if expected is None:
            with pytest.raises(pumice.GraphError, match="Reshape"):
                loaded(x)
        else:
            np.testing.assert_allclose(loaded(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", SETS)
@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand"])
def test_a_tensor_with_two_axes_of_one_length_is_reshaped(context: pumice.Context, sizes: str, op: str) -> None:
    with tried(sizes), pumice.load(two_lengths(op), context) as loaded:
        for length in (3, 12):
            x = np.arange(length, dtype="float32")
            filled = 0 if op == "ConstantOfShape" else 16 * length
            np.testing.assert_array_equal(loaded(x), x + filled)


@pytest.mark.parametrize("sizes", SETS)
def test_an_input_that_only_the_smallest_batch_fits_is_accepted(sizes: str) -> None:
    with tried(sizes):
        graph, _ = load_graph(large_with_a_batch())
        assert len(graph) > 0


@pytest.mark.parametrize("sizes", SETS)
@pytest.mark.parametrize("heads", [(8, 4), (8, 1), (4, 4)])
def test_linear_attention_with_fewer_key_heads_is_accepted(sizes: str, heads: tuple[int, int]) -> None:
    queries, keys = heads
    attributes = {"q_num_heads": queries, "kv_num_heads": keys}
    linear = helper.make_node("LinearAttention", ["q", "k", "v", "", "d", "b"], ["y", "state"], **attributes)
    shapes = {"q": [2, 4, queries * 8], "k": [2, 4, keys * 8], "v": [2, 4, keys * 8], "d": [2, 4, keys * 8]}
    inputs = [value(name, shape) for name, shape in (shapes | {"b": [2, 4, keys]}).items()]
    with tried(sizes):
        graph, _ = load_graph(model([linear], inputs, ["y", "state"], opset=27))
        assert len(graph) > 0


def expect_error(name: str) -> str:
    try:
        load_graph(store.load(name).model)
    except pumice.Error as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("sizes", [name for name in SETS if name != "default"])
@pytest.mark.parametrize("ending", [".dynamo", pytest.param(".script", marks=pytest.mark.slow)])
def test_exported_models_are_accepted_whatever_sizes_are_tried(sizes: str, ending: str) -> None:
    names = [name for name in store.names() if name.endswith(ending)]
    with tried(sizes):
        assert {name: reason for name in names if (reason := expect_error(name))} == {}


@pytest.mark.parametrize("sizes", [name for name in SETS if name != "default"])
@pytest.mark.parametrize("name", ["t5.dynamo", "conformer.dynamo", "swin.dynamo"])
def test_results_are_the_same_whatever_sizes_are_tried(context: pumice.Context, sizes: str, name: str) -> None:
    from corpus import run

    pytest.importorskip("onnxruntime")
    stored = store.load(name)
    with tried(sizes), pumice.load(stored.model, context) as loaded:
        assert run.worst_error(stored, loaded, run.reference(stored.model)) <= run.tolerance(stored)
