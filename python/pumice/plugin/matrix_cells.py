"""Cells of the test matrix: combinations of device and precision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from .._pumice import DeviceInfo, devices

SOFTWARE = "SOFTWARE DRIVER: not a GPU"
_GPU_KINDS = ("discrete", "integrated", "virtual")


class DeviceUnderTest(NamedTuple):
    """A device in the test matrix: its name for Context ("": the default device), and its info if known in advance."""

    device: str
    info: DeviceInfo | None
    note: str = ""  # reason for the choice if the device is not the requested one


class MatrixCell(NamedTuple):
    """A device and a precision. `label` names both in test ids."""

    device_under_test: DeviceUnderTest
    precision: str
    label: str


def get_device_type_label(info: DeviceInfo) -> str:
    """Return the device type, or SOFTWARE for a software driver."""
    return SOFTWARE if info.kind == "software" else info.kind


def _format_device_list(infos: Sequence[DeviceInfo]) -> str:
    listed = ", ".join(f"[{device_info.index}] '{device_info.name}' ({device_info.kind})" for device_info in infos)
    return f"the devices are {listed}" if listed else "there is no Vulkan device"


def matches_device(info: DeviceInfo, device_spec: str) -> bool:
    """Return whether a name matches this device, by the rules of Context."""
    lowered = device_spec.lower()
    if lowered.startswith("uuid:"):
        return info.uuid == lowered[5:].replace("-", "")
    if lowered.startswith("pci:"):
        return bool(info.pci) and info.pci.lower() == lowered[4:]
    if lowered.isdigit():
        return info.index == int(lowered)
    return lowered == info.kind or lowered in info.name.lower()


def _make_device_under_test(info: DeviceInfo, infos: Sequence[DeviceInfo], note: str = "") -> DeviceUnderTest:
    """Return a DeviceUnderTest named by its UUID, or by its index if two drivers report the same UUID."""
    is_unique = [candidate.uuid for candidate in infos].count(info.uuid) == 1
    return DeviceUnderTest(f"uuid:{info.uuid}" if is_unique else str(info.index), info, note)


def _select_all_devices(infos: Sequence[DeviceInfo], software: bool) -> list[DeviceUnderTest]:
    selected = [candidate for candidate in infos if software or candidate.kind != "software"]
    if not selected:
        more = "" if software else "; --pumice-allow-software takes software drivers too"
        raise pytest.UsageError(f"--pumice-device all: no GPU; {_format_device_list(infos)}{more}")
    return [_make_device_under_test(candidate, infos) for candidate in selected]


def _select_device_by_name(
    name: str, infos: Sequence[DeviceInfo], software: bool, is_only_name: bool
) -> DeviceUnderTest:
    selected = next((candidate for candidate in infos if matches_device(candidate, name)), None)
    if selected is not None:
        return DeviceUnderTest(name, selected) if is_only_name else _make_device_under_test(selected, infos)
    if name.lower() in _GPU_KINDS:
        software_fallback = next((candidate for candidate in infos if candidate.kind == "software"), None)
        if software and software_fallback is not None:
            return _make_device_under_test(software_fallback, infos, f"in place of a device of kind '{name.lower()}'")
        more = "; --pumice-allow-software lets a software driver stand in" if software_fallback else ""
        raise pytest.UsageError(f"--pumice-device {name}: no such GPU; {_format_device_list(infos)}{more}")
    if is_only_name:
        return DeviceUnderTest(name, None)  # a test that opens it fails with the engine's error message
    raise pytest.UsageError(f"--pumice-device: no Vulkan device matches '{name}'; {_format_device_list(infos)}")


def select_devices(
    requested: str | None, software: bool, infos: Sequence[DeviceInfo] | None = None
) -> list[DeviceUnderTest]:
    """Return the requested devices without duplicates. infos: by default the system's devices. Raise UsageError for an unknown name."""
    if not requested:
        return [DeviceUnderTest("", None)]
    infos = devices() if infos is None else infos
    names = [name.strip() for name in requested.split(",")]
    if not all(names):
        raise pytest.UsageError(f"--pumice-device: expected comma-separated names, given '{requested}'")
    selected: list[DeviceUnderTest] = []
    for name in names:
        if name.lower() == "all":
            selected.extend(_select_all_devices(infos, software))
        else:
            selected.append(_select_device_by_name(name, infos, software, len(names) == 1))
    unique: dict[int, DeviceUnderTest] = {}
    for device_under_test in selected:
        unique.setdefault(device_under_test.info.index if device_under_test.info else -1, device_under_test)
    return list(unique.values())


def shorten_device_name(name: str) -> str:
    """Return a device name for test ids and file names: letters, digits, dots and underscores, without text in parentheses."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", name.partition("(")[0]).strip("_.") or "device"


def make_cells(selected: Sequence[DeviceUnderTest], precisions: Sequence[str]) -> list[MatrixCell]:
    """Return a cell for every combination of device and precision."""
    names = [
        shorten_device_name(device_under_test.info.name) if device_under_test.info else "default"
        for device_under_test in selected
    ]
    labels = [
        name if names.count(name) == 1 else f"{name}.{device_under_test.info.index if device_under_test.info else i}"
        for i, (name, device_under_test) in enumerate(zip(names, selected, strict=True))
    ]
    return [
        MatrixCell(device_under_test, precision, f"{label}-{precision}")
        for device_under_test, label in zip(selected, labels, strict=True)
        for precision in precisions
    ]
