"""FLOP counts of operator rows, as reported by a profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pumice
from cases import CASES, Case
from operator_references import compiled
from pumice import _pumice

ROWS = {row.name: row for row in _pumice.operators()}


# Einsum equations that only move elements.
MOVES = {"ii->i", "ijk->kij"}


def work_of(program: pumice.Program, given: dict[str, Any]) -> int:
    """Return the FLOPs of one call."""
    with pumice.profile("execution") as measured:
        program(given)
    return sum(span.flop for span in measured.spans)


def conv_gemm_cases() -> Iterator[Any]:
    for case in CASES:
        if ROWS[case.op].skeleton == "contraction":
            yield pytest.param(case, id=str(case), marks=[pytest.mark.slow] if case.large else [])


@pytest.mark.parametrize("case", list(conv_gemm_cases()))
def test_every_matmul_and_conv_has_work(case: Case, pumice_context: pumice.Context) -> None:
    program, given = compiled(case, pumice_context)
    is_empty = any(one and 0 in one.shape for one in case.inputs)
    assert (work_of(program, given) > 0) == (not is_empty and case.attributes.get("equation") not in MOVES)


def einsum(equation: str, *shapes: tuple[int, ...]) -> tuple[pumice.Graph, dict[str, Any]]:
    graph = pumice.Graph()
    values = [graph.input(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)]
    graph.output("y", graph.add("Einsum", *values, equation=equation))
    return graph, {f"x{i}": np.ones(shape, "float32") for i, shape in enumerate(shapes)}


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(64, 64), (64, 64)], 2 * 64**3),
        ("bij,bjk->bik", [(3, 4, 5), (3, 5, 7)], 2 * 3 * 4 * 5 * 7),
        ("ij,jk,kl->il", [(2, 3), (3, 5), (5, 7)], 2 * 2 * 3 * 5 + 2 * 2 * 5 * 7),
        ("ij,k->ik", [(4, 6), (5,)], 4 * 6 + 2 * 4 * 5),
        ("ij->j", [(4, 6)], 4 * 6),
        ("ij->ji", [(4, 6)], 0),
    ],
)
def test_an_einsum_counts_sums_and_multiplications(
    equation: str, shapes: list[tuple[int, ...]], expected: int, pumice_context: pumice.Context
) -> None:
    graph, given = einsum(equation, *shapes)
    assert work_of(graph.compile(pumice_context), given) == expected


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_counts_its_gate_matmuls(op: str, gates: int, pumice_context: pumice.Context) -> None:
    steps, batch, inputs, units = 3, 2, 5, 7
    graph = pumice.Graph()
    shapes = {"x": (steps, batch, inputs), "w": (1, gates * units, inputs), "r": (1, gates * units, units)}
    values = [graph.input(name, "float32", shape) for name, shape in shapes.items()]
    graph.output("y", graph.add(op, *values))
    given = {name: np.ones(shape, "float32") for name, shape in shapes.items()}
    expected = 2 * steps * batch * gates * units * (inputs + units)
    assert work_of(graph.compile(pumice_context), given) == expected


def test_a_transform_counts_its_passes(pumice_context: pumice.Context) -> None:
    """128 elements take passes of radix 32 and 4, with 4 operations per product of a real element and 8 per complex one."""
    graph = pumice.Graph()
    graph.output("y", graph.add("DFT", graph.input("x", "float32", (2, 128, 1))))
    given = {"x": np.ones((2, 128, 1), "float32")}
    assert work_of(graph.compile(pumice_context), given) == 2 * 128 * (4 * 32 + 8 * 4)


def test_attention_counts_the_keys_of_a_cache(pumice_context: pumice.Context) -> None:
    """Four queries attend to 3 new and 5 past keys of size 6; values have size 10."""
    graph = pumice.Graph()
    shapes = {"q": (1, 2, 4, 6), "k": (1, 2, 3, 6), "v": (1, 2, 3, 10), "pk": (1, 2, 5, 6), "pv": (1, 2, 5, 10)}
    q, k, v, past_k, past_v = (graph.input(name, "float32", shape) for name, shape in shapes.items())
    graph.output("y", graph.add("Attention", q, k, v, None, past_k, past_v, outputs=1))
    given = {name: np.ones(shape, "float32") for name, shape in shapes.items()}
    assert work_of(graph.compile(pumice_context), given) == 2 * 2 * 4 * 8 * (6 + 10)
