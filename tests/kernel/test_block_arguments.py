"""Blocks with several members and uniform blocks, passed by member, as a dict or whole; arrays without padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice

X = np.arange(6, dtype="float32")
MEMBERS = "vec3 offset; float scale; ivec4 shift[2]; mat3 m; uint n;"
VALUES: dict[str, Any] = {
    "offset": (10, 20, 30),
    "scale": 2.0,
    "shift": [[3, 0, 0, 0], [4, 0, 0, 0]],
    "m": np.arange(9, dtype="float32").reshape(3, 3),
    "n": 5,
}
EXPECTED = 2 * X + 10 + 20 + 30 + 3 + 4 + 5 + 7  # m[2][1] is 7


def source(block: str, prefix: str = "") -> str:
    p = prefix
    return f"""
layout(binding = 0) readonly buffer X {{ float x[]; }};
layout(binding = 1) writeonly buffer Y {{ float y[]; }};
layout(binding = 2) {block};
void main() {{
  uint i = gl_GlobalInvocationID.x;
  y[i] = {p}scale * x[i] + {p}offset.x + {p}offset.y + {p}offset.z + {p}shift[0].x + {p}shift[1].x + {p}n + {p}m[2][1];
}}
"""


BLOCKS = {
    "uniform": (f"uniform Parameters {{ {MEMBERS} }}", ""),
    "uniform instance": (f"uniform Parameters {{ {MEMBERS} }} p", "p."),
    "buffer": (f"readonly buffer Parameters {{ {MEMBERS} }}", ""),
    "buffer instance": (f"readonly buffer Parameters {{ {MEMBERS} }} p", "p."),
    "std430": (f"layout(std430) readonly buffer Parameters {{ {MEMBERS} }} p", "p."),
}


@pytest.mark.parametrize("case", BLOCKS)
def test_blocks_that_are_read_are_given_by_member_or_as_a_dict(context: pumice.Context, case: str) -> None:
    block, prefix = BLOCKS[case]
    if "std430" in case:
        block = block.replace("layout(std430) ", "")
    kernel = pumice.Kernel(source(block, prefix), context)
    name = "p" if prefix else kernel.shader.interface["bindings"][2]["name"]
    whole = np.zeros((), kernel.dtype(name))
    for key, value in VALUES.items():
        if key == "m":
            whole[key][:, :3] = value
        else:
            whole[key] = value
    ways: list[dict[str, Any]] = [VALUES, {"Parameters": VALUES}, {name: whole}]
    ways += [{"p": VALUES}] if prefix else []
    for given in ways:
        y = np.zeros(6, "float32")
        kernel(x=X, y=y, threads=6, **given)
        np.testing.assert_array_equal(y, EXPECTED)
    result = pumice.tensor(np.zeros(6, "float32"), context=context)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=X, y=result, threads=6, **VALUES))
    commands.commit()
    commands.exec().wait()
    np.testing.assert_array_equal(result.numpy(), EXPECTED)


def test_members_that_are_missing_unknown_or_wrong_are_named(context: pumice.Context) -> None:
    kernel = pumice.Kernel(source(*BLOCKS["uniform instance"]), context)
    y = np.zeros(6, "float32")
    for change, rule, match in (
        ({"scale": None}, "K3", r"its members offset, scale, shift, m, n; given no scale"),
        ({"n": -1}, "K6", r"p\.n.*uint32 can hold"),
        ({"shift": [1, 2, 3]}, "K4", r"p\.shift.*shape \(2, 4\)"),
        ({"offset": "abc"}, "K4", r"p\.offset"),
    ):
        given = {key: value for key, value in {**VALUES, **change}.items() if value is not None}
        with pytest.raises(pumice.BindingError, match=match) as refused:
            kernel(x=X, y=y, threads=6, **given)
        assert refused.value.rule == rule
    with pytest.raises(pumice.BindingError, match=r"given other"):
        kernel(x=X, y=y, threads=6, p={**VALUES, "other": 1})


def test_a_member_of_two_blocks_needs_the_instance(context: pumice.Context) -> None:
    text = """
