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

MODEL_OPTIONS = (
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
ALL_MODEL_OPTIONS = ("context", "precision", *MODEL_OPTIONS, "overridable")


class UniformPolicy:
    """The policy of a model with a single precision for all nodes."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.entries = {"default": precision}

    def float32_nodes(self) -> None:
        """Return None; a per-node policy returns a collector of its float32 nodes."""

    def check_all_matched(self, model: str) -> None:
        """Do nothing; a per-node policy raises InputError if an entry matched no node."""


def resolve_policy(precision_argument: Any) -> Policy | UniformPolicy:
    """Return the policy that the argument `precision` describes, see parse_policy(). The module for per-node policies is
    imported only if needed.
    """
    if isinstance(precision_argument, str) and not precision_argument.endswith(".json"):
        return UniformPolicy(precision_argument)
    from .precision_policy import parse_policy

    return parse_policy(precision_argument)


def reject_unknown_options(
    options: Mapping[str, Any], allowed: Sequence[str] = ALL_MODEL_OPTIONS, hints: Mapping[str, str] | None = None
) -> None:
    """Raise BindingError (K4) for keyword arguments that are not in `allowed`.

    hints: keyword -> what to use instead; None: the hints for a model on one device.
    """
    for name, value in options.items():
        if name in allowed:
            continue
        hint = _hint(name, value) if hints is None else hints.get(name, "")
        expectation = f"one of {', '.join(allowed[:-1])} and {allowed[-1]}"
        raise binding_error("K4", name, expectation, f"'{name}'", hint, kind="argument")


def _hint(name: str, value: Any) -> str:
    if name == "devices":
        return "pumice.load(model, devices=...) loads it on several devices"
    if name in ("device", "provider", "providers"):
        device_name = value if isinstance(value, str) else "discrete"
        return f"a device is named by a context: context=pumice.Context('{device_name}'); pumice.devices() lists them"
    return ""


def parse_names(value: Any, kind: str) -> bool | list[str]:
    """Check an argument that is True, False, or a list of names. Raise BindingError (K4) for anything else."""
    if isinstance(value, bool):
        return value
    names = list(value) if isinstance(value, list | tuple | set | frozenset) else None
    if names is None or not all(isinstance(name, str) for name in names):
        received = "one name" if isinstance(value, str) else repr(value) if names else type(value).__name__
        raise binding_error("K4", str(value), "True, False or a list of names", received, kind=kind)
    return sorted(names) if isinstance(value, set | frozenset) else names


def resolve_variants(context: Context, tuned: bool | Mapping[str, str]) -> StepVariants | None:
    """Return the variants that the argument `tuned` selects; None for the engine's own choices. Raise the errors of
    `resolve_step_variants`.

    If nothing was ever measured, the module that reads measurements is not imported.
    """
    if tuned is True:
        cache = cache_directory()
        if not cache or not os.path.isdir(os.path.join(cache, "tuning")):
            return None
    from .step_variants import resolve_step_variants

    return resolve_step_variants(context, tuned)


def make_progress_bar(label: str, enabled: bool) -> AbstractContextManager[Progress | None]:
    """Return a progress bar for loading; None if it would not be shown, for example without a terminal."""
    if not enabled or not (at_terminal() or "ipykernel" in sys.modules):
        return nullcontext()
    from ..base.progress import Progress

    bar = Progress(label)
    return bar if bar.visible else nullcontext()


def kernel_table(kernels: Any) -> KernelTable:
    """Return the kernel table for the argument `kernels`. Raise the errors of `pumice.kernel_operator()`."""
    from ..importer.kernel_operator import KernelTable

    return kernels if isinstance(kernels, KernelTable) else KernelTable(kernels)
