"""Measurements of kernel variants in the cache: one file per variant, so that writers never wait for each other."""

# No json, and no __future__ annotations, which NamedTuple would compile: both slow down a process that finds everything in the store.

import functools
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._pumice import (
    DeviceInfo,
    Image,
    Tensor,
    cache_directory,
    cache_entries,
    json_text,
    parse_json,
    read_cache_entry,
    sha256,
    write_cache_entry,
)

_KIND = "tuning"
_LARGEST_STEP = 256
_TEXTS = ("kernel", "device", "driver", "text", "demand", "arguments", "shapes", "rejected")


class Record(NamedTuple):
    """The stored result of one variant.

    kernel: the kernel's name, for display. device, driver: names and versions. text: SHA-256 of the kernel's source and all build inputs.
    demand: how the variant was checked. arguments: size classes of arrays, numbers and launch; shapes: size classes of the arrays only.
    config: the variant. seconds:
    the median device time; None if rejected, with the reason in `rejected`. calls: exact sizes with which it was checked. measured:
    seconds since the epoch.
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
        """The name of the record's cache entry: equal for two records of the same variant."""
        return place_of(self.subject, self.arguments, self.config)

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """The fields that all variants of a kernel on a device share; see `place_of`."""
        return self.device, self.driver, self.text, self.demand


def config_text(config: dict[str, Any]) -> str:
    """Return a canonical text of a configuration, independent of its order."""
    return json_text(config, sort_keys=True)


def place_of(subject: tuple[str, str, str, str], arguments: str, config: dict[str, Any]) -> str:
    """Return the name of a variant's cache entry. subject: device, driver, text and demand."""
    return f"{_folder_of(subject)}/{sha256(_joined(arguments, config_text(config)))}"


@functools.lru_cache(16)
def _folder_of(subject: tuple[str, str, str, str]) -> str:
    return sha256(_joined(*subject))


def _joined(*parts: str) -> bytes:
    return json_text(parts).encode()


# ---- argument classes, part of a variant's key


def size_class(size: int) -> str:
    """Return the class of a size: the next power of two, and the largest power of two, up to 256, that divides it.

    Tiles whose sides are such powers fit either all sizes of a class or none.
    """
    if size < 1:
        return str(size)
    return f"{1 << (size - 1).bit_length()}/{min(size & -size, _LARGEST_STEP)}"


def described(arguments: Mapping[str, Any], of_size: Callable[[int], str]) -> str:
    """Describe every argument: arrays by dtype and sizes, integers as sizes, others by their type. of_size: formats a size."""
    return ", ".join(f"{name}: {_described(arguments[name], of_size)}" for name in sorted(arguments))


@functools.cache
def _dtype_text(dtype: Any) -> str:
    """Return the dtype's name. Cached, because NumPy formats it slowly."""
    return str(dtype)


def _described(value: Any, of_size: Callable[[int], str]) -> str:
    if isinstance(value, (np.ndarray, Tensor)):
        return f"{_dtype_text(value.dtype)}[{', '.join([of_size(int(size)) for size in value.shape])}]"
    if isinstance(value, Image):
        return f"image {value.format}[{', '.join(of_size(int(size)) for size in value.shape)}]"
    if isinstance(value, Mapping):
        return f"({described(value, of_size)})"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_described(one, of_size) for one in value)})"
    try:
        return of_size(operator.index(value))
    except TypeError:
        return type(value).__name__


def arrays_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the arguments that are arrays."""
    return {name: value for name, value in arguments.items() if isinstance(value, (np.ndarray, Tensor, Image))}


# ---- files


def device_name(info: DeviceInfo) -> str:
    """Return the name of the device's model: all boards of one model share measurements."""
    return f"{info.name} [{info.vendor_id:04x}:{info.device_id:04x}]"


def driver_name(info: DeviceInfo) -> str:
    """Return the driver and its version."""
    return f"{info.driver} {info.driver_info} {info.driver_version}"


def read(wanted: Record) -> Record | None:
    """Return the stored record of this variant; None if it is missing, damaged, or belongs to another variant."""
    return read_variant(wanted.subject, wanted.arguments, wanted.config)


def read_variant(subject: tuple[str, str, str, str], arguments: str, config: dict[str, Any]) -> Record | None:
    """Return the record stored under this key, like `read`; see `place_of`."""
    if not cache_directory():
        return None
    found = _of_entry(place_of(subject, arguments, config))
    same = found is not None and (found.subject, found.arguments, found.config) == (subject, arguments, config)
    return found if same else None


def write(record: Record) -> bool:
    """Store a record. Return False if there is no cache or it cannot be written."""
    if not cache_directory():
        return False
    return write_cache_entry(_KIND, record.place, json_text(record._asdict()).encode())


def records() -> Iterator[Record]:
    """Iterate over all valid records in the store, of all devices and drivers."""
    for name in cache_entries(_KIND):
        if (record := _of_entry(name)) is not None and name == record.place:
            yield record


def store_folder(record: Record) -> str | None:
    """Return the folder of all records of the same device, driver, source and demand; None without a cache."""
    cache = cache_directory()
    return os.path.join(cache, _KIND, _folder_of(record.subject)) if cache else None


def records_beside(record: Record) -> list[Record]:
    """Return the store's valid records with the same device, driver, source and demand."""
    found = (_of_entry(name) for name in cache_entries(_KIND, _folder_of(record.subject)))
    return [one for one in found if one is not None and one.subject == record.subject]


def _of_entry(name: str) -> Record | None:
    entry = read_cache_entry(_KIND, name)
    try:
        return None if entry is None else record_from(parse_json(entry))
    except ValueError:  # written by another version, or not a record
        return None


def record_from(given: Any) -> Record | None:
    """Convert parsed JSON to a record; None if it is invalid."""
    if not isinstance(given, dict) or given.keys() != set(Record._fields):
        return None
    texts = all(isinstance(given[name], str) for name in _TEXTS)
    calls = isinstance(given["calls"], list) and all(isinstance(one, str) for one in given["calls"])
    config = isinstance(given["config"], dict)
    if not (texts and calls and config and _is_number(given["measured"])):
        return None
    if given["seconds"] is None:
        return Record(**given) if given["rejected"] else None
    # A time that is not positive would always win.
    return Record(**given) if _is_number(given["seconds"]) and given["seconds"] > 0 and not given["rejected"] else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
