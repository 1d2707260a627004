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
from ..base.printable_text import shorten_and_escape
from ..base.torch_tensors import convert_torch_tensors_by_name, is_torch_loaded
from .argument_resolution import ArgumentLayout, make_argument_layout, needs_argument_resolution, resolve_arguments
from .block_arguments import Writeback
from .context import default_context
from .kernel_file import KernelFile, Path

if TYPE_CHECKING:
    from .kernel_statistics import KernelStatistics
    from .kernel_times import KernelTimes
    from .tuning import Arguments, Configs, Tuning


def _check_type(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"Kernel: {name}: expected {expected}; given {type(value).__name__}")


def _convert_to_strings(name: str, mapping: Any, numbers: bool = False) -> dict[str, str]:
    """Convert the values of a mapping to text, formatting numbers. Raise TypeError for other types."""
    expected = f"a mapping of names to text{' or numbers' if numbers else ''}"
    _check_type(name, mapping, Mapping, expected)
    strings = {}
    for key, value in mapping.items():
        _check_type(f"{name}: {key!r}", key, str, "a name")
        _check_type(f"{name}['{key}']", value, (str, int, float, np.number, np.bool_) if numbers else str, expected)
        strings[key] = str(int(value) if isinstance(value, (bool, np.bool_)) else value)
    return strings


def _convert_to_paths(paths: Any) -> list[str]:
    expected = "a sequence of paths"
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(f"Kernel: include_dirs: expected {expected}; given one path, {os.fspath(paths)!r}")
    _check_type("include_dirs", paths, Iterable, expected)
    folders = list(paths)
    for folder in folders:
        _check_type("include_dirs", folder, (str, os.PathLike), expected)
    return [os.fspath(folder) for folder in folders]


def _check_spirv(spirv: Any, **others: Any) -> None:
    """Raise TypeError if `spirv` is not bytes, or if one of the other arguments, which require source code, is given."""
    _check_type("spirv", spirv, bytes, "the bytes of a SPIR-V module")
    for name, argument in others.items():
        if argument:
            raise TypeError(f"Kernel: {name}: expected none with spirv=, which is already compiled; given {name}=")


def _parse_local_size(argument: Any) -> list[int] | None:
    if argument is None:
        return None
    try:
        return [operator.index(n) for n in (argument if isinstance(argument, Iterable) else (argument,))]
    except TypeError:
        raise TypeError(f"Kernel: local_size: expected one to three integers; given {argument!r}") from None


