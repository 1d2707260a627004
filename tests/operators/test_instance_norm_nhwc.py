"""InstanceNormalization of channels-last tensors, as convolutions produce them, with GPU kernels: in registers if a plane fits, else in
chunks. Chunk statistics are merged in every workgroup if there are few chunks, else in a separate kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from features import need_limits
from pumice.testing import assert_close

Array = npt.NDArray[Any]
HELD, PARTS, STRETCHES = "norm_nhwc_registers.comp", "norm_nhwc_apply.comp", "norm_combine.comp"
EPSILON = 1e-3


@dataclass(frozen=True)
class Case:
    """offset: mean of all elements, with a standard deviation of about one; kernel: the expected kernel; then: the epilogue, Add meaning
    a residual and Relu.
    """

    images: int
    channels: int
    height: int
    width: int
    kernel: str = HELD
    offset: float = 0.0
    then: str = ""

    @property
    def shape(self) -> list[int]:
        return [self.images, self.channels, self.height, self.width]

    def numbers(self) -> tuple[Array, Array, Array]:
        """Return the input before the offset is added, scale and bias."""
        random = np.random.default_rng(self.channels)
        x = random.standard_normal(self.shape).astype(np.float16)
        scale, bias = random.standard_normal((2, self.channels)).astype(np.float32)
        return x, scale, bias

    def program(self, context: pumice.Context, precision: str) -> pumice.Program:
        """Build an identity convolution that adds the offset, the normalisation, and another identity convolution."""
        _, scale, bias = self.numbers()
        graph = pumice.Graph(str(self))
        x = graph.input("x", "float32", self.shape)
        kernel = np.eye(self.channels, dtype=np.float32)[:, :, None, None]
        beside = graph.add("Relu", graph.add("Conv", x, kernel)) if self.then == "Add" else x
        made = graph.add("Conv", x, kernel, np.full(self.channels, self.offset, np.float32))
        made = graph.add("InstanceNormalization", made, scale, bias, epsilon=EPSILON, name="norm")
        if self.then == "Add":
            made = graph.add("Relu", graph.add("Add", made, beside, name="sum"), name="last")
        elif self.then:
            made = graph.add(self.then, made)
        graph.output("y", graph.add("Conv", made, kernel))
        return graph.compile(context, precision=precision)

    def expected(self) -> Array:
        x, scale, bias = (array.astype(np.float64) for array in self.numbers())
        distance = x - x.mean((2, 3), keepdims=True)
        made = distance / np.sqrt((distance**2).mean((2, 3), keepdims=True) + EPSILON)
        made = made * scale[:, None, None] + bias[:, None, None] + (np.maximum(x, 0) if self.then == "Add" else 0)
        return np.asarray(np.maximum(made, 0) if self.then else made)


CASES = [
    Case(1, 4, 1, 1),
    Case(1, 8, 5, 7),
    Case(2, 16, 11, 13, then="Relu"),
    Case(1, 64, 31, 33),
    Case(3, 12, 33, 31, offset=1000.0),
    Case(1, 4, 61, 67, then="Relu"),
    Case(1, 6, 9, 11, STRETCHES),
    Case(1, 10, 41, 51, STRETCHES, offset=1000.0),
    Case(2, 4, 131, 137, PARTS),
    Case(1, 20, 5, 3277, PARTS, then="Relu"),  # one pixel more than 16 chunks
    Case(2, 24, 128, 136, PARTS),
    Case(1, 12, 127, 131, PARTS, offset=1000.0),
    Case(1, 4, 256, 256, PARTS),
    Case(1, 4, 257, 255, PARTS),
    Case(1, 4, 257, 256, STRETCHES),  # more chunks than a workgroup can merge
    Case(2, 8, 9, 11, then="Add"),
    Case(1, 6, 9, 11, STRETCHES, then="Add"),
    Case(1, 4, 131, 137, PARTS, then="Add"),
    Case(1, 20, 131, 137, PARTS, then="Add"),
]


@pytest.fixture(scope="module")
def gpu_kernels(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device that does not use the CPU (SIMD) kernels."""
    without = ["subgroupShuffle"] if pumice_context.info.kind == "software" else []
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=without) as made:
        yield made


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_channels_are_normalised(case: Case, precision: str, gpu_kernels: pumice.Context) -> None:
    if case.offset and precision == "fp16":
        pytest.skip("the convolution's result has lost what is asked for")
    program = case.program(gpu_kernels, precision)
    kernels = [step["kernel"] for step in program.plan([case.shape])]
    merges_chunks = gpu_kernels.limit("maxComputeWorkGroupInvocations") >= 256
    expected = case.kernel if merges_chunks or case.kernel != PARTS else STRETCHES
    assert expected in kernels, kernels
    assert "elementwise.comp" not in kernels or precision == "fp16", (
        kernels
    )  # the epilogue is fused into the normalisation
    (made,) = program.call((case.numbers()[0].astype(np.float32),))
    tolerance = 4e-3 if precision == "fp16" else 2e-3 if case.offset else 2e-5
    assert_close(made, case.expected(), rtol=tolerance, atol=tolerance)
    if case.then == "Add":
        need_limits(gpu_kernels, maxPerStageDescriptorStorageBuffers=5)  # else the sum is not fused
        notes = {row["node"]: row["note"] for row in program.report()}
        assert notes["sum"] == notes["last"] == "fused into norm"


