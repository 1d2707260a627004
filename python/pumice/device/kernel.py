"""Compute kernels in GLSL."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import pumice._pumice as _pumice

from .._pumice import BoundKernel, Context, Error, OutOfBoundsError, ShaderOptions, StateError
from ..base.element_types import Array
from ..base.errors import binding_error
from ..base.log import forward_log
from ..base.plain_text import plain
from ..base.torch_tensors import knows_torch, plain_arguments
from .block_arguments import Filled
from .context import default_context
from .given_arguments import Facts, facts_of, resolved, stand_for_others
from .kernel_file import KernelFile, Path

if TYPE_CHECKING:
    from .kernel_statistics import KernelStatistics
    from .kernel_times import KernelTimes
    from .tuning import Arguments, Configs, Tuning


def _typed(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"Kernel: {name}: expected {expected}; given {type(value).__name__}")


def _texts(name: str, given: Any, numbers: bool = False) -> dict[str, str]:
    """A mapping of names to texts, in which numbers are written out. Raises TypeError."""
    expected = f"a mapping of names to text{' or numbers' if numbers else ''}"
    _typed(name, given, Mapping, expected)
    made = {}
    for key, value in given.items():
        _typed(f"{name}: {key!r}", key, str, "a name")
        _typed(f"{name}['{key}']", value, (str, int, float, np.number, np.bool_) if numbers else str, expected)
        made[key] = str(int(value) if isinstance(value, (bool, np.bool_)) else value)
    return made


def _folders(given: Any) -> list[str]:
    expected = "a sequence of paths"
    if isinstance(given, (str, bytes, os.PathLike)):
        raise TypeError(f"Kernel: include_dirs: expected {expected}; given one path, {os.fspath(given)!r}")
    _typed("include_dirs", given, Iterable, expected)
    folders = list(given)
    for folder in folders:
        _typed("include_dirs", folder, (str, os.PathLike), expected)
    return [os.fspath(folder) for folder in folders]


def _check_module(spirv: Any, **others: Any) -> None:
    """Raises TypeError for what is no module, and for arguments that only a source has."""
    _typed("spirv", spirv, bytes, "the bytes of a SPIR-V module")
    for name, given in others.items():
        if given:
            raise TypeError(f"Kernel: {name}: expected none with spirv=, which is compiled already; given {name}=")


def _local_size(given: Any) -> list[int] | None:
    if given is None:
        return None
    try:
        return [operator.index(n) for n in (given if isinstance(given, Iterable) else (given,))]
    except TypeError:
        raise TypeError(f"Kernel: local_size: expected one to three whole numbers; given {given!r}") from None


class Kernel(_pumice.Kernel):
    """A compute shader in GLSL with the extension's types; called with its arguments by name."""

    _is_made = False  # lets a traceback show the object before the extension has made its part

    def __init__(
        self,
        source: str | None = None,
        context: Context | None = None,
        name: str = "kernel",
        macros: Mapping[str, str | float] | None = None,
        spec: Mapping[str, float] | None = None,
        includes: Mapping[str, str] | None = None,
        options: ShaderOptions | Mapping[str, Any] | None = None,
        include_dirs: Sequence[Path] = (),
        debug: bool = False,
        message_bytes: int = 1 << 20,
        local_size: int | Sequence[int] | None = None,
        spirv: bytes | None = None,
        _path: str = "",
    ) -> None:
        """Compiles the text for the context's device, by default the default context's.

        macros: names -> text or numbers. spec: specialization constants -> values. includes: paths -> text. options: a
        dict of keywords of ShaderOptions changes these alone, and all others follow from the device and from the arrays
        of a call (macros of "profile" are added to the device's); ShaderOptions replace them all, so that arrays are of
        the types that the shader declares. include_dirs: folders that #include looks into after includes, in this order.

        debug: every index is checked that goes into a buffer, the push constants, a shared or a global variable: of
        arrays, vectors and matrices, against the arrays that are bound and the sizes that are declared. An access out
        of bounds reads zeros or writes nothing, and OutOfBoundsError is raised when the call or the submission is
        over. message_bytes: size of the ring that the printf messages of one execution go to; messages that find no
        room are counted in messages_lost.

        Arrays of float16 and bfloat16 are stored as two to a word where the device or the compiler lacks their own
        type: variants has fp16_packed or bf16_packed then, and the logger "pumice" says why at the level of info.
        Where the device lacks 64-bit integers (shaderInt64), pairs of words stand for them, with the same results,
        and the logger says so.

        local_size: invocations of a workgroup, one to three numbers, for a text that declares none. Invocations past
        threads= are left out, unless the text has shared memory, barriers or subgroup operations, which all invocations
        of a workgroup have to reach: it checks its own bounds then. local_size_x, _y and _z in spec say the same.

        In the shader x.length() is the number of elements bound. Where two 16-bit elements share a word, as `sfp x[]`
        in the packed modes, it counts words, rounded up; of an empty array of 8-bit elements it is 1, since no range
        is shorter than a byte.

        spirv: a module of SPIR-V in place of source, with an entry point "main" and the names of its arguments (OpName), as
        glslang, glslc and slangc write it without stripping. It must be valid: a driver may crash at one that is not. It
        takes context, name and spec besides. threads= has to be whole workgroups, since nothing guards a module.

        Raises TypeError for an argument of another type, ShaderCompileError (a text of such operations without a
        local size, or one that declares it besides), UnsupportedError, BindingError (K1, K2: spec, local_size; K12:
        message_bytes).
        """
        if spirv is None:
            _typed("source", source, str, "the text of a shader; Kernel.from_file() reads a file")
        else:
            _check_module(
                spirv,
                source=source,
                macros=macros,
                includes=includes,
                options=options,
                include_dirs=include_dirs,
                debug=debug,
                local_size=local_size,
            )
        _typed("context", context, (Context, type(None)), "a Context")
        _typed("name", name, str, "text")
        _typed("spec", {} if spec is None else spec, Mapping, "a mapping of names to numbers")
        _typed(
            "options",
            options,
            (ShaderOptions, Mapping, type(None)),
            "ShaderOptions or a mapping of some of their keywords",
        )
        _typed("message_bytes", message_bytes, int, "a number of bytes")
        if not 0 <= message_bytes < 1 << 63:
            raise binding_error("K12", "message_bytes", "a number of bytes", str(message_bytes), kind="argument")
        optional: dict[str, Any] = {} if includes is None else {"includes": _texts("includes", includes)}
        optional |= {} if options is None else {"options": dict(options) if isinstance(options, Mapping) else options}
        optional |= {"include_dirs": _folders(include_dirs), "path": _path}
        optional |= {"local_size": _local_size(local_size)}
        optional |= {"debug": bool(debug), "message_bytes": message_bytes, "spirv": spirv or b""}
        texts = _texts("macros", {} if macros is None else macros, numbers=True)
        self._on = context or default_context()
        self._given: dict[str, Any] = {
            "name": name,
            "macros": texts,
            "spec": dict(spec or {}),
            "includes": includes,
            "options": options,
        }
        self._given |= {"include_dirs": tuple(include_dirs), "debug": debug, "local_size": local_size, "_path": _path}
        self._given |= {"message_bytes": message_bytes, "spirv": spirv}
        super().__init__(source or "", self._on, name, texts, dict(spec or {}), **optional)
        self._is_made = True
        self._note_arguments()
        self._file: KernelFile | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}  # shapes that from_body was given
        self._results: dict[str, tuple[str, tuple[int, ...]]] = {}  # outputs that a call makes: (dtype, shape)
        self._first_output: str | None = None
        forward_log()

    def _note_arguments(self) -> None:
        self._argument_facts: Facts = facts_of(self)
        self._special_names = self._argument_facts.special

    @classmethod
    def from_file(cls, path: Path, context: Context | None = None, reload: bool = False, **options: Any) -> Kernel:
        """A kernel of the text in a file. #include looks beside the including file, then as Kernel says.

        reload: every call looks first whether the file or an included one has changed, and compiles it anew then.
        Where the new text does not compile, the logger "pumice" gets one warning, and the kernel stays as it was
        until the next change. options: those of Kernel; name is the path where it is not among them. Raises OSError
        for a file that cannot be read, ShaderCompileError, UnsupportedError.
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
        self._note_arguments()

    def _reload_if_changed(self) -> None:
        assert self._file is not None
        if not self._file.has_changed():
            return
        try:
            self.reload()
        except (Error, OSError) as error:
            import logging

            logging.getLogger("pumice").warning("kernel '%s' stays as it was: %s", plain(self.name), error)

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
        """A kernel of which only the body of main is written; `i` is the number of the invocation, `.source` shows
        the whole text.

        inputs, outputs: names -> a dtype ("float32", np.int32), (dtype, shape), an array, Tensor or TensorDesc to be
        like, "sfp" for the dtype of the call's arrays, or float, int, bool for a number. float16, bfloat16 and sfp
        arrays are read by buffer_ld1(x, i) and written by buffer_st1(y, i, value); others are indexed. A shape gives
        the body x_size and x_shape[]. header: functions and constants before main. options: those of Kernel.

        A call returns the outputs that are not given and whose shape is known (one array, or a dict of them), and
        without threads= runs as many invocations as the first output has elements. An array that is given for a name
        with a shape has that shape, or as many elements on one axis. Raises GraphError for a name, dtype or shape
        that there is not, ShaderCompileError with lines of the body; a call BindingError (K5: shape).
        """
        from .kernel_body import text_of

        text = text_of(body, inputs, outputs, header)
        made = cls(text.source, context, name, **options)
        made._shapes, made._results, made._first_output = text.shapes, text.results, text.first_output
        return made

    def _check_shapes(self, arguments: Mapping[str, Any]) -> None:
        for name, shape in self._shapes.items():
            given = getattr(arguments.get(name), "shape", None)
            if given is None or tuple(given) == shape or (len(given) == 1 and given[0] == math.prod(shape)):
                continue
            raise binding_error("K5", name, f"an array of shape {shape}", f"shape {tuple(given)}", kind="argument")

    def __call__(self, given: Mapping[str, Any] | None = None, /, **arguments: Any) -> Array | dict[str, Array] | None:
        """Runs the kernel once and waits. Arguments go by name: Tensors, NumPy arrays, push constants; threads= or
        groups=. threads="y" is an invocation for each element of the array that is given as y, as the shader declares it.
        Exactly so many run, unless they work together (barriers, shared memory, subgroups): then whole workgroups do.
        groups= may be a Tensor of three uint32, which the device reads when the kernel starts; they must be within its limits.

        timeout: seconds that the call waits at most. TimeoutError is raised when they are over; the execution goes on
        and the arrays stay as they are. Ctrl-C interrupts likewise.
        given: arguments in a dict, for names that are keywords of this call (threads, groups, timeout) or of Python.
        Arrays are copied in, and back where the kernel writes them; those of structures have the fields and offsets
        of the shader (see dtype), or are copied to these; a list of dicts does where the kernel only reads it. A block of
        several members takes them by name, or a dict; an array of blocks takes a list. None stands for a buffer that no
        instruction of this variant names, as where a macro leaves its use out: the interface of the shader says "used".
        Push constants are numbers, sequences of them for vectors, matrices (by columns) and arrays, dicts for structures.
        Returns the outputs that from_body says, else None. Raises BindingError; OutOfBoundsError with debug=True.
        The first call with arrays of some types makes a kernel, which some drivers compile at its first dispatch.
        """
        if self._file is not None:
            self._reload_if_changed()
        if knows_torch():
            given, arguments = _without_torch(given, arguments)
        filled: list[Filled] = []
        if stand_for_others(self._special_names, given, arguments):
            given, arguments, filled = resolved(self, given, arguments)
        if self._first_output is None:
            self._run(given, arguments, filled)
            return None
        arguments = {**(given or {}), **arguments}
        every = self._completed(arguments)
        self._check_shapes(every)
        self._run(None, every, filled)
        made = {key: every[key] for key in self._results if key not in arguments}
        return next(iter(made.values())) if len(made) == 1 else made or None

    def _run(self, given: Mapping[str, Any] | None, arguments: Mapping[str, Any], filled: Iterable[Filled]) -> None:
        try:
            self.run(**arguments) if given is None else self.run(given, **arguments)
        except OutOfBoundsError:  # the results are there
            for one in filled:
                one.copy_back()
            raise
        for one in filled:
            one.copy_back()

    def _completed(self, every: dict[str, Any]) -> dict[str, Any]:
        """The arguments with the outputs and the threads that from_body tells and a call leaves out."""
        every = {**every, **{key: _empty(*result) for key, result in self._results.items() if key not in every}}
        if self._first_output in every and "threads" not in every and "groups" not in every:
            every["threads"] = int(np.prod(np.shape(every[self._first_output]), dtype=np.int64))
        return every

    def _variant(self, local_size: Any, spec: Mapping[str, Any], macros: Mapping[str, Any]) -> Kernel:
        """A kernel of the same text with other constants, macros and, where one is given, local size."""
        given = {**self._given, "spec": {**self._given["spec"], **spec}, "macros": {**self._given["macros"], **macros}}
        given |= {} if local_size is None else {"local_size": local_size}
        made = Kernel(self.source if given["spirv"] is None else None, self._on, **given)
        made._shapes, made._results, made._first_output = self._shapes, self._results, self._first_output
        return made

    def bind(self, given: Mapping[str, Any] | None = None, /, **arguments: Any) -> BoundKernel:
        """A BoundKernel for command lists: Tensors and push constants as a call takes them, and threads= or groups=.

        Raises BindingError.
        """
        if self._file is not None:
            self._reload_if_changed()
        if knows_torch():
            given, arguments = _without_torch(given, arguments)
        if stand_for_others(self._special_names, given, arguments):
            given, arguments, _ = resolved(self, given, arguments)
        if self._shapes:
            self._check_shapes({**(given or {}), **arguments})
        return super().bind(**arguments) if given is None else super().bind(given, **arguments)

    def time(self, given: Mapping[str, Any] | None = None, /, *, runs: int = 20, **arguments: Any) -> KernelTimes:
        """Seconds on the device of each of `runs` runs, between time stamps, after one run that is not measured.

        Arguments as bind takes them, besides NumPy arrays of buffers, which are copied to the device once and not back: the
        arrays stay as they are. given: arguments in a dict, for names that this call has. Raises BindingError,
        InputError for runs below 1, UnsupportedError for a queue without time stamps.
        """
        from .kernel_times import times_of

        return times_of(self, self._on, (plain_arguments(given or {}), plain_arguments(arguments)), runs)

    def tune(
        self,
        configs: Configs,
        arguments: Arguments,
        *,
        check: Callable[..., Any] | None = None,
        tolerance: float | None = None,
        allow_spills: bool = False,
        runs: int = 20,
        again: bool = False,
        progress: bool = True,
    ) -> Tuning:
        """Measures variants of this kernel, chooses the quickest, and keeps on disk what was measured.

        configs: a grid, names -> lists of values, of which every combination is a variant; or a callable that gives dicts
        of values. Names: specialization constants, macros that the text names, "local_size", and "precision" ("fp32",
        "fp16", "bf16": the type that arrays of floats in buffers of sfp are converted to).
        arguments: those of a call in a dict; or a callable that gives them for a variant's dict, as where the number of
        groups follows from a tile. Arrays stay as they are.
        check: a function that is called with the arrays and numbers by name and returns what the kernel should write, one
        array or a dict of them; a variant that differs is rejected. tolerance: the largest difference, as a part of the
        largest value, by default the square root of the type's epsilon, 0 for whole numbers. allow_spills: keep variants
        whose registers spill, where the driver tells that. runs: executions of each variant, of which the median counts.
        again: measure, whatever is known. progress: a bar, on a terminal and in a notebook.

        What is known of a variant, by device, driver, text, class of sizes, and whether it was checked and how, is not
        measured again, in this process and later ones. After an interruption the next call goes on where this one was.
        A reference cannot be told from another one: use again=True after a change of check.
        A variant that the device does not run, as one whose loops the driver ends, is rejected as a wrong one is.
        Raises InputError for configurations and arguments that cannot be, or where all variants are rejected, which it
        lists, BindingError for arguments that do not fit, UnsupportedError for a queue without time stamps.
        """
        from .tuning import Demand, listed, tuned

        if self._file is not None:
            self._reload_if_changed()
        demand = Demand(check, tolerance, allow_spills, runs)
        return tuned(self, self._on, listed(self, configs), arguments, demand, (again, progress))

    def statistics(self, storage: str | None = None) -> KernelStatistics:
        """What the driver tells of the program that it makes of one build: registers, spills, shared memory, assembly.

        The driver compiles the kernel once more for it. storage: one of `variants`; None: the fp32 build (or that of
        the given options). Sizes of the SPIR-V are there on every driver; KernelStatistics says what is not.
        Raises BindingError (K1) for a build that has not been made.
        """
        from .kernel_statistics import KernelStatistics

        return KernelStatistics(self.name, self._driver_record(storage))

    def _repr_html_(self) -> str:
        from ..base.html import html_of

        return html_of(self)

    def __repr__(self) -> str:
        if not self._is_made:
            return "<Kernel, not made>"
        from ..base.html import interface_rows, local_size_text

        rows = "".join(f"\n  {name}: {access} {kind}" for name, access, kind, _ in interface_rows(self.shader))
        return f"<Kernel '{plain(self.name)}', local size {local_size_text(self.shader)}, built for {', '.join(self.variants)}>{rows}"


def _without_torch(given: Any, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return plain_arguments(given) if isinstance(given, Mapping) else given, plain_arguments(arguments)


def _empty(dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "bfloat16":
        import ml_dtypes

        return np.zeros(shape, ml_dtypes.bfloat16)
    return np.zeros(shape, dtype)
