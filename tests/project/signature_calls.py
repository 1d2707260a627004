"""A table with a call for every optional argument of the public API; test_signatures.py runs it.

A row has the arguments that it is about, as "Class.method argument ...", a call, and a pattern. Without a pattern the call
returns results for several values of the arguments, and all of them have to differ. With a pattern the call has to fail, and
the pattern has to match the error: its type, a colon and its message.
"""

from __future__ import annotations

import atexit
import functools
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import onnx
import pytest

import pumice
import pumice.validation.repeatability as repeatability
from control_graphs import collatz, count_up, counting_loop, identity, integer, less_than_limit
from dv_commands import PAGE, committed, doubling
from onnx_models import gemm, model, node, relu, value
from pumice import dv, testing
from pumice.base.progress import Progress
from pumice.device.kernel_times import KernelTimes
from pumice.onnx import backend, import_graph
from pumice.validation.report_metadata import ReportMetadata, get_device_metadata

Row = tuple[str, Callable[[pumice.Context], Any], str]
W = "wobble"  # a value that nothing accepts
SLOW = "TimeoutError"


def options(path: str, read: Callable[..., Any], **values: Any) -> Iterator[Row]:
    """Yield a row for each argument: `read` gives other results with the value than with the default.

    A value that is a dict with the argument's own name has other arguments too, which the call without the value gets as well.
    """
    for name, given in values.items():
        with_it = given if isinstance(given, dict) and name in given else {name: given}
        without = {key: item for key, item in with_it.items() if key != name}
        yield f"{path} {name}", lambda c, a=without, b=with_it: [read(c, **a), read(c, **b)], ""


def rejects(path: str, call: Callable[..., Any], **values: Any) -> Iterator[Row]:
    """Yield a row for each argument: the value is rejected by an error that names the argument or the value."""
    for name, given in values.items():
        yield f"{path} {name}", lambda c, o={name: given}: call(c, **o), f"{name}|{W}"


def bars(target: str, call: Callable[[], Any]) -> list[bool]:
    """Return whether a call shows each of its progress bars, which `target` makes."""
    shown: list[bool] = []
    with patch(target, lambda name, wanted: shown.append(wanted) or Progress(name, False)):
        call()
    return shown


# ---- contexts, memory and command lists

ADD = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[gl_GlobalInvocationID.x] += 1.0; }"
BUSY = """layout(local_size_x = 64) in;
layout(binding = 0) buffer X { uint x[]; };
void main() {
  uint v = gl_GlobalInvocationID.x;
  for (uint k = 0u; k < 20000u; ++k) v = v * 1664525u + 1013904223u;
  if (v == 1u) x[0] = v;
}"""
ARRAY = np.arange(6, dtype="float32").reshape(2, 3)
DESC = pumice.TensorDesc("float32", [64])


def busy(context: pumice.Context) -> pumice.Submission:
    """Submit work that is still running at the next call."""
    commands, kernel = pumice.CommandList(context), pumice.Kernel(BUSY, context)
    for _ in range(1 if context.info.kind == "software" else 800):  # a GPU runs many workgroups at once
        commands.dispatch(kernel.bind(x=pumice.zeros(64, "uint32", context), groups=400))
    commands.commit()
    return commands.exec()


@functools.cache
def other(context: pumice.Context) -> pumice.Context:
    return pumice.Context(f"uuid:{context.info.uuid}")


def closed(context: pumice.Context) -> pumice.Context:
    with pumice.Context(f"uuid:{context.info.uuid}") as made:
        return made


def mapped(context: pumice.Context) -> pumice.Buffer:
    buffer = pumice.Buffer(context, 64, "readback")
    buffer.map()
    return buffer


def added(context: pumice.Context, run: Callable[[pumice.CommandList], Any], **commit: bool) -> list[Any]:
    """Return the runs of a kernel that adds 1, and the times that were measured."""
    x, commands = pumice.zeros(8, context=context), pumice.CommandList(context)
    commands.dispatch(pumice.Kernel(ADD, context).bind(x=x, threads=8))
    commands.commit(**commit)
    run(commands)
    submission = commands.exec()
    submission.wait()
    return [x.tolist(), submission.device_seconds is None, len(commands.dispatch_times)]


def compiled(context: pumice.Context, **given: Any) -> pumice.CompiledOperator:
    return pumice.Operator("Relu", [DESC], [DESC]).compile(context, **given)


PRELU = pumice.Operator("PRelu", [DESC, pumice.TensorDesc("float32", [1])], [DESC])
# fmt: off
MEMORY: list[Row] = [
    *rejects("Context.__init__", lambda c, **o: pumice.Context(**o), device=W, without=[W], limits={W: 1}, quirks=[W]),
    ("Context.wait timeout", lambda c: c.wait(busy(c).id, timeout=0), SLOW),
    ("Submission.wait timeout", lambda c: busy(c).wait(timeout=0), SLOW),
    ("CommandList.wait timeout", lambda c: pumice.CommandList(c).wait(busy(c).id, timeout=0), SLOW),
    ("Context.close timeout", lambda c: other(c).close(timeout=-1.0), "seconds"),
    ("Buffer.__init__ heap", lambda c: [pumice.Buffer(c, 64, h).heap for h in ("default", "upload", "readback")], ""),
    ("Buffer.sync_start read write", lambda c: mapped(c).sync_start(read=False, write=False), "read, write or both"),
    ("BufferRange.__init__ offset", lambda c: [pumice.BufferRange(mapped(c), i).bytes for i in (0, 16)], ""),
    ("BufferRange.__init__ bytes", lambda c: [pumice.BufferRange(mapped(c), 16, i).bytes for i in (16, 32)], ""),
    *options("CommandList.commit", lambda c, **o: added(c, id, **o), timing=True, profile=True),
    *options("CommandList.time", lambda c, **o: added(c, lambda x: x.time(2, **o)), warm_up=3),
    *options("CommandList.warm_up", lambda c, **o: added(c, lambda x: x.warm_up(**o)), runs=3),
    ("BindingTable.__init__ descriptors", lambda c: pumice.BindingTable(compiled(c), 1), "C10"),
    ("BindingTable.reset descriptors", lambda c: pumice.BindingTable(compiled(c)).reset(compiled(c), 1), "C10"),
    ("BindingTable.bind **kwargs", lambda c: pumice.BindingTable(compiled(c)).bind(wobble=mapped(c)), W),
    ("Dispatchable.supports_in_place input", lambda c: [PRELU.compile(c).supports_in_place(i, 0) for i in (0, 1)], ""),
    ("Dispatchable.supports_in_place output", lambda c: [compiled(c).supports_in_place(0, i) for i in (0, 1)], ""),
    ("Operator.__init__ activation", lambda c: pumice.Operator("Relu", [DESC], [DESC], activation=W), W),
    ("Operator.__init__ **kwargs", lambda c: pumice.Operator("Relu", [DESC], [DESC], alpha=0.5), "alpha"),
    *options("Operator.compile", lambda c, **o: compiled(c, **o).binding_properties.temporary_bytes, precision="fp16",
        flags=["ALLOW_HALF_PRECISION_COMPUTATION"]),
    *options("has_operator", lambda c, **o: pumice.has_operator("Relu", **o), domain="pumice"),
    *options("strides", lambda c, **o: pumice.strides([2, 3], "ab", **o), broadcast=[True, False]),
    *options("TensorDesc.with_layout", lambda c, **o: pumice.TensorDesc.with_layout("float32", [2, 3], "ab", **o).strides,
        broadcast=[True, False]),
    *options("buffer_size", lambda c, **o: pumice.buffer_size("float32", [2, 3], **o), strides=[8, 1]),
    *options("TensorDesc.__init__", lambda c, **o: [getattr(pumice.TensorDesc("uint8", [2, 3], **o), name) for name in ("strides",
        "owned", "alignment", "bytes", "scale", "zero_point", "channel_axis")], strides=(8, 1), owned=True, alignment=64, total_bytes=64,
        scale=0.5, zero_point={"zero_point": 3, "scale": 0.5}),
    ("TensorDesc.__init__ channel_axis", lambda c: pumice.TensorDesc("int8", [3], scale=[1, 2, 3], channel_axis=7), "channel_axis"),
    ("operators name", lambda c: pumice.operators("Konv"), "Conv"),
    *options("testing.accuracy", lambda c, **o: testing.accuracy([0, 1], [0, 1], **o), reference=[1, 1], confidence=0.9),
    *options("testing.wilson", lambda c, **o: testing.wilson(1, 2, **o), confidence=0.9),
    *options("testing.compare", lambda c, **o: testing.compare(ARRAY, ARRAY + 0.1, **o).mismatched, rtol=0.2, atol=0.2),
    ("testing.assert_close rtol", lambda c: testing.assert_close(ARRAY, ARRAY * 1.1, rtol=0.01), "AssertionError"),
    ("testing.assert_close atol", lambda c: testing.assert_close(ARRAY, ARRAY + 0.1, atol=0.01), "AssertionError"),
    ("output_descs outputs", lambda c: [len(pumice.output_descs("Split", [DESC], outputs=n)) for n in (2, 4)], ""),
    ("output_descs **kwargs", lambda c: pumice.output_descs("Relu", [DESC], wobble=1), W),
    ("calibrate context", lambda c: pumice.calibrate(closed(c), again=True), "closed"),
    ("calibrate again", lambda c: [pumice.calibrate(c).seconds_since_epoch == pumice.calibrate(c,
        again=b).seconds_since_epoch for b in (False, True)], ""),
]
# fmt: on

