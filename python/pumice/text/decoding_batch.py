"""Decoding state of a batch: tokens, cache lengths and recorded steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import pumice._pumice as _pumice

from .._pumice import Buffer, CommandList, Error, StateError, Submission
from ..base.element_types import Array
from .decoder import SLOTS, Caches, Choice, Device, Recorded, Seen, Way, Words, bucket_of, seen_of, settings_of
from .errors import ContextError

if TYPE_CHECKING:
    from .speculation import Proposer

_AHEAD = 4  # decode steps submitted ahead of the step that the host reads
_LEAST_ROOM = 64
_FIRST_ROOM = 512  # maximum extra capacity allocated with a prompt
_NO_NUMBER = 0xFFFFFFFF  # sampling kernel's result if no logit is finite

Choose = Callable[[Array, list[int]], int]


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


class Prompt(NamedTuple):
    """A recorded prefill run, and its tensors for input_ids and requested positions."""

    recorded: Recorded
    ids: Any
    wanted: Any


class Rows:
    """The texts in a batch. `tokens`: all tokens of each text, of which the caches hold the first `cached`."""

    def __init__(self, device: Device, batch: int, context: int | None, said: str | None = None) -> None:
        self.device, self.context = device, context
        self._said = said  # what error messages call the text; None: its index
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        self.cached = [0] * batch
        self.words: Words = device.new_words(batch)
        self.caches: Caches | None = None
        self.timing = Timing(0, 0.0, 0, 0.0)
        self._recorded: dict[tuple[int, int, Way | None], Prompt] = {}
        self._choices: dict[Way, CommandList] = {}
        self._way: Way = "greedy"
        self._runs: int | None = None  # model runs in a speculative turn
        self.closed = False
        # Whether all cache rows are finite; None: unknown until the logits of the last run are checked.
        self._sound: bool | None = True
        self.turn = 0  # incremented when tokens change, so that older streams notice

    # ---- memory

    def close(self) -> None:
        """Release the caches."""
        self._release()
        self.closed = True
        self.turn += 1

    def _release(self) -> None:
        if self.caches is not None:
            self.caches.users -= 1
        self.caches = None
        self._recorded.clear()
        self.words.drop_arena()

    def forked(self) -> Rows:
        """Return a copy of the texts; the caches are shared until either continues."""
        made = Rows(self.device, len(self.tokens), self.context)
        made.tokens, made.cached = [list(one) for one in self.tokens], list(self.cached)
        if self.caches is not None:
            self.caches.users += 1
            made.caches = self.caches
            made._sound = self._is_sound()
        return made

    def take_back(self, kept: int) -> None:
        """Truncate the text in a batch of one to its first `kept` tokens, whose rows stay in the caches.

        Rows computed together with non-finite ones are recomputed: a row gives later ones zero weight, and zero times NaN is NaN. If the
        logits are finite, so are all rows, because each row attends to those before it.
        """
        del self.tokens[0][kept:]
        if kept >= self.cached[0]:
            return
        is_sound = self._is_sound()
        self.cached[0], self._sound = kept if is_sound else 0, True

    def _is_sound(self) -> bool:
        if self._sound is None:
            self._sound = not np.isnan(self.logits().astype(np.float32)).any()
        return self._sound

    def check_context(self, more: int) -> None:
        """Raise ContextError if a text plus `more` tokens exceeds the model's context."""
        longest = max(map(len, self.tokens))
        if self.context is not None and longest + more > self.context:
            what = f"{longest} tokens" if more == 0 else f"{longest} tokens and {more} more"
            raise ContextError(
                f"expected at most {self.context} tokens (the model's context), given {what}", longest, self.context
            )

    def make_room(self, rows: int) -> Caches:
        """Return exclusively owned caches of at least this capacity. Raise OutOfMemoryError, with unchanged state, if they do not fit."""
        caches = self.caches
        if caches is not None and caches.room >= rows and caches.users == 1:
            return caches
        room = max(_LEAST_ROOM, 1 << (rows - 1).bit_length())
        if self.context is not None:
            room = max(min(room, self.context), rows)
        if caches is None:
            made = self.device.new_caches(len(self.tokens), room)
        else:
            made = self.device.grown(caches, max(room, caches.room), max(self.cached))
        self._recorded.clear()
        self.caches = made  # set immediately, so that `cached` matches the caches even after an interruption
        if caches is not None:
            caches.users -= 1
        return made

    # ---- runs

    def _prompt(self, rows: int, wanted: int, choose: Way | None) -> Prompt:
        """Return the recorded run of `rows` tokens that computes the logits of `wanted` positions."""
        assert self.caches is not None
        key = rows, wanted, choose
        if key not in self._recorded:
            batch, context, words = len(self.tokens), self.device.context, self.words
            ids = words.ids if rows == 1 else _pumice.empty([batch, rows], self.device.roomy.words_dtype, context)
            places = words.first if wanted == 1 and rows == 1 else _pumice.empty([batch, wanted], "int64", context)
            logits = words.logits
            if wanted > 1 and choose:
                logits = words.chooser(wanted).row_logits
            elif wanted > 1:
                logits = _pumice.empty([batch, wanted, self.device.words], self.device.logits_dtype, context)
            recorded = self.device.record(self.caches, words, (ids, places), logits, choose)
            if recorded.arena is not None:
                self._drop_others(recorded.arena)
            if places is not words.first:  # upload before storing the recording, so that an error leaves no partial one
                places.upload(np.tile(np.arange(wanted, dtype=np.int64), (batch, 1)))
            self._recorded[key] = Prompt(recorded, ids, places)
        return self._recorded[key]

    def _drop_others(self, arena: Buffer) -> None:
        """Drop recordings that use another, smaller arena; they are recorded again when needed."""
        others = [key for key, one in self._recorded.items() if one.recorded.arena not in (None, arena)]
        for key in others:
            del self._recorded[key]

    def read(self) -> int:
        """Prefill the tokens missing from the caches; the logits after each text's last token are then on the device.

        Return the number of tokens processed.
        """
        lengths = [len(one) for one in self.tokens]
        caches = self.make_room(max(lengths))
        lacking = sum(length - cached for length, cached in zip(lengths, self.cached, strict=True))
        while True:
            pending = max(length - cached for length, cached in zip(lengths, self.cached, strict=True))
            rows = bucket_of(max(pending, 1), caches.room)
            self._read_chunk(rows, lengths)
            if self.cached == lengths and pending <= rows:
                break
        self.words.past.upload(np.array(lengths, np.int64))
        return lacking

    def _read_for(self, more: int) -> int:
        """Prefill the missing tokens, with cache capacity for about `more` further tokens; the caches may still grow later."""
        longest = max(map(len, self.tokens))
        rows = longest + min(more, _FIRST_ROOM)
        self.make_room(rows if self.context is None else max(min(rows, self.context), longest))
        return self.read()

    def _read_chunk(self, rows: int, lengths: list[int]) -> None:
        """Run `rows` tokens of each text: the next ones, or the last ones if fewer remain."""
        starts = [min(cached, max(length - rows, 0)) for cached, length in zip(self.cached, lengths, strict=True)]
        texts = zip(self.tokens, starts, strict=True)
        ids = np.stack([self._words_of(tokens[start : start + rows], rows) for tokens, start in texts])
        if self._sound:
            self._sound = None
        last = [min(length - 1 - start, rows - 1) for length, start in zip(lengths, starts, strict=True)]
        prompt = self._prompt(rows, 1, None)
        if prompt.wanted is not self.words.first:
            prompt.wanted.upload(np.array(last, np.int64)[:, None])
        self._run(prompt, ids, starts)
        self.cached = [min(start + rows, length) for start, length in zip(starts, lengths, strict=True)]

    def _words_of(self, tokens: Sequence[int], rows: int) -> Array:
        """Return the tokens as input_ids, padded by repeating the last one, because another token's keys might not be finite."""
        made = np.zeros(rows, self.device.roomy.words_dtype)
        made[: len(tokens)] = tokens
        made[len(tokens) :] = tokens[-1:] or 0
        return made

    def _run(self, prompt: Prompt, ids: Array, starts: Sequence[int]) -> Submission:
        """Run these input_ids; `starts` are the cache lengths before the run."""
        prompt.ids.upload(ids)
        self.words.past.upload(np.array(starts, np.int64))
        return prompt.recorded.run()

    def all_logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits after each token, [tokens, vocab_size]. Only for a batch of one without tokens."""
        caches = self.make_room(len(tokens))
        rows = bucket_of(len(tokens), caches.room)
        found = np.empty((len(tokens), self.device.words), self.words.logits.desc.dtype)
        for begin in range(0, len(tokens), rows):
            start = min(begin, max(len(tokens) - rows, 0))
            part = tokens[start : start + rows]
            prompt = self._prompt(rows, rows, None)
            self._run(prompt, self._words_of(part, rows)[None], [start])
            found[start : start + len(part)] = prompt.recorded.logits.numpy()[0, : len(part)]
        return found

    def logits(self) -> Array:
        """Return the logits of the last run, [batch, vocab_size]."""
        return np.asarray(self.words.logits.numpy()[:, 0])

    # ---- tokens

    def chosen(self, choices: Sequence[Choice], most: int, seen: Array | None = None) -> Iterator[list[int]]:
        """Generate at most `most` tokens per text; yield those of each step, a few steps behind the device.

        The caller adds tokens with `keep`. seen: token bitmask of the texts, if known. Raise Error if a text has no finite logit.
        """
        began = time.perf_counter()
        yield from self._timed(began, self._read_for(most), self._choosing(choices, most, seen))

    def _timed(self, began: float, lacking: int, steps: Iterator[list[int]]) -> Iterator[list[int]]:
        """Yield the tokens of each step and update `timing`. Raise StateError if the texts were changed elsewhere."""
        self.turn += 1
        self._runs = None
        turn, first_seconds = self.turn, 0.0
        for number, tokens in enumerate(steps):
            now = time.perf_counter() - began
            first_seconds = first_seconds or now
            self.timing = Timing(lacking, first_seconds, number + 1, now, number if self._runs is None else self._runs)
            yield tokens
            if turn != self.turn:
                raise StateError("this session has gone on with another text since this stream began")

    def _choosing(self, choices: Sequence[Choice], most: int, seen: Array | None) -> Iterator[list[int]]:
        firsts = [len(one) for one in self.tokens]
        submissions: dict[int, Submission] = {}
        self._begin_choices(choices, firsts, seen)
        for step in range(most):
            while len(submissions) < _AHEAD and step + len(submissions) < most:
                number = step + len(submissions)
                if number > 0 and not self._has_room(max(firsts) + number) and submissions:
                    break  # pending runs must finish before the caches grow
                submissions[number] = self._submit(
                    number, max(firsts) + number, min(most - number, max(firsts) + number)
                )
            submissions.pop(step).wait()
            tokens = [int(one) for one in self.words.numbers[step % SLOTS]]
            for text, token in enumerate(tokens):
                self._check_chosen(text, token)
            yield tokens

    def _check_chosen(self, text: int, token: int) -> None:
        self._sound = token != _NO_NUMBER and self._sound is not False
        if token == _NO_NUMBER:
            raise Error(f"{self._said or f'text {text}'}: expected a finite number among the logits, given none")

    def keep(self, text: int, token: int) -> None:
        """Append a generated token to a text; the caches hold all tokens before it."""
        self.cached[text] = len(self.tokens[text])
        self.tokens[text].append(token)

    def _begin_choices(self, choices: Sequence[Choice], firsts: Sequence[int], seen: Array | None) -> None:
        self.words.settings.upload(settings_of(choices, firsts))
        self._way = "drawn" if any(choice.temperature > 0 for choice in choices) else "greedy"
        if any(choice.penalty != 1 for choice in choices):
            self.words.seen.upload(seen_of(self.tokens, self.device.words) if seen is None else seen)

    def _has_room(self, rows: int) -> bool:
        return self.caches is not None and self.caches.users == 1 and self.caches.room >= rows

    def _submit(self, number: int, rows: int, more: int) -> Submission:
        """Submit step `number`, which needs caches of `rows` rows; `more`: extra steps to allocate for if they grow."""
        if number == 0:
            if self._way not in self._choices:
                self._choices[self._way] = self.device.record_choice(self.words, self._way)
            return self._choices[self._way].exec()
        self._room_for(rows, more)
        return self._prompt(1, 1, self._way).recorded.run()

    def _room_for(self, rows: int, more: int) -> None:
        """Grow the caches if they cannot hold `rows` rows; then also allocate for `more` rows."""
        if not self._has_room(rows):
            most = rows + more
            self.make_room(most if self.context is None else max(min(most, self.context), rows))

    def speculated(self, choice: Choice, most: int, proposer: Proposer, width: int) -> Iterator[list[int]]:
        """Generate tokens of one text like `chosen`, verifying up to `width` draft tokens per run.

        A draft token is accepted if it equals the sampled token, which depends only on the seed, the position and the text.
        """
        began = time.perf_counter()
        yield from self._timed(began, self._read_for(most), self._speculating(choice, most, proposer, width))

    def _speculating(self, choice: Choice, most: int, proposer: Proposer, width: int) -> Iterator[list[int]]:
        first, made = len(self.tokens[0]), 0
        if most <= 0:
            return
        seen = None if choice.penalty == 1 else Seen(self.tokens[0], self.device.words)
        self._begin_choices([choice], [first], None if seen is None else seen.rows(self.tokens[0], [], 1))
        chooser = self.words.chooser(width + 1)
        chooser.settings.upload(settings_of([choice] * (width + 1), [first] * (width + 1)))
        self._runs = 0
        self._submit(0, first, most).wait()
        found = [int(self.words.numbers[0, 0])]
        while True:
            for token in found:
                self._check_chosen(0, token)
                yield [token]
                made += 1
                if made >= most:
                    return
            tokens = self.tokens[0]
            proposed = proposer.propose(tokens, min(width, most - made - 1)) if most - made > 1 else []
            found = self._checked(seen, proposed, width, first, most - made)
            self._runs += 1

    def _checked(self, seen: Seen | None, proposed: list[int], width: int, first: int, more: int) -> list[int]:
        """Run the last token and the draft tokens; return the accepted tokens and the one sampled after them."""
        tokens, count = self.tokens[0], len(self.tokens[0])
        is_wide = bool(proposed) and (self.context is None or count + width <= self.context)
        rows = width + 1 if is_wide else 1
        self._room_for(count - 1 + rows, more)
        run, chooser = self._prompt(rows, rows, self._way), self.words.chooser(rows)
        ids = self._words_of([tokens[-1], *proposed[: rows - 1]], rows)[None]
        if is_wide:
            chooser.past.upload(np.arange(count - 1, count - 1 + rows, dtype=np.int64))
        if seen is not None:
            chooser.seen.upload(seen.rows(tokens, proposed, rows))
        self._run(run, ids, [count - 1]).wait()
        chosen = [int(chooser.numbers[(count + i - first) % SLOTS, i]) for i in range(rows)]
        right = 0
        while right < len(proposed) and is_wide and chosen[right] == proposed[right]:
            right += 1
        if is_wide and chosen[right] == _NO_NUMBER:  # a draft token may have caused the non-finite logits
            return self._checked(seen, [], width, first, more)
        return chosen[: right + 1]

    def called(self, choose: Choose, most: int) -> Iterator[list[int]]:
        """Generate tokens like `chosen`, each by calling `choose` with the logits and the tokens so far."""
        began = time.perf_counter()
        yield from self._timed(began, self._read_for(most), self._calling(choose, most))

    def _calling(self, choose: Choose, most: int) -> Iterator[list[int]]:
        for step in range(most):
            if step > 0:
                self.read()
            yield [self._called(choose, row, text) for row, text in zip(self.logits(), self.tokens, strict=True)]

    def _called(self, choose: Choose, logits: Array, tokens: list[int]) -> int:
        token = choose(logits, list(tokens))
        if isinstance(token, bool) or not isinstance(token, int | np.integer) or not 0 <= token < self.device.words:
            raise Error(f"choose: expected a token from 0 to {self.device.words - 1}, given {token!r:.100}")
        return int(token)
