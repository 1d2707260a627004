"""Attention of one row over 4,096 keys and around it, by more ways than attention_rows has: spared reads, fewer parts, workgroups."""

from __future__ import annotations

from collections.abc import Iterator

from .attention_rows import EMULATED, MEETING, Quads, Shape, checks, rows_of, safely
from .rows import Table
from .session import Session

SPARED = (("SPARED", "1"),)
SHAPES = (
    Shape(1, 32, 32, 4096, 128),
    Shape(1, 32, 8, 4096, 128),
    Shape(1, 32, 32, 1024, 128),
    Shape(1, 32, 8, 1024, 128),
    Shape(1, 32, 8, 16384, 128),
    Shape(8, 32, 8, 4096, 128),
    Shape(1, 32, 8, 4096, 64),
)
ON_SOFTWARE = (Shape(1, 4, 2, 256, 32),)
WAYS = (
    Quads(4, 1, 2),  # as it is taken
    Quads(4, 1, 2, SPARED),
    Quads(4, 1, 2, SPARED, most_parts=32),
    Quads(4, 1, 2, SPARED, most_parts=16),
    Quads(4, 1, 1, SPARED),
    Quads(4, 1, 3, SPARED),
    Quads(8, 1, 1),
    Quads(8, 1, 1, SPARED),
    Quads(2, 1, 4, SPARED),
    Quads(2, 1, 4, SPARED, most_parts=32),
    Quads(4, 2, 2, SPARED),
    Quads(8, 2, 1, SPARED),
    Quads(4, 1, 2, SPARED, lacks=MEETING),
)
WAYS_ON_SOFTWARE = (Quads(2, 1, 1, EMULATED), Quads(2, 1, 1, (*EMULATED, *SPARED)))


def run(session: Session) -> Iterator[Table]:
    ways = WAYS_ON_SOFTWARE if session.software else WAYS
    yield Table("Errors of one row, by ways of sharing it out", "thousandths", safely(checks(ways, session)))
    for shape in ON_SOFTWARE if session.software else SHAPES:
        yield Table(f"One row, {shape}", "us", safely(rows_of(shape, ways, session)))
