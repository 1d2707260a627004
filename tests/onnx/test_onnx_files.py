"""Files as exporters write them: external weights, functions, odd names, wrong shapes. Checks results as well as imports."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pumice
from onnx_models import gemm, model, node, subgraph, value
from tensor_arrays import waves

Array = np.ndarray[Any, Any]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def check(proto: onnx.ModelProto, *inputs: Array, rtol: float = 1e-5) -> list[Array]:
    """Check the model's results against the reference, and return them."""
    x = inputs or (waves(3, 4),)
    names = [value.name for value in proto.graph.input]
    wanted = ReferenceEvaluator(proto).run(None, dict(zip(names, x, strict=False)))
    given = pumice.load(proto)(*x)
    results = list(given) if isinstance(given, tuple) else [given]
    for ours, theirs in zip(results, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-6)
        assert ours.dtype == theirs.dtype
    return results


# ---- functions


def local(name: str, body: list[Any], inputs: list[str], outputs: list[str], **more: Any) -> onnx.FunctionProto:
    opsets = more.pop("opsets", {"": 17, "local": 1})
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_function("local", name, inputs, outputs, body, imports, **more)


def with_functions(nodes: list[Any], *functions: onnx.FunctionProto, **more: Any) -> onnx.ModelProto:
    made = model(nodes, **more)
    made.functions.extend(functions)
    made.opset_import.append(helper.make_opsetid("local", 1))
    return made


def leaky() -> onnx.FunctionProto:
    """A function with an attribute that has a default value."""
    inner = node("LeakyRelu", ["a"], ["b"])
    inner.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    return local("Leaky", [inner], ["a"], ["b"], attribute_protos=[helper.make_attribute("slope", 0.25)])


def test_functions_in_functions_with_attributes_given_and_not() -> None:
    outer = local("Both", [node("Leaky", ["a"], ["c"], domain="local"), node("Add", ["c", "a"], ["b"])], ["a"], ["b"])
    nodes = [
        node("Both", ["x"], ["t"], domain="local"),
        node("Leaky", ["t"], ["y"], domain="local", slope=0.5),
    ]
    for order in (slice(None), slice(None, None, -1)):
        x = waves(3, 4)
        inner = np.where(x < 0, x * np.float32(0.25), x) + x
        given = pumice.load(with_functions(nodes, *[leaky(), outer][order]))(x)
        np.testing.assert_allclose(given, np.where(inner < 0, inner * np.float32(0.5), inner), rtol=1e-6)


def test_a_function_that_is_called_in_a_branch_and_has_one_itself() -> None:
    branches = [subgraph([node(op, ["a"], [f"{op}.o"])], [], [value(f"{op}.o", None)]) for op in ("Neg", "Abs")]
    chosen = local(
        "Chosen",
        [
            node(
                "If",
                [
                    "c",
                ],
                ["b"],
                then_branch=branches[0],
                else_branch=branches[1],
            )
        ],
        ["c", "a"],
        ["b"],
    )
    call = subgraph([node("Chosen", ["c", "x"], ["z"], domain="local")], [], [value("z", None)])
    other = subgraph([node("Identity", ["x"], ["z2"])], [], [value("z2", None)])
    proto = with_functions(
        [node("If", ["c"], ["y"], then_branch=call, else_branch=other)],
        chosen,
        inputs=[value("c", [], BOOL), value("x")],
    )
    for condition in (True, False):
        check(proto, np.array(condition), waves(3, 4))


def test_functions_of_one_name_distinguished_by_their_overload() -> None:
    nodes = [node("Twice", ["x"], ["t"], domain="local"), node("Twice", ["t"], ["y"], domain="local")]
    functions = []
    for call, op, overload in zip(nodes, ("Add", "Mul"), ("sum", "product"), strict=True):
        call.overload = overload
        functions.append(local("Twice", [node(op, ["a", "a"], ["b"])], ["a"], ["b"], overload=overload))
    np.testing.assert_allclose(
        pumice.load(with_functions(nodes, *functions))(waves(3, 4)), (2 * waves(3, 4)) ** 2, rtol=1e-6
    )


