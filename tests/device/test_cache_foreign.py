"""Files that pumice did not write survive all cache operations in the same folders."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pumice
from pumice._pumice import cache_entries, read_cache_entry, write_cache_entry
from pumice.tools.doctor.cache_check import check_cache as doctor_check
from pumice.tools.doctor.machine import Machine

MAGIC = b"pumice02"
ENTRY = MAGIC + bytes(100)
# Entries written by a random sequence of operations; no foreign file has such a name.
OWN = [
    ("graphs", "f00d"),
    ("graphs", "f00d1"),
    ("spirv", "ab/f00d"),
    ("tuning", "ab/f00d"),
    ("peaks", "f00d"),
    ("trials", "f00d-1"),
]
FOLDERS = [
    "",
    "photos",
    "graphs",
    "spirv/ab",
    "pumice",
    "pumice/photos",
    "pumice/pumice",
    "pumice/graphs",
    "pumice/spirv",
]
FOLDERS += ["pumice/spirv/ab", "pumice/spirv/AB", "pumice/tuning/ab", "pumice/tuning/ab/cd", "pumice/pipelines/ab"]
OUR_NAMES = ["ab.graph", "ab.spv", "ab.tuning", "ab.bin", "ab.calibration"]
OUR_NAMES += [f"{name}.0123456789abcdef.tmp" for name in OUR_NAMES]
OTHER_NAMES = [
    "thesis.tmp",
    "a.jpg",
    ".hidden",
    "ab",
    "graphs",
    "ab.graph~",
    "AB.graph",
    "xyz.spv",
    "ab.graph.tmp",
    "ab.spv.1.0.tmp",
]
OTHER_NAMES += ["ab.graph.0123456789abcdeg.tmp", "ab.0123456789abcdef.tmp", ".graph", "ab.graph.spv", "\udcff.spv"]


class Foreign(NamedTuple):
    """A file or link that is not a cache entry."""

    folder: str
    name: str
    kind: str
    content: bytes = b""


CONTENTS = st.sampled_from(
    [b"x", b"#!/bin/sh\n", b"PUMICE02", b"pumice", b"pumicexx" + bytes(100), b"pumice0\0", b"\0" * 5000]
)
KINDS = ["link to a file", "link to an entry", "link to a folder", "link to nothing", "sparse", "fifo", "folder"]
KINDS += ["entry of another user"] if os.geteuid() == 0 else []
# Locations of entries. Foreign files there need other content or another file type; elsewhere they may have any content.
PLACES = [("pumice/graphs", "ab.graph"), ("pumice/spirv/ab", "ab.spv"), ("pumice/tuning/ab", "ab.tuning")]
PLACES += [(folder, f"{name}.0123456789abcdef.tmp") for folder, name in PLACES]


def foreign(
    places: st.SearchStrategy[tuple[str, str]], contents: st.SearchStrategy[bytes]
) -> st.SearchStrategy[Foreign]:
    types = st.tuples(st.just("file"), contents) | st.tuples(st.sampled_from(KINDS), st.just(b""))
    return st.builds(lambda place, type: Foreign(*place, *type), places, types)


FOREIGN = foreign(st.sampled_from(PLACES), CONTENTS.filter(lambda content: content != b"pumice"))
FOREIGN |= foreign(st.tuples(st.sampled_from(FOLDERS), st.sampled_from(OTHER_NAMES)), CONTENTS | st.just(ENTRY))
FOREIGN |= foreign(
    st.tuples(st.sampled_from(FOLDERS), st.sampled_from(OUR_NAMES)),
    CONTENTS.filter(lambda content: content != b"pumice"),
)
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(OWN), st.sampled_from([0, 100, 300_000])),
    st.tuples(st.just("prune"), st.sampled_from(["0", "1", "1024"])),
    st.sampled_from([("state",), ("list",), ("doctor",), ("read",)]),
)
LINKED = st.sampled_from(["", "pumice/peaks", "pumice/trials", "pumice/tuning/cd", "pumice/spills"])


def make(root: Path, outside: Path, one: Foreign) -> None:
    path = root / one.folder / one.name
    if os.path.lexists(path) or any(os.path.lexists(part) and not part.is_dir() for part in path.parents):
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if one.kind.startswith("link"):
        targets = {"file": "file", "entry": "ab.graph", "folder": "folder", "nothing": "absent"}
        path.symlink_to(outside / targets[one.kind.rsplit(" ", 1)[1]])
    elif one.kind == "fifo":
        os.mkfifo(path)
    elif one.kind == "folder":
        path.mkdir()
    elif one.kind == "sparse":
        path.touch()
        os.truncate(path, 3 << 30)
    else:
        path.write_bytes(one.content or ENTRY)
        if one.kind == "entry of another user":
            os.chown(path, 65534, 65534)
    os.utime(path, (1, 1), follow_symlinks=False)


def make_outside(outside: Path) -> None:
    """Create the targets of links: old files with names and contents of entries."""
    (outside / "folder" / "ab").mkdir(parents=True)
    for name in (
        "file",
        "ab.graph",
        *(f"folder/{name}" for name in OUR_NAMES),
        *(f"folder/ab/{name}" for name in OUR_NAMES),
    ):
        (outside / name).write_bytes(ENTRY)
        os.utime(outside / name, (1, 1))


def snapshot(top: Path) -> dict[str, tuple[object, ...]]:
    """Return all files and links with type, mode, owner, time, size, and content or target."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content: object = os.readlink(path) if os.path.islink(path) else None
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    content = file.read(10_000)
            facts = (status.st_mode, status.st_uid, content)
            found[path] = facts if os.path.isdir(path) else (*facts, status.st_mtime_ns, status.st_size)
    return found


