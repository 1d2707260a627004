"""Kernel tuning: which variants are measured, rejected and chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from pumice.device import kernel_times
from pumice.device.tuning_store import get_size_class

SCALE = """
layout(constant_id = 0) const int FACTOR = 2;
layout(binding = 0) readonly  buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
#ifndef REPEATS
#define REPEATS 1
#endif
void main() {
  uint i = gl_GlobalInvocationID.x;
  afp v = buffer_ld1(x, i);
  for (int k = 0; k < REPEATS; ++k) v = max(v, sin(v + afp(k)) - afp(2));
  buffer_st1(y, i, v * afp(FACTOR));
}
"""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a separate tuning store for each test."""
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pumice" / "tuning"


@pytest.fixture
def scale(context: pumice.Context) -> pumice.Kernel:
    return pumice.Kernel(SCALE, context, name="scale")


def call(size: int = 256) -> dict[str, Any]:
    x = np.arange(size, dtype="float32")
    return {"x": x, "y": np.full_like(x, -1), "threads": size}


def doubled(x: Any, y: Any) -> Any:
    x *= 2  # the reference gets copies of the arrays
    return x


def test_the_quickest_right_variant_is_chosen(scale: pumice.Kernel) -> None:
    arguments = call(1 << 14)
    grid = {"REPEATS": [2000, 1], "FACTOR": [2, 3], "local_size": [32, (64, 1, 1)]}
    found = scale.tune(grid, arguments, check=doubled, runs=3)
    assert len(found.variants) == 8
    assert found.measured == 8
    assert (found.best["REPEATS"], found.best["FACTOR"]) == (1, 2)
    assert {one.config["FACTOR"] for one in found.rejected} == {3}
    assert all("'y' differs by 0.5 of its largest value" in one.rejected for one in found.rejected)
    assert found.seconds == min(one.seconds for one in found.variants if one.seconds)
    assert (arguments["y"] == -1).all(), "arrays stay as they are"
    assert arguments["x"][1] == 1
    y = np.empty_like(arguments["x"])
    found.kernel(x=arguments["x"], y=y, threads=y.size)
    assert (y == 2 * arguments["x"]).all()
    assert found.kernel.shader.interface["local_size"][0] == found.best["local_size"][0]
    assert "is wrong" in repr(found)
    assert "REPEATS=1" in repr(found).split("\n")[1], "the quickest is shown first"
    assert "<table>" in found._repr_html_()
    assert found.as_dict()["best"] == found.best


def test_nothing_is_measured_twice(scale: pumice.Kernel, context: pumice.Context) -> None:
    grid = {"FACTOR": [2, 3]}
    first = scale.tune(grid, call(), check=doubled, runs=2)
    second = scale.tune(grid, call(), check=doubled, runs=2)
    assert (first.measured, second.measured) == (2, 0)
    assert second.variants == first.variants
    assert scale.tune({"FACTOR": [3, 2], "REPEATS": [1]}, call(), check=doubled, runs=2).measured == 2
    assert scale.tune(grid, call(), runs=2).measured == 2, "what was checked says nothing of what is taken without"
    assert scale.tune(grid, call(), check=doubled, tolerance=1e-6, runs=2).measured == 2
    assert scale.tune(grid, call(), check=doubled, runs=2, again=True).measured == 2
    assert scale.tune(grid, call(512), check=doubled, runs=2).measured == 2, "another class of sizes"
    other = pumice.Kernel(SCALE + "\n", context, name="scale")
    assert other.tune(grid, call(), check=doubled, runs=2).measured == 2, "another text"
    half = {name: value.astype("float16") if name in "xy" else value for name, value in call().items()}
    assert scale.tune(grid, half, check=doubled, runs=2).measured == 2, "another type"


def test_included_files_are_part_of_the_source(context: pumice.Context, tmp_path: Path) -> None:
    (tmp_path / "factor.glsl").write_text("#define BASE 2\n")
    text = SCALE.replace("afp(FACTOR)", "afp(BASE)").replace("void main", '#include "factor.glsl"\nvoid main')
    counts = []
    for factor in (2, 2, 3):
        (tmp_path / "factor.glsl").write_text(f"#define BASE {factor}\n")
        kernel = pumice.Kernel(text, context, include_dirs=[tmp_path])
        counts.append(kernel.tune({"REPEATS": [1]}, call(), runs=1).measured)
    assert counts == [1, 0, 1]


