"""The layers of the engine: allowed includes and imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ["core", "device", "shader", "dispatch", "operators", "graph"]
MAY_INCLUDE = {layer: {*LAYERS[: position + 1]} for position, layer in enumerate(LAYERS)}
MAY_INCLUDE["dv"] = {*LAYERS[: LAYERS.index("operators") + 1], "dv"}

# The folders of each layer, lowest first; "" is the layer's top folder. A folder includes only earlier folders. New
# folders must be added here.
ORDER = {
    "core": ["", "files"],
    "device": ["driver", ""],
    "shader": ["glslang", "source", "preamble", "spirv", "debug", "", "int64"],
    "dispatch": ["kernel", ""],
    "operators": [
        *("expression", "table", "geometry", "host", "common"),
        *("elementwise", "reduction", "sort", "signal", "attention"),
        *("conv_gemm", "index", "resize", "normalization", "quantize", "random", "ml"),
        *("recurrent", "window", "user"),
        "compiled",
    ],
    "graph": ["description", "nnapi", "passes", "binding", "region", "control_flow", "program"],
    "dv": ["include", "memory", "weights", "commands", "", "c"],
}

# Folders that may include the headers of other libraries; all others may not.
FOREIGN = {
    r"(vulkan|volk)": r"cpp/device/((driver/)?[^/]*\.cpp|driver/vulkan\.h)",
    r"(glslang|SPIRV)": r"cpp/shader/glslang/",
    r"(pybind11|Python\.h)": r"src/",
}


def includes(folder: str) -> Iterator[tuple[str, str, str]]:
    """(file, "<" or a quote, path) of every #include line."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in {".h", ".cpp"}:
            for mark, target in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', path.read_text(), re.MULTILINE):
                yield path.relative_to(ROOT).as_posix(), mark, target


def refused_layers(lines: list[tuple[str, str, str]]) -> list[str]:
    refused = []
    for file, mark, target in lines:
        layer = file.split("/")[1]
        if mark == '"' and "/" in target and target.split("/")[0] not in MAY_INCLUDE[layer]:
            refused.append(f'{file} includes "{target}": {layer} may include {sorted(MAY_INCLUDE[layer])}')
    return refused


def test_each_layer_includes_only_layers_to_its_left() -> None:
    lines = list(includes("cpp"))
    assert {file.split("/")[1] for file, _, _ in lines} >= {*LAYERS}
    assert not refused_layers(lines)


Arrows = dict[str, set[str]]


def unit_arrows(lines: Iterable[tuple[str, str, str]]) -> Arrows:
    """Return the includes between units of cpp/, without "cpp/" and suffix: a unit is a header and its source file."""
    arrows: Arrows = {}
    for file, mark, target in lines:
        unit = re.sub(r"^cpp/|\.\w+$", "", file)
        included = target if "/" in target else f"{unit.rpartition('/')[0]}/{target}"
        arrows.setdefault(unit, set())
        if mark == '"':
            arrows[unit].add(included.rpartition(".")[0])
    return {unit: {other for other in others if other != unit and other in arrows} for unit, others in arrows.items()}


def folder_arrows(arrows: Arrows) -> Arrows:
    folders: Arrows = {}
    for unit, others in arrows.items():
        folder = unit.rpartition("/")[0]
        folders.setdefault(folder, set()).update({other.rpartition("/")[0] for other in others} - {folder})
    return folders


def circle(arrows: Arrows) -> list[str]:
    """Return a cycle of the include graph; empty if there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return [*error.args[1]]
    return []


def refused_order(folders: Arrows) -> list[str]:
    """Return errors for includes of a later folder within a layer, and for folders not in ORDER."""
    refused = []
    for folder, others in folders.items():
        layer, _, part = folder.partition("/")
        order = ORDER[layer]
        if part not in order:
            refused.append(f"cpp/{folder} has no place in ORDER['{layer}']")
            continue
        for other in sorted(others):
            target, _, other_part = other.partition("/")
            if target == layer and other_part in order and order.index(other_part) > order.index(part):
                refused.append(f"cpp/{folder} includes cpp/{other}, which comes after it in ORDER['{layer}']")
    return refused


# Allowed cycles of at most six units, each with its reason.
MUTUAL = {
    # A composition step may exceed a binding range and be lowered in parts, which are composed of steps in turn.
    ("operators/common/composite_lowering", "operators/common/split_node"),
}


def test_no_include_cycles() -> None:
    arrows = unit_arrows(includes("cpp"))
    assert len(arrows) > 250
    assert all(target in arrows[unit] and unit in arrows[target] for unit, target in MUTUAL), "no circle any more"
    assert len({one for pair in MUTUAL for one in pair}) <= 6
    assert not circle({unit: {one for one in targets if (unit, one) not in MUTUAL} for unit, targets in arrows.items()})


def test_the_folders_of_a_layer_include_those_before_them() -> None:
    folders = folder_arrows(unit_arrows(includes("cpp")))
    assert not refused_order(folders)
    assert not circle(folders)
    missing = [f"{layer}/{part}".rstrip("/") for layer, parts in ORDER.items() for part in parts]
    assert {*missing} <= {*folders}, "ORDER names folders that there are no longer"


def test_headers_of_other_libraries_stay_in_their_folder() -> None:
    for library, place in FOREIGN.items():
        users = [
            (file, target)
            for folder in ("cpp", "src")
            for file, mark, target in includes(folder)
            if mark == "<" and re.match(library, target)
        ]
        assert users, f"nobody includes {library}: is this rule still needed?"
        assert not [f"{file}: <{target}>" for file, target in users if not re.match(place, file)]


def test_python_imports_only_what_pyproject_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(r for extra in project["optional-dependencies"].values() for r in extra),
    ]
    declared = {re.split(r"[^\w-]", requirement)[0].replace("-", "_").lower() for requirement in requirements}
    known = {*sys.stdlib_module_names, "pumice", *declared}
    known |= {"PIL"} if "pillow" in declared else set()
    known |= {"IPython"} if "ipython" in declared else set()
    unknown = []
    for path in sorted((ROOT / "python").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            unknown += [f"{path.relative_to(ROOT)}: {name}" for name in names if name.split(".")[0] not in known]
    assert not unknown
