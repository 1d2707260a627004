"""Mock NVIDIA GPUs: descriptions, a mock NVML, and a Vulkan driver that presents lavapipe under their names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import pumice
from tool_environment import tool_environment

NVIDIA, AMD = 0x10DE, 0x1002
_KINDS = ("discrete", "integrated", "virtual", "software", "other")  # in the order of the engine's DeviceKind


@dataclass(frozen=True)
class Gpu:
    """A GPU as described by its vendor's library and its Vulkan driver."""

    uuid: str  # 32 hexadecimal digits
    pci: str  # "0000:3b:00.0"
    model: str = "NVIDIA H200"
    vendor: int = NVIDIA
    kind: str = "discrete"

    @property
    def label(self) -> str:
        """Return the GPU's name in NVML: "GPU-..." with dashes as in a UUID."""
        digits = self.uuid
        return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def described(like: pumice.DeviceInfo, gpu: Gpu) -> pumice.DeviceInfo:
    """Return Vulkan's description of a GPU; unspecified fields are copied from the device `like`."""
    state = list(like.__getstate__())
    state[1:5] = [gpu.model, _KINDS.index(gpu.kind), gpu.uuid, gpu.pci]
    state[9] = gpu.vendor
    info = pumice.DeviceInfo.__new__(pumice.DeviceInfo)
    info.__setstate__(tuple(state))
    return info


_NVML = """
#include <stdio.h>
#include <string.h>
struct Pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };
static const char* const uuids[] = {%(uuids)s};
static const char* const models[] = {%(models)s};
static const unsigned places[][3] = {%(places)s};
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = %(count)d; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = (void*)(size_t)(index + 1);
  return *uuids[index] ? 0 : 4;
}
static size_t index_of(void* device) { return (size_t)device - 1; }
int nvmlDeviceGetUUID(void* device, char* text, unsigned length) { snprintf(text, length, "%%s", uuids[index_of(device)]); return 0; }
int nvmlDeviceGetName(void* device, char* text, unsigned length) { snprintf(text, length, "%%s", models[index_of(device)]); return 0; }
int nvmlDeviceGetPciInfo_v3(void* device, struct Pci* pci) {
  const unsigned* place = places[index_of(device)];
  memset(pci, 0, sizeof *pci);
  pci->domain = place[0], pci->bus = place[1], pci->device = place[2];
  return 0;
}
"""

# Forwards every call to lavapipe, but describes the physical device as a GPU's driver would.
_DRIVER = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>
static void* lavapipe(void) { static void* library; return library ? library : (library = dlopen("%(library)s", RTLD_NOW | RTLD_LOCAL)); }
static PFN_vkGetPhysicalDeviceProperties properties;
static PFN_vkGetPhysicalDeviceProperties2 properties2;
static void rename_device(VkPhysicalDeviceProperties* reported) {
  reported->vendorID = %(vendor)d, reported->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  snprintf(reported->deviceName, sizeof reported->deviceName, "%%s", "%(model)s");
}
static void stand_in_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties* reported) {
  properties(device, reported);
  rename_device(reported);
}
static void stand_in_properties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2* reported) {
  static const unsigned char uuid[VK_UUID_SIZE] = {%(uuid)s};
  properties2(device, reported);
  rename_device(&reported->properties);
  for (VkBaseOutStructure* next = reported->pNext; next; next = next->pNext) {
    if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
      memcpy(((VkPhysicalDeviceVulkan11Properties*)next)->deviceUUID, uuid, sizeof uuid);
    if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES)
      memcpy(((VkPhysicalDeviceIDProperties*)next)->deviceUUID, uuid, sizeof uuid);
  }
}
typedef VkResult (*Negotiate)(unsigned*);
VkResult vk_icdNegotiateLoaderICDInterfaceVersion(unsigned* version) {
  return ((Negotiate)dlsym(lavapipe(), "vk_icdNegotiateLoaderICDInterfaceVersion"))(version);
}
static PFN_vkVoidFunction replace_function(PFN_vkVoidFunction found, const char* name) {
  if (found && !strcmp(name, "vkGetPhysicalDeviceProperties")) {
    properties = (PFN_vkGetPhysicalDeviceProperties)found;
    return (PFN_vkVoidFunction)stand_in_properties;
  }
  if (found && (!strcmp(name, "vkGetPhysicalDeviceProperties2") || !strcmp(name, "vkGetPhysicalDeviceProperties2KHR"))) {
    properties2 = (PFN_vkGetPhysicalDeviceProperties2)found;
    return (PFN_vkVoidFunction)stand_in_properties2;
  }
  return found;
}
PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance instance, const char* name) {
  return replace_function(((PFN_vkGetInstanceProcAddr)dlsym(lavapipe(), "vk_icdGetInstanceProcAddr"))(instance, name), name);
}
PFN_vkVoidFunction vk_icdGetPhysicalDeviceProcAddr(VkInstance instance, const char* name) {
  return replace_function(((PFN_vkGetInstanceProcAddr)dlsym(lavapipe(), "vk_icdGetPhysicalDeviceProcAddr"))(instance, name), name);
}
"""


def compiled_library(text: str, library: Path) -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler makes the stand-in")
    source = library.with_suffix(".c")
    source.write_text(text)
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
        env=tool_environment(),
    )
    if "vulkan.h" in done.stderr:
        pytest.skip("the stand-in driver needs Vulkan's headers")
    assert done.returncode == 0, done.stderr
    return library


def stand_in_nvml(folder: Path, gpus: list[Gpu | None]) -> Path:
    """Build a library with NVML's name that lists these GPUs; None: one that the process may not open."""
    gpu_list = [gpu or Gpu("", "0000:00:00.0") for gpu in gpus]
    places = [f"{{0x{gpu.pci[:4]}, 0x{gpu.pci[5:7]}, 0x{gpu.pci[8:10]}}}" for gpu in gpu_list]
    facts = {
        "uuids": ", ".join(f'"{gpu.label if gpu.uuid else ""}"' for gpu in gpu_list),
        "models": ", ".join(f'"{gpu.model}"' for gpu in gpu_list),
        "places": ", ".join(places),
        "count": len(gpu_list),
    }
    return compiled_library(_NVML % facts, folder / "libnvidia-ml.so.1")


def stand_in_driver(folder: Path, gpu: Gpu) -> Path:
    """Write a Vulkan driver for this GPU that computes with lavapipe; return its manifest."""
    manifest = next((Path(name) for name in os.environ.get("VK_DRIVER_FILES", "").split(":") if "lvp" in name), None)
    if manifest is None or not manifest.is_file():
        pytest.skip("VK_DRIVER_FILES names no lavapipe for the stand-in to compute by")
    facts = {
        "library": json.loads(manifest.read_text())["ICD"]["library_path"],
        "vendor": gpu.vendor,
        "model": gpu.model,
        "uuid": ", ".join(f"0x{gpu.uuid[i : i + 2]}" for i in range(0, 32, 2)),
    }
    library = compiled_library(_DRIVER % facts, folder / f"driver-{gpu.uuid[:8]}.so")
    path = library.with_suffix(".json")
    manifest_data = {"file_format_version": "1.0.0", "ICD": {"library_path": str(library), "api_version": "1.3.0"}}
    path.write_text(json.dumps(manifest_data))
    return path
