"""Proposals of what a text goes on with, which the decoder then checks in one run: from the text itself, or by a smaller decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..base.errors import InputError
from .device import Choice, Device, Seen
from .rows import Rows

if TYPE_CHECKING:
    from .generator import Generator

NGRAM = "ngram"
MOST_WIDTH = 15  # tokens proposed at once: with the one before them they are as many rows as few-row kernels take
_GRAMS = (4, 3, 2)  # tokens that have to be there before, the longest first


class Proposer(Protocol):
    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """At most `count` tokens that may follow the text, which has only grown since the last call."""

    def close(self) -> None:
        """Gives back what the proposals took."""


class NGrams:
    """Proposes what has followed the last tokens of the text where they were there before, the last time."""

    def __init__(self) -> None:
        self._known = 1  # tokens whose stretches are noted, but for those at their end
        self._places: dict[tuple[int, ...], int] = {}  # of a stretch of tokens, where the token behind it is

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        self._note(tokens)
        for size in _GRAMS:
            place = self._places.get(tuple(tokens[-size:])) if len(tokens) >= size else None
            if place is not None:
                return list(tokens[place : place + count])
        return []

    def _note(self, tokens: Sequence[int]) -> None:
        """Notes the places of all stretches that have a token behind them."""
        for end in range(self._known, len(tokens)):
            for size in _GRAMS:
                if end >= size:
                    self._places[tuple(tokens[end - size : end])] = end
        self._known = len(tokens)

    def close(self) -> None:
        pass


class Draft:
    """Proposes what another decoder makes of the text, by the same choice of tokens."""

    def __init__(self, rows: Rows, choice: Choice) -> None:
        self._rows, self._choice = rows, choice
        self._known = 0  # tokens of the text, which the draft's own begins with
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
    """Raises InputError where no speculation that there is is asked for, or a width without one. is_draft: speculate is a Generator."""
    if speculate is None:
        if width is not None:
            raise InputError(f"width: expected it beside speculate alone, given {width!r:.100}")
        return
    if not is_draft and not (isinstance(speculate, str) and speculate == NGRAM):
        raise InputError(f"speculate: expected '{NGRAM}' or a Generator, given {speculate!r:.100}")


def check_decoder(speculate: Generator | str, device: Device) -> None:
    """Raises InputError for a draft that knows other words than the decoder, StateError for one that is closed."""
    if not isinstance(speculate, str) and speculate.device.words != device.words:
        raise InputError(
            f"speculate: expected a generator of {device.words} words, as the model has them, given one of {speculate.device.words}"
        )


def proposer_of(speculate: Generator | str, choice: Choice, device: Device) -> Proposer:
    """What makes the proposals for a decoder. Raises as check_decoder does."""
    check_decoder(speculate, device)
    if isinstance(speculate, str):
        return NGrams()
    return Draft(Rows(speculate.device, 1, speculate.context_length, "speculate: the draft"), choice)
