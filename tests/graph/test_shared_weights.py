"""Nodes that share weights, and names in the file that collide with names the engine chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice

Array = np.ndarray[Any, Any]
DEPTH, COLUMNS, BLOCK = 64, 24, 32


def model_of(nodes: list[onnx.NodeProto], outputs: list[str], constants: dict[str, Array]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "shared",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", DEPTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def product(inputs: list[str], output: str, bits: int, **attributes: Any) -> onnx.NodeProto:
    given = {"K": DEPTH, "N": COLUMNS, "bits": bits, "block_size": BLOCK, **attributes}
    return helper.make_node("MatMulNBits", inputs, [output], output, domain="com.microsoft", **given)


def quantised(bits: int) -> dict[str, Array]:
    random = np.random.default_rng(bits)
    blocks = DEPTH // BLOCK
    return {
        "b": random.integers(0, 256, (COLUMNS, blocks, BLOCK * bits // 8)).astype("uint8"),
        "s": random.uniform(0.01, 0.1, (COLUMNS, blocks)).astype("float32"),
        "t": random.uniform(0.01, 0.1, (COLUMNS, blocks)).astype("float32"),
        "z": random.integers(0, 256, (COLUMNS, -(-blocks * bits // 8))).astype("uint8"),
    }


def agree(proto: onnx.ModelProto, **inputs: Array) -> pumice.Model:
    """Return the model, after checking its results against ONNX Runtime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    model = pumice.Model(proto)
    made = model(**inputs)
    results = made if isinstance(made, tuple) else (made,)
    for name, one, other in zip((value.name for value in session.get_outputs()), results, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3 * np.abs(other).max(), err_msg=name)
    return model


@pytest.mark.parametrize("bits", [4, 8])
def test_nodes_that_share_a_quantised_matrix_hold_it_once(bits: int) -> None:
    nodes = [
        product(["x", "b", "s", "z"], "with_points", bits),
        product(["x", "b", "s"], "without", bits),
        product(["x", "b", "s", "z"], "again", bits),
        product(["x", "b", "t", "z"], "with_other_scales", bits),
    ]
    names = [node.output[0] for node in nodes]
    x = np.random.default_rng(0).standard_normal((2, DEPTH)).astype("float32")
    with agree(model_of(nodes[:1], names[:1], quantised(bits)), x=x) as one:
        alone = one.program.arena([[2, DEPTH]])["persistent_bytes"]
    with agree(model_of(nodes, names, quantised(bits)), x=x) as model:
        together = model.program.arena([[2, DEPTH]])["persistent_bytes"]
    assert together - alone < COLUMNS * DEPTH * bits // 8 + 3 * 1024, "the matrix is there once"


def test_embeddings_that_are_tied_to_a_quantised_matrix_read_the_same_bytes() -> None:
    """The embedding table gathers rows of the quantised weights."""
    rows = np.array([3, 0, 23])
    nodes = [
        product(["x", "b", "s"], "y", 8),
        helper.make_node("Reshape", ["b", "flat"], ["table"]),
        helper.make_node("Gather", ["table", "rows"], ["taken"]),
        helper.make_node("Cast", ["taken"], ["floats"], to=TensorProto.FLOAT),
    ]
    constants = {**quantised(8), "flat": np.array([COLUMNS, DEPTH]), "rows": rows}
    del constants["t"], constants["z"]
    x = np.random.default_rng(0).standard_normal((2, DEPTH)).astype("float32")
    agree(model_of(nodes, ["y", "floats"], constants), x=x).close()


def test_names_that_the_engine_would_choose_belong_to_the_file() -> None:
    """Extra constants of a node, helper nodes, and tensors derived from a weight matrix."""
    constants = {**quantised(4), **{f"constant_{i}": np.full((1,), i, "float32") for i in range(12)}}
    taken = [f"b as uint4[{COLUMNS}, {DEPTH}]", "b, zero points", *(f"y/MatMul.{i}" for i in range(6))]
    nodes = [product(["x", "b", "s"], "y", 4)]
    value = "y"
    for i, name in enumerate([*taken, *(f"y/Transpose.{i}:0" for i in range(6)), "constant_12", "constant_13"]):
        nodes.append(helper.make_node("Add", [value, f"constant_{i % 12}"], [name], name))
        value = name
    x = np.random.default_rng(0).standard_normal((2, DEPTH)).astype("float32")
    agree(model_of(nodes, [value], constants), x=x).close()


def test_a_constant_without_a_name_makes_way_for_a_given_name() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [2])
    first = graph.add("Add", x, np.array([1, 2], np.float32))
    chosen = [f"constant_{i}" for i in range(8)]
    inputs = [graph.input(name, "float32", [2]) for name in chosen]
    graph.output("y", graph.add("Sum", first, *inputs))
    with pytest.raises(pumice.GraphError, match="another value has this name"):
        graph.input("constant_3", "float32", [2])
    with graph.compile(pumice.Context()) as program:
        values = {name: np.full(2, 10, np.float32) for name in chosen}
        made = program({"x": np.zeros(2, np.float32), **values})["y"]
    np.testing.assert_array_equal(made, np.array([81, 82], np.float32))
