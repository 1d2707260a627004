"""printf from shaders, bounds checks and disassembly."""

from __future__ import annotations

import gc
import itertools
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from process import python
from test_glsl_extension import INTEGER_MODES, MODES, validate

BUFFERS = """layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer Y { float y[]; };
"""


def body(text: str, header: str = "") -> str:
    return f"{BUFFERS}{header}\nvoid main() {{ uint i = gl_GlobalInvocationID.x;\n{text}\n}}\n"


def printed(context: pumice.Context, call: str, threads: int = 1, **options: Any) -> list[str]:
    """What a kernel with this statement says."""
    kernel = pumice.Kernel(body(call, options.pop("header", "")), context, **options)
    ones = np.ones(4, "float32")
    kernel(x=ones, y=ones.copy(), threads=threads)
    return [message.text for message in kernel.messages]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ('printf("plain");', "plain"),
        ('printf("100%% of %d%%", 7);', "100% of 7%"),
        (r'printf("a\tb\n\"q\" \\ \'c\'");', "a\tb\n\"q\" \\ 'c'"),
        ('printf("%d|%5d|%-5d|%05d|%+d", -3, 42, 42, -42, 7);', "-3|   42|42   |-0042|+7"),
        ('printf("%i %u %o %x %#X", -1, 4000000000u, 8u, 255u, 255u);', "-1 4000000000 10 ff 0XFF"),
        ('printf("%u %x", -1, -1);', "4294967295 ffffffff"),
        ('printf("%f %.2f %8.3f %e %g", 1.5, 3.14159, -2.0, 12345.678, 1e-7);', "1.500000 3.14   -2.000 1.234568e+04 1e-07"),
        ('printf("%a %F", 0.5, 1.0);', "0x1p-1 1.000000"),
        ('printf("%f %f", 1.0 / 0.0, -1.0 / 0.0);', "inf -inf"),
        ('printf("%c%c%c", 80, 0xe9, 0x1f600);', "Pé😀"),
        ('printf("%d %u", true, i == 1u);', "1 0"),
        ('printf("%v2f %.1v3f %v4d", vec2(1, 2), vec3(0.5), ivec4(-1, 2, 3, 4));', "1.000000, 2.000000 0.5, 0.5, 0.5 -1, 2, 3, 4"),
        ('printf("%v2u %02v3x %v2d", uvec2(1, 2), uvec3(1, 171, 3), bvec2(true, false));', "1, 2 01, ab, 03 1, 0"),
        ('printf("%d, %d", max(1, (2)), ivec2(3, 4)[1]);', "2, 4"),
        ('printf("one " "text of " "%d", 2);', "one text of 2"),
        ('NCNN_LOGE("%d", 5);', "5"),
        ('printf("%ld %lu %lx", -5000000000l, 18446744073709551615ul, 0x123456789abcul);',
         "-5000000000 18446744073709551615 123456789abc"),
        ('printf("%ld %lu %v3ld", -5, 7u, i64vec3(1, -2, 3));', "-5 7 1, -2, 3"),
        ('printf("%f", afp(0.5)); ', "0.500000"),
    ],
)  # fmt: skip
def test_every_conversion_prints_what_c_prints(context: pumice.Context, call: str, text: str) -> None:
    assert printed(context, call) == [text]


def test_doubles_and_halves_print(context: pumice.Context) -> None:
    options = pumice.ShaderOptions(fp16_arithmetic=True)
    call = 'printf("%.15lf %v2lf|%g %v2g", 0.1lf, dvec2(1, 2), afp(0.1), afpvec2(3));'
    assert printed(context, call, options=options) == ["0.100000000000000 1.000000, 2.000000|0.0999756 3, 3"]


def test_small_integers_keep_their_sign(context: pumice.Context) -> None:
    assert printed(context, 'printf("%d %u %d %v2d", int8_t(-3), uint8_t(250), int16_t(-300), i16vec2(-1, 1));') == [
        "-3 250 -300 -1, 1"
    ]


