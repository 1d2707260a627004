"""The wheel builder (the folder wheels): its output and errors, without compiling anything."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
import zipfile
import zlib
from pathlib import Path

import pytest

from wheels import __main__ as builder
from wheels import archive, audit, build, interpreters, old_glibc, pack, sbom

ROOT = Path(__file__).resolve().parents[2]
TAG = "cp311-cp311-manylinux_2_28_x86_64"
VERSIONS = sbom.Versions("13.1.1", "3.1.0", "1.3.239", "1.3.239", "12.2.0")
MODULE = "_pumice.cpython-311-x86_64-linux-gnu.so"
LIBRARIES = (MODULE, "libdmpdv.so", "libpumice_glslang.so", "libSPIRV.so.13", "libglslang.so.13")


# ---- symbols of an older glibc

TABLE = """
   1: 0000000000087c90  1234 FUNC    GLOBAL DEFAULT   15 pthread_create@@GLIBC_2.34
   2: 0000000000087c90  1234 FUNC    GLOBAL DEFAULT   15 pthread_create@GLIBC_2.2.5
   3: 0000000000033440    12 FUNC    GLOBAL DEFAULT   15 memcpy@GLIBC_2.2.5
   4: 0000000000033450    12 IFUNC   GLOBAL DEFAULT   15 memcpy@@GLIBC_2.14
   5: 0000000000033460    12 FUNC    WEAK   DEFAULT   15 fstat@@GLIBC_2.33
   6: 00000000001d2868     8 OBJECT  GLOBAL DEFAULT   33 stdout@@GLIBC_2.2.5
   7: 0000000000033470    12 FUNC    GLOBAL DEFAULT   15 secret@@GLIBC_PRIVATE
   8: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND used@GLIBC_2.3 (2)
