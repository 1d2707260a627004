"""User kernels as operators of a model: `pumice.kernel_operator`, and its translation to engine nodes."""

from __future__ import annotations

import copy
import json
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pumice._pumice as _pumice

from ..base.element_types import array_from_bytes
from ..base.errors import InputError, graph_error
from ..base.printable_text import escape_unprintable
from .file.graph_recipe import ConstantRecipe, GraphRecipe, NodeRecipe
from .symbolic_rules import (
    Rule,
    RuleTensor,
    SymbolicShape,
    evaluate_rule,
    format_number,
    format_sizes,
    to_python_number,
)

if TYPE_CHECKING:
    from ..device.kernel import Kernel
    from .build.builder import GraphBuilder, TranslatorTable

KERNEL_OP = "pumice::Kernel"
_RESERVED_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "pumice")
_ATTRIBUTE_TYPES = (int, float, str, bool)


class KernelOperator:
    """An operator created by `pumice.kernel_operator()`: a kernel's source, and rules for shapes, launch size and constants."""

    def __init__(self, text: dict[str, Any], arrays: tuple[list[str], list[str]], rules: dict[str, Any]) -> None:
        self.text = text  # attributes that all engine nodes of this operator share
        self.inputs, self.outputs = arrays
        self.shape: Rule | None = rules["shape"]
        self.dtype = rules["dtype"]
        self.launch: tuple[str, Rule | None] = rules["launch"]
        self.numbers: Mapping[str, Rule] = rules["numbers"]
        self.attributes: Mapping[str, Any] = rules["attributes"]
        self.reference: Callable[..., Any] | None = rules["reference"]
        self.tolerance: float | None = rules["tolerance"]

    def __repr__(self) -> str:
        arrays = f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}"
        return f"<kernel operator '{escape_unprintable(self.text['kernel'])}': {arrays}{'' if self.reference else ', without a reference'}>"


def kernel_operator(
    kernel: Kernel | str,
    *,
    shape: Rule | None = None,
    dtype: str | Sequence[str] | Mapping[str, str] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    numbers: Mapping[str, Rule] | None = None,
    threads: Rule | None = None,
    groups: Rule | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> KernelOperator:
    """Return a kernel as an operator, for `load(model, kernels={"my.domain::Op": kernel_operator(...)})`.

    kernel: a Kernel, whose source, macros, constants and local size are copied now; or GLSL source that compiles
    without device-specific additions (pass a Kernel otherwise). inputs, outputs: names of the kernel's arrays in the
    order of the node's inputs and outputs; by default the read-only arrays, and all others, in binding order. Inputs
    are read-only. Outputs are uninitialised when the kernel starts, but it may read back what it has written.
    shape: the output shape, or a dict or list of shapes for several outputs; by default the shape of the first input. A
    rule is a callable whose parameters are input and attribute names,
    `lambda x, stride: (x.shape[0], x.shape[1] // stride)`, or the same as a string, "(x.shape[0], x.shape[1] // stride)".
    It is evaluated once per node, on symbolic sizes that support + - * // % and, in text, min, max and
    `a if c else b`.
    dtype: the output dtype, such as "float32", or the name of an input; a list or dict for several outputs; by default
    the dtype of the first input.
    attributes: the node's attributes with their defaults: numbers, lists of numbers, or strings; None if the node must set it.
    numbers: rules for push constants and specialization constants; they may also use output names. Constants without a rule are set from
    the attribute with the same name, or are `<array>_size` (number of elements) or `<array>_shape` (a list). Constants that the Kernel
    sets with spec= may not be set again.
    threads or groups: a rule for the launch, which may use output names; by default one invocation per element of the
    first output.
    reference: a function of the inputs as NumPy arrays (floats as float64) and the attributes, with the rules'
    parameter names. It returns the output, or a list or dict of outputs; each may be a pair of the output and its
    elementwise error bound. `validate` checks the kernel against it, and reports "not checked" without one. tolerance: the error bound if
    `reference` returns none, relative to the output's largest value; by default the square root of the type's epsilon, 0 for integers.

    Arrays of the storage type (sfp) hold floats in the model's precision; an array declared as float gets a converted
    copy if the model stores 16 bits. Raise InputError naming the invalid argument, TypeError if `kernel` is neither a Kernel nor text,
    ShaderCompileError if the source does not compile.
    """
    source_attributes, interface = _get_source_attributes(kernel)
    name = source_attributes["kernel"]
    input_arrays, output_arrays = _resolve_array_names(name, interface, inputs, outputs)
    if threads is not None and groups is not None:
        raise InputError(f"kernel_operator '{name}': expected threads or groups, given both")
    if threads is None and groups is None:
        threads = _get_default_thread_rule(output_arrays[0], interface)
    if shape is None and not input_arrays:
        raise InputError(f"kernel_operator '{name}': shape: expected a rule, since there is no input to take it from")
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and tolerance >= 0):
        raise InputError(f"kernel_operator '{name}': tolerance: expected a non-negative number, given {tolerance!r}")
    if reference is not None and not callable(reference):
        raise InputError(f"kernel_operator '{name}': reference: expected a function, given {type(reference).__name__}")
    declared_attributes = _check_attributes(name, dict(attributes or {}), [*input_arrays, *output_arrays])
    number_rules = _check_number_rules(name, dict(numbers or {}), interface)
    _check_constants_set_once(
        name, source_attributes.get("constants", [])[::2], {"attributes": declared_attributes, "numbers": number_rules}
    )
    rules = {
        "shape": shape,
        "dtype": dtype,
        "launch": ("threads", threads) if groups is None else ("groups", groups),
        "numbers": number_rules,
        "attributes": declared_attributes,
        "reference": reference,
        "tolerance": tolerance,
    }
    return KernelOperator(source_attributes, (input_arrays, output_arrays), rules)


