"""The commit that a page of test results was made from."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def commit() -> str:
    """Return the short hash of the tree's commit; "?" outside a clone."""
    return _git("rev-parse", "--short", "HEAD") or "?"


def commit_line(command: str) -> str:
    """Return the line of a page that names the command and the commit that made it."""
    changes = (
        " with uncommitted changes" if _git("status", "--porcelain", "--", "cpp", "src", "shaders", "python") else ""
    )
    return f"Made by `{command}` at commit {commit()}{changes}."