def test_a_function_with_an_operator_set_of_its_own() -> None:
    """ReduceSum of opset 11 has its axes as an attribute."""
    old = local("Total", [node("ReduceSum", ["a"], ["b"], axes=[1])], ["a"], ["b"], opsets={"": 11})
    try:
        loaded = pumice.load(with_functions([node("Total", ["x"], ["y"], domain="local")], old))
    except pumice.Error as error:
        assert "Total" in str(error) or "operator set" in str(error) or "version" in str(error)
    else:
        np.testing.assert_allclose(loaded(waves(3, 4)), waves(3, 4).sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("through", [False, True])
def test_a_function_that_calls_itself_is_rejected(through: bool) -> None:
    one = local("One", [node("Two" if through else "One", ["a"], ["b"], domain="local")], ["a"], ["b"])
    two = local("Two", [node("One", ["a"], ["b"], domain="local")], ["a"], ["b"])
    with pytest.raises(pumice.GraphError, match="functions"):
        pumice.load(with_functions([node("One", ["x"], ["y"], domain="local")], one, two))


# ---- quirks of exporters


def test_inputs_that_are_outputs_and_constants_that_are() -> None:
    proto = model([node("Relu")], outputs=["x", "y", "k"], constants={"k": waves(2, 3)})
    given = pumice.load(proto)(waves(3, 4))
    for ours, theirs in zip(given, (waves(3, 4), np.maximum(waves(3, 4), 0), waves(2, 3)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_model_of_constants_alone() -> None:
    proto = model([node("Add", ["k", "k"], ["y"])], constants={"k": waves(2, 3)})
    del proto.graph.input[:]
    np.testing.assert_array_equal(pumice.load(proto)(), waves(2, 3) * 2)
    constant = node("Constant", [], ["y"], value=numpy_helper.from_array(waves(2, 3)))
    alone = model([constant])
    del alone.graph.input[:]
    np.testing.assert_array_equal(pumice.load(alone)(), waves(2, 3))


def test_shapes_of_outputs_that_are_wrong_or_missing_do_not_matter() -> None:
    for shape in ([0, 0], [7], [9, 9, 9], None, ["a", "a"], [-1, 4]):
        proto = model([node("Relu", ["x"], ["h"]), node("Neg", ["h"], ["y"])])
        del proto.graph.output[:]
        proto.graph.output.append(value("y", shape))
        proto.graph.value_info.append(value("h", [5, 5, 5], INT64))
        np.testing.assert_array_equal(pumice.load(proto)(waves(3, 4)), -np.maximum(waves(3, 4), 0))


def test_sizes_of_inputs_that_are_0_are_unknown_ones() -> None:
    loaded = pumice.load(model([node("Relu")], [value("x", [0, 4])]))
    np.testing.assert_array_equal(loaded(waves(3, 4)), np.maximum(waves(3, 4), 0))


def test_foreign_domains_that_nothing_uses() -> None:
    proto = model([node("Wobble", ["x"], ["unused"], domain="com.example"), node("Relu")])
    proto.opset_import.extend([helper.make_opsetid("com.example", 1), helper.make_opsetid("ai.onnx.ml", 3)])
    proto.opset_import.append(helper.make_opsetid("", 13))  # listed twice: the newer version counts
    np.testing.assert_array_equal(pumice.load(proto)(waves(3, 4)), np.maximum(waves(3, 4), 0))


@pytest.mark.parametrize(
    "name", ["\u00e9/\u4e2d:0", "onnx::Relu_3", "n" * 3000, "a b\tc", "%s{}", "constant_0", "value_1"]
)
def test_names_of_all_kinds(name: str) -> None:
    nodes = [node("Relu", [name], [f"{name}.h"], name=name), node("Add", [f"{name}.h", f"{name}.k"], ["y"], name=name)]
    proto = model(nodes, [value(name)], outputs=["y"], constants={f"{name}.k": waves(4)})
    np.testing.assert_allclose(
        pumice.load(proto)(**{name: waves(3, 4)}), np.maximum(waves(3, 4), 0) + waves(4), rtol=1e-6
    )


def test_names_of_subgraphs_may_be_those_of_other_subgraphs() -> None:
    branches = [
        subgraph(
            [node("Mul", ["x", "k"], ["t"]), node(op, ["t"], ["r"])],
            [],
            [value("r", None)],
            k=np.array(factor, np.float32),
        )
        for op, factor in (("Neg", 2.0), ("Abs", 3.0))
    ]
    inputs = [value("c", [], BOOL), value("x")]
    nodes = [
        node("If", ["c"], ["first"], then_branch=branches[0], else_branch=branches[1]),
        node("If", ["c"], ["second"], then_branch=branches[1], else_branch=branches[0]),
        node("Sub", ["first", "second"], ["y"]),
    ]
    for condition in (True, False):
        check(model(nodes, inputs), np.array(condition), waves(3, 4))


def test_a_subgraph_that_hides_a_value_around_it() -> None:
    """ONNX does not allow this, but such files exist."""
    inner = subgraph([node("Neg", ["x"], ["h"]), node("Abs", ["h"], ["r"])], [], [value("r", None)])
    other = subgraph([node("Identity", ["x"], ["r"])], [], [value("r", None)])
    nodes = [
        node("Exp", ["x"], ["h"]),
        node("If", ["c"], ["t"], then_branch=inner, else_branch=other),
        node("Add", ["t", "h"], ["y"]),
    ]
    loaded = pumice.load(model(nodes, [value("c", [], BOOL), value("x")]))
    np.testing.assert_allclose(loaded(np.array(True), waves(3, 4)), abs(waves(3, 4)) + np.exp(waves(3, 4)), rtol=1e-5)


def sparse(indices: Any, *shape: int) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "k")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices), "i"), shape)


