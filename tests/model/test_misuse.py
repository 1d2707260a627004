"""Calls in the wrong order and out-of-range numbers raise a clear error and leave the process and context usable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice

COPY = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer Y { float y[]; };
void main() { y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x]; }
"""


def ones(context: pumice.Context, n: int = 64) -> pumice.Tensor:
    return pumice.tensor(np.ones(n, "float32"), context)


def test_a_list_with_a_closed_buffer_is_rejected(context: pumice.Context) -> None:
    x, y = ones(context), ones(context)
    commands = pumice.CommandList(context)
    commands.dispatch(pumice.Kernel(COPY, context).bind(x=x, y=y, threads=64))
    x.buffer.close()
    with pytest.raises(pumice.StateError, match="closed"):
        commands.commit()


def test_a_buffer_with_views_of_its_bytes_stays_open(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 4096, "upload")
    view = buffer.map()
    with pytest.raises(pumice.StateError, match="1 views"):
        buffer.close()
    view[:] = 7
    assert view.sum() == 7 * 4096
    del view
    buffer.close()
    assert buffer.closed


def test_an_initializer_that_was_reset_voids_its_tables_and_lists(context: pumice.Context) -> None:
    desc = pumice.TensorDesc("float32", [4])
    first, second = (pumice.Operator("Relu", [desc], [desc]).compile(context) for _ in range(2))
    initializer = pumice.Initializer(context, [first])
    table = pumice.BindingTable(initializer)
    commands = pumice.CommandList(context)
    commands.dispatch(initializer, table)
    commands.commit()
    initializer.reset([first, second])
    with pytest.raises(pumice.BindingError, match="I7"):
        commands.exec()
    with pytest.raises(pumice.BindingError, match="I7"):
        pumice.CommandList(context).dispatch(initializer, table)


def test_copies_that_overlap_are_rejected(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 256)
    commands = pumice.CommandList(context)
    with pytest.raises(pumice.BindingError, match="target"):
        commands.copy(pumice.BufferRange(buffer, 0, 128), pumice.BufferRange(buffer, 64, 128))
    commands.copy(pumice.BufferRange(buffer, 0, 128), pumice.BufferRange(buffer, 128, 128))


@pytest.mark.parametrize("threads", [-4, 1 << 64, 1.5, (1, 2, 3, 4), (), "many"])
def test_a_launch_size_that_is_none_is_rejected(context: pumice.Context, threads: object) -> None:
    with pytest.raises(pumice.BindingError):
        pumice.Kernel(COPY, context)(x=ones(context), y=ones(context), threads=threads)


def test_a_launch_size_may_be_numpys_and_a_local_size_ones_own(context: pumice.Context) -> None:
    x, y = ones(context, 1000), pumice.tensor(np.zeros(1000, "float32"), context)
    pumice.Kernel(COPY, context, spec={"local_size_x": 32})(x=x, y=y, threads=np.int64(1000))
    np.testing.assert_array_equal(y.numpy(), np.ones(1000))


def test_features_that_there_are_not_cannot_be_done_without() -> None:
    with pytest.raises(pumice.UnsupportedError, match="shaderInt46"):
        pumice.Context(without=["shaderInt46"])
    with pytest.raises(pumice.UnsupportedError, match="timelineSemaphore"):
        pumice.Context(without=["timelineSemaphore"])


def test_more_runs_than_a_program_keeps_are_rejected(context: pumice.Context) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.add("Relu", graph.input("x", "float32", [4])))
    program = graph.compile(context)
    runs = [program.run_async((np.ones(4, "float32"),)) for _ in range(8)]
    with pytest.raises(pumice.StateError, match="8 executions"):
        program.run_async((np.ones(4, "float32"),))
    with pytest.raises(pumice.TimeoutError):
        program.call((np.ones(4, "float32"),), timeout=0.05)
    del runs
    program.call((np.ones(4, "float32"),))


def test_owned_weights_with_strides_are_rejected(context: pumice.Context) -> None:
    a, b, y = (pumice.TensorDesc("float32", [4, 4], owned=owned) for owned in (False, True, False))
    turned = pumice.TensorDesc("float32", [4, 4], strides=[1, 4], owned=True)
    pumice.Operator("Gemm", [a, b, None], [y]).compile(context)
    with pytest.raises(pumice.UnsupportedError, match="row-major"):
        pumice.Operator("Gemm", [a, turned, None], [y]).compile(context)


