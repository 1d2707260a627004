"""Bounds checks of vectors, matrices, shared and uniform arrays, and elements that share a word; the result of length()."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pumice
from bounds_checks import caught
from features import need_features
from glsl_modes import MODES, validate

SHAPES = """
struct Part { vec3 at; mat2 turns[2]; };
layout(binding = 0) buffer V { vec4 v[]; };
layout(binding = 1) buffer M { mat3 fixed_one; mat3 m[]; };
layout(binding = 2) uniform U { vec4 t[3]; };
layout(binding = 3) buffer P { Part parts[]; };
layout(binding = 4) buffer Y { float y[]; };
layout(push_constant) uniform parameter { int i; float z[4]; };
layout(local_size_x = 1) in;
shared float near[5];
shared vec2 pairs[2];
float table[6];
void main() {
  y[0] = 0.5;
  near[0] = 1.0;
  pairs[1] = vec2(2.0);
  table[0] = 3.0;
  STATEMENT;
}
"""


@pytest.mark.parametrize(
    ("statement", "buffer", "size", "writes"),
    [
        ("v[1][i] = 9.0", "v[]", 4, True),
        ("y[0] = v[1][i]", "v[]", 4, False),
        ("y[0] = v[0].zw[i]", "v[]", 2, False),
        ("v[1].zyx[i] = 9.0", "v[]", 3, True),
        ("v[1][i] += 1.0", "v[]", 4, False),
        ("m[0][i] = vec3(9.0)", "m[]", 3, True),
        ("y[0] = m[0][i].x", "m[]", 3, False),
        ("y[0] = m[0][1][i]", "m[][]", 3, False),
        ("fixed_one[i][0] = 9.0", "fixed_one", 3, True),
        ("fixed_one[2][i] = 9.0", "fixed_one[]", 3, True),
        ("y[0] = t[i].x", "t", 3, False),
        ("y[0] = t[0][i]", "t[]", 4, False),
        ("y[0] = z[i]", "z", 4, False),
        ("y[0] = parts[0].at[i]", "parts[].at", 3, False),
        ("parts[0].turns[i][0][0] = 9.0", "parts[].turns", 2, True),
        ("parts[0].turns[1][i] = vec2(9.0)", "parts[].turns[]", 2, True),
        ("parts[0].turns[1][1][i] = 9.0", "parts[].turns[][]", 2, True),
        ("near[i] = 9.0", "near", 5, True),
        ("y[0] = near[i]", "near", 5, False),
        ("y[0] = pairs[i].x", "pairs", 2, False),
        ("pairs[0][i] = 9.0", "pairs[]", 2, True),
        ("y[0] = table[i]", "table", 6, False),
        ("table[i] = 9.0", "table", 6, True),
    ],
)
def test_every_index_into_memory_is_checked(
    context: pumice.Context, tmp_path: Path, statement: str, buffer: str, size: int, writes: bool
) -> None:
    kernel = pumice.Kernel(SHAPES.replace("STATEMENT", statement), context, debug=True)
    validate(kernel.shader, tmp_path)
    shapes = {b["name"]: b["least_bytes"] + b["stride"] * 2 for b in kernel.shader.interface["bindings"]}

    def run(i: int) -> tuple[pumice.OutOfBoundsError | None, dict[str, Any]]:
        arrays = {
            name: np.ones(shapes[name], "uint8") if name == "parts" else np.ones(max(shapes[name], 64) // 4, "float32")
            for name in ("v", "fixed_one", "m", "t", "parts", "y")
            if name in shapes
        }
        try:
            kernel(**arrays, i=i, z=[1.0] * 4, groups=1)
        except pumice.OutOfBoundsError as error:
            return error, arrays
        return None, arrays

    assert run(size - 1)[0] is None
    for i in (size, -1, 1 << 20):
        error, arrays = run(i)
        assert error is not None
        assert (error.buffer, error.index, error.size, "write to" in str(error)) == (buffer, i, size, writes)
        assert arrays["y"][0] == (0.5 if writes or "+=" in statement else 0.0)
        for name, array in arrays.items():
            if name != "y" and "+=" not in statement:
                assert (array == 1).all(), name


COPIES = {
    "cp1": ("sfp", "sfp", "buffer_cp1(d, p.to, s, p.from)"),
    "cp2": ("sfpvec2", "sfpvec2", "buffer_cp2(d, p.to, s, p.from)"),
    "cp4": ("sfpvec4", "sfpvec4", "buffer_cp4(d, p.to, s, p.from)"),
    "cp1to4": ("sfp", "sfpvec4", "buffer_cp1to4(d, p.to, s, ivec4(p.from))"),
    "cp4to1": ("sfpvec4", "sfp", "buffer_cp4to1(d, ivec4(p.to, 4, 5, 6), s, p.from)"),
    "cp8": ("sfpvec8", "sfpvec8", "buffer_cp8(d, p.to, s, p.from)"),
    "cp8to4": ("sfpvec8", "sfpvec4", "buffer_cp8to4(d, ivec2(p.to, 4), s, p.from)"),
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("mode", MODES)
def test_a_copy_from_out_of_bounds_gives_zeros_and_one_to_there_nothing(
    context: pumice.Context, tmp_path: Path, mode: str, copy: str
) -> None:
    source, target, call = COPIES[copy]
    options = pumice.ShaderOptions(**MODES[mode], generation="2024" if "8" in copy else "current", debug=True)
    text = (
        f"layout(binding = 0) readonly buffer S {{ {source} s[]; }};\nlayout(binding = 1) buffer D {{ {target} d[]; }};\n"
        "layout(push_constant) uniform parameter { uint from, to; } p;\nlayout(local_size_x = 1) in;\n"
        f"void main() {{ {call}; }}\n"
    )
    shader = pumice.compile(text, options)
    validate(shader, tmp_path)
    need_features(context, *shader.interface["features"])
    kernel = pumice.Kernel(text, context, options=options)
    declared = {b["name"]: b for b in shader.interface["bindings"]}

    def filled(name: str, byte: int) -> np.ndarray[Any, Any]:
        dtype = "uint16" if declared[name]["type"] == "other" else declared[name]["type"]
        return np.frombuffer(bytes([byte]) * (16 * declared[name]["stride"]), dtype).copy()

    s, d = filled("s", 0x11), filled("d", 0x22)
    error = caught(kernel, s=s, d=d, **{"from": 64, "to": 0}, groups=1)
    assert (error.buffer.split("[")[0], error.index, "read of" in str(error)) == ("s", 64, True)
    width = declared["d"]["stride"] // (2 if copy in ("cp1", "cp4to1") and declared["d"]["type"] == "uint32" else 1)
    assert not d.view("uint8")[:width].any()  # element 0
    s, d = filled("s", 0x11), filled("d", 0x22)
    error = caught(kernel, s=s, d=d, **{"from": 0, "to": 64}, groups=1)
    assert (error.buffer.split("[")[0], error.index, "write to" in str(error)) == ("d", 64, True)
    assert (d.view("uint8")[: 4 * width] == 0x22).all()


def test_zeros_stand_for_a_structure_out_of_bounds(context: pumice.Context, tmp_path: Path) -> None:
    """The structure has storage-only types, which the module can only load, store and convert."""
    text = """
