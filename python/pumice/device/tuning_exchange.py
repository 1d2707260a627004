"""Display, export and import the tuning store."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from ..base.errors import InputError
from ..base.atomic_files import write_whole
from .tuning_store import Record, config_text, read, record_from, records, write

_FORMAT = "pumice tuning 1"


class Group(NamedTuple):
    """The variants of one kernel for one class of arrays on one device, and the best of them (None: all rejected)."""

    kernel: str
    device: str
    driver: str
    shapes: str
    variants: int
    rejected: int
    best: dict[str, Any] | None
    seconds: float | None


def groups() -> list[Group]:
    """Group the store by kernel source, class of arrays, device, driver and demand."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for one in records():
        found.setdefault((one.kernel, one.device, one.driver, one.shapes, one.text, one.demand), []).append(one)
    made = []
    for key, members in sorted(found.items()):
        right = [(one.seconds, config_text(one.config), one.config) for one in members if one.seconds is not None]
        seconds, _, best = min(right) if right else (None, "", None)
        kernel, device, driver, shapes, *_ = key
        counts = (len(members), len(members) - len(right))
        made.append(Group(kernel, device, driver, shapes, *counts, best, seconds))
    return made


def export_tuning(path: str | os.PathLike[str]) -> int:
    """Write all tuning results of this machine to a JSON file, and return the number of variants.

    The file is replaced atomically. Raise OSError if it cannot be written.
    """
    every = [record._asdict() for record in records()]
    write_whole(path, json.dumps({"format": _FORMAT, "records": every}, indent=1) + "\n")
    return len(every)


def import_tuning(path: str | os.PathLike[str]) -> int:
    """Import a file from export_tuning into this machine's store, and return the number of imported variants.

    A stored variant is replaced if the file's measurement is newer. A file with an invalid record is rejected as a whole. Records for other
    devices and drivers are stored, but not used on this machine. Raise OSError for an unreadable file; InputError for an invalid file, or
    without a store (PUMICE_NO_CACHE, or an unwritable folder).
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{os.fspath(path)}: expected a file of export_tuning; it is not JSON: {error}") from None
    if not isinstance(given, dict) or given.get("format") != _FORMAT or not isinstance(given.get("records"), list):
        raise InputError(f"{os.fspath(path)}: expected a file of export_tuning, with format '{_FORMAT}'")
    taken = [record_from(one) for one in given["records"]]
    for position, one in enumerate(taken):
        if one is None:
            raise InputError(f"{os.fspath(path)}: record {position}: expected what export_tuning writes of a variant")
    return sum(_take(one) for one in taken if one is not None)


def _take(record: Record) -> bool:
    known = read(record)
    if known is not None and known.measured >= record.measured:
        return False
    if not write(record):
        raise InputError("import_tuning: there is no cache to keep records in: it is turned off, or cannot be written")
    return True
