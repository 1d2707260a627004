"""Small valid models of every kind, as seeds for mutations."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_models import gemm, model, node, subgraph, value
from onnx_transformers import decoder, encoder

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
STANDARD = (  # ONNX's own tests whose models are seeds too
    *(
        "test_resize_upsample_sizes_nearest",
        "test_roialign_aligned_false",
        "test_nonmaxsuppression_two_batches",
        "test_gridsample",
    ),
    *(
        "test_qlinearconv",
        "test_qlinearmatmul_2D_uint8_float32",
        "test_dynamicquantizelinear",
        "test_convinteger_with_padding",
    ),
    *(
        "test_lstm_with_initial_bias",
        "test_gru_defaults",
        "test_einsum_batch_matmul",
        "test_scatternd_add",
        "test_gathernd_example_int32",
    ),
    *(
        "test_top_k_smallest",
        "test_unique_sorted_with_axis",
        "test_onehot_with_axis",
        "test_loop13_seq",
        "test_scan9_sum",
        "test_if_seq",
    ),
    *(
        "test_if_opt",
        "test_attention_4d_causal",
        "test_rotary_embedding",
        "test_layer_normalization_4d_axis1",
        "test_tril_neg",
    ),
    *(
        "test_maxpool_2d_dilations",
        "test_convtranspose_pads",
        "test_instancenorm_example",
        "test_nonzero_example",
        "test_compress_0",
    ),
    *(
        "test_split_variable_parts_1d_opset18",
        "test_slice_neg_steps",
        "test_reflect_pad",
        "test_cumsum_2d_axis_0",
        "test_dft_axis",
    ),
    *(
        "test_sequence_insert_at_front",
        "test_sequence_map_add_2_sequences",
        "test_range_int32_type_negative_delta",
        "test_clip",
    ),
)


def _random(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def network() -> onnx.ModelProto:
    weights = {
        "w": _random(4, 3, 3, 3),
        "b": _random(4),
        "v": _random(36, 5),
        "s": np.array([0, -1]),
        **dict.fromkeys("mc", _random(4)),
    }
    weights["a"] = abs(_random(4)) + 1
    nodes = [
        node("Conv", ["x", "w", "b"], ["p"], pads=[1, 1, 1, 1], strides=[1, 1], kernel_shape=[3, 3]),
        node("BatchNormalization", ["p", "m", "c", "m", "a"], ["q"]),
        node("Relu", ["q"], ["r"]),
        node("MaxPool", ["r"], ["t"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["t", "s"], ["u"]),
        node("MatMul", ["u", "v"], ["n"]),
        node("Softmax", ["n"], ["y"], axis=-1),
    ]
    return model(nodes, [value("x", ["N", 3, 6, 6])], constants=weights)


def shapes() -> onnx.ModelProto:
    """Shape arithmetic as exporters write it."""
    constants = {
        "i": np.array(0),
        "o": np.array([0]),
        "m": np.array([-1]),
        "k": np.array([1], np.float32),
        "two": np.array(2),
    }
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "i"], ["n"]),
        node("Mul", ["n", "two"], ["n2"]),
        node("Unsqueeze", ["n2", "o"], ["u"]),
        node("Concat", ["u", "m"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["r"]),
        node("ConstantOfShape", ["t0"], ["f"], value=numpy_helper.from_array(np.array([2], np.float32))),
        node("Slice", ["s", "o", "one"], ["t0"]),
        node("Expand", ["f", "t0"], ["e"]),
        node("ReduceSum", ["e"], ["z"], keepdims=0),
        node("Add", ["r", "z"], ["y"]),
    ]
    return model(nodes, [value("x", ["N", 4])], constants={**constants, "one": np.array([1])})


def control() -> onnx.ModelProto:
    """A Loop with an If in it."""
    branches = [subgraph([node(op, ["h", "x"], [f"{op}.r"])], [], [value(f"{op}.r", None)]) for op in ("Add", "Sub")]
    body = subgraph(
        [
            node("If", ["go"], ["h2"], then_branch=branches[0], else_branch=branches[1]),
            node("Identity", ["go"], ["again"]),
            node("ReduceSum", ["h2"], ["scan"], keepdims=0),
        ],
        [value("i", [], INT64), value("go", [], BOOL), value("h", ["N", 4])],
        [value("again", [], BOOL), value("h2", ["N", 4]), value("scan", [])],
    )
    constants = {"trips": np.array(3), "on": np.array(True)}
    return model([node("Loop", ["trips", "on", "x"], ["y", "z"], body=body)], outputs=["y", "z"], constants=constants)


def scan() -> onnx.ModelProto:
    body = subgraph(
        [node("Add", ["a", "b"], ["s"]), node("Identity", ["s"], ["o"])],
        [value("a", [4]), value("b", [4])],
        [value("s", [4]), value("o", [4])],
    )
    return model(
        [node("Scan", ["k", "x"], ["y", "z"], body=body, num_scan_inputs=1)],
        outputs=["y", "z"],
        constants={"k": _random(4)},
    )


def functions() -> onnx.ModelProto:
    """One function calls the other, with an attribute that has a default value."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leaky = node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    inner = helper.make_function(
        "local", "Leaky", ["a"], ["b"], [leaky], opsets, attribute_protos=[helper.make_attribute("slope", 0.25)]
    )
    calls = [node("Leaky", ["a"], ["c"], domain="local"), node("Add", ["c", "a"], ["b"])]
    outer = helper.make_function("local", "Twice", ["a"], ["b"], calls, opsets)
    made = model([node("Twice", ["x"], ["t"], domain="local"), node("Leaky", ["t"], ["y"], domain="local", slope=0.5)])
    made.functions.extend([inner, outer])
    made.opset_import.append(helper.make_opsetid("local", 1))
    return made


def halves() -> onnx.ModelProto:
    weights = {"w": _random(4, 4).astype(np.float16)}
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        node("MatMul", ["h", "w"], ["m"]),
        node("Cast", ["m"], ["y"], to=FLOAT),
    ]
    return model(nodes, constants=weights)


def quantized() -> onnx.ModelProto:
    constants = {"s": np.array(0.05, np.float32), "z": np.array(3, np.uint8), "w": _random(4, 4)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    return model(nodes, constants=constants)


@functools.cache
def seeds() -> tuple[onnx.ModelProto, ...]:
    from onnx_node_tests import all_tests

    own = [gemm(), network(), shapes(), control(), scan(), functions(), halves(), quantized()]
    own += [encoder(1, 8, 2, 11), decoder(1, 8, 2, 11)]
    known = all_tests()
    standard = [
        onnx.load(f"{known[name].model_dir}/model.onnx") if known[name].model is None else known[name].model
        for name in STANDARD
    ]
    return (*own, *own, *standard)
