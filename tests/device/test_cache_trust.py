"""Cache entries that were tampered with, belong to other users or are links: never used, and no link is followed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pumice
from process import python
from pumice._pumice import cache_entries, read_cache_entry, sha256, write_cache_entry

NAMES = {
    "spirv": "ab/12",
    "pipelines": "00ff-00ee-12",
    "trials": "00ff-12",
    "spills": "ab/12",
    "graphs": "ab12",
    "tuning": "ab/12",
    "peaks": "ab12",
}
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "chosen"))
    return tmp_path / "chosen" / "pumice"


def put(cache: Path, kind: str, payload: bytes = b"payload", name: str | None = None) -> Path:
    """Write an entry and return its file."""
    before = {*cache.rglob("*")}
    name = name or NAMES[kind]
    assert write_cache_entry(kind, name, payload)
    assert read_cache_entry(kind, name) == payload
    (made,) = (one for one in {*cache.rglob("*")} - before if one.is_file())
    return made


# ---- modes and names


def test_folders_are_0700_and_files_0600_whatever_the_umask(cache: Path) -> None:
    before = os.umask(0)
    try:
        for kind in NAMES:
            put(cache, kind)
    finally:
        os.umask(before)
    for path in (cache.parent, cache, *cache.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    state = pumice.cache_state()
    assert state is not None and state.files == len(NAMES)


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("name", ["", "..", "../ab", "ab/../../cd", "/ab", "ab/", "ab/cd/ef", "a.b", "AB", "ab/.."])
def test_names_that_leave_the_folder_are_rejected(cache: Path, kind: str, name: str) -> None:
    for call in (lambda: read_cache_entry(kind, name), lambda: write_cache_entry(kind, name, b"")):
        with pytest.raises(pumice.Error, match="expected the name of a cache entry"):
            call()
    assert not cache.parent.exists()


def test_other_kinds_are_rejected(cache: Path) -> None:
    with pytest.raises(pumice.Error, match="no entries of the kind 'photos'"):
        write_cache_entry("photos", "ab", b"")


def test_entries_are_listed(cache: Path) -> None:
    for name in ("ab/2", "ab/1", "cd/3"):
        put(cache, "tuning", name=name)
    (cache / "tuning" / "ab" / "notes.txt").write_text("")
    (cache / "tuning" / "ab" / "4.tuning").symlink_to("1.tuning")
    assert cache_entries("tuning") == ["ab/1", "ab/2", "cd/3"]
    assert cache_entries("tuning", "ab") == ["ab/1", "ab/2"]
    assert cache_entries("tuning", "ef") == cache_entries("spirv") == []


# ---- content


def test_every_flipped_bit_is_found(cache: Path) -> None:
    entry = put(cache, "graphs", b"0123456789")
    whole = entry.read_bytes()
    for bit in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        entry.write_bytes(changed)
        assert read_cache_entry("graphs", NAMES["graphs"]) is None, f"bit {bit}"
    entry.write_bytes(whole)
    assert read_cache_entry("graphs", NAMES["graphs"]) == b"0123456789"


def test_every_other_length_is_found(cache: Path) -> None:
    entry = put(cache, "graphs", b"0123456789")
    whole = entry.read_bytes()
    for content in (*(whole[:length] for length in range(len(whole))), whole + b"\0", whole + whole):
        entry.write_bytes(content)
        assert read_cache_entry("graphs", NAMES["graphs"]) is None


def test_an_entry_is_not_read_under_another_name_or_as_another_kind(cache: Path) -> None:
    files = {(kind, name): put(cache, kind, b"same", name) for kind, own in NAMES.items() for name in (own, own + "0")}
    contents = {key: file.read_bytes() for key, file in files.items()}
    assert len({*contents.values()}) == len(contents), "the hash covers kind and name"
    for key, file in files.items():
        for other, content in contents.items():
            file.write_bytes(content)
            assert (read_cache_entry(*key) is not None) == (key == other)
        file.write_bytes(contents[key])


def test_a_huge_sparse_file_is_neither_read_nor_counted_by_its_size(cache: Path) -> None:
    entry = put(cache, "graphs")
    with open(entry, "r+b") as file:
        file.truncate(1 << 40)
    assert read_cache_entry("graphs", NAMES["graphs"]) is None
    state = pumice.cache_state()
    assert state is not None
    assert state.bytes == entry.stat().st_blocks * 512 < 1 << 20
    put(cache, "graphs", name="cd")
    pumice.prune_cache()
    assert entry.exists(), "1 TiB without blocks is no reason to prune"


def test_a_fifo_instead_of_an_entry_does_not_block(cache: Path) -> None:
    entry = put(cache, "graphs")
    entry.unlink()
    os.mkfifo(entry, 0o600)
    assert read_cache_entry("graphs", NAMES["graphs"]) is None
    pumice.prune_cache()
    assert write_cache_entry("graphs", NAMES["graphs"], b"new")
    assert read_cache_entry("graphs", NAMES["graphs"]) == b"new"


# ---- owners, modes and links


def _chown(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


def _linked(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


SPOILING: dict[str, Callable[[Path], None]] = {
    "owner": _chown,
    "group": lambda path: path.chmod(path.stat().st_mode | 0o020),
    "world": lambda path: path.chmod(path.stat().st_mode | 0o002),
    "link": _linked,
}
REASONS = {
    "owner": "it belongs to a different user",
    "group": "other users may write to it",
    "world": "other users may write to it",
    "link": "it is a symbolic link",
}


@pytest.mark.parametrize("level", ["file", "inner", "kind", "cache"])
@pytest.mark.parametrize("how", [pytest.param("owner", marks=as_root), "group", "world", "link"])
def test_what_others_can_change_is_not_used(cache: Path, tmp_path: Path, how: str, level: str) -> None:
    entry = put(cache, "tuning")
    spoilt = {"file": entry, "inner": entry.parent, "kind": entry.parent.parent, "cache": cache}[level]
    SPOILING[how](spoilt)
    assert read_cache_entry("tuning", NAMES["tuning"]) is None
    if level != "file":
        before = {path: path.lstat().st_mtime_ns for path in cache.parent.rglob("*")}
        assert not write_cache_entry("tuning", NAMES["tuning"], b"new")
        assert cache_entries("tuning") == []
        pumice.prune_cache()
        assert {path: path.lstat().st_mtime_ns for path in cache.parent.rglob("*")} == before
    else:
        assert write_cache_entry("tuning", NAMES["tuning"], b"new"), "the entry is replaced"
        assert read_cache_entry("tuning", NAMES["tuning"]) == b"new"
        assert not entry.is_symlink()
        if how == "link":
            assert (entry.parent / "moved").read_bytes().endswith(b"payload"), (
                "the file that the link named is as it was"
            )


@pytest.mark.parametrize("how", [pytest.param("owner", marks=as_root), "world", "link"])
def test_one_warning_in_a_process_names_the_path_its_owner_and_a_remedy(cache: Path, how: str) -> None:
    entry = put(cache, "tuning")
    SPOILING[how](entry)
    for kind in ("graphs", "peaks"):
        SPOILING[how](put(cache, kind))
    code = (
        "import pumice, pumice._pumice as p\n"
        "for kind, name in (('tuning', 'ab/12'), ('graphs', 'ab12'), ('peaks', 'ab12'), ('tuning', 'ab/12')):\n"
        "    assert p.read_cache_entry(kind, name) is None\n"
        "print(*[text for level, text in p.take_log() if level == 30], sep='\\n')"
    )
    done = python("-c", code)
    (line,) = done.stdout.splitlines()
    uid = NOBODY if how == "owner" else os.geteuid()
    assert str(entry) in line and f"uid {uid}" in line and REASONS[how] in line
    assert "PUMICE_CACHE_DIR" in line and "/var/tmp" not in line
    assert (f"chmod go-w {entry}" in line) == (how == "world")


@as_root
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_root_makes_no_cache_in_the_home_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("PUMICE_CACHE_DIR", "XDG_CACHE_HOME", "PUMICE_NO_CACHE"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "ann"
    home.mkdir()
    monkeypatch.setenv(variable, str(home))
    _chown(home)
    assert not write_cache_entry("graphs", "ab", b"1")
    assert not [*home.iterdir()]
    os.chown(home, 0, 0)
    assert write_cache_entry("graphs", "ab", b"1")
    _chown(home)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(home / "named"))
    assert write_cache_entry("graphs", "ab", b"1"), "a folder that is named is used"


# ---- planted links


def test_links_at_the_final_name_are_replaced(cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    entry = put(cache, "graphs")
    for target in (precious, tmp_path / "absent", tmp_path):
        entry.unlink()
        entry.symlink_to(target)
        assert read_cache_entry("graphs", NAMES["graphs"]) is None
        assert write_cache_entry("graphs", NAMES["graphs"], b"new")
        assert not entry.is_symlink() and read_cache_entry("graphs", NAMES["graphs"]) == b"new"
    assert precious.read_text() == "precious" and not (tmp_path / "absent").exists()


def test_temporary_files_are_made_anew_and_have_random_names(cache: Path, tmp_path: Path) -> None:
    """strace would show O_EXCL; instead the test reads the file names of two writers that a file size limit kills."""
    put(cache, "graphs")
    code = (
        "import os, resource, signal, sys\nimport pumice._pumice as p\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"  # kills the process while it writes the file
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "p.write_cache_entry('graphs', 'ab12', bytes(1000))"
    )
    for _ in range(2):
        assert python("-c", code).returncode == -signal.SIGXFSZ
    temporaries = [path for path in (cache / "graphs").iterdir() if path.suffix == ".tmp"]
    assert len(temporaries) == 2
    for path in temporaries:
        head, random, _ = path.name.rsplit(".", 2)
        assert (head, len(random), path.stat().st_size) == ("ab12.graph", 16, 100)
        assert path.stat().st_mode & 0o777 == 0o600
    assert len({path.name for path in temporaries}) == 2
    assert read_cache_entry("graphs", NAMES["graphs"]) == b"payload", "the entry is as it was"
    pumice.prune_cache()
    assert all(path.exists() for path in temporaries), "they may be in use for an hour"
    for path in temporaries:
        os.utime(path, (1, 1))
    pumice.prune_cache()
    assert not any(path.exists() for path in temporaries)


@pytest.mark.parametrize("length", [0, 3, 6, 7, 8, 30])
def test_what_a_killed_writer_left_goes_whatever_was_written(cache: Path, length: int) -> None:
    entry = put(cache, "spirv")
    left = entry.with_name(entry.name + ".0123456789abcdef.tmp")
    left.write_bytes(entry.read_bytes()[:length])
    foreign = entry.with_name(entry.name + ".fedcba9876543210.tmp")
    foreign.write_bytes(b"#!/bin/sh")
    for path in (left, foreign):
        os.utime(path, (1, 1))
    pumice.prune_cache()
    assert (left.exists(), foreign.exists(), entry.exists()) == (False, True, True)


def test_writers_that_are_killed_leave_whole_entries(cache: Path) -> None:
    code = (
        "import pumice._pumice as p\nprint('ready', flush=True)\n"
        "while True:\n    for i in range(50): p.write_cache_entry('graphs', f'{i:x}', bytes([i]) * 20_000)"
    )
    for delay in (0.02, 0.05, 0.1):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        signal.sigtimedwait([], delay)
        process.kill()
        process.communicate()
        for name in cache_entries("graphs"):
            assert read_cache_entry("graphs", name) == bytes([int(name, 16)]) * 20_000
    for path in cache.rglob("*.tmp"):
        os.utime(path, (1, 1))
    pumice.prune_cache()
    assert not [*cache.rglob("*.tmp")]


# ---- payloads that no build has written


def test_a_shader_with_a_right_hash_and_a_wrong_payload_is_compiled_anew(cache: Path) -> None:
    source = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 2.75; }"
    spirv = pumice.compile(source, name="forged").spirv
    (name,) = cache_entries("spirv")
    good = read_cache_entry("spirv", name)
    assert good is not None
    code = (
        f"import pumice\nshader = pumice.compile({source!r}, name='forged')\n"
        "print(pumice.compile_counts().compiled, shader.spirv.hex())"
    )
    many = (1 << 32) - 1
    for payload in (
        b"",
        good[:27],
        good[:4] + many.to_bytes(4, "little") + good[8:],  # a flag that is neither 0 nor 1
        good[:12] + many.to_bytes(4, "little") + good[16:],  # more warnings than strings
        good[:24] + many.to_bytes(4, "little") + good[28:],  # more string bytes than there are
        good[:24] + bytes(4) + good[28:],  # no strings
        good[:28],
    ):
        assert write_cache_entry("spirv", name, payload)
        assert python("-c", code).stdout.split() == ["1", spirv.hex()]
        assert read_cache_entry("spirv", name) == good


def test_hashes_are_those_of_kind_name_and_payload(cache: Path) -> None:
    """The layout used by docs and other tools: magic, length, SHA-256 of kind, name (each prefixed by its length) and payload."""
    entry = put(cache, "tuning", b"payload").read_bytes()
    fields = b"".join(len(text).to_bytes(8, "little") + text for text in (b"tuning", b"ab/12"))
    digest = bytes.fromhex(sha256(fields + b"payload"))
    assert entry == b"pumice02" + (7).to_bytes(8, "little") + digest + b"payload"


SEEDS = sorted((Path(__file__).resolve().parents[1] / "fuzz" / "corpus" / "cache_entry").iterdir())


@pytest.mark.parametrize("seed", [path for path in SEEDS if path.name.startswith("file_")], ids=lambda path: path.name)
def test_seeds_that_are_files_are_entries_or_not(cache: Path, seed: Path) -> None:
    entry = put(cache, "graphs", name="ab")
    entry.write_bytes(seed.read_bytes()[1:])
    expected = b"payload" if seed.name == "file_whole" else None
    assert read_cache_entry("graphs", "ab") == expected
    state = pumice.cache_state()
    assert state is not None
    assert state.files == (seed.name not in ("file_foreign", "file_begun")), "files of other versions count too"


@pytest.mark.parametrize(
    "seed", [path for path in SEEDS if path.name.startswith("shader_")], ids=lambda path: path.name
)
def test_seeds_that_are_shaders_are_used_or_not(cache: Path, seed: Path) -> None:
    """If this fails because the payload format has changed, run tests/support/cache_seeds.py."""
    text = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 0.125; }"
    source = f"{text}  // {seed.name}: not in the memory of this process"
    pumice.compile(source, name="seed")
    (name,) = cache_entries("spirv")
    assert write_cache_entry("spirv", name, seed.read_bytes()[1:])
    done = python(
        "-c", f"import pumice\npumice.compile({source!r}, name='seed')\nprint(pumice.compile_counts().from_disk)"
    )
    assert done.stdout == ("0\n" if seed.name == "shader_begun" else "1\n"), done.stderr