def perform(operation: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    match operation:
        case ("write", (str(kind), str(name)), int(size)):
            write_cache_entry(kind, name, bytes(size))
        case ("prune", str(limit)):
            monkeypatch.setenv("PUMICE_CACHE_MB", limit)
            pumice.prune_cache()
        case ("state",):
            assert pumice.cache_state() is not None
        case ("list",):
            for kind in ("graphs", "spirv", "tuning", "peaks"):
                cache_entries(kind)
        case ("doctor",):
            assert not [one for one in doctor_check(Machine()) if "rm " in one.mend]
        case ("read",):
            for kind, name in OWN:
                read_cache_entry(kind, name)


@settings(max_examples=150, deadline=None)
@given(st.lists(FOREIGN, max_size=12), LINKED, st.lists(OPERATIONS, min_size=1, max_size=8))
def test_foreign_files_survive(files: list[Foreign], linked: str, operations: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        root, outside = Path(folder) / "chosen", Path(folder) / "outside"
        root.mkdir(mode=0o700)
        make_outside(outside)
        if linked:
            (root / linked).parent.mkdir(parents=True, mode=0o700)
            (root / linked).symlink_to(outside / "folder")
        for one in files:
            make(root, outside, one)
        monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
        monkeypatch.setenv("PUMICE_CACHE_DIR", str(root))
        before = snapshot(Path(folder))
        for operation in [*operations, ("prune", "0")]:
            perform(operation, monkeypatch)
        after = snapshot(Path(folder))
        assert {path: after.get(path) for path in before} == before
        state = pumice.cache_state()
        assert state is not None and (state.files, state.bytes) == (0, 0), "what the cache has written is gone"
        assert all(Path(path).is_dir() for path in after.keys() - before.keys())


def test_the_folders_of_earlier_versions_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were directly in PUMICE_CACHE_DIR, where they cannot be distinguished from the user's folders."""
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PUMICE_CACHE_MB", "0")
    old = tmp_path / "graphs" / "ab.graph"
    old.parent.mkdir()
    old.write_bytes(b"pumice01" + bytes(100))
    assert write_cache_entry("graphs", "ab", b"1")
    pumice.prune_cache()
    assert old.exists() and cache_entries("graphs") == []
