"""Runs a wheel for another architecture on this machine: qemu user-mode emulation with that architecture's Python,
Vulkan loader and lavapipe from Debian packages, unpacked into a build folder. Nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from wheels.audit import Failed
from wheels.build import Target

PACKAGES = ("libvulkan1", "mesa-vulkan-drivers")
ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}  # Debian's names
SECONDS = 3600.0  # time limit of an emulated program

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


def run(*command: object, cwd: Path = Path("/"), environment: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. Raise Failed with the output if it fails or takes longer than SECONDS."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"this took over {SECONDS:.0f} s: {' '.join(map(str, command))}") from None
    if done.returncode:
        raise Failed(f"this failed: {' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def apt_options(architecture: str, folder: Path) -> list[str]:
    """Return apt-get's options for packages of another architecture, with lists, state and cache in a separate folder."""
    lists, archives = folder / "lists", folder / "archives"
    for made in (lists, archives):
        (made / "partial").mkdir(parents=True, exist_ok=True)
    status = folder / "status"
    status.touch()
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
        "Dir::State::Lists": lists,
        "Dir::State::status": status,
        "Dir::Cache::archives": archives,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def need_packages() -> None:
    """Raise Unable if this system does not use Debian packages."""
    for name in ("apt-get", "dpkg-deb"):
        if not shutil.which(name):
            raise Unable(f"no {name} here, which brings the other architecture's packages and qemu")


def unpacked(packages: tuple[str, ...], architecture: str, folder: Path) -> Path:
    """Unpack packages and their dependencies into a folder, once; return it."""
    root, mark = folder / "root", folder / "packages"
    if mark.is_file() and mark.read_text() == " ".join(packages):
        return root
    need_packages()
    options = apt_options(architecture, folder)
    run("apt-get", *options, "-qq", "update")
    run("apt-get", *options, "-qq", "--yes", "--download-only", "install", *packages)
    for package in sorted((folder / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", package, root)
    mark.write_text(" ".join(packages))
    return root


def emulator(target: Target, folder: Path) -> Path:
    """Return qemu's program for the target: an installed one, else one unpacked from this system's package."""
    name = f"qemu-{target.machine}-static"
    found = shutil.which(name)
    if found:
        return Path(found)
    program = folder / "usr" / "bin" / name
    if not program.is_file():
        need_packages()
        folder.mkdir(parents=True, exist_ok=True)
        run("apt-get", "-qq", "download", "qemu-user-static", cwd=folder)
        for package in folder.glob("qemu-user-static*.deb"):
            run("dpkg-deb", "-x", package, folder)
    return program


def install(wheel: Path, target: Target, version: str, folder: Path) -> None:
    """Unpack the wheel and its dependencies for the target's Python, using this machine's pip."""
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [
        part
        for glibc in ("2_28", "2_27", "2_26", "2_17")
        for part in ("--platform", f"manylinux_{glibc}_{target.machine}")
    ]
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--no-compile"),
        *("--python-version", version, "--implementation", "cp", *platforms, "--target", folder, f"{wheel}[image]"),
        environment={"PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )


def check(wheel: Path, target: Target, version: str) -> str:
    """Run a wheel on lavapipe under emulation: its import, a network and a kernel. Return a sentence with the result.

    Raises:
        Unable: this machine lacks the tools, or its system has no such Python.
        Failed: the wheel does not install, or gives wrong results.
    """
    folder = target.folder / "foreign"
    python = f"python{version}"
    try:
        qemu = emulator(target, folder / "qemu")
        root = unpacked((python, *PACKAGES), ARCHITECTURES[target.machine], folder / f"system-{version}")
    except Failed as error:
        raise Unable(f"no {python} with lavapipe for {target.machine} from this system's packages: {error}") from None
    site = folder / f"site-{version}"
    install(wheel, target, version, site)
    (manifest,) = (root / "usr" / "share" / "vulkan" / "icd.d").glob("lvp_icd*.json")
    environment = {
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
    said = run(qemu, "-L", root, root / "usr" / "bin" / python, "-c", CALL, environment=environment)
    return f"{wheel.name} under {qemu.name}: {said.strip()}, {time.monotonic() - start:.0f} s emulated"
