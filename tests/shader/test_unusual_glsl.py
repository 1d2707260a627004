"""Legal GLSL that breaks compilers: every module is valid, and errors have a source location."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pumice
from features import need_features
from glsl_modes import validate

# --- Conversions of storage-only types

NUMBERS = {
    "float16_t": "float16", "float": "float32", "double": "float64", "int8_t": "int8", "uint8_t": "uint8",
    "int16_t": "int16", "uint16_t": "uint16", "int": "int32", "uint": "uint32", "int64_t": "int64", "uint64_t": "uint64",
}  # fmt: skip
VECTORS = {
    "float16_t": "f16vec", "float": "vec", "double": "dvec", "int8_t": "i8vec", "uint8_t": "u8vec", "int16_t": "i16vec",
    "uint16_t": "u16vec", "int": "ivec", "uint": "uvec", "int64_t": "i64vec", "uint64_t": "u64vec",
}  # fmt: skip


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("arithmetic", [False, True])
@pytest.mark.parametrize("target", [name for name in NUMBERS if np.dtype(NUMBERS[name]).itemsize <= 2])
def test_every_number_converts_to_small_ones(
    target: str, arithmetic: bool, lanes: int, context: pumice.Context, tmp_path: Path
) -> None:
    """Small types with arithmetic, or storage-only."""
    storage = {"int16_storage": True, "int8_storage": True, "storage": "fp16"}
    options = pumice.ShaderOptions(**storage, fp16_arithmetic=arithmetic, int16=arithmetic, int8=arithmetic)
    kind = {name: name if lanes == 1 else f"{VECTORS[name]}{lanes}" for name in NUMBERS}
    flag, whole = ("bool", "int") if lanes == 1 else (f"bvec{lanes}", f"ivec{lanes}")
    sources = list(NUMBERS)
    lines = [
        f"layout(binding = {i}) readonly buffer X{i} {{ {kind[name]} x{i}[]; }};" for i, name in enumerate(sources)
    ]
    lines.append(f"layout(binding = {len(sources)}) writeonly buffer Y {{ {kind[target]} y[]; }};")
    body = "".join(f"y[{i}] = {kind[target]}(x{i}[0]); " for i in range(len(sources)))
    body += f"y[{len(sources)}] = {kind[target]}({flag}({whole}(x{sources.index('int')}[0])));"
    text = "\n".join([*lines, "layout(local_size_x = 1) in;", f"void main() {{ {body} }}"])
    shader = pumice.compile(text, options)
    validate(shader, tmp_path)
    need_features(context, *shader.interface["features"])
    values = np.arange(5, 5 + 17 * lanes, 17)
    arrays = {f"x{i}": values.astype(NUMBERS[name]) for i, name in enumerate(sources)}
    y = np.zeros((len(sources) + 1) * lanes, NUMBERS[target])
    pumice.Kernel(text, context, options=options)(**arrays, y=y, groups=1)
    np.testing.assert_array_equal(y, np.append(np.tile(values, len(sources)), np.ones(lanes)).astype(y.dtype))


# --- Legal but unusual sources

BUFFER = "layout(binding = 0) buffer X { float x[]; };\n"
UNUSUAL = {
    "arrays of arrays": "layout(binding = 0) buffer X { float x[][3][2]; };\nvoid main() { x[gl_GlobalInvocationID.x][2][1] = 7.0; }",
    "a matrix of std430": "layout(std430, binding = 0) buffer X { mat3 x[]; };\nvoid main() { x[0][1][gl_GlobalInvocationID.x] = 7.0; }",
    "rows of a matrix": (
        "layout(std430, row_major, binding = 0) buffer X { mat3x2 x[]; };\n"
        "void main() { x[0][gl_GlobalInvocationID.x + 1][1] = 7.0; }"
    ),
    "nested structures": (
        "struct A { vec3 p; int q[2]; };\nstruct B { A a[2]; mat2 m; };\nlayout(push_constant) uniform P { B b; int n; };\n"
        + BUFFER
        + "void main() { x[0] = b.a[n].p.y + b.m[1][n] + 7.0; }"
    ),
    "a size that is specialised": (
        "layout(constant_id = 3) const int N = 4;\nlayout(local_size_x = 1) in;\nshared float s[N * 2];\n"
        + BUFFER
        + "void main() { s[gl_LocalInvocationIndex] = 7.0; barrier(); x[0] = s[0]; }"
    ),
    "coherent and volatile": (
        "layout(binding = 0) coherent volatile restrict buffer X { float x[]; };\nvoid main() { x[0] = 7.0; memoryBarrierBuffer(); }"
    ),
    "a byte order mark": "\ufeff" + BUFFER + "void main() { x[0] = 7.0; }",
    "a byte order mark before the version": "\ufeff#version 460\n" + BUFFER + "void main() { x[0] = 7.0; }",
    "a version behind a tab": "#\tversion 450\n" + BUFFER + "void main() { x[0] = 7.0; }",
    "a version behind a comment": "# /* version */version 460 core\n" + BUFFER + "void main() { x[0] = 7.0; }",
    "a version on the next line": "#\\\nversion 460\n" + BUFFER + "void main() { x[0] = 7.0; }",
    "words around a version": "// inversion, version1 and version\n"
    + BUFFER
    + "void main() { float version = 7.0; x[0] = version; }",
    "lines of Windows": (BUFFER + "#define F(a) \\\n  a\nvoid main() {\n  x[0] = F( \\\n 7.0);\n}\n").replace(
        "\n", "\r\n"
    ),
    "a comment that goes on": BUFFER + "// a comment \\\n void main() {}\nvoid main() { x[0] = 7.0; }",
    "an include in a comment": '/*\n#include "nowhere"\n*/\n// #include "nowhere"\n'
    + BUFFER
    + "void main() { x[0] = 7.0; }",
    "an include that is left out": '#if 0\n#include "nowhere"\n#endif\n' + BUFFER + "void main() { x[0] = 7.0; }",
    "an include with a byte order mark": '  #  include "a.glsl" // and so on\n' + BUFFER + "void main() { x[0] = A; }",
    "a text with all kinds of things": BUFFER
    + 'void main() { printf("} /* #include \\"nowhere\\" // %d ;{", 7); x[0] = 7.0; }',
    "a main of a macro": "#define entry main\n" + BUFFER + "void entry() { x[0] = 7.0; }",
    "a main that is declared first": BUFFER + "void main();\nvoid main(void) { x[0] = 7.0; }",
    "a main in a comment": BUFFER + "/* void main() {} */ // local_size_x\nvoid main() { x[0] = 7.0; }",
    "the end of the text in a line that goes on": BUFFER + "void main() { x[0] = 7.0; }\\",
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_sources_are_valid(kind: str, debug: bool, tmp_path: Path) -> None:
    text = UNUSUAL[kind]
    shader = pumice.compile(text, pumice.ShaderOptions(debug=debug), includes={"a.glsl": "\ufeff#define A 7.0\n"})
    validate(shader, tmp_path)
    assert "x" in [binding["name"] for binding in shader.interface["bindings"]]


def test_a_line_directive_in_an_include_holds_for_that_include() -> None:
    text = '#include "generated.glsl"\nvoid main() { x = 1; }'
    for included, place in (
        ('#line 100 "template"\n#define ONE 1\n', "mine:2:15:"),
        ('#line 100 "template"\nint f() { return x; }\n', "template:100:"),
    ):
        with pytest.raises(pumice.ShaderCompileError) as error:
            pumice.compile(text, name="mine", includes={"generated.glsl": included})
        assert str(error.value).startswith(place)


def test_buffer_references_are_rejected() -> None:
    text = (
        "#extension GL_EXT_buffer_reference : require\nlayout(buffer_reference) buffer R { float f; };\n"
        "layout(push_constant) uniform P { R r; };\n" + BUFFER + "void main() { x[0] = r.f; }"
    )
    with pytest.raises(pumice.UnsupportedError, match="GL_EXT_buffer_reference.*a buffer block of its own"):
        pumice.compile(text)
