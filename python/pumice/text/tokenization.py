"""Tokenize and detokenize with the package `tokenizers`, also token by token."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError
from .errors import FolderError
from .model_folder import ModelFolder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_REPLACEMENT_CHAR = "\ufffd"  # the tokenizer's output for an incomplete character
_MAX_REASON_LENGTH = 500  # maximum length of the reason quoted in an error message
_WINDOW_TOKENS = 6  # maximum number of preceding tokens on which the text of a token may depend


def _load_tokenizer(folder: ModelFolder) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError(f"pumice.text needs the package tokenizers (pip install 'pumice[text]'): {error}") from None
    with _wrap_package_errors("expected a tokenizer of the package tokenizers"):
        return Tokenizer.from_file(folder.tokenizer)


@contextlib.contextmanager
def _wrap_package_errors(context: str) -> Iterator[None]:
    """Convert errors of the package to FolderError. It raises plain Exceptions, and BaseExceptions for panics in its Rust code."""
    try:
        yield
    except FolderError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # KeyboardInterrupt or SystemExit
        raise FolderError("tokenizer.json", "", f"{context}: {str(error)[:_MAX_REASON_LENGTH]}") from None


class FolderTokenizer:
    """The tokenizer of a model folder. Raise FolderError if it is invalid or lacks an EOS or BOS token of the settings."""

    def __init__(self, folder: ModelFolder) -> None:
        self._tokenizer: Any = _load_tokenizer(folder)
        with _wrap_package_errors("expected a vocabulary"):
            self.vocab_size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        named = {
            "eos_token_id": folder.eos_token_ids,
            "bos_token_id": () if folder.bos_token_id is None else (folder.bos_token_id,),
        }
        for field, tokens in named.items():
            for token in tokens:
                if self._tokenizer.id_to_token(token) is None:
                    raise FolderError(
                        folder.settings,
                        field,
                        f"token {token} is not in tokenizer.json's vocabulary of {self.vocab_size}",
                    )

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the token ids of a text. special: whether to add the tokenizer's special tokens."""
        with _wrap_package_errors(f"the tokenizer failed on a text of {len(text)} characters"):
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        with _wrap_package_errors(f"the tokenizer failed on {len(tokens)} tokens"):
            return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class StreamingDetokenizer:
    """Converts tokens to pieces of text with only complete characters.

    stop: strings that end the text. Text that may be the beginning of a stop string is withheld until that is ruled out.
    """

    def __init__(self, folder_tokenizer: FolderTokenizer, stop: Sequence[str] = ()) -> None:
        self._folder_tokenizer = folder_tokenizer
        self._stop = tuple(stop)
        self._token_ids: list[int] = []
        self._window_start = self._num_emitted = (
            0  # index of the first token of the decoding window; number of tokens whose text has been returned
        )
        self._withheld = ""
        self.stopped = False  # whether a stop string was found

    def add(self, token: int) -> str:
        """Add a token and return the text that is now final; "" while the last character is incomplete."""
        self._token_ids.append(token)
        before = self._folder_tokenizer.decode(self._token_ids[self._window_start : self._num_emitted])
        after = self._folder_tokenizer.decode(self._token_ids[self._window_start :])
        if after.endswith(_REPLACEMENT_CHAR) or len(after) <= len(before) or not after.startswith(before):
            return ""
        self._num_emitted = len(self._token_ids)
        self._advance_window()
        return self._split_at_stop(after[len(before) :])

    def _advance_window(self) -> None:
        """Move the start of the window forward if the remaining tokens decode to the same text without the earlier ones."""
        begin = max(self._num_emitted - _WINDOW_TOKENS, self._window_start)
        if begin == self._window_start:
            return
        whole, suffix = (
            self._folder_tokenizer.decode(self._token_ids[begin_index : self._num_emitted])
            for begin_index in (self._window_start, begin)
        )
        if whole.endswith(suffix):
            self._window_start = begin

    def flush(self) -> str:
        """Return the remaining text after the last token."""
        if self.stopped:
            return ""
        before = self._folder_tokenizer.decode(self._token_ids[self._window_start : self._num_emitted])
        after = self._folder_tokenizer.decode(self._token_ids[self._window_start :])
        last = self._split_at_stop(after[len(before) :].rstrip(_REPLACEMENT_CHAR))
        withheld, self._withheld = self._withheld, ""
        return last if self.stopped else last + withheld

    def _split_at_stop(self, text: str) -> str:
        """Return the withheld text plus `text`, cut at the first stop string, or before an ending that may begin one."""
        text = self._withheld + text
        stop_positions = [index for index in (text.find(stop) for stop in self._stop) if index >= 0]
        if stop_positions:
            self.stopped, self._withheld = True, ""
            return text[: min(stop_positions)]
        num_withheld = max((_count_stop_prefix_chars(text, stop) for stop in self._stop), default=0)
        self._withheld = text[len(text) - num_withheld :]
        return text[: len(text) - num_withheld]


def _count_stop_prefix_chars(text: str, stop: str) -> int:
    """Return the length of the longest proper prefix of `stop` with which the text ends."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
