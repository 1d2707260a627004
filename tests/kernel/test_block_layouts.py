"""Random blocks in every layout: NumPy values against the values that a kernel reads and writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import pumice

Random = np.random.Generator
DTYPES = {"float": "f4", "int": "i4", "uint": "u4", "double": "f8", "float16_t": "f2", "int8_t": "i1", "int64_t": "i8"}
VECTORS = {
    "float": "vec",
    "int": "ivec",
    "uint": "uvec",
    "double": "dvec",
    "float16_t": "f16vec",
    "int8_t": "i8vec",
    "int64_t": "i64vec",
}
LAYOUTS = ["uniform", "std140 buffer", "std430 buffer", "scalar buffer", "push"]


class Type(NamedTuple):
    """A scalar, vector, matrix or structure type."""

    glsl: str
    scalar: str
    shape: tuple[int, ...]  # of the vector or matrix, in memory order
    is_matrix: bool = False
    is_row_major: bool = False  # row-major, or a structure with row-major matrices
    members: tuple[Member, ...] = ()


class Member(NamedTuple):
    name: str
    type: Type
    sizes: tuple[int, ...]  # array dimensions

    @property
    def declaration(self) -> str:
        order = "layout(row_major) " if self.type.is_row_major else ""
        return f"{order}{self.type.glsl} {self.name}{''.join(f'[{n}]' if n else '[]' for n in self.sizes)};"


def by_rows(kind: Type) -> Type:
    """Return the type with row-major matrices."""
    members = tuple(one._replace(type=by_rows(one.type)) for one in kind.members)
    is_row_major = kind.is_matrix or bool(members)
    return kind._replace(
        shape=kind.shape[::-1] if kind.is_matrix else kind.shape, is_row_major=is_row_major, members=members
    )


def number_type(random: Random, scalars: list[str]) -> Type:
    scalar = str(random.choice(scalars))
    kind = int(random.integers(3))
    if kind == 2 and scalar in ("float", "double"):
        columns, rows = (int(n) for n in random.integers(2, 5, 2))
        return Type(f"{'d' * (scalar == 'double')}mat{columns}x{rows}", scalar, (columns, rows), True)
    if kind == 1:
        n = int(random.integers(2, 5))
        return Type(f"{VECTORS[scalar]}{n}", scalar, (n,))
    return Type(scalar, scalar, ())


def member(random: Random, name: str, type_of: Type, most_axes: int = 2) -> Member:
    return Member(name, type_of, tuple(int(n) for n in random.integers(1, 5, int(random.integers(most_axes + 1)))))


class Block(NamedTuple):
    """A block and the structures that it needs."""

    declarations: str
    members: tuple[Member, ...]


def block(random: Random, scalars: list[str], count: int, may_be_rows: bool = True) -> Block:
    structures: list[Type] = []
    for name in ("Inner", "Outer"):
        made = [member(random, f"{name.lower()}{i}", number_type(random, scalars), 1) for i in range(2)]
        if structures:
            made.insert(1, member(random, "nested", structures[0], 1))
        structures.append(Type(name, "", (), members=tuple(made)))
    members = []
    for i in range(count):
        is_structure = random.integers(4) == 0
        kind = structures[int(random.integers(2))] if is_structure else number_type(random, scalars)
        kind = by_rows(kind) if may_be_rows and random.integers(2) else kind
        members.append(member(random, f"m{i}", kind, 1 if is_structure else 2))
    text = "".join(f"struct {one.glsl} {{ {' '.join(m.declaration for m in one.members)} }};\n" for one in structures)
    return Block(text, tuple(members))


def dtype_of(kind: Type) -> Any:
    """Return the dtype without padding."""
    if kind.members:
        return np.dtype([(m.name, dtype_of(m.type), m.sizes) for m in kind.members])
    return np.dtype((DTYPES[kind.scalar], kind.shape))


def value_of(random: Random, one: Member) -> Any:
    array = np.zeros(one.sizes, dtype_of(one.type))
    for numbers, _, _ in leaves(one, array):
        numbers[...] = random.integers(1, 100, numbers.shape)
    return array


def leaves(one: Member, array: Any, path: str = "") -> Iterator[tuple[Any, list[str], str]]:
    """Yield (values, their GLSL expressions in memory order, their scalar type)."""
    for index in itertools.product(*map(range, array.shape[: len(one.sizes)])):
        here = f"{path}{one.name}{''.join(f'[{i}]' for i in index)}"
        element = array[(*index, ...)]
        if one.type.members:
            for inner in one.type.members:
                yield from leaves(inner, element[inner.name], f"{here}.")
            continue
        places = itertools.product(*map(range, one.type.shape))
        turned = (reversed(place) if one.type.is_row_major else place for place in places)
        yield element, [here + "".join(f"[{i}]" for i in place) for place in turned], one.type.scalar


def as_dicts(one: Member, array: Any) -> Any:
    """Return structures as dicts and arrays of structures as lists."""
    if not one.type.members:
        return array
    if array.ndim:
        return [as_dicts(one, element[...]) for element in (array[i, ...] for i in range(len(array)))]
    return {inner.name: as_dicts(inner, array[inner.name]) for inner in one.type.members}


def source(layout: str, made: Block, body: str, access: str = "") -> str:
    extension = "#extension GL_EXT_shader_explicit_arithmetic_types : require\n"
    extension += "#extension GL_EXT_scalar_block_layout : require\n" if layout.startswith("scalar") else ""
    head = {
        "uniform": "layout(binding = 1) uniform",
        "push": "layout(push_constant) uniform",
        "std140 buffer": f"layout(std140, binding = 1) {access} buffer",
        "std430 buffer": f"layout(std430, binding = 1) {access} buffer",
        "scalar buffer": f"layout(scalar, binding = 1) {access} buffer",
    }[layout]
    members = " ".join(one.declaration for one in made.members)
    return f"""{extension}{made.declarations}
