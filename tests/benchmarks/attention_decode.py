"""Decode attention (one query) over caches read from memory, by work distribution across a GPU's invocations."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pumice

from .rows import Row, Table
from .session import Session

Array = npt.NDArray[Any]
SHADERS = Path(__file__).parents[2] / "shaders"
US = 1e6
WARM, ROUNDS, RUNS = 0.3, 4, 3
CACHE = 160 << 20  # bytes read between two runs on a cache: more than a GPU's cache holds
UNBOUNDED = 1 << 30
MAX_SUBGROUPS = 16
OFFSETS = ("q_offset", "k_offset", "v_offset", "y_offset", "mask_offset", "kv_lengths_offset")


@dataclass(frozen=True)
class Shape:
    """Queries of [batch, heads, 1, size], keys and values of [batch, groups, keys, size], in fp16."""

    batch: int
    heads: int
    groups: int
    keys: int
    size: int

    def __str__(self) -> str:
        return f"{self.batch} x {self.heads} heads of {self.size}, {self.groups} of keys, {self.keys} keys"

    @property
    def shared(self) -> int:
        return self.heads // self.groups

    @property
    def elements(self) -> int:
        """The number of elements of the keys, and of the values."""
        return self.batch * self.groups * self.keys * self.size


@dataclass(frozen=True)
class MmaTiling:
    """attention_decode_mma: subgroups per workgroup, blocks of 16 keys per subgroup and iteration, workgroups per SM."""

    subgroups: int
    blocks: int
    of_core: int
    macros: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()  # kernel lines to leave out; only its time is reported, as results are wrong
    max_splits: int = 1 << 16
    is_combined: bool = False  # reduce the splits in a second dispatch, not in the last workgroup to finish

    shader = "attention_decode_mma"

    def __str__(self) -> str:
        more = "".join(f", {name} {value}" for name, value in self.macros)
        less = ", combined by a dispatch" if self.is_combined else ", without the meeting" if self.lacks else ""
        partials = f", up to {self.max_splits} partials" if self.max_splits < 1 << 16 else ""
        return f"quads {self.subgroups}, {self.blocks}, {self.of_core}{more}{partials}{less}"

    def partials(self, shape: Shape, cores: int) -> int:
        most = -(-shape.keys // (self.subgroups * self.blocks * 16))
        return max(min(cores * self.of_core // (shape.batch * shape.groups), most, self.max_splits), 1)

    def kernel(self, shape: Shape, partials: int, context: pumice.Context) -> pumice.Kernel:
        spec = {"INVOCATIONS": self.subgroups * 32, "ROWS": shape.shared, "KEY_BLOCKS": self.blocks}
        sizes = {"SIZE": shape.size, "V_SIZE": shape.size}
        macros = {"EMULATED": "0", "QUERIES_SHARED": "0", **dict(self.macros)}
        return kernel_of(self.shader, macros, {**spec, **sizes}, context, self.lacks)

    def floats_per_split(self, shape: Shape) -> int:
        return shape.size + 4

    def fits(self, shape: Shape) -> bool:
        return True


@dataclass(frozen=True)
class ThreadGroupTiling:
    """attention_decode: invocations per team, teams per workgroup, workgroups per SM."""

    team: int
    teams: int
    of_core: int

    shader = "attention_decode"
    lacks = ()
    is_combined = False

    def __str__(self) -> str:
        return f"teams {self.team}, {self.teams}, {self.of_core}"

    def partials(self, shape: Shape, cores: int) -> int:
        most = -(-shape.keys // 128)
        return max(min(-(-cores * self.of_core // (shape.batch * shape.groups)), most), 1)

    def kernel(self, shape: Shape, partials: int, context: pumice.Context) -> pumice.Kernel:
        rows, held = min(shape.shared, 4), -(-shape.size // 4 // self.team)
        macros = {
            "GROUP_THREADS": f"{self.team}u",
            "THREAD_GROUPS": str(self.teams),
            "ITEMS_PER_THREAD": f"{held}u",
            "ROWS": f"{rows}u",
        }
        in_parts = {"SPLIT_KEYS": str(int(partials > 1)), "CPU_VARIANT": "0", "VEC4": "1"}
        in_parts["SUBGROUP"] = str(context.info.limits["subgroupSize"])
        return kernel_of(self.shader, {**macros, **in_parts}, {"SIZE": shape.size, "V_SIZE": shape.size}, context)

    def floats_per_split(self, shape: Shape) -> int:
        return shape.size + 2

    def fits(self, shape: Shape) -> bool:
        return True


Tiling = MmaTiling | ThreadGroupTiling
HEADS = ((32, 8, 128), (32, 32, 128), (32, 8, 64), (8, 4, 256))
SHAPES = tuple(
    Shape(batch, heads, groups, keys, size)
    for heads, groups, size in HEADS
    for batch in (1, 8)
    for keys in (1024, 4096, 16384)
)
ON_SOFTWARE = (Shape(1, 4, 2, 256, 32),)
SHARED = (("QUERIES_SHARED", "1"),)
EMULATED = (("EMULATED", "1"),)
SPLIT_REDUCTION = (
    "  if (count > 1u && SUBGROUP_MERGES) merge_splits_by_subgroup(batch, kv_head, count);\n",
    "  if (count > 1u && !SUBGROUP_MERGES) merge_splits(batch, kv_head, count);\n",
)
UNCOUNTED = (("HAS_KV_LENGTHS", "0"),)
TILINGS: tuple[Tiling, ...] = (
    ThreadGroupTiling(16, 16, 4),
    *(MmaTiling(4, 1, of_core) for of_core in (1, 2, 3)),
    *(MmaTiling(*tiling) for tiling in ((8, 1, 1), (8, 1, 2), (4, 2, 2))),
    # Time of the split-K reduction, and of the number of keys.
    MmaTiling(4, 1, 2, lacks=SPLIT_REDUCTION),
    MmaTiling(4, 1, 2, UNCOUNTED),
    MmaTiling(4, 1, 2, UNCOUNTED, lacks=SPLIT_REDUCTION),
    *(MmaTiling(*tiling, SHARED) for tiling in ((4, 1, 2), (8, 1, 1))),
)
TILINGS_ON_SOFTWARE: tuple[Tiling, ...] = (
    ThreadGroupTiling(16, 4, 1),
    MmaTiling(2, 1, 1, EMULATED),
    MmaTiling(2, 2, 1, (*EMULATED, *SHARED)),
)


@functools.cache
def built(
    text: str,
    context: pumice.Context,
    name: str,
    macros: frozenset[tuple[str, str]],
    spec: frozenset[tuple[str, float]],
) -> pumice.Kernel:
    options = pumice.ShaderOptions(storage="fp16")
    return pumice.Kernel(text, context, name, dict(macros), dict(spec), include_dirs=[SHADERS], options=options)


def kernel_of(
    name: str, macros: dict[str, str], spec: dict[str, float], context: pumice.Context, lacks: tuple[str, ...] = ()
) -> pumice.Kernel:
    shared = {
        "MASKED": "0",
        "HAS_KV_LENGTHS": "1",
        "ZERO_EMPTY": "1",
        "Y_VEC4": "1",
        "MERGES_SPLITS": "1",
        "EPILOGUE(x)": "x",
    }
    all_macros = {**shared, "SPLIT_KEYS": "0", **macros}
    if all_macros["SPLIT_KEYS"] == "0" and name == ThreadGroupTiling.shader:
        all_macros["MERGES_SPLITS"] = "0"
    text = (SHADERS / f"{name}.comp").read_text()
    for line in lacks:
        if line not in text:
            raise ValueError(f"{name}.comp has no line {line!r} that could be left out")
        text = text.replace(line, "")
    return built(text, context, name, frozenset(all_macros.items()), frozenset(spec.items()))


@dataclass
class Memory:
    """Several consecutive caches, and queries."""

    shape: Shape
    copies: int
    tensors: dict[str, pumice.Tensor]

    @classmethod
    def of(cls, shape: Shape, copies: int, context: pumice.Context, random: bool = False) -> Memory:
        def filled(count: int, seed: int) -> pumice.Tensor:
            if not random:  # the time does not depend on the keys' values
                return pumice.empty([copies * count // 8, 4], "uint32", context)
            halves = np.random.default_rng(seed).standard_normal(copies * count).astype(np.float16)
            return pumice.tensor(halves.view(np.uint32).reshape(-1, 4), context)

        rows = np.random.default_rng(0).standard_normal(shape.batch * shape.heads * shape.size).astype(np.float16)
        counts = np.full(shape.batch, shape.keys, np.int64)
        tensors = {
            "q": pumice.tensor(rows.view(np.uint32).reshape(-1, 4), context),
            "k": filled(shape.elements, 1),
            "v": filled(shape.elements, 2),
            "y": pumice.empty([shape.batch * shape.heads * shape.size // 4, 4], "float16", context),
            "kv_lengths": pumice.tensor(counts.view(np.uint32).reshape(-1, 2), context),
            "finished": pumice.tensor(np.zeros(shape.batch * shape.groups * MAX_SUBGROUPS, np.uint32), context),
        }
        return cls(shape, copies, tensors)


def combining(memory: Memory, tiling: MmaTiling, partials: int, made: pumice.Tensor) -> Any:
    """Return the dispatch that reduces the splits of attention_decode_mma."""
    shape, turn = memory.shape, tiling.subgroups * tiling.blocks * 16
    count = -(-shape.keys // (max(-(-shape.keys // (partials * turn)), 1) * turn))
    spec = frozenset({"ROWS": shape.shared, "FOURS": shape.size // 4}.items())
    kernel = built(COMBINE, made.context, "combine", frozenset(), spec)
    numbers = {"partials": partials, "count": count, "items": shape.batch * shape.heads * shape.size // 4}
    y = pumice.Tensor(pumice.TensorDesc("uint32", [numbers["items"], 2]), memory.tensors["y"].buffer)
    return kernel.bind(made=made, y=y, **numbers, groups=-(-numbers["items"] // 64))


def bound(memory: Memory, tiling: Tiling, kernel: pumice.Kernel, partials: int, copy: int) -> list[Any]:
    """Return the dispatches over the copy-th cache, with buffers for its splits."""
    shape, context = memory.shape, memory.tensors["q"].context
    rows, head = shape.heads * shape.size, shape.keys * shape.size
    numbers: dict[str, float] = {one["name"]: 0 for one in kernel.shader.interface["push_constants"]}
    numbers |= {"rows": 1, "keys": shape.keys, "heads": shape.heads, "group": shape.shared}
    numbers |= {"q_batch": rows, "q_head": shape.size, "q_row": shape.size}
    numbers |= {"y_batch": rows, "y_head": shape.size, "y_row": shape.size}
    for name in "kv":
        numbers |= {f"{name}_batch": shape.groups * head, f"{name}_head": head, f"{name}_row": shape.size}
        numbers[f"{name}_offset"] = copy * shape.elements
    numbers |= {"scale": shape.size**-0.5, "first": -UNBOUNDED, "last": UNBOUNDED, "mask_keys": shape.keys}
    numbers["split_size"] = -(-shape.keys // partials // 4) * 4 + 4 * (shape.keys % partials > 0)
    tensors = {name: one for name, one in memory.tensors.items() if name != "finished"}
    if isinstance(tiling, ThreadGroupTiling):  # reads fp16 as vec4
        for name in "qkv":
            words = tensors[name]
            fours = pumice.TensorDesc("float16", [words.shape[0] * 2, 4])
            tensors[name] = pumice.Tensor(fours, words.buffer)
    across = 1 if isinstance(tiling, MmaTiling) else -(-shape.shared // 4)
    if isinstance(tiling, MmaTiling) or partials > 1:
        floats = shape.batch * shape.heads * partials * tiling.floats_per_split(shape)
        made = [floats // 4, 4] if isinstance(tiling, MmaTiling) else [floats]
        tensors["finished"] = memory.tensors["finished"]
        tensors.setdefault("partials", pumice.empty(made, "float32", context))
    groups = (across, shape.batch * shape.groups, partials)
    names = {one["name"] for one in kernel.shader.interface["bindings"]}
    tensors = {name: one for name, one in tensors.items() if name in names}
    dispatches = [kernel.bind(**tensors, **numbers, groups=groups)]
    if isinstance(tiling, MmaTiling) and tiling.is_combined:
        dispatches.append(combining(memory, tiling, partials, tensors["partials"]))
    return dispatches


def expected(memory: Memory) -> Array:
    shape = memory.shape

    def floats(name: str, *sizes: int) -> Array:
        return memory.tensors[name].numpy().view(np.float16).reshape(sizes).astype(np.float64)

    q = floats("q", shape.batch, shape.groups, shape.shared, shape.size)
    k, v = (floats(name, shape.batch, shape.groups, shape.keys, shape.size) for name in "kv")
    scores = q @ k.transpose(0, 1, 3, 2) * shape.size**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(((weights / weights.sum(-1, keepdims=True)) @ v).reshape(-1))


def error_of(tiling: Tiling, shape: Shape, cores: int, context: pumice.Context, replays: int = 1) -> float:
    """Return the largest error over the largest result, of successive runs that must be bit-identical. Splits are cleared between runs, so
    that stale ones cannot hide premature reads.
    """
    memory = Memory.of(shape, 1, context, random=True)
    partials = tiling.partials(shape, cores)
    commands = pumice.CommandList(context)
    if isinstance(tiling, MmaTiling):
        fours = shape.batch * shape.heads * partials * tiling.floats_per_split(shape) // 4
        memory.tensors["partials"] = pumice.empty([fours, 4], "float32", context)
        clear = pumice.Kernel(CLEAR, context, "clear")
        commands.dispatch(clear.bind(partials=memory.tensors["partials"], fours=fours, groups=-(-fours // 64)))
    for dispatch in bound(memory, tiling, tiling.kernel(shape, partials, context), partials, 0):
        commands.dispatch(dispatch)
    commands.commit()
    commands.exec().wait()
    first = memory.tensors["y"].numpy().copy()
    right = expected(memory)
    for _ in range(replays):
        commands.exec().wait()
        if not np.array_equal(first.view(np.uint16), memory.tensors["y"].numpy().view(np.uint16)):
            return float("inf")
    return float(np.abs(first.reshape(-1) - right).max() / np.abs(right).max())


def recorded(
    tiling: Tiling, memory: Memory, kernel: pumice.Kernel, partials: int, context: pumice.Context
) -> pumice.CommandList:
    """Return a list with one dispatch over each cache."""
    commands = pumice.CommandList(context)
    for copy in range(memory.copies):
        for dispatch in bound(memory, tiling, kernel, partials, copy):
            commands.dispatch(dispatch)
    commands.commit(timing=True)
    return commands


def measured(lists: list[pumice.CommandList], copies: int, software: bool, warm: float = WARM) -> list[list[float]]:
    """Return the seconds of a dispatch in each list. Lists alternate, so that all see the same clocks."""

    def seconds_of(commands: pumice.CommandList) -> float:
        submission = commands.exec()
        submission.wait()
        return submission.device_seconds or 0.0

    spent = 0.0
    while spent < (0.0 if software else warm):  # GPU clocks stay low for some time after waiting for the compiler
        spent += sum(map(seconds_of, lists))
    rounds = [[[seconds_of(commands) / copies for _ in range(RUNS)] for commands in lists] for _ in range(ROUNDS)]
    return [sorted(one for turn in rounds for one in turn[i]) for i in range(len(lists))]


CLEAR = """layout(local_size_x = 64) in;
layout(binding = 0) writeonly buffer Partials { vec4 partials[]; };
layout(push_constant) uniform parameter { uint fours; } p;
void main() { if (gl_GlobalInvocationID.x < p.fours) partials[gl_GlobalInvocationID.x] = vec4(uintBitsToFloat(0x7fc00000u)); }
"""
COMBINE = """layout(local_size_x = 64) in;
layout(constant_id = 0) const uint ROWS = 1u;
layout(constant_id = 1) const uint FOURS = 1u;
layout(binding = 0) readonly buffer Made { vec4 made[]; };
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform parameter { uint parts, count, items; } p;
void main() {
  const uint item = gl_GlobalInvocationID.x, row = item / FOURS, four = item % FOURS;
  if (item >= p.items) return;
  const uint first = (row / ROWS * p.parts * ROWS + row % ROWS) * (FOURS + 1u), step = ROWS * (FOURS + 1u);
  float largest = uintBitsToFloat(0xff800000u), sum = 0.0;
  vec4 sums = vec4(0.0);
  for (uint i = 0u; i < p.count; ++i) largest = max(largest, made[first + i * step + FOURS].x);
  for (uint i = 0u; i < p.count; ++i) {
    const vec2 terms = made[first + i * step + FOURS].xy;
    const float factor = exp(terms.x - largest);
    sum += terms.y * factor;
    sums += made[first + i * step + four] * factor;
  }
  sums /= sum;
  y[item] = uvec2(packHalf2x16(sums.xy), packHalf2x16(sums.zw));
}
"""
READ = """#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer K { uvec4 k[]; };
layout(binding = 1) readonly buffer V { uvec4 v[]; };
layout(binding = 2) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform parameter { uint first, fours; } p;
void main() {
  uvec4 any = uvec4(0u);
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const uint at = p.first + min((gl_WorkGroupID.x * 4u + i) * 256u + gl_LocalInvocationID.x, p.fours - 1u);
    any |= k[at] | v[at];
  }
  if (any == uvec4(0xfedcba98u)) y[0] = 1u;
}
"""


def reading(memory: Memory) -> pumice.CommandList:
    """Return a list that reads as many bytes as each cache has, and does nothing else."""
    shape, context = memory.shape, memory.tensors["q"].context
    kernel, fours = pumice.Kernel(READ, context, "read"), shape.elements // 8
    caches = {name: memory.tensors[name] for name in "kv"}
    flag = pumice.empty([1], "uint32", context)
    commands = pumice.CommandList(context)
    for copy in range(memory.copies):
        numbers = {"first": copy * fours, "fours": fours}
        commands.dispatch(kernel.bind(**caches, y=flag, **numbers, groups=-(-fours // 1024)))
    commands.commit(timing=True)
    return commands


def describe_statistics(kernel: pumice.Kernel) -> str:
    """Return the driver's kernel statistics, or why there are none, so that no measurement is lost."""
    try:
        told = kernel.statistics()
        return f"{told.registers} registers, {told.spills} spilled, {told.shared_bytes} bytes shared"
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:60]


