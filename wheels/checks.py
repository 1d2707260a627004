"""Checks of a finished wheel that auditwheel does not make."""

from __future__ import annotations

import re
import shutil
import time
import zipfile
from pathlib import Path

from wheels import sbom
from wheels.commands import Failed, run
from wheels.interpreters import Interpreter

MAX_BYTES = 13_000_000
MAX_IMPORT_SECONDS = 0.060  # beyond NumPy's own
IMPORT = "import time, numpy; start = time.perf_counter(); import pumice; print(time.perf_counter() - start)"
LIBRARIES = ("libglslang.so.13", "libSPIRV.so.13", "libpumice_glslang.so", "libdmpdv.so")


def unversioned(table: str) -> list[str]:
    """Return the undefined symbols of a library that have no C library version and are not Python's.

    Args:
        table: the output of `readelf --dyn-syms -W` for the library.
    """
    used = re.findall(r"\s(?:FUNC|OBJECT|NOTYPE)\s+GLOBAL\s+DEFAULT\s+UND\s+(\S+)$", table, re.MULTILINE)
    return sorted(name for name in used if "@" not in name and not name.startswith(("Py", "_Py")))


def check_symbols(tree: Path, readelf: str) -> None:
    """Raise Failed if one of our libraries uses a symbol that nothing provides: it would fail to load, or bind to a wrong one."""
    for path in [*tree.glob("pumice/_pumice*.so"), tree / "pumice" / "libdmpdv.so"]:
        if names := unversioned(run(readelf, "--dyn-syms", "-W", path)):
            raise Failed(f"{path.name} uses names that neither glibc 2.28 nor Python has: {', '.join(names)}")


def check_contents(wheel: Path, machine: str) -> None:
    """Raise Failed if a wheel lacks a licence, a library or its SBOM, or is too large."""
    if wheel.stat().st_size > MAX_BYTES:
        raise Failed(f"{wheel.name} has {wheel.stat().st_size:,} bytes, the most is {MAX_BYTES:,}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    licences = [part.text for part in sbom.PARTS]
    missing = {*licences, *LIBRARIES, "LICENSE", sbom.NAME.name} - {Path(name).name for name in names}
    if missing:
        raise Failed(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    modules = [name for name in names if name.startswith("pumice/_pumice.cpython-")]
    if len(modules) != 1 or f"-{machine}-linux-gnu" not in modules[0]:
        raise Failed(f"{wheel.name} should hold one Python module for {machine}; it holds {modules}")


def check_clean(wheel: Path, interpreter: Interpreter, folder: Path) -> str:
    """Install a wheel in a new environment without a compiler on PATH; return a sentence with the measurements.

    Raises:
        Failed: the demo fails, or the import takes longer than MAX_IMPORT_SECONDS beyond NumPy's.
    """
    shutil.rmtree(folder, ignore_errors=True)
    env, bare = {"PYTHONPATH": ""}, {"PYTHONPATH": "", "PATH": "/nowhere", "HOME": str(folder)}
    run(interpreter.executable, "-m", "venv", folder, env=env)
    python, start = folder / "bin" / "python", time.monotonic()
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[image]", env=env)
    installed = time.monotonic()
    run(python, "-m", "pumice.demo", cwd=folder, env=bare)
    shown = time.monotonic()
    seconds = min(float(run(python, "-c", IMPORT, cwd=folder, env=bare)) for _ in range(5))
    if seconds > MAX_IMPORT_SECONDS:
        most = f"the most is {MAX_IMPORT_SECONDS * 1000:.0f} ms"
        raise Failed(f"{wheel.name}: the import takes {seconds * 1000:.0f} ms beyond NumPy's, {most}")
    return (
        f"{wheel.name}: pip install {installed - start:.1f} s, the demo without a compiler {shown - installed:.1f} s, "
        f"import {seconds * 1000:.0f} ms beyond NumPy's"
    )
