"""Make untrusted text safe to display: names in a model file may have escape sequences, line breaks, or 10,000 characters."""

from __future__ import annotations

SHORT = 120  # maximum characters of a name in a line or a table cell
LONG = 2000  # maximum characters of a sentence that contains names
# Control characters move a terminal's cursor, format characters change the text direction, surrogates cannot be encoded, and private-use
# characters have no glyph. They are escaped as in Python.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def plain(text: object, most: int = SHORT) -> str:
    r"""Return the text on one line of visible characters, at most about `most` of them. Hidden characters are escaped ("\n", "\x1b"); the
    middle of longer text is replaced by its length.
    """
    given = str(text)
    if len(given) > most:
        tail = most // 3
        head = most - tail
        given = f"{given[:head]}...({len(given) - head - tail} more)...{given[-tail:]}"
    return printable(given)


def printable(text: object, lines: bool = False) -> str:
    r"""Return the whole text with hidden characters escaped ("\x1b", "\u202e"). lines: keep line breaks and tabs."""
    given = str(text)
    if given.isprintable() and given.isascii():
        return given
    if lines:
        return "\n".join("\t".join(map(printable, line.split("\t"))) for line in given.split("\n"))
    import unicodedata  # deferred: rarely needed, and it loads large tables

    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in given)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shell_word(text: str) -> str:
    r"""Quote a word for bash, zsh and ksh if necessary, with hidden characters as $'\x1b'."""
    import shlex

    shown = printable(text)
    if shown == text:
        return shlex.quote(text)
    return f"$'{''.join(map(_in_quotes, text))}'"


def _in_quotes(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    shown = printable(character)
    return (
        f"\\u00{shown[2:]}" if shown.startswith("\\x") and not character.isascii() else shown
    )  # in a shell, \x is a byte, not a character
