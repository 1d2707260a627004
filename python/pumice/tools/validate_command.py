"""The command `pumice validate`: compare a model with a reference node by node, and write reports."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._pumice import Error, devices
from ..base.atomic_files import write_text_atomic
from ..base.element_types import PRECISIONS
from ..base.errors import InputError
from ..base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape
from .cli_options import (
    DEVICE_HELP,
    add_generator_options,
    add_image_options,
    add_source_options,
    get_image_options,
    get_precision,
    parse_runs,
)
from .model_helpers import append_sizes_to_errors, format_device_line, load_model, read_or_generate_inputs

if TYPE_CHECKING:
    from ..model.datasets import Dataset
    from ..model.input_sources import GeneratedInputs
    from ..model.model import Model
    from ..validation.report.report import ValidationReport

_EXIT_FAILED = 1
_ALL_DEVICES = "all"
_TO_STDOUT = "-"


def _parse_precisions(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PRECISIONS or names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"expected {', '.join(PRECISIONS)}, each once, given '{text}'")
    return names


def _parse_tolerance(text: str) -> tuple[str, float]:
    name, _, value_text = text.rpartition("=")
    try:
        number = float(value_text)
    except ValueError:
        number = math.nan
    if not name or not number >= 0:
        raise argparse.ArgumentTypeError(f"expected NODE=X with a non-negative number, given '{text}'")
    return name, number


def _parse_accuracy(text: str) -> tuple[str, float]:
    name, _, value_text = text.rpartition("=")
    try:
        number = float(value_text)
    except ValueError:
        number = math.nan
    if not number >= 0 or text.startswith("="):
        raise argparse.ArgumentTypeError(f"expected X or OUTPUT=X with a non-negative number, given '{text}'")
    return name, number


def add_validate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumice validate`."""
    add_source_options(parser)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="cases: folders test_data_set_*, or .npz files, in this folder, with outputs that are judged too",
    )
    parser.add_argument("--device", "-d", metavar="D", help=f"{DEVICE_HELP}; all: one after the other")
    text = f"{', '.join(PRECISIONS)}, or several with commas between (default: fp32)"
    parser.add_argument("--precision", "-p", type=_parse_precisions, metavar="P[,P]", help=text)
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
        type=_parse_tolerance,
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
    _add_accuracy_options(parser)
    parser.add_argument("--repeat", type=parse_runs, default=0, metavar="N", help="run N times, and compare the bits")
    _add_report_options(parser)
    add_generator_options(parser)
    add_image_options(parser)


def _add_accuracy_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accuracy",
        action="append",
        default=[],
        type=_parse_accuracy,
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


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    files = parser.add_argument_group("files", "Reports. A file is written when all is done, whole.")
    files.add_argument("--html", metavar="F", help="a page that shows the graph, errors, ranges and findings")
    files.add_argument("--junit", metavar="F", help="JUnit XML")
    files.add_argument("--json", nargs="?", const=_TO_STDOUT, metavar="F", help="JSON; without F it is printed")


