"""Version information for bug reports."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import Any, TextIO

from .._pumice import DeviceInfo, Error, __version__, devices, glslang_version, precision_support

_PACKAGES = (
    "numpy",
    "onnx",
    "onnxruntime",
    "ml_dtypes",
    "Pillow",
    "tokenizers",
    "matplotlib",
    "ipython",
    "pytest",
    "torch",
)


def collect_versions() -> dict[str, Any]:
    """Return the versions of pumice, Python, the system, the shader compiler, installed packages and every device's driver."""
    try:
        device_lines = [
            f"{device.name}: {device.driver} {device.driver_info}, Vulkan {device.api_version}" for device in devices()
        ]
    except Error as error:
        device_lines = [str(error)]
    return {
        "pumice": __version__,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "glslang": glslang_version(),
        "packages": {name: version for name in _PACKAGES if (version := _get_package_version(name))},
        "devices": device_lines,
    }


def make_device_record(device: DeviceInfo) -> dict[str, Any]:
    """Return a device with its driver, features, limits and precisions, for JSON."""
    names = (
        "index",
        "name",
        "kind",
        "uuid",
        "pci",
        "driver",
        "driver_info",
        "driver_version",
        "vendor_id",
        "device_id",
        "restrictions",
    )
    shape = ("m", "n", "k", "a", "b", "c", "result")
    return {
        **{name: getattr(device, name) for name in names},
        "api_version": device.api_version,
        "memory_bytes": device.memory_bytes,
        "features": dict(device.features),
        "limits": dict(device.limits),
        "extensions": dict(device.extensions),
        "matrices": [{name: getattr(matrix, name) for name in shape} for matrix in device.matrices],
        "precisions": [
            {name: getattr(support, name) for name in ("precision", "storage", "matrices", "lacks")}
            for support in precision_support(device)
        ],
    }


def show_versions(file: TextIO | None = None) -> None:
    """Print the versions of pumice, Python, the system, packages and drivers, for a bug report. file: by default standard output."""
    version_info = collect_versions()
    pairs = [(name, version_info[name]) for name in ("pumice", "python", "system", "glslang")]
    pairs += [*version_info["packages"].items(), *(("device", line) for line in version_info["devices"])]
    width = max(len(name) for name, _ in pairs)
    print("\n".join(f"{name:<{width}}  {value}" for name, value in pairs), file=file)


def _get_package_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
