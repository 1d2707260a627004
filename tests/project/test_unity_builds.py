"""File-local names are unique within a folder, because installs compile folders as unity builds (cmake/Unity.cmake)."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTANT = re.compile(r"^(?:static |inline )*constexpr [\w:<>,&* ]+?\b(k[A-Z]\w*)\b")
# Several constants in one declaration, possibly over several lines, and the constants of an unscoped enum.
SEVERAL = re.compile(r"^constexpr [^;]*;|^enum \w*(?: : \w+)? \{[^}]*\}", re.MULTILINE)
ANOTHER = re.compile(r"[,{]\s*(k[A-Z]\w*)(?=[{\[ =,}])(?! \?)")
TYPE = re.compile(r"^(?:struct|class|enum class|enum) (\w+)\b(?!.*;$)")
FUNCTION = re.compile(
    r"^(?:static |inline |constexpr )*[A-Za-z_][\w:<>,&* \[\]]*?\b(\w+)\(([^;{]*)\)[^;()]*\{", re.MULTILINE
)


def own_names(text: str) -> set[str]:
    """Return the file-local constants, types and functions (with parameter types)."""
    parts = re.split(r"^namespace \{$", text, flags=re.MULTILINE)[1:]
    blocks = [re.split(r"^\}  // namespace$", part, flags=re.MULTILINE)[0] for part in parts]
    blocks.append("\n".join(re.findall(r"^static .*", text, flags=re.MULTILINE)))
    names: set[str] = set()
    for block in blocks:
        for line in block.splitlines():
            names.update(found.group(1) for one in (CONSTANT, TYPE) if (found := one.match(line)))
        for declaration in SEVERAL.findall(block):
            names.update(ANOTHER.findall(declaration))
        for name, parameters in FUNCTION.findall(block):
            types = re.sub(r" ?\b\w+(?=,|$)", "", " ".join(parameters.split()))
            names.add(f"{name}({types})")
    return names


def test_files_that_are_compiled_as_one_share_no_names() -> None:
    files: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted([*ROOT.glob("cpp/**/*.cpp"), *ROOT.glob("src/**/*.cpp")]):
        for name in own_names(path.read_text()):
            files[path.parent.relative_to(ROOT).as_posix(), name].append(path.name)
    shared = [f"{folder}: {name} in {', '.join(found)}" for (folder, name), found in files.items() if len(found) > 1]
    assert not shared, "\n".join(shared)


def test_what_a_file_keeps_for_itself_is_found() -> None:
    text = """
namespace pumice {
namespace {
constexpr int64_t kMost = 3, kLeast{2};
struct Given {
  int kept;
};
bool is_word(char c) {
  return true;
}
}  // namespace
static int count_of(const std::string& text, int from) { return 1; }
void shown(int value) {
}
}  // namespace pumice
"""
    assert own_names(text) == {"kMost", "kLeast", "Given", "is_word(char)", "count_of(const std::string&, int)"}
