"""Decoding of a batch of texts: tokens, cache lengths, prefill and decode steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import pumice._pumice as _pumice

from .._pumice import Buffer, CommandList, Error, StateError, Submission
from ..base.element_types import Array
from .decoder import (
    RING_SLOTS,
    BatchState,
    Decoder,
    KvCaches,
    RecordedRun,
    SamplingMode,
    SamplingParams,
    TokenBitmask,
    choose_prefill_chunk,
    make_token_bitmask,
    pack_sampling_params,
)
from .errors import ContextError

if TYPE_CHECKING:
    from .speculation import DraftProposer

_STEPS_IN_FLIGHT = 4  # number of decode steps in flight while the host waits for the first of them
_MIN_CAPACITY = 64
_MAX_EXTRA_CAPACITY = 512  # maximum cache capacity that is allocated in advance for generated tokens
_NO_TOKEN = 0xFFFFFFFF  # result of the sampling kernels if no logit is finite; kNoToken in token_scores.glsl

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


class DecoderRun(NamedTuple):
    """A recorded run with its input tensors: input_ids, and the positions whose logits it computes."""

    recorded: RecordedRun
    input_ids: Any
    logit_positions: Any


class DecodingBatch:
    """A batch of texts being decoded. tokens: all tokens of each text. cached: how many of them are in the KV caches."""

    def __init__(self, decoder: Decoder, batch: int, context_length: int | None, label: str | None = None) -> None:
        self.decoder, self.context_length = decoder, context_length
        self._label = label  # name of the text in error messages; None: its index
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        self.cached = [0] * batch
        self.state: BatchState = decoder.make_batch_state(batch)
        self.caches: KvCaches | None = None
        self.timing = Timing(0, 0.0, 0, 0.0)
        self._recorded: dict[tuple[int, int, SamplingMode | None], DecoderRun] = {}
        self._sampling_commands: dict[SamplingMode, CommandList] = {}
        self._sampling_mode: SamplingMode = "greedy"
        self._num_runs: int | None = None  # model runs of a speculative turn; None: one per token
        self.closed = False
        # Whether all cache rows are finite. None: unknown until the logits of the last run are checked.
        self._rows_finite: bool | None = True
        self.revision = 0  # incremented when the texts change, to invalidate older streams

    # ---- KV cache memory

    def close(self) -> None:
        """Release the caches."""
        self._release()
        self.closed = True
        self.revision += 1

    def _release(self) -> None:
        if self.caches is not None:
            self.caches.users -= 1
        self.caches = None
        self._recorded.clear()
        self.state.drop_arena()

    def make_fork(self) -> DecodingBatch:
        """Return a copy of the batch. The caches are shared until either batch continues."""
        fork = DecodingBatch(self.decoder, len(self.tokens), self.context_length)
        fork.tokens, fork.cached = [list(tokens) for tokens in self.tokens], list(self.cached)
        if self.caches is not None:
            self.caches.users += 1
            fork.caches = self.caches
            fork._rows_finite = self._are_rows_finite()
        return fork

    def truncate(self, num_tokens: int) -> None:
        """Truncate the text of a batch of one to its first `num_tokens` tokens, and keep their cache rows if all rows are finite.

        Rows that were computed together with non-finite ones are recomputed: masked rows get weight zero, but 0 * NaN is NaN. If the
        logits are finite, so are all rows, because the last row attends to all of them.
        """
        del self.tokens[0][num_tokens:]
        if num_tokens >= self.cached[0]:
            return
        rows_finite = self._are_rows_finite()
        self.cached[0], self._rows_finite = num_tokens if rows_finite else 0, True

    def _are_rows_finite(self) -> bool:
        if self._rows_finite is None:
            self._rows_finite = not np.isnan(self.logits().astype(np.float32)).any()
        return self._rows_finite

    def check_context(self, num_new_tokens: int) -> None:
        """Raise ContextError if a text plus `num_new_tokens` tokens exceeds the model's context."""
        longest = max(map(len, self.tokens))
        if self.context_length is not None and longest + num_new_tokens > self.context_length:
            actual = f"{longest} tokens" if num_new_tokens == 0 else f"{longest} tokens and {num_new_tokens} more"
            raise ContextError(
                f"expected at most {self.context_length} tokens (the model's context), given {actual}",
                longest,
                self.context_length,
            )

    def ensure_capacity(self, min_capacity: int) -> KvCaches:
        """Return unshared caches of at least this capacity. Raise OutOfMemoryError, leaving the state unchanged, if they do not fit."""
        caches = self.caches
        if caches is not None and caches.capacity >= min_capacity and caches.users == 1:
            return caches
        capacity = max(_MIN_CAPACITY, 1 << (min_capacity - 1).bit_length())
        if self.context_length is not None:
            capacity = max(min(capacity, self.context_length), min_capacity)
        if caches is None:
            new_caches = self.decoder.make_caches(len(self.tokens), capacity)
        else:
            new_caches = self.decoder.grow_caches(caches, max(capacity, caches.capacity), max(self.cached))
        self._recorded.clear()
        self.caches = new_caches  # set at once, so that `cached` matches the caches even if this is interrupted
        if caches is not None:
            caches.users -= 1
        return new_caches

    # ---- recorded runs and prefill

    def _get_run(self, seq_len: int, num_logits: int, sampling_mode: SamplingMode | None) -> DecoderRun:
        """Return a run of `seq_len` tokens that computes the logits of `num_logits` positions, recording it if needed."""
        assert self.caches is not None
        key = seq_len, num_logits, sampling_mode
        if key not in self._recorded:
            batch, context, state = len(self.tokens), self.decoder.context, self.state
            input_ids = (
                state.input_ids
                if seq_len == 1
                else _pumice.empty([batch, seq_len], self.decoder.decoder_recipe.input_ids_dtype, context)
            )
            logit_positions = (
                state.zero_positions
                if num_logits == 1 and seq_len == 1
                else _pumice.empty([batch, num_logits], "int64", context)
            )
            logits = state.logits
            if num_logits > 1 and sampling_mode:
                logits = state.get_positions_state(num_logits).position_logits
            elif num_logits > 1:
                logits = _pumice.empty([batch, num_logits, self.decoder.vocab_size], self.decoder.logits_dtype, context)
            recorded = self.decoder.record_run(self.caches, state, (input_ids, logit_positions), logits, sampling_mode)
            if recorded.arena is not None:
                self._drop_stale_runs(recorded.arena)
            if (
                logit_positions is not state.zero_positions
            ):  # upload before storing the run, so that an error leaves no incomplete one
                logit_positions.upload(np.tile(np.arange(num_logits, dtype=np.int64), (batch, 1)))
            self._recorded[key] = DecoderRun(recorded, input_ids, logit_positions)
        return self._recorded[key]

    def _drop_stale_runs(self, arena: Buffer) -> None:
        """Drop recorded runs that use an older, smaller arena. They are recorded again when needed."""
        stale = [key for key, run in self._recorded.items() if run.recorded.arena not in (None, arena)]
        for key in stale:
            del self._recorded[key]

    def prefill(self) -> int:
        """Process all tokens that are not in the caches yet, and compute the logits after the last token of each text on the device.

        Return the number of tokens processed.
        """
        lengths = [len(tokens) for tokens in self.tokens]
        caches = self.ensure_capacity(max(lengths))
        num_prefilled = sum(length - cached for length, cached in zip(lengths, self.cached, strict=True))
        while True:
            pending = max(length - cached for length, cached in zip(lengths, self.cached, strict=True))
            chunk = choose_prefill_chunk(max(pending, 1), caches.capacity)
            self._prefill_chunk(chunk, lengths)
            if self.cached == lengths and pending <= chunk:
                break
        self.state.past.upload(np.array(lengths, np.int64))
        return num_prefilled

    def _prefill_with_headroom(self, headroom: int) -> int:
        """Prefill with cache capacity for up to `headroom` further tokens, at most _MAX_EXTRA_CAPACITY. The caches may still grow later."""
        longest = max(map(len, self.tokens))
        needed = longest + min(headroom, _MAX_EXTRA_CAPACITY)
        self.ensure_capacity(needed if self.context_length is None else max(min(needed, self.context_length), longest))
        return self.prefill()

    def _prefill_chunk(self, chunk: int, lengths: list[int]) -> None:
        """Run a prefill chunk: the next `chunk` tokens of each text, or its last `chunk` tokens if fewer remain."""
        starts = [min(cached, max(length - chunk, 0)) for cached, length in zip(self.cached, lengths, strict=True)]
        pairs = zip(self.tokens, starts, strict=True)
        input_ids = np.stack([self._pad_input_ids(tokens[start : start + chunk], chunk) for tokens, start in pairs])
        if self._rows_finite:
            self._rows_finite = None
        last = [min(length - 1 - start, chunk - 1) for length, start in zip(lengths, starts, strict=True)]
        run = self._get_run(chunk, 1, None)
        if run.logit_positions is not self.state.zero_positions:
            run.logit_positions.upload(np.array(last, np.int64)[:, None])
        self._submit_run(run, input_ids, starts)
        self.cached = [min(start + chunk, length) for start, length in zip(starts, lengths, strict=True)]

    def _pad_input_ids(self, tokens: Sequence[int], length: int) -> Array:
        """Return the tokens as input_ids, padded with copies of the last one: the keys of any other token might not be finite."""
        padded = np.zeros(length, self.decoder.decoder_recipe.input_ids_dtype)
        padded[: len(tokens)] = tokens
        padded[len(tokens) :] = tokens[-1:] or 0
        return padded

    def _submit_run(self, run: DecoderRun, input_ids: Array, starts: Sequence[int]) -> Submission:
        """Submit a run of these input_ids. starts: cache lengths before the run."""
        run.input_ids.upload(input_ids)
        self.state.past.upload(np.array(starts, np.int64))
        return run.recorded.run()

    def compute_all_logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits after each of these tokens, [tokens, vocab_size]. The batch must have one text, which must be empty."""
        caches = self.ensure_capacity(len(tokens))
        chunk = choose_prefill_chunk(len(tokens), caches.capacity)
        logits = np.empty((len(tokens), self.decoder.vocab_size), self.state.logits.desc.dtype)
        for begin in range(0, len(tokens), chunk):
            start = min(begin, max(len(tokens) - chunk, 0))
            chunk_tokens = tokens[start : start + chunk]
            run = self._get_run(chunk, chunk, None)
            self._submit_run(run, self._pad_input_ids(chunk_tokens, chunk)[None], [start])
            logits[start : start + len(chunk_tokens)] = run.recorded.logits.numpy()[0, : len(chunk_tokens)]
        return logits

    def logits(self) -> Array:
        """Return the logits of the last run, [batch, vocab_size]."""
        return np.asarray(self.state.logits.numpy()[:, 0])

    # ---- token generation

    def generate(
        self, sampling_params: Sequence[SamplingParams], max_tokens: int, token_bitmask: Array | None = None
    ) -> Iterator[list[int]]:
        """Generate up to `max_tokens` tokens per text. Yield the tokens of each step, while the device is a few steps ahead.

        The caller must pass each token to `append_token`. token_bitmask: see make_token_bitmask; None: compute it if needed. Raise
        Error if all logits of a text are NaN or infinite.
        """
        began = time.perf_counter()
        yield from self._yield_timed_steps(
            began,
            self._prefill_with_headroom(max_tokens),
            self._yield_sampling_steps(sampling_params, max_tokens, token_bitmask),
        )

    def _yield_timed_steps(self, began: float, num_prefilled: int, steps: Iterator[list[int]]) -> Iterator[list[int]]:
        """Yield the tokens of each step and update `timing`. Raise StateError if the texts have been changed by another stream."""
        self.revision += 1
        self._num_runs = None
        revision, first_seconds = self.revision, 0.0
        for number, tokens in enumerate(steps):
            now = time.perf_counter() - began
            first_seconds = first_seconds or now
            self.timing = Timing(
                num_prefilled, first_seconds, number + 1, now, number if self._num_runs is None else self._num_runs
            )
            yield tokens
            if revision != self.revision:
                raise StateError("this session has continued with another text since this stream began")

    def _yield_sampling_steps(
        self, sampling_params: Sequence[SamplingParams], max_tokens: int, token_bitmask: Array | None
    ) -> Iterator[list[int]]:
        prompt_lengths = [len(tokens) for tokens in self.tokens]
        submissions: dict[int, Submission] = {}
        self._upload_sampling_params(sampling_params, prompt_lengths, token_bitmask)
        for step in range(max_tokens):
            while len(submissions) < _STEPS_IN_FLIGHT and step + len(submissions) < max_tokens:
                number = step + len(submissions)
                if number > 0 and not self._has_capacity(max(prompt_lengths) + number) and submissions:
                    break  # runs in flight must finish before the caches grow
                submissions[number] = self._submit_step(
                    number, max(prompt_lengths) + number, min(max_tokens - number, max(prompt_lengths) + number)
                )
            submissions.pop(step).wait()
            tokens = [int(token) for token in self.state.sampled_tokens[step % RING_SLOTS]]
            for index, token in enumerate(tokens):
                self._check_sampled_token(index, token)
            yield tokens

    def _check_sampled_token(self, index: int, token: int) -> None:
        self._rows_finite = token != _NO_TOKEN and self._rows_finite is not False
        if token == _NO_TOKEN:
            raise Error(f"{self._label or f'text {index}'}: expected a finite number among the logits, given none")

    def append_token(self, index: int, token: int) -> None:
        """Append a generated token to a text. All tokens before it are in the caches."""
        self.cached[index] = len(self.tokens[index])
        self.tokens[index].append(token)

    def _upload_sampling_params(
        self, sampling_params: Sequence[SamplingParams], prompt_lengths: Sequence[int], token_bitmask: Array | None
    ) -> None:
        self.state.sampling_params.upload(pack_sampling_params(sampling_params, prompt_lengths))
        self._sampling_mode = "random" if any(params.temperature > 0 for params in sampling_params) else "greedy"
        if any(params.penalty != 1 for params in sampling_params):
            self.state.token_bitmask.upload(
                make_token_bitmask(self.tokens, self.decoder.vocab_size) if token_bitmask is None else token_bitmask
            )

    def _has_capacity(self, length: int) -> bool:
        return self.caches is not None and self.caches.users == 1 and self.caches.capacity >= length

    def _submit_step(self, number: int, length: int, headroom: int) -> Submission:
        """Submit step `number`, which needs `length` cache rows. headroom: number of further rows to allocate if the caches must grow."""
        if number == 0:
            if self._sampling_mode not in self._sampling_commands:
                self._sampling_commands[self._sampling_mode] = self.decoder.record_sampling(
                    self.state, self._sampling_mode
                )
            return self._sampling_commands[self._sampling_mode].exec()
        self._ensure_rows(length, headroom)
        return self._get_run(1, 1, self._sampling_mode).recorded.run()

    def _ensure_rows(self, length: int, headroom: int) -> None:
        """Ensure a cache capacity of `length` rows. If the caches must grow, allocate `headroom` further rows."""
        if not self._has_capacity(length):
            target = length + headroom
            self.ensure_capacity(
                target if self.context_length is None else max(min(target, self.context_length), length)
            )

    def generate_speculative(
        self, params: SamplingParams, max_tokens: int, proposer: DraftProposer, num_draft_tokens: int
    ) -> Iterator[list[int]]:
        """Generate tokens of one text like `generate`, but verify up to `num_draft_tokens` draft tokens per run.

        A draft token is accepted if it equals the sampled token, which depends only on the seed, the position and the text.
        """
        began = time.perf_counter()
        yield from self._yield_timed_steps(
            began,
            self._prefill_with_headroom(max_tokens),
            self._yield_speculative_steps(params, max_tokens, proposer, num_draft_tokens),
        )

    def _yield_speculative_steps(
        self, params: SamplingParams, max_tokens: int, proposer: DraftProposer, num_draft_tokens: int
    ) -> Iterator[list[int]]:
        prompt_length, num_generated = len(self.tokens[0]), 0
        if max_tokens <= 0:
            return
        token_bitmask = None if params.penalty == 1 else TokenBitmask(self.tokens[0], self.decoder.vocab_size)
        self._upload_sampling_params(
            [params],
            [prompt_length],
            None if token_bitmask is None else token_bitmask.make_bitmasks(self.tokens[0], [], 1),
        )
        positions_state = self.state.get_positions_state(num_draft_tokens + 1)
        positions_state.sampling_params.upload(
            pack_sampling_params([params] * (num_draft_tokens + 1), [prompt_length] * (num_draft_tokens + 1))
        )
        self._num_runs = 0
        self._submit_step(0, prompt_length, max_tokens).wait()
        accepted = [int(self.state.sampled_tokens[0, 0])]
        while True:
            for token in accepted:
                self._check_sampled_token(0, token)
                yield [token]
                num_generated += 1
                if num_generated >= max_tokens:
                    return
            tokens = self.tokens[0]
            draft_tokens = (
                proposer.propose(tokens, min(num_draft_tokens, max_tokens - num_generated - 1))
                if max_tokens - num_generated > 1
                else []
            )
            accepted = self._verify_draft(
                token_bitmask, draft_tokens, num_draft_tokens, prompt_length, max_tokens - num_generated
            )
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
        self._ensure_rows(count - 1 + seq_len, headroom)
        run, positions_state = (
            self._get_run(seq_len, seq_len, self._sampling_mode),
            self.state.get_positions_state(seq_len),
        )
        input_ids = self._pad_input_ids([tokens[-1], *draft_tokens[: seq_len - 1]], seq_len)[None]
        if has_draft:
            positions_state.past.upload(np.arange(count - 1, count - 1 + seq_len, dtype=np.int64))
        if token_bitmask is not None:
            positions_state.token_bitmask.upload(token_bitmask.make_bitmasks(tokens, draft_tokens, seq_len))
        self._submit_run(run, input_ids, [count - 1]).wait()
        sampled = [
            int(positions_state.sampled_tokens[(count + i - prompt_length) % RING_SLOTS, i]) for i in range(seq_len)
        ]
        num_accepted = 0
        while num_accepted < len(draft_tokens) and has_draft and sampled[num_accepted] == draft_tokens[num_accepted]:
            num_accepted += 1
        if has_draft and sampled[num_accepted] == _NO_TOKEN:  # retry without draft tokens, which may have caused this
            return self._verify_draft(token_bitmask, [], num_draft_tokens, prompt_length, headroom)
        return sampled[: num_accepted + 1]

    def generate_with_callback(self, choose: ChooseToken, max_tokens: int) -> Iterator[list[int]]:
        """Generate tokens like `generate`, but choose each by calling `choose` with the logits and the tokens so far."""
        began = time.perf_counter()
        yield from self._yield_timed_steps(
            began, self._prefill_with_headroom(max_tokens), self._yield_callback_steps(choose, max_tokens)
        )

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
