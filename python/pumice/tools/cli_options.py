"""Options shared by the commands that work on models."""

from __future__ import annotations

import argparse
import re
from typing import Any

from ..base.element_types import PRECISIONS
from ..base.errors import InputError
from ..device.image_loading import COLOR_MODES, FITS, INVERTS, LAYOUTS, RESAMPLES

DEFAULT_PRECISION = "fp32"
DEVICE_HELP = "uuid:..., pci:..., an index, a kind or part of a name"


def _parse_image_size(text: str) -> str | tuple[int, int]:
    """Parse an image size: "224", "480x640" (height by width) or "keep"."""
    if text == "keep":
        return text
    numbers = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if not numbers or not all(0 < int(number) < 1 << 16 for number in numbers.groups() if number):
        raise argparse.ArgumentTypeError(f"expected N, HEIGHTxWIDTH or keep, given '{text}'")
    return int(numbers[1]), int(numbers[2] or numbers[1])


def _parse_policy_path(text: str) -> str:
    """Return the path of a policy file. Raise ArgumentTypeError if it does not end in .json."""
    if not text.endswith(".json"):
        raise argparse.ArgumentTypeError(f"expected a file that ends in .json, given '{text}'")
    return text


def get_precision(arguments: argparse.Namespace) -> Any:
    """Return the policy file or precision from the options, by default fp32. Raise InputError if both are given."""
    if arguments.policy and arguments.precision is not None:
        raise InputError("--policy sets the precision of every node: it cannot be combined with --precision")
    return arguments.policy or arguments.precision or DEFAULT_PRECISION


def _parse_float_list(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected comma-separated numbers, given '{text}'") from None


def _parse_dimension(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdigit() or int(size) == 0:
        raise argparse.ArgumentTypeError(f"expected NAME=SIZE, given '{text}'")
    return name, int(size)


def parse_positive_int(text: str) -> int:
    """Parse a positive integer. Raise ArgumentTypeError for other text."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, given '{text}'")
    return int(text)


def parse_runs(text: str) -> int:
    """Parse a number of runs, at least 2 so that they can be compared. Raise ArgumentTypeError for other text."""
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"expected a number of runs of at least 2, given '{text}'")
    return int(text)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the model, its inputs and its device."""
    add_source_options(parser)
    parser.add_argument("--device", "-d", metavar="D", help=DEVICE_HELP)
    parser.add_argument("--precision", "-p", choices=PRECISIONS, help=f"default: {DEFAULT_PRECISION}")
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the model and its inputs."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument(
        "--input",
        "-i",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="an input: .npy, .npz, .pb (ONNX TensorProto) or a picture; the name may be left out where there is one input",
    )
    parser.add_argument(
        "--policy",
        type=_parse_policy_path,
        metavar="FILE",
        help="a JSON file of precisions by node, in the place of --precision",
    )
    parser.add_argument("--seed", type=int, help="seed of the random numbers that the model makes")
    parser.set_defaults(dim=[])


def add_image_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "pictures", "These are applied in this order. An option that is left out follows the input's shape."
    )
    group.add_argument("--image-mode", choices=COLOR_MODES, help="colours; L is grey, Y the luma of YCbCr")
    group.add_argument("--image-size", type=_parse_image_size, metavar="HxW", help="N, HxW, or keep")
    group.add_argument("--image-fit", choices=FITS, help="crop the centre to the aspect ratio (default), or stretch")
    group.add_argument("--image-resample", choices=RESAMPLES, help="default: bilinear")
    group.add_argument("--image-invert", choices=INVERTS, help="255 - v; auto: where the first pixel is bright")
    group.add_argument(
        "--image-scale", metavar="S", help="a factor, 1/N (a division), or 1/max: the picture's own maximum"
    )
    group.add_argument("--image-mean", type=_parse_float_list, metavar="M[,M,M]", help="subtracted per colour")
    group.add_argument("--image-std", type=_parse_float_list, metavar="S[,S,S]", help="divided by per colour")
    group.add_argument("--image-layout", choices=LAYOUTS)


def add_generator_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=_parse_dimension,
        metavar="NAME=SIZE",
        help="a dimension of generated inputs by its name, or as 'x[1]' by input and axis (default: 1 for the first axis, "
        "224 for others)",
    )


def get_image_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the image options that were given."""
    all_options = {
        "mode": arguments.image_mode,
        "fit": arguments.image_fit,
        "resample": arguments.image_resample,
        "invert": arguments.image_invert,
        "scale": arguments.image_scale,
        "mean": arguments.image_mean,
        "std": arguments.image_std,
        "layout": arguments.image_layout,
        "size": arguments.image_size,
    }
    options = {name: value for name, value in all_options.items() if value is not None}
    if options.get("size") == "keep":
        options["size"] = None
    return options
