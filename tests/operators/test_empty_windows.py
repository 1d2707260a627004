"""Windows over empty axes are rejected like windows larger than the padded axis, by standalone operators and when sizes become known at
the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import model, node, value

UINT8, FLOAT = 2, 1
POOLS = {
    "MaxPool": {"kernel_shape": [3, 1], "pads": [1, 0, 1, 0]},
    "MaxPool dilated": {"kernel_shape": [3, 1], "dilations": [2, 1], "pads": [2, 0, 1, 0]},
    "AveragePool": {"kernel_shape": [1, 1]},
    "LpPool": {"kernel_shape": [1, 1]},
    "GlobalMaxPool": {},
    "GlobalAveragePool": {},
    "GlobalLpPool": {},
}


def expect_error(context: pumice.Context, proto: Any, shapes: dict[str, list[int]], text: str, **dtypes: str) -> None:
    """Check that the operator rejects the shapes, and so does a call of a model with unknown sizes."""
    given = {name: np.ones(shape, dtypes.get(name, "float32")) for name, shape in shapes.items()}
    loaded = pumice.load(proto, context, progress=False)
    with pytest.raises(pumice.GraphError, match=text):
        loaded(**given)
    (one,) = proto.graph.node  # as an operator, because a declared size of 0 means unknown in a graph
    arrays = given | {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}
    descs = [pumice.TensorDesc(str(arrays[name].dtype), list(arrays[name].shape)) for name in one.input]
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in one.attribute}
    with pytest.raises(pumice.GraphError, match=text):
        pumice.output_descs(one.op_type, descs, **attributes)


@pytest.mark.parametrize("shape", [[1, 2, 0, 4], [2, 3, 0, 1], [2, 2, 3, 0], [1, 1, 0, 0], [1, 0, 5, 5]])
@pytest.mark.parametrize("case", POOLS)
def test_an_axis_of_nothing_is_not_pooled(context: pumice.Context, case: str, shape: list[int]) -> None:
    proto = model([node(case.split()[0], **POOLS[case])], [value("x", [None] * 4)], opset=22)
    expect_error(
        context, proto, {"x": shape}, "pooling needs at least one element on every axis after the batch axis; given"
    )


@pytest.mark.parametrize("case", POOLS)
def test_nothing_else_is_rejected_where_a_batch_is_empty(context: pumice.Context, case: str) -> None:
    proto = model([node(case.split()[0], **POOLS[case])], [value("x", [None] * 4)], opset=22)
    loaded = pumice.load(proto, context, progress=False)
    assert loaded(np.ones([0, 2, 7, 4], "float32")).shape[:2] == (0, 2)


@pytest.mark.parametrize("op", ["Conv", "ConvInteger", "QLinearConv"])
@pytest.mark.parametrize(
    ("axes", "kernel", "pads"),
    [([0, 4], [1, 1], [0] * 4), ([1, 0], [1, 2], [0, 0, 0, 1]), ([0, 3], [3, 1], [1, 0, 1, 0])],
)
def test_a_window_larger_than_its_padded_axis_is_rejected(
    context: pumice.Context, op: str, axes: list[int], kernel: list[int], pads: list[int]
) -> None:
    dtype, number = ("float32", FLOAT) if op == "Conv" else ("uint8", UINT8)
    scale, zero = np.array(1, "float32"), np.array(0, "uint8")
    constants = {"w": np.ones([2, 1, *kernel], dtype)}
    names = ["x", "w"]
    if op == "QLinearConv":
        constants |= {"s": scale, "z": zero}
        names = ["x", "s", "z", "w", "s", "z", "s", "z"]
    proto = model([node(op, names, pads=pads)], [value("x", [None] * 4, number)], constants=constants)
    expect_error(context, proto, {"x": [1, 1, *axes]}, "a window of at most the padded size of spatial axis", x=dtype)


def test_padding_alone_may_hold_a_window_of_a_convolution(context: pumice.Context) -> None:
    proto = model(
        [node("Conv", ["x", "w", "b"], kernel_shape=[2], pads=[1, 2])],
        [value("x", [None] * 3)],
        constants={"w": np.ones([1, 1, 2], "float32"), "b": np.array([5], "float32")},
    )
    loaded = pumice.load(proto, context, progress=False)
    np.testing.assert_array_equal(loaded(np.ones([1, 1, 0], "float32")), np.full([1, 1, 2], 5, "float32"))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool", "Conv"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_a_stride_larger_than_its_window_takes_no_element_away(context: pumice.Context, op: str, mode: str) -> None:
    """Padding that the formula makes negative is 0: windows of 1 begin at 0, 3 and 6, as in ONNX Runtime."""
    x = np.arange(1, 9, dtype="float32").reshape(1, 1, 8)
    attributes = {"auto_pad": mode, "kernel_shape": [1], "strides": [3]}
    names, constants = ["x"], {}
    if op == "Conv":
        names, constants = ["x", "w"], {"w": np.ones([1, 1, 1], "float32")}
    loaded = pumice.load(
        model([node(op, names, **attributes)], [value("x", [1, 1, None])], constants=constants, opset=22), context
    )
    np.testing.assert_array_equal(loaded(x), [[[1, 4, 7]]])
