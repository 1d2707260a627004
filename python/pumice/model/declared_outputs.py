"""Compare a file's declarations of outputs with the actual outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..base.element_types import Array
from ..importer.build.non_tensor_values import ValueKind
from ..importer.file.graph_recipe import InputRecipe
from .model_values import ModelValue, format_shape


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
            dtype = _format_type(output)
            if declared.dtype and declared.dtype not in (dtype, dtype.replace("string", "int64")):
                self._warn(f"output '{output.name}' is declared as {declared.dtype}, but is {dtype}")
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
        matches = len(declared.shape) == len(shape)
        for declared_size, size in zip(declared.shape, shape, strict=False):
            matches = matches and (not isinstance(declared_size, int) or size is None or size == declared_size)
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
    if output.kind == "tensor":
        return dtype
    return str(ValueKind(dtype, "sequence" in output.kind, "optional" in output.kind))
