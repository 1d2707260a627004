"""Inputs and outputs of a model: their descriptions, and the conversion of sequences, optional values and strings to tensors."""

# No `from __future__ import annotations`: NamedTuple would compile each string annotation, which slows down the import.

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.element_types import Array, get_numpy_dtype
from ..base.errors import binding_error, unsupported_error
from ..base.host_arrays import as_array
from ..base.printable_text import escape_unprintable, shorten_and_escape
from ..importer.build.non_tensor_values import ValueKind, pack_arrays, unpack_arrays
from ..importer.file.graph_recipe import RANDOM_STATE

if TYPE_CHECKING:
    from .._pumice import ProgramValue
    from ..base.string_table import PerCallStringTable, StringTable
    from ..importer.file.graph_recipe import GraphRecipe, InputRecipe
    from ..importer.translators.random import RandomState

_MAX_ARRAYS = 1 << 20  # maximum length of a returned sequence, whose arrays are separate Python objects


def format_shape(shape: Sequence[int | str | None]) -> str:
    """Format a shape, with "?" for unknown sizes."""
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def shape_matches(shape: Sequence[int], expected_shape: Sequence[int | str | None]) -> bool:
    """Return whether a shape matches `expected_shape`, in which names and None match any size."""
    return len(shape) == len(expected_shape) and all(
        not isinstance(size, int) or size == actual for actual, size in zip(shape, expected_shape, strict=True)
    )


# Ways to rearrange an array: (code, source axis of each result axis; None: a new axis).
_REARRANGEMENTS: tuple[tuple[str, tuple[int | None, ...]], ...] = (
    ("[None]", (None, 0)),
    ("[None]", (None, 0, 1)),
    ("[None]", (None, 0, 1, 2)),
    ("[None]", (None, 0, 1, 2, 3)),
    (".transpose(0, 3, 1, 2)", (0, 3, 1, 2)),
    (".transpose(0, 2, 3, 1)", (0, 2, 3, 1)),
    (".transpose(2, 0, 1)[None]", (None, 2, 0, 1)),
    (".transpose(1, 2, 0)[None]", (None, 1, 2, 0)),
    (".transpose(2, 0, 1)", (2, 0, 1)),
    (".transpose(1, 2, 0)", (1, 2, 0)),
    ("[0]", (1,)),
    ("[0]", (1, 2)),
    ("[0]", (1, 2, 3)),
)


def suggest_rearrangement(name: str, shape: Sequence[int], expected_shape: Sequence[int | str | None]) -> str:
    """Return a hint with code that gives an array the expected shape (batch axis or channel order); "" if there is none."""
    for code, axes in _REARRANGEMENTS:
        drops_axis = code == "[0]"
        rank = len(axes) + 1 if drops_axis else sum(axis is not None for axis in axes)
        if len(shape) != rank or (drops_axis and shape[0] != 1):
            continue
        if shape_matches([1 if axis is None else shape[axis] for axis in axes], expected_shape):
            array = name if name.isidentifier() else "array"
            return f"{array}{code} has such a shape"
    return ""


