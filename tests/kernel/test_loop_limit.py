"""Drivers that end long loops silently: user kernels raise an error instead of returning wrong results, however they run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from custom_models import X, loaded, model, node

BUFFERS = "layout(binding = 0) readonly buffer X { float x[]; };\nlayout(binding = 1) buffer Y { float y[]; };\n"
PUSH = "layout(push_constant) uniform P { uint n, m; };\n"
# Loops of all kinds with n * m iterations in an invocation.
LOOPS = {
    "one": "for (uint i = 0u; i < n * m; ++i) s += x[0];",
    "nested": "for (uint r = 0u; r < n; ++r) for (uint c = 0u; c < m; ++c) s += x[0];",
    "do": "uint i = 0u; do { s += x[0]; } while (++i < n * m);",
    "while with break": "uint i = 0u; while (true) { if (i == n * m) break; s += x[0]; ++i; }",
    "one after the other": "for (uint r = 0u; r < n * m / 2u; ++r) s += x[0]; for (uint c = 0u; c < n * m / 2u; ++c) s += x[0];",
    "constant inside": "for (uint r = 0u; r < n * m / 4u; ++r) for (int c = 0; c < 4; ++c) s += x[0];",
    "in a function": "s = summed();",
    "with continue": "for (uint i = 0u; i < 2u * n * m; ++i) { if (i % 2u == 0u) continue; s += x[0]; }",
    "with return": "for (uint i = 0u; ; ++i) { if (i == n * m) { y[gl_GlobalInvocationID.x] = s; return; } s += x[0]; }",
    # Divergent lanes: none exceeds the limit by itself.
    "divergent": "uint p = gl_GlobalInvocationID.x & 1u; if (p == 0u) { for (uint i = 0u; i < n * m; ++i) s += x[0]; }"
    " else { for (uint i = 0u; i < n * m; ++i) s += x[0]; }",
}
FUNCTION = "float summed() { float s = 0.0; for (uint i = 0u; i < n * m; ++i) s += x[0]; return s; }\n"


def source(loop: str) -> str:
    return f"{BUFFERS}{PUSH}{FUNCTION}void main() {{ float s = 0.0;\n{LOOPS[loop]}\ny[gl_GlobalInvocationID.x] = s; }}"


# Loops with n * m iterations in total, without push constants.
FIXED = (
    BUFFERS
    + """
#ifndef M
#define M 400
#endif
void main() {
  float s = 0.0;
  for (uint r = 0u; r < uint(x[1]); ++r) for (uint c = 0u; c < uint(M); ++c) s += x[0];
  y[gl_GlobalInvocationID.x] = s;
}
"""
)
ENDED = r"kernel '{}'.*65,535.*{}:9"


def has_limit(context: pumice.Context) -> bool:
    return any(quirk.name == "loop_limit" for quirk in context.driver_quirks)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("m", [60, 250, 400])
def test_results_are_right_or_rejected(context: pumice.Context, loop: str, m: int) -> None:
    kernel = pumice.Kernel(source(loop), context, name="long")
    y = np.zeros(5, "float32")
    try:
        kernel(x=np.ones(1, "float32"), y=y, n=200, m=m, threads=5)
    except pumice.UnsupportedError as error:
        assert has_limit(context) and m > 60
        assert "kernel 'long'" in str(error) and "65,535" in str(error)
        assert f"long:{4 if loop == 'in a function' else 6}" in str(error)
    else:
        assert y.tolist() == [200.0 * m] * 5
        assert m < 400 or loop == "constant inside" or not has_limit(context)  # the driver may unroll a loop
    y[:] = 0
    kernel(x=np.ones(1, "float32"), y=y, n=3, m=4, threads=5)  # the kernel still works
    assert y.tolist() == [12.0] * 5


@pytest.mark.parametrize("how", ["wait", "wait_idle", "dropped", "polled"])
def test_every_access_to_the_results_raises(context: pumice.Context, how: str) -> None:
    if not has_limit(context):
        pytest.skip("this driver ends no loop")
    kernel = pumice.Kernel(source("nested"), context)
    x, y = (pumice.tensor(np.ones(1, "float32"), context=context) for _ in range(2))
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=x, y=y, n=300, m=300, threads=1))
    commands.commit()
    submission = commands.exec()
    with pytest.raises(pumice.UnsupportedError, match="ended its loops"):
        if how == "wait":
            submission.wait()
        elif how == "wait_idle":
            context.wait_idle()
        else:
            while how == "polled" and not submission.done:
                pass
            if how == "dropped":
                del commands, submission
            y.numpy()
    assert pumice.tensor(np.ones(1, "float32"), context=context).numpy().tolist() == [1.0]


def test_a_node_raises(context: pumice.Context) -> None:
    operator = pumice.kernel_operator(
        pumice.Kernel(source("nested"), context, name="node"), attributes={"n": 3, "m": 4}
    )
    short = loaded(context, model([node("Long", "x", n=3, m=4)]), Long=operator)
    assert (short(X) == 12 * X.ravel()[0]).all()
    one = loaded(context, model([node("Long", "x", n=300, m=300)]), Long=operator)
    if has_limit(context):
        with pytest.raises(pumice.UnsupportedError, match=r"kernel 'node'.*loops at node:6"):
            one(X)
    else:
        np.testing.assert_allclose(one(X), np.full_like(X, 90000 * X[0, 0]), rtol=1e-3)
    assert (short(X) == 12 * X.ravel()[0]).all()


def needs_limit(context: pumice.Context) -> None:
    if not has_limit(context):
        pytest.skip("this driver ends no loop")


def operands(n: int) -> tuple[Any, Any]:
    return np.array([1, n], "float32"), np.zeros(2, "float32")


def kernel_to_tune(context: pumice.Context, folder: Path, monkeypatch: pytest.MonkeyPatch) -> pumice.Kernel:
    """Return the kernel of FIXED with a separate tuning store. Skip if the driver ends no loop."""
    needs_limit(context)
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(folder))
    return pumice.Kernel(FIXED, context, name="tuned")


def test_tune_rejects_the_variants_whose_loops_end(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without a check, and again if the store has results of other sizes."""
    kernel = kernel_to_tune(context, tmp_path, monkeypatch)
    x, y = operands(200)
    for check in (None, lambda x, y: np.full(2, 200 * 20, "float32")):
        found = kernel.tune(
            {"M": [400, 20]}, {"x": x, "y": y, "threads": 2}, check=check, runs=2, allow_spills=True, progress=False
        )
        assert found.best == {"M": 20}
        assert [one.config for one in found.rejected] == [{"M": 400}]
        assert "does not run: " in found.rejected[0].rejected and "kernel 'tuned'" in found.rejected[0].rejected
    short = kernel.tune({"M": [400]}, {"x": operands(3)[0], "y": y, "threads": 2}, runs=2, progress=False)
    assert short.best == {"M": 400}
    with pytest.raises(
        pumice.Error, match=r"(?s)no variant can be used \(2\).*M=400: does not run.*M=500: does not run"
    ):
        kernel.tune({"M": [400, 500]}, {"x": x, "y": y, "threads": 2}, runs=2, progress=False, again=True)
    assert pumice.tensor(x, context).numpy().tolist() == [1, 200]


