"""Worker answers in a file, one line of JSON each, so that an interrupted run can resume."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from fault_worker import Worker

Key = tuple[Any, ...]


class Records:
    """Answers by task, stored in a file. ask() returns the stored answer, or asks the worker and stores it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.answers: dict[Key, dict[str, Any]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            record = json.loads(line)
            self.answers[_key(record["task"])] = record

    def ask(self, worker: Worker, **task: Any) -> dict[str, Any]:
        key = _key(task)
        if key not in self.answers:
            record = {"task": task, **worker.ask(**task)}
            with self._lock, self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                self.answers[key] = json.loads(json.dumps(record))
        return self.answers[key]


def _key(task: dict[str, Any]) -> Key:
    return tuple(sorted((name, json.dumps(value)) for name, value in task.items()))


def share(count: int, of: int) -> str:
    """Format a fraction for a table."""
    return f"{count} of {of} ({100 * count / of:.1f}%)" if of else "none"
