"""Contenders that are timed side by side: an engine with a model, in this process or, for peers, in a separate one."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .timing import Absent, Sampler, sample

Array = npt.NDArray[Any]

_PATIENCE = 300.0  # timeout of a peer's answer in seconds


class Contender(Protocol):
    def call(self) -> Array:
        """Run on NumPy arrays; return the first output."""
        ...

    def sample(self, runs: int) -> Sequence[float]:
        """Return the seconds of each of `runs` calls."""
        ...

    def device(self, runs: int) -> Sequence[float]:
        """Return the device seconds of each of `runs` executions; empty if the engine does not report them."""
        ...


@dataclass
class Local:
    call: Callable[[], Array]
    device_sampler: Sampler | None = None

    def sample(self, runs: int) -> Sequence[float]:
        return sample(self.call, runs)

    def device(self, runs: int) -> Sequence[float]:
        return self.device_sampler(runs) if self.device_sampler else []


def _serve(pipe: Connection) -> None:
    """Run a peer's process: create contenders and run them on request until the pipe closes."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    contenders: list[Local] = []
    while True:
        try:
            index, method, arguments = pipe.recv()
        except EOFError:
            return
        try:
            if index is None:
                contenders.append(method(*arguments))
                pipe.send(len(contenders) - 1)
            else:
                pipe.send(getattr(contenders[index], method)(*arguments))
        except Absent as reason:
            pipe.send(reason)
        except Exception as error:
            pipe.send(Absent(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"))


class Peer:
    """Another engine: its package, and a process started on first use, which contains its crashes."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._process: Any = None
        self._pipe: Connection | None = None

    def make(self, factory: Callable[..., Local], *arguments: object) -> Remote:
        """Create a contender. Raise Absent with the reason if the peer does not support it."""
        if importlib.util.find_spec(self.package) is None:
            raise Absent(f"{self.package} is not installed")
        return Remote(self, self.ask(None, factory, *arguments))

    def ask(self, index: int | None, method: str | Callable[..., Local], *arguments: object) -> Any:
        if self._process is None:
            spawn = multiprocessing.get_context("spawn")
            self._pipe, theirs = spawn.Pipe()
            self._process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        assert self._pipe
        try:
            self._pipe.send((index, method, arguments))
            if not self._pipe.poll(_PATIENCE):
                self.close()
                raise Absent(f"no answer within {_PATIENCE:.0f} s")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            status = self._process.exitcode
            self.close()
            raise Absent(f"its process ended with status {status}") from None
        if isinstance(answer, Absent):
            raise answer
        return answer

    def close(self) -> None:
        if self._process is not None and self._pipe is not None:
            self._pipe.close()
            self._process.terminate()
            self._process.join()
        self._process = self._pipe = None


@dataclass
class Remote:
    peer: Peer
    index: int

    def call(self) -> Array:
        return np.asarray(self.peer.ask(self.index, "call"))

    def sample(self, runs: int) -> Sequence[float]:
        return list(self.peer.ask(self.index, "sample", runs))

    def device(self, runs: int) -> Sequence[float]:
        return list(self.peer.ask(self.index, "device", runs))