# ---- tensors and images

MAKERS: dict[str, Callable[..., Any]] = {
    "empty": lambda **o: pumice.empty([2], "float32", **o),
    "full": lambda **o: pumice.full([2], 1, **o),
    "zeros": lambda **o: pumice.zeros([2], **o),
    "ones": lambda **o: pumice.ones([2], **o),
    "tensor": lambda **o: pumice.tensor(ARRAY, **o),
    "asarray": lambda **o: pumice.asarray(ARRAY, **o),
    "from_dlpack": lambda **o: pumice.from_dlpack(ARRAY, **o),
    "image": lambda **o: pumice.image(ARRAY, "r32f", **o),
}


def read_only() -> Any:
    array = ARRAY.copy()
    array.flags.writeable = False
    return array


def picture(context: pumice.Context, **given: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3)).astype("uint8")
        __import__("PIL.Image").Image.fromarray(pixels).save(path)
        made = pumice.load_image(path, **{"size": (4, 4), **given})
        return made.tolist(), made.dtype


SAMPLING = {"filter": "linear", "address": "border", "normalized": True}
# fmt: off
TENSORS: list[Row] = [
    *((f"{name}.__array__ dtype", lambda c, m=make: [m(context=c).__array__(t).dtype for t in (None, "int64")], "") for name,
        make in (("Tensor", MAKERS["tensor"]), ("Image", MAKERS["image"]))),
    ("Tensor.__array__ copy", lambda c: pumice.tensor(ARRAY, c).__array__(copy=False), "always copies"),
    ("Image.__array__ copy", lambda c: pumice.image(ARRAY, "r32f", c).__array__(copy=False), "always copies"),
    *rejects("Tensor.numpy", lambda c, **o: pumice.tensor(ARRAY, c).numpy(**o), out=np.zeros(3, "float32")),
    ("empty_host context", lambda c: pumice.empty_host(2, "int8", closed(c)), "closed"),
    ("empty share", lambda c: pumice.empty(2, "int8", c, share="opencl"), "opencl"),
    *rejects("Tensor.__dlpack__", lambda c, **o: pumice.tensor(ARRAY, c).__dlpack__(**o), stream=1),
    ("Tensor.__dlpack__ dl_device", lambda c: pumice.tensor(ARRAY, c).__dlpack__(dl_device=(2, 0)), "device"),
    ("Tensor.__dlpack__ copy", lambda c: pumice.zeros(1, context=c).broadcast_to([4]).__dlpack__(copy=False), "BufferError.*copy"),
    ("Tensor.__dlpack__ max_version", lambda c: [repr(pumice.tensor(ARRAY,
        c).__dlpack__(max_version=v)).partition(" at")[0] for v in (None, (1, 0))], ""),
    ("Tensor.__init__ offset", lambda c: pumice.Tensor(DESC, mapped(c), 1 << 30), "R1"),
    *options("Tensor.squeeze", lambda c, **o: pumice.zeros([1, 3, 1], context=c).squeeze(**o).shape, axis=0),
    *options("Tensor.transpose", lambda c, **o: pumice.zeros([2, 3, 4], context=c).transpose(**o).shape, axes=[1, 0, 2]),
    *options("Image.__init__", lambda c, **o: [getattr(pumice.Image(c, "r32f", [4, 4], **o), name) for name in SAMPLING], **SAMPLING),
    *options("image", lambda c, **o: [getattr(MAKERS["image"](context=c, **o), name) for name in SAMPLING], **SAMPLING),
    *((f"{name} context", lambda c, m=make: [m(context=x).context is c for x in (c, other(c))], "") for name, make in MAKERS.items()),
    ("from_host context", lambda c: pumice.from_host(ARRAY, W), "argument 'context'"),
    *((f"{name} dtype", lambda c, m=MAKERS[name]: [m(dtype=t, context=c).dtype for t in ("float32", "int16")], "") for name in ("full",
        "zeros", "ones", "asarray")),
    ("asarray copy", lambda c: pumice.asarray(read_only(), context=c, copy=False), "without a copy"),
    ("from_dlpack copy", lambda c: pumice.from_dlpack(read_only(), context=c, copy=False), "without a copy"),  # type: ignore[arg-type]
    *options("load_image", picture, mode="BGR", size=(3, 4), fit="stretch", resample="nearest", invert="always", scale="1/255",
        mean=[1.0], std=[2.0], layout="NHWC", dtype="uint8"),
]
# fmt: on

# ---- shaders and kernels

FILL = """layout(constant_id = 0) const int count = 1;
layout(binding = 0) buffer Y { float y[]; };
#ifndef VALUE
#define VALUE 2
#endif
#ifndef ncnn_wobble
#define ncnn_wobble 1
#endif
void main() { y[gl_GlobalInvocationID.x] = float(VALUE * count * ncnn_wobble); }"""
INCLUDING = '#include "value.glsl"\n' + FILL
SIZED = """layout(binding = 0) buffer Y { float y[]; };
void main() { barrier(); y[gl_GlobalInvocationID.x] = gl_WorkGroupSize.x; }"""
BEYOND = "layout(binding = 0) buffer Y { float y[]; };\nvoid main() { y[gl_GlobalInvocationID.x + 8u] = 1.0; }"
PRINTING = (
    'layout(binding = 0) buffer Y { float y[]; };\nvoid main() { debugPrintfEXT("%u", gl_GlobalInvocationID.x); }'
)
COUNTED = "layout(binding = 0) buffer B { uint n; float v[]; } b;\nvoid main() { b.v[0] = float(b.n); }"


def preamble(context: pumice.Context, **given: Any) -> Any:
    made = pumice.ShaderOptions(**given)
    return made.preamble, pumice.compile(FILL, made).spirv


