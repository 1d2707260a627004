"""fp32 products in an fp16 program: split into hi/lo fp16 on cooperative matrices, and without them; compared with a plain fp16 product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import pumice

from .operators import replayed
from .rows import Row, Table, timed
from .session import Session
from .timing import measure

US = 1e6
PLAIN = (  # kernels without cooperative matrices
    "conv_tiled 128x128 split 1",
    "conv_tiled 64x64 split 1",
    "conv_tiled 32x32 split 1",
    "conv_tiled 32x32 split 4",
    "conv_cpu",
)
FLOAT, HALF = 1, 10  # ONNX dtype numbers
CHECKED = 64  # rows compared with float64


@dataclass(frozen=True)
class Gemm:
    """split: fp32 rows, split into hi/lo; else fp16."""

    rows: int
    depth: int
    columns: int
    split: bool

    def __str__(self) -> str:
        return f"{self.rows} x {self.depth} x {self.columns}, rows of {'float32' if self.split else 'halves'}"


SIZES = ((4096, 512, 512), (4096, 4096, 512), (512, 512, 512), (128, 768, 768), (16, 4096, 4096), (2048, 2048, 2048))
ON_GPU = tuple(Gemm(*sizes, split) for sizes in SIZES for split in (False, True))
ON_SOFTWARE = (Gemm(16, 256, 64, False),)

Made = tuple[pumice.Program, dict[str, Any]]


def compiled(session: Session, gemm: Gemm, a: Any, b: Any, wide: bool, measured: dict[str, str] | None = None) -> Made:
    """Compile with measured choices, or with a list of the variants if None."""
    graph = pumice.Graph(str(gemm))
    x = graph.input("x", "float32" if gemm.split else "float16", list(a.shape))
    made = graph.add("MatMul", x if gemm.split else graph.add("Cast", x, to=FLOAT), b, name="wide")
    graph.output("y", made if wide else graph.add("Cast", made, to=HALF))
    nodes = ["wide"] if wide else []
    return graph.compile(
        session.context, "fp16", float32_nodes=nodes, measured=measured, list_variants=measured is None
    ), {"x": a}


def choice_of(made: Made) -> Any:
    program, given = made
    return next(step["choice"] for step in program.plan([list(given["x"].shape)]) if "choice" in step)


def contenders(session: Session, gemm: Gemm, a: Any, b: Any) -> dict[str, Made]:
    listed = choice_of(compiled(session, gemm, a, b, True))
    kind, own = listed["kind"], listed["own"]
    narrow = compiled(session, gemm, a, b, False)
    made = {f"halves alone, {choice_of(narrow)['own']}": narrow}
    plain = [one for one in listed["variants"] if one.startswith(PLAIN)]
    for variant in [*plain, *(one for one in listed["variants"] if "halves" in one)]:
        made[f"{variant}{' (taken)' if variant == own else ''}"] = compiled(session, gemm, a, b, True, {kind: variant})
    return made


def rows(session: Session, gemm: Gemm) -> Iterator[Row]:
    random = np.random.default_rng(0)
    a = random.standard_normal((gemm.rows, gemm.depth)).astype("float32" if gemm.split else "float16")
    b = random.standard_normal((gemm.depth, gemm.columns)).astype("float32")
    made = contenders(session, gemm, a, b)
    times = measure({label: replayed(session.context, [one]) for label, one in made.items()}, session.effort, 50)
    few, matrix = a[:CHECKED].astype("float64"), b.astype("float64")
    wanted, sizes = few @ matrix, np.abs(few) @ np.abs(matrix)
    for label, (program, given) in made.items():
        row = timed(f"{gemm}, {label}", times[label], US)
        result = program.call(tuple(given.values()))[0][:CHECKED]
        error = float(np.max(np.abs(result - wanted) / sizes)) * 2.0**24
        row.note = f"{2 * gemm.rows * gemm.depth * gemm.columns / times[label].best / 1e12:.3g} TFLOP/s, off by {error:.2g} units"
        row.wrong = "alone" not in label and not error <= 2 * gemm.depth + 60
        yield row


def run(session: Session) -> Iterator[Table]:
    for gemm in ON_SOFTWARE if session.software else ON_GPU:
        table = Table(f"{gemm}, {session.context.info.name}", "us")
        table.rows += rows(session, gemm)
        yield table