def test_an_outlier_costs_nothing(gpu_kernels: pumice.Context) -> None:
    """One element is a million times larger than the others, at the first or a later position."""
    for place, case in (
        (0, Case(1, 4, 31, 33)),
        (777, Case(1, 4, 31, 33)),
        (0, Case(1, 4, 131, 137)),
        (7777, Case(1, 4, 131, 137)),
    ):
        x = case.numbers()[0].astype(np.float32)
        x.reshape(4, -1)[:, place] = 1e6
        graph = pumice.Graph()
        given = graph.input("x", "float32", case.shape)
        made = graph.add("Conv", given, np.eye(4, dtype=np.float32)[:, :, None, None])
        made = graph.add("InstanceNormalization", made, np.ones(4, np.float32), np.zeros(4, np.float32))
        graph.output("y", graph.add("Conv", made, np.eye(4, dtype=np.float32)[:, :, None, None]))
        (y,) = graph.compile(gpu_kernels).call((x,))
        flat = x.reshape(4, -1).astype(np.float64)
        distance = flat - flat.mean(-1, keepdims=True)
        expected = distance / np.sqrt((distance**2).mean(-1, keepdims=True) + 1e-5)
        assert_close(y.reshape(4, -1), expected, rtol=1e-5, atol=1e-5)


def transposed(context: pumice.Context, precision: str) -> pumice.Program:
    """Build a stride-2 ConvTranspose of a convolution's result: four GEMMs, one per phase."""
    graph = pumice.Graph()
    random = np.random.default_rng(0)
    x = graph.input("x", "float32", [2, 8, 9, 11])
    made = graph.add("Conv", x, np.eye(8, dtype=np.float32)[:, :, None, None])
    weights = (random.standard_normal((8, 5, 3, 3)) / 8).astype(np.float32)
    up = graph.add("ConvTranspose", made, weights, strides=[2, 2])
    graph.output("y", graph.add("Relu", up))
    return graph.compile(context, precision=precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_phases_of_a_transposed_convolution_do_not_wait(precision: str, gpu_kernels: pumice.Context) -> None:
    """The GEMMs write interleaved elements of one result: one wave, no barrier in between."""
    program = transposed(gpu_kernels, precision)
    steps = [
        step for step in program.plan([[2, 8, 9, 11]]) if "ConvTranspose" in step["label"] or "up" in step["label"]
    ]
    steps = [step for step in steps if step["kernel"].startswith("conv_")]
    assert len(steps) == 4
    assert len({step["wave"] for step in steps}) == 1
    assert [step["barrier"] for step in steps[1:]] == [False] * 3


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_phases_without_barriers_are_right(precision: str, gpu_kernels: pumice.Context) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 8, 9, 11)).astype(np.float32)
    (y,) = transposed(gpu_kernels, precision).call((x,))
    weights = (np.random.default_rng(0).standard_normal((8, 5, 3, 3)) / 8).astype(np.float32)
    expected = np.zeros((2, 5, 19, 23))
    for h in range(3):
        for w in range(3):
            expected[:, :, h : h + 17 : 2, w : w + 21 : 2] += np.einsum("nchw,co->nohw", x, weights[:, :, h, w])
    tolerance = 4e-3 if precision == "fp16" else 1e-5
    assert_close(y, np.maximum(expected, 0), rtol=tolerance, atol=tolerance)
