"""Invocation counts: exactly the requested number, whatever local size the source declares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from lesser_devices import SMALL_GRID, lesser

SIZES = [(1, 1, 1), (64, 1, 1), (16, 16, 1), (3, 5, 2), (1, 1, 7), (128, 1, 1)]
COUNT = """
layout(binding = 0) buffer Y { uint y[]; };
layout(binding = 1) buffer N { uint total; };
PUSH
void main() {
  uvec3 g = gl_GlobalInvocationID;
  uint at = g.x + 1000u * (g.y + 1000u * g.z);
  if (g.y == 0u && g.z == 0u && g.x < y.length()) atomicAdd(y[g.x], 1u);
  atomicAdd(total, 1u);
}
"""


def declared(size: tuple[int, int, int]) -> str:
    x, y, z = size
    return f"layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;\n"


def push_block(numbers: int) -> str:
    return f"layout(push_constant) uniform P {{ float p[{numbers}]; }};" if numbers else ""


def counted(kernel: pumice.Kernel, **arguments: Any) -> tuple[list[int], int]:
    y, total = np.zeros(200, "uint32"), np.zeros(1, "uint32")
    kernel(y=y, total=total, **arguments)
    return y.tolist(), int(total[0])


@pytest.mark.parametrize("numbers", [0, 3, 29])
@pytest.mark.parametrize("size", SIZES)
def test_a_declared_size_runs_as_many_invocations_as_asked(
    context: pumice.Context, size: tuple[int, int, int], numbers: int
) -> None:
    kernel = pumice.Kernel(declared(size) + COUNT.replace("PUSH", push_block(numbers)), context)
    push = {"p": [0.0] * numbers} if numbers else {}
    for threads in (100, (7, 3), (5, 6, 3), 0, 1):
        axes = threads if isinstance(threads, tuple) else (threads,)
        y, total = counted(kernel, threads=threads, **push)
        assert total == np.prod(axes)
        assert y == [1 if i < axes[0] else 0 for i in range(200)]
    assert counted(kernel, groups=(2, 1, 3), **push)[1] == 6 * np.prod(size)


@pytest.mark.parametrize("numbers", [30, 31, 32])
def test_push_constants_without_space_for_a_guard(context: pumice.Context, numbers: int) -> None:
    kernel = pumice.Kernel(COUNT.replace("PUSH", push_block(numbers)), context)
    for threads in (100, 97, (7, 3), (5, 6, 3), (16, 16), 128):
        axes = threads if isinstance(threads, tuple) else (threads,)
        y, total = counted(kernel, threads=threads, p=[0.0] * numbers)
        assert total == np.prod(axes) and sum(y) == axes[0]
    text = declared((64, 1, 1)) + COUNT.replace("PUSH", push_block(numbers))
    fixed = pumice.Kernel(text, context)
    assert counted(fixed, threads=128, p=[0.0] * numbers)[1] == 128
    with pytest.raises(pumice.BindingError, match=r"a multiple of the local size 64 on axis 0") as refused:
        counted(fixed, threads=100, p=[0.0] * numbers)
    assert refused.value.rule == "K8"


def test_invocations_that_work_together_are_whole_workgroups(context: pumice.Context) -> None:
    """No invocation may be skipped before a barrier, so such a source checks its own bounds."""
    text = declared((64, 1, 1)) + COUNT.replace("PUSH", "shared uint s[64];").replace(
        "uvec3 g", "s[gl_LocalInvocationID.x] = 1u; barrier(); uvec3 g"
    )
    assert counted(pumice.Kernel(text, context), threads=100)[1] == 128


@pytest.mark.parametrize("debug", [False, True])
def test_global_variables_may_begin_with_the_invocation(context: pumice.Context, debug: bool) -> None:
    text = """
layout(binding = 0) buffer Y { uint y[]; };
uint i = gl_GlobalInvocationID.x;
void main() { y[i] = i + 1u; }
"""
    for head in ("", declared((32, 1, 1))):
        y = np.zeros(100, "uint32")
        pumice.Kernel(head + text, context, debug=debug)(y=y, threads=100)
        assert y.tolist() == list(range(1, 101))


VECTORS = {
    "vec4": ("vec4", np.zeros((10, 4), "float32"), 10),
    "flat": ("vec4", np.zeros(40, "float32"), 10),
    "two in a row": ("vec4", np.zeros((10, 8), "float32"), 20),
    "vec2": ("vec2", np.zeros((3, 5, 2), "float32"), 15),
    "vec3": ("vec3", np.zeros((10, 4), "float32"), 10),
    "vec3 without gaps": ("vec3", np.zeros((10, 3), "float32"), 10),
    "mat4": ("mat4", np.zeros((6, 4, 4), "float32"), 6),
    "uvec4": ("uvec4", np.zeros((6, 4), "uint32"), 6),
    "sfpvec4": ("sfpvec4", np.zeros((6, 4), "float16"), 6),
    "float": ("float", np.zeros((3, 5), "float32"), 15),
    "a structure": ("S", np.zeros((3, 5), [("a", "f4"), ("b", "u4")]), 15),
}


@pytest.mark.parametrize("case", VECTORS)
def test_the_name_of_an_array_counts_its_elements(context: pumice.Context, case: str) -> None:
    kind, x, elements = VECTORS[case]
    source = f"""
struct S {{ float a; uint b; }};
layout(binding = 0) readonly buffer X {{ {kind} x[]; }} src;
layout(binding = 1) buffer N {{ uint total; }};
void main() {{ if (src.x.length() > 0) atomicAdd(total, 1u); }}
"""
    kernel = pumice.Kernel(source, context)
    for given in (x, pumice.tensor(x, context=context)) if x.dtype.names is None and "without" not in case else (x,):
        total = np.zeros(1, "uint32")
        kernel(src=given, total=total, threads="src")
        assert total[0] == elements


FOLDED = """
layout(binding = 0) buffer Y { uint y[]; };
HEAD
void main() { uint i = gl_GlobalInvocationID.x; if (gl_GlobalInvocationID.y == 0u) atomicAdd(y[i], i + 1u); }
"""


@pytest.mark.parametrize("size", [None, (64, 1, 1), (16, 1, 1)])
def test_long_lines_of_invocations_are_folded(context: pumice.Context, size: tuple[int, int, int] | None) -> None:
    text = FOLDED.replace("HEAD", "" if size is None else declared(size))
    with lesser(context, SMALL_GRID) as device:  # two workgroups on the first two axes
        kernel = pumice.Kernel(text, device, debug=size is None)
        for n in (1, 128, 129, 1000, 12345):
            y = np.zeros(n, "uint32")
            kernel(y=y, threads=n)
            np.testing.assert_array_equal(y, np.arange(1, n + 1))
        assert "GRID" not in str(kernel.shader.interface)


@pytest.mark.parametrize("word", ["gl_WorkGroupID", "gl_NumWorkGroups"])
def test_a_source_that_asks_for_its_workgroup_is_not_folded(context: pumice.Context, word: str) -> None:
    text = FOLDED.replace("HEAD", f"uint place = {word}.x;")
    with lesser(context, SMALL_GRID) as device:
        kernel = pumice.Kernel(text, device)
        kernel(y=np.zeros(128, "uint32"), threads=128)
        with pytest.raises(pumice.BindingError, match=r"at most 2 workgroups on axis 0"):
            kernel(y=np.zeros(129, "uint32"), threads=129)
