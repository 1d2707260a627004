"""The decoder's device state: KV caches, input_ids and cache lengths, and recorded command lists for decode steps and prefill chunks."""

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
from .decoder_recipe import PAST, WANTED, Cache, RoomyRecipe

SLOTS = 64  # maximum tokens per sequence that the device may be ahead of the host
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
_BUCKETS = (8, 32, 128, 512, 2048)  # prefill chunk sizes, in tokens
# top-k search: maximum workgroups per sequence, minimum vocabulary entries per workgroup
_STRETCHES, _LEAST_STRETCH = 128, 1024
Way = Literal["greedy", "drawn"]  # sampling mode: argmax for every sequence, or by each sequence's parameters
_FEW = 128  # chunks below this size hardly get faster


class Choice(NamedTuple):
    """The sampling parameters of a sequence: see Generator."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    seed: int = 0


def _text(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _seen_twice(context: Context, first: TensorDesc, second: TensorDesc) -> tuple[Tensor, Tensor]:
    """Return two tensors that alias one new buffer: the program's view, and the kernel's view with another dtype or shape."""
    memory = Buffer(context, max(first.bytes, 16))
    return Tensor(first, memory), Tensor(second, memory)


class Caches:
    """The KV caches of all layers for a batch size and capacity. `users`: number of sessions that share them."""

    def __init__(self, context: Context, caches: Sequence[Cache], batch: int, room: int) -> None:
        self.batch, self.room = batch, room
        self.tensors: list[Tensor] = []
        # The copy kernel's views: int8 caches as uint32, other caches unchanged.
        self.words: list[Tensor] = []
        self.scales: list[Tensor] = []  # scales of the int8 caches
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
    """Device tensors of a batch that persist between steps, and the ring of tokens that the host reads."""

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
        # Logits of one position per sequence, or of several positions of one sequence.
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
        """Return scratch memory for a run that needs `size` bytes. Runs are sequential and share one buffer."""
        if size and (self._arena is None or self._arena.bytes < size):
            self._arena = Buffer(self.context, size)
        return self._arena if size else None

    def drop_arena(self) -> None:
        """Free the arena, once no recorded run uses it."""
        self._arena = None

    def chooser(self, wanted: int) -> Words:
        """Return the sampling state for `wanted` positions of one sequence; this object itself if `wanted` is 1."""
        if wanted == 1:
            return self
        if wanted not in self._choosers:
            self._choosers[wanted] = Words(self.context, wanted, self.words, self.roomy, str(self.logits.desc.dtype))
        return self._choosers[wanted]


class Recorded:
    """A recorded command list for one run of the decoder, with its bindings."""

    def __init__(self, commands: CommandList, logits: Tensor, arena: Buffer | None, kept: Sequence[Any]) -> None:
        self.commands, self.logits, self.arena, self._kept = commands, logits, arena, kept

    def run(self) -> Submission:
        return self.commands.exec()


class Device:
    """A decoder on a device: its program with weights, and the sampling and cache kernels."""

    def __init__(self, context: Context, program: Program, roomy: RoomyRecipe, words: int) -> None:
        self.context, self.program, self.roomy, self.words = context, program, roomy, words
        outputs = {value.name: value for value in program.outputs}
        self.logits_dtype = str(outputs[roomy.logits].dtype)

    @functools.cached_property
    def sampling(self) -> Kernel:
        return self._kernel_of_choice("sampling", self._word_macros())

    @functools.cached_property
    def greedy(self) -> Kernel:
        """The kernel that selects the argmax token in one dispatch."""
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
        includes = {one: _text(one) for one in ("token_scores.glsl", "store_token.glsl")}
        return Kernel(_text(f"{file}.comp"), self.context, name or file, macros, includes=includes)

    @functools.cached_property
    def append(self) -> Kernel:
        return Kernel(_text("append_kv.comp"), self.context, "append", {"WORDS": 0})

    @functools.cached_property
    def append_words(self) -> Kernel:
        return Kernel(_text("append_kv.comp"), self.context, "append_words", {"WORDS": 1})

    def new_words(self, batch: int) -> Words:
        return Words(self.context, batch, self.words, self.roomy, self.logits_dtype)

    def new_caches(self, batch: int, room: int) -> Caches:
        return Caches(self.context, self.roomy.caches, batch, room)

    def grown(self, caches: Caches, room: int, used: int) -> Caches:
        """Return caches with a larger capacity; the rows in use are copied once."""
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
        """Record a run of the decoder that appends its rows to the caches. inputs: tensors with the input_ids and the requested positions.

        choose: how to sample the next token, or one token per requested position of a single sequence; None: do not sample. profile: time
        each dispatch.
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
        """Record a copy of the first `count` rows of all caches and scales into other caches, from row `past` on."""
        pairs = [*zip(made.words, caches.words, strict=True), *zip(made.scales, caches.scales, strict=True)]
        for one, other in pairs:
            self._record_rows(commands, (one, other), count, past)

    def _record_rows(self, commands: CommandList, tensors: tuple[Tensor, Tensor], count: int, past: Tensor) -> None:
        """Record a copy of the first `count` rows of one tensor into a cache or its scales, from row `past` on."""
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
        """Return a command list that samples the next token from existing logits without advancing the cache length."""
        commands = CommandList(self.context)
        self._record_choice(commands, words, way, advance=0)
        commands.commit()
        return commands