layout(binding = 0) uniform A { float k; vec2 v; } a;
layout(binding = 1) uniform B { float k; vec2 w; } b;
layout(binding = 2) buffer Y { float y[]; };
void main() { y[0] = a.k + a.v.y + 10.0 * (b.k + b.w.y); }
"""
    kernel = pumice.Kernel(text, context)
    y = np.zeros(1, "float32")
    kernel(a={"k": 1, "v": (0, 2)}, b={"k": 3, "w": (0, 4)}, y=y, threads=1)
    assert y[0] == 73
    with pytest.raises(pumice.BindingError):
        kernel(k=1, v=(0, 2), w=(0, 4), y=y, threads=1)


def test_a_block_that_is_written_takes_arrays_and_gives_them_back(context: pumice.Context) -> None:
    text = """
struct Item { vec3 at; uint id; };
layout(binding = 0) buffer State { uint count; vec2 sums; Item items[]; } state;
void main() {
  uint i = gl_GlobalInvocationID.x;
  atomicAdd(state.count, 1u);
  if (i == 0u) state.sums = vec2(1, 2);
  state.items[i].at *= 2.0;
  state.items[i].id += state.items.length();
}
"""
    kernel = pumice.Kernel(text, context)
    count, sums = np.full(1, 7, "uint32"), np.zeros(2, "float32")
    items = np.zeros(5, [("at", "f4", 3), ("id", "u4")])
    items["at"] = np.arange(15).reshape(5, 3)
    kernel(count=count, sums=sums, items=items, threads="items")
    assert count[0] == 12 and sums.tolist() == [1, 2] and items["id"].tolist() == [5] * 5
    np.testing.assert_array_equal(items["at"], 2 * np.arange(15).reshape(5, 3))
    kernel(state={"count": count, "sums": sums, "items": items}, threads=5)
    assert count[0] == 17
    with pytest.raises(pumice.BindingError, match=r"state\.count.*a writable array") as refused:
        kernel(count=7, sums=sums, items=items, threads=5)
    assert refused.value.rule == "K9"


DTYPES = {
    "packed": [("position", "f4", 3), ("mass", "f4"), ("velocity", "f4", 3)],
    "other order": [("velocity", "f4", 3), ("mass", "f4"), ("position", "f4", 3)],
    "spread": {
        "names": ["position", "mass", "velocity"],
        "formats": [("f4", 3), "f4", ("f4", 3)],
        "offsets": [4, 32, 48],
        "itemsize": 80,
    },
}
PARTICLES = """
struct Particle { vec3 position; float mass; vec3 velocity; };
layout(binding = 0) buffer B { Particle particles[]; };
void main() { uint i = gl_GlobalInvocationID.x; particles[i].position += particles[i].velocity * particles[i].mass; }
"""


@pytest.mark.parametrize("case", DTYPES)
def test_offsets_of_structures_are_filled_in(context: pumice.Context, case: str) -> None:
    kernel = pumice.Kernel(PARTICLES, context)
    particles = np.zeros(7, np.dtype(DTYPES[case]))  # type: ignore[call-overload]
    particles["velocity"], particles["mass"] = np.arange(21).reshape(7, 3), 2
    kernel(particles=particles, threads="particles")
    np.testing.assert_array_equal(particles["position"], 2 * np.arange(21).reshape(7, 3))
    with pytest.raises(pumice.BindingError):
        kernel(particles=particles.astype([("position", "f8", 3), ("mass", "f4"), ("velocity", "f4", 3)]), threads=7)
    frozen = particles.copy()
    frozen.flags.writeable = False
    with pytest.raises(pumice.BindingError, match="writable") as refused:
        kernel(particles=frozen, threads=7)
    assert refused.value.rule == "K9"


@pytest.mark.parametrize("kind", ["vec3", "ivec3", "mat3", "mat2x3"])
def test_rows_of_three_need_no_gap(context: pumice.Context, kind: str) -> None:
    columns = {"mat3": 3, "mat2x3": 2}.get(kind)
    text = f"""
layout(binding = 0) readonly buffer X {{ {kind} x[]; }} src;
layout(binding = 1) buffer Y {{ {kind} y[]; }} dst;
void main() {{ uint i = gl_GlobalInvocationID.x; dst.y[i] = src.x[i] + src.x[i]; }}
"""
    kernel = pumice.Kernel(text, context)
    x = np.arange(5 * 3 * (columns or 1)).reshape(5, *([columns] if columns else []), 3)
    x = x.astype("int32" if kind == "ivec3" else "float32")
    y = np.zeros_like(x)
    kernel(src=x, dst=y, threads="dst")
    np.testing.assert_array_equal(y, 2 * x)
