"""Areas of the self-test about the driver, transfers and repeated executions. All results must be exact."""

from __future__ import annotations

from collections import deque

import numpy as np
from onnx import TensorProto, helper

from ..._pumice import CommandList, Context, ProgramRun
from ...base.element_types import Array
from ...device.context import tensor
from ...device.kernel import Kernel
from ...model.model import Model
from ...validation.report.deviation import RIGHT, WRONG
from .models import build_model
from .operator_table import OPERATOR_AREAS
from .results import AreaResult, CaseResult

_SEED = 20
_FATAL_QUIRK = "inexact_arithmetic"  # the engine refuses to run its kernels on a driver with this quirk

# ---- known driver bugs


def run_driver_area(context: Context, result: AreaResult) -> None:
    """Run the tests of known driver bugs, and list the bugs that were found and are worked around."""
    quirks = context.driver_quirks
    for quirk in quirks:
        how = "found by a test" if quirk.detected else "known of this driver"
        verdict = WRONG if quirk.name == _FATAL_QUIRK else RIGHT
        text = f"{quirk.summary} {quirk.workaround} ({how})"
        result.cases.append(CaseResult(quirk.name, verdict, text=text))
    result.cases.append(CaseResult("tests of known bugs", RIGHT))
    names = [quirk.name for quirk in quirks if quirk.name != _FATAL_QUIRK]
    result.summary = f"known driver bugs worked around: {', '.join(names) or 'none'}"


# ---- transfers

_DTYPES = ("float32", "float16", "float64", "int64", "int32", "uint16", "int8", "uint8", "bool")
_SIZES = (1, 3, 255, 4097, 1_048_579)
_VIEWS = {
    "every other row": (slice(None, None, 2),),
    "columns from 1": (slice(None), slice(1, None)),
    "every third column": (slice(None), slice(2, None, 3)),
    "a block": (slice(3, 30), slice(5, 22)),
}
_COPY_KERNEL = """
layout(binding = 0) readonly  buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
void main() { y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x]; }
"""


def _generate_bits(random: np.random.Generator, dtype: str, *shape: int) -> Array:
    """Return an array of random bits, which may be NaN."""
    if dtype == "bool":
        return random.random(shape) < 0.5
    return np.frombuffer(random.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape)


def run_transfer_area(context: Context, result: AreaResult) -> None:
    """Upload and download arrays of all dtypes, of odd sizes and strided, and copy on the device."""
    random = np.random.default_rng(_SEED)
    for dtype in _DTYPES:
        for size in _SIZES:
            array = _generate_bits(random, dtype, size)
            result.compare(f"{size:,} elements of {dtype}", tensor(array, context).numpy(), array)
    for dtype in ("float32", "uint16", "uint8"):
        array, patch = (_generate_bits(random, dtype, 37, 23) for _ in range(2))
        for name, index in _VIEWS.items():
            on_device = tensor(array, context)
            result.compare(f"download of {name}, {dtype}", on_device[index].numpy(), array[index])
            result.compare(f"upload of {name}, {dtype}", tensor(array[index], context).numpy(), array[index])
            on_device[index] = patch[index]
            expected = array.copy()
            expected[index] = patch[index]
            result.compare(f"write to {name}, {dtype}", on_device.numpy(), expected)
        result.compare(f"download of the transpose, {dtype}", tensor(array, context).T.numpy(), array.T)
    _run_device_copies(context, result, random)


def _run_device_copies(context: Context, result: AreaResult, random: np.random.Generator) -> None:
    kernel = Kernel(_COPY_KERNEL, context)
    for size in _SIZES:
        array = _generate_bits(random, "uint32", size)
        source, target = tensor(array, context), tensor(np.zeros_like(array), context)
        kernel(x=source, y=target, threads=size)
        result.compare(f"copy of {size:,} elements by a kernel", target.numpy(), array)
        commands, target = CommandList(context), tensor(np.zeros_like(array), context)
        commands.copy(source, target)
        commands.commit()
        commands.exec().wait()
        result.compare(f"copy of {size:,} elements by a command", target.numpy(), array)


# ---- repeated executions