struct Box { float16_t a; f16vec3 b; float c[2]; uint8_t d; };
layout(binding = 0) readonly buffer S { Box s[]; };
layout(binding = 1) buffer D { Box d[]; };
layout(binding = 2) buffer Y { float y[]; };
layout(push_constant) uniform parameter { uint from; } p;
layout(local_size_x = 1) in;
void main() { d[0] = s[p.from]; y[0] = float(s[p.from].a); y[1] = vec3(s[p.from].b).z; y[2] = float(uint(s[p.from].d)); }
"""
    options = pumice.ShaderOptions(fp16_arithmetic=True, debug=True)
    kernel = pumice.Kernel(text, context, options=options)
    validate(kernel.shader, tmp_path)
    stride = kernel.shader.interface["bindings"][0]["stride"]
    s, d, y = np.full(2 * stride, 0x3C, "uint8"), np.full(stride, 0x22, "uint8"), np.ones(3, "float32")
    kernel(s=s, d=d, y=y, **{"from": 1}, groups=1)
    members = np.flatnonzero(d == 0x3C)
    assert len(members) == 2 + 6 + 8 + 1 and (y > 1).all()
    error = caught(kernel, s=s, d=d, y=y, **{"from": 2}, groups=1)
    assert (error.buffer, error.count) == ("s", 4)
    assert not d[members].any() and not y.any()


@pytest.mark.parametrize("storage", ["fp16", "fp16_packed", "bf16_packed"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_other_half_of_an_arrays_last_word_is_out_of_bounds(
    context: pumice.Context, storage: str, count: int
) -> None:
    without = ["storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess"] if "packed" in storage else []
    if not without:
        need_features(context, "storageBuffer16BitAccess")
    dtype = ml_dtypes.bfloat16 if storage == "bf16_packed" else np.float16
    text = (
        "layout(binding = 0) buffer Y { sfp y[]; };\nlayout(push_constant) uniform parameter { uint at; } p;\n"
        "layout(local_size_x = 1) in;\nvoid main() { buffer_st1(y, p.at, buffer_ld1(y, p.at) + afp(2)); }\n"
    )
    with pumice.Context(without=without) as own:
        whole = pumice.tensor(np.ones(8, dtype), context=own)
        view = whole[:count]
        kernel = pumice.Kernel(text, own, debug=True)
        kernel(y=view, at=count - 1, groups=1)
        assert storage in kernel.variants
        expected = np.ones(8, dtype)
        expected[count - 1] = 3
        error = caught(kernel, y=view, at=count, groups=1)
        assert (error.buffer, error.index, error.size) == ("y", count, count)
        np.testing.assert_array_equal(np.asarray(whole), expected)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    ("dtype", "glsl"),
    [("float16", "float16_t"), ("int16", "int16_t"), ("uint8", "uint8_t"), ("float32", "float"), ("float64", "double"),
     ("float16", "sfp"), ("bfloat16", "sfp")],
)  # fmt: skip
def test_length_counts_the_elements_that_are_bound(context: pumice.Context, dtype: str, glsl: str, debug: bool) -> None:
    if glsl == "sfp":
        need_features(context, "storageBuffer16BitAccess")
    kernel = pumice.Kernel(
        f"layout(binding = 0) readonly buffer X {{ {glsl} x[]; }};\nlayout(binding = 1) buffer Y {{ int y[]; }};\n"
        "void main() { y[0] = x.length() + 1; }",
        context,
        debug=debug,
    )
    for n in (0, 1, 2, 3, 5, 8):
        x = np.zeros(n, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        for given in (
            x,
            pumice.tensor(x, context=context),
            pumice.tensor(np.zeros(n + 3, x.dtype), context=context)[:n],
        ):
            y = np.zeros(1, "int32")
            kernel(x=given, y=y, threads=1)
            assert y[0] == max(n, dtype == "uint8") + 1  # a range has at least one byte


def test_length_counts_words_where_elements_share_them() -> None:
    with pumice.Context(without=["storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess"]) as own:
        kernel = pumice.Kernel(
            "layout(binding = 0) readonly buffer X { sfp x[]; };\nlayout(binding = 1) buffer Y { int y[]; };\n"
            "void main() { y[0] = x.length(); y[1] = x.length() * PM_SFP_LANES; }",
            own,
        )
        y = np.zeros(2, "int32")
        for n in (1, 2, 3, 4):
            kernel(x=np.zeros(n, "float16"), y=y, threads=1)
            assert y.tolist() == [(n + 1) // 2, (n + 1) // 2 * 2]
