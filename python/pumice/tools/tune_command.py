"""The command `pumice tune MODEL`: benchmark the kernel variants that a model's steps can use."""

from __future__ import annotations

import argparse
import json

from ..base.printable_text import plain
from .cli_options import add_generator_options, add_image_options, add_model_options, positive
from .model_helpers import described, device_line, load_model, model_inputs, model_record, telling

_LONGEST = 400


def add_tune_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_model_options(parser)
    parser.add_argument(
        "--runs", "-n", type=positive, default=5, metavar="N", help="executions of each variant (default: 5)"
    )
    parser.add_argument("--again", action="store_true", help="measure, whatever is known")
    add_generator_options(parser)
    add_image_options(parser)


def tune(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with load_model(arguments) as model:
        arrays, made = model_inputs(model, arguments)
        with telling(made):
            found = model.tune(*arrays, runs=arguments.runs, again=arguments.again, progress=not arguments.json)
        if arguments.json:
            record = {**model_record(model), "inputs": described(arrays, model), "made_up": made.made_up}
            print(json.dumps({**record, **found.as_dict()}, indent=2))
            return 0
        print(device_line(model))
        if made.note:
            print(made.note)
        for line in repr(found).split("\n"):
            print(plain(line, _LONGEST))
    return 0
