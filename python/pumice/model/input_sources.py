"""Read a model's inputs from files, or generate random ones."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..base.element_types import Array
from ..base.errors import InputError
from ..base.printable_text import quote_shell_word, shorten_and_escape
from .array_files import read_npy, read_npz, read_tensor_file
from .model import Model
from .model_values import ModelValue

_DEFAULT_SIZE = 224  # size chosen for unknown dimensions, except the first one (usually the batch), which gets 1
_SEED = 0
_MAX_GENERATED_ELEMENTS = 1 << 30  # maximum number of elements of one generated input


Shapes: TypeAlias = "Mapping[str, tuple[int, ...]]"
DrawFunction: TypeAlias = "Callable[[ModelValue, Shapes, np.random.Generator], tuple[Array, str]]"


class GeneratedInputs(NamedTuple):
    """Generated inputs, the sizes chosen for unknown dimensions (`made_up`), and how each input was drawn (`how`)."""

    arrays: dict[str, Array]
    made_up: dict[str, int]
    how: Mapping[str, str] = {}

    @property
    def note(self) -> str:
        """A description of the chosen sizes and how to override them; "" if no size was chosen."""
        if not self.made_up:
            return ""
        sizes = ", ".join(f"{shorten_and_escape(name)} = {size}" for name, size in self.made_up.items())
        # Prefer a dimension other than the batch as the example, because its default size is more likely to be wrong.
        example = next((name for name, size in self.made_up.items() if size != 1), next(iter(self.made_up)))
        quoted = quote_shell_word(f"{example}=16")
        return f"sizes made up: {sizes} (--dim {quoted} gives another)"


def generate_random_values(value: ModelValue, shapes: Shapes, random: np.random.Generator) -> tuple[Array, str]:
    """Return random values for an input, from a distribution that depends only on its dtype, and a description of them."""
    shape = shapes[value.name]
    if value.dtype.kind in "biu":
        return random.integers(0, 2, shape).astype(value.dtype), "0 and 1 at random"
    return random.random(shape).astype(value.dtype), "numbers from 0 to 1 at random"


def generate_random_inputs(
    model: Model, sizes: Mapping[str, int], draw: DrawFunction = generate_random_values
) -> GeneratedInputs:
    """Return random inputs by name. The seed is fixed, so every call returns the same inputs.

    sizes: dimension name -> size; an unnamed dimension is identified by input and axis, as in "x[1]". draw: draws each input. Raise
    InputError for an unknown dimension, or if an input would be too large.
    """
    _check_inputs_are_tensors(model)
    known_names = list(dict.fromkeys(name for value in model.inputs for name in _get_unknown_size_names(value) if name))
    for name in sizes:
        if name not in known_names:
            raise InputError(f"no dimension '{name}'; the inputs have {', '.join(known_names) or 'none that is open'}")
    random = np.random.default_rng(_SEED)
    chosen = dict(sizes)  # keyed by dimension name, so that equal names get equal sizes
    shapes = {value.name: _choose_shape(value, chosen) for value in model.inputs}
    arrays_and_descriptions = {value.name: draw(value, shapes, random) for value in model.inputs}
    made_up = {name: size for name, size in chosen.items() if name not in sizes}
    return GeneratedInputs(
        {name: array_and_description[0] for name, array_and_description in arrays_and_descriptions.items()},
        made_up,
        {n: array_and_description[1] for n, array_and_description in arrays_and_descriptions.items()},
    )


def _get_unknown_size_names(value: ModelValue) -> list[str]:
    """Return a name for each axis of unknown size, and "" for each axis of known size."""
    return [
        "" if isinstance(size, int) else size or f"{value.name}[{axis}]" for axis, size in enumerate(value.shape or ())
    ]


def _check_inputs_are_tensors(model: Model) -> None:
    for value in model.inputs:
        if value.kind != "tensor":
            raise InputError(f"input '{value}': files and generated inputs are tensors; call the model from Python")


def _choose_shape(value: ModelValue, chosen: dict[str, int]) -> tuple[int, ...]:
    if value.dtype == object:
        raise InputError(f"input '{value.name}' holds strings: give it with --input")
    if value.shape is None:
        raise InputError(f"input '{value.name}' is of unknown rank: give it with --input")
    shape = []
    for axis, (size, name) in enumerate(zip(value.shape, _get_unknown_size_names(value), strict=True)):
        shape.append(size if isinstance(size, int) else chosen.setdefault(name, _DEFAULT_SIZE if axis else 1))
    if any(size > _MAX_GENERATED_ELEMENTS for size in shape) or math.prod(shape) > _MAX_GENERATED_ELEMENTS:
        raise InputError(
            f"input '{value.name}' of shape {shape}: at most {_MAX_GENERATED_ELEMENTS} elements are generated"
        )
    return tuple(shape)


def read_inputs(model: Model, entries: list[str], image_options: Mapping[str, Any]) -> dict[str, Array]:
    """Read inputs from entries of the form NAME=FILE, or FILE for a single input or an .npz file with several inputs.

    image_options: options of load_image; they require at least one image. Raise InputError if an input is missing or repeated
    or a file is invalid, OSError if a file is unreadable.
    """
    _check_inputs_are_tensors(model)
    if image_options and not any(_is_image(entry) for entry in entries):
        raise InputError(f"image options ({', '.join(image_options)}), but none of the inputs is one")
    names = [value.name for value in model.inputs]
    arrays: dict[str, Array] = {}
    for entry in entries:
        name, path = _split_entry(entry, names)
        new_arrays = (
            _read_named_arrays(path, names)
            if name is None
            else {name: _read_file(path, _find_input(model, name), image_options)}
        )
        for key, array in new_arrays.items():
            if key in arrays:
                raise InputError(f"input '{key}' is given twice")
            arrays[key] = array
    missing = [str(value) for value in model.inputs if value.name not in arrays]
    if missing:
        raise InputError(f"missing: {'; '.join(missing)} (--input NAME=FILE)")
    return arrays


def _find_input(model: Model, name: str) -> ModelValue:
    return next(value for value in model.inputs if value.name == name)


def _split_entry(entry: str, names: list[str]) -> tuple[str | None, str]:
    """Split an entry into the input's name and the path. The name is None for an .npz file with several inputs."""
    for name in names:
        if entry.startswith(f"{name}="):
            return name, entry[len(name) + 1 :]
    if "=" in entry and not os.path.exists(entry):
        unknown_name = entry.split("=")[0]
        raise InputError(f"no input '{unknown_name}'; the model has {', '.join(names)}")
    if len(names) == 1:
        return names[0], entry
    if entry.endswith(".npz"):
        return None, entry
    raise InputError(f"'{entry}': expected NAME=FILE with one of {', '.join(names)}")


