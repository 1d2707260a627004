"""Load models. Recipes are cached on disk, so later processes need neither the onnx package nor its parser.

The cache key is a hash of the model file without its weights and of the importer's version. An entry contains the recipe's
structure as JSON. Its constants are offsets into the model file or an external weights file, so a warm start memory-maps the
weights. A truncated, corrupt or foreign entry is detected and rebuilt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pumice._pumice as _pumice

from .._pumice import (
    Graph,
    __version__,
    build_cached_graph,
    cache_directory,
    read_cache_entry,
    sha256,
    write_cache_entry,
)
from ..base.element_types import BITS, Bytes, count_bytes
from .build.builder import build_graph
from .file.graph_recipe import (
    Attribute,
    ConstantRecipe,
    GraphRecipe,
    InputRecipe,
    NodeRecipe,
    Overridable,
    TensorLocation,
)
from .file.model_file import Folder, ModelFile, Source
from .file.weight_files import make_weight_state_key

if TYPE_CHECKING:
    from .build.builder import TranslatorTable
    from .build.float32_node_collector import Float32NodeCollector
    from .kernel_operator import KernelTable

_CACHE_KIND = "graphs"
_CODE_FOLDERS = ("base", "importer")  # package folders whose code affects recipes
_INLINE_FILE = -1  # file index of constants that are stored in the entry itself
_MAX_INLINE_BYTES = 64 << 20  # recipes with more inline bytes are not cached: reading them back would save no time


@cache
def _get_importer_version() -> str:
    """Return the package version plus sizes and mtimes of the importer's and engine's files, which change without a new version.

    The result is cached, because a process keeps running the code that it has loaded.
    """
    package = os.path.dirname(os.path.dirname(__file__))
    files = [file for stage in _CODE_FOLDERS for file in _find_modules(os.path.join(package, stage))]
    stamps = []
    for file in [*files, _pumice.__file__]:
        try:
            status = os.stat(file)
        except OSError:
            continue
        stamps.append(f"{os.path.basename(file)}.{status.st_size}.{status.st_mtime_ns}")
    return " ".join([__version__, *stamps])


def _find_modules(folder: str) -> list[str]:
    """Return the paths of all modules below a folder. Bytecode folders are skipped: every process's first load waits for this."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    modules = [f"{folder}/{name}" for name in names if name.endswith(".py")]
    # Names without a dot are subpackages.
    subfolders = [name for name in names if "." not in name and name != "__pycache__"]
    return modules + [module for name in subfolders for module in _find_modules(f"{folder}/{name}")]


def _make_cache_key(file: ModelFile, overridable: Overridable) -> str | None:
    """Return the cache key of a model; None if caching is disabled.

    It hashes the file without the data of large tensors (a recipe stores only their offsets), and the sizes and mtimes of the
    weights files (from which the importer reads small tensors).
    """
    if cache_directory() is None:
        return None
    overridable_key = overridable is True or sorted(set(overridable or ()))
    return sha256(
        file.stripped_data, f"{_get_importer_version()} {overridable_key} {make_weight_state_key(file)}".encode()
    )


# ---- serialisation of recipes


