"""GEMM with small M on the device, bound by reading the matrix: constant weights, runtime weights, and block-quantised int4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import helper, numpy_helper

import pumice

from .contender import Array
from .operators import replayed
from .rows import Row, Table, timed
from .session import Session
from .timing import measure

US = 1e6
BLOCK = 32
SHARE = 2.0  # maximum time of an int4 product relative to a float one


@dataclass(frozen=True)
class Gemm:
    rows: int
    depth: int
    columns: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.rows} x {self.depth} x {self.columns} {self.dtype}"


ON_SOFTWARE = (
    Gemm(1, 1024, 2048, "float32"),
    Gemm(1, 128, 1009, "float32"),
    Gemm(1, 1024, 2048, "float16"),
    Gemm(4, 1024, 2048, "float32"),
    Gemm(8, 1024, 2048, "float32"),
    Gemm(16, 1024, 2048, "float32"),
)
ON_GPU = (Gemm(1, 4096, 4096, "float16"), Gemm(4, 4096, 4096, "float16"), Gemm(16, 4096, 4096, "float16"))

Made = tuple[pumice.Program, Mapping[str, Array], int]  # the program, its inputs, and the bytes of its matrix


def precision(gemm: Gemm) -> str:
    return "fp16" if gemm.dtype == "float16" else "fp32"


def build_float_gemm(context: pumice.Context, gemm: Gemm, a: Array, b: Array, given: bool) -> Made:
    graph = pumice.Graph(str(gemm))
    x = graph.input("x", gemm.dtype, list(a.shape))
    graph.output("y", graph.add("MatMul", x, graph.input("b", gemm.dtype, list(b.shape)) if given else b))
    return graph.compile(context, precision=precision(gemm)), {"x": a, "b": b} if given else {"x": a}, b.nbytes


def build_quant_gemm(context: pumice.Context, gemm: Gemm, a: Array, codes: Array, scale: float) -> Made:
    """Return an int4 product. codes: [columns, depth], zero point 8."""
    depth, columns = gemm.depth, gemm.columns
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(columns, depth // BLOCK, BLOCK // 2)
    scales = np.full(columns * depth // BLOCK, scale, gemm.dtype)
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=depth, N=columns, bits=4, block_size=BLOCK
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(gemm.dtype))
    graph = helper.make_graph(
        [node],
        "blocks",
        [helper.make_tensor_value_info("x", kind, list(a.shape))],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(packed, "b"), numpy_helper.from_array(scales, "s")],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return pumice.Model(proto, context, precision=precision(gemm)).program, {"x": a}, packed.nbytes + scales.nbytes


def rows(session: Session, gemm: Gemm) -> Iterator[Row]:
    random = np.random.default_rng(0)
    a = random.uniform(-1, 1, (gemm.rows, gemm.depth)).astype(gemm.dtype)
    codes = random.integers(0, 16, (gemm.columns, gemm.depth)).astype("uint8")
    scale = 1 / 64
    b = np.ascontiguousarray(((codes.astype("float32") - 8) * scale).T).astype(gemm.dtype)
    made = {
        "constant": build_float_gemm(session.context, gemm, a, b, False),
        "given at the call": build_float_gemm(session.context, gemm, a, b, True),
        f"4 bits, blocks of {BLOCK}": build_quant_gemm(session.context, gemm, a, codes, scale),
    }
    times = measure({label: replayed(session.context, [one[:2]]) for label, one in made.items()}, session.effort, 100)
    wanted = a.astype("float32") @ b.astype("float32")
    tolerance = (1e-4 if gemm.dtype == "float32" else 1e-2) * np.abs(wanted).max()
    for label, (program, given, matrix) in made.items():
        row = timed(f"{gemm}, {label}", times[label], US)
        row.note = f"{matrix / times[label].best / 1e9:,.3g} GB/s of the matrix"
        row.wrong = bool(np.abs(program.call(tuple(given.values()))[0] - wanted).max() > tolerance)
        if "bits" in label and session.software:
            row.judged, row.target = "best", SHARE * times["constant"].best * US
        yield row


def run(session: Session) -> Iterator[Table]:
    table = Table(f"Products of a few rows, {session.context.info.name}", "us")
    for gemm in ON_SOFTWARE if session.software else ON_GPU:
        table.rows += rows(session, gemm)
    yield table
