"""The parts of a decoder that lie on the device: its caches, its words and rows, and recorded lists that run one step or one chunk."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

import pumice._pumice as _pumice

from .._pumice import (
    BindingTable,
    Buffer,
    CommandList,
    CompiledOperator,
    Context,
    Program,
    Submission,
    Tensor,
    TensorDesc,
)
from ..base.element_types import Array
from ..device.kernel import Kernel
from .caches import PAST, WANTED, Cache, RoomyRecipe

SLOTS = 64  # tokens of an image that the device may be ahead of the host, at most
_SETTING = np.dtype(
    [
        ("temperature", "<f4"),
        ("top_p", "<f4"),
        ("penalty", "<f4"),
        ("top_k", "<u4"),
        ("seed", "<u4", 2),
        ("first", "<u4"),
        ("unused", "<u4"),
    ]
)
_BUCKETS = (8, 32, 128, 512, 2048)  # rows of a prompt that run at once
_STRETCHES, _LEAST_STRETCH = 128, 1024  # workgroups that look for an image's likely words, and words of each
Way = Literal[
    "greedy", "drawn"
]  # of choosing a token: the likeliest of each image's, or what each image's settings say
_FEW = 128  # rows that take hardly longer than fewer do


class Choice(NamedTuple):
    """How the next token of an image is chosen: see Generator."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    seed: int = 0


