"""GEMM with small N and fused row Softmax, against the unfused nodes and NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from lesser_devices import lesser

Array = npt.NDArray[Any]
APART = [name for name in pumice.fusions() if name != "softmax"]
ALLOWED = {"fp32": 2e-6, "fp16": 2e-3, "bf16": 2e-2}  # absolute tolerance of probabilities


class Product(NamedTuple):
    rows: int
    depth: int
    columns: int
    op: str = "Gemm"
    transposed: bool = False
    has_bias: bool = True
    before: str = ""  # activation between the two
    keeps: bool = True  # the GEMM result is also an output
    axis: int = -1

    def arrays(self) -> tuple[Array, Array, Array]:
        """Return the rows, the matrix and the bias."""
        random = np.random.default_rng(self.depth)
        x = random.normal(size=(self.rows, self.depth)).astype("float32")
        w = (random.normal(size=(self.depth, self.columns)) / max(self.depth, 1) ** 0.5).astype("float32")
        return x, w, random.normal(size=self.columns).astype("float32")

    def program(self, context: pumice.Context, **options: Any) -> pumice.Program:
        _, w, b = self.arrays()
        graph = pumice.Graph("rows")
        made = graph.input("x", "float32", [None, self.depth])
        if self.op == "Gemm":
            added = [b] if self.has_bias else []
            made = graph.add(
                "Gemm",
                made,
                np.ascontiguousarray(w.T) if self.transposed else w,
                *added,
                name="product",
                transB=int(self.transposed),
            )
        else:
            made = graph.add("MatMul", made, w, name="product")
            if self.has_bias:
                made = graph.add("Add", made, b, name="bias")
        if self.before:
            made = graph.add(self.before, made, name="before")
        graph.output("probabilities", graph.add("Softmax", made, name="softmax", axis=self.axis))
        if self.keeps:
            graph.output("product", made)
        return graph.compile(context, **options)

    def expected(self, x: Array) -> tuple[Array, Array]:
        """Return the probabilities and the GEMM result in float64."""
        _, w, b = (array.astype("float64") for array in self.arrays())
        made = x.astype("float64") @ w + (b if self.has_bias else 0)
        if self.before == "Tanh":
            made = np.tanh(made)
        apart = np.exp(made - made.max(axis=1, keepdims=True))
        return apart / apart.sum(axis=1, keepdims=True), made


CASES = {
    "mnist": Product(1, 256, 10),
    "one number": Product(1, 1, 1),
    "one column": Product(5, 77, 1, has_bias=False),
    "a whole eight": Product(3, 64, 8, transposed=True),
    "one more than an eight": Product(7, 65, 9),
    "one more than two eights": Product(2, 33, 17, "MatMul", has_bias=False, keeps=False),
    "as many columns as it takes": Product(65, 512, 32, "MatMul"),
    "one less": Product(4, 511, 31, transposed=True, keeps=False),
    "many rows": Product(1001, 3, 5, axis=1),
    "a map between them": Product(6, 130, 12, before="Tanh"),
    "deep": Product(2, 1 << 14, 1),
}
MANY = Product(4097, 64, 16)  # enough rows that two dispatches read the matrix less often


def fusion_of(program: pumice.Program) -> str:
    (row,) = [row for row in program.report() if row["node"] == "softmax"]
    return str(row["fusion"])


@pytest.mark.parametrize("precision", list(ALLOWED))
@pytest.mark.parametrize("name", CASES)
def test_matmul_and_softmax_results_are_right(device: pumice.Context, name: str, precision: str) -> None:
    case = CASES[name]
    x = case.arrays()[0]
    program = case.program(device, precision=precision)
    assert fusion_of(program) == "softmax"
    kernels = [step["kernel"] for step in program.plan((x,))]
    is_one_kernel = device.limit("maxComputeWorkGroupInvocations") >= 256
    assert kernels.count("gemm_softmax.comp") == is_one_kernel
    assert precision != "fp32" or not is_one_kernel or len(kernels) == 1
    for found, wanted in zip(program.call((x,)), case.expected(x), strict=False):
        assert np.abs(found - wanted).max() <= ALLOWED[precision] * max(1, np.abs(wanted).max())


def test_many_rows_are_made_one_by_one(device: pumice.Context) -> None:
    x = MANY.arrays()[0]
    program = MANY.program(device)
    assert len(program.plan((x,))) > 1
    for found, wanted in zip(program.call((x,)), MANY.expected(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["mnist", "one more than an eight", "one less", "a map between them"])
def test_one_by_one_on_devices_that_have_no_use_for_it(pumice_context: pumice.Context, name: str) -> None:
    case = CASES[name]
    x = case.arrays()[0]
    joined, apart = case.program(pumice_context), case.program(pumice_context, fuse=APART)
    assert (fusion_of(joined), fusion_of(apart)) == ("softmax", "")
    for found, wanted in zip(joined.call((x,)), apart.call((x,)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_rows_that_are_no_numbers(device: pumice.Context, precision: str) -> None:
    """NaN and infinities affect their row as in the unfused nodes, and no other row."""
    case = CASES["one more than an eight"]
    x = case.arrays()[0]
    x[1, 3], x[2, 0], x[4, 64] = np.nan, np.inf, -np.inf
    joined, apart = case.program(device, precision=precision), case.program(device, fuse=APART, precision=precision)
    for found, wanted in zip(joined.call((x,)), apart.call((x,)), strict=True):
        assert np.array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=ALLOWED[precision] * 4)
    assert not np.isnan(found[[0, 3, 5, 6]]).any()


# Packed fp16; ranges smaller than the rows; small grids; small workgroups.
LESSER: dict[str, tuple[list[str], dict[str, int]]] = {
    "packed": (["storageBuffer16BitAccess", "shaderFloat16"], {}),
    "small ranges": ([], {"maxStorageBufferRange": 1 << 13}),
    "small grids": ([], {"maxComputeWorkGroupCount": 16}),
    "few invocations": ([], {"maxComputeWorkGroupInvocations": 128, "maxComputeWorkGroupSize_0": 128}),
}


@pytest.mark.parametrize("precision", list(ALLOWED))
@pytest.mark.parametrize("name", LESSER)
def test_lesser_devices(device: pumice.Context, name: str, precision: str) -> None:
    lacking, limits = LESSER[name]
    with lesser(device, limits, ["subgroupShuffle", *lacking]) as context:
        for case in (CASES["many rows"], CASES["one more than an eight"]):
            x = case.arrays()[0]
            program = case.program(context, precision=precision)
            assert fusion_of(program) == "softmax"
            for found, wanted in zip(program.call((x,)), case.expected(x), strict=True):
                assert np.abs(found - wanted).max() <= ALLOWED[precision] * max(1, np.abs(wanted).max())


REFUSED = {
    "many columns": Product(3, 16, 33),
    "a large matrix": Product(3, 2049, 8),
    "along the other axis": Product(3, 16, 8, axis=0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_cases_that_are_not_fused(device: pumice.Context, name: str) -> None:
    case = REFUSED[name]
    x = case.arrays()[0]
    program = case.program(device)
    assert fusion_of(program) == ""
    axis_is_rows = case.axis == 0
    found = program.call((x,))[0]
    np.testing.assert_allclose(found.sum(axis=0 if axis_is_rows else 1), 1, atol=1e-5)
