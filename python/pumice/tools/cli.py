"""The `pumice` command."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from .._pumice import Context, DeviceInfo, Error, cache_state, precision_support
from ..base.atomic_files import open_atomic
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.printable_text import escape_unprintable, shorten_and_escape
from ..device.context import devices as listed_devices
from ..device.tuning_exchange import group_records
from .cli_options import add_generator_options, add_image_options, add_model_options, get_precision, parse_positive_int
from .compile_check.command import add_compile_check_options, run_compile_check_command
from .doctor.command import add_doctor_options, run_doctor_command
from .generate_command import add_generate_options, run_generate_command
from .model_helpers import (
    append_sizes_to_errors,
    describe_inputs,
    format_device_line,
    load_model,
    make_model_record,
    read_or_generate_inputs,
)
from .reduce_command import add_reduce_options, run_reduce_command
from .selftest.command import add_selftest_options, run_selftest_command
from .tune_command import add_tune_options, run_tune_command
from .tuning_store_command import add_tuning_options, format_tuning_lines, run_tuning_command
from .validate_command import add_validate_options, run_validate_command
from .version_info import collect_versions, make_device_record

if TYPE_CHECKING:
    from ..model.model import Model
    from ..profiling.profile import Profile

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130
_NUM_TOP_CLASSES = 5
_MAX_LINE_CHARS = 1 << 14
_MAX_NAME_BYTES = 180  # maximum bytes of a file name; file systems allow 255


# ---- the command `pumice info`


def _find_default_device() -> tuple[str | None, str]:
    """Return the UUID of the default device, and why it was chosen."""
    try:
        with Context() as context:
            return context.info.uuid, context.choice
    except Error as error:
        return None, str(error)


def _show_info(arguments: argparse.Namespace) -> int:
    visible_devices = listed_devices()
    uuid, choice = _find_default_device()
    if arguments.json:
        record = {
            "version": __version__,
            "default": uuid,
            "choice": choice,
            "devices": [make_device_record(d) for d in visible_devices],
            "hidden": [make_device_record(d) for d in visible_devices.hidden],
            "hidden_because": visible_devices.note,
            "cache": _make_cache_record(),
            "tuning": [tuning_group._asdict() for tuning_group in group_records()],
            "versions": collect_versions(),
        }
        print(json.dumps(record, indent=2))
        return 0
    print(f"pumice {__version__}")
    for device in visible_devices:
        _print_device(device, device.uuid == uuid)
    if visible_devices.note:
        print(f"hidden:  {escape_unprintable(visible_devices.note)}")
    print(f"default: {escape_unprintable(choice)}")
    cache = cache_state()
    folder = escape_unprintable(cache.folder) if cache else ""
    print(
        f"cache:   {folder}, {cache.files} files, {cache.bytes / 2**20:.1f} of at most {cache.limit / 2**20:.0f} MiB"
        if cache
        else "cache:   none"
    )
    for line in format_tuning_lines():
        print(line)
    return 0


def _make_cache_record() -> dict[str, Any] | None:
    cache = cache_state()
    return {name: getattr(cache, name) for name in ("folder", "files", "bytes", "limit")} if cache else None


def _print_device(device: DeviceInfo, default: bool) -> None:
    software = ", SOFTWARE DRIVER: not a GPU" if device.kind == "software" else ""
    features = [name for name in _SHOWN_FEATURES if device.features.get(name)]
    matrices = sorted({f"{m.m}x{m.n}x{m.k} {m.a}->{m.result}" for m in device.matrices})
    rows = {
        "kind": f"{device.kind}{software}",
        "uuid": device.uuid,
        "pci": device.pci or "unknown",
        "driver": f"{device.driver} {device.driver_info}".strip(),
        "Vulkan": device.api_version,
        "memory": f"{device.memory_bytes / 2**30:.1f} GiB",
        **({"reduced": device.restrictions} if device.restrictions else {}),
        "features": ", ".join(features) or "none of " + ", ".join(_SHOWN_FEATURES),
        "matrices": ", ".join(matrices) or "none",
    }
    for support in precision_support(device):
        coopmat_note = ", cooperative matrices" if support.matrices else ""
        lacks = f" (lacks {', '.join(support.lacks)})" if support.lacks else ""
        rows[support.precision] = f"stored as {support.storage}{coopmat_note}{lacks}"
    print(f"\n[{device.index}] {escape_unprintable(device.name)}{' (default)' if default else ''}")
    for name, value in rows.items():
        print(f"    {name:9} {escape_unprintable(value)}")


_SHOWN_FEATURES = (
    "shaderFloat16",
    "shaderFloat64",
    "shaderInt64",
    "shaderInt16",
    "shaderInt8",
    "storageBuffer16BitAccess",
    "storageBuffer8BitAccess",
    "conditionalRendering",
    "cooperativeMatrix",
)


# ---- the command `pumice run`


def _run_model(arguments: argparse.Namespace) -> int:
    if not arguments.input:
        raise InputError("run: give the model's inputs: --input NAME=FILE")
    labels = _read_labels(arguments.labels)
    model = load_model(arguments)
    results = model(*read_or_generate_inputs(model, arguments)[0])
    arrays = [results] if len(model.outputs) == 1 else list(results)
    outputs = _get_named_outputs(model, arrays)
    files = _write_outputs(outputs, arguments.output) if arguments.output else {}
    if arguments.json:
        records = [_make_output_record(name, array, files.get(name)) for name, array in outputs.items()]
        print(json.dumps({**make_model_record(model), "outputs": records}, indent=2))
        return 0
    print(format_device_line(model))
    for name, array in outputs.items():
        _print_output(name, array, files.get(name), labels)
    return 0


def _get_named_outputs(model: Model, results: Sequence[Any]) -> dict[str, Array]:
    """Return the results as arrays by name. Elements of sequences are numbered, absent optional values are omitted, and strings have a
    NumPy string dtype.
    """
    arrays: dict[str, Array] = {}
    for value, result in zip(model.outputs, results, strict=True):
        if isinstance(result, list):
            arrays.update({f"{value.name}[{i}]": array for i, array in enumerate(result)})
        elif result is not None:
            arrays[value.name] = result
    return {name: array.astype(str) if array.dtype == object else array for name, array in arrays.items()}


def _write_outputs(outputs: dict[str, Array], folder: str) -> dict[str, str]:
    os.makedirs(folder, exist_ok=True)
    files: dict[str, str] = {}
    for name, array in outputs.items():
        stem = re.sub(r"[^\w.-]", "_", name).lstrip(".").encode()[:_MAX_NAME_BYTES].decode(errors="ignore") or "output"
        while os.path.join(folder, f"{stem}.npy") in files.values():
            stem += "_"
        files[name] = os.path.join(folder, f"{stem}.npy")
        with open_atomic(files[name]) as file:
            # Pass only the write method: NumPy writes to real files with C I/O, and its error then lacks the reason.
            np.save(SimpleNamespace(write=file.write), array, allow_pickle=False)
    return files


def _read_labels(path: str | None) -> list[str]:
    if path is None:
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def _compute_statistics(array: Array) -> dict[str, float | None]:
    """Return the minimum, maximum and mean; None for NaN and infinity, which JSON cannot represent."""
    if array.size == 0 or array.dtype.kind not in "biuf":
        return {}
    as_float64 = array.astype(np.float64)
    numbers = {"min": as_float64.min(), "max": as_float64.max(), "mean": as_float64.mean()}
    return {name: float(number) if np.isfinite(number) else None for name, number in numbers.items()}


def _make_output_record(name: str, array: Array, file: str | None) -> dict[str, Any]:
    record = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), **_compute_statistics(array)}
    return {**record, "file": file} if file else record


def _print_output(name: str, array: Array, file: str | None, labels: list[str]) -> None:
    rounded = {
        key: value if value is None else float(f"{value:.6g}") for key, value in _compute_statistics(array).items()
    }
    numbers = ", ".join(f"{key} {value}" for key, value in rounded.items())
    print(
        f"{shorten_and_escape(name)}: {array.dtype}{list(array.shape)} {numbers}{f' -> {escape_unprintable(file)}' if file else ''}"
    )
    if array.ndim != 2 or array.shape[1] < 2 or array.dtype.kind != "f":
        return
    for row in array:
        best = np.argsort(-row, kind="stable")[:_NUM_TOP_CLASSES]
        print("  " + ", ".join(f"{shorten_and_escape(labels[i]) if i < len(labels) else i} {row[i]:.6g}" for i in best))


# ---- the command `pumice bench`


def _benchmark_model(arguments: argparse.Namespace) -> int:
    from ..base.progress import Progress
    from ..bench import measure, measure_time_to_first_result

    if arguments.device:
        os.environ["PUMICE_DEVICE"] = arguments.device  # for the processes that --cold starts
    with load_model(arguments) as model:
        arrays, generated = read_or_generate_inputs(model, arguments)
        with append_sizes_to_errors(generated), Progress("runs", not arguments.json) as progress:
            timing = measure(model, arrays, arguments.runs, progress)
        profile = _profile_nodes(model, arrays, arguments.runs) if arguments.profile else None
        fresh = (
            measure_time_to_first_result(arguments.model, get_precision(arguments), arrays) if arguments.cold else ()
        )
        if arguments.json:
            inputs = describe_inputs(arrays, model)
            record = {**make_model_record(model), "inputs": inputs, "made_up": generated.made_up}
            record["timing"] = timing._asdict()
            if profile:
                record["profile"] = profile.as_dict()
            if fresh:
                record["first_result"] = {name: r._asdict() for name, r in zip(("cold", "warm"), fresh, strict=True)}
            print(json.dumps(record, indent=2))
            return 0
        print(format_device_line(model))
        if generated.note:
            print(generated.note)
        print(f"{shorten_and_escape(model.name)}, {model.precision}, {describe_inputs(arrays, model)}; seconds:")
        print(f"  first call {timing.cold_seconds:.6f}, in which kernels are made and compiled")
        median, p99 = timing.median_seconds, timing.p99_seconds
        print(f"  {timing.runs} calls: min {timing.min_seconds:.6f}, median {median:.6f}, p99 {p99:.6f}")
        print(f"  on the device {timing.device_seconds:.6f}")
        if profile:
            print(profile.table())
    for name, result in zip(("cold", "warm"), fresh, strict=bool(fresh)):
        print(f"  process start to first result, {name} caches: {result.total_seconds:.3f}")
        print("    " + ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in result.phase_seconds.items()))
    return 0


def _profile_nodes(model: Model, arrays: Sequence[Array], runs: int) -> Profile:
    """Profile the nodes in additional calls that are not part of the measurement."""
    from ..profiling.profile import profile

    with profile() as measured:
        for _ in range(runs):
            model(*arrays)
    return measured


def _calibrate_device(arguments: argparse.Namespace) -> int:
    from ..profiling.device_peaks import calibrate

    with Context(arguments.device or "") as context:
        peaks = calibrate(context, again=True)
    if arguments.json:
        print(json.dumps(peaks.as_dict(), indent=2))
        return 0
    print(escape_unprintable(f"{peaks.device}, {peaks.driver}"))
    print(f"  memory {peaks.bytes_per_second * 1e-9:,.1f} GB/s, read and written by a copy")
    for name, speed in peaks.flop_per_second.items():
        print(f"  {name:6} {speed * 1e-9:,.1f} GFLOP/s of multiply-adds")
    return 0


# ---- the command `pumice operators`


def _list_operators(arguments: argparse.Namespace) -> int:
    from .operator_catalogue import operators

    listed_schemas = [operators(name) for name in arguments.names] or operators()
    if arguments.json:
        print(json.dumps([schema.as_dict() for schema in listed_schemas], indent=2))
    elif arguments.names:
        print("\n\n".join(map(str, listed_schemas)))
    else:
        for schema in listed_schemas:
            print(f"{schema.name:30} {schema.skeleton:12} {schema.doc}")
    return 0


# ---- argument parser and entry point


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pumice", description="Neural networks and kernels on any Vulkan device.")
    parser.add_argument("--version", action="version", version=f"pumice {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add_command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    info = add_command("info", _show_info, "The devices of this machine, and which one is taken.")
    info.add_argument("--json", action="store_true", help="print JSON, with all features, limits and extensions")

    text = "Checks this machine's Vulkan setup and prints problems with the commands that fix them; exit status 1 if there are any."
    add_doctor_options(add_command("doctor", run_doctor_command, text))

    text = "Checks the results of a device in about a minute; exit status 1 if any is wrong."
    add_selftest_options(add_command("selftest", run_selftest_command, text))

    text = "Compiles all kernels of models without running them, on any driver; exit status 1 if one fails or spills registers."
    add_compile_check_options(add_command("compile-check", run_compile_check_command, text))

    run = add_command("run", _run_model, "Runs a model once.")
    add_model_options(run)
    run.add_argument("--output", "-o", metavar="DIR", help="write every output there, as NAME.npy")
    run.add_argument("--labels", metavar="FILE", help="names of classes, one a line")
    add_image_options(run)

    bench = add_command("bench", _benchmark_model, "Measures a model. Inputs are generated where none are given.")
    add_model_options(bench)
    bench.add_argument(
        "--runs", "-n", type=parse_positive_int, default=100, metavar="N", help="calls to measure (default: 100)"
    )
    bench.add_argument(
        "--cold", action="store_true", help="time fresh processes too, from start to first result, phase by phase"
    )
    bench.add_argument("--profile", action="store_true", help="print each node's time, bytes and operations too")
    add_generator_options(bench)
    add_image_options(bench)

    text = "Measures the peaks of a device, which profiles compare with, and keeps them in the cache."
    peaks = add_command("calibrate", _calibrate_device, text)
    peaks.add_argument("--device", help="the device, as PUMICE_DEVICE has it")
    peaks.add_argument("--json", action="store_true", help="print JSON")

    text = "Measures the variants of kernels that a model's steps can run, and keeps the quickest for later loads."
    add_tune_options(add_command("tune", run_tune_command, text))

    text = "Shows what tuning has kept on this machine, writes it to a file, or takes it from one."
    add_tuning_options(add_command("tuning", run_tuning_command, text))

    text = "Has a language model go on with a text."
    add_generate_options(add_command("generate", run_generate_command, text))

    catalogue = add_command("operators", _list_operators, "The operators that the engine runs.")
    catalogue.add_argument("names", nargs="*", metavar="NAME", help="show all that is known of these")
    catalogue.add_argument("--json", action="store_true", help="print JSON, with all values and attributes")

    text = "Proves every tensor of a model right; exit status 1 where one is wrong or unproved."
    add_validate_options(add_command("validate", run_validate_command, text))

    text = "Shrinks a model to the smallest part that is still wrong, and writes that with its inputs and expected results."
    add_reduce_options(add_command("reduce", run_reduce_command, text))
    return parser


def _print_error(message: str) -> int:
    """Print an error message line by line, with control characters from file names escaped."""
    escaped = "\n".join(shorten_and_escape(line, _MAX_LINE_CHARS) for line in message.split("\n"))
    print(f"pumice: error: {escaped}", file=sys.stderr)
    return _EXIT_USAGE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if a validation or check failed, 2 for usage, file and device errors."""
    parsed = _make_parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
        if sys.stdout is not None:  # standard output is None if it was closed
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that flushing at exit does not fail
        return 0
    except Error as error:
        return _print_error(str(error))
    except OSError as error:
        return _print_error(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    return status