def filled(context: pumice.Context, source: str | None = FILL, threads: int = 4, **given: Any) -> list[Any]:
    """Return what a kernel writes, its name, variants and lost messages."""
    y = pumice.zeros(64, context=context)[:4]
    kernel = pumice.Kernel(source, context, **given) if source else pumice.Kernel(context=context, **given)
    kernel(y=y, threads=threads)
    return [y.tolist(), kernel.name, list(kernel.variants), kernel.messages_lost > 0]


def included(folder: str | Path) -> str:
    """Write a kernel and a file to include into a folder; return it."""
    Path(folder, "fill.comp").write_text(FILL)
    Path(folder, "value.glsl").write_text("#undef VALUE\n#define VALUE 11\n")
    return str(folder)


FOLDER = included(tempfile.mkdtemp())
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
UNGUARDED = pumice.ShaderOptions(guard=False)
TEXTS = [{"value.glsl": f"#define VALUE {k}\n"} for k in (3, 4)]


def reloaded(context: pumice.Context, reload: bool) -> list[float]:
    path, y = Path(FOLDER) / "fill.comp", np.zeros(4, "float32")
    path.write_text(FILL)
    kernel = pumice.Kernel.from_file(path, context, reload=reload)
    path.write_text(FILL.replace("VALUE * count", "VALUE * count + 1"))
    kernel(y=y, threads=4)
    return y.tolist()


def of_body(context: Any, header: str = "float f(float v) { return v; }", **given: Any) -> Any:
    made = pumice.Kernel.from_body("y[i] = f(1.0);", {}, {"y": ("float32", 4)}, context, header=header, **given)
    return made.name, made().tolist()


def tuned_kernel(context: pumice.Context, spills: int = 0, **given: Any) -> Any:
    """Tune a macro of a kernel a second time, in a cache of its own; return what was measured and shown."""
    kernel, times, bars = pumice.Kernel(FILL, context), [], []

    def tune(**more: Any) -> Any:
        return kernel.tune({"VALUE": [1, 2]}, {"y": np.zeros(1, "float32"), "threads": 1}, **more)

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(
            os.environ,
            {
                "PUMICE_CACHE_DIR": folder,
            },
        ),
        patch(
            "pumice.device.kernel_times.measure_kernel_times", lambda *a: times.append(a[-1]) or KernelTimes((1e-6,))
        ),
        patch("pumice.base.progress.Progress", lambda name, shown: bars.append(shown) or Progress(name, False)),
        patch.object(pumice.Kernel, "statistics", lambda *_: SimpleNamespace(refusal=None, spills=spills)),
    ):
        os.environ.pop("PUMICE_NO_CACHE", None)
        if not spills:
            tune()
        made = tune(**given)
    return made.measured, len(made.rejected), times, bars


def ones(y: Any) -> Any:
    return np.ones_like(y)


# fmt: off
KERNELS: list[Row] = [
    *options("ShaderOptions.__init__", preamble, storage="fp16", fp16_arithmetic={"fp16_arithmetic": True, "storage": "fp16"},
        fp16_uniform={"fp16_uniform": True, "storage": "fp16"}, int8_storage=True, int8_packed=True,
        int8_arithmetic={"int8_arithmetic": True, "int8_storage": True}, int8_uniform={"int8_uniform": True, "int8_storage": True},
        int16_storage=True, int16_packed=True, shader_local_memory=True, generation="2024", image_storage={"image_storage": True,
        "generation": "2024"}, subgroup={"subgroup": {"basic"}, "generation": "2024"}, int64=False, int16=False, int8=False,
        storage_16bit={"storage_16bit": False, "storage": "fp16_packed"}, fp16_rounds_to_even={"fp16_rounds_to_even": True,
        "storage": "fp16"}, vulkan_minor=3, profile={"profile": {"ncnn_wobble": "7"}}, debug=True, guard=False),
    *options("compile", lambda c, source=FILL, **o: pumice.compile(source, **o).spirv, options=pumice.ShaderOptions(debug=True),
        macros={"VALUE": "5"}, profile={"profile": {"ncnn_wobble": "9"}}),
    ("compile name", lambda c: pumice.compile(W, name="named"), "named:1"),
    ("compile local_size", lambda c: [pumice.compile(SIZED, local_size=(n, 1, 1)).spirv for n in (2, 4)], ""),
    ("compile includes", lambda c: [pumice.compile(INCLUDING, includes=t).spirv for t in TEXTS], ""),
    ("compile include_dirs", lambda c: [pumice.compile(INCLUDING, **o).spirv for o in ({"include_dirs": [FOLDER]},
        {"includes": TEXTS[0]})], ""),
    *options("Kernel.__init__", filled, name="named", macros={"VALUE": 5}, spec={"count": 7},
        options={"options": pumice.ShaderOptions(storage="fp16_packed")}, source=ADD.replace("X { float x", "Y { float y").replace("x[gl",
        "y[gl"), message_bytes={"message_bytes": 256, "source": PRINTING, "threads": 200}),
    ("Kernel.__init__ local_size", lambda c: [filled(c, SIZED, local_size=(n, 1, 1)) for n in (2, 4)], ""),
    ("Kernel.__init__ context", lambda c: pumice.Kernel(FILL, W), "TypeError.*context"),
    ("Kernel.__init__ spirv", lambda c: [filled(c, None, spirv=pumice.compile(FILL, UNGUARDED, {"VALUE": n}).spirv) for n in ("1", "5")],
        ""),
    ("Kernel.__init__ includes", lambda c: [filled(c, INCLUDING, includes=t) for t in TEXTS], ""),
    ("Kernel.__init__ include_dirs", lambda c: [filled(c, INCLUDING, **o) for o in ({"include_dirs": [FOLDER]}, {"includes": TEXTS[0]})],
        ""),  # type: ignore[arg-type]
    ("Kernel.__init__ debug", lambda c: filled(c, BEYOND, debug=True), "OutOfBoundsError"),
    ("Kernel.from_file context", lambda c: pumice.Kernel.from_file(Path(FOLDER, "fill.comp"), W), "TypeError.*context"),
    ("Kernel.from_file reload", lambda c: [reloaded(c, b) for b in (False, True)], ""),
    ("Kernel.from_file **options", lambda c: pumice.Kernel.from_file(Path(FOLDER, "fill.comp"), c, wobble=1), f"TypeError.*{W}"),
    *options("Kernel.from_body", of_body, name="named", header="float f(float v) { return v + 1.0; }"),  # type: ignore[arg-type]
    ("Kernel.from_body **options", lambda c: of_body(c, wobble=1), f"TypeError.*{W}"),
    ("Kernel.from_body context", lambda c: of_body("llvmpipe"), "TypeError.*context"),
    *((f"Kernel.{name} {argument}", lambda c, n=name, o=given: getattr(pumice.Kernel(FILL, c), n)(**o, threads=4),
        W) for name in ("__call__", "bind", "time") for argument, given in (("given", {"given": {W: 1}}), ("**arguments", {W: 1}))),
    ("Kernel.run **kwargs", lambda c: pumice.Kernel(FILL, c).run(wobble=1, threads=4), W),
    ("Kernel.dtype length", lambda c: [pumice.Kernel(COUNTED, c).dtype("b", n).itemsize for n in (3, 4)], ""),
    ("Kernel.statistics storage", lambda c: pumice.Kernel(FILL, c).statistics(W), W),
    ("Kernel.time runs", lambda c: pumice.Kernel(FILL, c).time(runs=0, y=np.zeros(4, "float32"), threads=4), "runs"),
    *options("Kernel.tune", tuned_kernel, check=ones, tolerance={"tolerance": 1.5, "check": ones}, runs={"runs": 3, "again": True},
        again=True, progress={"progress": False, "again": True}),
    ("Kernel.tune allow_spills", lambda c: tuned_kernel(c, spills=1, again=True), "spills"),
    ("show_versions file", lambda c: pumice.show_versions(io.BytesIO()), "bytes"),  # type: ignore[arg-type]
]
# fmt: on

