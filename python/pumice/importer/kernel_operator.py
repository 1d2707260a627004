"""User kernels as operators of a model: `pumice.kernel_operator` and the nodes that the builder adds for it."""

from __future__ import annotations

import copy
import json
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pumice._pumice as _pumice

from ..base.element_types import array_of
from ..base.errors import InputError, graph_error
from ..base.printable_text import printable
from .file.recipe import ConstantRecipe, NodeRecipe, Recipe
from .symbolic_rules import Rule, RuleTensor, Sizes, applied, number_text, plain, sizes_text

if TYPE_CHECKING:
    from ..device.kernel import Kernel
    from .build.builder import Builder, Composed

ROW = "pumice::Kernel"
_OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "pumice")
_KINDS = (int, float, str, bool)


class KernelOperator:
    """An operator made by `pumice.kernel_operator()`: a kernel's source and the rules by which nodes run it."""

    def __init__(self, text: dict[str, Any], arrays: tuple[list[str], list[str]], rules: dict[str, Any]) -> None:
        self.text = text  # attributes that all the engine's nodes for this operator have
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
        return f"<kernel operator '{printable(self.text['kernel'])}': {arrays}{'' if self.reference else ', without a reference'}>"


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
    text, interface = _text_of(kernel)
    name = text["kernel"]
    read, written = _arrays(name, interface, inputs, outputs)
    if threads is not None and groups is not None:
        raise InputError(f"kernel_operator '{name}': expected threads or groups, given both")
    if threads is None and groups is None:
        threads = _default_threads(written[0], interface)
    if shape is None and not read:
        raise InputError(f"kernel_operator '{name}': shape: expected a rule, since there is no input to be like")
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and tolerance >= 0):
        raise InputError(f"kernel_operator '{name}': tolerance: expected a number of at least 0, given {tolerance!r}")
    if reference is not None and not callable(reference):
        raise InputError(f"kernel_operator '{name}': reference: expected a function, given {type(reference).__name__}")
    given_attributes = _attributes(name, dict(attributes or {}), [*read, *written])
    known_numbers = _known_numbers(name, dict(numbers or {}), interface)
    _check_given_once(name, text.get("constants", [])[::2], {"attributes": given_attributes, "numbers": known_numbers})
    rules = {
        "shape": shape,
        "dtype": dtype,
        "launch": ("threads", threads) if groups is None else ("groups", groups),
        "numbers": known_numbers,
        "attributes": given_attributes,
        "reference": reference,
        "tolerance": tolerance,
    }
    return KernelOperator(text, (read, written), rules)


def _default_threads(output: str, interface: dict[str, Any]) -> str | None:
    """Return the rule for one invocation per vector of an output declared with vectors; None means one per element."""
    components = next(one["components"] for one in interface["bindings"] if one["name"] == output)
    return f"{output}.size // {components}" if components > 1 and not keyword.iskeyword(output) else None


def _arrays(name: str, interface: dict[str, Any], inputs: Any, outputs: Any) -> tuple[list[str], list[str]]:
    """Return the names of the kernel's input arrays and of its output arrays."""
    arrays = interface["bindings"]
    if interface["images"]:
        raise InputError(f"kernel_operator '{name}': nodes have tensors; the kernel has images")
    read = _names(name, "inputs", inputs, [one for one in arrays if one["access"] == "read"], arrays)
    written = _names(name, "outputs", outputs, [one for one in arrays if one["access"] != "read"], arrays)
    if not written or len({*read, *written}) != len(arrays) or len(read) + len(written) != len(arrays):
        raise InputError(
            f"kernel_operator '{name}': expected each of its arrays, {', '.join(one['name'] for one in arrays)}, as one input or one "
            f"output, and one output at least; given {', '.join(read) or 'none'} and {', '.join(written) or 'none'}"
        )
    access = {one["name"]: one["access"] for one in arrays}
    for array in read:
        if access[array] != "read":
            raise InputError(
                f"kernel_operator '{name}': inputs: expected arrays that the kernel only reads; given '{array}', which it may write: a "
                "weight would change in place (declare it as readonly, or name it as an output)"
            )
    for array in written:
        if access[array] == "read":
            raise InputError(
                f"kernel_operator '{name}': outputs: expected arrays that the kernel writes; given '{array}', which it only reads: "
                "it would hold nothing"
            )
    return read, written


