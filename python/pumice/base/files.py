"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
from typing import TypeAlias

Path: TypeAlias = "str | os.PathLike[str]"


def write_whole(path: Path, text: str) -> None:
    """Writes text as UTF-8. A file of that name is replaced when all is written: an interruption before leaves it as it was.

    Raises OSError, with the name of the file, as where the disk is full.
    """
    target = os.fspath(path)
    part = f"{target}.{os.getpid()}.part"  # beside it, for a file moves at once within its file system alone
    try:
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(part, target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = target  # a write that fails names none
        raise
