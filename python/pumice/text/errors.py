"""Errors of a folder, of a prompt, and of the room for one."""

from __future__ import annotations

from ..base.errors import InputError


class FolderError(InputError):
    """A model's folder lacks something or holds something else than is expected. `file` names the file, `field` what of it."""

    def __init__(self, file: str, field: str, message: str) -> None:
        super().__init__(f"{file}: {field}: {message}" if field else f"{file}: {message}")
        self.file = file
        self.field = field


class ContextError(InputError):
    """A prompt, with what has been said before, leaves no room in the model's context: `tokens` of them for `most`."""

    def __init__(self, message: str, tokens: int, most: int) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.most = most
