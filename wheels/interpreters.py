"""The Python versions that wheels are built for, and how their interpreters are found."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from wheels import Failed, run

WANTED = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")  # t: free-threaded (no GIL)
# Prints the version with "t" if it is free-threaded, and the folder of Python.h. Fails if that is not there.
QUESTION = """
import os, sys, sysconfig
include = sysconfig.get_path("include")
assert os.path.exists(os.path.join(include, "Python.h"))
print("%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")), sys.implementation.name)
print(include)
"""


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


def find(version: str) -> Interpreter | None:
    """Return the first CPython of a version that has its headers: of PUMICE_PYTHONS, .venv, PATH and pyenv's versions."""
    name, named = f"python{version}", [path for path in os.environ.get("PUMICE_PYTHONS", "").split(":") if path]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    installed = sorted(pyenv.glob(f"{version.rstrip('t')}[.-]*/bin/{name}"), reverse=True)
    for executable in [*map(Path, [*named, f"{sys.base_prefix}/bin/{name}", name]), *installed]:
        try:
            found, include = run(executable, "-c", QUESTION).splitlines()
        except Failed:
            continue
        if found == f"{version} cpython":
            return Interpreter(version, executable, Path(include))
    return None