class ModelValue(NamedTuple):
    """An input or output. shape: each size is a number, a name, or None if unknown; None in place of the shape: unknown rank.

    dtype: object for strings. kind: "tensor", "sequence" (a list of arrays), "optional" (an array or None) or "optional sequence".
    Only tensors have a shape.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"

    def __str__(self) -> str:
        dtype = "string" if self.dtype == object else str(self.dtype)
        name = shorten_and_escape(self.name)
        if self.kind != "tensor":
            return f"{name}: {self.kind} of {dtype}"
        return f"{name}: {dtype}{'[...]' if self.shape is None else escape_unprintable(format_shape(self.shape))}"


def make_dimensions(shape: Any, names: Any) -> tuple[int | str | None, ...] | None:
    """Return each size of a shape as a number, or as its name or None if it is unknown (None or negative)."""
    if shape is None:
        return None
    padded_names = list(names) + [""] * (len(shape) - len(names))
    sizes: list[int | str | None] = []
    for size, name in zip(shape, padded_names, strict=True):
        sizes.append((name or None) if size is None or size < 0 else int(size))
    return tuple(sizes)


def merge_declared_shapes(outputs: list[ModelValue], declared: "Sequence[InputRecipe]") -> list[ModelValue]:
    """Return the outputs with names from the file for sizes that the engine does not know."""
    shapes = {value.name: make_dimensions(value.shape, value.dimension_names) for value in declared}
    return [_merge_declared_shape(output, shapes.get(output.name)) for output in outputs]


def _merge_declared_shape(output: ModelValue, declared: tuple[int | str | None, ...] | None) -> ModelValue:
    if declared is None:
        return output
    if output.shape is None:
        return output._replace(shape=declared)
    if len(declared) != len(output.shape) or None not in output.shape:
        return output
    shape = tuple(
        engine_size if engine_size is not None else declared_size if isinstance(declared_size, str) else None
        for engine_size, declared_size in zip(output.shape, declared, strict=True)
    )
    return output._replace(shape=shape)


def make_model_values(values: "Sequence[ProgramValue]") -> list[ModelValue]:
    """Describe the inputs or outputs of a program."""
    dtypes = map(get_numpy_dtype, [str(value.dtype) for value in values])
    shapes = [make_dimensions(value.shape, value.dimension_names) for value in values]
    return [
        ModelValue(value.name, *fields) for value, fields in zip(values, zip(dtypes, shapes, strict=True), strict=True)
    ]


NamesAndTensors = tuple[
    list[str], list[ModelValue]
]  # names of the model's inputs or outputs, and the program's tensors


class ValuePacker:
    """Converts a model's sequences, optional values and strings to the program's tensors and back.

    It also supplies the random state, the program's last input. inputs, outputs: the model's names and the program's tensors, both in
    graph order.
    """

    def __init__(
        self,
        inputs: NamesAndTensors,
        outputs: NamesAndTensors,
        seed: int | None,
        strings: Sequence[str],
        string_values: Collection[str],
    ) -> None:
        names, tensors = inputs
        self.random = _make_random_state(seed) if any(value.name == RANDOM_STATE for value in tensors) else None
        self._input_kinds, self.inputs = _group_tensors_by_value(
            [name for name in names if name != RANDOM_STATE], tensors
        )
        self._output_kinds, self.outputs = _group_tensors_by_value(*outputs)
        self._strings = strings
        self._table: StringTable | None = None  # created by the first call, because few models have strings
        self._string_values = {
            value.name: value for value in (*self.inputs, *self.outputs) if value.name in string_values
        }
        self.inputs, self.outputs = (
            [value._replace(dtype=np.dtype(object)) if value.name in self._string_values else value for value in values]
            for values in (self.inputs, self.outputs)
        )

    def make_call_strings(self) -> "PerCallStringTable":
        """Return a string table for the arguments and results of one call."""
        from ..base.string_table import PerCallStringTable, StringTable

        if self._table is None:
            self._table = StringTable(self._strings)
        return PerCallStringTable(self._table)

    def pack_inputs(self, values: Sequence[Any], strings: "PerCallStringTable") -> tuple[Any, ...]:
        """Convert values of the model's inputs to the program's input tensors. Raise BindingError naming an invalid input."""
        packed: list[Any] = []
        for value, kind, expected in zip(values, self._input_kinds, self.inputs, strict=True):
            if string_value := self._string_values.get(expected.name):
                packed += _pack_value(strings.encode(value, expected.name), kind, string_value)
            else:
                packed += _pack_value(value, kind, expected)
        return (*packed, self.random.next()) if self.random else tuple(packed)

    def pack_outputs(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Convert values of outputs that are sequences or optional values to the program's tensors, by name."""
        tensors_by_name: dict[str, Array] = {}
        for kind, expected in zip(self._output_kinds, self.outputs, strict=True):
            if kind.is_non_tensor and expected.name in values:
                tensors_by_name.update(
                    zip(
                        kind.get_tensor_names(expected.name),
                        _pack_value(values[expected.name], kind, expected),
                        strict=True,
                    )
                )
        return tensors_by_name

    def unpack_outputs(self, results: tuple[Array, ...], strings: "PerCallStringTable") -> tuple[Any, ...]:
        """Convert the program's output tensors to the model's outputs: arrays, lists for sequences, None for absent optional values."""
        remaining = iter(results)
        unpacked: list[Any] = []
        for kind, expected in zip(self._output_kinds, self.outputs, strict=True):
            is_present = bool(next(remaining)[0]) if kind.optional else True
            value: Any = next(remaining)
            if kind.sequence:
                value = _unpack_sequence(expected.name, value, next(remaining), next(remaining))
            if expected.name in self._string_values:
                value = strings.decode(value)
            unpacked.append(value if is_present else None)
        return tuple(unpacked)


