"""Attention on the device: many queries, few queries and one query over a long cache, compared with PyTorch's scaled_dot_product_attention.
Attention on the device: many queries, few queries and one query over a long cache, compared with PyTorch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import pumice

from . import peers
from .contender import Array
from .kernels import US
from .operators import compare, random_array, replayed, torch_note
from .rows import Table, timed
from .session import Session


@dataclass(frozen=True)
class Shape:
    """Queries of [batch, heads, rows, size], keys and values of [batch, kv_heads, keys, size]."""

    batch: int
    heads: int
    rows: int
    keys: int
    size: int
    dtype: str = "float16"
    causal: bool = False
    kv_heads: int = 0  # 0: same as heads
    written: bool = False  # written in primitives, without fusion

    def __str__(self) -> str:
        heads = f"{self.heads} of {self.kv_heads}" if self.kv_heads else str(self.heads)
        more = (", causal" if self.causal else "") + (", unfused" if self.written else "")
        return f"{self.batch} x {heads} x {self.rows} x {self.size}, {self.keys} keys, {self.dtype}{more}"

    @property
    def shapes(self) -> list[list[int]]:
        keys = [self.batch, self.kv_heads or self.heads, self.keys, self.size]
        return [[self.batch, self.heads, self.rows, self.size], keys, keys]

    @property
    def torch(self) -> str:
        causal, grouped = bool(self.causal), bool(self.kv_heads)
        return f"F.scaled_dot_product_attention(a, b, c, is_causal={causal}, enable_gqa={grouped})"

    @property
    def work(self) -> float:
        """Return the number of multiplications and additions."""
        return 4.0 * self.batch * self.heads * self.rows * self.keys * self.size / (2 if self.causal else 1)

    @property
    def bytes(self) -> int:
        """Return the bytes read and written."""
        elements = sum(int(np.prod(shape)) for shape in (*self.shapes, self.shapes[0]))
        return elements * np.dtype(self.dtype).itemsize


SHAPES = (
    Shape(1, 32, 2048, 2048, 128, causal=True),
    Shape(1, 32, 2048, 2048, 128),
    Shape(1, 32, 2048, 2048, 64, causal=True),
    Shape(8, 12, 128, 128, 64),
    Shape(8, 12, 128, 128, 64, written=True),
    Shape(1, 12, 128, 128, 64),
    Shape(1, 12, 197, 197, 64),
    Shape(1, 32, 1, 4096, 128),
    Shape(1, 32, 1, 4096, 128, kv_heads=8),
    Shape(8, 12, 1, 1024, 64),
    Shape(1, 32, 2048, 2048, 128, "float32", causal=True),
    Shape(8, 12, 128, 128, 64, "float32"),
    Shape(1, 32, 1, 4096, 128, "float32"),
)
SHAPES_ON_SOFTWARE = (
    Shape(1, 12, 128, 128, 64, "float32"),
    Shape(1, 12, 128, 128, 64, "float32", written=True),
    Shape(1, 4, 512, 512, 64, "float32", causal=True),
    Shape(1, 12, 1, 1024, 64, "float32"),
    Shape(1, 12, 1, 1024, 64, "float32", written=True),
)


def program_of(case: Shape, context: pumice.Context) -> tuple[pumice.Program, dict[str, Array]]:
    graph = pumice.Graph(str(case))
    given = {name: random_array(shape, case.dtype) for name, shape in zip("qkv", case.shapes, strict=True)}
    q, k, v = (graph.input(name, case.dtype, list(array.shape)) for name, array in given.items())
    if case.written:
        scale = np.array(case.size**-0.5, case.dtype)
        scores = graph.add("Mul", graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 1, 3, 2])), scale)
        graph.output("y", graph.add("MatMul", graph.add("Softmax", scores), v))
    else:
        graph.output("y", graph.add("Attention", q, k, v, is_causal=int(case.causal)))
    precision = "fp16" if case.dtype == "float16" else "fp32"
    return graph.compile(context, precision=precision, fuse=not case.written), given


def run(session: Session) -> Iterator[Table]:
    table = Table(f"Attention, {session.context.info.name}", "us")
    for case in SHAPES_ON_SOFTWARE if session.software else SHAPES:
        shapes = [(shape, case.dtype) for shape in case.shapes]
        mine, theirs = compare(
            session,
            lambda case=case: replayed(session.context, [program_of(case, session.context)]),  # type: ignore[misc]
            lambda case=case, shapes=shapes: session.torch.make(peers.torch_operator, case.torch, shapes).device,  # type: ignore[misc]
        )
        row = timed(str(case), mine, US)
        if not mine.absent:
            speed = f"{case.work * 1e-12 / mine.median:,.4g} TFLOP/s, {case.bytes * 1e-9 / mine.median:,.4g} GB/s"
            row.note = f"{speed}; {torch_note(theirs)}"
        table.rows.append(row)
    yield table