def test_a_variant_that_is_checked_again_may_not_run(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of the same size class has more iterations than the measured call."""
    kernel = kernel_to_tune(context, tmp_path, monkeypatch)

    def tuned(n: int, threads: int) -> pumice.Tuning:
        given = {"x": operands(n)[0], "y": np.zeros(threads, "float32"), "threads": threads}
        return kernel.tune(
            {"M": [400]},
            given,
            check=lambda x, y: np.full(len(y), x[1] * 400),
            runs=2,
            allow_spills=True,
            progress=False,
        )

    assert tuned(3, 1030).best == {"M": 400}
    with pytest.raises(pumice.Error, match="M=400: does not run"):
        tuned(300, 1031)


@pytest.mark.parametrize("option", ["--time", "--profile"])
def test_the_cell_magic_raises(context: pumice.Context, option: str) -> None:
    needs_limit(context)
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    try:
        shell.run_line_magic("load_ext", "pumice")
        shell.user_ns |= {"context": context, "x": operands(200)[0], "y": operands(200)[1], "np": np}
        found = shell.run_cell(f'%%glsl cell --context context {option} "x=x, y=y, threads=2"\n{FIXED}')
        assert isinstance(found.error_in_exec, pumice.UnsupportedError)
        assert re.search(ENDED.format("cell", "cell").replace(":9", ":10"), str(found.error_in_exec))
        called = shell.run_cell("cell(x=x, y=y, threads=2)")
        assert isinstance(called.error_in_exec, pumice.UnsupportedError)
    finally:
        InteractiveShell.clear_instance()


def test_an_operator_of_torch_raises(context: pumice.Context) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")
    needs_limit(context)
    from pumice.torch import wrap

    kernel = pumice.Kernel(FIXED, context, name="wrapped")
    operator = wrap(kernel, "pumice_loop_tests::summed", ["x"], {"y": "x"})
    with pytest.raises(pumice.UnsupportedError, match=ENDED.format("wrapped", "wrapped")):
        operator(torch.tensor([1.0, 200.0]))
    assert operator(torch.tensor([1.0, 3.0])).tolist() == [1200.0] * 2


@pytest.mark.parametrize(
    ("loop", "is_watched"),
    [
        ("for (int i = 0; i < 16; ++i) s += x[i];", False),
        ("for (int i = 15; i >= 0; i -= 3) for (uint k = 0u; k <= 99u; k += 2u) s += x[i];", False),
        ("for (int i = 0; i < 300; ++i) for (int k = 0; k < 300; ++k) s += x[i];", True),
        ("for (int i = 0; i < 16; ++i) if (x[i] > 0.0) --i;", True),
        ("for (int i = 0; i < int(x.length()); ++i) s += x[i];", True),
        ("int i = 0; while (x[i] > 0.0) ++i;", True),
        ("s = x[0];", False),
    ],
)
def test_loops_with_few_constant_iterations_cost_nothing(loop: str, is_watched: bool) -> None:
    with pumice.Context(quirks=["loop_limit"]) as context:
        kernel = pumice.Kernel(f"{BUFFERS}void main() {{ float s = 0.0; {loop} y[0] = s; }}", context)
        statistics = kernel.statistics()
        assert (statistics.submitted_bytes > statistics.spirv_bytes + 400) == is_watched
