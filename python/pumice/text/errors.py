"""Errors for invalid model folders, and for texts beyond the model's context length."""

from __future__ import annotations

from ..base.deprecation import make_deprecated_attribute
from ..base.errors import InputError


class FolderError(InputError):
    """Raised if a model folder is incomplete or has unexpected contents. `file` names the file, `field` the entry in
    it.
    """

    def __init__(self, file: str, field: str, message: str) -> None:
        super().__init__(f"{file}: {field}: {message}" if field else f"{file}: {message}")
        self.file = file
        self.field = field


class ContextError(InputError):
    """Raised if a prompt and the text so far exceed the model's context. `tokens`: their length; `context_length`: the
    limit.
    """

    def __init__(self, message: str, tokens: int, context_length: int) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.context_length = context_length

    most = make_deprecated_attribute("text.ContextError.most")
