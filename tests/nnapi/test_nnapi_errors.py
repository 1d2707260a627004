"""Errors of NNAPI's operations, each triggered by one case: the rule, the expected and the given value."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from test_nnapi_unknown_shapes import CALLS

import pumice
from nnapi_invalid_cases import Array, Case, Constant, Input, error_of_case, rule_and_message
from nnapi_operations import Quantized


def case(op: str, changes: dict[int, Any], text: str, *, call: int = 0) -> Case:
    """One of CALLS with other operands."""
    given = CALLS[op][call]
    operands = [changes.get(i, one) for i, one in enumerate(given.operands)]
    return Case(op, tuple(operands), given.declared, text)


def bi_lstm(changes: dict[int, Any], text: str) -> Case:
    return case("BIDIRECTIONAL_SEQUENCE_LSTM", changes, text)


def zeros(*shape: int, dtype: str = "float32") -> Array:
    return np.zeros(shape, dtype)


def whole(*values: int) -> Array:
    return np.array(values, "int32")


TURNED = Constant(np.array([[0, 0, 4, 4], [3, 0, 1, 4]], "float32"))
FAR = Constant(np.array([[0, 0, 4, 4], [0, 0, 9, 9]], "float32"))
SCALAR = Input("float32", [])
SIGNED, IMAGE = Constant(zeros(5, 3, 2, 3, dtype="int8"), [1.0] * 3, None, 3), zeros(2, 6, 4, 3, dtype="uint8")
Q = Quantized(IMAGE, 0.125, 128)
BIAS = zeros(5, dtype="int32")
HALF = zeros(2, 4, dtype="float16")
EIGHTHS = Quantized(zeros(2, 4, dtype="uint16"), 0.125, 0)
AUX = {39: zeros(2, 5, 3)}
WEIGHTS = {k: zeros(4, 3) for k in range(40, 44)}
BACKWARD = {k: zeros(4, 3) for k in range(44, 48)}
ANY = Input("float32", None)

# Common to all operations.
SHARED = [
    Case(
        "NEG",
        (zeros(2),),
        {"scale": 1.0, "zero_point": 2**40},
        "'zero_point': a number of 32 bits expected; given 1099511627776",
    ),
    Case(
        "RELU",
        (Constant(zeros(2, 3, dtype="uint8"), [1.0] * 3, None, 1),),
        {},
        r"operand 0, 'x': one scale expected; given 3 scales on axis 1",
    ),
    Case("SOFTMAX", (zeros(2), SCALAR), {}, "with operand 1, 'beta', which is not a constant"),
    Case("EXPAND_DIMS", (zeros(2), Input("int32", [])), {}, "with operand 1, 'axis', which is not a constant"),
    Case(
        "DENSIFY",
        (zeros(24), [0, 1, 2, 4, 5, 3], [0, 1, 2], [0] * 6, [1, 1, 1, 2, 3, 4], *[None] * 12),
        {},
        r"operand 1, 'order': N21.4: blocks in an order whose inverse names the same sizes expected; given \[0, 1, 2, 4, 5, 3\]",
    ),
    *(
        Case(
            op,
            (ANY, *lists),
            {},
            "operand 0, 'x': a rank of 9 expected, implied by the other operands; the highest rank is 8",
        )
        for op, lists in {
            "MIRROR_PAD": ([[1, 1]] * 9, 0),
            "PAD": ([[1, 1]] * 9,),
            "TILE": ([1] * 9,),
            "SLICE": ([0] * 9, [1] * 9),
        }.items()
    ),
]
CAST = "; feature level 3 has casts among .*float16.*, and feature level 4 also has casts of each type to itself"
PLAIN = [
    Case("CAST", (zeros(2),), {}, "'dtype' of the output is needed"),
    Case(
        "CAST",
        (Quantized(zeros(2, dtype="uint16"), 0.5, 0),),
        {"dtype": "int16"},
        f"operand 0, 'x': uint16 cannot be cast to int16{CAST}",
    ),
    case("STRIDED_SLICE", {3: [1, 0, 2]}, "operand 3, 'strides': nonzero steps expected; given 0 on axis 1"),
    case(
        "STRIDED_SLICE",
        {2: [0, -5, 4]},
        "operand 6, .*: a range of one element expected on axis 0, which is removed; given one of 0",
    ),
    case("GATHER", {2: Constant(whole(0, 3))}, "operand 2, 'indices': non-negative indices below 3 expected; given 3"),
    case("GATHER", {2: Constant(whole(-1))}, "operand 2, 'indices': non-negative indices below 3 expected; given -1"),
    Case(
        "GATHER",
        (Input("float32", [0, 2]), 0, Constant(whole(-1))),
        {},
        "operand 2, .* below the size of axis 0 expected; given -1",
    ),
    case(
        "EMBEDDING_LOOKUP",
        {0: Constant(whole(2))},
        "operand 0, 'lookups': non-negative indices below 2 expected; given 2",
    ),
    case(
        "RESHAPE",
        {1: [-1, -1]},
        r"operand 1, 'shape': non-negative sizes, and at most one -1, expected; given \[-1, -1\]",
    ),
    case("SQUEEZE", {1: [3]}, r"operand 1, 'axes': axes of \[1, 3, 1\] expected; given 3", call=1),
    case("PAD", {1: [[0, -1], [0, 0], [0, 0]]}, "operand 1, 'paddings': non-negative numbers expected; given -1"),
    case("PAD_V2", {2: 7}, "operand 2, 'value': float.* expected with float32; given int32"),
    case("PAD_V2", {2: 1.5}, "operand 2, 'value': int32 expected with uint8; given float32", call=1),
    case("RESIZE_BILINEAR", {1: 0}, "operand 1, 'width': a positive number expected; given 0.0"),
    case("DEPTH_TO_SPACE", {1: 0}, "operand 1, 'block_size': a positive number expected; given 0"),
    case("CHANNEL_SHUFFLE", {1: 0}, "operand 1, 'groups': a positive number expected; given 0"),
    case(
        "SPACE_TO_BATCH_ND",
        {1: Input("int32", [3])},
        "operand 1, .*: 2 positive numbers expected, the block's height and width; given 3",
    ),
    case("REVERSE", {1: Input("int32", [2])}, "operand 1, 'axis': 1 axis expected; given 2"),
]
PRODUCTS = [
    Case(
        "FULLY_CONNECTED",
        (zeros(2, 3), Input("float32", [0, 3]), zeros(1, 5), 0),
        {},
        r"operand 2, 'bias': a rank of 1 expected; given \[1, 5\]",
    ),
    case("CONV_2D", {2: Constant(BIAS, 0.03125, 1)}, "operand 2, 'bias': a zero point of 0 expected; given 1", call=1),
    case(
        "CONV_2D",
        {2: Constant(BIAS, [0.03125] * 5, None, 0)},
        "operand 2, 'bias': 1 scales expected, as operand 1; given 5",
        call=1,
    ),
    case(
        "CONV_2D",
        {2: Constant(BIAS, 0.5)},
        "operand 2, 'bias': a scale of 0.03125 expected, the product .*; given 0.5",
        call=1,
    ),
    case("CONV_2D", {2: zeros(5)}, "operand 2, 'bias': int32 expected with uint8; given float32", call=1),
    case("CONV_2D", {1: SIGNED}, "operand 1, 'filter': scales on axis 0 expected; given those on axis 3", call=1),
    case(
        "DEPTHWISE_CONV_2D",
        {1: zeros(2, 3, 2, 6)},
        r"operand 1, 'filter': \[1, height, width, channels\] expected; given \[2, 3, 2, 6\]",
    ),
    case("TRANSPOSE_CONV_2D", {7: 0}, "operand 7, 'stride_width': N1.3: a positive number expected; given 0"),
    case("TRANSPOSE_CONV_2D", {5: -1}, "operand 5, 'padding_top': N1.3: a non-negative number expected; given -1"),
    case(
        "TRANSPOSE_CONV_2D",
        {6: 99},
        "N1.3: an output of at least one element on each axis expected; given padding that leaves -86 rows",
    ),
    case(
        "TRANSPOSE_CONV_2D",
        {3: 99},
        "N1.3: an output of at least one element .*; given padding that leaves -91 columns",
    ),
    case(
        "TRANSPOSE_CONV_2D",
        {0: Constant(zeros(2, 0, 4, 3))},
        r"operand 0, 'x': N1.7: positive sizes expected after the batch axis; given \[2, 0, 4, 3\]",
    ),
    case(
        "TRANSPOSE_CONV_2D",
        {1: Constant(zeros(5, 3, 0, 3))},
        r"operand 1, 'filter': N1.7: positive sizes expected; given \[5, 3, 0, 3\]",
    ),
    *(
        Case(
            "TRANSPOSE_CONV_2D",
            (zeros(2, 6, 4, 3), zeros(5, 3, 2, 3), zeros(5), shape, 1, 2, 2, 0, False),
            {},
            f"operand 3, 'output_shape': {text}",
        )
        for shape, text in (
            ([2, 0, 8, 5], "N1.4: a positive size expected; given 0"),
            ([2, 8, 5], "N1.4: 4 sizes expected; given 3"),
        )
    ),
    Case(
        "TRANSPOSE_CONV_2D",
        (zeros(2, 6, 4, 3), zeros(5, 3, 2, 3), zeros(5), Input("int32", [4]), 1, 2, 2, 0, False),
        {},
        "with operand 3, .*, which is not a constant",
    ),
]
CELLS = [
    case("UNIDIRECTIONAL_SEQUENCE_RNN", {6: 2}, "operand 6, 'time_major': N8.1: 0 or 1 expected; given 2"),
    case("RNN", {5: 2}, r"operand 5, 'activation': NG7: 0 \(NONE\), 1 \(RELU\), .* expected; given 2"),
    case(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        {9: zeros(2, 5, 3), 10: zeros(4, 3)},
        "operand 11, .*: N9.3: weights of both directions expected, or of none; given those of one",
    ),
    case(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        {10: zeros(4, 3), 11: zeros(4, 3)},
        "operand 9, .*: N9.3: an input for its weights, operands 10 and 11, expected; it is omitted",
    ),
    case(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        {9: zeros(2, 5, 3), 10: zeros(5, 3), 11: zeros(4, 3)},
        "operand 10, .*: N9.3: 4 elements expected on axis 0, as operand 1, ",
    ),
    case(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        {9: zeros(2, 5, 4), 10: zeros(4, 3), 11: zeros(4, 3)},
        "operand 9, .*: N9.3: 3 elements expected on axis 2, as operand 0, ",
    ),
    case(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        {9: zeros(2, 5, 3), 10: zeros(4), 11: zeros(4, 3)},
        r"operand 10, .*: a rank of 2 expected; given \[4\]",
    ),
    case(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        {9: zeros(5, 2, 4)},
        "operand 5, .*: N9.3: 4 elements expected on axis 1, as operand 9, ",
        call=1,
    ),
    case("SVDF", {5: 0}, "operand 5, 'rank': N10.2: a positive number expected; given 0"),
    case("SVDF", {5: 3}, "operand 5, 'rank': N10.2: a number that divides 8 filters expected; given 3"),
    case("SVDF", {3: zeros(3)}, r"operand 3, 'bias': 4 elements expected on axis 0; given \[3\]"),
    case("LSTM", {21: -1.0}, "operand 21, 'cell_clip': NL6: a non-negative number expected; given -1"),
    case("LSTM", {21: SCALAR}, "with operand 21, 'cell_clip', which is not a constant"),
    case("LSTM", {1: None}, "operand 5, .*: NL6: none expected if the input gate has no weights"),
    case("LSTM", {5: None}, "operand 5, .*: NL6: it is required if the input gate has weights"),
    case(
        "LSTM",
        {k: zeros(4, 5) for k in range(5, 9)} | {18: zeros(2, 5)},
        "operand 8, .*: NL1: 4 elements expected on axis 1, as operand 4, ",
    ),
    bi_lstm(
        AUX | WEIGHTS | BACKWARD | {41: None}, "operand 41, .*: N6.4: weights of all gates expected with operand 43"
    ),
    bi_lstm(AUX | {44: zeros(4, 3)}, "operand 44, .*: N6.4: none expected with operand 47"),
    bi_lstm(AUX | WEIGHTS, "operand 47, .*: N6.4: weights of both directions expected, or of none"),
    bi_lstm(WEIGHTS | BACKWARD, "operand 39, .*: N6.4: an input for its weights expected; it is omitted"),
    bi_lstm({18: None, 22: None, 29: None}, "operand 18, .*: N6.5: it must be given, as operand 1, .* is"),
    bi_lstm({28: zeros(4)}, "operand 28, .*: N6.5: it must be omitted, as operand 11, .* is"),
    bi_lstm({39: zeros(5, 3)}, r"operand 39, .*: a rank of 3 expected; given \[5, 3\]"),
    bi_lstm({39: zeros(2, 6, 3)}, "operand 39, .*: N6.4: 5 elements expected on axis 1, as operand 0, "),
    bi_lstm({39: zeros(2, 5, 4)}, "operand 21, .*: N6.4: 4 elements expected on axis 1, as operand 39, "),
    bi_lstm(AUX | WEIGHTS | BACKWARD | {40: zeros(4)}, r"operand 40, .*: a rank of 2 expected; given \[4\]"),
    bi_lstm(
        AUX | WEIGHTS | BACKWARD | {40: zeros(5, 3)},
        "operand 40, .*: N6.4: 4 elements expected on axis 0, as operand 4, ",
    ),
    bi_lstm(
        AUX | WEIGHTS | BACKWARD | {46: zeros(4, 4)},
        "operand 46, .*: N6.4: 3 elements expected on axis 1, as operand 0, ",
    ),
    case("QUANTIZED_LSTM", {25: -1.0}, "operand 25, .*: NL6: a non-negative number expected; given -1"),
    case("QUANTIZED_LSTM", {26: 0.0}, "operand 26, .*: N3.1: a positive scale expected; given 0"),
    case("QUANTIZED_LSTM", {31: SCALAR}, "with operand 31, .*, which is not a constant"),
    case(
        "QUANTIZED_LSTM",
        {1: Quantized(zeros(4, 3, dtype="int8"), 0.01, 1)},
        "operand 1, .*: N3.1: a zero point of 0 expected; given scale 0.01 and zero point 1",
    ),
    case(
        "QUANTIZED_LSTM",
        {19: Quantized(zeros(2, 4, dtype="int16"), 0.001, 0)},
        r"operand 19, .*: N3.3: a scale of 2\^-15 to 2\^-9 expected; given scale 0.001",
    ),
    case(
        "QUANTIZED_16BIT_LSTM",
        {2: Quantized(zeros(4, 3, dtype="uint8"), 0.01, 99)},
        "operand 2, .*: N4.1: scale 0.01 and zero point 100 expected; given scale 0.01 and zero point 99",
    ),
    case(
        "QUANTIZED_16BIT_LSTM",
        {13: Quantized(zeros(2, 4, dtype="int16"), 0.001, 0)},
        r"operand 13, .*: N4.1: a scale of 2\^-11 and a zero point of 0 expected; given scale 0.001",
    ),
]
DETECTION = [
    case(
        "AXIS_ALIGNED_BBOX_TRANSFORM",
        {1: zeros(2, 6)},
        r"operand 1, 'deltas': N13.1: four numbers for each class expected; given \[2, 6\]",
    ),
    case(
        "AXIS_ALIGNED_BBOX_TRANSFORM",
        {3: Constant(zeros(0, 2)), 2: Input("int32", [2])},
        "operand 3, .*: N13.1: at least one image expected; given none",
    ),
    case(
        "AXIS_ALIGNED_BBOX_TRANSFORM",
        {0: TURNED},
        r"operand 0, .*: ND1: corners \[x1, y1, x2, y2\] .* expected; given other corners in box 1",
    ),
    case(
        "AXIS_ALIGNED_BBOX_TRANSFORM",
        {2: Constant(whole(0, 2))},
        "operand 2, .*: N13.2: non-negative image indices expected, below 2; given 2",
    ),
    case(
        "AXIS_ALIGNED_BBOX_TRANSFORM",
        {2: Constant(whole(0, -1)), 3: Input("float32", [0, 2])},
        r"operand 2, .*: N13.2: non-negative image indices expected, below \?; given -1",
    ),
    case(
        "ROI_ALIGN",
        {2: Constant(whole(-1, 0))},
        "operand 2, .*: N11.2: non-negative image indices expected, below 2; given -1",
    ),
    case(
        "ROI_POOLING",
        {2: Constant(whole(0, 2))},
        "operand 2, .*: N11.2: non-negative image indices expected, below 2; given 2",
    ),
    case(
        "ROI_POOLING",
        {1: EIGHTHS},
        "operand 1, .*: N11.1: float32 expected, as operand 0 has dtype float32; given uint16",
    ),
    case("ROI_POOLING", {0: Q}, "operand 1, .*: N11.1: uint16 expected, as operand 0 has dtype uint8; given float32"),
    case(
        "ROI_POOLING",
        {0: Q, 1: EIGHTHS._replace(scale=0.25)},
        "operand 1, .*: ND1: a scale of 0.125 and a zero point of 0 expected; given scale 0.25",
    ),
    case("ROI_ALIGN", {1: FAR}, "operand 1, .*: N11.2: corners on the image expected; given 9.0+ in box 1"),
    case("ROI_ALIGN", {5: SCALAR}, "with operand 5, 'height_stride', which is not a constant"),
    case("ROI_ALIGN", {5: 0.0}, "operand 5, 'height_stride': N11.1: a positive number expected; given 0.0"),
    case("ROI_ALIGN", {3: 0}, "operand 3, 'height': N11.1: a positive number expected; given 0"),
    case("ROI_ALIGN", {7: -1}, "operand 7, 'height_ratio': N11.1: a non-negative number expected; given -1"),
    case(
        "ROI_ALIGN",
        {0: Constant(zeros(2, 6, 4, 0))},
        r"operand 0, 'x': N11.1: positive sizes expected; given \[2, 6, 4, 0\]",
    ),
    case(
        "HEATMAP_MAX_KEYPOINT",
        {0: zeros(2, 1, 1, 3)},
        r"operand 0, .*: N17.1: heatmaps of at least 2 x 2 elements expected; given \[2, 1, 1, 3\]",
    ),
    case(
        "BOX_WITH_NMS_LIMIT",
        {2: Constant(whole(-1, 0))},
        "operand 2, 'batch_index': N14.3: non-negative image indices expected; given -1",
    ),
    case(
        "BOX_WITH_NMS_LIMIT",
        {5: 3},
        r"operand 5, 'method': N14.1: 0 \(hard\), 1 \(linear\) or 2 \(gaussian\) expected; given 3",
    ),
    case(
        "BOX_WITH_NMS_LIMIT",
        {0: zeros(2, 1)},
        r"operand 0, 'scores': N14.1: a background and at least one class expected; given \[2, 1\]",
    ),
    case(
        "BOX_WITH_NMS_LIMIT",
        {1: zeros(2, 8)},
        r"operand 1, 'boxes': N14.1: 12 numbers in each row expected, four for each class; given \[2, 8\]",
    ),
    case(
        "BOX_WITH_NMS_LIMIT",
        {5: 2, 7: 0.0},
        "operand 7, 'sigma': N14.1: a positive number expected, as the method is gaussian; given 0",
    ),
    case(
        "GENERATE_PROPOSALS",
        {1: zeros(2, 3, 4, 6)},
        r"operand 1, .*: N15.1: 8 numbers at each position expected, four for each anchor; given \[2, 3, 4, 6\]",
    ),
    case(
        "GENERATE_PROPOSALS",
        {2: HALF},
        "operand 2, .*: N15.1: float32 expected, as the scores are of float32; given float16",
    ),
    case(
        "GENERATE_PROPOSALS",
        {k: Quantized(zeros(2, 3, 4, size, dtype="uint8"), 0.5, 0) for k, size in ((0, 2), (1, 8))}
        | {2: Quantized(zeros(2, 4, dtype="int16"), 0.25, 0), 3: Quantized(zeros(2, 2, dtype="uint16"), 0.125, 0)},
        "operand 2, .*: N15.1: a scale of 0.125 and a zero point of 0 expected; given scale 0.25",
    ),
    case("DETECTION_POSTPROCESSING", {3: SCALAR}, "with operand 3, .*, which is not a constant"),
    case("DETECTION_POSTPROCESSING", {3: 0.0}, "operand 3, .*: N16.1: a positive number expected; given 0"),
    case("DETECTION_POSTPROCESSING", {8: 0}, "operand 8, .*: N16.1: a positive number expected; given 0"),
    case("DETECTION_POSTPROCESSING", {12: -0.5}, "operand 12, .*: N16.1: a non-negative number expected; given -0.5"),
    case(
        "DETECTION_POSTPROCESSING",
        {0: zeros(2, 3, 1)},
        r"operand 0, .*: N16.1: a background and at least one class expected; given \[2, 3, 1\]",
    ),
    case(
        "DETECTION_POSTPROCESSING",
        {1: zeros(2, 3, 3)},
        r"operand 1, .*: N16.1: at least 4 numbers for each box expected; given \[2, 3, 3\]",
    ),
]
LOOKUPS = [
    case(
        "LSH_PROJECTION",
        {3: 4},
        r"operand 3, .*: N18.1: 1 \(sparse, old form\), 2 \(dense\) or 3 \(sparse\) expected; given 4",
    ),
    case("LSH_PROJECTION", {3: 2}, "operand 2, .*: N18.1: weights expected, because the form is dense; given none"),
    case(
        "LSH_PROJECTION", {3: 3}, "operand 2, .*: N18.1: no weights expected in the sparse form; weights given", call=1
    ),
    case(
        "LSH_PROJECTION",
        {0: zeros(3, 33)},
        r"operand 0, .*: N18.1: at most 32 bits of each function expected; given \[3, 33\]",
    ),
    case(
        "LSH_PROJECTION",
        {2: zeros(5, dtype="float16")},
        "operand 2, .*: N18.1: float32 expected, as the seeds; given float16",
        call=1,
    ),
    case(
        "LSH_PROJECTION",
        {1: Input("int32", []), 2: None, 3: 3},
        r"operand 1, .*: a rank of at least 1 expected; given \[\]",
        call=1,
    ),
    case("HASHTABLE_LOOKUP", {2: SCALAR}, r"operand 2, 'values': a rank of at least 1 expected; given \[\]"),
    case("EMBEDDING_LOOKUP", {1: SCALAR}, r"operand 1, 'values': a rank of at least 1 expected; given \[\]"),
    case("LOCAL_RESPONSE_NORMALIZATION", {0: SCALAR}, r"operand 0, 'x': a rank of at least 1 expected; given \[\]"),
    case("RANDOM_MULTINOMIAL", {1: 0}, "operand 1, 'count': N20.1: a positive number expected; given 0"),
    case(
        "DENSIFY",
        {1: [1, 1]},
        r"operand 1, 'order': N21.2: the axes in some order, then the blocks in some order, expected; given \[1, 1\]",
    ),
    case("DENSIFY", {1: [0, 1, 2]}, "N21.1: 11 operands expected, two for each level after the first five; given 9"),
    case("DENSIFY", {3: [0]}, r"operand 3, 'formats': N21.1: 2 numbers expected; given \[0\]"),
    case(
        "DENSIFY",
        {2: [0, 1]},
        r"operand 2, 'block_map': N21.1: at most one block for each axis expected; given \[0, 1\]",
    ),
    case("DENSIFY", {2: [3]}, r"operand 2, 'block_map': N21.4: ascending axes of the tensor expected; given \[3\]"),
    case("DENSIFY", {3: [0, 2]}, r"operand 3, 'formats': N21.1: 0 \(dense\) or 1 \(sparse\) expected; given 2"),
    case("DENSIFY", {4: [2, 0]}, "operand 4, 'sizes': N21.4: positive sizes expected; given 0"),
    case(
        "DENSIFY", {7: None}, "operand 7, 'levels': N21.1: segments and indices of a sparse level expected; given none"
    ),
    case(
        "DENSIFY",
        {7: [0, 2, 1]},
        r"operand 7, .*: N21.4: 3 non-decreasing numbers, from 0 to at most 2, expected; given \[0, 2, 1\]",
    ),
    case("DENSIFY", {8: [2, 3]}, "operand 8, .*: N21.4: indices from 0 to 2 expected; given 3"),
    case("DENSIFY", {0: zeros(1)}, "operand 0, 'values': N21.4: a value for each of 2 positions expected; given 1"),
]
NONE = Constant(zeros(0, 3)), Constant(zeros(0, 4))
CELL_16 = Constant(zeros(0, 4, dtype="int16"), 2.0**-11, 0)


EMPTY_UINT8 = {n: Constant(zeros(0, n, dtype="uint8"), 1 / 128, 128) for n in (3, 4)}
EMPTY_INT8 = {n: Constant(zeros(0, n, dtype="int8"), 0.25, 0) for n in (3, 4)}

WITHOUT_ELEMENTS = [
    case(op, changes, rf"operand {i}, '\w+': NG2: positive sizes expected; given \[.*\b0\b.*\]")
    for op, i, changes in (
        ("RNN", 0, {0: NONE[0], 4: NONE[1]}),
        ("SVDF", 0, {0: NONE[0], 4: Constant(zeros(0, 32))}),
        ("UNIDIRECTIONAL_SEQUENCE_RNN", 0, {0: Constant(zeros(2, 0, 3))}),
        ("BIDIRECTIONAL_SEQUENCE_RNN", 0, {0: Constant(zeros(2, 0, 3))}),
        ("LSTM", 0, {0: NONE[0], 18: NONE[1], 19: NONE[1]}),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", 0, {0: Constant(zeros(2, 0, 3))}),
        ("BIDIRECTIONAL_SEQUENCE_LSTM", 0, {0: Constant(zeros(2, 0, 3))}),
        ("QUANTIZED_LSTM", 0, {0: EMPTY_INT8[3], 18: EMPTY_INT8[4], 19: CELL_16}),
        ("QUANTIZED_16BIT_LSTM", 0, {0: EMPTY_UINT8[3], 13: CELL_16, 14: EMPTY_UINT8[4]}),
        ("GENERATE_PROPOSALS", 0, {0: Constant(zeros(2, 0, 4, 2)), 1: Constant(zeros(2, 0, 4, 8))}),
        ("DETECTION_POSTPROCESSING", 0, {0: Constant(zeros(2, 0, 4)), 1: Constant(zeros(2, 0, 4)), 2: NONE[1]}),
        ("HEATMAP_MAX_KEYPOINT", 0, {0: Constant(zeros(0, 4, 4, 3)), 1: NONE[1]}),
        ("ROI_POOLING", 1, {1: NONE[1], 2: Constant(whole())}),
        ("HASHTABLE_LOOKUP", 0, {0: Constant(whole())}),
        ("LSH_PROJECTION", 0, {0: NONE[1]}),
        ("RANDOM_MULTINOMIAL", 0, {0: NONE[1]}),
        ("DENSIFY", 0, {0: Constant(zeros(0))}),
    )
]
CASES = [*SHARED, *PLAIN, *PRODUCTS, *CELLS, *DETECTION, *LOOKUPS, *WITHOUT_ELEMENTS]


@pytest.mark.parametrize("one", CASES, ids=[f"{i}-{each.op}" for i, each in enumerate(CASES)])
def test_what_does_not_fit_is_rejected_by_rule_and_text(one: Case) -> None:
    error, (rule, text) = error_of_case(one), rule_and_message(one)
    assert error is not None
    assert re.search(rf"'it': nnapi::{one.op}(?:: | )(?:{text})", str(error)), str(error)
    assert str(error).startswith(f"[{rule}] " if rule else ("'it'", "not supported"))
    if isinstance(error, pumice.GraphError):
        assert error.node == "it"
        assert error.rule == rule
