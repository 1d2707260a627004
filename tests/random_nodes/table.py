"""The generator functions of nodes, by operator."""

from __future__ import annotations

from collections.abc import Callable

from random_nodes.maker import Maker

Make = Callable[[Maker, str], None]
OPERATORS: dict[str, Make] = {}


def makes(*names: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        for text in names:
            for name in text.split():
                OPERATORS[name] = make
        return make

    return add