"""


def test_a_name_has_the_newest_version_that_glibc_2_28_has() -> None:
    assert old_glibc.old_symbols(TABLE) == {
        "pthread_create": ("function", "2.2.5"),
        "memcpy": ("function", "2.14"),
        "stdout": ("object", "2.2.5"),
    }


def test_versions_are_compared_as_numbers() -> None:
    assert old_glibc.version("2.4") < old_glibc.version("2.28") < old_glibc.version("2.34")


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("readelf"), reason="needs gcc and binutils")
def test_what_is_linked_with_the_stand_ins_needs_no_newer_glibc(tmp_path: Path) -> None:
    """Links a library that uses symbols of glibc 2.30 to 2.34 and checks that none of their versions is required."""
    machine = os.uname().machine
    if machine not in old_glibc.LOADERS:
        pytest.skip(f"there are no wheels for {machine}")
    source = tmp_path / "user.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <math.h>\n#include <pthread.h>\n#include <sys/stat.h>\n"
        "double use(double x, const char* name, pthread_cond_t* c, pthread_mutex_t* m, struct timespec* t) {\n"
        "  struct stat s;\n  pthread_t thread;\n"
        "  pthread_create(&thread, 0, 0, 0);\n  pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, t);\n"
        "  return exp(x) + stat(name, &s) + (dlopen(name, RTLD_NOW) != 0);\n}\n"
    )
    flags = old_glibc.write(tmp_path / "glibc", machine, "gcc", "readelf")
    library = tmp_path / "libuser.so"
    link = ["gcc", "-O1", "-shared", "-fPIC", str(source), "-Wl,-z,defs", *flags, "-lm", "-o", str(library)]
    subprocess.run(link, check=True, capture_output=True)
    table = subprocess.run(["readelf", "-V", library], check=True, capture_output=True, text=True).stdout
    needed = {old_glibc.version(text) for text in re.findall(r"Name: GLIBC_([0-9.]+)", table)}
    assert needed
    assert max(needed) <= old_glibc.OLDEST


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("readelf"), reason="needs gcc and binutils")
def test_a_function_that_nothing_calls_is_left_out(tmp_path: Path) -> None:
    machine = os.uname().machine
    if machine not in old_glibc.LOADERS:
        pytest.skip(f"there are no wheels for {machine}")
    source = tmp_path / "user.c"
    source.write_text("int called(int x) { return 2 * x; }\nint never_called(int x) { return 3 * x; }\n")
    exported = tmp_path / "names.map"
    exported.write_text("{ global: called; local: *; };\n")
    flags = old_glibc.write(tmp_path / "glibc", machine, "gcc", "readelf")
    sections = build.section_flags(build.Target(machine, tmp_path, machine)).split()
    library = tmp_path / "libuser.so"
    link = ["gcc", "-O1", "-shared", "-fPIC", *sections, str(source), f"-Wl,--version-script={exported}", *flags]
    subprocess.run([*link, "-o", str(library)], check=True, capture_output=True)
    table = subprocess.run(["readelf", "-sW", library], check=True, capture_output=True, text=True).stdout
    assert " called" in table
    assert "never_called" not in table


def test_unversioned_names_are_found() -> None:
    table = (
        "  5: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND PyList_New\n"
        "  6: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND memcpy@GLIBC_2.14 (3)\n"
        "  7: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__\n"
        "  8: 0000000000000000     0 NOTYPE  GLOBAL DEFAULT  UND arc4random_buf\n"
        "  9: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  UND _Py_NoneStruct\n"
    )
    assert audit.unversioned(table) == ["arc4random_buf"]


# ---- interpreters


def test_the_wanted_pythons_are_those_that_the_project_names() -> None:
    lowest = re.search(r'requires-python = ">=([0-9.]+)"', (ROOT / "pyproject.toml").read_text())
    assert lowest
    assert interpreters.WANTED[0] == lowest.group(1)


@pytest.mark.parametrize(
    ("version", "tag", "suffix"),
    [
        ("3.10", "cp310-cp310", ".cpython-310-aarch64-linux-gnu.so"),
        ("3.14t", "cp314-cp314t", ".cpython-314t-aarch64-linux-gnu.so"),
    ],
)
def test_tags_and_names_of_modules(version: str, tag: str, suffix: str) -> None:
    python = interpreters.Interpreter(version, Path("python"), Path("include"))
    assert python.tag == tag
    assert python.suffix("aarch64") == suffix


@pytest.fixture
def no_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without interpreters in PATH, pyenv and PUMICE_PYTHONS."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.delenv("PUMICE_PYTHONS", raising=False)
    return tmp_path


def test_a_missing_python_is_named_with_where_it_was_looked_for(no_pythons: Path) -> None:
    with pytest.raises(interpreters.Missing, match=r"CPython 3\.14t: no python3\.14t is on PATH.*PUMICE_PYTHONS"):
        interpreters.find("3.14t")


def stand_in_python(path: Path, version: str, header: bool) -> None:
    answer = {"version": version, "implementation": "cpython", "include": "/include", "header": header}
    path.write_text(f"#!/bin/sh\nprintf '%s' '{json.dumps(answer)}'\n")
    path.chmod(0o755)


def test_a_python_without_headers_is_named(no_pythons: Path) -> None:
    stand_in_python(no_pythons / "python3.13", "3.13", header=False)
    with pytest.raises(interpreters.Missing, match=r"CPython 3\.13: .*python3\.13 has no Python\.h"):
        interpreters.find("3.13")


def test_an_interpreter_of_another_version_is_passed_over(no_pythons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free-threaded and other builds count as different versions, whatever the file name."""
    wrong, right = no_pythons / "wrong", no_pythons / "right"
    stand_in_python(wrong, "3.14t", header=True)
    stand_in_python(right, "3.14", header=True)
    monkeypatch.setenv("PUMICE_PYTHONS", f"{wrong}:{no_pythons / 'absent'}:{right}")
    assert interpreters.find("3.14").executable == right
    assert interpreters.find("3.14t").executable == wrong


def test_a_version_that_is_not_released_is_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"CPython 3\.10, .* 3\.14t; given 3\.9"):
        interpreters.find("3.9")
    kept = tmp_path / "pumice-0.0.1-cp39-cp39-manylinux_2_28_x86_64.whl"
    kept.touch()
    assert builder.main(["--python", "3.9", "--out", str(tmp_path)]) == 2
    assert "given 3.9" in capsys.readouterr().err
    assert kept.exists()


