"""Device fixtures shared by operator tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pumice
from coopmat_context import SPILL_STATISTICS, coopmat_context
from lesser_devices import SHORT_RANGE, lesser


@pytest.fixture(scope="module")
def untold_of_spills(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """The device without spill queries to the driver, so that kernel selection depends on sizes only."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=[SPILL_STATISTICS]) as made:
        yield made


@pytest.fixture(scope="module")
def emulating(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with emulated cooperative matrices, so that it selects their kernels even if it has none. Spilling kernels are allowed."""
    with coopmat_context("emulated", pumice_context) as made:
        yield made


@pytest.fixture(scope="module")
def units(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with fp16 cooperative matrices in the fragment layout that the kernels expect; skipped on others. Spilling kernels are
    allowed.
    """
    with coopmat_context("real", pumice_context) as made:
        yield made


@pytest.fixture(scope="module", params=["emulated", "real"])
def either_units(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device that emulates cooperative matrices, and one that has them (skipped if absent). Spilling tiles are allowed."""
    with coopmat_context(request.param, pumice_context) as made:
        yield made


@pytest.fixture(scope="module", params=["lanes", "tiled"])
def short(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with a maximum buffer range of 64 KiB, with the CPU (SIMD) and the GPU kernels."""
    lacking = ["subgroupShuffle"] if request.param == "tiled" else []
    with lesser(pumice_context, {"maxStorageBufferRange": SHORT_RANGE}, lacking) as made:
        yield made


@pytest.fixture(scope="module")
def device(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """The device with GPU kernels, also on a software driver. Spilling variants are allowed."""
    software = pumice_context.info.kind == "software"
    without = [SPILL_STATISTICS, *(["subgroupShuffle"] if software else [])]
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=without) as made:
        yield made
