"""ONNX models as callables: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .._pumice import Context, DeviceInfo, StateError
from ..base.element_types import Array, array_from_bytes
from ..base.errors import binding_error, truncate_middle
from ..base.host_arrays import as_array
from ..base.log import forward_log, log_warning
from ..base.printable_text import shorten_and_escape
from ..device.context import ContextRef, make_context_ref, resolve_context_ref
from ..importer.file.model_file import Folder, ModelFile, Source, to_path_or_bytes
from . import model_runs
from .compiled_model import CompiledModel
from .declared_outputs import DeclaredOutputs
from .load_options import ModelOptions, reject_unknown_options
from .model_runs import ModelRun, Outputs, check_output_arrays, map_cases
from .model_values import (
    ModelValue,
    format_shape,
    make_model_values,
    make_packer,
    merge_declared_shapes,
    shape_matches,
    suggest_rearrangement,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    from onnx import ModelProto

    from .._pumice import Program
    from ..base.string_table import PerCallStringTable, TensorStringTable
    from ..device.kernel import Kernel
    from ..importer.expression_operator import ElementwiseOperator
    from ..importer.file.graph_recipe import GraphRecipe, Overridable
    from ..importer.kernel_operator import KernelOperator, KernelTable
    from .model_report import ModelReport
    from .precision_policy import Precision
    from .step_tuning import StepTuning
else:
    from ..base import lazy_numpy_typing as npt

_CALL_OPTIONS = frozenset({"again", "loop_timeout", "out", "progress", "runs"})  # an input may have the same name
_MAX_SIGNATURES = 256  # maximum number of remembered valid signatures (shapes and dtypes of the arguments)


class Model:
    """An ONNX model from a file, bytes, a binary file object or a ModelProto, compiled for a device. A context manager.

    precision: storage type of floats, "fp32", "fp16" or "bf16"; sums are always float32. A policy sets it per node: a dict keyed by node
    names or patterns, or the path of a JSON file with one: {"default": "fp16", "layernorm_*": "fp32", "op:Exp": "fp32"}. The last matching
    entry wins, and only one low precision may be combined with fp32. fp32 nodes compute and store in float32, constants included; nodes
    that only move elements keep the precision of their input.
    folder: folder of the external weights files, by default the model's own; required for such a model if it is not given as a path. The
    files must be inside that folder, possibly as links; checksums in the model are ignored.
    progress: show a progress bar on a terminal or in a notebook if loading takes more than a second.
    seed: seed of the model's random numbers, 0 to 2**64 - 1, see Model.seed.
    fuse: whether to fuse nodes, or names of allowed fusions (see `fusions()`); report() lists the results. Raise Error for an unknown name.
    overridable: names of initializers that are also inputs in the file, or True for all. A call may pass them by name; the initializer is
    the default. They are listed in Model.overridable. Such values are read at every call, so nothing that depends on them is folded;
    without this option all initializers are constants.
    deterministic: make every run bitwise reproducible: ScatterElements, ScatterND and MaxUnpool apply several updates of one element in
    order, which is slower because they are sorted first. Otherwise their order is undefined, and sums and products of floats differ in the
    last digits between runs, mainly on GPUs. Everything else is always reproducible on one device and driver. A size name shared by several
    inputs means that the sizes are equal, and a call with different ones is rejected (K10). Placeholder names that converters write for
    unknown sizes, such as "?", "unk" and "None", imply nothing.
    check_indices: raise IndexRangeError, with the node, the index and its element, if Gather, Scatter or another node gets an out-of-range
    index that only the device knows (others are always rejected). Every call then waits, run_async included, and the host
    drives all control flow: use it for debugging.
    operators: elementwise operators from `pumice.operator()` for nodes that pumice does not know. Model.source is then the file with a
    function for each, so `validate` and `reduce` handle them too. Raise the errors of `pumice.operator()`.
    kernels: kernels of user operators by name, "my.domain::Op": from `pumice.kernel_operator()`, or a Kernel or GLSL source whose output
    has the shape and dtype of its first input. Raise the errors of `kernel_operator()`, and GraphError naming node and kernel if a rule or
    the kernel does not fit a node, at loading or at the first call with such sizes.
    tuned: use the fastest kernel variants for matmuls and convolutions that Model.tune() or `pumice tune` stored for this device and
    driver; report() marks such steps. False: the engine's own choices. A dict: variant names by kind of step, as in Model.tune(). report()
    names a variant that a step cannot use; unknown kinds are ignored, because a later call may have such steps.
    Raise UnsupportedError with every unsupported node, operator and element type; GraphError for an invalid model; BindingError for an
    unknown or mistyped argument, and for an initializer that is not an input; FileNotFoundError; InputError for a policy with other
    precisions, with two low precisions, or with an entry that matches no node.
    """

    def __init__(
        self,
        source: Source,
        context: Context | None = None,
        precision: Precision = "fp32",
        *,
        folder: Folder | None = None,
        progress: bool = True,
        seed: int | None = None,
        fuse: bool | Collection[str] = True,
        overridable: Overridable = False,
        check_indices: bool = False,
        deterministic: bool = False,
        operators: Sequence[ElementwiseOperator] = (),
        kernels: Mapping[str, KernelOperator | Kernel | str] | KernelTable | None = None,
        tuned: bool | Mapping[str, str] = True,
        **unknown: NoReturn,
    ) -> None:
        if unknown:
            reject_unknown_options(unknown)
        options = ModelOptions(
            folder, progress, seed, fuse, check_indices, deterministic, operators, kernels, tuned, overridable
        )
        compiled = CompiledModel(source, context, precision, options)
        recipe, policy = compiled.recipe, compiled.policy
        self.source, self.folder = compiled.source, compiled.folder
        # Of the source above, which has the operators and is read from its own folder.
        self._options = replace(
            options,
            folder=None,
            operators=(),
            fuse=compiled.fuse,
            overridable=compiled.overridable,
            kernels=compiled.kernel_table,
        )
        self.kernel_table, self.name = compiled.kernel_table, recipe.name
        self.metadata = dict(recipe.metadata)  # the file's metadata_props
        self.precision = policy.precision  # precision of all nodes except `float32_nodes`
        self.policy = dict(policy.entries)  # the policy's entries; only "default" if `precision` was a name
        self.float32_nodes = compiled.float32_nodes  # names, as in report(), of the nodes that the policy keeps in fp32
        self.check_indices, self.fuse, self.deterministic = check_indices, compiled.fuse, deterministic
        # Kind of step -> kernel variant to use if a step supports it; None: the engine's own choices.
        self.step_variants = compiled.variants
        self.context = compiled.context
        self._program: Program | None = compiled.program
        self._call: Callable[..., tuple[Array, ...]] = compiled.program.call
        self.warnings = list(recipe.warnings)  # wrong or ignored declarations of the file; also logged and in report()
        values = make_model_values([*compiled.program.inputs, *compiled.program.outputs])
        num_inputs = len(compiled.program.inputs)
        self._tensors = values[:num_inputs]  # inputs of the program
        results = merge_declared_shapes(values[num_inputs:], recipe.outputs)
        self._packer = make_packer(recipe, self._tensors, results, seed)
        inputs, self.outputs = (self._packer.inputs, self._packer.outputs) if self._packer else (self._tensors, results)
        num_required = len(inputs) - len(recipe.defaults)
        self.inputs = inputs[:num_required]
        self.overridable = inputs[num_required:]  # initializers that a call may override
        self._init_values(recipe)
        forward_log()
        for warning in recipe.warnings:
            log_warning(f"model '{self.name}': {warning}")
        self._declarations = DeclaredOutputs(recipe.outputs, self.warn)
        self._declarations.check_types_and_shapes(self.outputs)

    def _init_values(self, recipe: GraphRecipe) -> None:
        """Set the attributes that every call reads."""
        self._defaults = {}
        for value in recipe.defaults.values():
            array = array_from_bytes(value.raw, value.dtype, value.shape)
            if self._packer and value.name in recipe.string_values:
                array = self._packer.make_call_strings().decode(array)
            self._defaults[value.name] = array
        self._constant_initializers = set(recipe.overridable).difference(self._defaults)
        self._string_values = recipe.strings, recipe.string_values
        self._random = self._packer.random if self._packer else None
        names = [value.name for value in (*self.inputs, *self.overridable)]
        self._input_count = len(names)
        self._has_one_output = len(self.outputs) == 1
        self._inputs_named_as_options = _CALL_OPTIONS.intersection(names)
        self._outputs = Outputs.named(tuple([value.name for value in self.outputs]))
        self._checked_signatures: set[tuple[Any, ...]] = set()
        self._has_new_signature = False  # whether the last call's signature was new

    def __call__(
        self,
        /,
        *arrays: npt.ArrayLike,
        loop_timeout: float | None = None,
        out: Array | Mapping[str, Array] | None = None,
        **by_name: npt.ArrayLike,
    ) -> Any:
        """Run the model and wait: one output returns an array, several return Outputs.

        Pass inputs in graph order or by name, with exactly the dtypes of `inputs`; a sequence is a list of arrays, and an optional value
        may be None. Strings are NumPy str or object arrays, and are returned as object arrays. Values in `overridable` are optional and
        follow the others. loop_timeout: time limit in seconds per execution of a Loop or Scan, at most 15; None: no limit, as in ONNX.
        out: arrays for the results, by name or a single one; they are returned and must have the output's dtype and shape, be writable,
        C-contiguous and not overlap; other outputs get new arrays. If a model has an input named `out` or `loop_timeout`, the name means
        the input, and the option keeps its default.
        Raise BindingError naming the input or output, TimeoutError; GraphError for an out-of-range index known to the host,
        IndexRangeError with check_indices for others.
        """
        if self._inputs_named_as_options:
            out = self._resolve_option("out", out, by_name)
            loop_timeout = self._resolve_option("loop_timeout", loop_timeout, by_name)
        targets = None if out is None else check_output_arrays(self.outputs, out, self._packer is not None)
        if self._packer:
            strings = self._packer.make_call_strings()
            results = self._call(self._convert_arguments(arrays, by_name, strings), None, loop_timeout)
            forward_log()
            return self._make_results(results, strings)
        results = self._call(self._convert_arguments(arrays, by_name), None, loop_timeout, targets)
        if self._has_new_signature:
            self._has_new_signature = False
            self._declarations.check_shapes(self.outputs, results)
        forward_log()
        return results[0] if self._has_one_output else self._outputs(results)

    def warm_up(self, /, *arrays: npt.ArrayLike, loop_timeout: float | None = None, **by_name: npt.ArrayLike) -> float:
        """Run the model once, like a call, and return the seconds it took instead of the results.

        The first run with new input shapes binds them and builds kernels, which some drivers compile at first dispatch;
        later runs skip this. In a compile-only context, this compiles and records all kernels. Raise the errors of a call.
        """
        begin = time.perf_counter()
        if self.context.compile_only:  # there are no results to read
            self.run_async(*arrays, loop_timeout=loop_timeout, **by_name)
            return time.perf_counter() - begin
        self(*arrays, loop_timeout=loop_timeout, **by_name)  # type: ignore[arg-type]
        return time.perf_counter() - begin

    def run_async(
        self, /, *arrays: npt.ArrayLike, loop_timeout: float | None = None, **by_name: npt.ArrayLike
    ) -> ModelRun:
        """Start the model and return at once; with control flow or host sync points, return when it has finished.

        The arguments are as in a call.
        """
        loop_timeout = self._resolve_option("loop_timeout", loop_timeout, by_name)
        strings = self._packer.make_call_strings() if self._packer else None
        run = self.program.run_async(self._convert_arguments(arrays, by_name, strings), loop_timeout)
        forward_log()
        return ModelRun(run, self, strings)

    def map(self, cases: Iterable[Any], depth: int = 2, *, loop_timeout: float | None = None) -> Iterator[Any]:
        """Yield the results of the cases in order, with several cases in flight.

        cases: arrays, tuples of arguments or dicts of them by name. depth: cases in flight, 1 to 8; while the device
        computes one, the next one's arguments and the previous one's results are copied. An error is raised at its
        case's position and ends the generator. If the generator ends or is closed early, cases in flight are waited for
        and dropped. Raise InputError for another depth.
        """
        return map_cases(self, cases, depth, loop_timeout)

    def outputs_of(self, arrays: tuple[Array, ...]) -> Any:
        """Return output arrays in the form of a call: a single array, or several as Outputs."""
        return arrays[0] if self._has_one_output else self._outputs(arrays)

    def _make_results(self, results: tuple[Array, ...], strings: PerCallStringTable | None) -> Any:
        if self._packer and strings:
            results = self._packer.unpack_outputs(results, strings)
        return self.outputs_of(results)

    # ---- conversion of call arguments

    def _resolve_option(self, name: str, value: Any, by_name: dict[str, Any], default: Any = None) -> Any:
        """Return the value of a call's option. If an input has its name, pass the value to the input and return the default."""
        if name not in self._inputs_named_as_options or value is default:
            return value
        by_name[name] = value
        return default

    def arguments(self, /, *arrays: npt.ArrayLike, **by_name: npt.ArrayLike) -> tuple[Array, ...]:
        """Return the arguments of a call, checked, as arrays in graph order.

        A sequence or optional value becomes its parts, strings become indices into a table. Raise BindingError naming
        the input, the expected and the actual value.
        """
        return self._convert_arguments(arrays, by_name, self._packer.make_call_strings() if self._packer else None)

    @cached_property
    def _tensor_strings(self) -> TensorStringTable | None:
        """The string table that all calls of _indexed_arguments() share; None for a model without strings."""
        from ..base.string_table import StringTable, TensorStringTable

        strings, values = self._string_values
        return TensorStringTable(StringTable(strings), values) if values else None

    def _indexed_arguments(self, /, *arrays: npt.ArrayLike, **by_name: npt.ArrayLike) -> tuple[Array, ...]:
        """Return the arguments like arguments(), but with strings as indices into `_tensor_strings`."""
        strings = self._tensor_strings or (self._packer.make_call_strings() if self._packer else None)
        return self._convert_arguments(arrays, by_name, strings)

    def _convert_arguments(
        self, positional: tuple[Any, ...], by_name: Mapping[str, Any], strings: PerCallStringTable | None = None
    ) -> tuple[Array, ...]:
        if by_name or len(positional) != self._input_count:
            positional = self._bind_arguments(positional, by_name)
        if strings and self._packer:
            positional = self._packer.pack_inputs(positional, strings)
        for value in positional:
            if type(value) is not np.ndarray:
                positional = tuple(self._convert_array(value, i) for i, value in enumerate(positional))
                break
        signature = tuple([(array.shape, array.dtype) for array in positional])
        if signature not in self._checked_signatures:
            self._check_arrays(positional)
            self._has_new_signature = True
            if len(self._checked_signatures) >= _MAX_SIGNATURES:
                self._checked_signatures.clear()
            self._checked_signatures.add(signature)
        if model_runs.recorded_calls is not None:
            model_runs.record_call(self, signature, positional)
        return positional

    def named(self, /, *arrays: Any, **by_name: Any) -> dict[str, Any]:
        """Return the inputs by name, unconverted. Raise BindingError for a missing or surplus input."""
        names = (value.name for value in (*self.inputs, *self.overridable))
        return dict(zip(names, self._bind_arguments(arrays, by_name), strict=True))

    def packed_outputs(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Return the program's tensors for values of outputs that are sequences or optional values."""
        return self._packer.pack_outputs(values) if self._packer else {}

    def _bind_arguments(self, positional: tuple[Any, ...], by_name: Mapping[str, Any]) -> tuple[Any, ...]:
        names = [value.name for value in (*self.inputs, *self.overridable)]
        if len(positional) > len(names):
            raise binding_error("K4", "", f"{len(names)} ({', '.join(names)})", str(len(positional)))
        values_by_name = dict(zip(names, positional, strict=False))
        for name, value in by_name.items():
            if name not in names:
                hint = ""
                if name in self._constant_initializers:
                    hint = f"an initializer, which is a constant unless it is loaded with overridable=['{name}']"
                raise binding_error("K4", name, f"one of the inputs {', '.join(names)}", f"'{name}'", hint)
            if name in values_by_name:
                raise binding_error("K4", name, "one value", "one by position and one by name")
            values_by_name[name] = value
        for value in self.inputs:
            if value.name not in values_by_name:
                raise binding_error("K3", value.name, f"an array ({value})", "nothing")
        return tuple(values_by_name[name] if name in values_by_name else self._defaults[name] for name in names)

    def _convert_array(self, value: Any, index: int) -> Array:
        expected = self._tensors[index]
        return as_array(value, expected.name, f"an array of {expected.dtype}")

    def _check_arrays(self, arrays: tuple[Array, ...]) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for array, expected in zip(arrays, self._tensors, strict=True):
            if array.dtype != expected.dtype:
                hint = f'.astype("{expected.dtype}") converts'
                raise binding_error("K5", expected.name, f"an array of {expected.dtype}", str(array.dtype), hint)
            if expected.shape is not None:
                self._check_shape(array.shape, expected, sizes)

    def _check_shape(self, shape: tuple[int, ...], expected: ModelValue, sizes: dict[str, tuple[int, str]]) -> None:
        """Raise BindingError (K10) for a wrong shape. sizes: symbolic size -> its value, and the input that determined it."""
        dims = expected.shape or ()
        if not shape_matches(shape, dims):
            hint = suggest_rearrangement(expected.name, shape, dims)
            raise binding_error(
                "K10", expected.name, f"shape {format_shape(dims)}", f"shape {format_shape(shape)}", hint
            )
        for size, dim in zip(shape, dims, strict=True):
            if not isinstance(dim, str):
                continue
            previous, first_input = sizes.setdefault(dim, (size, expected.name))
            if previous != size:
                text = f"shape {format_shape(dims)} with {dim} = {previous} as in '{first_input}'"
                raise binding_error("K10", expected.name, text, f"shape {format_shape(shape)}")

    # ---- properties and reports

    @property
    def program(self) -> Program:
        """The compiled graph. Raises StateError once the model is closed."""
        if self._program is None:
            raise StateError(f"model '{shorten_and_escape(self.name)}' is closed")
        return self._program

    @property
    def kernels(self) -> dict[str, KernelOperator]:
        """The user kernels that nodes run, by operator, as passed to `kernels`."""
        return dict(self.kernel_table.operators) if self.kernel_table else {}

    @property
    def device(self) -> DeviceInfo:
        """The device for which the model is compiled."""
        return self.context.info

    @property
    def seed(self) -> int | None:
        """The seed of the model's random numbers: as given, or drawn from the system; None without random numbers.

        Models loaded from the same file with the same seed generate the same numbers on any device, run by run; successive runs of one
        model differ. Nodes with their own `seed` do not use this one.
        """
        return self._random.seed if self._random else None

    @property
    def random_numbers(self) -> str:
        """A description of the random seed and its origin; "" for a model without random numbers."""
        return str(self._random or "")

    def report(self) -> ModelReport:
        """Return a report that shows, for every node, which kernel runs it in which precision, and why.

        It also counts the nodes before and after fusion. In a compile-only context it lists the pipelines of all kernels that were
        compiled there, with the driver's statistics.
        """
        from .model_report import make_report

        return make_report(self.program, self.context, str(self._random or ""), self.warnings)

    def warn(self, text: str) -> None:
        """Record a warning once, and log it."""
        text = truncate_middle(text)
        if text not in self.warnings:
            self.warnings.append(text)
            log_warning(f"model '{self.name}': {text}")

    def tune(
        self,
        /,
        *arrays: npt.ArrayLike,
        runs: int = 5,
        again: bool = False,
        progress: bool = True,
        **by_name: npt.ArrayLike,
    ) -> StepTuning:
        """Benchmark the kernel variants available to the model's matmuls and convolutions, and store the results on disk.

        arrays, by_name: inputs as for a call; the results apply to their sizes, and to other sizes of the same class.
        runs: executions of each variant; the best one counts. again: measure known variants again. progress: show a
        progress bar on a terminal or in a notebook. A variant whose results differ from the engine's own choice by more
        than rounding is rejected. Models loaded afterwards on this device and driver use the fastest variants (see
        `tuned` of Model); this one is unchanged.
        Raise the errors of a call, InputError for runs below 1, UnsupportedError for control flow, for host sync points,
        and for a queue without timestamps.
        """
        from .step_tuning import tune_steps

        runs = self._resolve_option("runs", runs, by_name, 5)
        again = self._resolve_option("again", again, by_name, False)
        progress = self._resolve_option("progress", progress, by_name, True)
        return tune_steps(self, self.arguments(*arrays, **by_name), runs, (again, progress))

    def loaded_again(
        self,
        context: Context | None = None,
        precision: Precision | None = None,
        *,
        part: ModelProto | None = None,
        tuned: bool | Mapping[str, str] | None = None,
    ) -> Model:
        """Reload the model, by default on the same context and at the same precision.

        part: a model derived from this one, whose weights may be in the same files. tuned: as in load(). Raise the errors of load().
        """
        folder = self.folder if part is None else ModelFile(self.source, self.folder).folder
        options = replace(self._options, folder=folder, progress=False)
        return Model(
            self.source if part is None else part,
            self.context if context is None else context,
            self.policy if precision is None else precision,
            **vars(options if tuned is None else replace(options, tuned=tuned)),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model by its source (a path, which is read again, or the file's bytes) and its context's device.

        A model of the default context is restored to the default context. Raise StateError for a closed model.
        """
        _ = self.program
        source = to_path_or_bytes(self.source)
        folder = None if self.folder is None else os.path.abspath(self.folder)
        options = replace(self._options, folder=folder, progress=False)
        return _unpickle_model, (source, make_context_ref(self.context), self.policy, options)

    def __repr__(self) -> str:
        values = f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))})"
        return f"<Model '{shorten_and_escape(self.name)}' {values}, {self.precision} on '{self.context.info.name}'>"

    def _repr_html_(self) -> str:
        from .model_report import render_model

        return render_model(self)

    # ---- pickling and closing

    @property
    def closed(self) -> bool:
        """Whether the model's device memory has been freed."""
        return self._program is None

    def close(self) -> None:
        """Free the model's device memory. Idempotent."""
        if self._program is not None:
            self._program.close()
            self._program, self._call = None, self._raise_closed
        forward_log()

    def _raise_closed(self, *_: object) -> tuple[Array, ...]:
        raise StateError(f"model '{shorten_and_escape(self.name)}' is closed")

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _unpickle_model(
    source: Source, context_ref: ContextRef | None, precision: Precision, options: ModelOptions
) -> Model:
    return Model(source, resolve_context_ref(context_ref), precision, **vars(options))
