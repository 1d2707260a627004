"""The wheel builder (the folder wheels): what it packs, rejects and reports, without compiling the engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pumice
from tool_environment import tool_environment
from wheels import Failed, build, checks, foreign, interpreters, old_glibc, run, sbom
from wheels import __main__ as builder

ROOT = Path(__file__).resolve().parents[2]
MACHINE = os.uname().machine
VERSIONS = {"glslang": "13.1.1", "pybind11": "3.1.0", "vulkan": "1.3.239", "volk": "1.3.239", "gcc": "12.2.0"}
PYTHON = interpreters.Interpreter("3.11", Path("python3.11"), Path("include"))
FOREIGN = Path("pumice-0.1.0-cp311-cp311-manylinux_2_28_aarch64.whl")
HERE = pytest.mark.skipif(
    MACHINE not in old_glibc.LOADERS or not shutil.which("gcc") or not shutil.which("readelf"),
    reason="needs gcc and binutils on an architecture with wheels",
)
# Uses symbols that got new versions between glibc 2.29 and 2.34.
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
double use(double x, const char* name, pthread_cond_t* c, pthread_mutex_t* m, struct timespec* t) {
  struct stat s;
  pthread_t thread;
  pthread_create(&thread, 0, 0, 0);
  pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, t);
  return exp(x) + stat(name, &s) + (dlopen(name, RTLD_NOW) != 0);
}
int never_called(int x) { return 3 * x; }
"""


