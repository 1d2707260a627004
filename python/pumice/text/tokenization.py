"""Tokenize and detokenize with the package `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError
from .errors import FolderError
from .model_folder import ModelFolder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_REASON_LENGTH = 500  # maximum length of the reason quoted in an error message


def _load_tokenizer(folder: ModelFolder) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError(f"pumice.text needs the package tokenizers (pip install 'pumice[text]'): {error}") from None
    try:
        return Tokenizer.from_file(folder.tokenizer)
    except BaseException as error:
        raise convert_package_error(error, "expected a tokenizer of the package tokenizers") from None


def convert_package_error(error: BaseException, context: str) -> BaseException:
    """Return the FolderError for an error of the package. It raises plain Exceptions, and BaseExceptions for panics in its Rust code.

    KeyboardInterrupt and SystemExit are returned unchanged.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return error
    return FolderError("tokenizer.json", "", f"{context}: {str(error)[:_MAX_REASON_LENGTH]}")


class FolderTokenizer:
    """The tokenizer of a model folder. Raise FolderError if it is invalid or lacks an EOS or BOS token of the settings."""

    def __init__(self, folder: ModelFolder) -> None:
        self.tokenizer: Any = _load_tokenizer(folder)
        try:
            self.vocab_size: int = self.tokenizer.get_vocab_size(with_added_tokens=True)
        except BaseException as error:
            raise convert_package_error(error, "expected a vocabulary") from None
        named = {
            "eos_token_id": folder.eos_token_ids,
            "bos_token_id": () if folder.bos_token_id is None else (folder.bos_token_id,),
        }
        for field, tokens in named.items():
            for token in tokens:
                if self.tokenizer.id_to_token(token) is None:
                    raise FolderError(
                        folder.settings,
                        field,
                        f"token {token} is not in tokenizer.json's vocabulary of {self.vocab_size}",
                    )

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the token ids of a text. special: whether to add the tokenizer's special tokens."""
        try:
            return list(self.tokenizer.encode(text, add_special_tokens=special).ids)
        except BaseException as error:
            raise convert_package_error(error, f"the tokenizer failed on a text of {len(text)} characters") from None

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        try:
            return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))
        except BaseException as error:
            raise convert_package_error(error, f"the tokenizer failed on {len(tokens)} tokens") from None
