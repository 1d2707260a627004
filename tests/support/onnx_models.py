"""Small ONNX models for tests, built with the onnx package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

import pumice
from pumice.base.element_types import array_from_bytes
from pumice.importer.file.graph_recipe import GraphRecipe
from pumice.importer.file.model_file import ModelFile
from pumice.importer.parse_onnx import make_recipe, parse_model

Shape = Sequence[int | str | None] | None


def value(name: str, shape: Shape = ("N", 4), dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[str] = ("y",),
    constants: dict[str, npt.NDArray[Any]] | None = None,
    opset: int = 17,
    **graph: Any,
) -> onnx.ModelProto:
    """Return a model of these nodes. It is not checked, because tests also build invalid ones."""
    result = helper.make_graph(
        list(nodes),
        "small",
        list(inputs or [value("x")]),
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
        **graph,
    )
    return helper.make_model(result, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op: str, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), **attributes: Any) -> onnx.NodeProto:
    attributes.setdefault("name", f"{op.lower()}.{'.'.join(outputs)}")
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def relu() -> onnx.ModelProto:
    return model([node("Relu")])


def gemm() -> onnx.ModelProto:
    """x [N, 4] -> relu(x w + b) [N, 3], and the input of the relu."""
    random = np.random.default_rng(3)
    weights = {
        "w": random.standard_normal((4, 3)).astype(np.float32),
        "b": random.standard_normal(3).astype(np.float32),
    }
    return model(
        [node("Gemm", ["x", "w", "b"], ["sum"]), node("Relu", ["sum"], ["y"])], outputs=["y", "sum"], constants=weights
    )


def subgraph(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    **constants: np.ndarray[Any, Any],
) -> onnx.GraphProto:
    """Return the body of an If, Loop or Scan."""
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    return helper.make_graph(nodes, "subgraph", inputs, outputs, initializers)


def results_of(case: Any, context: pumice.Context) -> Iterator[tuple[Any, Any]]:
    """Yield each output of an ONNX node test with its expected value."""
    loaded = pumice.load(case.model, context)
    for inputs, outputs in case.data_sets:
        results = loaded(*inputs)
        yield from zip([results] if len(loaded.outputs) == 1 else results, outputs, strict=True)


def check_standard(case: Any, context: pumice.Context) -> None:
    """Check every output of an ONNX node test against its expected value."""
    for result, expected in results_of(case, context):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=case.rtol, atol=case.atol)


def recipe(proto: onnx.ModelProto) -> GraphRecipe:
    """Return the importer's GraphRecipe of a model."""
    file = ModelFile(proto)
    return make_recipe(parse_model(file), file)


def constant(recipe: GraphRecipe, name: str) -> np.ndarray[Any, Any]:
    """Return the elements of a GraphRecipe's constant."""
    found = recipe.constants[name]
    return array_from_bytes(found.raw, found.dtype, found.shape)


def cast_at_boundaries() -> tuple[onnx.ModelProto, npt.NDArray[np.float32]]:
    """Return a cast to integers of values that rounding may push across an integer, and its input."""
    nodes = [
        node("Mul", ["x", "k"], ["a"], name="mul"),
        node("Cast", ["a"], ["b"], name="cast", to=TensorProto.INT64),
        node("Cast", ["b"], ["c"], name="back", to=TensorProto.FLOAT),
        node("Mul", ["c", "k"], name="last"),
    ]
    proto = model(nodes, constants={"k": np.array(3.3, np.float32)})
    return proto, (np.arange(40, dtype=np.float32).reshape(10, 4) - 20) / np.float32(3.3)