def test_names_that_the_graph_gives_do_not_collide_with_ones_own(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("constant_1", "float32", [3])
    y = graph.add("Add", x, np.ones(3, "float32"), name="Relu_1")
    graph.output("y", graph.add("Relu", y))
    np.testing.assert_array_equal(graph.compile(context)({"constant_1": np.ones(3, "float32")})["y"], np.full(3, 2))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_64_bit_maps_stay_within_their_tensor(context: pumice.Context, n: int) -> None:
    """Bytes past the end, up to a multiple of four elements, belong to another tensor."""
    desc = pumice.TensorDesc("int64", [n])
    operator = pumice.Operator("Neg", [desc], [desc]).compile(context)
    memory = pumice.tensor(np.full(16, 99, "int64"), context)
    commands, table = pumice.CommandList(context), pumice.BindingTable(operator)
    initializer = pumice.Initializer(context, [operator])
    commands.dispatch(initializer, pumice.BindingTable(initializer))
    table.bind_inputs([pumice.tensor(np.arange(n), context)])
    table.bind_outputs([memory[:n]])
    commands.dispatch(operator, table)
    commands.commit()
    commands.exec().wait()
    np.testing.assert_array_equal(memory.numpy(), np.r_[-np.arange(n), np.full(16 - n, 99)])


@pytest.mark.parametrize("make", ["folder", "sparse"])
def test_a_damaged_cached_shader_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str) -> None:
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path))
    source = f"layout(binding = 0) buffer X {{ float x[]; }};\nvoid main() {{ x[0] = 3.0; }} // {make}"
    pumice.compile(source, name="first")
    (entry,) = tmp_path.rglob("*.spv")
    entry.unlink()
    if make == "folder":
        entry.mkdir()
    else:
        with entry.open("wb") as file:
            file.truncate(1 << 40)
    from process import python

    done = python("-c", f"import pumice\npumice.compile({source!r}, name='first')")
    assert done.returncode == 0, done.stderr


def test_global_pools_of_large_planes_run(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [1, 2, None, None])
    graph.output("mean", graph.add("GlobalAveragePool", x))
    graph.output("most", graph.add("GlobalMaxPool", x))
    image = np.random.default_rng(0).standard_normal((1, 2, 300, 301)).astype("float32")
    result = graph.compile(context)({"x": image})
    np.testing.assert_allclose(result["mean"], image.mean((2, 3), keepdims=True), atol=1e-5)
    np.testing.assert_array_equal(result["most"], image.max((2, 3), keepdims=True))


def test_a_tensor_that_is_not_row_major_is_no_argument_of_a_kernel(context: pumice.Context) -> None:
    kernel, x, y = pumice.Kernel(COPY, context), ones(context, 16), ones(context, 16)
    with pytest.raises(pumice.BindingError, match="contiguous") as caught:
        kernel(x=x[::2], y=y, threads=8)
    assert caught.value.rule == "K7"
    kernel(x=x[::2].contiguous(), y=y, threads=8)


def test_a_bound_kernel_writes_tensors_alone(context: pumice.Context) -> None:
    kernel = pumice.Kernel(COPY, context)
    with pytest.raises(pumice.BindingError, match="NumPy array") as caught:
        kernel.bind(x=np.ones(4, "float32"), y=np.ones(4, "float32"), threads=4)
    assert caught.value.rule == "K9"


def test_normalisations_of_what_has_no_channels_are_rejected() -> None:
    vector = np.zeros(3, "float32")
    for op, count in (("BatchNormalization", 4), ("InstanceNormalization", 2)):
        graph = pumice.Graph()
        # with an unknown rank, nothing can be checked
        graph.add(op, graph.input("x", "float32", None), *[vector] * count)
        with pytest.raises(pumice.GraphError):
            graph.add(op, graph.input("y", "float32", [3]), *[vector] * count)


