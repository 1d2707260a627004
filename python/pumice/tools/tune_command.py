"""The command `pumice tune MODEL`: benchmark the kernel variants that a model's steps can use."""

from __future__ import annotations

import argparse
import json

from ..base.printable_text import shorten_printable
from .cli_options import add_generator_options, add_image_options, add_model_options, parse_positive
from .model_helpers import append_generated_sizes, describe_inputs, device_line, load_model, model_inputs, model_record

_MAX_LINE_CHARS = 400


def add_tune_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_model_options(parser)
    parser.add_argument(
        "--runs", "-n", type=parse_positive, default=5, metavar="N", help="executions of each variant (default: 5)"
    )
    parser.add_argument("--again", action="store_true", help="measure, whatever is known")
    add_generator_options(parser)
    add_image_options(parser)


def tune(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with load_model(arguments) as model:
        arrays, generated_inputs = model_inputs(model, arguments)
        with append_generated_sizes(generated_inputs):
            tuning_result = model.tune(*arrays, runs=arguments.runs, again=arguments.again, progress=not arguments.json)
        if arguments.json:
            record = {
                **model_record(model),
                "inputs": describe_inputs(arrays, model),
                "made_up": generated_inputs.made_up,
            }
            print(json.dumps({**record, **tuning_result.as_dict()}, indent=2))
            return 0
        print(device_line(model))
        if generated_inputs.note:
            print(generated_inputs.note)
        for line in repr(tuning_result).split("\n"):
            print(shorten_printable(line, _MAX_LINE_CHARS))
    return 0
