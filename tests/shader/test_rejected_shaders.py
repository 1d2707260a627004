"""Invalid, hostile and damaged shaders: a clear error in bounded time and memory, and the process survives."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest

import hostile_shaders
import pumice
from process import python

SANITIZED = "PUMICE_SANITIZED" in os.environ
not_sanitized = pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps what is freed, and looks for leaks itself")

MAIN = "void main() {}\n"
X = "layout(binding = 0) buffer X { float x[]; };\n"

# Source, part of the message, and the line it must name (None: the whole source).
BROKEN: dict[str, tuple[str, str, int | None]] = {
    "undeclared name": (X + "void main() {\n  x[0] = y;\n}", "'y' : undeclared identifier", 3),
    "undeclared function": (X + "void main() { x[0] = wobble(1.0); }", "'wobble' : no matching overloaded function", 2),
    "wrong argument types": (X + "void main() { x[0] = dot(1.0, vec2(1)); }", "no matching overloaded function", 2),
    "vector into a number": (X + "void main() { x[0] = vec2(1); }", "cannot convert from", 2),
    "float into int": ("void main() { int i = 1.5; }", "cannot convert from", 1),
    "missing semicolon": ("void main() {\n  int i = 1\n}", "syntax error", 3),
    "missing semicolon on the last line": (MAIN + "const int N = 1", "unexpected end of the text", 2),
    "a brace too few": (X + "void main() {\n  x[0] = 1.0;\n", "syntax error", 4),
    "a brace too many": (MAIN + "}\n", "syntax error", 2),
    "a bracket too few": (X + "void main() { x[0 = 1.0; }", "l-value required", 2),
    "no main": ("float f() { return 1.0; }", "main", None),
    "empty": ("", "main", None),
    "blank": (" \n\t\n", "main", None),
    "comment alone": ("// nothing", "main", None),
    "two mains": (MAIN + MAIN, "function already has a body", 2),
    "main with a result": ("int main() { return 1; }", "main", 1),
    "main with an argument": ("void main(int i) {}", "main", 1),
    "unknown layout": ("layout(bindng = 0) buffer X { float x[]; };\n" + MAIN, "bindng", 1),
    "binding without a number": ("layout(binding) buffer X { float x[]; };\n" + MAIN, "binding", 1),
    "negative binding": ("layout(binding = -1) buffer X { float x[]; };\n" + MAIN, "binding", 1),
    "no binding": ("buffer X { float x[]; };\nvoid main() { x[0] = 1.0; }", "binding", None),
    "one binding for buffer and uniforms": (
        X + "layout(binding = 0) uniform Y { float y[4]; };\nvoid main() { x[0] = y[0]; }",
        "binding 0",
        None,
    ),
    "name twice": (X + "layout(binding = 1) buffer Y { float x[]; };\n" + MAIN, "x", 2),
    "recursion": ("int f(int n) { return f(n); }\nvoid main() { f(1); }", "Recursion detected", None),
    "recursion of two": (
        "int g(int n);\nint f(int n) { return g(n); }\nint g(int n) { return f(n); }\nvoid main() { f(1); }",
        "Recursion detected",
        None,
    ),
    "function without a body": ("int f(int n);\nvoid main() { f(1); }", "f(", None),
    "another stage's variable": ("void main() { gl_Position = vec4(0); }", "gl_Position", 1),
    "another stage's output": ("layout(location = 0) out vec4 colour;\n" + MAIN, "out", 1),
    "discard": ("void main() { discard; }", "discard", 1),
    "a version that is none": ("#version banana\n" + MAIN, "expected #version 430 to 460, 310 es", 1),
    "an old version": ("#version 330\n" + MAIN, "expected #version 430 to 460, 310 es", 1),
    "a version of ES": ("#version 450 es\n" + MAIN, "expected #version 430 to 460, 310 es", 1),
    "include without a name": ("#include\n" + MAIN, "include", 1),
    "include that is not there": ("\n#include <nowhere.glsl>\n" + MAIN, "nowhere.glsl", 2),
    "#error": ("#if 1\n#error not on a Tuesday\n#endif\n" + MAIN, "not on a Tuesday", 2),
    "unknown directive": ("#banana\n" + MAIN, "banana", 1),
    "#if without #endif": ("#if 1\n" + MAIN, "#endif", None),
    "#endif without #if": (MAIN + "#endif\n", "#endif", 2),
    "#else twice": ("#if 0\n#else\n#else\n#endif\n" + MAIN, "else", 3),
    "#define of nothing": ("#define\n" + MAIN, "must be followed by macro name", None),
    "macro with too few arguments": ("#define F(a, b) a\nvoid main() { int i = F(1); }", "F", 2),
    "macro call that never ends": ("#define F(a) a\nvoid main() { int i = F(1; }", "F", None),
    "unknown extension": ("#extension GL_EXT_banana : require\n" + MAIN, "GL_EXT_banana", 1),
    "constant id twice": (
        "layout(constant_id = 1) const int A = 1;\nlayout(constant_id = 1) const int B = 2;\nvoid main() { int i = A + B; }",
        "constant_id",
        2,
    ),
    "constant id of a variable": ("layout(constant_id = 1) int A = 1;\n" + MAIN, "const", 1),
    "constant id out of range": ("layout(constant_id = 9999999) const int A = 1;\n" + MAIN, "constant_id", 1),
    "two push constant blocks": (
        "layout(push_constant) uniform P { int p; };\nlayout(push_constant) uniform Q { int q; };\nvoid main() { int i = p + q; }",
        "push",
        None,
    ),
    "push constants without a block": ("layout(push_constant) uniform int p;\n" + MAIN, "push_constant", 1),
    "non-ASCII name": ("void main() { int größe = 1; }", "unexpected token", 1),
    "NUL byte": ("void main() { int a\0b = 1; }", "unexpected token", 1),
    "comment that never ends": (MAIN + "/* never", "comment", 2),
    "literal too large": ("void main() { int i = 99999999999999999999; }", "too big", 1),
    "array of no elements": ("void main() { int a[0]; }", "array size must be a positive integer", 1),
    "array of less": ("void main() { int a[-3]; }", "array size must be a positive integer", 1),
    "array size that varies": ("void main() { int n = 2; int a[n]; }", "array size must be a constant", 1),
    "index out of a fixed array": ("void main() { int a[2]; a[2] = 1; }", "out of range", 1),
    "write to readonly": (
        "layout(binding = 0) readonly buffer X { float x[]; };\nvoid main() { x[0] = 1.0; }",
        "can't modify a readonly buffer",
        2,
    ),
    "read of writeonly": (
        "layout(binding = 0) writeonly buffer X { float x[]; };\nvoid main() { float f = x[0]; }",
        "writeonly",
        2,
    ),
    "write to a constant": ("const int N = 1;\nvoid main() { N = 2; }", "const", 2),
    "write to a loop's bound": ("void main() { 3 = 4; }", "l-value", 1),
    "break out of nothing": ("void main() { break; }", "break", 1),
    "case out of nothing": ("void main() { case 1: ; }", "case", 1),
    "void variable": ("void main() { void v; }", "void", 1),
    "reserved name": ("void main() { int gl_mine = 1; }", "gl_", 1),
    "half a line continued": ("void main() { int i = \\\n1.5; }", "cannot convert", None),
    "local size of zero": ("layout(local_size_x = 0) in;\n" + MAIN, "local_size", 1),
    "two local sizes": ("layout(local_size_x = 8) in;\nlayout(local_size_x = 4) in;\n" + MAIN, "local_size", 2),
    "swizzle out of the vector": ("void main() { vec2 v; float f = v.z; }", "swizzle", 1),
    "member that is not there": ("struct S { int a; };\nvoid main() { S s; s.b = 1; }", "no such field", 2),
    "#line": ('#line 40 "mine.glsl"\nvoid main() { y = 1; }', "mine.glsl:40:15: 'y'", None),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_source_is_rejected_where_it_is_broken(kind: str) -> None:
    text, part, line = BROKEN[kind]
    with pytest.raises(pumice.ShaderCompileError) as caught:
        pumice.compile(text, name="mine")
    error = caught.value
    assert part in str(error)
    assert str(error) == "\n".join(error.messages)
    if line is not None:
        assert any(message.startswith(f"mine:{line}:") for message in error.messages), str(error)


@pytest.mark.parametrize("name", ["", "2X", "A B", "F(", "#", "A\nB", "é"])
def test_a_macro_needs_a_name(name: str) -> None:
    with pytest.raises(pumice.ShaderCompileError, match="a macro's name"):
        pumice.compile(MAIN, macros={name: "1"})


def test_an_error_in_a_macro_body_names_the_macro() -> None:
    with pytest.raises(pumice.ShaderCompileError, match="undeclared|syntax error"):
        pumice.compile("void main() { int i = N; }", macros={"N": "oops +"})


# ---- hostile sources


@pytest.mark.parametrize("kind", hostile_shaders.SOURCES)
def test_a_hostile_source_is_rejected_in_bounded_time_and_memory(kind: str) -> None:
    """The source is compiled in a subprocess, which must survive and compile the next shader."""
    done = python("-m", "hostile_shaders", kind, cwd=hostile_shaders.FOLDER, PUMICE_NO_CACHE="1")
    assert done.returncode == 0, f"rc {done.returncode}: {done.stderr[-2000:]}"
    result = json.loads(done.stdout)
    wanted = hostile_shaders.SOURCES[kind][1]
    if wanted is None:
        assert result["error"] is None
    else:
        assert wanted in result["error"]
        assert len(result["error"]) < 4000
    assert SANITIZED or result["seconds"] < 20
    assert SANITIZED or result["mebibytes"] < 1500


@not_sanitized
def test_errors_leak_nothing() -> None:
    done = python("-m", "hostile_shaders", "--leak", cwd=hostile_shaders.FOLDER, PUMICE_NO_CACHE="1")
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["grown_mebibytes"] < 24


def test_the_context_works_after_an_error(context: pumice.Context) -> None:
    with pytest.raises(pumice.ShaderCompileError):
        pumice.Kernel(hostile_shaders.SOURCES["operators"][0](), context)
    kernel = pumice.Kernel(X + "void main() { x[gl_GlobalInvocationID.x] += 1.0; }", context)
    x = np.zeros(3, "float32")
    kernel(x=x, threads=3)
    assert x.tolist() == [1, 1, 1]


# ---- SPIR-V

RICH = """
struct Light { vec3 colour; float power[2]; };
layout(constant_id = 3) const int N = 4;
layout(local_size_x = 8, local_size_y_id = 5) in;
layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) buffer Y { mat3 y[]; };
layout(binding = 2, r32f) uniform image2D picture;
layout(binding = 3) uniform sampler2D photo;
layout(push_constant) uniform P { Light lights[2]; mat2 turn; };
shared float part[64];
void main() {
  part[gl_LocalInvocationIndex] = lights[1].power[0] * x[0].x * float(N) + turn[0][0];
  barrier();
  y[0][0] = vec3(part[0]) + imageLoad(picture, ivec2(0)).x + texelFetch(photo, ivec2(0), 0).x;
}
"""
OP_NAME, OP_MEMBER_NAME = 5, 6


def words_of(spirv: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(spirv) // 4}I", spirv))


def bytes_of(words: list[int]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


@pytest.fixture(scope="module")
def module() -> bytes:
    return pumice.compile(RICH).spirv


def reflected(spirv: bytes) -> bool:
    """Return whether it has an interface. Anything but a clear error fails the test."""
    try:
        pumice.reflect(spirv)
    except (pumice.ShaderCompileError, pumice.UnsupportedError) as error:
        assert len(str(error)) > 10
        return False
    return True


def test_a_whole_module_has_its_interface(module: bytes) -> None:
    interface = pumice.reflect(module)
    assert interface == pumice.compile(RICH).interface
    assert [one["name"] for one in interface["bindings"]] == ["x", "y"]


def test_a_module_stripped_of_its_names_is_rejected(module: bytes) -> None:
    words = words_of(module)
    kept, at = words[:5], 5
    while at < len(words):
        count = words[at] >> 16
        if words[at] & 0xFFFF not in (OP_NAME, OP_MEMBER_NAME):
            kept += words[at : at + count]
        at += count
    with pytest.raises(pumice.ShaderCompileError, match="stripped"):
        pumice.reflect(bytes_of(kept))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda spirv: b"", "at least 5 words, given 0"),
        (lambda spirv: spirv[:-1], "expected whole 32-bit words"),
        (lambda spirv: spirv[:16], "at least 5 words, given 4"),
        (lambda spirv: spirv[:20], "no compute entry point"),
        (lambda spirv: bytes_of([int.from_bytes(spirv[i : i + 4], "big") for i in range(0, len(spirv), 4)]), "magic"),
        (lambda spirv: b"\0" * len(spirv), "magic"),
        (lambda spirv: spirv[:20] + b"\0\0\0\0" + spirv[20:], "has 0 words"),
        (lambda spirv: spirv + b"\xff\xff\xff\xff", "65535 words"),
        (lambda spirv: b"\x7fELF" + spirv[4:], "magic"),
    ],
)
def test_what_is_no_module_is_rejected(module: bytes, change: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(pumice.ShaderCompileError, match=said):
        pumice.reflect(change(module))


def test_a_module_that_is_cut_off_anywhere_is_rejected(module: bytes) -> None:
    assert not any(reflected(module[:end]) for end in range(0, len(module), 4))


def test_flipped_bits_end_in_an_interface_or_an_error(module: bytes) -> None:
    """Flip every single bit of every word."""
    ends = [0, 0]
    for bit in range(0, len(module) * 8, 3):
        damaged = bytearray(module)
        damaged[bit // 8] ^= 1 << bit % 8
        ends[reflected(bytes(damaged))] += 1
    assert min(ends) > 100


def test_random_words_end_in_an_interface_or_an_error(module: bytes) -> None:
    draw = random.Random(7)
    words = words_of(module)
    for _ in range(3000):
        damaged = list(words)
        for _ in range(draw.randint(1, 8)):
            damaged[draw.randrange(5, len(words))] = draw.choice(
                [0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 1 << 31, draw.getrandbits(32), draw.choice(words)]
            )
        reflected(bytes_of(damaged))


@not_sanitized
def test_modules_leak_nothing(module: bytes) -> None:
    import resource

    def cycle(count: int) -> int:
        for i in range(count):
            reflected(module[: 20 + 4 * (i % 100)])
            reflected(module)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = cycle(500)
    assert cycle(5000) - before < 8 << 10  # KiB
