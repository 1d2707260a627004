"""Generate the source of a kernel from the body of main."""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._pumice import GraphError, Tensor, TensorDesc
from ..base.errors import graph_error
from .glsl_reserved_words import is_reserved

# Arrays of 16-bit floats are declared with the storage type sfp and accessed with buffer_ld1 and buffer_st1.
_GLSL_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "sfp",
    "bfloat16": "sfp",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "int32": "int",
    "uint32": "uint",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}
_GLSL_SCALARS = {float: "float", int: "int", bool: "bool"}
_NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MAX_ELEMENTS = (1 << 32) - 1  # maximum elements of an array with a known shape, because the body uses uint indices
_GENERATED_NAMES = {
    "i": "the invocation's number",
    "p": "the push constants",
    "threads": "the size of a launch",
    "groups": "the size of a launch",
    "timeout": "how long a call waits",
    "self": "the kernel of a call",
}


class KernelSource(NamedTuple):
    """Kernel source, and defaults for omitted arguments."""

    source: str
    shapes: dict[str, tuple[int, ...]]  # argument -> its shape, if known
    results: dict[str, tuple[str, tuple[int, ...]]]  # outputs that a call allocates: (dtype, shape)
    first_output: str | None


class _KernelArgument(NamedTuple):
    """The name and type of an argument passed to from_body."""

    name: str
    glsl_type: str
    dtype: str | None  # None for a scalar
    shape: tuple[int, ...] | None


def _make_argument_error(name: str, message: str) -> GraphError:
    return graph_error("argument", name, message)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME_PATTERN.fullmatch(name):
        raise _make_argument_error(name, "expected a name of letters, digits and underscores that starts with a letter")
    if name.startswith(("gl_", "pm_")):
        raise _make_argument_error(
            name, "names that start with gl_ are reserved by GLSL, and those with pm_ by the generated source"
        )
    if "__" in name:
        raise _make_argument_error(name, "names with two underscores in a row are reserved in GLSL")
    if is_reserved(name):
        raise _make_argument_error(name, f"'{name}' is a reserved word of GLSL or a type")
    if keyword.iskeyword(name):
        raise _make_argument_error(name, f"'{name}' is a keyword of Python")
    if name in _GENERATED_NAMES:
        raise _make_argument_error(name, f"'{name}' is taken: it is {_GENERATED_NAMES[name]}")


def _parse_dtype(name: str, description: Any) -> str:
    if description is None:
        raise _make_argument_error(name, "expected a dtype; given None")
    if isinstance(description, str) and description in ("sfp", "bfloat16"):
        return str(description)
    try:
        dtype = str(np.dtype(description).name)
    except (TypeError, ValueError):
        dtype = repr(description)
    if dtype not in _GLSL_TYPES:
        raise _make_argument_error(name, f"expected one of {', '.join([*_GLSL_TYPES, 'sfp'])}; given {dtype}")
    return dtype


def _parse_shape(name: str, description: Any) -> tuple[int, ...] | None:
    if description is None:
        return None
    try:
        sizes = tuple(operator.index(n) for n in (description if isinstance(description, Iterable) else (description,)))
    except TypeError:
        raise _make_argument_error(name, f"expected a shape of integers; given {description!r}") from None
    if any(n < 0 for n in sizes):
        raise _make_argument_error(name, f"expected a shape of non-negative sizes; given {sizes}")
    if math.prod(sizes) > _MAX_ELEMENTS:
        raise _make_argument_error(name, f"expected a shape of at most {_MAX_ELEMENTS} elements; given {sizes}")
    return sizes


def _parse_argument(name: str, description: Any) -> _KernelArgument:
    _check_name(name)
    if isinstance(description, type) and description in _GLSL_SCALARS:
        return _KernelArgument(name, _GLSL_SCALARS[description], None, None)
    dtype, shape = description if isinstance(description, tuple) and len(description) == 2 else (description, None)
    if isinstance(description, (np.ndarray, Tensor, TensorDesc)):
        dtype, shape = description.dtype, description.shape
    dtype = _parse_dtype(name, dtype)
    return _KernelArgument(name, _GLSL_TYPES.get(dtype, "sfp"), dtype, _parse_shape(name, shape))


def _check_generated_names(arguments: Iterable[_KernelArgument]) -> None:
    """Raise GraphError if an argument has a generated name, such as x_size or x_shape of an argument x."""
    all_arguments = list(arguments)
    generated = {
        argument.name + end: argument.name
        for argument in all_arguments
        if argument.shape is not None
        for end in ("_size", "_shape")
    }
    for argument in all_arguments:
        if argument.name in generated:
            raise _make_argument_error(
                argument.name, f"'{argument.name}' is taken: the shape of '{generated[argument.name]}' makes it"
            )


def _generate_declarations(inputs: list[_KernelArgument], outputs: list[_KernelArgument]) -> str:
    lines = []
    arrays = [(argument, "readonly " * (argument in inputs)) for argument in [*inputs, *outputs] if argument.dtype]
    for binding, (argument, access) in enumerate(arrays):
        lines.append(
            f"layout(binding = {binding}) {access}buffer pm_{argument.name} {{ {argument.glsl_type} {argument.name}[]; }};"
        )
        if argument.shape is not None:
            lines.append(f"const uint {argument.name}_size = {int(np.prod(argument.shape, dtype=np.int64))}u;")
        if argument.shape:
            sizes = ", ".join(f"{n}u" for n in argument.shape)
            lines.append(f"const uint {argument.name}_shape[{len(argument.shape)}] = uint[]({sizes});")
    scalars = [argument for argument in inputs if not argument.dtype]
    if scalars:
        members = " ".join(f"{argument.glsl_type.replace('bool', 'uint')} {argument.name};" for argument in scalars)
        lines.append(f"layout(push_constant) uniform parameter {{ {members} }} p;")
    return "\n".join(lines)


def generate_source(body: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], header: str) -> KernelSource:
    """Return the complete source for a body; for arguments and errors see Kernel.from_body."""
    input_arguments = [_parse_argument(key, description) for key, description in inputs.items()]
    output_arguments = [_parse_argument(key, description) for key, description in outputs.items()]
    for argument in output_arguments:
        if argument.dtype is None or argument.name in inputs:
            raise graph_error("output", argument.name, "expected an array with a name that no input has")
    all_arguments = [*input_arguments, *output_arguments]
    _check_generated_names(all_arguments)
    scalars = "".join(
        f" const {argument.glsl_type} {argument.name} = {argument.glsl_type}(p.{argument.name});"
        for argument in input_arguments
        if argument.dtype is None
    )
    sections = [
        _generate_declarations(input_arguments, output_arguments),
        header,
        f"void main() {{ const uint i = gl_GlobalInvocationID.x;{scalars}",
        "#line 1",
        body,
        "}",
    ]
    return KernelSource(
        "\n".join(section for section in sections if section) + "\n",
        {argument.name: argument.shape for argument in all_arguments if argument.shape is not None},
        {
            argument.name: (str(argument.dtype), argument.shape)
            for argument in output_arguments
            if argument.shape is not None and argument.dtype != "sfp"
        },
        output_arguments[0].name if output_arguments else None,
    )
