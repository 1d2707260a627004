"""Compilation without a device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pumice

SHADERS = Path(__file__).parents[2] / "shaders"

BODY = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 1.25; }"


@pytest.mark.parametrize(
    "start", ["", "layout(local_size_x = 1) in;\n", "#version 450\nlayout(local_size_x = 1) in;\n"]
)
@pytest.mark.parametrize("end", ["", "\n", " ", " // the end", "\n#define LAST 1", "\r\n"])
def test_a_source_may_end_anyhow(start: str, end: str) -> None:
    assert pumice.compile(start + BODY + end, name=f"ends {start!r} {end!r}").interface["bindings"][0]["name"] == "x"


def test_an_include_may_end_without_a_new_line() -> None:
    shader = pumice.compile('#include "part"\nvoid main() { x[0] = 1.0; }', includes={"part": BODY.partition("\n")[0]})
    assert shader.interface["bindings"][0]["name"] == "x"


@pytest.mark.parametrize("before", ["#", " \t#\t ", "#/* a */", "# /* a\nb */ ", "#\\\n", "#\\\n  ", "/* a */ # "])
def test_a_directive_is_found_however_it_is_spaced(before: str) -> None:
    text = f'{before}version 460\n{before}include "part"\nvoid main() {{ x[0] = 1.0; }}'
    shader = pumice.compile(text, includes={"part": BODY.partition("\n")[0]})
    assert shader.interface["bindings"][0]["name"] == "x"
    assert shader.preamble.startswith("#version 460")


@pytest.mark.parametrize("line", ['// include "part"', '/* #\ninclude "part" */', "int include = 1, version = 2;"])
def test_directive_names_elsewhere_are_no_directives(line: str) -> None:
    shader = pumice.compile(f"{line}\n{BODY}", includes={"part": "#error included"})
    assert shader.preamble.startswith("#version 450\n")


def test_an_included_source_that_changes_is_read_again() -> None:
    """Cached information about a source is keyed by its content, not its name."""
    for member in ("x", "z"):
        part = BODY.partition("\n")[0].replace("x[]", f"{member}[]")
        shader = pumice.compile(f'#include "part"\nvoid main() {{ {member}[0] = 1.0; }}', includes={"part": part})
        assert shader.interface["bindings"][0]["name"] == member


@pytest.mark.parametrize("signed", ["0", "1"])
@pytest.mark.parametrize("zero", ["0", "1"])
def test_the_kernel_of_integer_matrices_compiles_where_no_device_has_them(signed: str, zero: str) -> None:
    macros = {"X_SIGNED": signed, "W_SIGNED": signed, "X_ZERO": zero, "W_ZERO": zero, "Y_VEC4": signed, "X_UNIT": "16u"}
    sums = "1" if zero == "1" or signed == "0" else "0"
    source = (SHADERS / "gemm_int8.comp").read_text()
    shader = pumice.compile(source, macros={**macros, "ADD_X_SUMS": sums, "ADD_W_SUMS": sums}, name="gemm_int8")
    assert "CooperativeMatrixKHR" in shader.interface["capabilities"]


@pytest.mark.parametrize("masked", ["0", "1", "2"])
def test_coopmat_attention_compiles_without_a_coopmat_device(masked: str) -> None:
    macros = {
        "MASKED": masked,
        "HAS_KV_LENGTHS": "1",
        "ZERO_EMPTY": "1",
        "VEC4": "1",
        "Y_VEC4": "1",
        "SPLIT_KEYS": "0",
        "SUBGROUP": "32u",
    }
    macros |= {"MASK_VISIBLE": "true", "MASKED_SCORE": "minus_infinity"}
    source = (SHADERS / "attention_coopmat.comp").read_text()
    options = pumice.ShaderOptions(storage="fp16")
    shader = pumice.compile(source, options, macros=macros, include_dirs=[str(SHADERS)], name="attention_coopmat")
    assert "CooperativeMatrixKHR" in shader.interface["capabilities"]


@pytest.mark.parametrize("storage", ["fp32", "fp16", "fp16_packed", "bf16_packed"])
def test_the_kernel_of_columns_compiles_where_no_device_takes_it(storage: str) -> None:
    macros = {"MATRIX": "1", "HAS_BIAS": "1", "SUBGROUP": "32u"}
    source = (SHADERS / "gemv_col_major.comp").read_text()
    options = pumice.ShaderOptions(storage=storage)
    shader = pumice.compile(source, options, macros=macros, include_dirs=[str(SHADERS)], name="gemv_col_major")
    assert shader.interface["local_size"] == (256, 1, 1)


@pytest.mark.parametrize("bias", ["0", "1", "2"])
@pytest.mark.parametrize("vectors", ["0", "1"])
def test_the_mma_kernel_compiles_without_a_coopmat_device(vectors: str, bias: str) -> None:
    macros = {"MATRIX": "1", "Y_VEC4": vectors, "HAS_BIAS": bias, "EPILOGUE(x)": "x"}
    source = (SHADERS / "gemm_mma.comp").read_text()
    options = pumice.ShaderOptions(storage="fp16", fp16_arithmetic=True)
    shader = pumice.compile(source, options, macros=macros, include_dirs=[str(SHADERS)], name="gemm_mma")
    assert "CooperativeMatrixKHR" in shader.interface["capabilities"]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("matrix", "bias"), [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1"), ("1", "2")])
def test_the_coopmat_kernel_compiles_without_a_coopmat_device(matrix: str, bias: str, grouped: bool) -> None:
    macros = {"MATRIX": matrix, "Y_VEC4": "1", "HAS_BIAS": bias, "EPILOGUE(x)": "x"}
    macros |= {"X_GROUPED": "1", "Y_GROUPED": "1"} if grouped else {}
    source = (SHADERS / "conv_coopmat.comp").read_text()
    options = pumice.ShaderOptions(storage="fp16")
    shader = pumice.compile(source, options, macros=macros, include_dirs=[str(SHADERS)], name="conv_coopmat")
    assert "CooperativeMatrixKHR" in shader.interface["capabilities"]


@pytest.mark.parametrize("path", pumice._pumice.embedded_shaders())
def test_an_embedded_source_is_its_file_without_comments(path: str) -> None:
    """Line numbers are preserved for error messages."""
    assert pumice._pumice.embedded_shader(path) == re.sub("[ \t]*//.*", "", (SHADERS / path).read_text())
