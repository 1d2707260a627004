"""Sources made to break a shader compiler. As a program: compiles one by name, then a valid one; prints the outcome as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pumice

FOLDER = Path(__file__).parent
N = 100_000


def main_of(body: str, before: str = "") -> Callable[[], str]:
    return lambda: f"{before}void main() {{ {body} }}\n"


def nested(before: str, middle: str, after: str, count: int = N) -> Callable[[], str]:
    return lambda: f"void main() {{ int y = 0; float f = 1.0; {before * count}{middle}{after * count} }}\n"


def doubling(line: str, last: int, body: str, first: str = "#define A0 1\n") -> Callable[[], str]:
    return lambda: first + "".join(line.format(i, i - 1) for i in range(1, last)) + body


TOO_DEEP = "nested brackets and operators: given 2000"
TOO_MANY = "the limit is 400000"
IN_BUFFER = "layout(binding = 0) buffer Y { int y[]; };\n"

# A source, and part of the error message; None if it compiles.
SOURCES: dict[str, tuple[Callable[[], str], str | None]] = {
    "parentheses": (nested("(", "1", ")"), TOO_DEEP),
    "open parentheses": (nested("(", "", ""), TOO_DEEP),
    "braces": (nested("{", "", "}"), TOO_DEEP),
    "open braces": (nested("{", "", ""), TOO_DEEP),
    "brackets": (nested("y[", "0", "]"), TOO_DEEP),
    "indices": (nested("", "y", "[0]"), TOO_DEEP),
    "braces of values": (lambda: f"void main() {{ int x[] = {'{' * N}1{'}' * N}; }}", TOO_DEEP),
    "unary operators": (nested("-", "y;", ""), TOO_DEEP),
    "operators": (nested("y + ", "1;", ""), TOO_DEEP),
    "operators of constants": (nested("1 + ", "1;", ""), TOO_DEEP),
    "operators over buffers": (lambda: IN_BUFFER + f"void main() {{ y[0] = {'y[1] + ' * 60_000}1; }}", TOO_DEEP),
    "assignments": (nested("y = ", "1;", ""), TOO_DEEP),
    "commas": (nested("y, ", "y;", ""), TOO_DEEP),
    "conditional operators": (nested("y > 0 ? 1 : ", "1;", "", 40_000), TOO_DEEP),
    "swizzles": (lambda: f"void main() {{ vec2 v; v{'.xy' * N}; }}", TOO_DEEP),
    "calls": (nested("sin(", "f", ")"), TOO_DEEP),
    "dimensions": (lambda: f"void main() {{ int a{'[1]' * N}; }}", TOO_DEEP),
    "dimensions of a buffer": (
        lambda: f"layout(binding = 0) buffer B {{ int a{'[1]' * N}; }};\n" + "void main() {}",
        TOO_DEEP,
    ),
    "nested ifs": (nested("if (y == 0) ", ";", "", 50_000), TOO_DEEP),
    "nested elses": (nested("if (y == 0); else ", ";", "", 40_000), "nest too deeply"),
    "nested loops": (nested("while (true) ", ";", "", 90_000), TOO_DEEP),
    "nested conditions": (lambda: "#if 1\n" * 50_000 + "#endif\n" * 50_000 + "void main() {}", "nesting depth"),
    "parentheses in a condition": (
        lambda: f"#if {'(' * N}1{')' * N}\n#endif\nvoid main() {{}}",
        "tokens of a condition",
    ),
    "operators in a condition": (lambda: f"#if {'!' * N}1\n#endif\nvoid main() {{}}", "tokens of a condition"),
    "just deep enough": (nested("y + ", "1;", "", 9_000), None),
    "condition just deep enough": (lambda: f"#if {'!' * 19_000}1\n#endif\nvoid main() {{}}", None),
    "laughs": (doubling("#define A{0} A{1} + A{1}\n", 60, "void main() { int x = A59; }"), TOO_MANY),
    "laughs of nothing": (
        doubling("#define A{0} A{1} A{1} A{1}\n", 60, "void main() { A59 }", "#define A0\n"),
        TOO_MANY,
    ),
    "laughs with arguments": (
        doubling("#define A{0}(x) A{1}(A{1}(x))\n", 40, "void main() { A39(;) }", "#define A0(x) x x\n"),
        TOO_MANY,
    ),
    "laughs of a macro that is an argument": (
        lambda: (
            "#define TWICE(x) x x\n#define APPLY(f, x) "
            + "f(" * 40
            + "x"
            + ")" * 40
            + "\nvoid main() { APPLY(TWICE, ;) }"
        ),
        TOO_MANY,
    ),
    "laughs in a condition": (
        doubling("#define A{0} A{1} + A{1}\n", 60, "#if A59\n#endif\nvoid main() {}"),
        "tokens of a condition",
    ),
    "laughs behind a false definition": (
        doubling("#define A{0} A{1} A{1}\n", 60, "#if 0\n#define A59 1\n#endif\nvoid main() { A59 }", "#define A0 ;\n"),
        TOO_MANY,
    ),
    "laughs of pasted names": (
        doubling(
            "#define A{0} A##{1} A ## {1}\n",
            60,
            "void main() { A59 }",
            "#define A0 ;\n",
        ),
        TOO_MANY,
    ),
    "laughs of a pasted call": (
        doubling(
            "#define A{0}(x) CAT(A, {1})(x x)\n",
            60,
            "void main() { A59(;) }",
            "#define CAT(a, b) a ## b\n#define A0(x) x\n",
        ),
        TOO_MANY,
    ),
    "laughs of pasted names in a condition": (
        doubling(
            "#define A{0} A##{1} + A##{1}\n",
            60,
            "#if A59\n#endif\nvoid main() {}",
        ),
        "tokens of a condition",
    ),
    "a name pasted to itself": (
        doubling(
            "#define A{0}(x) CAT(A, {1})(x##x)\n",
            60,
            "void main() { A59(a) }",
            "#define CAT(a, b) a##b\n#define A0(x) x\n",
        ),
        TOO_MANY,
    ),
    "pasted names in reason": (
        lambda: (
            "#define CAT(a, b) a##b\n#define V(n) int CAT(v, n) = n;\n#define v3 v1\n"
            + "void main() { V(1) V(2) int x = CAT(v, 1) + v2 + CAT(v, 3); }"
        ),
        None,
    ),
    "calls of macros within each other": (
        lambda: f"#define F(x) x\nvoid main() {{ int x = {'F(' * N}1{')' * N}; }}",
        "nest deeper than 500",
    ),
    "a chain of macros": (
        doubling("#define A{0} A{1}\n", 50_000, "void main() { int x = A49999; }"),
        "nest deeper than 500",
    ),
    "macros that name each other": (
        lambda: "#define A B\n#define B A\nvoid main() { int x = A; }",
        "undeclared identifier",
    ),
    "structures that double": (
        doubling("struct A{0} {{ A{1} x, y; }};\n", 40, "void main() { A39 s; s.x = s.y; }", "struct A0 { int x; };\n"),
        "members of a structure",
    ),
    "structures that double by a macro": (
        doubling(
            "S(A{0}, A{1})\n", 40, "void main() {}", "#define S(a, b) struct a { b x; b y; };\nstruct A0 { int x; };\n"
        ),
        "members of a structure",
    ),
    "structures in structures": (lambda: "struct A { " * N + "int x; " + "} y; " * N + "void main() {}", TOO_MANY),
    "10 MiB of comment": (lambda: "// " + "x" * (10 << 20) + "\nvoid main() {}", None),
    "20 MiB of comment": (lambda: "// " + "x" * (20 << 20) + "\nvoid main() {}", "bytes of source"),
    "10 MiB of code": (lambda: "void main() { int x = 0;\n" + "x += 1;\n" * (10 << 17) + "}", TOO_MANY),
    "10 MiB of lines": (lambda: "\n" * (10 << 20) + "void main() { y; }", "mine:10485761:15: 'y'"),
    "100,000 functions": (
        lambda: "".join(f"int f{i}() {{ return 1; }}\n" for i in range(N)) + "void main() {}",
        TOO_MANY,
    ),
    "10,000 functions": (
        lambda: (
            "int f0(int x) { return x; }\n"
            + "".join(f"int f{i}(int x) {{ return f{i - 1}(x); }}\n" for i in range(1, 10_000))
            + "void main() { f9999(1); }"
        ),
        "functions: given 4097",
    ),
    "20,000 cases": (
        lambda: (
            "void main() { int y = 1; switch (y) {"
            + "".join(f"case {i}: y += 1; break;" for i in range(20_000))
            + "} }"
        ),
        "cases: given 4097",
    ),
    "20,000 buffers": (
        lambda: (
            "".join(f"layout(binding = {i}) buffer B{i} {{ int x{i}[]; }};" for i in range(20_000)) + "void main() {}"
        ),
        "blocks: given 4097",
    ),
    "100,000 mistakes": (
        lambda: "void main() {" + "".join(f"int a{i} = 1.5;\n" for i in range(50_000)) + "}",
        "cannot convert",
    ),
    "100,000 #line": (lambda: "#line 1\n" * N + "void main() { y; }", "undeclared identifier"),
    "a name of 1 MiB": (lambda: f"int {'a' * (1 << 20)}; void main() {{}}", "name too long"),
    "a number of 1 MiB": (lambda: f"void main() {{ int x = {'9' * (1 << 20)}; }}", "numeric literal too long"),
    "an include of 1 MiB": (lambda: f'#include "{"a" * (1 << 20)}"\nvoid main() {{}}', "header name too long"),
    "a line of 1 MiB": (
        lambda: "void main() { int x = 0;" + " " * (1 << 20) + "y = 1; }",
        "'y' : undeclared identifier",
    ),
    "a comment that opens again and again": (lambda: "/*" * N, "comment"),
    "a line that goes on and on": (lambda: "\\\n" * (10 * N) + "void main() {}", None),
    "an array of 2^31 elements": (main_of("int a[2147483648]; a[0] = 1;"), "array size must be a positive integer"),
    "an array of 2^32 elements": (main_of("int a[4294967296u]; a[0] = 1;"), "too big"),
    "a buffer of 2^31 elements": (
        main_of("y[0] = 1;", "layout(binding = 0) buffer Y { int y[2147483647]; };\n"),
        "8589934588 bytes",
    ),
    "push constants of 2^31 elements": (
        main_of("int x = y[0];", "layout(push_constant) uniform Y { int y[2147483647]; };\n"),
        "8589934588 bytes",
    ),
    "a copy of 2^30 elements": (
        main_of("S l = s;", "struct S { int a[1 << 30]; };\nlayout(binding = 0) buffer B { S s; };\n"),
        "used as a whole: given 1073741824 elements",
    ),
    "a comparison of 2^30 elements": (
        main_of("int a[1 << 30], b[1 << 30]; if (a == b) y[0] = 1;", IN_BUFFER),
        "used as a whole",
    ),
    "an argument of 2^30 elements": (
        main_of("int a[1 << 30]; f(a);", "int f(int a[1 << 30]) { return a[0]; }\n"),
        "used as a whole",
    ),
    "an array of 2^16 values": (
        lambda: (
            f"void main() {{ const int x[65536] = int[]({', '.join('1' * 65536)}); int y = x[gl_LocalInvocationIndex]; }}"
        ),
        "65536 elements",
    ),
    "several GiB of shared memory": (
        main_of(
            "a[0] = vec4(y[0]); barrier(); y[0] = int(a[1].x);",
            "layout(local_size_x = 1) in;\n" + IN_BUFFER + "shared vec4 a[1 << 28];\n",
        ),
        None,  # rejected by the device
    ),
    "an include of itself": (lambda: '#include "self"\nvoid main() {}', "includes nest deeper than 64"),
    "an include of itself, twice": (lambda: '#include "twice"\nvoid main() {}', "includes"),
}
INCLUDES = {"self": '#include "self"\n', "twice": '#include "twice"\n#include "twice"\n'}


def refusal(text: str) -> str | None:
    try:
        pumice.compile(text, name="mine", includes=INCLUDES)
    except pumice.ShaderCompileError as error:
        return str(error)
    return None


def mebibytes() -> float:
    """Return the peak memory of this process; getrusage's peak includes that of the parent process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def leak() -> dict[str, float]:
    """Return the peak memory after a few failed compilations and after many."""
    texts = [
        SOURCES[kind][0]()
        for kind in (
            "laughs",
            "operators",
            "structures that double",
            "nested conditions",
            "a name of 1 MiB",
            "a copy of 2^30 elements",
        )
    ]
    for text in texts * 3:
        assert refusal(text) is not None
    before = mebibytes()
    for text in texts * 10:
        assert refusal(text) is not None
    return {"grown_mebibytes": mebibytes() - before}


def main(kind: str) -> dict[str, object]:
    text = SOURCES[kind][0]()
    start = time.monotonic()
    error = refusal(text)
    seconds = time.monotonic() - start
    assert pumice.compile("void main() {}", name="next").spirv
    return {"error": error, "seconds": seconds, "mebibytes": mebibytes()}


if __name__ == "__main__":
    print(json.dumps(leak() if sys.argv[1] == "--leak" else main(sys.argv[1])))
