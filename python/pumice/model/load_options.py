"""Check the options for loading a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from .._pumice import cache_directory
from ..base.errors import binding_error
from ..base.log import at_terminal

if TYPE_CHECKING:
    from .._pumice import Context
    from ..base.progress import Progress
    from ..importer.kernel_operator import KernelTable
    from .precision_policy import Policy
    from .step_variants import StepVariants

OF_EACH_MODEL = (
    "folder",
    "progress",
    "seed",
    "fuse",
    "check_indices",
    "deterministic",
    "operators",
    "kernels",
    "tuned",
)
OF_A_MODEL = ("context", "precision", *OF_EACH_MODEL, "overridable")


class OnePrecision:
    """The policy of a model with a single precision for all nodes."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.entries = {"default": precision}

    def float32_nodes(self) -> None:
        """Return None; a per-node policy returns a collector of its float32 nodes."""

    def check_met(self, model: str) -> None:
        """Do nothing; a per-node policy raises InputError if an entry matched no node."""


def chosen_policy(given: Any) -> Policy | OnePrecision:
    """Return the policy that the argument `precision` describes, see policy_of(). The module for per-node policies is
    imported only if needed.
    """
    if isinstance(given, str) and not given.endswith(".json"):
        return OnePrecision(given)
    from .precision_policy import policy_of

    return policy_of(given)


def refuse_unknown(
    given: Mapping[str, Any], known: Sequence[str] = OF_A_MODEL, hints: Mapping[str, str] | None = None
) -> None:
    """Raise BindingError (K4) for keyword arguments that are not in `known`.

    hints: keyword -> what to use instead; None: the hints for a model on one device.
    """
    for name, value in given.items():
        if name in known:
            continue
        hint = _hint(name, value) if hints is None else hints.get(name, "")
        told = f"one of {', '.join(known[:-1])} and {known[-1]}"
        raise binding_error("K4", name, told, f"'{name}'", hint, kind="argument")


def _hint(name: str, value: Any) -> str:
    if name == "devices":
        return "pumice.load(model, devices=...) loads it on several devices"
    if name in ("device", "provider", "providers"):
        shown = value if isinstance(value, str) else "discrete"
        return f"a device is named by a context: context=pumice.Context('{shown}'); pumice.devices() lists them"
    return ""


def listed(value: Any, kind: str) -> bool | list[str]:
    """Check an argument that is True, False, or a list of names. Raise BindingError (K4) for anything else."""
    if isinstance(value, bool):
        return value
    names = list(value) if isinstance(value, list | tuple | set | frozenset) else None
    if names is None or not all(isinstance(name, str) for name in names):
        given = "one name" if isinstance(value, str) else repr(value) if names else type(value).__name__
        raise binding_error("K4", str(value), "True, False or a list of names", given, kind=kind)
    return sorted(names) if isinstance(value, set | frozenset) else names


def chosen_variants(context: Context, tuned: bool | Mapping[str, str]) -> StepVariants | None:
    """Return the variants that the argument `tuned` selects; None for the engine's own choices. Raise the errors of
    `chosen`.

    If nothing was ever measured, the module that reads measurements is not imported.
    """
    if tuned is True:
        cache = cache_directory()
        if not cache or not os.path.isdir(os.path.join(cache, "tuning")):
            return None
    from .step_variants import chosen

    return chosen(context, tuned)


def shown_bar(what: str, wanted: bool) -> AbstractContextManager[Progress | None]:
    """Return a progress bar for loading; None if it would not be shown, for example without a terminal."""
    if not wanted or not (at_terminal() or "ipykernel" in sys.modules):
        return nullcontext()
    from ..base.progress import Progress

    bar = Progress(what)
    return bar if bar.shown else nullcontext()


def kernel_table(kernels: Any) -> KernelTable:
    """Return the kernel table for the argument `kernels`. Raise the errors of `pumice.kernel_operator()`."""
    from ..importer.kernel_operator import KernelTable

    return kernels if isinstance(kernels, KernelTable) else KernelTable(kernels)