def rows_of(shape: Shape, tilings: tuple[Tiling, ...], session: Session) -> Iterator[Row]:
    context = session.context
    cores = int(context.info.limits.get("shaderSMCount") or 132)
    bytes_read = shape.elements * 4
    copies = 2 if session.software else max(1, min(64, CACHE // bytes_read + 1))
    memory = Memory.of(shape, copies, context)
    tilings = tuple(tiling for tiling in tilings if tiling.fits(shape))
    all_parts = [tiling.partials(shape, cores) for tiling in tilings]
    lists = [
        recorded(tiling, memory, tiling.kernel(shape, partials, context), partials, context)
        for tiling, partials in zip(tilings, all_parts, strict=True)
    ]
    all_seconds = measured([*lists, reading(memory)], copies, session.software)
    floor = all_seconds.pop()
    rate = f"{bytes_read / floor[0] / 1e12:.2f} TB/s"
    yield Row("  as many bytes read, no more", floor[0] * US, floor[len(floor) // 2] * US, note=rate)
    for tiling, partials, seconds in zip(tilings, all_parts, all_seconds, strict=True):
        best, median = seconds[0], seconds[len(seconds) // 2]
        yield Row(
            f"  {tiling}", best * US, median * US, note=f"{bytes_read / best / 1e12:.2f} TB/s, {partials} partials"
        )


def checks(tilings: tuple[Tiling, ...], session: Session) -> Iterator[Row]:
    """Yield the driver's statistics of each kernel, and its error with uneven splits."""
    cores = int(session.context.info.limits.get("shaderSMCount") or 132)
    shapes = (Shape(2, 4, 2, 250, 32),) if session.software else (Shape(2, 32, 8, 3001, 128), Shape(2, 8, 4, 3001, 256))
    for shape in shapes:
        for tiling in tilings:
            if not tiling.fits(shape) or (tiling.lacks and not tiling.is_combined):
                continue
            error = error_of(tiling, shape, cores, session.context)
            told = describe_statistics(tiling.kernel(shape, tiling.partials(shape, cores), session.context))
            yield Row(f"  {tiling}, heads of {shape.size}", error * 1e3, error * 1e3, wrong=not error < 4e-3, note=told)


def safely(rows: Iterator[Row]) -> list[Row]:
    """Return the rows up to an error, and a failed row with its message, so that other tables are still measured."""
    made: list[Row] = []
    try:
        for row in rows:
            made.append(row)
    except Exception as error:
        traceback.print_exc()
        made.append(Row("  the ways after this", absent=str(error), wrong=True))
    return made


def run(session: Session) -> Iterator[Table]:
    tilings = (
        TILINGS_ON_SOFTWARE
        if session.software
        else tuple(w for w in TILINGS if session.context.info.matrices or isinstance(w, ThreadGroupTiling))
    )
    yield Table("Errors of one row, by ways of sharing it out", "thousandths", safely(checks(tilings, session)))
    for shape in ON_SOFTWARE if session.software else SHAPES:
        yield Table(f"One row, {shape}", "us", safely(rows_of(shape, tilings, session)))
