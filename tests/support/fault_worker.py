"""Worker processes with the fault layer that answer tasks as lines of JSON; restarted after a crash or timeout."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

import fault_layer

Item = TypeVar("Item")
Result = TypeVar("Result")


class Worker:
    """A worker process. seconds: timeout per task. variables: additional environment variables."""

    def __init__(self, program: str | Path, folder: Path, seconds: float = 180, **variables: str) -> None:
        self._command = [sys.executable, str(program)]
        paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
        self._environment = {**os.environ, **paths, **fault_layer.environment(folder), **variables}
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **task: Any) -> dict[str, Any]:
        """Return the answer to a task; `failed` holds the reason if there is none."""
        process = self._process or self._started()
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._lost("the process has ended")
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self._seconds):
                return self._lost(f"no answer in {self._seconds} s")
        line = process.stdout.readline()
        return json.loads(line) if line else self._lost("the process has ended")

    def _started(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True, env=self._environment)
        return self._process

    def _lost(self, reason: str) -> dict[str, Any]:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            status = process.wait()
            assert process.stdin and process.stdout
            process.stdout.close()
            if not process.stdin.closed:
                process.stdin.close()
            reason = f"{reason}, status {status}"
        return {"failed": reason}

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._lost("closed")


class Workers:
    """Several workers of one program, created by `make`, each handling one item at a time."""

    def __init__(self, make: Callable[[], Worker], jobs: int) -> None:
        self._stack = ExitStack()
        self._pool = ThreadPoolExecutor(jobs)
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(jobs):
            self._idle.put(self._stack.enter_context(make()))

    def each(self, items: Iterable[Item], try_one: Callable[[Worker, Item], Result]) -> list[Result]:
        """Return try_one's result for each item."""

        def run(item: Item) -> Result:
            worker = self._idle.get()
            try:
                return try_one(worker, item)
            finally:
                self._idle.put(worker)

        return list(self._pool.map(run, items))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._stack.close()
