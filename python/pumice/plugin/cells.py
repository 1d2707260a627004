"""Cells of the test matrix: combinations of device and precision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from .._pumice import DeviceInfo, devices

SOFTWARE = "SOFTWARE DRIVER: not a GPU"
_GPUS = ("discrete", "integrated", "virtual")


class Place(NamedTuple):
    """A device in the matrix: its name for Context ("": the default device), and its info if known in advance."""

    device: str
    info: DeviceInfo | None
    note: str = ""  # why this device was chosen, if it is not the requested one


class Cell(NamedTuple):
    """A device and a precision. `label` names both in test ids."""

    place: Place
    precision: str
    label: str


def kind_of(info: DeviceInfo) -> str:
    """Return the kind of a device, with an unmistakable label for software drivers."""
    return SOFTWARE if info.kind == "software" else info.kind


def _text(infos: Sequence[DeviceInfo]) -> str:
    listed = ", ".join(f"[{one.index}] '{one.name}' ({one.kind})" for one in infos)
    return f"the devices are {listed}" if listed else "there is no Vulkan device"


def matches(info: DeviceInfo, wanted: str) -> bool:
    """Return whether a name matches this device, by the rules of Context."""
    spec = wanted.lower()
    if spec.startswith("uuid:"):
        return info.uuid == spec[5:].replace("-", "")
    if spec.startswith("pci:"):
        return bool(info.pci) and info.pci.lower() == spec[4:]
    if spec.isdigit():
        return info.index == int(spec)
    return spec == info.kind or spec in info.name.lower()


def _place(info: DeviceInfo, infos: Sequence[DeviceInfo], note: str = "") -> Place:
    """Return a device by UUID, or by index if two drivers report the same UUID."""
    alone = [one.uuid for one in infos].count(info.uuid) == 1
    return Place(f"uuid:{info.uuid}" if alone else str(info.index), info, note)


def _of_all(infos: Sequence[DeviceInfo], software: bool) -> list[Place]:
    found = [one for one in infos if software or one.kind != "software"]
    if not found:
        more = "" if software else "; --pumice-allow-software takes software drivers too"
        raise pytest.UsageError(f"--pumice-device all: no GPU; {_text(infos)}{more}")
    return [_place(one, infos) for one in found]


def _of_name(name: str, infos: Sequence[DeviceInfo], software: bool, alone: bool) -> Place:
    found = next((one for one in infos if matches(one, name)), None)
    if found is not None:
        return Place(name, found) if alone else _place(found, infos)
    if name.lower() in _GPUS:
        stand_in = next((one for one in infos if one.kind == "software"), None)
        if software and stand_in is not None:
            return _place(stand_in, infos, f"in place of a device of kind '{name.lower()}'")
        more = "; --pumice-allow-software lets a software driver stand in" if stand_in else ""
        raise pytest.UsageError(f"--pumice-device {name}: no such GPU; {_text(infos)}{more}")
    if alone:
        return Place(name, None)  # a test that opens it fails with the engine's error message
    raise pytest.UsageError(f"--pumice-device: no Vulkan device matches '{name}'; {_text(infos)}")


def places(asked: str | None, software: bool, infos: Sequence[DeviceInfo] | None = None) -> list[Place]:
    """Return the requested devices, without duplicates. `infos`: by default the system's devices. Raise UsageError for an empty name."""
    if not asked:
        return [Place("", None)]
    infos = devices() if infos is None else infos
    names = [name.strip() for name in asked.split(",")]
    if not all(names):
        raise pytest.UsageError(f"--pumice-device: expected names between commas, given '{asked}'")
    found: list[Place] = []
    for name in names:
        if name.lower() == "all":
            found.extend(_of_all(infos, software))
        else:
            found.append(_of_name(name, infos, software, len(names) == 1))
    once: dict[int, Place] = {}
    for place in found:
        once.setdefault(place.info.index if place.info else -1, place)
    return list(once.values())


def short_name(name: str) -> str:
    """Return a device name for ids and file names: letters, digits, dots and underscores, without text in parentheses."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", name.partition("(")[0]).strip("_.") or "device"


def matrix(found: Sequence[Place], precisions: Sequence[str]) -> list[Cell]:
    """Return a cell for every combination of device and precision."""
    names = [short_name(place.info.name) if place.info else "default" for place in found]
    labels = [
        name if names.count(name) == 1 else f"{name}.{place.info.index if place.info else i}"
        for i, (name, place) in enumerate(zip(names, found, strict=True))
    ]
    return [
        Cell(place, precision, f"{label}-{precision}")
        for place, label in zip(found, labels, strict=True)
        for precision in precisions
    ]
