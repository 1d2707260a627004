"""Builds releases: manylinux wheels for every available Python, and an sdist. `./dev wheels` runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Failed(Exception):
    """A wheel cannot be built here, or is not fit for release; the message gives the reason."""


def run(*command: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. Raise Failed with the last lines of its output if it fails or is not here."""
    words = [str(part) for part in command]
    try:
        done = subprocess.run(words, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    except OSError as error:
        raise Failed(f"{words[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise Failed(f"this failed: {' '.join(words[:6])} ...\n{last}")
    return done.stdout
