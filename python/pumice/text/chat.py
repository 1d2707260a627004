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
from .model_folder import JsonSettings, ModelFolder

_TOKENIZER, _TEMPLATE, _FIELD = "tokenizer_config.json", "chat_template.jinja", "chat_template"
_DEFAULT, _TOOL_USE = "default", "tool_use"  # template names
_MAX_BYTES = 1 << 20  # maximum template size

Message = Mapping[str, Any]


class ChatTemplate:
    """The chat template and special tokens of a folder.

    The template is read from chat_template.jinja, else from the field chat_template of tokenizer_config.json, else from prompt_templates of
    genai_config.json. chat_template may contain several named templates: "tool_use" is used for calls with tools, "default" otherwise.
    Raise FolderError if the folder has no template or an invalid one.
    """

    def __init__(self, folder: ModelFolder) -> None:
        self._folder = folder
        has_settings = os.path.lexists(os.path.join(folder.path, _TOKENIZER))
        settings = JsonSettings(folder.path, _TOKENIZER) if has_settings else None
        self._special = _read_special_tokens(settings)
        self._file = _TEMPLATE if os.path.lexists(os.path.join(folder.path, _TEMPLATE)) else _TOKENIZER
        sources = (
            {_DEFAULT: _read_template_file(folder.path)} if self._file == _TEMPLATE else _read_named_templates(settings)
        )
        self._templates = {name: self._compile_template(source) for name, source in sources.items()}
        if not sources and not folder.templates:
            reason = f"expected a chat template here, in {_TEMPLATE} or as prompt_templates, given none"
            raise FolderError(_TOKENIZER, _FIELD, reason)

    def _compile_template(self, source: str) -> Any:
        try:
            from . import jinja_sandbox
        except ImportError as error:
            raise InputError(f"chat templates need the package jinja2 (pip install 'pumice[text]'): {error}") from None
        environment = jinja_sandbox.LimitedEnvironment({"tojson": _to_json})
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        try:
            return environment.from_string(source)
        except Exception as error:  # Jinja errors, or errors of Python's compiler such as too many nested blocks
            reason = f"expected a template in Jinja: {type(error).__name__}: {error}"
            raise FolderError(self._file, _FIELD, reason) from None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool, variables: Mapping[str, Any]) -> str:
        """Render the messages as a prompt; add_generation_prompt: append the start of the assistant's turn.
        Raise InputError for invalid messages or messages that the template rejects, FolderError if the template fails.
        """
        checked = _check_messages(messages)
        if not self._templates:
            return self._render_by_role(checked)
        from . import jinja_sandbox

        # Always define these, as transformers does: templates may test them without `is defined`.
        absent = {"tools": None, "documents": None}
        context = {
            **absent,
            **self._special,
            **variables,
            "messages": checked,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return contextvars.copy_context().run(self._render_template, context)
        except Error:
            raise
        except jinja_sandbox.RenderLimitError as error:
            raise FolderError(self._file, _FIELD, f"the template exceeds a limit: {error}") from None
        except Exception as error:  # template code can raise anything
            raise FolderError(self._file, _FIELD, f"the template failed: {type(error).__name__}: {error}") from None

    def _render_template(self, context: Mapping[str, Any]) -> str:
        from . import jinja_sandbox

        name = _TOOL_USE if context["tools"] is not None and _TOOL_USE in self._templates else _DEFAULT
        jinja_sandbox.start_budget()
        pieces, count = [], 0
        for piece in self._templates[name].generate(**context):
            count += len(piece)
            jinja_sandbox.check_size(count)
            pieces.append(piece)
        return "".join(pieces)

    def _render_by_role(self, messages: Sequence[Message]) -> str:
        """Render the messages with prompt_templates: one template per role, with {Content} as the placeholder."""
        templates = self._folder.templates
        for message in messages:
            if message["role"] not in templates:
                reason = f"expected a role among {', '.join(sorted(templates))} (prompt_templates)"
                raise InputError(f"messages: {reason}, given {message['role']!r:.100}")
        return "".join(
            templates[message["role"]].replace("{Content}", str(message.get("content", ""))) for message in messages
        )


def _check_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise InputError(f"messages: expected a list of messages with 'role' and 'content', given {messages!r:.100}")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(f"messages: expected a message with a text as its 'role', given {message!r:.100}")
    return [dict(message) for message in messages]


def _read_template_file(path: str) -> str:
    file_path = os.path.join(path, _TEMPLATE)
    try:
        if (size := os.path.getsize(file_path)) > _MAX_BYTES:
            raise FolderError(_TEMPLATE, "", f"expected at most {_MAX_BYTES} bytes, given {size}")
        with open(file_path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise FolderError(_TEMPLATE, "", f"expected a template as text: {error}") from None


def _read_named_templates(settings: JsonSettings | None) -> dict[str, str]:
    """Return template name -> source. A single unnamed template gets the name "default"."""
    value = None if settings is None else settings.values.get(_FIELD)
    if value is None:
        return {}
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        templates = {name: source for name in (_DEFAULT, _TOOL_USE) if isinstance(source := named.get(name), str)}
        if _DEFAULT not in templates:
            raise FolderError(_TOKENIZER, _FIELD, "expected one of several templates to be named default, given none")
    elif isinstance(value, str):
        templates = {_DEFAULT: value}
    else:
        raise FolderError(_TOKENIZER, _FIELD, f"expected a text, or a list of named templates, given {value!r:.100}")
    if (size := max(map(len, templates.values()))) > _MAX_BYTES:
        raise FolderError(_TOKENIZER, _FIELD, f"expected at most {_MAX_BYTES} characters, given {size}")
    return templates


def _read_special_tokens(settings: JsonSettings | None) -> dict[str, str]:
    """Return special token name -> text. The file stores a token as a string, or as an object with the field `content`."""
    special_tokens = {}
    for name, value in ({} if settings is None else settings.values).items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            special_tokens[name] = content
    return special_tokens


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without HTML escapes, as in the training data of models. The arguments are as in transformers' `tojson` filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(time_format: str) -> str:
    return datetime.datetime.now().strftime(time_format)


def _raise_exception(message: object) -> NoReturn:
    raise InputError(f"messages: the model's chat template rejects them: {message!s:.500}")
