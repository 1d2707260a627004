"""Break down the time of `validate(repeat=N)` for `tests/validation_figures.py repeat --explain`."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pumice
from pumice.validation.reference.tensor_sources import DeviceTensors
from pumice.validation.report.repeat_results import ResultTallies
from pumice.validation.search import repeatability
from pumice.validation.search.repeatability import RepeatedRuns

COMPILED = "program compiled, weights uploaded"
BEGUN = "first run: bound, pipelines, recorded"
PARTS = {  # in table order; a thread does the first ones while the first case is judged
    "context made": "thread",
    "context taken": "thread",
    COMPILED: "thread",
    BEGUN: "thread",
    "waited for the thread": "main",
    "runs on one list": "main",
    "runs on the fresh context": "main",
    "runs under load": "main",
    "bits compared": "main",
    "program freed, context kept": "main",
}
_SETTINGS = {
    repeatability.SAME_RECORDING: "runs on one list",
    repeatability.FRESH_CONTEXT: "runs on the fresh context",
    repeatability.UNDER_LOAD: "runs under load",
}


class Parts:
    """Seconds and counts by stage."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, phase: str, begin: float) -> None:
        """Add the time from `begin` until now."""
        seconds = time.perf_counter() - begin
        with self._lock:
            self.seconds[phase] += seconds
            self.counts[phase] += 1

    def timed(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call with timing."""

        def timed(*arguments: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                self.add(phase, begin)

        return timed

    def runs(self, real: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """Wrap `RepeatedRuns._iter_runs` to time each run by its setting."""

        def runs(item: RepeatedRuns, inputs: Any) -> Iterator[Any]:
            self.timed("waited for the thread", lambda: item.fresh_program)()
            result = real(item, inputs)
            while True:
                begin = time.perf_counter()
                found = next(result, None)
                if found is None:
                    return
                self.add(_SETTINGS[found[0]], begin)
                yield found

        return runs

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time validations within this block."""
        timed = self.timed
        changed = (
            (repeatability, "another_context", timed("context made", repeatability.another_context)),
            (repeatability, "take_spare", timed("context taken", repeatability.take_spare)),
            (DeviceTensors, "compile_optimized", timed(COMPILED, DeviceTensors.compile_optimized)),
            (repeatability, "_start_program", timed(BEGUN, repeatability._start_program)),
            (RepeatedRuns, "_iter_runs", self.runs(RepeatedRuns._iter_runs)),
            (ResultTallies, "add", timed("bits compared", ResultTallies.add)),
            (RepeatedRuns, "close", timed("program freed, context kept", RepeatedRuns.close)),
        )
        with ExitStack() as stack:
            for owner, name, result in changed:
                stack.enter_context(mock.patch.object(owner, name, result))
            yield


def explained(loaded: pumice.Model, case: Any, runs: int) -> Iterator[str]:
    """Yield a table of the stages: with a newly created context, and with one reused from the previous validation."""
    columns = {"first": Parts(), "later": Parts()}
    whole = {}
    repeatability.take_spare(loaded.context)  # frees what earlier validations have left
    for name, parts in columns.items():
        begin = time.perf_counter()
        with parts.measured():
            pumice.validate(loaded, [case], mode="chained", repeat=runs)
        whole[name] = time.perf_counter() - begin
    yield f"  {'ms, of repeat=' + str(runs):40} {'':7} {'first':>9} {'later':>9} {'times':>6}"
    for phase, where in PARTS.items():
        first, later = (f"{column.seconds[phase] * 1e3:9.2f}" for column in columns.values())
        yield f"  {phase:40} {where:7} {first} {later} {columns['later'].counts[phase]:6}"
    yield f"  {'the whole validation':40} {'':7} {whole['first'] * 1e3:9.2f} {whole['later'] * 1e3:9.2f}"
    yield from _inside(loaded, case)


def _inside(loaded: pumice.Model, case: Any) -> Iterator[str]:
    """Yield the engine's times on a newly created second context by kind, and the time to create and free a device."""
    inputs = {value.name: array for value, array in zip(loaded.program.inputs, loaded.arguments(**case), strict=True)}
    found: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    with pumice.profile("execution") as profile:
        with profile.span("Context()"):
            context = repeatability.another_context(loaded.context)
        with profile.span("loaded_again()"):
            model = loaded.loaded_again(context)
        with profile.span("first run"):
            repeatability.make_replay(model.program, inputs)()
        with profile.span("Model.close()"):
            model.close()
        with profile.span("Context.close()"):
            context.close()
            del model, context
    for span in profile.host:
        kind = span.name if span.kind == "user" else f"  {span.kind}"
        found[kind] += span.seconds
        counts[kind] += 1
    yield f"  {'ms, of a model loaded again by itself':40} {'':7} {'host':>9} {'':>9} {'times':>6}"
    for kind, seconds in sorted(found.items(), key=lambda item: -item[1]):
        yield f"  {kind:40} {'':7} {seconds * 1e3:9.2f} {'':9} {counts[kind]:6}"
