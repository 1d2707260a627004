"""What was measured of variants of kernels, kept in the cache: one file a variant, so that writers never wait for each other."""

# Neither json nor the annotations of __future__, which a NamedTuple would compile: a process that finds all in the store waits for both.

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .._pumice import DeviceInfo, cache_directory, json_text, parse_json, read_cache_file, sha256, write_cache_file
from ..base.errors import InputError

_KIND = "tuning 1"
_FORMAT = "pumice tuning 1"
_TEXTS = ("kernel", "device", "driver", "text", "demand", "arguments", "shapes", "rejected")


class Record(NamedTuple):
    """What is kept of one variant.

    kernel: its name, for people. device, driver: names and numbers. text: SHA-256 of the kernel's text and of all that it is
    built with. demand: what it was checked against. arguments: classes of arrays, numbers and launch; shapes: those of the
    arrays alone. config: the variant. seconds: the median on the device; None where it was rejected, which says why.
    calls: exact sizes that it was checked with. measured: seconds since the epoch.
    """

    kernel: str
    device: str
    driver: str
    text: str
    demand: str
    arguments: str
    shapes: str
    config: dict[str, Any]
    seconds: float | None
    rejected: str
    calls: list[str]
    measured: float

    @property
    def place(self) -> str:
        """The record's file below the store: equal for two records of the same variant."""
        return place_of(self.subject, self.arguments, self.config)

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """What all variants of a kernel on a device have in common; see `place_of`."""
        return self.device, self.driver, self.text, self.demand


class Group(NamedTuple):
    """The variants of one kernel for one class of arrays on one device, and the best of them (None: all were rejected)."""

    kernel: str
    device: str
    driver: str
    shapes: str
    variants: int
    rejected: int
    best: dict[str, Any] | None
    seconds: float | None


def config_text(config: dict[str, Any]) -> str:
    """One text for equal configurations, whatever their order."""
    return json_text(config, sort_keys=True)


def place_of(subject: tuple[str, str, str, str], arguments: str, config: dict[str, Any]) -> str:
    """The file of a variant below the store. subject: device, driver, text and demand."""
    return os.path.join(_folder_of(subject), sha256(_joined(arguments, config_text(config))) + ".tuning")


@functools.lru_cache(16)
def _folder_of(subject: tuple[str, str, str, str]) -> str:
    return sha256(_joined(*subject))


def _joined(*parts: str) -> bytes:
    return json_text(parts).encode()


def device_name(info: DeviceInfo) -> str:
    """The device's model: two boards of one model share what was measured."""
    return f"{info.name} [{info.vendor_id:04x}:{info.device_id:04x}]"


def driver_name(info: DeviceInfo) -> str:
    """The driver and its version."""
    return f"{info.driver} {info.driver_info} {info.driver_version}"


def _folder() -> Path | None:
    folder = cache_directory()
    return Path(folder) / "tuning" if folder else None


def read(wanted: Record) -> Record | None:
    """What the store has of this variant; None where it has nothing, or a file that is not whole or not of this variant."""
    return read_variant(wanted.subject, wanted.arguments, wanted.config)


def read_variant(subject: tuple[str, str, str, str], arguments: str, config: dict[str, Any]) -> Record | None:
    """As `read`, by what a variant is found by: see `place_of`."""
    folder = cache_directory()
    if not folder:
        return None
    found = _of_file(os.path.join(folder, "tuning", place_of(subject, arguments, config)))
    same = found is not None and (found.subject, found.arguments, found.config) == (subject, arguments, config)
    return found if same else None


def write(record: Record) -> bool:
    """Keeps a record. False where there is no cache, or where it cannot be written."""
    folder = _folder()
    return folder is not None and write_cache_file(
        str(folder / record.place), _KIND, json_text(record._asdict()).encode()
    )


def records() -> Iterator[Record]:
    """Everything in the store, of all devices and drivers, without files that are not whole."""
    folder = _folder()
    for path in sorted(folder.glob("*/*.tuning")) if folder else ():
        if (record := _of_file(path)) is not None and str(path).endswith(record.place):
            yield record


def store_folder(record: Record) -> str | None:
    """The folder of all records of the same device, driver, text and demand; None where there is no cache."""
    folder = _folder()
    return os.path.dirname(os.path.join(folder, record.place)) if folder else None


def records_beside(record: Record) -> list[Record]:
    """Everything that the store has of the same device, driver, text and demand, without files that are not whole."""
    folder = store_folder(record)
    if folder is None:
        return []
    found = (_of_file(path) for path in sorted(Path(folder).glob("*.tuning")))
    same = os.path.dirname(record.place)
    return [one for one in found if one is not None and os.path.dirname(one.place) == same]


def groups() -> list[Group]:
    """The store by kernel text, class of arrays, device, driver and what was demanded."""
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
    """Writes all that tuning has kept on this machine to a file, as JSON, and returns the number of variants.

    The file is whole or as it was before. Raises OSError.
    """
    import json

    from ..base.files import write_whole

    every = [record._asdict() for record in records()]
    write_whole(path, json.dumps({"format": _FORMAT, "records": every}, indent=1) + "\n")
    return len(every)


def import_tuning(path: str | os.PathLike[str]) -> int:
    """Takes what export_tuning has written into this machine's store, and returns the number of variants that were taken.

    A variant that the store has is replaced where the file's was measured later. Nothing is taken of a file with a record
    that is not as expected. Records of other devices and drivers are kept and never read for this one. Raises OSError,
    InputError for another file, or where there is no store (PUMICE_NO_CACHE, or a folder that cannot be written).
    """
    import json

    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{os.fspath(path)}: expected a file of export_tuning; it is not JSON: {error}") from None
    if not isinstance(given, dict) or given.get("format") != _FORMAT or not isinstance(given.get("records"), list):
        raise InputError(f"{os.fspath(path)}: expected a file of export_tuning, with format '{_FORMAT}'")
    taken = [_record(one) for one in given["records"]]
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


def _of_file(path: Path | str) -> Record | None:
    entry = read_cache_file(str(path), _KIND)
    try:
        return None if entry is None else _record(parse_json(entry))
    except ValueError:  # another version's, or not ours
        return None


def _record(given: Any) -> Record | None:
    """A record of what JSON has; None where it is not one."""
    if not isinstance(given, dict) or given.keys() != set(Record._fields):
        return None
    texts = all(isinstance(given[name], str) for name in _TEXTS)
    calls = isinstance(given["calls"], list) and all(isinstance(one, str) for one in given["calls"])
    config = isinstance(given["config"], dict)
    if not (texts and calls and config and _is_number(given["measured"])):
        return None
    if given["seconds"] is None:
        return Record(**given) if given["rejected"] else None
    # A time that is not above zero would be taken for the best of all.
    return Record(**given) if _is_number(given["seconds"]) and given["seconds"] > 0 and not given["rejected"] else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
