"""Work in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")


def in_threads(work: Callable[[Given], Result], arguments: Iterable[Given]) -> list[Result]:
    """The results of `work` for each argument; each has a thread of its own, and all threads begin at the same time.

    Raises the error of the first argument whose work failed, when all threads have ended.
    """
    given = list(arguments)
    begin = threading.Barrier(len(given))

    def one(argument: Given) -> Result:
        begin.wait()
        return work(argument)

    with ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(one, given))
