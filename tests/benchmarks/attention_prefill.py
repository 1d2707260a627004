"""Attention with many queries on cooperative matrices, by the work distributions that a program can select."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

import pumice

from . import on_device
from .attention import Shape
from .attention_decode import SHADERS, describe_statistics, safely
from .kernels import US
from .rows import Row, Table
from .session import Session
from .timing import Sampler

HEADS = 32
LENGTHS, LENGTHS_ON_SOFTWARE = (2048, 4096, 8192, 16384), (70,)
ROUNDS, RUNS = 4, 3
MIN_SECONDS = 2e-4  # seconds of a measurement; shorter dispatches are repeated in a list
CACHED = 32 << 20  # bytes of keys and values of heads processed together


@dataclass(frozen=True)
class Tiling:
    """Subgroups, keys per iteration, strips of 16 queries per subgroup. together: heads, 0: the engine's choice. shares: subgroups with the
    same queries that split the keys of an iteration.
    """

    subgroups: int
    keys: int
    strips: int
    together: int = 0
    shares: int = 1

    def __str__(self) -> str:
        more = f", {self.shares} shares" if self.shares > 1 else ""
        return f"{self.subgroups} x {self.keys} x {self.strips}{more}, {self.together} together"

    def on(self, case: Shape) -> Tiling:
        if self.together:
            return self
        fitting = CACHED * (case.heads // (case.kv_heads or case.heads)) // (case.keys * case.size * 4)
        together = 1 << max(min(fitting, 64), 1).bit_length() - 1
        return replace(self, together=together if case.causal else 1)

    def macros(self, turns: str) -> dict[str, str]:
        same = {
            "EMULATED": "0",
            "MASKED": "0",
            "HAS_KV_LENGTHS": "0",
            "ZERO_EMPTY": "1",
            "SPLIT_KEYS": "0",
            "MERGES_SPLITS": "0",
        }
        return {**same, "Y_VEC4": "1", "EPILOGUE(x)": "x", "KEY_LOOP": turns, "MASK_BY_ROW": "0"}

    def kernel(self, size: int, turns: str, context: pumice.Context) -> pumice.Kernel:
        """Build the engine's kernel, for the driver's statistics."""
        spec = {"SIZE": size, "V_SIZE": size, "INVOCATIONS": self.subgroups * 32, "KEY_TILE": self.keys}
        spec["QUERY_TILES"], spec["KEY_SLICES"] = self.strips, self.shares
        options = pumice.ShaderOptions(storage="fp16")
        text = (SHADERS / "attention_mma.comp").read_text()
        return pumice.Kernel(
            text, context, "attention_mma", self.macros(turns), spec, include_dirs=[SHADERS], options=options
        )


# The engine's choices if the queries fill the device, the alternatives they replaced, and its choices for few queries.
OF_128 = (Tiling(8, 64, 1), Tiling(8, 64, 1, together=1), Tiling(8, 32, 1), Tiling(4, 16, 1, shares=2))
OF_64 = (
    Tiling(4, 64, 2),
    Tiling(4, 64, 2, together=1),
    Tiling(4, 64, 1),
    Tiling(4, 32, 1, shares=2),
)
TILINGS = {128: OF_128, 64: OF_64}
ON_SOFTWARE = (Tiling(2, 32, 1), Tiling(4, 64, 2))


def program_of(case: Shape, tiling: Tiling | None, context: pumice.Context) -> pumice.Program:
    graph = pumice.Graph(str(case))
    q, k, v = (graph.input(name, case.dtype, shape) for name, shape in zip("qkv", case.shapes, strict=True))
    graph.output("y", graph.add("Attention", q, k, v, is_causal=int(case.causal)))
    variants = {f"attention of {case.rows} rows": f"attention_mma {tiling}"} if tiling else {}
    program = graph.compile(context, precision="fp16", measured=variants)
    (step,) = program.plan(case.shapes)
    if tiling and step["choice"]["refused"]:
        raise ValueError(f"the engine does not take '{tiling}'; it takes '{step['choice']['own']}'")
    return program


def expected(arrays: list[npt.NDArray[np.float16]], case: Shape, head: int, rows: list[int]) -> npt.NDArray[np.float64]:
    """Return some rows of a head, in float64."""
    q, k, v = (array[0, head].astype(np.float64) for array in arrays)
    scores = q[rows] @ k.T * case.size**-0.5
    if case.causal:
        scores[np.arange(case.keys)[None, :] > np.array(rows)[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def sampler_of(program: pumice.Program, case: Shape, tensors: dict[str, pumice.Tensor]) -> Sampler:
    """Return a sampler of a list of dependent dispatches."""
    compiled = program.compiled(case.shapes)

    def recorded(times: int) -> Sampler:
        commands = pumice.CommandList(program.context)
        for _ in range(times):
            on_device.dispatch(commands, program, compiled, tensors)
        return on_device.sampler(commands, times)

    once = min(recorded(1)(3))
    return recorded(max(1, round(MIN_SECONDS / max(once, 1e-6))))


def rows_of(case: Shape, tilings: tuple[Tiling, ...], session: Session) -> Iterator[Row]:
    context, random = session.context, np.random.default_rng(0)
    block = random.standard_normal(1 << 20).astype(np.float16)
    arrays = [np.resize(random.permutation(block), shape) for shape in case.shapes]
    tensors = {name: pumice.tensor(array, context) for name, array in zip("qkv", arrays, strict=True)}
    tensors["y"] = pumice.empty(case.shapes[0], case.dtype, context)
    samplers: dict[str, Sampler] = {}
    errors: dict[str, float] = {}
    some = sorted({0, 1, case.rows // 2, case.rows - 1})
    right = {head: expected(arrays, case, head, some) for head in (0, case.heads - 1)}
    for tiling in (None, *(one.on(case) for one in tilings)):
        name = "as the engine chooses" if tiling is None else str(tiling)
        try:
            program = program_of(case, tiling, context)
            samplers[name] = sampler_of(program, case, tensors)
        except (pumice.Error, ValueError) as error:
            yield Row(f"  {name}", absent=str(error).splitlines()[0], wrong=True)
            continue
        y = tensors["y"].numpy()
        errors[name] = max(float(np.abs(y[0, head, some] - one).max()) for head, one in right.items())
    rounds = [{name: sampler(RUNS) for name, sampler in samplers.items()} for _ in range(ROUNDS)]
    for name in samplers:
        seconds = sorted(one for turn in rounds for one in turn[name])
        best, median = seconds[0], seconds[len(seconds) // 2]
        note = f"{case.work * 1e-12 / median:,.4g} TFLOP/s, error {errors[name]:.1e}"
        yield Row(f"  {name}", best * US, median * US, note=note, wrong=not errors[name] < 4e-3)


@functools.cache
def statistics_of(tiling: Tiling, size: int, turns: str, context: pumice.Context) -> str:
    return describe_statistics(replace(tiling, together=1).kernel(size, turns, context))


def run(session: Session) -> Iterator[Table]:
    if session.software:
        with pumice.Context(f"uuid:{session.context.info.uuid}", quirks=["emulated_fragments"]) as emulating:
            case = Shape(1, 3, 70, 70, 32, causal=True)
            rows = safely(rows_of(case, ON_SOFTWARE, replace(session, context=emulating)))
            yield Table(f"Ways: {case}", "us", rows)
        return
    for size, tilings in TILINGS.items():
        for length in LENGTHS:
            for causal in (True, False):
                case = Shape(1, HEADS, length, length, size, causal=causal)
                seen = {tiling.on(case): None for tiling in tilings}
                yield Table(f"Ways: {case}", "us", safely(rows_of(case, tuple(seen), session)))
    for size, tilings in TILINGS.items():
        for turns in (
            "ALL_TILES_FULL",
            "FULL_TILES_FIRST" if size <= 64 else "MIXED_TILES",
        ):  # the second: causal attention
            variants = (
                Row(f"  {tiling}", note=statistics_of(tiling, size, turns, session.context)) for tiling in tilings
            )
            yield Table(f"What the driver says, heads of {size}, {turns}", "", safely(variants))
