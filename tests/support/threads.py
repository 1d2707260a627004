"""Concurrent work in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")


def in_threads(work: Callable[[Given], Result], arguments: Iterable[Given]) -> list[Result]:
    """Return the results of `work` for each argument, each in its own thread, all started simultaneously.

    After all threads have ended, raise the error of the first argument that failed.
    """
    argument_list = list(arguments)
    begin = threading.Barrier(len(argument_list))

    def one(argument: Given) -> Result:
        begin.wait()
        return work(argument)

    with ThreadPoolExecutor(len(argument_list)) as pool:
        return list(pool.map(one, argument_list))
