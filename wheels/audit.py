"""Checks of a finished wheel, whatever built it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

PLATFORM = "manylinux_2_28"
MOST_BYTES = 12_000_000


class Failed(Exception):
    """A wheel is not fit for release; the message gives the reason."""


def accepted_glibc(shown: str) -> tuple[int, int]:
    """Return the oldest glibc that a wheel runs with, from the output of `auditwheel show`."""
    match = re.search(r"following platform tag:\s+\"manylinux_([0-9]+)_([0-9]+)_", shown)
    if not match:
        raise Failed(f"auditwheel calls it no manylinux wheel:\n{shown}")
    return int(match.group(1)), int(match.group(2))


def check_platform(wheel: Path) -> str:
    """Raise Failed if auditwheel does not accept the wheel's platform; return the accepted tag."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"auditwheel show failed:\n{done.stdout}{done.stderr}")
    major, minor = accepted_glibc(" ".join(done.stdout.split()))
    if (major, minor) > (2, 28):
        raise Failed(f"{wheel.name} needs glibc {major}.{minor}; the tag promises {PLATFORM}:\n{done.stdout}")
    return f"manylinux_{major}_{minor}"


def unversioned(table: str) -> list[str]:
    """Return the undefined symbols of a library that have no C library version and are not Python's.

    Args:
        table: the output of `readelf --dyn-syms -W` for the library.
    """
    used = re.findall(r"\s(?:FUNC|OBJECT|NOTYPE)\s+GLOBAL\s+DEFAULT\s+UND\s+(\S+)$", table, re.MULTILINE)
    return sorted(name for name in used if "@" not in name and not name.startswith(("Py", "_Py")))


def check_names(tree: Path, readelf: str) -> None:
    """Raise Failed if one of our libraries uses a symbol that nothing provides: it would fail to load, or bind to a wrong one."""
    for path in [*tree.glob("pumice/_pumice*.so"), tree / "pumice" / "libdmpdv.so"]:
        command = [readelf, "--dyn-syms", "-W", str(path)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if names := unversioned(shown):
            raise Failed(f"{path.name} uses names that neither glibc 2.28 nor Python has: {', '.join(names)}")


def check_contents(wheel: Path, machine: str) -> None:
    """Raise Failed if a wheel lacks a licence, glslang or its SBOM, or is too large."""
    if wheel.stat().st_size > MOST_BYTES:
        raise Failed(f"{wheel.name} has {wheel.stat().st_size:,} bytes, the most is {MOST_BYTES:,}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        folder = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
        listed = json.loads(archive.read(f"{folder}/sboms/pumice.cdx.json"))
    held = {Path(name).name for name in names}
    texts = [
        row["value"]
        for part in listed["components"]
        for row in part.get("properties", [])
        if row["name"] == "pumice:licence-text"
    ]
    missing = {*texts, "LICENSE", "libglslang.so.13", "libSPIRV.so.13", "libpumice_glslang.so", "libdmpdv.so"} - held
    if missing:
        raise Failed(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    modules = [name for name in names if name.startswith("pumice/_pumice.cpython-")]
    if len(modules) != 1 or f"-{machine}-linux-gnu" not in modules[0]:
        raise Failed(f"{wheel.name} should hold one Python module for {machine}; it holds {modules}")