def test_a_message_knows_its_place_and_its_invocation(context: pumice.Context) -> None:
    kernel = pumice.Kernel(
        BUFFERS + "layout(local_size_x = 2, local_size_y = 2, local_size_z = 2) in;\nvoid main() {\n"
        '  printf("%d",\n    y.length());\n}\n',
        context,
        name="places",
    )
    kernel(x=np.ones(1, "float32"), y=np.ones(3, "float32"), groups=(1, 2, 1))
    assert {(m.file, m.line, m.text) for m in kernel.messages} == {("places", 5, "3")}
    assert sorted(m.invocation for m in kernel.messages) == sorted(itertools.product(range(2), range(4), range(2)))
    assert repr(kernel.messages[0]).startswith("<Message places:5 [")
    assert str(kernel.messages[0]) == "3"


def test_macros_includes_and_branches_may_print(context: pumice.Context) -> None:
    source = """
#include "log.glsl"
layout(binding = 0) buffer Y { float y[]; };
#define SHOW(v) printf("value " #v " %d\\n", v)
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i == 0u) LOG("first %d", 1); else LOG("then %d", int(i));
  for (int k = 0; k < 2; ++k) printf("%d", k);
}
""".replace(" #v ", " ")
    kernel = pumice.Kernel(
        source, context, includes={"log.glsl": "#define LOG(text, v) printf(TAG text, v)\n"}, macros={"TAG": '"[t] "'}
    )
    kernel(y=np.ones(1, "float32"), threads=2)
    assert sorted(m.text for m in kernel.messages) == ["0", "0", "1", "1", "[t] first 1", "[t] then 1"]
    assert {m.line for m in kernel.messages if m.text.startswith("[t]")} == {7}


def test_a_function_of_the_users_own_called_printf_wins(context: pumice.Context) -> None:
    header = "void printf(uint a, uint b) { y[a] = float(b); }"
    kernel = pumice.Kernel(body("printf(i, 7u);", header), context)
    y = np.zeros(3, "float32")
    kernel(x=np.ones(1, "float32"), y=y, threads=3)
    assert (y == 7).all()
    assert kernel.messages == []
    assert "pumice_ring" not in {
        b["name"] for b in pumice.compile(body("printf(i, 7u);", header)).interface["bindings"]
    }


@pytest.mark.parametrize(
    ("call", "text", "column"),
    [
        ('printf("%d %d", 1);', "2 conversions: expected as many arguments, given 1", 10),
        ('printf("none", 1);', "0 conversions", 10),
        ('printf("%d", 1.5);', "argument 1 after the format does not fit '%d': expected an integer", 3),
        ('printf("%d %f", 1, 2);', "argument 2 after the format does not fit '%f': expected a float", 3),
        ('printf("%f", 1.5lf);', "expected a float", 3),
        ('printf("%lf", 1.5);', "expected a double", 3),
        ('printf("%v3f", vec2(1));', "does not fit '%v3f': expected a vector of 3 floats", 3),
        ('printf("%f", vec2(1));', "expected a float", 3),
        ('printf("%d", 5000000000l);', "expected an integer", 3),
        ('printf("%s", 1);', "'%s': expected one of", 10),
        ('printf("%", 1);', "without its letter", 10),
        ('printf("%v5f", 1);', "2, 3 or 4", 10),
        ('printf("%lc", 1);', "expected one of", 10),
        (r'printf("\q");', r"the escape \q", 10),
        ("printf(i);", "a text in quotes", 3),
        ("printf();", "an argument without text", 3),
        ('printf("a"); y[i] = "text";', "stands only as the format", 23),
        ('printf("%d", nothing);', "undeclared", 16),
    ],
)
def test_a_wrong_call_is_refused_with_its_place(call: str, text: str, column: int) -> None:
    with pytest.raises(pumice.ShaderCompileError) as caught:
        pumice.compile(body("  " + call), name="wrong")
    assert text in str(caught.value)
    assert str(caught.value).startswith(f"wrong:5:{column}: ")


