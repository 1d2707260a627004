"""Helpers shared by the commands that work on models."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .._pumice import Context, Error
from ..base.element_types import Array
from ..base.errors import InputError, MultilineInputError
from ..base.printable_text import escape_unprintable, shorten_and_escape
from .cli_options import get_image_options, get_precision

if TYPE_CHECKING:
    from ..model.input_sources import GeneratedInputs
    from ..model.model import Model

    Generate: TypeAlias = "Callable[[Model, Mapping[str, int]], GeneratedInputs]"


def load_model(arguments: argparse.Namespace) -> Model:
    """Load the model on the device and with the precision in the options."""
    from ..model.model import Model

    context = Context(arguments.device) if arguments.device else None
    return Model(arguments.model, context, get_precision(arguments), progress=not arguments.json, seed=arguments.seed)


def read_or_generate_inputs(
    model: Model, arguments: argparse.Namespace, generate: Generate | None = None
) -> tuple[tuple[Array, ...], GeneratedInputs]:
    """Return the inputs in graph order, and a description of the generated ones. generate: function that creates inputs if the
    options name no files.
    """
    from ..model.input_sources import GeneratedInputs, generate_random_inputs, read_inputs

    if arguments.input:
        if arguments.dim:
            raise InputError("--dim is for generated inputs, but --input gives them: expected only one of the two")
        generated_inputs = GeneratedInputs(read_inputs(model, arguments.input, get_image_options(arguments)), {})
    elif image_settings := get_image_options(arguments):
        raise InputError(f"image options ({', '.join(image_settings)}), but no input is given (--input NAME=FILE)")
    else:
        names = [name for name, _ in arguments.dim]
        if duplicates := [name for i, name in enumerate(names) if name in names[:i]]:
            raise InputError(f"dimension '{duplicates[0]}' is given twice")
        generated_inputs = (generate or generate_random_inputs)(model, dict(arguments.dim))
    return tuple(generated_inputs.arrays[value.name] for value in model.inputs), generated_inputs


@contextlib.contextmanager
def append_sizes_to_errors(generated_inputs: GeneratedInputs) -> Iterator[None]:
    """Append the sizes that were chosen by default to an error's message."""
    try:
        yield
    except Error as error:
        if not generated_inputs.note:
            raise
        raise MultilineInputError(f"{error}\n{generated_inputs.note}") from error


def describe_inputs(arrays: Sequence[Array], model: Model) -> str:
    """Return a text with the name, dtype and shape of every input."""
    pairs = zip(model.inputs, arrays, strict=True)
    return ", ".join(f"{shorten_and_escape(value.name)}: {array.dtype}{list(array.shape)}" for value, array in pairs)


def format_device_line(model: Model) -> str:
    """Return a line with the model's device, why it was chosen, and a warning if it is a software driver."""
    software = " (SOFTWARE DRIVER: not a GPU)" if model.device.kind == "software" else ""
    numbers = f"; {model.random_numbers}" if model.random_numbers else ""
    return escape_unprintable(f"device: {model.device.name}{software}; {model.context.choice}{numbers}")


def make_model_record(model: Model) -> dict[str, Any]:
    """Return a JSON-compatible record of the model and its device."""
    device = {"name": model.device.name, "kind": model.device.kind, "uuid": model.device.uuid}
    record = {"model": model.name, "device": {**device, "choice": model.context.choice}, "precision": model.precision}
    return record if model.seed is None else {**record, "seed": model.seed}