class _RecipeEncoder:
    """Serialises a recipe into a cache entry."""

    def __init__(self) -> None:
        self.files: list[str] = [""]
        self.inline = bytearray()

    def convert_constant(self, constant: ConstantRecipe) -> list[Any]:
        file, offset = self._get_file_offset(constant)
        return [constant.name, constant.dtype, constant.shape, file, offset]

    def _get_file_offset(self, constant: ConstantRecipe) -> tuple[int, int]:
        if constant.tensor_location:
            if constant.tensor_location.file not in self.files:
                self.files.append(constant.tensor_location.file)
            return self.files.index(constant.tensor_location.file), constant.tensor_location.offset
        self.inline += constant.raw
        return _INLINE_FILE, len(self.inline) - len(constant.raw)

    def convert_node(self, node: NodeRecipe) -> list[Any]:
        attributes = {name: self.convert_attribute(value) for name, value in node.attributes.items()}
        return [node.op, node.name, node.inputs, node.outputs, attributes, node.domain]

    def convert_attribute(self, value: Attribute) -> Any:
        if isinstance(value, ConstantRecipe):
            return {"tensor": self.convert_constant(value)}
        return {"graph": self.convert_graph(value)} if isinstance(value, GraphRecipe) else value

    def convert_graph(self, recipe: GraphRecipe) -> dict[str, Any]:
        return {
            "name": recipe.name,
            "inputs": recipe.inputs,
            "constants": [self.convert_constant(constant) for constant in recipe.constants.values()],
            "nodes": [self.convert_node(node) for node in recipe.nodes],
            "outputs": recipe.outputs,
            "captured": recipe.captured,
        }

    def encode(self, recipe: GraphRecipe) -> bytes | None:
        structure = {
            **self.convert_graph(recipe),
            "defaults": [self.convert_constant(constant) for constant in recipe.defaults.values()],
            "overridable": recipe.overridable,
            "strings": recipe.strings,
            "string_values": recipe.string_values,
            "plain": recipe.plain,
            "files": self.files,
            "metadata": dict(recipe.metadata),
            "warnings": recipe.warnings,
        }
        if len(self.inline) > _MAX_INLINE_BYTES:
            return None
        return pack_cache_entry(structure, bytes(self.inline))


