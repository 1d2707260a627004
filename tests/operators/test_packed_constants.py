"""Operators with packed constants, with every subset of the input sizes unknown at load time.

The layout chosen at load must match the kernel chosen at the call: results are the same whatever is known, also on cooperative matrices.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import pumice
from exact_sessions import exact_session
from onnx_models import model, value

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(5)
TOLERANCES = {"fp32": 2e-5, "fp16": 6e-3}


def floats(*shape: int) -> Array:
    return (RANDOM.standard_normal(shape) * 0.25).astype("float32")


@dataclass(frozen=True)
class Case:
    """A node `op` of x and constants, in input order; None: omitted."""

    op: str
    shape: tuple[int, ...]  # shape of x
    constants: dict[str, Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    dtype: str = "float32"

    def make(self, sizes: list[int | str] | None) -> onnx.ModelProto:
        inputs = ["x", *("" if array is None else name for name, array in self.constants.items())]
        made = helper.make_node(self.op, inputs, ["y"], domain=self.domain, name="node", **self.attributes)
        given = {name: array for name, array in self.constants.items() if array is not None}
        x = value("x", sizes, helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)))
        proto = model([made], [x], constants=given, opset=21)
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        proto.ir_version = 10
        return proto

    def x(self) -> Array:
        if self.dtype == "float32":
            return floats(*self.shape)
        return RANDOM.integers(0, 200, self.shape).astype(self.dtype)


def block_matrix(bits: int, columns: int, depth: int, block: int, points: bool) -> dict[str, Array | None]:
    """Return the constants of MatMulNBits."""
    blocks, each = -(-depth // block), 8 // bits
    codes = RANDOM.integers(0, 256, (columns, blocks, block // each), dtype=np.uint8)
    scales = (RANDOM.random(columns * blocks) * 0.02 + 0.001).astype("float32")
    zeros = RANDOM.integers(0, 256, columns * -(-blocks // each), dtype=np.uint8) if points else None
    return {"w": codes, "scales": scales, "zeros": zeros}


def block_case(bits: int, columns: int, depth: int, block: int, rows: int, points: bool) -> Case:
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    return Case(
        "MatMulNBits", (rows, depth), block_matrix(bits, columns, depth, block, points), attributes, "com.microsoft"
    )


def recurrent(op: str, gates: int) -> Case:
    weights: dict[str, Array | None] = {
        "w": floats(1, gates * 16, 8),
        "r": floats(1, gates * 16, 16),
        "b": floats(1, gates * 32),
    }
    return Case(op, (5, 2, 8), weights, {"hidden_size": 16})


BYTE, ONE = np.uint8(3), np.float32(0.02)
QUANTIZED_CONV: dict[str, Array | None] = {
    "xs": np.array(ONE),
    "xz": np.array(BYTE),
    "w": RANDOM.integers(-120, 120, (16, 8, 3, 3)).astype("int8"),
    "ws": np.array(ONE),
    "wz": np.array(0, "int8"),
    "ys": np.array(np.float32(2)),
    "yz": np.array(BYTE),
}
CASES = {
    "blocks of 4 bits": block_case(4, 64, 256, 32, 4, False),
    "blocks of 4 bits with points": block_case(4, 48, 128, 64, 18, True),
    "one row of blocks of 4 bits": block_case(4, 64, 256, 128, 1, True),
    "blocks of 8 bits": block_case(8, 64, 256, 32, 4, False),
    "MatMul": Case("MatMul", (4, 64), {"w": floats(64, 128)}),
    "MatMul of many rows": Case("MatMul", (128, 64), {"w": floats(64, 128)}),
    "MatMul of batches": Case("MatMul", (2, 3, 64), {"w": floats(64, 24)}),
    "Gemm": Case("Gemm", (128, 64), {"w": floats(128, 64), "b": floats(128)}, {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    "Gemm with a matrix added": Case("Gemm", (4, 64), {"w": floats(64, 32), "b": floats(4, 32)}),
    "Conv": Case("Conv", (1, 32, 10, 10), {"w": floats(64, 32, 3, 3), "b": floats(64)}, {"pads": [1, 1, 1, 1]}),
    "pointwise Conv": Case("Conv", (1, 64, 12, 12), {"w": floats(64, 64, 1, 1), "b": floats(64)}),
    "Conv of patches": Case("Conv", (2, 3, 32, 32), {"w": floats(64, 3, 8, 8), "b": floats(64)}, {"strides": [8, 8]}),
    "grouped Conv": Case("Conv", (1, 16, 7, 9), {"w": floats(32, 8, 3, 3), "b": None}, {"group": 2}),
    "ConvTranspose": Case(
        "ConvTranspose", (1, 16, 6, 5), {"w": floats(16, 8, 3, 3), "b": floats(8)}, {"strides": [2, 2]}
    ),
    "MatMulInteger": Case(
        "MatMulInteger",
        (5, 64),
        {"w": RANDOM.integers(0, 255, (64, 32)).astype("uint8"), "z": np.array(BYTE)},
        dtype="uint8",
    ),
    "QLinearConv": Case("QLinearConv", (1, 8, 6, 6), QUANTIZED_CONV, dtype="uint8"),
    "LSTM": recurrent("LSTM", 4),
    "GRU": recurrent("GRU", 3),
    "RNN": recurrent("RNN", 1),
    "InstanceNormalization": Case("InstanceNormalization", (2, 6, 5, 7), {"s": floats(6), "b": floats(6)}),
    "BatchNormalization": Case(
        "BatchNormalization", (2, 6, 5, 7), {"s": floats(6), "b": floats(6), "m": floats(6), "v": np.abs(floats(6)) + 1}
    ),
    "LayerNormalization": Case("LayerNormalization", (2, 5, 48), {"s": floats(48), "b": floats(48)}),
    "QuantizeLinear": Case("QuantizeLinear", (4, 6), {"s": np.array(ONE), "z": np.array(BYTE)}),
}


def declarations(shape: tuple[int, ...]) -> list[list[int | str] | None]:
    """Return all declarations of the sizes: each subset of the axes unknown, and unknown rank."""
    every = itertools.product((False, True), repeat=len(shape))
    return [
        [f"d{axis}" if open_ else size for axis, (open_, size) in enumerate(zip(each, shape, strict=True))]
        for each in every
    ] + [None]


def check(case: Case, context: pumice.Context, precision: str) -> None:
    x = case.x()
    made = exact_session(case.make(list(case.shape))).run(None, {"x": x})[0]
    expected = made.astype("float64")
    # A value between two steps may round either way.
    step = 1 if made.dtype.kind in "iu" and case.op != "MatMulInteger" else 0
    tolerance = TOLERANCES[precision] * np.abs(expected).max() + step
    for sizes in declarations(case.shape):
        with pumice.load(case.make(sizes), context, precision, progress=False) as loaded:
            actual = loaded(x).astype("float64")
        assert np.abs(actual - expected).max() <= tolerance, f"declared {sizes}"


@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers_whatever_is_known_at_load_with_mma(emulating: pumice.Context, name: str) -> None:
    pytest.importorskip("onnxruntime")
    check(CASES[name], emulating, "fp16")


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers_whatever_is_known_at_load(context: pumice.Context, name: str, precision: str) -> None:
    pytest.importorskip("onnxruntime")
    check(CASES[name], context, precision)
