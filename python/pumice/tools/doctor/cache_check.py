"""The check of the on-disk cache in `pumice doctor`."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from .machine import Finding, Machine, note, right, wrong

_MIN_FREE_BYTES = 64 << 20
_NAME_ANOTHER = "export PUMICE_CACHE_DIR=... (a folder that only you can write)"


def cache(machine: Machine) -> Iterator[Finding]:
    """Check the folder of compiled kernels."""
    if machine.is_on("PUMICE_NO_CACHE"):
        yield note("cache", "PUMICE_NO_CACHE is on: every process compiles its kernels again.")
        return
    folder = cache_folder(machine)
    if folder is None:
        text = "None of HOME, XDG_CACHE_HOME and PUMICE_CACHE_DIR is set, so nothing is kept between processes."
        yield wrong("cache", text, _NAME_ANOTHER)
        return
    existing = machine.path(folder)
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if problem := _ownership(machine, folder, existing):
        yield problem
    elif not existing.is_dir():
        yield wrong("cache", f"The cache {folder} cannot be made: {existing} is a file.", _NAME_ANOTHER)
    elif not machine.may_open(existing):
        text = f"The cache {folder} cannot be written, and every process compiles its kernels again."
        yield wrong("cache", text, _NAME_ANOTHER)
    elif (free := shutil.disk_usage(existing).free) < _MIN_FREE_BYTES:
        text = f"The cache {folder} is on a disk with {free >> 20} MiB left."
        yield wrong("cache", text, "export PUMICE_CACHE_DIR=... on another disk")
    else:
        yield right("cache", f"The cache {folder} can be written.")


def cache_folder(machine: Machine) -> str | None:
    """Return the cache folder that the engine uses; None if there is none."""
    if given := machine.value("PUMICE_CACHE_DIR") or machine.value("XDG_CACHE_HOME"):
        return os.path.join(given, "pumice")
    return os.path.join(machine.value("HOME"), ".cache", "pumice") if machine.value("HOME") else None


def _ownership(machine: Machine, folder: str, existing: Path) -> Finding | None:
    """Return why the engine ignores the cache because of its owner or mode, if it does. existing: the folder or its nearest existing
    parent.
    """
    root = machine.path(folder)
    if existing != root:
        if not existing.exists():  # a dangling link
            return None
        owner = existing.stat().st_uid
        if machine.user != 0 or owner == 0 or machine.value("PUMICE_CACHE_DIR"):
            return None
        text = f"The cache {folder} is not made: root makes none in a folder of another user, uid {owner}."
        return wrong("cache", text, "sudo -H ..., or " + _NAME_ANOTHER)
    for path in (root, *_folders_in(root)):
        status = path.lstat()
        shown = folder if path == root else f"{folder}/{path.relative_to(root)}"
        if stat.S_ISLNK(status.st_mode):
            return wrong("cache", f"The cache ignores {shown}: it is a symbolic link.", _NAME_ANOTHER)
        if status.st_uid != machine.user:
            text = f"The cache ignores {shown}: it belongs to uid {status.st_uid}, and you are uid {machine.user}."
            return wrong("cache", text, _NAME_ANOTHER)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            text = f"The cache ignores {shown}: other users may write to it."
            return wrong("cache", text, f"chmod -R go-w {shown}, if no other user has written there")
    return None


def _folders_in(root: Path) -> Iterator[Path]:
    """Iterate over the folders that contain cache entries."""
    if root.is_symlink() or not os.access(root, os.R_OK | os.X_OK):
        return
    for pattern in ("*", "*/*"):
        yield from (one for one in sorted(root.glob(pattern)) if one.is_dir())
