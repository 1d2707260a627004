"""Checks of a finished wheel that auditwheel does not make."""

from __future__ import annotations

import re
import shutil
import time
import zipfile
from pathlib import Path

from wheels import Failed, run, sbom

MAX_BYTES = 13_000_000
LIBRARIES = ("libglslang.so.13", "libSPIRV.so.13", "libpumice_glslang.so", "libdmpdv.so")


def unversioned(table: str) -> list[str]:
    """Return the undefined symbols in a table of `readelf --dyn-syms -W` that have no version and are not Python's."""
    used = re.findall(r"\s(?:FUNC|OBJECT|NOTYPE)\s+GLOBAL\s+DEFAULT\s+UND\s+(\S+)$", table, re.MULTILINE)
    return sorted(name for name in used if "@" not in name and not name.startswith(("Py", "_Py")))


def check_symbols(tree: Path, readelf: str) -> None:
    """Raise Failed if one of our libraries uses a symbol that nothing provides: it would fail to load, or bind to a wrong one."""
    for path in [*tree.glob("pumice/_pumice*.so"), tree / "pumice" / "libdmpdv.so"]:
        if names := unversioned(run(readelf, "--dyn-syms", "-W", path)):
            raise Failed(f"{path.name} uses names that neither glibc 2.28 nor Python has: {', '.join(names)}")


def check_contents(wheel: Path) -> None:
    """Raise Failed if a wheel lacks a licence, a library or its SBOM, or is too large."""
    if wheel.stat().st_size > MAX_BYTES:
        raise Failed(f"{wheel.name} has {wheel.stat().st_size:,} bytes, the most is {MAX_BYTES:,}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    licences = [part.text for part in sbom.PARTS]
    missing = {*licences, *LIBRARIES, "LICENSE", sbom.NAME.name} - {Path(name).name for name in names}
    if missing:
        raise Failed(f"{wheel.name} lacks {', '.join(sorted(missing))}")


def check_clean(wheel: Path, python: Path, folder: Path) -> str:
    """Install a wheel in a new environment, and run the command and the demo without a compiler on PATH.

    Return a sentence with the times. Raise Failed if something of it fails.
    """
    shutil.rmtree(folder, ignore_errors=True)
    env, bare = {"PYTHONPATH": ""}, {"PYTHONPATH": "", "PATH": "/nowhere", "HOME": str(folder)}
    run(python, "-m", "venv", folder, env=env)
    python, start = folder / "bin" / "python", time.monotonic()
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[image]", env=env)
    installed = time.monotonic()
    run(python, "-m", "pumice.demo", cwd=folder, env=bare)
    shown = time.monotonic()
    run(folder / "bin" / "pumice", "info", cwd=folder, env=bare)
    return f"{wheel.name}: pip install {installed - start:.1f} s, the demo without a compiler {shown - installed:.1f} s"
