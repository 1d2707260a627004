"""GEMM with block-quantised weights on cooperative matrices: the layout of pack_quant_weights.comp, and gemm_quant_mma.comp with emulated
matrices so that layouts are tested on any device. Integers and powers of two: exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import pumice

SHADERS = Path(__file__).resolve().parents[2] / "shaders"
OPTIONS = pumice.ShaderOptions(storage="fp16")
Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Case:
    """A GEMM of x [M, K] with codes [N, K] of `bits` bits, block-quantised."""

    rows: int
    columns: int
    depth: int
    block: int
    bits: int = 4
    signed: bool = False
    points: bool = True  # a zero point per block, else one for all
    gated: bool = False
    normed: bool = False
    subgroups: int = 2
    tiles: int = 1
    ahead: int = 1
    turns: int = 1
    held: bool = False  # the row of x is prefetched together with the weights
    spared: bool = False  # skips the prefetch after the last iteration

    @property
    def whole(self) -> bool:
        """Whether all subgroups have the same number of full chunks."""
        return self.depth % (128 * self.subgroups * self.ahead) == 0

    @property
    def parts(self) -> int:
        """Vec8s of a row that an invocation normalises, of the chunks of its subgroup."""
        own = -(-self.depth // (128 * self.subgroups * self.ahead)) * self.ahead
        return -(-own * 16 // 32)

    @property
    def blocks(self) -> int:
        return -(-self.depth // self.block)

    @property
    def scales(self) -> int:
        return max(128 // self.block, 1)

    @property
    def macros(self) -> dict[str, str | float]:
        made = {"BITS": self.bits, "SIGNED": int(self.signed), "ZERO": int(self.points), "SCALES": self.scales}
        return {**{name: str(value) for name, value in made.items()}, "POINT": "0.0" if self.signed else "3.0"}


@dataclass(frozen=True)
class Matrix:
    codes: Array
    zeros: Array
    scales: Array

    def floats(self, block: int) -> Array:
        depth = self.codes.shape[1]
        spread = [part.repeat(block, 1)[:, :depth].astype(np.float64) for part in (self.zeros, self.scales)]
        return (self.codes - spread[0]) * spread[1]


def matrix_of(case: Case, seed: int) -> Matrix:
    chance = np.random.default_rng(seed)
    low = -(1 << case.bits - 1) if case.signed else 0
    codes = chance.integers(low, low + (1 << case.bits), (case.columns, case.depth))
    zeros = chance.integers(low, low + (1 << case.bits), (case.columns, case.blocks))
    if not case.points:
        zeros = np.full_like(zeros, 0 if case.signed else 3)
    return Matrix(codes, zeros, 2.0 ** chance.integers(-2, 2, (case.columns, case.blocks)))


def in_words(codes: Array, bits: int) -> Array:
    """Pack integers of 4 or 8 bits into uint32 words, low bits first."""
    flat = (codes.reshape(-1) & ((1 << bits) - 1)).astype(np.uint32)
    each = 32 // bits
    flat = np.append(flat, np.zeros(-flat.size % each, np.uint32)).reshape(-1, each)
    return (flat << (np.arange(each, dtype=np.uint32) * bits)).sum(1, dtype=np.uint32)


def kernel(context: pumice.Context, file: str, **options: object) -> pumice.Kernel:
    return pumice.Kernel(
        (SHADERS / file).read_text(), context, name=file, include_dirs=[str(SHADERS)], options=OPTIONS, **options
    )


def packed(context: pumice.Context, case: Case, x: Array, count: int, **macros: str) -> Array:
    """Run pack_quant_weights.comp and return `count` words."""
    pack = kernel(context, "pack_quant_weights.comp", macros={**case.macros, "LOCAL_SIZE": "64", **macros})
    made = pumice.tensor(np.zeros(count, np.uint32), context)
    numbers = {"k_size": case.depth, "columns": case.columns, "block": case.block, "blocks": case.blocks}
    pack(x=x, y=made, words=count, x_offset=0, y_offset=0, threads=count, **numbers)
    return made.numpy()


def bindings_of(context: pumice.Context, case: Case, matrix: Matrix, prefix: str) -> dict[str, Array]:
    tiles, chunks = -(-case.columns // 16), -(-case.depth // 128)
    terms = tiles * chunks * 16 * case.scales // 2
    codes = packed(context, case, in_words(matrix.codes, case.bits), tiles * chunks * 64 * case.bits)
    scales = packed(context, case, matrix.scales.astype(np.float16), terms, SCALES_OR_ZEROS="1")
    made = {f"{prefix}w": codes, f"{prefix}scale": scales.view(np.float16)}
    if case.points:
        zeros = packed(context, case, in_words(matrix.zeros, case.bits), terms, SCALES_OR_ZEROS="1", INTEGERS="1")
        made[f"{prefix}zero"] = zeros.view(np.float16)
    return made


def product(
    context: pumice.Context, case: Case, x: Array, gain: Array, matrices: list[Matrix], emulated: bool = True
) -> Array:
    each, all_eights = min(case.rows, 16), -(-case.depth // 128) * 16 + 1
    spec = {"ROWS": each, "INVOCATIONS": 32 * case.subgroups, "TILES": case.tiles, "UNROLL": case.ahead}
    spec |= {"REGISTER_STAGES": case.turns, "NO_K_TAIL": int(case.whole), "SKIP_LAST_PREFETCH": int(case.spared)}
    if case.normed:
        spec |= {"STAGED": each * all_eights, "STAGED_PER_THREAD": case.parts}
    macros = {
        **case.macros,
        "EMULATED": str(int(emulated)),
        "GATED": str(int(case.gated)),
        "NORMED": str(int(case.normed)),
    }
    macros["X_IN_REGISTERS"] = str(int(case.held))
    if case.gated:
        macros |= {"RESIDUAL": "1", "GATE(x)": "x + 1.0", "EPILOGUE(x)": "x * 0.0078125 * residual"}
    run = kernel(context, "gemm_quant_mma.comp", macros=macros, spec=spec)
    made = pumice.tensor(np.zeros((case.rows, case.columns), np.float16), context)
    arguments = {
        "x": x.astype(np.float16).view(np.uint32),
        "y": made,
        "w_offset": 0,
        "x_offset": 0,
        "y_offset": 0,
        "zero_offset": 0,
    }
    for matrix, prefix in zip(matrices, ("", "gate_"), strict=False):
        arguments |= bindings_of(context, case, matrix, prefix)
    if case.gated:
        arguments |= {"gate_w_offset": 0, "gate_zero_offset": 0}
    if case.normed:
        arguments |= {"gain": gain.astype(np.float32), "epsilon": 1e-5}
    groups = (-(-case.columns // (16 * case.tiles)), -(-case.rows // each), 1)
    numbers = {"rows": case.rows, "k_size": case.depth, "columns": case.columns, "block": case.block}
    run(**arguments, **numbers, blocks=case.blocks, groups=groups)
    return made.numpy()


CASES = [
    Case(1, 16, 128, 32),
    Case(1, 16, 128, 32, points=False),
    Case(1, 40, 512, 32, held=True),
    Case(1, 40, 512, 32, held=True, turns=2, tiles=2),
    Case(1, 33, 416, 32, held=True, turns=2),
    Case(1, 33, 1152, 64, held=True, ahead=2, bits=8),
    Case(1, 33, 1152, 64, turns=2, subgroups=3),
    Case(1, 35, 640, 128, held=True, gated=True, turns=2, subgroups=1),
    Case(5, 35, 640, 32, turns=2),
    Case(5, 35, 640, 32, spared=True),
    Case(1, 33, 1152, 64, spared=True, held=True, tiles=2),
    Case(1, 33, 640, 32, subgroups=3, spared=True),
    Case(3, 20, 160, 32),
    Case(8, 33, 256, 64, subgroups=3),
    Case(9, 17, 384, 128, ahead=2),
    Case(16, 40, 512, 256, tiles=2),
    Case(17, 40, 96, 32, tiles=2),
    Case(2, 30, 320, 64, bits=8),
    Case(11, 30, 320, 32, bits=8, signed=True, tiles=2, ahead=2),
    Case(4, 50, 192, 32, signed=True, subgroups=1),
    Case(4, 50, 192, 32, signed=True, points=False, subgroups=4),
    Case(2, 24, 288, 32, gated=True),
    Case(10, 35, 288, 32, gated=True, tiles=2, points=False),
]


@pytest.fixture(scope="module")
def with_units(pumice_context: pumice.Context) -> pumice.Context:
    """A device with cooperative matrices; skipped on others."""
    quirks = {quirk.name for quirk in pumice_context.driver_quirks}
    has_units = bool(pumice_context.info.matrices) and pumice_context.info.limits["subgroupSize"] == 32
    if not has_units or "other_matrix_layout" in quirks:
        pytest.skip("needs fp16 cooperative matrices with the fragment layout the kernels assume")
    return pumice_context


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matmuls_are_exact(case: Case, context: pumice.Context) -> None:
    check_exact(case, context, True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matmuls_are_exact_on_real_tensor_cores(case: Case, with_units: pumice.Context) -> None:
    check_exact(case, with_units, False)


def check_exact(case: Case, context: pumice.Context, emulated: bool) -> None:
    x = np.random.default_rng(1).integers(-2, 3, (case.rows, case.depth))
    matrices = [matrix_of(case, seed) for seed in range(2 if case.gated else 1)]
    expected = x @ matrices[0].floats(case.block).T
    if case.gated:
        expected = expected / 128 * (x @ matrices[1].floats(case.block).T + 1)
    made = product(context, case, x, np.ones(case.depth), matrices, emulated)
    np.testing.assert_array_equal(made, expected.astype(np.float32).astype(np.float16))


NORMED = [
    Case(1, 24, 352, 32, normed=True),
    Case(1, 24, 352, 32, normed=True, turns=2),
    Case(1, 40, 768, 64, normed=True, turns=2, gated=True),
    Case(9, 24, 128, 64, normed=True, tiles=2, gated=True),
    Case(1, 33, 136, 32, normed=True, turns=2, subgroups=4),
    Case(1, 17, 4096, 32, normed=True, turns=2, subgroups=4, ahead=2),
    Case(1, 17, 2048, 32, normed=True, subgroups=8, gated=True),
    Case(1, 40, 1280, 64, normed=True, turns=2, ahead=3, gated=True),
    Case(2, 33, 136, 32, normed=True, subgroups=1),
    Case(7, 33, 136, 32, normed=True, subgroups=3),
    Case(7, 24, 640, 32, normed=True, turns=2, spared=True),
    Case(16, 33, 136, 32, normed=True),
    Case(16, 35, 416, 64, normed=True, tiles=2, gated=True),
    Case(19, 24, 352, 32, normed=True, bits=8),
]


@pytest.mark.parametrize("case", NORMED, ids=str)
def test_rows_are_normalised(case: Case, context: pumice.Context) -> None:
    check_normalised(case, context, True)


@pytest.mark.parametrize("case", NORMED, ids=str)
def test_rows_are_normalised_on_real_tensor_cores(case: Case, with_units: pumice.Context) -> None:
    check_normalised(case, with_units, False)


@pytest.mark.parametrize("size", [0.0, 2.0**-20, 60000.0])
def test_rows_of_any_size_are_normalised(size: float, context: pumice.Context) -> None:
    """Products with the gain overflow fp16, are subnormal in fp16, or are zero."""
    check_normalised(Case(2, 24, 352, 32, normed=True), context, True, size)


def test_one_element_of_a_row_is_far_larger_than_others(context: pumice.Context) -> None:
    check_normalised(Case(1, 24, 352, 32, normed=True), context, True, first=30000.0)


def check_normalised(
    case: Case, context: pumice.Context, emulated: bool, size: float = 1.0, first: float | None = None
) -> None:
    """Check the normalised GEMM. size: factor on x, clipped to the fp16 range; first: replaces the first element of each row."""
    chance = np.random.default_rng(2)
    x, gain = chance.standard_normal((case.rows, case.depth)), chance.uniform(0.5, 2, case.depth)
    x = np.clip(x * size, -65504, 65504).astype(np.float16)
    if first is not None:
        x[:, 0] = first
    rows = x.astype(np.float64)
    rows = rows / np.sqrt((rows**2).mean(1, keepdims=True) + 1e-5) * gain
    matrices = [matrix_of(case, seed) for seed in range(2 if case.gated else 1)]
    parts = [rows @ matrix.floats(case.block).T for matrix in matrices]
    # The normalised row and the result are each rounded to fp16 once.
    slack = [np.abs(rows) @ np.abs(matrix.floats(case.block)).T * 2.0**-11 for matrix in matrices]
    expected, bound = parts[0], slack[0]
    if case.gated:
        expected, gate = parts[0] * (parts[1] + 1) / 128, np.abs(parts[1] + 1)
        bound = (slack[0] * gate + np.abs(parts[0]) * slack[1] + slack[0] * slack[1]) / 128
    made = product(context, case, x, gain, matrices, emulated)
    np.testing.assert_array_equal(made, product(context, case, x, gain, matrices, emulated))  # deterministic
    assert (np.abs(made - expected) <= bound * 1.01 + np.abs(expected) * 2.0**-10).all()


# ---- in a program


def constant(graph: pumice.Graph, values: Array, case: Case, name: str) -> pumice.Value:
    dtype = f"{'' if case.signed else 'u'}int{case.bits}"
    return graph.constant_bytes(
        in_words(values, case.bits).tobytes()[: -(-values.size * case.bits // 8)], dtype, list(values.shape), name
    )


def dequantized(graph: pumice.Graph, case: Case, matrix: Matrix, name: str) -> pumice.Value:
    inputs = [constant(graph, matrix.codes, case, f"{name} codes"), graph.constant(matrix.scales.astype(np.float16))]
    inputs.append(constant(graph, matrix.zeros, case, f"{name} zeros"))
    made = graph.add("DequantizeLinear", *inputs, axis=1, block_size=case.block)
    return graph.add("Transpose", made, perm=[1, 0])


# The larger ones take the driver ten seconds or more to compile with emulated matrices.
PROGRAMS = [
    pytest.param(case, normed, id=f"{case}{' normed' * normed}", marks=[] if case.rows < 8 else [pytest.mark.slow])
    for case in CASES
    for normed in (False, True)
    if case.tiles == case.ahead == 1
]


@pytest.mark.parametrize(("case", "normed"), PROGRAMS)
def test_programs_take_them_and_floats_of_them(case: Case, normed: bool, emulating: pumice.Context) -> None:
    check_program(case, normed, emulating)


@pytest.mark.parametrize(("case", "normed"), PROGRAMS)
def test_programs_are_right_on_real_tensor_cores(case: Case, normed: bool, with_units: pumice.Context) -> None:
    check_program(case, normed, with_units)


@pytest.mark.parametrize("fragments", [True, False])
@pytest.mark.parametrize(
    "case",
    [
        Case(3, 40, 160, 32),
        Case(9, 48, 384, 128, points=False),
        Case(2, 32, 320, 64, bits=8),
        Case(4, 56, 96, 32, signed=True),
    ],
    ids=str,
)
def test_floats_have_the_layout_of_a_gemm(case: Case, fragments: bool, pumice_context: pumice.Context) -> None:
    """Prefill dequantises the whole matrix, without repacking it on devices with GPU kernels."""
    quirks = ["emulated_fragments"] if fragments else []
    device = f"uuid:{pumice_context.info.uuid}"
    with pumice.Context(device, quirks=quirks, without=["subgroupShuffle"]) as plain:
        program = check_program(case, False, plain, fragments)
        kernels = [step["kernel"] for step in program.plan([[40, case.depth]])]
    assert "dequantize_weights.comp" in kernels
    assert "pack_weights.comp" not in kernels


@pytest.mark.slow
def test_a_workgroup_has_two_tiles_of_very_many_columns(emulating: pumice.Context) -> None:
    """If every multiprocessor gets at least 48 tiles; a default count is assumed for devices that do not report it."""
    multiprocessors = emulating.info.limits.get("shaderSMCount") or 132
    case = Case(1, multiprocessors * 48 * 16 + 20, 32, 32)
    program = check_program(case, False, emulating)
    (step,) = [step for step in program.plan([[1, case.depth]]) if step["kernel"] == "gemm_quant_mma.comp"]
    assert step["groups"][0] == -(-case.columns // 32)


INSIDE, BEFORE = "normalised inside", "normalised before"


@pytest.mark.slow
@pytest.mark.parametrize(("case", "own"), [(Case(1, 40, 160, 32), INSIDE), (Case(2, 32, 128, 32), BEFORE)], ids=str)
def test_a_row_is_normalised_inside_a_matmul_and_more_before(case: Case, own: str, emulating: pumice.Context) -> None:
    """Several rows are normalised by a separate kernel instead of in each GEMM workgroup. A measured choice overrides either."""
    kind = f"quantized GEMM of {case.rows} normalised rows"
    for measured in ({}, {kind: INSIDE}, {kind: BEFORE}):
        program = check_program(case, True, emulating, measured=measured)
        steps = program.plan([[case.rows, case.depth]])
        taken = measured.get(kind, own)
        assert len(steps) == (1 if taken == INSIDE else 2)
        choices = [(step["choice"]["own"], step["choice"]["taken"]) for step in steps if "choice" in step]
        assert choices == ([(own, taken)] if measured else [])


@pytest.mark.slow
def test_a_row_beyond_shared_memory_is_normalised_before(emulating: pumice.Context) -> None:
    depth = emulating.info.limits["maxComputeSharedMemorySize"] // 256 * 128  # fp16 elements
    program = check_program(Case(1, 16, depth, 32), True, emulating)
    assert len(program.plan([[1, depth]])) == 2


def check_program(
    case: Case,
    normed: bool,
    context: pumice.Context,
    fragments: bool = True,
    measured: dict[str, str] | None = None,
) -> pumice.Program:
    """Check that small M uses the fragment kernel and large M dequantised weights. With squares of 1 and epsilon 3, normalisation halves
    exactly.
    """
    graph = pumice.Graph("blocks")
    x = (np.random.default_rng(3).integers(0, 2, (40, case.depth)) * 2 - 1).astype(np.float16)
    gain = (2.0 ** np.random.default_rng(4).integers(-1, 2, case.depth)).astype(np.float16)
    given = graph.input("x", "float16", [None, case.depth])
    inner = graph.add("RMSNormalization", given, gain, axis=-1, epsilon=3.0) if normed else given
    matrices = [matrix_of(case, seed) for seed in range(2 if case.gated else 1)]
    made = [graph.add("MatMul", inner, dequantized(graph, case, matrix, str(i))) for i, matrix in enumerate(matrices)]
    scale = np.array(2.0**-8 if case.gated else 1, np.float16)
    result = graph.add("Mul", graph.add("Mul", graph.add("Relu", made[1]), scale), made[0]) if case.gated else made[0]
    graph.output("y", result)
    program = graph.compile(context, "fp16", measured=measured)
    factors = x.astype(np.float64) * (gain / 2 if normed else 1)
    products = [factors @ matrix.floats(case.block).T for matrix in matrices]
    expected = np.maximum(products[1], 0) * float(scale) * products[0] if case.gated else products[0]
    for rows in (case.rows, 40):
        y = program({"x": x[:rows]})["y"]
        tolerance = 2.0**-10 * np.abs(expected).max()
        np.testing.assert_allclose(y, expected[:rows], rtol=2.0**-10, atol=tolerance if rows > 16 or case.gated else 0)
        kernels = [row["kernel"] for row in program.report() if row["kernel"]]
        assert ("gemm_quant_mma.comp" in " ".join(kernels)) == (rows <= 16 and fragments), kernels
    return program


def test_rows_not_16_byte_aligned_are_copied_first(emulating: pumice.Context) -> None:
    case = Case(3, 20, 160, 32)
    graph = pumice.Graph("blocks")
    given = graph.input("x", "float16", [4 * 160 + 3])
    middle = graph.add("Reshape", graph.add("Slice", given, np.array([3]), np.array([3 + 3 * 160])), np.array([3, 160]))
    matrix = matrix_of(case, 0)
    graph.output("y", graph.add("MatMul", middle, dequantized(graph, case, matrix, "w")))
    x = np.random.default_rng(5).integers(-2, 3, 4 * 160 + 3).astype(np.float16)
    y = graph.compile(emulating, "fp16")({"x": x})["y"]
    expected = x[3 : 3 + 480].reshape(3, 160).astype(np.float64) @ matrix.floats(32).T
    np.testing.assert_array_equal(y, expected.astype(np.float32).astype(np.float16))