def test_errors_elsewhere_keep_their_lines_in_a_shader_that_prints() -> None:
    with pytest.raises(pumice.ShaderCompileError, match=r"^wrong:6:14: 'q' : undeclared"):
        pumice.compile(body('printf("%d",\n  1); y[0] = q;'), name="wrong")


def test_a_shader_without_printf_has_no_ring(context: pumice.Context) -> None:
    shader = pumice.compile(body("y[i] = x[i];"))
    assert [b["name"] for b in shader.interface["bindings"]] == ["x", "y"]
    prints = pumice.compile(body('printf("a");')).interface["bindings"]
    assert [(b["name"], b["binding"]) for b in prints] == [("x", 0), ("y", 1), ("pumice_ring", 2)]


def test_the_ring_is_no_argument(context: pumice.Context) -> None:
    kernel, arrays = pumice.Kernel(body('printf("a");'), context), [np.ones(1, "float32") for _ in range(3)]
    with pytest.raises(pumice.BindingError, match=r"expected x, y; given 'pumice_ring'"):
        kernel(x=arrays[0], y=arrays[1], pumice_ring=arrays[2], threads=1)


# ---- the ring


def test_what_finds_no_room_is_counted_and_what_does_is_whole(context: pumice.Context) -> None:
    kernel = pumice.Kernel(body('printf("%u %u %u", i, 2u * i, 3u * i);'), context, message_bytes=1024)
    ones = np.ones(1, "float32")
    for _ in range(3):
        kernel(x=ones, y=ones, threads=1000)
        messages = kernel.messages
        room = (1024 - 16) // 4 // 7
        assert len(messages) == room
        assert kernel.messages_lost == 1000 - room
        for message in messages:
            i = message.invocation[0]
            assert message.text == f"{i} {2 * i} {3 * i}"
        assert kernel.take_messages() and not kernel.messages and not kernel.messages_lost


@pytest.mark.parametrize("given", [0, 255, 258, 1 << 40])
def test_a_ring_of_another_size_is_refused(context: pumice.Context, given: int) -> None:
    with pytest.raises(pumice.BindingError, match="message_bytes") as caught:
        pumice.Kernel(body('printf("a");'), context, message_bytes=given)
    assert caught.value.rule == "K12"


def test_messages_come_together_until_they_are_taken(context: pumice.Context) -> None:
    kernel, ones = pumice.Kernel(body('printf("%u", i);'), context), np.ones(1, "float32")
    x = pumice.tensor(ones, context=context)
    kernel(x=ones, y=ones, threads=2)
    kernel(x=x, y=ones, threads=1)
    assert [m.text for m in kernel.messages] == ["0", "1", "0"]
    assert len(kernel.take_messages()) == 3
    assert kernel.messages == []


def test_messages_of_a_list_are_there_after_the_wait(context: pumice.Context) -> None:
    x, y = (pumice.tensor(np.arange(4, dtype="float32"), context=context) for _ in range(2))
    first = pumice.Kernel(body('printf("first %u", i); y[i] = x[i] + 1.0;'), context)
    second = pumice.Kernel(body('printf("second %g", y[i]);'), context)
    commands = pumice.CommandList(context)
    for kernel, threads in ((first, 2), (second, 1), (first, 1)):
        commands.dispatch(kernel.bind(x=x, y=y, threads=threads))
    commands.commit()
    submissions = [commands.exec() for _ in range(7)]
    assert len({int(one) for one in submissions}) == 7
    submissions[-1].wait()
    assert [m.text for m in first.take_messages()] == ["first 0", "first 1", "first 0"] * 7
    assert [m.text for m in second.take_messages()] == ["second 1"] * 7
    commands.wait(int(commands.exec()))
    assert len(first.messages) == 3


