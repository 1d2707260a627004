"""Node by node against bounded values in float64: is every node right by itself, and is the whole program?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .._pumice import Context
from ..base.element_types import Array
from ..base.errors import InputError, unsupported_error
from ..base.log import forward_log
from ..importer.file.model_file import Source
from ..model.model import Model
from ..model.policy import Precision, policy_of
from .proof import Options, Proof
from .report import ValidationReport

Case: TypeAlias = "Sequence[Any] | Mapping[str, Any] | Array"
Progress: TypeAlias = Callable[[int, int], None]

MODES = ("isolated", "chained", "both")


def _by_name(model: Model, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
    """The checked inputs of one case: of the program, and as the model names them. An array alone stands for the only input."""
    positional: Sequence[Any] = ()
    named: Mapping[str, Any] = {}
    if isinstance(case, Mapping):
        named = case
    elif isinstance(case, np.ndarray) or not isinstance(case, Sequence):
        positional = [case]
    else:
        positional = case
    arrays = model.arguments(*positional, **named)
    inputs = {value.name: array for value, array in zip(model.program.inputs, arrays, strict=True)}
    return inputs, {**model.named(*positional, **named), **inputs}


def validate(
    model: Model | Source,
    cases: Iterable[Case],
    *,
    context: Context | None = None,
    precision: Precision | None = None,
    progress: Progress | None = None,
    tolerances: Mapping[str, float] | None = None,
    allow_unchecked: bool | Collection[str] = (),
    mode: str = "both",
) -> ValidationReport:
    """Proves every tensor of the model right, within bounds that are derived element by element, or says which is not.

    The reference computes in float64 by NumPy, and beside each value a bound on what the roundings of this precision can make of it: of
    storage, of accumulation over a sum's length, and of elementary functions. A tensor is "right" where every element is within its bound,
    "wrong" where one is not, and "unproved" where no rule covers its operator; then the results that follow from it are unproved too.
    Each case is a tuple of inputs, a dict by name, or the only input. A node is judged by what it makes of the inputs that the device
    computed, so that the first divergence is where the fault is (`local`), and from the model's inputs on (`accumulated`), which is what
    the fused program's outputs are judged by. There errors of different origin are taken as independent of one another, at 4 times their
    root of the sum of squares. An index out of range is a fault of the node that reads it.
    `context` and `precision`: by default those of a model that is loaded, else the default context and "fp32"; a loaded model of others is
    loaded once more for the validation. `tolerances`: absolute errors by the name of a node or of a tensor, in place of the bounds.
    `allow_unchecked`: names of operators (`com.microsoft::Name`), nodes and outputs that may be unproved; True: all. `mode`: "isolated"
    judges nodes on the device's inputs alone, "chained" everything from the model's inputs on, "both" does both.
    Raises BindingError for wrong inputs, InputError, UnsupportedError, GraphError.
    """
    options = Options(_tolerances(tolerances), _allowed(allow_unchecked), _mode(mode))
    if not isinstance(model, Model):
        with Model(model, context, "fp32" if precision is None else precision) as loaded:
            return _validated(loaded, cases, progress, options)
    policy = model.policy if precision is None else policy_of(precision).entries
    if (context or model.context) is not model.context or policy != model.policy:
        with model.loaded_again(context, precision) as other:
            return _validated(other, cases, progress, options)
    return _validated(model, cases, progress, options)


def _validated(model: Model, cases: Iterable[Case], progress: Progress | None, options: Options) -> ValidationReport:
    if strings := [str(value) for value in (*model.inputs, *model.outputs) if value.dtype == object]:
        raise unsupported_error(f"validation of model '{model.name}'", strings)
    inputs = [_by_name(model, case) for case in cases]
    if not inputs:
        raise InputError("validate: expected at least one case, given none")
    proof = Proof(model, options)
    total = len(inputs) * (len(proof.reference.nodes) + 1)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    try:
        for index, (arrays, given) in enumerate(inputs):
            proof.run(arrays, given, index, step)
    finally:
        proof.close()
        forward_log()
    return proof.report(len(inputs))


def _tolerances(given: Mapping[str, float] | None) -> dict[str, float]:
    made = dict(given or {})
    for name, value in made.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            raise InputError(f"validate: tolerances['{name}']: expected a number of at least 0, given {value!r}")
    return {name: float(value) for name, value in made.items()}


def _allowed(given: bool | Collection[str]) -> bool | frozenset[str]:
    if isinstance(given, bool):
        return given
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise InputError(f"validate: allow_unchecked: expected True or a list of names, given {given!r}")
    return frozenset(given)


def _mode(given: str) -> str:
    if given not in MODES:
        expected = " or ".join(f"'{name}'" for name in MODES)
        raise InputError(f"validate: mode: expected {expected}, given {given!r}")
    return given
