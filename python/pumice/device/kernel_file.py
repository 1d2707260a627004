"""Kernels from source files, with change detection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pumice._pumice as _pumice

if TYPE_CHECKING:
    from .kernel import Kernel

    _K = TypeVar("_K", bound=Kernel)

Path: TypeAlias = "str | os.PathLike[str]"


def _stat_file(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class KernelFile:
    """A kernel's source file and its includes. options: as for Kernel."""

    def __init__(self, path: str, watch: bool, options: dict[str, Any]) -> None:
        self._path = path
        self._watch = watch
        self._options = {"name": path, **options}
        self._stamps: dict[str, tuple[int, int, int] | None] = {}

    def has_changed(self) -> bool:
        """Return whether the date, size or inode of a file has changed since compilation; always False if `watch` is not set."""
        return self._watch and any(_stat_file(path) != old_stamp for path, old_stamp in self._stamps.items())

    def compile(self, kernel: type[_K]) -> _K:
        """Compile the current files. Raise OSError for an unreadable file, and the errors of Kernel."""
        # Stat the file before reading it, so that has_changed() detects a change made in between.
        self._stamps[self._path] = _stat_file(self._path)
        with open(self._path, encoding="utf-8", errors="replace") as file:
            source = file.read()
        folders = [os.fspath(folder) for folder in self._options.get("include_dirs", ())]
        included = _pumice.included_files(source, self._path, dict(self._options.get("includes") or {}), folders)
        self._stamps = {path: _stat_file(path) for path in included} | {self._path: self._stamps[self._path]}
        return kernel(source, _path=self._path, **self._options)
