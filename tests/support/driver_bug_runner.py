"""A child process with the layer of driver_bugs.py: prints a JSON line per bug.

Usage: driver_bug_runner.py samples|models [BUG ...]
samples: whether the bug changes the results of its sample, in a context created without the bug.
models: what a context created with the bug lacks, and whether a small model is right in it. The process ends at a bug that takes longer
than MOST_SECONDS.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import pumice
from driver_bugs import BUGS, SAMPLES, Bug, Layer, Sample, kernel_source

N = 256
MOST_SECONDS = 20.0
S_DOT, S_DOT_ACC_SAT = 4450, 4453
Results = dict[str, Any]


def words() -> Any:
    return np.random.default_rng(7).integers(0, 2**32, N, dtype=np.uint32)


def sampled(context: pumice.Context, name: str) -> Results:
    """Run the kernel of a sample."""
    sample = SAMPLES[name]
    kernel = pumice.Kernel(kernel_source(sample), context, name=name)
    arrays = {"x": words(), "y": np.ones(N, "uint32")}
    kernel_names = {"x", "y"}
    if " z[]" in sample.before:
        kind = sample.before.split("{")[1].split()[0]
        dtypes = {"float": "float32", "uint8_t": "uint8", "uint16_t": "uint16"}
        arrays["z"] = np.zeros(N, "float32") if kind == "float" else words().astype(dtypes[kind])
        kernel_names.add("z")
        if "readonly" not in sample.before:
            arrays["z"] = np.zeros(N, dtypes[kind])
    if "y[" not in sample.body:
        arrays["y"] = None
    kernel(**arrays, groups=4)
    return {name: array for name, array in arrays.items() if array is not None and name != "x"}


def large_workgroup(context: pumice.Context) -> Results:
    source = """
layout(local_size_x = 512) in;
layout(binding = 0) buffer Y { uint y[]; };
void main() { y[gl_LocalInvocationIndex] = gl_LocalInvocationIndex + 1u; }
"""
    y = np.zeros(512, "uint32")
    pumice.Kernel(source, context)(y=y, groups=1)
    return {"y": y}


def push_constants(context: pumice.Context) -> Results:
    source = """
layout(local_size_x = 1) in;
layout(binding = 0) buffer Y { uint y[]; };
layout(push_constant) uniform P { uint p[24]; };
void main() { for (uint k = 0u; k < 24u; ++k) y[k] = p[k]; }
"""
    y = np.zeros(24, "uint32")
    pumice.Kernel(source, context)(y=y, p=list(range(1, 25)), groups=1)
    return {"y": y}


GROUPS = """
layout(local_size_x = 1) in;
layout(binding = 0) buffer Y { uint y[]; };
void main() { y[gl_WorkGroupID.x + 3u * gl_WorkGroupID.y + 6u * gl_WorkGroupID.z] = 1u; }
"""


def groups(context: pumice.Context) -> Results:
    y = np.zeros(24, "uint32")
    pumice.Kernel(GROUPS, context)(y=y, groups=(3, 2, 4))
    return {"y": y}


def two_recordings(context: pumice.Context) -> Results:
    """Record one dispatch twice."""
    kernel = pumice.Kernel(GROUPS, context)
    results = {}
    for name in ("first", "second"):
        y = pumice.tensor(np.zeros(24, "uint32"), context)
        commands = pumice.CommandList(context)
        commands.dispatch(kernel.bind(y=y, groups=(3, 2, 4)))
        commands.commit()
        commands.exec().wait()
        results[name] = np.asarray(y).copy()
    return results


def two_runs(context: pumice.Context) -> Results:
    """Execute one recording twice."""
    y = pumice.tensor(np.zeros(24, "uint32"), context)
    commands = pumice.CommandList(context)
    commands.dispatch(pumice.Kernel(GROUPS.replace("= 1u", "+= 1u"), context).bind(y=y, groups=(3, 2, 4)))
    commands.commit()
    for _ in range(2):
        commands.exec().wait()
    return {"y": np.asarray(y).copy()}


def dependent(context: pumice.Context) -> Results:
    """Two dispatches, the second of which reads what the first writes."""
    source = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
void main() { y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x] * 3u + 1u; }
"""
    kernel = pumice.Kernel(source, context)
    x, middle, y = (pumice.tensor(array, context) for array in (words(), np.zeros(N, "uint32"), np.zeros(N, "uint32")))
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=x, y=middle, groups=4))
    commands.dispatch(kernel.bind(x=middle, y=y, groups=4))
    commands.commit()
    commands.exec().wait()
    return {"y": np.asarray(y).copy()}


