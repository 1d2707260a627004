"""A decoder on the device: KV caches, state of a batch, and recorded command lists for decode steps and prefill chunks."""

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
from .decoder_recipe import LOGIT_POSITIONS, PAST_LENGTHS, DecoderRecipe, KvCacheSpec

RING_SLOTS = 64  # slots of the token ring buffer: maximum number of tokens that the device may be ahead of the host
_PARAMS_DTYPE = np.dtype(
    [
        ("temperature", "<f4"),
        ("top_p", "<f4"),
        ("penalty", "<f4"),
        ("top_k", "<u4"),
        ("seed", "<u4", 2),
        ("prompt_length", "<u4"),
        ("unused", "<u4"),
    ]
)
_PREFILL_CHUNKS = (8, 32, 128, 512, 2048)  # prefill chunk sizes, in tokens
# Vocabulary chunks of the sampling kernels: maximum number per sequence, minimum size in tokens.
_MAX_CHUNKS, _MIN_CHUNK_TOKENS = 128, 1024
SamplingMode = Literal["greedy", "random"]  # argmax for all sequences, or sampling by the parameters of each sequence
_SMALL_CHUNK = 128  # a prefill chunk of this size takes hardly longer than smaller ones


class SamplingParams(NamedTuple):
    """The sampling parameters of a sequence; see Generator for their meaning."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    seed: int = 0


def _read_shader(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _make_aliased_tensors(context: Context, first: TensorDesc, second: TensorDesc) -> tuple[Tensor, Tensor]:
    """Return two tensors with different descriptions that alias one new buffer."""
    memory = Buffer(context, max(first.bytes, 16))
    return Tensor(first, memory), Tensor(second, memory)


class KvCaches:
    """The KV caches of all layers for a batch size and a capacity. users: number of batches that share them."""

    def __init__(self, context: Context, caches: Sequence[KvCacheSpec], batch: int, capacity: int) -> None:
        self.batch, self.capacity = batch, capacity
        self.tensors: list[Tensor] = []
        # The caches as the append kernel binds them: int8 caches as uint32, others unchanged.
        self.copy_views: list[Tensor] = []
        self.scales: list[Tensor] = []  # scales of the int8 caches, in the order of the caches
        for spec in caches:
            self._allocate(context, spec)
        for tensor in (*self.copy_views, *self.scales):
            tensor.fill(0)
        self.users = 1

    def _allocate(self, context: Context, spec: KvCacheSpec) -> None:
        shape = [self.batch, spec.heads, self.capacity]
        if spec.scales is None:
            self.tensors.append(_pumice.empty([*shape, spec.size], spec.dtype, context))
            self.copy_views.append(self.tensors[-1])
            return
        int8_desc, uint32_desc = (
            TensorDesc(spec.dtype, [*shape, spec.size]),
            TensorDesc("uint32", [*shape, spec.size // 4]),
        )
        int8_tensor, copy_views = _make_aliased_tensors(context, int8_desc, uint32_desc)
        self.tensors.append(int8_tensor)
        self.copy_views.append(copy_views)
        self.scales.append(_pumice.empty(shape, spec.scales.dtype, context))

    @property
    def bytes(self) -> int:
        return sum(tensor.desc.bytes for tensor in (*self.tensors, *self.scales))


class BatchState:
    """Device tensors of a batch that persist between steps, and the ring buffer from which the host reads sampled tokens."""

    def __init__(
        self, context: Context, batch: int, vocab_size: int, decoder_recipe: DecoderRecipe, logits: str
    ) -> None:
        self.context, self.batch, self.vocab_size, self.decoder_recipe = context, batch, vocab_size, decoder_recipe
        self._position_states: dict[int, BatchState] = {}
        self._arena: Buffer | None = None
        words_per_id = 2 if decoder_recipe.input_ids_dtype == "int64" else 1
        input_ids, input_ids_uint32 = (
            TensorDesc(decoder_recipe.input_ids_dtype, [batch, 1]),
            TensorDesc("uint32", [batch, words_per_id]),
        )
        self.input_ids, self.input_ids_uint32 = _make_aliased_tensors(context, input_ids, input_ids_uint32)
        past, past_uint32 = TensorDesc("int64", [batch]), TensorDesc("uint32", [batch, 2])
        self.past, self.past_uint32 = _make_aliased_tensors(context, past, past_uint32)
        self.zero_positions = _pumice.empty([batch, 1], "int64", context)
        self.zero_positions.fill(0)
        # Two views of one buffer: logits of one position per sequence, or logits of several positions of one sequence.
        batch_desc, positions_desc = (
            TensorDesc(logits, shape) for shape in ([batch, 1, vocab_size], [1, batch, vocab_size])
        )
        self.logits, self.position_logits = _make_aliased_tensors(context, batch_desc, positions_desc)
        self.token_bitmask = _pumice.empty([batch, (vocab_size + 31) // 32], "uint32", context)
        self.sampling_params = _pumice.empty([batch * _PARAMS_DTYPE.itemsize], "uint8", context)
        self.num_chunks = max(1, min(_MAX_CHUNKS, vocab_size // _MIN_CHUNK_TOKENS))
        self.best = _pumice.empty([batch, self.num_chunks, 2], "uint32", context)
        size = -(-vocab_size // self.num_chunks)
        self.candidates = _pumice.empty([batch, self.num_chunks, size], "uint32", context)
        self.counts = _pumice.empty([batch, self.num_chunks], "uint32", context)
        self.finished_groups = _pumice.empty([batch], "uint32", context)
        self.finished_groups.fill(0)
        self._ring = Buffer(context, max(4 * RING_SLOTS * batch, 16), "readback")
        self.ring = Tensor(TensorDesc("uint32", [RING_SLOTS, batch]), self._ring)
        self.sampled_tokens: Array = self._ring.map().view(np.uint32)[: RING_SLOTS * batch].reshape(RING_SLOTS, batch)

    def get_arena(self, size: int) -> Buffer | None:
        """Return temporary memory of at least `size` bytes for a run; None for 0. Runs are sequential, so they share one buffer."""
        if size and (self._arena is None or self._arena.bytes < size):
            self._arena = Buffer(self.context, size)
        return self._arena if size else None

    def drop_arena(self) -> None:
        """Drop the arena. Its memory is freed when no recorded run uses it any more."""
        self._arena = None

    def get_positions_state(self, num_positions: int) -> BatchState:
        """Return the state for sampling at `num_positions` positions of one sequence; for one position, that is this object."""
        if num_positions == 1:
            return self
        if num_positions not in self._position_states:
            self._position_states[num_positions] = BatchState(
                self.context, num_positions, self.vocab_size, self.decoder_recipe, str(self.logits.desc.dtype)
            )
        return self._position_states[num_positions]


class RecordedRun:
    """A recorded command list for a run of the decoder, with its bindings."""

    def __init__(self, commands: CommandList, logits: Tensor, arena: Buffer | None, bindings: Sequence[Any]) -> None:
        self.commands, self.logits, self.arena, self._bindings = commands, logits, arena, bindings

    def run(self) -> Submission:
        return self.commands.exec()


class Decoder:
    """A decoder on a device: its program with the weights, and the kernels for sampling and for appending to the caches."""

    def __init__(self, context: Context, program: Program, decoder_recipe: DecoderRecipe, vocab_size: int) -> None:
        self.context, self.program, self.decoder_recipe, self.vocab_size = context, program, decoder_recipe, vocab_size
        outputs = {value.name: value for value in program.outputs}
        self.logits_dtype = str(outputs[decoder_recipe.logits].dtype)

    @functools.cached_property
    def sampling_kernel(self) -> Kernel:
        return self._make_sampling_kernel("sampling", self._make_token_macros())

    @functools.cached_property
    def greedy_kernel(self) -> Kernel:
        """The kernel that computes the argmax token and stores it, in a single dispatch."""
        return self._make_sampling_kernel("logits_argmax", {"STORES_TOKEN": 1, **self._make_token_macros()}, "greedy")

    @functools.cached_property
    def argmax_kernel(self) -> Kernel:
        return self._make_sampling_kernel("logits_argmax")

    @functools.cached_property
    def candidates_kernel(self) -> Kernel:
        return self._make_sampling_kernel("sampling_candidates")

    def _make_token_macros(self) -> dict[str, str | float]:
        is_int64 = self.decoder_recipe.input_ids_dtype == "int64"
        id_type, conversion = ("uvec2", "uvec2(token, 0u)") if is_int64 else ("uint", "token")
        return {"INPUT_ID": id_type, "TO_INPUT_ID(token)": conversion}

    def _make_sampling_kernel(
        self, file: str, macros: dict[str, str | float] | None = None, name: str | None = None
    ) -> Kernel:
        includes = {include: _read_shader(include) for include in ("token_scores.glsl", "store_token.glsl")}
        return Kernel(_read_shader(f"{file}.comp"), self.context, name or file, macros, includes=includes)

    @functools.cached_property
    def append_kernel(self) -> Kernel:
        return Kernel(_read_shader("append_kv.comp"), self.context, "append_kv", {"AS_UINT32": 0})

    @functools.cached_property
    def append_uint32_kernel(self) -> Kernel:
        return Kernel(_read_shader("append_kv.comp"), self.context, "append_kv_uint32", {"AS_UINT32": 1})

    def make_batch_state(self, batch: int) -> BatchState:
        return BatchState(self.context, batch, self.vocab_size, self.decoder_recipe, self.logits_dtype)

    def make_caches(self, batch: int, capacity: int) -> KvCaches:
        return KvCaches(self.context, self.decoder_recipe.caches, batch, capacity)

    def grow_caches(self, caches: KvCaches, capacity: int, num_used: int) -> KvCaches:
        """Return a copy of the caches with a larger capacity. Only the first `num_used` rows are copied."""
        larger = self.make_caches(caches.batch, capacity)
        if num_used > 0:
            commands = CommandList(self.context)
            begin = _pumice.empty([caches.batch, 2], "uint32", self.context)
            begin.fill(0)
            self._record_append_caches(commands, caches, larger, num_used, begin)
            commands.commit()
            commands.exec().wait()
        return larger

    def _get_compiled_operator(self, batch: int, seq_len: int, num_logits: int, capacity: int) -> CompiledOperator:
        return self.program.compiled(self.decoder_recipe.make_input_shapes(batch, seq_len, num_logits, capacity))

    def record_run(
        self,
        caches: KvCaches,
        state: BatchState,
        inputs: tuple[Tensor, Tensor],
        logits: Tensor,
        sampling_mode: SamplingMode | None,
        profile: bool = False,
    ) -> RecordedRun:
        """Record a run that appends new rows to the caches. inputs: input_ids, and the positions whose logits to compute.

        sampling_mode: how to sample the next token, or one token per position of a single sequence; None: do not sample.
        """
        recipe = self.decoder_recipe
        input_ids, positions = inputs
        batch, seq_len = input_ids.desc.shape
        num_logits = positions.desc.shape[1]
        operator = self._get_compiled_operator(batch, seq_len, num_logits, caches.capacity)
        table, commands = BindingTable(operator), CommandList(self.context)
        updated = self.make_caches(batch, seq_len) if recipe.outputs_new_rows else caches
        bound = {recipe.input_ids: input_ids, recipe.logits: logits}
        bound |= {PAST_LENGTHS: state.past, LOGIT_POSITIONS: positions}
        for spec, cache, output in zip(recipe.caches, caches.tensors, updated.tensors, strict=True):
            bound |= {spec.name: cache, spec.output: output}
        for names, scales, output in zip(recipe.scales, caches.scales, updated.scales, strict=True):
            bound |= {names.name: scales, names.output: output}
        table.bind(**bound)
        needs = operator.binding_properties
        arena = state.get_arena(needs.temporary_bytes)
        if arena is not None:
            table.bind_temporary(arena)
        if needs.persistent_bytes:
            table.bind_persistent(self.program.persistent)
        commands.dispatch(operator, table)
        if recipe.outputs_new_rows:
            self._record_append_caches(commands, updated, caches, seq_len, state.past_uint32)
        if sampling_mode:
            self._record_sampling(commands, state.get_positions_state(num_logits), sampling_mode, advance=1)
        commands.commit(profile=profile)
        return RecordedRun(commands, logits, arena, (table, updated, caches, state, inputs))

    def _record_append_caches(
        self, commands: CommandList, src_caches: KvCaches, caches: KvCaches, count: int, past: Tensor
    ) -> None:
        """Record a copy of the first `count` rows of all caches and scales to row `past` of other caches."""
        pairs = [
            *zip(src_caches.copy_views, caches.copy_views, strict=True),
            *zip(src_caches.scales, caches.scales, strict=True),
        ]
        for src, dst in pairs:
            self._record_append(commands, (src, dst), count, past)

    def _record_append(self, commands: CommandList, tensors: tuple[Tensor, Tensor], count: int, past: Tensor) -> None:
        """Record a copy of the first `count` rows of a tensor to row `past` of a cache or its scales. tensors: (source, cache)."""
        source, cache = tensors
        batch, heads, stride, size = (*source.desc.shape, 1)[:4]
        push_constants = {
            "heads": heads,
            "count": count,
            "stride": stride,
            "capacity": cache.desc.shape[2],
            "size": size,
        }
        elements = batch * heads * count * size
        kernel = self.append_uint32_kernel if cache.desc.dtype == "uint32" else self.append_kernel
        bound = kernel.bind(src=source, cache=cache, past=past, elements=elements, threads=elements, **push_constants)
        commands.dispatch(bound)

    def _record_sampling(self, commands: CommandList, state: BatchState, mode: SamplingMode, advance: int) -> None:
        tensors = {
            "logits": state.logits,
            "token_bitmask": state.token_bitmask,
            "sampling_params": state.sampling_params,
            "best": state.best,
        }
        token_outputs = {"past": state.past_uint32, "next_input_ids": state.input_ids_uint32, "ring": state.ring}
        push_constants = {"vocab_size": self.vocab_size, "batch": state.batch, "num_chunks": state.num_chunks}
        ring_position = {"slots": RING_SLOTS, "advance": advance}
        if mode == "greedy":
            groups = (state.num_chunks, state.batch, 1)
            tensors |= token_outputs | {"finished_groups": state.finished_groups}
            commands.dispatch(self.greedy_kernel.bind(**tensors, **push_constants, **ring_position, groups=groups))
            return
        commands.dispatch(
            self.argmax_kernel.bind(**tensors, **push_constants, groups=(state.num_chunks, state.batch, 1))
        )
        tensors |= {"candidates": state.candidates, "counts": state.counts}
        commands.dispatch(
            self.candidates_kernel.bind(**tensors, **push_constants, groups=(state.num_chunks, state.batch, 1))
        )
        tensors |= token_outputs
        commands.dispatch(
            self.sampling_kernel.bind(**tensors, **push_constants, **ring_position, groups=(state.batch, 1, 1))
        )

    def record_sampling(self, state: BatchState, mode: SamplingMode) -> CommandList:
        """Return a command list that samples the next token from the current logits without advancing the cache length."""
        commands = CommandList(self.context)
        self._record_sampling(commands, state, mode, advance=0)
        commands.commit()
        return commands


def pack_sampling_params(sampling_params: Sequence[SamplingParams], prompt_lengths: Sequence[int]) -> Array:
    """Return the sampling parameters of all sequences as bytes, in the layout of SamplingParams in token_scores.glsl."""
    packed = np.zeros(len(sampling_params), _PARAMS_DTYPE)
    for entry, params, prompt_length in zip(packed, sampling_params, prompt_lengths, strict=True):
        entry["temperature"], entry["top_p"], entry["penalty"] = params.temperature, params.top_p, params.penalty
        entry["top_k"] = params.top_k
        entry["seed"] = params.seed & 0xFFFFFFFF, params.seed >> 32
        entry["prompt_length"] = prompt_length
    return packed.view(np.uint8)


def make_token_bitmask(tokens: Sequence[Sequence[int]], vocab_size: int) -> Array:
    """Return a bitmask of the tokens of each sequence, uint32 [batch, (vocab_size + 31) / 32]."""
    token_bitmask = np.zeros((len(tokens), (vocab_size + 31) // 32), np.uint32)
    for bitmask, sequence in zip(token_bitmask, tokens, strict=True):
        token_ids = np.unique(np.array(sequence, np.int64))
        np.bitwise_or.at(bitmask, token_ids // 32, np.uint32(1) << (token_ids % 32).astype(np.uint32))
    return token_bitmask


class TokenBitmask:
    """The token bitmask of a text that only grows, updated incrementally."""

    def __init__(self, tokens: Sequence[int], vocab_size: int) -> None:
        self._bits, self._num_tokens = make_token_bitmask([tokens], vocab_size), len(tokens)

    def make_bitmasks(self, tokens: Sequence[int], draft_tokens: Sequence[int], num_positions: int) -> Array:
        """Return a bitmask for each position, uint32 [num_positions, (vocab_size + 31) / 32]: the text and the draft tokens before it."""
        for token in tokens[self._num_tokens :]:
            self._bits[0, token // 32] |= np.uint32(1 << token % 32)
        self._num_tokens = len(tokens)
        bitmasks = np.tile(self._bits, (num_positions, 1))
        for i, token in enumerate(draft_tokens[: num_positions - 1]):
            bitmasks[i + 1 :, token // 32] |= np.uint32(1 << token % 32)
        return bitmasks


def choose_prefill_chunk(count: int, capacity: int) -> int:
    """Return the prefill chunk size for `count` tokens.

    It is the smallest size of at least `count`, unless that exceeds both 2 * `count` and 128; then it is the largest size below `count`.
    """
    if count == 1:
        return 1
    chunks = [chunk for chunk in _PREFILL_CHUNKS if chunk <= capacity] or [1]
    above = next((chunk for chunk in chunks if chunk >= count), None)
    if above is not None and above <= max(2 * count, _SMALL_CHUNK):
        return above
    return max((chunk for chunk in chunks if chunk <= count), default=1)
