"""Mutants of SPIR-V modules: each has one changed, removed or added instruction."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from glsl_modes import SPIRV_VAL

Words = np.ndarray[Any, Any]

HEADER = 5
EXT_INST, TYPE_INT, TYPE_FLOAT, CONSTANT, DECORATE, MEMBER_DECORATE = 12, 21, 22, 43, 71, 72
COMPOSITE_CONSTRUCT, SELECT, QUANTIZE, CONTROL_BARRIER, MEMORY_BARRIER = 80, 169, 116, 224, 225
ARRAY_STRIDE, OFFSET, NO_CONTRACTION = 6, 35, 42
COMPARISONS = {  # opcode: with the boundary moved to the other side, negated
    170: (171,),  # IEqual, INotEqual
    171: (170,),
    172: (174, 178),  # UGreaterThan: UGreaterThanEqual, ULessThanEqual
    173: (175, 179),
    174: (172, 176),
    175: (173, 177),
    176: (178, 174),  # ULessThan
    177: (179, 175),
    178: (176, 172),
    179: (177, 173),
    180: (182,),  # FOrdEqual, FOrdNotEqual
    182: (180,),
    184: (188, 190),  # FOrdLessThan
    186: (190, 188),
    188: (184, 186),
    190: (186, 184),
    166: (167,),  # LogicalOr, LogicalAnd
    167: (166,),
}
OPERATORS = {
    128: 130,
    130: 128,
    129: 131,
    131: 129,
    132: 128,
    133: 129,
    136: 133,
    134: 137,
    137: 134,
    194: 196,
    196: 194,
    199: 197,
    197: 199,
}
ORDERED = {
    130,
    131,
    134,
    135,
    136,
    137,
    138,
    139,
    140,
    141,
    173,
    172,
    174,
    175,
    176,
    177,
    178,
    179,
    184,
    186,
    188,
    190,
    194,
    195,
    196,
}
BOUNDS = {37: 40, 38: 41, 39: 42, 40: 37, 41: 38, 42: 39}  # FMin, UMin, SMin: FMax, UMax, SMax
ROUNDED = {129, 131, 133, 136}  # FAdd, FSub, FMul, FDiv


class Mutant(NamedTuple):
    """kind: what changes. text: opcode and offset of the instruction."""

    kind: str
    text: str
    words: Words


class Instruction(NamedTuple):
    """An instruction's words, with length and opcode in the first, and its offset in the module."""

    at: int
    words: Words

    @property
    def opcode(self) -> int:
        return int(self.words[0]) & 0xFFFF


def instructions(module: Words) -> Iterator[Instruction]:
    at = HEADER
    while at < len(module):
        length = int(module[at]) >> 16
        assert length > 0, f"word {at} begins no instruction"
        yield Instruction(at, module[at : at + length])
        at += length


def is_valid(module: Words) -> bool:
    """Return whether spirv-val accepts the module for Vulkan."""
    command = [SPIRV_VAL, "--target-env", "vulkan1.3", "-"]
    return subprocess.run(command, input=module.tobytes(), capture_output=True).returncode == 0


def mutants(module: Words, seed: int) -> Iterator[Mutant]:
    """Yield all valid mutants in an order drawn from the seed, round-robin over the kinds."""
    random = np.random.default_rng(seed)
    by_kind: dict[str, list[tuple[str, Instruction, list[int]]]] = defaultdict(list)
    for kind, instruction, words in _changes(module):
        by_kind[kind].append((kind, instruction, words))
    for changes in by_kind.values():
        random.shuffle(changes)
    while any(by_kind.values()):
        for changes in by_kind.values():
            if changes and (result := _mutant(module, *changes.pop())):
                yield result


def _mutant(module: Words, kind: str, instruction: Instruction, words: list[int]) -> Mutant | None:
    end = instruction.at + len(instruction.words)
    changed = np.concatenate([module[: instruction.at], np.array(words, np.uint32), module[end:]]).astype(np.uint32)
    changed[3] += kind == "precision"  # the id bound; this kind uses one more id
    if not is_valid(changed):
        return None
    return Mutant(kind, f"op {instruction.opcode} at {instruction.at}", changed)


def _changes(module: Words) -> Iterator[tuple[str, Instruction, list[int]]]:
    """Yield the kind, instruction, and replacement words."""
    all_instructions = list(instructions(module))
    types = {
        int(instruction.words[1]): instruction
        for instruction in all_instructions
        if instruction.opcode in (TYPE_INT, TYPE_FLOAT)
    }
    floats = {number for number, item in types.items() if item.opcode == TYPE_FLOAT and item.words[2] == 32}
    for item in all_instructions:
        for kind, words in _of_instruction(item, types, floats, int(module[3])):
            yield kind, item, words


def _of_instruction(
    instruction: Instruction, types: dict[int, Instruction], floats: set[int], new: int
) -> Iterator[tuple[str, list[int]]]:
    words, opcode = [int(word) for word in instruction.words], instruction.opcode
    if opcode == CONSTANT and len(words) == 4:
        yield from (("constant", [*words[:3], value]) for value in _constants(words[3], types.get(words[1])))
    for other in COMPARISONS.get(opcode, ()):
        yield "comparison", [words[0] & ~0xFFFF | other, *words[1:]]
    if opcode in OPERATORS:
        yield "operator", [words[0] & ~0xFFFF | OPERATORS[opcode], *words[1:]]
    if opcode in ORDERED:
        yield "operand order", [*words[:3], words[4], words[3]]
    if opcode in (SELECT, COMPOSITE_CONSTRUCT) and len(words) > 4:
        yield "operand order", [*words[:-2], words[-1], words[-2]]
    if opcode == EXT_INST and words[4] in BOUNDS:
        yield "bound", [*words[:4], BOUNDS[words[4]], *words[5:]]
    if opcode in (CONTROL_BARRIER, MEMORY_BARRIER):
        yield "barrier", []
    if (opcode == DECORATE and words[2] == ARRAY_STRIDE) or (opcode == MEMBER_DECORATE and words[3] == OFFSET):
        yield "decoration", [*words[:-1], words[-1] + 4]
    if opcode == DECORATE and words[2] == NO_CONTRACTION:
        yield "decoration", []
    if opcode in ROUNDED and words[1] in floats:
        yield "precision", [words[0], words[1], new, *words[3:], 4 << 16 | QUANTIZE, words[1], words[2], new]


def _constants(bits: int, of: Instruction | None) -> Iterator[int]:
    """Yield other values for a 32-bit constant."""
    if of is None or of.words[2] != 32:
        return
    if of.opcode == TYPE_INT:
        yield from ((bits + 1) & 0xFFFFFFFF, (bits - 1) & 0xFFFFFFFF)
        return
    value = np.array(bits, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        for other in (value * np.float32(1.125), -value, value + np.float32(1)):
            yield int(np.array(other, np.float32).view(np.uint32))
