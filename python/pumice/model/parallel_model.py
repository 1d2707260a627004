"""A model on several devices of one machine. Free devices take rows of a call, or cases of a map."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from .._pumice import Context, DeviceLostError
from ..base.errors import InputError
from ..base.log import forward_log, log_warning
from ..base.printable_text import shorten_and_escape
from ..device.context import devices as listed_devices
from ..importer.file.model_file import Source, make_rereadable
from .batches import check_result_rows, get_batch_layout, make_batch, slice_rows
from .load_options import ALL_MODEL_OPTIONS, reject_unknown_options
from .model import Model
from .model_runs import MAX_IN_FLIGHT
from .model_values import ModelValue
from .multi_device_scheduler import LostDevice, MultiDeviceScheduler
from .precision_policy import Precision

_OPTIONS = tuple(name for name in ALL_MODEL_OPTIONS if name not in ("context", "precision", "overridable"))
_HINTS = dict.fromkeys(("device", "provider", "providers"), "devices=[...] lists the devices, by their names too")


def open_contexts(devices: str | Sequence[str | int | Context]) -> list[Context]:
    """Return a context for each device in `devices`: names, indices or contexts, or "all" for every visible device.

    "all" includes software drivers only if there is no other device. A device listed twice gets two contexts. Raise DeviceError if a
    device does not exist or cannot be opened, InputError for other invalid arguments.
    """
    if isinstance(devices, str) and devices == "all":
        visible = listed_devices()
        hardware = [requested for requested in visible if requested.kind != "software"]
        return [Context(requested.index) for requested in hardware or visible] or [
            Context()
        ]  # raises if there is no device
    if not isinstance(devices, list | tuple):
        received = repr(devices) if isinstance(devices, str | int) else type(devices).__name__
        raise InputError(f"devices: expected 'all' or a list of devices; given {received}")
    if not devices:
        raise InputError("devices: expected at least one device; given an empty list")
    for requested in devices:
        if isinstance(requested, bool) or not isinstance(requested, str | int | Context):
            raise InputError(
                f"devices: expected names, indices and contexts in the list; given {type(requested).__name__}"
            )
    return [requested if isinstance(requested, Context) else Context(requested) for requested in devices]


def _check_seed(model: Model, seed: Any, devices: int) -> None:
    """Raise InputError for a random seed with several devices, because all of them would generate the same numbers."""
    if seed is not None and model.seed is not None and devices > 1:
        raise InputError(
            f"seed: expected no seed for a model with random numbers on {devices} devices; given {seed!r}: each device would generate "
            "the same numbers for different rows, and which rows it gets depends on which device is free"
        )


class ParallelModel:
    """A model loaded on several devices, for calls whose rows are independent and for map(). A context manager.

    Created by `load(..., devices=...)`. One thread per device takes the next work item when it is free, so a slower
    device does less. If a case is overdue on one device, an idle device repeats it; the first result counts, and report() mentions it. If a
    device is lost, the others repeat its work; `lost` and the logger "pumice" report it. Its methods are thread-safe.

    deterministic=True makes every run on one device bitwise reproducible. Which device gets a work item depends on
    which is free, and lost devices change the division of rows. Different devices or drivers round differently, so
    results are reproducible only on identical devices, as long as none is lost. Each device draws its own random seed:
    seed= with more than one device is rejected for a model with random numbers. Nodes with their own `seed` generate
    the same numbers on every device.
    """

    _no_source_hint = (
        "its .models[0] is the model on the first device"  # for the error message if it is passed as a model
    )

    def __init__(
        self, source: Source, devices: str | Sequence[str | int | Context], precision: Precision, **options: Any
    ) -> None:
        reject_unknown_options(options, _OPTIONS, _HINTS)
        source = make_rereadable(source)
        contexts = open_contexts(devices)
        passed_contexts = {id(context_item) for context_item in devices if isinstance(context_item, Context)}
        self._own_contexts = [context_item for context_item in contexts if id(context_item) not in passed_contexts]
        try:
            first_model = Model(source, contexts[0], precision, **options)
            _check_seed(first_model, options.get("seed"), len(contexts))
            other_models = [
                Model(source, context_item, precision, **{**options, "progress": False})
                for context_item in contexts[1:]
            ]
        except BaseException:
            for context in self._own_contexts:
                context.close()
            raise
        self.models = (first_model, *other_models)  # one per device, in the order of `devices`
        self._lock = threading.Lock()
        self._overdue_counts: Counter[int] = (
            Counter()
        )  # device index -> number of its overdue cases that other devices repeated
        self._unfinished_threads: dict[
            int, threading.Thread
        ] = {}  # device index -> thread that still waits for the device although its result is no longer needed
        self.lost: list[LostDevice] = []  # devices lost so far

    def __call__(self, /, *arrays: Any, **by_name: Any) -> Any:
        """Divide the rows among the devices, run the model and return all results as a Model does.

        Rows are the first axis of each output, and of each input whose first axis has no fixed size. The arguments are inputs only: no
        loop_timeout and no out. Raise BindingError for inputs that do not fit and for a model or an output
        without rows, before anything runs if the file shows it; InputError if the row count is not a multiple of the
        file's fixed number; DeviceLostError if no device is left; GraphError and IndexRangeError as a Model does.
        """
        model = self._get_alive_models()[0][1]
        layout = get_batch_layout(model)
        batch = make_batch(layout, tuple(model.named(*arrays, **by_name)[name] for name in layout.inputs), {}, ())
        size = layout.fixed_rows or max(-(-batch.rows // len(self._get_alive_models())), 1)
        counts = [min(size, batch.rows - begin) for begin in range(0, batch.rows, size)] or [0]
        if layout.fixed_rows and any(count != size for count in counts):
            raise InputError(
                f"the file has {size} rows; expected a multiple of that, given {batch.rows}: BatchPredictor pads"
            )
        cases = [slice_rows(layout, batch, i * size, count, count) for i, count in enumerate(counts)]
        for count, results in zip(counts, self.map(cases), strict=True):
            run_results = (results,) if len(model.outputs) == 1 else tuple(results)
            batch.run_results.append(check_result_rows(model, run_results, count, count))
        return model.outputs_of(batch.concatenate_results())

    def map(self, cases: Iterable[Any], depth: int = 2) -> Iterator[Any]:
        """Yield the results of the cases in order, computed on all devices.

        cases: arrays, tuples of arguments or dicts of them by name. depth: cases in flight per device, 1 to 8. An error
        is raised at its case's position and ends the generator. Ctrl-C ends it at once: cases in flight finish on their
        own and are dropped. Raise InputError for another depth, DeviceLostError if no device is left.
        """
        if not isinstance(depth, int) or isinstance(depth, bool) or not 1 <= depth <= MAX_IN_FLIGHT:
            raise InputError(f"map: expected a depth of 1 to {MAX_IN_FLIGHT} cases; given {depth!r}")
        self._get_alive_models()
        return self._map_pipelined(cases, depth)

    def _map_pipelined(self, cases: Iterable[Any], depth: int) -> Iterator[Any]:
        # Get the devices again, because some may have been lost since the generator was created.
        yield from MultiDeviceScheduler(
            self._get_alive_models(),
            depth,
            self._record_device_loss,
            self._record_overdue_case,
            self._unfinished_threads,
        ).run(cases)

    def _get_alive_models(self) -> list[tuple[int, Model]]:
        lost_indices = {loss.place for loss in self.lost}
        alive = [
            (device_index, model) for device_index, model in enumerate(self.models) if device_index not in lost_indices
        ]
        if not alive:
            raise DeviceLostError(f"all devices were lost: {'; '.join(map(str, self.lost))}")
        return alive

    def _record_device_loss(self, lost: LostDevice) -> None:
        """Record and log a lost device once, although every map that uses it reports the loss."""
        with self._lock:
            if any(loss.place == lost.place for loss in self.lost):
                return
            self.lost.append(lost)
        log_warning(f"model '{self.name}': {lost}")

    def _record_overdue_case(self, device_index: int) -> None:
        with self._lock:
            self._overdue_counts[device_index] += 1

    # ---- properties and reports

    @property
    def name(self) -> str:
        """The model's name."""
        return self.models[0].name

    @property
    def precision(self) -> str:
        """The precision, as Model.precision."""
        return self.models[0].precision

    @property
    def inputs(self) -> list[ModelValue]:
        """The inputs, as Model.inputs."""
        return self.models[0].inputs

    @property
    def outputs(self) -> list[ModelValue]:
        """The outputs, as Model.outputs."""
        return self.models[0].outputs

    def report(self) -> str:
        """Return a line for each device with the reason for choosing it, and one for each that was overdue or lost."""
        lines = [
            f"device {i}: {device_model.device.name} ({device_model.device.kind}), {device_model.context.choice}"
            for i, device_model in enumerate(self.models)
        ]
        for device_index, count in sorted(self._overdue_counts.items()):
            cases = "a case" if count == 1 else f"{count} cases"
            lines.append(
                f"device {device_index} ('{self.models[device_index].device.name}') was late: others also ran {cases} of its cases"
            )
        return "\n".join([*lines, *map(str, self.lost)])

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse pickling: workers of another engine need a BatchPredictor, which opens its own device."""
        raise TypeError("a model on several devices cannot be pickled; give workers a pumice.BatchPredictor")

    def __repr__(self) -> str:
        return f"<ParallelModel '{shorten_and_escape(self.name)}' on {len(self.models)} devices, {len(self.lost)} of them lost>"

    # ---- releasing the devices

    def close(self) -> None:
        """Free the models' device memory, and close contexts that were not passed in. Idempotent."""
        for model in self.models:
            model.close()
        for context in self._own_contexts:
            context.close()
        forward_log()

    def __enter__(self) -> ParallelModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
