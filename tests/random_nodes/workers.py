"""Runs seeds in several processes: a process that crashes or hangs only loses its seed."""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import pumice

# Module-level, so that both can be pickled.
Run = Callable[[int, pumice.Context, Any], Any]
Lost = Callable[[int, list[str]], Any]
LONGEST = 300.0  # seconds per seed


def flat(text: str, most: int = 600) -> str:
    """Return the text as one line of a report."""
    return text.replace("\n", " ")[:most]


def caught(run: Run, seed: int, context: pumice.Context, options: Any, lost: Lost) -> Any:
    """Run one seed; an error in the suite itself is reported like a failure."""
    try:
        return run(seed, context, options)
    except Exception as error:
        place = traceback.format_exc().splitlines()[-3].strip()
        return lost(seed, [flat(f"the suite itself: {type(error).__name__}: {error} {place}")])


def serve(connection: Connection, run: Run, options: Any, lost: Lost) -> None:
    """Run a worker: one context, one seed after another until it receives None."""
    device = os.environ.get("PUMICE_DEVICE")
    context = pumice.Context(device) if device else pumice.Context()
    while (seed := connection.recv()) is not None:
        connection.send(caught(run, seed, context, options, lost))


@dataclass
class Worker:
    process: Any
    connection: Connection
    seed: int
    begin: float


def results(given: argparse.Namespace, run: Run, options: Any, lost: Lost) -> Iterator[Any]:
    """Yield the results of `run` for each seed, in any order. lost: makes the result of a seed whose worker died, from the reasons."""
    spawn = multiprocessing.get_context("spawn")
    end = time.monotonic() + given.seconds
    ahead = itertools.takewhile(lambda _: time.monotonic() < end, given.seeds)
    workers: dict[Any, Worker] = {}

    def start() -> None:
        seed = next(ahead, None)
        if seed is None:
            return
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=serve, args=(theirs, run, options, lost), daemon=True)
        process.start()
        theirs.close()
        ours.send(seed)
        workers[ours] = Worker(process, ours, seed, time.monotonic())

    for _ in range(max(given.jobs, 1)):
        start()
    while workers:
        for ready in wait(list(workers), timeout=1.0):
            worker = workers[ready]
            try:
                result = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join()
                del workers[ready]
                start()
                yield lost(worker.seed, [f"the process ended with {worker.process.exitcode}"])
                continue
            following = next(ahead, None)
            worker.connection.send(following)
            if following is None:
                del workers[ready]
                worker.process.join(10)
            else:
                worker.seed, worker.begin = following, time.monotonic()
            yield result
        for key, worker in list(workers.items()):
            if time.monotonic() - worker.begin > LONGEST:
                worker.process.kill()
                worker.process.join()
                del workers[key]
                start()
                yield lost(worker.seed, [f"no end after {LONGEST:.0f} s"])


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", type=seed_range, help="A:B, B not among them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no seed is begun later")
    return parser


def seed_range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))