def _read_named_arrays(path: str, names: list[str]) -> dict[str, Array]:
    arrays = read_npz(path)
    if unknown := [name for name in arrays if name not in names]:
        raise InputError(f"'{path}': no input {', '.join(unknown)}; the model has {', '.join(names)}")
    return arrays


def _read_file(path: str, value: ModelValue, image_options: Mapping[str, Any]) -> Array:
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".npz":
        return next(iter(read_npz(path, value.name).values()))
    if suffix == ".pb":
        return read_tensor_file(path)
    from ..device.image_loading import load_image

    return load_image(path, dtype=value.dtype, **{**_guess_image_options(value), **image_options})


def _is_image(path: str) -> bool:
    return os.path.splitext(path)[1].lower() not in (".npy", ".npz", ".pb")


def _guess_image_options(value: ModelValue) -> dict[str, Any]:
    """Guess load_image's options `layout`, `mode` and `size` from the shape of an input."""
    shape = value.shape or ()
    if len(shape) not in (3, 4):
        layout = {2: "HW"}.get(len(shape), "NCHW")
    else:
        layout = "HWC" if shape[-1] in (1, 3) and shape[-3] not in (1, 3) else "CHW"
        layout = f"N{layout}" if len(shape) == 4 else layout
    axes = dict(zip(layout, shape, strict=False))
    height, width = axes.get("H"), axes.get("W")
    size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    return {"layout": layout, "mode": "L" if axes.get("C", 1) == 1 else "RGB", "size": size}
