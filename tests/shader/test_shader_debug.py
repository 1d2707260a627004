"""Bounds checks, their errors and printf messages at waits, and disassembly."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from bounds_checks import caught
from glsl_kernel_sources import body
from glsl_modes import INTEGER_MODES, MODES, validate


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
    np.testing.assert_array_equal(y, x[:3] + 1)  # in-bounds writes are done
    kernel(x=x, y=y, threads=3)  # the kernel still works


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
    """In-bounds and out-of-bounds accesses with every storage and arithmetic type."""
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
        pytest.skip("the device lacks roundingModeRTEFloat16")
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
    for n in (4, 3):  # one ring buffer for both, each with its own sizes
        commands.dispatch(kernel.bind(x=x[n], y=y, threads=4))
    commands.commit()
    for submission in [commands.exec(), commands.exec()]:
        for _ in range(2):  # every wait raises
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
    context.wait_idle() if wait != "time" else None  # reported once


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
