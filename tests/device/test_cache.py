"""The disk cache as a whole: size limit, eviction order, files left by killed processes."""

from __future__ import annotations

import hashlib
import os
import random
import time
from pathlib import Path

import pytest

import pumice

DAY = 86_400


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PUMICE_CACHE_MB", "1")
    return tmp_path / "cache" / "pumice"


def put(path: Path, kilobytes: int, days_ago: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"pumice01" + bytes(kilobytes * 1024 - 8))  # an earlier version's header
    when = time.time() - days_ago * DAY
    os.utime(path, (when, when))
    return path


def test_what_was_used_least_recently_goes_first(cache: Path) -> None:
    old = [put(cache / "spirv" / f"{i:02}" / "a0.spv", 100, days_ago=30 - i) for i in range(12)]
    pumice.prune_cache()
    left = [path for path in old if path.exists()]
    assert left == old[-len(left) :]
    assert len(left) == 7  # three quarters of 1 MiB
    state = pumice.cache_state()
    assert state is not None
    assert (state.folder, state.files, state.bytes, state.limit) == (str(cache), 7, 7 * 100 * 1024, 1 << 20)


def test_a_cache_within_its_limit_is_left_alone(cache: Path) -> None:
    paths = [put(cache / "graphs" / f"{i}.graph", 100, days_ago=300) for i in range(10)]
    pumice.prune_cache()
    assert all(path.exists() for path in paths)


def test_what_killed_writers_left_goes_and_what_is_being_written_stays(cache: Path) -> None:
    abandoned = put(cache / "spirv" / "ab" / "a0.spv.0123456789abcdef.tmp", 1, days_ago=1)
    under_way = put(cache / "spirv" / "ab" / "a1.spv.0123456789abcdef.tmp", 1, days_ago=0)
    pumice.prune_cache()
    assert (abandoned.exists(), under_way.exists()) == (False, True)


def test_a_shader_that_is_read_counts_as_used(cache: Path) -> None:
    source = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 1.25; }"
    pumice.compile(source, name="first")
    (entry,) = (cache / "spirv").rglob("*.spv")
    os.utime(entry, (0, 0))
    code = f"import pumice\npumice.compile({source!r}, name='first')\nassert pumice.compile_counts().from_disk == 1"
    from process import python

    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert time.time() - entry.stat().st_mtime < 3600


def test_damaged_shaders_are_compiled_anew(cache: Path) -> None:
    sources = [f"layout(binding = 0) buffer X {{ float x[]; }};\nvoid main() {{ x[0] = {i}.5; }}" for i in range(7)]
    entries: list[Path] = []
    for source in sources:
        pumice.compile(source, name="damaged")
        entries += set((cache / "spirv").rglob("*.spv")) - set(entries)
    whole = [entry.read_bytes() for entry in entries]
    half = len(whole[0]) // 2
    damaged = [
        b"",
        whole[1][:half],
        whole[2][:-1],
        whole[3] + b"\0",
        whole[4][:half] + bytes([whole[4][half] ^ 4]) + whole[4][half + 1 :],
        whole[0],  # the complete entry of another shader
        b"#!/bin/sh\n" * 100,
    ]
    for entry, content in zip(entries, damaged, strict=True):
        entry.write_bytes(content)
    code = (
        f"import pumice\nshaders = [pumice.compile(source, name='damaged') for source in {sources!r}]\n"
        "print(pumice.compile_counts().compiled, *[shader.spirv.hex() for shader in shaders])"
    )
    from process import output_of

    count, *texts = output_of("-c", code).split()
    assert texts == [pumice.compile(source, name="damaged").spirv.hex() for source in sources]
    assert int(count) == len(sources)


def test_without_a_cache_there_is_no_state(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMICE_NO_CACHE", "1")
    assert pumice.cache_state() is None
    pumice.prune_cache()


# ---- digests


def test_names_of_entries_are_sha256() -> None:
    """All lengths around the block size, in one piece and in several; with and without the CPU's SHA instructions."""
    source = random.Random(7)
    for length in [*range(200), 4096, 65537]:
        data = source.randbytes(length)
        expected = hashlib.sha256(data).hexdigest()
        assert pumice._pumice.sha256(data) == expected
        cut = source.randrange(length + 1)
        assert pumice._pumice.sha256(data[:cut], memoryview(data)[cut:]) == expected
