"""Draft tokens for speculative decoding, from n-grams of the text or a draft model; the decoder verifies them in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..base.errors import InputError
from .decoder import Choice, Device, Seen
from .decoding_batch import Rows

if TYPE_CHECKING:
    from .generator import Generator

NGRAM = "ngram"
MOST_WIDTH = 15  # maximum draft tokens per run; with the last token, this is the row limit of the small-M GEMM kernels
_GRAMS = (4, 3, 2)  # n-gram lengths, longest first


class Proposer(Protocol):
    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """Return at most `count` draft tokens for a text that has only grown since the last call."""

    def close(self) -> None:
        """Release the proposer's resources."""


class NGrams:
    """Proposes the tokens that followed the most recent earlier occurrence of the text's last n-gram."""

    def __init__(self) -> None:
        self._known = 1  # n-grams that end before this position are indexed
        self._places: dict[tuple[int, ...], int] = {}  # n-gram -> position after its last occurrence

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        self._note(tokens)
        for size in _GRAMS:
            place = self._places.get(tuple(tokens[-size:])) if len(tokens) >= size else None
            if place is not None:
                return list(tokens[place : place + count])
        return []

    def _note(self, tokens: Sequence[int]) -> None:
        """Index all n-grams that are followed by a token."""
        for end in range(self._known, len(tokens)):
            for size in _GRAMS:
                if end >= size:
                    self._places[tuple(tokens[end - size : end])] = end
        self._known = len(tokens)

    def close(self) -> None:
        pass


class Draft:
    """Proposes a draft model's continuation, sampled with the same parameters."""

    def __init__(self, rows: Rows, choice: Choice) -> None:
        self._rows, self._choice = rows, choice
        self._known = 0  # number of verified tokens at the start of the draft's tokens
        self._seen = Seen([], rows.device.words)

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        rows = self._rows
        mine, known = rows.tokens[0], self._known
        new = list(tokens[known:])
        pairs = zip(mine[known:], new, strict=False)
        right = next((i for i, (own, given) in enumerate(pairs) if own != given), min(len(mine) - known, len(new)))
        rows.cached[0] = min(rows.cached[0], known + right)
        mine[known:] = new
        self._known = len(tokens)
        room = count if rows.context is None else min(count, rows.context - len(tokens))
        if room > 0:
            seen = None if self._choice.penalty == 1 else self._seen.rows(tokens, [], 1)
            for (token,) in rows.chosen([self._choice], room, seen):
                rows.keep(0, token)
        return mine[len(tokens) :]

    def close(self) -> None:
        self._rows.close()


def check_speculation(speculate: Any, width: Any, is_draft: bool) -> None:
    """Raise InputError for an invalid `speculate`, or if `width` is passed without it. is_draft: whether speculate is a Generator."""
    if speculate is None:
        if width is not None:
            raise InputError(f"width: expected it beside speculate alone, given {width!r:.100}")
        return
    if not is_draft and not (isinstance(speculate, str) and speculate == NGRAM):
        raise InputError(f"speculate: expected '{NGRAM}' or a Generator, given {speculate!r:.100}")


def check_decoder(speculate: Generator | str, device: Device) -> None:
    """Raise InputError if the draft's vocabulary size differs from the decoder's, StateError if the draft is closed."""
    if not isinstance(speculate, str) and speculate.device.words != device.words:
        raise InputError(
            f"speculate: expected a generator of {device.words} words, as the model has them, given one of {speculate.device.words}"
        )


def proposer_of(speculate: Generator | str, choice: Choice, device: Device) -> Proposer:
    """Return the source of draft tokens for a decoder. Raise the errors of check_decoder."""
    check_decoder(speculate, device)
    if isinstance(speculate, str):
        return NGrams()
    return Draft(Rows(speculate.device, 1, speculate.context_length, "speculate: the draft"), choice)
