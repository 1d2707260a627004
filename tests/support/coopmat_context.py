"""Contexts with fp16 cooperative matrices, native or emulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pumice

# Prevents spill checks, which use this extension: tests that force a variant need spilling kernels too.
SPILL_STATISTICS = "pipelineExecutableInfo"


@contextmanager
def coopmat_context(kind: str, context: pumice.Context, *without: str) -> Iterator[pumice.Context]:
    """Yield a context on the same device without these features. kind: "emulated", on any device; or "real": the test is skipped if the
    device has no cooperative matrices in the fragment layout that the kernels assume. Spilling kernels are allowed.
    """
    quirks = {quirk.name for quirk in context.driver_quirks}
    has_units = bool(context.info.matrices) and context.info.limits["subgroupSize"] == 32
    if kind == "real" and (not has_units or "other_matrix_layout" in quirks):
        pytest.skip("needs fp16 cooperative matrices with the fragment layout the kernels assume")
    taken = ["emulated_fragments"] if kind == "emulated" else []
    with pumice.Context(
        f"uuid:{context.info.uuid}", without=[SPILL_STATISTICS, *without], quirks=taken
    ) as other_context:
        yield other_context
