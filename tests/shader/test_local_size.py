"""Local size of sources without a declaration: passed to compile(), Kernel and %%glsl, as an argument or as specialization constants."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
import pumice.dv

ARRAYS = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer Y { float y[]; };
"""

# Workgroup sums by the operation that invocations share; each needs whole workgroups.
TOGETHER = {
    "shared memory and a barrier": ARRAYS
    + """
shared float t[gl_WorkGroupSize.x];
void main() {
  uint i = gl_LocalInvocationID.x;
  t[i] = x[gl_GlobalInvocationID.x];
  barrier();
  float sum = 0;
  for (uint k = 0; k < gl_WorkGroupSize.x; ++k) sum += t[k];
  y[gl_GlobalInvocationID.x] = sum;
}""",
    "a last element by a number": ARRAYS
    + """
shared float t[gl_WorkGroupSize.x];
void main() {
  t[gl_LocalInvocationID.x] = x[gl_GlobalInvocationID.x];
  barrier();
  y[gl_GlobalInvocationID.x] = t[7];
}""",
    "a barrier alone": ARRAYS
    + """
void main() {
  y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x];
  memoryBarrierBuffer();
  barrier();
  y[gl_GlobalInvocationID.x] += float(gl_WorkGroupSize.x);
}""",
    "subgroups": "#extension GL_KHR_shader_subgroup_arithmetic : require\n"
    + ARRAYS
    + "void main() { y[gl_GlobalInvocationID.x] = subgroupAdd(x[gl_GlobalInvocationID.x]); }",
}
ALONE = ARRAYS + "void main() { uint i = gl_GlobalInvocationID.x; y[i] = x[i] + float(gl_WorkGroupSize.x); }"


def expected(name: str, x: Any, local: int, context: pumice.Context) -> Any:
    if name == "a barrier alone":
        return x + local
    if name == "a last element by a number":
        return x.reshape(-1, local)[:, 7].repeat(local)
    size = min(local, context.limit("subgroupSize")) if name == "subgroups" else local
    return x.reshape(-1, size).sum(1).repeat(size)


