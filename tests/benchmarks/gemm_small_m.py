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
class Product:
    rows: int
    depth: int
    columns: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.rows} x {self.depth} x {self.columns} {self.dtype}"


ON_SOFTWARE = (
    Product(1, 1024, 2048, "float32"),
    Product(1, 128, 1009, "float32"),
    Product(1, 1024, 2048, "float16"),
    Product(4, 1024, 2048, "float32"),
    Product(8, 1024, 2048, "float32"),
    Product(16, 1024, 2048, "float32"),
)
ON_GPU = (Product(1, 4096, 4096, "float16"), Product(4, 4096, 4096, "float16"), Product(16, 4096, 4096, "float16"))

Made = tuple[pumice.Program, Mapping[str, Array], int]  # the program, its inputs, and the bytes of its matrix


def precision(product: Product) -> str:
    return "fp16" if product.dtype == "float16" else "fp32"


def of_floats(context: pumice.Context, product: Product, a: Array, b: Array, given: bool) -> Made:
    graph = pumice.Graph(str(product))
    x = graph.input("x", product.dtype, list(a.shape))
    graph.output("y", graph.add("MatMul", x, graph.input("b", product.dtype, list(b.shape)) if given else b))
    return graph.compile(context, precision=precision(product)), {"x": a, "b": b} if given else {"x": a}, b.nbytes


def of_blocks(context: pumice.Context, product: Product, a: Array, codes: Array, scale: float) -> Made:
    """Return an int4 product. codes: [columns, depth], zero point 8."""
    depth, columns = product.depth, product.columns
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(columns, depth // BLOCK, BLOCK // 2)
    scales = np.full(columns * depth // BLOCK, scale, product.dtype)
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=depth, N=columns, bits=4, block_size=BLOCK
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(product.dtype))
    graph = helper.make_graph(
        [node],
        "blocks",
        [helper.make_tensor_value_info("x", kind, list(a.shape))],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(packed, "b"), numpy_helper.from_array(scales, "s")],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return pumice.Model(proto, context, precision=precision(product)).program, {"x": a}, packed.nbytes + scales.nbytes


def rows(session: Session, product: Product) -> Iterator[Row]:
    random = np.random.default_rng(0)
    a = random.uniform(-1, 1, (product.rows, product.depth)).astype(product.dtype)
    codes = random.integers(0, 16, (product.columns, product.depth)).astype("uint8")
    scale = 1 / 64
    b = np.ascontiguousarray(((codes.astype("float32") - 8) * scale).T).astype(product.dtype)
    made = {
        "constant": of_floats(session.context, product, a, b, False),
        "given at the call": of_floats(session.context, product, a, b, True),
        f"4 bits, blocks of {BLOCK}": of_blocks(session.context, product, a, codes, scale),
    }
    times = measure({label: replayed(session.context, [one[:2]]) for label, one in made.items()}, session.effort, 100)
    wanted = a.astype("float32") @ b.astype("float32")
    tolerance = (1e-4 if product.dtype == "float32" else 1e-2) * np.abs(wanted).max()
    for label, (program, given, matrix) in made.items():
        row = timed(f"{product}, {label}", times[label], US)
        row.note = f"{matrix / times[label].best / 1e9:,.3g} GB/s of the matrix"
        row.wrong = bool(np.abs(program.call(tuple(given.values()))[0] - wanted).max() > tolerance)
        if "bits" in label and session.software:
            row.judged, row.target = "best", SHARE * times["constant"].best * US
        yield row


def run(session: Session) -> Iterator[Table]:
    table = Table(f"Products of a few rows, {session.context.info.name}", "us")
    for product in ON_SOFTWARE if session.software else ON_GPU:
        table.rows += rows(session, product)
    yield table
