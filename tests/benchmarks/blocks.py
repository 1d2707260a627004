"""Products of one row with matrices of 4 bits in blocks, by every way of sharing them out among the invocations of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pumice

from .rows import Row, Table
from .session import Session

SHADERS = Path(__file__).parents[2] / "shaders"
US = 1e6
WARM, RUNS = 0.1, 20
BLOCK, IN_WORD, CHUNK = 32, 8, 128
CACHE = 160 << 20  # bytes that are read between two runs of a matrix: more than a GPU's cache holds


@dataclass(frozen=True)
class Product:
    """gated: two matrices, whose products meet as they are stored. normed: of rows that the kernel normalises."""

    depth: int
    columns: int
    gated: bool = False
    normed: bool = False

    def __str__(self) -> str:
        return f"{self.depth} x {self.columns}{', gated' * self.gated}{', normed' * self.normed}"

    @property
    def bytes(self) -> int:
        return self.depth * self.columns // 2 * (2 if self.gated else 1) * 9 // 8  # with float32 scales of blocks


@dataclass(frozen=True)
class Shares:
    """block_columns: subgroups of a team, teams of a workgroup, columns of a team (of both matrices, where there are two)."""

    subgroups: int
    teams: int
    columns: int

    shader = "block_columns"
    scale = "scale"

    def __str__(self) -> str:
        return f"{self.subgroups}, {self.teams}, {self.columns}"

    def fits(self, product: Product) -> bool:
        return not product.gated or self.columns > 1

    def macros(self, subgroup: int) -> dict[str, str | float]:
        team = {"TEAM": f"{self.subgroups * subgroup}u", "TEAMS": str(self.teams)}
        return {**team, "COLUMNS": f"{self.columns}u", "SUBGROUP": str(subgroup)}

    def spec(self, product: Product) -> dict[str, float]:
        return {"ROWS": 1}

    def columns_of_group(self, product: Product) -> int:
        return self.teams * (self.columns // 2 if product.gated else self.columns)


@dataclass(frozen=True)
class Fragments:
    """block_quads: subgroups of a workgroup, tiles of sixteen columns, chunks that are on their way at once, and turns of them; whether
    the row is read beside the matrix."""

    subgroups: int
    tiles: int
    ahead: int = 1
    turns: int = 1
    held: bool = False

    shader = "block_quads"
    scale = "halves"

    def __str__(self) -> str:
        held = ", held" * self.held
        return f"fragments, {self.subgroups}, {self.tiles}, {self.ahead}, {self.turns}{held}"

    def fits(self, product: Product) -> bool:
        return self.subgroups * self.ahead <= product.depth // CHUNK and not (product.normed and self.held)

    def macros(self, subgroup: int) -> dict[str, str | float]:
        return {"SCALES": str(CHUNK // BLOCK), "HELD_X": str(int(self.held))}

    def spec(self, product: Product) -> dict[str, float]:
        shares = {"INVOCATIONS": self.subgroups * 32, "TILES": self.tiles, "AHEAD": self.ahead}
        whole = product.depth % (CHUNK * self.subgroups * self.ahead) == 0
        shares |= {"WHOLE": int(whole), "TURNS": self.turns}
        return {"ROWS": 1, **shares, "STAGED": product.depth // 8 + 1 if product.normed else 1}

    def columns_of_group(self, product: Product) -> int:
        return self.tiles * 16


PRODUCTS = (
    Product(2048, 2048),
    Product(2048, 3072, normed=True),
    Product(2048, 8192, gated=True, normed=True),
    Product(8192, 2048),
    Product(2048, 128256),
    Product(4096, 4096),
    Product(4096, 6144, normed=True),
    Product(4096, 14336, gated=True, normed=True),
    Product(14336, 4096),
)
ON_SOFTWARE = (Product(256, 64), Product(256, 128, gated=True, normed=True))
SHARES = [Shares(1, teams, columns) for teams in (2, 4, 8) for columns in (1, 2, 4)] + [
    Shares(subgroups, 1, columns) for subgroups in (2, 4, 8) for columns in (1, 2, 4)
]


FRAGMENTS = [
    Fragments(subgroups, tiles, ahead, turns, held)
    for subgroups, tiles in ((1, 1), (4, 1), (8, 1), (16, 1), (4, 2))
    for ahead, turns in ((1, 1), (1, 2), (2, 1))
    for held in (False, True)
]


def kernel_of(product: Product, shares: Shares | Fragments, subgroup: int, context: pumice.Context) -> pumice.Kernel:
    macros: dict[str, str | float] = {"BITS": "4", "SIGNED": "0", "ZERO": "0", "POINT": "8.0"}
    macros |= {**shares.macros(subgroup), "EPILOGUE(x)": "x * residual" if product.gated else "x"}
    macros |= {"GATED": "1", "RESIDUAL": "1", "GATE(x)": "x"} if product.gated else {"GATED": "0"}
    macros |= {"NORMED": "1" if product.normed else "0"}
    text = (SHADERS / f"{shares.shader}.comp").read_text()
    options = pumice.ShaderOptions(storage="fp32" if context.info.kind == "software" else "fp16")
    spec = shares.spec(product)
    return pumice.Kernel(text, context, shares.shader, macros, spec, include_dirs=[SHADERS], options=options)


def bound(
    product: Product, shares: Shares | Fragments, kernel: pumice.Kernel, copy: int, memory: dict[str, pumice.Tensor]
) -> object:
    """The dispatch with the copy-th matrix of those in memory."""
    words, blocks = product.depth * product.columns // IN_WORD, product.depth // BLOCK
    numbers = {one["name"]: 0 for one in kernel.shader.interface["push_constants"]}
    numbers |= {"rows": 1, "depth": product.depth, "columns": product.columns, "block": BLOCK, "blocks": blocks}
    tensors = {"x": memory["x"], "y": memory["y"], "w": memory["w"], "scale": memory[shares.scale]}
    numbers["w_offset"] = copy * words * IN_WORD * (2 if product.gated else 1)
    if product.gated:
        tensors |= {"gate_w": memory["w"], "gate_scale": memory[shares.scale]}
        numbers["gate_w_offset"] = numbers["w_offset"] + words * IN_WORD
    if product.normed:
        tensors |= {"gain": memory["gain"]}
        numbers["epsilon"] = 1e-5
    return kernel.bind(**tensors, **numbers, groups=(-(-product.columns // shares.columns_of_group(product)), 1, 1))


def memory_of(product: Product, copies: int, context: pumice.Context) -> dict[str, pumice.Tensor]:
    """Matrices behind each other, and rows; what they hold does not matter to the time."""
    words = product.depth * product.columns // IN_WORD * (2 if product.gated else 1)
    half = context.info.kind != "software"
    x = np.ones(product.depth, np.float16).view(np.uint32) if half else np.ones(product.depth, np.float32)
    return {
        "x": pumice.tensor(x.reshape(-1, 4), context),
        "y": pumice.empty([product.columns], "float16" if half else "float32", context),
        "w": pumice.empty([copies * words // 4, 4], "uint32", context),
        "scale": pumice.tensor(np.ones(product.columns * product.depth // BLOCK, np.float32), context),
        "halves": pumice.tensor(np.ones((product.columns * product.depth // CHUNK, 4), np.float16), context),
        "gain": pumice.tensor(np.ones((product.depth // 4, 4), np.float32), context),
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


def seconds_of(commands: pumice.CommandList, copies: int, software: bool) -> list[float]:
    """Of each of the dispatches of a list, in the last of its runs."""
    commands.commit(timing=True)
    seconds, spent = [], 0.0
    # A GPU that has waited for the compiler has slow clocks for some time.
    while spent < (0.0 if software else WARM) or len(seconds) < RUNS:
        submission = commands.exec()
        submission.wait()
        spent += submission.device_seconds or 0.0
        seconds.append((submission.device_seconds or 0.0) / copies)
    return sorted(seconds[-RUNS:])


def copy_of(product: Product, copies: int, memory: dict[str, pumice.Tensor], session: Session) -> Row:
    """A copy that reads and writes together as many bytes as the product reads."""
    context = session.context
    kernel = pumice.Kernel(COPY, context, "copy")
    fours = product.bytes // 32
    into = pumice.empty(memory["w"].shape, "uint32", context)
    commands = pumice.CommandList(context)
    each = memory["w"].shape[0] // copies
    for copy in range(copies):
        commands.dispatch(kernel.bind(x=memory["w"], y=into, first=copy * each, fours=fours, groups=-(-fours // 256)))
    seconds = seconds_of(commands, copies, session.software)
    rate = f"{product.bytes / seconds[0] / 1e9:,.0f} GB/s"
    return Row("  copy of as many bytes", seconds[0] * US, seconds[len(seconds) // 2] * US, note=rate)


def rows_of(product: Product, session: Session) -> Iterator[Row]:
    context = session.context
    subgroup = int(context.info.limits["subgroupSize"])
    copies = 2 if session.software else max(2, min(64, CACHE // product.bytes + 1))
    memory = memory_of(product, copies, context)
    yield copy_of(product, copies, memory, session)
    ways = SHARES[:4] if session.software else [*SHARES, *(FRAGMENTS if context.info.matrices else [])]
    for shares in ways:
        if not shares.fits(product):
            continue
        kernel = kernel_of(product, shares, subgroup, context)
        commands = pumice.CommandList(context)
        for copy in range(copies):
            commands.dispatch(bound(product, shares, kernel, copy, memory))
        seconds = seconds_of(commands, copies, session.software)
        best, median = seconds[0], seconds[len(seconds) // 2]
        yield Row(f"  {shares}", best * US, median * US, note=f"{product.bytes / best / 1e9:,.0f} GB/s")


def run(session: Session) -> Iterator[Table]:
    for product in ON_SOFTWARE if session.software else PRODUCTS:
        title = f"1 x {product}, by subgroups of a team, teams, columns"
        yield Table(title, "us", list(rows_of(product, session)))
