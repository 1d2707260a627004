"""Display, export and import the tuning store."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from ..base.atomic_files import write_text_atomic
from ..base.errors import InputError
from .tuning_store import TuningRecord, canonicalize_config, iterate_records, parse_record, read_record, write_record

_FORMAT = "pumice tuning 1"


class TuningGroup(NamedTuple):
    """Summary of the stored variants of one kernel for one size class on one device. best: the fastest; None if all were rejected."""

    kernel: str
    device: str
    driver: str
    shapes: str
    variants: int
    rejected: int
    best: dict[str, Any] | None
    seconds: float | None


def group_records() -> list[TuningGroup]:
    """Return a summary of the stored records per kernel source, size class, device, driver and criteria."""
    records_by_key: dict[tuple[str, ...], list[TuningRecord]] = {}
    for stored_record in iterate_records():
        records_by_key.setdefault(
            (
                stored_record.kernel,
                stored_record.device,
                stored_record.driver,
                stored_record.shapes,
                stored_record.text,
                stored_record.demand,
            ),
            [],
        ).append(stored_record)
    result = []
    for key, members in sorted(records_by_key.items()):
        accepted = [
            (stored_record.seconds, canonicalize_config(stored_record.config), stored_record.config)
            for stored_record in members
            if stored_record.seconds is not None
        ]
        seconds, _, best = min(accepted) if accepted else (None, "", None)
        kernel, device, driver, shapes, *_ = key
        counts = (len(members), len(members) - len(accepted))
        result.append(TuningGroup(kernel, device, driver, shapes, *counts, best, seconds))
    return result


def export_tuning(path: str | os.PathLike[str]) -> int:
    """Write all tuning results of this machine to a JSON file, and return the number of variants.

    The file is replaced atomically. Raise OSError if it cannot be written.
    """
    all_records = [record._asdict() for record in iterate_records()]
    write_text_atomic(path, json.dumps({"format": _FORMAT, "records": all_records}, indent=1) + "\n")
    return len(all_records)


def import_tuning(path: str | os.PathLike[str]) -> int:
    """Import a file from export_tuning into this machine's store, and return the number of imported variants.

    A stored variant is replaced if the file's measurement is newer. A file with an invalid record is rejected as a whole. Records for other
    devices and drivers are stored, but not used on this machine. Raise OSError for an unreadable file; InputError for an invalid file, or
    without a store (PUMICE_NO_CACHE, or an unwritable folder).
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        json_source = file.read()
    try:
        document = json.loads(json_source)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{os.fspath(path)}: expected a file of export_tuning; it is not JSON: {error}") from None
    if (
        not isinstance(document, dict)
        or document.get("format") != _FORMAT
        or not isinstance(document.get("records"), list)
    ):
        raise InputError(f"{os.fspath(path)}: expected a file of export_tuning, with format '{_FORMAT}'")
    imported = [parse_record(stored_record) for stored_record in document["records"]]
    for position, stored_record in enumerate(imported):
        if stored_record is None:
            raise InputError(f"{os.fspath(path)}: record {position}: expected a variant as export_tuning writes it")
    return sum(_import_record(stored_record) for stored_record in imported if stored_record is not None)


def _import_record(record: TuningRecord) -> bool:
    previous = read_record(record)
    if previous is not None and previous.measured >= record.measured:
        return False
    if not write_record(record):
        raise InputError("import_tuning: there is no cache to store records in: it is turned off or cannot be written")
    return True
