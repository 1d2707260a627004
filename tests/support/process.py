"""Interpreters of their own, and the environment of a machine that has no driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NO_DRIVER = {"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"}


def python(
    *arguments: str, cwd: Path | None = None, seconds: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter, with this one's environment but for what is given; it may take so many seconds."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


def output_of(*arguments: str, cwd: Path | None = None, **environment: str) -> str:
    """The output of a fresh interpreter, which must succeed and say nothing on its standard error."""
    done = python(*arguments, cwd=cwd, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout
