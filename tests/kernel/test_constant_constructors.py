"""Constructors of 8- and 16-bit types with and without arithmetic on them: constants convert like variables.

glslang folds float16_t(72) to 0 and int8_t(7.5) to 0 if the source enables only the storage extension.
"""

from __future__ import annotations

import numpy as np
import pytest

import pumice

SOURCE = """
layout(binding = 0) writeonly buffer Y {{ {type} y[]; }};
layout(push_constant) uniform P {{ int n; uint u; float f; }};
{before}
void main() {{ if (gl_GlobalInvocationID.x == 0u) y[0] = {value}; }}
"""
WITHOUT_ARITHMETIC = {"fp16_arithmetic": False, "int16": False, "int8": False, "int8_arithmetic": False}
CONSTANTS = {
    "72": 72,
    "72u": 72,
    "-3": -3,
    "7.5": 7.5,
    "true": 1,
    "3 * 5": 15,
    "K": 9,
    "int64_t(5)": 5,
    "2.5lf": 2.5,
    "int16_t(6)": 6,
    "uint8_t(200u)": 200,
    "n": 41,
    "u": 42,
    "f": 43.5,
}
SCALARS = {"float16_t": "float16", "int8_t": "int8", "uint8_t": "uint8", "int16_t": "int16", "uint16_t": "uint16"}
VECTORS = {"f16vec": "float16", "i8vec": "int8", "u8vec": "uint8", "i16vec": "int16", "u16vec": "uint16"}


def stored(kind: str, value: str, dtype: str, options: dict[str, bool]) -> np.ndarray:
    """Return an array after a kernel stored `value` in its first element or vector."""
    before = "const int K = 9;" if "K" in value else ""
    y = np.full(4, 99, dtype)
    try:
        kernel = pumice.Kernel(SOURCE.format(type=kind, value=value, before=before), options=options)
        kernel(y=y, n=41, u=42, f=43.5, threads=1)
    except pumice.UnsupportedError as error:
        pytest.skip(str(error))
    return y


def expected(value: float, dtype: str) -> np.ndarray:
    return np.asarray(value).astype("float64" if dtype == "float16" else "int64").astype(dtype)


@pytest.mark.parametrize("options", [{}, WITHOUT_ARITHMETIC], ids=["default", "storage alone"])
@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("kind", SCALARS)
def test_a_scalar_constructor_converts(kind: str, constant: str, options: dict[str, bool]) -> None:
    if kind.startswith("u") and constant == "-3":
        pytest.skip("GLSL leaves negative numbers in unsigned types undefined for floats")
    y = stored(kind, f"{kind}({constant})", SCALARS[kind], options)
    assert y[0] == expected(CONSTANTS[constant], SCALARS[kind]), (kind, constant, y)


@pytest.mark.parametrize("options", [{}, WITHOUT_ARITHMETIC], ids=["default", "storage alone"])
@pytest.mark.parametrize("argument", ["7", "ivec2(7, 2)", "uvec2(7, 2)", "vec2(7.5, 2)", "bvec2(true, false)"])
@pytest.mark.parametrize("kind", VECTORS)
def test_a_vector_constructor_converts(kind: str, argument: str, options: dict[str, bool]) -> None:
    y = stored(f"{kind}2", f"{kind}2({argument})", VECTORS[kind], options)
    wanted = {"7": [7, 7], "vec2(7.5, 2)": [7.5, 2], "bvec2(true, false)": [1, 0]}.get(argument, [7, 2])
    assert list(y[:2]) == [expected(value, VECTORS[kind]) for value in wanted]


def test_a_source_that_switches_arithmetic_on_has_its_own_constructors() -> None:
    source = "#extension GL_EXT_shader_explicit_arithmetic_types_float16 : enable\n" + SOURCE.format(
        type="f16vec2", value="f16vec2(3, float16_t(n))", before=""
    )
    compiled = pumice.compile(source, pumice.ShaderOptions(fp16_arithmetic=False, storage_16bit=True))
    assert compiled.spirv


@pytest.mark.parametrize("arithmetic", [True, False])
@pytest.mark.parametrize("kind", [*SCALARS, *(f"{vector}2" for vector in VECTORS)])
def test_arrays_that_the_device_cannot_store_are_refused_by_the_feature(kind: str, arithmetic: bool) -> None:
    """Without any of the type's extensions, glslang reports only a syntax error at its name."""
    storage = "storageBuffer8BitAccess" if "8" in kind else "storageBuffer16BitAccess"
    computing = "shaderInt8" if "8" in kind else "shaderFloat16" if kind.startswith("f") else "shaderInt16"
    context = pumice.Context(without=[storage] if arithmetic else [storage, computing])
    source = SOURCE.format(type=kind, value=f"{kind}(3)", before="")
    with pytest.raises(pumice.UnsupportedError, match=storage):
        pumice.Kernel(source, context=context)
