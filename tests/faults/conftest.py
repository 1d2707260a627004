"""The fault layer, built once per run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fault_layer
import pumice


@pytest.fixture(scope="session")
def layer_folder(pumice_context: pumice.Context, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the layer and return its folder. Skip without lavapipe, g++ or the Vulkan headers."""
    if "llvmpipe" not in pumice_context.info.name:
        pytest.skip("the layer maps memory and orders dispatches as lavapipe allows")
    if shutil.which("g++") is None or not Path("/usr/include/vulkan/vk_layer.h").exists():
        pytest.skip("the layer needs g++ and the Vulkan headers (libvulkan-dev)")
    return fault_layer.build(tmp_path_factory.mktemp("layer"))
