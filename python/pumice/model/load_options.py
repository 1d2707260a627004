"""Check and resolve the options for loading a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from .._pumice import cache_directory
from ..base.errors import binding_error
from ..base.log import is_interactive_terminal

if TYPE_CHECKING:
    from .._pumice import Context
    from ..base.progress import Progress
    from ..device.kernel import Kernel
    from ..importer.expression_operator import ElementwiseOperator
    from ..importer.file.graph_recipe import Overridable
    from ..importer.file.model_file import Folder
    from ..importer.kernel_operator import KernelOperator, KernelTable
    from .precision_policy import PrecisionPolicy
    from .step_variants import StepVariants


@dataclass(frozen=True)
class ModelOptions:
    """The options of Model, apart from its context and precision; see Model for their meaning."""

    folder: Folder | None = None
    progress: bool = True
    seed: int | None = None
    fuse: bool | Collection[str] = True
    check_indices: bool = False
    deterministic: bool = False
    operators: Sequence[ElementwiseOperator] = ()
    kernels: Mapping[str, KernelOperator | Kernel | str] | KernelTable | None = None
    tuned: bool | Mapping[str, str] = True
    overridable: Overridable = False


ALL_MODEL_OPTIONS = ("context", "precision", *(field.name for field in fields(ModelOptions)))


class UniformPrecisionPolicy:
    """A precision policy with the same precision for all nodes. See PrecisionPolicy for the interface."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.entries = {"default": precision}

    def make_float32_collector(self) -> None:
        """Return None, because no node is selected for float32."""

    def check_all_matched(self, model: str) -> None:
        """Do nothing, because there are no entries for nodes."""


def resolve_policy(precision_argument: Any) -> PrecisionPolicy | UniformPrecisionPolicy:
    """Return the policy for the argument `precision`; see parse_policy(). The module for per-node policies is imported lazily."""
    if isinstance(precision_argument, str) and not precision_argument.endswith(".json"):
        return UniformPrecisionPolicy(precision_argument)
    from .precision_policy import parse_policy

    return parse_policy(precision_argument)


def reject_unknown_options(
    options: Mapping[str, Any], allowed: Sequence[str] = ALL_MODEL_OPTIONS, hints: Mapping[str, str] | None = None
) -> None:
    """Raise BindingError (K4) for keyword arguments that are not in `allowed`.

    hints: keyword -> hint for the message; None: the hints for a model on one device.
    """
    for name, value in options.items():
        if name in allowed:
            continue
        hint = _make_option_hint(name, value) if hints is None else hints.get(name, "")
        expectation = f"one of {', '.join(allowed[:-1])} and {allowed[-1]}"
        raise binding_error("K4", name, expectation, f"'{name}'", hint, kind="argument")


def _make_option_hint(name: str, value: Any) -> str:
    if name == "devices":
        return "pumice.load(model, devices=...) loads it on several devices"
    if name in ("device", "provider", "providers"):
        device_name = value if isinstance(value, str) else "discrete"
        return f"name the device in a context: context=pumice.Context('{device_name}'); pumice.devices() lists them"
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


def resolve_tuned_variants(context: Context, tuned: bool | Mapping[str, str]) -> StepVariants | None:
    """Return the kernel variants that the argument `tuned` selects; None: the engine's own choices.

    The module that reads measurements is imported only if there are any. Raise the errors of `resolve_step_variants`.
    """
    if tuned is True:
        cache = cache_directory()
        if not cache or not os.path.isdir(os.path.join(cache, "tuning")):
            return None
    from .step_variants import resolve_step_variants

    return resolve_step_variants(context, tuned)


def make_progress_bar(label: str, enabled: bool) -> AbstractContextManager[Progress | None]:
    """Return a context manager that yields a progress bar, or None if it would not be shown, for example without a terminal."""
    if not enabled or not (is_interactive_terminal() or "ipykernel" in sys.modules):
        return nullcontext()
    from ..base.progress import Progress

    bar = Progress(label)
    return bar if bar.visible else nullcontext()


def make_kernel_table(kernels: Any) -> KernelTable:
    """Return the kernel table for the argument `kernels`. Raise the errors of `pumice.kernel_operator()`."""
    from ..importer.kernel_operator import KernelTable

    return kernels if isinstance(kernels, KernelTable) else KernelTable(kernels)
