"""Replace files atomically, and read files in other packages' formats."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import IO, TypeAlias

from .._pumice import Error
from .errors import InputError

Path: TypeAlias = "str | os.PathLike[str]"


def write_text_atomic(path: Path, text: str) -> None:
    """Write text as UTF-8, replacing the file atomically: an interruption leaves the old file intact.

    Raise OSError with the name of the file, for example if the disk is full.
    """
    with open_atomic(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends, and is deleted if the block raises.

    A symbolic link at `path` is replaced, not followed. Devices, pipes and names such as /dev/stdout are written directly.
    Raise OSError with the name of the file.
    """
    target = os.fspath(path)
    if _is_special_file(target):
        with open(target, "ab") as file:  # append, because /dev/stdout may be a file that already has output
            yield file
        return
    # The temporary file is in the same folder, because a rename is atomic only within a file system. A random name and O_EXCL keep other
    # users from planting a file or link there. Unlike mkstemp(), os.open() respects the umask.
    temporary = f"{target}.{os.urandom(8).hex()}.part"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename in (None, temporary):  # errors of write() have no file name
            raise OSError(error.errno, error.strerror, target) from error
        raise


def _is_special_file(target: str) -> bool:
    """Return whether a rename would destroy the target: a device, a pipe, or a system link such as /dev/stdout."""
    try:
        mode = os.lstat(target).st_mode
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        absolute = os.path.abspath(target)
        return absolute.startswith(("/dev/", "/proc/")) and not absolute.startswith("/dev/shm/")
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode)


@contextlib.contextmanager
def convert_read_errors(path: Path, member: str = "", kind: str = "NumPy arrays") -> Iterator[None]:
    """Convert other packages' errors about a file's content to InputError, naming the file and the archive member.

    Operating system errors, for missing or unreadable files, pass through unchanged.
    """
    try:
        yield
    except Error:
        raise
    except Exception as error:  # zipfile, zlib, NumPy, Pillow and protobuf raise a dozen classes, some undocumented
        if isinstance(error, OSError) and error.errno is not None:
            raise
        where = f"'{os.fspath(path)}'" + (f", member '{member}'" if member else "")
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InputError(f"{where}: expected {kind} ({reason}){_get_read_error_hint(error)}") from None


def _get_read_error_hint(error: Exception) -> str:
    text = str(error).lower()
    if "password" in text or "encrypted" in text:
        return ": write it again without a password"
    if "pickle" in text or "object arrays" in text:
        return ": arrays of Python objects are not read; write numbers, or strings as dtype str"
    return ""