def test_none_is_no_buffer_and_no_operator(context: pumice.Context) -> None:
    for make in (
        lambda: pumice.Buffer(None, 4),  # type: ignore[arg-type]
        lambda: pumice.BufferRange(None),  # type: ignore[arg-type]
        lambda: pumice.Tensor(pumice.TensorDesc("float32", [1]), None),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            make()
    with pytest.raises(pumice.BindingError, match="None"):
        pumice.Initializer(context, [None])  # type: ignore[list-item]


def test_letters_beyond_ascii_in_a_shader_are_an_error_with_its_line(context: pumice.Context) -> None:
    with pytest.raises(pumice.ShaderCompileError, match="kernel:2"):
        pumice.Kernel("layout(local_size_x = 1) in;\nvoid main() { \u00fc }", context)


def test_a_small_file_does_not_grow_by_folding(context: pumice.Context) -> None:
    graph = pumice.Graph()
    value = graph.constant(np.ones(64, "int64"))
    for _ in range(24):
        value = graph.add("Concat", value, value, axis=0)
    graph.output("y", graph.add("Shape", value))
    assert graph.compile(context)({})["y"] == [64 << 24]


def test_a_daemon_thread_in_a_call_does_not_abort_the_end_of_the_process() -> None:
    from process import python

    code = """
import threading, time, numpy as np, pumice
graph = pumice.Graph()
graph.output("y", graph.add("Relu", graph.input("x", "float32", [1000])))
program = graph.compile(pumice.Context())
def work():
    while True: program.call((np.ones(1000, "float32"),))
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""
    for _ in range(3):
        done = python("-c", code)
        assert done.returncode == 0, done.stderr


SCALE = """layout(binding = 0) buffer Y { float y[]; };
layout(binding = 0) buffer U { uint a[]; };
layout(push_constant) uniform P { float factor; };
void main() { y[gl_GlobalInvocationID.x] *= factor; }"""


def test_arguments_that_hold_themselves_are_rejected(context: pumice.Context) -> None:
    kernel, y = pumice.Kernel(SCALE, context), np.ones(8, "float32")
    turning: list[Any] = []
    turning.append(turning)
    around: dict[str, Any] = {}
    around["a"] = around
    for argument in (
        {"factor": turning, "threads": 8},
        {"factor": around, "threads": 8},
        {"factor": 1, "threads": turning},
    ):
        with pytest.raises(pumice.BindingError, match="nested at most 32 deep"):
            kernel(y=y, **argument)
    with pytest.raises(pumice.BindingError, match="a number.*given complex64"):
        kernel(y=y, factor=np.complex64(3j), threads=8)
    with pytest.raises(pumice.BindingError, match="'y', whose binding it shares; given 'a'"):
        kernel(y=y, a=np.zeros(8, "uint32"), factor=1, threads=8)
    kernel(y=y, factor=2, threads=8)
    assert (y == 2).all()


@pytest.mark.parametrize("length", [0, -1])
def test_an_array_of_no_length_is_rejected(context: pumice.Context, length: int) -> None:
    source = """layout(constant_id = 0) const int N = 3;
layout(local_size_x = 4) in;
shared float s[N];
layout(binding = 0) buffer Y { float y[]; };
void main() { s[0] = 1.0; y[0] = s[0]; }"""
    with pytest.raises(pumice.BindingError, match=f"'N': expected an array length from 1 .*given {length}"):
        pumice.Kernel(source, context, spec={"N": length})(y=np.zeros(4, "float32"), groups=1)


def test_a_kernel_that_accesses_nothing_is_within_its_bounds(context: pumice.Context) -> None:
    pumice.Kernel("void main() {}", context, debug=True)(threads=1)
    source = "layout(binding = 0) buffer Y { float y[]; };\nvoid main() { uint i = gl_GlobalInvocationID.x; if (i < 0u) y[i] = 1.0; }"
    pumice.Kernel(source, context, debug=True)(y=np.zeros(0, "float32"), threads=3)


def test_two_written_arrays_lie_apart(context: pumice.Context) -> None:
    source = """layout(binding = 0) buffer A { float a[]; };
layout(binding = 1) buffer B { float b[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i % 2u == 0u) a[i] = 1.0; else b[i] = 2.0; }"""
    kernel, z = pumice.Kernel(source, context), np.zeros(8, "float32")
    for a, b in ((z, z), (z[:6], z[2:])):
        with pytest.raises(pumice.BindingError, match="does not overlap 'a', because the kernel writes both"):
            kernel(a=a, b=b, threads=6)
    kernel(a=z[:4], b=z[4:], threads=4)
    assert z.tolist() == [1, 0, 1, 0, 0, 2, 0, 2]
