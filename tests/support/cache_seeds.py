"""Write the fuzz seeds for cache entries: PUMICE_CACHE_DIR=$(mktemp -d) python tests/support/cache_seeds.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pumice
from pumice._pumice import cache_directory, cache_entries, read_cache_entry, write_cache_entry

CORPUS = Path(__file__).resolve().parents[1] / "fuzz" / "corpus" / "cache_entry"
FILE, BIT, SHADER = b"\0", b"\1", b"\2"  # what the fuzz target does with the following bytes
SOURCE = """
layout(binding = 0) buffer X { float x[]; };
void main() { x[gl_GlobalInvocationID.x + 3] = 1.5; debugPrintfEXT("%f", x[0]); }
"""


def entry() -> bytes:
    """Return the file of the fuzz target's cache entry: kind graphs, name ab."""
    assert write_cache_entry("graphs", "ab", b"payload")
    return Path(cache_directory() or "", "graphs", "ab.graph").read_bytes()


def shader(**options: bool) -> bytes:
    """Return the payload of a compiled shader."""
    before = {*cache_entries("spirv")}
    text = SOURCE if options else SOURCE.replace('debugPrintfEXT("%f", x[0]);', "")
    pumice.compile(text, pumice.ShaderOptions(**options), name="seed")
    (name,) = {*cache_entries("spirv")} - before
    payload = read_cache_entry("spirv", name)
    assert payload is not None
    return payload


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield the seeds with names."""
    whole = entry()
    yield "file_whole", FILE + whole
    yield "file_truncated", FILE + whole[:-1]
    yield "file_longer", FILE + whole + b"\0"
    yield "file_of_another_version", FILE + b"pumice01" + whole[8:]
    yield "file_foreign", FILE + b"#!/bin/sh\n" * 9
    yield "file_begun", FILE + whole[:5]
    yield "bit_of_magic", BIT + (3).to_bytes(2, "little") + b"payload"
    yield "bit_of_payload", BIT + (390).to_bytes(2, "little") + b"payload"
    yield "shader_plain", SHADER + shader()
    debug = shader(debug=True)
    yield "shader_debug", SHADER + debug
    yield "shader_begun", SHADER + debug[:100]


if __name__ == "__main__":
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / name).write_bytes(data)