def pack_cache_entry(structure: dict[str, Any], inline: bytes) -> bytes:
    """Return the bytes of an entry: the length of the JSON (8 bytes), the JSON, and the inline constants."""
    text = json.dumps(structure, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + inline


class _RecipeDecoder:
    """Deserialises a recipe from a cache entry. Raise ValueError, KeyError, TypeError or IndexError if the entry is invalid."""

    def __init__(self, entry: bytes, file: ModelFile) -> None:
        length = int.from_bytes(entry[:8], "little")
        self.structure: dict[str, Any] = json.loads(entry[8 : 8 + length])
        self.file = file
        self.inline = memoryview(entry)[8 + length :]

    def _get_file_bytes(self, index: int, name: str) -> tuple[Bytes, str]:
        if index == _INLINE_FILE:
            return self.inline, ""
        location = self.structure["files"][index]
        return (self.file.read_external(location, name), location) if index else (self.file.data or b"", "")

    def convert_constant(self, record: list[Any]) -> ConstantRecipe:
        name, dtype, shape, index, offset = record
        if dtype not in BITS:
            raise ValueError(f"unknown element type {dtype}")
        data, location = self._get_file_bytes(index, name)
        size = count_bytes(dtype, shape)
        raw = memoryview(data)[offset : offset + size]
        if offset < 0 or len(raw) != size:
            raise ValueError(f"'{name}' is outside its file")
        return ConstantRecipe(name, dtype, shape, raw, TensorLocation(location, offset))

    def convert_node(self, record: list[Any]) -> NodeRecipe:
        op, name, inputs, outputs, encoded_attributes, domain = record
        attributes = {key: self.convert_attribute(value) for key, value in encoded_attributes.items()}
        return NodeRecipe(op, name, inputs, outputs, attributes, domain)

    def convert_attribute(self, value: Any) -> Attribute:
        if not isinstance(value, dict):
            return value  # type: ignore[no-any-return]
        return self.convert_constant(value["tensor"]) if "tensor" in value else self.convert_graph(value["graph"])

    def convert_graph(self, structure: dict[str, Any]) -> GraphRecipe:
        constants = [self.convert_constant(record) for record in structure["constants"]]
        return GraphRecipe(
            structure["name"],
            [InputRecipe(*value) for value in structure["inputs"]],
            {constant.name: constant for constant in constants},
            [self.convert_node(record) for record in structure["nodes"]],
            [InputRecipe(*value) for value in structure["outputs"]],
            [],
            structure["captured"],
        )

    def decode(self) -> GraphRecipe:
        return self._add_model_fields(self.convert_graph(self.structure))

    def _add_model_fields(self, recipe: GraphRecipe) -> GraphRecipe:
        defaults = [self.convert_constant(record) for record in self.structure["defaults"]]
        return recipe._replace(
            metadata=dict(self.structure["metadata"]),
            overridable=self.structure["overridable"],
            strings=self.structure["strings"],
            string_values=self.structure["string_values"],
            plain=self.structure["plain"],
            warnings=self.structure["warnings"],
            defaults={constant.name: constant for constant in defaults},
        )

    def build_graph(self) -> tuple[Graph, GraphRecipe] | None:
        """Return the engine's Graph and the recipe without nodes and constants; None if a node needs a translator."""
        structure = self.structure
        if not structure["plain"] or any("(" in dtype for _, dtype, *_ in structure["inputs"]):
            return None
        weights = [self.file.read_external(location, structure["name"]) for location in structure["files"][1:]]
        graph = build_cached_graph(structure, [self.inline, self.file.data or b"", *weights])
        return graph, self._add_model_fields(self.convert_graph({**structure, "constants": (), "nodes": ()}))


# ---- loading of recipes and graphs


def get_translators(recipe: GraphRecipe) -> TranslatorTable:
    """Return the translators of operators that expand to several engine nodes; empty if the recipe does not use any.

    They are imported only if needed: importing their dozen modules takes as long as loading a small model.
    """
    if recipe.plain:
        return {}
    from .translators.operator_table import TRANSLATORS

    return TRANSLATORS


def _read_entry(key: str | None, file: ModelFile) -> _RecipeDecoder | None:
    """Return the decoder of the entry with this key; None without one."""
    entry = None if key is None else read_cache_entry(_CACHE_KIND, key)
    try:
        return None if entry is None else _RecipeDecoder(entry, file)
    except ValueError:
        return None


def _load_recipe(
    key: str | None, entry: _RecipeDecoder | None, file: ModelFile, overridable: Overridable
) -> GraphRecipe:
    if entry:
        try:
            return entry.decode()
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            pass  # not written by this version
    from .parse_onnx import make_recipe, parse_model

    recipe = make_recipe(parse_model(file), file, overridable)
    if key is not None and file.is_cacheable and recipe.is_complete:
        encoded = _RecipeEncoder().encode(recipe)
        if encoded is not None:
            write_cache_entry(_CACHE_KIND, key, encoded)
    return recipe


def _open(
    source: Source, folder: Folder | None, overridable: Overridable
) -> tuple[ModelFile, str | None, _RecipeDecoder | None]:
    file = ModelFile(source, folder)
    key = None if file.data is None else _make_cache_key(file, overridable)
    return file, key, _read_entry(key, file)


def load_recipe(source: Source, folder: Folder | None = None, overridable: Overridable = False) -> GraphRecipe:
    """Return the recipe of a model from the cache, or parse the model and cache the recipe.

    Raise GraphError if the model is invalid, BindingError for an unknown overridable name, OSError if a file is unreadable.
    """
    file, key, entry = _open(source, folder, overridable)
    return _load_recipe(key, entry, file, overridable)


def load_graph(
    source: Source,
    folder: Folder | None = None,
    progress: Callable[[int, int], None] | None = None,
    overridable: Overridable = False,
    float32: Float32NodeCollector | None = None,
    kernels: KernelTable | None = None,
) -> tuple[Graph, GraphRecipe]:
    """Load a model; return the engine's Graph and the recipe.

    A cached graph is built without its recipe's nodes and constants, unless `float32` or `kernels` need them.
    overridable: see make_recipe. progress, float32, kernels: see build_recipe_graph. Raise the errors of load_recipe and
    build_recipe_graph.
    """
    file, key, entry = _open(source, folder, overridable)
    if entry and float32 is None and kernels is None:
        try:
            built = entry.build_graph()
        except Exception:  # an error of the model, or not an entry of this version: the recipe tells which
            built = None
        if built:
            if progress:
                progress(len(built[0]), len(built[0]))
            return built
    recipe = _load_recipe(key, entry, file, overridable)
    return build_recipe_graph(recipe, progress, float32, kernels), recipe


def build_recipe_graph(
    recipe: GraphRecipe,
    progress: Callable[[int, int], None] | None = None,
    float32: Float32NodeCollector | None = None,
    kernels: KernelTable | None = None,
) -> Graph:
    """Build the engine's Graph from a recipe. progress, float32: see build_graph. kernels: user kernels by operator.

    Raise UnsupportedError listing everything unsupported, GraphError if the model is invalid.
    """
    translators = get_translators(recipe)
    return build_graph(
        recipe, kernels.with_kernel_translators(translators) if kernels else translators, progress, float32
    )
