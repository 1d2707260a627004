"""Make text of others fit to be shown: names in a model's file may hold escape sequences, line breaks, or 10,000 characters."""

from __future__ import annotations

SHORT = 120  # characters of a name in a line or a cell
LONG = 2000  # characters of a sentence that names things
# Control characters move a terminal's cursor; format characters turn the direction of text; surrogates fit no encoding; private ones
# have no picture. Each is shown as Python writes it.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def plain(text: object, most: int = SHORT) -> str:
    r"""Return the text in one line of visible characters, at most about `most` of them: "\n", "\x1b" and the like are written out, and
    the middle of what is longer is left out, with its length in its place.
    """
    given = str(text)
    if len(given) > most:
        tail = most // 3
        head = most - tail
        given = f"{given[:head]}...({len(given) - head - tail} more)...{given[-tail:]}"
    return printable(given)


def printable(text: object, lines: bool = False) -> str:
    r"""Return the whole text with hidden characters written out ("\x1b", "\u202e"). lines: line breaks and tabs stay."""
    given = str(text)
    if given.isprintable() and given.isascii():
        return given
    if lines:
        return "\n".join("\t".join(map(printable, line.split("\t"))) for line in given.split("\n"))
    import unicodedata  # most text needs none of its tables

    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in given)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shell_word(text: str) -> str:
    r"""Return a word of a command line for bash, zsh and ksh: quoted if it has to be, and with hidden characters as $'\x1b'."""
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
    )  # \x is a byte, not a character
