"""Kernels from SPIR-V modules of another compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice

TEXT = """
layout(local_size_x_id = 1) in;
layout(constant_id = 0) const float FACTOR = 2.0;
layout(set = 1, binding = 0) readonly buffer A { float data[]; } src;
layout(set = 1, binding = 1) writeonly buffer B { float data[]; } dst;
layout(push_constant) uniform P { uint n; } p;
void main() { uint i = gl_GlobalInvocationID.x; if (i < p.n) dst.data[i] = FACTOR * src.data[i]; }
"""


def module(text: str = TEXT, **options: Any) -> bytes:
    return bytes(pumice.compile(text, pumice.ShaderOptions(guard=False, **options)).spirv)


@pytest.mark.parametrize("minor", [0, 1, 2])
def test_a_module_runs_as_its_source_does(context: pumice.Context, minor: int) -> None:
    kernel = pumice.Kernel(spirv=module(vulkan_minor=minor), context=context, spec={"FACTOR": 3.0, "local_size_x": 16})
    x, y = np.arange(40, dtype="float32"), np.zeros(40, "float32")
    kernel(src=x, dst=y, n=40, threads=48)
    np.testing.assert_array_equal(y, 3 * x)
    kernel(src=x, dst=y, n=40, groups=3)
    assert kernel.source == "" and kernel.shader.interface["local_size_ids"][0] == 1
    with pytest.raises(pumice.BindingError, match=r"a multiple of the local size 16.*groups="):
        kernel(src=x, dst=y, n=40, threads=40)


def test_modules_that_cannot_be_are_rejected(context: pumice.Context) -> None:
    spirv = module()
    newer = spirv[:4] + (0x00020000).to_bytes(4, "little") + spirv[8:]
    for given, error, match in (
        (b"abc", pumice.ShaderCompileError, "whole 32-bit words"),
        (spirv[:64], pumice.ShaderCompileError, "malformed SPIR-V"),
        (b"\0" * 64, pumice.ShaderCompileError, "magic number"),
        (newer, pumice.UnsupportedError, r"a module of SPIR-V 2\.0"),
    ):
        with pytest.raises(error, match=match):
            pumice.Kernel(spirv=given, context=context)


def test_what_only_a_source_has_is_rejected(context: pumice.Context) -> None:
    spirv = module()
    for name, value in {
        "source": TEXT, "macros": {"A": "1"}, "includes": {"a": "b"}, "options": {"int64": True},
        "include_dirs": ["x"], "debug": True, "local_size": 64,
    }.items():  # fmt: skip
        given: dict[str, Any] = {name: value}
        with pytest.raises(TypeError, match=f"Kernel: {name}: expected none with spirv="):
            pumice.Kernel(spirv=spirv, context=context, **given)
    with pytest.raises(TypeError, match="source: expected the source of a shader"):
        pumice.Kernel(context=context)
    with pytest.raises(pumice.Error, match="a kernel with a GLSL source"):
        pumice.kernel_operator(pumice.Kernel(spirv=spirv, context=context))