# ---- graphs and programs

X = np.arange(-4, 4, dtype="float32")
SOMETIMES = """layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { if (x[0] == 7.0) y[gl_GlobalInvocationID.x] = 1.0; }"""
FOREVER = {"start": integer(0), "limit": integer(2**31 - 1)}
TENSOR = ("name", "shape", "dtype", "scale", "zero_point", "channel_axis", "owned")


def network() -> pumice.Graph:
    graph = pumice.Graph("net")
    x = graph.input("x", "float32", [8])
    y = graph.add("Exp", graph.add("Neg", graph.add("Softmax", x, name="first"), name="second"), name="third")
    graph.output("y", y)
    return graph


def value_of(made: pumice.Value) -> list[Any]:
    return [getattr(made, name, None) for name in TENSOR]


def added_node(context: pumice.Context, op: str = "Split", **given: Any) -> Any:
    graph = pumice.Graph()
    graph.add(op, graph.input("x", "float32", [6]), **given)
    return graph.nodes[-1].name, [one.name for one in graph.nodes[-1].outputs]


def declared(context: pumice.Context, **given: Any) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.input("x", "uint8", [3], scale=0.5, zero_point=3), **given)


def owning(context: pumice.Context, owned: bool) -> int:
    graph = pumice.Graph()
    weight = graph.input("w", "float32", [8], owned=owned)
    graph.output("y", graph.add("Add", graph.input("x", "float32", [8]), weight))
    return graph.compile_operator(context).binding_properties.persistent_bytes


def compile_network(context: pumice.Context, **given: Any) -> Any:
    program = network().compile(context, **given)
    return [one.tolist() for one in program({"x": X / 3}).values()], program.arena([[8]])["dispatches"]


def variants(context: pumice.Context, **given: Any) -> Any:
    """Return the steps of a plan with a choice of kernels; `measured` counts the variant to take."""
    graph = pumice.Graph()
    weights = graph.constant(np.ones((40, 72), "float32"))
    graph.output("y", graph.add("MatMul", graph.input("x", "float32", [6, 40]), weights))
    (choice,) = (s["choice"] for s in graph.compile(context, list_variants=True).plan([[6, 40]]) if "choice" in s)
    if "measured" in given:
        given["measured"] = {choice["kind"]: choice["variants"][given["measured"]]}
    program = graph.compile(context, **given)
    return ["choice" in step for step in program.plan([[6, 40]])], [row["note"] for row in program.report()]


def branch(context: pumice.Context, **given: Any) -> Any:
    graph = pumice.Graph()
    x, c = graph.input("x", "int32", [1]), graph.input("c", "bool", [1])
    (made,) = graph.if_(c, identity(), identity(), **{"inputs": [x], **given})
    return graph.nodes[-1].name, made.name


def loop(context: pumice.Context, state: bool = False, **given: Any) -> Any:
    graph = pumice.Graph()
    start, limit = graph.input("start", "int32", [1]), graph.input("limit", "int32", [1])
    condition, body = less_than_limit(), count_up()
    if state:
        body.output("limit", body.add("Identity", body.inputs[1]))
    (last,) = graph.while_(
        condition, body, carried=[start], **({"state": [limit]} if state else {"invariant": [limit]}), **given
    )
    return graph.nodes[-1].name, last.name, len(body.outputs)


def unwritten(context: pumice.Context, run: Callable[..., Any]) -> list[bool]:
    """Return whether a result is NaN that only the run before wrote, without and with memory that is filled before."""
    proto = model([node("Custom", ["x"], domain="mine")], [value("x", [4])])
    proto.opset_import.add(domain="mine", version=1)
    with pumice.load(proto, context, kernels={"mine::Custom": pumice.kernel_operator(SOMETIMES)}) as made:
        run(made.program, np.full(4, 7, "float32"), False)
        return [bool(np.isnan(run(made.program, X[:4], filled)).all()) for filled in (False, True)]


def execute_filled(program: pumice.Program, x: Any, filled: bool) -> Any:
    execution = program.execution(filled=filled)
    execution.set("x", x)
    return execution.compute()["y"]


def endless(context: pumice.Context) -> pumice.Program:
    """A loop whose step of 0 never reaches the limit."""
    return counting_loop(0).compile(context)


def stuck(context: pumice.Context, program: pumice.Program | None = None) -> pumice.Execution:
    execution = (program or endless(context)).execution()
    for name, array in FOREVER.items():
        execution.set(name, array)
    return execution


def long_run(context: pumice.Context) -> pumice.ProgramRun:
    graph, size = pumice.Graph(), 700 if context.info.kind == "software" else 4096
    graph.output("y", graph.add("MatMul", *(graph.input(name, "float32", [size, size]) for name in "xw")))
    return graph.compile(context).run_async((np.ones((size, size), "float32"),) * 2)


def waited(context: pumice.Context) -> None:
    """Wait for an execution that starts after a failing one."""
    event = stuck(context).start(loop_timeout=0.05)
    quick = network().compile(context).execution()
    quick.set("x", X)
    quick.start(wait_for=[event]).wait()


def measured(context: pumice.Context, measure: bool) -> Any:
    execution = network().compile(context).execution(measure)
    execution.set("x", X)
    execution.compute()
    try:
        return execution.timing["on_device"] > 0
    except pumice.Error:
        return None


