"""docs/adding_an_operator.md: its steps add an operator of each kind, and edit as many files as it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

import pumice
from process import python

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding_an_operator.md").read_text()
KINDS = ("elementwise operator", "reduction", "operator with its own kernel", "operator that becomes other nodes")
COUNTS = dict(zip(KINDS, (2, 2, 3, 2), strict=True))
(DEFINITION,) = re.findall(r'^\.definition = ("c = .*")$', PAGE, re.MULTILINE)


class Step(NamedTuple):
    """A file that a section of the page quotes, and the code that it quotes."""

    path: str
    code: str


def table() -> dict[str, tuple[int, str]]:
    """Return the number of files and the anchor of the section of each kind of operator in the page's table."""
    rows = re.findall(r"^\| \[([^]]+)\]\(#([\w-]+)\) \| (\d): ", PAGE, re.MULTILINE)
    return {kind: (int(count), anchor) for kind, anchor, count in rows}


def steps(kind: str) -> list[Step]:
    """Return the steps of the section of that kind."""
    sections = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)[1:]
    anchors = [heading.lower().replace(" ", "-") for heading in sections[::2]]
    section = sections[1::2][anchors.index(table()[kind][1])]
    return [Step(*found) for found in re.findall(r"In\s`([^`]+)`:\n\n```\w+\n(.*?)^```", section, re.M | re.S)]


def replaced(*pairs: tuple[str, str]) -> Callable[[str], str]:
    """Return a function that replaces texts, each of which must occur, by others."""

    def replace(code: str) -> str:
        for old, new in pairs:
            assert old in code, f"{old!r} is not in the page's code:\n{code}"
            code = code.replace(old, new)
        return code

    return replace


def without_evaluation(code: str) -> str:
    return re.sub(r",\s*\.evaluate = \w+|\.evaluate = \w+,\s*", "", code)


REWRITE = """
def _rewrite_tanh_square(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    return writer.finish_with("Mul", node.inputs[0], writer.add("Tanh", writer.add("Mul", *node.inputs * 2)))
"""
REST = "t = Trilu <upper: int = @upper> (x, k) y = Sub (x, t)"
CUBES = (
    "a = Mul (x, x) b = Mul (a, x) y = ReduceSum "
    "<keepdims: int = @keepdims, noop_with_empty_axes: int = @noop_with_empty_axes> (b, axes)"
)
# Invented operators, and what their steps make of the code that the page quotes.
NAMES = dict(zip(KINDS, ("TanhGate", "ReduceCubes", "TriluRest", "TanhSquare"), strict=True))
EDITS: dict[str, list[Callable[[str], str]]] = {
    "elementwise operator": [
        replaced(
            ('"Swish"', '"pumice::TanhGate"'),
            ("x * sigmoid(alpha * x)", "x * tanh(alpha * x)"),
            ("));", f"));\nrows.back().schema.definition = {DEFINITION};"),
        ),
        replaced(('"Swish"', '"pumice::TanhGate"')),
    ],
    "reduction": [
        replaced(("kSquareFold", "constexpr ReductionFold kCubeFold"), ("s + v * v", "s + v * v * v")),
        replaced(
            ('"ReduceSumSquare"', '"pumice::ReduceCubes"'),
            ("kSquareFold", "kCubeFold"),
            ("},", f', .definition = "{CUBES}"}},'),
        ),
        lambda code: re.sub(r"in \(.*\):", 'in ("pumice::ReduceCubes",):', code),
    ],
    "operator with its own kernel": [
        replaced(("lower_trilu", "lower_trilu_rest"), ("trilu.comp", "trilu_rest.comp"), ("of Trilu", "of TriluRest")),
        lambda code: replaced(
            ('"Trilu"', '"pumice::TriluRest"'),
            ("lower_trilu", "lower_trilu_rest"),
            (".min_rank = 2", f'.min_rank = 2, .definition = "{REST}"'),
        )(without_evaluation(code)),
        replaced(("LOAD(x, p.x_offset + id) : ELEMENT(0)", "ELEMENT(0) : LOAD(x, p.x_offset + id)")),
        replaced(('"Trilu"', '"pumice::TriluRest"')),
    ],
    "operator that becomes other nodes": [
        lambda code: REWRITE,
        replaced(("QuickGelu", "TanhSquare"), ("quick_gelu", "tanh_square")),
        replaced(
            ("QuickGelu", "TanhSquare"), ("{}, alpha=0.5", "{}, reference=lambda x: (x * np.tanh(x * x)).astype('f')")
        ),
    ],
}


