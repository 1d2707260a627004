"""Check precision arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from .element_types import PRECISIONS
from .errors import binding_error


def checked_precision(given: Any) -> str:
    """Return the name of a precision. Raise BindingError (K5) for other types; the engine checks the name itself."""
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
