"""How a model was loaded, so that parts of it can be loaded in the same way, or in another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx

from .._pumice import Context
from ..base.element_types import Array
from ..importer.file.model_file import Folder, Source
from ..model.model import Model
from ..model.policy import Precision
from .cut import Cut, part_precision

if TYPE_CHECKING:
    from ..importer.kernel_operator import KernelTable
    from ..model.step_variants import StepVariants
    from .report import ValidationReport


class Setup(NamedTuple):
    """Where a model runs, at which precision, and with which options; and the tolerances by which it is judged."""

    context: Context
    precision: Precision
    fuse: bool | Sequence[str] = True
    deterministic: bool = False
    tolerances: Mapping[str, float] | None = None
    kernels: KernelTable | None = None
    variants: StepVariants | None = None  # measured ones of steps

    def load(self, part: onnx.ModelProto) -> Model:
        """Loads a part of the model in this way. Raises as loading does."""
        options: dict[str, Any] = {"fuse": self.fuse, "deterministic": self.deterministic, "kernels": self.kernels}
        options["tuned"] = self.variants or False
        return Model(part, self.context, part_precision(self.precision, part), progress=False, **options)


class Origin(NamedTuple):
    """What a report is of: the model's file, how it was loaded, and of each case the program's inputs and the model's, by name.

    validated: what a validation says of a part, loaded in some way. The maker of the report hands it on, so that what explains a report
    need not import what makes one.
    """

    source: Source
    folder: Folder | None
    overridable: tuple[str, ...]
    setup: Setup
    cases: list[tuple[dict[str, Array], dict[str, Any]]]
    validated: Callable[[Cut, Setup], ValidationReport]

    @staticmethod
    def of(
        model: Model,
        cases: list[tuple[dict[str, Array], dict[str, Any]]],
        tolerances: Mapping[str, float],
        validated: Callable[[Cut, Setup], ValidationReport],
    ) -> Origin:
        """The origin of a report on a model that was validated."""
        names = tuple(value.name for value in model.overridable)
        fusion = (model.fuse, model.deterministic)
        setup = Setup(model.context, model.policy, *fusion, tolerances, model.kernel_table, model.step_variants)
        strings = model._kept_strings
        cases = [(strings.texts(arrays), given) for arrays, given in cases] if strings else cases
        return Origin(model.source, model.folder, names, setup, cases, validated)

    def load(self) -> Model:
        """Loads the model itself once more. Raises as loading does."""
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
