"""Devices that several tests of operators ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pumice

# Tests that tell a step which variant to take: the engine takes none whose kernel spills, as it learns from this extension.
UNTOLD_OF_SPILLS = "pipelineExecutableInfo"


@pytest.fixture(scope="module")
def untold_of_spills(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """The device, whose driver is not asked which kernels spill: what an operator runs depends on its sizes alone."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=[UNTOLD_OF_SPILLS]) as made:
        yield made


@pytest.fixture(scope="module")
def emulating(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device whose matrix units are emulated, so that it takes their kernels whether it has any or not, and whether they spill or not."""
    uuid = f"uuid:{pumice_context.info.uuid}"
    with pumice.Context(uuid, without=[UNTOLD_OF_SPILLS], quirks=["emulated_fragments"]) as made:
        yield made


@pytest.fixture(scope="module")
def units(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with matrix units of halves that lie as the kernels take them to lie; tests on others are skipped. Kernels that spill
    are taken too.
    """
    quirks = {quirk.name for quirk in pumice_context.driver_quirks}
    if (
        not pumice_context.info.matrices
        or pumice_context.info.limits["subgroupSize"] != 32
        or "other_matrix_layout" in quirks
    ):
        pytest.skip("needs matrix units of halves whose components lie as the kernels take them to lie")
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=[UNTOLD_OF_SPILLS]) as made:
        yield made


@pytest.fixture(scope="module")
def gpu_kernels(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device for which the kernels of CPU drivers are not taken."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=["subgroupShuffle"]) as made:
        yield made


@pytest.fixture(scope="module")
def device(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """The device; a software driver by its kernels of GPUs. Variants whose kernels spill are taken too."""
    software = pumice_context.info.kind == "software"
    without = [UNTOLD_OF_SPILLS, *(["subgroupShuffle"] if software else [])]
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=without) as made:
        yield made
