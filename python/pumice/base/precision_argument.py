"""Check precision arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from .element_types import PRECISIONS
from .errors import binding_error


def check_precision(precision: Any) -> str:
    """Return the argument if it is a string; the engine checks the name itself. Raise BindingError (K5) for other types."""
    if isinstance(precision, str):
        return precision
    names_by_dtype = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    try:
        suggestion = names_by_dtype.get(str(np.dtype(precision)), "")
    except TypeError:
        suggestion = ""
    expected = " or ".join(f"'{name}'" for name in PRECISIONS)
    hint = f"its name here is '{suggestion}'" if suggestion else ""
    raise binding_error("K5", "precision", expected, repr(precision), hint, kind="argument")
