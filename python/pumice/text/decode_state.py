"""The state of a decode: sequences, KV caches, and the recorded runs that extend them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

import pumice._pumice as _pumice

from .._pumice import (
    BindingTable,
    Buffer,
    CommandList,
    Context,
    Error,
    StateError,
    Submission,
    Tensor,
    TensorDesc,
)
from ..base.element_types import Array
from .decoder import Decoder, SamplingParams, TokenBitmask, make_token_bitmask
from .decoder_recipe import LOGIT_POSITIONS, PAST_LENGTHS, KvCacheSpec
from .errors import ContextError

if TYPE_CHECKING:
    from .speculation import DraftProposer

RING_SLOTS = 64  # slots of the token ring buffer: maximum number of tokens that the device may be ahead of the host
_PARAMS_DTYPE = np.dtype(  # SamplingParams in token_scores.glsl
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
_SMALL_CHUNK = 128  # a prefill chunk of this size takes hardly longer than smaller ones
# Vocabulary chunks of the sampling kernels: maximum number per sequence, minimum size in tokens.
_MAX_CHUNKS, _MIN_CHUNK_TOKENS = 128, 1024
_STEPS_IN_FLIGHT = 4  # number of decode steps in flight while the host waits for the first of them
_MIN_CAPACITY = 64
_MAX_EXTRA_CAPACITY = 512  # maximum cache capacity that is allocated in advance for generated tokens
_NO_TOKEN = 0xFFFFFFFF  # result of the sampling kernels if no logit is finite; kNoToken in token_scores.glsl

SamplingMode = Literal["greedy", "random"]  # argmax for all sequences, or sampling by the parameters of each sequence
ChooseToken = Callable[[Array, list[int]], int]


class Timing(NamedTuple):
    """Timing of a call. prompt: prompt tokens processed. first_seconds: time to first token. tokens, seconds: all generated tokens and the
    total time. runs: model runs after the prompt; fewer than tokens if draft tokens are accepted.
    """

    prompt: int
    first_seconds: float
    tokens: int
    seconds: float
    runs: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second after the first one; 0 if there is only one."""
        rest = self.seconds - self.first_seconds
        return (self.tokens - 1) / rest if self.tokens > 1 and rest > 0 else 0.0


def _make_aliased_tensors(context: Context, first: TensorDesc, second: TensorDesc) -> tuple[Tensor, Tensor]:
    """Return two tensors with different descriptions that alias one new buffer."""
    memory = Buffer(context, max(first.bytes, 16))
    return Tensor(first, memory), Tensor(second, memory)


