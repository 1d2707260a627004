"""C and C++ programs linked with libdmpdv.so, and how they find it at run time."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import pumice.dv as dv
from process import output_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "dv"
SANITIZED = "PUMICE_SANITIZED" in os.environ  # the sanitizer runtime must be loaded before the library

needs_plain = pytest.mark.skipif(SANITIZED, reason="programs of their own lack the sanitizers' runtime")


def compiler(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no compiler: none of {', '.join(names)}")


def built(tmp_path: Path, command: list[str], source: str) -> Path:
    program = tmp_path / "program"
    flags = [
        f"-I{dv.include_path()}",
        f"-L{dv.library_path().parent}",
        "-ldmpdv",
        f"-Wl,-rpath,{dv.library_path().parent}",
    ]
    warnings = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
    done = subprocess.run(
        [*command, *warnings, str(EXAMPLES / source), *flags, "-pthread", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return program


def output(program: Path) -> str:
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_plain
def test_a_program_in_c99(tmp_path: Path) -> None:
    program = built(tmp_path, [compiler("cc", "gcc", "clang"), "-std=c99"], "convolution.c")
    assert "0 of 864 results differ" in output(program)


@needs_plain
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_a_program_in_cpp(tmp_path: Path, standard: str) -> None:
    program = built(tmp_path, [compiler("c++", "g++", "clang++"), f"-std={standard}"], "pipeline.cpp")
    assert "0 wrong" in output(program)


@needs_plain
def test_pkg_config_finds_the_library(tmp_path: Path) -> None:
    tool = shutil.which("pkg-config") or pytest.skip("no pkg-config")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(dv.pkgconfig_path())}
    flags = subprocess.run(
        [tool, "--cflags", "--libs", "dmpdv"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    program = tmp_path / "program"
    subprocess.run(
        [compiler("cc", "gcc", "clang"), str(EXAMPLES / "convolution.c"), *flags.split(), "-o", str(program)],
        check=True,
    )
    assert "0 of 864" in output(program)


@needs_plain
def test_cmake_finds_the_library(tmp_path: Path) -> None:
    tool = shutil.which("cmake") or pytest.skip("no cmake")
    compiler("cc", "gcc", "clang")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(sample C)\nfind_package(dmpdv REQUIRED)\n"
        f'add_executable(sample "{EXAMPLES / "convolution.c"}")\ntarget_link_libraries(sample dmpdv::dmpdv)\n'
    )
    build = tmp_path / "build"
    subprocess.run(
        [tool, "-S", tmp_path, "-B", build, f"-Ddmpdv_DIR={dv.cmake_path()}"], check=True, capture_output=True
    )
    subprocess.run([tool, "--build", build], check=True, capture_output=True)
    assert "0 of 864" in output(build / "sample")


@needs_plain
def test_a_linked_library_finds_its_shader_compiler(tmp_path: Path) -> None:
    """The library is loaded through a symlink; the compiler is next to the symlink's target."""
    program = built(tmp_path, [compiler("cc", "gcc", "clang"), "-std=c99"], "convolution.c")
    (tmp_path / "libdmpdv.so").symlink_to(dv.library_path())
    libraries = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("LD_LIBRARY_PATH"))))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "PUMICE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_plain
def test_strict_by_the_environment(tmp_path: Path) -> None:
    code = f"""
import ctypes, sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1] / "support")!r})
from dv_library import Calls, doubling
lib = ctypes.CDLL({str(dv.library_path())!r})
lib.dmp_dv_context_create.restype = lib.dmp_dv_mem_alloc.restype = lib.dmp_dv_cmdlist_create.restype = ctypes.c_void_p
lib.dmp_dv_get_last_error_message.restype = ctypes.c_char_p
c = Calls(lib)
context = ctypes.c_void_p(c.context_create())
memory = c.mem_alloc(context, ctypes.c_size_t(1 << 16))
commands = ctypes.c_void_p(c.cmdlist_create(context))
import pumice.dv as dv
run = dv.Run(pool_enable=1, pool_size=(4, 4), m=8)
print(c.cmdlist_add_raw(commands, doubling(memory, output=0, w=8, h=8, run=[run])), c.error)
"""
    for strict, expected in (("1", "-1 [D5] run[0].pool_size"), ("0", "0 ")):
        assert output_of("-c", code, PUMICE_DV_STRICT=strict).startswith(expected)
