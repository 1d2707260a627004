"""What the compilers of drivers make of the kernels, kept in a file for each target of tests/compile_targets.py.

A line of tests/expectations/NAME.txt is a kernel variant in use, with its storage mode, workgroup size and specialization constants. Its
figures are the number of pipelines, the most registers, spills, bytes of shared memory and bytes of code of one, and the lowest occupancy,
in the driver's units. "-" is what the driver does not report. A change of tiles or of a shader shows as a diff of these files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().with_name("expectations")


class Figures(NamedTuple):
    """The figures of a variant, in the order of a line. None is not reported."""

    pipelines: int
    registers: int | None
    spills: int | None
    shared_bytes: int | None
    occupancy: int | None
    code_bytes: int | None


_COLUMNS = Figures._fields


@dataclass(frozen=True)
class Expectations:
    """The file of a target. device: its name and driver. variants: by kernel, storage mode, workgroup size and constants."""

    device: str
    date: str
    variants: Mapping[str, Figures]

    @property
    def spilling(self) -> list[str]:
        """The variants that spill."""
        return [variant for variant, figures in self.variants.items() if figures.spills]


def collect(records: Iterable[Mapping[str, Any]]) -> dict[str, Figures]:
    """Return the figures of each variant in use, from the JSON records of compile jobs."""
    pipelines: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        for kernel in record["kernels"]:
            if kernel["used"]:
                size = "x".join(map(str, kernel["local_size"]))
                variant = " ".join(filter(None, [kernel["kernel"], kernel["storage"], size, kernel["constants"]]))
                pipelines.setdefault(variant, {})[kernel["key"]] = kernel
    return {variant: _combine(list(pipelines[variant].values())) for variant in sorted(pipelines)}


def find_extreme(choose: Callable[[list[int]], int], values: Iterable[int | None]) -> int | None:
    """Return the maximum or minimum of the values that are not None; None if all are."""
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _combine(kernels: list[Mapping[str, Any]]) -> Figures:
    most = {
        name: find_extreme(min if name == "occupancy" else max, (kernel[name] for kernel in kernels))
        for name in _COLUMNS[1:]
    }
    return Figures(len(kernels), **most)


def format_figure(value: int | None) -> str:
    """Return a figure as text: "-" if the driver does not report it."""
    return "-" if value is None else str(value)


def write(path: Path, expectations: Expectations) -> None:
    """Write the file of a target."""
    lines = [f"# {expectations.device}", f"# {expectations.date}", f"# variant: {' '.join(_COLUMNS)}"]
    for variant, figures in expectations.variants.items():
        lines.append(f"{variant}: {' '.join(map(format_figure, figures))}")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> Expectations:
    """Read the file of a target."""
    device, date, _, *lines = path.read_text().splitlines()
    variants = {}
    for line in lines:
        variant, _, values = line.rpartition(": ")
        pipelines, *others = [None if value == "-" else int(value) for value in values.split()]
        variants[variant] = Figures(pipelines or 0, *others)
    return Expectations(device.removeprefix("# "), date.removeprefix("# "), variants)


def compare(expected: Mapping[str, Figures], found: Mapping[str, Figures]) -> list[str]:
    """Return a line for each variant that differs."""
    lines = []
    for variant in sorted(expected.keys() | found.keys()):
        if variant not in found:
            lines.append(f"not in use any more: {variant}")
        elif variant not in expected:
            lines.append(f"not expected: {variant}: {_describe(found[variant])}")
        elif expected[variant] != found[variant]:
            changes = [
                f"{name} {format_figure(old)} -> {format_figure(new)}"
                for name, old, new in zip(_COLUMNS, expected[variant], found[variant], strict=True)
                if old != new
            ]
            lines.append(f"changed: {variant}: {', '.join(changes)}")
    return lines


def _describe(figures: Figures) -> str:
    return ", ".join(f"{name} {format_figure(value)}" for name, value in zip(_COLUMNS, figures, strict=True))
