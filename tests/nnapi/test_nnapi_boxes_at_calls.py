"""Box inputs given at a call: invalid boxes (ND1) and boxes outside their image (N11.2) raise the errors of constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized

Array = np.ndarray[Any, Any]

RIGHT = np.array([[0, 0, 3, 2], [1, 0, 3, 3], [2, 2, 2, 2]], "float32")
IMAGES = (np.random.default_rng(0).integers(-16, 17, (3, 4, 4, 2)) / 8).astype("float32")
NOBODY = np.zeros(3, "int32")


class Boxed(NamedTuple):
    """An operation with a box operand; `operands` returns its operands for `count` boxes of a dtype."""

    operands: Callable[[Any, str, int], tuple[Any, ...]]
    corners: bool = False  # regions of interest, which must lie on an image (N11.2)
    classes: int = 1
    made: str = "uint16"  # dtype of boxes if the other operands are 8-bit


def typed(array: Array, dtype: str) -> Any:
    if dtype == "uint8":
        return Quantized(np.round(np.abs(array) * 8).astype("uint8"), 0.125, 0)
    return array.astype(dtype)


def in_eighths(array: Array, dtype: str) -> Any:
    if dtype == "uint8":
        return Quantized(np.round(array * 8).astype("uint16"), 0.125, 0)
    return array.astype(dtype)


def strides(dtype: str) -> list[Any]:
    return [np.float16(1.0) if dtype == "float16" else 1.0] * 2


def scores(dtype: str, count: int) -> Any:
    return typed(np.arange(2 * count).reshape(count, 2) / 8, dtype)


BOXED = {
    "AXIS_ALIGNED_BBOX_TRANSFORM": Boxed(
        lambda boxes, dtype, n: (
            boxes,
            typed(np.zeros((n, 8)), dtype),
            NOBODY[:n],
            in_eighths(np.array([[9, 8]]), dtype),
        )
    ),
    "ROI_ALIGN": Boxed(
        lambda boxes, dtype, n: (typed(IMAGES, dtype), boxes, NOBODY[:n], 2, 2, *strides(dtype), 2, 2, False), True
    ),
    "ROI_POOLING": Boxed(
        lambda boxes, dtype, n: (typed(IMAGES, dtype), boxes, NOBODY[:n], 2, 2, *strides(dtype), False), True
    ),
    "HEATMAP_MAX_KEYPOINT": Boxed(lambda boxes, dtype, n: (typed(IMAGES[:n], dtype), boxes, False)),
    "BOX_WITH_NMS_LIMIT": Boxed(
        lambda boxes, dtype, n: (scores(dtype, n), boxes, NOBODY[:n], 0.0, -1, 0, 0.5, 0.5, 0.0), classes=2
    ),
    "GENERATE_PROPOSALS": Boxed(
        lambda boxes, dtype, n: (
            typed(np.arange(4 * n).reshape(1, 2, 2, n) / 8, dtype),
            typed(np.zeros((1, 2, 2, 4 * n)), dtype),
            boxes,
            in_eighths(np.array([[9, 8]]), dtype),
            *strides(dtype),
            9,
            9,
            0.5,
            0.5,
            False,
        ),
        made="int16",
    ),
}
FLOATS = ["float32", "float16"]
TURNED = [2, 2, 1, 3]
BESIDE = [[-0.5, 0, 1, 1], [0, 0, 4.5, 1], [0, 1, 2, 5]]


def with_box(box: list[float], at: int = 1) -> Array:
    boxes = RIGHT.copy()
    boxes[at] = box
    return boxes


class Program:
    """An operation whose boxes are an input, of known sizes or not; all else is constant."""

    def __init__(self, op: str, dtype: str, context: pumice.Context, *, precision: str = "fp32", known: bool = True):
        self.one, self.dtype, self.op = BOXED[op], dtype, op
        graph = pumice.Graph("boxes")
        self.kind = self.one.made if dtype == "uint8" else dtype
        shape = [len(RIGHT) if known else 0, 4 * self.one.classes]
        boxes = graph.input(
            "boxes", self.kind, shape, **({"scale": 0.125, "zero_point": 0} if dtype == "uint8" else {})
        )
        operands = [
            graph.constant(one.array, scale=one.scale, zero_point=one.zero_point) if isinstance(one, Quantized) else one
            for one in self.one.operands(boxes, dtype, len(RIGHT))
        ]
        if op in ("BOX_WITH_NMS_LIMIT", "GENERATE_PROPOSALS") and dtype == "float16":
            operands = [np.float16(one) if isinstance(one, float) else one for one in operands]
        scaled = dtype == "uint8" and op in ("ROI_ALIGN", "HEATMAP_MAX_KEYPOINT")
        made = graph.add(f"nnapi::{op}", *operands, name="it", **({"scale": 0.25, "zero_point": 0} if scaled else {}))
        for i, value in enumerate(made if isinstance(made, tuple) else (made,)):
            graph.output(f"y{i}", value)
        self.program = graph.compile(context, precision)

    def given(self, boxes: Array) -> Array:
        whole = np.tile(boxes, self.one.classes)
        return np.round(whole * 8).astype(self.kind) if self.dtype == "uint8" else whole.astype(self.kind)

    def __call__(self, boxes: Array) -> Any:
        return self.program({"boxes": self.given(boxes)})

    def refuses(self, boxes: Array, rule: str) -> None:
        with pytest.raises(pumice.GraphError, match=rf"(?s)\[{rule}\] 'it'.*{self.op}"):
            self(boxes)


def test_every_operand_of_boxes_is_here() -> None:
    found = {
        operation.name.removeprefix("nnapi::")
        for operation in pumice.nnapi.operations()
        if any(role.name in ("boxes", "rois", "anchors") for role in pumice.operators(operation.name).inputs)
    }
    assert found - {"DETECTION_POSTPROCESSING"} == set(BOXED)  # its anchors are centres and sizes


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", [*FLOATS, "uint8"])
@pytest.mark.parametrize("op", BOXED)
def test_D1_boxes_of_a_call(context: pumice.Context, op: str, dtype: str, known: bool) -> None:
    program = Program(op, dtype, context, known=known)
    wanted = program(RIGHT)
    for at in range(3):
        program.refuses(with_box(TURNED, at), "ND1")
    if dtype != "uint8":
        program.refuses(with_box([0, np.nan, 3, 3]), "ND1")
    for name, value in program(RIGHT).items():  # the program stays usable
        np.testing.assert_array_equal(value, wanted[name])


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("box", BESIDE)
@pytest.mark.parametrize("op", [op for op, one in BOXED.items() if one.corners])
def test_N11_2_corners_of_a_call(context: pumice.Context, op: str, box: list[float], precision: str) -> None:
    program = Program(op, "float32", context, precision=precision)
    program.refuses(with_box(box), "N11.2")
    program(with_box([0, 0, 4, 4]))  # the far corner is on the image border


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_N11_2_corners_are_looked_at_before_they_are_rounded(context: pumice.Context, precision: str) -> None:
    """4 + 2^-11 rounds to 4 in fp16."""
    program = Program("ROI_ALIGN", "float32", context, precision=precision)
    program.refuses(with_box([0, 0, 4 + 2.0**-11, 3]), "N11.2")


def test_D1_boxes_that_the_host_makes_of_a_call(context: pumice.Context) -> None:
    graph = pumice.Graph()
    flat = graph.input("flat", "float32", [12])
    boxes = graph.add("nnapi::RESHAPE", flat, np.array([3, 4], "int32"))
    graph.output("y", graph.add("nnapi::ROI_ALIGN", *BOXED["ROI_ALIGN"].operands(boxes, "float32", 3), name="it"))
    program = graph.compile(context)
    program({"flat": RIGHT.ravel()})
    with pytest.raises(pumice.GraphError, match=r"(?s)\[ND1\] 'it'.*ROI_ALIGN.*box 1"):
        program({"flat": with_box(TURNED).ravel()})


def test_boxes_that_only_the_device_has_are_not_looked_at(context: pumice.Context) -> None:
    """Neither boxes computed on the device nor boxes in a Tensor bound to a command list are checked."""
    graph = pumice.Graph()
    boxes, weights = graph.input("boxes", "float32", [3, 4]), np.eye(4, dtype="float32")
    made = graph.add("nnapi::FULLY_CONNECTED", boxes, weights, np.zeros(4, "float32"), 0)
    graph.output("y", graph.add("nnapi::ROI_ALIGN", *BOXED["ROI_ALIGN"].operands(made, "float32", 3), name="it"))
    assert graph.compile(context)({"boxes": with_box(TURNED)})["y"].shape == (3, 2, 2, 2)
