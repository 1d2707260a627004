"""Zip files whose contents are compressed by zopfli, which Python's zipfile has no way to write."""

from __future__ import annotations

import importlib
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ITERATIONS = 5
BLOCKS = 0  # as many as pay
ZLIB_HEADER, ZLIB_CHECKSUM = 2, 4  # bytes around the stream that a zip file keeps
FORMAT = 20  # the first version of the zip format that has deflate
Entry = tuple[zipfile.ZipInfo, bytes]


def can_deflate() -> bool:
    try:
        importlib.import_module("zopfli.zlib")
    except ImportError:
        return False
    return True


def deflate(content: bytes) -> bytes:
    """The content as zopfli's stream of deflate: the same version of zopfli gives the same bytes."""
    compress = importlib.import_module("zopfli.zlib").compress
    compressed: bytes = compress(content, numiterations=ITERATIONS, blocksplittingmax=BLOCKS)
    return compressed[ZLIB_HEADER:-ZLIB_CHECKSUM]


def fields(info: zipfile.ZipInfo, name: bytes) -> bytes:
    """What the header before a file and its row of the directory have in common."""
    year, month, day, hour, minute, second = info.date_time
    date = (year - 1980) << 9 | month << 5 | day
    clock = hour << 11 | minute << 5 | second // 2
    sizes = (info.CRC, info.compress_size, info.file_size)
    return struct.pack("<5H3L2H", FORMAT, 0, zipfile.ZIP_DEFLATED, clock, date, *sizes, len(name), 0)


def write(path: Path, entries: Sequence[Entry], deflate: Callable[[bytes], bytes] = deflate) -> None:
    """Writes a zip file of entries in the order given.

    Args:
        deflate: compresses a content to a stream of deflate; entries are compressed on all cores at a time.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # zopfli lets other threads run
        streams = list(pool.map(deflate, [content for _, content in entries]))
    directory = []
    with path.open("wb") as file:
        for (info, content), stream in zip(entries, streams, strict=True):
            name = info.filename.encode("ascii")
            info.CRC, info.compress_size, info.file_size = zlib.crc32(content), len(stream), len(content)
            shared = fields(info, name)
            rest = struct.pack("<3H2L", 0, 0, 0, info.external_attr, file.tell())
            directory.append(b"PK\1\2" + bytes([FORMAT, info.create_system]) + shared + rest + name)
            file.write(b"PK\3\4" + shared + name + stream)
        start, rows = file.tell(), b"".join(directory)
        file.write(rows)
        counts = (0, 0, len(directory), len(directory), len(rows), start, 0)
        file.write(b"PK\5\6" + struct.pack("<4H2LH", *counts))
