"""Separate Python processes, and the environment of a machine without a driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pumice
from features import reason_of_refusal

NO_DRIVER = {"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"}


def python(
    *arguments: str, cwd: Path | None = None, seconds: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter with this environment plus the given variables and a timeout in seconds. Skip the test if it ends with an
    error because of what the device lacks.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    if done.returncode and (reason := reason_of_refusal(done.stderr, pumice.default_context())):
        pytest.skip(reason)
    return done


def output_of(*arguments: str, cwd: Path | None = None, **environment: str) -> str:
    """Return the output of a fresh interpreter, which must succeed with empty standard error."""
    done = python(*arguments, cwd=cwd, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout
