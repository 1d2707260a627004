"""Single-node models of ONNX Runtime's domain com.microsoft, and arrays for them."""

from __future__ import annotations

from collections.abc import Callable
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
    """A node; arrays that are not model inputs are constants. `outputs`: the count, or names with gaps.

    reference: function of the inputs that returns the output, for an operator that ONNX Runtime lacks.
    """

    def __init__(
        self,
        op: str,
        inputs: dict[str, Array],
        constants: dict[str, Array],
        outputs: str = "y",
        reference: Callable[..., Array] | None = None,
        **attributes: Any,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.reference = reference
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

    def expected(self) -> list[Array]:
        """Return the outputs of `reference`, by default of ONNX Runtime."""
        if self.reference:
            return [self.reference(**self.inputs)]
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(self.model.SerializeToString(), providers=["CPUExecutionProvider"])
        return list(session.run(None, self.inputs))

    def __str__(self) -> str:
        return f"{self.op}-{','.join(self.model.graph.node[0].input)}-{len(self.model.graph.node[0].output)}"


def expect_error(case: Case, reason: str, context: pumice.Context) -> None:
    """Check that the model is rejected with a reason that names what is unsupported."""
    with pytest.raises(pumice.UnsupportedError, match=reason):
        pumice.load(case.model, context)
