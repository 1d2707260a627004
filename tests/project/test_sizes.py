"""Limits on the length of files and functions and on numbers of parameters; they are lowered as the tree improves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LINES = 750  # of a file
FUNCTION_LINES, PARAMETERS = 40, 6
LONG_IN_CPP = 50  # functions of cpp/ and src/: tables of rows, limits and bindings, and bodies not clearer if split
SHARE_IN_CPP = 0.01
LONG_IN_PYTHON = 12
SHARE_OF_MANY_PARAMETERS = 0.003  # of all functions, C++ and Python
# Public functions configured by keywords, constructors of their results, and records with a field per part of a file.
MANY_PARAMETERS = {
    "device/image_loading.py:load_image",
    "device/kernel.py:__init__",
    "device/kernel.py:from_body",
    "device/kernel.py:tune",
    "importer/file/graph_recipe.py:__new__",
    "importer/kernel_operator.py:kernel_operator",
    "model/batch_predictor.py:__init__",
    "model/model.py:__init__",
    "validation/report/report.py:__init__",
    "validation/search/precision_tuner.py:tune_precision",
    "validation/validate.py:reduce",
    "validation/validate.py:validate",
}
# Public functions of the C interface, and functions with the keywords of public Python functions.
MANY_PARAMETERS_IN_CPP = {
    "cpp/dv/c/packing.cpp:dmp_dv_pack_conv_weights",
    "cpp/dv/c/packing.cpp:dmp_dv_pack_dil_weights",
    "cpp/dv/c/packing.cpp:dmp_dv_pack_fc_weights",
    "src/core.cpp:make_tensor_desc",
    "src/graph.cpp:compile_graph",
    "src/shader.cpp:make_shader_options",
}


class Function(NamedTuple):
    place: str
    lines: int
    parameters: int
    name: str  # file and function


# ---- C++

_BLANK = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
    r"|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
_NAMING = re.compile(r"\b(public|private|protected)\s*:(?!:)|template\s*<[^{;]*?>\s*(?=class|struct|union)|\[\[\w+\]\]")
_SCOPE = re.compile(r"(inline\s+)?(namespace|class|struct|union|enum|extern\s*$)")
_INITIALISERS = re.compile(r"\)\s*(?:[^:]|::)*(?<!:):(?!:)")
_BODY_BEHIND = re.compile(r"\b(const|noexcept|override|final|try)\s*$")


def blanked(text: str) -> str:
    """Return C++ without comments, strings, characters and preprocessor lines."""
    return _BLANK.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def closed(text: str, at: int) -> int:
    """Return the index after the bracket that closes the one at `at`."""
    opening, depth = text[at], 0
    closing = {"(": ")", "{": "}"}[opening]
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i + 1
    return len(text)


def is_scope(head: str) -> bool:
    return bool(_SCOPE.match(head)) and not re.search(r"\)\s*(const|noexcept|override|final)?\s*$", head)


def is_member_initialiser(head: str) -> bool:
    """Return whether `head` ends in a member initialiser, as `a_` of "X() : a_{1} {"."""
    return bool(_INITIALISERS.search(head)) and bool(re.search(r"[\w>]\s*$", head)) and not _BODY_BEHIND.search(head)


def is_function(head: str) -> bool:
    return "(" in head and not re.search(r"(?<![=!<>])=(?!=)[^()]*$", head)


def cpp_signature(head: str) -> tuple[str, int]:
    """Return the name of a function and the number of its parameters."""
    called = re.search(r"operator\s*\(\s*\)\s*(?=\()", head)
    at = called.end() if called else head.index("(")
    name = "operator()" if called else re.sub(r".*?([~\w]+|operator\W+)\s*$", r"\1", head[:at], flags=re.DOTALL)
    inside = head[at + 1 : closed(head, at) - 1].replace("->", "  ")
    depth, commas = 0, 0
    for letter in inside:
        depth += (letter in "([{<") - (letter in ")]}>")
        commas += letter == "," and depth == 0
    return name, commas + 1 if inside.strip() else 0


def cpp_functions(text: str) -> Iterator[tuple[int, int, str, int]]:
    """Yield first line, lines other than comments, name and number of parameters of every function not nested in another."""
    whole_lines = text.split("\n")
    text = blanked(text)
    begin = i = 0
    while i < len(text):
        if text[i] == "(":
            i = closed(text, i)
            continue
        if text[i] == "{":
            whole = text[begin:i]
            head = _NAMING.sub("", whole.strip()).strip()
            if not is_scope(head):
                end = closed(text, i)
                if is_function(head) and not is_member_initialiser(head):
                    first = text.count("\n", 0, begin + len(whole) - len(whole.lstrip())) + 1
                    body = whole_lines[first - 1 : text.count("\n", 0, end) + 1]
                    yield first, sum(not line.lstrip().startswith("//") for line in body), *cpp_signature(head)
                begin = begin if is_member_initialiser(head) else end
                i = end
                continue
        if text[i] in "{};":
            begin = i + 1
        i += 1


def in_cpp() -> list[Function]:
    found = []
    for folder in ("cpp", "src"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".cpp", ".h"}:
                name = path.relative_to(ROOT).as_posix()
                for first, lines, function, parameters in cpp_functions(path.read_text()):
                    found.append(Function(f"{name}:{first}", lines, parameters, f"{name}:{function}"))
    return found


# ---- Python


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list)


def in_python() -> list[Function]:
    found = []
    folder = ROOT / "python" / "pumice"
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_overload(node):
                given = node.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                names += [one.arg for one in (given.vararg, given.kwarg) if one]
                count = len([one for one in names if one not in ("self", "cls")])
                place = f"{path.relative_to(folder).as_posix()}:{node.name}"
                body = text.split("\n")[node.lineno - 1 : node.end_lineno]
                comments = sum(line.lstrip().startswith("#") for line in body)
                found.append(Function(place, len(body) - comments, count, place))
    return found


# ---- tests


def test_no_file_is_long() -> None:
    long = []
    for folder, endings in (
        ("cpp", {".cpp", ".h"}),
        ("src", {".cpp", ".h"}),
        ("python", {".py"}),
        ("shaders", {".comp", ".glsl"}),
        ("tests", {".py"}),
    ):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in endings and len(path.read_text().splitlines()) > LINES:
                long.append(path.relative_to(ROOT).as_posix())
    assert not long


def test_few_functions_of_the_engine_are_long() -> None:
    functions = in_cpp()
    long = sorted(one.place for one in functions if one.lines > FUNCTION_LINES)
    assert len(functions) > 4000
    assert len(long) <= LONG_IN_CPP, long
    assert len(long) <= SHARE_IN_CPP * len(functions)


def test_few_functions_of_the_package_are_long() -> None:
    long = sorted(one.place for one in in_python() if one.lines > FUNCTION_LINES)
    assert len(long) <= LONG_IN_PYTHON, long


def many_parameters(functions: list[Function]) -> set[str]:
    return {one.name for one in functions if one.parameters > PARAMETERS}


def test_only_public_functions_have_many_parameters() -> None:
    package, engine = in_python(), in_cpp()
    assert many_parameters(package) == MANY_PARAMETERS
    assert many_parameters(engine) == MANY_PARAMETERS_IN_CPP
    count = sum(one.parameters > PARAMETERS for one in (*package, *engine))
    assert count < SHARE_OF_MANY_PARAMETERS * (len(package) + len(engine))


CODE = """
namespace a {
struct S {  // a scope
  S() : x_{1}, y_(2) {
    call();
  }
  int get() const { return x_; }
  int table[2] = {1, 2};
};
const std::vector<int> list = {1, f(2), 3};
auto g = [] { return 1; };
template <typename T>
T long_one(T t, const std::map<int, int>& m = {{1, 2}, {3, 4}}, std::function<int(int, int)> f = {}) {
  if (t) {
    return {"}"};
  }
  return t;
}
}  // namespace a
"""


def test_functions_are_found_in_code() -> None:
    assert list(cpp_functions(CODE)) == [(4, 3, "S", 0), (7, 1, "get", 0), (12, 7, "long_one", 3)]
    assert cpp_signature("bool S::operator()(int a, int b) const") == ("operator()", 2)
    assert cpp_signature("bool S::operator==(const S& other) const") == ("operator==", 1)


# ---- folders

UNITS = 30  # per folder: a header and its source count as one
# Flat lists, whose names are clearer than subfolders would be.
FLAT = {
    "docs": "a page each, in the order of docs/index.md",
    "python/pumice/validation/rules": "the rules of a family of operators, or what they share, each",
    "shaders": "a kernel each; their names begin with their families",
    "shaders/include": "what kernels paste, by what it is about",
    "src": "a bound class each",
    "tests/benchmarks": "a table of ./dev bench each, by its name",
    "tests/corpus/graphs": "a stored model each",
    "tests/graph": "a file for what it tests, run by its name",
    "tests/operators": "a file for what it tests, run by its name",
    "tests/support": "a helper each, for all folders of tests",
    "tests/validation": "a file for what it tests, run by its name",
}


def units_of(folder: Path) -> set[str]:
    """Return the file names without suffix directly in a folder."""
    return {path.stem for path in folder.iterdir() if path.is_file()}


def folders() -> Iterator[Path]:
    for top in ("cpp", "docs", "python", "shaders", "src", "tests"):
        for path in (ROOT / top, *sorted((ROOT / top).rglob("*/"))):
            if path.is_dir() and not any(part.startswith((".", "__")) or part == "build" for part in path.parts[-3:]):
                yield path


def test_folders_are_streets() -> None:
    long = {path.relative_to(ROOT).as_posix(): len(units_of(path)) for path in folders() if len(units_of(path)) > UNITS}
    assert long.keys() == FLAT.keys(), long


def test_a_header_and_its_source_are_one_unit(tmp_path: Path) -> None:
    for name in ("a.h", "a.cpp", "b.cpp"):
        (tmp_path / name).write_text("")
    (tmp_path / "c").mkdir()
    assert units_of(tmp_path) == {"a", "b"}
