"""Kernels from files: includes, search paths, reloading."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice

KERNEL = """#include "parts/scale.glsl"
layout(binding = 0) buffer Y { float y[]; };
void main() { y[gl_GlobalInvocationID.x] *= scale(); }
"""


def write(path: Path, text: str) -> Path:
    """Write a file with a strictly newer modification time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else None
    path.write_text(text)
    if before is not None:
        os.utime(path, ns=(before + 1_000_000, before + 1_000_000))
    return path


def scale(factor: float) -> str:
    return f"float scale() {{ return float({factor}); }}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "parts/scale.glsl", scale(2))
    return write(tmp_path / "kernel.comp", KERNEL)


def result(kernel: pumice.Kernel) -> float:
    y = np.ones(2, "float32")
    kernel(y=y, threads=2)
    assert y[0] == y[1]
    return float(y[0])


def test_an_include_is_looked_for_beside_the_file(context: pumice.Context, path: Path, monkeypatch: Any) -> None:
    kernel = pumice.Kernel.from_file(path, context)
    assert result(kernel) == 2
    assert (kernel.name, kernel.source) == (str(path), KERNEL)
    monkeypatch.chdir(path.parent)
    assert result(pumice.Kernel.from_file("kernel.comp", context)) == 2


def test_an_include_of_an_include_is_looked_for_beside_it(context: pumice.Context, path: Path) -> None:
    write(
        path.parent / "parts/scale.glsl",
        '#include "inner.glsl"\n#include "../top.glsl"\nfloat scale() { return INNER + TOP; }',
    )
    write(path.parent / "parts/inner.glsl", "#define INNER 3.0\n")
    write(path.parent / "inner.glsl", "#error the wrong file\n")
    write(path.parent / "top.glsl", "#define TOP 4.0\n")
    assert result(pumice.Kernel.from_file(path, context)) == 7


def test_folders_are_looked_into_in_order_and_after_the_dict(context: pumice.Context, tmp_path: Path) -> None:
    for name, factor in (("first", 3), ("second", 4)):
        write(tmp_path / name / "parts/scale.glsl", scale(factor))
    folders = [tmp_path / "empty", tmp_path / "first", tmp_path / "second"]
    assert result(pumice.Kernel(KERNEL, context, include_dirs=folders)) == 3
    assert result(pumice.Kernel(KERNEL, context, include_dirs=folders[::-1])) == 4
    assert result(pumice.Kernel(KERNEL, context, include_dirs=folders, includes={"parts/scale.glsl": scale(5)})) == 5
    beside = write(tmp_path / "kernel.comp", KERNEL)
    write(tmp_path / "parts/scale.glsl", scale(6))
    kernel = pumice.Kernel.from_file(beside, context, include_dirs=folders, includes={"parts/scale.glsl": scale(5)})
    assert result(kernel) == 6


def test_compile_looks_into_folders(tmp_path: Path) -> None:
    write(tmp_path / "parts/scale.glsl", scale(3))
    assert pumice.compile(KERNEL, include_dirs=[str(tmp_path)]).interface["bindings"][0]["name"] == "y"


def test_a_missing_include_says_where_it_was_looked_for(context: pumice.Context, path: Path) -> None:
    (path.parent / "parts/scale.glsl").unlink()
    with pytest.raises(pumice.ShaderCompileError) as caught:
        pumice.Kernel.from_file(path, context, include_dirs=[path.parent / "elsewhere"], includes={"other": ""})
    message = str(caught.value)
    assert message.startswith(f"{path}:1:")
    for part in (
        "'parts/scale.glsl' was not found",
        f"'{path.parent}/parts/scale.glsl'",
        f"folder '{path.parent}/elsewhere'",
        "includes",
    ):
        assert part in message
    with pytest.raises(pumice.ShaderCompileError, match="'parts/scale.glsl' was not found: no includes and no folders"):
        pumice.Kernel(KERNEL, context)