CALL, LIMITED = tuple(FOREVER.values()), {"timeout": 0.05, "loop_timeout": None}
DRIVES: dict[str, Callable[..., Any]] = {
    "Program.__call__": lambda c, **o: endless(c)(FOREVER, **o),
    "Program.call": lambda c, **o: endless(c).call(CALL, **o),
    "Program.run_async": lambda c, **o: endless(c).run_async(CALL, **o).wait(),
    "Program.observe_runs": lambda c, **o: endless(c).observe_runs(CALL, **o),
    "Execution.compute": lambda c, **o: stuck(c).compute(**o),
    "Execution.start": lambda c, **o: stuck(c).start(**o).wait(),
    "Burst.compute": lambda c, p=None, **o: (p := endless(c)).burst().compute(stuck(c, p), **o),
}
# fmt: off
GRAPHS: list[Row] = [
    *options("Graph.__init__", lambda c, **o: pumice.Graph(**o).name, name="two"),
    *options("Graph.add", added_node, name={"name": "split", "outputs": 3}, output_names={"output_names": ["a", "b", "c"], "outputs": 3}),
    ("Graph.add outputs", lambda c: [len(added_node(c, outputs=n)[1]) for n in (2, 3)], ""),
    ("Graph.add **kwargs", lambda c: added_node(c, "Relu", wobble=1), W),
    ("Graph.input dimension_names", lambda c: pumice.Graph().input("z", "int8", [2], dimension_names=["a", "b"]), "size names"),
    ("Graph.input owned", lambda c: [owning(c, owned) for owned in (False, True)], ""),
    *options("Graph.input", lambda c, **o: value_of(pumice.Graph().input("q", "int8", [2, 3], **o)), scale=0.5,
        zero_point={"zero_point": 7, "scale": 0.5}),
    ("Graph.input assumed", lambda c: [(g := pumice.Graph(), g.input("x", "int32", [1], assumed=b), g.exact)[2] for b in (False, True)],
        ""),
    ("Graph.input channel_axis", lambda c: pumice.Graph().input("q", "int8", [3], scale=[1, 2, 3], channel_axis=7), "channel_axis"),
    *options("Graph.constant", lambda c, **o: value_of(pumice.Graph().constant(np.zeros((2, 3), "int8"), **o)), name="c", scale=0.5,
        zero_point={"zero_point": 7, "scale": 0.5}),
    ("Graph.constant channel_axis", lambda c: pumice.Graph().constant(CUBE, scale=[1, 2], channel_axis=7), "channel_axis"),
    *options("Graph.constant_bytes", lambda c, **o: pumice.Graph().constant_bytes(b"\0" * 8, "int64", [1], **o).name, name="b"),
    *((f"Graph.output {name}", lambda c, o=given: declared(c, **o), pattern) for name, given, pattern in (("shape", {"shape": [2]},
        "shape|size"), ("dtype", {"dtype": "int8"}, "declared as int8"), ("scale", {"scale": 0.25}, "scale 0.25"), ("zero_point",
        {"scale": 0.5, "zero_point": 4}, "zero point 4"))),
    *options("Graph.compile", compile_network, precision="fp16", keep_all=True, fuse=False, float32_nodes={"float32_nodes": ["first",
        "second", "third"], "precision": "fp16"}),
    ("Graph.compile progress", lambda c: network().compile(c, progress=lambda *_: 1 / 0), "ZeroDivisionError"),
    ("Graph.compile memory", lambda c: network().compile(c, memory=pumice._pumice.UploadMemory(other(c), 64)), "context"),
    ("Graph.compile check_indices", lambda c: import_graph(READS).compile(c, check_indices=True).call((M, [7])), "index 14"),
    *options("Graph.compile", lambda c, **o: import_graph(SCATTER).compile(c, **o).report(), deterministic=True),
    *options("Graph.compile", variants, list_variants=True),
    ("Graph.compile measured", lambda c: [variants(c, measured=n) for n in (0, 1)], ""),
    *options("Graph.compile_operator", lambda c, **o: network().compile_operator(c, **o).binding_properties.temporary_bytes,
        precision="fp16", flags=["ALLOW_HALF_PRECISION_COMPUTATION"]),
    ("Graph.if_ inputs", lambda c: branch(c, inputs=[]), "B2.3"),
    *options("Graph.if_", branch, name="choice", output_names=["chosen"]),
    ("Graph.while_ state invariant", lambda c: [loop(c, state=state) for state in (False, True)], ""),
    *options("Graph.while_", loop, name="loop", output_names=["last"]),
    ("Graph.shape_sources elements", lambda c: [len(graph.shape_sources(graph.input("sizes", "int64", [1]), elements=wanted)) for graph,
        wanted in ((pumice.Graph(), False), (pumice.Graph(), True))], ""),
    *((f"{path} loop_timeout", lambda c, f=call: f(c, loop_timeout=0.05), SLOW) for path, call in DRIVES.items()),
    *((f"{path} timeout", lambda c, f=DRIVES[path]: f(c, **LIMITED), SLOW) for path in ("Program.__call__", "Program.call",
        "Execution.compute", "Execution.start", "Burst.compute")),
    ("Execution.start duration", lambda c: stuck(c).start(duration=0.05, loop_timeout=None).wait(), SLOW),
    ("Execution.start wait_for", waited, SLOW),
    ("Event.wait timeout", lambda c: stuck(c).start(loop_timeout=0.5).wait(timeout=0.01), SLOW),
    ("ProgramRun.result timeout", lambda c: long_run(c).result(timeout=0), SLOW),
    ("ProgramRun.wait timeout", lambda c: long_run(c).wait(timeout=0), SLOW),
    ("Program.__call__ filled", lambda c: unwritten(c, lambda p, x, b: p({"x": x}, filled=b)["y"]), ""),
    ("Program.call filled", lambda c: unwritten(c, lambda p, x, b: p.call((x,), filled=b)[0]), ""),
    ("Program.execution filled", lambda c: unwritten(c, execute_filled), ""),
    ("Program.call out", lambda c: network().compile(c).call((X,), out=[]), "out"),
    ("Program.execution measure", lambda c: [measured(c, measure) for measure in (False, True)], ""),
    ("Program.observe steps", lambda c: network().compile(c).observe((X,), steps=0), "steps"),
    *options("Program.observe", lambda c, **o: str(network().compile(c).observe((X,), **o)), names=set()),
    ("Program.observe_runs max_runs", lambda c: [max(r["observed"] for r in collatz().compile(c).observe_runs((integer(6),),
        max_runs=n)["regions"]) for n in (1, 3)], ""),
]
# fmt: on

# ---- models

M = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
YES = np.array(True)
SHIFT = """layout(constant_id = 0) const int times = 1;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform P { float by; } p;
void main() { uint i = gl_GlobalInvocationID.x; y[i] = a[i] - 2 * b[i] + p.by * times; }"""
COUNTING = SHIFT.replace("a[i] - 2 * b[i]", "float(gl_NumWorkGroups.x)")


def looping() -> onnx.ModelProto:
    """An infinite loop that carries x."""
    inputs = [onnx.helper.make_tensor_value_info(*one) for one in (("i", 7, []), ("go", 9, []), ("s", 1, ["N", 4]))]
    outputs = [onnx.helper.make_tensor_value_info(*one) for one in (("on", 9, []), ("t", 1, ["N", 4]))]
    nodes = [node("Identity", ["go"], ["on"]), node("Identity", ["s"], ["t"])]
    body = onnx.helper.make_graph(nodes, "body", inputs, outputs)
    return model([node("Loop", ["", "yes", "x"], ["y"], body=body)], [value("x"), value("yes", [], 9)])


def custom() -> onnx.ModelProto:
    proto = model([node("Custom", ["x", "z"], domain="mine")], [value("x", [4]), value("z", [4])])
    proto.opset_import.add(domain="mine", version=1)
    return proto


def external() -> bytes:
    """A model with weights in a file of the folder FOLDER."""
    path = Path(FOLDER) / "m.onnx"
    onnx.save(gemm(), path, save_as_external_data=True, location="weights", size_threshold=0)
    return path.read_bytes()


def loaded(context: pumice.Context, proto: Any = None, **given: Any) -> Any:
    """Return what a model computes, and its report."""
    made = pumice.load(proto or gemm(), context, **given)
    return str(made(M)), str(made.report())


def expression(context: pumice.Context, **given: Any) -> Any:
    made = pumice.operator("mine::Custom", "a - 2 * b", **given)
    return pumice.load(custom(), context, operators=[made])(X[:4], X[4:])


def of_kernel(context: pumice.Context, source: Any = SHIFT, **given: Any) -> pumice.Model:
    made = pumice.kernel_operator(source, **{"attributes": {"by": 1.0}, **given})
    return pumice.load(custom(), context, kernels={"mine::Custom": made})


def shifted(context: pumice.Context, **given: Any) -> Any:
    made = of_kernel(context, **given)(X[:4], X[4:])
    return made.tolist()


def counted(context: pumice.Context, **given: Any) -> float:
    kernel = pumice.Kernel(COUNTING, context, local_size=2)
    return float(of_kernel(context, kernel, **given)(X[:4], X[4:])[0])


def proved(context: pumice.Context, **given: Any) -> bool:
    return pumice.validate(of_kernel(context, **given), [(X[:4], X[4:])]).ok


def tuned(context: pumice.Context, **given: Any) -> pumice.TunedPrecision:
    return pumice.tune_precision(gemm(), [M / 3], **{"context": context, "limit": 0.5, **given})


def tuned_model(context: pumice.Context, **given: Any) -> Any:
    """Tune a model a second time, in a cache of its own; return what was measured and shown."""
    bars: list[bool] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, {"PUMICE_CACHE_DIR": folder}),
        patch("pumice.model.step_tuning.Progress", lambda name, shown: bars.append(shown) or Progress(name, False)),
        pumice.load(gemm(), context) as made,
    ):
        os.environ.pop("PUMICE_NO_CACHE", None)
        made.tune(M, runs=1)
        return made.tune(**{"x": M, "runs": 1, **given}).measured, bars


