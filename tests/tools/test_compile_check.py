"""`pumice compile-check`: its report, and jobs on whose kernels the driver's compiler fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from features import reason_of_refusal

STORY = Path(__file__).resolve().parents[2] / "python" / "pumice" / "data" / "story"
# Runs in a process of its own: PUMICE_FAULT is read once, and the jobs fork before Vulkan is loaded.
DOOMED = """
import json, sys
import numpy as np, pumice
from pumice.tools.compile_check.jobs import CompileJob, CompileOptions, make_json_record, run_jobs

SCALE = '''
layout(binding = 0) buffer X { sfp x[]; };
void main() { uint i = gl_GlobalInvocationID.x; buffer_st1(x, i, buffer_ld1(x, i) * afp(%d)); }
'''

def run(context):
    x = pumice.zeros(4, context=context)
    for number, name in enumerate(("first", "doomed", "last")):
        pumice.Kernel(SCALE % number, context, name=name)(x=x, threads=4)

def fail(context):
    raise pumice.UnsupportedError("the job's own reason")

def crash(context):
    import os
    os.abort()

jobs = [CompileJob("three kernels", run), CompileJob("unsupported", fail), CompileJob("crash", crash)]
print(json.dumps([make_json_record(result) for result in run_jobs(jobs, CompileOptions(timeout=1.5))]))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor("w", TensorProto.FLOAT, [64, 32], np.ones(64 * 32, np.float32))],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def check(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pumice", "compile-check", *arguments]
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode and (reason := reason_of_refusal(done.stdout + done.stderr, pumice.default_context())):
        pytest.skip(reason)
    return done


def run_doomed(fault: str) -> list[dict[str, Any]]:
    environment = {**os.environ, "PUMICE_FAULT": fault, "PUMICE_NO_CACHE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", DOOMED], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def test_the_kernels_of_a_model_are_listed(model: Path, context: pumice.Context) -> None:
    done = check(str(model), "-p", "fp32", "-p", "fp16", "--device", f"uuid:{context.info.uuid}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{model} (fp32) on {context.info.name}" in done.stdout
    assert "small.onnx (fp16)" in done.stdout
    assert "registers" in done.stdout
    assert ": ok; " in done.stdout


def test_json_has_the_statistics(model: Path) -> None:
    done = check(str(model), str(STORY), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    small, story = json.loads(done.stdout)
    for result in (small, story):
        assert result["passed"]
        used = [kernel for kernel in result["kernels"] if kernel["used"]]
        assert used
        for kernel in used:
            assert {"registers", "spills", "shared_bytes", "occupancy", "code_bytes", "compile_seconds"} <= set(kernel)
    assert len(story["kernels"]) > len(small["kernels"])


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("compiler crash", "the driver's compiler crashed: SIGABRT"),
        ("compiler hang", "the driver's compiler took more than 1.5 s"),
        ("compiler reject", "the driver rejected the pipeline of kernel 'doomed'"),
    ],
)
def test_a_kernel_that_the_compiler_fails_on_is_named_and_the_rest_goes_on(fault: str, reason: str) -> None:
    kernels, unsupported, crash = run_doomed(fault)
    assert [kernel["kernel"] for kernel in kernels["kernels"] if kernel["used"]] == ["first", "last"]
    (failure,) = kernels["failures"]
    assert failure["kernel"] == "doomed"
    assert failure["reason"] == reason
    assert kernels["error"] == ""
    assert not kernels["passed"]
    assert unsupported["error"] == "the job's own reason"
    assert crash["error"] == "the process ended outside the driver's compiler: SIGABRT"


def test_spills_fail_the_check(model: Path) -> None:
    from pumice.tools.compile_check.command import format_result
    from pumice.tools.compile_check.jobs import JobResult

    summary = dict.fromkeys(("registers", "shared_bytes", "occupancy", "code_bytes")) | {"spills": 3}
    kernel: dict[str, Any] = {"kernel": "k", "used": True, "summary": summary, "storage": "fp32", "constants": ""}
    kernel |= {"local_size": (64, 1, 1), "compile_seconds": 0.001}
    result = JobResult("j", {"name": "d", "driver": "v"}, [kernel], [], "")
    assert not result.passed
    assert format_result(result)[0] == "j on d, v: FAILED; 1 kernels, 0 failed, 1 spill"
    rejected = result._replace(kernels=[kernel | {"used": False}])
    assert rejected.passed, "a variant that was compiled and not chosen may spill"


@pytest.fixture(params=["missing", "timeout", "precision"])
def wrong(request: pytest.FixtureRequest, model: Path) -> Iterator[tuple[list[str], str]]:
    yield {
        "missing": (["missing.onnx"], "no such file or folder: 'missing.onnx'"),
        "timeout": ([str(model), "--timeout", "0"], "expected a positive number of seconds, given '0'"),
        "precision": ([str(model), "-p", "fp8"], "invalid choice: 'fp8'"),
    }[request.param]


def test_wrong_options_are_usage_errors(wrong: tuple[list[str], str]) -> None:
    arguments, text = wrong
    done = check(*arguments)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_device_that_is_not_there_fails_the_job(model: Path) -> None:
    done = check(str(model), "--device", "no such device")
    assert done.returncode == 1
    assert "error: " in done.stdout
    assert "no such device" in done.stdout