layout(binding = 0) buffer Y {{ float y[]; }};
{head} Block {{ {members} }} b;
void main() {{
{body}
}}
"""


def reading(values: dict[str, Any], made: Block) -> tuple[str, Any]:
    """Return a shader body that copies all values to `y`, and the expected `y`."""
    lines: list[str] = []
    expected: list[float] = []
    for one in made.members:
        for numbers, places, _ in leaves(one, values[one.name], "b."):
            for place, number in zip(places, numbers.ravel(), strict=True):
                lines.append(f"  y[{len(lines)}] = float({place});")
                expected.append(float(number))
    return "\n".join(lines), np.array(expected, "float32")


def scalars_of(random: Random, layout: str) -> list[str]:
    """Choose scalar types. Push constants are limited to 128 bytes and use 4-byte types only."""
    few = ["float", "int", "uint"]
    return few if layout == "push" or random.integers(2) else [*few, "double", "float16_t", "int8_t", "int64_t"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(12))
def test_members_arrive(context: pumice.Context, layout: str, seed: int) -> None:
    random = np.random.default_rng([seed, LAYOUTS.index(layout)])
    is_push = layout == "push"
    count = 1 if is_push else int(random.integers(1, 6))
    made = block(random, scalars_of(random, layout), count, may_be_rows=not is_push)
    values = {one.name: value_of(random, one) for one in made.members}
    body, expected = reading(values, made)
    try:
        kernel = pumice.Kernel(source(layout, made, body, "readonly"), context)
    except pumice.UnsupportedError as error:
        if not (is_push and "bytes of push constants" in str(error)):
            raise
        return
    given: dict[str, Any] = {one.name: as_dicts(one, values[one.name]) for one in made.members}
    ways = [given] if is_push else [given, values] if count > 1 else [values]
    for way in ways:
        y = np.zeros(len(expected), "float32")
        kernel(y=y, threads=1, **way)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one.endswith("buffer")])
@pytest.mark.parametrize("seed", range(12))
def test_results_come_back(context: pumice.Context, layout: str, seed: int) -> None:
    random = np.random.default_rng([100 + seed, LAYOUTS.index(layout)])
    made = block(random, scalars_of(random, layout), int(random.integers(1, 6)))
    if random.integers(2) and not made.members[-1].type.members:  # an unsized array at the end
        last = made.members[-1]
        made = Block(made.declarations, (*made.members[:-1], last._replace(sizes=(3, *last.sizes[1:]))))
    values = {one.name: value_of(random, one) for one in made.members}
    lines = []
    for one in made.members:
        for numbers, places, scalar in leaves(one, values[one.name], "b."):
            lines += [
                f"  {place} = {scalar}({2 * int(n) % 127});" for place, n in zip(places, numbers.ravel(), strict=True)
            ]
    is_unsized = made.members[-1].sizes[:1] == (3,)
    text = made
    if is_unsized:
        text = Block(
            made.declarations, (*made.members[:-1], made.members[-1]._replace(sizes=(0, *made.members[-1].sizes[1:])))
        )
    kernel = pumice.Kernel(source(layout, text, "\n".join([*lines, "  y[0] = 1.0;"])), context)
    expected = {name: array.copy() for name, array in values.items()}
    for one in made.members:
        for numbers, _, _ in leaves(one, expected[one.name]):
            numbers[...] = 2 * numbers.astype("i8") % 127
    kernel(y=np.zeros(1, "float32"), threads=1, **values)
    for name, array in expected.items():
        np.testing.assert_array_equal(values[name], array, err_msg=name)


@pytest.mark.parametrize("layout", ["std140, binding = 1) uniform", "std140, binding = 1) buffer"])
@pytest.mark.parametrize(
    ("kind", "sizes", "shape"),
    [
        ("float", "[8]", (8,)),
        ("float", "[4]", (4,)),
        ("float", "[4][4]", (4, 4)),
        ("vec2", "[2]", (2, 2)),
        ("vec3", "[3]", (3, 3)),
        ("vec4", "[3]", (3, 4)),
        ("mat2", "[2]", (2, 2, 2)),
        ("mat3", "[2]", (2, 3, 3)),
    ],
)
def test_an_array_alone_in_its_block_needs_no_gaps(
    context: pumice.Context, layout: str, kind: str, sizes: str, shape: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    places = ["".join(f"[{i}]" for i in place) for place in np.ndindex(*shape)]
    body = "\n".join(f"y[{i}] = x{place};" for i, place in enumerate(places))
    text = f"layout({layout} X {{ {kind} x{sizes}; }};\nlayout(binding = 0) buffer Y {{ float y[]; }};\nvoid main() {{ {body} }}"
    kernel = pumice.Kernel(text, context)
    whole = np.zeros(shape[0], kernel.dtype("x"))  # with padding, in the memory layout
    whole[tuple(slice(n) for n in shape) + (0,) * (whole.ndim - len(shape))] = array
    for given in (array, whole):
        y = np.zeros(array.size, "float32")
        kernel(x=given, y=y, threads=1)
        np.testing.assert_array_equal(y, array.ravel())


def test_threads_count_elements_with_gaps_and_without(context: pumice.Context) -> None:
    text = """