def run_validate_command(arguments: argparse.Namespace) -> int:
    """Run `pumice validate`; return exit status 1 if any result is wrong or unproved."""
    _check_options(arguments)
    precisions = arguments.precision or [None]
    has_several = arguments.device == _ALL_DEVICES or len(precisions) > 1
    device_names = (
        [f"uuid:{device.uuid}" for device in devices()] if arguments.device == _ALL_DEVICES else [arguments.device]
    )
    if not device_names:
        raise InputError("validate: --device all: there is no Vulkan device")
    reports: list[ValidationReport] = []
    for device in device_names:
        for precision in precisions:
            device_arguments = argparse.Namespace(**{**vars(arguments), "device": device, "precision": precision})
            reports.append(
                _validate_or_report(device_arguments) if has_several else _validate_on_device(device_arguments)
            )
    _write_reports(arguments, [report.as_dict() for report in reports])
    return 0 if all(report.ok for report in reports) else _EXIT_FAILED


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise InputError for options that contradict each other or name unusable files."""
    if arguments.data and (arguments.input or arguments.dim or get_image_options(arguments)):
        raise InputError("--data gives the inputs: it cannot be combined with --input, --dim or image options")
    get_precision(arguments)  # raises if both options are given
    if arguments.bisect and arguments.mode not in ("both", "bisect"):
        raise InputError(
            f"--bisect judges results computed from the model's inputs: it cannot be combined with --mode {arguments.mode}"
        )
    for option, pairs in (("tolerance", arguments.tolerance), ("accuracy", arguments.accuracy)):
        names = [name for name, _ in pairs]
        if duplicates := [name for i, name in enumerate(names) if name in names[:i]]:
            raise InputError(f"{option} of '{duplicates[0]}' is given twice")
    targets = [path for path in (arguments.html, arguments.junit, arguments.json) if path not in (None, _TO_STDOUT)]
    for i, path in enumerate(targets):
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder) or os.path.isdir(path):
            raise InputError(f"'{path}': expected a file in an existing folder")
        if path in targets[:i] or (os.path.exists(path) and os.path.samefile(path, arguments.model)):
            raise InputError(f"'{path}': expected a separate file for each report, other than the model")


def _validate_or_report(arguments: argparse.Namespace) -> ValidationReport:
    """Validate on one of several devices. If this device cannot run the model, return a report of the model as unproved."""
    from ..validation.report.findings import Finding
    from ..validation.report.report import ValidationReport
    from ..validation.report.report_rows import ValidationRow

    try:
        return _validate_on_device(arguments)
    except InputError:
        raise
    except Error as error:
        text, model = str(error), os.path.basename(arguments.model)
        if not arguments.json:
            print(f"pumice: error: {shorten_and_escape(text, MAX_SENTENCE_CHARS)}", file=sys.stderr)
        device = _get_device_name(arguments.device)
        row = ValidationRow(model, "model", "", "", (), 0, None, None, text, unproved=(model,))
        return ValidationReport(model, device, get_precision(arguments), 0, [row], [Finding("unproved", model, text)])


def _get_device_name(device: str | None) -> str:
    matching_names = [device_info.name for device_info in devices() if f"uuid:{device_info.uuid}" == device]
    return matching_names[0] if matching_names else device or "the default device"


def _validate_on_device(arguments: argparse.Namespace) -> ValidationReport:
    from ..base.progress import Progress
    from ..validation.checker.stored_output_comparison import check_stored_outputs
    from ..validation.validate import validate as run_validation

    with load_model(arguments) as model:
        case_sets, generated_values = _load_cases(model, arguments)
        allowed: bool | list[str] = "*" in arguments.allow_unchecked or arguments.allow_unchecked
        with append_sizes_to_errors(generated_values), Progress("nodes", not arguments.json) as progress:
            report = run_validation(
                model,
                [case_set.inputs for case_set in case_sets],
                progress=progress,
                tolerances=dict(arguments.tolerance),
                allow_unchecked=allowed,
                mode="bisect" if arguments.bisect else arguments.mode,
                inputs=arguments.inputs,
                reference=arguments.reference,
                repeat=arguments.repeat,
                accuracy=_get_accuracy_limits(arguments),
                allow_ill_conditioned="*" in arguments.allow_ill_conditioned or arguments.allow_ill_conditioned,
            )
        names = tuple(case_set.name for case_set in case_sets) if arguments.data else ()
        report.facts = report.facts._replace(
            generated=generated_values.how, made_up=generated_values.made_up, data=names
        )
        if arguments.mode != "isolated":
            check_stored_outputs(report, model, case_sets, dict(arguments.tolerance), allowed)
        if arguments.json != _TO_STDOUT:
            _print_report(model, generated_values, report)
    return report


def _get_accuracy_limits(arguments: argparse.Namespace) -> float | dict[str, float] | None:
    """Return the accuracy limit for all outputs, or limits by output name."""
    limits_by_output: dict[str, float] = dict(arguments.accuracy)
    if "" not in limits_by_output:
        return limits_by_output or None
    if len(limits_by_output) > 1:
        raise InputError("--accuracy: expected one limit for all outputs, or limits by output, given both")
    return limits_by_output[""]


def _load_cases(model: Model, arguments: argparse.Namespace) -> tuple[Sequence[Dataset], GeneratedInputs]:
    """Return the test cases, and a description of generated inputs."""
    from ..model.datasets import Dataset, read_datasets
    from ..model.input_sources import GeneratedInputs
    from ..validation.reference.input_generation import generate_inputs

    if arguments.data:
        return read_datasets(model, arguments.data), GeneratedInputs({}, {})
    generated_values = read_or_generate_inputs(model, arguments, generate_inputs)[1]
    return [Dataset("", generated_values.arrays, {})], generated_values


def _print_report(model: Model, generated_values: GeneratedInputs, report: ValidationReport) -> None:
    from rich.console import Console

    print(format_device_line(model))
    for name, description in generated_values.how.items():
        print(f"input '{shorten_and_escape(name)}' generated: {shorten_and_escape(description)}")
    if generated_values.note:
        print(shorten_and_escape(generated_values.note, MAX_SENTENCE_CHARS))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(report.table(), markup=False)
    for line in report.finding_lines():
        console.print(line, markup=False, highlight=False)
    if not report.ok:
        print(report.summary)


def _write_reports(arguments: argparse.Namespace, records: list[dict[str, Any]]) -> None:
    """Write the requested files: a single record as an object, several as a list."""
    text = json.dumps(records[0] if len(records) == 1 else records, indent=2) + "\n"
    if arguments.json == _TO_STDOUT:
        print(text, end="")
    elif arguments.json:
        write_text_atomic(arguments.json, text)
    if arguments.html:
        from ..validation.report.html_page import make_page

        write_text_atomic(
            arguments.html, make_page(records, f"Validation of {shorten_and_escape(records[0]['model'])}")
        )
    if arguments.junit:
        from ..validation.report.junit import make_junit_xml

        write_text_atomic(arguments.junit, make_junit_xml(records))