@pytest.mark.parametrize(("indices", "shape"), [([1, 6], (2, 4)), ([[0, 1], [1, 2]], (2, 4)), ([1, 3], (4,))])
def test_sparse_tensors(indices: Any, shape: tuple[int, ...]) -> None:
    dense = np.zeros(shape, np.float32)
    dense.ravel()[[1, 6 if len(shape) > 1 else 3]] = 2, 3
    proto = model([node("Add", ["x", "k"])], [value("x", [2, 4])], sparse_initializer=[sparse(indices, *shape)])
    constant = node("Constant", [], ["k"], sparse_value=sparse(indices, *shape))
    for one in (proto, model([constant, node("Add", ["x", "k"])], [value("x", [2, 4])])):
        np.testing.assert_array_equal(pumice.load(one)(np.zeros((2, 4), np.float32)), dense + np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("indices", "shape"),
    [([1, 8], (2, 4)), ([[0, 4], [1, 2]], (2, 4)), ([-1, 3], (4,)), ([1], (4,)), ([0, 1], (-1, 4))],
)
def test_wrong_sparse_tensors(indices: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(pumice.GraphError, match="tensor 'k'"):
        pumice.load(model([node("Add", ["x", "k"])], sparse_initializer=[sparse(indices, *shape)]))


def test_optional_inputs_left_out_in_the_middle() -> None:
    check(model([node("Clip", ["x", "", "hi"], ["y"])], constants={"hi": np.array(0.25, np.float32)}))


LEFT_OUT: dict[str, onnx.NodeProto] = {
    "GRU": node("GRU", ["x", "w", "r"], ["", "y"], hidden_size=3),
    "LSTM": node("LSTM", ["x", "w4", "r4"], ["", "", "y"], hidden_size=3),
    "TopK": node("TopK", ["x", "k"], ["", "y"]),
    "DynamicQuantizeLinear": node("DynamicQuantizeLinear", ["x"], ["", "y"]),
    "LayerNormalization": node("LayerNormalization", ["x", "scale"], ["", "y"]),
    "Split": node("Split", ["x"], ["", "y"], axis=2, num_outputs=2),
    "Split, unread": node("Split", ["x"], ["a", "y"], axis=2, num_outputs=2),
    "Split, uneven": node("Split", ["x"], ["a", "b", "y"], axis=2, num_outputs=3),
    "Split, told": node("Split", ["x", "parts"], ["a", "y", "b"], axis=2),
}


@pytest.mark.parametrize("op", LEFT_OUT)
def test_results_before_others_may_be_left_out(op: str) -> None:
    """The model has another node, none of whose outputs are used."""
    weights = {
        "w": waves(1, 9, 5),
        "r": waves(1, 9, 3),
        "w4": waves(1, 12, 5),
        "r4": waves(1, 12, 3),
        "scale": waves(5),
    }
    weights |= {"k": np.array([2]), "parts": np.array([1, 3, 1])}
    weights |= {"s": np.array(0.5, np.float32), "z": np.array(3, np.uint8)}
    unread = node("QuantizeLinear", ["x", "s", "z"], [""])
    check(model([LEFT_OUT[op], unread], [value("x", [2, 3, 5])], constants=weights, opset=18), waves(2, 3, 5))


@pytest.mark.parametrize("version", [3, 4, 7, 10, 13, 99])
def test_versions_of_the_format(version: int) -> None:
    proto = model([node("Relu")])
    proto.ir_version = version
    np.testing.assert_array_equal(pumice.load(proto)(waves(3, 4)), np.maximum(waves(3, 4), 0))


def test_what_is_said_of_training_and_of_the_model_is_left_alone() -> None:
    proto = gemm()
    proto.training_info.add().algorithm.node.append(node("Wobble"))
    helper.set_model_props(proto, {"license": "MIT"})
    proto.doc_string = "text"
    for _ in range(2):  # the second load hits the cache
        loaded = pumice.load(proto.SerializeToString())
        assert loaded(waves(3, 4)).y.shape == (3, 3)
        assert loaded.metadata == {"license": "MIT"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("raw", [True, False])
def test_weights_of_16_bits(dtype: str, raw: bool) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    number = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[dtype]
    weights = waves(4, 300).astype(dtype if dtype == "float16" else ml_dtypes.bfloat16)
    tensor = TensorProto(name="w", data_type=number, dims=weights.shape)
    if raw:
        tensor.raw_data = weights.tobytes()
    else:
        tensor.int32_data.extend(weights.view(np.uint16).ravel().tolist())
    proto = model([node("Cast", ["w"], ["f"], to=FLOAT), node("MatMul", ["x", "f"], ["y"])])
    proto.graph.initializer.append(tensor)
    result = pumice.load(proto.SerializeToString())(waves(3, 4))
    np.testing.assert_allclose(result, waves(3, 4) @ weights.astype(np.float32), rtol=1e-4, atol=1e-5)