class Kernel(_pumice.Kernel):
    """A compute shader in GLSL with the extension's types; call it with its arguments by name."""

    _is_initialized = False  # checked by repr(), which a traceback may call before the base class is initialized

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
        """Compile the source for the context's device, by default the default context's.

        macros: name -> text or number. spec: specialization constant -> value. includes: path -> source text. options: a dict of
        ShaderOptions keywords overrides only these; the others follow from the device and from the arrays of a call (macros of "profile"
        are added to the device's). A ShaderOptions object replaces all defaults; arrays must then have the types that the shader declares.
        include_dirs: folders that #include searches after includes, in this order.

        debug: check every index into a buffer, push constants, shared or global variables (arrays, vectors, matrices) against the bound
        arrays and the declared sizes. An access out of bounds reads zeros or writes nothing; OutOfBoundsError is raised when the call or
        submission completes. message_bytes: size of the ring buffer for the printf messages of one execution; messages_lost counts the
        messages that do not fit.

        If the device or the compiler lacks 16-bit types, float16 and bfloat16 arrays are stored as two elements per word: `variants` then
        contains fp16_packed or bf16_packed, and the logger "pumice" reports the reason at level INFO. If the device lacks 64-bit integers
        (shaderInt64), they are emulated by pairs of words with identical results, which is also logged.

        local_size: workgroup size, one to three numbers, for source that declares none. Invocations beyond threads= are skipped, unless
        the source has shared memory, barriers or subgroup operations, which all invocations of a workgroup must reach: it then has to
        check its own bounds. local_size_x, _y and _z in spec are equivalent.

        In the shader, x.length() is the number of elements bound. If two 16-bit elements share a 32-bit word, as in `sfp x[]` in the packed
        modes, x.length() is the number of words, rounded up. For an empty array of 8-bit elements it is 1, because a buffer range has at
        least one byte.

        spirv: a SPIR-V module instead of source, with an entry point "main" and argument names (OpName), as glslang, glslc and slangc
        write it without stripping. It must be valid; an invalid module can crash a driver. Only context, name and spec may be combined
        with it. threads= must be whole workgroups, because modules have no guard.

        Raise TypeError for an argument of another type, ShaderCompileError (also for source with such operations and no local size, or
        with local_size both declared and given), UnsupportedError, BindingError (K1, K2: spec, local_size; K12: message_bytes).
        """
        if spirv is None:
            _check_type("source", source, str, "the source of a shader; use Kernel.from_file() to read a file")
        else:
            _check_spirv(
                spirv,
                source=source,
                macros=macros,
                includes=includes,
                options=options,
                include_dirs=include_dirs,
                debug=debug,
                local_size=local_size,
            )
        _check_type("context", context, (Context, type(None)), "a Context")
        _check_type("name", name, str, "text")
        _check_type("spec", {} if spec is None else spec, Mapping, "a mapping of names to numbers")
        _check_type(
            "options",
            options,
            (ShaderOptions, Mapping, type(None)),
            "ShaderOptions or a mapping of some of their keywords",
        )
        _check_type("message_bytes", message_bytes, int, "a number of bytes")
        if not 0 <= message_bytes < 1 << 63:
            raise binding_error("K12", "message_bytes", "a number of bytes", str(message_bytes), kind="argument")
        engine_options: dict[str, Any] = (
            {} if includes is None else {"includes": _convert_to_strings("includes", includes)}
        )
        engine_options |= (
            {} if options is None else {"options": dict(options) if isinstance(options, Mapping) else options}
        )
        engine_options |= {"include_dirs": _convert_to_paths(include_dirs), "path": _path}
        engine_options |= {"local_size": _parse_local_size(local_size)}
        engine_options |= {"debug": bool(debug), "message_bytes": message_bytes, "spirv": spirv or b""}
        macro_strings = _convert_to_strings("macros", {} if macros is None else macros, numbers=True)
        self._target_context = context or default_context()
        self._build_options: dict[str, Any] = {
            "name": name,
            "macros": macro_strings,
            "spec": dict(spec or {}),
            "includes": includes,
            "options": options,
        }
        self._build_options |= {
            "include_dirs": tuple(include_dirs),
            "debug": debug,
            "local_size": local_size,
            "_path": _path,
        }
        self._build_options |= {"message_bytes": message_bytes, "spirv": spirv}
        super().__init__(source or "", self._target_context, name, macro_strings, dict(spec or {}), **engine_options)
        self._is_initialized = True
        self._cache_argument_layout()
        self._file: KernelFile | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}  # shapes passed to from_body
        self._results: dict[str, tuple[str, tuple[int, ...]]] = {}  # outputs that a call allocates: (dtype, shape)
        self._first_output: str | None = None
        forward_log()

    def _cache_argument_layout(self) -> None:
        self._argument_layout: ArgumentLayout = make_argument_layout(self)
        self._names_to_resolve = self._argument_layout.names_to_resolve

    @classmethod
    def from_file(cls, path: Path, context: Context | None = None, reload: bool = False, **options: Any) -> Kernel:
        """Create a kernel from a source file. #include searches the including file's folder first, then as in Kernel.

        reload: at every call, recompile if the file or an included one has changed. If the new source does not compile, one warning is
        logged to "pumice", and the kernel keeps its old code until the next change. options: as for Kernel; name defaults to the path.
        Raise OSError for an unreadable file, ShaderCompileError, UnsupportedError.
        """
        file = KernelFile(os.fspath(path), reload, {"context": context, **options})
        kernel = file.compile(cls)
        kernel._file = file
        return kernel

    def reload(self) -> None:
        """Recompile the file, as a call with reload=True does. Bound kernels do not change; pending messages are discarded.

        Raise StateError for a kernel that is not from a file, and the errors of from_file, which leave the kernel unchanged.
        """
        if self._file is None:
            raise StateError(f"kernel '{self.name}' was not loaded from a file")
        self._replace(self._file.compile(type(self)))
        self._cache_argument_layout()

    def _reload_if_changed(self) -> None:
        assert self._file is not None
        if not self._file.has_changed():
            return
        try:
            self.reload()
        except (Error, OSError) as error:
            import logging

            logging.getLogger("pumice").warning("kernel '%s' is unchanged: %s", shorten_and_escape(self.name), error)

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
        """Create a kernel from the body of main; `i` is the invocation index, `.source` the complete source.

        inputs, outputs: name -> a dtype ("float32", np.int32), (dtype, shape), an array, Tensor or TensorDesc whose dtype and shape to use,
        "sfp" for the dtype of the call's arrays, or float, int, bool for a number. Read float16, bfloat16 and sfp arrays with buffer_ld1(x,
        i) and write them with buffer_st1(y, i, value); index the others. A shape defines x_size and x_shape[] in the body. header:
        functions and constants before main. options: as for Kernel.

        A call allocates and returns omitted outputs with a known shape (one array, or a dict of them), and without threads= runs one
        invocation per element of the first output. An array passed for a name with a shape must have that shape, or as many elements on
        one axis. Raise GraphError for an invalid name, dtype or shape, ShaderCompileError with lines of the body; a call raises
        BindingError (K5: shape).
        """
        from .kernel_source import generate_source

        body_source = generate_source(body, inputs, outputs, header)
        kernel = cls(body_source.source, context, name, **options)
        kernel._shapes, kernel._results, kernel._first_output = (
            body_source.shapes,
            body_source.results,
            body_source.first_output,
        )
        return kernel

    def _check_shapes(self, arguments: Mapping[str, Any]) -> None:
        for name, shape in self._shapes.items():
            array_shape = getattr(arguments.get(name), "shape", None)
            if (
                array_shape is None
                or tuple(array_shape) == shape
                or (len(array_shape) == 1 and array_shape[0] == math.prod(shape))
            ):
                continue
            raise binding_error(
                "K5", name, f"an array of shape {shape}", f"shape {tuple(array_shape)}", kind="argument"
            )

    def __call__(self, given: Mapping[str, Any] | None = None, /, **arguments: Any) -> Array | dict[str, Array] | None:
        """Run the kernel once and wait. Pass arguments by name: Tensors, NumPy arrays, push constants; threads= or groups=.

        threads="y" launches one invocation per element of the array passed as y, as the shader declares it. Exactly this many invocations
        run, unless they cooperate (barriers, shared memory, subgroups): then whole workgroups run. groups= may be a Tensor of three uint32,
        which the device reads when the kernel starts; they must be within its limits.

        timeout: maximum wait in seconds. When it expires, TimeoutError is raised; the execution continues, and the arrays do not change.
        Ctrl-C has the same effect.
        given: arguments in a dict, for names that are keywords of this call (threads, groups, timeout) or of Python.

        Arrays are copied in, and back if the kernel writes them. Structured arrays have the fields and offsets of the shader (see dtype),
        or are converted; for a read-only buffer, a list of dicts is accepted. Pass the members of a block by name or as a dict, and an
        array of blocks as a list. Pass None for a buffer that this variant does not use, for example because of a macro: see "used" in
        the shader's interface. Push constants are numbers; sequences for vectors, matrices (column by column) and arrays; dicts for
        structures.

        Return the outputs described in from_body, else None. Raise BindingError; OutOfBoundsError with debug=True. The first call with
        arrays of new types builds a variant, which some drivers compile at its first dispatch.
        """
        if self._file is not None:
            self._reload_if_changed()
        if is_torch_loaded():
            given, arguments = _convert_torch_arguments(given, arguments)
        writebacks: list[Writeback] = []
        if needs_argument_resolution(self._names_to_resolve, given, arguments):
            given, arguments, writebacks = resolve_arguments(self, given, arguments)
        if self._first_output is None:
            self._run_and_copy_back(given, arguments, writebacks)
            return None
        arguments = {**(given or {}), **arguments}
        all_arguments = self._add_omitted_arguments(arguments)
        self._check_shapes(all_arguments)
        self._run_and_copy_back(None, all_arguments, writebacks)
        returned = {key: all_arguments[key] for key in self._results if key not in arguments}
        return next(iter(returned.values())) if len(returned) == 1 else returned or None

    def _run_and_copy_back(
        self, given: Mapping[str, Any] | None, arguments: Mapping[str, Any], writebacks: Iterable[Writeback]
    ) -> None:
        try:
            self.run(**arguments) if given is None else self.run(given, **arguments)
        except OutOfBoundsError:  # raised after the kernel has finished
            for writeback in writebacks:
                writeback.copy_back()
            raise
        for writeback in writebacks:
            writeback.copy_back()

    def _add_omitted_arguments(self, all_arguments: dict[str, Any]) -> dict[str, Any]:
        """Add omitted outputs and the thread count to the arguments of a from_body kernel."""
        all_arguments = {
            **all_arguments,
            **{key: _allocate_output(*result) for key, result in self._results.items() if key not in all_arguments},
        }
        if self._first_output in all_arguments and "threads" not in all_arguments and "groups" not in all_arguments:
            all_arguments["threads"] = int(np.prod(np.shape(all_arguments[self._first_output]), dtype=np.int64))
        return all_arguments

    def _build_variant(self, local_size: Any, spec: Mapping[str, Any], macros: Mapping[str, Any]) -> Kernel:
        """Return a kernel built from the same source with different constants, macros and, if given, a different local size."""
        build_options = {
            **self._build_options,
            "spec": {**self._build_options["spec"], **spec},
            "macros": {**self._build_options["macros"], **macros},
        }
        build_options |= {} if local_size is None else {"local_size": local_size}
        kernel = Kernel(self.source if build_options["spirv"] is None else None, self._target_context, **build_options)
        kernel._shapes, kernel._results, kernel._first_output = self._shapes, self._results, self._first_output
        return kernel

    def bind(self, given: Mapping[str, Any] | None = None, /, **arguments: Any) -> BoundKernel:
        """Return a BoundKernel for command lists: Tensors and push constants as in a call, and threads= or groups=.

        Raise BindingError for unknown, missing or invalid arguments."""
        if self._file is not None:
            self._reload_if_changed()
        if is_torch_loaded():
            given, arguments = _convert_torch_arguments(given, arguments)
        if needs_argument_resolution(self._names_to_resolve, given, arguments):
            given, arguments, _ = resolve_arguments(self, given, arguments)
        if self._shapes:
            self._check_shapes({**(given or {}), **arguments})
        return super().bind(**arguments) if given is None else super().bind(given, **arguments)

    def time(self, given: Mapping[str, Any] | None = None, /, *, runs: int = 20, **arguments: Any) -> KernelTimes:
        """Measure the device time in seconds of `runs` runs with timestamps, after one warm-up run.

        Arguments are as in bind; NumPy arrays are also accepted for buffers, and are copied to the device once and never back. given:
        arguments in a dict, for names that are keywords of this call. Raise BindingError like bind, InputError for runs below 1,
        UnsupportedError for a queue without timestamps.
        """
        from .kernel_times import measure_kernel_times

        return measure_kernel_times(
            self,
            self._target_context,
            (convert_torch_tensors_by_name(given or {}), convert_torch_tensors_by_name(arguments)),
            runs,
        )

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
        """Measure variants of this kernel, choose the fastest, and store the measurements on disk.

        configs: a grid, name -> list of values, whose combinations are the variants; or a callable that returns dicts of values. Names:
        specialization constants, macros in the source, "local_size", and "precision" ("fp32", "fp16", "bf16": the type to which float
        arrays in sfp buffers are converted).
        arguments: a call's arguments in a dict; or a callable that returns them for a variant's dict, for example if the number of groups
        depends on the tile size. The arrays are not modified.

        check: a function that receives the arrays and numbers by name and returns the expected output, one array or a dict of arrays; a
        variant with other results is rejected. tolerance: the largest difference relative to the largest value, by default the square root
        of the type's epsilon, 0 for integers. allow_spills: keep variants that spill registers, if the driver reports spills. runs:
        executions per variant, of which the median counts.
        again: ignore stored measurements. progress: a bar, on a terminal and in a notebook.

        Stored measurements are reused in this and later processes; their key is the device, driver, source, size class, and the kind of
        check. After an interruption, the next call continues. The key does not identify the reference function: use again=True after
        changing check. A variant that the device does not run, for example because the driver ends its loops, is rejected.

        Raise InputError for invalid configurations and arguments, or listing all variants if all are rejected; BindingError for arguments
        that do not fit; UnsupportedError for a queue without timestamps.
        """
        from .tuning import TuningCriteria, expand_configs, tune_kernel

        if self._file is not None:
            self._reload_if_changed()
        criteria = TuningCriteria(check, tolerance, allow_spills, runs)
        variants = expand_configs(self, configs)
        return tune_kernel(self, self._target_context, variants, arguments, criteria, (again, progress))

    def statistics(self, storage: str | None = None) -> KernelStatistics:
        """Return the driver's statistics of one build: registers, spills, shared memory, assembly.

        The driver compiles the kernel again for this. storage: one of `variants`; None: the fp32 build (or the build with the given
        options). SPIR-V sizes are available on every driver; KernelStatistics documents the others. Raise BindingError (K1) for a build
        that does not exist.
        """
        from .kernel_statistics import KernelStatistics

        return KernelStatistics(self.name, self._driver_record(storage))

    def _repr_html_(self) -> str:
        from ..base.html import render_html

        return render_html(self)

    def __repr__(self) -> str:
        if not self._is_initialized:
            return "<Kernel, not made>"
        from ..base.html import format_local_size, make_interface_rows

        rows = "".join(f"\n  {name}: {access} {kind}" for name, access, kind, _ in make_interface_rows(self.shader))
        variants = ", ".join(self.variants)
        return f"<Kernel '{shorten_and_escape(self.name)}', local size {format_local_size(self.shader)}, built for {variants}>{rows}"


def _convert_torch_arguments(given: Any, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return convert_torch_tensors_by_name(given) if isinstance(given, Mapping) else given, convert_torch_tensors_by_name(
        arguments
    )


def _allocate_output(dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "bfloat16":
        import ml_dtypes

        return np.zeros(shape, ml_dtypes.bfloat16)
    return np.zeros(shape, dtype)
