"""Runs a wheel for another architecture under qemu's user-mode emulation, with that architecture's Python, Vulkan loader
and lavapipe from Debian packages, unpacked into a build folder. Nothing is installed."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from wheels.build import Target
from wheels.commands import Failed, run

PACKAGES = ("libvulkan1", "mesa-vulkan-drivers")
ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}  # Debian's names

# Runs a network and checks the result, then a kernel that is compiled here.
CALL = """
import platform
import numpy as np
import pumice
import pumice.demo

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


class Unable(Exception):
    """The wheel cannot be run here; the message names what is missing."""


def unpack(packages: tuple[str, ...], architecture: str, folder: Path) -> Path:
    """Unpack packages of another architecture and their dependencies into a folder, once; return it.

    apt-get gets lists, state and a cache of its own: this machine's packages do not change.
    """
    root, mark = folder / "root", folder / "packages"
    if mark.is_file() and mark.read_text() == " ".join(packages):
        return root
    for made in ("lists/partial", "archives/partial"):
        (folder / made).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache::archives": folder / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
    }
    apt = ("apt-get", "-qq", "--yes", *(f"-o{name}={value}" for name, value in settings.items()))
    run(*apt, "update")
    run(*apt, "--download-only", "install", *packages)
    for package in sorted((folder / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", package, root)
    mark.write_text(" ".join(packages))
    return root


def check(wheel: Path, target: Target, version: str) -> str:
    """Run a wheel on lavapipe under emulation: its import, a network and a kernel. Return a sentence with the result.

    Raises:
        Unable: this machine lacks the tools, or its system has no such Python.
        Failed: the wheel does not install, or gives wrong results.
    """
    folder, python, qemu = target.folder / "foreign", f"python{version}", f"qemu-{target.machine}-static"
    for name in (qemu, "apt-get", "dpkg-deb"):
        if not shutil.which(name):
            raise Unable(f"no {name} here, which brings or runs the other architecture's programs")
    try:
        root = unpack((python, *PACKAGES), ARCHITECTURES[target.machine], folder / f"system-{version}")
    except Failed as error:
        raise Unable(f"no {python} with lavapipe for {target.machine} from this system's packages: {error}") from None
    site = folder / f"site-{version}"
    shutil.rmtree(site, ignore_errors=True)
    tags = [f"--platform=manylinux_{glibc}_{target.machine}" for glibc in ("2_28", "2_27", "2_26", "2_17")]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--no-compile", *tags)
    run(*pip, "--python-version", version, "--implementation", "cp", "--target", site, f"{wheel}[image]")
    (manifest,) = (root / "usr" / "share" / "vulkan" / "icd.d").glob("lvp_icd*.json")
    env = {
        "PYTHONPATH": str(site),
        "PYTHONDONTWRITEBYTECODE": "1",
        "VK_DRIVER_FILES": str(manifest),
        "VK_ICD_FILENAMES": str(manifest),
        "VK_LOADER_LAYERS_DISABLE": "~implicit~",
        "LP_NUM_THREADS": "1",
        "PUMICE_NO_CACHE": "1",
        "PUMICE_DEVICE": "",
        "HOME": str(folder),
    }
    start = time.monotonic()
    said = run(qemu, "-L", root, root / "usr" / "bin" / python, "-c", CALL, cwd=Path("/"), env=env)
    return f"{wheel.name} under {qemu}: {said.strip()}, {time.monotonic() - start:.0f} s emulated"
