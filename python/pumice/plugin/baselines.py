"""Golden baselines: stored measurements from a validation, with which later runs are compared."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._pumice import Context, DeviceInfo, UnsupportedError, __version__, sha256
from ..base.element_types import Array
from ..base.errors import InputError
from ..device.context import tensor
from ..device.kernel import Kernel
from ..importer.file.model_file import to_path_or_bytes
from ..importer.file.weight_files import compute_model_digests
from .matrix_cells import MatrixCell, shorten_device_name

if TYPE_CHECKING:
    from ..model.model import Model

_SCHEMA = 2
_NUM_ROUNDS = 10  # timing rounds, alternating model and reference kernel; the fastest of each counts
_MIN_ROUNDS, _MAX_SECONDS = 3, 5.0  # a slow model gets fewer rounds, within this time limit
_BATCH_SECONDS = (
    0.005  # minimum duration of a batch of calls, equal for model and reference so that a busy host slows both alike
)
_NUM_TRIALS = 3  # a model counts as slower only if this many measurements agree
# The reference kernel does constant work without the engine's operators, so changes to them do not affect its time. On a GPU it runs long
# enough for the clocks to ramp up; on a software driver, this work would take a second.
_THREADS, _STEPS = (
    {True: 1 << 14, False: 1 << 18},
    {True: 256, False: 4096},
)  # key: whether the device is a software driver
_REFERENCE_KERNEL = """
layout(binding = 0) buffer X { float x[]; };
layout(push_constant) uniform Parameters { int steps; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  float v = x[i];
  for (int k = 0; k < steps; ++k) v = fma(v, 0.999, 0.001);
  x[i] = v;
}
"""


class BaselineError(AssertionError):
    """Raised if a validation is worse than its golden baseline in an output's error, in dispatches or in time."""


def format_driver(info: DeviceInfo) -> str:
    """Return the driver's own name and version text."""
    return f"{info.driver} {info.driver_info}".strip()


def get_baseline_path(folder: Path, test: str, model: str, cell: MatrixCell, info: DeviceInfo) -> Path:
    """Return the path of a test's baseline file, without the cell label, so that runs with one and with several cells share it."""
    for label in (f"[{cell.label}]", f"{cell.label}-", f"-{cell.label}"):
        test = test.replace(label, "")
    digest = hashlib.sha256(f"{test}\n{model}".encode()).hexdigest()[:8]
    readable_name = re.sub(r"[^A-Za-z0-9]+", "_", test.rpartition("/")[2])[:64].strip("_")
    return folder / shorten_device_name(info.name) / cell.precision / f"{readable_name}-{digest}.json"


