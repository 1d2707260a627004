"""Findings of a validation: a sentence about a node each."""

from __future__ import annotations

import math
from typing import NamedTuple

NOT_DETERMINISTIC = "not deterministic"  # kind of findings about bits that differ between runs


CASE_OP = "case"  # stands for the operator in a row about a whole case


# Kind of findings about steps that are wrong only if there are no synchronising copies after each step.
RACE = "race"


class Finding(NamedTuple):
    """A finding about a node: its kind, a sentence, and the number in it.

    Kinds: "wrong value", "wrong shape or dtype", "wrong index", "NaN made", "infinity made", "overflow", "underflow",
    "flushed denormals", "saturated integers", "clamped constant", "wide constant", "vanished constant", "rounded
    weights dominate", "ill-conditioned", "amplified", "undecided decisions", "not deterministic", "reference apart",
    "bisected", "stored output", "unproved", "kernels not judged", "race". Findings about wrong and unproved rows
    count towards the verdict, and so does "not deterministic".
    """

    kind: str
    node: str
    text: str
    number: float = math.nan
    case: int = 0
