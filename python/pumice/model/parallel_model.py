"""A model on several devices of one machine: the rows of a call, or the cases of a map, go to whichever device is free."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from .._pumice import Context, DeviceLostError
from ..base.errors import InputError
from ..base.log import forward_log, log_warning
from ..base.printable_text import plain
from ..device.context import devices as listed_devices
from ..importer.file.model_file import Source, reread
from .batches import batch_of, checked_rows, layout_of, rows_of
from .multi_device_map import DeviceWork, LostDevice
from .model import Model
from .load_options import OF_EACH_MODEL, refuse_unknown
from .precision_policy import Precision
from .runs import MOST_IN_FLIGHT
from .model_values import ModelValue

_HINTS = dict.fromkeys(("device", "provider", "providers"), "devices=[...] lists the devices, by their names too")


def contexts_of(devices: str | Sequence[str | int | Context]) -> list[Context]:
    """Return contexts by device name: "all" means every visible device, but software drivers only if there is no other.

    Otherwise `devices` is a list or tuple of names, indices and contexts. A device listed twice gets two contexts. Raise DeviceError if a
    device does not exist or cannot be opened, InputError for other invalid arguments.
    """
    if isinstance(devices, str) and devices == "all":
        found = listed_devices()
        hardware = [one for one in found if one.kind != "software"]
        return [Context(one.index) for one in hardware or found] or [Context()]  # raises if there is no device
    if not isinstance(devices, list | tuple):
        given = repr(devices) if isinstance(devices, str | int) else type(devices).__name__
        raise InputError(f"devices: 'all' or a list of devices expected; given {given}")
    if not devices:
        raise InputError("devices: at least one device expected; given an empty list")
    for one in devices:
        if isinstance(one, bool) or not isinstance(one, str | int | Context):
            raise InputError(f"devices: names, indices and contexts expected in the list; given {type(one).__name__}")
    return [one if isinstance(one, Context) else Context(one) for one in devices]


def _check_seed(model: Model, seed: Any, devices: int) -> None:
    """Raise InputError for a random seed on several devices, which would all generate the same numbers."""
    if seed is not None and model.seed is not None and devices > 1:
        raise InputError(
            f"seed: no seed expected for a model with random numbers on {devices} devices; given {seed!r}: each device would make the "
            "same numbers, for other rows, and which rows it takes depends on which device is free"
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

    _no_source = "its .models[0] is the model on the first device"  # hint for callers who pass it as a model

    def __init__(
        self, source: Source, devices: str | Sequence[str | int | Context], precision: Precision, **options: Any
    ) -> None:
        refuse_unknown(options, OF_EACH_MODEL, _HINTS)
        source = reread(source)
        contexts = contexts_of(devices)
        given = {id(one) for one in devices if isinstance(one, Context)}
        self._own = [one for one in contexts if id(one) not in given]
        try:
            first = Model(source, contexts[0], precision, **options)
            _check_seed(first, options.get("seed"), len(contexts))
            rest = [Model(source, one, precision, **{**options, "progress": False}) for one in contexts[1:]]
        except BaseException:
            for context in self._own:
                context.close()
            raise
        self.models = (first, *rest)  # one per device, in the order of the devices
        self._losing = threading.Lock()
        self._late: Counter[int] = Counter()  # cases repeated because this device was overdue, by device index
        self._left: dict[
            int, threading.Thread
        ] = {}  # threads that still wait for a device although their result is no longer needed
        self.lost: list[LostDevice] = []  # devices lost so far, each listed once

    def __call__(self, /, *arrays: Any, **by_name: Any) -> Any:
        """Divide the rows among the devices, run the model and return all results as a Model does.

        Rows are the first axis of each output, and of each input whose first axis has no fixed size. The arguments are inputs only: no
        loop_timeout and no out. Raise BindingError for inputs that do not fit and for a model or an output
        without rows, before anything runs if the file shows it; InputError if the row count is not a multiple of the
        file's fixed number; DeviceLostError if no device is left; GraphError and IndexRangeError as a Model does.
        """
        model = self._alive()[0][1]
        layout = layout_of(model)
        batch = batch_of(layout, tuple(model.named(*arrays, **by_name)[name] for name in layout.inputs), {}, ())
        size = layout.fixed or max(-(-batch.rows // len(self._alive())), 1)
        counts = [min(size, batch.rows - begin) for begin in range(0, batch.rows, size)] or [0]
        if layout.fixed and any(count != size for count in counts):
            raise InputError(
                f"the file has {size} rows; expected a multiple of them, given {batch.rows}: BatchPredictor pads"
            )
        cases = [rows_of(layout, batch, i * size, count, count) for i, count in enumerate(counts)]
        for count, results in zip(counts, self.map(cases), strict=True):
            parts = (results,) if len(model.outputs) == 1 else tuple(results)
            batch.parts.append(checked_rows(model, parts, count, count))
        return model.outputs_of(batch.results())

    def map(self, cases: Iterable[Any], depth: int = 2) -> Iterator[Any]:
        """Yield the results of the cases in order, computed on all devices.

        cases: arrays, tuples of arguments or dicts of them by name. depth: cases in flight per device, 1 to 8. An error
        is raised at its case's position and ends the generator. Ctrl-C ends it at once: cases in flight finish on their
        own and are dropped. Raise InputError for another depth, DeviceLostError if no device is left.
        """
        if not isinstance(depth, int) or isinstance(depth, bool) or not 1 <= depth <= MOST_IN_FLIGHT:
            raise InputError(f"map: a depth of 1 to {MOST_IN_FLIGHT} cases expected; given {depth!r}")
        self._alive()
        return self._mapped(cases, depth)

    def _mapped(self, cases: Iterable[Any], depth: int) -> Iterator[Any]:
        # Devices may have been lost since the generator was created.
        yield from DeviceWork(self._alive(), depth, self._note_lost, self._note_late, self._left).run(cases)

    def _alive(self) -> list[tuple[int, Model]]:
        gone = {one.place for one in self.lost}
        alive = [(place, model) for place, model in enumerate(self.models) if place not in gone]
        if not alive:
            raise DeviceLostError(f"all devices were lost: {'; '.join(map(str, self.lost))}")
        return alive

    def _note_lost(self, lost: LostDevice) -> None:
        """Record a lost device once, although each thread and each map that uses it notices."""
        with self._losing:
            if any(one.place == lost.place for one in self.lost):
                return
            self.lost.append(lost)
        log_warning(f"model '{self.name}': {lost}")

    def _note_late(self, place: int) -> None:
        with self._losing:
            self._late[place] += 1

    # ---- properties

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
            f"device {i}: {one.device.name} ({one.device.kind}), {one.context.choice}"
            for i, one in enumerate(self.models)
        ]
        for place, count in sorted(self._late.items()):
            cases = "a case" if count == 1 else f"{count} cases"
            lines.append(
                f"device {place} ('{self.models[place].device.name}') was late: others did {cases} of its own as well"
            )
        return "\n".join([*lines, *map(str, self.lost)])

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse pickling: workers of another engine need a BatchPredictor, which opens its own device."""
        raise TypeError("a model on several devices cannot be pickled; give workers a pumice.BatchPredictor")

    def __repr__(self) -> str:
        return f"<ParallelModel '{plain(self.name)}' on {len(self.models)} devices, {len(self.lost)} of them lost>"

    # ---- lifetime

    def close(self) -> None:
        """Free the models' device memory, and close contexts that were not passed in. Idempotent."""
        for model in self.models:
            model.close()
        for context in self._own:
            context.close()
        forward_log()

    def __enter__(self) -> ParallelModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
