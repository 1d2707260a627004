"""The installed package: the extension, its stub and types, import time, libraries, a machine without Vulkan."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import numpy as np
import numpy.typing
import pytest

import pumice
import pumice._pumice
import stubs
from process import NO_DRIVER, output_of

CONFIGURATION = tomllib.loads((stubs.STUB.parents[2] / "pyproject.toml").read_text())
PROJECT = CONFIGURATION["project"]
PACKAGE = Path(pumice.__file__).parent
LIBRARIES = Path(pumice._pumice.__file__).parent
SANITIZED = "PUMICE_SANITIZED" in os.environ
STAGED = (PACKAGE / "__init__.py").is_symlink()  # a development build: unstripped libraries, glslang in another folder

CALLS_OF_A_LOAD, MODULE_CHANGES_OF_A_LOAD = 60, 19

HAS_METADATA = any(importlib.metadata.distributions(name="pumice"))

needs_metadata = pytest.mark.skipif(not HAS_METADATA, reason="the package is not installed, but on sys.path")
needs_speed = pytest.mark.skipif(SANITIZED, reason="times mean nothing under the sanitizers")


# ---- the stub and the types


def names(stub: str) -> set[str]:
    """Return every class, function and parameter, dotted."""
    found = set()

    def visit(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                if child.name in ("__buffer__", "__release_buffer__"):
                    continue  # only shown by Python 3.12 and later
                found.add(f"{path}.{child.name}")
                visit(child, f"{path}.{child.name}")
            elif isinstance(child, ast.arguments):
                found.update(f"{path}({a.arg})" for a in [*child.posonlyargs, *child.args, *child.kwonlyargs])

    visit(ast.parse(stub), "")
    return found


def test_stub_names_what_the_extension_has() -> None:
    assert names(stubs.STUB.read_text()) == names(stubs.generate()), "stale: ./dev stubs"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the text is compared on the Python that wrote it")
def test_stub_is_current() -> None:
    assert stubs.STUB.read_text() == stubs.generate(), "stale: ./dev stubs"


def mypy(path: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=build/mypy-cache", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=stubs.STUB.parents[2])


@needs_metadata
def test_mypy_strict_accepts_a_consumer() -> None:
    done = mypy(Path(__file__).resolve().parents[1] / "support" / "consumer_sample.py")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_metadata
def test_mypy_strict_sees_a_consumers_mistake(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import pumice\n\npumice.Context(device=1.5)\npumice.devices()[0].nmae\n")
    done = mypy(tmp_path / "wrong.py")
    assert "arg-type" in done.stdout or "call-overload" in done.stdout, done.stdout + done.stderr
    assert "attr-defined" in done.stdout, done.stdout


def test_version_is_the_projects() -> None:
    assert pumice.__version__ == PROJECT["version"]


def test_the_list_of_changes_begins_with_the_version() -> None:
    changes = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (\S+)", changes, re.MULTILINE)
    assert versions[0] == PROJECT["version"]
    assert len({*versions}) == len(versions)


@needs_metadata
def test_version_is_the_installed_one() -> None:
    assert pumice.__version__ == importlib.metadata.version("pumice")


# ---- import time


def test_import_prints_nothing_and_loads_neither_onnx_nor_a_driver() -> None:
    code = """
import json, sys
import pumice
maps = open("/proc/self/maps").read()
print(json.dumps([[n for n in ("onnx", "rich", "PIL", "IPython", "matplotlib") if n in sys.modules],
                  [n for n in ("libvulkan.so", "libglslang", "libSPIRV") if n in maps]]))
"""
    environment = {"LD_PRELOAD": ""} if not SANITIZED else {}
    assert json.loads(output_of("-c", code, **environment)) == [[], []]


def test_import_brings_no_slow_modules() -> None:
    code = """
import json, sys
import numpy
before = {*sys.modules}
import pumice
print(json.dumps(sorted({*sys.modules} - before)))
"""
    brought = set(json.loads(output_of("-c", code)))
    assert not brought & {"threading", "numpy.typing", "logging", "dataclasses", "pumice.importer", "pumice.validation"}


def test_a_warm_load_brings_no_slow_modules_and_makes_few_calls(tmp_path: Path) -> None:
    """A load from the cache goes from the file to a Graph in C++: Python code runs per model, not per node."""
    code = f"""
import sys
import numpy
import pumice
context = pumice.Context()
calls = modules = 0
last = None
def count(frame, event, _):
    global calls, modules, last
    name = frame.f_code.co_filename
    # Python 3.12 calls no function for most comprehensions.
    if event == "call" and "pumice" in name and frame.f_code.co_name[0] != "<":
        calls, modules, last = calls + 1, modules + (last is not None and name != last), name
path = {str(pumice.demo.DATA / "digits.onnx")!r}
before = {{*sys.modules}}
pumice.load(path, context)
brought = {{*sys.modules}} - before
sys.setprofile(count)
pumice.load(path, context)
sys.setprofile(None)
names = ("onnx", "rich", "logging", "pumice.importer.translators", "pumice.validation")
print([name for name in names if name in brought], calls, modules)
"""
    environment = {"PUMICE_CACHE_DIR": str(tmp_path)}
    output_of("-c", code, **environment)  # creates the recipe, with the package onnx
    slow, calls, modules = output_of("-c", code, **environment).rsplit(" ", 2)
    assert slow == "[]"
    assert int(calls) <= CALLS_OF_A_LOAD
    assert int(modules) <= MODULE_CHANGES_OF_A_LOAD


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 imports its masked arrays itself")
def test_a_tensor_brings_no_masked_arrays() -> None:
    """NumPy takes 8 ms to import them, and a masked array exists only if somebody else imported them."""
    code = """
