"""Runs of one case: each program runs once, and repeated checks reuse its results."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from .._pumice import Program, UnsupportedError
from ..base.element_types import Array
from ..base.host_arrays import differing, element_bytes, same_bits
from .reference import Reference
from .report_rows import DIFFERS, Finding
from .tensor_sources import Tensors
from .streaming import Held, Windowed


class CaseRuns:
    """Results of the programs for the current case.

    differing: tensors of a streamed model whose bits differ in a later run, by checksum because tensors are not kept.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._held: dict[str, Array] | None = None
        self._results: dict[str, Array] | None = None
        self._checksums: dict[str, int] = {}
        self.differing: list[str] = []

    def begin(self) -> None:
        """Start another case."""
        self._held, self._results, self._checksums, self.differing = None, None, {}, []

    def stream(self, inputs: dict[str, Array], reference: Reference) -> Held:
        """Return every tensor of the unfused program, from the first run of the case."""
        if self._held is not None:
            return Held(self._held)
        made = self._tensors.stream(inputs, reference)
        if isinstance(made, Windowed):
            made.told = self._check
        else:
            self._held = dict(made)
        return made

    def results(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs of the optimised program, from the first run of the case.

        Raise IndexRangeError if an index is out of range.
        """
        if self._results is None:
            self._results = self._tensors.results(inputs)
        return dict(self._results)

    def _check(self, made: Mapping[str, Array]) -> None:
        for name, array in made.items():
            bits = zlib.crc32(element_bytes(array).data)
            if self._checksums.setdefault(name, bits) != bits:
                self.differing.append(name)


def observed_outputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of an observed run, as used for checking kernels; {} if the program cannot be observed."""
    try:
        found = program.observe(tuple(inputs[value.name] for value in program.inputs), set())
    except UnsupportedError:
        return {}
    return dict(found["outputs"])


def compared(results: Mapping[str, Array], others: Mapping[str, Array], run: str, case: int) -> list[Finding]:
    """Return a finding for each output whose bits differ between two runs. run: a phrase for the run of `others`."""
    found = []
    for name, array in results.items():
        other = others.get(name)
        if other is None or same_bits(array, other):
            continue
        number = int(differing(array, other).sum())
        text = f"{number} of {array.size} elements of output '{name}' have other bits in {run}"
        found.append(Finding(DIFFERS, name, text, number, case))
    return found
