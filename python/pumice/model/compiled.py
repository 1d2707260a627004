"""Compile a model file to a program: the parsing, choice of settings and compilation that precede a Model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._pumice import Context, UploadMemory
from ..device.context import checked_context, default_context, made_default_context
from ..importer.file.model_file import bytes_of, reread
from ..importer.load import graph_of, load_recipe
from .load_options import chosen_policy, chosen_variants, kernel_table, listed, shown_bar

if TYPE_CHECKING:
    from .._pumice import Program
    from ..importer.file.model_file import Folder, Source
    from .precision_policy import Precision


class CompiledModel:
    """A program, its Recipe, and the settings chosen for it. (Not a dataclass, which would take longer to define than
    all the rest.)

    source, folder: the model with user-defined operators added as functions, and the folder of its weights. fuse,
    overridable: lists if the caller passed names. kernel_table: None without user kernels. float32_nodes: nodes that
    the policy puts in fp32. variants: measured kernel variants; None for the engine's own choices.
    """

    def __init__(
        self, source: Source, context: Context | None, precision: Precision, wanted: Mapping[str, Any]
    ) -> None:
        """wanted: the other arguments of Model by name. Raise as Model does."""
        given, self.policy = checked_context(context), chosen_policy(precision)
        self.source, self.folder = _with_operators(reread(source), wanted)
        kernels = wanted["kernels"]
        self.kernel_table = None if kernels is None else kernel_table(kernels)
        self.fuse, self.overridable = listed(wanted["fuse"], "fuse"), listed(wanted["overridable"], "overridable")
        with shown_bar("nodes", wanted["progress"]) as bar:
            # Do not create a context yet: the model may turn out to be unsupported.
            made = made_default_context() if given is None else given
            memory = UploadMemory(made, bytes_of(self.source)) if made else None
            self.recipe = load_recipe(self.source, self.folder, self.overridable)
            if memory:
                memory.expect(self.recipe.stored_bytes(self.policy.precision))
            float32 = self.policy.float32_nodes()
            if self.kernel_table is not None and self.kernel_table is not kernels:
                self.kernel_table.check_used(self.recipe)
            graph = graph_of(self.recipe, bar, float32, self.kernel_table)
            self.policy.check_met(self.recipe.name)
            self.context = given or made or default_context()
            self.variants = chosen_variants(self.context, wanted["tuned"])
            self.float32_nodes = float32.names if float32 else []
            self.program: Program = graph.compile(
                self.context,
                self.policy.precision,
                fuse=self.fuse,
                progress=bar.phase if bar else None,
                memory=memory,
                check_indices=wanted["check_indices"],
                deterministic=wanted["deterministic"],
                float32_nodes=self.float32_nodes,
                measured=self.variants,
                list_variants=self.variants is not None and self.variants.lists,
            )


def _with_operators(source: Source, wanted: Mapping[str, Any]) -> tuple[Source, Folder | None]:
    """Return the model with user-defined operators added as functions, and the folder of its weights."""
    if not wanted["operators"]:
        return source, wanted["folder"]
    from ..importer.expression_operator import with_operators

    return with_operators(source, wanted["folder"], wanted["operators"])
