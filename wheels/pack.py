"""Writes the files of a wheel reproducibly: the bytes do not depend on the folder, the clock or the listing order."""

from __future__ import annotations

import base64
import hashlib
import stat
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from wheels import archive

SKIPPED = ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
EARLIEST = 315_532_800  # 1980-01-01: the earliest time in a zip file


def files_of(*trees: Path) -> dict[str, Path]:
    """Return name inside the wheel -> file, merging several folders.

    Raises:
        ValueError: two of them have a file of the same name.
    """
    found: dict[str, Path] = {}
    for tree in trees:
        for path in sorted(tree.rglob("*")):
            name = path.relative_to(tree).as_posix()
            if not path.is_file() or any(part in SKIPPED for part in path.parts):
                continue
            if name in found:
                raise ValueError(f"{name} is in {found[name]} and in {path}")
            found[name] = path
    return found


def wheel_text(version: str, tag: str) -> str:
    """Return the content of the file WHEEL."""
    lines = ["Wheel-Version: 1.0", f"Generator: pumice {version}", "Root-Is-Purelib: false", f"Tag: {tag}"]
    return "\n".join([*lines, ""])


def record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def entry(name: str, executable: bool, epoch: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, time.gmtime(max(epoch, EARLIEST))[:6])
    info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    info.create_system = 3  # Unix
    return info


def write(
    path: Path,
    files: Mapping[str, Path],
    information: Mapping[str, bytes],
    epoch: int,
    deflate: Callable[[bytes], bytes] = archive.deflate,
) -> None:
    """Write a wheel.

    Args:
        path: the wheel's; its name begins with the name and the version of the distribution.
        files: name inside the wheel -> file.
        information: name below .dist-info -> content; RECORD is added.
        epoch: the time of every entry, in seconds since 1970 (SOURCE_DATE_EPOCH).
        deflate: compresses a file.
    """
    folder = "-".join(path.name.split("-")[:2]) + ".dist-info"
    entries, record = [], []
    for name in sorted(files):
        content = files[name].read_bytes()
        entries.append((entry(name, ".so" in name, epoch), content))
        record.append(record_line(name, content))
    for name in sorted(information):
        entries.append((entry(f"{folder}/{name}", False, epoch), information[name]))
        record.append(record_line(f"{folder}/{name}", information[name]))
    text = "\n".join([*record, f"{folder}/RECORD,,", ""])
    entries.append((entry(f"{folder}/RECORD", False, epoch), text.encode()))
    archive.write(path, entries, deflate)
