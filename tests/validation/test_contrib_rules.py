"""Rules of com.microsoft's attention sinks, block-quantised tables and quantised LSTM against ONNX Runtime or NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from contrib_nodes import Array, Case, random
from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import ProgramTypes
from pumice.validation.rules.program_values import make_bounded_input

PRECISIONS = ("fp32", "fp16", "bf16")
HEADS, GROUPS, WIDE = 4, 2, 8
STEPS, BATCH, SIZE, HIDDEN = 4, 3, 5, 4


def ruled(proto: onnx.ModelProto, inputs: dict[str, Array]) -> list[BoundedTensor]:
    types = ProgramTypes("fp32")
    opsets = {one.domain: one.version for one in proto.opset_import}
    names = [one.name for one in proto.graph.input]
    return RuleRunner(opsets, types).run_graph(
        proto.graph, [make_bounded_input(inputs[name], types) for name in names], {}
    )


def expected_of(proto: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def check(context: pumice.Context, proto: onnx.ModelProto, inputs: dict[str, Array], wrong: int = 0) -> None:
    """Check that the model is right at each precision, and wrong if an element of output `wrong` is changed."""
    for precision in PRECISIONS:
        report = pumice.validate(proto, [inputs], context=context, precision=precision, allow_ill_conditioned=True)
        assert report.state == "right", report.summary
    with pumice.load(proto, context) as loaded:
        results = loaded(**inputs)
    y = np.array(results[wrong] if isinstance(results, tuple) else results)
    y.flat[0] += 1e-3
    stored = {proto.graph.output[wrong].name: y}
    assert pumice.validate(proto, [inputs], context=context, reference=stored).state == "wrong"


def grouped(rows: int, past: int, sink: bool, **attributes: Any) -> Case:
    q, k, v = (random(2, rows, n * WIDE, seed=i) for i, n in enumerate((HEADS, GROUPS, GROUPS)))
    inputs = {"q": q, "k": k, "v": v, "past_k": random(2, GROUPS, past, WIDE, seed=3)}
    inputs["past_v"] = random(2, GROUPS, past, WIDE, seed=4)
    inputs |= {"lengths": np.full(2, past + rows - 1, np.int32), "total": np.array(past + rows, np.int32)}
    inputs |= {"sink": 3 * random(HEADS, seed=9)} if sink else {}
    order = ["q", "k", "v", "past_k", "past_v", "lengths", "total", "", "", "", "", *(["sink"] if sink else [])]
    attributes |= {"num_heads": HEADS, "kv_num_heads": GROUPS}
    return Case("GroupQueryAttention", inputs, {}, "y,present_k,present_v", order=order, **attributes)


SINKS = {
    "prompt": grouped(5, 0, True),
    "one more, softcap": grouped(1, 4, True, softcap=0.7),
    "window": grouped(5, 0, True, local_window_size=2),
    "zeros": grouped(5, 0, False, smooth_softmax=1),
}


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_of_grouped_heads(context: pumice.Context, name: str) -> None:
    case = SINKS[name]
    for made, expected in zip(ruled(case.model, case.inputs), expected_of(case.model, case.inputs), strict=True):
        np.testing.assert_array_less(np.abs(made.value - expected), made.get_errors() + 1e-6)
    check(context, case.model, case.inputs)


FORMS = [("uint4", 4, 0, 1), ("int4", 4, 1, 0), ("int4", 4, 1, 1), ("uint8", 4, 0, 1), ("uint8", 2, 0, 1)]


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(("dtype", "bits", "gather", "along"), FORMS)
def test_rows_of_a_table_in_blocks(
    context: pumice.Context, dtype: str, bits: int, gather: int, along: int, has_zeros: bool
) -> None:
    draw = np.random.default_rng(bits + gather)
    low = -8 if dtype == "int4" else 0
    shape = (6, 32) if along else (32, 6)
    blocks = [-(-size // 16) if axis == along else size for axis, size in enumerate(shape)]
    codes, points = (draw.integers(low, low + (1 << bits), sizes) for sizes in (shape, blocks))
    points = points if has_zeros else np.full(blocks, 1 << bits - 1 if dtype == "uint8" else 0)
    scales = draw.uniform(0.1, 1, blocks).astype("float32")
    constants = [packed("table", codes, dtype, bits), onnx.numpy_helper.from_array(scales, "scales")]
    constants += [packed("zeros", points, dtype, bits)] if has_zeros else []
    names = ["table", "i", "scales", *(["zeros"] if has_zeros else [])]
    attributes = {"gather_axis": gather, "quantize_axis": along, "block_size": 16, "bits": bits}
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **attributes)
    i = helper.make_tensor_value_info("i", TensorProto.INT64, [2, 2])
    graph = helper.make_graph([node], "g", [i], [onnx.ValueInfoProto(name="y")], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    indices = np.array([[0, 5], [2, -1]])
    wide = [np.repeat(one, 16, along) for one in (points, scales)]
    (made,) = ruled(proto, {"i": indices})
    expected = np.take((codes - wide[0]) * wide[1], indices, gather)
    np.testing.assert_array_less(np.abs(made.value - expected), made.get_errors() + 1e-6)
    check(context, proto, {"i": indices})


def packed(name: str, codes: Array, dtype: str, bits: int) -> onnx.TensorProto:
    """Return codes as a constant: 4-bit types pack the whole tensor as one row, uint8 packs several codes per byte and row."""
    kind = {"uint8": TensorProto.UINT8, "uint4": TensorProto.UINT4, "int4": TensorProto.INT4}[dtype]
    each, shape = 8 // bits, list(codes.shape)
    rows = codes if dtype == "uint8" else codes.reshape(1, -1)
    lanes = np.pad(rows & (1 << bits) - 1, [(0, 0), (0, -rows.shape[-1] % each)]).reshape(rows.shape[0], -1, each)
    raw = (lanes << np.arange(each) * bits).sum(-1).astype(np.uint8)
    shape = list(raw.shape) if dtype == "uint8" else shape
    return helper.make_tensor(name, kind, shape, raw.tobytes(), raw=True)


@pytest.mark.parametrize("given", ["", "B lengths h c P"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_dynamically_quantized_lstm(context: pumice.Context, direction: str, given: str) -> None:
    """A reversed sequence starts in the first step too: the scale of a step covers all sequences.

    ONNX Runtime quantises the states of a step in groups, so some of its codes differ. The weights have 7 bits: without VNNI its AVX2
    kernels add pairs of 8-bit products in int16, which saturates.
    """
    names, count, draw = given.split(), 2 if direction == "bidirectional" else 1, np.random.default_rng(2)
    constants: dict[str, Any] = {
        name: draw.integers(-64, 65, (count, rows, 4 * HIDDEN)).astype(np.int8)
        for name, rows in (("W", SIZE), ("R", HIDDEN))
    }
    constants |= {"B": random(count, 8 * HIDDEN), "lengths": np.array([4, 2, 3], np.int32)}
    constants |= {name: random(count, BATCH, HIDDEN, seed=i) for i, name in enumerate("hc")}
    constants |= {"P": random(count, 3 * HIDDEN, seed=5)}
    for name in ("W", "R"):
        constants[f"{name}_scale"] = draw.uniform(0.005, 0.01, count).astype(np.float32)
        constants[f"{name}_zero"] = np.zeros(count, np.int8)
    optional = [name if name in names else "" for name in ("B", "lengths", "h", "c", "P")]
    order = ["x", "W", "R", *optional, "W_scale", "W_zero", "R_scale", "R_zero"]
    used = {name: one for name, one in constants.items() if name in order}
    attributes = {"hidden_size": HIDDEN, "direction": direction}
    inputs = {"x": random(STEPS, BATCH, SIZE)}
    case = Case("DynamicQuantizeLSTM", inputs, used, "y,y_h,y_c", order=order, **attributes)
    for made, expected in zip(ruled(case.model, inputs), expected_of(case.model, inputs), strict=True):
        np.testing.assert_array_less(np.abs(made.value - expected), made.get_errors() + 0.01)
    check(context, case.model, inputs)