def called(kernel: pumice.Kernel, count: int = 64, **launch: Any) -> tuple[Any, Any]:
    x, y = np.arange(count, dtype=np.float32), np.full(count, -1, np.float32)
    kernel(x=x, y=y, **(launch or {"threads": count}))
    return x, y


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("local", [8, 32])
def test_a_cooperating_source_runs_with_the_requested_local_size(
    pumice_context: pumice.Context, name: str, local: int
) -> None:
    for size in (local, (local,), [local, 1], (local, 1, 1), np.array([local])):
        kernel = pumice.Kernel(TOGETHER[name], pumice_context, local_size=size)  # type: ignore[arg-type]
        assert kernel.shader.interface["local_size"] == (local, 1, 1)
        assert not kernel.shader.interface["guarded"]
    for launch in ({"threads": 64}, {"groups": 64 // local}):
        x, y = called(kernel, **launch)
        assert (y == expected(name, x, local, pumice_context)).all()


@pytest.mark.parametrize("name", [name for name in TOGETHER if "number" not in name])
def test_specialization_constants_say_the_local_size_too(pumice_context: pumice.Context, name: str) -> None:
    kernel = pumice.Kernel(TOGETHER[name], pumice_context, spec={"local_size_x": 16})
    x, y = called(kernel)
    assert (y == expected(name, x, 16, pumice_context)).all()
    assert kernel.shader.interface["local_size"] == (16, 1, 1)


@pytest.mark.parametrize("name", TOGETHER)
def test_without_a_local_size_a_kernel_says_where_one_is_needed(pumice_context: pumice.Context, name: str) -> None:
    if "number" in name:
        return  # compiles without a size too
    with pytest.raises(pumice.ShaderCompileError, match=r"(?s)without a local size.*local_size=.*\^"):
        pumice.Kernel(TOGETHER[name], pumice_context)
    for _ in range(2):  # the second shader comes from the cache
        shader = pumice.compile(TOGETHER[name])
        assert shader.interface["local_size"] == (1, 1, 1) and not shader.interface["guarded"]


@pytest.mark.parametrize("name", TOGETHER)
def test_compile_takes_a_local_size(name: str) -> None:
    shader = pumice.compile(TOGETHER[name], local_size=(16, 2))
    assert shader.interface["local_size"] == (16, 2, 1) and shader.interface["is_sized"]
    assert not shader.interface["guarded"]


def test_a_source_without_cooperation_keeps_its_guard(pumice_context: pumice.Context) -> None:
    for arguments in ({"local_size": 16}, {"spec": {"local_size_x": 16}}):
        kernel = pumice.Kernel(ALONE, pumice_context, **arguments)  # type: ignore[arg-type]
        x, y = np.zeros(64, np.float32), np.full(64, -1, np.float32)
        kernel(x=x, y=y, threads=50)
        assert (y[:50] == 16).all() and (y[50:] == -1).all(), arguments
        assert kernel.shader.interface["guarded"]
    kernel = pumice.Kernel(ALONE, pumice_context, local_size=16)
    kernel(x=x, y=y, groups=4)
    assert (y == 16).all(), "groups= is for whole workgroups"
    with pytest.raises(pumice.BindingError, match="K8"):
        pumice.Kernel(ALONE, pumice_context)(x=x, y=y, groups=4)


def test_axes_of_a_guarded_local_size(pumice_context: pumice.Context) -> None:
    source = """
layout(binding = 0) buffer Y { uint y[]; };
void main() { atomicAdd(y[gl_GlobalInvocationID.x + 5 * (gl_GlobalInvocationID.y + 3 * gl_GlobalInvocationID.z)], 1u); }"""
    for size in itertools.product((1, 2, 4), repeat=3):
        y = np.zeros(5 * 3 * 2 + 5, np.uint32)
        pumice.Kernel(source, pumice_context, local_size=size)(y=y, threads=(5, 3, 2))
        assert (y[:30] == 1).all() and (y[30:] == 0).all(), size


@pytest.mark.parametrize(
    "text", ["layout(local_size_x = 8) in;", "layout(local_size_x_id = 3) in;", "layout(local_size_y = 1) in;"]
)
def test_a_local_size_is_declared_or_given_and_not_both(pumice_context: pumice.Context, text: str) -> None:
    for source in (text + ALONE, text + TOGETHER["a barrier alone"]):
        with pytest.raises(pumice.ShaderCompileError, match="declares its own"):
            pumice.Kernel(source, pumice_context, local_size=8)
        with pytest.raises(pumice.ShaderCompileError, match="declares its own"):
            pumice.compile(source, local_size=8)


def test_a_name_that_looks_like_a_local_size_declares_none(pumice_context: pumice.Context) -> None:
    source = """
layout(push_constant) uniform parameter { uint local_size_x; } p;
layout(binding = 0) buffer Y { uint y[]; };
void main() { uint local_size_y = p.local_size_x; y[gl_GlobalInvocationID.x] = local_size_y; }"""
    kernel = pumice.Kernel(source, pumice_context)
    assert kernel.shader.interface["guarded"]
    y = np.zeros(8, np.uint32)
    kernel(y=y, local_size_x=3, threads=5)
    assert (y == [3] * 5 + [0] * 3).all()


@pytest.mark.parametrize("wrong", [0, (), (1, 2, 3, 4), (8, 0), -1, (1 << 32,)])
def test_local_sizes_that_are_none(pumice_context: pumice.Context, wrong: Any) -> None:
    for source in (ALONE, TOGETHER["subgroups"]):
        with pytest.raises(pumice.BindingError, match="K2") as caught:
            pumice.Kernel(source, pumice_context, local_size=wrong)
        assert caught.value.slot == "local_size"
        with pytest.raises(pumice.BindingError, match="K2"):
            pumice.compile(source, local_size=wrong)


@pytest.mark.parametrize("wrong", ["64", (1.5,), {"x": 1}, object()])
def test_local_sizes_of_another_type(pumice_context: pumice.Context, wrong: Any) -> None:
    with pytest.raises(TypeError, match="local_size"):
        pumice.Kernel(ALONE, pumice_context, local_size=wrong)


def test_a_local_size_is_within_what_the_device_takes(pumice_context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match="maxComputeWorkGroup"):
        pumice.Kernel(TOGETHER["a barrier alone"], pumice_context, local_size=1 << 20)
    with pytest.raises(pumice.BindingError, match="either local_size= or constants"):
        pumice.Kernel(ALONE, pumice_context, local_size=8, spec={"local_size_x": 8})


def test_a_kernel_that_was_never_made_can_be_shown() -> None:
    assert repr(pumice.Kernel.__new__(pumice.Kernel)) == "<Kernel, not made>"  # as in a constructor traceback
    assert repr(pumice.dv.Context.__new__(pumice.dv.Context)) == "<dv.Context, not made>"


def test_bodies_files_and_debugged_kernels_take_it(pumice_context: pumice.Context, tmp_path: Path) -> None:
    body = "t[gl_LocalInvocationID.x] = x[i]; barrier(); y[i] = t[gl_WorkGroupSize.x - 1 - gl_LocalInvocationID.x];"
    kernel = pumice.Kernel.from_body(
        body, {"x": "float32"}, {"y": ("float32", 16)}, pumice_context, header="shared float t[8];", local_size=8
    )
    assert (kernel(x=np.arange(16, dtype=np.float32)) == [*range(7, -1, -1), *range(15, 7, -1)]).all()
    path = tmp_path / "sum.comp"
    path.write_text(TOGETHER["shared memory and a barrier"])
    for debug in (False, True):
        kernel = pumice.Kernel.from_file(path, pumice_context, local_size=8, debug=debug)
        x, y = called(kernel)
        assert (y == x.reshape(-1, 8).sum(1).repeat(8)).all()


def test_storage_types_of_a_given_local_size(pumice_context: pumice.Context) -> None:
    """Every precision is a separate build with the same size."""
    source = """
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
shared float t[gl_WorkGroupSize.x];
void main() {
  uint i = gl_GlobalInvocationID.x, k = gl_LocalInvocationID.x;
  t[k] = float(buffer_ld1(x, i));
  barrier();
  buffer_st1(y, i, afp(t[gl_WorkGroupSize.x - 1 - k]));
}"""
    kernel = pumice.Kernel(source, pumice_context, local_size=4)
    for dtype in (np.float32, np.float16):
        x, y = np.arange(8, dtype=dtype), np.zeros(8, dtype)
        kernel(x=x, y=y, threads=8)
        assert (y == [3, 2, 1, 0, 7, 6, 5, 4]).all()