def test_a_folder_is_no_include(context: pumice.Context, path: Path) -> None:
    (path.parent / "parts/scale.glsl").unlink()
    (path.parent / "parts/scale.glsl").mkdir()
    with pytest.raises(pumice.ShaderCompileError, match="was not found"):
        pumice.Kernel.from_file(path, context)


@pytest.mark.parametrize(
    "text", ['#include "scale.glsl"\n', '#include "../kernel.comp"\n', '#include "./../parts/scale.glsl"\n']
)
def test_a_loop_of_includes_is_an_error(context: pumice.Context, path: Path, text: str) -> None:
    write(path.parent / "parts/scale.glsl", text)
    with pytest.raises(pumice.ShaderCompileError, match="does a file include itself"):
        pumice.Kernel.from_file(path, context)


def test_errors_name_the_file_that_has_them(context: pumice.Context, path: Path) -> None:
    write(path.parent / "parts/scale.glsl", "// a comment\nfloat scale() { return q; }\n")
    with pytest.raises(pumice.ShaderCompileError) as caught:
        pumice.Kernel.from_file(path, context)
    assert str(caught.value).startswith(f"{path.parent}/parts/scale.glsl:2:24: 'q'")
    write(path, "void main() {\n  oops;\n}\n")
    with pytest.raises(pumice.ShaderCompileError) as caught:
        pumice.Kernel.from_file(path, context)
    assert str(caught.value).startswith(f"{path}:2:3: 'oops'")


