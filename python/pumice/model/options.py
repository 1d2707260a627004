"""Checks of the options that loading a model takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.element_types import PRECISIONS
from ..base.errors import binding_error


def checked_precision(given: Any) -> str:
    """The name of a precision. Raises BindingError (K5) for anything but text; the engine knows which names there
    are.
    """
    if isinstance(given, str):
        return given
    known = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    try:
        meant = known.get(str(np.dtype(given)), "")
    except TypeError:
        meant = ""
    expected = " or ".join(f"'{name}'" for name in PRECISIONS)
    hint = f"its name here is '{meant}'" if meant else ""
    raise binding_error("K5", "precision", expected, repr(given), hint, kind="argument")


def refuse_unknown(given: Mapping[str, Any]) -> None:
    """Raises BindingError (K4) for keyword arguments that loading does not have."""
    for name, value in given.items():
        hint = ""
        if name in ("device", "devices", "provider", "providers"):
            shown = value if isinstance(value, str) else "discrete"
            hint = f"a device is named by a context: context=pumice.Context('{shown}'); pumice.devices() lists them"
        known = "context, precision, folder, progress, seed, fuse and overridable"
        raise binding_error("K4", name, f"one of {known}", f"'{name}'", hint, kind="argument")


def listed(value: Any, kind: str) -> bool | list[str]:
    """An argument that is True, False, or a list of names. Raises BindingError (K4) for anything else."""
    if isinstance(value, bool):
        return value
    names = list(value) if isinstance(value, list | tuple | set | frozenset) else None
    if names is None or not all(isinstance(name, str) for name in names):
        given = "one name" if isinstance(value, str) else repr(value) if names else type(value).__name__
        raise binding_error("K4", str(value), "True, False or a list of names", given, kind=kind)
    return sorted(names) if isinstance(value, set | frozenset) else names
