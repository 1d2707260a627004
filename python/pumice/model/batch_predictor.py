"""A picklable model for batches of rows, for worker threads and processes of joblib, Dask, Ray Data, Spark and the like."""

from __future__ import annotations

import inspect
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from .._pumice import OutOfMemoryError
from ..base.element_types import PRECISIONS, Array
from ..base.errors import InputError, binding_error
from ..base.log import log_warning
from ..importer.file.model_file import Folder, Source, make_rereadable, to_path_or_bytes
from ..importer.file.weight_files import compute_model_digests, get_model_file_states
from .batches import Batch, BatchLayout, check_result_rows, get_batch_layout, make_batch, slice_rows
from .load_options import reject_unknown_options
from .model import Model
from .model_runs import MAX_IN_FLIGHT
from .precision_policy import Precision, parse_policy
from .shared_models import Digests, ModelKey, SharedModel, get_shared_model, pin_model

_OPTIONS = ("seed", "fuse", "check_indices", "deterministic", "tuned")
_PREDICTOR_OPTIONS = ("device", "precision", "batch_size", "ragged", "columns", "keep", "named", "depth", "folder")
_RAGGED = ("pad", "rebind")
_PROCESS_LOCAL = "it contains functions of this process, which workers do not have; pass it to pumice.load()"
_HINTS = {
    "context": "device= names the device, which each worker opens itself",
    "devices": "a predictor opens one device; pumice.load(model, devices=...) supports several of one machine",
    "operators": _PROCESS_LOCAL,
    "kernels": _PROCESS_LOCAL,
    "overridable": "a batch has columns for inputs only; pass it to pumice.load()",
}


def _check_options(options: Mapping[str, Any], device: Any, precision: Precision) -> None:
    """Raise InputError or BindingError for invalid options early, before the predictor is sent to a worker."""
    reject_unknown_options(options, (*_PREDICTOR_OPTIONS, *_OPTIONS), _HINTS)
    if isinstance(device, bool) or not isinstance(device, str | int):
        raise InputError(f"BatchPredictor: device must be a name or an index, as for Context; given {device!r}")
    name = parse_policy(precision).precision
    if name not in PRECISIONS:
        raise InputError(
            f"BatchPredictor: precision must be one of {', '.join(PRECISIONS)}, or a policy; given {name!r}"
        )


def _check_run_options(batch_size: Any, ragged: Any, depth: Any) -> None:
    """Raise InputError for an invalid batch_size, ragged or depth."""
    if ragged not in _RAGGED:
        raise InputError(f"BatchPredictor: ragged must be 'pad' or 'rebind'; given {ragged!r}")
    if batch_size is not None and not _is_positive_int(batch_size):
        raise InputError(f"BatchPredictor: batch_size must be a positive number of rows, or None; given {batch_size!r}")
    if not _is_positive_int(depth) or depth > MAX_IN_FLIGHT:
        raise InputError(f"BatchPredictor: depth must be a number of runs from 1 to {MAX_IN_FLIGHT}; given {depth!r}")


def _is_positive_int(candidate: Any) -> bool:
    return isinstance(candidate, int) and not isinstance(candidate, bool) and candidate >= 1


def _check_columns(columns: Any, keep: Any) -> None:
    """Raise InputError for a columns or keep argument of the wrong type."""
    if columns is not None and not isinstance(columns, Mapping):
        raise InputError(f"BatchPredictor: columns must be a dict of columns by input; given {type(columns).__name__}")
    if isinstance(keep, str) or not isinstance(keep, Collection):
        raise InputError(f"BatchPredictor: keep must be a list of column names; given {keep!r}")


