"""A kernel that takes long to compile is named in the log and in the progress callback, during compilation and afterwards."""

from __future__ import annotations

import os
import re

import pytest

import pumice
from features import need_features
from process import output_of, python

# A program that takes drivers a while to compile: fused functions that expand to much code.
PROGRAM = """
import logging, sys
import pumice
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
graph = pumice.Graph("slow")
x = graph.input("x", "float64", [64])
for k, ops in enumerate(("Log Exp Log Exp", "Exp Log Log Exp", "Sigmoid Exp Log Tanh", "Tanh Log Exp Erf")):
    y = x
    for op in ops.split():
        y = graph.add(op, y)
    graph.output(f"y{k}", y)
graph.compile(pumice.Context(), progress=lambda phase, done, total: print(f"progress {phase} {done} of {total}"))
"""
COLD = {"PUMICE_NO_CACHE": "1", "MESA_SHADER_CACHE_DISABLE": "true", "PUMICE_VALIDATION": "0"}


@pytest.fixture(autouse=True)
def doubles(context: pumice.Context) -> None:
    """Require shaderFloat64; the program runs in a separate interpreter."""
    need_features(context, "shaderFloat64")


def test_a_slow_compilation_is_named_in_log_and_progress() -> None:
    said = output_of("-c", PROGRAM, PUMICE_SLOW_COMPILE_SECONDS="0", **COLD)
    during = re.findall(r"pumice INFO the driver has been compiling kernel '([\w. ,]+)' for 0 s", said)
    after = re.findall(r"pumice INFO the driver took ([\d.]+) s to compile kernel '([\w. ,]+)'", said)
    assert after and all(float(seconds) > 0 for seconds, _ in after), said
    assert during and set(during) <= {kernel for _, kernel in after}, said
    assert any(re.search(rf"progress kernel {re.escape(kernel)} \d+ of \d+", said) for kernel in during), said


def test_quick_compilations_are_not_named() -> None:
    said = output_of("-c", PROGRAM, PUMICE_SLOW_COMPILE_SECONDS="inf", **COLD)
    assert "the driver" not in said
    assert "progress kernels" in said


def test_kernels_that_are_there_are_not_compiled_again() -> None:
    """Otherwise each load would start threads for cached kernels, and log compilations that do not happen."""
    begin = "import pumice\ncontext = pumice.Context()\n"
    program = PROGRAM.replace("pumice.Context()", "context")
    log = "pumice._pumice.forward_log()\n"
    said = output_of(
        "-c", f"{begin}{program}{log}print('again'){program}{log}", PUMICE_SLOW_COMPILE_SECONDS="0", **COLD
    )
    first, later = said.split("again\n")
    assert "the driver took" in first
    assert "the driver" not in later


@pytest.mark.parametrize("given", ["a while", "-1", "nan"])
def test_a_threshold_that_is_no_time_is_rejected(given: str) -> None:
    done = python("-c", PROGRAM, PUMICE_SLOW_COMPILE_SECONDS=given, **COLD)
    assert done.returncode != 0 and f"expected a number of seconds, or inf; given '{given}'" in done.stderr
    assert os.environ.get("PUMICE_SLOW_COMPILE_SECONDS") is None
