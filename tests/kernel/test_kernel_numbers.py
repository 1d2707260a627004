"""Values of push constants and specialization constants: every type, its range, shapes, and invalid values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pumice
from features import need_features

EXTENSIONS = "#extension GL_EXT_shader_explicit_arithmetic_types : require\n"
FLOATS = {"float16_t": "float16", "float": "float32", "double": "float64"}
INTEGERS = {f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
FEATURES = {
    "float16_t": ["shaderFloat16", "storagePushConstant16"],
    "double": ["shaderFloat64"],
    "int8_t": ["shaderInt8", "storagePushConstant8"],
    "uint16_t": ["shaderInt16", "storagePushConstant16"],
}


def echo(context: pumice.Context, glsl: str) -> pumice.Kernel:
    """Return a kernel that writes the bits of its push constant."""
    bits = {"float16_t": "float16BitsToUint16", "float": "floatBitsToUint", "double": "doubleBitsToUint64"}
    word = f"uint64_t({bits.get(glsl, '')}(p.v))"
    text = (
        f"{EXTENSIONS}layout(local_size_x = 1) in;\nlayout(binding = 0) buffer Y {{ uint64_t y[]; }};\n"
        f"layout(push_constant) uniform P {{ {glsl} v; }} p;\nvoid main() {{ y[0] = {word}; }}"
    )
    need_features(context, *(feature for key, names in FEATURES.items() if key in glsl for feature in names))
    return pumice.Kernel(text, context)


def stored(kernel: pumice.Kernel, value: Any, dtype: str) -> Any:
    y = np.zeros(1, "uint64")
    kernel(v=value, y=y, groups=1)
    return y.view(dtype)[0]


@pytest.mark.parametrize("glsl", INTEGERS)
def test_integers_have_their_whole_range(context: pumice.Context, glsl: str) -> None:
    kernel, dtype = echo(context, glsl), INTEGERS[glsl]
    info = np.iinfo(dtype)
    for value in (
        info.min,
        info.max,
        np.dtype(dtype).type(info.max),
        np.array(info.max, dtype),
        0,
        1.0,
        True,
        np.True_,
    ):
        assert int(stored(kernel, value, dtype)) == int(value)
    for value in (info.min - 1, info.max + 1, 0.5, float("nan"), float("inf"), 2**64, -(2**63) - 1, 1e300):
        with pytest.raises(pumice.BindingError) as caught:
            stored(kernel, value, dtype)
        assert caught.value.rule == "K6" and "'v'" in str(caught.value)


@pytest.mark.parametrize("glsl", FLOATS)
def test_floats_are_rounded_once_and_never_overflow(context: pumice.Context, glsl: str) -> None:
    kernel, dtype = echo(context, glsl), np.dtype(FLOATS[glsl])
    info = np.finfo(dtype)
    between = 1 + float(info.eps) / 2 + (2**-40 if glsl == "float16_t" else 0)  # float32 would round it to the tie
    for value in (0.1, -0.0, between, float(info.max), np.inf, -np.inf, 3, np.float16(1.5), np.longdouble(2), np.int8(-3), True,
                  np.array(2.5), Fraction(1, 3), ml_dtypes.bfloat16(1.25), np.longdouble("-inf")):  # fmt: skip
        expected = np.array(float(value)).astype(dtype)
        assert stored(kernel, value, dtype.name).tobytes() == expected.tobytes(), value
    assert np.isnan(stored(kernel, float("nan"), dtype.name))
    too_large = [np.longdouble("1e400"), Fraction(10**400), 10**400]
    for value in [*too_large, *([] if glsl == "double" else [float(info.max) * 2])]:
        with pytest.raises(pumice.BindingError) as caught:
            stored(kernel, value, dtype.name)
        assert caught.value.rule == "K6"


@pytest.mark.parametrize(
    "value", ["1", 1j, np.complex64(1), np.timedelta64(1, "s"), np.datetime64("2020"), None, object(), np.array("x")]
)
def test_what_is_no_number_is_rejected(context: pumice.Context, value: Any) -> None:
    with pytest.raises(pumice.BindingError) as caught:
        stored(echo(context, "float"), value, "float32")
    assert caught.value.rule == "K5"


@pytest.mark.parametrize("glsl", FEATURES)
def test_a_type_that_a_device_lacks_is_named_with_its_feature(context: pumice.Context, glsl: str) -> None:
    echo(context, glsl)
    source = (
        f"{EXTENSIONS}layout(local_size_x = 1) in;\nlayout(binding = 0) buffer Y {{ float y[]; }};\n"
        f"layout(push_constant) uniform P {{ {glsl} v; }} p;\nvoid main() {{ y[0] = float(p.v * p.v); }}"
    )
    for feature in FEATURES[glsl]:
        with (
            pumice.Context(f"uuid:{context.info.uuid}", without=[feature]) as masked,
            pytest.raises(pumice.UnsupportedError, match=feature),
        ):
            pumice.Kernel(source, masked)


GRID = """
layout(local_size_x = 1) in;
layout(binding = 0) buffer Y { float y[]; };
layout(push_constant) uniform P { float m[2][3]; mat2 turns[2]; } p;
void main() {
  for (uint i = 0u; i < 6u; ++i) y[i] = p.m[i / 3u][i % 3u];
  for (uint i = 0u; i < 8u; ++i) y[6u + i] = p.turns[i / 4u][i / 2u % 2u][i % 2u];
}
"""


@pytest.mark.parametrize("as_array", [False, True])
def test_arrays_of_arrays_and_of_matrices(context: pumice.Context, as_array: bool) -> None:
    kernel, y = pumice.Kernel(GRID, context), np.zeros(14, "float32")
    shapes = {one["name"]: one["shape"] for one in kernel.shader.interface["push_constants"]}
    assert (shapes["m"], shapes["turns"]) == ((2, 3), (2, 2, 2))
    m, turns = np.arange(6.0).reshape(2, 3), np.arange(6.0, 14).reshape(2, 2, 2)
    kernel(m=m if as_array else m.tolist(), turns=turns if as_array else [list(one) for one in turns], y=y, groups=1)
    np.testing.assert_array_equal(y, np.arange(14))
    kernel(m=m.ravel(), turns=turns.ravel().tolist(), y=y, groups=1)
    for wrong, said in (
        (m.T, "expected 2 x 3 numbers .float32.; given 3 x 2 numbers"),
        ([[1, 2, 3], [4, 5]], "equal length on each level"),
        ([[1, 2, 3], 4], "equal length on each level"),
        ([1, [2, 3]], "equal length on each level"),
        (m[None], "given 1 x 2 x 3 numbers"),
        (np.zeros((2, 2)), "given 2 x 2 numbers"),
        (1, "given a number"),
    ):
        with pytest.raises(pumice.BindingError, match=said):
            kernel(m=wrong, turns=turns, y=y, groups=1)


def test_names_of_the_launch_go_in_a_dict(context: pumice.Context) -> None:
    kernel = pumice.Kernel(
        "layout(binding = 0) buffer Y { uint y[]; };\nlayout(push_constant) uniform P { uint threads, lambda; } p;\n"
        "void main() { y[gl_GlobalInvocationID.x] = p.threads + p.lambda; }",
        context,
    )
    y = np.zeros(4, "uint32")
    kernel({"threads": 7, "lambda": 10}, y=y, threads=2)
    assert y.tolist() == [17, 17, 0, 0]
    kernel.bind({"threads": 7, "lambda": 10, "y": pumice.tensor(y, context)}, threads=2)
    with pytest.raises(
        pumice.BindingError, match=r'its value in a dict.*kernel\(\{"threads": value\}, threads='
    ) as caught:
        kernel(y=y, threads=2, **{"lambda": 1})
    assert caught.value.rule == "K3"
    for wrong, said in (({1: 2}, "names of arguments"), ({"y": y}, "two of them")):
        with pytest.raises(pumice.BindingError, match=said):
            kernel({"threads": 7, "lambda": 10, **wrong}, y=y, threads=2)
    with pytest.raises(pumice.BindingError, match="or one dict of them; given ndarray"):
        kernel(y, threads=2)


SPEC = """
layout(local_size_x = 1) in;
layout(constant_id = 0) const bool WIDE = false;
layout(constant_id = 1) const int N = 4;
layout(constant_id = 2) const uint U = 1;
layout(constant_id = 3) const float F = 0.5;
layout(binding = 0) buffer Y { float y[]; };
void main() { y[0] = WIDE ? 1.0 : 0.0; y[1] = float(N); y[2] = float(U); y[3] = F; }
"""


def test_specialization_constants_have_their_kind_and_range(context: pumice.Context) -> None:
    y = np.zeros(4, "float32")
    spec = {"WIDE": np.True_, "N": np.int64(-(2**31)), "U": 2**32 - 1, "F": np.float16(0.25)}
    pumice.Kernel(SPEC, context, spec=spec)(y=y, groups=1)
    np.testing.assert_array_equal(y, np.array([1, -(2**31), 2**32 - 1, 0.25], "float32"))
    types = {one["name"]: one["type"] for one in pumice.compile(SPEC).interface["spec_constants"]}
    assert types == {"WIDE": "bool", "N": "int32", "U": "uint32", "F": "float32"}
    wrong: list[tuple[dict[Any, Any], str]] = [
        ({"WIDE": 2}, "a bool, or 0 or 1; given 2"),
        ({"WIDE": -1}, "given -1"),
        ({"N": 2**31}, "int32 can hold; given 2147483648"),
        ({"N": 1.5}, "given 1.5"),
        ({"U": -1}, "given -1"),
        ({"F": 1e300}, "given 1e\\+300"),
        ({"N": "4"}, "given str"),
        ({"N": [4]}, "given list"),
        ({"M": 1}, "one of WIDE, N, U, F; given M"),
        ({4: 1}, "names of constants; given 4"),
    ]
    for given, said in wrong:
        with pytest.raises(pumice.BindingError, match=said):
            pumice.Kernel(SPEC, context, spec=given)
