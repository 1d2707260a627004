"""Kernels as custom operators of torch. Skipped without torch."""

from __future__ import annotations

import pytest

import pumice

torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")

from pumice.torch import wrap  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

BODY = """
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) readonly buffer Y { float y[]; };
layout(std430, binding = 2) writeonly buffer Z { float z[]; };
void main() { uint i = gl_GlobalInvocationID.x; z[i] = 2 * x[i] + y[i]; }
"""


@pytest.fixture(scope="module")
def operator() -> object:
    return wrap(pumice.Kernel(BODY), "pumice_tests::twice_plus", ["x", "y"], {"z": "x"})


def test_an_operator_runs_its_kernel(operator) -> None:  # type: ignore[no-untyped-def]
    x, y = torch.randn(4, 6), torch.randn(6, 4).t()
    assert torch.equal(operator(x, y), 2 * x + y)


def test_torch_finds_nothing_wrong_with_an_operator(operator) -> None:  # type: ignore[no-untyped-def]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(operator, (torch.randn(5), torch.randn(5)), test_utils=checks)


def test_a_compiled_graph_does_not_break_on_it(operator) -> None:  # type: ignore[no-untyped-def]
    fast = torch.compile(lambda x, y: operator(x + 1, y) * 3, backend="aot_eager", fullgraph=True)
    for size in (3, 8, 9):
        x, y = torch.randn(size), torch.randn(size)
        torch.testing.assert_close(fast(x, y), (2 * (x + 1) + y) * 3)


def test_wrong_names_are_rejected() -> None:
    kernel = pumice.Kernel(BODY)
    with pytest.raises(ValueError, match="output 'z' is like 'w'; the inputs are x, y"):
        wrap(kernel, "pumice_tests::a", ["x", "y"], {"z": "w"})
    with pytest.raises(ValueError, match="expected one output or more, and each name once"):
        wrap(kernel, "pumice_tests::b", ["x", "y"], {"y": "x"})
