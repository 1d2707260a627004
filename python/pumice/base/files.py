"""Replace files atomically, and read files of other packages' formats."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import IO, TypeAlias

from .._pumice import Error
from .errors import InputError

Path: TypeAlias = "str | os.PathLike[str]"


def write_whole(path: Path, text: str) -> None:
    """Write text as UTF-8. A file of that name is replaced at the end: an interruption before leaves it as it was.

    Raises OSError with the name of the file, for example if the disk is full.
    """
    with replaced(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` when the block ends, or disappears if the block raises.

    A symbolic link at `path` is replaced, not followed. Devices, pipes and names such as /dev/stdout are written directly.
    Raises OSError with the name of the file.
    """
    target = os.fspath(path)
    if _is_stream(target):
        with open(target, "ab") as file:  # appends, as /dev/stdout may be a file that has output already
            yield file
        return
    # In the same folder, as only a rename within a file system is atomic. The name is random and O_EXCL does not follow links, so
    # that nobody can plant a file or a link in advance. The umask applies to the mode, unlike with mkstemp().
    part = f"{target}.{os.urandom(8).hex()}.part"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(part, flags, 0o666), "wb") as file:
            yield file
        os.replace(part, target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        if isinstance(error, OSError) and error.filename in (None, part):  # a failing write names no file
            raise OSError(error.errno, error.strerror, target) from error
        raise


def _is_stream(target: str) -> bool:
    """Whether a rename would destroy a device, a pipe, or a link of the system's such as /dev/stdout."""
    try:
        mode = os.lstat(target).st_mode
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        absolute = os.path.abspath(target)
        return absolute.startswith(("/dev/", "/proc/")) and not absolute.startswith("/dev/shm/")
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode)


@contextlib.contextmanager
def readable(path: Path, member: str = "", kind: str = "NumPy arrays") -> Iterator[None]:
    """Raise an InputError that names the file, and the member of an archive, in place of what other packages raise for its content.

    An OSError of the system passes: there is no such file, or it may not be read.
    """
    try:
        yield
    except Error:
        raise
    except (
        Exception
    ) as error:  # zipfile, zlib, NumPy, Pillow and protobuf raise a dozen classes, of which some are not documented
        if isinstance(error, OSError) and error.errno is not None:
            raise
        where = f"'{os.fspath(path)}'" + (f", member '{member}'" if member else "")
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InputError(f"{where}: expected {kind} ({reason}){_hint(error)}") from None


def _hint(error: Exception) -> str:
    text = str(error).lower()
    if "password" in text or "encrypted" in text:
        return ": write it again without a password"
    if "pickle" in text or "object arrays" in text:
        return ": arrays of Python objects are not read; write numbers, or strings as dtype str"
    return ""
