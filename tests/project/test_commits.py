"""The commit check of ./dev lint: which commits it reads and rejects."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

import commits

LONG = "A subject that goes on and on until nobody can read it in a list of commits"


class Checkout:
    """A repository in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run("init", "-q", "-b", "main")

    def run(self, *arguments: str, days: int = 1) -> None:
        date = (commits.BEGIN + timedelta(days=days)).isoformat()
        who = {"NAME": "Somebody", "EMAIL": "somebody@example.com", "DATE": date}
        environment = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
        settings = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": "/usr/bin:/bin"}
        subprocess.run(["git", *arguments], cwd=self.folder, check=True, env={**environment, **settings})

    def commit(self, *paragraphs: str, days: int = 1) -> None:
        texts = [part for text in paragraphs for part in ("-m", text)]
        self.run("commit", "-q", "--allow-empty", *texts, days=days)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_subject_that_is_short_with_a_body_is_right(checkout: Checkout) -> None:
    checkout.commit("A change", "It does one thing.")
    assert [one.subject for one in commits.new_commits(checkout.folder)] == ["A change"]
    assert commits.main(checkout.folder) == 0


def test_a_long_subject_and_a_missing_body_are_rejected(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    checkout.commit("A change")
    checkout.commit(LONG, "It does one thing.")
    long, bare = commits.complaints(checkout.folder)
    assert f"'{LONG}': expected a subject of at most 72 characters, given {len(LONG)}" in long
    assert "'A change': expected a body that says why" in bare
    assert commits.main(checkout.folder) == 1
    assert capsys.readouterr().out == f"{long}\n{bare}\n"


def test_a_merge_needs_no_body(checkout: Checkout) -> None:
    checkout.commit("A change", "It does one thing.")
    checkout.run("checkout", "-q", "-b", "other")
    checkout.commit("Another", "It does another thing.")
    checkout.run("checkout", "-q", "main")
    checkout.run("merge", "-q", "--no-ff", "other", "-m", "Merge the other")
    assert len(commits.new_commits(checkout.folder)) == 3
    assert commits.complaints(checkout.folder) == []


def test_commits_from_before_the_check_are_left_as_they_are(checkout: Checkout) -> None:
    checkout.commit(LONG, days=-1)
    checkout.commit("A change")
    assert [one.subject for one in commits.new_commits(checkout.folder)] == ["A change"]


def test_commits_that_the_upstream_branch_has_are_not_read(checkout: Checkout) -> None:
    checkout.commit(LONG)
    checkout.run("checkout", "-q", "-b", "mine", "--track", "main")
    checkout.commit("A change")
    assert [one.subject for one in commits.new_commits(checkout.folder)] == ["A change"]


def test_without_an_upstream_branch_the_last_commits_are_read(checkout: Checkout) -> None:
    checkout.commit(LONG)
    for number in range(commits.MOST_COMMITS):
        checkout.commit(f"Change {number}", "It does one thing.")
    assert commits.complaints(checkout.folder) == []


def test_a_folder_that_is_no_checkout_has_no_commits(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert commits.complaints(tmp_path) == []