layout(std140, binding = 0) buffer X { float x[]; };
layout(std140, binding = 1) buffer Z { uint n; vec4 z[]; };
void main() { x[gl_GlobalInvocationID.x] += 1.0; atomicAdd(n, 1u); }
"""
    kernel = pumice.Kernel(text, context)
    n, z = np.zeros(1, "uint32"), np.zeros((7, 4), "float32")
    for x in (np.zeros(5, "float32"), np.zeros((5, 4), "float32")):
        n[0] = 0
        kernel(x=x, n=n, z=z, threads="x")
        assert n[0] == 5 and x.sum() == 5
    n[0] = 0
    kernel(x=np.zeros(7, "float32"), n=n, z=z, threads="z")
    assert n[0] == 7


def test_rows_that_are_no_padding_are_rejected(context: pumice.Context) -> None:
    """Missing components of a vec4 are not filled in, and extra components of a vec3 are not dropped."""
    text = """
struct S { vec4 v[2]; };
layout(binding = 0) uniform A { vec4 v[2]; vec3 w[2]; float f[2]; } a;
layout(binding = 1) readonly buffer B { S s[]; };
layout(binding = 2) buffer Y { float y[]; };
void main() { y[0] = a.v[1].w + a.w[1].z + a.f[1] + s[0].v[1].w; }
"""
    kernel = pumice.Kernel(text, context)
    right = {"v": np.ones((2, 4)), "w": np.ones((2, 3)), "f": np.ones(2)}
    s, y = np.ones(1, [("v", "f4", (2, 4))]), np.zeros(1, "float32")
    kernel(a=right, s=s, y=y, threads=1)
    assert y[0] == 4
    for name, shape, said in (
        ("v", (2, 3), r"\(2, 4\)"),
        ("w", (2, 2), r"\(2, 3\)"),
        ("f", (2, 3), r"\(2,\)"),
        ("f", 3, r"\(2,\)"),
    ):
        with pytest.raises(pumice.BindingError, match=rf"a\.{name}.*numbers of shape {said}") as refused:
            kernel(a={**right, name: np.ones(shape)}, s=s, y=y, threads=1)
        assert refused.value.rule == "K4"
    with pytest.raises(pumice.BindingError, match="'v'"):
        kernel(a=right, s=np.ones(1, [("v", "f4", (2, 3))]), y=y, threads=1)


@pytest.mark.parametrize("kind", ["sfp", "sfpvec2", "sfpvec4"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("storage", ["default", "fp16_packed"])
def test_gaps_of_the_storage_type_are_filled_or_rejected(
    context: pumice.Context, kind: str, dtype: str, storage: str
) -> None:
    """Padding differs between fp16 and fp32; no element is read at an offset of the other type."""
    components = {"sfp": 1, "sfpvec2": 2, "sfpvec4": 4}[kind]
    text = f"""
