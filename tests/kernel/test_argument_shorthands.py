"""Shorthand kernel arguments: an array name as launch size, dicts as structures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice

DOUBLE = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; y[i] = 2 * x[i]; }
"""
LIGHTS = """
struct Colour { float red; float blue; };
struct Light { vec3 place; vec2 size; Colour colour; int kind[2]; };
layout(binding = 0) readonly buffer L { Light lights[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  Light one = lights[i];
  y[i] = one.place.z + one.size.y * one.colour.blue + float(one.kind[1]);
}
"""


def test_a_launch_is_as_large_as_a_named_array(context: pumice.Context) -> None:
    kernel = pumice.Kernel(DOUBLE, context)
    x = np.arange(35, dtype="float32").reshape(5, 7)
    y = np.zeros_like(x)
    kernel(x=x, y=y, threads="y")
    assert (y == 2 * x).all()
    made = pumice.empty(x.shape, "float32", context)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=pumice.tensor(x, context), y=made, threads="x"))
    commands.commit()
    commands.exec().wait()
    assert (made.numpy() == 2 * x).all()
    kernel({"x": x + 1, "y": y}, threads="y")
    assert (y == 2 * x + 2).all()
    assert kernel.time(x=x, y=y, threads="y", runs=2).min > 0


def test_a_push_constant_of_that_name_stays_what_it_is(context: pumice.Context) -> None:
    text = """
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(push_constant) uniform P { float threads; } p;
void main() { y[gl_GlobalInvocationID.x] = p.threads; }
"""
    y = np.zeros(5, "float32")
    pumice.Kernel(text, context)({"threads": 3}, y=y, threads="y")
    assert (y == 3).all()


@pytest.mark.parametrize("named", ["z", "", "threads"])
def test_a_launch_by_no_array_is_rejected(context: pumice.Context, named: str) -> None:
    x = np.ones(3, "float32")
    with pytest.raises(pumice.BindingError, match=r"K8.*the name of an array of this call \(x, y\)"):
        pumice.Kernel(DOUBLE, context)(x=x, y=x.copy(), threads=named)


def lights(**changed: Any) -> list[dict[str, Any]]:
    one = {"place": (1, 2, 3), "size": [4, 5], "colour": {"red": 0.5, "blue": 2}, "kind": [7, 8], **changed}
    return [one, {**one, "place": np.arange(3)}]


def test_structures_are_given_as_dicts(context: pumice.Context) -> None:
    kernel = pumice.Kernel(LIGHTS, context)
    y = np.zeros(2, "float32")
    kernel(lights=lights(), y=y, threads=2)
    assert y.tolist() == [3 + 10 + 8, 2 + 10 + 8]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lights(size=3), r"lights\[0\].size': expected numbers of shape \(2,\); given 3"),
        (lights(size=(1, 2, 3)), r"lights\[0\].size"),
        (lights(colour={"red": 1}), r"lights\[0\].colour': expected a dict of red, blue; given one of red"),
        (lights(colour=1), r"lights\[0\].colour': expected a dict of red, blue; given int"),
        (lights(wide=1), r"lights\[0\]': expected a dict of place, size, colour, kind; given one of .*wide"),
        (lights(kind=[7, 2.7]), r"K6.*lights\[0\].kind': expected numbers that int32 can hold; given \[7, 2.7\]"),
        (lights(kind=[7, 2**31]), r"lights\[0\].kind': expected numbers that int32 can hold"),
        (lights(size=["4", "5"]), r"lights\[0\].size': expected numbers"),
        (lights(place="far"), r"lights\[0\].place"),
        ([*lights(), 3], r"lights\[2\]': expected a dict of .*; given int"),
    ],
)
def test_dicts_that_are_no_such_structure_are_rejected(context: pumice.Context, given: Any, said: str) -> None:
    with pytest.raises(pumice.BindingError, match=said):
        pumice.Kernel(LIGHTS, context)(lights=given, y=np.zeros(2, "float32"), threads=2)


@pytest.mark.parametrize("member", ["vec4 v", "float v[4]"])
def test_three_numbers_are_no_four(context: pumice.Context, member: str) -> None:
    text = f"""
struct A {{ {member}; vec3 line[2]; }};
layout(binding = 0) readonly buffer X {{ A x[]; }};
layout(binding = 1) writeonly buffer Y {{ float y[]; }};
void main() {{ y[gl_GlobalInvocationID.x] = x[0].v[3] + x[0].line[1].z; }}
"""
    kernel, y = pumice.Kernel(text, context), np.zeros(1, "float32")
    kernel(x=[{"v": [1, 2, 3, 4], "line": [[0, 0, 0], [5, 6, 7]]}], y=y, threads=1)
    assert y[0] == 11
    with pytest.raises(pumice.BindingError, match=r"x\[0\].v': expected numbers of shape \(4,\)"):
        kernel(x=[{"v": [1, 2, 3], "line": [[0, 0, 0], [5, 6, 7]]}], y=y, threads=1)


def test_dicts_are_rejected_where_the_kernel_writes(context: pumice.Context) -> None:
    text = "struct A { float a; };\nlayout(binding = 0) buffer B { A one[]; };\nvoid main() { one[0].a += 1; }"
    with pytest.raises(pumice.BindingError, match=r"K9.*the kernel writes it; given a list of dicts"):
        pumice.Kernel(text, context)(one=[{"a": 1}], threads=1)


def test_a_source_of_2024_is_detected(context: pumice.Context) -> None:
    text = """
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
shared lfp kept[64];
void main() {
  uint i = gl_LocalInvocationID.x;
  kept[i] = sfp2lfp(x[i]);
  barrier();
  buffer_st1(y, i, lfp2afp(kept[i]));
}
"""
    with pytest.raises(pumice.ShaderCompileError, match='ShaderOptions\\(generation="2024"\\)'):
        pumice.Kernel(text, context, local_size=64)
    with pytest.raises(pumice.ShaderCompileError) as raised:
        pumice.Kernel("void main() { nothing(); }", context)
    assert "2024" not in str(raised.value)
