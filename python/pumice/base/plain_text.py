"""Text of others made fit to be shown: names in a model's file may hold escape sequences, line breaks, or 10,000 characters."""

from __future__ import annotations

import unicodedata

SHORT = 120  # characters of a name in a line or a cell
LONG = 2000  # characters of a sentence that names things
# Control characters move a terminal's cursor; format characters turn the direction of text; surrogates fit no encoding; private ones
# have no picture. Each is shown as Python writes it.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def plain(text: object, most: int = SHORT) -> str:
    r"""The text in one line of visible characters, at most about `most` of them: "\n", "\x1b" and the like are written out, and the
    middle of what is longer is left out, with its length in its place.
    """
    given = str(text)
    if len(given) > most:
        tail = most // 3
        head = most - tail
        given = f"{given[:head]}...({len(given) - head - tail} more)...{given[-tail:]}"
    if given.isascii() and given.isprintable():
        return given
    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in given)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
