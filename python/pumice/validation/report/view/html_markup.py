"""Builds HTML and SVG; all text is escaped, so names cannot become markup."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

from ....base.printable_text import shorten_and_escape

MAX_TEXT = 600  # maximum characters of a text on the page; records keep the full text
_EMPTY = ("br", "col", "input", "meta", "rect")


class Markup(str):
    """A string that is already markup and is not escaped again."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Return an HTML or SVG element. Children other than Markup are escaped, and control characters are made visible.

    In attribute names, a trailing "_" is dropped and other "_" become "-". None and False omit an attribute; True gives
    it no value.
    """
    attribute_text = "".join(_format_attribute(name, value) for name, value in attributes.items())
    if tag in _EMPTY:
        return Markup(f"<{tag}{attribute_text}/>")
    return Markup(f"<{tag}{attribute_text}>{concat_markup(children)}</{tag}>")


def concat_markup(children: Iterable[object]) -> Markup:
    """Concatenate children, skipping None."""
    return Markup("".join(_escape_child(child) for child in children if child is not None))


def make_svg_path(line: str, **attributes: object) -> Markup:
    """Return an SVG path. line: trusted path data of any length."""
    attribute_text = "".join(_format_attribute(name, value) for name, value in attributes.items())
    return Markup(f'<path d="{line}"{attribute_text}/>')


def make_data_island(name: str, data: Any) -> Markup:
    """Return a script element with JSON data, escaped so that the data cannot close the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def format_number(value: float | None, digits: int = 3) -> str:
    """Format a number with few digits; "" for None."""
    return "" if value is None else f"{value:.{digits}g}"


def _escape_child(child: object) -> str:
    return child if isinstance(child, Markup) else html.escape(shorten_and_escape(child, MAX_TEXT))


def _format_attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    key = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {key}"
    text = f"{value:.6g}" if isinstance(value, float) else shorten_and_escape(value, MAX_TEXT)
    return f' {key}="{html.escape(text)}"'
