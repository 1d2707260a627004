"""HTML and SVG whose texts are escaped where they are put in, so that no name can become markup."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

from ...base.plain_text import plain

TEXT = 600  # characters of a sentence on the page; records have all of it
_EMPTY = ("br", "col", "input", "meta", "rect")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """An element; children that are no Markup are escaped, and their control characters written out.

    Of attributes' names a trailing "_" is left out and other "_" stand for "-". None and False leave an attribute out; True gives it no
    value.
    """
    said = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _EMPTY:
        return Markup(f"<{tag}{said}/>")
    return Markup(f"<{tag}{said}>{joined(children)}</{tag}>")


def joined(children: Iterable[object]) -> Markup:
    """Children behind one another; None is left out."""
    return Markup("".join(_child(child) for child in children if child is not None))


def path(line: str, **attributes: object) -> Markup:
    """A path of SVG; `line` is numbers and commands of the caller's own making, of any length."""
    said = "".join(_attribute(name, value) for name, value in attributes.items())
    return Markup(f'<path d="{line}"{said}/>')


def data_island(name: str, data: Any) -> Markup:
    """Data for a script, in which nothing can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def number(value: float | None, digits: int = 3) -> str:
    """A number in few letters; "" for None."""
    return "" if value is None else f"{value:.{digits}g}"


def _child(child: object) -> str:
    return child if isinstance(child, Markup) else html.escape(plain(child, TEXT))


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    key = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {key}"
    text = f"{value:.6g}" if isinstance(value, float) else plain(value, TEXT)
    return f' {key}="{html.escape(text)}"'
