"""Expected results for the operators' test table, from onnx's reference or functions here, and test programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pumice
from cases import OPSET, Case, attentions, fills, gather_scatter, integer_conv_gemm, recurrents, regions, values_in
from pumice.validation.rules.function_bodies import find_function_body

Array = npt.NDArray[Any]

# Name prefixes of operators whose kernels reduce in shared memory if the device has no shuffles.
MEETING = (
    "Arg",
    "Attention",
    "Conv",
    "Gemm",
    "Global",
    "MatMul",
    "QLinear",
    "Reduce",
    "Softmax",
    "LogSoftmax",
    "LayerNormalization",
    "RMSNormalization",
    "Hardmax",
    "InstanceNormalization",
    "Transpose",
    "LSTM",
    "GRU",
    "RNN",
)


def transposed_convolution(x: Array, weights: Array, bias: Array | None = None, **attributes: Any) -> Array:
    """Grouped ConvTranspose; onnx's reference supports only one group."""
    groups = attributes.pop("group")
    parts = [
        reference_node("ConvTranspose", 1, attributes, [part_x, part_w])[0]
        for part_x, part_w in zip(np.split(x, groups, 1), np.split(weights, groups), strict=True)
    ]
    y = np.concatenate(parts, 1)
    return y if bias is None else y + bias.reshape(-1, *[1] * (x.ndim - 2))


def cropped(x: Array, pads: Array, **attributes: Any) -> Array:
    """Pad with negative counts, which onnx's reference rejects."""
    assert not attributes
    begin, end = np.split(pads, 2)
    kept = x[tuple(slice(max(-b, 0), size - max(-e, 0)) for b, e, size in zip(begin, end, x.shape, strict=True))]
    return np.pad(kept, [(max(b, 0), max(e, 0)) for b, e in zip(begin, end, strict=True)])


def largest_of_planes(x: Array) -> Array:
    """GlobalMaxPool of 1D images, for which onnx's reference loses an axis."""
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


def local_response(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    """LRN; onnx's reference omits channels beyond the batch size."""
    sums = np.zeros_like(x)
    for channel in range(x.shape[1]):
        first, last = max(channel - (size - 1) // 2, 0), channel + size // 2
        sums[:, channel] = (x[:, first : last + 1] ** 2).sum(axis=1)
    return x / (bias + alpha / size * sums) ** np.float32(beta)


def padded_maxima(x: Array, kernel_shape: list[int], pads: list[int]) -> list[Array]:
    """MaxPool with indices, which onnx's reference counts including the padding."""
    places = np.arange(x.size).reshape(x.shape)
    around = [(0, 0), (0, 0), *zip(pads[:2], pads[2:], strict=True)]
    values = np.pad(x, around, constant_values=-np.inf)
    places = np.pad(places, around, constant_values=-1)
    windows = np.lib.stride_tricks.sliding_window_view(values, kernel_shape, (2, 3))
    best = windows.reshape(*windows.shape[:4], -1).argmax(-1)[..., None]
    where = np.lib.stride_tricks.sliding_window_view(places, kernel_shape, (2, 3)).reshape(*windows.shape[:4], -1)
    return [windows.max((-2, -1)), np.take_along_axis(where, best, -1)[..., 0]]


def global_powers(x: Array, p: int) -> Array:
    """GlobalLpPool, which onnx's reference lacks."""
    return (np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True) ** np.float32(1 / p)


def error_function(x: Array) -> Array:
    """Erf in the input's precision; onnx's reference uses float32."""
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def cubic_to_the_border(x: Array, grid: Array, mode: str, padding_mode: str, align_corners: int) -> list[Array]:
    """Clamp each neighbour to the border, like PyTorch and ONNX Runtime; onnx's reference clamps the sampling position."""
    border = 12  # beyond all sampling positions of the cases
    sizes = np.array(x.shape[:1:-1])
    wide = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)), mode="edge")
    ends = 1 if align_corners else 0
    places = ((grid.astype(np.float64) + 1) * (sizes - ends) - (1 - ends)) / 2 + border
    moved = ((2 * places + (1 - ends)) / (sizes + 2 * border - ends) - 1).astype(grid.dtype)
    options = {"mode": mode, "padding_mode": "zeros", "align_corners": align_corners}
    return [reference_node("GridSample", 1, options, [wide, moved])[0].astype(x.dtype)]


