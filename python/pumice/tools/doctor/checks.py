"""The checks of `pumice doctor`, in the order in which the Vulkan loader needs each requirement."""

from __future__ import annotations

import contextlib
import difflib
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cache_check import check_cache
from .machine import Finding, Machine, report_note, report_ok, report_problem

_VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
# Environment variables that pumice, its tests and the script `dev` read; tests/tools/test_doctor.py compares them with the sources.
VARIABLES = (
    "PUMICE_ABANDON_SECONDS",
    "PUMICE_CACHE_DIR",
    "PUMICE_CACHE_MB",
    "PUMICE_COMPILE_ONLY",
    "PUMICE_DEVICE",
    "PUMICE_DV_STRICT",
    "PUMICE_FAULT",
    "PUMICE_LIMITS",
    "PUMICE_NO_CACHE",
    "PUMICE_PYTHON",
    "PUMICE_SHADERS",
    "PUMICE_SLOW_COMPILE_SECONDS",
    "PUMICE_TEST_DEVICE",
    "PUMICE_TEST_DRIVERS",
    "PUMICE_VALIDATION",
    "PUMICE_WITHOUT",
)
# For each GPU vendor: substrings of its driver's manifest or library name, and the command that installs one.
_DRIVER_PACKAGES = {
    "NVIDIA": (("nvidia", "nouveau", "nvk"), "apt-get install nvidia-vulkan-icd"),
    "AMD": (("radeon", "amd"), "apt-get install mesa-vulkan-drivers"),
    "Intel": (("intel",), "apt-get install mesa-vulkan-drivers"),
}
_KERNEL_MODULES = {"NVIDIA": "nvidia", "AMD": "amdgpu", "Intel": "i915"}  # vendor -> Linux kernel module
_CONTAINER_FIX = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics ..."


def run_checks(machine: Machine) -> list[Finding]:
    """Return all findings about a machine, in the order of the checks."""
    checks = (
        check_loader,
        check_drivers,
        check_gpus,
        check_permissions,
        check_layers,
        check_environment,
        check_cache,
        check_devices,
    )
    return [finding for check in checks for finding in check(machine)]


# ---- checks of the Vulkan loader and drivers


def check_loader(machine: Machine) -> Iterator[Finding]:
    """Check the Vulkan loader."""
    if reason := machine.get_loading_error("libvulkan.so.1"):
        text = f"The Vulkan loader libvulkan.so.1 cannot be loaded: {reason}."
        yield report_problem("loader", text, "apt-get install libvulkan1")
    else:
        yield report_ok("loader", "The Vulkan loader libvulkan.so.1 is installed.")


def get_override_manifests(machine: Machine) -> tuple[str, list[Path]] | None:
    """Return the environment variable that overrides the loader's driver manifests, and the manifests; None if it is not set."""
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        if variable_value := machine.get_variable(name):
            paths = [machine.resolve_path(entry_path) for entry_path in variable_value.split(":") if entry_path]
            return name, [
                file
                for entry_path in paths
                for file in (sorted(entry_path.glob("*.json")) if entry_path.is_dir() else [entry_path])
            ]
    return None


def check_drivers(machine: Machine) -> Iterator[Finding]:
    """Check the driver manifests and the libraries they name."""
    override = get_override_manifests(machine)
    manifests = override[1] if override else machine.find_manifests("icd.d")
    for manifest in manifests:
        if override and not manifest.is_file():
            yield report_problem(
                "drivers", f"{override[0]} names {manifest}, which is not a file.", f"unset {override[0]}"
            )
    driver_findings = [
        finding
        for manifest_path in manifests
        if manifest_path.is_file()
        for finding in check_driver_manifest(machine, manifest_path)
    ]
    yield from driver_findings
    if not any(finding.verdict == "right" for finding in driver_findings):
        text = "No Vulkan driver can be loaded. A GPU needs its vendor's; without a GPU, Mesa's software driver runs pumice."
        yield report_problem("drivers", text, "apt-get install mesa-vulkan-drivers")


