"""Make untrusted text safe to display. Names in a model file may contain escape sequences or line breaks, or be very long."""

from __future__ import annotations

MAX_NAME_CHARS = 120  # maximum characters of a name in a line or a table cell
MAX_SENTENCE_CHARS = 2000  # maximum characters of a sentence that contains names
# Control characters move a terminal's cursor, format characters change the text direction, surrogates cannot be encoded, and private-use
# characters have no glyph. They are escaped as in Python.
_ESCAPED_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def shorten_and_escape(text: object, max_chars: int = MAX_NAME_CHARS) -> str:
    r"""Return the text on one line with unprintable characters escaped ("\n", "\x1b").

    If the text is longer than `max_chars`, its middle is replaced by the number of omitted characters.
    """
    string = str(text)
    if len(string) > max_chars:
        tail = max_chars // 3
        head = max_chars - tail
        string = f"{string[:head]}...({len(string) - head - tail} more)...{string[-tail:]}"
    return escape_unprintable(string)


def escape_unprintable(text: object, lines: bool = False) -> str:
    r"""Return the whole text with unprintable characters escaped ("\x1b", "\u202e"). lines: keep line breaks and tabs."""
    string = str(text)
    if string.isprintable() and string.isascii():
        return string
    if lines:
        return "\n".join("\t".join(map(escape_unprintable, line.split("\t"))) for line in string.split("\n"))
    import unicodedata  # imported here, because it is rarely needed and loads large tables

    return "".join(_escape(c) if unicodedata.category(c) in _ESCAPED_CATEGORIES else c for c in string)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def quote_shell_word(text: str) -> str:
    r"""Quote a word for bash, zsh and ksh if necessary, with unprintable characters as in $'\x1b'."""
    import shlex

    escaped = escape_unprintable(text)
    if escaped == text:
        return shlex.quote(text)
    return f"$'{''.join(map(_escape_in_ansi_quotes, text))}'"


def _escape_in_ansi_quotes(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    escaped = escape_unprintable(character)
    return (
        f"\\u00{escaped[2:]}" if escaped.startswith("\\x") and not character.isascii() else escaped
    )  # in a shell, \x escapes a byte and \u a character
