"""Render chat messages as a prompt with the folder's Jinja chat template."""

from __future__ import annotations

import contextvars
import datetime
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .._pumice import Error
from ..base.errors import InputError
from .errors import FolderError
from .model_folder import Folder, Settings

_TOKENIZER, _TEMPLATE, _FIELD = "tokenizer_config.json", "chat_template.jinja", "chat_template"
_DEFAULT, _TOOL_USE = "default", "tool_use"  # template names
_MOST_BYTES = 1 << 20  # maximum template size

Message = Mapping[str, Any]


class ChatTemplate:
    """The chat template and special tokens of a folder.
    The template is read from chat_template.jinja, or from the field chat_template of tokenizer_config.json, which may hold several named
    templates: "tool_use" is used for calls with tools, "default" otherwise. Without either, prompt_templates of genai_config.json is used.
    Raise FolderError if the folder has no template or an invalid one.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        has_settings = os.path.lexists(os.path.join(folder.path, _TOKENIZER))
        settings = Settings(folder.path, _TOKENIZER) if has_settings else None
        self._special = _special_tokens(settings)
        self._file = _TEMPLATE if os.path.lexists(os.path.join(folder.path, _TEMPLATE)) else _TOKENIZER
        sources = {_DEFAULT: _source(folder.path)} if self._file == _TEMPLATE else _named_sources(settings)
        self._templates = {name: self._compiled(source) for name, source in sources.items()}
        if not sources and not folder.templates:
            what = f"expected a chat template here, in {_TEMPLATE} or as prompt_templates, given none"
            raise FolderError(_TOKENIZER, _FIELD, what)

    def _compiled(self, source: str) -> Any:
        try:
            from . import sandbox
        except ImportError as error:
            raise InputError(f"chat templates need the package jinja2 (pip install 'pumice[text]'): {error}") from None
        environment = sandbox.LimitedEnvironment({"tojson": _as_json})
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        try:
            return environment.from_string(source)
        except Exception as error:  # Jinja errors, or errors of Python's compiler such as too many nested blocks
            what = f"expected a template in Jinja: {type(error).__name__}: {error}"
            raise FolderError(self._file, _FIELD, what) from None

    def text(self, messages: Sequence[Message], answer: bool, variables: Mapping[str, Any]) -> str:
        """Render the messages as a prompt; answer: append the start of the assistant's turn.
        Raise InputError for invalid messages or messages that the template rejects, FolderError if the template fails.
        """
        checked = _checked(messages)
        if not self._templates:
            return self._by_roles(checked)
        from . import sandbox

        # Always defined, as in transformers, so that a template can test for tools or documents without `is defined`.
        absent = {"tools": None, "documents": None}
        given = {**absent, **self._special, **variables, "messages": checked, "add_generation_prompt": answer}
        try:
            return contextvars.copy_context().run(self._rendered, given)
        except Error:
            raise
        except sandbox.LimitError as error:
            raise FolderError(self._file, _FIELD, f"the template is beyond a limit: {error}") from None
        except Exception as error:  # template code can raise anything
            raise FolderError(self._file, _FIELD, f"the template failed: {type(error).__name__}: {error}") from None

    def _rendered(self, given: Mapping[str, Any]) -> str:
        from . import sandbox

        name = _TOOL_USE if given["tools"] is not None and _TOOL_USE in self._templates else _DEFAULT
        sandbox.start()
        parts, count = [], 0
        for part in self._templates[name].generate(**given):
            count += len(part)
            sandbox.check_size(count)
            parts.append(part)
        return "".join(parts)

    def _by_roles(self, messages: Sequence[Message]) -> str:
        """Render the messages with prompt_templates: one template per role, with {Content} as the placeholder."""
        templates = self._folder.templates
        for message in messages:
            if message["role"] not in templates:
                what = f"expected a role among {', '.join(sorted(templates))} (prompt_templates)"
                raise InputError(f"messages: {what}, given {message['role']!r:.100}")
        return "".join(templates[one["role"]].replace("{Content}", str(one.get("content", ""))) for one in messages)


def _checked(messages: Sequence[Message]) -> list[dict[str, Any]]:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise InputError(f"messages: expected a list of messages with 'role' and 'content', given {messages!r:.100}")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(f"messages: expected a message with a text as its 'role', given {message!r:.100}")
    return [dict(message) for message in messages]


def _source(path: str) -> str:
    file_path = os.path.join(path, _TEMPLATE)
    try:
        if (size := os.path.getsize(file_path)) > _MOST_BYTES:
            raise FolderError(_TEMPLATE, "", f"expected at most {_MOST_BYTES} bytes, given {size}")
        with open(file_path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise FolderError(_TEMPLATE, "", f"expected a template as text: {error}") from None


def _named_sources(settings: Settings | None) -> dict[str, str]:
    """Return the templates in the settings by name; a single unnamed template is named "default"."""
    value = None if settings is None else settings.values.get(_FIELD)
    if value is None:
        return {}
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        found = {name: text for name in (_DEFAULT, _TOOL_USE) if isinstance(text := named.get(name), str)}
        if _DEFAULT not in found:
            raise FolderError(_TOKENIZER, _FIELD, "expected a template named default among several, given none")
    elif isinstance(value, str):
        found = {_DEFAULT: value}
    else:
        raise FolderError(_TOKENIZER, _FIELD, f"expected a text, or a list of named templates, given {value!r:.100}")
    if (size := max(map(len, found.values()))) > _MOST_BYTES:
        raise FolderError(_TOKENIZER, _FIELD, f"expected at most {_MOST_BYTES} characters, given {size}")
    return found


def _special_tokens(settings: Settings | None) -> dict[str, str]:
    """Return the special tokens as strings; the file stores each token as a string or as an object with `content`."""
    found = {}
    for name, value in ({} if settings is None else settings.values).items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _as_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON in the format on which models were trained: without HTML escapes. The arguments are those of transformers' filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _refuse(message: object) -> NoReturn:
    raise InputError(f"messages: the model's chat template refuses them: {message!s:.500}")
