"""fp32 GEMM on fp16 cooperative matrices (hi/lo split): gemm_split_fp16.comp, in programs with an fp32 node.

The error bound of an element is the step's number of roundings times 2^-24 of the sum of absolute products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice

Array = npt.NDArray[Any]
UNIT = 2.0**-24


@dataclass(frozen=True)
class Case:
    """A GEMM of x [M, K] with constant weights [K, N]; `split`: x is fp32, else fp16."""

    rows: int
    depth: int
    columns: int
    split: bool = False
    tile: str = "gemm_split_fp16 32x32 of 32x32 split 1 unroll 1"
    op: str = "MatMul"
    stored: bool = False  # the result is stored as fp16
    bias: bool = False
    residual: bool = False


CASES = [
    Case(5, 32, 16),
    Case(5, 32, 16, split=True),
    Case(65600, 32, 16, split=True),  # more workgroups than a grid axis guarantees
    Case(33, 72, 31),
    Case(33, 72, 31, split=True),
    Case(40, 96, 36, bias=True),
    Case(40, 96, 36, split=True, bias=True),
    Case(31, 128, 33, op="Gemm", bias=True),
    Case(31, 128, 33, op="Gemm", split=True),
    Case(6, 136, 40, residual=True),
    Case(6, 136, 40, split=True, residual=True),
    Case(37, 264, 40, stored=True),
    Case(37, 264, 40, split=True, stored=True),
    Case(35, 264, 36, tile="gemm_split_fp16 32x32 of 32x32 split 4 unroll 1"),
    Case(35, 264, 36, split=True, tile="gemm_split_fp16 32x32 of 32x32 split 4 unroll 1"),
    Case(35, 328, 70, tile="gemm_split_fp16 32x64 of 32x32 split 2 unroll 1 prefetch"),
    Case(35, 328, 70, split=True, tile="gemm_split_fp16 32x64 of 32x32 split 2 unroll 1 prefetch"),
    Case(66, 72, 70, tile="gemm_split_fp16 64x64 of 32x32 split 1 unroll 2"),
    Case(66, 200, 70, split=True, tile="gemm_split_fp16 64x64 of 32x32 split 1 unroll 2"),
    Case(66, 72, 70, tile="gemm_split_fp16 64x64 of 64x32 split 1 unroll 1"),
    Case(66, 104, 70, split=True, tile="gemm_split_fp16 64x64 of 64x32 split 1 unroll 1"),
    Case(66, 72, 70, tile="gemm_split_fp16 64x64 of 32x32 split 1 unroll 2 low first"),
    Case(66, 320, 70, tile="gemm_split_fp16 64x64 of 32x32 split 1 unroll 2 low first"),
    Case(66, 200, 70, split=True, tile="gemm_split_fp16 64x64 of 32x32 split 1 unroll 2 low first"),
]


def graph_of(case: Case, weights: Array, bias: Array) -> pumice.Graph:
    """Build the graph. The GEMM "wide" reads the input directly, or the row-reversed output of a 16-bit node."""
    graph = pumice.Graph("halves")
    made = graph.input("x", "float32", [case.rows, case.depth])
    if not case.split:
        ends = [np.array([number], np.int64) for number in (-1, np.iinfo(np.int64).min, 0, -1)]
        made = graph.add("Slice", made, *ends, name="turned")
    if case.op == "Gemm":
        made = graph.add("Gemm", made, weights, *([bias] if case.bias else []), name="wide")
    else:
        made = graph.add("MatMul", made, weights, name="wide")
        if case.bias:
            made = graph.add("Add", made, bias, name="bias")
    if case.residual:
        made = graph.add("Add", made, graph.input("r", "float32", [case.rows, case.columns]), name="residual")
    graph.output("y", graph.add("Cast", made, to=10, name="stored") if case.stored else made)
    return graph


def compiled(case: Case, graph: pumice.Graph, context: pumice.Context) -> pumice.Program:
    """Compile with the case's tile, which must be a valid variant."""
    adds = {"bias": case.bias and case.op == "MatMul", "residual": case.residual}
    nodes, tile = ["wide", *(name for name, added in adds.items() if added)], case.tile
    listed = graph.compile(context, "fp16", float32_nodes=nodes, list_variants=True)
    (choice,) = [step["choice"] for step in listed.plan(shapes_of(listed)) if "choice" in step]
    assert tile in choice["variants"]
    program = graph.compile(context, "fp16", float32_nodes=nodes, measured={choice["kind"]: tile})
    (taken,) = [step["choice"]["taken"] for step in program.plan(shapes_of(program)) if "choice" in step]
    assert taken == tile
    return program


