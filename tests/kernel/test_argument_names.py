"""Names of kernel arguments: block instances, members, and ambiguous names."""

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
# One block with an instance name and one without; their member names differ.
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


def test_a_member_of_two_blocks_is_rejected_with_the_names_that_serve(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match=r"expected src, dst, n.*'data'") as refused:
        pumice.Kernel(COPY, context)(data=X, n=4, threads=4)
    assert refused.value.rule == "K4"


def test_one_argument_by_two_of_its_names_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match=r"one value for 'source'.*two of them"):
        pumice.Kernel(MIXED, context)({"source": X, "source.x": X, "y": np.zeros(4, "float32")}, threads=4)


@pytest.mark.parametrize(
    "source",
    [
        "layout(binding = 0) buffer A { float x[]; } n;\nlayout(push_constant) uniform P { uint n; } p;\nvoid main() { n.x[0] = p.n; }",
        "layout(binding = 0) buffer A { float n[]; };\nlayout(push_constant) uniform P { uint n; } p;\nvoid main() { n[0] = p.n; }",
    ],
)
def test_two_arguments_of_one_name_are_rejected_when_the_source_is_compiled(
    context: pumice.Context, source: str
) -> None:
    source = source.replace("= p.n", "= float(p.n)")
    with pytest.raises(
        pumice.ShaderCompileError, match=r"two arguments of this kernel are named 'n': the buffer at binding 0"
    ):
        pumice.Kernel(source, context)


MEMBERS = {
    "arrays": ("buffer A { float k[]; }", "buffer B { float k[]; }"),
    "headers": ("readonly buffer A { uint n; float k[2]; }", "buffer B { uint m; float k[], q; }"),
    "uniform": ("uniform A { vec4 v[3]; float k; }", "buffer B { float w; float k[3 * (2 + 1)]; }"),
    "several in a line": ("uniform A { float a, k; }", "uniform B { float b; float k; }"),
}


@pytest.mark.parametrize("case", MEMBERS)
def test_a_member_of_two_blocks_without_instances_is_rejected_with_both_blocks(
    context: pumice.Context, case: str
) -> None:
    first, second = MEMBERS[case]
    text = f"// blocks\nlayout(binding = 0) {first};\n\nlayout(binding = 1) {second};\nvoid main() {{ }}"
    with pytest.raises(
        pumice.ShaderCompileError,
        match=r"kernel:4:\d+: 'B' .*: 'k' is a member of block 'A' in kernel:2, too; .* instance name",
    ):
        pumice.Kernel(text, context)


def test_a_block_in_an_include_is_named_with_its_file(context: pumice.Context) -> None:
    text = '#include "a.glsl"\nlayout(binding = 1) buffer B { float k[]; };\nvoid main() { }'
    with pytest.raises(pumice.ShaderCompileError, match=r"kernel:2.*block 'A' in a.glsl:2, too"):
        pumice.Kernel(text, context, includes={"a.glsl": "\nlayout(binding = 0) uniform A { float k; };\n"})


def test_a_member_that_shares_its_name_with_something_else_is_rejected_as_before(context: pumice.Context) -> None:
    text = "float k = 1.0;\nlayout(binding = 1) buffer B { float k[]; };\nlayout(binding = 0) buffer A { float k[]; } a;\nvoid main() { }"
    with pytest.raises(pumice.ShaderCompileError, match="at global scope\n"):
        pumice.Kernel(text, context)


def test_a_module_whose_blocks_share_a_member_is_rejected(context: pumice.Context) -> None:
    text = "layout(binding = 0) buffer A { float a; float kkkA; };\nlayout(binding = 1) buffer B { float b; float kkkB; };\n"
    spirv = bytes(pumice.compile(text + "void main() { b = kkkA; a = kkkB; }", pumice.ShaderOptions(guard=False)).spirv)
    with pytest.raises(
        pumice.ShaderCompileError, match="'kkkA' is a member of block 'A' at binding 0 and of block 'B' at binding 1"
    ):
        pumice.Kernel(spirv=spirv.replace(b"kkkB", b"kkkA"), context=context)
    pumice.Kernel(spirv=spirv, context=context)


def test_a_member_without_an_instance_is_meant_by_its_name(context: pumice.Context) -> None:
    """As in GLSL, `k` is B's member and `a.k` is A's."""
    text = """
layout(binding = 0) uniform A { vec2 v; float k; } a;
layout(binding = 1) uniform B { vec2 w; float k; };
layout(binding = 2) buffer Y { float y[]; };
void main() { y[0] = a.v.y + a.k + w.y + k; }
"""
    y = np.zeros(1, "float32")
    pumice.Kernel(text, context)(a={"v": (0, 1), "k": 20}, w=(0, 300), k=4000, y=y, threads=1)
    assert y[0] == 4321


def test_dtype_takes_every_name_of_an_argument(context: pumice.Context) -> None:
    kernel = pumice.Kernel(COPY, context)
    assert kernel.dtype("src") == kernel.dtype("src.data") == np.dtype("float32")


@pytest.mark.parametrize("name", ["all", "lessThan", "min", "uvec"])
def test_a_member_may_have_the_name_of_a_function(name: str, context: pumice.Context) -> None:
    """The guard for invocations beyond `threads` is compiled in the same scope."""
    kernel = pumice.Kernel(
        f"#version 450\nlayout(binding=0) buffer B {{ float {name}[]; }};\nvoid main() {{ {name}[gl_GlobalInvocationID.x] += 2.0; }}",
        context=context,
    )
    given = np.zeros(100, np.float32)
    kernel(**{name: given}, threads=100)
    np.testing.assert_array_equal(given, 2)