def test_a_build_removes_its_own_older_files_alone(
    tmp_path: Path, no_pythons: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an interpreter nothing is built, every version is listed, and the exit status is nonzero."""
    monkeypatch.setattr(build, "check_tools", lambda target: None)
    out = tmp_path / "out"
    out.mkdir()
    (out / "letter.txt").touch()
    (out / "pumice-0.0.9-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    assert builder.main(["--out", str(out), "--no-sdist"]) == 1
    assert [path.name for path in out.iterdir()] == ["letter.txt"]
    shown = capsys.readouterr()
    for version in interpreters.WANTED:
        assert f"no wheel for CPython {version}:" in shown.out
    assert "no wheel was built" in shown.err


def test_a_missing_compiler_is_named_with_its_package(no_pythons: Path) -> None:
    target = build.Target("aarch64", no_pythons, "x86_64")
    with pytest.raises(build.Refused, match=r"aarch64: no aarch64-linux-gnu-gcc here .*g\+\+-aarch64-linux-gnu"):
        build.check_tools(target)


def test_a_date_that_is_no_number_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(build.Refused, match="SOURCE_DATE_EPOCH is to be a number of seconds; given 'yesterday'"):
        builder.epoch()


# ---- wheel contents


def tree_in(folder: Path) -> Path:
    """Create built files with the layout of an installation and dummy contents."""
    package = folder / "pumice"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__" / "left.pyc").write_bytes(b"byte code")
    for name in LIBRARIES:
        (package / name).write_bytes(name.encode() * 100)
    (package / "__init__.py").write_text("")
    return folder


def zlib_deflate(content: bytes) -> bytes:
    return zlib.compress(content)[2:-4]


def write(path: Path, tree: Path, epoch: int = 1_700_000_000) -> Path:
    licences = {f"licenses/licenses/{file.name}": file.read_bytes() for file in (ROOT / "licenses").iterdir()}
    information = {
        **licences,
        "licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
        "WHEEL": pack.wheel_text("0.1.0", TAG).encode(),
        sbom.NAME: sbom.document("0.1.0", TAG, VERSIONS, tree).encode(),
    }
    path.mkdir(exist_ok=True)
    wheel = path / f"pumice-0.1.0-{TAG}.whl"
    pack.write(wheel, pack.files_of(tree), information, epoch, zlib_deflate)
    return wheel


def test_the_bytes_depend_on_the_files_alone(tmp_path: Path) -> None:
    first = write(tmp_path / "a", tree_in(tmp_path / "one"))
    other = tree_in(tmp_path / "another" / "deeper")
    for path in other.rglob("*"):
        os.utime(path, (0, 0))
        if path.is_file():
            path.chmod(0o600)
    second = write(tmp_path / "b", other)
    assert first.read_bytes() == second.read_bytes()
    assert write(tmp_path / "c", other, epoch=1_700_000_100).read_bytes() != first.read_bytes()


def test_a_date_before_1980_is_that_of_1980(tmp_path: Path) -> None:
    wheel = write(tmp_path / "a", tree_in(tmp_path / "one"), epoch=0)
    with zipfile.ZipFile(wheel) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_record_lists_every_file_with_its_hash(tmp_path: Path) -> None:
    wheel = write(tmp_path / "a", tree_in(tmp_path / "one"))
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("pumice-0.1.0.dist-info/RECORD").decode()
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(record))}
        assert set(rows) == set(archive.namelist())
        assert rows.pop("pumice-0.1.0.dist-info/RECORD") == ["", ""]
        for name, (digest, size) in rows.items():
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content)), name
    assert not [name for name in rows if "__pycache__" in name]


def test_two_files_of_one_name_are_rejected(tmp_path: Path) -> None:
    one, two = tree_in(tmp_path / "one"), tree_in(tmp_path / "two")
    with pytest.raises(ValueError, match=r"is in .*one.* and in .*two"):
        pack.files_of(one, two)


def test_the_tag_is_in_the_file_wheel() -> None:
    assert f"\nTag: {TAG}\n" in pack.wheel_text("0.1.0", TAG)


def test_every_component_has_its_licence() -> None:
    texts = {part.text for part in sbom.parts(VERSIONS)}
    assert texts == {path.name for path in (ROOT / "licenses").iterdir()}


def test_the_list_of_contents_is_cyclonedx(tmp_path: Path) -> None:
    tree = tree_in(tmp_path / "one")
    text = sbom.document("0.1.0", TAG, VERSIONS, tree)
    assert text == sbom.document("0.1.0", TAG, VERSIONS, tree_in(tmp_path / "two"))
    shown = json.loads(text)
    assert (shown["bomFormat"], shown["specVersion"], shown["version"]) == ("CycloneDX", "1.6", 1)
    assert uuid.UUID(shown["serialNumber"].removeprefix("urn:uuid:")).version == 5
    assert shown["metadata"]["component"]["version"] == "0.1.0"
    references = [row["bom-ref"] for row in shown["components"]]
    assert len({*references}) == len(references)
    assert shown["dependencies"][0]["dependsOn"] == references
    found = {row["name"]: row for row in shown["components"]}
    assert found["glslang"]["version"] == "13.1.1"
    assert found["libstdc++"]["licenses"] == [{"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}]
    digest = hashlib.sha256((tree / "pumice" / MODULE).read_bytes()).hexdigest()
    assert found[f"pumice/{MODULE}"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert {f"pumice/{name}" for name in LIBRARIES} <= set(found)


def test_versions_are_read_from_the_headers(tmp_path: Path) -> None:
    (tmp_path / "vulkan").mkdir()
    core = tmp_path / "vulkan" / "vulkan_core.h"
    core.write_text(
        "#define VK_HEADER_VERSION 301\n"
        "#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 4, VK_HEADER_VERSION)\n"
    )
    (tmp_path / "volk.h").write_text("#define VOLK_HEADER_VERSION 300\n")
    assert sbom.header_versions(tmp_path, tmp_path) == ("1.4.301", "1.4.300")
    (tmp_path / "volk.h").write_text("")
    with pytest.raises(ValueError, match="VOLK_HEADER_VERSION"):
        sbom.header_versions(tmp_path, tmp_path)


def test_a_whole_wheel_passes_and_one_without_a_licence_fails(tmp_path: Path) -> None:
    wheel = write(tmp_path / "a", tree_in(tmp_path / "one"))
    audit.check_contents(wheel, "x86_64")
    with pytest.raises(audit.Failed, match="one Python module for aarch64"):
        audit.check_contents(wheel, "aarch64")
    short = tmp_path / "b" / wheel.name
    short.parent.mkdir()
    with zipfile.ZipFile(wheel) as given, zipfile.ZipFile(short, "w") as kept:
        for name in given.namelist():
            if not name.endswith(("volk.txt", "libSPIRV.so.13")):
                kept.writestr(name, given.read(name))
    with pytest.raises(audit.Failed, match=r"lacks libSPIRV\.so\.13, volk\.txt"):
        audit.check_contents(short, "x86_64")


def test_a_wheel_over_12_mb_fails(tmp_path: Path) -> None:
    tree = tree_in(tmp_path / "one")
    (tree / "pumice" / "noise.bin").write_bytes(os.urandom(12_100_000))
    with pytest.raises(audit.Failed, match="the most is 12,000,000"):
        audit.check_contents(write(tmp_path / "a", tree), "x86_64")


# ---- zip files


def test_a_zip_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Python's zipfile reads every content, and all metadata that it would have written itself."""
    contents = {"empty": b"", "pumice/module.so": os.urandom(1000) * 3, "text.py": b"import numpy\n" * 100}
    entries = [(pack.entry(name, ".so" in name, 1_700_000_000), text) for name, text in contents.items()]
    archive.write(tmp_path / "a.zip", entries, zlib_deflate)
    with zipfile.ZipFile(tmp_path / "a.zip") as ours, zipfile.ZipFile(tmp_path / "b.zip", "w") as python:
        assert ours.testzip() is None
        assert {name: ours.read(name) for name in ours.namelist()} == contents
        for name, text in contents.items():
            python.writestr(pack.entry(name, ".so" in name, 1_700_000_000), text, zipfile.ZIP_DEFLATED)
            for field in (
                "date_time",
                "compress_type",
                "create_system",
                "create_version",
                "external_attr",
                "flag_bits",
            ):
                assert getattr(ours.getinfo(name), field) == getattr(python.getinfo(name), field), (name, field)


def test_zopfli_is_smaller_than_zlib_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("zopfli")
    text = (ROOT / "README.md").read_bytes()
    stream = archive.deflate(text)
    assert zlib.decompress(stream, -15) == text
    assert len(stream) < 0.99 * len(zlib.compress(text, 9)[2:-4])
    assert stream == archive.deflate(text)


def test_a_wheel_is_not_begun_without_zopfli(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zopfli.zlib", None)
    with pytest.raises(build.Refused, match=r"no zopfli here \(pip install zopfli\)"):
        build.check_tools(build.Target("x86_64", ROOT, "x86_64"))


def test_what_auditwheel_says_is_read() -> None:
    assert audit.accepted_glibc('the following platform tag: "manylinux_2_26_x86_64".') == (2, 26)
    with pytest.raises(audit.Failed, match="no manylinux wheel"):
        audit.accepted_glibc('the following platform tag: "linux_x86_64".')


# ---- a real wheel


def unreached_index() -> str:
    """Return pip's error if no package index provides a package; empty otherwise."""
    quick = ("--dry-run", "--ignore-installed", "--no-deps", "--retries", "0", "--timeout", "10")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *quick, "pytest-xdist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # A reachable index lists versions, even if they do not match.
    return done.stderr.strip() if done.returncode and "from versions: none" in done.stderr else ""


def test_a_package_index_that_cannot_be_reached_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "pytest-xdist" in unreached_index()


@pytest.mark.slow
def test_a_wheel_in_a_clean_environment(tmp_path: Path) -> None:
    """Build this Python's wheel, install it without a compiler, classify the demo's images, and run some tests."""
    if why := unreached_index():
        pytest.skip(f"no package index can be reached: {why}")
    version = "{}.{}".format(*sys.version_info)
    command = [ROOT / "dev", "wheels", "--python", version, "--no-sdist", "--out", tmp_path / "dist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"import [0-9]+ ms beyond NumPy's", done.stdout), done.stdout
    python = ROOT / "build" / "wheels" / os.uname().machine / f"clean-{version}" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "pytest", "pytest-xdist", "hypothesis"], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    tests = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernel/test_kernel.py"],
        cwd=ROOT,
        env={**environment, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
