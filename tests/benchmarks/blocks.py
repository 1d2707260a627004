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
BLOCK, IN_WORD = 32, 8
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
    """Subgroups of a team, teams of a workgroup, columns of a team (of both matrices, where there are two)."""

    subgroups: int
    teams: int
    columns: int

    def __str__(self) -> str:
        return f"{self.subgroups}, {self.teams}, {self.columns}"


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


def kernel_of(product: Product, shares: Shares, subgroup: int, context: pumice.Context) -> pumice.Kernel:
    macros = {
        "BITS": "4",
        "SIGNED": "0",
        "ZERO": "0",
        "POINT": "8.0",
        "TEAM": f"{shares.subgroups * subgroup}u",
        "TEAMS": str(shares.teams),
        "COLUMNS": f"{shares.columns}u",
        "SUBGROUP": str(subgroup),
        "EPILOGUE(x)": "x * residual" if product.gated else "x",
    }
    macros |= {"GATED": "1", "RESIDUAL": "1", "GATE(x)": "x"} if product.gated else {}
    macros |= {"NORMED": "1"} if product.normed else {}
    text = (SHADERS / "block_columns.comp").read_text()
    return pumice.Kernel(text, context, "block_columns", macros, {"ROWS": 1}, include_dirs=[SHADERS])


def bound(
    product: Product, shares: Shares, kernel: pumice.Kernel, copy: int, memory: dict[str, pumice.Tensor]
) -> object:
    """The dispatch with the copy-th matrix of those in memory."""
    words, blocks = product.depth * product.columns // IN_WORD, product.depth // BLOCK
    numbers = {one["name"]: 0 for one in kernel.shader.interface["push_constants"]}
    numbers |= {"rows": 1, "depth": product.depth, "columns": product.columns, "block": BLOCK, "blocks": blocks}
    made = product.columns // (shares.columns // 2 if product.gated else shares.columns) + 1
    tensors = {"x": memory["x"], "y": memory["y"], "w": memory["w"], "scale": memory["scale"]}
    numbers["w_offset"] = copy * words * IN_WORD * (2 if product.gated else 1)
    if product.gated:
        tensors |= {"gate_w": memory["w"], "gate_scale": memory["scale"]}
        numbers["gate_w_offset"] = numbers["w_offset"] + words * IN_WORD
    if product.normed:
        tensors |= {"gain": memory["gain"]}
        numbers["epsilon"] = 1e-5
    return kernel.bind(**tensors, **numbers, groups=(-(-made // shares.teams), 1, 1))


def memory_of(product: Product, copies: int, context: pumice.Context) -> dict[str, pumice.Tensor]:
    """Matrices behind each other, and rows; what they hold does not matter to the time."""
    words = product.depth * product.columns // IN_WORD * (2 if product.gated else 1)
    half = context.info.kind != "software"
    x = np.ones(product.depth, np.float16 if half else np.float32)
    return {
        "x": pumice.tensor(x.reshape(-1, 8 if half else 4), context),
        "y": pumice.empty([product.columns], "float16" if half else "float32", context),
        "w": pumice.empty([copies * words // 4, 4], "uint32", context),
        "scale": pumice.tensor(np.ones(product.columns * product.depth // BLOCK, np.float32), context),
        "gain": pumice.tensor(np.ones((product.depth // 4, 4), np.float32), context),
    }


def rows_of(product: Product, session: Session) -> Iterator[Row]:
    context = session.context
    subgroup = int(context.info.limits["subgroupSize"])
    copies = 2 if session.software else max(2, min(64, CACHE // product.bytes + 1))
    memory = memory_of(product, copies, context)
    for shares in SHARES[:4] if session.software else SHARES:
        if product.gated and shares.columns == 1:
            continue
        kernel = kernel_of(product, shares, subgroup, context)
        commands = pumice.CommandList(context)
        for copy in range(copies):
            commands.dispatch(bound(product, shares, kernel, copy, memory))
        commands.commit(timing=True)
        seconds = []
        for _ in range(8):
            submission = commands.exec()
            submission.wait()
            seconds.append((submission.device_seconds or 0.0) / copies)
        best, median = min(seconds), sorted(seconds)[len(seconds) // 2]
        yield Row(f"  {shares}", best * US, median * US, note=f"{product.bytes / best / 1e9:,.0f} GB/s")


def run(session: Session) -> Iterator[Table]:
    for product in ON_SOFTWARE if session.software else PRODUCTS:
        title = f"1 x {product}, by subgroups of a team, teams, columns"
        yield Table(title, "us", list(rows_of(product, session)))
