"""The Python versions that wheels are built for, and how their interpreters are found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

WANTED = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")  # t: free-threaded (no GIL)
# Prints the version with "t" if it is free-threaded, and the folder of Python.h if it is there.
QUESTION = """
import os, sys, sysconfig
include = sysconfig.get_path("include")
print("%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")), sys.implementation.name)
print(include if os.path.exists(os.path.join(include, "Python.h")) else "")
"""


class Missing(Exception):
    """There is no interpreter for a version; the message lists where it was searched."""


class Interpreter(NamedTuple):
    """A CPython with its headers."""

    version: str  # "3.11", "3.14t"
    executable: Path
    include: Path

    @property
    def tag(self) -> str:
        """Return the Python and ABI tags of a wheel: cp311-cp311, cp314-cp314t."""
        digits = self.version.replace(".", "")
        return f"cp{digits.rstrip('t')}-cp{digits}"

    def suffix(self, machine: str) -> str:
        """Return the file name suffix of extension modules."""
        return f".cpython-{self.version.replace('.', '')}-{machine}-linux-gnu.so"


def candidates(version: str) -> list[Path]:
    """Return possible interpreters of the version, in search order."""
    named = [part for part in os.environ.get("PUMICE_PYTHONS", "").split(":") if part]
    on_path = [found for found in [shutil.which(f"python{version}")] if found]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    installed = sorted(pyenv.glob(f"{version.rstrip('t')}[.-]*/bin/python{version}"), reverse=True)
    return [*map(Path, [*named, f"{sys.base_prefix}/bin/python{version}", *on_path]), *installed]


def find(version: str) -> Interpreter:
    """Return the first CPython of a version that has its headers. Raise Missing if there is none."""
    bare = []
    for executable in candidates(version):
        try:
            done = subprocess.run([executable, "-c", QUESTION], capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        name, _, include = done.stdout.partition("\n")
        if name == f"{version} cpython":
            if include.strip():
                return Interpreter(version, executable, Path(include.strip()))
            bare.append(str(executable))
    if bare:
        raise Missing(f"no wheel for CPython {version}: {', '.join(bare)} has no Python.h")
    raise Missing(
        f"no wheel for CPython {version}: no python{version} is on PATH, among pyenv's versions or in PUMICE_PYTHONS "
        "(interpreters, separated by colons)"
    )
