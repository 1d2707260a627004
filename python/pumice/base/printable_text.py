"""Make untrusted text safe to display: names in a model file may have escape sequences, line breaks, or 10,000 characters."""

from __future__ import annotations

MAX_NAME_CHARS = 120  # maximum characters of a name in a line or a table cell
MAX_SENTENCE_CHARS = 2000  # maximum characters of a sentence that contains names
# Control characters move a terminal's cursor, format characters change the text direction, surrogates cannot be encoded, and private-use
# characters have no glyph. They are escaped as in Python.
_ESCAPED_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def shorten_printable(text: object, max_chars: int = MAX_NAME_CHARS) -> str:
    r"""Return the text on one line of visible characters, at most about `max_chars` of them. Hidden characters are escaped ("\n", "\x1b");
    the middle of longer text is replaced by its length.
    """
    string = str(text)
    if len(string) > max_chars:
        tail = max_chars // 3
        head = max_chars - tail
        string = f"{string[:head]}...({len(string) - head - tail} more)...{string[-tail:]}"
    return printable(string)


def printable(text: object, lines: bool = False) -> str:
    r"""Return the whole text with hidden characters escaped ("\x1b", "\u202e"). lines: keep line breaks and tabs."""
    string = str(text)
    if string.isprintable() and string.isascii():
        return string
    if lines:
        return "\n".join("\t".join(map(printable, line.split("\t"))) for line in string.split("\n"))
    import unicodedata  # deferred: rarely needed, and it loads large tables

    return "".join(_escape(c) if unicodedata.category(c) in _ESCAPED_CATEGORIES else c for c in string)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def quote_shell_word(text: str) -> str:
    r"""Quote a word for bash, zsh and ksh if necessary, with hidden characters as $'\x1b'."""
    import shlex

    escaped = printable(text)
    if escaped == text:
        return shlex.quote(text)
    return f"$'{''.join(map(_escape_in_ansi_quotes, text))}'"


def _escape_in_ansi_quotes(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    escaped = printable(character)
    return (
        f"\\u00{escaped[2:]}" if escaped.startswith("\\x") and not character.isascii() else escaped
    )  # in a shell, \x is a byte, not a character
