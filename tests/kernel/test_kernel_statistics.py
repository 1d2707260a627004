"""Driver statistics of compiled kernels, and errors on drivers without them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pumice
from features import need_features
from glsl_kernel_sources import SCALE
from pumice._pumice import summarize_statistics
from pumice.device.kernel_statistics import KernelStatistics


@pytest.fixture
def scale(context: pumice.Context) -> pumice.Kernel:
    return pumice.Kernel(SCALE, context, name="scale")


def test_sizes_are_reported_on_every_driver(scale: pumice.Kernel) -> None:
    told = scale.statistics()
    assert (told.name, told.storage) == ("scale", "fp32")
    assert told.spirv_bytes == len(scale.shader.spirv)
    assert told.submitted_bytes > 0
    assert told.local_size == tuple(scale.shader.interface["local_size"])
    assert json.loads(json.dumps(told.as_dict()))["spirv_bytes"] == told.spirv_bytes
    assert f"{told.spirv_bytes:,} bytes" in repr(told)
    assert "<table>" in told._repr_html_()


def test_the_statistics_are_those_of_one_build(scale: pumice.Kernel) -> None:
    x = np.arange(64, dtype="float16")
    scale(x=x, y=np.empty_like(x), threads=64)
    (build,) = set(scale.variants) - {"fp32"}
    assert scale.statistics(build).storage == build
    assert scale.statistics(build).spirv_bytes == len(scale.variants[build].spirv)
    with pytest.raises(pumice.BindingError, match=r"one of the builds so far, fp.*given.*bf16") as refused:
        scale.statistics("bf16")
    assert refused.value.rule == "K1"


def test_a_driver_without_statistics_is_rejected_by_name(context: pumice.Context) -> None:
    without = pumice.Context(context.info.name, without=["pipelineExecutableInfo"])
    told = pumice.Kernel(SCALE, without).statistics()
    assert told.executables == ()
    for read in (lambda: told.registers, lambda: told.subgroup_size, told.disassembly):
        with pytest.raises(pumice.UnsupportedError, match="VK_KHR_pipeline_executable_properties"):
            read()
    assert context.info.driver in str(told.refusal)
    assert "pipelineExecutableInfo" in repr(told)


def test_a_driver_reports_its_programs(context: pumice.Context, scale: pumice.Kernel) -> None:
    need_features(context, "pipelineExecutableInfo")
    before = context.pipelines_created
    told = scale.statistics()
    assert context.pipelines_created == before, "the one for the statistics is not counted"
    assert told.refusal is None
    assert told.executables
    assert all(one.name for one in told.executables)
    assert all(one.name and one.value is not None for each in told.executables for one in each.statistics)
    if told.registers is not None:
        assert 0 < told.registers < 1024


# An attention kernel on an H200, driver 580.159.04. Names and order are the driver's.
OF_NVIDIA = {
    "Register Count": 192,
    "Binary Size": 39552,
    "Stack Size": 0,
    "Local Memory Size": 0,
    "Shared Memory Size": 17408,
}


# Mesa's drivers 25.0.7 and 26.2.6, by ./dev compile-check.
OF_INTEL = {
    "Instruction Count": 36466,
    "Spill Count": 1549,
    "Fill Count": 4639,
    "Scratch Memory Size": 131072,
    "Max dispatch width": 32,
    "Max live registers": 663,
    "Workgroup Memory Size": 24576,
}
OF_TURNIP = {
    "Max Waves Per Core": 2,
    "Instruction Count": 5292,
    "Code size": 8962,
    "Registers used": 48,
    "Half-registers used": 0,
    "STP Count": 293,
    "LDP Count": 305,
}
OF_HONEYKRISP = {"Instructions": 4059, "Code size": 31022, "GPRs": 255, "Scratch": 164, "Threads": 384, "Spills": 49}
OF_NVK = {
    "Max warps/SM": 8,
    "Spills to reg": 118,
    "Spills to memory": 79,
    "Code size": 81984,
    "Number of GPRs": 240,
    "SLM size": 104,
}


def record(**statistics: object) -> KernelStatistics:
    """Return statistics as reported by a driver with these values."""
    numbers = [{"name": name, "description": "", "value": value} for name, value in statistics.items()]
    forms = [
        {"name": "asm", "description": "", "content": "MOV R1"},
        {"name": "raw", "description": "", "content": b"1"},
    ]
    program = {"name": "main", "description": "", "subgroup_size": 32, "statistics": numbers, "representations": forms}
    about = {"storage": "fp32", "local_size": (64, 1, 1), "spirv_bytes": 4, "submitted_bytes": 4, "refusal": None}
    summary = summarize_statistics(list(statistics.items()))
    return KernelStatistics("k", {**about, "summary": summary, "executables": [program]})


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"Register Count": 40, "Stack Size": 16, "Binary Size": 900}, (40, 16, None, None, 900)),
        (OF_NVIDIA | {"Local Memory Size": 68719476736}, (192, 0, 17408, None, 39552)),
        (OF_NVIDIA | {"Local Memory Size": 68719477008}, (192, 272, 17408, None, 39552)),
        ({"VGPRs": 24, "Spilled VGPRs": 3, "LDS size": 512, "Subgroups per SIMD": 10}, (24, 3, 512, 10, None)),
        (
            {"VGPRs": 24, "SGPRs": 108, "Spilled SGPRs": 5, "Spilled VGPRs": 0, "Scratch size": 64},
            (24, 0, None, None, None),
        ),
        ({"Instruction Count": 7, "Spill count": 0, "Code size": 64}, (None, 0, None, None, 64)),
        (OF_INTEL, (663, 1549, 24576, None, None)),
        (OF_TURNIP, (48, 293, None, 2, 8962)),
        (OF_HONEYKRISP, (255, 49, None, 384, 31022)),
        (OF_NVK, (240, 79, None, 8, 81984)),
    ],
)
def test_the_statistic_names_of_drivers_are_understood(
    numbers: dict[str, int], expected: tuple[int | None, ...]
) -> None:
    told = record(**numbers)
    assert (told.registers, told.spills, told.shared_bytes, told.occupancy, told.code_bytes) == expected
    assert told.subgroup_size == 32
    assert told.disassembly() == "// main: asm\nMOV R1"
    assert told.as_dict()["executables"][0]["statistics"] == numbers