def check_driver_manifest(machine: Machine, manifest: Path) -> Iterator[Finding]:
    """Check one driver manifest."""
    try:
        manifest_data = json.loads(manifest.read_text())["ICD"]
        library = str(manifest_data["library_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"{manifest} is not a driver manifest ({type(error).__name__}: {error}), so the loader ignores it."
        yield report_problem("drivers", text, f"install the package of {manifest.name} again")
        return
    if str(manifest_data.get("library_arch", "64")) != "64":
        yield report_note("drivers", f"{manifest.name} is for {manifest_data['library_arch']}-bit programs.")
        return
    if "/" in library and not library.startswith("/"):
        library = str(manifest.parent / library)
    if reason := machine.get_loading_error(library):
        text = f"{manifest} names the driver {library}, which cannot be loaded: {reason}."
        yield report_problem("drivers", text, f"install the package of {manifest.name} again")
    else:
        yield report_ok("drivers", f"{manifest.name}: {library} can be loaded.")


def check_gpus(machine: Machine) -> Iterator[Finding]:
    """Check that there is a driver for each vendor with a GPU on the PCI bus or with device files."""
    override = get_override_manifests(machine)
    names = [
        f"{manifest_path.name} {_read_library_path(manifest_path)}".lower()
        for manifest_path in (override[1] if override else machine.find_manifests("icd.d"))
    ]
    vendors = machine.find_gpu_vendors()
    if machine.resolve_path("/dev/nvidiactl").exists() and "NVIDIA" not in vendors:
        vendors.append("NVIDIA")
    for vendor in vendors:
        name_patterns, install = _DRIVER_PACKAGES.get(vendor, ((), ""))
        if not name_patterns:
            yield report_note(
                "drivers", f"There is a display adapter of the vendor {vendor}, whose drivers are not known here."
            )
        elif any(name_pattern in name for name_pattern in name_patterns for name in names):
            yield report_ok("drivers", f"There is a GPU of {vendor}, and a driver manifest for it.")
        elif override:
            text = f"There is a GPU of {vendor}, but {override[0]} names no driver for it."
            yield report_note("drivers", text)
        else:
            is_inside = vendor == "NVIDIA" and is_container(machine)
            where = (
                " This is a container, which gets the driver's Vulkan part only if it is asked for."
                if is_inside
                else ""
            )
            text = f"There is a GPU of {vendor}, but no Vulkan driver manifest for it.{where}"
            yield report_problem("drivers", text, _CONTAINER_FIX if is_inside else install)


def _read_library_path(manifest: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(manifest.read_text())["ICD"]["library_path"])
    return ""


def is_container(machine: Machine) -> bool:
    """Return whether the process runs in a container, judging by marker files."""
    return machine.resolve_path("/.dockerenv").exists() or machine.resolve_path("/run/.containerenv").exists()


# ---- check of device file permissions


def check_permissions(machine: Machine) -> Iterator[Finding]:
    """Check access to the device files that drivers open."""
    nodes = sorted(machine.resolve_path("/dev/dri").glob("renderD*"))
    files = [
        *nodes,
        *sorted(machine.resolve_path("/dev").glob("nvidia[0-9]*")),
        *machine.resolve_path("/dev").glob("nvidiactl"),
    ]
    for file in files:
        displayed_path = "/" + str(file.relative_to(machine.root))
        if machine.is_accessible(file):
            yield report_ok("permissions", f"This user may open {displayed_path}.")
            continue
        status = file.stat()
        group = _get_group_name(status.st_gid) if status.st_mode & stat.S_IWGRP else ""
        owner = f", which belongs to the group {group}" if group else ""
        fix_command = f"sudo usermod -aG {group} $USER, then log in again" if group and group != "root" else ""
        yield report_problem(
            "permissions",
            f"This user may not open {displayed_path}{owner}.",
            fix_command or f"sudo chmod a+rw {displayed_path}",
        )
    vendors = [vendor_name for vendor_name in machine.find_gpu_vendors() if vendor_name in _DRIVER_PACKAGES]
    if vendors and not files:
        text = f"A GPU ({', '.join(vendors)}) is on the PCI bus, but neither /dev/dri nor /dev/nvidia* exists."
        fix_command = "docker run --gpus all ..." if "NVIDIA" in vendors else "docker run --device /dev/dri ..."
        modules = " && ".join(f"sudo modprobe {_KERNEL_MODULES[vendor_name]}" for vendor_name in vendors)
        yield report_problem("permissions", text, fix_command if is_container(machine) else modules)


def _get_group_name(number: int) -> str:
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


# ---- checks of Vulkan layers and environment variables


def check_layers(machine: Machine) -> Iterator[Finding]:
    """Check the Vulkan layers that environment variables request, and the implicit layers."""
    layer_name_set = {
        name
        for kind in ("explicit_layer.d", "implicit_layer.d")
        for manifest_file in machine.find_manifests(kind)
        for name in read_layer_names(manifest_file)
    }
    if machine.is_variable_set("PUMICE_VALIDATION"):
        if _VALIDATION_LAYER in layer_name_set or machine.get_variable("VK_LAYER_PATH"):
            yield report_note("layers", "PUMICE_VALIDATION is on: every Vulkan call is checked, which takes time.")
        else:
            text = f"PUMICE_VALIDATION is on, but {_VALIDATION_LAYER} is not installed: no context can be created."
            yield report_problem("layers", text, "apt-get install vulkan-validationlayers, or unset PUMICE_VALIDATION")
    for name in ("VK_INSTANCE_LAYERS", "VK_LOADER_LAYERS_ENABLE"):
        if variable_value := machine.get_variable(name):
            yield report_note("layers", f"{name}={variable_value} puts layers between pumice and the driver.")
    for manifest in machine.find_manifests("implicit_layer.d"):
        for name in read_layer_names(manifest):
            yield report_note(
                "layers", f"The layer {name} may come between every Vulkan program and its driver ({manifest.name})."
            )


def read_layer_names(manifest: Path) -> list[str]:
    """Return the names of the layers in a manifest; empty if it is unreadable."""
    try:
        manifest_data = json.loads(manifest.read_text())
        return [
            str(layer_entry["name"])
            for layer_entry in manifest_data.get("layers", [manifest_data.get("layer")])
            if layer_entry
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def check_environment(machine: Machine) -> Iterator[Finding]:
    """Check environment variables that affect pumice, and likely misspellings."""
    for name in sorted(machine.environment):
        if name.startswith("PUMICE_") and name not in VARIABLES:
            close = difflib.get_close_matches(name, VARIABLES, 1)
            text = f"{name} is set, but pumice reads no variable of that name" + (
                f"; {close[0]} is one." if close else "."
            )
            yield report_problem("environment", text, f"unset {name}")
        elif name in VARIABLES:
            yield report_note("environment", f"{name}={machine.environment[name]} is set.")
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE"):
        if variable_value := machine.get_variable(name):
            yield report_note("environment", f"{name}={variable_value} decides which drivers are loaded.")
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if name in machine.environment:
            yield report_note("environment", f"{name}={machine.environment[name]} decides which GPUs are visible.")
    if machine.is_variable_set("PUMICE_FAULT"):
        yield report_problem(
            "environment", "PUMICE_FAULT deliberately puts faults into plans, for tests.", "unset PUMICE_FAULT"
        )


# ---- check of the visible devices


def check_devices(machine: Machine) -> Iterator[Finding]:
    """Check which devices a separate process finds, and which one it chooses."""
    probe_result: dict[str, Any] = machine.probe()
    for device_record in probe_result["devices"]:
        kind = "a software driver, not a GPU" if device_record["kind"] == "software" else device_record["kind"]
        yield report_ok("devices", f"{device_record['name']} is a Vulkan device ({kind}; {device_record['driver']}).")
    if probe_result["hidden"]:
        yield report_note("devices", f"Hidden: {probe_result['hidden']}.")
    if probe_result["error"]:
        fix_command = (
            "unset CUDA_VISIBLE_DEVICES or PUMICE_DEVICE" if probe_result["hidden"] or probe_result["devices"] else ""
        )
        yield report_problem(
            "devices",
            f"No context can be created: {probe_result['error']}.",
            fix_command or "fix the problems above first",
        )
        return
    vendors = [vendor for vendor in machine.find_gpu_vendors() if vendor in _DRIVER_PACKAGES]
    if (
        vendors
        and not probe_result["hidden"]
        and all(device_record["kind"] == "software" for device_record in probe_result["devices"])
    ):
        text = f"A GPU ({', '.join(vendors)}) is there, but only software drivers respond: its Vulkan driver is missing or older than 1.2."
        yield report_problem("devices", text, "fix the problems above first, or install the vendor's newest driver")
    yield report_ok("devices", f"A context uses {probe_result['choice']}.")
