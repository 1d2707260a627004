"""Limits and missing features of ten devices, from the sources of their drivers and from published reports.

A figure without a source is left out. `limits` has the driver's figures, also those that no software driver reaches; `lacks` has the
engine's features and extensions that lavapipe of Mesa 22.3 has and the device has not. tests/profiles.py runs the tests with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pumice import DeviceInfo

MESA = "Mesa 26.0.0-devel (d8e524cd6bb, 2025-12-30)"
_ATOMIC_FLOAT = ("VK_EXT_shader_atomic_float",)
_FLOAT64 = ("shaderFloat64", "shaderSignedZeroInfNanPreserveFloat64", "shaderRoundingModeRTEFloat64")
_DISCRETE = ("unifiedMemory",)


@dataclass(frozen=True)
class Profile:
    """A device whose limits and missing features the tests simulate."""

    name: str
    driver: str
    sources: tuple[str, ...]
    api: str
    subgroup: str  # for information: the software driver's subgroups execute
    vector_bits: int  # LP_NATIVE_VECTOR_WIDTH with the nearest subgroup size
    limits: Mapping[str, int]
    lacks: tuple[str, ...]
    notes: str = ""


@dataclass(frozen=True)
class Restriction:
    """The part of a profile that a device can simulate, and the part that it has or lacks anyway."""

    limits: dict[str, int]
    without: list[str]
    unsimulated: list[str]  # limits of the profile that exceed the device's

    @property
    def variables(self) -> dict[str, str]:
        limits = ",".join(f"{name}={value}" for name, value in self.limits.items())
        return {"PUMICE_LIMITS": limits, "PUMICE_WITHOUT": ",".join(self.without)}


def _cube(x: int, y: int, z: int) -> dict[str, int]:
    return {f"maxComputeWorkGroupSize_{axis}": size for axis, size in enumerate((x, y, z))}


_AMD_LIMITS = {
    "maxComputeSharedMemorySize": 65536,
    "maxComputeWorkGroupCount": 65535,  # _0 is 4,294,967,295
    "maxComputeWorkGroupInvocations": 1024,
    **_cube(1024, 1024, 1024),
    "maxBufferSize": 0xFFFFFFFC,
    "maxPushConstantsSize": 256,
    "maxStorageBufferRange": 2**32 - 1,
    "minStorageBufferOffsetAlignment": 4,
}
_INTEL_LIMITS = {
    "maxComputeSharedMemorySize": 49152,
    "maxComputeWorkGroupCount": 65535,
    "maxComputeWorkGroupInvocations": 1024,
    **_cube(1024, 1024, 1024),
    "maxBufferSize": 2**32,
    "maxPushConstantsSize": 256,
    "minStorageBufferOffsetAlignment": 4,
}

PROFILES = (
    Profile(
        name="Raspberry Pi 5",
        driver="V3DV, V3D 7.1",
        sources=(f"{MESA}: src/broadcom/vulkan/v3dv_device.c, v3dv_limits.h, src/broadcom/common/v3d_limits.h",),
        api="1.3",
        subgroup="16",
        vector_bits=512,
        limits={
            "maxBufferSize": 2**30,
            "maxComputeSharedMemorySize": 16384,
            "maxComputeWorkGroupCount": 65535,
            "maxComputeWorkGroupInvocations": 256,
            **_cube(256, 256, 256),
            "maxComputeWorkgroupSubgroups": 16,
            "maxPerStageDescriptorSampledImages": 16,
            "maxPerStageDescriptorSamplers": 24,
            "maxPerStageDescriptorStorageBuffers": 8,
            "maxPerStageDescriptorStorageImages": 4,
            "maxPerStageDescriptorUniformBuffers": 16,
            "maxPerStageResources": 128,
            "maxPushConstantsSize": 128,
            "maxStorageBufferRange": 2**30,
            "minStorageBufferOffsetAlignment": 32,
        },
        lacks=(
            *_FLOAT64,
            "shaderInt64",
            "shaderInt16",
            "shaderInt8",
            "shaderFloat16",
            "shaderUniformBufferArrayDynamicIndexing",
            "shaderStorageBufferArrayDynamicIndexing",
            "shaderStorageImageWriteWithoutFormat",
            "shaderBufferInt64Atomics",
            "shaderSharedInt64Atomics",
            "VK_EXT_conditional_rendering",
            "VK_EXT_external_memory_host",
            *_ATOMIC_FLOAT,
        ),
        notes="Arrays of 8 and 16 bits in buffers, but no such arithmetic.",
    ),
    Profile(
        name="Adreno 740",
        driver="Turnip, A7XX generation 2",
        sources=(f"{MESA}: src/freedreno/vulkan/tu_device.cc, tu_common.h, src/freedreno/common/freedreno_devices.py",),
        api="1.4",
        subgroup="128",
        vector_bits=512,
        limits={
            "maxBufferSize": 2**32,
            "maxComputeSharedMemorySize": 32768,
            "maxComputeWorkGroupCount": 65535,
            "maxComputeWorkGroupInvocations": 2048,
            **_cube(1024, 1024, 1024),
            "maxComputeWorkgroupSubgroups": 16,
            **dict.fromkeys(
                (
                    "maxPerStageDescriptorSampledImages",
                    "maxPerStageDescriptorSamplers",
                    "maxPerStageDescriptorStorageBuffers",
                    "maxPerStageDescriptorStorageImages",
                    "maxPerStageDescriptorUniformBuffers",
                    "maxPerStageResources",
                ),
                2**24,
            ),
            "maxPushConstantsSize": 256,
            "maxStorageBufferRange": 2**27,
            "minStorageBufferOffsetAlignment": 4,
        },
        lacks=(
            *_FLOAT64,
            "storageBuffer8BitAccess",
            "uniformAndStorageBuffer8BitAccess",
            "storagePushConstant8",
            "uniformAndStorageBuffer16BitAccess",
            "storagePushConstant16",
            "shaderSharedInt64Atomics",
            "shaderBufferFloat32AtomicAdd",
            "shaderSharedFloat32AtomicAdd",
            "VK_EXT_external_memory_host",
        ),
        notes="16-bit arrays in storage buffers only, none of 8 bits.",
    ),
    Profile(
        name="Mali-G610",
        driver="PanVK, architecture 10",
        sources=(
            f"{MESA}: src/panfrost/vulkan/panvk_vX_physical_device.c, panvk_descriptor_set_layout.h, panvk_shader.h",
        ),
        api="1.4",
        subgroup="16",
        vector_bits=512,
        limits={
            "maxBufferSize": 2**32 - 1,
            "maxComputeSharedMemorySize": 32768,
            "maxComputeWorkGroupCount": 65535,
            "maxPerStageDescriptorSampledImages": 65535,
            "maxPerStageDescriptorSamplers": 65535,
            "maxPerStageDescriptorStorageBuffers": 4096,
            "maxPerStageDescriptorStorageImages": 256,
            "maxPerStageDescriptorUniformBuffers": 223,
            "maxPushConstantsSize": 256,
            "maxStorageBufferRange": 2**32 - 1,
            "minStorageBufferOffsetAlignment": 4,
        },
        lacks=(*_FLOAT64, "VK_EXT_conditional_rendering", "VK_EXT_external_memory_host", *_ATOMIC_FLOAT),
        notes="The largest workgroup is what the kernel driver reports; no source for it, so it stays lavapipe's 1,024.",
    ),
    Profile(
        name="PowerVR",
        driver="Mesa's PowerVR driver, Rogue",
        sources=(f"{MESA}: src/imagination/vulkan/pvr_physical_device.c, src/imagination/common/pvr_limits.h",),
        api="1.2",
        subgroup="1",
        vector_bits=128,
        limits={
            "maxComputeSharedMemorySize": 16384,
            "maxComputeWorkGroupCount": 65535,
            "maxComputeWorkGroupInvocations": 128,
            **_cube(128, 128, 64),
            "maxPerStageDescriptorSampledImages": 16,
            "maxPerStageDescriptorSamplers": 16,
            "maxPerStageDescriptorStorageBuffers": 4,
            "maxPerStageDescriptorStorageImages": 4,
            "maxPerStageDescriptorUniformBuffers": 12,
            "maxPerStageResources": 44,
            "maxPushConstantsSize": 128,
            "maxStorageBufferRange": 2**27,
            "minStorageBufferOffsetAlignment": 4,
        },
        lacks=(
            "shaderFloat64",
            "shaderInt64",
            "shaderInt16",
            "shaderInt8",
            "shaderFloat16",
            "shaderImageGatherExtended",
            "shaderUniformBufferArrayDynamicIndexing",
            "shaderStorageBufferArrayDynamicIndexing",
            "storageBuffer16BitAccess",
            "uniformAndStorageBuffer16BitAccess",
            "storagePushConstant16",
            "storageBuffer8BitAccess",
            "uniformAndStorageBuffer8BitAccess",
            "storagePushConstant8",
            "variablePointersStorageBuffer",
            "vulkanMemoryModel",
            "vulkanMemoryModelDeviceScope",
            "shaderBufferInt64Atomics",
            "shaderSharedInt64Atomics",
            "subgroupVote",
            "subgroupArithmetic",
            "subgroupBallot",
            "subgroupShuffle",
            "subgroupShuffleRelative",
            "subgroupQuad",
            "subgroupSizeControl",
            "computeFullSubgroups",
            "synchronization2",
            "maintenance4",
            "shaderIntegerDotProduct",
            "roundingModeRTEFloat16",
            "VK_EXT_conditional_rendering",
            "VK_EXT_external_memory_host",
            *_ATOMIC_FLOAT,
        ),
        notes="The minimum limits of Vulkan in most respects. Its rounding modes depend on the core and stay lavapipe's.",
    ),
    Profile(
        name="Intel HD 620",
        driver="ANV, Gen9.5",
        sources=(
            f"{MESA}: src/intel/vulkan/anv_physical_device.c, src/intel/dev/intel_device_info.c, src/intel/isl/isl.c",
        ),
        api="1.4",
        subgroup="32 (8 to 32)",
        vector_bits=512,
        limits={**_INTEL_LIMITS, "maxBufferSize": 2**30},
        lacks=(
            "shaderSharedInt64Atomics",
            "shaderBufferFloat32AtomicAdd",
            "shaderSharedFloat32AtomicAdd",
            "roundingModeRTEFloat16",
        ),
        notes="Descriptor limits depend on the driver's binding model and are above lavapipe's.",
    ),
    Profile(
        name="GTX 1070",
        driver="NVK, Pascal",
        sources=(
            f"{MESA}: src/nouveau/vulkan/nvk_physical_device.c, nvk_private.h",
            "NVIDIA's driver, vulkaninfo in github.com/nihui/realsr-ncnn-vulkan/issues/2: push constants 256",
            "NVIDIA's driver lacks shaderFloat16 too: github.com/PrismML-Eng/llama.cpp/issues/247",
        ),
        api="1.4",
        subgroup="32",
        vector_bits=512,
        limits={
            "maxBufferSize": 2**31,
            "maxComputeSharedMemorySize": 49152,
            "maxComputeWorkGroupCount": 65535,  # _0 is 2,147,483,647
            "maxComputeWorkGroupInvocations": 1024,
            **_cube(1024, 1024, 64),
            "maxComputeWorkgroupSubgroups": 32,
            "maxPushConstantsSize": 256,
            "maxStorageBufferRange": 2**31,
            "minStorageBufferOffsetAlignment": 16,
        },
        lacks=("shaderFloat16", "VK_EXT_external_memory_host", *_ATOMIC_FLOAT, *_DISCRETE),
        notes="The Mesa driver; NVIDIA's has float atomics.",
    ),
    Profile(
        name="Vega 8",
        driver="RADV, GFX9 (Raven)",
        sources=(f"{MESA}: src/amd/vulkan/radv_physical_device.c, radv_constants.h",),
        api="1.4",
        subgroup="64",
        vector_bits=512,
        limits=_AMD_LIMITS,
        lacks=("shaderBufferFloat32AtomicAdd", "roundingModeRTEFloat16"),
    ),
    Profile(
        name="RX 580",
        driver="RADV, GFX8 (Polaris 10)",
        sources=(
            f"{MESA}: src/amd/vulkan/radv_physical_device.c, radv_constants.h",
            "AMD's driver lacks shaderFloat16 too: github.com/abetlen/llama-cpp-python/issues/2006",
        ),
        api="1.4",
        subgroup="64",
        vector_bits=512,
        limits=_AMD_LIMITS,
        lacks=(
            "shaderFloat16",
            "shaderBufferFloat32AtomicAdd",
            "shaderRoundingModeRTEFloat16",
            "shaderSignedZeroInfNanPreserveFloat16",
            "roundingModeRTEFloat16",
            *_DISCRETE,
        ),
    ),
    Profile(
        name="Apple M1",
        driver="MoltenVK, Apple7 family",
        sources=(
            "MoltenVK 1.4.2 (1484e7f8, 2026-08-19): MVKDevice.mm, MVKExtensions.def",
            "vulkaninfo in github.com/gfx-rs/wgpu/issues/5551: shared memory, workgroups, 31 buffers",
        ),
        api="1.4",
        subgroup="32",
        vector_bits=512,
        limits={
            "maxComputeSharedMemorySize": 32768,
            "maxComputeWorkGroupInvocations": 1024,
            **_cube(1024, 1024, 1024),
            "maxPerStageDescriptorSamplers": 16,
            "maxPerStageDescriptorStorageBuffers": 31,
            "maxPerStageDescriptorUniformBuffers": 31,
            "maxPushConstantsSize": 4096,
            "minStorageBufferOffsetAlignment": 16,
        },
        lacks=(
            *_FLOAT64,
            "shaderBufferInt64Atomics",
            "shaderSharedInt64Atomics",
            "roundingModeRTEFloat16",
            "VK_EXT_conditional_rendering",
            "VK_KHR_external_memory_fd",
            "VK_KHR_external_semaphore_fd",
        ),
        notes="The report's device is an Apple GPU of unnamed model. Metal's largest buffer has no source and is left out.",
    ),
    Profile(
        name="Arc A770",
        driver="ANV, DG2",
        sources=(
            f"{MESA}: src/intel/vulkan/anv_physical_device.c, src/intel/dev/intel_device_info.c, src/intel/isl/isl.c",
        ),
        api="1.4",
        subgroup="32 (8 to 32)",
        vector_bits=512,
        limits=_INTEL_LIMITS,
        lacks=(
            "shaderFloat64",
            "shaderSharedInt64Atomics",
            "shaderSharedFloat32AtomicAdd",
            "roundingModeRTEFloat16",
            *_DISCRETE,
        ),
        notes="Its cooperative matrices cannot be simulated.",
    ),
)


def find_profiles(name: str) -> list[Profile]:
    """Return the profiles whose names contain `name`, ignoring case, spaces and hyphens; all for "all". Raise ValueError if none does."""
    wanted = _simplify(name)
    found = [profile for profile in PROFILES if name == "all" or wanted in _simplify(profile.name)]
    if not found or not wanted:
        raise ValueError(f"no profile '{name}'; there are: all, {', '.join(profile.name for profile in PROFILES)}")
    return found


def _simplify(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def restrict(profile: Profile, info: DeviceInfo) -> Restriction:
    """Return the values of a profile that are stricter than the device's."""
    limits, unsimulated = {}, []
    for name, value in profile.limits.items():
        limit = info.limits.get(name, info.limits.get(f"{name}_0", 0))
        if limit == 0 or (value < limit if name.startswith("min") else value > limit):
            unsimulated.append(f"{name}={value}")
        elif value != limit:
            limits[name] = value
    return Restriction(limits, sorted(present(profile.lacks, info)), unsimulated)


def present(names: Iterable[str], info: DeviceInfo) -> list[str]:
    """Return those of the features and extensions that the device has."""
    return [name for name in names if info.features.get(name) or name in info.extensions]
