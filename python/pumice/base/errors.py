"""Raise the engine's error classes from Python, with the same attributes as errors raised by the engine itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .._pumice import BindingError, Error, GraphError, UnsupportedError
from .printable_text import escape_unprintable

_E = TypeVar("_E", bound=Error)
_MAX_LINES = 50  # maximum unsupported items listed in a message; the error's `items` has all
_HEAD_CHARS, _TAIL_CHARS = 12 << 10, 4 << 10  # characters kept at the beginning and end of a longer message
_ITEM_CHARS = 1 << 10  # characters kept at the beginning and end of each listed item


def truncate_middle(text: str, head: int = _HEAD_CHARS, tail: int = _TAIL_CHARS) -> str:
    """Return the text; if it is longer than `head` + `tail` characters, replace the middle by the number of omitted characters.

    Names and values in messages may come from a file and be arbitrarily long.
    """
    if len(text) <= head + tail:
        return text
    omitted = len(text) - head - tail
    return f"{text[:head]} ... ({omitted} characters of this message are omitted) ... {text[-tail:]}"


class ValidationError(Error, AssertionError):
    """Raised if a node's result differs from the reference. `node` is its name; the message gives the deviation."""

    node: str = ""


class InputError(Error, ValueError):
    """Raised if an argument, an option or an input file is invalid."""

    def __init__(self, message: str = "") -> None:
        super().__init__(truncate_middle(escape_unprintable(message)))


class MultilineInputError(InputError):
    """An InputError with a multi-line message."""

    def __init__(self, message: str = "") -> None:
        Error.__init__(self, truncate_middle(escape_unprintable(message, lines=True)))


def _set_attributes(error: _E, **attributes: object) -> _E:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def binding_error(
    rule: str, name: str, expected: str, actual: str, hint: str = "", kind: str = "input"
) -> BindingError:
    """Return a BindingError for an invalid argument of a model or kernel. kind: "input", "argument" or another noun before `name`."""
    slot = f"{kind} '{name}'" if name else f"{kind}s"
    message = f"[{rule}] {slot}: expected {expected}; given {actual}{f' ({hint})' if hint else ''}"
    return _set_attributes(
        BindingError(truncate_middle(escape_unprintable(message))),
        rule=rule,
        slot=slot,
        tensor=name,
        expected=expected,
        given=actual,
    )


def graph_error(kind: str, name: str, message: str) -> GraphError:
    """Return a GraphError for an invalid model file. kind: "node", "tensor", "model" or another noun before `name`."""
    return _set_attributes(
        GraphError(truncate_middle(escape_unprintable(f"{kind} '{name}': {message}"))), node=name, rule=""
    )


def unsupported_error(subject: str, items: Iterable[str]) -> UnsupportedError:
    """Return an UnsupportedError that lists the unsupported items of `subject`."""
    all_items = list(items)
    lines = [truncate_middle(escape_unprintable(item), _ITEM_CHARS, _ITEM_CHARS) for item in all_items[:_MAX_LINES]] + (
        [f"... and {len(all_items) - _MAX_LINES} more"] if len(all_items) > _MAX_LINES else []
    )
    message = f"{escape_unprintable(subject)}: not supported ({len(all_items)}):" + "".join(
        f"\n  {line}" for line in lines
    )
    return _set_attributes(UnsupportedError(truncate_middle(message)), items=all_items)


def validation_error(node: str, message: str) -> ValidationError:
    """Return a ValidationError for a node whose result differs from the reference."""
    return _set_attributes(ValidationError(truncate_middle(escape_unprintable(message))), node=node)
