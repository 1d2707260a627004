"""Cases that several devices work on: one thread a device, results in order, and a lost device's cases done by the others."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._pumice import DeviceLostError
from .model import Model
from .runs import ModelRun, start_case

_WINDOW = 4  # cases that are begun before the next result is taken, for each that is in flight


class LostDevice(NamedTuple):
    """A device that was lost, and what became of its work."""

    place: int  # among the models
    name: str
    error: str
    redone: int  # cases that were in flight on it, which others did again

    def __str__(self) -> str:
        cases = "1 case" if self.redone == 1 else f"{self.redone} cases"
        return f"device {self.place} ('{self.name}') was lost: {self.error}; {cases} in flight went to the others"


@dataclass
class _Raised:
    """Stands in a result's place for the error that is to be raised there."""

    error: BaseException


class DeviceWork:
    """One stretch of work: cases in, results out in their order.

    The caller's thread takes cases from where they come and gives results; the threads of the devices take what is waiting.
    """

    def __init__(self, models: Sequence[tuple[int, Model]], depth: int, on_lost: Callable[[LostDevice], None]) -> None:
        self._models, self._depth, self._on_lost = models, depth, on_lost
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Any]] = deque()  # cases with their numbers
        self._results: dict[int, Any] = {}
        self._alive = len(models)
        self._is_over = False
        self._last_loss: BaseException | None = None

    def run(self, cases: Iterable[Any]) -> Iterator[Any]:
        """The results; raises what a case raises in its place, DeviceLostError where no device is left."""
        threads = [
            threading.Thread(target=self._work, args=(place, model), name=f"pumice-device-{place}", daemon=True)
            for place, model in self._models
        ]
        for thread in threads:
            thread.start()
        try:
            yield from self._results_in_order(iter(cases))
        finally:
            with self._changed:
                self._is_over = True
                self._waiting.clear()
                self._changed.notify_all()
            for thread in threads:  # what is in flight ends before its memory serves other executions
                thread.join()

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
            while number not in self._results:
                if not self._alive:
                    raise DeviceLostError(f"all {len(self._models)} devices were lost; the last: {self._last_loss}")
                self._changed.wait()
            return self._results.pop(number)

    def _put_result(self, number: int, result: Any) -> None:
        with self._changed:
            self._results[number] = result
            self._changed.notify_all()

    # ---- a device's thread

    def _work(self, place: int, model: Model) -> None:
        running: deque[tuple[int, Any, ModelRun]] = deque()
        while (taken := self._next_case(len(running))) is not None or running:
            try:
                if taken is not None:
                    running.append((*taken, start_case(model, taken[1], None)))
                    continue
                number, _, run = running[0]
                result = run.result()
                running.popleft()
                self._put_result(number, result)
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

    def _next_case(self, running: int) -> tuple[int, Any] | None:
        """A case that waits; None where `running` cases keep the device busy meanwhile, and once the work is over."""
        with self._changed:
            while not self._waiting and not running and not self._is_over:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting and running < self._depth else None

    def _lose(self, place: int, model: Model, error: DeviceLostError, again: list[tuple[int, Any]]) -> None:
        self._on_lost(LostDevice(place, model.device.name, str(error), len(again)))
        with self._changed:
            self._alive -= 1
            self._last_loss = error
            if not self._is_over:
                self._waiting.extendleft(reversed(again))
            self._changed.notify_all()
