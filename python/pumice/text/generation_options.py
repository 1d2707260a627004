"""Options of text generation, and their validation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.deprecation import choose_renamed_argument
from ..base.errors import InputError
from .decode_state import ChooseToken
from .decoder import SamplingParams
from .speculation import MAX_DRAFT_TOKENS, NGRAM

if TYPE_CHECKING:
    from .generator import Generator

_MAX_SEED = 1 << 64
_DEFAULT_DRAFT_TOKENS = 3


class ValidatedOptions(NamedTuple):
    """Generation options after validation, with the sampling parameters of each text."""

    max_tokens: int
    sampling_params: list[SamplingParams]
    stop: tuple[str, ...]
    choose: ChooseToken | None
    speculate: Generator | str | None
    num_draft_tokens: int


def _check_number(name: str, value: Any, min_value: float, max_value: float, expected: str) -> float:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not min_value <= value <= max_value:  # NaN fails as well
        raise InputError(f"{name}: expected {expected}, given {value!r:.100}")
    return float(value)


def check_integer(name: str, value: Any, min_value: int, max_value: int, expected: str) -> int:
    """Return an integer argument as an int. Raise InputError if it is not an integer from `min_value` to `max_value`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not min_value <= value <= max_value:
        raise InputError(f"{name}: expected {expected}, given {value!r:.100}")
    return int(value)


@dataclass(frozen=True)
class GenerationOptions:
    """Generation options as the caller passes them; see Generator for their meaning."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | Sequence[int] | None = None
    stop: str | Sequence[str] = ()
    choose: ChooseToken | None = None
    speculate: Generator | str | None = None
    num_draft_tokens: int | None = None
    width: int | None = None  # the old name of num_draft_tokens

    def validate(self, batch: int, is_draft: bool) -> ValidatedOptions:
        """Return the validated options. batch: number of texts. is_draft: whether `speculate` is a Generator. Raise InputError."""
        max_tokens = check_integer("max_tokens", self.max_tokens, 1, 1 << 31, "a positive number of tokens")
        _check_number("temperature", self.temperature, 0, 1e6, "a non-negative number")
        if 0 < self.temperature < 1e-4:
            expected = "0 for the likeliest token, or at least 0.0001"
            raise InputError(f"temperature: expected {expected}, given {self.temperature!r}")
        top_k = check_integer("top_k", self.top_k, 0, 1 << 31, "a number of tokens, 0 for all")
        if not _check_number("top_p", self.top_p, 0, 1, "a probability above 0 and at most 1"):
            raise InputError("top_p: expected a probability above 0 and at most 1, given 0")
        _check_number("repetition_penalty", self.repetition_penalty, 1e-3, 1e3, "a number from 0.001 to 1000")
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if not all(isinstance(stop, str) and stop for stop in stops):
            raise InputError(f"stop: expected non-empty strings, given {self.stop!r:.100}")
        if self.choose is not None and not callable(self.choose):
            raise InputError(f"choose: expected a callable of logits and tokens, given {self.choose!r:.100}")
        num_draft_tokens = self._validate_speculation(is_draft)
        if self.speculate is not None and self.choose is not None:
            raise InputError(
                f"speculate: expected None if choose= is given, because choose is called for each token; given {self.speculate!r:.100}"
            )
        if self.speculate is not None and batch != 1:
            raise InputError(f"speculate: expected one text, given {batch}")
        params = SamplingParams(self.temperature, top_k, self.top_p, self.repetition_penalty)
        seeds = [_resolve_seed(seed) if self.temperature > 0 else 0 for seed in self._get_seed_per_prompt(batch)]
        sampling_params = [params._replace(seed=seed) for seed in seeds]
        return ValidatedOptions(max_tokens, sampling_params, stops, self.choose, self.speculate, num_draft_tokens)

    def _validate_speculation(self, is_draft: bool) -> int:
        """Return the maximum number of draft tokens per run."""
        count = self.num_draft_tokens
        if self.width is not None:
            count = choose_renamed_argument("text.Generator(width)", self.width, count, None)
        if self.speculate is None and count is not None:
            raise InputError(f"num_draft_tokens: expected only with speculate, given {count!r:.100}")
        is_ngram = isinstance(self.speculate, str) and self.speculate == NGRAM
        if self.speculate is not None and not is_draft and not is_ngram:
            raise InputError(f"speculate: expected '{NGRAM}' or a Generator, given {self.speculate!r:.100}")
        expected = f"a number of tokens from 1 to {MAX_DRAFT_TOKENS}"
        count = _DEFAULT_DRAFT_TOKENS if count is None else count
        return check_integer("num_draft_tokens", count, 1, MAX_DRAFT_TOKENS, expected)

    def _get_seed_per_prompt(self, batch: int) -> list[int | None]:
        if self.seed is None or isinstance(self.seed, int | np.integer):
            return [self.seed] * batch
        seeds: list[int | None] = [*self.seed]
        if len(seeds) != batch:
            expected = f"one for all texts, or one for each of {batch}"
            raise InputError(f"seed: expected {expected}, given {len(seeds)}")
        return seeds


def _resolve_seed(seed: int | None) -> int:
    if seed is None:
        return int.from_bytes(os.urandom(8), "little")
    return check_integer("seed", seed, 0, _MAX_SEED - 1, "a number from 0 to 2**64 - 1")
