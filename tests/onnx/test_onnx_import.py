"""The importer on valid and invalid ONNX files. Needs no device."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from onnx_models import constant, gemm, model, node, recipe, relu, value
from pumice.importer.file.graph_recipe import ConstantRecipe
from pumice.importer.file.model_file import ModelFile
from pumice.importer.load_graph import load_graph
from pumice.importer.parse_onnx import make_recipe, parse_model
from pumice.onnx import import_graph
from tensor_arrays import NUMPY_DTYPES

FLOAT = np.float32


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMICE_NO_CACHE", "1")


# ---- not an ONNX model


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "an empty file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "ONNX model"),
        (b"hello world, this is no model at all", "ONNX model"),
        (b"PK\x03\x04" + bytes(64), "ONNX model"),
        (b"\x08\x08", "no graph"),
        (bytes(1 << 20), "ONNX model"),
        (b"\x3a\xff\xff\xff\xff\x0f", "ONNX model"),
    ],
)
def test_bytes_that_are_no_model_are_rejected(data: bytes, reason: str) -> None:
    with pytest.raises(pumice.GraphError, match=reason):
        import_graph(data)


def with_length(data: bytes) -> bytes:
    """Prefix the bytes with their length, in protobuf encoding."""
    length, coded = len(data), b""
    while length > 127:
        coded += bytes([length & 127 | 128])
        length >>= 7
    return coded + bytes([length]) + data


def test_deeply_nested_bytes_are_rejected() -> None:
    graph_of_attribute, attribute_of_node, node_of_graph, graph_of_model = b"\x32", b"\x2a", b"\x0a", b"\x3a"
    data = b""
    for _ in range(100):
        for field in (node_of_graph, graph_of_attribute, attribute_of_node):
            data = field + with_length(data)
    with pytest.raises(pumice.GraphError, match="ONNX model"):
        import_graph(graph_of_model + with_length(node_of_graph + with_length(data)))


def test_names_that_are_no_text_are_rejected() -> None:
    data = gemm().SerializeToString()
    for name in (b"gemm.sum", b"Gemm", b"small", b"Relu"):
        assert data.count(name) >= 1
        with pytest.raises(pumice.GraphError, match="UTF-8"):
            import_graph(data.replace(name, b"\xff" + name[1:]))


def test_every_truncation_is_rejected() -> None:
    data = gemm().SerializeToString()
    for length in range(len(data) - 1):
        with pytest.raises((pumice.GraphError, pumice.UnsupportedError)):
            import_graph(data[:length])
    import_graph(data)


def test_damaged_files_raise_nothing_but_our_errors() -> None:
    data = gemm().SerializeToString()
    generator = random.Random(5)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 8)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            import_graph(bytes(damaged))
        except pumice.Error:
            continue


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.onnx"):
        import_graph(tmp_path / "absent.onnx")


def test_what_is_no_source_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="path, bytes, a file object or a ModelProto, not int"):
        import_graph(7)  # type: ignore[arg-type]


def test_paths_bytes_and_protos_are_the_same(tmp_path: Path) -> None:
    proto = gemm()
    path = tmp_path / "gemm.onnx"
    onnx.save(proto, path)
    data = proto.SerializeToString()
    for source in (path, str(path), data, bytearray(data), memoryview(data), proto):
        file = ModelFile(source)
        made = make_recipe(parse_model(file), file)
        assert [n.op for n in made.nodes] == ["Gemm", "Relu"]
        assert constant(made, "w").shape == (4, 3)


# ---- broken rules


def duplicated_attribute() -> onnx.ModelProto:
    leaky = node("LeakyRelu", alpha=0.1)
    leaky.attribute.append(helper.make_attribute("alpha", 0.2))
    return model([leaky])


def kindless_attribute() -> onnx.ModelProto:
    leaky = node("LeakyRelu")
    leaky.attribute.append(onnx.AttributeProto(name="alpha", f=0.5))
    return model([leaky])


def bad_text() -> onnx.ModelProto:
    pool = node("MaxPool", kernel_shape=[2])
    pool.attribute.append(onnx.AttributeProto(name="auto_pad", s=b"\xff\xfe", type=onnx.AttributeProto.STRING))
    return model([pool])


def short_tensor() -> onnx.ModelProto:
    proto = gemm()
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:-4]
    return proto


def negative_size() -> onnx.ModelProto:
    proto = gemm()
    proto.graph.initializer[0].dims[0] = -4
    return proto


def huge_size() -> onnx.ModelProto:
    proto = gemm()
    proto.graph.initializer[0].dims[0] = 1 << 62
    return proto


def short_field() -> onnx.ModelProto:
    proto = gemm()
    tensor = proto.graph.initializer[1]
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0, 2.0])
    return proto


def no_opset() -> onnx.ModelProto:
    proto = relu()
    del proto.opset_import[:]
    return proto


def typeless_input() -> onnx.ModelProto:
    return model([node("Relu")], [onnx.ValueInfoProto(name="x")])


BROKEN: dict[str, tuple[onnx.ModelProto, str, str]] = {
    # Each key names the error; the values are (model, name in .node, text in the message).
    "no opset": (no_opset(), "model", "operator set"),
    "no output": (model([node("Relu")], outputs=[]), "model", "at least one output"),
    "unknown output": (model([node("Relu")], outputs=["z"]), "z", "given 'z'"),
    "output twice": (model([node("Relu")], outputs=["y", "y"]), "y", "twice"),
    "unknown input": (model([node("Add", ["x", "ghost"])]), "add.y", "given 'ghost'"),
    "input twice": (model([node("Relu")], [value("x"), value("x")]), "x", "twice"),
    "input without a name": (model([node("Relu")], [value("x"), value("")]), "", "no name"),
    "input without a type": (typeless_input(), "x", "element type"),
    "node without an operator": (model([node("", name="nameless")]), "nameless", "no operator"),
    "made twice": (model([node("Relu", name="one"), node("Tanh", name="two")]), "two", "node 'one' also produces"),
    "makes an input": (model([node("Relu", ["x"], ["x"])], outputs=["x"]), "relu.x", "an input or an initializer"),
    "makes a constant": (
        model([node("Relu", ["x"], ["w"])], outputs=["w"], constants={"w": np.ones(4, FLOAT)}),
        "relu.w",
        "an input or an initializer",
    ),
    "cycle": (
        model([node("Add", ["x", "b"], ["a"], name="one"), node("Relu", ["a"], ["b"], name="two")], outputs=["b"]),
        "one",
        "one <- two <- one",
    ),
    "own input": (model([node("Add", ["x", "y"], ["y"], name="self")]), "self", "self <- self"),
    "too few inputs": (
        model([node("SequenceAt", ["x"], ["y"], name="at")]),
        "at",
        "expected position as input 1, given",
    ),
    "too many inputs": (
        model([node("OptionalHasElement", ["x", "x"], ["y"])]),
        "optionalhaselement.y",
        "at most 1 inputs, given",
    ),
    "a gap in place of an input": (
        model([node("SequenceInsert", ["", "x"], ["y"])]),
        "sequenceinsert.y",
        "input_sequence as input 0",
    ),
    "attribute twice": (duplicated_attribute(), "leakyrelu.y", "'alpha' is given twice"),
    "attribute without a kind": (kindless_attribute(), "leakyrelu.y", "kind"),
    "attribute not in UTF-8": (bad_text(), "maxpool.y", "UTF-8"),
    "tensor too short": (short_tensor(), "w", r"48 bytes for float32\[4, 3\], given 44"),
    "tensor of negative size": (negative_size(), "w", r"given \[-4, 3\]"),
    "tensor of huge size": (huge_size(), "w", "2\\*\\*40"),
    "tensor field too short": (short_field(), "b", "expected 3 elements in float_data, given 2"),
    "Constant without a value": (
        model([node("Constant", [], ["c"]), node("Add", ["x", "c"])]),
        "constant.c",
        "one attribute",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_named(case: str) -> None:
    proto, name, text = BROKEN[case]
    with pytest.raises(pumice.GraphError, match=text) as caught:
        import_graph(proto.SerializeToString())
    assert caught.value.node == name


def test_an_initializer_given_twice_is_rejected() -> None:
    proto = gemm()
    proto.graph.initializer.append(proto.graph.initializer[0])
    with pytest.raises(pumice.GraphError, match="initializer 'w': is given twice"):
        import_graph(proto)


# ---- unsupported


def subgraph() -> onnx.GraphProto:
    return helper.make_graph([node("Wobble", ["x"], ["z"], name="inside")], "branch", [], [value("z")])


def test_all_that_is_unsupported_is_listed_at_once() -> None:
    condition = value("c", [], TensorProto.BOOL)
    numbers = value("s", [2], TensorProto.COMPLEX128)
    proto = model(
        [
            node("Wobble", ["x"], ["a"], name="first"),
            node("Relu", ["a"], ["b"], name="fine"),
            node("If", ["c"], ["d"], name="branching", then_branch=subgraph(), else_branch=subgraph()),
            node("Gelu", ["b"], ["e"], name="foreign", domain="com.example"),
            node("Add", ["e", "z8"], ["g"], name="complex"),
            node("Sum", ["g", "d"], ["y"], name="last_of_all"),
        ],
        [value("x"), condition, numbers],
    )
    z8 = onnx.TensorProto(name="z8", data_type=TensorProto.COMPLEX64, dims=[1], raw_data=b"\0" * 8)
    proto.graph.initializer.append(z8)
    with pytest.raises(pumice.UnsupportedError) as caught:
        import_graph(proto)
    items = caught.value.items
    expected = (
        "'first'.*Wobble",
        "'branching.then_branch/inside'.*Wobble",
        "'branching.else_branch/inside'.*Wobble",
        "'foreign'.*com.example::Gelu",
        "'s'.*complex128",
        "'z8'.*complex64",
    )
    for pattern in expected:
        assert [item for item in items if re.search(pattern, item)], (pattern, items)
    assert not [item for item in items if "'fine'" in item]
    assert all(item in str(caught.value) for item in items)
    assert isinstance(caught.value, NotImplementedError)


def test_a_newer_operator_set_than_known_is_unsupported() -> None:
    with pytest.raises(pumice.UnsupportedError, match="operator set 999"):
        import_graph(model([node("Relu")], opset=999))


@pytest.mark.parametrize("version", [1 << 40, -1, 0, (1 << 63) - 1])
def test_numbers_that_are_no_operator_set(version: int) -> None:
    condition = value("c", [], TensorProto.BOOL)
    fine = helper.make_graph([node("Relu", ["x"], ["z"])], "branch", [], [value("z")])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=fine, else_branch=fine)], [condition, value("x")], opset=version
    )
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", version))
    proto.graph.node.append(node("Wobble", ["y"], ["w"], domain="ai.onnx.ml"))
    with pytest.raises(pumice.UnsupportedError, match="operator set"):
        import_graph(proto)


def test_an_operator_set_too_old_is_rejected_with_all_else() -> None:
    with pytest.raises(pumice.UnsupportedError, match=r"operator set 0 \(supported: 1") as caught:
        import_graph(model([node("Wobble")], opset=0))
    assert len(caught.value.items) == 2


def test_a_foreign_domain_alone_needs_no_operator_set_of_onnx() -> None:
    proto = model([node("Adam", domain="ai.onnx.preview.training")])
    proto.opset_import[0].domain = "ai.onnx.preview.training"
    with pytest.raises(pumice.UnsupportedError, match="training::Adam"):
        import_graph(proto)


def test_maps_and_large_sparse_tensors_are_unsupported() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    mapped = helper.make_value_info("m", helper.make_map_type_proto(TensorProto.INT64, tensor))
    values = numpy_helper.from_array(np.ones(1, FLOAT), "sparse")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64), "i"), [1 << 30])
    proto = model([node("Add", ["x", "sparse"])], [value("x"), mapped], sparse_initializer=[sparse])
    with pytest.raises(pumice.UnsupportedError) as caught:
        import_graph(proto)
    assert len(caught.value.items) == 2
    assert "map" in caught.value.items[0]
    assert "sparse" in caught.value.items[1]


def test_what_no_output_needs_does_not_matter() -> None:
    proto = model([node("Wobble", ["x"], ["unused"]), node("Relu")])
    proto.graph.initializer.append(onnx.TensorProto(name="text", data_type=TensorProto.STRING, dims=[0]))
    assert [n.op for n in recipe(proto).nodes] == ["Relu"]
    import_graph(proto)


# ---- imported values


def test_nodes_out_of_order_are_sorted() -> None:
    made = recipe(model([node("Relu", ["b"], ["y"]), node("Tanh", ["a"], ["b"]), node("Tanh", ["x"], ["a"])]))
    assert [n.outputs for n in made.nodes] == [["a"], ["b"], ["y"]]


def test_names_are_made_where_there_are_none_and_made_unique() -> None:
    nodes = [node("Relu", ["x"], ["a"], name=""), node("Relu", ["a"], ["b"], name="r"), node("Relu", ["b"], name="r")]
    assert [n.name for n in recipe(model(nodes)).nodes] == ["Relu_0", "r", "r#2"]


def test_an_initializer_that_is_also_an_input_is_a_constant() -> None:
    proto = gemm()
    proto.graph.input.append(value("w", [4, 3]))
    made = recipe(proto)
    assert [v.name for v in made.inputs] == ["x"]
    assert "w" in made.constants


def test_symbolic_sizes_keep_their_names() -> None:
    made = recipe(model([node("Relu")], [value("x", ["N", 3, None, "W"])]))
    assert made.inputs[0].shape == [None, 3, None, None]
    assert made.inputs[0].dimension_names == ["N", "", "", "W"]


def test_an_input_of_unknown_rank_has_no_shape() -> None:
    assert recipe(model([node("Relu")], [value("x", None)])).inputs[0].shape is None


def test_attributes_are_converted_by_their_kind() -> None:
    tensor = numpy_helper.from_array(np.array([7], np.int64), "seven")
    given = {"f": 0.5, "i": -3, "s": "text", "fs": [1.0, 2.0], "is": [1, 2], "ss": ["a", "b"], "t": tensor}
    attributes = recipe(model([node("Wobble", **given)])).nodes[0].attributes
    attached = attributes.pop("t")
    assert isinstance(attached, ConstantRecipe)
    assert (attached.dtype, attached.shape, bytes(attached.raw)) == ("int64", [1], np.int64(7).tobytes())
    assert attributes == {key: given[key] for key in given if key != "t"}
    assert [type(item) for item in attributes["fs"]] == [float, float]  # type: ignore[union-attr]


def test_optional_inputs_and_outputs_left_out_stay_gaps() -> None:
    made = recipe(model([node("Wobble", ["x", "", "x", "", ""], ["y", "", "z", ""])], outputs=["y", "z"]))
    assert made.nodes[0].inputs == ["x", "", "x"]
    assert made.nodes[0].outputs == ["y", "", "z"]


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value": numpy_helper.from_array(np.array([[1, 2]], np.int8))}, np.array([[1, 2]], np.int8)),
        ({"value_float": 0.25}, np.array(0.25, FLOAT)),
        ({"value_floats": [0.25, 1.0]}, np.array([0.25, 1], FLOAT)),
        ({"value_int": 3}, np.array(3, np.int64)),
        ({"value_ints": [3, 4]}, np.array([3, 4], np.int64)),
    ],
)
def test_constant_nodes_are_constants(attribute: dict[str, Any], expected: np.ndarray[Any, Any]) -> None:
    made = recipe(model([node("Constant", [], ["c"], **attribute), node("Wobble", ["x", "c"])]))
    assert [n.op for n in made.nodes] == ["Wobble"]
    np.testing.assert_array_equal(constant(made, "c"), expected, strict=True)


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "field"])
@pytest.mark.parametrize("dtype", [*NUMPY_DTYPES, "bfloat16", "int4", "uint4"])
def test_every_element_type_is_read_right(dtype: str, raw: bool) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    numbers = np.array([[0, 1, 1], [0, 1, 0]]) if dtype == "bool" else np.array([[0, 1, 7], [3, 5, 6]])
    if dtype.startswith(("int", "float", "bfloat")):
        numbers = numbers - 4
    array = numbers.astype(getattr(ml_dtypes, dtype) if dtype in ("bfloat16", "int4", "uint4") else dtype)
    onnx_type = getattr(TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper()))
    packed = array.tobytes()
    if dtype in ("int4", "uint4"):
        nibbles = numbers.ravel() & 15
        packed = (nibbles[::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()
    if raw:
        tensor = onnx.TensorProto(data_type=onnx_type, dims=[2, 3], raw_data=packed)
    elif dtype in ("int4", "uint4"):
        tensor = onnx.TensorProto(data_type=onnx_type, dims=[2, 3], int32_data=list(packed))
    elif dtype in ("bfloat16", "float16"):
        tensor = onnx.TensorProto(data_type=onnx_type, dims=[2, 3], int32_data=array.view(np.uint16).ravel().tolist())
    else:
        tensor = helper.make_tensor("w", onnx_type, [2, 3], array.ravel().tolist())
    tensor.name = "w"
    proto = model([node("Wobble", ["x", "w"])])
    proto.graph.initializer.append(tensor)
    np.testing.assert_array_equal(constant(recipe(proto), "w"), array, strict=True)


def test_functions_of_the_file_are_expanded() -> None:
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    proto = model([node("Twice", domain="local")])
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    assert [n.op for n in recipe(proto).nodes] == ["Add"]


def test_graphs_of_the_engine_have_the_models_values(tmp_path: Path) -> None:
    onnx.save(gemm(), tmp_path / "gemm.onnx")
    graph, made = load_graph(tmp_path / "gemm.onnx")
    assert isinstance(graph, pumice.Graph)
    assert [v.name for v in made.outputs] == ["y", "sum"]