def shapes_of(program: pumice.Program) -> list[list[int]]:
    return [[int(size) for size in one.shape] for one in program.inputs]


def kernels_of(program: pumice.Program) -> list[str]:
    return [step["kernel"] for step in program.plan(shapes_of(program))]


def roundings_of(program: pumice.Program) -> int:
    """Return the roundings reported by the GEMM step."""
    (found,) = [
        int(step["additions"]) for step in program.plan(shapes_of(program)) if step["kernel"] == "gemm_split_fp16.comp"
    ]
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matmuls_are_within_the_reported_error(case: Case, either_units: pumice.Context) -> None:
    random = np.random.default_rng(5)
    size, tiny = (3.0, 1.0) if case.stored else (3e4, 1e-12)
    weights = (random.standard_normal((case.depth, case.columns)) * size).astype(np.float32)
    bias = random.standard_normal(case.columns).astype(np.float32)
    rows = random.standard_normal((case.rows, case.depth)).astype(np.float32)
    rows = rows * np.float32(tiny) if case.split else rows.astype(np.float16).astype(np.float32)
    program = compiled(case, graph_of(case, weights, bias), either_units)
    assert ("split_fp16_rows.comp" in kernels_of(program)) == case.split
    given = {"x": rows}
    if case.residual:
        given["r"] = random.standard_normal((case.rows, case.columns)).astype(np.float16).astype(np.float32)
    made = program(given, loop_timeout=None)["y"]
    read = (rows if case.split else rows[::-1]).astype(np.float64)
    expected = read @ weights.astype(np.float64)
    sizes = np.abs(read) @ np.abs(weights).astype(np.float64)
    for added in ([bias] if case.bias else []) + ([given["r"]] if case.residual else []):
        expected, sizes = expected + added, sizes + np.abs(added)
    error = np.abs(made.astype(np.float64) - expected)
    allowed = sizes * UNIT * roundings_of(program) + (np.abs(expected) * 2.0**-11 + 2.0**-25 if case.stored else 0)
    assert (error <= allowed).all()
    if not case.stored:  # fp16 alone would be off by 2^-12 of a product
        assert np.median(error / sizes) < 2.0**-23


@pytest.mark.parametrize("apart", [12, 20, 24, 26, 27, 28, 29, 31, 40])
def test_numbers_far_below_the_largest_are_as_near(apart: int, either_units: pumice.Context) -> None:
    """One column never multiplies the large values of the rows; a value of another column is large next to its values."""
    case = Case(33, 72, 31, split=True)
    random = np.random.default_rng(apart)
    rows = (random.uniform(1, 2, (case.rows, case.depth)) * 2.0**-apart).astype(np.float32)
    weights = (random.uniform(1, 2, (case.depth, case.columns)) * 2.0 ** -min(apart, 27)).astype(np.float32)
    rows[:, 0], weights[0], weights[5, 1] = 1.75, 0, 1.75
    program = compiled(case, graph_of(case, weights, weights[0]), either_units)
    made = program({"x": rows}, loop_timeout=None)["y"].astype(np.float64)
    expected = rows.astype(np.float64) @ weights.astype(np.float64)  # all terms have the same sign
    assert (np.abs(made - expected) <= expected * UNIT * (roundings_of(program) - case.depth)).all()


# ---- values outside the fp16 range

SPECIAL = {
    "huge": 1e30,
    "tiny": 1e-30,
    "denormal": 1e-40,
    "infinity": np.inf,
    "minus infinity": -np.inf,
    "nan": np.nan,
    "zero": 0.0,
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("alone", [True, False], ids=["a row of it", "one of a row"])
def test_rows_of_any_values_match_float32_matmuls(kind: str, alone: bool, either_units: pumice.Context) -> None:
    case = Case(40, 72, 36, split=True)
    random = np.random.default_rng(6)
    weights = random.standard_normal((case.depth, case.columns)).astype(np.float32)
    rows = random.standard_normal((case.rows, case.depth)).astype(np.float32)
    for row in (0, 7, 33):
        rows[row, slice(None) if alone else 5] = SPECIAL[kind]
    check_as_float32(case, rows, weights, either_units)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 65504.0, 2.0**-24, -0.0])
