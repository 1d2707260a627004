"""Options with which a model was loaded, to load its subgraphs in the same way or with changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx

from ..._pumice import Context
from ...base.element_types import Array
from ...importer.file.model_file import Folder, Source
from ...model.model import Model
from ...model.precision_policy import Precision
from ..reference.subgraph_extraction import Subgraph, make_subgraph_precision

if TYPE_CHECKING:
    from ...importer.kernel_operator import KernelTable
    from ...model.step_variants import StepVariants
    from .report import ValidationReport


class ModelLoadSetup(NamedTuple):
    """Device, precision and load options of a model, and the tolerances used to validate it."""

    context: Context
    precision: Precision
    fuse: bool | Sequence[str] = True
    deterministic: bool = False
    tolerances: Mapping[str, float] | None = None
    kernels: KernelTable | None = None
    variants: StepVariants | None = None  # kernel variant chosen by measurement for each step

    def load_subgraph(self, subgraph: onnx.ModelProto) -> Model:
        """Load a subgraph with this setup. Raise whatever loading a model raises."""
        options: dict[str, Any] = {"fuse": self.fuse, "deterministic": self.deterministic, "kernels": self.kernels}
        options["tuned"] = self.variants or False
        return Model(
            subgraph, self.context, make_subgraph_precision(self.precision, subgraph), progress=False, **options
        )


class ReportOrigin(NamedTuple):
    """What a report was made from: the model file, its setup, and for each case the program's and the model's inputs.

    validate_subgraph: function that validates a subgraph with a setup; passed in to avoid a circular import of validate.
    """

    source: Source
    folder: Folder | None
    overridable: tuple[str, ...]
    setup: ModelLoadSetup
    cases: list[tuple[dict[str, Array], dict[str, Any]]]
    validate_subgraph: Callable[[Subgraph, ModelLoadSetup], ValidationReport]

    @staticmethod
    def from_model(
        model: Model,
        cases: list[tuple[dict[str, Array], dict[str, Any]]],
        tolerances: Mapping[str, float],
        validate_subgraph: Callable[[Subgraph, ModelLoadSetup], ValidationReport],
    ) -> ReportOrigin:
        """Return the origin of the report on a validated model."""
        names = tuple(value.name for value in model.overridable)
        fusion = (model.fuse, model.deterministic)
        setup = ModelLoadSetup(
            model.context, model.policy, *fusion, tolerances, model.kernel_table, model.step_variants
        )
        strings = model._tensor_strings
        cases = [(strings.decode_tensors(arrays), inputs) for arrays, inputs in cases] if strings else cases
        return ReportOrigin(model.source, model.folder, names, setup, cases, validate_subgraph)

    def load_model(self) -> Model:
        """Load the model again. Raise whatever loading a model raises."""
        setup, names = self.setup, list(self.overridable)
        return Model(
            self.source,
            setup.context,
            setup.precision,
            folder=self.folder,
            overridable=names,
            progress=False,
            kernels=setup.kernels,
            tuned=setup.variants or False,
        )
