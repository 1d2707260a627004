"""The command line of `pumice compile-check`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...base.element_types import PRECISIONS
from ...base.errors import InputError
from ...base.printable_text import escape_unprintable, shorten_and_escape
from ...model.pipeline_table import format_pipelines
from ..cli_options import DEFAULT_PRECISION, DEVICE_HELP
from .jobs import DEFAULT_TIMEOUT, CompileJob, CompileOptions, JobResult, make_json_record, run_jobs

if TYPE_CHECKING:
    from ..._pumice import Context

_EXIT_FAILED = 1
_PROMPT_TOKENS = 40  # a prefill of several chunk sizes


def add_compile_check_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumice compile-check`."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="ONNX files, or folders of language models")
    parser.add_argument("--device", "-d", metavar="D", default="", help=DEVICE_HELP)
    text = f"may be repeated; default: {DEFAULT_PRECISION}"
    parser.add_argument("--precision", "-p", action="append", choices=PRECISIONS, help=text)
    text = "assume these driver quirks, with commas between: the trial that detects them does not run"
    parser.add_argument("--quirks", metavar="Q[,Q]", default="", help=text)
    text = f"how long the driver may take for one kernel (default: {DEFAULT_TIMEOUT:g})"
    parser.add_argument("--timeout", type=_parse_seconds, default=DEFAULT_TIMEOUT, metavar="SECONDS", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON, with the driver's own statistics")


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, given '{text}'")
    return seconds


def run_compile_check_command(arguments: argparse.Namespace) -> int:
    """Run `pumice compile-check`; return exit status 1 if a kernel fails to compile or spills registers."""
    for path in arguments.models:
        if not os.path.exists(path):
            raise InputError(f"no such file or folder: '{path}'")
    jobs = make_model_jobs(arguments.models, arguments.precision or [DEFAULT_PRECISION])
    options = CompileOptions(
        arguments.device, tuple(filter(None, arguments.quirks.split(","))), timeout=arguments.timeout
    )
    results = []
    for result in run_jobs(jobs, options):
        results.append(result)
        if not arguments.json:
            print("\n".join(format_result(result)), flush=True)
    if arguments.json:
        print(json.dumps([make_json_record(result) for result in results], indent=2))
    return 0 if all(result.passed for result in results) else _EXIT_FAILED


def make_model_jobs(paths: Sequence[str], precisions: Sequence[str]) -> list[CompileJob]:
    """Return a job for each model and precision."""
    return [
        CompileJob(f"{path} ({precision})", _ModelCompiler(path, precision))
        for path in paths
        for precision in precisions
    ]


class _ModelCompiler:
    """Compiles a model, with generated inputs of default sizes, or a language model, with prompts of one and several tokens."""

    def __init__(self, path: str, precision: str) -> None:
        self._path, self._precision = path, precision

    def __call__(self, context: Context) -> None:
        if os.path.isdir(self._path):
            self._compile_generator(context)
            return
        from ...model.input_sources import generate_random_inputs
        from ...model.model import Model

        model = Model(self._path, context, self._precision, progress=False)
        inputs = generate_random_inputs(model, {}).arrays
        model.warm_up(*(inputs[value.name] for value in model.inputs))

    def _compile_generator(self, context: Context) -> None:
        from pathlib import Path

        from ...text.generator import Generator

        with Generator(Path(self._path), context, self._precision) as generator:
            options: dict[str, Any]
            for options in ({}, {"temperature": 1.0}):
                for num_tokens in (1, _PROMPT_TOKENS):
                    generator.warm_up([0] * num_tokens, **options)


def format_result(result: JobResult) -> list[str]:
    """Return the lines that the command prints for a result."""
    state = "ok" if result.passed else "FAILED"
    used = [kernel for kernel in result.kernels if kernel["used"]]
    device = f" on {result.device['name']}, {result.device['driver']}" if result.device else ""
    lines = [
        f"{escape_unprintable(result.name)}{escape_unprintable(device)}: {state}; {len(used)} kernels,"
        f" {len(result.failures)} failed, {len(result.spilling)} spill"
    ]
    if result.error:
        lines.append(f"  error: {shorten_and_escape(result.error)}")
    for failure in result.failures:
        lines.append(f"  failed: {escape_unprintable(failure.kernel)} ({failure.variant}): {failure.reason}")
    if used:
        lines += [f"  {line}" for line in format_pipelines(used)]
    return lines
