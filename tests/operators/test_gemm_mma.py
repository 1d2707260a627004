"""fp16 GEMM on cooperative matrices with both operands from global memory: gemm_mma.comp, with given tiles.

The error bound of an element is the step's number of roundings times 2^-24 of the sum of absolute products, plus its own rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import pumice
from features import need_limits
from mma_convolutions import EMULATION

SUMMED, STORED = 2.0**-24, 2.0**-11


@dataclass(frozen=True)
class Case:
    rows: int
    depth: int
    columns: int
    tile: str
    bias: bool = False


IN_PLACE = "gemm_mma 128x64 of 64x64 split 1 unroll 1 in place"
CASES = [
    Case(128, 256, 64, IN_PLACE),
    Case(128, 288, 192, IN_PLACE, bias=True),
    Case(384, 320, 64, IN_PLACE),
    Case(65, 456, 200, "gemm_mma 32x64 of 32x32 split 2 unroll 1 prefetch"),
    Case(70, 288, 72, "gemm_mma 32x64 of 32x32 split 2 unroll 1 prefetch", bias=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matmuls_are_within_the_reported_error(case: Case, either_units: pumice.Context) -> None:
    random = np.random.default_rng(7)
    weights = random.standard_normal((case.depth, case.columns)).astype(np.float16)
    bias = random.standard_normal(case.columns).astype(np.float16)
    x = random.standard_normal((case.rows, case.depth)).astype(np.float16)

    def compiled(measured: dict[str, str]) -> pumice.Program:
        graph = pumice.Graph("product")
        made = graph.add("MatMul", graph.input("x", "float16", [case.rows, case.depth]), weights)
        graph.output("y", graph.add("Add", made, bias) if case.bias else made)
        return graph.compile(either_units, "fp16", measured=measured, list_variants=True)

    (choice,) = [step["choice"] for step in compiled({}).plan([x.shape]) if "choice" in step]
    if case.tile not in choice["variants"]:
        need_limits(either_units, **EMULATION)
    assert case.tile in choice["variants"]
    program = compiled({choice["kind"]: case.tile})
    (step,) = [step for step in program.plan([x.shape]) if "choice" in step]
    assert step["choice"]["taken"] == case.tile, step["choice"]
    (made,) = program.call((x,))
    exact = x.astype(np.float64) @ weights.astype(np.float64) + (bias if case.bias else 0.0)
    sizes = np.abs(x.astype(np.float64)) @ np.abs(weights.astype(np.float64)) + (np.abs(bias) if case.bias else 0.0)
    allowed = SUMMED * int(step["additions"]) * sizes + STORED * np.abs(exact) * 1.001
    assert (np.abs(made - exact) <= allowed).all()


@pytest.mark.parametrize(("rows", "depth", "columns"), [(127, 256, 64), (128, 264, 64), (128, 256, 72)])
def test_a_partial_tile_is_not_read_in_place(rows: int, depth: int, columns: int, either_units: pumice.Context) -> None:
    need_limits(either_units, **EMULATION)
    graph = pumice.Graph("product")
    x = graph.input("x", "float16", [rows, depth])
    graph.output("y", graph.add("MatMul", x, np.ones((depth, columns), np.float16)))
    (step,) = graph.compile(either_units, "fp16", list_variants=True).plan([[rows, depth]])
    assert any(name.startswith("gemm_mma ") for name in step["choice"]["variants"])
    assert IN_PLACE not in step["choice"]["variants"]
