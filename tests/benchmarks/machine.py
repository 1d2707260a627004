"""The environment of a measurement: date, device, driver, precision modes, processor, load, versions."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from typing import Any

import pumice

PEERS = ("onnxruntime", "ncnn", "pnnx", "torch")
SETTINGS = ("PUMICE_", "LP_NUM_THREADS", "VK_", "OMP_", "MESA_")  # environment variables that affect measurements


def header(context: pumice.Context) -> dict[str, Any]:
    info = context.info
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": f"{info.name} ({info.kind}), {context.choice}",
        "driver": f"{info.driver} {info.driver_info}, Vulkan {info.api_version}",
        "precisions": ", ".join(
            f"{one.precision} as {one.storage}{' with cooperative matrices' if one.matrices else ''}"
            for one in pumice.precision_support(context.info)
        ),
        "processor": f"{processor()}, {len(os.sched_getaffinity(0))} usable",
        "load": load(),
        "software": f"pumice {pumice.__version__}, Python {platform.python_version()}, NumPy {version('numpy')}",
        "peers": ", ".join(f"{name} {version(name) or 'absent'}" for name in PEERS),
        "environment": " ".join(
            f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)
        ),
    }


def load() -> str:
    """Return the 1, 5 and 15 minute load averages."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
