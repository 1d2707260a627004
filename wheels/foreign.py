"""Runs a wheel for another architecture under qemu's user-mode emulation, with that architecture's Python, Vulkan loader
and lavapipe from the system's packages, unpacked into a build folder. Nothing is installed."""

from __future__ import annotations

import platform
import shutil
import sys
import time
from pathlib import Path

from wheels import Failed, run
from wheels.build import Target

ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}  # Debian's names

# Runs a network and checks the result, then a kernel that is compiled here.
CALL = """
import platform, numpy as np, pumice, pumice.demo
TWICE = "layout(binding = 0) buffer X { float x[]; };\\nvoid main() { x[gl_GlobalInvocationID.x] *= 2.0; }"
with np.load(str(pumice.demo.DATA / "holdback.npz")) as archive:
    images, labels = archive["images"][:16, None].astype("float32") / 16, archive["labels"][:16]
with pumice.Context() as context, pumice.load(pumice.demo.DATA / "digits.onnx", context) as model:
    right = int((model(images).argmax(1) == labels).sum())
    assert right >= 15, right
    x = np.arange(64, dtype="float32")
    pumice.Kernel(TWICE, context=context)(x=x, threads=64)
    assert (x == 2 * np.arange(64)).all(), x
    print(f"{right} of 16 images right and a kernel compiled on {context.info.name}, {platform.machine()}")
"""


def unpack(python: str, machine: str, root: Path) -> None:
    """Unpack a Python and lavapipe of this system's release for another architecture. Raise Failed if they cannot be had."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    settings = ("--variant=extract", "--format=directory", "--quiet", f"--architectures={ARCHITECTURES[machine]}")
    shutil.rmtree(root, ignore_errors=True)
    run("mmdebstrap", *settings, f"--include={python},libvulkan1,mesa-vulkan-drivers", suite, root)


def check(wheel: Path, target: Target, version: str) -> str:
    """Run a wheel on lavapipe under emulation; return a sentence with the result, or with what is missing here.

    Raise Failed if the wheel does not install or gives wrong results.
    """
    folder, python, qemu = target.folder / "foreign", f"python{version}", f"qemu-{target.machine}-static"
    root, site = folder / f"system-{version}", folder / f"site-{version}"
    try:
        run(qemu, "--version")
        if not (root / "usr" / "bin" / python).exists():
            unpack(python, target.machine, root)
    except Failed as error:
        return f"{wheel.name} was not run: {error}"
    shutil.rmtree(site, ignore_errors=True)
    tags = [f"--platform=manylinux_{glibc}_{target.machine}" for glibc in ("2_28", "2_27", "2_26", "2_17")]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--no-compile", *tags)
    run(*pip, "--python-version", version, "--implementation", "cp", "--target", site, f"{wheel}[image]")
    (manifest,) = (root / "usr" / "share" / "vulkan" / "icd.d").glob("lvp_icd*.json")
    env = {
        "PYTHONPATH": str(site),
        "PYTHONDONTWRITEBYTECODE": "1",
        "VK_DRIVER_FILES": str(manifest),
        "VK_LOADER_LAYERS_DISABLE": "~implicit~",
        "LP_NUM_THREADS": "1",
        "PUMICE_NO_CACHE": "1",
        "PUMICE_DEVICE": "",
        "HOME": str(folder),
    }
    start = time.monotonic()
    said = run(qemu, "-L", root, root / "usr" / "bin" / python, "-c", CALL, cwd=Path("/"), env=env)
    return f"{wheel.name} under {qemu}: {said.strip()}, {time.monotonic() - start:.0f} s emulated"
