"""Run cases on several devices: one thread per device, results in order, failover for lost and slow devices."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._pumice import DeviceLostError
from ..base.printable_text import escape_unprintable, shorten_and_escape
from .model import Model
from .model_runs import ModelRun, start_case

_WINDOW_FACTOR = 4  # maximum number of cases submitted ahead of the next result, as a multiple of the cases in flight
_PATIENCE_FACTOR = (
    4  # a case is overdue after this multiple of the time that an idle device would need for a full pipeline
)
_MIN_OVERDUE_SECONDS = 0.25  # shorter delays may be caused by thread scheduling
_POLL_SECONDS = 0.05  # polling interval while a device finishes work of an earlier map


class LostDevice(NamedTuple):
    """A lost device and the fate of its work."""

    place: int  # index of the device's model
    name: str
    error: str
    redone: int  # number of cases in flight that other devices repeat

    def __str__(self) -> str:
        cases = "1 case" if self.redone == 1 else f"{self.redone} cases"
        device = f"device {self.place} ('{shorten_and_escape(self.name)}')"
        return f"{device} was lost: {escape_unprintable(self.error)}; {cases} in flight went to the others"


@dataclass
class _CaseError:
    """An entry of the results that is raised instead of yielded."""

    error: BaseException


@dataclass
class _RunningCase:
    """A case that is running on one or more devices."""

    case: Any
    device_indices: set[int]  # devices that run the case
    start_time: float


@dataclass
class _DeviceSpeed:
    """The measured speed of a device: finished cases, and the time that they took."""

    cases: int = 0
    seconds: float = 0.0  # total time with work in flight

    def compute_overdue_seconds(self, depth: int) -> float | None:
        """Return the seconds after which a case on another device is overdue; None until this device has finished a case."""
        return max(_PATIENCE_FACTOR * depth * self.seconds / self.cases, _MIN_OVERDUE_SECONDS) if self.cases else None


class MultiDeviceScheduler:
    """One run of ParallelModel.map().

    The caller's thread takes cases from the iterator and yields results in order; the device threads run waiting cases.
    """

    def __init__(
        self,
        models: Sequence[tuple[int, Model]],
        depth: int,
        on_lost: Callable[[LostDevice], None],
        on_overdue: Callable[[int], None],
        unfinished_threads: dict[int, threading.Thread],
    ) -> None:
        """unfinished_threads: device index -> thread of an earlier map that still runs; threads left by this map are added."""
        self._models, self._depth, self._on_lost, self._on_overdue = models, depth, on_lost, on_overdue
        self._unfinished_threads = unfinished_threads
        self._condition = threading.Condition()
        self._waiting: deque[tuple[int, Any]] = deque()  # (case index, case) of cases that no device has started
        self._running_cases: dict[int, _RunningCase] = {}
        self._results: dict[int, Any] = {}
        self._next_result = 0  # case index of the next result to yield
        self._devices_with_repeats: set[int] = set()  # devices that ran a case that another device ran too
        self._num_alive = len(models)
        self._is_over = False
        self._last_loss: BaseException | None = None

    def run(self, cases: Iterable[Any]) -> Iterator[Any]:
        """Yield the results. Raise an error of a case at its position, DeviceLostError if no device is left.

        At the end, wait for cases in flight, because later executions reuse their memory. Do not wait after Ctrl-C, nor for a device
        that still runs a case which another device has finished: its thread goes on and keeps the memory. Later work on that device
        starts after it.
        """
        threads = {
            device_index: threading.Thread(
                target=self._run_device, args=(device_index, model), name=f"pumice-device-{device_index}", daemon=True
            )
            for device_index, model in self._models
        }
        for thread in threads.values():
            thread.start()
        try:
            yield from self._iterate_results_in_order(iter(cases))
        except KeyboardInterrupt:
            self._devices_with_repeats |= {*threads}
            raise
        finally:
            with self._condition:
                self._is_over = True
                self._waiting.clear()
                self._condition.notify_all()
            for device_index, thread in threads.items():
                if device_index not in self._devices_with_repeats:
                    thread.join()
                elif thread.is_alive() and not self._has_unfinished_thread(
                    device_index
                ):  # otherwise this thread still waits for the earlier thread and has run no case
                    self._unfinished_threads[device_index] = thread

    def _iterate_results_in_order(self, cases: Iterator[Any]) -> Iterator[Any]:
        num_submitted, num_yielded, has_more = 0, 0, True
        window = _WINDOW_FACTOR * self._depth * len(self._models)
        while True:
            while has_more and num_submitted - num_yielded < window:
                try:
                    case = next(cases)
                except StopIteration:
                    has_more = False
                    break
                except Exception as error:
                    has_more = False
                    self._store_result(num_submitted, _CaseError(error))
                else:
                    with self._condition:
                        self._waiting.append((num_submitted, case))
                        self._condition.notify()
                num_submitted += 1
            if num_yielded == num_submitted:
                return
            result = self._wait_for_result(num_yielded)
            num_yielded += 1
            if isinstance(result, _CaseError):
                raise result.error
            yield result

    def _wait_for_result(self, case_index: int) -> Any:
        with self._condition:
            if case_index not in self._results:
                self._condition.notify_all()  # wakes idle devices, which check whether this case is overdue
            while case_index not in self._results:
                if not self._num_alive:
                    raise DeviceLostError(f"all {len(self._models)} devices were lost; the last: {self._last_loss}")
                self._condition.wait()
            self._next_result = case_index + 1
            return self._results.pop(case_index)

    def _store_result(self, case_index: int, result: Any) -> None:
        """Store the result of a case, unless another device has already finished it."""
        with self._condition:
            self._running_cases.pop(case_index, None)
            if case_index >= self._next_result:
                self._results.setdefault(case_index, result)
            self._condition.notify_all()

    # ---- methods that run in a device's thread

    def _run_device(self, device_index: int, model: Model) -> None:
        while self._has_unfinished_thread(device_index) and not self._is_over:
            self._unfinished_threads[device_index].join(_POLL_SECONDS)
        running: deque[tuple[int, Any, ModelRun]] = deque()
        speed = _DeviceSpeed()
        busy_since = 0.0
        while (next_case := self._take_next_case(device_index, len(running), speed)) is not None or running:
            try:
                if next_case is not None:
                    busy_since = busy_since if running else time.monotonic()
                    running.append((*next_case, start_case(model, next_case[1], None)))
                    continue
                case_index, _, run = running[0]
                result = run.result()
                running.popleft()
                self._store_result(case_index, result)
                speed.cases, speed.seconds = speed.cases + 1, speed.seconds + time.monotonic() - busy_since
                busy_since = time.monotonic()
            except DeviceLostError as error:
                repeated = [(case_index, case) for case_index, case, _ in running] + (
                    [next_case] if next_case is not None else []
                )
                self._handle_device_loss(device_index, model, error, repeated)
                return
            except Exception as error:
                case_index = next_case[0] if next_case is not None else running.popleft()[0]
                self._store_result(case_index, _CaseError(error))
        with self._condition:
            self._num_alive -= 1
            self._condition.notify_all()

    def _has_unfinished_thread(self, device_index: int) -> bool:
        """Return whether a thread of an earlier map still uses the device."""
        earlier = self._unfinished_threads.get(device_index)
        return earlier is not None and earlier.is_alive()

    def _take_next_case(self, device_index: int, running: int, speed: _DeviceSpeed) -> tuple[int, Any] | None:
        """Return (index, case) of a waiting case, or of one that is overdue on another device. Wait if the device is idle.

        Return None if none is waiting while the device has `running` cases, if its pipeline is full, or at the end of the map.
        """
        with self._condition:
            while not self._waiting and not running and not self._is_over:
                overdue, seconds = self._find_overdue_case(device_index, speed)
                if overdue is not None:
                    return overdue
                self._condition.wait(seconds)
            if not self._waiting or running >= self._depth:
                return None
            case_index, case = self._waiting.popleft()
            self._running_cases[case_index] = _RunningCase(case, {device_index}, time.monotonic())
            return case_index, case

    def _find_overdue_case(self, device_index: int, speed: _DeviceSpeed) -> tuple[tuple[int, Any] | None, float | None]:
        """Return (case, None) if the case of the next result is overdue on another device, else (None, seconds until it is)."""
        running_case, overdue_seconds = (
            self._running_cases.get(self._next_result),
            speed.compute_overdue_seconds(self._depth),
        )
        if (
            running_case is None
            or device_index in running_case.device_indices
            or len(running_case.device_indices) != 1
            or overdue_seconds is None
        ):
            return None, None
        remaining = running_case.start_time + overdue_seconds - time.monotonic()
        if remaining > 0:
            return None, remaining
        self._on_overdue(*running_case.device_indices)
        running_case.device_indices.add(device_index)
        self._devices_with_repeats |= running_case.device_indices
        return (self._next_result, running_case.case), None

    def _handle_device_loss(
        self, device_index: int, model: Model, error: DeviceLostError, repeated: list[tuple[int, Any]]
    ) -> None:
        with self._condition:
            for case_index, _ in repeated:
                if case_index in self._running_cases:
                    self._running_cases[case_index].device_indices.discard(device_index)
            # Do not repeat cases that another device is running too.
            repeated = [
                (case_index, case)
                for case_index, case in repeated
                if case_index in self._running_cases and not self._running_cases[case_index].device_indices
            ]
        self._on_lost(LostDevice(device_index, model.device.name, str(error), len(repeated)))
        with self._condition:
            self._num_alive -= 1
            self._last_loss = error
            if not self._is_over:
                self._waiting.extendleft(reversed(repeated))
            self._condition.notify_all()
