"""The command `pumice validate`."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._pumice import Error, devices
from ..base.element_types import PRECISIONS
from ..base.errors import InputError
from ..base.atomic_files import write_whole
from ..base.printable_text import LONG, plain
from .cli_options import (
    DEVICE_HELP,
    add_generator_options,
    add_image_options,
    add_source_options,
    image_options,
    precision_of,
    runs,
)
from .model_helpers import device_line, load_model, model_inputs, telling

if TYPE_CHECKING:
    from ..model.data_sets import DataSet
    from ..model.input_sources import Generated
    from ..model.model import Model
    from ..validation.report import ValidationReport

_FAILED = 1
_ALL = "all"
_PRINTED = "-"


def _precisions(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PRECISIONS or names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"expected {', '.join(PRECISIONS)}, each once, given '{text}'")
    return names


def _tolerance(text: str) -> tuple[str, float]:
    name, _, given = text.rpartition("=")
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not name or not number >= 0:
        raise argparse.ArgumentTypeError(f"expected NODE=X with a number of at least 0, given '{text}'")
    return name, number


def _accuracy(text: str) -> tuple[str, float]:
    name, _, given = text.rpartition("=")
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not number >= 0 or text.startswith("="):
        raise argparse.ArgumentTypeError(f"expected X or OUTPUT=X with a number of at least 0, given '{text}'")
    return name, number


def add_validate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_source_options(parser)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="cases: folders test_data_set_*, or .npz files, in this folder, with outputs that are judged too",
    )
    parser.add_argument("--device", "-d", metavar="D", help=f"{DEVICE_HELP}; all: one after the other")
    text = f"{', '.join(PRECISIONS)}, or several with commas between (default: fp32)"
    parser.add_argument("--precision", "-p", type=_precisions, metavar="P[,P]", help=text)
    text = "what nodes are judged by: isolated (the device's inputs), chained (the model's) or both (default)"
    parser.add_argument("--mode", default="both", help=text)
    text = "what nodes are given with --mode isolated: device (what it made, the default) or reference (the reference's values)"
    parser.add_argument("--inputs", default="device", choices=("device", "reference"), help=text)
    text = "finds the node with which a wrong result becomes wrong by a few programs of the first nodes alone"
    parser.add_argument("--bisect", action="store_true", help=text)
    text = "onnx, onnxruntime, a precision, a device, an .npz file of tensors, or run (default: the rules in float64)"
    parser.add_argument("--reference", metavar="R", help=text)
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        type=_tolerance,
        metavar="NODE=X",
        help="an absolute error in the place of the derived bound, by the name of a node or a tensor",
    )
    parser.add_argument(
        "--allow-unchecked",
        action="append",
        default=[],
        metavar="NAME",
        help="an operator, node or output that may be unproved; '*': all",
    )
    _add_accuracy(parser)
    parser.add_argument("--repeat", type=runs, default=0, metavar="N", help="run N times, and compare the bits")
    _add_files(parser)
    add_generator_options(parser)
    add_image_options(parser)


def _add_accuracy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accuracy",
        action="append",
        default=[],
        type=_accuracy,
        metavar="[OUTPUT=]X",
        help="how far outputs may be from their expected values, relative to the largest number of a sample (default: 0.02; bf16: 0.1)",
    )
    parser.add_argument(
        "--allow-ill-conditioned",
        action="append",
        default=[],
        metavar="OUTPUT",
        help="an output that may be further off than --accuracy within its bound; '*': all",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    files = parser.add_argument_group("files", "Reports. A file is written when all is done, whole.")
    files.add_argument("--html", metavar="F", help="a page that shows the graph, errors, ranges and findings")
    files.add_argument("--junit", metavar="F", help="JUnit XML")
    files.add_argument("--json", nargs="?", const=_PRINTED, metavar="F", help="JSON; without F it is printed")


def validate(arguments: argparse.Namespace) -> int:
    """Run the command; return exit status 1 if any result is wrong or unproved."""
    _check(arguments)
    precisions = arguments.precision or [None]
    several = arguments.device == _ALL or len(precisions) > 1
    chosen = [f"uuid:{device.uuid}" for device in devices()] if arguments.device == _ALL else [arguments.device]
    if not chosen:
        raise InputError("validate: --device all: there is no Vulkan device")
    reports: list[ValidationReport] = []
    for device in chosen:
        for precision in precisions:
            one = argparse.Namespace(**{**vars(arguments), "device": device, "precision": precision})
            reports.append(_guarded(one) if several else _validated(one))
    _write(arguments, [report.as_dict() for report in reports])
    return 0 if all(report.ok for report in reports) else _FAILED


def _check(arguments: argparse.Namespace) -> None:
    """Check the options before any work begins. Raise InputError for options that contradict each other or name unusable files."""
    if arguments.data and (arguments.input or arguments.dim or image_options(arguments)):
        raise InputError("--data gives the inputs: neither --input, --dim nor options of pictures go with it")
    precision_of(arguments)  # rejects both options together
    if arguments.bisect and arguments.mode not in ("both", "bisect"):
        raise InputError(
            f"--bisect judges results from the model's inputs on: --mode {arguments.mode} does not go with it"
        )
    for option, pairs in (("tolerance", arguments.tolerance), ("accuracy", arguments.accuracy)):
        names = [name for name, _ in pairs]
        if twice := [name for i, name in enumerate(names) if name in names[:i]]:
            raise InputError(f"{option} of '{twice[0]}' is given twice")
    targets = [path for path in (arguments.html, arguments.junit, arguments.json) if path not in (None, _PRINTED)]
    for i, path in enumerate(targets):
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder) or os.path.isdir(path):
            raise InputError(f"'{path}': expected a file in a folder that is there")
        if path in targets[:i] or (os.path.exists(path) and os.path.samefile(path, arguments.model)):
            raise InputError(f"'{path}': expected a file of its own for each report, and not the model")


def _guarded(arguments: argparse.Namespace) -> ValidationReport:
    """Validate on one of several devices; if it cannot run the model, report it as unproved and continue."""
    from ..validation.report import ValidationReport
    from ..validation.report_rows import Finding, ValidationRow

    try:
        return _validated(arguments)
    except InputError:
        raise
    except Error as error:
        text, model = str(error), os.path.basename(arguments.model)
        if not arguments.json:
            print(f"pumice: error: {plain(text, LONG)}", file=sys.stderr)
        device = _name_of(arguments.device)
        row = ValidationRow(model, "model", "", "", (), 0, None, None, text, unproved=(model,))
        return ValidationReport(model, device, precision_of(arguments), 0, [row], [Finding("unproved", model, text)])


def _name_of(device: str | None) -> str:
    found = [one.name for one in devices() if f"uuid:{one.uuid}" == device]
    return found[0] if found else device or "the default device"


def _validated(arguments: argparse.Namespace) -> ValidationReport:
    from ..base.progress import Progress
    from ..validation.stored_outputs import judge_stored
    from ..validation.validate import validate as judge

    with load_model(arguments) as model:
        sets, made = _cases(model, arguments)
        allowed: bool | list[str] = "*" in arguments.allow_unchecked or arguments.allow_unchecked
        with telling(made), Progress("nodes", not arguments.json) as progress:
            report = judge(
                model,
                [one.inputs for one in sets],
                progress=progress,
                tolerances=dict(arguments.tolerance),
                allow_unchecked=allowed,
                mode="bisect" if arguments.bisect else arguments.mode,
                inputs=arguments.inputs,
                reference=arguments.reference,
                repeat=arguments.repeat,
                accuracy=_limits(arguments),
                allow_ill_conditioned="*" in arguments.allow_ill_conditioned or arguments.allow_ill_conditioned,
            )
        names = tuple(one.name for one in sets) if arguments.data else ()
        report.facts = report.facts._replace(generated=made.how, made_up=made.made_up, data=names)
        if arguments.mode != "isolated":
            judge_stored(report, model, sets, dict(arguments.tolerance), allowed)
        if arguments.json != _PRINTED:
            _print(model, made, report)
    return report


def _limits(arguments: argparse.Namespace) -> float | dict[str, float] | None:
    """Return the accuracy limit for all outputs, or limits by output name."""
    given: dict[str, float] = dict(arguments.accuracy)
    if "" not in given:
        return given or None
    if len(given) > 1:
        raise InputError("--accuracy: expected one limit of all outputs, or limits by output, given both")
    return given[""]


def _cases(model: Model, arguments: argparse.Namespace) -> tuple[Sequence[DataSet], Generated]:
    """Return the test cases, and which inputs were generated."""
    from ..model.data_sets import DataSet, in_folder
    from ..model.input_sources import Generated
    from ..validation.input_generation import generated_inputs

    if arguments.data:
        return in_folder(model, arguments.data), Generated({}, {})
    made = model_inputs(model, arguments, generated_inputs)[1]
    return [DataSet("", made.arrays, {})], made


def _print(model: Model, made: Generated, report: ValidationReport) -> None:
    from rich.console import Console

    print(device_line(model))
    for name, how in made.how.items():
        print(f"input '{plain(name)}' generated: {plain(how)}")
    if made.note:
        print(plain(made.note, LONG))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(report.table(), markup=False)
    for line in report.told():
        console.print(line, markup=False, highlight=False)
    if not report.ok:
        print(report.summary)


def _write(arguments: argparse.Namespace, records: list[dict[str, Any]]) -> None:
    """Write the requested files: a single record as an object, several as a list."""
    text = json.dumps(records[0] if len(records) == 1 else records, indent=2) + "\n"
    if arguments.json == _PRINTED:
        print(text, end="")
    elif arguments.json:
        write_whole(arguments.json, text)
    if arguments.html:
        from ..validation.page import page

        write_whole(arguments.html, page(records, f"Validation of {plain(records[0]['model'])}"))
    if arguments.junit:
        from ..validation.junit import junit

        write_whole(arguments.junit, junit(records))