def make_packer(
    recipe: "GraphRecipe", inputs: list[ModelValue], outputs: list[ModelValue], seed: int | None
) -> ValuePacker | None:
    """Return the packer of a model; None if its values are the program's tensors.

    inputs, outputs: the program's tensors. seed: of random numbers.
    """
    input_names, output_names = [value.name for value in recipe.inputs], [value.name for value in recipe.outputs]
    names = ([value.name for value in inputs], [value.name for value in outputs])
    if names == (input_names, output_names) and RANDOM_STATE not in input_names and not recipe.string_values:
        return None
    return ValuePacker((input_names, inputs), (output_names, outputs), seed, recipe.strings, recipe.string_values)


def _make_random_state(seed: int | None) -> "RandomState":
    from ..importer.translators.random import RandomState

    return RandomState(seed)


def _unpack_sequence(name: str, data: Array, dims: Array, rows: Array) -> list[Array]:
    if len(rows) > _MAX_ARRAYS:
        raise unsupported_error(
            f"output '{name}'", [f"a sequence of {len(rows)} tensors; a call returns at most {_MAX_ARRAYS}"]
        )
    return unpack_arrays(data, dims, rows)


def _group_tensors_by_value(names: list[str], tensors: list[ModelValue]) -> tuple[list[ValueKind], list[ModelValue]]:
    """Return the kind and the description of each value in `names`, derived from the names of the program's tensors."""
    tensors_by_name = {tensor.name: tensor for tensor in tensors}
    kinds = []
    values = []
    for name in names:
        sequence, optional = f"{name}/data" in tensors_by_name, f"{name}/has" in tensors_by_name
        if name in tensors_by_name or not (sequence or optional):
            kinds.append(ValueKind(""))
            values.append(tensors_by_name[name])
            continue
        element = tensors_by_name[f"{name}/data" if sequence else f"{name}/element"]
        kinds.append(ValueKind(str(element.dtype), sequence, optional))
        kind_text = ("optional " if optional else "") + ("sequence" if sequence else "")
        values.append(ModelValue(name, element.dtype, None, kind_text.strip()))
    return kinds, values


def _pack_value(value: Any, kind: ValueKind, expected: ModelValue) -> list[Any]:
    packed: list[Any] = [np.array([value is not None])] if kind.optional else []
    if kind.sequence:
        arrays = [] if value is None and kind.optional else _check_sequence(value, expected)
        return packed + pack_arrays(arrays, expected.dtype)
    return [*packed, np.zeros(0, expected.dtype) if kind.optional and value is None else value]


def _check_sequence(value: Any, expected: ModelValue) -> list[Array]:
    if not isinstance(value, list | tuple):
        raise binding_error("K5", expected.name, f"a list of arrays of {expected.dtype}", type(value).__name__)
    arrays = [as_array(item, expected.name, f"arrays of {expected.dtype}") for item in value]
    for array in arrays:
        if array.dtype != expected.dtype:
            raise binding_error("K5", expected.name, f"arrays of {expected.dtype}", f"one of {array.dtype}")
    return arrays
