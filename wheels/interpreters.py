"""The Python versions that wheels are built for, and how their interpreters are found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WANTED = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")  # t: free-threaded (no GIL)
PLACES = "on PATH, among pyenv's versions or in PUMICE_PYTHONS (interpreters, separated by colons)"
QUESTION = """
import json, os, sys, sysconfig
include = sysconfig.get_path("include")
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2] + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""),
    "implementation": sys.implementation.name,
    "include": include,
    "header": os.path.exists(os.path.join(include, "Python.h")),
}))
"""


class Missing(Exception):
    """There is no interpreter for a version; the message lists where it was searched."""


@dataclass(frozen=True)
class Interpreter:
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
    named = [Path(part) for part in os.environ.get("PUMICE_PYTHONS", "").split(":") if part]
    on_path = shutil.which(f"python{version}")
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    name = version.rstrip("t")
    kept = [*root.glob(f"{name}.*/bin/python{version}"), *root.glob(f"{name}-dev/bin/python{version}")]
    own = Path(sys.base_prefix) / "bin" / f"python{version}"
    return [*named, own, *([Path(on_path)] if on_path else []), *sorted(kept, reverse=True)]


def ask(executable: Path) -> dict[str, str | bool]:
    """Return what an interpreter reports about itself; empty if it does not run."""
    try:
        done = subprocess.run([executable, "-c", QUESTION], capture_output=True, text=True, check=False, timeout=60)
        answer: dict[str, str | bool] = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return answer


def find(version: str) -> Interpreter:
    """Return the first CPython of a version that has its headers.

    Raises:
        ValueError: wheels are not built for this version.
        Missing: none was found, or none of the found ones has headers.
    """
    if version not in WANTED:
        raise ValueError(f"wheels are made for CPython {', '.join(WANTED)}; given {version}")
    bare = []
    for executable in candidates(version):
        answer = ask(executable)
        if answer.get("version") != version or answer.get("implementation") != "cpython":
            continue
        if answer["header"]:
            return Interpreter(version, executable, Path(str(answer["include"])))
        bare.append(str(executable))
    if bare:
        raise Missing(f"no wheel for CPython {version}: {', '.join(bare)} has no Python.h")
    raise Missing(f"no wheel for CPython {version}: no python{version} is {PLACES}")
