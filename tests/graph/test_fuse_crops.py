"""Slice after ConvTranspose is fused into the pads if it removes constant borders, and only then."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from pumice.testing import assert_close
from tensor_arrays import numbers

Array = npt.NDArray[Any]
WHOLE = (1 << 63) - 1


def program_of(context: pumice.Context, fuse: bool, starts: list[int], ends: list[int], **given: Any) -> pumice.Program:
    """Compile ConvTranspose (8 to 12 channels, any image size), a Slice of its result, and Relu."""
    graph = pumice.Graph("crop")
    x = graph.input("x", "float32", [None, 8, None, None])
    weights = numbers(8, 12 // given.get("group", 1), *given.pop("kernel", [3, 3])) / 8
    lists = [np.array(given.pop(name)) for name in ("axes", "steps") if name in given]
    is_output = given.pop("is_output", False)
    up = graph.add("ConvTranspose", x, weights, numbers(12), name="up", **{"strides": [2, 2], **given})
    graph.output("y", graph.add("Relu", graph.add("Slice", up, np.array(starts), np.array(ends), *lists, name="crop")))
    if is_output:
        graph.output("whole", up)
    return graph.compile(context, fuse=fuse)


def is_joined(program: pumice.Program) -> bool:
    (row,) = [row for row in program.report() if row["node"] == "crop"]
    assert (row["fusion"] == "crop") == (row["note"] == "fused into up")
    return bool(row["fusion"] == "crop")


def same(context: pumice.Context, *crop: list[int], **given: Any) -> bool:
    """Return whether the Slice was fused. Results are compared with the unfused program's, at several sizes."""
    fused, plain = (program_of(context, fuse, *crop, **dict(given)) for fuse in (True, False))
    assert not is_joined(plain)
    for shape in ((2, 8, 7, 9), (1, 8, 1, 1), (1, 8, 16, 5)):
        x = numbers(*shape)
        for a, b in zip(fused.call((x,)), plain.call((x,)), strict=True):
            assert_close(a, b, rtol=1e-5, atol=1e-5)
    return is_joined(fused)


JOINED: list[tuple[list[int], list[int], dict[str, Any]]] = [
    ([1, 1], [-1, -1], {"axes": [2, 3]}),
    ([1, 0], [-1, WHOLE], {"axes": [-1, 2], "output_padding": [1, 1]}),
    ([0], [-2], {"axes": [3]}),
    ([2, 1], [WHOLE, WHOLE], {"axes": [2, 3], "dilations": [2, 1]}),
    ([1], [-1], {"axes": [2], "steps": [1], "group": 2}),
    ([1, 2], [-2, -1], {"axes": [2, 3], "kernel": [5, 4], "pads": [0, 0, 1, 0], "strides": [3, 1]}),
]
APART: list[tuple[list[int], list[int], dict[str, Any]]] = [
    ([0, 1], [1, -1], {}),  # batch and channel axes
    ([1, 1], [-1, 12], {"axes": [2, 3]}),  # the end counts from the start of the axis
    ([-5], [-1], {"axes": [2]}),
    ([1], [-1], {"axes": [2], "steps": [2]}),
    ([-1], [0], {"axes": [3], "steps": [-1]}),
    ([1, 1], [-2, -1], {"axes": [2, 3]}),  # nothing is left of a 1x1 image
    ([1], [-1], {"axes": [3], "auto_pad": "SAME_UPPER"}),
    ([1], [-1], {"axes": [2], "is_output": True}),
]


@pytest.mark.parametrize(("starts", "ends", "given"), JOINED, ids=str)
def test_borders_become_pads(
    context: pumice.Context, starts: list[int], ends: list[int], given: dict[str, Any]
) -> None:
    assert same(context, starts, ends, **given)


@pytest.mark.parametrize(("starts", "ends", "given"), APART, ids=str)
def test_other_slices_stay(context: pumice.Context, starts: list[int], ends: list[int], given: dict[str, Any]) -> None:
    assert not same(context, starts, ends, **given)


def test_a_fused_slice_needs_no_dispatch(context: pumice.Context) -> None:
    program = program_of(context, True, [1, 1], [-1, -1], axes=[2, 3])
    kernels = [step["kernel"] for step in program.plan([[1, 8, 9, 9]])]
    assert len(kernels) == 4 and len(set(kernels)) == 1, kernels