def indirect(context: pumice.Context) -> Results:
    y = np.zeros(24, "uint32")
    pumice.Kernel(GROUPS, context)(y=y, groups=pumice.tensor(np.array([3, 2, 4], "uint32"), context))
    return {"y": y}


def constants(context: pumice.Context) -> Results:
    source = """
layout(local_size_x = 1) in;
layout(constant_id = 0) const uint VALUE = 3u;
layout(binding = 0) buffer Y { uint y[]; };
void main() { y[0] = VALUE; }
"""
    y = np.zeros(1, "uint32")
    pumice.Kernel(source, context, spec={"VALUE": 5})(y=y, groups=1)
    return {"y": y}


def offset(context: pumice.Context) -> Results:
    source = """
layout(local_size_x = 1) in;
layout(binding = 0) buffer X { uint x[]; };
layout(binding = 1) buffer Y { uint y[]; };
void main() { y[0] = x[0]; }
"""
    alignment = context.limit("minStorageBufferOffsetAlignment")
    x = pumice.tensor(np.arange(N, dtype="uint32"), context)
    part = pumice.Tensor(pumice.TensorDesc("uint32", [16]), x.buffer, max(alignment, 4) // 4)
    y = np.zeros(1, "uint32")
    pumice.Kernel(source, context)(x=part, y=y, groups=1)
    return {"y": y}


def conditional(context: pumice.Context) -> Results:
    """A loop that the device drives: the rounds after its end are skipped by their condition."""
    graph = pumice.Graph("doubled")
    condition, body = pumice.Graph("more"), pumice.Graph("double")
    values = (("x", "float32", [3]), ("i", "int32", [1]), ("n", "int32", [1]))
    _, i, n = (condition.input(*value) for value in values)
    condition.output("more", condition.add("Less", i, n))
    x, i, _ = (body.input(*value) for value in values)
    body.output("x", body.add("Add", x, x))
    body.output("i", body.add("Add", i, np.array([1], "int32")))
    x, n = graph.input("x", "float32", [3]), graph.add("Abs", graph.input("n", "int32", [1]))
    x, last = graph.while_(condition, body, carried=[x, np.zeros(1, "int32")], invariant=[n], name="loop")
    graph.output("y", x)
    graph.output("last", last)
    execution = graph.compile(context).execution()
    execution.set("x", np.ones(3, "float32"))
    execution.set("n", np.array([5], "int32"))
    return {name: np.asarray(array).copy() for name, array in execution.compute(loop_timeout=15).items()}


def copied(context: pumice.Context) -> Results:
    x, y = pumice.tensor(words(), context), pumice.tensor(np.zeros(N, "uint32"), context)
    y[:] = x
    return {"y": np.asarray(y).copy()}


def filled(context: pumice.Context) -> Results:
    y = pumice.tensor(np.zeros(N, "uint32"), context)
    y.fill(7)
    return {"y": np.asarray(y).copy()}


def dot_product(context: pumice.Context, op: int) -> Results:
    """Run a module in which an integer dot product takes the place of `%`, because the compiler lacks the GLSL extension."""
    source = kernel_source(Sample("y[i] = x[i] % x[(i + 1u) & 255u];"))
    given = np.frombuffer(pumice.Kernel(source, context).shader.spirv, np.uint32)
    extension = np.frombuffer(b"SPV_KHR_integer_dot_product\0", np.uint32)
    head = [2 << 16 | 17, 6018, 2 << 16 | 17, 6019]  # DotProductInput4x8BitPacked, DotProduct
    code, at, has_extension = [*given[:5].tolist(), *head], 5, False
    while at < len(given):
        count, kind = int(given[at]) >> 16, int(given[at]) & 0xFFFF
        instruction = given[at : at + count].tolist()
        if kind != 17 and not has_extension:  # after the capabilities
            code += [(1 + extension.size) << 16 | 10, *extension.tolist()]
            has_extension = True
        if kind == 137:  # OpUMod
            sum_of = instruction[3:4] if op == S_DOT_ACC_SAT else []
            instruction = [*instruction[1:], *sum_of, 0]
            instruction = [(1 + len(instruction)) << 16 | op, *instruction]
        code += instruction
        at += count
    y = np.zeros(N, "uint32")
    pumice.Kernel(spirv=np.array(code, np.uint32).tobytes(), context=context)(x=words(), y=y, groups=4)
    return {"y": y}


def never_ends(context: pumice.Context) -> Results:
    y = np.zeros(24, "uint32")
    try:
        pumice.Kernel(GROUPS, context)(y=y, groups=(3, 2, 4), timeout=0.3)
    except TimeoutError:
        return {"y": "no end"}
    return {"y": y}


def reported(context: pumice.Context, name: str) -> Results:
    """Return a limit that the device reports now."""
    return {name: np.array([pumice.devices()[context.info.index].limits[name]])}


def subgroup_size(context: pumice.Context) -> Results:
    return reported(context, "subgroupSize")


def reported_push_constants(context: pumice.Context) -> Results:
    return reported(context, "maxPushConstantsSize")


SPECIAL: dict[str, Callable[[pumice.Context], Results]] = {
    "large_workgroup": large_workgroup,
    "push_constants": push_constants,
    "groups": groups,
    "two_recordings": two_recordings,
    "two_runs": two_runs,
    "dependent": dependent,
    "indirect": indirect,
    "constants": constants,
    "offset": offset,
    "conditional": conditional,
    "copy": copied,
    "fill": filled,
    "dot_product": lambda context: dot_product(context, S_DOT),
    "dot_product_sum": lambda context: dot_product(context, S_DOT_ACC_SAT),
    "reported_push_constants": reported_push_constants,
    "never_ends": never_ends,
    "device_lost": groups,
    "subgroup_size": subgroup_size,
}


def run_sample(context: pumice.Context, name: str) -> Results:
    return SPECIAL[name](context) if name in SPECIAL else sampled(context, name)


def same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def run_samples(layer: Layer, bugs: list[Bug]) -> None:
    """For each bug, run its sample with and without it, in contexts created without it."""
    clean, context = pumice.Context(), pumice.Context()
    known: dict[str, Results] = {}
    dead: list[pumice.Context] = []  # whose executions do not end
    for row in bugs:
        lacking = [name for name in row.features if not clean.feature(name)]
        if lacking:
            print(json.dumps({"bug": row.bug, "skipped": f"the device lacks {', '.join(lacking)}"}), flush=True)
            continue
        started = time.perf_counter()
        record: dict[str, Any] = {"bug": row.bug}
        try:
            if row.sample not in known:
                known[row.sample] = run_sample(clean, row.sample)
            before = layer.count
            layer.set(row.bug)
            try:
                wrong = run_sample(context, row.sample)
            except pumice.Error as error:
                record["error"] = str(error)[:200]
            else:
                record["differ"] = [name for name in wrong if not same(wrong[name], known[row.sample][name])]
            record["changed"] = layer.count - before
        except Exception as error:  # reported to the test
            record["failure"] = f"{type(error).__name__}: {error}"[:1500]
        finally:
            layer.set("")
        if row.bug in ("device_lost", "never_ends"):
            dead.append(context)
            context = pumice.Context()
        record["seconds"] = round(time.perf_counter() - started, 3)
        print(json.dumps(record), flush=True)


# ---- a small model


def small_model() -> tuple[pumice.Graph, dict[str, Any], dict[str, Any]]:
    """Return a graph, its inputs, and what NumPy computes."""
    random = np.random.default_rng(3)
    x, filters = random.standard_normal((1, 4, 12, 12)), random.standard_normal((8, 4, 3, 3)) * 0.2
    matrix, indices = random.standard_normal((144, 40)) * 0.1, random.permutation(40)[None].repeat(8, 0)
    x, filters, matrix = (one.astype("float32") for one in (x, filters, matrix))
    graph = pumice.Graph("small")
    value = graph.add("Relu", graph.add("Conv", graph.input("x", "float32", list(x.shape)), filters, pads=[1, 1, 1, 1]))
    product = graph.add("MatMul", graph.add("Reshape", value, np.array([8, 144])), matrix)
    softmax = graph.add("Softmax", product, axis=-1)
    moved = graph.add("ScatterElements", np.zeros((8, 40), "float32"), indices, product, axis=1)
    graph.output("product", product)
    graph.output("softmax", softmax)
    graph.output("sum", graph.add("ReduceSum", product, np.array([1]), keepdims=0))
    graph.output("moved", moved)
    whole = graph.add("Cast", graph.add("Mul", graph.input("n", "float32", [64]), np.array([3], "float32")), to=7)
    graph.output("whole", graph.add("Mod", whole, np.array([17])))

    n = np.arange(64, dtype="float32") * 5 - 100
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    by_hand = np.maximum(np.einsum("nchwij,ocij->nohw", windows, filters), 0).reshape(8, 144) @ matrix
    weights = np.exp(by_hand - by_hand.max(1, keepdims=True))
    scattered = np.zeros_like(by_hand)
    np.put_along_axis(scattered, indices, by_hand, 1)
    expected = {
        "product": by_hand,
        "softmax": weights / weights.sum(1, keepdims=True),
        "sum": by_hand.sum(1),
        "moved": scattered,
        "whole": (n.astype("int64") * 3) % 17,
    }
    return graph, {"x": x, "n": n}, expected


def wrong_outputs(context: pumice.Context) -> list[str]:
    """Return the outputs of the small model that are wrong, by precision."""
    graph, inputs, expected = small_model()
    wrong = []
    for precision, tolerance in (("fp32", 1e-4), ("fp16", 2e-2)):
        results = graph.compile(context, precision=precision)(inputs, timeout=20)
        wrong += [
            f"{precision} {name}: {np.abs(results[name] - wanted).max():.3g}"
            for name, wanted in expected.items()
            if not np.allclose(results[name], wanted, tolerance, tolerance)
        ]
    return wrong


def is_answer(context: pumice.Context, answer: str, executed: int) -> bool:
    if answer[0] == "-":
        return not context.feature(answer[1:])
    if answer[0] == "~":
        return answer[1:] in {quirk.name for quirk in context.driver_quirks}
    for sign in ("<=", ">="):
        if sign in answer:
            name, number = answer.split(sign)
            limit, bound = context.limit(name), executed if number == "executed" else int(number)
            return limit <= bound if sign == "<=" else limit >= bound
    return False


def end_process(record: Mapping[str, Any]) -> None:
    """End this process because a bug made pumice wait for too long."""
    print(json.dumps({**record, "error": "no end"}), flush=True)
    os._exit(0)


def run_models(layer: Layer, bugs: list[Bug]) -> None:
    """For each bug, create a context with it and run the small model."""
    layer.set("")
    with pumice.Context() as clean:
        lacking = {row.bug: [name for name in row.features if not clean.feature(name)] for row in bugs}
        executed = clean.limit("subgroupSize")
        assert not wrong_outputs(clean), "the model is wrong without a bug"
    for row in bugs:
        record: dict[str, Any] = {"bug": row.bug}
        if lacking[row.bug]:
            print(json.dumps({**record, "skipped": f"the device lacks {', '.join(lacking[row.bug])}"}), flush=True)
            continue
        layer.set(row.bug)
        started = time.perf_counter()
        watchdog = threading.Timer(MOST_SECONDS, end_process, [record])
        watchdog.start()
        try:
            with pumice.Context() as context:
                _ = context.driver_quirks
                record["created"] = round(time.perf_counter() - started, 3)
                record["answers"] = [answer for answer in row.answers if is_answer(context, answer, executed)]
                record["wrong"] = wrong_outputs(context)
        except (pumice.Error, TimeoutError) as error:
            record.setdefault("created", round(time.perf_counter() - started, 3))
            record["error"] = f"{type(error).__name__}: {error}"[:500]
        watchdog.cancel()
        record["seconds"] = round(time.perf_counter() - started, 3)
        layer.set("")
        print(json.dumps(record), flush=True)


def main(arguments: list[str]) -> None:
    mode, names = arguments[0], arguments[1:]
    chosen = [row for row in BUGS if not names or row.bug in names]
    {"samples": run_samples, "models": run_models}[mode](Layer(Path(os.environ["PUMICE_DRIVER_BUG_LAYER"])), chosen)
    sys.stdout.flush()
    os._exit(0)  # without waiting for executions that do not end


if __name__ == "__main__":
    main(sys.argv[1:])