def predictor(context: pumice.Context, **given: Any) -> pumice.BatchPredictor:
    return pumice.BatchPredictor(gemm(), **{"device": f"uuid:{context.info.uuid}", **given})


def predicted(context: pumice.Context, **given: Any) -> Any:
    made = predictor(context, **given)
    results = made({"x": M, "n": M})
    return sorted((name, one.tolist()) for name, one in results.items()), made.batch_size, made.model.fuse


def NEAR(a: Any, b: Any, by: float) -> Any:
    return a - 2 * b + by + 1e-3


RELU = node("Relu", ["x"], ["y"])
RANDOM = model([node("RandomNormalLike", ["x"])])
CHAIN = model([node("Neg", ["x"], ["n"]), node("Exp", ["n"], ["y"])])
READS = model([node("Add", ["i", "i"], ["j"]), node("Gather", ["x", "j"])], [value("x", [2, 4]), value("i", [1], 7)])
SCATTER = model(
    [node("ScatterElements", ["x", "i", "u"], reduction="add")], [value("x", [4]), value("i", [9], 7), value("u", [9])]
)
BACKEND = "onnx.backend.PumiceBackend"
RUNS: dict[str, Callable[..., Any]] = {
    "prepare": lambda **o: backend.prepare(gemm(), **o),
    "run_model": lambda **o: backend.run_model(gemm(), M, **o),
    "run_node": lambda **o: backend.run_node(RELU, [M], **o),
}
# fmt: off
MODELS: list[Row] = [
    *options("Model.__init__", loaded, precision="fp16", fuse={"fuse": False, "proto": CHAIN}),
    ("Model.__init__ context", lambda c: pumice.Model(gemm(), W), "context"),
    ("Model.__init__ seed", lambda c: [pumice.load(RANDOM, c, seed=n)(M) for n in (1, 2)], ""),
    ("Model.__init__ folder", lambda c: pumice.Model(external(), c), "folder"),
    ("Model.__init__ progress", lambda c: [bars("pumice.model.compiled_model.make_progress_bar", lambda p=p: pumice.Model(gemm(), c,
        progress=p)) for p in (False, True)], ""),
    ("Model.__init__ **unknown", lambda c: pumice.Model(gemm(), c, wobble=1), W),  # type: ignore[arg-type]
    ("Model.__init__ check_indices", lambda c: pumice.load(READS, c, check_indices=True)(M, [7]), "index 14"),
    *options("Model.__init__", lambda c, **o: pumice.load(SCATTER, c, **o).program.report(), deterministic=True),
    ("Model.__init__ operators", lambda c: pumice.load(custom(), c, operators=[W]), "pumice.operator"),  # type: ignore[arg-type]
    ("Model.__init__ kernels", lambda c: pumice.load(custom(), c, kernels={"Custom": SHIFT}), "your own domain"),
    *rejects("Model.__init__", lambda c, **o: pumice.load(gemm(), c, **o), tuned=3, overridable=[W]),
    ("load context devices", lambda c: pumice.load(gemm(), c, devices="all"), "both"),  # type: ignore[list-item]
    *options("load", loaded, precision="bf16"),
    ("load **options", lambda c: pumice.load(gemm(), c, wobble=1), W),
    *options("operator", expression, inputs=["b", "a"]),  # type: ignore[call-overload]
    ("operator attributes", lambda c: pumice.operator("mine::C", "a - c", attributes={"d": 1}), "'d'"),
    *options("kernel_operator", shifted, inputs=["b", "a"], attributes={"by": 2.0}, numbers={"numbers": {"times": "3"}}, shape="(2, 2)"),  # type: ignore[call-overload]
    ("kernel_operator threads", lambda c: [counted(c, threads=n) for n in ("1", "4")], ""),
    ("kernel_operator groups", lambda c: [counted(c, groups=n) for n in ("1", "3")], ""),
    ("kernel_operator dtype", lambda c: shifted(c, dtype="int32"), "an array of float32"),
    ("kernel_operator outputs", lambda c: pumice.kernel_operator(SHIFT, outputs=["a", "y"]), "one input or one output"),
    *options("kernel_operator", proved, reference=lambda a, b, by: a - 2 * b + by),
    ("kernel_operator tolerance", lambda c: [proved(c, tolerance=t, reference=NEAR) for t in (1e-6, 1e-2)], ""),
    *options("tune_precision", lambda c, **o: [len(tuned(c, **o).nodes), tuned(c, **o).value, tuned(c, **o).policy], limit=1e-7,
        metric={"metric": len, "limit": 1}, default="bf16"),
    ("tune_precision context", lambda c: tuned(closed(c)), "closed"),
    ("tune_precision progress", lambda c: [bars("pumice.validation.precision_tuner.Progress", lambda p=p: tuned(c,
        progress=p)) for p in (False, True)], ""),
    ("tune_precision folder", lambda c: tuned(c, folder=Path(FOLDER, "fill.comp")), "fill.comp"),
    *((f"Model.{name} loop_timeout", lambda c, n=name: getattr(pumice.load(looping(), c), n)(M, YES, loop_timeout=0.05),
        SLOW) for name in ("__call__", "run_async", "warm_up")),
    ("Model.map loop_timeout", lambda c: next(pumice.load(looping(), c).map([(M, YES)], loop_timeout=0.05)), SLOW),
    *((f"Model.{name} **by_name", lambda c, n=name: getattr(pumice.load(gemm(), c), n)(wobble=M), W) for name in ("__call__", "run_async",
        "arguments", "named", "warm_up", "tune")),
    ("Model.__call__ out", lambda c: pumice.load(relu(), c)(M, out={"z": M}), "z"),
    ("Model.map depth", lambda c: pumice.load(relu(), c).map([M], depth=0), "depth"),
    ("Model.loaded_again context", lambda c: [pumice.load(gemm(), c).loaded_again(x).context is c for x in (c, other(c))], ""),
    *rejects("Model.loaded_again", lambda c, **o: pumice.load(gemm(), c).loaded_again(**o), precision=W, tuned=3),
    ("Model.loaded_again part", lambda c: [[y.name for y in pumice.load(gemm(), c).loaded_again(part=p).outputs] for p in (None, relu())],
        ""),
    ("onnx.import_graph folder", lambda c: import_graph(external()), "folder"),
    *((f"{BACKEND}.{name} device", lambda c, f=call: f(device="CUDA"), "CUDA") for name, call in RUNS.items()),
    *((f"{BACKEND}.{name} **options", lambda c, f=call: f(wobble=1), f"option '{W}'") for name, call in RUNS.items()),
    *options(f"{BACKEND}.is_compatible", lambda c, **o: backend.is_compatible(gemm(), **o), device="CUDA"),
    (f"{BACKEND}.is_compatible **options", lambda c: [backend.is_compatible(gemm(), **o) for o in ({}, {W: 1})], ""),
    (f"{BACKEND}.run_node outputs_info", lambda c: RUNS["run_node"](outputs_info=[("float32", [2, 4])] * 2), "ValueError"),
    ("onnx.backend.PumiceBackendRep.run **options", lambda c: RUNS["prepare"]().run(M, wobble=1), f"option '{W}'"),
    *options("Model.tune", tuned_model, again=True, progress=False),
    *rejects("Model.tune", lambda c, **o: pumice.load(gemm(), c).tune(M, **o), runs=0),
    *options("BatchPredictor.__init__", predicted, precision="fp16", batch_size=4, keep=["n"]),
    ("BatchPredictor.__init__ **options", lambda c: [predicted(c, fuse=fuse) for fuse in (True, False)], ""),
    ("BatchPredictor.__init__ named", lambda c: [type(predictor(c, named=b)(M)) for b in (False, True)], ""),
    ("BatchPredictor.__init__ folder", lambda c: pumice.BatchPredictor(external())(M), "folder"),
    *rejects("BatchPredictor.__init__", lambda c, **o: predictor(c, **o)(M), device=W, ragged=W, columns={W: W}, depth=0),
    ("ParallelModel.__call__ **by_name", lambda c: pumice.load(relu(), devices=[c, c])(wobble=M), W),
    ("ParallelModel.map depth", lambda c: pumice.load(relu(), devices=[c, c]).map([M], depth=0), "depth"),
    ("ParallelModel.__init__ **options", lambda c: pumice.ParallelModel(relu(), [c], "fp32", wobble=1), W),
    ("memory_map **by_name", lambda c: pumice.memory_map(pumice.load(gemm(), c), wobble=M), W),
    ("MemoryMap.plot axes", lambda c: [(a := Mock(), n and pumice.memory_map(pumice.load(gemm(), c), M).plot(a),
        len(a.method_calls) > 0)[2] for n in (0, 1)], ""),
]
# fmt: on

