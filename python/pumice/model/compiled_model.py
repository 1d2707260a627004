"""Compile a model file to a program for Model: parse it, resolve the options and compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._pumice import Context, UploadMemory
from ..device.context import default_context, get_existing_default_context, validate_context
from ..importer.file.model_file import get_source_size, make_rereadable
from ..importer.load_graph import build_recipe_graph, load_graph, load_recipe
from .load_options import make_kernel_table, make_progress_bar, parse_names, resolve_policy, resolve_tuned_variants

if TYPE_CHECKING:
    from .._pumice import Program
    from ..importer.file.model_file import Folder, Source
    from .load_options import ModelOptions
    from .precision_policy import Precision


class CompiledModel:
    """A compiled program, its GraphRecipe and the resolved options. Not a dataclass, to keep the import fast.

    source, folder: the model with user-defined operators added as functions, and the folder of its weights files. fuse,
    overridable: lists if the caller passed names. kernel_table: None without user kernels. float32_nodes: names of the nodes that
    the policy keeps in fp32. variants: measured kernel variants; None: the engine's own choices.
    """

    def __init__(self, source: Source, context: Context | None, precision: Precision, options: ModelOptions) -> None:
        """Raise the errors of Model."""
        explicit_context, self.policy = validate_context(context), resolve_policy(precision)
        self.fuse = parse_names(options.fuse, "fuse")
        self.overridable = parse_names(options.overridable, "overridable")
        float32_selection = self.policy.make_float32_collector()
        progress = make_progress_bar("nodes", options.progress)
        self.source, self.folder = make_rereadable(source), options.folder
        if options.operators:
            self.source, self.folder = _add_operator_functions(self.source, options)
        kernels = options.kernels
        self.kernel_table = None if kernels is None else make_kernel_table(kernels)
        with progress as bar:
            # Do not create a context before the model is known to be supported.
            existing_context = get_existing_default_context() if explicit_context is None else explicit_context
            memory = UploadMemory(existing_context, get_source_size(self.source)) if existing_context else None
            if self.kernel_table is None:
                graph, self.recipe = load_graph(self.source, self.folder, bar, self.overridable, float32_selection)
            else:
                self.recipe = load_recipe(self.source, self.folder, self.overridable)
                if self.kernel_table is not kernels:
                    self.kernel_table.check_all_used(self.recipe)
                graph = build_recipe_graph(self.recipe, bar, float32_selection, self.kernel_table)
            self.policy.check_all_matched(self.recipe.name)
            self.context = explicit_context or existing_context or default_context()
            self.variants = resolve_tuned_variants(self.context, options.tuned)
            self.float32_nodes = float32_selection.names if float32_selection else []
            self.program: Program = graph.compile(
                self.context,
                self.policy.precision,
                fuse=self.fuse,
                progress=bar.set_phase if bar else None,
                memory=memory,
                check_indices=options.check_indices,
                deterministic=options.deterministic,
                float32_nodes=self.float32_nodes,
                measured=self.variants,
                list_variants=self.variants is not None and self.variants.lists_variants,
            )


def _add_operator_functions(source: Source, options: ModelOptions) -> tuple[Source, Folder | None]:
    """Return the model with user-defined operators added as functions, and the folder of its weights files."""
    from ..importer.expression_operator import add_operator_functions

    return add_operator_functions(source, options.folder, options.operators)
