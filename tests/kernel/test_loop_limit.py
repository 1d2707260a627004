"""Drivers that end loops silently: users' kernels raise in place of wrong results, however they run."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from custom_models import X, loaded, model, node

BUFFERS = "layout(binding = 0) readonly buffer X { float x[]; };\nlayout(binding = 1) buffer Y { float y[]; };\n"
PUSH = "layout(push_constant) uniform P { uint n, m; };\n"
# Loops that run n times m iterations in an invocation, of all kinds.
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
    # Invocations that take turns: none has too many iterations of its own.
    "divergent": "uint p = gl_GlobalInvocationID.x & 1u; if (p == 0u) { for (uint i = 0u; i < n * m; ++i) s += x[0]; }"
    " else { for (uint i = 0u; i < n * m; ++i) s += x[0]; }",
}
FUNCTION = "float summed() { float s = 0.0; for (uint i = 0u; i < n * m; ++i) s += x[0]; return s; }\n"


def source(loop: str) -> str:
    return f"{BUFFERS}{PUSH}{FUNCTION}void main() {{ float s = 0.0;\n{LOOPS[loop]}\ny[gl_GlobalInvocationID.x] = s; }}"


def has_limit(context: pumice.Context) -> bool:
    return any(quirk.name == "loop_limit" for quirk in context.driver_quirks)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("m", [60, 250, 400])
def test_results_are_right_or_refused(context: pumice.Context, loop: str, m: int) -> None:
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
    kernel(x=np.ones(1, "float32"), y=y, n=3, m=4, threads=5)  # the kernel goes on
    assert y.tolist() == [12.0] * 5


@pytest.mark.parametrize("how", ["wait", "wait_idle", "dropped", "polled"])
def test_every_way_to_the_results_raises(context: pumice.Context, how: str) -> None:
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