_NUM_REPLAYS = 300
_NUM_RUNS = 64
_DEPTH = 8  # executions in flight
_MULTIPLIER, _INCREMENT = 1664525, 1013904223
_STEP_KERNEL = f"""
layout(binding = 0) readonly  buffer X {{ uint x[]; }};
layout(binding = 1) writeonly buffer Y {{ uint y[]; }};
void main() {{
  y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x] * {_MULTIPLIER}u + {_INCREMENT}u;
}}
"""


def run_replay_area(context: Context, result: AreaResult) -> None:
    """Execute a command list and programs many times, with several executions in flight."""
    random = np.random.default_rng(_SEED)
    _replay_command_list(context, result, _generate_bits(random, "uint32", 5003))
    _run_integer_program(context, result, random)
    _repeat_network(context, result)


def _replay_command_list(context: Context, result: AreaResult, array: Array) -> None:
    """Execute x -> y -> x, each by x * a + c modulo 2^32, without a wait in between: every execution reads the last one's result."""
    kernel = Kernel(_STEP_KERNEL, context)
    x, y = tensor(array, context), tensor(np.zeros_like(array), context)
    commands = CommandList(context)
    commands.dispatch(kernel.bind(x=x, y=y, threads=array.size))
    commands.dispatch(kernel.bind(x=y, y=x, threads=array.size))
    commands.commit()
    for _ in range(_NUM_REPLAYS):
        submission = commands.exec()
    submission.wait()
    expected = array.copy()
    for _ in range(2 * _NUM_REPLAYS):
        expected = expected * np.uint32(_MULTIPLIER) + np.uint32(_INCREMENT)
    result.compare(f"command list executed {_NUM_REPLAYS} times", x.numpy(), expected)


def _run_integer_program(context: Context, result: AreaResult, random: np.random.Generator) -> None:
    """Compute sum((x * 3 - y)^T) in int32 for different arrays, of two shapes by turns."""
    nodes = [
        helper.make_node("Mul", ["x", "three"], ["scaled"], name="Mul"),
        helper.make_node("Sub", ["scaled", "y"], ["difference"], name="Sub"),
        helper.make_node("Transpose", ["difference"], ["turned"], name="Transpose", perm=[1, 0]),
        helper.make_node("ReduceSum", ["turned", "axis"], ["sum"], name="ReduceSum", keepdims=0),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.INT32, ["N", 33]) for name in ("x", "y")]
    constants = [
        helper.make_tensor("three", TensorProto.INT32, [], [3]),
        helper.make_tensor("axis", TensorProto.INT64, [1], [0]),
    ]
    outputs = [helper.make_tensor_value_info("sum", TensorProto.INT32, ["N"])]
    graph = helper.make_graph(nodes, "integers", values, outputs, constants)
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    cases = [
        (random.integers(-999, 999, (65 + i % 2, 33), np.int32), random.integers(-999, 999, (65 + i % 2, 33), np.int32))
        for i in range(_NUM_RUNS)
    ]
    expected = [(x * 3 - y).sum(axis=1, dtype=np.int32) for x, y in cases]
    with Model(source, context) as model:
        runs: deque[ProgramRun] = deque()
        for i in range(_NUM_RUNS + _DEPTH):
            if i >= _DEPTH:
                number = i - _DEPTH
                result.compare(f"run {number}, {_DEPTH} in flight", runs.popleft().result()[0], expected[number])
            if i < _NUM_RUNS:
                runs.append(model.program.run_async(cases[i]))
        mapped = np.concatenate([*model.map(cases, depth=_DEPTH)])
        result.compare(f"{_NUM_RUNS} cases of map()", mapped, np.concatenate(expected))


def _repeat_network(context: Context, result: AreaResult) -> None:
    """Compare the bits of repeated runs of the area "network"; validation checks their values."""
    source, inputs = build_model("network", *OPERATOR_AREAS["network"])
    with Model(source.SerializeToString(), context) as model:
        first, *others = (np.array(model(*inputs.values())) for _ in range(_NUM_RUNS))
    different = [other for other in others if other.tobytes() != first.tobytes()]
    name = f"{_NUM_RUNS} runs of a network have the same bits"
    result.compare(name, different[0] if different else first, first)