def _check_given_once(kernel: str, constants: Iterable[str], others: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise InputError if an attribute or rule sets a constant that the Kernel already sets."""
    for constant in constants:
        for what, given in others.items():
            if constant in given:
                raise InputError(
                    f"kernel_operator '{kernel}': {what}: '{constant}': expected one value of the constant; given spec= of the Kernel too"
                )


def _text_of(kernel: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the node attributes that describe the kernel's source, and the kernel's interface."""
    if isinstance(kernel, str):
        shader = _pumice.compile(kernel, name="kernel")
        return {"kernel": "kernel", "source": kernel}, shader.interface
    if not isinstance(kernel, _pumice.Kernel):
        raise TypeError(f"kernel_operator: kernel: expected a Kernel or GLSL text; given {type(kernel).__name__}")
    given = kernel._given  # type: ignore[attr-defined]
    if given["options"] is not None or given["debug"]:
        raise InputError(
            f"kernel_operator '{kernel.name}': expected a kernel without options= and debug=: the program chooses how arrays are stored"
        )
    if given["spirv"] is not None:
        raise InputError(
            f"kernel_operator '{kernel.name}': expected a kernel with a GLSL source; given one of a SPIR-V module"
        )
    includes = dict(given["includes"] or {})
    size = given["local_size"]
    sizes = [] if size is None else [int(n) for n in (size if isinstance(size, Iterable) else (size,))]
    text = {
        "kernel": kernel.name,
        "source": kernel.source,
        "path": given["_path"],
        "include_names": list(includes),
        "include_texts": list(includes.values()),
        "folders": [str(folder) for folder in given["include_dirs"]],
        "macros": [part for pair in given["macros"].items() for part in pair],
        "constants": [part for key, value in given["spec"].items() for part in (key, number_text(value))],
        "local_size": [*sizes, 1, 1, 1][:3] if sizes else [],
    }
    return text, kernel.shader.interface


def _names(kernel: str, what: str, given: Any, default: list[Any], every: list[Any]) -> list[str]:
    if given is None:
        return [one["name"] for one in default]
    names = list(given) if not isinstance(given, str) else [given]
    known = [one["name"] for one in every]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise InputError(
                f"kernel_operator '{kernel}': {what}: expected different names of {', '.join(known)}; given {name!r}"
            )
    return names


def _known_numbers(kernel: str, numbers: dict[str, Rule], interface: dict[str, Any]) -> dict[str, Rule]:
    known = [one["name"] for part in ("push_constants", "spec_constants") for one in interface[part]]
    known = [name for name in known if not name.startswith("pumice_")]
    for name in numbers:
        if name not in known:
            raise InputError(
                f"kernel_operator '{kernel}': numbers: expected constants of the kernel, {', '.join(known) or 'of which it has none'}; "
                f"given '{name}'"
            )
    return numbers


def _attributes(kernel: str, given: dict[str, Any], arrays: list[str]) -> dict[str, Any]:
    made = {name: plain(value) for name, value in given.items()}
    for name, value in made.items():
        parts = [plain(part) for part in value] if isinstance(value, (list, tuple)) else [value]
        if not str(name).isidentifier() or name in arrays:
            raise InputError(
                f"kernel_operator '{kernel}': attributes: expected names that no array has; given {name!r}"
            )
        kinds = (int, float) if isinstance(value, (list, tuple)) else _KINDS
        if value is not None and not all(isinstance(part, kinds) for part in parts):
            raise InputError(
                f"kernel_operator '{kernel}': attributes: '{name}': expected a number, a list of numbers, or text; given {value!r}"
            )
    return made


# ---- nodes


class KernelTable:
    """The kernels passed to `load(kernels=)`, keyed by operator. Raise InputError if the argument is anything else."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.operators: dict[str, KernelOperator] = {}
        if not isinstance(given, Mapping):
            raise InputError(f"kernels: expected operators and kernels in a dict; given {type(given).__name__}")
        for name, one in given.items():
            domain, mark, op = str(name).rpartition("::")
            if not isinstance(name, str) or not mark or domain in _OWN_DOMAINS or not op.isidentifier():
                raise InputError(
                    f"kernels: expected operators of a domain of your own, as 'my.domain::Op'; given {name!r}"
                )
            # A copy, because the caller may pass the same object under several names.
            made = copy.copy(one) if isinstance(one, KernelOperator) else kernel_operator(one)
            if made.text["kernel"] == "kernel":
                made.text = {**made.text, "kernel": name}
            self.operators[name] = made

    def check_used(self, recipe: Recipe) -> None:
        """Raise InputError if there is an operator that no node in the model uses."""
        used = set(_used(recipe))
        for name in self.operators:
            if name not in used:
                raise InputError(f"kernels: '{name}': no node of '{recipe.name}' is of this operator")

    def composed(self, others: Composed) -> Composed:
        """Return the node builders `others`, plus a builder for each of these operators."""
        return {**others, **{name: _adder(name, one) for name, one in self.operators.items()}}


class ToldKernels(KernelTable):
    """A kernel table that also records a graph's kernel nodes in `nodes`, as JSON with the rules in the engine's syntax."""

    def __init__(self, table: KernelTable) -> None:
        self.operators = table.operators
        self.nodes: list[str] = []

    def composed(self, others: Composed) -> Composed:
        """Return the node builders; the builders of these operators also record each node."""
        return {**others, **{name: _adder(name, one, self.nodes) for name, one in self.operators.items()}}


def _used(recipe: Recipe) -> Iterable[str]:
    for node in recipe.nodes:
        yield node.qualified_op
        for inner in node.subgraphs.values():
            yield from _used(inner)


def _adder(name: str, one: KernelOperator, told: list[str] | None = None) -> Callable[[Builder, NodeRecipe], None]:
    def add(builder: Builder, node: NodeRecipe) -> None:
        try:
            attributes = {**one.text, **_rules(name, one, builder, node)}
        except InputError as error:
            raise graph_error("node", builder.path(node), f"{name}: kernel '{one.text['kernel']}': {error}") from None
        if told is not None:
            told.append(json.dumps([builder.path(node), attributes], sort_keys=True))
        builder.add_plain(node._replace(op="Kernel", domain="pumice", attributes=attributes))

    return add


def _rules(name: str, one: KernelOperator, builder: Builder, node: NodeRecipe) -> dict[str, Any]:
    """Evaluate the rules for a node, and return the attributes that differ between nodes."""
    inputs, outputs = node.inputs, node.outputs
    if len(inputs) > len(one.inputs) or len(outputs) > len(one.outputs):
        raise InputError(
            f"expected {len(one.inputs)} inputs ({', '.join(one.inputs)}) and {len(one.outputs)} outputs "
            f"({', '.join(one.outputs)}); given {len(inputs)} and {len(outputs)}"
        )
    names: dict[str, Any] = {}
    for i, (array, value) in enumerate(zip(one.inputs, inputs, strict=False)):
        if not value:
            continue
        tensor = builder.tensor(value)
        rank = None if tensor.shape is None else len(tensor.shape)
        names[array] = RuleTensor(array, f"x{i}", rank, str(tensor.dtype))
    if missing := [array for array in one.inputs if array not in names]:
        raise InputError(f"expected an input for '{missing[0]}'; given none")
    given = node_attributes(one, node.attributes)
    names.update(given)
    made = _made(one, names)
    for j, array in enumerate(one.outputs):
        text = made["shapes"][j]
        rank = names[one.inputs[int(text[1:])]]._rank if text.startswith("=") else len(text.split(";")) if text else 0
        names[array] = RuleTensor(array, f"y{j}", rank, made["dtypes"][j])
    for array, rule in one.numbers.items():
        given[array] = _told(f"numbers['{array}']", rule, names)
        if isinstance(given[array], str):
            raise InputError(f"numbers['{array}']: expected numbers, given '{given[array]}'")
    how, size = one.launch
    launch = "y0_n" if size is None else _launch_text(how, size, names)
    if not 1 <= len(launch.split(";")) <= 3 or not launch:
        raise InputError(f"{how}: expected one to three numbers; given {launch or 'none'}")
    numbers = [
        part for key, value in given.items() if not isinstance(value, str) for part in (key, _number_told(key, value))
    ]
    return {**made, "reads": one.inputs, "writes": one.outputs, "numbers": numbers, "launch": how, "size": launch} | {
        "operator": name
    }


def _launch_text(how: str, size: Rule, names: Mapping[str, Any]) -> str:
    told = _told(how, size, names)
    try:
        return sizes_text(tuple(told) if isinstance(told, Sizes) else told)  # a shape stands for the list of its sizes
    except InputError as error:
        raise InputError(f"{how}: {error}") from None


def _number_told(name: str, value: Any) -> str:
    try:
        return number_text(value)
    except InputError as error:
        raise InputError(f"'{name}': {error}") from None


def _told(what: str, rule: Rule, names: Mapping[str, Any]) -> Any:
    try:
        return applied(rule, names) if isinstance(rule, str) or callable(rule) else rule
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def node_attributes(one: KernelOperator, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's attributes with defaults filled in. Raise InputError if one is unknown or missing."""
    made = dict(one.attributes)
    for name, value in given.items():
        if name not in made:
            expected = ", ".join(one.attributes) or "none"
            raise InputError(f"attribute '{name}': expected attributes that kernel_operator was told of: {expected}")
        if isinstance(value, ConstantRecipe):
            value = array_of(value.raw, value.dtype, value.shape).tolist()
        made[name] = value
    if missing := [name for name, value in made.items() if value is None]:
        raise InputError(f"attribute '{missing[0]}' is missing, which has no default")
    return made


def _made(one: KernelOperator, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shapes and dtypes of the outputs."""
    shapes = ["=0"] * len(one.outputs)
    if one.shape is not None:
        given = _told("shape", one.shape, names)
        several = _parts("shape", one, given) if len(one.outputs) > 1 or isinstance(given, Mapping) else [given]
        try:
            shapes = [sizes_text(value) for value in several]
        except InputError as error:
            raise InputError(f"shape: {error}") from None
    wanted = [one.inputs[0]] if one.dtype is None and one.inputs else one.dtype
    if wanted is None:
        raise InputError("dtype: expected one, since there is no input to be like")
    listed = [wanted] * len(one.outputs) if isinstance(wanted, str) else wanted
    if one.dtype is None:
        listed = [one.inputs[0]] * len(one.outputs)
    dtypes = []
    for value in _parts("dtype", one, listed):
        if value not in one.inputs and str(value) not in _DTYPES:
            raise InputError(f"dtype: expected a dtype or the name of an input; given {value!r}")
        dtypes.append(f"={one.inputs.index(value)}" if value in one.inputs else str(value))
    return {"shapes": shapes, "dtypes": dtypes}


_DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "bool"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


def _parts(what: str, one: KernelOperator, given: Any) -> list[Any]:
    """Return a list with one entry per output, from a dict keyed by name or from a list."""
    if isinstance(given, Mapping):
        if set(given) != set(one.outputs):
            raise InputError(
                f"{what}: expected one for each of {', '.join(one.outputs)}; given {', '.join(map(str, given))}"
            )
        return [given[name] for name in one.outputs]
    parts = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(parts) != len(one.outputs):
        raise InputError(f"{what}: expected {len(one.outputs)}, one for each output; given {len(parts)}")
    return parts