def test_other_sizes_of_a_class_are_checked_once(scale: pumice.Kernel) -> None:
    calls = []

    def counted(x: Any, y: Any) -> Any:
        calls.append(x.size)
        return 2 * x

    assert get_size_class(768) == "1024/256"
    assert get_size_class(768) != get_size_class(760)
    assert [get_size_class(size) for size in (0, 1, 1024)] == ["0", "1/1", "1024/256"]
    scale.tune({"FACTOR": [2]}, call(1280), check=counted, runs=1)
    for _ in range(2):
        scale.tune({"FACTOR": [2]}, call(1792), check=counted, runs=1)
    assert calls == [1280, 1792]


def test_a_variant_that_is_wrong_for_other_sizes_is_rejected(context: pumice.Context) -> None:
    text = SCALE.replace("v * afp(FACTOR)", "v * afp(FACTOR == 3 && x.length() > 1300 ? 3 : 2)")
    kernel = pumice.Kernel(text.replace("REPEATS 1", "REPEATS (FACTOR == 3 ? 1 : 3000)"), context)
    grid = {"FACTOR": [2, 3]}
    assert kernel.tune(grid, call(1280), check=doubled, runs=3).best == {"FACTOR": 3}
    found = kernel.tune(grid, call(1792), check=doubled, runs=3)
    assert found.best == {"FACTOR": 2}
    assert "is wrong" in found.rejected[0].rejected
    assert kernel.tune(grid, call(1792), check=doubled, runs=3).measured == 0


