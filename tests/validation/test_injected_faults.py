"""Faults injected into shaders: validation reports the node with the faulty kernel, and nothing for a correct one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import fault_runner
import pumice
from fault_models import SAMPLES
from faults import FAULTS, PLAN_FAULTS, Fault
from features import has_cpu_kernels, reason_of_refusal

SHADERS = Path(__file__).parent.parent.parent / "shaders"


def faulty_folder(fault: Fault, folder: Path) -> Path:
    """Return a folder with the faulty shader."""
    text = (SHADERS / fault.path).read_text(encoding="utf-8")
    assert text.count(fault.old) == fault.count, f"{fault.path} does not hold the text of fault {fault.number}"
    made = folder / fault.path
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return folder


def run(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runner's result for each task."""
    return fault_runner.answers(fault_runner.__file__, tasks)


def task(sample: str, precision: str, folder: Path | str = "", on_gpu: bool = False) -> dict[str, Any]:
    """Return a task. on_gpu: treat the device as a GPU and run the GPU kernels."""
    without = ["subgroupShuffle"] if on_gpu else []
    return {"folder": str(folder), "sample": sample, "precision": precision, "without": without}


@cache
def judged(precision: str, from_number: int, end: int) -> dict[int, list[dict[str, Any] | None]]:
    """Return the verdicts by fault number: for the fault's sample, and for the sample that it must not affect."""
    rows = [fault for fault in FAULTS if from_number <= fault.number < end and (precision == "fp32" or fault.fp16)]
    with TemporaryDirectory() as root:
        tasks = []
        for fault in rows:
            folder = faulty_folder(fault, Path(root) / str(fault.number))
            tasks += [
                task(sample, precision, folder, fault.on_gpu) for sample in (fault.sample, fault.spared) if sample
            ]
        results = iter(run(tasks))
        return {
            fault.number: [next(results) if name else None for name in (fault.sample, fault.spared)] for fault in rows
        }


# One process runs a range of fault numbers. The default tier has every fault in fp32, --all also in fp16.
STRETCHES = [("fp32", 1, 20), ("fp32", 20, 48), ("fp16", 1, 20), ("fp16", 20, 48)]
CELLS = [
    pytest.param(
        fault,
        stretch,
        id=f"{fault.number}-{fault.name}-{stretch[0]}",
        marks=[pytest.mark.slow] if stretch[0] == "fp16" else [],
    )
    for stretch in STRETCHES
    for fault in FAULTS
    if stretch[1] <= fault.number < stretch[2] and (stretch[0] == "fp32" or fault.fp16)
]


@pytest.mark.parametrize(("fault", "stretch"), CELLS)
def test_a_fault_is_found_at_its_node(context: pumice.Context, fault: Fault, stretch: tuple[str, int, int]) -> None:
    if "llvmpipe" not in context.info.name:
        pytest.skip("the faults are in kernels that lavapipe runs")
    if fault.shader == "conv_cpu.comp" and not has_cpu_kernels(context):
        pytest.skip("needs the kernels for CPU drivers, which have subgroups of 8")
    found, spared = judged(*stretch)[fault.number]
    assert found is not None
    if found["state"] == "failed" and (reason := reason_of_refusal(found["summary"], context)):
        pytest.skip(reason)
    assert found["state"] != "failed", found["summary"]
    assert not fault.shader or fault.shader in found["shaders"], "the kernel of this fault does not run"
    assert found["state"] == "wrong", found["summary"]
    if fault.fused_alone:
        assert found["nodes"] == [], found["summary"]
    else:
        assert found["first"] == fault.node, found["summary"]
        assert set(found["nodes"]) == {fault.node}, found["summary"]
    assert found["kernels"] and all(fault.node in members for members in found["kernels"]), found["kernels"]
    assert found["outputs"] == ["y"], found["summary"]
    if fault.spared:
        assert spared is not None
        assert spared["state"] == "right", spared["summary"]


def test_a_fault_of_the_plan_is_found_at_its_kernels(context: pumice.Context) -> None:
    """Run two shapes in sequence; the optimised program's kernels are wrong, in memory that other tensors share."""
    if "llvmpipe" not in context.info.name:
        pytest.skip("the faults are tried with the plans that lavapipe has")
    sample = {**task("convolutions", "fp32"), "fault": "", "limits": {}}
    tasks = [sample, *({**sample, "fault": one.fault, "limits": one.limits} for one in PLAN_FAULTS)]
    plain, *results = run(tasks)
    assert plain["state"] == "right", plain["summary"]
    for fault, found in zip(PLAN_FAULTS, results, strict=True):
        assert found["state"] == "wrong", (fault, found["summary"])
        assert fault.node in found["kernels"][0], (fault, found)
        assert found["outputs"] == ["y"] or fault.fault == "stale", (fault, found)


def test_a_plan_has_no_other_fault(context: pumice.Context) -> None:
    sample = {**task("convolutions", "fp32"), "fault": "none", "limits": {}}
    (found,) = run([sample])
    assert (
        "expected one of 'stale', 'order', 'race', 'in place', 'steps', 'push', 'fold', 'reversed', "
        "'compiler crash', 'compiler hang', 'compiler reject'; given 'none'" in found["summary"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_same_models_are_right_without_a_fault(context: pumice.Context, precision: str) -> None:
    """Only models for which the device has the features."""
    rows = [fault for fault in FAULTS if precision == "fp32" or fault.fp16]
    names = sorted({(fault.sample, fault.on_gpu) for fault in rows})
    for (name, on_gpu), result in zip(names, run([task(n, precision, on_gpu=gpu) for n, gpu in names]), strict=True):
        lacks = result["state"] == "failed" and reason_of_refusal(result["summary"], context)
        assert lacks or result["state"] == "right", f"{name}, {on_gpu=}: {result['summary']}"


def test_every_fault_is_injected() -> None:
    assert sorted(fault.number for fault in (*FAULTS, *PLAN_FAULTS)) == list(range(1, 48))
    assert all(fault.sample in SAMPLES for fault in FAULTS)
