"""Finds the first step whose result changes if a program runs without synchronising copies after each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._pumice import Program
from ...base.element_types import Array
from ...base.host_arrays import bitwise_equal, find_bit_differences
from ..reference.reference_model import ReferenceNode
from ..report.report_rows import RACE

_NUM_TRIES = 3  # runs per prefix; a race does not show in every run


class RacingStep(NamedTuple):
    """The first step after which a tensor's bits differ from the observed run.

    number: 1-based index of the step. of: number of steps. tensor: name of the tensor in the program. elements: how
    many of its `size` elements differ.
    """

    number: int
    of: int
    node: str
    kernel: str
    tensor: str
    elements: int
    size: int

    def __str__(self) -> str:
        return (
            f"{RACE}: {self.elements} of {self.size} elements of '{self.tensor}' have other bits than with copies after each step, and "
            f"are the first: step {self.number} of {self.of}, node '{self.node}' (kernel {self.kernel}), does not wait for what it needs"
        )


def find_racing_step(program: Program, arrays: Sequence[Array], nodes: Sequence[ReferenceNode]) -> RacingStep | None:
    """Find the step by binary search over prefixes of the program.

    Return None if a plain run of the whole program gives the same bits as the observed run.

    nodes: the model's nodes, to name the producer of the tensor.
    """
    steps = program.plan(list(arrays))
    # Copy every tensor after its step, even those not compared below, so that these values have no race.
    expected = {
        tensor_and_count["name"]: tensor_and_count["array"]
        for tensor_and_count in program.observe(tuple(arrays))["tensors"]
    }
    low, high = 0, len(steps)
    differing_tensors = _find_differing_tensors(program, arrays, high, expected)
    if not differing_tensors:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if earlier := _find_differing_tensors(program, arrays, middle, expected):
            high, differing_tensors = middle, earlier
        else:
            low = middle
    step = steps[high - 1]
    tensor, elements = next(
        (tensor_and_count for tensor_and_count in differing_tensors if tensor_and_count[0]["node"] == step["label"]),
        differing_tensors[0],
    )
    name = tensor["name"].rpartition(" as ")[0] or tensor["name"]
    node = next((node.name for node in nodes if name in node.outputs), step["label"])
    return RacingStep(high, len(steps), node, step["kernel"], tensor["name"], elements, tensor["array"].size)


def _find_differing_tensors(
    program: Program, arrays: Sequence[Array], steps: int, expected: Mapping[str, Array | None]
) -> list[tuple[dict[str, Any], int]]:
    """Run the first `steps` steps. Return the tensors whose bits differ, with the number of differing elements."""
    for _ in range(_NUM_TRIES):
        observed = program.observe(tuple(arrays), None, steps)["tensors"]
        tensors = [(tensor, tensor["array"], expected[tensor["name"]]) for tensor in observed]
        differing_tensors = [
            (tensor, int(find_bit_differences(array, other).sum()))
            for tensor, array, other in tensors
            if array is not None and other is not None and not bitwise_equal(array, other)
        ]
        if differing_tensors:
            return differing_tensors
    return []
