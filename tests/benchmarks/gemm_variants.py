"""Square fp16 products with every variant that the engine lists, for a constant matrix and a runtime one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import pumice

from .attention_decode import safely
from .kernels import US
from .on_device import dispatch, sampler
from .rows import Row, Table
from .session import Session
from .timing import Sampler

SIZES, SIZES_ON_SOFTWARE = (1024, 2048, 4096), (64,)
ROUNDS, RUNS = 4, 4
MIN_SECONDS = 2e-4  # seconds of a list of dependent products


def program_of(
    size: int, dtype: str, constant: bool, context: pumice.Context, taken: dict[str, str] | None = None
) -> tuple[pumice.Program, list[Any]]:
    random = np.random.default_rng(size)
    a, b = (np.resize(random.standard_normal(1 << 16).astype(dtype), (size, size)) for _ in range(2))
    graph = pumice.Graph(f"product of {size}")
    x = graph.input("x", dtype, [size, size])
    graph.output("y", graph.add("MatMul", x, b if constant else graph.input("b", dtype, [size, size])))
    precision = "fp16" if dtype == "float16" else "fp32"
    program = graph.compile(context, precision, measured=taken or {}, list_variants=True)
    return program, [a] if constant else [a, b]


def sampled(program: pumice.Program, given: list[Any]) -> tuple[Sampler, pumice.Tensor]:
    context, compiled = program.context, program.compiled([list(array.shape) for array in given])
    tensors = {name: pumice.tensor(array, context) for name, array in zip("xb", given, strict=False)}
    tensors["y"] = pumice.empty(list(given[0].shape), str(given[0].dtype), context)

    def recorded(times: int) -> Sampler:
        commands = pumice.CommandList(context)
        for _ in range(times):
            dispatch(commands, program, compiled, tensors)
        return sampler(commands, times)

    once = min(recorded(1)(3))
    return recorded(max(1, round(MIN_SECONDS / max(once, 1e-6)))), tensors["y"]


def rows_of(size: int, constant: bool, session: Session) -> Iterator[Row]:
    context, dtype = session.context, "float32" if session.software else "float16"
    program, given = program_of(size, dtype, constant, context)
    choices = [step["choice"] for step in program.plan([list(array.shape) for array in given]) if "choice" in step]
    (choice,) = choices
    samplers: dict[str, Sampler] = {}
    errors: dict[str, float] = {}
    right = program.call(tuple(given))[0].astype(np.float32)
    for variant in [choice["own"], *(one for one in choice["variants"] if one != choice["own"])]:
        try:
            program, _ = program_of(size, dtype, constant, context, {choice["kind"]: variant})
            samplers[variant], y = sampled(program, given)
        except pumice.Error as error:
            yield Row(f"  {variant}", absent=str(error).splitlines()[0], wrong=True)
            continue
        errors[variant] = float(np.abs(y.numpy() - right).max() / np.abs(right).max())
    rounds = [{name: one(RUNS) for name, one in samplers.items()} for _ in range(ROUNDS)]
    for name in sorted(samplers, key=lambda name: min(min(turn[name]) for turn in rounds)):
        seconds = sorted(one for turn in rounds for one in turn[name])
        best, median = seconds[0], seconds[len(seconds) // 2]
        note = f"{2e-12 * size**3 / median:,.4g} TFLOP/s{', its own choice' if name == choice['own'] else ''}"
        yield Row(f"  {name}", best * US, median * US, note=note, wrong=not errors[name] < 4e-3)


def run(session: Session) -> Iterator[Table]:
    for size in SIZES_ON_SOFTWARE if session.software else SIZES:
        for constant in (True, False):
            title = f"Product of {size}, the matrix {'constant' if constant else 'given at the call'}"
            yield Table(title, "us", safely(rows_of(size, constant, session)))