def apply(kind: str, tree: Path) -> set[Path]:
    """Apply the page's steps for the invented operator of that kind to a tree. Return the files that are new or changed."""
    edited = set()
    for step, edit in zip(steps(kind), EDITS[kind], strict=True):
        file = tree / step.path
        text = file.read_text()
        # Indentation and line breaks of the file may differ from those of the page.
        pattern = r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", step.code)))
        (found,) = re.finditer(pattern, text)
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        if step.path.startswith("shaders/"):  # a new file
            file = file.with_name("trilu_rest.comp")
            text = text[: found.start()] + edit(step.code) + text[found.end() :]
        else:
            indent = line[: len(line) - len(line.lstrip())]
            code = "\n".join(f"{indent}{each}".rstrip() for each in edit(step.code).rstrip().splitlines())
            comma = "," if text[found.end()] == "," else ""  # the page shows an item of a list without it
            end = found.end() + len(comma)
            text = f"{text[:end]}\n{code}{comma}{text[end:]}"
        file.write_text(text)
        edited.add(file.relative_to(tree))
    return edited


def copy_tree(target: Path) -> Path:
    """Copy the repository's files to a folder."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git repository, whose files could be copied")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def changed_files(tree: Path, names: Iterable[str]) -> set[Path]:
    """Return the files among these folders of the tree that differ from the repository's, or are not in it."""
    found = (path for name in names for path in (tree / name).rglob("*") if "__pycache__" not in path.parts)
    files = {path.relative_to(tree) for path in found if path.is_file()}
    return {
        path for path in files if not (ROOT / path).exists() or (tree / path).read_bytes() != (ROOT / path).read_bytes()
    }


