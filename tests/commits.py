"""Checks the subjects and bodies of commits: `python tests/commits.py`, a part of ./dev lint. CONTRIBUTING.md has the rule."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MOST_LETTERS = 72  # of a subject
MOST_COMMITS = 20  # that are read where no upstream branch tells which are new
BEGIN = datetime(2026, 11, 27, 13, tzinfo=timezone.utc)  # commits from before the check are left as they are
_FORMAT = "%h%x1f%ct%x1f%p%x1f%s%x1f%b%x1e"


class Commit(NamedTuple):
    """A commit: its short name, when it was made, how many parents it has, its subject and its body."""

    name: str
    made: datetime
    parents: int
    subject: str
    body: str

    def complaints(self) -> list[str]:
        """What is wrong with it, a sentence each."""
        place = f"commit {self.name}, '{self.subject}'"
        found = []
        if len(self.subject) > MOST_LETTERS:
            found.append(f"{place}: expected a subject of at most {MOST_LETTERS} characters, given {len(self.subject)}")
        if self.parents < 2 and not self.body.strip():
            found.append(f"{place}: expected a body that says why, and what was measured, given none")
        return found


def git(folder: Path, *arguments: str) -> str:
    """What git writes; "" where it fails."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def new_commits(folder: Path) -> list[Commit]:
    """The commits that the upstream branch has not; the last MOST_COMMITS where there is none. Those from before BEGIN are left out."""
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
    """What is wrong with the new commits of a checkout; nothing where the folder is none."""
    return [complaint for one in new_commits(folder) for complaint in one.complaints()]


def main(folder: Path = ROOT) -> int:
    """Prints what is wrong; 1 where something is, else 0."""
    found = complaints(folder)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
