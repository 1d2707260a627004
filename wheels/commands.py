"""Runs the commands of the wheel build."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 10_800.0  # time limit of a command


class Failed(Exception):
    """A wheel cannot be built here, or is not fit for release; the message gives the reason."""


def run(*command: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. Raise Failed with the last lines of its output if it fails or does not end."""
    words = [str(part) for part in command]
    env = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"this took over {SECONDS:.0f} s: {' '.join(words)}") from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise Failed(f"this failed: {' '.join(words[:6])} ...\n{last}")
    return done.stdout
