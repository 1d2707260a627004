"""printf from shaders."""

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
from features import need_features
from glsl_kernel_sources import BUFFERS, body
from process import python


def printed(context: pumice.Context, call: str, threads: int = 1, **options: Any) -> list[str]:
    """Return the messages of a kernel with this statement."""
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


def test_doubles_and_float16_print(context: pumice.Context) -> None:
    options = pumice.ShaderOptions(fp16_arithmetic=True)
    call = 'printf("%.15lf %v2lf|%g %v2g", 0.1lf, dvec2(1, 2), afp(0.1), afpvec2(3));'
    assert printed(context, call, options=options) == ["0.100000000000000 1.000000, 2.000000|0.0999756 3, 3"]


def test_small_integers_keep_their_sign(context: pumice.Context) -> None:
    need_features(context, "shaderInt8", "shaderInt16")
    assert printed(context, 'printf("%d %u %d %v2d", int8_t(-3), uint8_t(250), int16_t(-300), i16vec2(-1, 1));') == [
        "-3 250 -300 -1, 1"
    ]


def test_a_message_has_its_source_location_and_invocation(context: pumice.Context) -> None:
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
        ('printf("%", 1);', "without a letter", 10),
        ('printf("%v5f", 1);', "2, 3 or 4", 10),
        ('printf("%lc", 1);', "expected one of", 10),
        (r'printf("\q");', r"the escape \q", 10),
        ("printf(i);", "a string literal", 3),
        ("printf();", "an empty argument", 3),
        ('printf("a"); y[i] = "text";', "allowed only as the format", 23),
        ('printf("%d", nothing);', "undeclared", 16),
    ],
)
def test_a_wrong_call_is_rejected_with_its_location(call: str, text: str, column: int) -> None:
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


# ---- ring buffer


def test_dropped_messages_are_counted_and_kept_ones_are_complete(context: pumice.Context) -> None:
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
def test_a_ring_of_another_size_is_rejected(context: pumice.Context, given: int) -> None:
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
