"""Runs of a model: results, asynchronous runs, Model.map(), and the recording of calls for a memory profile."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, overload

import numpy as np

from .._pumice import Error
from ..base.element_types import Array
from ..base.errors import InputError, binding_error
from ..base.printable_text import shorten_and_escape

if TYPE_CHECKING:
    from .._pumice import ProgramRun
    from ..base.string_table import PerCallStringTable
    from .model import Model
    from .model_values import ModelValue

MAX_IN_FLIGHT = 8  # maximum number of concurrent executions of a program with the same shapes
MAX_RECORDED_CALLS = 16  # maximum number of recorded combinations of model and argument shapes

# Calls recorded for a memory profile: (id of the model, argument shapes) -> (model, arguments). None: not recording.
recorded_calls: dict[tuple[Any, ...], tuple[Model, tuple[Any, ...]]] | None = None


def record_call(model: Model, signature: tuple[Any, ...], arrays: tuple[Any, ...]) -> None:
    """Record a call's arguments, unless a call of the model with these shapes is already recorded."""
    calls = recorded_calls  # read once, because another thread may end the recording
    if calls is not None and len(calls) < MAX_RECORDED_CALLS:
        calls.setdefault((id(model), signature), (model, arrays))


def start_recording_calls() -> None:
    """Start recording calls."""
    global recorded_calls
    recorded_calls = {}


def stop_recording_calls() -> list[tuple[Model, tuple[Any, ...]]]:
    """Stop recording and return the calls since start_recording_calls(), ordered by first call."""
    global recorded_calls
    calls, recorded_calls = list((recorded_calls or {}).values()), None
    return calls


class Outputs(tuple[Array, ...]):
    """Several results in graph order, accessible by position, by name (`y["logits"]`), and as attributes if the name is an identifier."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def named(names: tuple[str, ...]) -> type[Outputs]:
        """Return the subclass of Outputs for results with these names."""
        return type("Outputs", (Outputs,), {"__slots__": (), "_fields": names})

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Array: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Array, ...]: ...
    def __getitem__(self, key: SupportsIndex | str | slice) -> Array | tuple[Array, ...]:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self._fields:
            raise KeyError(f"'{key}'; available: {', '.join(self._fields)}")
        return super().__getitem__(self._fields.index(key))

    def __getattr__(self, name: str) -> Array:
        if name not in self._fields:
            raise AttributeError(f"no output '{name}'; available: {', '.join(self._fields)}")
        return super().__getitem__(self._fields.index(name))

    def _asdict(self) -> dict[str, Array]:
        return dict(zip(self._fields, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_outputs, (self._fields, tuple(self))

    def __repr__(self) -> str:
        return (
            f"Outputs({', '.join(f'{shorten_and_escape(name)}={value!r}' for name, value in self._asdict().items())})"
        )


def _make_outputs(names: tuple[str, ...], values: tuple[Array, ...]) -> Outputs:
    return Outputs.named(names)(values)


class ModelRun:
    """An execution started by Model.run_async, in flight or finished."""

    def __init__(self, run: ProgramRun, model: Model, strings: PerCallStringTable | None) -> None:
        self._run = run
        self._model = model
        self._strings = strings

    @property
    def done(self) -> bool:
        """Whether the run has finished."""
        return self._run.done

    @property
    def device_seconds(self) -> float | None:
        """Time on the device; None if it was not measured or the run has not finished."""
        return self._run.device_seconds

    @property
    def device_time(self) -> float | None:
        """Alias of device_seconds."""
        return self._run.device_seconds

    @property
    def cold(self) -> bool:
        """Whether a kernel ran for the first time in this run, which may then include driver compilation time."""
        return self._run.cold

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the run has finished; timeout in seconds. Raise TimeoutError if it expires, DeviceLostError if the device is lost."""
        self._run.wait(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Wait, and return the results in the form of a call; timeout in seconds.

        Raise TimeoutError if the timeout expires, DeviceLostError if the device is lost.
        """
        return self._model._make_results(self._run.result(timeout), self._strings)


def map_cases(model: Model, cases: Iterable[Any], depth: int, loop_timeout: float | None) -> Iterator[Any]:
    """Yield the results of the cases in order, with `depth` of them in flight. Raise InputError for another depth."""
    if not isinstance(depth, int) or isinstance(depth, bool) or not 1 <= depth <= MAX_IN_FLIGHT:
        raise InputError(f"map: expected a depth of 1 to {MAX_IN_FLIGHT} cases; given {depth!r}")
    return _map_results(model, iter(cases), depth, loop_timeout)


def _map_results(model: Model, cases: Iterator[Any], depth: int, loop_timeout: float | None) -> Iterator[Any]:
    started: deque[ModelRun | Exception] = deque()
    has_more = True

    def start_next_case() -> bool:
        """Start the next case. Errors of the case or of the iterator are raised at its position."""
        try:
            for case in cases:
                started.append(start_case(model, case, loop_timeout))
                return True
        except Exception as error:
            started.append(error)
        return False

    try:
        while True:
            while has_more and len(started) < depth:
                has_more = start_next_case()
            if not started:
                return
            run = started.popleft()
            if isinstance(run, Exception):
                raise run
            result = run.result()
            has_more = has_more and start_next_case()  # keeps the device busy while the caller processes the result
            yield result
    finally:
        for run in started:  # abandoned runs must finish before later executions reuse their memory
            if isinstance(run, ModelRun):
                with contextlib.suppress(Error):
                    run.wait()


def start_case(model: Model, case: Any, loop_timeout: float | None) -> ModelRun:
    """Start a case: an array, a tuple of arguments, or a dict of arguments by name. Raise the errors of Model.run_async."""
    if isinstance(case, Mapping):
        case = tuple(model.named(**case).values())  # all keys are input names
    return model.run_async(*(case if isinstance(case, tuple) else (case,)), loop_timeout=loop_timeout)


def check_output_arrays(values: list[ModelValue], out: Any, has_packed_values: bool) -> list[Array | None]:
    """Return the caller's output arrays in graph order, None for an output without one. out: an array, or arrays by name.

    Raise BindingError if `out` has unknown names or values that are not arrays, or if the model has packed values.
    """
    names = [value.name for value in values]
    if not isinstance(out, Mapping):
        if len(values) != 1:
            raise binding_error("K4", "out", f"a dict of arrays by name ({', '.join(names)})", type(out).__name__)
        out = {names[0]: out}
    for name, array in out.items():
        if name not in names:
            raise binding_error("K4", "out", f"outputs among {', '.join(names)}", f"'{name}'")
        if not isinstance(array, np.ndarray):
            raise binding_error("K5", f"{name}", "a NumPy array for the output", type(array).__name__)
    if has_packed_values:
        raise binding_error(
            "K4", "out", "no arrays, because this model has sequences, optional values or strings", "arrays"
        )
    return [out.get(name) for name in names]
