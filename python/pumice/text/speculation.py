"""Draft tokens for speculative decoding: from n-grams of the text (prompt lookup), or from a draft model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..base.errors import InputError
from .decode_state import DecodeState
from .decoder import Decoder, SamplingParams, TokenBitmask

if TYPE_CHECKING:
    from .generator import Generator

NGRAM = "ngram"
MAX_DRAFT_TOKENS = (
    15  # maximum draft tokens per run; with the last token, this is the row limit of the small-M GEMM kernels
)
_NGRAM_SIZES = (4, 3, 2)  # the longest match is used


class DraftProposer(Protocol):
    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """Return up to `count` draft tokens that may follow a text. Between calls, tokens are only appended to the text."""

    def close(self) -> None:
        """Release the proposer's resources."""


class NGramProposer:
    """Proposes the tokens that followed the most recent earlier occurrence of the text's last n-gram."""

    def __init__(self) -> None:
        self._num_indexed = 1  # all n-grams that end before this position are indexed
        self._next_positions: dict[tuple[int, ...], int] = {}  # n-gram -> position after its last occurrence

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        self._index_ngrams(tokens)
        for size in _NGRAM_SIZES:
            position = self._next_positions.get(tuple(tokens[-size:])) if len(tokens) >= size else None
            if position is not None:
                return list(tokens[position : position + count])
        return []

    def _index_ngrams(self, tokens: Sequence[int]) -> None:
        """Add the n-grams of new tokens to the index, except the last ones, which no token follows yet."""
        for end in range(self._num_indexed, len(tokens)):
            for size in _NGRAM_SIZES:
                if end >= size:
                    self._next_positions[tuple(tokens[end - size : end])] = end
        self._num_indexed = len(tokens)

    def close(self) -> None:
        pass


class DraftModelProposer:
    """Proposes a draft model's continuation, sampled with the same parameters."""

    def __init__(self, state: DecodeState, params: SamplingParams) -> None:
        self._state, self._params = state, params
        self._num_verified = 0  # how many tokens at the start of the draft model's text are verified
        self._token_bitmask = TokenBitmask([], state.decoder.vocab_size)

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        state = self._state
        draft_tokens, num_verified = state.tokens[0], self._num_verified
        verified = list(tokens[num_verified:])
        pairs = zip(draft_tokens[num_verified:], verified, strict=False)
        num_matching = next(
            (i for i, (drafted, expected) in enumerate(pairs) if drafted != expected),
            min(len(draft_tokens) - num_verified, len(verified)),
        )
        state.cached[0] = min(state.cached[0], num_verified + num_matching)
        draft_tokens[num_verified:] = verified
        self._num_verified = len(tokens)
        num_new = count if state.context_length is None else min(count, state.context_length - len(tokens))
        if num_new > 0:
            token_bitmask = None if self._params.penalty == 1 else self._token_bitmask.make_bitmasks(tokens, [], 1)
            for _ in state.generate([self._params], num_new, token_bitmask):
                pass
        return draft_tokens[len(tokens) :]

    def close(self) -> None:
        self._state.close()


def check_draft(speculate: Generator | str, device: Decoder) -> None:
    """Raise InputError if the draft's vocabulary size differs from the decoder's, StateError if the draft is closed."""
    if not isinstance(speculate, str) and speculate.decoder.vocab_size != device.vocab_size:
        raise InputError(
            f"speculate: expected a generator with {device.vocab_size} vocabulary entries, like the model, "
            f"given one of {speculate.decoder.vocab_size}"
        )


def make_proposer(speculate: Generator | str, params: SamplingParams, device: Decoder) -> DraftProposer:
    """Return the proposer of draft tokens for a decoder. Raise the errors of check_draft."""
    check_draft(speculate, device)
    if isinstance(speculate, str):
        return NGramProposer()
    state = DecodeState(speculate.decoder, 1, speculate.context_length, "speculate: the draft")
    return DraftModelProposer(state, params)
