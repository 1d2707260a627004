"""What the caller of validate says, and that the names in it are those of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..base.errors import InputError
from .reference import Reference
from .sources import Subject


class Options(NamedTuple):
    """What the caller of validate says."""

    tolerances: Mapping[str, float]
    allowed: bool | frozenset[str]
    mode: str
    repeat: int = 0  # runs of each case; 0: no repetition
    allows_differences: bool = False  # between the bits of runs
    inputs: str = "device"  # of nodes that are judged by themselves

    def allows(self, *names: str) -> bool:
        """Whether one of the names may be unproved."""
        return self.allowed if isinstance(self.allowed, bool) else any(name in self.allowed for name in names)

    def tolerance(self, node: str, output: str) -> float | None:
        """The absolute error that the caller gives a node or a tensor; None where it gives none."""
        return self.tolerances.get(node, self.tolerances.get(output))


def check_names(subject: Subject, reference: Reference, options: Options) -> None:
    """Checks the names of tolerances and of what may be unproved. Raises InputError where the model has no such node or tensor."""
    known = {value.name for value in (*subject.program.outputs, *subject.outputs)}
    for node in reference.nodes:
        known.update((node.name, *node.outputs))
    for name in options.tolerances:
        if name not in known:
            raise InputError(f"validate: tolerances: expected nodes and tensors of the model, given '{name}'")
    allowed = () if isinstance(options.allowed, bool) else options.allowed
    for name in allowed:
        if name not in known and not _is_operator(name):
            raise InputError(f"validate: allow_unchecked: '{name}' is no node or output of the model, and no operator")


def _is_operator(name: str) -> bool:
    """Whether there is an operator of this name, of any domain, which is given with it where it is not ONNX's own."""
    import onnx.defs

    return "::" in name or any(onnx.defs.has(name, domain) for domain in ("", "ai.onnx.ml"))