def _get_default_thread_rule(output: str, interface: dict[str, Any]) -> str | None:
    """Return the default launch rule: one invocation per vector if the output is an array of vectors. None: one invocation per element."""
    components = next(binding["components"] for binding in interface["bindings"] if binding["name"] == output)
    return f"{output}.size // {components}" if components > 1 and not keyword.iskeyword(output) else None


def _resolve_array_names(
    name: str, interface: dict[str, Any], inputs: Any, outputs: Any
) -> tuple[list[str], list[str]]:
    """Return the names of the kernel's input arrays and output arrays. Raise InputError if they do not fit the kernel."""
    arrays = interface["bindings"]
    if interface["images"]:
        raise InputError(f"kernel_operator '{name}': nodes have tensors, but the kernel has images")
    input_arrays = _check_array_names(
        name, "inputs", inputs, [binding for binding in arrays if binding["access"] == "read"], arrays
    )
    output_arrays = _check_array_names(
        name, "outputs", outputs, [binding for binding in arrays if binding["access"] != "read"], arrays
    )
    if (
        not output_arrays
        or len({*input_arrays, *output_arrays}) != len(arrays)
        or len(input_arrays) + len(output_arrays) != len(arrays)
    ):
        raise InputError(
            f"kernel_operator '{name}': expected each of its arrays, {', '.join(binding['name'] for binding in arrays)}, as one input or "
            f"one output, and one output at least; given {', '.join(input_arrays) or 'none'} and {', '.join(output_arrays) or 'none'}"
        )
    access = {binding["name"]: binding["access"] for binding in arrays}
    for array in input_arrays:
        if access[array] != "read":
            raise InputError(
                f"kernel_operator '{name}': inputs: expected arrays that the kernel only reads; given '{array}', which it may write: a "
                "weight would change in place (declare it as readonly, or name it as an output)"
            )
    for array in output_arrays:
        if access[array] == "read":
            raise InputError(
                f"kernel_operator '{name}': outputs: expected arrays that the kernel writes; given '{array}', which it only reads: "
                "it would have no content"
            )
    return input_arrays, output_arrays