def summarize_outputs(record: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return the error of each output of a validation, its bound, and the error relative to the bound."""
    summary: dict[str, dict[str, float | None]] = {}
    for row in record["rows"]:
        if row["op"] == "output":
            error, allowed = row["error"], row["allowed"]
            has_both = error is not None and allowed is not None
            ratio = (error / allowed if allowed else 0.0) if has_both else None
            summary[row["output"]] = {"error": error, "bound": allowed, "ratio": ratio}
    return summary


def hash_model(model: Model) -> str:
    """Return one SHA-256 over all of a model's files: the model file or bytes, and its external weights."""
    source = to_path_or_bytes(model.source)
    model_hash = [] if isinstance(source, str) else [("", sha256(source))]
    return hashlib.sha256(repr([*model_hash, *compute_model_digests(source, model.folder)]).encode()).hexdigest()


def hash_value(value: Any) -> str:
    """Return the SHA-256 of an argument or result: dtype, shape and elements of an array, the items of a sequence."""
    if value is None or isinstance(value, list | tuple):
        return hashlib.sha256(repr(value and [hash_value(item) for item in value]).encode()).hexdigest()
    array = np.asarray(value)
    head = f"{array.dtype.str} {array.shape} ".encode()
    elements = (
        repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    )  # string arrays have the dtype object
    return hashlib.sha256(head + elements).hexdigest()


def hash_model_call(model: Model, arrays: Sequence[Any]) -> dict[str, Any]:
    """Return the SHA-256 of a model's files, of the arguments of a call, and of each output."""
    result = model(*arrays)
    outputs = result if len(model.outputs) > 1 else [result]
    return {
        "model_sha256": hash_model(model),
        "inputs_sha256": [hash_value(array) for array in arrays],
        "outputs_sha256": {
            value.name: hash_value(output) for value, output in zip(model.outputs, outputs, strict=True)
        },
    }


def count_dispatches(model: Model, arrays: Sequence[Array]) -> int | None:
    """Return the number of dispatches in a call; None if the program is not a single command list."""
    try:
        return len(model.program.plan([list(array.shape) for array in arrays]))
    except UnsupportedError:
        return None


def _measure_average_seconds(call: Callable[[], Any], calls: int) -> float:
    """Return the average seconds per call."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


class RelativeTimer:
    """Times calls to a model relative to a reference kernel."""

    def __init__(self, context: Context) -> None:
        software = context.info.kind == "software"
        self._arguments: dict[str, Any] = {"threads": _THREADS[software], "steps": _STEPS[software]}
        self._memory = tensor(np.ones(_THREADS[software], np.float32), context)
        self._kernel = Kernel(_REFERENCE_KERNEL, context)

    def _run_reference(self) -> None:
        self._kernel(x=self._memory, **self._arguments)

    def measure(self, model: Model, arrays: Sequence[Array]) -> dict[str, float]:
        """Return the seconds of a call and of the reference kernel (minimum over several batches), and their ratio."""
        calls = (lambda: model(*arrays), self._run_reference)
        for call in calls:
            call()  # the first call compiles the kernels
        warm_seconds = [_measure_average_seconds(call, 3) for call in calls]
        batches = [max(1, round(max(*warm_seconds, _BATCH_SECONDS) / seconds)) for seconds in warm_seconds]
        pairs, best = list(zip(calls, batches, strict=True)), [float("inf")] * 2
        begin = time.perf_counter()
        for done in range(_NUM_ROUNDS):
            if done >= _MIN_ROUNDS and time.perf_counter() - begin > _MAX_SECONDS:
                break
            best = [
                min(fastest, _measure_average_seconds(*timed_call))
                for fastest, timed_call in zip(best, pairs, strict=True)
            ]
        return {"seconds": best[0], "reference_seconds": best[1], "time_ratio": best[0] / best[1]}

    def measure_min(self, model: Model, arrays: Sequence[Array], target_ratio: float) -> dict[str, float]:
        """Return the measurement with the lowest ratio out of several; stop early once the ratio is at most `target_ratio`."""
        best = self.measure(model, arrays)
        for _ in range(_NUM_TRIALS - 1):
            if best["time_ratio"] <= target_ratio:
                break
            best = min(best, self.measure(model, arrays), key=_get_time_ratio)
        return best

    def measure_median(self, model: Model, arrays: Sequence[Array]) -> dict[str, float]:
        """Return the measurement with the median ratio out of several, to be stored as a baseline."""
        return sorted((self.measure(model, arrays) for _ in range(_NUM_TRIALS)), key=_get_time_ratio)[_NUM_TRIALS // 2]


def _get_time_ratio(times: Mapping[str, float]) -> float:
    return times["time_ratio"]


def make_baseline_entry(
    record: Mapping[str, Any],
    info: DeviceInfo,
    dispatches: int | None,
    times: Mapping[str, float],
    digests: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the baseline entry of a validation."""
    return {
        "model": record["model"],
        "device": info.name,
        "driver": info.driver,
        "driver_version": info.driver_info,
        "precision": record["precision"],
        "pumice": __version__,
        "outputs": summarize_outputs(record),
        "dispatches": dispatches,
        **times,
        **digests,
    }


def load_baseline(path: Path, info: DeviceInfo) -> dict[str, Any] | None:
    """Return the baseline for this driver version, else the latest for this driver, else None. Raise InputError for an invalid file."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"baseline '{path}': {error}") from None
    if (
        not isinstance(document, dict)
        or document.get("schema") != _SCHEMA
        or not isinstance(document.get("drivers"), dict)
    ):
        raise InputError(f"baseline '{path}': expected a file of schema {_SCHEMA}, as --pumice-update writes it")
    drivers: dict[str, dict[str, Any]] = document["drivers"]
    if format_driver(info) in drivers:
        return drivers[format_driver(info)]
    same_driver = [driver_entry for driver_entry in drivers.values() if driver_entry["driver"] == info.driver]
    return same_driver[-1] if same_driver else None


def find_regressions(
    current: Mapping[str, Any], baseline: Mapping[str, Any], factors: Mapping[str, float]
) -> list[str]:
    """Return a sentence for each measurement that exceeds its baseline by more than the allowed factor, with both values."""
    messages = []
    if current["model_sha256"] != baseline["model_sha256"] and not _has_same_results(current, baseline):
        current_hash, baseline_hash = current["model_sha256"][:12], baseline["model_sha256"][:12]
        messages.append(
            f"model: its files have the SHA-256 {current_hash}..., those of the baseline had {baseline_hash}...: the weights or the "
            "graph changed; --pumice-update writes it again"
        )
    for name in current["outputs"].keys() ^ baseline["outputs"].keys():
        where = "is not in the baseline" if name in current["outputs"] else "is in the baseline, but not in the model"
        messages.append(f"output '{name}' {where}: --pumice-update writes it again")
    for name, output_entry in current["outputs"].items():
        before = baseline["outputs"].get(name, {}).get("ratio")
        if before is not None and _exceeds_limit(output_entry["ratio"], before * factors["error"]):
            ratio = "unknown" if output_entry["ratio"] is None else f"{output_entry['ratio']:.3g}"
            limit = f"at most {factors['error']:g} times that is allowed"
            messages.append(f"error of output '{name}': {ratio} of its bound, {before:.3g} in the baseline, {limit}")
    count, before = current["dispatches"], baseline["dispatches"]
    if before is not None and _exceeds_limit(count, before * factors["dispatches"]):
        limit = f"at most {factors['dispatches']:g} times as many are allowed"
        messages.append(f"dispatches: {'unknown' if count is None else count}, {before} in the baseline, {limit}")
    if _exceeds_limit(current["time_ratio"], baseline["time_ratio"] * factors["time"]):
        messages.append(
            f"time: {current['time_ratio']:.3g} times the reference kernel's, {baseline['time_ratio']:.3g} in the baseline, "
            f"at most {factors['time']:g} times that is allowed"
        )
    return messages


def _has_same_results(current: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool:
    """Return whether inputs and outputs are bitwise equal; then the model files differ only in names or documentation."""
    return all(current[key] == baseline[key] for key in ("inputs_sha256", "outputs_sha256"))


def find_harmless_changes(current: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each harmless difference from the baseline, such as other inputs or other bits in an output."""
    if current["inputs_sha256"] != baseline["inputs_sha256"]:
        return ["the inputs are not those of the baseline, so the bits of the outputs are not compared"]
    if current["model_sha256"] != baseline["model_sha256"]:
        return ["the model's files changed, its outputs did not"] if _has_same_results(current, baseline) else []
    before = baseline["outputs_sha256"]
    return [
        f"output '{name}' has other bits than the baseline, within its bound"
        for name, digest in current["outputs_sha256"].items()
        if before.get(name, digest) != digest
    ]


def _exceeds_limit(number: float | None, limit: float) -> bool:
    """Return whether a number exceeds its limit, or either is None or NaN."""
    return number is None or not number <= limit


def merge_baseline_entries(new_entries: Iterable[Mapping[str, Any]]) -> dict[Path, str]:
    """Return path -> new file content for baselines of the form {"path": ..., "test": ..., "entry": ...}, keeping the entries of other
    drivers.
    """
    files: dict[Path, dict[str, Any]] = {}
    for new_entry in new_entries:
        path, new = Path(new_entry["path"]), new_entry["entry"]
        if path not in files:
            try:
                files[path] = json.loads(path.read_text())
            except (OSError, ValueError):
                files[path] = {}
            if not isinstance(files[path], dict) or files[path].get("schema") != _SCHEMA:
                files[path] = {"schema": _SCHEMA, "drivers": {}}
        drivers = files[path].setdefault("drivers", {})
        key = f"{new['driver']} {new['driver_version']}".strip()
        drivers.pop(key, None)  # insert it again at the end, because the latest entry is last
        drivers[key] = new
        files[path]["test"] = new_entry["test"]
    return {path: json.dumps(data, indent=2) + "\n" for path, data in files.items()}
