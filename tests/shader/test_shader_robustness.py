"""User kernels that could harm the process or other tensors: out-of-bounds indices, array sizes and unroll hints are limited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from features import need_features

Array = np.ndarray[Any, Any]
BUFFER = "layout(binding = 0) buffer X { float x[]; };\n"
LENGTH = 24
# Arrays by memory kind, each with LENGTH elements, element i being i.
PLACES = {
    "shared": "layout(local_size_x = 1) in;\nshared float a[24];\nvoid main() { FILL READ }",
    "global": "float a[24];\nvoid main() { FILL READ }",
    "local": "void main() { float a[24]; FILL READ }",
    "a parameter": "float pick(float a[24], int i) { return a[i]; }\nvoid main() { float a[24]; FILL x[1] = pick(a, int(x[0])); }",
    "a structure": "struct S { float before; float a[24]; };\nvoid main() { S s; s.before = 99.0;"
    " for (int i = 0; i < 24; ++i) s.a[i] = float(i); x[1] = s.a[int(x[0])]; }",
    "two axes": "void main() { float b[4][6]; for (int i = 0; i < 24; ++i) b[i / 6][i % 6] = float(i);"
    " int i = int(x[0]); x[1] = i >= 0 && i < 24 ? b[i / 6][i % 6] : b[i][i]; }",
    "a vector": "void main() { vec4 v = vec4(0, 1, 2, 3); v[int(x[2])] = 0.0; x[1] = v[int(x[0])]; }",
}
FILL = "for (int i = 0; i < 24; ++i) a[i] = float(i);"


def run(context: pumice.Context, text: str, x: Array, **options: Any) -> Array:
    text = BUFFER + text.replace("FILL", FILL).replace("READ", "x[1] = a[int(x[0])];")
    kernel = pumice.Kernel(text, context=context, **options)
    size = {"groups": 1} if "local_size" in text else {"threads": 1}
    kernel(x=x, timeout=60, **size)
    return x


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("index", [0, 3, LENGTH, LENGTH + 1000, 2_000_000_000, -1, -2_000_000_000])
def test_an_index_outside_of_an_array_takes_its_first_element(context: pumice.Context, place: str, index: int) -> None:
    if context.info.kind != "software" and not 0 <= index < LENGTH:
        pytest.skip("memory on the chip is not the process's there")
    length = 4 if place == "a vector" else LENGTH
    found = run(context, PLACES[place], np.array([index, 77.0, 0, 0], "float32"))
    assert found[1] == (index if 0 <= index < length else 0)


def test_a_write_outside_of_a_shared_array_changes_no_other(context: pumice.Context) -> None:
    if context.info.kind != "software":
        pytest.skip("memory on the chip is not the process's there")
    x = np.array([1e9, 0, 0, 0], "float32")
    text = "layout(local_size_x = 1) in;\nshared float a[24], b[24];\nvoid main() { FILL for (int i = 0; i < 24; ++i) b[i] = -1.0;"
    run(context, text + " a[int(x[0])] = 5.0; b[int(x[0]) + 24] = 6.0; x[1] = a[0]; x[2] = a[1]; x[3] = b[1]; }", x)
    assert x[1:].tolist() == [5.0, 1.0, -1.0]


@pytest.mark.parametrize("where", ["local", "global"])
@pytest.mark.parametrize("floats", [16384 + 1, 1 << 20, 1 << 28])
def test_arrays_of_an_invocation_that_no_driver_stands_are_rejected(
    context: pumice.Context, where: str, floats: int
) -> None:
    declaration = f"float a[{floats}];"
    text = f"void main() {{ {declaration} READ }}" if where == "local" else f"{declaration}\nvoid main() {{ READ }}"
    with pytest.raises(
        pumice.UnsupportedError, match=f"{4 * floats} bytes of variables in each invocation; at most 65536"
    ):
        run(context, text, np.zeros(4, "float32"))


def test_an_array_of_an_invocation_is_measured_with_its_specialization(context: pumice.Context) -> None:
    text = BUFFER + (
        "layout(constant_id = 0) const int N = 16;\n"
        "void main() { float a[N]; for (int i = 0; i < N; ++i) a[i] = float(i); x[1] = a[int(x[0])]; }"
    )
    x = np.array([9, 0], "float32")
    pumice.Kernel(text, context=context)(x=x, threads=1)
    assert x[1] == 9
    with pytest.raises(pumice.UnsupportedError, match="has 40000[0-9] bytes of variables"):
        pumice.Kernel(text, context=context, spec={"N": 100_000})(x=x, threads=1)


UNROLLED = {
    "up": "[[unroll]] for (int i = 0; i < TRIPS; ++i) s += x[i & 3];",
    "down": "[[unroll]] for (int i = TRIPS; i > 0; --i) s += x[i & 3];",
    "unsigned": "[[unroll]] for (uint i = 0u; i != TRIPSu; ++i) s += x[i & 3u];",
    "nested": "[[unroll]] for (int i = 0; i < TRIPS / 1000; ++i) [[unroll]] for (int j = 0; j < 1000; ++j) s += x[(i ^ j) & 3];",
    "with a break": "[[unroll]] for (int i = 0; true; ++i) { if (i == TRIPS) break; s += x[i & 3]; }",
}


@pytest.mark.parametrize("form", UNROLLED)
def test_a_wish_to_unroll_without_end_is_dropped_and_said(
    context: pumice.Context, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fifty thousand iterations are below the limit at which software drivers end a loop."""
    text = "#extension GL_EXT_control_flow_attributes : require\n" + BUFFER
    text += f"void main() {{ float s = 0.0; {UNROLLED[form].replace('TRIPS', '50000')} x[4] = s; }}"
    x = np.array([1, 2, 3, 2, 0], "float32")
    with caplog.at_level("INFO", logger="pumice"):
        pumice.Kernel(text, context=context, name="long")(x=x, threads=1, timeout=60)
    assert x[4] == 100_000
    assert "kernel 'long': the unroll hint of a loop" in caplog.text


def test_a_modest_wish_to_unroll_stays(context: pumice.Context, caplog: pytest.LogCaptureFixture) -> None:
    text = "#extension GL_EXT_control_flow_attributes : require\n" + BUFFER
    text += "void main() { float s = 0.0; [[unroll]] for (int i = 0; i < 200; ++i) s += x[i & 3]; x[4] = s; }"
    x = np.array([1, 2, 3, 2, 0], "float32")
    with caplog.at_level("INFO", logger="pumice"):
        pumice.Kernel(text, context=context)(x=x, threads=1)
    assert x[4] == 400
    assert "unroll" not in caplog.text


def test_a_wrong_index_into_a_tensor_changes_no_other(context: pumice.Context) -> None:
    """Tensors of equal size are adjacent in a shared allocation."""
    if context.info.kind != "software":
        need_features(context, "pipelineRobustness")
    tensors = [pumice.tensor(np.full(64, float(k), "float32"), context) for k in range(8)]
    kernel = pumice.Kernel(
        BUFFER + "void main() { int i = int(gl_GlobalInvocationID.x) - 40000; x[i] = -5.0; x[i + 80000] = -5.0; }",
        context=context,
    )
    kernel(x=tensors[3], threads=80000)
    for k, tensor in enumerate(tensors):
        if k != 3:
            np.testing.assert_array_equal(tensor.numpy(), np.full(64, float(k), "float32"))
