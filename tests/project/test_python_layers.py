"""The stages of the Python package: allowed imports, and no import cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from pumice.importer.load_graph import _CODE_FOLDERS

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "pumice"
# Each stage may import earlier ones and itself. "" is the package's __init__; unlisted modules come last.
STAGES = [
    "_pumice",
    "base",
    "nnapi",
    "device",
    "importer.file",
    "importer.build",
    "importer.rewrites",
    "importer.translators",
    "importer",
    "model",
    "torch",
    "text",
    "testing",
    "validation.rules",
    "validation.report",
    "validation.reference",
    "validation.checker",
    "validation.search",
    "validation",
    "profiling",
    "dv",
    "onnx",
    "bench",
    "",
    "tools",
]
VALIDATION_FLOORS = 8  # modules of `validation` in the longest chain of imports


def modules() -> dict[str, Path]:
    """Return the modules by dotted name below the package; "" is the package itself."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found | {"_pumice": PACKAGE / "_pumice.pyi"}


def depth_of_imports(lines: list[tuple[str, str, bool]]) -> int:
    """Return the number of modules in the longest chain of imports. Raise CycleError if there is a cycle."""
    needs: dict[str, set[str]] = {}
    for module, target, _ in lines:
        needs.setdefault(module, set()).add(target)
    depth: dict[str, int] = {}
    for module in TopologicalSorter(needs).static_order():
        depth[module] = 1 + max((depth[target] for target in needs.get(module, ())), default=0)
    return max(depth.values())


def stage_of(module: str) -> int:
    places = (i for i, stage in enumerate(STAGES) if module == stage or (stage and module.startswith(f"{stage}.")))
    return next(places, len(STAGES))


def imported(module: str, path: Path, known: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield the package's modules that a module imports, and whether for run time (now or later) or for types only."""
    here = module.split(".") if module else []
    package = here if path.name == "__init__.py" else here[:-1]

    def walk(node: ast.AST, for_types: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            inner = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
            if isinstance(child, ast.ImportFrom) and child.level:
                base = [*package[: len(package) - child.level + 1], *(child.module.split(".") if child.module else [])]
                for alias in child.names:
                    inside = ".".join([*base, alias.name])
                    yield (inside if inside in known else ".".join(base)), not inner
            if isinstance(child, ast.Import):
                for alias in child.names:
                    if alias.name.startswith("pumice."):
                        yield alias.name.removeprefix("pumice."), not inner
            yield from walk(child, inner)

    yield from walk(ast.parse(path.read_text()), False)


def arrows() -> list[tuple[str, str, bool]]:
    found = modules()
    known = set(found)
    return [
        (module, target, is_loaded)
        for module, path in found.items()
        if path.suffix == ".py"
        for target, is_loaded in imported(module, path, known)
        if target in known and target != module
    ]


def circle_of(lines: list[tuple[str, str, bool]]) -> list[str]:
    """Return a cycle of modules that need each other at run time, counting imports inside functions.

    Type-only imports are ignored: naming Kernel in an annotation neither loads nor calls it.
    """
    needs: dict[str, set[str]] = {}
    for module, target, is_loaded in lines:
        if is_loaded:
            needs.setdefault(module, set()).add(target)
    try:
        tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def upward(lines: list[tuple[str, str, bool]]) -> list[str]:
    return [f"{module} imports {target}" for module, target, _ in lines if stage_of(target) > stage_of(module)]


def test_no_module_needs_itself() -> None:
    """There are no exceptions."""
    lines = arrows()
    assert len(lines) > 200
    assert not circle_of(lines)


def test_a_stage_imports_only_stages_before_it() -> None:
    """Imports inside functions count too: they are deferred for speed, not to hide a dependency."""
    assert not upward([line for line in arrows() if line[0] != ""])  # __init__ exports the names of all stages


def test_validation_has_few_floors_and_no_cycles() -> None:
    """Type-only imports count: a reader follows them too."""
    inside = [line for line in arrows() if all(name.startswith("validation.") for name in line[:2])]
    assert len(inside) > 200
    assert depth_of_imports(inside) <= VALIDATION_FLOORS


def test_what_makes_a_recipe_is_what_the_cache_stamps() -> None:
    """Modules used by parsing must be in folders whose files are hashed into the cache keys."""
    needs: dict[str, set[str]] = {}
    for module, target, _ in arrows():
        needs.setdefault(module, set()).add(target)
    reached, waiting = {"_pumice"}, ["importer.parse_onnx"]
    while waiting:
        if (module := waiting.pop()) not in reached:
            reached.add(module)
            waiting += needs.get(module, ())
    assert "importer.rewrites.rewrite_table" in reached
    assert {module.split(".")[0] for module in reached} == {"_pumice", *_CODE_FOLDERS}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_exists(stage: str) -> None:
    assert stage in modules()