# ---- validation

V = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
PUMICE = {"precision": "fp16"}


def validated(context: pumice.Context, proto: Any = None, **given: Any) -> Any:
    """Return what a report says, without times."""
    report = pumice.validate(proto or gemm(), [V if proto is None else V[0]], **{"context": context, **given})
    rows = [(row.local is not None, row.accumulated is not None) for row in report.rows]
    return report.ok, report.precision, rows, len(report.kernels), [one.runs for one in report.repeats]


def unlike(context: pumice.Context, **given: Any) -> bool:
    """Return the verdict of a device whose results are other bits each time."""
    plain, calls = repeatability._make_replay, iter(range(1000))

    def turning(program: pumice.Program, inputs: Any) -> Any:
        run = plain(program, inputs)
        return lambda: {name: array + np.float32(1e-6 * (next(calls) % 2)) for name, array in sorted(run().items())[:1]}

    with patch.object(repeatability, "_make_replay", turning):
        return pumice.validate(gemm(), [M], repeat=2, tolerances={"sum": 1e-3}, context=context, **given).ok


def coarse(inputs: Any) -> Any:
    outputs = pumice.onnxruntime_candidate(gemm())(inputs)
    return {name: array.astype("float16") for name, array in outputs.items()}


def drawing() -> onnx.ModelProto:
    values = [onnx.helper.make_tensor_value_info(name, 1, [4]) for name in "xyz"]
    nodes = [node("RandomNormalLike", ["x"], ["y"], name="draw"), node("Neg", ["x"], ["z"])]
    graph = onnx.helper.make_graph(nodes, "random", values[:1], values[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)


def reduced(context: pumice.Context, **given: Any) -> Any:
    return pumice.reduce(gemm(), [M], **{"context": context, "fails": lambda proto, inputs: "x" in inputs, **given})


def record(**given: Any) -> Any:
    return pumice.ValidationReport("m", "d", "fp32", 1, [], [], **given).as_dict()


# fmt: off
VALIDATION: list[Row] = [
    *options("validate", validated, precision="fp16", mode="isolated", inputs={"inputs": "reference", "mode": "isolated"},
        tolerances={"tolerances": {"sum": 0.0}, **PUMICE}, accuracy={"accuracy": 1e-9, "mode": "chained", **PUMICE},
        allow_ill_conditioned={"allow_ill_conditioned": True, "accuracy": 1e-9, "mode": "chained", **PUMICE},
        allow_unchecked={"allow_unchecked": ["draw"], "proto": drawing()}, repeat=2, reference={"Relu": lambda attributes,
        inputs: np.maximum(inputs[0], 0) + 1}),
    ("validate context", lambda c: validated(W), "argument 'context'"),
    ("validate progress", lambda c: validated(c, progress=lambda *_: 1 / 0), "ZeroDivisionError"),
    ("validate candidate", lambda c: validated(None, candidate=lambda inputs: 1 / 0), "ZeroDivisionError"),
    *options("validate", lambda c, **o: pumice.validate(gemm(), [V], candidate=coarse, **o).ok, candidate_precision="fp16"),  # type: ignore[arg-type]
    *options("validate", unlike, allow_nondeterministic=True),
    *options("onnxruntime_candidate", lambda c, **o: sorted(pumice.onnxruntime_candidate(CHAIN, **o)({"x": M})), intermediate=False),  # type: ignore[arg-type]
    ("onnxruntime_candidate providers", lambda c: pumice.onnxruntime_candidate(gemm(), providers=["Ghost"]), "Ghost"),
    ("onnxruntime_candidate folder", lambda c: pumice.onnxruntime_candidate(external()), "give the folder"),
    ("ValidationReport.__init__ reference", lambda c: [record(reference=n)["reference"] for n in ("float64", "onnx")], ""),
    ("ValidationReport.__init__ facts", lambda c: [record(facts=f) for f in (None, ReportMetadata(get_device_metadata(c.info),
        inputs=("x",)))], ""),
    ("ValidationReport.explain folder", lambda c: pumice.validate(gemm(), [M], context=c, tolerances={"sum": 0.0}).explain(FOLDER),
        "expected a new or an empty folder"),
    ("reduce context", lambda c: reduced(W), "argument 'context'"),
    *options("reduce", lambda c, **o: reduced(c, **o).precision, precision="fp16"),
    ("reduce fails", lambda c: reduced(c, fails=None), "expected a model that fails"),
    ("reduce progress", lambda c: reduced(c, progress=lambda *_: 1 / 0), "ZeroDivisionError"),  # type: ignore[arg-type]
    ("reduce repeat", lambda c: reduced(c, repeat=4), "given both"),
]
# fmt: on

# ---- profiles


def profiled(
    context: pumice.Context, level: str = "dispatch", every: int | None = None, runs: int = 4
) -> pumice.Profile:
    commands, x = pumice.CommandList(context), pumice.zeros((4,), context=context)
    for threads in (1, 1, 4):
        commands.dispatch(pumice.Kernel(ADD, context, "one").bind(x=x, threads=threads))
    commands.commit()
    with pumice.profile(level, every) as made:
        for _ in range(runs):
            commands.exec().wait()
    return made


def titled(profile: pumice.Profile, title: str) -> str:
    profile.save_html(Path(FOLDER) / "profile.html", title)
    return (Path(FOLDER) / "profile.html").read_text()


GROUPS = ("kernel", "dispatch")
# fmt: off
PROFILES: list[Row] = [
    ("profile level", lambda c: [len(profiled(c, level).spans) for level in ("node", "dispatch")], ""),
    ("profile every", lambda c: [sum(e.fine for e in profiled(c, "node", n).executions) for n in (None, 1, 2)], ""),
    ("Profile.rows by", lambda c: [len(profiled(c).rows(by)) for by in GROUPS], ""),
    ("Profile.cells by", lambda c: [len(profiled(c).cells(by)) for by in GROUPS], ""),
    ("Profile.table by", lambda c: profiled(c).table(W), W),
    ("Profile.table max_rows", lambda c: [profiled(c).table("dispatch", n).count("\n") for n in (1, 2)], ""),
    ("Profile.compare by", lambda c: profiled(c).compare(profiled(c), W), W),
    ("Profile.plot kind", lambda c: profiled(c).plot(W), W),
    ("Profile.plot axes", lambda c: [(a := Mock(), n and profiled(c).plot("kernels", a), len(a.method_calls) > 0)[2] for n in (0, 1)],
        ""),
    ("Profile.save_html title", lambda c: ["another" in titled(profiled(c), title) for title in ("one", "another")], ""),
]
# fmt: on

# ---- the dv interface

WEIGHTS = np.arange(16 * 8 * 9, dtype="float16").reshape(16, 8, 3, 3) / 512
INDICES = np.ones((16, 8, 3, 3), "uint8")
TABLE, SIXTEEN = np.linspace(0, 1, 256, dtype="float16"), np.linspace(1, 2, 16, dtype="float16")
WHC = (((2, 3, 4), "CHW"), ((3, 4, 2), "HWC"))
CUBE = np.arange(2 * 3 * 4, dtype="uint8").reshape(2, 3, 4)
BUFFERS: dict[str, Any] = {"input_buf": (1, 0), "output_buf": (2, 0)}  # memory handles


def memory(context: pumice.Context, **given: Any) -> dv.Memory:
    made = dv.Context(context, **given).memory(PAGE)
    made.map()[:] = 7
    return made


def conv(channels: int) -> dv.Conv:
    run = dv.Run(pool_enable=dv.POOL_MAX, pool_size=(1, 2), m=channels)
    return dv.Conv(**BUFFERS, w=8, h=8, c=channels, run=[run])


def separated(context: pumice.Context, separate: bool) -> int:
    """Return a byte that is written without a sync."""
    made = memory(context, separate=separate)
    made.sync_start()
    made.sync_end()
    made.map()[0] = 9
    return int(made.read("uint8", 1)[0]) if separate else 9


def behind(context: pumice.Context, wait: Callable[[dv.CommandList, int], Any]) -> Any:
    """Wait for a list that runs after other work."""
    own = dv.Context(context)
    commands = committed(own, doubling(own.memory(PAGE)))
    busy(context)
    return wait(commands, commands.exec())


def dv_network(*sizes: int | None) -> pumice.Graph:
    graph = pumice.Graph("net")
    x = graph.input("x", "float32", [None, 8, *sizes])
    w = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype("float32") / 8
    graph.output("y", graph.add("Relu", graph.add("Conv", x, w, pads=[1, 1, 1, 1])))
    return graph


def hurried(context: pumice.Context) -> None:
    """Run a network behind other work, without time."""
    if context.info.kind != "software":
        pytest.skip("on a GPU the work may already be done")
    made = dv.from_graph(dv_network(6, 6))
    with dv.Context(context) as own, made.load(own) as net:
        busy(context)
        net(np.ones(made.input_shape, "float32"), timeout=0)


STRICT: dict[str, Callable[..., Any]] = {
    "Conv.run_outputs": conv(16).run_outputs,
    "Conv.required_bytes": conv(16).required_bytes,
    "ConvV1.run_outputs": dv.ConvV1(u8tofp16_table=(1, 0), conv_cmd=conv(3)).run_outputs,
    "ConvV1.required_bytes": dv.ConvV1(u8tofp16_table=(1, 0), conv_cmd=conv(3)).required_bytes,
    "FullyConnected.required_bytes": dv.FullyConnected(
        **BUFFERS, weight_buf=(1, 0), input_size=16385, output_size=16
    ).required_bytes,
    "Ipu.required_bytes": dv.Ipu(
        wr=(2, 0), tex=(1, 0), use_tex=1, tex_height=1, rect_width=4, rect_height=4, tex_width=65535
    ).required_bytes,
    "Maximizer.required_bytes": dv.Maximizer(**BUFFERS, width=4096, height=4096, nclass=4).required_bytes,
}
PACKED = dv.pack_fc_weights(WEIGHTS.reshape(16, -1))
PACKS: dict[str, Any] = {
    "conv": (dv.pack_conv_weights, dv.unpack_conv_weights),
    "dil": (dv.pack_dil_weights, dv.unpack_dil_weights),
}
# fmt: off
DV: list[Row] = [
    ("dv.Context.__init__ device", lambda c: [dv.Context(x).device is c for x in (c, f"uuid:{c.info.uuid}")], ""),
    ("dv.Context.__init__ strict", lambda c: [dv.Context(c, strict=b).strict for b in (False, True)], ""),
    ("dv.Context.__init__ separate", lambda c: [separated(c, b) for b in (False, True)], ""),
    ("dv.Memory.array offset", lambda c: memory(c).array("uint8", 8, offset=-1), "offset|-1|range"),
    ("dv.Memory.write offset", lambda c: memory(c).write(np.zeros(8, "uint8"), offset=PAGE), "offset|range|bytes"),
    ("dv.Memory.read offset", lambda c: memory(c).read("uint8", 8, offset=PAGE), "offset|range|bytes"),
    ("dv.Memory.sync_start read write", lambda c: memory(c).sync_start(False, False), "D4"),
    ("dv.Memory.sync read write", lambda c: memory(c).sync(False, False).__enter__(), "D4"),
    ("dv.CommandList.wait exec_id", lambda c: behind(c, lambda commands, _: commands.wait(1 << 40)), "Error"),
    ("dv.CommandList.wait timeout", lambda c: behind(c, lambda commands, _: commands.wait(timeout=0)), SLOW),
    ("dv.CommandList.run timeout", lambda c: behind(c, lambda commands, _: commands.run(timeout=0)), SLOW),
    *((f"dv.{name} strict", lambda c, f=call: f(strict=True), "D5") for name, call in STRICT.items()),
    *(row for kind, (pack, unpack) in PACKS.items() for row in (*options(f"dv.pack_{kind}_weights", lambda c, f=pack, **o: f(WEIGHTS,
        **o), bias=SIXTEEN, prelu=SIXTEEN), (f"dv.pack_{kind}_weights table", lambda c, f=pack: [f(INDICES, table=t) for t in (TABLE,
        TABLE + 1)], ""), (f"dv.unpack_{kind}_weights prelu", lambda c, f=pack, g=unpack: [g(f(WEIGHTS, prelu=SIXTEEN), WEIGHTS.shape,
        prelu=b).prelu for b in (0, 1)], ""), (f"dv.unpack_{kind}_weights quantized", lambda c, f=pack, g=unpack: [g(f(WEIGHTS),
        WEIGHTS.shape, quantized=b).indices is None for b in (0, 1)], ""))),
    *options("dv.pack_fc_weights", lambda c, **o: dv.pack_fc_weights(WEIGHTS.reshape(16, -1), **o), bias=SIXTEEN),
    ("dv.pack_fc_weights table", lambda c: [dv.pack_fc_weights(INDICES.reshape(16, -1), table=t) for t in (TABLE, TABLE + 1)], ""),
    ("dv.unpack_fc_weights quantized", lambda c: [dv.unpack_fc_weights(PACKED, (16, 72), quantized=b).indices is None for b in (False,
        True)], ""),
    *options("dv.to_whc8", lambda c, **o: dv.to_whc8(CUBE, **o), layout="HWC"),
    ("dv.from_whc8 layout", lambda c: [dv.from_whc8(dv.to_whc8(CUBE), s, n) for s, n in WHC], ""),
    ("dv.from_graph input_shape", lambda c: [dv.from_graph(dv_network(None, None), (8, n, 6)).input_shape for n in (6, 8)], ""),
    *options("dv.from_graph", lambda c, **o: dv.from_graph(dv_network(6, 6), **o).input_shape, images=2),
    *options("dv.from_graph", lambda c, **o: len(dv.from_graph(dv_network(6, 6), **o).weights), quantize=True),
    ("dv.Network.load context", lambda c: dv.from_graph(dv_network(6, 6)).load(dv.Context(closed(c))), "closed"),
    ("dv.LoadedNetwork.__call__ timeout", hurried, SLOW),
]
# fmt: on
CALLS = [*MEMORY, *TENSORS, *KERNELS, *GRAPHS, *MODELS, *VALIDATION, *PROFILES, *DV]