def test_arguments_may_follow_from_the_variant(context: pumice.Context) -> None:
    text = """
    layout(local_size_x = WIDTH) in;
    layout(binding = 0) buffer Y { uint y[]; };
    void main() { y[gl_GlobalInvocationID.x] = gl_WorkGroupSize.x; }
    """
    kernel = pumice.Kernel(text, context, macros={"WIDTH": 8})

    def configs() -> Iterator[dict[str, Any]]:
        yield from ({"WIDTH": width} for width in (16, 32, 100_000))

    found = kernel.tune(
        configs,
        lambda config: {"y": np.zeros(64, "uint32"), "groups": max(64 // config["WIDTH"], 1)},
        check=lambda y: np.full_like(y, 32),
        runs=1,
    )
    assert found.best == {"WIDTH": 32}
    wrong, refused = found.rejected
    assert "differs in 64 of 64 elements" in wrong.rejected
    assert "is not built" in refused.rejected


def test_precision_converts_arrays_of_the_storage_type(scale: pumice.Kernel) -> None:
    grid = {"precision": ["fp32", "fp16", "bf16"]}
    strict = scale.tune(grid, call(4096), check=doubled, runs=1)
    assert strict.best == {"precision": "fp32"} or "fp32" not in {one.config["precision"] for one in strict.rejected}
    assert "bf16" in {one.config["precision"] for one in strict.rejected}, "2**12 numbers do not fit 8 bits"
    assert not scale.tune(grid, call(4096), check=doubled, tolerance=0.01, runs=1).rejected
    whole = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 1; }"
    with pytest.raises(pumice.Error, match="no float array is bound to a buffer of sfp"):
        pumice.Kernel(whole, scale._target_context).tune(grid, {"x": np.zeros(4, "float32"), "threads": 1})


def test_tensors_and_bodies_are_tuned(context: pumice.Context) -> None:
    body = pumice.Kernel.from_body(
        "y[i] = x[i] + STEP;", {"x": ("float32", 64)}, {"y": ("float32", 64)}, context, macros={"STEP": 1}
    )
    x = pumice.ones((64,), context=context)
    found = body.tune({"STEP": [1, 2]}, {"x": x}, check=lambda x, y: {"y": x + 2}, runs=1)
    assert found.best == {"STEP": 2}
    result = found.kernel(x=np.ones(64, "float32"))
    assert isinstance(result, np.ndarray)
    assert (result == 3).all()


def test_spills_are_rejected_if_reported(scale: pumice.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    class Told:
        refusal = None
        spills = 12

    monkeypatch.setattr(pumice.Kernel, "statistics", lambda self, storage=None: Told())
    with pytest.raises(pumice.Error, match=r"no variant can be used \(1\):\n  FACTOR=2: spills: 12"):
        scale.tune({"FACTOR": [2]}, call(), runs=1)
    assert scale.tune({"FACTOR": [2]}, call(), runs=1, allow_spills=True).measured == 1


def test_an_interruption_keeps_what_was_measured(scale: pumice.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = {"REPEATS": [1, 2, 3, 4]}
    times_of, seen = kernel_times.measure_kernel_times, []

    def interrupted(*given: Any) -> Any:
        seen.append(given)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return times_of(*given)

    monkeypatch.setattr(kernel_times, "measure_kernel_times", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scale.tune(grid, call(), runs=1)
    assert scale.tune(grid, call(), runs=1).measured == 2
    assert scale.tune(grid, call(), runs=1).measured == 0


def test_no_memory_is_no_verdict(scale: pumice.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **named: Any) -> Any:
        raise pumice.OutOfMemoryError("the device is full")

    with monkeypatch.context() as patched, pytest.raises(pumice.Error, match="ran out of memory: the device is full"):
        patched.setattr(kernel_times, "tensor", full)
        scale.tune({"FACTOR": [2]}, call(), runs=1)
    assert scale.tune({"FACTOR": [2]}, call(), runs=1).measured == 1


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"WOBBLE": [1]}, "'WOBBLE': expected a specialization constant or another of FACTOR"),
        ({"FACTOR": 2}, r"configs\['FACTOR'\]: expected a list of values; given 2"),
        ({"FACTOR": []}, "expected at least one variant"),
        ({"FACTOR": [None]}, r"configs\['FACTOR'\]: expected text or numbers"),
        ({"precision": ["fp8"]}, "precision: expected one of fp32, fp16, bf16; given 'fp8'"),
        ({"local_size": ["wide"]}, "local_size: expected integers"),
        ([{"FACTOR": 2}], "expected a dict of lists or a callable; given list"),
        (lambda: [3], "expected dicts; given int"),
    ],
)
def test_configurations_that_cannot_be_are_rejected(scale: pumice.Kernel, configs: Any, message: str) -> None:
    with pytest.raises(pumice.Error, match=message):
        scale.tune(configs, call())


def test_references_and_arguments_that_cannot_be_are_rejected(scale: pumice.Kernel) -> None:
    def tune(check: Any = None, **given: Any) -> None:
        scale.tune({"FACTOR": [2]}, given.pop("arguments", call()), check=check, **given)

    with pytest.raises(pumice.Error, match=r"'y': expected shape \(256,\); given \(3,\)"):
        tune(lambda x, y: np.zeros(3))
    with pytest.raises(pumice.Error, match="'z' is not an array of the kernel's call"):
        tune(lambda x, y: {"z": x})
    with pytest.raises(pumice.Error, match="given an empty dict"):
        tune(lambda x, y: {})
    with pytest.raises(pumice.Error, match="runs: expected a positive number, given 0"):
        tune(runs=0)
    with pytest.raises(pumice.Error, match="tolerance: expected a non-negative number, given -1"):
        tune(tolerance=-1)
    with pytest.raises(pumice.Error, match="arguments: expected a dict"):
        tune(arguments=3)
    with pytest.raises(pumice.BindingError, match="neither"):
        tune(arguments={name: value for name, value in call().items() if name != "threads"})


def test_not_a_number_is_wrong_where_the_reference_has_one(scale: pumice.Kernel) -> None:
    with pytest.raises(pumice.Error, match="NaN or infinity at different positions"):
        scale.tune({"FACTOR": [2]}, call(), check=lambda x, y: np.where(x == 3, np.nan, 2 * x), runs=1)
