"""Structures in buffers: NumPy dtypes against shader layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice

PARTICLES = """
struct P { vec3 position; float mass; };
layout(binding = 0) buffer B { P p[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  p[i].position *= 2.0;
  p[i].mass += 1.0;
}
"""
NATURAL = [("position", "f4", 3), ("mass", "f4")]
VECTORS = "layout(binding = 0) buffer B { vec3 x[]; };\nvoid main() { x[gl_GlobalInvocationID.x] += vec3(1, 2, 3); }"
# A header, padding, matrices, nested arrays, a nested structure.
BLOCK = """
layout(local_size_x = 1) in;
struct Inner { ivec2 at[2][2]; uint tag; };
struct Q { mat3 m; mat2x4 n; Inner inner; };
layout(binding = 0) buffer B { uint count; vec3 w[2]; Q q[]; };
layout(binding = 1) uniform U { float a[3]; };
void main() {
  q[1].m[1][2] = a[2];
  q[1].n[1][3] = w[1].z;
  q[1].inner.at[1][0].y = 5;
  q[0].inner.tag = 7u;
  count = q.length();
}
"""


def expect_error(kernel: pumice.Kernel, **arguments: Any) -> str:
    with pytest.raises(pumice.BindingError) as caught:
        kernel(**arguments)
    assert caught.value.rule == "K5"
    return str(caught.value)


@pytest.mark.parametrize("step", [1, 2, -1])
def test_structures_arrive_and_come_back(context: pumice.Context, step: int) -> None:
    kernel = pumice.Kernel(PARTICLES, context)
    assert kernel.dtype("p") == np.dtype(NATURAL)
    assert "p: read and write structure[]" in repr(kernel)
    whole = np.zeros(10, kernel.dtype("p"))
    particles = whole[::step]
    n = len(particles)
    particles["position"] = np.arange(3 * n).reshape(n, 3)
    particles["mass"] = np.arange(n)
    for times in (1, 2):
        kernel(p=particles, threads=n)
        np.testing.assert_array_equal(particles["position"], np.arange(3 * n).reshape(n, 3) * 2**times)
        np.testing.assert_array_equal(particles["mass"], np.arange(n) + times)
    if step == 2:
        assert not whole[1::2]["mass"].any()


def test_fields_may_come_in_another_order_and_fill_gaps(context: pumice.Context) -> None:
    kernel = pumice.Kernel(
        "struct P { vec3 a; vec3 b; };\n" + PARTICLES.split("\n", 2)[2].replace("position", "a").replace("mass", "b.y"),
        context,
    )
    assert kernel.dtype("p").itemsize == 32
    fields = {
        "names": ["b", "own", "a"],
        "formats": [("f4", 3), "i4", ("f4", 3)],
        "offsets": [16, 12, 0],
        "itemsize": 32,
    }
    p = np.zeros(3, np.dtype(fields))
    p["own"] = 9
    kernel(p=p, threads=3)
    assert (p["b"][:, 1] == 1).all() and (p["own"] == 9).all()


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ([("position", "f4", 3), ("mass", "f8")], ["'mass' as float32 at byte 12", "given float64 at byte 12"]),
        ([("position", "f4", 4), ("mass", "f4")], ["'position' as float32[3] at byte 0", "given float32[4] at byte 0"]),
        ([("mass", "f8"), ("position", "f4", 3)], ["'position' as float32[3] at byte 0", "float32[3] at byte 8"]),
        ([("position", "i4", 3), ("mass", "f4")], ["float32[3]", "int32[3]"]),
        ([("position", "f4", 3), ("weight", "f4")], ["'mass' as float32 at byte 12", "no such field"]),
        ([*NATURAL, ("more", "f4")], ["structures of 16 bytes", "given structures of 20 bytes"]),
        ([("position", ">f4", 3), ("mass", "f4")], ["field 'position'", "native byte order"]),
        ([("position", "S4", 3), ("mass", "f4")], ["field 'position'", "S4"]),
        ("f4", ["structures of 16 bytes", "given an array of float32"]),
        ("i8", ["structures of 16 bytes", "given an array of int64"]),
    ],
)  # fmt: skip
def test_a_disagreement_names_the_field(context: pumice.Context, dtype: Any, said: list[str]) -> None:
    text = expect_error(pumice.Kernel(PARTICLES, context), p=np.zeros(4, np.dtype(dtype)), threads=4)
    for part in ["argument 'p'", *said]:
        assert part in text


def test_an_error_does_not_depend_on_earlier_calls(context: pumice.Context) -> None:
    """Equal bytes do not make calls equal: dtypes and shapes are checked each time."""
    kernel = pumice.Kernel(PARTICLES, context)
    kernel(p=np.zeros(4, NATURAL), threads=4)
    expect_error(kernel, p=np.zeros(4, [("position", "i4", 3), ("mass", "f4")]), threads=4)
    vectors = pumice.Kernel(VECTORS, context)
    vectors(x=np.zeros((3, 4), "float32"), threads=3)
    expect_error(vectors, x=pumice.tensor(np.zeros((4, 3), "float32"), context), threads=3)


def test_structures_stay_on_the_device_as_rows_of_bytes(context: pumice.Context) -> None:
    kernel = pumice.Kernel(PARTICLES, context)
    particles = np.zeros(4, NATURAL)
    tensor = pumice.tensor(particles.view("uint8").reshape(4, 16), context)
    kernel(p=tensor, threads=4)
    assert tensor.numpy().view(NATURAL)["mass"].tolist() == [[1]] * 4
    assert "rows of their bytes as uint8" in expect_error(kernel, p=tensor.reshape((8, 8)), threads=4)


def test_vectors_of_three_have_a_gap(context: pumice.Context) -> None:
    kernel = pumice.Kernel(VECTORS, context)
    text = expect_error(kernel, x=pumice.tensor(np.zeros((5, 3), "float32"), context), threads=5)
    assert (
        "16 bytes apart" in text
        and "shape (n, 4)" in text
        and "structured dtype" in text
        and "a last axis of 3" in text
    )
    x = np.zeros(5, kernel.dtype("x"))
    assert x.shape == (5, 4)
    kernel(x=x, threads=5)
    assert x.tolist() == [[1, 2, 3, 0]] * 5
    fields = np.zeros(5, {"names": ["x", "y", "z"], "formats": ["f4"] * 3, "itemsize": 16})
    kernel(x=fields, threads=5)
    assert fields["z"].tolist() == [3] * 5
    assert "float32[4]" in expect_error(kernel, x=np.zeros(5, [("x", "f4"), ("y", "f4"), ("z", "f4")]), threads=5)
    kernel(x=pumice.tensor(x, context), threads=5)


def test_a_block_with_a_header_is_one_structure(context: pumice.Context) -> None:
    kernel = pumice.Kernel(BLOCK, context)
    dtype = kernel.dtype("q", 2)
    assert [dtype.fields[name][1] for name in ("count", "w", "q")] == [0, 16, 48]
    block, a = np.zeros((), dtype), np.zeros(3, kernel.dtype("a"))
    block["w"][1, 2], a[2, 0] = 4, 9
    kernel(q=block, a=a, groups=1)
    assert (block["count"], block["q"][1]["m"][1, 2], block["q"][1]["n"][1, 3]) == (2, 9, 4)
    assert block["q"][1]["inner"]["at"][1, 0, 1] == 5 and block["q"][0]["inner"]["tag"] == 7
    assert "given 2 of them" in expect_error(kernel, q=np.zeros(2, dtype), a=a, groups=1)
    assert "members differ or have gaps" in expect_error(kernel, q=np.zeros(99, "uint32"), a=a, groups=1)
    kernel(q=block, a=np.array([0, 0, 7], "float32"), groups=1)
    assert block["q"][1]["m"][1, 2] == 7
    tight = pumice.tensor(np.zeros(3, "float32"), context)
    assert "16 bytes apart" in expect_error(kernel, q=block, a=tight, groups=1)


def test_dtypes_are_of_buffers(context: pumice.Context) -> None:
    kernel = pumice.Kernel(BLOCK, context)
    for name, length, said in (("q", None, "length="), ("a", 3, "no length"), ("none", None, "'none'")):
        with pytest.raises(pumice.BindingError, match=said):
            kernel.dtype(name, length)
    plain = pumice.Kernel("layout(binding = 0) buffer B { uvec4 x[]; };\nvoid main() { x[0].y = 1u; }", context)
    assert plain.dtype("x") == np.dtype(("u4", (4,)))


def test_a_structure_may_be_bound_where_it_is_read(context: pumice.Context) -> None:
    source = PARTICLES.replace("buffer B", "readonly buffer B").split("void")[0]
    source += "layout(binding = 1) buffer Y { float y[]; };\nvoid main() { uint i = gl_GlobalInvocationID.x; y[i] = p[i].mass; }"
    kernel = pumice.Kernel(source, context)
    particles = np.zeros(4, NATURAL)
    particles["mass"] = [3, 1, 4, 1]
    y = pumice.empty(4, "float32", context)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(p=particles, y=y, threads=4))
    commands.commit()
    commands.exec().wait()
    assert y.numpy().tolist() == [3, 1, 4, 1]
