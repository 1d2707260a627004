"""Compute kernels in GLSL, and the form of them that is a body alone."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _pumice
from ._pumice import BoundKernel, Context, GraphError, ShaderOptions, StateError, Tensor, TensorDesc
from .context import default_context
from .element_types import Array
from .kernel_file import KernelFile, Path
from .log import forward_log

# Arrays of 16-bit floats are of the storage type: buffer_ld1 and buffer_st1 read and write their elements.
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


class _Argument(NamedTuple):
    """What from_body was told of one name."""

    name: str
    glsl: str
    dtype: str | None  # None: a number
    shape: tuple[int, ...] | None


def _argument(name: str, given: Any) -> _Argument:
    if (
        not _NAME.fullmatch(name)
        or name.startswith(("gl_", "pm_"))
        or "__" in name
        or keyword.iskeyword(name)
        or name == "i"
    ):
        raise GraphError(
            f"argument '{name}': expected a name of GLSL other than i, gl_ and pm_ names and Python's keywords"
        )
    if isinstance(given, type) and given in _GLSL_NUMBERS:
        return _Argument(name, _GLSL_NUMBERS[given], None, None)
    dtype, shape = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(given, (np.ndarray, Tensor, TensorDesc)):
        dtype, shape = given.dtype, given.shape
    dtype = dtype if dtype in ("sfp", "bfloat16") else np.dtype(dtype).name
    if dtype not in _GLSL_TYPES and dtype != "sfp":
        raise GraphError(f"argument '{name}': expected one of {', '.join([*_GLSL_TYPES, 'sfp'])}; given {dtype}")
    return _Argument(
        name, _GLSL_TYPES.get(dtype, "sfp"), dtype, None if shape is None else tuple(int(n) for n in shape)
    )


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


class Kernel(_pumice.Kernel):
    """A compute shader in GLSL with the extension's types; called with its arguments by name."""

    def __init__(
        self,
        source: str,
        context: Context | None = None,
        name: str = "kernel",
        macros: Mapping[str, str] | None = None,
        spec: Mapping[str, float] | None = None,
        includes: Mapping[str, str] | None = None,
        options: ShaderOptions | None = None,
        include_dirs: Sequence[Path] = (),
        debug: bool = False,
        message_bytes: int = 1 << 20,
        _from_file: bool = False,
    ) -> None:
        """Macros: names -> text. spec: specialization constants -> values. includes: paths -> text. options: in place of
        those that follow from the device and the arrays, which are then of the types that the shader declares. include_dirs:
        folders that #include looks into after includes, in this order.

        debug: every index is checked that goes into a buffer, the push constants, a shared or a global variable: of arrays, vectors
        and matrices, against the arrays that are bound and the sizes that are declared. One that is out of bounds reads zeros or
        writes nothing, and OutOfBoundsError is raised when the call or the submission is over. message_bytes: of the ring that
        the printf messages of one execution go to; what finds no room is counted in messages_lost.

        Arrays of float16 and bfloat16 are stored as two to a word where the device or the compiler lacks their own type: variants has
        fp16_packed or bf16_packed then, and the logger "pumice" says why at the level of info.

        In the shader x.length() is the number of elements bound. Where two 16-bit elements share a word, as `sfp x[]` in the packed
        modes, it counts words, rounded up; of an empty array of 8-bit elements it is 1, since no range is shorter than a byte.

        Raises ShaderCompileError, UnsupportedError, BindingError (K12: message_bytes).
        """
        optional: dict[str, Any] = {} if includes is None else {"includes": dict(includes)}
        optional |= {} if options is None else {"options": options}
        optional |= {"include_dirs": [os.fspath(folder) for folder in include_dirs], "from_file": _from_file}
        optional |= {"debug": debug, "message_bytes": message_bytes}
        super().__init__(source, context or default_context(), name, dict(macros or {}), dict(spec or {}), **optional)
        self._file: KernelFile | None = None
        self._results: dict[str, tuple[str, tuple[int, ...]]] = {}  # outputs that a call makes: dtype, shape
        self._first_output: str | None = None
        forward_log()

    @classmethod
    def from_file(cls, path: Path, context: Context | None = None, reload: bool = False, **options: Any) -> Kernel:
        """A kernel of the text in a file. #include looks beside the including file, then as Kernel says; options: those of Kernel.

        reload: every call looks first whether the file or an included one has changed, and compiles it anew then. Where the
        new text does not compile, that call raises and the kernel stays as it was until the next change.
        Raises OSError for a file that cannot be read, ShaderCompileError, UnsupportedError.
        """
        file = KernelFile(os.fspath(path), reload, {"context": context, **options})
        made = file.compile(cls)
        made._file = file
        return made

    def reload(self) -> None:
        """Compiles the file anew, as a call of a kernel with reload=True does. Bound kernels stay what they were; messages are forgotten.

        Raises StateError for a kernel that came from no file, and what from_file raises: the kernel is then unchanged.
        """
        if self._file is None:
            raise StateError(f"kernel '{self.name}' came from no file")
        self._replace(self._file.compile(type(self)))

    @classmethod
    def from_body(
        cls,
        body: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        context: Context | None = None,
        name: str = "kernel",
        header: str = "",
        **options: Any,
    ) -> Kernel:
        """A kernel of its body alone; `i` is the number of the invocation, and `.source` shows the text that was made.

        inputs, outputs: names -> a dtype ("float32", np.int32), (dtype, shape), an array, Tensor or TensorDesc to be like,
        "sfp" for the dtype of the call's arrays, or float, int, bool for a number. float16, bfloat16 and sfp arrays are read by
        buffer_ld1(x, i) and written by buffer_st1(y, i, value); others are indexed. A shape gives the body x_size and x_shape[].
        header: functions and constants before main. options: those of Kernel.

        A call returns the outputs that are not given and whose shape is known (one array, or a dict of them), and without
        threads= runs as many invocations as the first output has elements.
        Raises GraphError for a name or dtype that GLSL has not, ShaderCompileError with lines of the body.
        """
        read = [_argument(key, given) for key, given in inputs.items()]
        written = [_argument(key, given) for key, given in outputs.items()]
        for one in written:
            if one.dtype is None or one.name in inputs:
                raise GraphError(f"output '{one.name}': expected an array of a name that no input has")
        numbers = "".join(
            f" const {one.glsl} {one.name} = {one.glsl}(p.{one.name});" for one in read if one.dtype is None
        )
        parts = [
            _declarations(read, written),
            header,
            f"void main() {{ const uint i = gl_GlobalInvocationID.x;{numbers}",
            "#line 1",
            body,
            "}",
        ]
        made = cls("\n".join(part for part in parts if part) + "\n", context, name, **options)
        made._results = {
            one.name: (str(one.dtype), one.shape) for one in written if one.shape is not None and one.dtype != "sfp"
        }
        made._first_output = written[0].name if written else None
        return made

    def __call__(self, **arguments: Any) -> Array | dict[str, Array] | None:
        """Runs once and waits. Arguments by name: Tensors, NumPy arrays, push constants; threads= or groups=.

        Arrays are copied in, and back where the kernel writes them. Push constants are numbers, sequences of them for vectors,
        matrices (by columns) and arrays, dicts for structures. Returns what from_body says, else None.
        Raises BindingError; OutOfBoundsError with debug=True.
        """
        if self._file is not None and self._file.has_changed():
            self.reload()
        if self._first_output is None:
            self.run(**arguments)
            return None
        made = {key: _empty(*result) for key, result in self._results.items() if key not in arguments}
        given = {**arguments, **made}
        if self._first_output in given and "threads" not in given and "groups" not in given:
            given["threads"] = int(np.prod(given[self._first_output].shape, dtype=np.int64))
        self.run(**given)
        return next(iter(made.values())) if len(made) == 1 else made or None

    def bind(self, **arguments: Any) -> BoundKernel:
        """A BoundKernel for command lists: Tensors and push constants by name, and threads= or groups=. Raises BindingError."""
        if self._file is not None and self._file.has_changed():
            self.reload()
        return super().bind(**arguments)

    def __repr__(self) -> str:
        from .html import interface_rows, local_size_text

        rows = "".join(f"\n  {name}: {access} {kind}" for name, access, kind, _ in interface_rows(self.shader))
        return f"<Kernel '{self.name}', local size {local_size_text(self.shader)}, built for {', '.join(self.variants)}>{rows}"


def _empty(dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "bfloat16":
        import ml_dtypes

        return np.zeros(shape, ml_dtypes.bfloat16)
    return np.zeros(shape, dtype)
