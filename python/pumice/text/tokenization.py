"""Tokenize and detokenize with the package `tokenizers`, including streaming detokenization."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError
from .errors import FolderError
from .model_folder import Folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_UNFINISHED = "\ufffd"  # decoded in place of an incomplete character
_LONGEST = 500  # maximum length of the reason quoted in an error message
_LOOK_BACK = 6  # number of preceding tokens on which a token's text may depend


def _tokenizer_of(folder: Folder) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError(f"pumice.text needs the package tokenizers (pip install 'pumice[text]'): {error}") from None
    with _checked("expected a tokenizer of the package tokenizers"):
        return Tokenizer.from_file(folder.tokenizer)


@contextlib.contextmanager
def _checked(what: str) -> Iterator[None]:
    """Raise FolderError in place of the package's errors, which are plain Exceptions, or BaseExceptions for a panic in its Rust code."""
    try:
        yield
    except FolderError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # KeyboardInterrupt or SystemExit
        raise FolderError("tokenizer.json", "", f"{what}: {str(error)[:_LONGEST]}") from None


class Tokens:
    """A folder's tokenizer. Raise FolderError if it is invalid or lacks the tokens that the settings name."""

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
        """Tokenize a text; special: add the tokenizer's special tokens."""
        with _checked(f"the tokenizer fails on a text of {len(text)} characters"):
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Detokenize, skipping special tokens."""
        with _checked(f"the tokenizer fails on {len(tokens)} tokens"):
            return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class Pieces:
    """A streaming detokenizer: pieces are whole characters and concatenate to the text.
    stop: strings that end the text; text that may be the beginning of a stop string is withheld until that is ruled out.
    """

    def __init__(self, tokens: Tokens, stop: Sequence[str] = ()) -> None:
        self._tokens = tokens
        self._stop = tuple(stop)
        self._all: list[int] = []
        self._begin = self._shown = 0  # start of the decoding window, and number of tokens whose text has been emitted
        self._held = ""
        self.stopped = False  # whether a stop string was found

    def add(self, token: int) -> str:
        """Add a token and return the text that is now final; "" if its last character is incomplete."""
        self._all.append(token)
        before = self._tokens.decode(self._all[self._begin : self._shown])
        after = self._tokens.decode(self._all[self._begin :])
        if after.endswith(_UNFINISHED) or len(after) <= len(before) or not after.startswith(before):
            return ""
        self._shown = len(self._all)
        self._trim()
        return self._passed(after[len(before) :])

    def _trim(self) -> None:
        """Advance the window to tokens whose text does not depend on earlier ones."""
        begin = max(self._shown - _LOOK_BACK, self._begin)
        if begin == self._begin:
            return
        whole, later = (self._tokens.decode(self._all[at : self._shown]) for at in (self._begin, begin))
        if whole.endswith(later):
            self._begin = begin

    def end(self) -> str:
        """Return the withheld text at the end of the tokens."""
        if self.stopped:
            return ""
        before = self._tokens.decode(self._all[self._begin : self._shown])
        after = self._tokens.decode(self._all[self._begin :])
        last = self._passed(after[len(before) :].rstrip(_UNFINISHED))
        held, self._held = self._held, ""
        return last if self.stopped else last + held

    def _passed(self, text: str) -> str:
        """Return the withheld and new text up to a stop string, or up to text that may begin one."""
        text = self._held + text
        found = [place for place in (text.find(stop) for stop in self._stop) if place >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of the text are a prefix of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
