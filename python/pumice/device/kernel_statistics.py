"""The driver's statistics of a compiled kernel: registers, spills, shared memory, assembly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .._pumice import UnsupportedError
from ..base.printable_text import shorten_and_escape

Number = bool | int | float


class ExecutableStatistic(NamedTuple):
    """One statistic under the driver's own name."""

    name: str
    description: str
    value: Number


class InternalRepresentation(NamedTuple):
    """A driver-internal representation of the program: text, such as assembly, or bytes."""

    name: str
    description: str
    content: str | bytes


class PipelineExecutable(NamedTuple):
    """One program that the driver compiled from a kernel; most drivers compile one.

    subgroup_size: in invocations; 0 if the driver does not report it.
    """

    name: str
    description: str
    subgroup_size: int
    statistics: tuple[ExecutableStatistic, ...]
    representations: tuple[InternalRepresentation, ...]


class KernelStatistics:
    """The result of `kernel.statistics()` for one build of a kernel.

    name: the kernel's name. storage: the build's storage mode. local_size: workgroup size on three axes. spirv_bytes: size of the compiled
    shader; submitted_bytes: size of the module passed to the driver. refusal: why the driver's own numbers are missing; None if they are
    present. executables: the driver's programs.

    registers, spills, spill_bytes, shared_bytes, occupancy, code_bytes, instructions and subgroup_size are read from the driver's
    statistics by their usual names, in the driver's own units; None if this driver does not report them. They and disassembly raise
    UnsupportedError, naming the driver and the missing feature, if the driver reports nothing at all.
    """

    def __init__(self, name: str, record: Mapping[str, Any]) -> None:
        self.name = name
        self.storage: str = record["storage"]
        self.local_size: tuple[int, int, int] = record["local_size"]
        self.spirv_bytes: int = record["spirv_bytes"]
        self.submitted_bytes: int = record["submitted_bytes"]
        self.refusal: str | None = record["refusal"]
        self._summary: Mapping[str, int | None] = record["summary"]
        self.executables: tuple[PipelineExecutable, ...] = tuple(
            _parse_executable(executable) for executable in record["executables"]
        )

    def _require_statistics(self) -> tuple[PipelineExecutable, ...]:
        if self.refusal is not None:
            raise UnsupportedError(f"kernel '{self.name}': {self.refusal}")
        return self.executables

    def _get_statistic(self, name: str) -> int | None:
        self._require_statistics()
        return self._summary[name]

    @property
    def registers(self) -> int | None:
        """Registers per invocation (per subgroup on some drivers)."""
        return self._get_statistic("registers")

    @property
    def spills(self) -> int | None:
        """Registers or instructions spilled to memory, or bytes if the driver reports no count."""
        return self._get_statistic("spills")

    @property
    def spill_bytes(self) -> int | None:
        """Bytes of local memory per invocation: spills and indexed arrays.

        Only the low 32 bits count, which is the addressable range: NVIDIA 580.159 reports 2^36 + 272 bytes of local memory for a kernel
        that spills 272, and 2^36 for one without spills.
        """
        return self._get_statistic("spill_bytes")

    @property
    def shared_bytes(self) -> int | None:
        """Bytes of shared memory per workgroup."""
        return self._get_statistic("shared_bytes")

    @property
    def occupancy(self) -> int | None:
        """Maximum resident subgroups per compute unit."""
        return self._get_statistic("occupancy")

    @property
    def code_bytes(self) -> int | None:
        """Size of the machine code in bytes."""
        return self._get_statistic("code_bytes")

    @property
    def instructions(self) -> int | None:
        """Number of machine instructions."""
        return self._get_statistic("instructions")

    @property
    def subgroup_size(self) -> int | None:
        """Invocations per subgroup."""
        return max((executable.subgroup_size for executable in self._require_statistics()), default=0) or None

    def disassembly(self) -> str:
        """Return every text that the driver provides for its programs, each below its name.

        Raise UnsupportedError if it provides none.
        """
        texts = [
            f"// {executable.name}: {representation.name}\n{representation.content}"
            for executable in self._require_statistics()
            for representation in executable.representations
            if isinstance(representation.content, str)
        ]
        if not texts:
            raise UnsupportedError(f"kernel '{self.name}': the driver does not provide its compiled programs as text")
        return "\n".join(texts)

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the programs' text, as JSON-compatible values."""
        return {
            "name": self.name,
            "storage": self.storage,
            "local_size": list(self.local_size),
            "spirv_bytes": self.spirv_bytes,
            "submitted_bytes": self.submitted_bytes,
            "refusal": self.refusal,
            "executables": [
                {
                    "name": executable.name,
                    "subgroup_size": executable.subgroup_size,
                    "statistics": {statistic.name: statistic.value for statistic in executable.statistics},
                    "representations": [representation.name for representation in executable.representations],
                }
                for executable in self.executables
            ],
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, value) of each row of the displayed table."""
        rows = [
            ("storage", self.storage),
            ("local size", " x ".join(map(str, self.local_size))),
            ("SPIR-V", f"{self.spirv_bytes:,} bytes; {self.submitted_bytes:,} for the driver"),
        ]
        if self.refusal is not None:
            return [*rows, ("driver", self.refusal)]
        for executable in self.executables:
            rows.append((executable.name, executable.description))
            if executable.subgroup_size:
                rows.append(("  subgroup size", str(executable.subgroup_size)))
            rows += [(f"  {statistic.name}", f"{statistic.value:,}") for statistic in executable.statistics]
            rows += [
                (f"  {representation.name}", _format_size(representation.content))
                for representation in executable.representations
            ]
        return rows

    def __repr__(self) -> str:
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return f"<KernelStatistics of '{shorten_and_escape(self.name)}'>\n" + "\n".join(
            f"{label:<{width}}  {value}" for label, value in rows
        )

    def _repr_html_(self) -> str:
        from ..base.html import render_table, render_titled_text

        return render_titled_text(f"Statistics of kernel {self.name}", "") + render_table(("", ""), self.rows())


def _parse_executable(record: Mapping[str, Any]) -> PipelineExecutable:
    return PipelineExecutable(
        record["name"],
        record["description"],
        record["subgroup_size"],
        tuple(ExecutableStatistic(**item) for item in record["statistics"]),
        tuple(InternalRepresentation(**item) for item in record["representations"]),
    )


def _format_size(content: str | bytes) -> str:
    return f"{content.count(chr(10)) + 1:,} lines" if isinstance(content, str) else f"{len(content):,} bytes"
