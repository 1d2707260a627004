"""Text to tokens and back: the package `tokenizers`, and the text of tokens that come one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError
from .errors import FolderError
from .folder import Folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_UNFINISHED = "\ufffd"  # what a decoder gives for bytes that are no whole character (yet)
_LONGEST = 500  # characters of a reason
_LOOK_BACK = 6  # tokens before the new ones that their text may depend on


def _tokenizer_of(folder: Folder) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError(f"pumice.text needs the package tokenizers (pip install 'pumice[text]'): {error}") from None
    with _checked("expected a tokenizer of the package tokenizers"):
        return Tokenizer.from_file(folder.tokenizer)


@contextlib.contextmanager
def _checked(what: str) -> Iterator[None]:
    """Raises FolderError in place of what the package raises: Exception itself, and for a panic in its Rust code a BaseException."""
    try:
        yield
    except FolderError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # the user's interrupt, or the end of the process
        raise FolderError("tokenizer.json", "", f"{what}: {str(error)[:_LONGEST]}") from None


class Tokens:
    """A folder's tokenizer. Raises FolderError where it is none, or has not the tokens that the settings name."""

    def __init__(self, folder: Folder) -> None:
        self._tokenizer: Any = _tokenizer_of(folder)
        with _checked("expected a vocabulary"):
            self.words: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        named = {"eos_token_id": folder.ends, "bos_token_id": () if folder.begin is None else (folder.begin,)}
        for field, tokens in named.items():
            for token in tokens:
                if self._tokenizer.id_to_token(token) is None:
                    raise FolderError(folder.settings, field, f"token {token} is none of tokenizer.json's {self.words}")

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text; special: with those that the tokenizer adds at its ends."""
        with _checked(f"the tokenizer fails on a text of {len(text)} characters"):
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        with _checked(f"the tokenizer fails on {len(tokens)} tokens"):
            return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class Pieces:
    """The text of tokens that come one by one: each piece is whole characters, and all pieces together are the text.

    stop: texts that end it; what could be the beginning of one is held back until it is known not to be.
    """

    def __init__(self, tokens: Tokens, stop: Sequence[str] = ()) -> None:
        self._tokens = tokens
        self._stop = tuple(stop)
        self._all: list[int] = []
        self._begin = self._shown = 0  # tokens from which text is decoded, and whose text has been taken
        self._held = ""
        self.stopped = False  # whether a text of `stop` has come

    def add(self, token: int) -> str:
        """The text that is certain now: "" where a character is not yet whole."""
        self._all.append(token)
        before = self._tokens.decode(self._all[self._begin : self._shown])
        after = self._tokens.decode(self._all[self._begin :])
        if after.endswith(_UNFINISHED) or len(after) <= len(before) or not after.startswith(before):
            return ""
        self._shown = len(self._all)
        self._trim()
        return self._passed(after[len(before) :])

    def _trim(self) -> None:
        """Moves the beginning on, to tokens whose text does not depend on those before it."""
        begin = max(self._shown - _LOOK_BACK, self._begin)
        if begin == self._begin:
            return
        whole, later = (self._tokens.decode(self._all[at : self._shown]) for at in (self._begin, begin))
        if whole.endswith(later):
            self._begin = begin

    def end(self) -> str:
        """The text that was held back, when no more tokens come."""
        if self.stopped:
            return ""
        before = self._tokens.decode(self._all[self._begin : self._shown])
        after = self._tokens.decode(self._all[self._begin :])
        last = self._passed(after[len(before) :].rstrip(_UNFINISHED))
        held, self._held = self._held, ""
        return last if self.stopped else last + held

    def _passed(self, text: str) -> str:
        """The part of the held text and this one before a text of `stop`, and before what may become one."""
        text = self._held + text
        found = [place for place in (text.find(stop) for stop in self._stop) if place >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text are the beginning of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
