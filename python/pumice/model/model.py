"""ONNX models as callables: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .._pumice import Context, DeviceInfo, StateError
from ..base.element_types import Array, array_of, numpy_dtype
from ..base.errors import binding_error, bounded
from ..base.host_arrays import as_array
from ..base.log import forward_log, log_warning
from ..base.plain_text import plain
from ..device.context import Place, context_at, place_of
from ..importer.file.model_file import Folder, ModelFile, Source, portable
from . import runs
from .compiled import CompiledModel
from .declarations import Declarations, declared_value, dimensions
from .options import refuse_unknown
from .runs import ModelRun, Outputs, mapped, targets_of
from .values import ModelValue, Packing, fits, rearrangement, sizes_text

if TYPE_CHECKING:
    import numpy.typing as npt
    from onnx import ModelProto

    from .._pumice import Program
    from ..base.string_table import CallStrings, KeptStrings
    from ..device.kernel import Kernel
    from ..importer.expression_operator import ElementwiseOperator
    from ..importer.file.recipe import Overridable, Recipe
    from ..importer.kernel_operator import KernelOperator, KernelTable
    from .policy import Precision
    from .report import ModelReport
    from .step_tuning import StepTuning
else:
    from ..base import lazy_typing as npt

_OPTIONS = frozenset({"again", "loop_timeout", "out", "progress", "runs"})  # of methods that take inputs by name too
_MOST_SIGNATURES = 256  # signatures (shapes and dtypes of arguments) that are remembered as checked


class Model:
    """The model in an ONNX file, in bytes, in a binary file object or in a ModelProto, compiled for a device. A context manager.

    precision: what floats are stored as inside, "fp32", "fp16" or "bf16"; sums are float32 in all of them. A policy says it by node: a
    dict of names or patterns of nodes, or the path of a JSON file with one: {"default": "fp16", "layernorm_*": "fp32", "op:Exp": "fp32"}.
    The last entry that matches a node decides, and one narrow precision may stand beside fp32. Nodes in fp32 compute and store in
    float32, constants included; nodes that only move elements keep what they are given.
    folder: where the files lie that hold the weights of a model that is no single file, if not beside it; a model that is not given as a
    path needs one. Such files lie in that folder, also by way of links; what a model says of their checksums is not read.
    progress: a bar on a terminal or in a notebook, where loading takes more than a second.
    seed: 0 to 2**64 - 1, of the random numbers that the model makes, see Model.seed.
    fuse: whether nodes become parts of others, or the names of the fusions that may, of `fusions()`; report() says what became of each
    node. Raises Error for another name.
    overridable: names of initializers that the file lists among its inputs too, or True for all of them: a call may then give them,
    by name, and uses the initializer where it does not. They stand in Model.overridable. Such a value is read at each call, so that
    nothing that depends on it is computed beforehand; without this all initializers are constants.
    deterministic: every run gives the same bits: several updates of one element by ScatterElements, ScatterND or MaxUnpool are taken in
    their order, which is slower, since they are sorted first. Without it their order is any, and so sums and products of floats differ
    in their last digits from run to run, most of all on GPUs; everything else gives the same bits in any case, on one device and driver.
    A name that the file gives to sizes of several inputs says that they are equal, and a call with others is refused (K10). Names by
    which converters say that a size is unknown, such as "?", "unk" and "None", say nothing.
    check_indices: a call raises IndexRangeError, which names the node, the index and its element, where a Gather, a Scatter or another
    node with indices meets one out of range that only the device knows (those that the host knows are always refused). Every call then
    waits, run_async too, and the host drives all control flow: it is for finding mistakes.
    operators: elementwise operators that the file's nodes have and pumice does not, of `pumice.operator()`. Model.source is the file with
    a function for each of them, so that `validate` and `reduce` know them too. Raises as that says.
    kernels: operators of a domain of the user's own by name, "my.domain::Op", each with the kernel that its nodes run: of
    `pumice.kernel_operator()`, or a Kernel or GLSL text whose output is as its first input. Raises as that says, and GraphError naming
    node and kernel where a rule or the kernel does not fit a node: at loading, or at the first call with sizes that show it.
    tuned: products and convolutions run the variants that Model.tune() or `pumice tune` found to be quickest on this device and driver,
    where the store has any; report() names such steps. False: the engine's own choices. A dict: names of variants by kind of step, as
    Model.tune() names both; one that a step cannot take is named by report() and not taken, and a kind that no step is of is passed over,
    as a later call may have steps of it.
    Raises UnsupportedError with every unsupported node, operator and element type; GraphError where it is not a valid model;
    BindingError for an argument that there is not or of another type, and for an initializer that is no input; FileNotFoundError;
    InputError for a policy with other precisions than these, with two narrow ones, or with an entry that matches no node.
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
        refuse_unknown(unknown)
        wanted: dict[str, Any] = {"check_indices": check_indices, "deterministic": deterministic, "tuned": tuned}
        given = {"folder": folder, "progress": progress, "operators": operators, "fuse": fuse, "kernels": kernels}
        made = CompiledModel(source, context, precision, {**wanted, **given, "overridable": overridable})
        recipe, policy = made.recipe, made.policy
        self.source, self.folder = made.source, made.folder
        own = {"seed": seed, "fuse": made.fuse, "overridable": made.overridable, "kernels": made.kernel_table}
        self._options: dict[str, Any] = {**wanted, **own}
        self.kernel_table, self.name = made.kernel_table, recipe.name
        self.metadata = dict(recipe.metadata)  # the file's metadata_props
        self.precision = policy.precision  # of all nodes but those that the policy has in fp32
        self.policy = dict(policy.entries)  # as it was given: "default" alone for a name
        self.float32_nodes = made.float32_nodes  # nodes, as in report(), that the policy has in fp32
        self.check_indices, self.fuse, self.deterministic = check_indices, made.fuse, deterministic
        # Measured ones, by kind of step, that its steps take where they can; None: no such.
        self.step_variants = made.variants
        self.context = made.context
        self._program: Program | None = made.program
        self._call: Callable[..., tuple[Array, ...]] = made.program.call
        self.warnings = list(recipe.warnings)  # statements of the file that do not hold; also logged, and in report()
        self._declarations = Declarations(recipe.outputs, self.warn)
        self._tensors = [self._value(value) for value in made.program.inputs]  # the program's inputs
        packing = self._packing_of(recipe, made.program, seed)
        needed = len(packing.inputs) - len(recipe.defaults)
        self.inputs, self.outputs = packing.inputs[:needed], packing.outputs
        self.overridable = packing.inputs[needed:]  # initializers that a call may give as well
        self._set_values(recipe, packing)
        forward_log()
        for warning in recipe.warnings:
            log_warning(f"model '{self.name}': {warning}")
        self._declarations.check(self.outputs)

    def _packing_of(self, recipe: Recipe, program: Program, seed: int | None) -> Packing:
        """How inputs and outputs, as the caller sees them, become those of the program."""
        declared = {value.name: value for value in recipe.outputs}
        results = [declared_value(self._value(value), declared.get(value.name)) for value in program.outputs]
        return Packing(
            ([one.name for one in recipe.inputs], self._tensors),
            ([one.name for one in recipe.outputs], results),
            seed,
            recipe.strings,
            recipe.string_values,
        )

    def _set_values(self, recipe: Recipe, packing: Packing) -> None:
        """Sets what a call looks up of inputs and outputs."""
        self._defaults = {one.name: array_of(one.raw, one.dtype, one.shape) for one in recipe.defaults.values()}
        for name in set(recipe.string_values).intersection(self._defaults):
            self._defaults[name] = packing.call_strings().decoded(self._defaults[name])
        self._fixed = set(recipe.overridable).difference(self._defaults)
        self._packing = packing if packing.needed else None
        self._string_values = recipe.strings, recipe.string_values
        self._random = packing.random
        self._input_count = len(packing.inputs)
        self._single = len(self.outputs) == 1
        self._option_inputs = _OPTIONS.intersection(value.name for value in packing.inputs)
        self._outputs = Outputs.named(tuple(value.name for value in self.outputs))
        self._checked: set[tuple[Any, ...]] = set()
        self._is_new = False  # whether the last arguments had a new signature

    @staticmethod
    def _value(value: Any) -> ModelValue:
        return ModelValue(value.name, numpy_dtype(str(value.dtype)), dimensions(value.shape, value.dimension_names))

    def __call__(
        self,
        /,
        *arrays: npt.ArrayLike,
        loop_timeout: float | None = None,
        out: Array | Mapping[str, Array] | None = None,
        **by_name: npt.ArrayLike,
    ) -> Any:
        """Runs the model and waits: one output gives an array, several give Outputs.

        Inputs in graph order or by name, with exactly the dtypes of `inputs`; a sequence is a list of arrays, and an optional value
        may be None. Strings are arrays of str, given as NumPy's own or as objects, and come back as objects. What `overridable` names
        has a default, and comes behind the others. loop_timeout: seconds for each Loop and Scan from each time that it is entered, at
        most 15; None: no limit, as ONNX knows none. out: arrays by name, or one where there is one output, that results are written to and
        that are returned: of the output's dtype and shape, writable, C-contiguous and apart from one another; outputs that are not named
        get new arrays. A model with an input `out` or `loop_timeout` takes that by this name, and the option keeps its default.
        Raises BindingError naming the input or the output, TimeoutError; GraphError for an index out of range that the host knows,
        IndexRangeError with check_indices for others.
        """
        if self._option_inputs:
            out, loop_timeout = self._option("out", out, by_name), self._option("loop_timeout", loop_timeout, by_name)
        targets = None if out is None else targets_of(self.outputs, out, self._packing is not None)
        if self._packing:
            strings = self._packing.call_strings()
            results = self._call(self._arguments(arrays, by_name, strings), None, loop_timeout)
            forward_log()
            return self._results(results, strings)
        results = self._call(self._arguments(arrays, by_name), None, loop_timeout, targets)
        if self._is_new:
            self._is_new = False
            self._declarations.check_shapes(self.outputs, results)
        forward_log()
        return results[0] if self._single else self._outputs(results)

    def warm_up(self, /, *arrays: npt.ArrayLike, loop_timeout: float | None = None, **by_name: npt.ArrayLike) -> float:
        """Runs the model once, as a call does, and gives the seconds that it took, not the results.

        The first run with inputs of such shapes binds them and makes kernels, which some drivers compile at their first dispatch; later
        runs do not wait for that. Raises as a call does.
        """
        begin = time.perf_counter()
        self(*arrays, loop_timeout=loop_timeout, **by_name)  # type: ignore[arg-type]
        return time.perf_counter() - begin

    def run_async(
        self, /, *arrays: npt.ArrayLike, loop_timeout: float | None = None, **by_name: npt.ArrayLike
    ) -> ModelRun:
        """Starts the model and returns at once; a model with control flow, or one that is cut, has ended then.

        The arguments are those of a call.
        """
        loop_timeout = self._option("loop_timeout", loop_timeout, by_name)
        strings = self._packing.call_strings() if self._packing else None
        run = self.program.run_async(self._arguments(arrays, by_name, strings), loop_timeout)
        forward_log()
        return ModelRun(run, self, strings)

    def map(self, cases: Iterable[Any], depth: int = 2, *, loop_timeout: float | None = None) -> Iterator[Any]:
        """Runs the model on one case after the other and gives what the calls would, in their order: a generator.

        cases: arrays, tuples of arguments or dicts of them by name. depth: cases in flight, 1 to 8: while the device computes one, the
        arguments of the next are copied to it, and the results of the one before to the host. An error is raised in its case's place and
        ends the generator. Where the generator ends or is closed early, cases in flight are waited for and dropped. Raises InputError for
        another depth.
        """
        return mapped(self, cases, depth, loop_timeout)

    def outputs_of(self, arrays: tuple[Array, ...]) -> Any:
        """Arrays for the outputs, in their order, as a call gives them: one alone, several as Outputs."""
        return arrays[0] if self._single else self._outputs(arrays)

    def _results(self, results: tuple[Array, ...], strings: CallStrings | None) -> Any:
        if self._packing and strings:
            results = self._packing.gathered(results, strings)
        return self.outputs_of(results)

    # ---- arguments

    def _option(self, name: str, value: Any, by_name: dict[str, Any], default: Any = None) -> Any:
        """An option of a call. An input of that name gets what was given, and the option its default."""
        if name not in self._option_inputs or value is default:
            return value
        by_name[name] = value
        return default

    def arguments(self, /, *arrays: npt.ArrayLike, **by_name: npt.ArrayLike) -> tuple[Array, ...]:
        """The arguments of a call, checked, as arrays in graph order.

        A sequence or an optional value becomes its parts, strings become their places in a table. Raises BindingError
        naming the input, what it expects and what it was given.
        """
        return self._arguments(arrays, by_name, self._packing.call_strings() if self._packing else None)

    @cached_property
    def _kept_strings(self) -> KeptStrings | None:
        """The strings of the model and of all calls of _kept_arguments(); None for a model without strings."""
        from ..base.string_table import KeptStrings, StringTable

        strings, values = self._string_values
        return KeptStrings(StringTable(strings), values) if values else None

    def _kept_arguments(self, /, *arrays: npt.ArrayLike, **by_name: npt.ArrayLike) -> tuple[Array, ...]:
        """The same as arguments(), with strings at places that _kept_strings knows."""
        strings = self._kept_strings or (self._packing.call_strings() if self._packing else None)
        return self._arguments(arrays, by_name, strings)

    def _arguments(
        self, given: tuple[Any, ...], by_name: Mapping[str, Any], strings: CallStrings | None = None
    ) -> tuple[Array, ...]:
        if by_name or len(given) != self._input_count:
            given = self._arranged(given, by_name)
        if strings and self._packing:
            given = self._packing.parts(given, strings)
        for value in given:
            if type(value) is not np.ndarray:
                given = tuple(self._array(value, i) for i, value in enumerate(given))
                break
        signature = tuple([(array.shape, array.dtype) for array in given])
        if signature not in self._checked:
            self._check(given)
            self._is_new = True
            if len(self._checked) >= _MOST_SIGNATURES:
                self._checked.clear()
            self._checked.add(signature)
        if runs.noted is not None:
            runs.note_call(self, signature, given)
        return given

    def named(self, /, *arrays: Any, **by_name: Any) -> dict[str, Any]:
        """The inputs as they are given, by name. Raises BindingError where one is missing or too many."""
        names = (value.name for value in (*self.inputs, *self.overridable))
        return dict(zip(names, self._arranged(arrays, by_name), strict=True))

    def packed_outputs(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """The program's tensors for given values of outputs that are sequences or optional values."""
        return self._packing.result_parts(values) if self._packing else {}

    def _arranged(self, given: tuple[Any, ...], by_name: Mapping[str, Any]) -> tuple[Any, ...]:
        names = [value.name for value in (*self.inputs, *self.overridable)]
        if len(given) > len(names):
            raise binding_error("K4", "", f"{len(names)} ({', '.join(names)})", str(len(given)))
        found = dict(zip(names, given, strict=False))
        for name, value in by_name.items():
            if name not in names:
                hint = ""
                if name in self._fixed:
                    hint = f"an initializer, which is a constant unless it is loaded with overridable=['{name}']"
                raise binding_error("K4", name, f"one of the inputs {', '.join(names)}", f"'{name}'", hint)
            if name in found:
                raise binding_error("K4", name, "one value", "one by position and one by name")
            found[name] = value
        for value in self.inputs:
            if value.name not in found:
                raise binding_error("K3", value.name, f"an array ({value})", "nothing")
        return tuple(found[name] if name in found else self._defaults[name] for name in names)

    def _array(self, value: Any, index: int) -> Array:
        expected = self._tensors[index]
        return as_array(value, expected.name, f"an array of {expected.dtype}")

    def _check(self, arrays: tuple[Array, ...]) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for array, expected in zip(arrays, self._tensors, strict=True):
            if array.dtype != expected.dtype:
                hint = f'.astype("{expected.dtype}") converts'
                raise binding_error("K5", expected.name, f"an array of {expected.dtype}", str(array.dtype), hint)
            if expected.shape is not None:
                self._check_shape(array.shape, expected, sizes)

    def _check_shape(self, shape: tuple[int, ...], expected: ModelValue, sizes: dict[str, tuple[int, str]]) -> None:
        """Raises BindingError (K10) for a wrong shape. `sizes`: what each symbolic name means so far, and the input
        that said so.
        """
        wanted = expected.shape or ()
        if not fits(shape, wanted):
            hint = rearrangement(expected.name, shape, wanted)
            raise binding_error("K10", expected.name, f"shape {sizes_text(wanted)}", f"shape {sizes_text(shape)}", hint)
        for given, size in zip(shape, wanted, strict=True):
            if not isinstance(size, str):
                continue
            known, where = sizes.setdefault(size, (given, expected.name))
            if known != given:
                wanted_text = f"shape {sizes_text(wanted)} with {size} = {known} as in '{where}'"
                raise binding_error("K10", expected.name, wanted_text, f"shape {sizes_text(shape)}")

    # ---- what it is

    @property
    def program(self) -> Program:
        """The compiled graph. Raises StateError once the model is closed."""
        if self._program is None:
            raise StateError(f"model '{plain(self.name)}' is closed")
        return self._program

    @property
    def kernels(self) -> dict[str, KernelOperator]:
        """The kernels of the user's that nodes run, by operator, as `kernels` gave them."""
        return dict(self.kernel_table.operators) if self.kernel_table else {}

    @property
    def device(self) -> DeviceInfo:
        """The device that the model is compiled for."""
        return self.context.info

    @property
    def seed(self) -> int | None:
        """The seed of the model's random numbers: the one given, else one drawn from the system; None without random
        numbers.

        Another model of the same file and seed makes the same numbers on any device, run by run; the runs of one
        model differ. A node with a `seed` of its own does not use this one.
        """
        return self._random.seed if self._random else None

    @property
    def random_numbers(self) -> str:
        """The seed of the random numbers and where it comes from, in words; "" for a model that makes none."""
        return str(self._random or "")

    def report(self) -> ModelReport:
        """A report that says for every node which kernel and precision run it, and why.

        It also counts the nodes before and after fusion.
        """
        from .report import report_of

        return report_of(self.program, self.context, str(self._random or ""), self.warnings)

    def warn(self, text: str) -> None:
        """Keeps a warning, once, and logs it."""
        text = bounded(text)
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
        """Measures the variants of kernels that the model's products and convolutions can run, and keeps what was measured on disk.

        arrays, by_name: inputs as of a call; what is measured is for their sizes, and by class of sizes for others. runs: executions of
        each variant, of which the best counts. again: measure, whatever is known. progress: a bar, on a terminal and in a notebook.
        A variant whose results differ from those of the engine's own choice by more than rounding is rejected. Models that are loaded
        from then on, on this device and driver, take the quickest variants (see `tuned` of Model); this one stays as it is.
        Raises as a call does, InputError for runs below 1, UnsupportedError for control flow and cuts, and for a queue without time
        stamps.
        """
        from .step_tuning import tuned_steps

        runs = self._option("runs", runs, by_name, 5)
        again, progress = (
            self._option("again", again, by_name, False),
            self._option("progress", progress, by_name, True),
        )
        return tuned_steps(self, self.arguments(*arrays, **by_name), runs, (again, progress))

    def loaded_again(
        self,
        context: Context | None = None,
        precision: Precision | None = None,
        *,
        part: ModelProto | None = None,
        tuned: bool | Mapping[str, str] | None = None,
    ) -> Model:
        """Loads the model again: on another context, by default its own, or at another precision; part: a model that
        was made of this one's, whose weights may lie in the same files. tuned: as of loading. Raises as loading does.
        """
        options = self._options if tuned is None else {**self._options, "tuned": tuned}
        return Model(
            self.source if part is None else part,
            self.context if context is None else context,
            self.policy if precision is None else precision,
            folder=self.folder if part is None else ModelFile(self.source, self.folder).folder,
            progress=False,
            **options,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A model is pickled by its source, a path, which is read again, or the file's bytes, and by its context's device.

        A model of the default context comes back to the default context. Raises StateError for a model that is closed.
        """
        _ = self.program
        source = portable(self.source)
        folder = None if self.folder is None else os.path.abspath(self.folder)
        return _reopened, (source, place_of(self.context), self.policy, folder, self._options)

    def __repr__(self) -> str:
        values = f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))})"
        return f"<Model '{plain(self.name)}' {values}, {self.precision} on '{self.context.info.name}'>"

    def _repr_html_(self) -> str:
        from .report import model_facts

        return model_facts(self)

    # ---- lifetime

    @property
    def closed(self) -> bool:
        """Whether the model's device memory has been freed."""
        return self._program is None

    def close(self) -> None:
        """Frees the model's device memory. Idempotent."""
        if self._program is not None:
            self._program.close()
            self._program, self._call = None, self._refuse
        forward_log()

    def _refuse(self, *_: object) -> tuple[Array, ...]:
        raise StateError(f"model '{plain(self.name)}' is closed")

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reopened(
    source: Source, place: Place | None, precision: Precision, folder: Folder | None, options: dict[str, Any]
) -> Model:
    return Model(source, context_at(place), precision, folder=folder, progress=False, **options)
