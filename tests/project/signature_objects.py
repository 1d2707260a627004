"""Objects, and functions that make them, for the calls of signature_calls.py."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

import pumice
import pumice.validation.search.repeatability as repeatability
from control_graphs import count_up, counting_loop, identity, integer, less_than_limit
from onnx_models import gemm, model, node, value
from pumice.base.progress import Progress
from pumice.device.kernel_times import KernelTimes
from pumice.onnx import backend

W = "wobble"  # a value that nothing accepts

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


FOLDER = tempfile.mkdtemp()  # with a kernel, and a file to include
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
Path(FOLDER, "fill.comp").write_text(FILL)
Path(FOLDER, "value.glsl").write_text("#undef VALUE\n#define VALUE 11\n")
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


MEASURE = "pumice.device.kernel_times.measure_kernel_times"


def tuned_kernel(context: pumice.Context, spills: int = 0, **given: Any) -> Any:
    """Tune a macro of a kernel a second time, in a cache of its own; return what was measured and shown."""
    kernel, times, bars = pumice.Kernel(FILL, context), [], []

    def tune(**more: Any) -> Any:
        return kernel.tune({"VALUE": [1, 2]}, {"y": np.zeros(1, "float32"), "threads": 1}, **more)

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, {"PUMICE_CACHE_DIR": folder}),
        patch(MEASURE, lambda *a: times.append(a[-1]) or KernelTimes((1e-6,))),
        patch("pumice.base.progress.Progress", lambda name, shown: bars.append(shown) or Progress(name, False)),
        patch.object(pumice.Kernel, "statistics", lambda *_: SimpleNamespace(refusal=None, spills=spills)),
    ):
        os.environ.pop("PUMICE_NO_CACHE", None)
        if not spills:
            tune()
        made = tune(**given)
    return made.measured, len(made.rejected), times, bars


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


def executed(program: pumice.Program, x: Any, **given: Any) -> pumice.Execution:
    execution = program.execution(**given)
    execution.set("x", x)
    execution.compute()
    return execution


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


CALL, LIMITED = tuple(FOREVER.values()), {"timeout": 0.05, "loop_timeout": None}
DRIVES: dict[str, Callable[..., Any]] = {
    "Program.__call__": lambda c, **o: endless(c)(FOREVER, **o),
    "Program.call": lambda c, **o: endless(c).call(CALL, **o),
    "Program.run_async": lambda c, **o: endless(c).run_async(CALL, **o).wait(),
    "Program.observe_runs": lambda c, **o: endless(c).observe_runs(CALL, **o),
    "Execution.compute": lambda c, **o: stuck(c).compute(**o),
    "Execution.start": lambda c, **o: stuck(c).start(**o).wait(),
    "Burst.compute": lambda c, **o: [p.burst().compute(stuck(c, p), **o) for p in [endless(c)]],
}

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

# ---- validation

V = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
FP16 = {"precision": "fp16"}
REPORT = functools.partial(pumice.ValidationReport, "m", "d", "fp32", 1, [], [])


def validated(context: pumice.Context, **given: Any) -> Any:
    """Return what a report says, without times."""
    report = pumice.validate(gemm(), [V], **{"context": context, **given})
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


def reduced(context: pumice.Context, **given: Any) -> Any:
    return pumice.reduce(gemm(), [M], **{"context": context, "fails": lambda proto, inputs: "x" in inputs, **given})


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
