"""Distribute cases over devices: one thread per device, ordered results, failover for lost or slow devices."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._pumice import DeviceLostError
from ..base.printable_text import plain, printable
from .model import Model
from .runs import ModelRun, start_case

_WINDOW = 4  # how many cases may be submitted ahead of the next result, as a multiple of the cases in flight
_PATIENCE = 4  # a case is overdue after this multiple of the time that the idle device would need for a full pipeline
_LEAST_PATIENCE = 0.25  # seconds; shorter delays may just be thread scheduling
_POLL = 0.05  # polling interval in seconds while a device finishes earlier work


class LostDevice(NamedTuple):
    """A lost device and the fate of its work."""

    place: int  # index of the device's model
    name: str
    error: str
    redone: int  # number of its cases in flight that other devices repeated

    def __str__(self) -> str:
        cases = "1 case" if self.redone == 1 else f"{self.redone} cases"
        return f"device {self.place} ('{plain(self.name)}') was lost: {printable(self.error)}; {cases} in flight went to the others"


@dataclass
class _Raised:
    """Placeholder in the results for an error to raise at that position."""

    error: BaseException


@dataclass
class _Begun:
    """A case that a device has started and that has no result yet."""

    case: Any
    places: set[int]  # indices of the devices working on it
    since: float


@dataclass
class _Pace:
    """The processing speed of a device."""

    cases: int = 0
    seconds: float = 0.0  # time with work in flight

    def patience(self, depth: int) -> float | None:
        """Return how many seconds a case may be in flight on another device; None until this device has finished a case itself."""
        return max(_PATIENCE * depth * self.seconds / self.cases, _LEAST_PATIENCE) if self.cases else None


class DeviceWork:
    """One map over the devices: cases in, results out in order.

    The caller's thread pulls cases and yields results; the device threads take waiting cases.
    """

    def __init__(
        self,
        models: Sequence[tuple[int, Model]],
        depth: int,
        on_lost: Callable[[LostDevice], None],
        on_late: Callable[[int], None],
        left: dict[int, threading.Thread],
    ) -> None:
        """left: threads of earlier work that have not been joined, by device index; this work's threads are added."""
        self._models, self._depth, self._on_lost, self._on_late = models, depth, on_lost, on_late
        self._left = left
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Any]] = deque()  # (index, case)
        self._begun: dict[int, _Begun] = {}
        self._results: dict[int, Any] = {}
        self._wanted = 0  # index of the next result to yield
        self._doubled: set[int] = set()  # indices of devices that worked on a case together with another device
        self._alive = len(models)
        self._is_over = False
        self._last_loss: BaseException | None = None

    def run(self, cases: Iterable[Any]) -> Iterator[Any]:
        """Yield the results; raise a case's error at its position, DeviceLostError if no device is left.

        At the end, wait for cases in flight, because later executions reuse their memory. After Ctrl-C, or if a device
        is still busy with a case that another one has finished, do not wait: its thread continues alone and holds the
        memory, and later work on that device starts when it has finished.
        """
        threads = {
            place: threading.Thread(target=self._work, args=(place, model), name=f"pumice-device-{place}", daemon=True)
            for place, model in self._models
        }
        for thread in threads.values():
            thread.start()
        try:
            yield from self._results_in_order(iter(cases))
        except KeyboardInterrupt:
            self._doubled |= {*threads}
            raise
        finally:
            with self._changed:
                self._is_over = True
                self._waiting.clear()
                self._changed.notify_all()
            for place, thread in threads.items():
                if place not in self._doubled:
                    thread.join()
                elif thread.is_alive() and not self._is_left(
                    place
                ):  # otherwise the thread is waiting for the earlier one and has started nothing
                    self._left[place] = thread

    def _results_in_order(self, cases: Iterator[Any]) -> Iterator[Any]:
        given, taken, goes_on = 0, 0, True
        window = _WINDOW * self._depth * len(self._models)
        while True:
            while goes_on and given - taken < window:
                try:
                    case = next(cases)
                except StopIteration:
                    goes_on = False
                    break
                except Exception as error:
                    goes_on = False
                    self._put_result(given, _Raised(error))
                else:
                    with self._changed:
                        self._waiting.append((given, case))
                        self._changed.notify()
                given += 1
            if taken == given:
                return
            result = self._result(taken)
            taken += 1
            if isinstance(result, _Raised):
                raise result.error
            yield result

    def _result(self, number: int) -> Any:
        with self._changed:
            if number not in self._results:
                self._changed.notify_all()  # lets an idle device notice that this case is overdue
            while number not in self._results:
                if not self._alive:
                    raise DeviceLostError(f"all {len(self._models)} devices were lost; the last: {self._last_loss}")
                self._changed.wait()
            self._wanted = number + 1
            return self._results.pop(number)

    def _put_result(self, number: int, result: Any) -> None:
        """Record a result, unless another device has already finished the case."""
        with self._changed:
            self._begun.pop(number, None)
            if number >= self._wanted:
                self._results.setdefault(number, result)
            self._changed.notify_all()

    # ---- a device's thread

    def _work(self, place: int, model: Model) -> None:
        while self._is_left(place) and not self._is_over:
            self._left[place].join(_POLL)
        running: deque[tuple[int, Any, ModelRun]] = deque()
        pace = _Pace()
        busy_since = 0.0
        while (taken := self._next_case(place, len(running), pace)) is not None or running:
            try:
                if taken is not None:
                    busy_since = busy_since if running else time.monotonic()
                    running.append((*taken, start_case(model, taken[1], None)))
                    continue
                number, _, run = running[0]
                result = run.result()
                running.popleft()
                self._put_result(number, result)
                pace.cases, pace.seconds = pace.cases + 1, pace.seconds + time.monotonic() - busy_since
                busy_since = time.monotonic()
            except DeviceLostError as error:
                again = [(number, case) for number, case, _ in running] + ([taken] if taken is not None else [])
                self._lose(place, model, error, again)
                return
            except Exception as error:
                number = taken[0] if taken is not None else running.popleft()[0]
                self._put_result(number, _Raised(error))
        with self._changed:
            self._alive -= 1
            self._changed.notify_all()

    def _is_left(self, place: int) -> bool:
        """Return whether the device is still finishing earlier work."""
        earlier = self._left.get(place)
        return earlier is not None and earlier.is_alive()

    def _next_case(self, place: int, running: int, pace: _Pace) -> tuple[int, Any] | None:
        """Return a waiting case, or one that is overdue on another device.

        Return None if `running` cases already keep the device busy, or if the work is over.
        """
        with self._changed:
            while not self._waiting and not running and not self._is_over:
                late, seconds = self._late_case(place, pace)
                if late is not None:
                    return late
                self._changed.wait(seconds)
            if not self._waiting or running >= self._depth:
                return None
            number, case = self._waiting.popleft()
            self._begun[number] = _Begun(case, {place}, time.monotonic())
            return number, case

    def _late_case(self, place: int, pace: _Pace) -> tuple[tuple[int, Any] | None, float | None]:
        """Return the case whose result is yielded next if it is overdue on another device; else the seconds until it may be."""
        begun, patience = self._begun.get(self._wanted), pace.patience(self._depth)
        if begun is None or place in begun.places or len(begun.places) != 1 or patience is None:
            return None, None
        rest = begun.since + patience - time.monotonic()
        if rest > 0:
            return None, rest
        self._on_late(*begun.places)
        begun.places.add(place)
        self._doubled |= begun.places
        return (self._wanted, begun.case), None

    def _lose(self, place: int, model: Model, error: DeviceLostError, again: list[tuple[int, Any]]) -> None:
        with self._changed:
            for number, _ in again:
                if number in self._begun:
                    self._begun[number].places.discard(place)
            # do not repeat cases that are also in flight on another device
            again = [
                (number, case) for number, case in again if number in self._begun and not self._begun[number].places
            ]
        self._on_lost(LostDevice(place, model.device.name, str(error), len(again)))
        with self._changed:
            self._alive -= 1
            self._last_loss = error
            if not self._is_over:
                self._waiting.extendleft(reversed(again))
            self._changed.notify_all()
