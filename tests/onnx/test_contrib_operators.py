"""Operators of ONNX Runtime's own domain give what ONNX Runtime gives; what of them is not known is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def ids(*shape: int, below: int) -> Array:
    return np.random.default_rng(0).integers(0, below, shape).astype("int32")


class Case:
    """A node; arrays that are no inputs of the model are its constants. `outputs`: how many, or their names with gaps."""

    def __init__(
        self, op: str, inputs: dict[str, Array], constants: dict[str, Array], outputs: str = "y", **attributes: Any
    ) -> None:
        self.op = op
        self.inputs = inputs
        domain = attributes.pop("domain", DOMAIN)
        order = attributes.pop("order", [*inputs, *constants])
        names = outputs.split(",")
        node = helper.make_node(op, order, names, op.lower(), domain=domain, **attributes)
        graph = helper.make_graph(
            [node],
            "contrib",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, TensorProto.INT32 if name == "count" else TensorProto.FLOAT, None)
                for name in names
                if name
            ],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
        self.model = helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def __str__(self) -> str:
        return f"{self.op}-{','.join(self.model.graph.node[0].input)}-{len(self.model.graph.node[0].output)}"


W = 24
X = {"x": random(2, 5, W)}
SKIPPED = {"x": random(2, 5, W), "skip": random(2, 5, W, seed=1)}
NORM = {"gamma": random(W, seed=2), "beta": random(W, seed=3)}
TABLES = {"words": random(11, W), "places": random(9, W, seed=1), "kinds": random(2, W, seed=2)}
TOKENS = {"ids": ids(2, 5, below=11), "kind": ids(2, 5, below=2)}
EMBED = ["ids", "kind", "words", "places", "kinds", "gamma", "beta"]

CASES = [
    Case("Gelu", X, {}),
    Case("FastGelu", X, {}),
    Case("FastGelu", X, {"b": random(W, seed=1)}),
    Case("BiasGelu", X, {"b": random(W, seed=1)}),
    Case("QuickGelu", X, {}),
    Case("QuickGelu", X, {}, alpha=0.5),
    Case("FusedMatMul", X, {"w": random(W, 7)}, alpha=0.25),
    Case("FusedMatMul", X, {"w": random(7, W)}, transB=1),
    Case("FusedMatMul", {"a": random(3, 5, 4), "b": random(3, 6, 5)}, {}, transA=1, transB=1, alpha=2.0),
    Case("SkipLayerNormalization", SKIPPED, NORM, epsilon=1e-5),
    Case("SkipLayerNormalization", SKIPPED, {**NORM, "b": random(W, seed=4)}, "y,,,sum"),
    Case("SkipLayerNormalization", SKIPPED, NORM, "y,,,sum"),
    Case("SkipSimplifiedLayerNormalization", SKIPPED, {"gamma": NORM["gamma"]}, "y,,,sum", epsilon=1e-4),
    Case("SkipSimplifiedLayerNormalization", SKIPPED, {"gamma": NORM["gamma"], "b": random(W, seed=4)}),
    Case("SimplifiedLayerNormalization", X, {"gamma": NORM["gamma"]}, domain="", axis=-1, epsilon=1e-5),
    Case("EmbedLayerNormalization", TOKENS, {**TABLES, **NORM}, "y,", order=EMBED),
    Case(
        "EmbedLayerNormalization",
        {**TOKENS, "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")},
        {**TABLES, **NORM},
        "y,count,sum",
        order=[*EMBED, "mask"],
        epsilon=1e-5,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_as_onnx_runtime(case: Case, context: pumice.Context) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, case.inputs)
    given = pumice.load(case.model, context)(**case.inputs)
    for one, other in zip(given if isinstance(given, tuple) else [given], expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("FusedMatMul", X, {"w": random(W, 7)}, transBatchA=1), "transBatchA=1"),
        (Case("SkipLayerNormalization", SKIPPED, NORM, "y,mean"), "the output 'mean'"),
        (Case("QMoE", X, {}), "com.microsoft::QMoE"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value),
)
def test_what_is_not_known_is_refused_by_name(case: Case, reason: str, context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match=reason):
        pumice.load(case.model, context)


def test_operators_of_other_domains_are_not_taken_for_them(context: pumice.Context) -> None:
    case = Case("Gelu", X, {}, domain="elsewhere")
    case.model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    with pytest.raises(pumice.UnsupportedError, match="elsewhere::Gelu"):
        pumice.load(case.model, context)
