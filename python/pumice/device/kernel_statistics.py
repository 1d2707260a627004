"""What the driver says of the program that it made of a kernel: registers, spills, shared memory, its own assembly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._pumice import UnsupportedError
from ..base.plain_text import plain

Number = bool | int | float

# Every driver has its own words for these. The first that is told is taken. What is spilled the engine reads, which takes no such kernel.
_REGISTERS = (r"register count", r"registers?", r"vgprs?", r"num(ber of)? registers", r"vector registers?")
_SHARED = (r"shared memory( size| usage)?", r"lds size", r"workgroup memory( size)?", r"shared size")
_OCCUPANCY = (r"occupancy", r"subgroups per simd", r"(max )?waves per (simd|cu)", r"active warps")
_CODE = (r"binary size", r"code size", r"shader size")
_INSTRUCTIONS = (r"instruction count", r"instructions?")


class Statistic(NamedTuple):
    """One number in the driver's own words."""

    name: str
    description: str
    value: Number


class Representation(NamedTuple):
    """A form of the program inside the driver: text, as its assembly is, or bytes."""

    name: str
    description: str
    content: str | bytes


class Executable(NamedTuple):
    """One program that the driver made of a kernel; most drivers make one.

    subgroup_size: invocations; 0 where the driver does not tell it.
    """

    name: str
    description: str
    subgroup_size: int
    statistics: tuple[Statistic, ...]
    representations: tuple[Representation, ...]

    def find(self, names: Sequence[str]) -> Number | None:
        """The value of the statistic whose name is the first of these patterns that fits; None where none does."""
        for name in names:
            for one in self.statistics:
                if re.fullmatch(name, one.name.strip(), re.IGNORECASE):
                    return one.value
        return None


class KernelStatistics:
    """What `kernel.statistics()` found of one build of a kernel.

    name: the kernel's. storage: the build's storage mode. local_size: invocations of a workgroup on three axes.
    spirv_bytes: bytes of the shader as compiled; submitted_bytes: as the driver gets it.
    refusal: why the driver's own numbers are not here; None where they are. executables: the driver's programs.

    registers, spills, spill_bytes, shared_bytes, occupancy, code_bytes, instructions and subgroup_size are read from the
    driver's statistics by their usual names, in the driver's own units, and None where this driver does not tell one.
    They and disassembly raise UnsupportedError where the driver tells nothing at all, naming the driver and the feature
    that it lacks.
    """

    def __init__(self, name: str, record: Mapping[str, Any]) -> None:
        self.name = name
        self.storage: str = record["storage"]
        self.local_size: tuple[int, int, int] = record["local_size"]
        self.spirv_bytes: int = record["spirv_bytes"]
        self.submitted_bytes: int = record["submitted_bytes"]
        self.refusal: str | None = record["refusal"]
        self._spills: int | None = record["spills"]
        self._spill_bytes: int | None = record["spill_bytes"]
        self.executables: tuple[Executable, ...] = tuple(_executable(one) for one in record["executables"])

    def _told(self) -> tuple[Executable, ...]:
        if self.refusal is not None:
            raise UnsupportedError(f"kernel '{self.name}': {self.refusal}")
        return self.executables

    def _most(self, names: Sequence[str]) -> Number | None:
        found = [value for one in self._told() if (value := one.find(names)) is not None]
        return max(found, default=None)

    @property
    def registers(self) -> Number | None:
        """Registers of one invocation (of one subgroup on some drivers)."""
        return self._most(_REGISTERS)

    @property
    def spills(self) -> int | None:
        """Registers, or instructions, that were spilled to memory; their bytes where the driver tells no number."""
        self._told()
        return self._spills

    @property
    def spill_bytes(self) -> int | None:
        """Bytes of memory of one invocation that hold what has no register: spills, and arrays that are indexed.

        Only the low 32 bits count, of which an invocation addresses no more: NVIDIA 580.159 tells 2^36 + 272 bytes of local memory
        of a kernel that spills 272, and 2^36 of one that spills none.
        """
        self._told()
        return self._spill_bytes

    @property
    def shared_bytes(self) -> Number | None:
        """Bytes of shared memory of a workgroup."""
        return self._most(_SHARED)

    @property
    def occupancy(self) -> Number | None:
        """Subgroups that a unit of the device can hold at once."""
        return self._most(_OCCUPANCY)

    @property
    def code_bytes(self) -> Number | None:
        """Bytes of the device's own code."""
        return self._most(_CODE)

    @property
    def instructions(self) -> Number | None:
        """Instructions of the device's own code."""
        return self._most(_INSTRUCTIONS)

    @property
    def subgroup_size(self) -> int | None:
        """Invocations of a subgroup."""
        return max((one.subgroup_size for one in self._told()), default=0) or None

    def disassembly(self) -> str:
        """Every text that the driver keeps of its programs, each below its name.

        Raises UnsupportedError where the driver keeps none.
        """
        texts = [
            f"// {one.name}: {form.name}\n{form.content}"
            for one in self._told()
            for form in one.representations
            if isinstance(form.content, str)
        ]
        if not texts:
            raise UnsupportedError(f"kernel '{self.name}': the driver gives no text of its programs")
        return "\n".join(texts)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the programs' texts, of values that JSON has."""
        return {
            "name": self.name,
            "storage": self.storage,
            "local_size": list(self.local_size),
            "spirv_bytes": self.spirv_bytes,
            "submitted_bytes": self.submitted_bytes,
            "refusal": self.refusal,
            "executables": [
                {
                    "name": one.name,
                    "subgroup_size": one.subgroup_size,
                    "statistics": {each.name: each.value for each in one.statistics},
                    "representations": [form.name for form in one.representations],
                }
                for one in self.executables
            ],
        }

    def rows(self) -> list[tuple[str, str]]:
        """(what, value) of each line of the table that is shown."""
        rows = [
            ("storage", self.storage),
            ("local size", " x ".join(map(str, self.local_size))),
            ("SPIR-V", f"{self.spirv_bytes:,} bytes; {self.submitted_bytes:,} for the driver"),
        ]
        if self.refusal is not None:
            return [*rows, ("driver", self.refusal)]
        for one in self.executables:
            rows.append((one.name, one.description))
            if one.subgroup_size:
                rows.append(("  subgroup size", str(one.subgroup_size)))
            rows += [(f"  {each.name}", f"{each.value:,}") for each in one.statistics]
            rows += [(f"  {form.name}", _size_text(form.content)) for form in one.representations]
        return rows

    def __repr__(self) -> str:
        rows = self.rows()
        width = max(len(what) for what, _ in rows)
        return f"<KernelStatistics of '{plain(self.name)}'>\n" + "\n".join(
            f"{what:<{width}}  {value}" for what, value in rows
        )

    def _repr_html_(self) -> str:
        from ..base.html import table, text_below

        return text_below(f"Statistics of kernel {self.name}", "") + table(("", ""), self.rows())


def _executable(record: Mapping[str, Any]) -> Executable:
    return Executable(
        record["name"],
        record["description"],
        record["subgroup_size"],
        tuple(Statistic(**one) for one in record["statistics"]),
        tuple(Representation(**one) for one in record["representations"]),
    )


def _size_text(content: str | bytes) -> str:
    return f"{content.count(chr(10)) + 1:,} lines" if isinstance(content, str) else f"{len(content):,} bytes"
