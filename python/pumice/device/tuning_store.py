"""Measurements of kernel variants in the cache: one file per variant, so that writers never wait for each other."""

import functools
import json
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
    read_cache_entry,
    sha256,
    write_cache_entry,
)

_CACHE_KIND = "tuning"
_MAX_DIVISOR = 256
_STRING_FIELDS = ("kernel", "device", "driver", "text", "demand", "arguments", "shapes", "rejected")


class TuningRecord(NamedTuple):
    """The stored result of one variant.

    kernel: the kernel's name, for display. device, driver: names and versions. text: SHA-256 of the kernel's source and all build inputs.
    demand: how the variant was checked. arguments: size classes of arrays, numbers and launch; shapes: size classes of the arrays only.
    config: the variant. seconds: the median device time; None if rejected, with the reason in `rejected`. calls: exact sizes with which the
    variant was checked. measured: seconds since the epoch.
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
    def entry_name(self) -> str:
        """The name of the record's cache entry: equal for two records of the same variant."""
        return make_entry_name(self.kernel_key, self.arguments, self.config)

    @property
    def kernel_key(self) -> tuple[str, str, str, str]:
        """The key fields that all variants of a kernel on a device share; see `make_entry_name`."""
        return self.device, self.driver, self.text, self.demand


def canonicalize_config(config: dict[str, Any]) -> str:
    """Return a configuration as text that does not depend on the order of its items."""
    return json.dumps(config, sort_keys=True)


def make_entry_name(kernel_key: tuple[str, str, str, str], arguments: str, config: dict[str, Any]) -> str:
    """Return the name of a variant's cache entry. kernel_key: device, driver, text and demand."""
    return f"{_make_folder_name(kernel_key)}/{sha256(_encode_key(arguments, canonicalize_config(config)))}"


@functools.lru_cache(16)
def _make_folder_name(kernel_key: tuple[str, str, str, str]) -> str:
    return sha256(_encode_key(*kernel_key))


def _encode_key(*fields: str) -> bytes:
    return json.dumps(fields).encode()


# ---- argument descriptions, which are part of a variant's key


def get_size_class(size: int) -> str:
    """Return the class of a size: the next power of two, and the largest power of two, up to 256, that divides it.

    A tile side that is a power of two up to 256 divides all sizes of a class or none.
    """
    if size < 1:
        return str(size)
    return f"{1 << (size - 1).bit_length()}/{min(size & -size, _MAX_DIVISOR)}"


def describe_arguments(arguments: Mapping[str, Any], format_size: Callable[[int], str]) -> str:
    """Return a text of all arguments: arrays by dtype and shape, integers as sizes, others by type. format_size: formats each size."""
    return ", ".join(f"{name}: {_describe_value(arguments[name], format_size)}" for name in sorted(arguments))


@functools.cache
def _format_dtype(dtype: Any) -> str:
    """Return the dtype's name, cached because NumPy formats it slowly."""
    return str(dtype)


def _describe_value(value: Any, format_size: Callable[[int], str]) -> str:
    if isinstance(value, (np.ndarray, Tensor)):
        return f"{_format_dtype(value.dtype)}[{', '.join([format_size(int(size)) for size in value.shape])}]"
    if isinstance(value, Image):
        return f"image {value.format}[{', '.join(format_size(int(size)) for size in value.shape)}]"
    if isinstance(value, Mapping):
        return f"({describe_arguments(value, format_size)})"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_describe_value(item, format_size) for item in value)})"
    try:
        return format_size(operator.index(value))
    except TypeError:
        return type(value).__name__


def filter_arrays(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the arguments that are arrays."""
    return {name: value for name, value in arguments.items() if isinstance(value, (np.ndarray, Tensor, Image))}


# ---- reading and writing record files


def get_device_model_name(info: DeviceInfo) -> str:
    """Return the name and PCI id of the device's model, and its restrictions; all devices of one model share measurements."""
    reduced = f", {info.restrictions}" if info.restrictions else ""
    return f"{info.name} [{info.vendor_id:04x}:{info.device_id:04x}]{reduced}"


def format_driver_version(info: DeviceInfo) -> str:
    """Return the driver and its version."""
    return f"{info.driver} {info.driver_info} {info.driver_version}"


def read_record(key_record: TuningRecord) -> TuningRecord | None:
    """Return the stored record of this variant; None if it is missing, damaged, or belongs to another variant."""
    return read_variant_record(key_record.kernel_key, key_record.arguments, key_record.config)


def read_variant_record(
    kernel_key: tuple[str, str, str, str], arguments: str, config: dict[str, Any]
) -> TuningRecord | None:
    """Return the record stored under this key, like `read_record`; see `make_entry_name`."""
    if not cache_directory():
        return None
    stored = _read_entry(make_entry_name(kernel_key, arguments, config))
    matches = stored is not None and (stored.kernel_key, stored.arguments, stored.config) == (
        kernel_key,
        arguments,
        config,
    )
    return stored if matches else None


def write_record(record: TuningRecord) -> bool:
    """Store a record. Return False if there is no cache or it cannot be written."""
    if not cache_directory():
        return False
    return write_cache_entry(_CACHE_KIND, record.entry_name, json.dumps(record._asdict()).encode())


def iterate_records() -> Iterator[TuningRecord]:
    """Iterate over all valid records in the store, of all devices and drivers."""
    for name in cache_entries(_CACHE_KIND):
        if (record := _read_entry(name)) is not None and name == record.entry_name:
            yield record


def get_record_folder(record: TuningRecord) -> str | None:
    """Return the folder of all records of the same device, driver, source and demand; None without a cache."""
    cache = cache_directory()
    return os.path.join(cache, _CACHE_KIND, _make_folder_name(record.kernel_key)) if cache else None


def read_sibling_records(record: TuningRecord) -> list[TuningRecord]:
    """Return the store's valid records with the same device, driver, source and demand."""
    candidates = (_read_entry(name) for name in cache_entries(_CACHE_KIND, _make_folder_name(record.kernel_key)))
    return [item for item in candidates if item is not None and item.kernel_key == record.kernel_key]


def _read_entry(name: str) -> TuningRecord | None:
    entry = read_cache_entry(_CACHE_KIND, name)
    try:
        return None if entry is None else parse_record(json.loads(entry))
    except ValueError:  # written by another version, or not a record
        return None


def parse_record(fields: Any) -> TuningRecord | None:
    """Convert parsed JSON to a record; None if it is invalid."""
    if not isinstance(fields, dict) or fields.keys() != set(TuningRecord._fields):
        return None
    strings_valid = all(isinstance(fields[name], str) for name in _STRING_FIELDS)
    calls_valid = isinstance(fields["calls"], list) and all(isinstance(item, str) for item in fields["calls"])
    config_valid = isinstance(fields["config"], dict)
    if not (strings_valid and calls_valid and config_valid and _is_number(fields["measured"])):
        return None
    if fields["seconds"] is None:
        return TuningRecord(**fields) if fields["rejected"] else None
    # A time of 0 or less would always be the fastest.
    return (
        TuningRecord(**fields)
        if _is_number(fields["seconds"]) and fields["seconds"] > 0 and not fields["rejected"]
        else None
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
