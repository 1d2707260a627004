"""The check of the on-disk cache in `pumice doctor`."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from .machine import Finding, Machine, report_note, report_ok, report_problem

_MIN_FREE_BYTES = 64 << 20
_CHOOSE_ANOTHER_FOLDER = "export PUMICE_CACHE_DIR=... (a folder that only you can write)"


def check_cache(machine: Machine) -> Iterator[Finding]:
    """Check the cache folder: its location, owner, permissions and free space."""
    if machine.is_variable_set("PUMICE_NO_CACHE"):
        yield report_note("cache", "PUMICE_NO_CACHE is on: every process compiles its kernels again.")
        return
    folder = get_cache_folder(machine)
    if folder is None:
        text = "None of HOME, XDG_CACHE_HOME and PUMICE_CACHE_DIR is set, so nothing is kept between processes."
        yield report_problem("cache", text, _CHOOSE_ANOTHER_FOLDER)
        return
    existing = machine.resolve_path(folder)
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if problem := _check_ownership(machine, folder, existing):
        yield problem
    elif not existing.is_dir():
        yield report_problem(
            "cache", f"The cache {folder} cannot be created: {existing} is a file.", _CHOOSE_ANOTHER_FOLDER
        )
    elif not machine.is_accessible(existing):
        text = f"The cache {folder} cannot be written, and every process compiles its kernels again."
        yield report_problem("cache", text, _CHOOSE_ANOTHER_FOLDER)
    elif (free := shutil.disk_usage(existing).free) < _MIN_FREE_BYTES:
        text = f"The cache {folder} is on a disk with {free >> 20} MiB left."
        yield report_problem("cache", text, "export PUMICE_CACHE_DIR=... on another disk")
    else:
        yield report_ok("cache", f"The cache {folder} can be written.")


def get_cache_folder(machine: Machine) -> str | None:
    """Return the cache folder that the engine uses; None if there is none."""
    if configured := machine.get_variable("PUMICE_CACHE_DIR") or machine.get_variable("XDG_CACHE_HOME"):
        return os.path.join(configured, "pumice")
    return os.path.join(machine.get_variable("HOME"), ".cache", "pumice") if machine.get_variable("HOME") else None


def _check_ownership(machine: Machine, folder: str, existing: Path) -> Finding | None:
    """Return a finding if the engine ignores the cache because of an owner, mode or link. existing: the folder or its nearest existing
    parent.
    """
    root = machine.resolve_path(folder)
    if existing != root:
        if not existing.exists():  # a dangling link
            return None
        owner = existing.stat().st_uid
        if machine.user != 0 or owner == 0 or machine.get_variable("PUMICE_CACHE_DIR"):
            return None
        text = f"The cache {folder} is not created: root does not create one in a folder of another user, uid {owner}."
        return report_problem("cache", text, "sudo -H ..., or " + _CHOOSE_ANOTHER_FOLDER)
    for path in (root, *_iterate_folders(root)):
        status = path.lstat()
        displayed_path = folder if path == root else f"{folder}/{path.relative_to(root)}"
        if stat.S_ISLNK(status.st_mode):
            return report_problem(
                "cache", f"The cache ignores {displayed_path}: it is a symbolic link.", _CHOOSE_ANOTHER_FOLDER
            )
        if status.st_uid != machine.user:
            text = f"The cache ignores {displayed_path}: it belongs to uid {status.st_uid}, and you are uid {machine.user}."
            return report_problem("cache", text, _CHOOSE_ANOTHER_FOLDER)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            text = f"The cache ignores {displayed_path}: other users may write to it."
            return report_problem("cache", text, f"chmod -R go-w {displayed_path}, if no other user has written there")
    return None


def _iterate_folders(root: Path) -> Iterator[Path]:
    """Iterate over the folders that contain cache entries."""
    if root.is_symlink() or not os.access(root, os.R_OK | os.X_OK):
        return
    for pattern in ("*", "*/*"):
        yield from (entry_folder for entry_folder in sorted(root.glob(pattern)) if entry_folder.is_dir())
