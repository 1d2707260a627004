"""The command `pumice reduce`: find the smallest subgraph of a model that still fails."""

from __future__ import annotations

import argparse
import json

from ..base.printable_text import escape_unprintable
from .cli_options import add_generator_options, add_image_options, add_model_options, parse_runs
from .model_helpers import append_sizes_to_errors, load_model, read_or_generate_inputs


def add_reduce_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumice reduce`."""
    add_model_options(parser)
    text = "a new or empty folder to write to (default: reduced)"
    parser.add_argument("--output", "-o", default="reduced", metavar="DIR", help=text)
    text = "look for what differs in N runs, where no value is wrong"
    parser.add_argument("--repeat", type=parse_runs, default=0, metavar="N", help=text)
    add_generator_options(parser)
    add_image_options(parser)


def run_reduce_command(arguments: argparse.Namespace) -> int:
    """Run `pumice reduce` and return exit status 0. Raise InputError if the model does not fail."""
    from ..base.progress import Progress
    from ..validation.report.subgraph import require_empty_folder
    from ..validation.validate import reduce

    require_empty_folder(arguments.output)
    with load_model(arguments) as model:
        arrays, generated_inputs = read_or_generate_inputs(model, arguments)
        with append_sizes_to_errors(generated_inputs), Progress("parts", not arguments.json) as progress:
            reduction = reduce(model, [arrays], progress=progress, repeat=arguments.repeat)
    reduction.save(arguments.output)
    if arguments.json:
        record = {
            "before": reduction.before,
            "after": reduction.after,
            "tried": reduction.tried,
            "precision": reduction.precision,
        }
        nodes = [{"node": node.name, "op": node.op_type} for node in reduction.proto.graph.node]
        shapes = {name: list(array.shape) for name, array in reduction.inputs.items()}
        print(json.dumps({**record, "nodes": nodes, "inputs": shapes, "folder": arguments.output}, indent=2))
        return 0
    if generated_inputs.note:
        print(generated_inputs.note)
    print(reduction)
    print(f"written to {escape_unprintable(arguments.output)}: model.onnx, test_data_set_0")
    return 0
