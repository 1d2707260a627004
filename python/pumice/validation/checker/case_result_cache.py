"""Caches the results of the current case: each program runs once, and repeated checks reuse its results."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from ..._pumice import Program, UnsupportedError
from ...base.element_types import Array
from ...base.host_arrays import bitwise_equal, find_bit_differences, view_element_bytes
from ..reference.reference_model import ReferenceModel
from ..reference.streaming import TensorMap, WindowedTensors
from ..reference.tensor_sources import TensorSource
from ..report.report_rows import NOT_DETERMINISTIC, Finding


class CaseResultCache:
    """Results of the programs for the current case.

    differing: tensors of a streamed model whose checksum changed in a later run; the tensors themselves are not kept.
    """

    def __init__(self, tensors: TensorSource) -> None:
        self._tensors = tensors
        self._tensor_map: dict[str, Array] | None = None
        self._results: dict[str, Array] | None = None
        self._checksums: dict[str, int] = {}
        self.differing: list[str] = []

    def begin_case(self) -> None:
        """Drop the results of the previous case."""
        self._tensor_map, self._results, self._checksums, self.differing = None, None, {}, []

    def stream(self, inputs: dict[str, Array], reference: ReferenceModel) -> TensorMap:
        """Return every tensor of the unfused program, from the first run of the case."""
        if self._tensor_map is not None:
            return TensorMap(self._tensor_map)
        tensors = self._tensors.stream(inputs, reference)
        if isinstance(tensors, WindowedTensors):
            tensors.on_window_loaded = self._record_differences
        else:
            self._tensor_map = dict(tensors)
        return tensors

    def compute_outputs(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs of the optimised program, from the first run of the case.

        Raise IndexRangeError if an index is out of range.
        """
        if self._results is None:
            self._results = self._tensors.compute_outputs(inputs)
        return dict(self._results)

    def _record_differences(self, tensors: Mapping[str, Array]) -> None:
        for name, array in tensors.items():
            bits = zlib.crc32(view_element_bytes(array).data)
            if self._checksums.setdefault(name, bits) != bits:
                self.differing.append(name)


def get_observed_outputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of an observed run, as in the kernel checks; {} if the program cannot be observed."""
    try:
        observed = program.observe(tuple(inputs[value.name] for value in program.inputs), set())
    except UnsupportedError:
        return {}
    return dict(observed["outputs"])


def compare_output_bits(
    results: Mapping[str, Array], others: Mapping[str, Array], run: str, case: int
) -> list[Finding]:
    """Return a finding for each output whose bits differ between two runs. run: a phrase that describes the run of `others`."""
    findings = []
    for name, array in results.items():
        other = others.get(name)
        if other is None or bitwise_equal(array, other):
            continue
        number = int(find_bit_differences(array, other).sum())
        text = f"{number} of {array.size} elements of output '{name}' have other bits in {run}"
        findings.append(Finding(NOT_DETERMINISTIC, name, text, number, case))
    return findings
