"""GEMV with block-quantised int4 weights, by work distribution across a GPU's invocations.

With cooperative matrices there are too many combinations: a search changes one parameter at a time, and measures the fastest again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import pumice

from .rows import Row, Table
from .session import Session

SHADERS = Path(__file__).parents[2] / "shaders"
US = 1e6
WARM, RUNS, RUNS_AGAIN = 0.1, 20, 200
ROUNDS, FINALISTS = 2, 4  # search rounds; candidates to measure again
BLOCK, IN_WORD, CHUNK = 32, 8, 128
CACHE = 160 << 20  # bytes read between two runs on a matrix: more than a GPU's cache holds


@dataclass(frozen=True)
class Gemm:
    """gated: two matrices whose products are combined on store. normed: the kernel normalises the row."""

    depth: int
    columns: int
    gated: bool = False
    normed: bool = False

    def __str__(self) -> str:
        return f"{self.depth} x {self.columns}{', gated' * self.gated}{', normed' * self.normed}"

    @property
    def bytes(self) -> int:
        return self.depth * self.columns // 2 * (2 if self.gated else 1) * 9 // 8  # plus fp16 block scales


@dataclass(frozen=True)
class GemvTiling:
    """gemv_quant: subgroups per team, teams per workgroup, columns per team (of both matrices if there are two)."""

    subgroups: int
    teams: int
    columns: int

    shader = "gemv_quant"
    scale = "scale"

    def __str__(self) -> str:
        return f"{self.subgroups}, {self.teams}, {self.columns}"

    def fits(self, gemm: Gemm) -> bool:
        return not gemm.gated or self.columns > 1

    def macros(self, subgroup: int) -> dict[str, str | float]:
        team = {"GROUP_THREADS": f"{self.subgroups * subgroup}u", "THREAD_GROUPS": str(self.teams)}
        return {**team, "COLUMNS": f"{self.columns}u", "SUBGROUP": str(subgroup)}

    def spec(self, gemm: Gemm) -> dict[str, float]:
        return {"ROWS": 1}

    def columns_of_group(self, gemm: Gemm) -> int:
        return self.teams * (self.columns // 2 if gemm.gated else self.columns)


@dataclass(frozen=True)
class MmaTiling:
    """gemm_quant_mma: subgroups per workgroup, tiles of 16 columns, chunks prefetched at once, and iterations.

    held: the row is loaded along with the matrix. spared: with one iteration, no reads past the end.
    """

    subgroups: int
    tiles: int
    ahead: int = 1
    turns: int = 1
    held: bool = False
    spared: bool = False

    shader = "gemm_quant_mma"
    scale = "halves"

    def __str__(self) -> str:
        shares = f"fragments, {self.subgroups}, {self.tiles}, {self.ahead}, {self.turns}"
        return shares + ", spared" * self.spared + ", held" * self.held

    def fits(self, gemm: Gemm) -> bool:
        return self.subgroups * self.ahead <= gemm.depth // CHUNK and not (self.spared and self.turns > 1)

    def macros(self, subgroup: int) -> dict[str, str | float]:
        return {"SCALES": str(CHUNK // BLOCK), "X_IN_REGISTERS": str(int(self.held))}

    def spec(self, gemm: Gemm) -> dict[str, float]:
        shares: dict[str, float] = {
            "INVOCATIONS": self.subgroups * 32,
            "TILES": self.tiles,
            "UNROLL": self.ahead,
            "REGISTER_STAGES": self.turns,
        }
        step = self.subgroups * self.ahead  # chunks per iteration
        shares |= {
            "SKIP_LAST_PREFETCH": int(self.spared),
            "ROWS": 1,
            "NO_K_TAIL": int(gemm.depth % (CHUNK * step) == 0),
        }
        if not gemm.normed:
            return shares
        chunks = -(-gemm.depth // CHUNK)
        return shares | {
            "STAGED": chunks * 16 + 1,
            "STAGED_PER_THREAD": -(-(-(-chunks // step) * self.ahead * 16) // 32),
        }

    def columns_of_group(self, gemm: Gemm) -> int:
        return self.tiles * 16


GEMMS = (
    Gemm(2048, 3072, normed=True),
    Gemm(2048, 8192, gated=True, normed=True),
    Gemm(4096, 6144, normed=True),
    Gemm(4096, 14336, gated=True, normed=True),
    Gemm(2048, 2048),
    Gemm(8192, 2048),
    Gemm(2048, 128256),
    Gemm(2048, 128256, normed=True),
    Gemm(4096, 4096),
    Gemm(14336, 4096),
)
ON_SOFTWARE = (Gemm(256, 64), Gemm(256, 128, gated=True, normed=True))
GEMV_TILINGS = [GemvTiling(1, teams, columns) for teams in (2, 4, 8) for columns in (1, 2, 4)] + [
    GemvTiling(subgroups, 1, columns) for subgroups in (2, 4, 8) for columns in (1, 2, 4)
]
GEMV_BASELINES = [GemvTiling(1, 4, 4), GemvTiling(4, 1, 4)]  # baselines for cooperative matrices

Choice = dict[str, Any]  # fields of Fragments
SHARINGS: list[Choice] = [
    {"subgroups": subgroups, "tiles": tiles}
    for subgroups, tiles in ((4, 1), (8, 1), (16, 1), (2, 1), (1, 2), (4, 2), (8, 2))
]
FLOWS: list[Choice] = [
    {"ahead": ahead, "turns": turns, "spared": spared}
    for ahead, turns, spared in (
        (1, 1, False),
        (1, 1, True),
        (1, 2, False),
        (2, 1, False),
        (2, 2, False),
        (4, 1, False),
    )
]
HELD: list[Choice] = [{"held": held} for held in (False, True)]


def start_of(gemm: Gemm) -> MmaTiling:
    """Return the start of the search: the choice of quant_gemm.cpp on 132 SMs."""
    is_wide = gemm.columns > 100_000
    if gemm.normed:
        return MmaTiling(4, 2) if is_wide else MmaTiling(4 if gemm.gated else 8, 1)
    return MmaTiling(4, 2, held=True, spared=True) if is_wide else MmaTiling(16, 1, held=True, turns=2)


def kernel_of(gemm: Gemm, shares: GemvTiling | MmaTiling, subgroup: int, context: pumice.Context) -> pumice.Kernel:
    macros: dict[str, str | float] = {"BITS": "4", "SIGNED": "0", "ZERO": "0", "POINT": "8.0"}
    macros |= {**shares.macros(subgroup), "EPILOGUE(x)": "x * residual" if gemm.gated else "x"}
    macros |= {"GATED": "1", "RESIDUAL": "1", "GATE(x)": "x"} if gemm.gated else {"GATED": "0"}
    macros |= {"NORMED": "1" if gemm.normed else "0"}
    text = (SHADERS / f"{shares.shader}.comp").read_text()
    options = pumice.ShaderOptions(storage="fp32" if context.info.kind == "software" else "fp16")
    spec = shares.spec(gemm)
    return pumice.Kernel(text, context, shares.shader, macros, spec, include_dirs=[SHADERS], options=options)


def bound(
    gemm: Gemm, shares: GemvTiling | MmaTiling, kernel: pumice.Kernel, copy: int, memory: dict[str, pumice.Tensor]
) -> object:
    """Return the dispatch on the copy-th matrix in memory."""
    words, blocks = gemm.depth * gemm.columns // IN_WORD, gemm.depth // BLOCK
    numbers = {one["name"]: 0 for one in kernel.shader.interface["push_constants"]}
    numbers |= {"rows": 1, "k_size": gemm.depth, "columns": gemm.columns, "block": BLOCK, "blocks": blocks}
    tensors = {"x": memory["x"], "y": memory["y"], "w": memory["w"], "scale": memory[shares.scale]}
    numbers["w_offset"] = copy * words * IN_WORD * (2 if gemm.gated else 1)
    if gemm.gated:
        tensors |= {"gate_w": memory["w"], "gate_scale": memory[shares.scale]}
        numbers["gate_w_offset"] = numbers["w_offset"] + words * IN_WORD
    if gemm.normed:
        tensors |= {"gain": memory["gain"]}
        numbers["epsilon"] = 1e-5
    return kernel.bind(**tensors, **numbers, groups=(-(-gemm.columns // shares.columns_of_group(gemm)), 1, 1))


def memory_of(gemm: Gemm, copies: int, context: pumice.Context) -> dict[str, pumice.Tensor]:
    """Return consecutive matrices, and rows; the time does not depend on their values."""
    words = gemm.depth * gemm.columns // IN_WORD * (2 if gemm.gated else 1)
    half = context.info.kind != "software"
    x = np.ones(gemm.depth, np.float16).view(np.uint32) if half else np.ones(gemm.depth, np.float32)
    return {
        "x": pumice.tensor(x.reshape(-1, 4), context),
        "y": pumice.empty([gemm.columns], "float16" if half else "float32", context),
        "w": pumice.empty([copies * words // 4, 4], "uint32", context),
        "scale": pumice.tensor(np.ones(gemm.columns * gemm.depth // BLOCK, np.float32), context),
        "halves": pumice.tensor(np.ones((gemm.columns * gemm.depth // CHUNK, 4), np.float16), context),
        "gain": pumice.tensor(np.ones((gemm.depth // 4, 4), np.float32), context),
    }


COPY = """
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) writeonly buffer Y { uvec4 y[]; };
layout(push_constant) uniform parameter { uint first, fours; } p;
void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i < p.fours) y[p.first + i] = x[p.first + i];
}
"""


def seconds_of(commands: pumice.CommandList, copies: int, software: bool, runs: int = RUNS) -> list[float]:
    """Return the seconds of each dispatch of a list, in the last of its runs."""
    commands.commit(timing=True)
    seconds, spent = [], 0.0
    # GPU clocks stay low for some time after waiting for the compiler.
    while spent < (0.0 if software else WARM) or len(seconds) < runs:
        submission = commands.exec()
        submission.wait()
        spent += submission.device_seconds or 0.0
        seconds.append((submission.device_seconds or 0.0) / copies)
    return sorted(seconds[-runs:])


class Trial:
    """Measure variants of one product, each once, and a copy that reads and writes the same number of bytes in total."""

    def __init__(self, gemm: Gemm, session: Session) -> None:
        self.gemm, self.context, self.software = gemm, session.context, session.software
        self.copies = 2 if session.software else max(2, min(64, CACHE // gemm.bytes + 1))
        self.memory = memory_of(gemm, self.copies, session.context)
        self.subgroup = int(session.context.info.limits["subgroupSize"])
        self.best: dict[GemvTiling | MmaTiling, float] = {}
        self.copy = 0.0

    def row_of_copy(self) -> Row:
        kernel = pumice.Kernel(COPY, self.context, "copy")
        fours = self.gemm.bytes // 32
        into = pumice.empty(self.memory["w"].shape, "uint32", self.context)
        commands = pumice.CommandList(self.context)
        each = self.memory["w"].shape[0] // self.copies
        for copy in range(self.copies):
            commands.dispatch(
                kernel.bind(x=self.memory["w"], y=into, first=copy * each, fours=fours, groups=-(-fours // 256))
            )
        seconds = seconds_of(commands, self.copies, self.software)
        self.copy = seconds[0]
        return Row(
            "  copy of as many bytes", self.copy * US, seconds[len(seconds) // 2] * US, note=self.rate(self.copy)
        )

    def rate(self, seconds: float) -> str:
        return f"{self.gemm.bytes / seconds / 1e9:,.0f} GB/s, {self.copy / seconds:.0%} of the copy"

    def row(self, way: GemvTiling | MmaTiling, runs: int = RUNS) -> Row:
        kernel = kernel_of(self.gemm, way, self.subgroup, self.context)
        commands = pumice.CommandList(self.context)
        for copy in range(self.copies):
            commands.dispatch(bound(self.gemm, way, kernel, copy, self.memory))
        seconds = seconds_of(commands, self.copies, self.software, runs)
        self.best[way] = seconds[0]
        return Row(f"  {way}", seconds[0] * US, seconds[len(seconds) // 2] * US, note=self.rate(seconds[0]))

    def rows(self, ways: Iterable[GemvTiling | MmaTiling]) -> Iterator[Row]:
        """Yield a row for each variant that suits the product and is not yet measured; rejected ones have the reason."""
        for way in ways:
            if way in self.best or not way.fits(self.gemm):
                continue
            try:
                yield self.row(way)
            except pumice.Error as reason:
                self.best[way] = float("inf")
                yield Row(f"  {way}", absent=str(reason))

    def searched(self) -> Iterator[Row]:
        """Optimise one parameter at a time with the others fixed, then measure the fastest variants again."""
        best = start_of(self.gemm)
        choices = [FLOWS, SHARINGS] if self.gemm.normed else [HELD, FLOWS, SHARINGS]
        for _ in range(ROUNDS):
            for choice in choices:
                ways = [best, *(replace(best, **changes) for changes in choice)]
                yield from self.rows(ways)
                best = min((way for way in ways if way in self.best), key=lambda way: self.best[way], default=best)
        finalists = [way for way in sorted(self.best, key=lambda way: self.best[way]) if isinstance(way, MmaTiling)][
            :FINALISTS
        ]
        for way in finalists:
            row = self.row(way, RUNS_AGAIN)
            yield replace(row, what=f"  again:{row.what[1:]}")


def rows_of(gemm: Gemm, session: Session) -> Iterator[Row]:
    trial = Trial(gemm, session)
    yield trial.row_of_copy()
    has_units = bool(session.context.info.matrices)
    yield from trial.rows(GEMV_TILINGS[:4] if session.software else GEMV_BASELINES if has_units else GEMV_TILINGS)
    if has_units and not session.software:
        yield from trial.searched()
    way, seconds = min(trial.best.items(), key=lambda one: one[1])
    yield Row(f"  the best: {way}", seconds * US, note=trial.rate(seconds))


def run(session: Session) -> Iterator[Table]:
    for gemm in ON_SOFTWARE if session.software else GEMMS:
        title = f"1 x {gemm}, by subgroups of a team, teams, columns; or subgroups, tiles, chunks ahead, turns"
        yield Table(title, "us", list(rows_of(gemm, session)))