layout(std140, binding = 0) readonly buffer X {{ {kind} x[]; }};
layout(binding = 1) buffer Y {{ float y[]; }};
void main() {{ y[0] = float(buffer_ld{components}(x, 3){".x" * (components > 1)}); }}
"""
    options = None if storage == "default" else pumice.ShaderOptions(storage=storage)
    kernel = pumice.Kernel(text, context, options=options)
    x = np.arange(64 * components, dtype=dtype).reshape((64, components)[: 1 + (components > 1)])
    y = np.zeros(1, "float32")
    try:
        kernel(x=x, y=y, threads=1)
    except pumice.BindingError as error:
        assert error.rule == "K5" and (dtype == "float16" or options)
    else:
        assert y[0] == 3 * components
    if dtype == "float16" and not options:
        row = np.zeros((64, 8), dtype)
        row[:, :components] = x.reshape(64, components)
        if "fp16_packed" in kernel.variants:  # no 16-bit storage: a std140 element is a uint32 word of two fp16 numbers
            with pytest.raises(pumice.BindingError, match="two elements in a word"):
                kernel(x=row, y=y, threads=1)
        else:
            kernel(x=row, y=y, threads=1)
            assert y[0] == 3 * components


def test_arrays_of_blocks_take_members_and_need_no_gaps(context: pumice.Context) -> None:
    text = """
layout(binding = 0) uniform A { float f[2]; } a[2];
layout(binding = 2) uniform B { vec3 v; float f[2]; } b[2];
layout(binding = 4) buffer Y { float y[]; };
void main() { y[0] = a[0].f[1] + a[1].f[1] + b[0].v.z + b[1].f[1]; }
"""
    kernel = pumice.Kernel(text, context)
    y = np.zeros(1, "float32")
    arrays = [np.array([0, n], "float32") for n in (1, 20)]
    kernel(a=arrays, b=[{"v": (0, 0, 300), "f": (0, 0)}, {"v": (0, 0, 0), "f": (0, 4000)}], y=y, threads=1)
    assert y[0] == 4321
