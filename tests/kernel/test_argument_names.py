"""Names of a kernel's arguments: block instances, members, and names that mean two things."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pumice

COPY = """
layout(binding = 0) readonly buffer A { float data[]; } src;
layout(binding = 1) writeonly buffer B { float data[]; } dst;
layout(push_constant) uniform P { uint n; } p;
void main() { uint i = gl_GlobalInvocationID.x; if (i < p.n) dst.data[i] = src.data[i] + 1.0; }
"""
# A block with an instance name and one without, each with its own member name.
MIXED = """
layout(binding = 0) readonly buffer A { float x[]; } source;
layout(binding = 1) writeonly buffer B { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; y[i] = 2.0 * source.x[i]; }
"""
X = np.arange(4, dtype="float32")


def test_two_blocks_with_one_member_name_are_named_by_instance(context: pumice.Context) -> None:
    kernel = pumice.Kernel(COPY, context)
    assert [one["name"] for one in kernel.shader.interface["bindings"]] == ["src", "dst"]
    for src, dst in itertools.product(("src", "src.data"), ("dst", "dst.data")):
        y = np.zeros(4, "float32")
        kernel({src: X, dst: y, "n": 3}, threads=4)
        assert y.tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("name", ["source", "x", "source.x"])
def test_a_member_that_only_one_block_has_is_a_name_too(context: pumice.Context, name: str) -> None:
    y = np.zeros(4, "float32")
    pumice.Kernel(MIXED, context)({name: X, "y": y}, threads=4)
    assert y.tolist() == [0, 2, 4, 6]


def test_a_member_of_two_blocks_is_refused_with_the_names_that_serve(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match=r"expected src, dst, n.*'data'") as refused:
        pumice.Kernel(COPY, context)(data=X, n=4, threads=4)
    assert refused.value.rule == "K4"


def test_one_argument_by_two_of_its_names_is_refused(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match=r"one value for 'source'.*two of them"):
        pumice.Kernel(MIXED, context)({"source": X, "source.x": X, "y": np.zeros(4, "float32")}, threads=4)


@pytest.mark.parametrize(
    "source",
    [
        "layout(binding = 0) buffer A { float x[]; } n;\nlayout(push_constant) uniform P { uint n; } p;\nvoid main() { n.x[0] = p.n; }",
        "layout(binding = 0) buffer A { float n[]; };\nlayout(push_constant) uniform P { uint n; } p;\nvoid main() { n[0] = p.n; }",
    ],
)
def test_two_arguments_of_one_name_are_refused_when_the_source_is_compiled(
    context: pumice.Context, source: str
) -> None:
    source = source.replace("= p.n", "= float(p.n)")
    with pytest.raises(
        pumice.ShaderCompileError, match=r"two arguments of this kernel are named 'n': the buffer at binding 0"
    ):
        pumice.Kernel(source, context)


def test_dtype_takes_every_name_of_an_argument(context: pumice.Context) -> None:
    kernel = pumice.Kernel(COPY, context)
    assert kernel.dtype("src") == kernel.dtype("src.data") == np.dtype("float32")