def _text(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _seen_twice(context: Context, first: TensorDesc, second: TensorDesc) -> tuple[Tensor, Tensor]:
    """Two tensors on the same new memory, of as many bytes: what a program and what a kernel takes it for."""
    memory = Buffer(context, max(first.bytes, 16))
    return Tensor(first, memory), Tensor(second, memory)


class Caches:
    """The caches of all layers, for a number of images and rows. `users`: how many sessions read them."""

    def __init__(self, context: Context, caches: Sequence[Cache], batch: int, room: int) -> None:
        self.batch, self.room = batch, room
        self.tensors: list[Tensor] = []
        # The same memory as whole words, of caches of int8; of others the caches themselves.
        self.words: list[Tensor] = []
        self.scales: list[Tensor] = []  # of caches of int8
        for one in caches:
            self._add(context, one)
        for tensor in (*self.words, *self.scales):
            tensor.fill(0)
        self.users = 1

    def _add(self, context: Context, one: Cache) -> None:
        shape = [self.batch, one.heads, self.room]
        if one.scales is None:
            self.tensors.append(_pumice.empty([*shape, one.size], one.dtype, context))
            self.words.append(self.tensors[-1])
            return
        whole, in_words = TensorDesc(one.dtype, [*shape, one.size]), TensorDesc("uint32", [*shape, one.size // 4])
        levels, words = _seen_twice(context, whole, in_words)
        self.tensors.append(levels)
        self.words.append(words)
        self.scales.append(_pumice.empty(shape, one.scales.dtype, context))

    @property
    def bytes(self) -> int:
        return sum(tensor.desc.bytes for tensor in (*self.tensors, *self.scales))


class Words:
    """Values of a batch that stay on the device between steps, and the list of numbers that the host reads."""

    def __init__(self, context: Context, batch: int, words: int, roomy: RoomyRecipe, logits: str) -> None:
        self.context, self.batch, self.words, self.roomy = context, batch, words, roomy
        self._choosers: dict[int, Words] = {}
        self._arena: Buffer | None = None
        wide = 2 if roomy.words_dtype == "int64" else 1
        ids, ids_words = TensorDesc(roomy.words_dtype, [batch, 1]), TensorDesc("uint32", [batch, wide])
        self.ids, self.ids_words = _seen_twice(context, ids, ids_words)
        past, past_words = TensorDesc("int64", [batch]), TensorDesc("uint32", [batch, 2])
        self.past, self.past_words = _seen_twice(context, past, past_words)
        self.first = _pumice.empty([batch, 1], "int64", context)
        self.first.fill(0)
        # The logits of so many texts, and of so many rows of one text.
        of_texts, of_rows = (TensorDesc(logits, shape) for shape in ([batch, 1, words], [1, batch, words]))
        self.logits, self.row_logits = _seen_twice(context, of_texts, of_rows)
        self.seen = _pumice.empty([batch, (words + 31) // 32], "uint32", context)
        self.settings = _pumice.empty([batch * _SETTING.itemsize], "uint8", context)
        self.stretches = max(1, min(_STRETCHES, words // _LEAST_STRETCH))
        self.best = _pumice.empty([batch, self.stretches, 2], "uint32", context)
        size = -(-words // self.stretches)
        self.candidates = _pumice.empty([batch, self.stretches, size], "uint32", context)
        self.counts = _pumice.empty([batch, self.stretches], "uint32", context)
        self.arrived = _pumice.empty([batch], "uint32", context)
        self.arrived.fill(0)
        self._ring = Buffer(context, max(4 * SLOTS * batch, 16), "readback")
        self.ring = Tensor(TensorDesc("uint32", [SLOTS, batch]), self._ring)
        self.numbers: Array = self._ring.map().view(np.uint32)[: SLOTS * batch].reshape(SLOTS, batch)

    def arena(self, size: int) -> Buffer | None:
        """Memory for what a run of `size` temporary bytes computes on the way. Runs come one after the other, so that all use the same."""
        if size and (self._arena is None or self._arena.bytes < size):
            self._arena = Buffer(self.context, size)
        return self._arena if size else None

    def drop_arena(self) -> None:
        """Frees the arena, once no recorded run uses it."""
        self._arena = None

    def chooser(self, wanted: int) -> Words:
        """What the choice of a token behind each of `wanted` rows of one text works with: itself where it is one row."""
        if wanted == 1:
            return self
        if wanted not in self._choosers:
            self._choosers[wanted] = Words(self.context, wanted, self.words, self.roomy, str(self.logits.desc.dtype))
        return self._choosers[wanted]


class Recorded:
    """A list that runs the decoder once, with what it is bound to."""

    def __init__(self, commands: CommandList, logits: Tensor, arena: Buffer | None, kept: Sequence[Any]) -> None:
        self.commands, self.logits, self.arena, self._kept = commands, logits, arena, kept

    def run(self) -> Submission:
        return self.commands.exec()


class Device:
    """A decoder on a device: the program with its weights, and the kernels beside it."""

    def __init__(self, context: Context, program: Program, roomy: RoomyRecipe, words: int) -> None:
        self.context, self.program, self.roomy, self.words = context, program, roomy, words
        outputs = {value.name: value for value in program.outputs}
        self.logits_dtype = str(outputs[roomy.logits].dtype)

    @functools.cached_property
    def sampling(self) -> Kernel:
        return self._kernel_of_choice("sampling", self._word_macros())

    @functools.cached_property
    def greedy(self) -> Kernel:
        """Takes the likeliest token, in one dispatch."""
        return self._kernel_of_choice("likeliest", {"TAKES": 1, **self._word_macros()}, "greedy")

    @functools.cached_property
    def likeliest(self) -> Kernel:
        return self._kernel_of_choice("likeliest")

    @functools.cached_property
    def candidates(self) -> Kernel:
        return self._kernel_of_choice("candidates")

    def _word_macros(self) -> dict[str, str | float]:
        wide = self.roomy.words_dtype == "int64"
        word, made = ("uvec2", "uvec2(word, 0u)") if wide else ("uint", "word")
        return {"WORD": word, "WORD_OF(word)": made}

    def _kernel_of_choice(
        self, file: str, macros: dict[str, str | float] | None = None, name: str | None = None
    ) -> Kernel:
        includes = {one: _text(one) for one in ("scores.glsl", "taking.glsl")}
        return Kernel(_text(f"{file}.comp"), self.context, name or file, macros, includes=includes)

    @functools.cached_property
    def append(self) -> Kernel:
        return Kernel(_text("append.comp"), self.context, "append", {"WORDS": 0})

    @functools.cached_property
    def append_words(self) -> Kernel:
        return Kernel(_text("append.comp"), self.context, "append_words", {"WORDS": 1})

    def new_words(self, batch: int) -> Words:
        return Words(self.context, batch, self.words, self.roomy, self.logits_dtype)

    def new_caches(self, batch: int, room: int) -> Caches:
        return Caches(self.context, self.roomy.caches, batch, room)

    def grown(self, caches: Caches, room: int, used: int) -> Caches:
        """Caches of more room with the rows in use, which are copied once."""
        made = self.new_caches(caches.batch, room)
        if used > 0:
            commands = CommandList(self.context)
            begin = _pumice.empty([caches.batch, 2], "uint32", self.context)
            begin.fill(0)
            self._record_all(commands, caches, made, used, begin)
            commands.commit()
            commands.exec().wait()
        return made

    def _operator(self, batch: int, rows: int, wanted: int, room: int) -> CompiledOperator:
        return self.program.compiled(self.roomy.shapes(batch, rows, wanted, room))

    def record(
        self,
        caches: Caches,
        words: Words,
        inputs: tuple[Tensor, Tensor],
        logits: Tensor,
        choose: Way | None,
        profile: bool = False,
    ) -> Recorded:
        """Records a run of the words and wanted rows in `inputs`, which writes their rows into the caches.

        choose: how the next token is chosen behind it, or the tokens behind all wanted rows of one text; None: it is not. profile: the
        time of each dispatch is measured.
        """
        ids, wanted = inputs
        batch, rows = ids.desc.shape
        operator = self._operator(batch, rows, wanted.desc.shape[1], caches.room)
        table, commands = BindingTable(operator), CommandList(self.context)
        made = self.new_caches(batch, rows) if self.roomy.is_apart else caches
        bound = {self.roomy.words: ids, PAST: words.past, WANTED: wanted, self.roomy.logits: logits}
        for one, cache, output in zip(self.roomy.caches, caches.tensors, made.tensors, strict=True):
            bound |= {one.name: cache, one.output: output}
        for names, scales, output in zip(self.roomy.scales, caches.scales, made.scales, strict=True):
            bound |= {names.name: scales, names.output: output}
        table.bind(**bound)
        needs = operator.binding_properties
        arena = words.arena(needs.temporary_bytes)
        if arena is not None:
            table.bind_temporary(arena)
        if needs.persistent_bytes:
            table.bind_persistent(self.program.persistent)
        commands.dispatch(operator, table)
        if self.roomy.is_apart:
            self._record_all(commands, made, caches, rows, words.past_words)
        if choose:
            self._record_choice(commands, words.chooser(wanted.desc.shape[1]), choose, advance=1)
        commands.commit(profile=profile)
        return Recorded(commands, logits, arena, (table, made, caches, words, inputs))

    def _record_all(self, commands: CommandList, made: Caches, caches: Caches, count: int, past: Tensor) -> None:
        """Has the first `count` rows of all caches, and their scales, written into others from row `past` on."""
        pairs = [*zip(made.words, caches.words, strict=True), *zip(made.scales, caches.scales, strict=True)]
        for one, other in pairs:
            self._record_rows(commands, (one, other), count, past)

    def _record_rows(self, commands: CommandList, tensors: tuple[Tensor, Tensor], count: int, past: Tensor) -> None:
        """Has the first `count` rows of one tensor written into another, a cache or its scales, from row `past` on."""
        source, cache = tensors
        batch, heads, stride, size = (*source.desc.shape, 1)[:4]
        numbers = {"heads": heads, "count": count, "stride": stride, "room": cache.desc.shape[2], "size": size}
        elements = batch * heads * count * size
        kernel = self.append_words if cache.desc.dtype == "uint32" else self.append
        bound = kernel.bind(rows=source, cache=cache, past=past, elements=elements, threads=elements, **numbers)
        commands.dispatch(bound)

    def _record_choice(self, commands: CommandList, words: Words, way: Way, advance: int) -> None:
        tensors = {"logits": words.logits, "seen": words.seen, "settings": words.settings, "best": words.best}
        taken = {"past": words.past_words, "chosen": words.ids_words, "ring": words.ring}
        numbers = {"words": self.words, "images": words.batch, "stretches": words.stretches}
        ahead = {"slots": SLOTS, "advance": advance}
        if way == "greedy":
            groups = (words.stretches, words.batch, 1)
            tensors |= taken | {"arrived": words.arrived}
            commands.dispatch(self.greedy.bind(**tensors, **numbers, **ahead, groups=groups))
            return
        commands.dispatch(self.likeliest.bind(**tensors, **numbers, groups=(words.stretches, words.batch, 1)))
        tensors |= {"candidates": words.candidates, "counts": words.counts}
        commands.dispatch(self.candidates.bind(**tensors, **numbers, groups=(words.stretches, words.batch, 1)))
        tensors |= taken
        commands.dispatch(self.sampling.bind(**tensors, **numbers, **ahead, groups=(words.batch, 1, 1)))

    def record_choice(self, words: Words, way: Way) -> CommandList:
        """A list that chooses the next token from the logits, and counts no row for it."""
        commands = CommandList(self.context)
        self._record_choice(commands, words, way, advance=0)
        commands.commit()
        return commands


def settings_of(choices: Sequence[Choice], firsts: Sequence[int]) -> Array:
    """Settings of the kernel, as bytes. firsts: by image, the tokens before those that are made."""
    made = np.zeros(len(choices), _SETTING)
    for one, choice, first in zip(made, choices, firsts, strict=True):
        one["temperature"], one["top_p"], one["penalty"] = choice.temperature, choice.top_p, choice.penalty
        one["top_k"] = choice.top_k
        one["seed"] = choice.seed & 0xFFFFFFFF, choice.seed >> 32
        one["first"] = first
    return made.view(np.uint8)


def seen_of(tokens: Sequence[Sequence[int]], words: int) -> Array:
    """The bits of each image's tokens."""
    seen = np.zeros((len(tokens), (words + 31) // 32), np.uint32)
    for row, given in zip(seen, tokens, strict=True):
        places = np.unique(np.array(given, np.int64))
        np.bitwise_or.at(row, places // 32, np.uint32(1) << (places % 32).astype(np.uint32))
    return seen


class Seen:
    """The bits of a text's tokens, of a text that has only grown since the last call: what is new is added, whatever the length."""

    def __init__(self, tokens: Sequence[int], words: int) -> None:
        self._bits, self._known = seen_of([tokens], words), len(tokens)

    def rows(self, tokens: Sequence[int], proposed: Sequence[int], rows: int) -> Array:
        """The bits behind each of `rows` rows, uint32 [rows, (words + 31) / 32]: the text's, and those of the proposals before the row."""
        for token in tokens[self._known :]:
            self._bits[0, token // 32] |= np.uint32(1 << token % 32)
        self._known = len(tokens)
        made = np.tile(self._bits, (rows, 1))
        for i, token in enumerate(proposed[: rows - 1]):
            made[i + 1 :, token // 32] |= np.uint32(1 << token % 32)
        return made


def bucket_of(count: int, room: int) -> int:
    """Rows that run at once for a prompt of `count` tokens: those that hold it, unless that is more than twice as many."""
    if count == 1:
        return 1
    fitting = [one for one in _BUCKETS if one <= room] or [1]
    above = next((one for one in fitting if one >= count), None)
    if above is not None and above <= max(2 * count, _FEW):
        return above
    return max((one for one in fitting if one <= count), default=1)
