"""The Pythons that wheels are built for, and where they are looked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WANTED = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")  # t: without the global lock
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
    """No interpreter can be had for a version; the message says where it was looked for."""


@dataclass(frozen=True)
class Interpreter:
    """One CPython with its headers."""

    version: str  # "3.11", "3.14t"
    executable: Path
    include: Path

    @property
    def tag(self) -> str:
        """The Python and ABI tags of a wheel: cp311-cp311, cp314-cp314t."""
        digits = self.version.replace(".", "")
        return f"cp{digits.rstrip('t')}-cp{digits}"

    def suffix(self, machine: str) -> str:
        """How the file name of an extension module ends."""
        return f".cpython-{self.version.replace('.', '')}-{machine}-linux-gnu.so"


def candidates(version: str) -> list[Path]:
    """Interpreters that may be of the version, in the order in which they are asked."""
    named = [Path(part) for part in os.environ.get("PUMICE_PYTHONS", "").split(":") if part]
    on_path = shutil.which(f"python{version}")
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    name = version.rstrip("t")
    kept = [*root.glob(f"{name}.*/bin/python{version}"), *root.glob(f"{name}-dev/bin/python{version}")]
    own = Path(sys.base_prefix) / "bin" / f"python{version}"
    return [*named, own, *([Path(on_path)] if on_path else []), *sorted(kept, reverse=True)]


def ask(executable: Path) -> dict[str, str | bool]:
    """What an interpreter says of itself; empty where it does not run."""
    try:
        done = subprocess.run([executable, "-c", QUESTION], capture_output=True, text=True, check=False, timeout=60)
        answer: dict[str, str | bool] = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return answer


def find(version: str) -> Interpreter:
    """The first CPython of a version that has its headers.

    Raises:
        ValueError: wheels are not made for this version.
        Missing: none is here, or those here have no headers.
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