import sys
import numpy
import pumice
pumice.tensor(numpy.zeros(4, "float32"), pumice.Context())
print("numpy.ma" in sys.modules)
"""
    assert output_of("-c", code).strip() == "False"


@needs_speed
def test_import_costs_under_60_ms_of_processor_time_beyond_numpy() -> None:
    code = "import time, numpy; start = time.process_time(); import pumice; print(time.process_time() - start)"
    output_of("-c", code)  # writes the bytecode
    assert min(float(output_of("-c", code)) for _ in range(5)) < 0.060


# ---- files and libraries


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the libraries as a wheel has them: stripped, with glslang beside them."""
    if not STAGED:
        return LIBRARIES
    cmake = shutil.which("cmake", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if cmake is None:
        pytest.skip("no cmake, which installs a development build")
    folder = tmp_path_factory.mktemp("installed")
    command = [cmake, "--install", str(LIBRARIES.parents[1]), "--prefix", str(folder), "--strip"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "pumice"


def test_installed_size_is_under_35_mb(installed: Path) -> None:
    files = [*installed.rglob("*.so*"), *stubs.STUB.parent.rglob("*")]
    assert len(files) > 10
    assert sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc") < 35_000_000


def dynamic_section(path: Path) -> str:
    if not shutil.which("readelf"):
        pytest.skip("no readelf (binutils)")
    return subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout


def test_no_library_of_ours_links_the_vulkan_loader_and_one_links_glslang() -> None:
    ours = [*LIBRARIES.glob("_pumice*.so"), *LIBRARIES.glob("libpumice*.so")]
    assert len(ours) >= 2
    for path in ours:
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section(path))
        assert needed
        assert not [name for name in needed if "vulkan" in name]
        assert path.name == "libpumice_glslang.so" or not [name for name in needed if "glslang" in name], path.name


def test_libraries_find_each_other_beside_themselves_only(installed: Path) -> None:
    for path in installed.glob("*pumice*.so"):
        paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic_section(path))
        assert paths == ["$ORIGIN"], path.name
    assert {path.name for path in installed.glob("lib*.so.*")} >= {"libglslang.so.13", "libSPIRV.so.13"}


def test_shaders_travel_inside_the_engine() -> None:
    """Shaders of pumice.text are user-level kernels and files of the package."""
    folders = [folder.resolve() for folder in PACKAGE.iterdir()]  # symlinks in a development build
    found = [file for folder in folders for kind in ("*.comp", "*.glsl") for file in folder.rglob(kind)]
    assert {file.name for file in found} == {
        "append_kv.comp",
        "sampling_candidates.comp",
        "logits_argmax.comp",
        "sampling.comp",
        "token_scores.glsl",
        "store_token.glsl",
    }


# ---- a machine without Vulkan

WITHOUT_VULKAN = """
import pumice
print(pumice.devices())
try:
    pumice.Context()
except pumice.DeviceError as error:
    print(type(error).__name__)
"""


def without_loader(folder: Path) -> dict[str, str]:
    """An empty file replaces the loader: the dynamic linker finds it first and rejects it."""
    for name in ("libvulkan.so.1", "libvulkan.so"):
        (folder / name).touch()
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.mark.skipif(SANITIZED, reason="the driver is preloaded")
def test_without_a_loader_there_are_no_devices(tmp_path: Path) -> None:
    assert output_of("-c", WITHOUT_VULKAN, **without_loader(tmp_path)) == "[]\nDeviceError\n"


def test_without_a_driver_there_are_no_devices() -> None:
    assert output_of("-c", WITHOUT_VULKAN, **NO_DRIVER) == "[]\nDeviceError\n"


# ---- entry points


ENTRY_POINTS = {
    (group, name, value)
    for group, points in {"console_scripts": PROJECT["scripts"], **PROJECT["entry-points"]}.items()
    for name, value in points.items()
}


def test_entry_points_are_importable() -> None:
    assert {point[:2] for point in ENTRY_POINTS} >= {("console_scripts", "pumice"), ("pytest11", "pumice")}
    for group, name, value in ENTRY_POINTS:
        if group == "torch_dynamo_backends" and importlib.util.find_spec("torch") is None:
            continue  # only used by torch
        assert importlib.metadata.EntryPoint(name, value, group).load() is not None


@needs_metadata
def test_entry_points_are_installed() -> None:
    installed = {(p.group, p.name, p.value) for p in importlib.metadata.distribution("pumice").entry_points}
    assert installed == ENTRY_POINTS


def test_annotations_of_public_functions_are_evaluated() -> None:
    """numpy.typing is not imported with the package, but on demand when the types are requested."""
    for function in (pumice.tensor, pumice.zeros, pumice.empty, pumice.asarray):
        assert "return" in typing.get_type_hints(function)
    assert typing.get_type_hints(pumice.tensor)["array"] == numpy.typing.ArrayLike