def settings_of(choices: Sequence[Choice], firsts: Sequence[int]) -> Array:
    """Return the sampling kernel's settings as bytes. firsts: the prompt length of each sequence."""
    made = np.zeros(len(choices), _SETTING)
    for one, choice, first in zip(made, choices, firsts, strict=True):
        one["temperature"], one["top_p"], one["penalty"] = choice.temperature, choice.top_p, choice.penalty
        one["top_k"] = choice.top_k
        one["seed"] = choice.seed & 0xFFFFFFFF, choice.seed >> 32
        one["first"] = first
    return made.view(np.uint8)


def seen_of(tokens: Sequence[Sequence[int]], words: int) -> Array:
    """Return, for each sequence, a bitmask over the vocabulary with the sequence's tokens set."""
    seen = np.zeros((len(tokens), (words + 31) // 32), np.uint32)
    for row, given in zip(seen, tokens, strict=True):
        places = np.unique(np.array(given, np.int64))
        np.bitwise_or.at(row, places // 32, np.uint32(1) << (places % 32).astype(np.uint32))
    return seen


class Seen:
    """The token bitmask of a text that only grows between calls; updates cost only the new tokens."""

    def __init__(self, tokens: Sequence[int], words: int) -> None:
        self._bits, self._known = seen_of([tokens], words), len(tokens)

    def rows(self, tokens: Sequence[int], proposed: Sequence[int], rows: int) -> Array:
        """Return the bitmask for each of `rows` positions, uint32 [rows, (vocab_size + 31) / 32]: the text plus the draft tokens before it.
        Return the bitmask for each of `rows` positions, uint32 [rows, (vocab_size + 31) / 32]: the text plus the draft tokens before it."""
        for token in tokens[self._known :]:
            self._bits[0, token // 32] |= np.uint32(1 << token % 32)
        self._known = len(tokens)
        made = np.tile(self._bits, (rows, 1))
        for i, token in enumerate(proposed[: rows - 1]):
            made[i + 1 :, token // 32] |= np.uint32(1 << token % 32)
        return made


def bucket_of(count: int, room: int) -> int:
    """Return the prefill chunk size for `count` tokens: the smallest that holds them, unless it exceeds both twice `count` and 128."""
    if count == 1:
        return 1
    fitting = [one for one in _BUCKETS if one <= room] or [1]
    above = next((one for one in fitting if one >= count), None)
    if above is not None and above <= max(2 * count, _FEW):
        return above
    return max((one for one in fitting if one <= count), default=1)