def test_any_float16_values_match_float32_matmuls(number: float, either_units: pumice.Context) -> None:
    case = Case(40, 72, 36)
    random = np.random.default_rng(7)
    weights = random.standard_normal((case.depth, case.columns)).astype(np.float32)
    weights[5, ::3] = 0
    weights[6, ::2] = 2.0**-20
    rows = random.standard_normal((case.rows, case.depth)).astype(np.float16).astype(np.float32)
    rows[3, 5], rows[20, 6], rows[39] = number, number, number
    check_as_float32(case, rows, weights, either_units)


@pytest.mark.parametrize("size", [1e-25, 1e-10, 1e10, 1e30])
def test_a_matrix_of_any_size_is_split_into_two_float16(size: float, either_units: pumice.Context) -> None:
    """Results above the fp32 range are infinite; subnormal results are nearly exact."""
    case = Case(40, 72, 36, split=True)
    random = np.random.default_rng(8)
    weights = (random.standard_normal((case.depth, case.columns)) * size).astype(np.float32)
    rows = (random.standard_normal((case.rows, case.depth)) * 10.0 ** random.integers(-25, 26, (case.rows, 1))).astype(
        np.float32
    )
    check_as_float32(case, rows, weights, either_units)


def check_as_float32(case: Case, rows: Array, weights: Array, context: pumice.Context) -> None:
    """Finite results are within the reported roundings; all others equal float64 results rounded to float32."""
    program = compiled(case, graph_of(case, weights, np.zeros(1)), context)
    assert "gemm_split_fp16.comp" in kernels_of(program)
    made = program({"x": rows}, loop_timeout=None)["y"].astype(np.float64)
    read = (rows if case.split else rows[::-1]).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = read @ weights.astype(np.float64)
        stored = expected.astype(np.float32)
    finite = np.isfinite(stored)
    np.testing.assert_array_equal(np.where(finite, 0, made), np.where(finite, 0, stored.astype(np.float64)))
    sizes = np.abs(np.nan_to_num(read, nan=0, posinf=0, neginf=0)) @ np.abs(weights).astype(np.float64)
    error = np.abs(np.where(finite, made, 0) - np.where(finite, expected, 0))
    assert (error <= sizes * UNIT * roundings_of(program) + 2.0**-126).all()


@pytest.mark.parametrize("number", [1e12, 1e-12, np.inf, np.nan])
def test_a_matrix_whose_numbers_are_too_far_apart_stays_float32(number: float, either_units: pumice.Context) -> None:
    case = Case(40, 72, 36, split=True)
    weights = np.ones((case.depth, case.columns), np.float32) / 3
    weights[3, 4] = number
    program = graph_of(case, weights, np.zeros(1)).compile(
        either_units, "fp16", float32_nodes=["wide"], list_variants=True
    )
    (choice,) = [step["choice"] for step in program.plan(shapes_of(program)) if "choice" in step]
    assert not [variant for variant in choice["variants"] if "halves" in variant]


# ---- selection


def choice_of(case: Case, context: pumice.Context, precision: str = "fp16", wide: bool = True) -> Any:
    graph = graph_of(case, np.full((case.depth, case.columns), 1 / 3, np.float32), np.zeros(1))
    program = graph.compile(context, precision, float32_nodes=["wide"] if wide else [], list_variants=True)
    return next(step["choice"] for step in program.plan(shapes_of(program)) if "choice" in step)


@pytest.mark.parametrize(
    ("case", "taken"),
    [
        (Case(5, 256, 64), True),
        (Case(4, 256, 64), False),
        (Case(5, 248, 64), False),
        (Case(5, 260, 64), False),
        (Case(5, 256, 63), False),
        (Case(512, 512, 512, split=True), True),
        (Case(511, 512, 512, split=True), False),
    ],
    ids=str,
)
def test_float32_matmuls_use_split_fp16_if_faster(case: Case, taken: bool, either_units: pumice.Context) -> None:
    assert ("gemm_split_fp16" in choice_of(case, either_units)["own"]) == taken


@pytest.mark.parametrize(("precision", "wide"), [("fp32", False), ("bf16", True), ("fp16", False)])
def test_other_matmuls_do_not(precision: str, wide: bool, either_units: pumice.Context) -> None:
    choice = choice_of(Case(40, 256, 64), either_units, precision, wide)
    assert not [variant for variant in choice["variants"] if "halves" in variant]