def _check_constants_set_once(
    kernel: str, constants: Iterable[str], values_by_argument: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise InputError if an attribute or rule sets a constant that the Kernel already sets."""
    for constant in constants:
        for argument_name, constant_names in values_by_argument.items():
            if constant in constant_names:
                raise InputError(
                    f"kernel_operator '{kernel}': {argument_name}: '{constant}': expected one value of the constant; "
                    "given spec= of the Kernel too"
                )


def _get_source_attributes(kernel: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the node attributes with the kernel's source and build options, and the kernel's interface."""
    if isinstance(kernel, str):
        shader = _pumice.compile(kernel, name="kernel")
        return {"kernel": "kernel", "source": kernel}, shader.interface
    if not isinstance(kernel, _pumice.Kernel):
        raise TypeError(f"kernel_operator: kernel: expected a Kernel or GLSL text; given {type(kernel).__name__}")
    build_options = kernel._build_options  # type: ignore[attr-defined]
    if build_options["options"] is not None or build_options["debug"]:
        raise InputError(
            f"kernel_operator '{kernel.name}': expected a kernel without options= and debug=: the program chooses how arrays are stored"
        )
    if build_options["spirv"] is not None:
        raise InputError(
            f"kernel_operator '{kernel.name}': expected a kernel with a GLSL source; given one with a SPIR-V module"
        )
    includes = dict(build_options["includes"] or {})
    size = build_options["local_size"]
    sizes = [] if size is None else [int(n) for n in (size if isinstance(size, Iterable) else (size,))]
    source_attributes = {
        "kernel": kernel.name,
        "source": kernel.source,
        "path": build_options["_path"],
        "include_names": list(includes),
        "include_texts": list(includes.values()),
        "folders": [str(folder) for folder in build_options["include_dirs"]],
        "macros": [piece for pair in build_options["macros"].items() for piece in pair],
        "constants": [piece for key, value in build_options["spec"].items() for piece in (key, format_number(value))],
        "local_size": [*sizes, 1, 1, 1][:3] if sizes else [],
    }
    return source_attributes, kernel.shader.interface


def _check_array_names(
    kernel: str, argument_name: str, names_or_none: Any, default: list[Any], all_arrays: list[Any]
) -> list[str]:
    if names_or_none is None:
        return [binding["name"] for binding in default]
    names = list(names_or_none) if not isinstance(names_or_none, str) else [names_or_none]
    allowed_names = [binding["name"] for binding in all_arrays]
    for name in names:
        if name not in allowed_names or names.count(name) > 1:
            raise InputError(
                f"kernel_operator '{kernel}': {argument_name}: expected different names of {', '.join(allowed_names)}; given {name!r}"
            )
    return names


def _check_number_rules(kernel: str, numbers: dict[str, Rule], interface: dict[str, Any]) -> dict[str, Rule]:
    allowed_names = [binding["name"] for piece in ("push_constants", "spec_constants") for binding in interface[piece]]
    allowed_names = [name for name in allowed_names if not name.startswith("pumice_")]
    for name in numbers:
        if name not in allowed_names:
            raise InputError(
                f"kernel_operator '{kernel}': numbers: expected constants of the kernel, "
                f"{', '.join(allowed_names) or 'but it has none'}; given '{name}'"
            )
    return numbers


def _check_attributes(kernel: str, declared_attributes: dict[str, Any], arrays: list[str]) -> dict[str, Any]:
    checked_attributes = {name: to_python_number(value) for name, value in declared_attributes.items()}
    for name, value in checked_attributes.items():
        pieces = [to_python_number(piece) for piece in value] if isinstance(value, (list, tuple)) else [value]
        if not str(name).isidentifier() or name in arrays:
            raise InputError(
                f"kernel_operator '{kernel}': attributes: expected names that no array has; given {name!r}"
            )
        kinds = (int, float) if isinstance(value, (list, tuple)) else _ATTRIBUTE_TYPES
        if value is not None and not all(isinstance(piece, kinds) for piece in pieces):
            raise InputError(
                f"kernel_operator '{kernel}': attributes: '{name}': expected a number, a list of numbers, or text; given {value!r}"
            )
    return checked_attributes


# ---- translation of nodes that use user kernels


class KernelTable:
    """The user kernels passed to `load(kernels=...)`, keyed by operator. Raise InputError if the argument is invalid."""

    def __init__(self, kernels: Mapping[str, Any]) -> None:
        self.operators: dict[str, KernelOperator] = {}
        if not isinstance(kernels, Mapping):
            raise InputError(f"kernels: expected operators and kernels in a dict; given {type(kernels).__name__}")
        for name, table_operator in kernels.items():
            domain, separator, op = str(name).rpartition("::")
            if not isinstance(name, str) or not separator or domain in _RESERVED_DOMAINS or not op.isidentifier():
                raise InputError(
                    f"kernels: expected operators of your own domain, such as 'my.domain::Op'; given {name!r}"
                )
            # Copy the operator, because the caller may pass the same object under several names.
            operator_copy = (
                copy.copy(table_operator)
                if isinstance(table_operator, KernelOperator)
                else kernel_operator(table_operator)
            )
            if operator_copy.text["kernel"] == "kernel":
                operator_copy.text = {**operator_copy.text, "kernel": name}
            self.operators[name] = operator_copy

    def check_all_used(self, recipe: GraphRecipe) -> None:
        """Raise InputError if the table has an operator that no node of the model uses."""
        used_operators = set(_iterate_used_operators(recipe))
        for name in self.operators:
            if name not in used_operators:
                raise InputError(f"kernels: '{name}': no node of '{recipe.name}' is of this operator")

    def with_kernel_translators(self, translators: TranslatorTable) -> TranslatorTable:
        """Return `translators` plus a translator for each operator of this table."""
        return {
            **translators,
            **{name: _make_kernel_translator(name, table_operator) for name, table_operator in self.operators.items()},
        }


class KernelNodeRecorder(KernelTable):
    """A kernel table that also records the kernel nodes of a graph: `nodes` contains their attributes as JSON."""

    def __init__(self, table: KernelTable) -> None:
        self.operators = table.operators
        self.nodes: list[str] = []

    def with_kernel_translators(self, translators: TranslatorTable) -> TranslatorTable:
        """Return `translators` plus a translator for each operator of this table that also records each node."""
        return {
            **translators,
            **{
                name: _make_kernel_translator(name, table_operator, self.nodes)
                for name, table_operator in self.operators.items()
            },
        }


def _iterate_used_operators(recipe: GraphRecipe) -> Iterable[str]:
    for node in recipe.nodes:
        yield node.qualified_op
        for inner in node.subgraphs.values():
            yield from _iterate_used_operators(inner)


def _make_kernel_translator(
    name: str, kernel_op: KernelOperator, recorded_nodes: list[str] | None = None
) -> Callable[[GraphBuilder, NodeRecipe], None]:
    def translate(builder: GraphBuilder, node: NodeRecipe) -> None:
        try:
            attributes = {**kernel_op.text, **_evaluate_node_rules(name, kernel_op, builder, node)}
        except InputError as error:
            raise graph_error(
                "node", builder.get_node_path(node), f"{name}: kernel '{kernel_op.text['kernel']}': {error}"
            ) from None
        if recorded_nodes is not None:
            recorded_nodes.append(json.dumps([builder.get_node_path(node), attributes], sort_keys=True))
        builder.add_single_node(node._replace(op="Kernel", domain="pumice", attributes=attributes))

    return translate


def _evaluate_node_rules(
    name: str, kernel_op: KernelOperator, builder: GraphBuilder, node: NodeRecipe
) -> dict[str, Any]:
    """Evaluate the rules for a node and return its node-specific attributes."""
    inputs, outputs = node.inputs, node.outputs
    if len(inputs) > len(kernel_op.inputs) or len(outputs) > len(kernel_op.outputs):
        raise InputError(
            f"expected {len(kernel_op.inputs)} inputs ({', '.join(kernel_op.inputs)}) and {len(kernel_op.outputs)} outputs "
            f"({', '.join(kernel_op.outputs)}); given {len(inputs)} and {len(outputs)}"
        )
    names: dict[str, Any] = {}
    for i, (array, value) in enumerate(zip(kernel_op.inputs, inputs, strict=False)):
        if not value:
            continue
        tensor = builder.require_tensor(value)
        rank = None if tensor.shape is None else len(tensor.shape)
        names[array] = RuleTensor(array, f"x{i}", rank, str(tensor.dtype))
    if missing := [array for array in kernel_op.inputs if array not in names]:
        raise InputError(f"expected an input for '{missing[0]}'; given none")
    attribute_values = resolve_node_attributes(kernel_op, node.attributes)
    names.update(attribute_values)
    output_attributes = _evaluate_output_specs(kernel_op, names)
    for j, array in enumerate(kernel_op.outputs):
        shape_text = output_attributes["shapes"][j]
        rank = (
            names[kernel_op.inputs[int(shape_text[1:])]]._rank
            if shape_text.startswith("=")
            else len(shape_text.split(";"))
            if shape_text
            else 0
        )
        names[array] = RuleTensor(array, f"y{j}", rank, output_attributes["dtypes"][j])
    for array, rule in kernel_op.numbers.items():
        attribute_values[array] = _evaluate_rule(f"numbers['{array}']", rule, names)
        if isinstance(attribute_values[array], str):
            raise InputError(f"numbers['{array}']: expected numbers, given '{attribute_values[array]}'")
    launch_kind, size = kernel_op.launch
    launch = "y0_n" if size is None else _evaluate_launch_size(launch_kind, size, names)
    if not 1 <= len(launch.split(";")) <= 3 or not launch:
        raise InputError(f"{launch_kind}: expected one to three numbers; given {launch or 'none'}")
    numbers = [
        piece
        for key, value in attribute_values.items()
        if not isinstance(value, str)
        for piece in (key, _format_number(key, value))
    ]
    return {
        **output_attributes,
        "reads": kernel_op.inputs,
        "writes": kernel_op.outputs,
        "numbers": numbers,
        "launch": launch_kind,
        "size": launch,
    } | {"operator": name}


def _evaluate_launch_size(launch_kind: str, size: Rule, names: Mapping[str, Any]) -> str:
    rule_result = _evaluate_rule(launch_kind, size, names)
    try:
        return format_sizes(
            tuple(rule_result) if isinstance(rule_result, SymbolicShape) else rule_result
        )  # a shape is passed as the list of its sizes
    except InputError as error:
        raise InputError(f"{launch_kind}: {error}") from None


def _format_number(name: str, value: Any) -> str:
    try:
        return format_number(value)
    except InputError as error:
        raise InputError(f"'{name}': {error}") from None


def _evaluate_rule(argument_name: str, rule: Rule, names: Mapping[str, Any]) -> Any:
    try:
        return evaluate_rule(rule, names) if isinstance(rule, str) or callable(rule) else rule
    except InputError as error:
        raise InputError(f"{argument_name}: {error}") from None


def resolve_node_attributes(kernel_op: KernelOperator, attribute_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's attributes with defaults filled in. Raise InputError if an attribute is unknown or missing."""
    complete_attributes = dict(kernel_op.attributes)
    for name, value in attribute_values.items():
        if name not in complete_attributes:
            expected = ", ".join(kernel_op.attributes) or "none"
            raise InputError(f"attribute '{name}': expected attributes that were passed to kernel_operator: {expected}")
        if isinstance(value, ConstantRecipe):
            value = array_from_bytes(value.raw, value.dtype, value.shape).tolist()
        complete_attributes[name] = value
    if missing := [name for name, value in complete_attributes.items() if value is None]:
        raise InputError(f"attribute '{missing[0]}' is missing and has no default")
    return complete_attributes


def _evaluate_output_specs(kernel_op: KernelOperator, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shapes and dtypes of the outputs in the engine's syntax; "=0" means the shape or dtype of input 0."""
    shapes = ["=0"] * len(kernel_op.outputs)
    if kernel_op.shape is not None:
        shape_result = _evaluate_rule("shape", kernel_op.shape, names)
        shape_list = (
            _get_value_per_output("shape", kernel_op, shape_result)
            if len(kernel_op.outputs) > 1 or isinstance(shape_result, Mapping)
            else [shape_result]
        )
        try:
            shapes = [format_sizes(value) for value in shape_list]
        except InputError as error:
            raise InputError(f"shape: {error}") from None
    requested_dtype = [kernel_op.inputs[0]] if kernel_op.dtype is None and kernel_op.inputs else kernel_op.dtype
    if requested_dtype is None:
        raise InputError("dtype: expected one, since there is no input to take it from")
    dtype_list = [requested_dtype] * len(kernel_op.outputs) if isinstance(requested_dtype, str) else requested_dtype
    if kernel_op.dtype is None:
        dtype_list = [kernel_op.inputs[0]] * len(kernel_op.outputs)
    dtypes = []
    for value in _get_value_per_output("dtype", kernel_op, dtype_list):
        if value not in kernel_op.inputs and str(value) not in _DTYPES:
            raise InputError(f"dtype: expected a dtype or the name of an input; given {value!r}")
        dtypes.append(f"={kernel_op.inputs.index(value)}" if value in kernel_op.inputs else str(value))
    return {"shapes": shapes, "dtypes": dtypes}


_DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "bool"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


def _get_value_per_output(argument_name: str, kernel_op: KernelOperator, values_by_output: Any) -> list[Any]:
    """Convert a dict by output name, or a list, to a list with one entry per output."""
    if isinstance(values_by_output, Mapping):
        if set(values_by_output) != set(kernel_op.outputs):
            raise InputError(
                f"{argument_name}: expected one for each of {', '.join(kernel_op.outputs)}; given {', '.join(map(str, values_by_output))}"
            )
        return [values_by_output[name] for name in kernel_op.outputs]
    pieces = list(values_by_output) if isinstance(values_by_output, (list, tuple)) else [values_by_output]
    if len(pieces) != len(kernel_op.outputs):
        raise InputError(
            f"{argument_name}: expected {len(kernel_op.outputs)}, one for each output; given {len(pieces)}"
        )
    return pieces
