"""ONNX Runtime sessions whose integer matrix products are exact on every processor.

Without VNNI, its uint8 x int8 products add pairs in 16 bits with saturation: 255 * 127 * 2 becomes 32767. Its uint8 x uint8 products do
not, so the second operand is converted to uint8 by adding 128 to it and to its zero point.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SECOND_FACTORS = {  # operator: input indices of the second operand and its zero point
    "ConvInteger": (1, 3),
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulInteger": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
    "QGemm": (3, 5),
    "QLinearConv": (3, 5),
    "QLinearMatMul": (3, 5),
}


def exact_session(model: onnx.ModelProto, *, optimize: bool = True) -> Any:
    """Return a single-threaded CPU session. Without `optimize` it runs the nodes as written."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    serialized = with_unsigned_factors(model).SerializeToString()
    return onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])


def with_unsigned_factors(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an equivalent model whose integer products have a uint8 second operand."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    signed = {initializer.name for initializer in graph.initializer if initializer.data_type == TensorProto.INT8}
    signed |= {item.name for item in graph.input if item.type.tensor_type.elem_type == TensorProto.INT8}
    nodes = []
    for node in graph.node:
        factor, zero = SECOND_FACTORS.get(node.op_type, (0, 0))
        if factor and node.input[factor] in signed:
            node.input.extend([""] * (zero + 1 - len(node.input)))
            for place, own in ((factor, "factor"), (zero, "zero")):
                shifted = f"{node.output[0]}/unsigned/{own}"
                nodes += shift(node.input[place], shifted)
                node.input[place] = shifted
        nodes.append(node)
    result = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(result)
    return changed


def shift(source: str, target: str) -> list[onnx.NodeProto]:
    """Return nodes that convert an int8 tensor to uint8; a missing one counts as 0."""
    constant = helper.make_node("Constant", [], [f"{target}/128"], value=numpy_helper.from_array(np.int64(128)))
    if not source:
        return [constant, helper.make_node("Cast", [f"{target}/128"], [target], to=TensorProto.UINT8)]
    return [
        constant,
        helper.make_node("Cast", [source], [f"{target}/wide"], to=TensorProto.INT64),
        helper.make_node("Add", [f"{target}/wide", f"{target}/128"], [f"{target}/sum"]),
        helper.make_node("Cast", [f"{target}/sum"], [target], to=TensorProto.UINT8),
    ]
