"""Check the subjects and bodies of commits: `python tests/commits.py`, part of ./dev lint. CONTRIBUTING.md has the rule."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MOST_LETTERS = 72  # maximum subject length
MOST_COMMITS = 20  # commits to check without an upstream branch
BEGIN = datetime(2026, 11, 27, 13, tzinfo=timezone.utc)  # older commits predate the check
_FORMAT = "%h%x1f%ct%x1f%p%x1f%s%x1f%b%x1e"


class Commit(NamedTuple):
    """A commit: short hash, time, number of parents, subject and body."""

    name: str
    made: datetime
    parents: int
    subject: str
    body: str

    def complaints(self) -> list[str]:
        """Return the problems of the commit, a sentence each."""
        place = f"commit {self.name}, '{self.subject}'"
        found = []
        if len(self.subject) > MOST_LETTERS:
            found.append(f"{place}: expected a subject of at most {MOST_LETTERS} characters, given {len(self.subject)}")
        if self.parents < 2 and not self.body.strip():
            found.append(f"{place}: expected a body that says why, and what was measured, given none")
        return found


def git(folder: Path, *arguments: str) -> str:
    """Return git's output; "" if it fails."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def new_commits(folder: Path) -> list[Commit]:
    """Return the commits missing upstream, or the last MOST_COMMITS without an upstream. Commits before BEGIN are skipped."""
    upstream = git(folder, "rev-parse", "--abbrev-ref", "@{upstream}").strip()
    which = [f"{upstream}..HEAD"] if upstream else ["-n", str(MOST_COMMITS), "HEAD"]
    commits = []
    for record in git(folder, "log", f"--format={_FORMAT}", *which, "--").split("\x1e")[:-1]:
        name, made, parents, subject, body = record.lstrip("\n").split("\x1f")
        commits.append(
            Commit(name, datetime.fromtimestamp(int(made), timezone.utc), len(parents.split()), subject, body)
        )
    return [one for one in commits if one.made >= BEGIN]


def complaints(folder: Path) -> list[str]:
    """Return the problems of a checkout's new commits; nothing if the folder is not a checkout."""
    return [complaint for one in new_commits(folder) for complaint in one.complaints()]


def main(folder: Path = ROOT) -> int:
    """Print the problems; return 1 if there are any, else 0."""
    found = complaints(folder)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
