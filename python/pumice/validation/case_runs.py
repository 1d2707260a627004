"""The runs of one case: each program runs once, and a case that is judged again is judged on the results of that run."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from .._pumice import Program, UnsupportedError
from ..base.element_types import Array
from ..base.host_arrays import differing, element_bytes, same_bits
from .reference import Reference
from .rows import DIFFERS, Finding
from .sources import Tensors
from .streaming import Held, Windowed


class CaseRuns:
    """Results of the programs for the case at hand.

    differing: tensors of a model that runs in parts, which have other bits in a later run: the tensors of the first are not kept.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._held: dict[str, Array] | None = None
        self._results: dict[str, Array] | None = None
        self._checksums: dict[str, int] = {}
        self.differing: list[str] = []

    def begin(self) -> None:
        """Starts another case."""
        self._held, self._results, self._checksums, self.differing = None, None, {}, []

    def stream(self, inputs: dict[str, Array], reference: Reference) -> Held:
        """Every tensor of the program of single nodes, of the first run in the case."""
        if self._held is not None:
            return Held(self._held)
        made = self._tensors.stream(inputs, reference)
        if isinstance(made, Windowed):
            made.told = self._check
        else:
            self._held = dict(made)
        return made

    def results(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """The outputs of the program as it ships, of the first run in the case. Raises IndexRangeError."""
        if self._results is None:
            self._results = self._tensors.results(inputs)
        return dict(self._results)

    def _check(self, made: Mapping[str, Array]) -> None:
        for name, array in made.items():
            bits = zlib.crc32(element_bytes(array).data)
            if self._checksums.setdefault(name, bits) != bits:
                self.differing.append(name)


def observed_outputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a run as it is observed for the judgement of kernels; none where the program cannot be observed."""
    try:
        found = program.observe(tuple(inputs[value.name] for value in program.inputs), set())
    except UnsupportedError:
        return {}
    return dict(found["outputs"])


def compared(results: Mapping[str, Array], others: Mapping[str, Array], run: str, case: int) -> list[Finding]:
    """A finding for each output whose bits are others in two runs. run: which run `others` are of, in words."""
    found = []
    for name, array in results.items():
        other = others.get(name)
        if other is None or same_bits(array, other):
            continue
        number = int(differing(array, other).sum())
        text = f"{number} of {array.size} elements of output '{name}' have other bits in {run}"
        found.append(Finding(DIFFERS, name, text, number, case))
    return found
