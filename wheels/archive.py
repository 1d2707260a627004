"""Writes zip files compressed with zopfli, which Python's zipfile does not support."""

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
BLOCKS = 0  # 0: no limit on the number of deflate blocks
ZLIB_HEADER, ZLIB_CHECKSUM = 2, 4  # bytes around the deflate stream, which a zip file omits
FORMAT = 20  # the first version of the zip format with deflate
Entry = tuple[zipfile.ZipInfo, bytes]


def can_deflate() -> bool:
    try:
        importlib.import_module("zopfli.zlib")
    except ImportError:
        return False
    return True


def deflate(content: bytes) -> bytes:
    """Return the content as zopfli's deflate stream: the same version of zopfli gives the same bytes."""
    compress = importlib.import_module("zopfli.zlib").compress
    compressed: bytes = compress(content, numiterations=ITERATIONS, blocksplittingmax=BLOCKS)
    return compressed[ZLIB_HEADER:-ZLIB_CHECKSUM]


def fields(info: zipfile.ZipInfo, name: bytes) -> bytes:
    """Return the fields common to the local header and the central directory entry."""
    year, month, day, hour, minute, second = info.date_time
    date = (year - 1980) << 9 | month << 5 | day
    clock = hour << 11 | minute << 5 | second // 2
    sizes = (info.CRC, info.compress_size, info.file_size)
    return struct.pack("<5H3L2H", FORMAT, 0, zipfile.ZIP_DEFLATED, clock, date, *sizes, len(name), 0)


def write(path: Path, entries: Sequence[Entry], deflate: Callable[[bytes], bytes] = deflate) -> None:
    """Write a zip file of entries in the order given.

    Args:
        deflate: compresses a content to a deflate stream; entries are compressed in parallel on all cores.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # zopfli releases the GIL
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
