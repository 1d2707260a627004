"""Raise the engine's error classes from Python, with the same attributes as errors raised by the engine itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .._pumice import BindingError, Error, GraphError, UnsupportedError
from .printable_text import printable

_E = TypeVar("_E", bound=Error)
_MOST_LINES = 50  # maximum lines in an error message; `items` has all of them
_HEAD, _TAIL = 12 << 10, 4 << 10  # characters kept at the beginning and end of a longer message
_LINE = 1 << 10  # characters kept at the beginning and end of each listed item


def bounded(text: str, head: int = _HEAD, tail: int = _TAIL) -> str:
    """Return the text, or its first `head` and last `tail` characters if it is longer than their sum.

    The number of omitted characters is inserted. Names and values in messages may come from a file and be arbitrarily long.
    """
    if len(text) <= head + tail:
        return text
    left_out = len(text) - head - tail
    return f"{text[:head]} ... ({left_out} characters of this message are left out) ... {text[-tail:]}"


class ValidationError(Error, AssertionError):
    """Raised if a node's result differs from the reference. `node` is its name; the message gives the deviation."""

    node: str = ""


class InputError(Error, ValueError):
    """Raised if an argument, an option or an input file is invalid."""

    def __init__(self, message: str = "") -> None:
        super().__init__(bounded(printable(message)))


class NotedError(InputError):
    """An InputError with a multi-line message."""

    def __init__(self, message: str = "") -> None:
        Error.__init__(self, bounded(printable(message, lines=True)))


def _with(error: _E, **attributes: object) -> _E:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def binding_error(rule: str, name: str, expected: str, given: str, hint: str = "", kind: str = "input") -> BindingError:
    """Return a BindingError for an invalid argument of a model or a kernel; `kind` describes `name`."""
    slot = f"{kind} '{name}'" if name else f"{kind}s"
    message = f"[{rule}] {slot}: expected {expected}; given {given}{f' ({hint})' if hint else ''}"
    return _with(
        BindingError(bounded(printable(message))), rule=rule, slot=slot, tensor=name, expected=expected, given=given
    )


def graph_error(kind: str, name: str, message: str) -> GraphError:
    """Return a GraphError for an invalid model file; `kind` describes `name`: a node, a tensor, the model."""
    return _with(GraphError(bounded(printable(f"{kind} '{name}': {message}"))), node=name, rule="")


def unsupported_error(what: str, items: Iterable[str]) -> UnsupportedError:
    """Return an UnsupportedError that lists everything in `what` that pumice lacks."""
    every = list(items)
    lines = [bounded(printable(item), _LINE, _LINE) for item in every[:_MOST_LINES]] + (
        [f"... and {len(every) - _MOST_LINES} more"] if len(every) > _MOST_LINES else []
    )
    message = f"{printable(what)}: not supported ({len(every)}):" + "".join(f"\n  {line}" for line in lines)
    return _with(UnsupportedError(bounded(message)), items=every)


def validation_error(node: str, message: str) -> ValidationError:
    """Return a ValidationError for a node whose result differs from the reference."""
    return _with(ValidationError(bounded(printable(message))), node=node)
