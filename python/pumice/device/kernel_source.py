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

# Arrays of 16-bit floats have the storage type, accessed with buffer_ld1 and buffer_st1.
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
_GLSL_NUMBERS = {float: "float", int: "int", bool: "bool"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MOST_ELEMENTS = (1 << 32) - 1  # maximum elements of an array with a known shape, because the body uses uint indices
_GENERATED = {
    "i": "the invocation's number",
    "p": "the push constants",
    "threads": "the size of a launch",
    "groups": "the size of a launch",
    "timeout": "how long a call waits",
    "self": "the kernel of a call",
}


class KernelText(NamedTuple):
    """Kernel source, and defaults for omitted arguments."""

    source: str
    shapes: dict[str, tuple[int, ...]]  # argument -> its shape, if known
    results: dict[str, tuple[str, tuple[int, ...]]]  # outputs that a call allocates: (dtype, shape)
    first_output: str | None


class _Argument(NamedTuple):
    """An argument name passed to from_body, and its type."""

    name: str
    glsl: str
    dtype: str | None  # None for a number
    shape: tuple[int, ...] | None


def _refused(name: str, message: str) -> GraphError:
    return graph_error("argument", name, message)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _refused(name, "expected a name of letters, digits and underscores that starts with a letter")
    if name.startswith(("gl_", "pm_")):
        raise _refused(name, "names that start with gl_ are GLSL's, with pm_ those of the text that is made")
    if "__" in name:
        raise _refused(name, "names with two underscores in a row are reserved in GLSL")
    if is_reserved(name):
        raise _refused(name, f"'{name}' is a reserved word of GLSL or a type")
    if keyword.iskeyword(name):
        raise _refused(name, f"'{name}' is a keyword of Python")
    if name in _GENERATED:
        raise _refused(name, f"'{name}' is taken: it is {_GENERATED[name]}")


def _dtype_name(name: str, given: Any) -> str:
    if given is None:
        raise _refused(name, "expected a dtype; given None")
    if isinstance(given, str) and given in ("sfp", "bfloat16"):
        return str(given)
    try:
        dtype = str(np.dtype(given).name)
    except (TypeError, ValueError):
        dtype = repr(given)
    if dtype not in _GLSL_TYPES:
        raise _refused(name, f"expected one of {', '.join([*_GLSL_TYPES, 'sfp'])}; given {dtype}")
    return dtype


def _sizes(name: str, given: Any) -> tuple[int, ...] | None:
    if given is None:
        return None
    try:
        sizes = tuple(operator.index(n) for n in (given if isinstance(given, Iterable) else (given,)))
    except TypeError:
        raise _refused(name, f"expected a shape of whole numbers; given {given!r}") from None
    if any(n < 0 for n in sizes):
        raise _refused(name, f"expected a shape of sizes from 0; given {sizes}")
    if math.prod(sizes) > _MOST_ELEMENTS:
        raise _refused(name, f"expected a shape of at most {_MOST_ELEMENTS} elements; given {sizes}")
    return sizes


def _argument(name: str, given: Any) -> _Argument:
    _check_name(name)
    if isinstance(given, type) and given in _GLSL_NUMBERS:
        return _Argument(name, _GLSL_NUMBERS[given], None, None)
    dtype, shape = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(given, (np.ndarray, Tensor, TensorDesc)):
        dtype, shape = given.dtype, given.shape
    dtype = _dtype_name(name, dtype)
    return _Argument(name, _GLSL_TYPES.get(dtype, "sfp"), dtype, _sizes(name, shape))


def _check_generated_names(arguments: Iterable[_Argument]) -> None:
    """Raise GraphError for a name that clashes with a generated one, such as x_size and x_shape of x."""
    every = list(arguments)
    made = {one.name + end: one.name for one in every if one.shape is not None for end in ("_size", "_shape")}
    for one in every:
        if one.name in made:
            raise _refused(one.name, f"'{one.name}' is taken: the shape of '{made[one.name]}' makes it")


def _declarations(inputs: list[_Argument], outputs: list[_Argument]) -> str:
    lines = []
    arrays = [(one, "readonly " * (one in inputs)) for one in [*inputs, *outputs] if one.dtype]
    for binding, (one, access) in enumerate(arrays):
        lines.append(f"layout(binding = {binding}) {access}buffer pm_{one.name} {{ {one.glsl} {one.name}[]; }};")
        if one.shape is not None:
            lines.append(f"const uint {one.name}_size = {int(np.prod(one.shape, dtype=np.int64))}u;")
        if one.shape:
            sizes = ", ".join(f"{n}u" for n in one.shape)
            lines.append(f"const uint {one.name}_shape[{len(one.shape)}] = uint[]({sizes});")
    numbers = [one for one in inputs if not one.dtype]
    if numbers:
        members = " ".join(f"{one.glsl.replace('bool', 'uint')} {one.name};" for one in numbers)
        lines.append(f"layout(push_constant) uniform parameter {{ {members} }} p;")
    return "\n".join(lines)


def text_of(body: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], header: str) -> KernelText:
    """Return the complete source for a body; for arguments and errors see Kernel.from_body."""
    read = [_argument(key, given) for key, given in inputs.items()]
    written = [_argument(key, given) for key, given in outputs.items()]
    for one in written:
        if one.dtype is None or one.name in inputs:
            raise graph_error("output", one.name, "expected an array of a name that no input has")
    every = [*read, *written]
    _check_generated_names(every)
    numbers = "".join(f" const {one.glsl} {one.name} = {one.glsl}(p.{one.name});" for one in read if one.dtype is None)
    parts = [
        _declarations(read, written),
        header,
        f"void main() {{ const uint i = gl_GlobalInvocationID.x;{numbers}",
        "#line 1",
        body,
        "}",
    ]
    return KernelText(
        "\n".join(part for part in parts if part) + "\n",
        {one.name: one.shape for one in every if one.shape is not None},
        {one.name: (str(one.dtype), one.shape) for one in written if one.shape is not None and one.dtype != "sfp"},
        written[0].name if written else None,
    )
