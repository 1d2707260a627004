"""Contexts of a device whose matrix units of halves a test wants, as they are or emulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pumice

# Tests that tell a step which variant to take: the engine takes none whose kernel spills, as it learns from this extension.
UNTOLD_OF_SPILLS = "pipelineExecutableInfo"


@contextmanager
def matrix_units(kind: str, context: pumice.Context, *without: str) -> Iterator[pumice.Context]:
    """The device of a context without these features. kind: "emulated", whether it has units or not; or "real": tests on a device without
    units that lie as the kernels take them to lie are skipped. Kernels that spill are taken too.
    """
    quirks = {quirk.name for quirk in context.driver_quirks}
    has_units = bool(context.info.matrices) and context.info.limits["subgroupSize"] == 32
    if kind == "real" and (not has_units or "other_matrix_layout" in quirks):
        pytest.skip("needs matrix units of halves whose components lie as the kernels take them to lie")
    taken = ["emulated_fragments"] if kind == "emulated" else []
    with pumice.Context(f"uuid:{context.info.uuid}", without=[UNTOLD_OF_SPILLS, *without], quirks=taken) as made:
        yield made
