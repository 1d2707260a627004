"""Fuzz targets: each has small seeds that the extension also accepts, and the driver finds a planted fault."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import pumice
from pumice import _pumice
from tool_environment import tool_environment

FUZZ = Path(__file__).resolve().parents[1] / "fuzz"
TARGETS = sorted(path.stem for path in FUZZ.glob("*.cpp") if path.stem != "driver")

# How to reach the parser of a target from Python. Other targets have separate tests that replay their seeds.
READERS: dict[str, Callable[[bytes], object]] = {
    "spirv": pumice.reflect,
    "onnx_skeleton": lambda data: _pumice.onnx_skeleton(data, "weights"),
}

PLANTED = r"""
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t words[2];
  if (size != sizeof words) return 0;
  std::memcpy(words, data, size);
  if (words[0] == 0x5eed1234 && words[1] == words[0] + 77) std::abort();
  return 0;
}
"""


def seeds(target: str) -> list[Path]:
    return sorted((FUZZ / "corpus" / target).iterdir())


def test_each_folder_of_seeds_has_a_target() -> None:
    assert sorted(path.name for path in (FUZZ / "corpus").iterdir()) == TARGETS


@pytest.mark.parametrize("target", sorted(READERS))
def test_seeds_are_read_or_rejected_with_an_error_of_pumice(target: str) -> None:
    for path in seeds(target):
        data = path.read_bytes()
        if path.name.startswith(("crash-", "timeout-")):
            try:
                READERS[target](data)
            except (pumice.Error, ValueError):
                continue
        else:
            assert READERS[target](data), path.name


@pytest.mark.slow
def test_the_driver_finds_a_planted_fault(tmp_path: Path) -> None:
    """The fault needs two 32-bit words, which can only be learned from comparison operands."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    source, program = tmp_path / "planted.cpp", tmp_path / "planted"
    source.write_text(PLANTED)
    flags = ["-std=c++20", "-O1"]
    traced = [*flags, "-fsanitize-coverage=trace-pc,trace-cmp", "-c", str(source), "-o", str(tmp_path / "planted.o")]
    subprocess.run([compiler, *traced], check=True, env=tool_environment())
    linked = [compiler, *flags, FUZZ / "driver.cpp", tmp_path / "planted.o", "-o", program]
    subprocess.run(linked, check=True, env=tool_environment())
    seed = tmp_path / "seed"
    seed.write_bytes(bytes(8))
    replayed = subprocess.run([program, "-runs=0", seed], capture_output=True, text=True, check=True)
    assert replayed.stdout.startswith("1 seeds, 1 runs")
    given = [str(program), "-max_total_time=120", "-seed=1", f"-artifact_prefix={tmp_path}/", str(seed)]
    assert subprocess.run(given, capture_output=True).returncode != 0
    (crash,) = tmp_path.glob("crash-*")
    words = [int.from_bytes(crash.read_bytes()[at : at + 4], "little") for at in (0, 4)]
    assert words == [0x5EED1234, 0x5EED1234 + 77]
