"""Models with nodes of a custom domain, and kernels for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper

import pumice

X = np.linspace(-3, 9, 12, dtype="float32").reshape(4, 3)
SOFTCAP = """
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
layout(push_constant) uniform P { float cap; } p;
void main() {
  uint i = gl_GlobalInvocationID.x;
  buffer_st1(y, i, afp(p.cap * tanh(float(buffer_ld1(x, i)) / p.cap)));
}
"""
PRODUCT = """
layout(binding = 0) readonly buffer A { sfp a[]; };
layout(binding = 1) readonly buffer B { sfp b[]; };
layout(binding = 2) writeonly buffer C { sfp c[]; };
layout(push_constant) uniform P { uint rows; uint columns; uint depth; float scale; } p;
void main() {
  uint column = gl_GlobalInvocationID.x, row = gl_GlobalInvocationID.y;
  if (column >= p.columns || row >= p.rows) return;
  float sum = 0;
  for (uint k = 0; k < p.depth; ++k)
    sum += float(buffer_ld1(a, row * p.depth + k)) * float(buffer_ld1(b, k * p.columns + column));
  buffer_st1(c, row * p.columns + column, afp(sum * p.scale));
}
"""
# Maximum of each row and its index: two outputs of different types.
TOP = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer V { float value[]; };
layout(binding = 2) writeonly buffer I { int place[]; };
layout(push_constant) uniform P { uint columns; } p;
void main() {
  uint row = gl_GlobalInvocationID.x, best = 0;
  for (uint k = 1; k < p.columns; ++k)
    if (x[row * p.columns + k] > x[row * p.columns + best]) best = k;
  value[row] = x[row * p.columns + best];
  place[row] = int(best);
}
"""


def softcap(**options: Any) -> pumice.KernelOperator:
    options = {"attributes": {"cap": 2.0}, "reference": lambda x, cap: cap * np.tanh(x / cap), **options}
    return pumice.kernel_operator(options.pop("kernel", SOFTCAP), **options)


def product(**options: Any) -> pumice.KernelOperator:
    options = {
        "shape": "(a.shape[0], b.shape[1])",
        "numbers": {"rows": "a.shape[0]", "columns": "b.shape[1]", "depth": "b.shape[0]"},
        "attributes": {"scale": 1.0},
        "threads": "(c.shape[1], c.shape[0])",
        "reference": lambda a, b, scale: a @ b * scale,
        **options,
    }
    return pumice.kernel_operator(options.pop("kernel", PRODUCT), **options)


def top(**options: Any) -> pumice.KernelOperator:
    options = {
        "shape": lambda x: {"value": (x.shape[0],), "place": (x.shape[0],)},
        "dtype": {"value": "x", "place": "int32"},
        "numbers": {"columns": lambda x: x.shape[1]},
        "reference": lambda x: [x.max(1), x.argmax(1).astype("int32")],
        **options,
    }
    return pumice.kernel_operator(TOP, **options)


def node(op: str, inputs: str = "x", outputs: str = "y", name: str = "", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), name, domain="my.domain", **attributes)


def model(
    nodes: list[Any],
    inputs: str = "x",
    outputs: str = "y",
    dtype: int = TensorProto.FLOAT,
    shape: Any = ("n", 3),
    weights: dict[str, Any] | None = None,
) -> ModelProto:
    value = helper.make_tensor_value_info
    input_infos = [value(name, dtype, shape) for name in inputs.split()]
    output_infos = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    for output_info in output_infos:
        output_info.type.tensor_type.elem_type = TensorProto.INT32 if output_info.name == "place" else dtype
    graph = helper.make_graph(nodes, "custom", input_infos, output_infos)
    for name, array in (weights or {}).items():
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def loaded(context: pumice.Context, proto: ModelProto, precision: str = "fp32", **kernels: Any) -> pumice.Model:
    return pumice.load(
        proto, context, precision, kernels={f"my.domain::{name}": kernel for name, kernel in kernels.items()}
    )
