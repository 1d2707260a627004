"""Makes self-contained HTML documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ....base.printable_text import shorten_and_escape
from .html_markup import Markup, element

_FOLDER = Path(__file__).parent
_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def read_view_file(name: str) -> str:
    """Return the text of a file in this folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def make_document(title: str, body: Sequence[Markup]) -> str:
    """Wrap a page's body in a document with the style sheet; its content security policy forbids loading anything."""
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_CONTENT_SECURITY_POLICY),
        element("title", shorten_and_escape(title)),
        element("style", Markup(read_view_file("style.css"))),
    ]
    html = element("html", element("head", *head), element("body", *body), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"
