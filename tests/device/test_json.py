"""The JSON of cache entries against Python's json: the same values and strings, and the same errors."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from pumice._pumice import json_text, parse_json

_MARKS = b'"\\[]{},:0123456789.eE+-ntf \x00\x1f/uabc\xff'


def _text(source: random.Random) -> str:
    ranges = ((32, 127), (0, 300), (0xD800, 0xE000), (0x10000, 0x110000))
    return "".join(chr(source.randrange(*source.choice(ranges))) for _ in range(source.randrange(6)))


def _value(source: random.Random, depth: int = 0) -> Any:
    kind = source.randrange(8 if depth < 4 else 6)
    if kind == 6:
        return [_value(source, depth + 1) for _ in range(source.randrange(5))]
    if kind == 7:
        return {_text(source): _value(source, depth + 1) for _ in range(source.randrange(5))}
    whole = source.choice([0, -1, 10 ** source.randrange(40), -(2**63), 2**63 - 1, 2**64])
    real = source.random() * 10 ** source.randrange(-20, 20)
    return (
        None,
        source.random() < 0.5,
        whole,
        source.choice([-0.0, 1e300, 5e-324, math.inf, -math.inf, real]),
        _text(source),
        "",
    )[kind]


def _read(reader: Any, text: Any) -> str:
    """Return the repr of the parsed text, which shows the types of all values, or "refused" for a ValueError."""
    try:
        return repr(reader(text))
    except ValueError:
        return "refused"


def test_values_are_those_of_pythons_reader() -> None:
    source = random.Random(1)
    for _ in range(3000):
        value = _value(source)
        for ascii_alone, indent in ((True, None), (False, 1)):
            text = json.dumps(value, ensure_ascii=ascii_alone, indent=indent)
            encoded = text.encode("utf-8", "surrogatepass")
            assert repr(parse_json(encoded)) == repr(json.loads(text))
            assert json_text(value) == json.dumps(value)
            assert json_text(value, sort_keys=True) == json.dumps(value, sort_keys=True)
            for _ in range(3):
                damaged = bytearray(encoded)
                damaged[source.randrange(len(damaged))] = source.choice(_MARKS)
                cut = bytes(damaged[: source.randrange(len(damaged) + 1)]) if source.random() < 0.3 else bytes(damaged)
                assert _read(parse_json, cut) == _read(
                    lambda given: json.loads(given.decode("utf-8", "surrogatepass")), cut
                ), cut


@pytest.mark.parametrize(
    "text", [b"NaN", b"[NaN, -NaN]", b"-Infinity", b"1e999", b"-0", b"[1,]", b"{1: 2}", b"", b" ", b"nul", b"'a'"]
)
def test_odd_strings(text: bytes) -> None:
    assert _read(parse_json, text) == _read(json.loads, text)


def test_lists_in_one_another_are_limited() -> None:
    assert parse_json(b"[" * 1000 + b"]" * 1000)
    for text in (b"[" * 1001 + b"]" * 1001, b"[" * 10_000_000, b'{"a":' * 1_000_000):
        with pytest.raises(ValueError, match="at most 1000 nested lists and dicts"):
            parse_json(text)


def test_values_that_json_does_not_have_are_rejected() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="at most 1000 nested lists and dicts"):
        json_text(endless)
    for value, told in ((b"text", "bytes"), ({1: 2}, "int"), ([{2}], "set")):
        with pytest.raises(TypeError, match=f"JSON: expected .*; given {told}"):
            json_text(value)


def test_an_error_says_what_and_where() -> None:
    with pytest.raises(ValueError, match=r"JSON: expected ',' or '\]' at byte 4"):
        parse_json(b"[1, 2".replace(b", ", b"  "))