class KvCaches:
    """The KV caches of all layers for a batch size and a capacity. users: number of states that share them."""

    def __init__(self, context: Context, caches: Sequence[KvCacheSpec], batch: int, capacity: int) -> None:
        self.batch, self.capacity = batch, capacity
        self.tensors: list[Tensor] = []
        # The caches as the append kernel binds them: int8 caches as uint32, others unchanged.
        self.copy_views: list[Tensor] = []
        self.scales: list[Tensor] = []  # scales of the int8 caches, in the order of the caches
        for spec in caches:
            shape = [batch, spec.heads, capacity]
            if spec.scales is None:
                self.tensors.append(_pumice.empty([*shape, spec.size], spec.dtype, context))
                self.copy_views.append(self.tensors[-1])
                continue
            descs = TensorDesc(spec.dtype, [*shape, spec.size]), TensorDesc("uint32", [*shape, spec.size // 4])
            int8_tensor, copy_view = _make_aliased_tensors(context, *descs)
            self.tensors.append(int8_tensor)
            self.copy_views.append(copy_view)
            self.scales.append(_pumice.empty(shape, spec.scales.dtype, context))
        for tensor in (*self.copy_views, *self.scales):
            tensor.fill(0)
        self.users = 1

    @property
    def bytes(self) -> int:
        return sum(tensor.desc.bytes for tensor in (*self.tensors, *self.scales))


class StepTensors:
    """Device tensors that a decode step reads and writes, and the ring buffer from which the host reads sampled tokens.

    batch: number of sequences, or of positions of one sequence whose draft tokens a run verifies.
    """

    def __init__(self, decoder: Decoder, batch: int) -> None:
        context, vocab_size = decoder.context, decoder.vocab_size
        input_ids_dtype = decoder.decoder_recipe.input_ids_dtype
        self.batch = batch
        input_ids, input_ids_uint32 = (
            TensorDesc(input_ids_dtype, [batch, 1]),
            TensorDesc("uint32", [batch, 2 if input_ids_dtype == "int64" else 1]),
        )
        self.input_ids, self.input_ids_uint32 = _make_aliased_tensors(context, input_ids, input_ids_uint32)
        past, past_uint32 = TensorDesc("int64", [batch]), TensorDesc("uint32", [batch, 2])
        self.past, self.past_uint32 = _make_aliased_tensors(context, past, past_uint32)
        self.zero_positions = _pumice.empty([batch, 1], "int64", context)
        self.zero_positions.fill(0)
        # Two views of one buffer: logits of one position per sequence, or logits of several positions of one sequence.
        batch_desc, positions_desc = (
            TensorDesc(decoder.logits_dtype, shape) for shape in ([batch, 1, vocab_size], [1, batch, vocab_size])
        )
        self.logits, self.position_logits = _make_aliased_tensors(context, batch_desc, positions_desc)
        self.token_bitmask = _pumice.empty([batch, (vocab_size + 31) // 32], "uint32", context)
        self.sampling_params = _pumice.empty([batch * _PARAMS_DTYPE.itemsize], "uint8", context)
        self.num_chunks = max(1, min(_MAX_CHUNKS, vocab_size // _MIN_CHUNK_TOKENS))
        self.best = _pumice.empty([batch, self.num_chunks, 2], "uint32", context)
        size = -(-vocab_size // self.num_chunks)
        self.candidates = _pumice.empty([batch, self.num_chunks, 1 + size], "uint32", context)
        self.finished_groups = _pumice.empty([batch], "uint32", context)
        self.finished_groups.fill(0)
        ring = Buffer(context, max(4 * RING_SLOTS * batch, 16), "readback")
        self.ring = Tensor(TensorDesc("uint32", [RING_SLOTS, batch]), ring)
        # A compile-only context samples no tokens, and refuses to map memory that they would be read from.
        ring_bytes = np.zeros(ring.bytes, np.uint8) if context.compile_only else ring.map()
        self.sampled_tokens: Array = ring_bytes.view(np.uint32)[: RING_SLOTS * batch].reshape(RING_SLOTS, batch)

    def upload_sampling_params(self, sampling_params: Sequence[SamplingParams], prompt_lengths: Sequence[int]) -> None:
        """Upload the sampling parameters of all sequences."""
        packed = np.zeros(len(sampling_params), _PARAMS_DTYPE)
        for entry, params, prompt_length in zip(packed, sampling_params, prompt_lengths, strict=True):
            entry["temperature"], entry["top_p"], entry["penalty"] = params.temperature, params.top_p, params.penalty
            entry["top_k"] = params.top_k
            entry["seed"] = params.seed & 0xFFFFFFFF, params.seed >> 32
            entry["prompt_length"] = prompt_length
        self.sampling_params.upload(packed.view(np.uint8))


class RecordedRun(NamedTuple):
    """A recorded run of the decoder. logit_positions: the positions whose logits it computes. bindings: everything else it uses."""

    commands: CommandList
    input_ids: Tensor
    logit_positions: Tensor
    logits: Tensor
    arena: Buffer | None
    bindings: tuple[Any, ...]


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


class DecodeState:
    """The state of a decode: its sequences, their KV caches, and the recorded runs that extend them.

    tokens: all tokens of each sequence. cached: how many of them are in the KV caches. finished: which sequences have ended in the current
    turn; set by the caller of `generate`. revision: incremented when the sequences change, to invalidate older streams.
    """

    def __init__(self, decoder: Decoder, batch: int, context_length: int | None, label: str | None = None) -> None:
        self.decoder, self.context_length = decoder, context_length
        self._label = label  # name of the sequence in error messages; None: its index
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        self.cached, self.finished = [0] * batch, [False] * batch
        self.step_tensors = StepTensors(decoder, batch)
        self._position_tensors = {1: self.step_tensors}  # by number of positions whose tokens a run samples
        self.caches: KvCaches | None = None
        self.timing = Timing(0, 0.0, 0, 0.0)
        self._runs: dict[tuple[int, int, SamplingMode | None], RecordedRun] = {}
        self._sampling_commands: dict[SamplingMode, CommandList] = {}
        self._sampling_mode: SamplingMode = "greedy"
        self._arena: Buffer | None = None
        self._num_runs: int | None = None  # model runs of a speculative turn; None: one per token
        # Whether all cache rows are finite. None: unknown until the logits of the last run are checked.
        self._rows_finite: bool | None = True
        self.closed, self.revision = False, 0

    # ---- KV cache memory

    def close(self) -> None:
        """Release the caches. The arena is freed when no recorded run uses it any more."""
        if self.caches is not None:
            self.caches.users -= 1
        self.caches = self._arena = None
        self._runs.clear()
        self.closed = True
        self.revision += 1

    def make_fork(self) -> DecodeState:
        """Return a copy of the state. The caches are shared until either continues."""
        fork = DecodeState(self.decoder, len(self.tokens), self.context_length)
        fork.tokens, fork.cached = [list(tokens) for tokens in self.tokens], list(self.cached)
        if self.caches is not None:
            self.caches.users += 1
            fork.caches = self.caches
            fork._rows_finite = self._are_rows_finite()
        return fork

    def truncate(self, num_tokens: int) -> None:
        """Truncate a single sequence to its first `num_tokens` tokens, and keep their cache rows if all rows are finite.

        Rows that were computed together with non-finite ones are recomputed: masked rows get weight zero, but 0 * NaN is NaN. If the
        logits are finite, so are all rows, because the last row attends to all of them.
        """
        self.revision += 1
        del self.tokens[0][num_tokens:]
        if num_tokens >= self.cached[0]:
            return
        rows_finite = self._are_rows_finite()
        self.cached[0], self._rows_finite = num_tokens if rows_finite else 0, True

    def _are_rows_finite(self) -> bool:
        if self._rows_finite is None:
            self._rows_finite = not np.isnan(self.logits().astype(np.float32)).any()
        return self._rows_finite

    def check_context(self, num_new_tokens: int, num_prompt_tokens: int = 0) -> None:
        """Raise ContextError if a sequence with a further prompt and `num_new_tokens` new tokens exceeds the model's context."""
        longest = max(map(len, self.tokens)) + num_prompt_tokens
        if self.context_length is not None and longest + num_new_tokens > self.context_length:
            actual = f"{longest} tokens" if num_new_tokens == 0 else f"{longest} tokens and {num_new_tokens} more"
            raise ContextError(
                f"expected at most {self.context_length} tokens (the model's context), given {actual}",
                longest,
                self.context_length,
            )

    def _has_capacity(self, length: int) -> bool:
        return self.caches is not None and self.caches.users == 1 and self.caches.capacity >= length

    def _add_headroom(self, length: int, headroom: int) -> int:
        """Return the length plus a headroom of further tokens, within the context."""
        target = length + headroom
        return max(target if self.context_length is None else min(target, self.context_length), length)

    def ensure_capacity(self, min_capacity: int) -> KvCaches:
        """Return unshared caches of at least this capacity. Raise OutOfMemoryError, leaving the state unchanged, if they do not fit."""
        caches, context = self.caches, self.decoder.context
        if caches is not None and self._has_capacity(min_capacity):
            return caches
        capacity = max(_MIN_CAPACITY, 1 << (min_capacity - 1).bit_length())
        if self.context_length is not None:
            capacity = max(min(capacity, self.context_length), min_capacity)
        if caches is not None:
            capacity = max(capacity, caches.capacity)
        new_caches = self._make_caches(len(self.tokens), capacity)
        if caches is not None and max(self.cached) > 0:
            commands, begin = CommandList(context), _pumice.empty([len(self.tokens), 2], "uint32", context)
            begin.fill(0)
            self._record_append(commands, caches, new_caches, max(self.cached), begin)
            commands.commit()
            commands.exec().wait()
        self._runs.clear()
        self.caches = new_caches  # set at once, so that `cached` matches the caches even if this is interrupted
        if caches is not None:
            caches.users -= 1
        return new_caches

    def _make_caches(self, batch: int, capacity: int) -> KvCaches:
        return KvCaches(self.decoder.context, self.decoder.decoder_recipe.caches, batch, capacity)

    # ---- recorded runs

    def get_position_tensors(self, num_positions: int) -> StepTensors:
        """Return the tensors for sampling at `num_positions` positions of one sequence, or at the last position of all sequences."""
        if num_positions not in self._position_tensors:
            self._position_tensors[num_positions] = StepTensors(self.decoder, num_positions)
        return self._position_tensors[num_positions]

    def _get_run(self, seq_len: int, num_logits: int, sampling_mode: SamplingMode | None) -> RecordedRun:
        """Return a run of `seq_len` tokens that computes the logits of `num_logits` positions, recording it if needed."""
        run = self._runs.get((seq_len, num_logits, sampling_mode))
        if run is not None:
            return run
        batch, decoder, tensors = len(self.tokens), self.decoder, self.step_tensors
        input_ids, logit_positions, logits = tensors.input_ids, tensors.zero_positions, tensors.logits
        if seq_len > 1:
            input_ids = _pumice.empty([batch, seq_len], decoder.decoder_recipe.input_ids_dtype, decoder.context)
            logit_positions = _pumice.empty([batch, num_logits], "int64", decoder.context)
        if num_logits > 1 and sampling_mode:
            logits = self.get_position_tensors(num_logits).position_logits
        elif num_logits > 1:
            logits = _pumice.empty([batch, num_logits, decoder.vocab_size], decoder.logits_dtype, decoder.context)
        run = self.record_run((input_ids, logit_positions), logits, sampling_mode)
        if run.arena is not None:  # drop runs that use an older, smaller arena; they are recorded again when needed
            for key in [key for key, other in self._runs.items() if other.arena not in (None, run.arena)]:
                del self._runs[key]
        if seq_len > 1:  # upload before storing the run, so that an error leaves no incomplete one
            logit_positions.upload(np.tile(np.arange(num_logits, dtype=np.int64), (batch, 1)))
        self._runs[seq_len, num_logits, sampling_mode] = run
        return run

    def record_run(
        self, inputs: tuple[Tensor, Tensor], logits: Tensor, sampling_mode: SamplingMode | None, profile: bool = False
    ) -> RecordedRun:
        """Record a run that appends new rows to the caches. inputs: input_ids, and the positions whose logits to compute.

        sampling_mode: how to sample the next token, or one token per position of a single sequence; None: do not sample.
        """
        decoder, caches, tensors = self.decoder, self.caches, self.step_tensors
        recipe = decoder.decoder_recipe
        assert caches is not None
        input_ids, positions = inputs
        batch, seq_len = input_ids.desc.shape
        num_logits = positions.desc.shape[1]
        inputs_in_order = (input_ids, tensors.past, positions, *caches.tensors, *caches.scales)
        operator = decoder.program.compiled([tensor.desc.shape for tensor in inputs_in_order])
        table, commands = BindingTable(operator), CommandList(decoder.context)
        updated = self._make_caches(batch, seq_len) if recipe.outputs_new_rows else caches
        bound = {recipe.input_ids: input_ids, recipe.logits: logits}
        bound |= {PAST_LENGTHS: tensors.past, LOGIT_POSITIONS: positions}
        for spec, cache, output in zip(recipe.caches, caches.tensors, updated.tensors, strict=True):
            bound |= {spec.name: cache, spec.output: output}
        scales_specs = [spec.scales for spec in recipe.caches if spec.scales is not None]
        for names, scales, output in zip(scales_specs, caches.scales, updated.scales, strict=True):
            bound |= {names.name: scales, names.output: output}
        table.bind(**bound)
        needs = operator.binding_properties
        arena = None
        if needs.temporary_bytes:  # runs are sequential, so they share one arena
            if self._arena is None or self._arena.bytes < needs.temporary_bytes:
                self._arena = Buffer(decoder.context, needs.temporary_bytes)
            arena = self._arena
            table.bind_temporary(arena)
        if needs.persistent_bytes:
            table.bind_persistent(decoder.program.persistent)
        commands.dispatch(operator, table)
        if recipe.outputs_new_rows:
            self._record_append(commands, updated, caches, seq_len, tensors.past_uint32)
        if sampling_mode:
            self._record_sampling(commands, self.get_position_tensors(num_logits), sampling_mode, advance=1)
        commands.commit(profile=profile)
        return RecordedRun(commands, input_ids, positions, logits, arena, (table, updated, caches, tensors))

    def _record_append(
        self, commands: CommandList, src_caches: KvCaches, caches: KvCaches, count: int, past: Tensor
    ) -> None:
        """Record a copy of the first `count` rows of all caches and scales to row `past` of other caches."""
        sources, targets = (*src_caches.copy_views, *src_caches.scales), (*caches.copy_views, *caches.scales)
        for source, cache in zip(sources, targets, strict=True):
            batch, heads, stride, size = (*source.desc.shape, 1)[:4]
            elements = batch * heads * count * size
            bound = {"src": source, "cache": cache, "past": past, "heads": heads, "count": count, "stride": stride}
            bound |= {"capacity": caches.capacity, "size": size, "elements": elements, "threads": elements}
            is_uint32 = cache.desc.dtype == "uint32"
            kernel = self.decoder.append_uint32_kernel if is_uint32 else self.decoder.append_kernel
            commands.dispatch(kernel.bind(**bound))

    def _record_sampling(self, commands: CommandList, tensors: StepTensors, mode: SamplingMode, advance: int) -> None:
        """Record the sampling of the next tokens. advance: how much longer it makes the cache lengths."""
        decoder, groups = self.decoder, (tensors.num_chunks, tensors.batch, 1)
        bound: dict[str, Any] = {
            "logits": tensors.logits,
            "token_bitmask": tensors.token_bitmask,
            "sampling_params": tensors.sampling_params,
            "best": tensors.best,
        }
        bound |= {"vocab_size": decoder.vocab_size, "batch": tensors.batch, "num_chunks": tensors.num_chunks}
        outputs: dict[str, Any] = {"past": tensors.past_uint32, "next_input_ids": tensors.input_ids_uint32}
        outputs |= {"ring": tensors.ring, "slots": RING_SLOTS, "advance": advance}
        if mode == "greedy":
            outputs |= {"finished_groups": tensors.finished_groups}
            commands.dispatch(decoder.greedy_kernel.bind(**bound, **outputs, groups=groups))
            return
        commands.dispatch(decoder.argmax_kernel.bind(**bound, groups=groups))
        bound["candidates"] = tensors.candidates
        commands.dispatch(decoder.candidates_kernel.bind(**bound, groups=groups))
        commands.dispatch(decoder.sampling_kernel.bind(**bound, **outputs, groups=(tensors.batch, 1, 1)))

    def get_sampling_commands(self, mode: SamplingMode) -> CommandList:
        """Return commands that sample the next tokens from the current logits without advancing the cache lengths."""
        if mode not in self._sampling_commands:
            commands = CommandList(self.decoder.context)
            self._record_sampling(commands, self.step_tensors, mode, advance=0)
            commands.commit()
            self._sampling_commands[mode] = commands
        return self._sampling_commands[mode]

    # ---- prefill

    def prefill(self, headroom: int = 0) -> int:
        """Process all tokens that are not in the caches yet, and compute the logits after the last token of each sequence on the device.

        headroom: number of further tokens for which the caches should have capacity. Return the number of tokens processed.
        """
        lengths = [len(tokens) for tokens in self.tokens]
        caches = self.ensure_capacity(self._add_headroom(max(lengths), min(headroom, _MAX_EXTRA_CAPACITY)))
        num_prefilled = sum(length - cached for length, cached in zip(lengths, self.cached, strict=True))
        while True:
            pending = max(length - cached for length, cached in zip(lengths, self.cached, strict=True))
            chunk = choose_prefill_chunk(max(pending, 1), caches.capacity)
            self._prefill_chunk(chunk, lengths)
            if self.cached == lengths and pending <= chunk:
                break
        self.step_tensors.past.upload(np.array(lengths, np.int64))
        return num_prefilled

    def _prefill_chunk(self, chunk: int, lengths: list[int]) -> None:
        """Run a prefill chunk: the next `chunk` tokens of each sequence, or its last `chunk` tokens if fewer remain."""
        starts = [min(cached, max(length - chunk, 0)) for cached, length in zip(self.cached, lengths, strict=True)]
        pairs = zip(self.tokens, starts, strict=True)
        input_ids = np.stack([self._pad_input_ids(tokens[start : start + chunk], chunk) for tokens, start in pairs])
        if self._rows_finite:
            self._rows_finite = None
        last = [min(length - 1 - start, chunk - 1) for length, start in zip(lengths, starts, strict=True)]
        run = self._get_run(chunk, 1, None)
        if chunk > 1:
            run.logit_positions.upload(np.array(last, np.int64)[:, None])
        self._submit_run(run, input_ids, starts)
        self.cached = [min(start + chunk, length) for start, length in zip(starts, lengths, strict=True)]

    def _pad_input_ids(self, tokens: Sequence[int], length: int) -> Array:
        """Return the tokens as input_ids, padded with copies of the last one: the keys of any other token might not be finite."""
        padded = np.zeros(length, self.decoder.decoder_recipe.input_ids_dtype)
        padded[: len(tokens)] = tokens
        padded[len(tokens) :] = tokens[-1:] or 0
        return padded

    def _submit_run(self, run: RecordedRun, input_ids: Array, starts: Sequence[int]) -> Submission:
        """Submit a run of these input_ids. starts: cache lengths before the run."""
        run.input_ids.upload(input_ids)
        self.step_tensors.past.upload(np.array(starts, np.int64))
        return run.commands.exec()

    def compute_all_logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits after each of these tokens, [tokens, vocab_size]. There must be one sequence, which must be empty."""
        self.check_context(0, len(tokens))
        caches = self.ensure_capacity(len(tokens))
        chunk = choose_prefill_chunk(len(tokens), caches.capacity)
        logits = np.empty((len(tokens), self.decoder.vocab_size), self.step_tensors.logits.desc.dtype)
        for begin in range(0, len(tokens), chunk):
            start = min(begin, max(len(tokens) - chunk, 0))
            chunk_tokens = tokens[start : start + chunk]
            run = self._get_run(chunk, chunk, None)
            self._submit_run(run, self._pad_input_ids(chunk_tokens, chunk)[None], [start])
            logits[start : start + len(chunk_tokens)] = run.logits.numpy()[0, : len(chunk_tokens)]
        return logits

    def logits(self) -> Array:
        """Return the logits of the last run, [batch, vocab_size]."""
        return np.asarray(self.step_tensors.logits.numpy()[:, 0])

    # ---- token generation

    def generate(
        self,
        sampling_params: Sequence[SamplingParams],
        max_tokens: int,
        token_bitmask: Array | None = None,
        choose: ChooseToken | None = None,
        draft: tuple[DraftProposer, int] | None = None,
    ) -> Iterator[list[int]]:
        """Append up to `max_tokens` tokens to each sequence, until all are finished or the context is full. Yield the tokens of each step.

        The device samples a few steps ahead, unless `choose` returns each token for the logits and the tokens so far. token_bitmask: see
        make_token_bitmask; None: compute it if needed. draft: a proposer of draft tokens for a single sequence, and the maximum number to
        verify per run. A draft token is accepted if it equals the sampled token, which depends only on the seed, the position and the
        sequence. Raise ContextError if the context is already full, StateError if another stream has changed the sequences, Error if all
        logits of a sequence are NaN or infinite.
        """
        began, first_seconds = time.perf_counter(), 0.0
        self.check_context(1)
        if self.context_length is not None:
            max_tokens = min(max_tokens, self.context_length - max(map(len, self.tokens)))
        num_prefilled = self.prefill(max_tokens)
        self.revision += 1
        revision, self._num_runs = self.revision, None
        finished = self.finished = [False] * len(self.tokens)
        if draft is not None:
            steps = self._yield_speculative_steps(sampling_params[0], max_tokens, *draft)
        elif choose is not None:
            steps = self._yield_callback_steps(choose, max_tokens)
        else:
            steps = self._yield_sampling_steps(sampling_params, max_tokens, token_bitmask)
        for number, tokens in enumerate(steps):
            now = time.perf_counter() - began
            first_seconds = first_seconds or now
            num_runs = number if self._num_runs is None else self._num_runs
            self.timing = Timing(num_prefilled, first_seconds, number + 1, now, num_runs)
            for i, token in enumerate(tokens):
                self.cached[i] = len(self.tokens[i])  # all tokens before the new one are in the caches
                self.tokens[i].append(token)
            yield tokens
            if all(finished):
                return
            if revision != self.revision:
                raise StateError("this session has continued with another text since this stream began")

    def record_first_steps(self, sampling_params: Sequence[SamplingParams], max_tokens: int) -> None:
        """Record and submit the prefill, the sampling and one decoding step, without reading any token. For compile-only contexts."""
        self.prefill(max_tokens)
        self._upload_sampling_params(sampling_params, [len(tokens) for tokens in self.tokens], None)
        self.get_sampling_commands(self._sampling_mode).exec()
        self._get_run(1, 1, self._sampling_mode).commands.exec()

    def _upload_sampling_params(
        self, sampling_params: Sequence[SamplingParams], prompt_lengths: Sequence[int], token_bitmask: Array | None
    ) -> None:
        self.step_tensors.upload_sampling_params(sampling_params, prompt_lengths)
        self._sampling_mode = "random" if any(params.temperature > 0 for params in sampling_params) else "greedy"
        if any(params.penalty != 1 for params in sampling_params):
            self.step_tensors.token_bitmask.upload(
                make_token_bitmask(self.tokens, self.decoder.vocab_size) if token_bitmask is None else token_bitmask
            )

    def _yield_sampling_steps(
        self, sampling_params: Sequence[SamplingParams], max_tokens: int, token_bitmask: Array | None
    ) -> Iterator[list[int]]:
        prompt_lengths = [len(tokens) for tokens in self.tokens]
        longest = max(prompt_lengths)
        submissions: deque[Submission] = deque()
        self._upload_sampling_params(sampling_params, prompt_lengths, token_bitmask)
        for step in range(max_tokens):
            for number in range(step + len(submissions), min(step + _STEPS_IN_FLIGHT, max_tokens)):
                if number == 0:
                    submissions.append(self.get_sampling_commands(self._sampling_mode).exec())
                    continue
                length = longest + number
                if not self._has_capacity(length):
                    if submissions:
                        break  # runs in flight must finish before the caches grow
                    self.ensure_capacity(self._add_headroom(length, min(max_tokens - number, length)))
                submissions.append(self._get_run(1, 1, self._sampling_mode).commands.exec())
            submissions.popleft().wait()
            self.decoder.context.require_execution("the text")
            tokens: list[int] = self.step_tensors.sampled_tokens[step % RING_SLOTS].tolist()
            self._check_sampled_tokens(tokens)
            yield tokens

    def _check_sampled_tokens(self, tokens: list[int]) -> None:
        """Raise Error if the logits before one of these tokens were not finite."""
        if _NO_TOKEN in tokens:
            self._rows_finite = False
            name = self._label or f"text {tokens.index(_NO_TOKEN)}"
            raise Error(f"{name}: expected a finite number among the logits, given none")
        self._rows_finite = self._rows_finite is not False

    def _yield_speculative_steps(
        self, params: SamplingParams, max_tokens: int, proposer: DraftProposer, num_draft_tokens: int
    ) -> Iterator[list[int]]:
        tokens, prompt_length = self.tokens[0], len(self.tokens[0])
        if max_tokens <= 0:
            return
        token_bitmask = None if params.penalty == 1 else TokenBitmask(tokens, self.decoder.vocab_size)
        bitmasks = None if token_bitmask is None else token_bitmask.make_bitmasks(tokens, [], 1)
        self._upload_sampling_params([params], [prompt_length], bitmasks)
        num_positions = num_draft_tokens + 1
        self.get_position_tensors(num_positions).upload_sampling_params(
            [params] * num_positions, [prompt_length] * num_positions
        )
        self._num_runs = 0
        self.get_sampling_commands(self._sampling_mode).exec().wait()
        self.decoder.context.require_execution("the text")
        accepted = [int(self.step_tensors.sampled_tokens[0, 0])]
        num_left = max_tokens
        while True:
            for token in accepted:
                self._check_sampled_tokens([token])
                yield [token]
                num_left -= 1
                if num_left <= 0:
                    return
            draft_tokens = proposer.propose(tokens, min(num_draft_tokens, num_left - 1)) if num_left > 1 else []
            accepted = self._verify_draft(token_bitmask, draft_tokens, num_draft_tokens, prompt_length, num_left)
            self._num_runs += 1

    def _verify_draft(
        self,
        token_bitmask: TokenBitmask | None,
        draft_tokens: list[int],
        num_draft_tokens: int,
        prompt_length: int,
        headroom: int,
    ) -> list[int]:
        """Run the last token and the draft tokens. Return the accepted draft tokens, followed by the token sampled after them."""
        tokens, count = self.tokens[0], len(self.tokens[0])
        has_draft = bool(draft_tokens) and (
            self.context_length is None or count + num_draft_tokens <= self.context_length
        )
        seq_len = num_draft_tokens + 1 if has_draft else 1
        if not self._has_capacity(count - 1 + seq_len):
            self.ensure_capacity(self._add_headroom(count - 1 + seq_len, headroom))
        run, position_tensors = self._get_run(seq_len, seq_len, self._sampling_mode), self.get_position_tensors(seq_len)
        input_ids = self._pad_input_ids([tokens[-1], *draft_tokens[: seq_len - 1]], seq_len)[None]
        if has_draft:
            position_tensors.past.upload(np.arange(count - 1, count - 1 + seq_len, dtype=np.int64))
        if token_bitmask is not None:
            position_tensors.token_bitmask.upload(token_bitmask.make_bitmasks(tokens, draft_tokens, seq_len))
        self._submit_run(run, input_ids, [count - 1]).wait()
        sampled = [
            int(position_tensors.sampled_tokens[(count + i - prompt_length) % RING_SLOTS, i]) for i in range(seq_len)
        ]
        num_accepted = 0
        while num_accepted < len(draft_tokens) and has_draft and sampled[num_accepted] == draft_tokens[num_accepted]:
            num_accepted += 1
        if has_draft and sampled[num_accepted] == _NO_TOKEN:  # retry without draft tokens, which may have caused this
            return self._verify_draft(token_bitmask, [], num_draft_tokens, prompt_length, headroom)
        return sampled[: num_accepted + 1]

    def _yield_callback_steps(self, choose: ChooseToken, max_tokens: int) -> Iterator[list[int]]:
        for step in range(max_tokens):
            if step > 0:
                self.prefill()
            yield [
                self._call_choose(choose, row, tokens) for row, tokens in zip(self.logits(), self.tokens, strict=True)
            ]

    def _call_choose(self, choose: ChooseToken, logits: Array, tokens: list[int]) -> int:
        token = choose(logits, list(tokens))
        if (
            isinstance(token, bool)
            or not isinstance(token, int | np.integer)
            or not 0 <= token < self.decoder.vocab_size
        ):
            raise Error(f"choose: expected a token from 0 to {self.decoder.vocab_size - 1}, given {token!r:.100}")
        return int(token)
