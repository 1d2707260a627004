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
from ..importer.file.model_file import portable
from ..importer.file.weight_files import model_digests
from .cells import Cell, short_name

if TYPE_CHECKING:
    from ..model.model import Model

_SCHEMA = 2
_ROUNDS = 10  # timing rounds, alternating model and reference kernel; the fastest of each counts
_LEAST_ROUNDS, _MOST_SECONDS = 3, 5.0  # a slow model gets fewer rounds, within this time limit
_BATCH_SECONDS = 0.005  # duration of each batch, the same for model and reference, so that a busy host slows both alike
_TRIALS = 3  # a model counts as slower only if this many measurements agree
# The reference kernel does constant work without the engine's operators, so changes to them do not affect it. It runs
# long enough to reflect a GPU's clocks; on a software driver, that much work would take a second.
_THREADS, _STEPS = {True: 1 << 14, False: 1 << 18}, {True: 256, False: 4096}  # key: whether the device is software
_REFERENCE = """
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


def driver_of(info: DeviceInfo) -> str:
    """Return the driver's own name and version text."""
    return f"{info.driver} {info.driver_info}".strip()


def file_of(folder: Path, test: str, model: str, cell: Cell, info: DeviceInfo) -> Path:
    """Return the path of a test's baseline. The cell label is removed from the test id, so that single-cell runs use the same file."""
    for part in (f"[{cell.label}]", f"{cell.label}-", f"-{cell.label}"):
        test = test.replace(part, "")
    digest = hashlib.sha256(f"{test}\n{model}".encode()).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9]+", "_", test.rpartition("/")[2])[:64].strip("_")
    return folder / short_name(info.name) / cell.precision / f"{readable}-{digest}.json"


