"""Devices that several tests of operators ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pumice
from lesser_devices import SHORT_RANGE, lesser
from matrix_units import UNTOLD_OF_SPILLS, matrix_units


@pytest.fixture(scope="module")
def untold_of_spills(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """The device, whose driver is not asked which kernels spill: what an operator runs depends on its sizes alone."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=[UNTOLD_OF_SPILLS]) as made:
        yield made


@pytest.fixture(scope="module")
def emulating(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device whose matrix units are emulated, so that it takes their kernels whether it has any or not, and whether they spill or not."""
    with matrix_units("emulated", pumice_context) as made:
        yield made


@pytest.fixture(scope="module")
def units(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with matrix units of halves that lie as the kernels take them to lie; tests on others are skipped. Kernels that spill
    are taken too.
    """
    with matrix_units("real", pumice_context) as made:
        yield made


@pytest.fixture(scope="module", params=["emulated", "real"])
def either_units(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device that emulates matrix units, and one that has them; where there are none, the latter is nothing to run on. Tiles whose
    kernels spill are taken too.
    """
    with matrix_units(request.param, pumice_context) as made:
        yield made


@pytest.fixture(scope="module", params=["lanes", "tiled"])
def short(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device that binds ranges of 64 KiB, with the kernels of CPU drivers and with those of GPUs."""
    lacking = ["subgroupShuffle"] if request.param == "tiled" else []
    with lesser(pumice_context, {"maxStorageBufferRange": SHORT_RANGE}, lacking) as made:
        yield made


@pytest.fixture(scope="module")
def device(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """The device; a software driver by its kernels of GPUs. Variants whose kernels spill are taken too."""
    software = pumice_context.info.kind == "software"
    without = [UNTOLD_OF_SPILLS, *(["subgroupShuffle"] if software else [])]
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=without) as made:
        yield made
