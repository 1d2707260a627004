"""The command `pumice tune MODEL`: benchmark the kernel variants that a model's steps can use."""

from __future__ import annotations

import argparse
import json

from ..base.printable_text import shorten_and_escape
from .cli_options import add_generator_options, add_image_options, add_model_options, parse_positive_int
from .model_helpers import (
    append_sizes_to_errors,
    describe_inputs,
    format_device_line,
    load_model,
    make_model_record,
    read_or_generate_inputs,
)

_MAX_LINE_CHARS = 400


def add_tune_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumice tune`."""
    add_model_options(parser)
    parser.add_argument(
        "--runs", "-n", type=parse_positive_int, default=5, metavar="N", help="executions of each variant (default: 5)"
    )
    parser.add_argument("--again", action="store_true", help="measure, whatever is known")
    add_generator_options(parser)
    add_image_options(parser)


def run_tune_command(arguments: argparse.Namespace) -> int:
    """Run `pumice tune` and return the exit status."""
    with load_model(arguments) as model:
        arrays, generated_inputs = read_or_generate_inputs(model, arguments)
        with append_sizes_to_errors(generated_inputs):
            tuning_result = model.tune(*arrays, runs=arguments.runs, again=arguments.again, progress=not arguments.json)
        if arguments.json:
            record = {
                **make_model_record(model),
                "inputs": describe_inputs(arrays, model),
                "made_up": generated_inputs.made_up,
            }
            print(json.dumps({**record, **tuning_result.as_dict()}, indent=2))
            return 0
        print(format_device_line(model))
        if generated_inputs.note:
            print(generated_inputs.note)
        for line in repr(tuning_result).split("\n"):
            print(shorten_and_escape(line, _MAX_LINE_CHARS))
    return 0