def test_the_page_has_the_numbers_of_files() -> None:
    assert {kind: count for kind, (count, _) in table().items()} == COUNTS
    for kind in KINDS:
        assert len({step.path for step in steps(kind)}) == COUNTS[kind], kind
        assert len(steps(kind)) == len(EDITS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_edit_so_many_files(kind: str, tmp_path: Path) -> None:
    for step in steps(kind):
        (tmp_path / step.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / step.path, tmp_path / step.path)
    edited = apply(kind, tmp_path)
    assert len(edited) == COUNTS[kind]
    assert edited == changed_files(tmp_path, ["."])


def run_tests(tree: Path, site: Path, *arguments: str) -> str:
    """Run tests of a tree with the package in a folder. Return their output, of tests that passed."""
    path = os.pathsep.join(map(str, (site, tree / "tests" / "support", tree / "tests")))
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q"]
    done = python("-m", "pytest", *options, *arguments, cwd=tree, seconds=1800, PYTHONPATH=path)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


PROVE = """
import numpy as np, onnx, pumice
from onnx import helper
domain, op, right = {domain!r}, {op!r}, {right!r}
x = np.linspace(-1, 2, 35, dtype=np.float32).reshape(5, 7)
value = helper.make_tensor_value_info("x", 1, [5, 7])
graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], domain=domain)], "g", [value], [onnx.ValueInfoProto(name="y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24), helper.make_opsetid(domain, 1)])
with pumice.load(model) as loaded:
    y = np.array(loaded(x))
np.testing.assert_allclose(y, eval(right), rtol=1e-5, atol=1e-5)
for precision in ("fp32", "fp16", "bf16"):
    pumice.validate(model, [(x,)], precision=precision).raise_if_failed()
y.flat[-1] += 0.01 * max(1, abs(y.flat[-1]))
assert pumice.validate(model, [(x,)], candidate=lambda inputs: {{"y": y}}).state == "wrong"
"""
RIGHT = {
    "TanhGate": "x * np.tanh(x)",
    "ReduceCubes": "(x.astype(float) ** 3).sum(keepdims=True)",
    "TriluRest": "np.tril(x, -1)",
    "TanhSquare": "x * np.tanh(x * x)",
}


def prove(kind: str, site: Path) -> None:
    """Validate a model with the invented operator of that kind, and find a fault in its results."""
    op = NAMES[kind]
    domain = "com.microsoft" if kind == KINDS[-1] else "pumice"
    done = python("-c", PROVE.format(domain=domain, op=op, right=RIGHT[op]), PYTHONPATH=str(site))
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_operator_that_becomes_other_nodes_is_added(tmp_path: Path, plugin_arguments: list[str]) -> None:
    """It needs no build: the package is a copy with the extension of the installed one."""
    kind = KINDS[-1]
    tree = copy_tree(tmp_path)
    edited = apply(kind, tree)
    site = tree / "site"
    shutil.copytree(tree / "python", site)
    for file in Path(pumice.__file__).parent.iterdir():
        if not (site / "pumice" / file.name).exists() and file.name != "__pycache__":
            (site / "pumice" / file.name).symlink_to(file.resolve())
    prove(kind, site)
    output = run_tests(tree, site, *plugin_arguments, "tests/onnx/test_contrib_operators.py", "-k", "TanhSquare")
    assert "1 passed" in output
    assert changed_files(tree, ["python", "tests", "docs", "cpp"]) == edited


def build(tree: Path) -> Path:
    """Build a tree and return the folder of the package."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    cmake, ninja = (shutil.which(name, path=tools) for name in ("cmake", "ninja"))
    if cmake is None or ninja is None:
        pytest.skip("no cmake or no ninja, to build the tree")
    folder = tree / "build" / "dev"
    options = [
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
        "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
    ]
    for command in ([cmake, "-G", "Ninja", "-S", str(tree), "-B", str(folder), *options], [ninja, "-C", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": tools})
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return folder / "site"


# Tests that read the whole table of operators or cases.
WHOLE_TABLE = (
    "tests/operators/test_operators.py::test_every_operator_has_a_case_and_every_case_an_operator",
    "tests/operators/test_operators.py::test_no_two_cases_have_one_name",
    "tests/validation/test_bounds_rules.py::test_every_operator_has_a_rule_or_a_function",
    "tests/project/test_documents.py::test_what_a_page_quotes_is_in_the_tree",
    "tests/project/test_package.py::test_stub_is_current",
    "tests/project/test_tiers.py",
    "tests/tools/test_catalogue.py",
)
# Tests of each operator, which run those of the invented ones.
OF_EACH = (
    *("operators/test_operators.py", "operators/test_flop_counts.py", "operators/test_described_operators.py"),
    *("operators/test_buffer_ranges.py", "operators/test_wrong_shapes.py", "operators/test_operator_precision.py"),
    *("graph/test_elementwise_epilogues.py", "graph/test_float32_nodes.py", "validation/test_operator_table.py"),
    *("binding/test_binding_rules_hazards.py", "onnx/test_contrib_operators.py"),
)


@pytest.mark.slow
def test_an_operator_of_each_kind_is_added(tmp_path: Path, plugin_arguments: list[str]) -> None:
    """All four are added to one tree, which is built once."""
    tree = copy_tree(tmp_path)
    edited = {kind: apply(kind, tree) for kind in KINDS}
    assert {kind: len(files) for kind, files in edited.items()} == COUNTS
    site = build(tree)
    for kind in KINDS:
        prove(kind, site)
    output = run_tests(
        tree, site, *plugin_arguments, *(f"tests/{name}" for name in OF_EACH), "-rA", "-k", " or ".join(NAMES.values())
    )
    for name in NAMES.values():
        assert re.search(rf"PASSED .*{name}", output), output
    run_tests(tree, site, *plugin_arguments, *WHOLE_TABLE)
    assert changed_files(tree, ["cpp", "shaders", "src", "python", "tests", "docs"]) == set().union(*edited.values())
