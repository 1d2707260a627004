"""Single overridden options of a kernel, bindings unused by a variant, and shaders without the engine's push constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice

SHIFTED = """
layout(binding = 0) readonly buffer A { sfp x[]; };
layout(binding = 1) readonly buffer B { sfp shift[]; };
layout(binding = 2) buffer C { sfp y[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    afp value = buffer_ld1(x, i);
#ifdef SHIFT
    value += buffer_ld1(shift, i);
#endif
    buffer_st1(y, i, value);
}
"""
DOUBLED = """
layout(binding = 0) buffer A { sfp x[]; };
void main() { uint i = gl_GlobalInvocationID.x; buffer_st1(x, i, buffer_ld1(x, i) * afp(2)); }
"""


def kernel(context: pumice.Context, text: str = SHIFTED, **given: Any) -> pumice.Kernel:
    return pumice.Kernel(text, context, **given)


# None for a binding that a variant does not use


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_none_stands_for_a_binding_that_a_variant_does_not_use(context: pumice.Context, dtype: str) -> None:
    x, y = np.arange(4, dtype=dtype), np.zeros(4, dtype)
    kernel(context)(x=x, shift=None, y=y, threads="y")
    assert y.tolist() == [0, 1, 2, 3]
    kernel(context, macros={"SHIFT": 1})({"shift": x}, x=x, y=y, threads="y")
    assert y.tolist() == [0, 2, 4, 6]


def test_none_is_rejected_by_name_where_the_variant_uses_the_binding(context: pumice.Context) -> None:
    x = np.zeros(4, "float32")
    with pytest.raises(pumice.BindingError, match=r"\[K3\].*'shift'.*uses it; given None") as found:
        kernel(context, macros={"SHIFT": 1})(x=x, shift=None, y=x.copy(), threads=4)
    assert (found.value.rule, found.value.tensor) == ("K3", "shift")
    with pytest.raises(pumice.BindingError, match=r"\[K3\].*'shift'.*given nothing"):
        kernel(context)(x=x, y=x.copy(), threads=4)  # arguments cannot be omitted silently


def test_a_bound_kernel_takes_none_too(context: pumice.Context) -> None:
    x = pumice.tensor(np.arange(4, dtype="float32"), context)
    y = pumice.tensor(np.zeros(4, "float32"), context)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel(context).bind(x=x, shift=None, y=y, threads=4))
    commands.commit()
    commands.exec().wait()
    assert y.numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(pumice.BindingError, match="uses it"):
        kernel(context).bind(x=None, shift=x, y=y, threads=4)


def test_none_is_no_number(context: pumice.Context) -> None:
    made = pumice.Kernel.from_body("y[i] = factor;", {"factor": float}, {"y": ("float32", 4)}, context)
    with pytest.raises(pumice.BindingError, match="'factor'.*NoneType"):
        made(factor=None)


def test_the_interface_says_which_bindings_are_used(context: pumice.Context) -> None:
    def used(**given: Any) -> dict[str, bool]:
        return {one["name"]: one["used"] for one in kernel(context, **given).shader.interface["bindings"]}

    assert used() == {"x": True, "shift": False, "y": True}
    assert used(macros={"SHIFT": 1}) == {"x": True, "shift": True, "y": True}


# options= as a dict


def test_a_dict_of_options_keeps_what_it_does_not_name(context: pumice.Context) -> None:
    """The variant still depends on the dtype of the arrays, as without options."""
    made = kernel(context, DOUBLED, options={"fp16_arithmetic": False, "shader_local_memory": True})
    for dtype in ("float32", "float16"):
        x = np.arange(5, dtype=dtype)
        made(x=x, threads="x")
        assert x.tolist() == [0, 2, 4, 6, 8]
    plain = kernel(context, DOUBLED)
    plain(x=np.ones(4, "float16"), threads=4)
    assert set(made.variants) == set(plain.variants) and len(made.variants) == 2
    for name, variant in made.variants.items():
        assert variant.options.profile == plain.variants[name].options.profile


def test_a_dict_of_options_changes_what_it_names(context: pumice.Context) -> None:
    text = """
    layout(binding = 0) buffer A { float x[]; };
    void main() { x[gl_GlobalInvocationID.x] = float(EXTRA) + 1.0; }
    """
    made = kernel(context, text, options={"profile": {"EXTRA": "5"}, "vulkan_minor": 1})
    x = np.zeros(1, "float32")
    made(x=x, threads=1)
    assert x.tolist() == [6]
    options = made.shader.options
    assert options.profile["EXTRA"] == "5"
    assert {**kernel(context, DOUBLED).shader.options.profile, "EXTRA": "5"} == options.profile
    older = kernel(context, DOUBLED, options={"generation": "2024"})
    assert older.shader.options.generation == "2024"


def test_options_that_are_none_are_rejected(context: pumice.Context) -> None:
    for given, match in (
        ({"storage": "fp16"}, "'storage' is derived from the arrays"),
        ({"no_such": True}, "given 'no_such'"),
        ({"vulkan_minor": "one"}, r"options\['vulkan_minor'\]"),
    ):
        with pytest.raises(TypeError, match=match):
            kernel(context, DOUBLED, options=given)
    with pytest.raises(TypeError, match="options: expected ShaderOptions or a mapping"):
        kernel(context, DOUBLED, options=3)
    with pytest.raises(pumice.UnsupportedError, match="vulkan_minor"):
        kernel(context, DOUBLED, options={"vulkan_minor": 9})


# A shader without the engine's push constants


def names_of_push_constants(shader: pumice.Shader) -> list[str]:
    return [one["name"] for one in shader.interface["push_constants"]]


@pytest.mark.parametrize("local_size", [None, (8, 4)])
def test_a_shader_without_a_guard_has_no_push_constants_of_the_engine(local_size: tuple[int, int] | None) -> None:
    guarded = pumice.compile(DOUBLED, local_size=local_size)
    assert names_of_push_constants(guarded) == [f"pumice_threads_{axis}" for axis in "xyz"]
    plain = pumice.compile(DOUBLED, pumice.ShaderOptions(guard=False), local_size=local_size)
    assert names_of_push_constants(plain) == [] and plain.interface["push_bytes"] == 0
    assert plain.interface["local_size"] == ((8, 4, 1) if local_size else (1, 1, 1))
    assert pumice.reflect(plain.spirv)["push_constants"] == []
    assert pumice.compile(DOUBLED, local_size=local_size).spirv == guarded.spirv  # the caches distinguish the two


def test_a_kernel_without_a_guard_checks_its_own_bounds(context: pumice.Context) -> None:
    text = DOUBLED.replace("buffer_st1(x", "if (i < x.length()) buffer_st1(x")
    made = kernel(context, text, options={"guard": False}, local_size=4)
    x = np.arange(6, dtype="float32")
    made(x=x, groups=2)
    assert x.tolist() == [0, 2, 4, 6, 8, 10]
    assert names_of_push_constants(made.shader) == []


# Convenience conversions


def test_one_array_is_two_bindings_of_scalars_and_vectors(context: pumice.Context) -> None:
    text = """
    layout(binding = 0) readonly buffer A { float x[]; };
    layout(binding = 1) readonly buffer B { vec4 x4[]; };
    layout(binding = 2) buffer C { float y[]; };
    void main() { uint i = gl_GlobalInvocationID.x; y[i] = x[i] + x4[i / 4].w; }
    """
    x, y = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    kernel(context, text)(x=x, x4=x, y=y, threads="y")
    assert y.tolist() == [3, 4, 5, 6, 11, 12, 13, 14]


def test_float16_are_passed_to_a_packed_kernel_without_views(context: pumice.Context) -> None:
    """With five elements, the last word is only half used."""
    x = np.array([1, 2, 3, 4, 5], "float16")
    kernel(context, DOUBLED)(x=x, threads="x")
    assert x.tolist() == [2, 4, 6, 8, 10]