class BatchPredictor:
    """A model that is called with batches of rows and can be pickled before and after its first call. A context
    manager.

    It opens its device in the calling process, at the first call. Predictors of one process share one context per
    device, and one model if their arguments are equal. The model is freed when its last predictor is dropped or closed.
    For unpickled predictors, the most recent model stays open until the next one replaces it, because engines unpickle
    a predictor for each task: see release(). All methods are thread-safe.

    model: as for load(). If it is a path, every worker reads the file itself; it must find the same model and weights files there, which is
    checked by the SHA-256 taken when the predictor was pickled. Model bytes are pickled, but not their weights files. If one of the model's
    files changes, the next predictor opens the model again. An open predictor keeps its model; if memory is
    short and it must read the changed file again, it raises InputError instead of mixing results from two models.
    device: as for Context; "" follows PUMICE_DEVICE and the GPUs that an engine assigns, see docs/devices.md.
    precision, folder, and the options seed, fuse, check_indices, deterministic, tuned: as for load(). kernels= and
    operators= are rejected: they hold functions of this process, which a worker does not have.
    batch_size: maximum number of rows per run; None: all rows of a batch. If the file fixes the number of rows, batch_size is that number.
    ragged: how to handle a run with fewer than batch_size rows, such as the last of a batch. "pad" repeats the run's last row and drops the
    extra results: the model is bound only once, but rows must not depend on each other. "rebind" also binds the model to the smaller number
    of rows. A file with a fixed number of rows supports only padding.
    columns: input name -> name of the batch's column, if they differ. keep: columns of a dict batch that are returned with the results;
    they may not have an output's name. Other columns that are not inputs are dropped. named: return results as a dict by name for any form
    of batch; with keep, every batch must be a dict.
    depth: runs in flight, 1 to 8, to overlap transfers and computation.

    If a run does not fit in the device's memory, the number of rows per run is halved permanently; the logger "pumice" and `notes` report
    it. Raise InputError and BindingError for invalid arguments. Errors in the model, and names in columns and keep that do not match it,
    are raised by the first call.
    """

    _no_source_hint = "its .model is the model that it opens"  # for the error message if it is passed as a model

    def __init__(
        self,
        model: Source,
        *,
        device: str | int = "",
        precision: Precision = "fp32",
        batch_size: int | None = None,
        ragged: str = "pad",
        columns: Mapping[str, str] | None = None,
        keep: Collection[str] = (),
        named: bool = False,
        depth: int = 2,
        folder: Folder | None = None,
        **options: Any,
    ) -> None:
        _check_options(options, device, precision)
        _check_run_options(batch_size, ragged, depth)
        _check_columns(columns, keep)
        self._source = to_path_or_bytes(make_rereadable(model))
        if isinstance(self._source, str) and not os.path.exists(self._source):
            raise FileNotFoundError(2, os.strerror(2), self._source)
        # Expected SHA-256 of the model's files; set by pickling, empty in the process that created the predictor.
        self._digests: Digests = ()
        self._is_unpickled = False
        self._device, self._precision = device, precision
        self._folder = None if folder is None else os.path.abspath(folder)
        self._options = options
        self._max_rows, self._ragged, self._depth = batch_size, ragged, depth
        self._columns, self._keep, self._named = dict(columns or {}), [*keep], named
        self._opened: SharedModel | None = None
        self._batch_layout: BatchLayout | None = None
        self.notes: list[str] = []  # a sentence for each time that batch_size was reduced

    # ---- calls on batches

    def __call__(self, *arrays: Any) -> Any:
        """Return the results of all rows of one batch.

        A batch is an array, arrays in the order of the inputs, or one dict of columns. A dict returns a dict of arrays
        by name; otherwise one output returns an array, several return Outputs. Raise BindingError if a batch does not
        fit the model or an output has no row axis, OutOfMemoryError if not even one row fits, and whatever loading
        raises.
        """
        (result,) = self.map([arrays[0] if len(arrays) == 1 else arrays])
        return result

    def map(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of each batch in order, with runs of the next batches in flight.

        A batch is an array, a tuple of arrays in the order of the inputs, or a dict of columns. Raise the errors of a call at that batch's
        position; an error in the iterator `batches` ends the generator.
        """
        return self._iterate_results(iter(batches))

    def make_predict_fn(self) -> Callable[..., Any]:
        """Return a function with one argument per input, for Spark's predict_batch_udf(predictor.make_predict_fn, ...).

        The function returns an array, or a dict of arrays by name if the model has several outputs. Calling make_predict_fn opens the
        device.
        """
        model = self.model

        def predict(*arrays: Array) -> Any:
            result = self(*arrays)
            return dict(result._asdict()) if hasattr(result, "_asdict") else result

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = (f"input_{i}" for i in range(len(model.inputs)))
        predict.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
        return predict

    # ---- splitting a batch into runs

    def _iterate_results(self, batches: Iterator[Any]) -> Iterator[Any]:
        pending: deque[Batch] = deque()
        while True:
            model, layout = self._open_model()
            max_rows = layout.fixed_rows or self._max_rows
            sent: deque[tuple[Batch, int, int]] = deque()
            try:
                for results in model.map(
                    self._iterate_run_arguments(layout, max_rows, batches, pending, sent), self._depth
                ):
                    batch, rows, count = sent.popleft()
                    run_results = (results,) if len(model.outputs) == 1 else tuple(results)
                    batch.run_results.append(check_result_rows(model, run_results, rows, count))
                    batch.done += count
                    if batch.done == batch.rows:
                        pending.popleft()
                        yield self._make_result(model, batch)
                return
            except OutOfMemoryError as error:
                if not sent:  # the error came from the batch iterator, not from a run
                    raise
                rows = sent[0][1]
                sent.clear()
                for batch in pending:  # their runs in flight were dropped, so send the dropped rows again
                    batch.sent, batch.is_started = batch.done, bool(batch.done)
                self._halve_rows_per_run(layout, rows, error)

    def _iterate_run_arguments(
        self,
        layout: BatchLayout,
        max_rows: int | None,
        batches: Iterator[Any],
        pending: deque[Batch],
        sent: deque[tuple[Batch, int, int]],
    ) -> Iterator[dict[str, Array]]:
        """Yield the arguments of each run when it is due, and append (batch, rows, rows without padding) to `sent`."""
        while True:
            batch = next(
                (
                    pending_batch
                    for pending_batch in pending
                    if pending_batch.sent < pending_batch.rows or not pending_batch.is_started
                ),
                None,
            )
            if batch is None:
                try:
                    batch_argument = next(batches)
                except StopIteration:
                    return
                batch = make_batch(layout, batch_argument, self._columns, self._keep)
                if self._named and self._keep and not batch.is_named:
                    expectation = f"a dict of columns, since keep= names {', '.join(map(str, self._keep))}"
                    raise binding_error("K4", "", expectation, "arrays without names", kind="column")
                pending.append(batch)
            count = min(batch.rows - batch.sent, max_rows or batch.rows)
            is_padded = layout.fixed_rows is not None or self._ragged == "pad"
            rows = max_rows if max_rows and is_padded else count
            sent.append((batch, rows, count))
            arguments = slice_rows(layout, batch, batch.sent, count, rows)
            batch.sent += count
            batch.is_started = True
            yield arguments

    def _halve_rows_per_run(self, layout: BatchLayout, rows: int, error: OutOfMemoryError) -> None:
        """Halve the rows per run from now on. Raise the error again if a run of one row does not fit or the file fixes the rows."""
        if layout.fixed_rows is not None or rows <= 1:
            raise error
        self._max_rows = min(self._max_rows or rows, rows // 2)  # another thread may already have halved it
        note = f"a run of {rows} rows does not fit the device's memory ({error}); runs have at most {self._max_rows} rows from now on"
        self.notes.append(note)
        log_warning(f"BatchPredictor: {note}")
        if self._opened is not None:
            self._opened.invalidate()  # frees the memory that was allocated for larger runs

    def _make_result(self, model: Model, batch: Batch) -> Any:
        results = batch.concatenate_results()
        if batch.is_named or self._named:
            return {
                **batch.passthrough,
                **{value.name: column for value, column in zip(model.outputs, results, strict=True)},
            }
        return model.outputs_of(results)

    # ---- properties and lifetime

    @property
    def model(self) -> Model:
        """The model, loaded on first access. Raises whatever loading raises."""
        return self._open_model()[0]

    @property
    def batch_size(self) -> int | None:
        """The maximum number of rows per run: as requested, or less if memory was short; None: all rows of a batch."""
        return self._max_rows

    @property
    def is_open(self) -> bool:
        """Whether the predictor has opened its device in this process and has not been closed since."""
        return self._opened is not None

    def _open_model(self) -> tuple[Model, BatchLayout]:
        opened_entry = self._opened
        if opened_entry is None or opened_entry.process != os.getpid():
            state = get_model_file_states(self._source, self._folder)
            expectation = (repr(self._precision), repr(self._options))
            key = ModelKey(self._source, self._digests, state, self._folder, self._device, *expectation)
            opened_entry = self._opened = get_shared_model(key, self._precision, self._folder, self._options)
            if self._is_unpickled:
                pin_model(opened_entry)
        model = opened_entry.get_model()
        if self._batch_layout is None:
            layout = get_batch_layout(model)
            self._check_column_names(model, layout)
            self._batch_layout = layout
        return model, self._batch_layout

    def _check_column_names(self, model: Model, layout: BatchLayout) -> None:
        """Raise BindingError if `columns` names an unknown input, or if a kept column has the name of an output."""
        for name in self._columns:
            if name not in layout.inputs:
                expectation = f"names of inputs ({', '.join(layout.inputs)})"
                raise binding_error("K4", "columns", expectation, f"{name!r}", kind="argument")
        outputs = [value.name for value in model.outputs]
        for name in self._keep:
            if name in outputs:
                expectation = f"columns that are not outputs ({', '.join(outputs)})"
                raise binding_error("K4", "keep", expectation, f"{name!r}", kind="argument")

    def close(self) -> None:
        """Release the model; device memory is freed unless another predictor of the process uses it. The next call
        reopens it. Idempotent.
        """
        self._opened = None
        if self._is_unpickled:
            pin_model(None)

    @staticmethod
    def release() -> None:
        """Release the model that this process keeps open for unpickled predictors."""
        pin_model(None)

    def __enter__(self) -> BatchPredictor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling: how to open the model, without any device state.

        It includes the SHA-256 of each of the model's files; a file is hashed again only if its size, time or inode has
        changed.
        Raise OSError and GraphError if a file is missing.
        """
        digests = self._digests if self._is_unpickled else compute_model_digests(self._source, self._folder)
        pickled_state = {
            "_digests": digests,
            "_is_unpickled": True,
            "_opened": None,
            "_batch_layout": None,
            "notes": [],
        }
        return {**self.__dict__, **pickled_state}

    def __repr__(self) -> str:
        source = repr(self._source) if isinstance(self._source, str) else f"{len(self._source)} bytes"
        rows = "all rows of a batch" if self._max_rows is None else f"at most {self._max_rows} rows"
        return f"<BatchPredictor of {source}, runs of {rows}, {'open' if self.is_open else 'not open'}>"
