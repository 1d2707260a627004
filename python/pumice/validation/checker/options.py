"""The options of validate, and checks of the names in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...base.element_types import Array
from ...base.errors import InputError
from ...model.model import Model
from ..reference.oracle import ValidationSubject
from ..reference.reference_model import ReferenceModel
from ..report.accuracy import DEFAULT_ACCURACY

Progress: TypeAlias = Callable[[int, int], None]  # called with the numbers of completed and of all steps


class ValidationOptions(NamedTuple):
    """The options of validate."""

    tolerances: Mapping[str, float]
    allowed: bool | frozenset[str]
    mode: str
    repeat: int = 0  # number of runs of each case to compare; 0 for no repeated runs
    allows_differences: bool = False  # whether bits may differ between runs
    inputs: str = "device"  # where the inputs of nodes come from in mode "isolated"
    # Relative accuracy limit of outputs; None for the precision's default.
    accuracy: float | Mapping[str, float] | None = None
    allowed_ill_conditioned: bool | frozenset[str] = frozenset()  # outputs that may exceed the accuracy limit

    def allows_unproved(self, *names: str) -> bool:
        """Return whether one of these nodes or outputs may have the verdict "unproved"."""
        return self.allowed if isinstance(self.allowed, bool) else any(name in self.allowed for name in names)

    def allows_ill_conditioned(self, output: str) -> bool:
        """Return whether an output may be ill-conditioned."""
        return (
            self.allowed_ill_conditioned
            if isinstance(self.allowed_ill_conditioned, bool)
            else output in self.allowed_ill_conditioned
        )

    def get_accuracy_limit(self, output: str, precision: str) -> float | None:
        """Return the relative accuracy limit of an output; None if the caller's absolute tolerance replaces it."""
        if self.get_tolerance(output, output) is not None:
            return None
        default = DEFAULT_ACCURACY.get(precision, DEFAULT_ACCURACY["fp32"])
        if isinstance(self.accuracy, Mapping):
            return self.accuracy.get(output, default)
        return default if self.accuracy is None else self.accuracy

    def get_tolerance(self, node: str, output: str) -> float | None:
        """Return the caller's absolute error for a node or tensor, or None."""
        return self.tolerances.get(node, self.tolerances.get(output))


def check_accuracy(accuracy: float | Mapping[str, float] | None) -> float | dict[str, float] | None:
    """Return the accuracy limit, or the limits by output. Raise InputError if any is not a non-negative number."""
    limits = dict(accuracy) if isinstance(accuracy, Mapping) else {"": accuracy}
    for name, value in limits.items():
        where = f"accuracy['{name}']" if name else "accuracy"
        if value is None and not name:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            raise InputError(
                f"validate: {where}: expected a non-negative number, relative to the scale, given {value!r}"
            )
    floats = {name: float(value) for name, value in limits.items() if value is not None}
    return floats if isinstance(accuracy, Mapping) else floats[""]


def check_output_limits(options: ValidationOptions) -> None:
    """Raise InputError if accuracy limits of outputs are given in a mode that checks no outputs."""
    for argument, is_set in (
        ("accuracy", options.accuracy is not None),
        ("allow_ill_conditioned", options.allowed_ill_conditioned),
    ):
        if is_set and options.mode == "isolated":
            raise InputError(
                f"validate: {argument}: mode 'isolated' judges no outputs; expected 'both', 'chained' or 'bisect' with it"
            )


def make_step_counter(total: int, progress: Progress | None) -> Callable[[], None]:
    """Return a callback to call after each step; it reports the progress. total: expected number of steps."""
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(min(done, total), total)

    return step


def check_option_names(subject: ValidationSubject, reference: ReferenceModel, options: ValidationOptions) -> None:
    """Check the names in the options. Raise InputError if the model has no such node or tensor."""
    known_names = {value.name for value in (*subject.program.outputs, *subject.outputs)}
    for node in reference.nodes:
        known_names.update((node.name, *node.outputs))
    for name in options.tolerances:
        if name not in known_names:
            raise InputError(f"validate: tolerances: expected nodes and tensors of the model, given '{name}'")
    outputs = {value.name for value in (*subject.program.outputs, *subject.outputs)}
    limits = options.accuracy if isinstance(options.accuracy, Mapping) else ()
    ill_conditioned = () if isinstance(options.allowed_ill_conditioned, bool) else options.allowed_ill_conditioned
    for argument, names in (("accuracy", limits), ("allow_ill_conditioned", ill_conditioned)):
        for name in names:
            if name not in outputs:
                raise InputError(f"validate: {argument}: expected outputs of the model, given '{name}'")
    allowed = () if isinstance(options.allowed, bool) else options.allowed
    for name in allowed:
        if name not in known_names and not _is_operator(name):
            raise InputError(f"validate: allow_unchecked: '{name}' is not a node, output or operator of the model")


def _is_operator(name: str) -> bool:
    """Return whether an operator of this name exists. Names include the domain unless it is ONNX's."""
    import onnx.defs

    return "::" in name or any(onnx.defs.has(name, domain) for domain in ("", "ai.onnx.ml"))


def collect_option_metadata(options: ValidationOptions) -> dict[str, Any]:
    """Return the caller's options for JSON. Accuracy options appear only if the caller set them."""
    record: dict[str, Any] = {
        "mode": options.mode,
        "inputs": options.inputs,
        "tolerances": dict(options.tolerances),
        "allow_unchecked": _list_names(options.allowed),
    }
    if options.accuracy is not None:
        record["accuracy"] = dict(options.accuracy) if isinstance(options.accuracy, Mapping) else options.accuracy
    return (
        {**record, "allow_ill_conditioned": _list_names(options.allowed_ill_conditioned)}
        if options.allowed_ill_conditioned
        else record
    )


def _list_names(allowed: bool | Collection[str]) -> bool | list[str]:
    return allowed if isinstance(allowed, bool) else sorted(allowed)


Case: TypeAlias = "Sequence[Any] | Mapping[str, Any] | Array"


def read_case_inputs(model: Model, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
    """Check a case. Return the inputs of the program and of the model by name. A bare array is the only input."""
    positional: Sequence[Any] = ()
    named: Mapping[str, Any] = {}
    if isinstance(case, Mapping):
        named = case
    elif isinstance(case, np.ndarray) or not isinstance(case, Sequence):
        positional = [case]
    else:
        positional = case
    arrays = model._indexed_arguments(*positional, **named)
    inputs = {value.name: array for value, array in zip(model.program.inputs, arrays, strict=True)}
    texts = model._tensor_strings.decode_tensors(inputs) if model._tensor_strings else inputs
    return inputs, {**model.named(*positional, **named), **texts}
