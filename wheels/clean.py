"""Checks a wheel as a user installs it: in a new environment, with no compiler on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from wheels.audit import Failed
from wheels.interpreters import Interpreter

MOST_IMPORT_SECONDS = 0.060  # beyond NumPy's own
IMPORT = "import time, numpy; start = time.perf_counter(); import pumice; print(time.perf_counter() - start)"


def run(*command: str | Path, **environment: str) -> str:
    """Run a command outside the checkout and return its output; raise Failed with the output if it fails."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd="/",
        env={**env, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"this failed: {' '.join(str(part) for part in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(wheel: Path, interpreter: Interpreter, folder: Path) -> str:
    """Install a wheel, classify the demo's images and time the import; return a sentence with the measurements.

    Raises:
        Failed: the wheel does not install or run, or its import takes longer than MOST_IMPORT_SECONDS beyond NumPy's.
    """
    shutil.rmtree(folder, ignore_errors=True)
    run(interpreter.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    start = time.monotonic()
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        f"{wheel}[image]",
        PIP_ROOT_USER_ACTION="ignore",
    )
    installed = time.monotonic()
    run(python, "-m", "pumice.demo", PATH="/nowhere", HOME=str(folder))
    shown = time.monotonic()
    seconds = min(float(run(python, "-c", IMPORT, PATH="/nowhere")) for _ in range(5))
    if seconds > MOST_IMPORT_SECONDS:
        most = f"the most is {MOST_IMPORT_SECONDS * 1000:.0f} ms"
        raise Failed(f"{wheel.name}: the import takes {seconds * 1000:.0f} ms beyond NumPy's, {most}")
    return (
        f"{wheel.name}: pip install {installed - start:.1f} s, the demo without a compiler {shown - installed:.1f} s, "
        f"import {seconds * 1000:.0f} ms beyond NumPy's"
    )