def test_threads_may_print_at_once(context: pumice.Context) -> None:
    kernel = pumice.Kernel(body('printf("%g", x[i]);'), context)

    def call(number: int) -> None:
        for _ in range(5):
            kernel(x=np.full(8, number, "float32"), y=np.zeros(8, "float32"), threads=8)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(4)))
    assert sorted(m.text for m in kernel.messages) == sorted(f"{n}" for n in range(4) for _ in range(40))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_build_of_the_arrays_type_prints(context: pumice.Context, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kernel = pumice.Kernel.from_body(
        'printf("%g", buffer_ld1(x, i)); buffer_st1(y, i, buffer_ld1(x, i));', {"x": "sfp"}, {"y": "sfp"}, context
    )
    x = np.arange(3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    y = np.zeros_like(x)
    kernel(x=x, y=y)
    assert [m.text for m in kernel.messages] == ["0", "1", "2"]
    assert kernel.messages[0].line == 1
    np.testing.assert_array_equal(x, y)


def test_messages_are_logged(context: pumice.Context, caplog: pytest.LogCaptureFixture) -> None:
    kernel = pumice.Kernel(body('printf("%u\\n", i);'), context, name="logs", message_bytes=256)
    ones = np.ones(1, "float32")
    with caplog.at_level(logging.INFO, "pumice"):
        kernel(x=ones, y=ones, threads=1)
        assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
            ("pumice.shader", "INFO", "logs:5 [0, 0, 0] 0")
        ]
        caplog.clear()
        kernel(x=ones, y=ones, threads=20)
        assert caplog.records[-1].levelname == "WARNING"
        assert caplog.records[-1].getMessage() == "kernel 'logs': 8 messages lost"


def test_formats_travel_in_the_disk_cache(tmp_path: Path) -> None:
    script = f"""
import numpy as np, pumice
kernel = pumice.Kernel({body('printf("%5.1f of %u", x[i], i);')!r}, debug=True)
try:
    kernel(x=np.ones(2, "float32"), y=np.ones(1, "float32"), threads=3)
except pumice.OutOfBoundsError as error:
    print(error)
print(kernel.messages, "compiled" if pumice.compile_counts().compiled else "cached")
"""
    runs = [python("-c", script, PUMICE_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    assert all(run.returncode == 0 for run in runs), runs[0].stderr + runs[1].stderr
    assert "read of 'x' at index 2" in runs[0].stdout
    assert runs[0].stdout.replace("compiled", "cached") == runs[1].stdout != runs[0].stdout


def test_kernels_that_print_leave_nothing_behind() -> None:
    with pumice.Context() as own:
        ones = np.ones(1, "float32")
        plain = pumice.Kernel(body("y[i] = x[i];"), own)
        plain(x=ones, y=ones, threads=1)
        before = own.memory.buffers
        kernel = pumice.Kernel(body('printf("%u", i);'), own)
        for n in range(1, 20):
            kernel(x=np.ones(n, "float32"), y=np.ones(n, "float32"), threads=n)
        assert own.memory.buffers - before <= 8 * (2 * 3 + 2)
        del kernel
        gc.collect()
        assert own.memory.buffers == before


# ---- bounds


def caught(kernel: pumice.Kernel, **arguments: Any) -> pumice.OutOfBoundsError:
    with pytest.raises(pumice.OutOfBoundsError) as error:
        kernel(**arguments)
    return error.value


def test_an_access_out_of_bounds_is_named_and_does_no_harm(context: pumice.Context) -> None:
    kernel = pumice.Kernel(body("y[i] = x[i] + 1.0;"), context, name="reach", debug=True)
    x = np.arange(5, dtype="float32")
    y = np.zeros(3, "float32")
    error = caught(kernel, x=x, y=y, threads=5)
    assert isinstance(error, IndexError) and isinstance(error, pumice.Error)
    assert (error.kernel, error.file, error.line, error.buffer) == ("reach", "reach", 5, "y")
    assert (error.index, error.size, error.invocation, error.count) == (3, 3, (3, 0, 0), 2)
    assert str(error) == (
        "reach:5: kernel 'reach': write to 'y' at index 3, which has 3 elements, by invocation (3, 0, 0); one of 2 accesses out of bounds"
    )
    np.testing.assert_array_equal(y, x[:3] + 1)  # what was in bounds is done
    kernel(x=x, y=y, threads=3)  # and the kernel goes on


def test_a_read_out_of_bounds_gives_zero(context: pumice.Context) -> None:
    kernel = pumice.Kernel(body("y[i] = x[int(i) - 2] + 1.0;"), context, debug=True)
    y = np.zeros(4, "float32")
    error = caught(kernel, x=np.full(1, 7, "float32"), y=y, threads=4)
    assert (error.buffer, error.index, error.size) == ("x", -2, 1)
    np.testing.assert_array_equal(y, [1, 1, 8, 1])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float64", "float16"])
def test_the_padding_of_an_array_is_out_of_bounds(context: pumice.Context, dtype: str) -> None:
    glsl = {"uint8": "uint8_t", "int16": "int16_t", "float64": "double", "float16": "float16_t"}[dtype]
    store = f"void main() {{ uint i = gl_GlobalInvocationID.x; y[i] = {glsl}(float(i)); }}"
    source = f"layout(binding = 0) buffer Y {{ {glsl} y[]; }};\n{store}"
    kernel = pumice.Kernel(source, context, debug=True)
    for n in (1, 3):
        for as_tensor in (False, True):
            y = np.zeros(n, dtype)
            given: Any = pumice.tensor(y, context=context) if as_tensor else y
            error = caught(kernel, y=given, threads=n + 1)
            assert (error.index, error.size, error.count) == (n, n, 1)
            np.testing.assert_array_equal(np.asarray(given), np.arange(n))


NESTED = """
struct Box { float corners[3]; vec4 colour; ivec2 at[2][2]; };
layout(binding = 0, std430) buffer Boxes { uint count; uint table[4]; Box boxes[]; };
layout(binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform parameter { int box, corner, row; } p;
layout(local_size_x = 1) in;
void main() {
  y[0] = boxes[p.box].corners[p.corner];
  boxes[p.box].at[p.row][1].y = 5;
  boxes[p.box].colour[p.row] += 1.0;
  table[p.row + 1] = count;
}
"""


@pytest.mark.parametrize(
    ("box", "corner", "row", "buffer", "index", "size"),
    [
        (2, 0, 0, "boxes", 2, 2),
        (-1, 0, 0, "boxes", -1, 2),
        (1, 3, 0, "boxes[].corners", 3, 3),
        (1, 2, 2, "boxes[].at", 2, 2),
        (0, 0, 3, "boxes[].at", 3, 2),
    ],
)
def test_arrays_within_elements_are_checked(
    context: pumice.Context, box: int, corner: int, row: int, buffer: str, index: int, size: int
) -> None:
    kernel = pumice.Kernel(NESTED, context, debug=True)
    boxes = np.zeros((), kernel.dtype("boxes", 2))
    y = np.ones(1, "float32")
    kernel(boxes=boxes, y=y, box=1, corner=2, row=1, groups=1)
    error = caught(kernel, boxes=boxes, y=y, box=box, corner=corner, row=row, groups=1)
    assert (error.buffer, error.index, error.size) == (buffer, index, size)


def test_atomics_and_loops_are_checked(context: pumice.Context) -> None:
    source = """
layout(binding = 0) buffer Y { uint y[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  for (uint k = 0; k < 4; ++k) atomicAdd(y[i + k], 1u);
  uint old = atomicCompSwap(y[i + 9u], 0u, 7u);
  bool any = i > 100u && y[i] == 3u || atomicMax(y[i & 1u], 2u) == 77u;
}
"""
    y = np.zeros(4, "uint32")
    error = caught(pumice.Kernel(source, context, debug=True), y=y, threads=2)
    assert (error.line, error.count) == (5, 3) or error.line == 6
    np.testing.assert_array_equal(y, [2, 2, 2, 2])


@pytest.mark.parametrize("mode", MODES)
def test_the_extensions_macros_are_checked(context: pumice.Context, mode: str) -> None:
    """The same access, in bounds and out of them, in every storage and arithmetic."""
    options = pumice.ShaderOptions(**MODES[mode], debug=True)
    source = """
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
layout(binding = 1) buffer Y { sfp y[]; };
layout(binding = 2) buffer Z { sfpvec4 z[]; };
layout(push_constant) uniform parameter { uint from, to; } p;
layout(local_size_x = 1) in;
void main() {
  afpvec4 v = buffer_ld4(x, p.from);
  buffer_st1(y, p.to, v.x);
  buffer_cp4(z, 0, x, 0);
}
"""
    shader = pumice.compile(source, options)
    if "RoundingModeRTE" in shader.interface["capabilities"] and not context.feature("roundingModeRTEFloat16"):
        pytest.skip("the device's conversions to fp16 cannot be told how to round")
    sizes = {b["name"]: b for b in shader.interface["bindings"]}
    kernel = pumice.Kernel(source, context, options=options)

    def array(name: str, elements: int) -> np.ndarray[Any, Any]:
        dtype = sizes[name]["type"]
        return np.zeros(elements * sizes[name]["stride"] // np.dtype(dtype).itemsize, dtype)

    per_word = 2 if sizes["y"]["type"] == "uint32" else 1
    x, y, z = array("x", 2), array("y", 4), array("z", 1)
    kernel(x=x, y=y, z=z, **{"from": 1, "to": 4 * per_word - 1}, groups=1)
    error = caught(kernel, x=x, y=y, z=z, **{"from": 2, "to": 0}, groups=1)
    assert (error.buffer, error.line, error.index, error.size) == ("x", 8, 2, 2)
    error = caught(kernel, x=x, y=y, z=z, **{"from": 0, "to": 4 * per_word}, groups=1)
    assert (error.buffer, error.line, error.index, error.size) == ("y", 9, 4 * per_word, 4 * per_word)


def test_a_list_raises_when_the_execution_is_waited_for(context: pumice.Context) -> None:
    y = pumice.tensor(np.zeros(4, "float32"), context=context)
    x = {n: pumice.tensor(np.ones(n, "float32"), context=context) for n in (3, 4)}
    kernel = pumice.Kernel(body('y[i] = x[i]; printf("%u", i);'), context, debug=True)
    commands = pumice.CommandList(context)
    for n in (4, 3):  # one ring, each with its own sizes
        commands.dispatch(kernel.bind(x=x[n], y=y, threads=4))
    commands.commit()
    for submission in [commands.exec(), commands.exec()]:
        for _ in range(2):  # every wait says it
            with pytest.raises(pumice.OutOfBoundsError, match=r"read of 'x' at index 3, which has 3 elements"):
                submission.wait()
    assert len(kernel.messages) == 16
    np.testing.assert_array_equal(np.asarray(y), [1, 1, 1, 0])


def test_messages_that_fill_the_ring_do_not_hide_an_error(context: pumice.Context) -> None:
    text = 'for (int k = 0; k < 100; ++k) printf("%u", i);\ny[i + 9u] = 1.0;'
    kernel = pumice.Kernel(body(text), context, debug=True, message_bytes=256)
    ones = np.ones(1, "float32")
    error = caught(kernel, x=ones, y=ones, threads=1)
    assert (error.line, error.count) == (0, 1)
    assert "1 accesses out of bounds" in str(error)


@pytest.mark.parametrize("bounds", [False, True])
@pytest.mark.parametrize("mode", [*MODES, *INTEGER_MODES])
def test_modules_are_valid_in_every_mode(mode: str, bounds: bool, tmp_path: Path) -> None:
    options = pumice.ShaderOptions(**{**MODES, **INTEGER_MODES}[mode], debug=bounds)
    source = """
layout(binding = 3) readonly buffer X { sfp x[]; };
layout(binding = 3) readonly buffer X4 { sfpvec4 x4[]; };
layout(binding = 5) buffer Y { sfp y[]; };
layout(binding = 6) buffer B { sint8 b[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  afp v = buffer_ld1(x, i);
  afpvec4 v4 = buffer_ld4(x4, i / 4u);
  int n = i8buffer_ld1(b, int(i));
  i8buffer_st1(b, int(i), n + 1);
  printf("%f %v4f %d", v, v4, n);
  buffer_st1(y, i, v + v4.x);
  bool both = v > afp(0) && buffer_ld1(y, i + 1u) > afp(0);
  if (both || n > 3) buffer_cp1(y, i, x, i);
}
"""
    for text in (source, "layout(local_size_x = 32) in;\n" + source):
        shader = pumice.compile(text, options)
        validate(shader, tmp_path)
        assert shader.interface["bindings"][3]["binding"] == 7


@pytest.mark.parametrize("minor", range(4))
def test_bounds_are_checked_for_every_target(minor: int, tmp_path: Path) -> None:
    shader = pumice.compile(NESTED, pumice.ShaderOptions(debug=True, vulkan_minor=minor))
    names = [b["name"] for b in shader.interface["bindings"]]
    assert sorted(names) == ["boxes", "pumice_limits", "pumice_ring", "y"]
    assert shader.disassemble().count("pumice_in_range") > 1
    if minor <= 1:
        validate(shader, tmp_path)


def test_disassembly_shows_names_and_instructions(context: pumice.Context) -> None:
    source = body("y[i] = x[i];")
    text = pumice.compile(source).disassemble()
    assert "OpStore" in text or "Store" in text
    assert "Capability Shader" in text
    assert "GlobalInvocationID" in text
    assert pumice.Kernel(source, context).disassemble().startswith("//")


TALK = """
layout(local_size_x = 1) in;
layout(binding = 0) buffer Y { float y[]; };
layout(push_constant) uniform P { uint at; } p;
void main() { printf("at %u", p.at); y[p.at] = 1.0; }
"""


def talking(context: pumice.Context, at: int) -> tuple[pumice.Kernel, pumice.CommandList]:
    kernel = pumice.Kernel(TALK, context, debug=True)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(y=pumice.tensor(np.zeros(4, "float32"), context), at=at, groups=1))
    commands.commit()
    return kernel, commands


@pytest.mark.parametrize("wait", ["wait_idle", "wait", "time"])
def test_every_wait_delivers_messages_and_errors(
    context: pumice.Context, caplog: pytest.LogCaptureFixture, wait: str
) -> None:
    def use(commands: pumice.CommandList) -> None:
        if wait == "time":
            commands.time(2)
        elif wait == "wait":
            context.wait(int(commands.exec()))
        else:
            commands.exec()
            context.wait_idle()

    with caplog.at_level("INFO", "pumice.shader"):
        kernel, commands = talking(context, 3)
        use(commands)
    assert {str(message) for message in kernel.messages} == {"at 3"}
    assert any("at 3" in one.getMessage() for one in caplog.records)
    kernel, commands = talking(context, 9)
    with pytest.raises(pumice.OutOfBoundsError) as caught:
        use(commands)
    assert (caught.value.index, str(kernel.messages[0])) == (9, "at 9")
    context.wait_idle() if wait != "time" else None  # said once


def test_an_error_that_was_raised_is_not_raised_by_the_next_wait_idle(context: pumice.Context) -> None:
    _, commands = talking(context, 9)
    submission = commands.exec()
    for _ in range(2):
        with pytest.raises(pumice.OutOfBoundsError):
            submission.wait()
    context.wait_idle()


def test_what_a_dropped_list_said_is_kept(context: pumice.Context) -> None:
    kernel, commands = talking(context, 2)
    commands.exec()
    del commands
    gc.collect()
    assert [str(message) for message in kernel.messages] == ["at 2"]