# References by case name or operator.
OWN_REFERENCES = {
    "GlobalLpPool": global_powers,
    "ConvTranspose: depthwise": transposed_convolution,
    "ConvTranspose: three axes, groups": transposed_convolution,
    "ConvTranspose: two groups": transposed_convolution,
    "GlobalMaxPool: NaN stays": largest_of_planes,
    "GridSample: cubic, border, aligned": cubic_to_the_border,
    "GridSample: cubic, border, not aligned": cubic_to_the_border,
    "LRN": local_response,
    "Erf": error_function,
    "MaxPool: indices, padded": padded_maxima,
    "Pad: crops": cropped,
    "OneHot": fills.one_hot,
    "GatherElements": gather_scatter.gathered_elements,
    **attentions.REFERENCES,
    **integer_conv_gemm.REFERENCES,
    **recurrents.REFERENCES,
    **regions.REFERENCES,
}


def reference_node(op: str, outputs: int, attributes: dict[str, Any], arrays: list[Array | None]) -> list[Array]:
    """Run a node in onnx's reference, or the definition in the operator table of an operator that ONNX lacks."""
    domain, _, name = op.rpartition("::")
    names = [f"i{k}" if array is not None else "" for k, array in enumerate(arrays)]
    results = [f"o{k}" for k in range(outputs)]
    named_inputs = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in named_inputs.items()
    ]
    tensors = {
        key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for key, value in attributes.items()
    }
    node = helper.make_node(name, names, results, domain=domain, **tensors)
    nodes = defining_nodes(node) if domain else [node]
    graph = helper.make_graph(nodes, "case", inputs, [ValueInfoProto(name=name) for name in results])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, named_inputs))


def defining_nodes(node: NodeProto) -> list[NodeProto]:
    """Return the nodes of the operator's definition, with the node's names of inputs and outputs."""
    body = find_function_body(node, [], OPSET)
    assert body is not None, f"{node.domain}::{node.op_type} has no definition in the operator table"
    names = dict.fromkeys(body.input, "")  # an omitted input
    names.update(zip(body.input, node.input, strict=False))
    names.update(zip(body.output, node.output, strict=False))
    for inner in body.node:
        for values in (inner.input, inner.output):
            values[:] = [names.get(name, name) for name in values]
    return list(body.node)


def reference(case: Case, precision: str = "fp32") -> list[Array]:
    arrays = arrays_of(case, precision)
    if reference_function := OWN_REFERENCES.get(str(case)) or OWN_REFERENCES.get(case.op):
        result = reference_function(*arrays, **case.attributes)
        return result if isinstance(result, list) else [result]
    return reference_node(case.op, case.outputs, case.attributes, arrays)


def arrays_of(case: Case, precision: str) -> list[Array | None]:
    """Return the inputs; values are rounded to bfloat16 for the reference too, so tolerances cover only arithmetic."""
    return [
        array.astype(bfloat16).astype("float32")
        if precision == "bf16" and array is not None and array.dtype == "float32"
        else array
        for array in case.arrays()
    ]


def compiled(case: Case, context: pumice.Context, precision: str = "fp32") -> tuple[pumice.Program, dict[str, Array]]:
    """Return a graph of one node, and its inputs by name."""
    graph = pumice.Graph()
    values, inputs = values_in(graph, case, arrays_of(case, precision))
    result = graph.add(case.op, *values, outputs=case.outputs, **case.attributes)
    for k, value in enumerate(result if isinstance(result, tuple) else (result,)):
        graph.output(f"o{k}", value)
    return graph.compile(context, precision=precision), inputs