def outputs_of(record: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return the error of each output of a validation, its bound, and the error relative to the bound."""
    made: dict[str, dict[str, float | None]] = {}
    for row in record["rows"]:
        if row["op"] == "output":
            error, allowed = row["error"], row["allowed"]
            known = error is not None and allowed is not None
            ratio = (error / allowed if allowed else 0.0) if known else None
            made[row["output"]] = {"error": error, "bound": allowed, "ratio": ratio}
    return made


def digest_of_model(model: Model) -> str:
    """Return one SHA-256 over all of a model's files: the model file or bytes, and its external weights."""
    source = portable(model.source)
    own = [] if isinstance(source, str) else [("", sha256(source))]
    return hashlib.sha256(repr([*own, *model_digests(source, model.folder)]).encode()).hexdigest()


def digest_of_value(value: Any) -> str:
    """Return the SHA-256 of an argument or result: dtype, shape and elements of an array, the items of a sequence."""
    if value is None or isinstance(value, list | tuple):
        return hashlib.sha256(repr(value and [digest_of_value(item) for item in value]).encode()).hexdigest()
    array = np.asarray(value)
    head = f"{array.dtype.str} {array.shape} ".encode()
    elements = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()  # strings are objects
    return hashlib.sha256(head + elements).hexdigest()


def digests_of(model: Model, arrays: Sequence[Any]) -> dict[str, Any]:
    """Return the SHA-256 of a model's files, of the arguments of a call, and of each output."""
    result = model(*arrays)
    outputs = result if len(model.outputs) > 1 else [result]
    return {
        "model_sha256": digest_of_model(model),
        "inputs_sha256": [digest_of_value(array) for array in arrays],
        "outputs_sha256": {
            value.name: digest_of_value(output) for value, output in zip(model.outputs, outputs, strict=True)
        },
    }


def dispatches_of(model: Model, arrays: Sequence[Array]) -> int | None:
    """Return the number of dispatches in a call; None if the program is not a single command list."""
    try:
        return len(model.program.plan([list(array.shape) for array in arrays]))
    except UnsupportedError:
        return None


def _seconds(call: Callable[[], Any], calls: int) -> float:
    """Return the average seconds per call."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


class Clock:
    """Times calls to a model relative to a reference kernel."""

    def __init__(self, context: Context) -> None:
        software = context.info.kind == "software"
        self._arguments: dict[str, Any] = {"threads": _THREADS[software], "steps": _STEPS[software]}
        self._memory = tensor(np.ones(_THREADS[software], np.float32), context)
        self._kernel = Kernel(_REFERENCE, context)

    def _reference(self) -> None:
        self._kernel(x=self._memory, **self._arguments)

    def measure(self, model: Model, arrays: Sequence[Array]) -> dict[str, float]:
        """Return the seconds of a call and of the reference kernel (minimum over several batches), and their ratio."""
        calls = (lambda: model(*arrays), self._reference)
        for call in calls:
            call()  # the first call compiles the kernels
        once = [_seconds(call, 3) for call in calls]
        batches = [max(1, round(max(*once, _BATCH_SECONDS) / seconds)) for seconds in once]
        pairs, best = list(zip(calls, batches, strict=True)), [float("inf")] * 2
        begin = time.perf_counter()
        for done in range(_ROUNDS):
            if done >= _LEAST_ROUNDS and time.perf_counter() - begin > _MOST_SECONDS:
                break
            best = [min(least, _seconds(*one)) for least, one in zip(best, pairs, strict=True)]
        return {"seconds": best[0], "reference_seconds": best[1], "time_ratio": best[0] / best[1]}

    def least(self, model: Model, arrays: Sequence[Array], enough: float) -> dict[str, float]:
        """Return the measurement with the lowest ratio out of several; stop early once the ratio is at most `enough`."""
        best = self.measure(model, arrays)
        for _ in range(_TRIALS - 1):
            if best["time_ratio"] <= enough:
                break
            best = min(best, self.measure(model, arrays), key=_ratio)
        return best

    def middle(self, model: Model, arrays: Sequence[Array]) -> dict[str, float]:
        """Return the measurement with the median ratio, as the reference for later comparisons."""
        return sorted((self.measure(model, arrays) for _ in range(_TRIALS)), key=_ratio)[_TRIALS // 2]


def _ratio(times: Mapping[str, float]) -> float:
    return times["time_ratio"]


def entry(
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
        "outputs": outputs_of(record),
        "dispatches": dispatches,
        **times,
        **digests,
    }


def stored(path: Path, info: DeviceInfo) -> dict[str, Any] | None:
    """Return the baseline for this driver version, else the latest for this driver, else None. Raise InputError for an invalid file."""
    try:
        given = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"baseline '{path}': {error}") from None
    if not isinstance(given, dict) or given.get("schema") != _SCHEMA or not isinstance(given.get("drivers"), dict):
        raise InputError(f"baseline '{path}': expected a file of schema {_SCHEMA}, as --pumice-update writes it")
    drivers: dict[str, dict[str, Any]] = given["drivers"]
    if driver_of(info) in drivers:
        return drivers[driver_of(info)]
    same = [one for one in drivers.values() if one["driver"] == info.driver]
    return same[-1] if same else None


def worse(now: Mapping[str, Any], then: Mapping[str, Any], factors: Mapping[str, float]) -> list[str]:
    """Return a sentence with both values for each measurement that exceeds its baseline by more than the allowed factor."""
    found = []
    if now["model_sha256"] != then["model_sha256"] and not _same_results(now, then):
        now_hash, then_hash = now["model_sha256"][:12], then["model_sha256"][:12]
        found.append(
            f"model: its files have the SHA-256 {now_hash}..., those of the baseline had {then_hash}...: the weights or the "
            "graph changed; --pumice-update writes it again"
        )
    for name in now["outputs"].keys() ^ then["outputs"].keys():
        where = "is not in the baseline" if name in now["outputs"] else "is in the baseline, and the model has none"
        found.append(f"output '{name}' {where}: --pumice-update writes it again")
    for name, one in now["outputs"].items():
        before = then["outputs"].get(name, {}).get("ratio")
        if before is not None and _exceeds(one["ratio"], before * factors["error"]):
            ratio = "unknown" if one["ratio"] is None else f"{one['ratio']:.3g}"
            limit = f"at most {factors['error']:g} times that is allowed"
            found.append(f"error of output '{name}': {ratio} of its bound, {before:.3g} in the baseline, {limit}")
    count, before = now["dispatches"], then["dispatches"]
    if before is not None and _exceeds(count, before * factors["dispatches"]):
        limit = f"at most {factors['dispatches']:g} times as many are allowed"
        found.append(f"dispatches: {'unknown' if count is None else count}, {before} in the baseline, {limit}")
    if _exceeds(now["time_ratio"], then["time_ratio"] * factors["time"]):
        found.append(
            f"time: {now['time_ratio']:.3g} times the reference kernel's, {then['time_ratio']:.3g} in the baseline, "
            f"at most {factors['time']:g} times that is allowed"
        )
    return found


def _same_results(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    """Return whether equal inputs gave bitwise equal outputs; any difference is then in names or documentation in the file."""
    return all(now[key] == then[key] for key in ("inputs_sha256", "outputs_sha256"))


def changed(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Return a sentence about each harmless difference from the baseline: other inputs, or other bits in an output."""
    if now["inputs_sha256"] != then["inputs_sha256"]:
        return ["the inputs are not those of the baseline, so that the bits of the outputs are not compared"]
    if now["model_sha256"] != then["model_sha256"]:
        return ["the model's files changed, its outputs did not"] if _same_results(now, then) else []
    before = then["outputs_sha256"]
    return [
        f"output '{name}' has other bits than the baseline, within its bound"
        for name, digest in now["outputs_sha256"].items()
        if before.get(name, digest) != digest
    ]


def _exceeds(number: float | None, limit: float) -> bool:
    """Return whether a number exceeds its limit, or either is None or NaN."""
    return number is None or not number <= limit


def merged(made: Iterable[Mapping[str, Any]]) -> dict[Path, str]:
    """Return the new file contents, path -> content, for these baselines, {"path": ..., "test": ..., "entry": ...}; other drivers' entries
    stay.
    """
    files: dict[Path, dict[str, Any]] = {}
    for one in made:
        path, new = Path(one["path"]), one["entry"]
        if path not in files:
            try:
                files[path] = json.loads(path.read_text())
            except (OSError, ValueError):
                files[path] = {}
            if not isinstance(files[path], dict) or files[path].get("schema") != _SCHEMA:
                files[path] = {"schema": _SCHEMA, "drivers": {}}
        drivers = files[path].setdefault("drivers", {})
        key = f"{new['driver']} {new['driver_version']}".strip()
        drivers.pop(key, None)  # keeps the latest entry last
        drivers[key] = new
        files[path]["test"] = one["test"]
    return {path: json.dumps(data, indent=2) + "\n" for path, data in files.items()}
