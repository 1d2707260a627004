"""The layers of the engine: who may include and import whom."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ["core", "device", "shader", "dispatch", "operators", "graph"]
MAY_INCLUDE = {layer: {*LAYERS[: position + 1]} for position, layer in enumerate(LAYERS)}
MAY_INCLUDE["dv"] = {*LAYERS[: LAYERS.index("operators") + 1], "dv"}

# Which folders may include the headers of other libraries; every other place may not.
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


def test_an_include_to_the_right_would_be_found() -> None:
    assert refused_layers([("cpp/device/x.h", '"', "shader/shader.h")])
    assert not refused_layers([("cpp/shader/x.h", '"', "device/context.h"), ("cpp/device/x.h", "<", "vector")])


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