def test_a_symbol_has_the_newest_version_that_glibc_2_28_has() -> None:
    table = """
       1: 0000000000087c90  1234 FUNC    GLOBAL DEFAULT   15 pthread_create@@GLIBC_2.34
       2: 0000000000087c90  1234 FUNC    GLOBAL DEFAULT   15 pthread_create@GLIBC_2.2.5
       3: 0000000000033440    12 FUNC    GLOBAL DEFAULT   15 memcpy@GLIBC_2.2.5
       4: 0000000000033450    12 IFUNC   GLOBAL DEFAULT   15 memcpy@@GLIBC_2.14
       5: 0000000000033460    12 FUNC    WEAK   DEFAULT   15 fstat@@GLIBC_2.33
       6: 00000000001d2868     8 OBJECT  GLOBAL DEFAULT   33 stdout@@GLIBC_2.2.5
       7: 0000000000033470    12 FUNC    GLOBAL DEFAULT   15 secret@@GLIBC_PRIVATE
       8: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND used@GLIBC_2.3 (2)
    """
    assert old_glibc.old_symbols(table) == {
        "pthread_create": ((2, 2, 5), "function"),
        "memcpy": ((2, 14), "function"),
        "stdout": ((2, 2, 5), "object"),
    }


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Linker flags for glibc 2.28."""
    return old_glibc.write(tmp_path_factory.mktemp("glibc"), MACHINE, "gcc", "readelf")


def tree_in(folder: Path, flags: list[str]) -> Path:
    """Create the files of an installation; all libraries are the same small one."""
    package, source = folder / "pumice", folder.parent / "user.c"
    package.mkdir(parents=True)
    source.write_text(SOURCE)
    library, names = package / "libdmpdv.so", folder.parent / "names.map"
    names.write_text("{ global: use; local: *; };\n")
    sections = build.section_flags(build.Target(MACHINE, folder, MACHINE)).split()
    options = ["-O1", "-shared", "-fPIC", *sections, "-Wl,-z,defs", f"-Wl,--version-script={names}"]
    subprocess.run(
        ["gcc", *options, source, *flags, "-lm", "-o", library], check=True, capture_output=True, env=tool_environment()
    )
    for name in ("_pumice" + PYTHON.suffix(MACHINE), *checks.LIBRARIES):
        if name != library.name:
            shutil.copy(library, package / name)
    return folder


def packed(folder: Path, flags: list[str]) -> Path:
    return builder.pack(tree_in(folder / "tree", flags), PYTHON.tag, MACHINE, VERSIONS, folder)


@HERE
def test_a_wheel_has_its_tag_metadata_and_licences_and_is_reproducible(
    tmp_path: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    wheel = packed(tmp_path, flags)
    checks.check_symbols(tmp_path / "tree", "readelf")
    checks.check_contents(wheel)
    assert wheel.name == f"pumice-{pumice.__version__}-cp311-cp311-manylinux_2_28_{MACHINE}.whl"
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"pumice-{pumice.__version__}.dist-info/WHEEL").decode()
        assert re.findall("^Tag: (.*)$", text, re.MULTILINE) == [f"cp311-cp311-manylinux_2_28_{MACHINE}"]
        assert not [name for name in archive.namelist() if "__pycache__" in name]
    other = tmp_path / "another" / "deeper"
    assert wheel.read_bytes() == packed(other, flags).read_bytes()
    table = subprocess.run(["readelf", "-sW", other / "tree/pumice/libdmpdv.so"], capture_output=True, text=True).stdout
    assert " use" in table and "never_called" not in table
    with zipfile.ZipFile(wheel) as given, zipfile.ZipFile(tmp_path / "short.whl", "w") as kept:
        for name in given.namelist():
            if not name.endswith(("volk.txt", "libSPIRV.so.13")):
                kept.writestr(name, given.read(name))
    with pytest.raises(Failed, match=r"lacks libSPIRV\.so\.13, volk\.txt"):
        checks.check_contents(tmp_path / "short.whl")
    monkeypatch.setattr(checks, "MAX_BYTES", 1000)
    with pytest.raises(Failed, match="the most is 1,000"):
        checks.check_contents(wheel)


@HERE
def test_a_library_of_a_newer_glibc_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="too-recent versioned symbols"):
        packed(tmp_path, [])


def test_unversioned_symbols_are_found() -> None:
    table = (
        "  5: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND PyList_New\n"
        "  6: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND memcpy@GLIBC_2.14 (3)\n"
        "  7: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__\n"
        "  8: 0000000000000000     0 NOTYPE  GLOBAL DEFAULT  UND arc4random_buf\n"
        "  9: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  UND _Py_NoneStruct\n"
    )
    assert checks.unversioned(table) == ["arc4random_buf"]


def test_every_component_has_its_licence_and_version() -> None:
    assert {part.text for part in sbom.PARTS} == {path.name for path in (ROOT / "licenses").iterdir()}
    shown = json.loads(sbom.document("0.1.0", VERSIONS))
    assert (shown["bomFormat"], shown["specVersion"], shown["version"]) == ("CycloneDX", "1.6", 1)
    found = {row["name"]: row.get("version") for row in shown["components"]}
    assert found == {
        "glslang": "13.1.1",
        "SPIRV-Tools": None,
        "pybind11": "3.1.0",
        "volk": "1.3.239",
        "Vulkan-Headers": "1.3.239",
        "libstdc++": "12.2.0",
    }


def test_versions_are_read_from_the_headers(tmp_path: Path) -> None:
    (tmp_path / "vulkan").mkdir()
    (tmp_path / "vulkan" / "vulkan_core.h").write_text(
        "#define VK_HEADER_VERSION 301\n"
        "#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 4, VK_HEADER_VERSION)\n"
    )
    (tmp_path / "volk.h").write_text("#define VOLK_HEADER_VERSION 300\n")
    assert sbom.header_versions(tmp_path) == ("1.4.301", "1.4.300")


# ---- interpreters, tools and options


def test_the_wanted_pythons_are_those_that_the_project_names() -> None:
    assert f'requires-python = ">={interpreters.WANTED[0]}"' in (ROOT / "pyproject.toml").read_text()
    assert interpreters.Interpreter("3.14t", Path("python"), Path("include")).tag == "cp314-cp314t"


@pytest.fixture
def no_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without interpreters in PATH, pyenv and PUMICE_PYTHONS."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.delenv("PUMICE_PYTHONS", raising=False)
    return tmp_path


def interpreter_in(folder: Path, name: str, said: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{said}\n")
    path.chmod(0o755)
    return path


def test_an_interpreter_without_headers_or_of_another_version_is_passed_over(
    no_pythons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = interpreter_in(no_pythons, "bare", "exit 1")
    whole = interpreter_in(no_pythons, "whole", "echo 3.13 cpython; echo /include")
    monkeypatch.setenv("PUMICE_PYTHONS", f"{bare}:{whole}")
    assert interpreters.find("3.13") == ("3.13", whole, Path("/include"))
    assert interpreters.find("3.12") is None


def test_a_build_without_a_python_keeps_other_files_and_fails(
    no_pythons: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    out = no_pythons / "dist"
    out.mkdir()
    for name in ("letter.txt", "pumice-0.0.1-cp311-cp311-linux_x86_64.whl"):
        (out / name).touch()
    assert builder.main(["--out", str(out), "--no-sdist"]) == 1
    assert [path.name for path in out.iterdir()] == ["letter.txt"]
    shown = capsys.readouterr()
    assert all(f"wheel for CPython {version}:" in shown.out for version in interpreters.WANTED)
    assert "no wheel was built" in shown.err


# ---- wheels of another architecture


def test_a_wheel_that_cannot_be_run_is_reported(no_pythons: Path) -> None:
    said = foreign.check(FOREIGN, build.Target("aarch64", no_pythons, "x86_64"), "3.11")
    assert said.startswith(f"{FOREIGN.name} was not run: qemu-aarch64-static cannot be run: No such file")


def test_what_is_emulated_runs_here_too() -> None:
    """On this machine's own architecture and driver."""
    env = {"PYTHONPATH": str(Path(pumice.__file__).parents[1])}
    said = run(sys.executable, "-c", foreign.CALL, env=env)
    assert "of 16 images right and a kernel compiled on" in said


def test_a_command_that_fails_is_an_error() -> None:
    with pytest.raises(Failed, match=r"this failed: .*\nreason"):
        run(sys.executable, "-c", "raise SystemExit('reason')")


# ---- a real wheel


@pytest.mark.slow
def test_a_wheel_in_a_clean_environment(tmp_path: Path) -> None:
    """Build this Python's wheel, install it without a compiler, classify the demo's images, and run some tests."""
    version = "{}.{}".format(*sys.version_info)
    command = [ROOT / "dev", "wheels", "--python", version, "--no-sdist", "--out", tmp_path / "dist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "from versions: none" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    python = ROOT / "build" / "wheels" / MACHINE / f"clean-{version}" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "pytest", "pytest-xdist", "hypothesis")
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernel/test_kernel.py")
    run(python, *tests, env={"PYTHONPATH": "", "PATH": "/nowhere"})
