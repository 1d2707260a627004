"""Compare a file's declarations of outputs with the actual outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base.element_types import Array
from ..importer.build.non_tensor_values import ValueKind
from ..importer.file.graph_recipe import InputRecipe
from .model_values import ModelValue, format_shape


def make_dimensions(shape: Any, names: Any) -> tuple[int | str | None, ...] | None:
    """Return each size of a shape as a number, or as its name or None if it is unknown (None or negative)."""
    if shape is None:
        return None
    padded_names = list(names) + [""] * (len(shape) - len(names))
    return tuple(
        (name or None) if size is None or size < 0 else int(size)
        for size, name in zip(shape, padded_names, strict=True)
    )


def merge_declared_shape(output: ModelValue, declared: InputRecipe | None) -> ModelValue:
    """Return the output with names from the file for sizes that the engine does not know."""
    if declared is None or declared.shape is None:
        return output
    declared_sizes = make_dimensions(declared.shape, declared.dimension_names) or ()
    if output.shape is None:
        return output._replace(shape=declared_sizes)
    if len(declared_sizes) != len(output.shape):
        return output
    shape = tuple(
        engine_size if engine_size is not None else declared_size if isinstance(declared_size, str) else None
        for engine_size, declared_size in zip(output.shape, declared_sizes, strict=True)
    )
    return output._replace(shape=shape)


class DeclaredOutputs:
    """The outputs as declared in a model file.

    A wrong declaration is not an error, because the engine does not rely on it. It is reported with `warn`.
    """

    def __init__(self, declared: Sequence[InputRecipe], warn: Callable[[str], None]) -> None:
        self._declared = {value.name: value for value in declared}
        self._warn = warn
        self._warned_outputs: set[str] = set()  # outputs with a reported shape mismatch; it is reported once

    def check_types_and_shapes(self, outputs: Sequence[ModelValue]) -> None:
        """Compare the types and shapes that are known before a call with the declarations."""
        for output in outputs:
            declared = self._declared.get(output.name)
            if declared is None:
                continue
            # The recipe declares strings as int64 indices; see importer/rewrites/string_to_index.py.
            types = (_format_type(output), _format_type(output).replace("string", "int64"))
            if declared.dtype and declared.dtype not in types:
                self._warn(f"output '{output.name}' is declared as {declared.dtype}, but is {_format_type(output)}")
            if output.kind == "tensor":
                self._compare_shape(declared, output.shape)

    def check_shapes(self, outputs: Sequence[ModelValue], results: Sequence[Array]) -> None:
        """Compare the shapes of a call's results with the declarations. All outputs must be tensors."""
        for output, result in zip(outputs, results, strict=True):
            if (declared := self._declared.get(output.name)) is not None:
                self._compare_shape(declared, result.shape)

    def _compare_shape(self, declared: InputRecipe, shape: Sequence[int | str | None] | None) -> None:
        if declared.shape is None or shape is None or declared.name in self._warned_outputs:
            return
        pairs = zip(declared.shape, shape, strict=False)
        matches = len(declared.shape) == len(shape) and not any(
            isinstance(declared_size, int) and size is not None and size != declared_size
            for size, declared_size in pairs
        )
        if not matches:
            self._warned_outputs.add(declared.name)
            sizes_and_names = zip(declared.shape, declared.dimension_names, strict=True)
            declared_text = format_shape([name or None if size is None else size for size, name in sizes_and_names])
            self._warn(
                f"output '{declared.name}' is declared with shape {declared_text}, but has shape {format_shape(shape)}"
            )


def _format_type(output: ModelValue) -> str:
    """Return the type of an output in the syntax of ValueKind.parse()."""
    dtype = "string" if output.dtype == object else str(output.dtype)
    return str(ValueKind(dtype, "sequence" in output.kind, "optional" in output.kind))
