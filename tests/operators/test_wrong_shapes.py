"""Constants with invalid shapes, next to inputs of unknown size: an error of the engine, or a result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from cases import CASES, Case

Array = npt.NDArray[Any]

MOST_ELEMENTS, CASES_EACH = 4096, 2


def small_cases() -> dict[str, list[Case]]:
    """Return the small cases with the most inputs for each operator."""
    small = [
        case
        for case in CASES
        if case.inputs and case.inputs[0] and all(math.prod(one.shape) <= MOST_ELEMENTS for one in case.inputs if one)
    ]
    by_op = groupby(sorted(small, key=lambda case: (case.op, -len(case.inputs))), key=lambda case: case.op)
    return {op: list(cases)[:CASES_EACH] for op, cases in by_op}


SMALL = small_cases()


@pytest.mark.parametrize("equation", ["ii->i", "ii->", "iij->j"])
@pytest.mark.parametrize("sizes", [(1, 8), (8, 1), (2, 3)])
def test_a_letter_of_two_sizes_in_one_term_is_rejected(
    context: pumice.Context, equation: str, sizes: tuple[int, int]
) -> None:
    """A diagonal does not broadcast, unlike a size-1 axis of another operand."""
    graph = pumice.Graph("einsum")
    x = graph.input("x", "float32", [*sizes, *[4] * (equation.index("-") - 2)])
    with pytest.raises(pumice.GraphError, match="for one letter"):
        graph.output("y", graph.add("Einsum", x, equation=equation))
        graph.compile(context)


def misshapen(array: Array) -> Iterator[Array]:
    """Yield arrays of other shapes with the same elements, with fewer or with none."""
    first = array.reshape(-1)[:1] if array.size else np.zeros(1, array.dtype)
    yield first.reshape(())
    yield array.reshape(-1)
    yield first.reshape((1,) * (array.ndim + 1))
    yield np.zeros((0,) * max(array.ndim, 1), array.dtype)


def run(case: Case, arrays: list[Array | None], context: pumice.Context, has_rank: bool) -> None:
    first = arrays[0]
    assert first is not None
    graph = pumice.Graph()
    x = graph.input("x", str(first.dtype), (None,) * first.ndim if has_rank else None)
    made = graph.add(case.op, x, *arrays[1:], outputs=case.outputs, **case.attributes)
    for j, value in enumerate(made if isinstance(made, tuple) else (made,)):
        graph.output(f"y{j}", value)
    with graph.compile(context) as program:
        program({"x": first})


@pytest.mark.parametrize("op", SMALL)
def test_constants_of_wrong_shapes(op: str, context: pumice.Context) -> None:
    for case in SMALL[op]:
        random = np.random.default_rng(0)
        arrays = [one and one.array(random) for one in case.inputs]
        for i, array in enumerate(arrays):
            if array is None:
                continue
            for wrong in misshapen(array):
                for has_rank in (True, False):
                    try:
                        run(case, [*arrays[:i], wrong, *arrays[i + 1 :]], context, has_rank)
                    except pumice.Error as error:
                        assert str(error)