def test_a_file_that_is_not_there_is_an_error(context: pumice.Context, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing.comp"):
        pumice.Kernel.from_file(tmp_path / "nothing.comp", context)


def test_messages_and_bounds_name_the_included_file(context: pumice.Context, path: Path) -> None:
    write(path.parent / "parts/scale.glsl", 'float scale() {\n  printf("here");\n  return 2.0;\n}\n')
    kernel = pumice.Kernel.from_file(path, context, debug=True)
    with pytest.raises(pumice.OutOfBoundsError) as caught:
        kernel(y=np.ones(1, "float32"), threads=2)
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    assert {(m.file, m.line) for m in kernel.messages} == {(str(path.parent / "parts/scale.glsl"), 2)}


# ---- reloading


def test_a_changed_file_is_compiled_anew(context: pumice.Context, path: Path) -> None:
    kernel, still = pumice.Kernel.from_file(path, context, reload=True), pumice.Kernel.from_file(path, context)
    assert result(kernel) == 2
    write(path.parent / "parts/scale.glsl", scale(5))
    assert (result(kernel), result(still)) == (5, 2)
    write(path, KERNEL.replace("*=", "+="))
    assert (result(kernel), result(still)) == (6, 2)
    assert "+=" in kernel.source
    still.reload()
    assert result(still) == 6


def test_what_a_changed_file_includes_is_watched_too(context: pumice.Context, path: Path) -> None:
    kernel = pumice.Kernel.from_file(path, context, reload=True)
    write(path.parent / "parts/scale.glsl", '#include "more.glsl"\nfloat scale() { return MORE; }\n')
    write(path.parent / "parts/more.glsl", "#define MORE 8.0\n")
    assert result(kernel) == 8
    write(path.parent / "parts/more.glsl", "#define MORE 9.0\n")
    assert result(kernel) == 9


def test_an_include_that_comes_back_or_comes_first_is_seen(context: pumice.Context, path: Path) -> None:
    folders = [path.parent / "first", path.parent / "second"]
    (path.parent / "parts/scale.glsl").unlink()
    write(folders[1] / "parts/scale.glsl", scale(4))
    kernel = pumice.Kernel.from_file(path, context, reload=True, include_dirs=folders)
    assert result(kernel) == 4
    write(folders[0] / "parts/scale.glsl", scale(3))
    assert result(kernel) == 3
    for folder in folders:
        (folder / "parts/scale.glsl").unlink()
    assert result(kernel) == 3
    write(folders[1] / "parts/scale.glsl", scale(5))
    assert result(kernel) == 5


def test_a_broken_change_warns_once_and_leaves_the_kernel(
    context: pumice.Context, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = pumice.Kernel.from_file(path, context, reload=True, name="mine")

    def warnings() -> list[str]:
        said = [one.getMessage() for one in caplog.records if one.name == "pumice" and one.levelname == "WARNING"]
        caplog.clear()
        return said

    write(path.parent / "parts/scale.glsl", '#include "broken.glsl"\n' + scale(7))
    write(path.parent / "parts/broken.glsl", "nonsense;\n")
    assert [result(kernel) for _ in range(3)] == [2, 2, 2]
    (said,) = warnings()
    assert "kernel 'mine' is unchanged" in said and "parts/broken.glsl:1:" in said
    with pytest.raises(pumice.ShaderCompileError):
        kernel.reload()
    assert result(kernel) == 2
    write(path.parent / "parts/broken.glsl", "worse;\n")
    assert [result(kernel), result(kernel), len(warnings())] == [2, 2, 1]
    write(path.parent / "parts/broken.glsl", "\n")
    assert [result(kernel), warnings()] == [7, []]
    path.unlink()
    assert [result(kernel), result(kernel)] == [7, 7]
    (said,) = warnings()
    assert "No such file" in said
    write(path, KERNEL.replace("*=", "-="))
    assert [result(kernel), warnings(), kernel.name] == [-6, [], "mine"]


def test_a_kernel_of_a_file_may_have_a_name(context: pumice.Context, path: Path) -> None:
    kernel = pumice.Kernel.from_file(path, context, name="scaler")
    assert (kernel.name, result(kernel)) == ("scaler", 2)
    assert "Kernel 'scaler'" in repr(kernel)
    write(path, KERNEL.replace("scale()", "wrong()"))
    with pytest.raises(pumice.ShaderCompileError, match=rf"{path}:3:"):
        kernel.reload()


def test_nothing_is_compiled_while_nothing_changes(context: pumice.Context, path: Path) -> None:
    kernel = pumice.Kernel.from_file(path, context, reload=True)
    result(kernel)
    before = pumice.compile_counts()
    for _ in range(5):
        result(kernel)
    after = pumice.compile_counts()
    assert (after.compiled, after.from_memory) == (before.compiled, before.from_memory)


def test_bind_uses_the_new_source_and_bound_kernels_keep_theirs(context: pumice.Context, path: Path) -> None:
    kernel = pumice.Kernel.from_file(path, context, reload=True)
    y = pumice.tensor(np.ones(1, "float32"), context=context)
    bound = kernel.bind(y=y, threads=1)
    write(path.parent / "parts/scale.glsl", scale(10))
    commands = pumice.CommandList(context)
    for one in (bound, kernel.bind(y=y, threads=1)):
        commands.dispatch(one)
    commands.commit()
    commands.exec().wait()
    assert np.asarray(y)[0] == 20


def test_options_of_a_kernel_stay_when_it_is_reloaded(context: pumice.Context, path: Path) -> None:
    write(path.parent / "parts/scale.glsl", "float scale() { return FACTOR; }\n")
    kernel = pumice.Kernel.from_file(path, context, reload=True, macros={"FACTOR": "3.0"}, debug=True)
    write(path, KERNEL + "\n")
    assert result(kernel) == 3
    with pytest.raises(pumice.OutOfBoundsError):
        kernel(y=np.ones(1, "float32"), threads=2)


def test_a_kernel_from_a_source_string_cannot_be_reloaded(context: pumice.Context) -> None:
    kernel = pumice.Kernel("layout(binding = 0) buffer Y { float y[]; };\nvoid main() { y[0] = 1.0; }", context)
    with pytest.raises(pumice.StateError, match="was not loaded from a file"):
        kernel.reload()
