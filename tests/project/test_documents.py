"""The pages of docs/: code blocks run, links resolve, and generated lists are complete."""

from __future__ import annotations

import functools
import operator
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import directml
import documents
import pumice
import pumice.demo
import reference
from features import reason_of_refusal
from process import python

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"^<!-- needs: ([\w ]+) -->$", re.MULTILINE)  # packages in none of the test extras
RESULT = re.compile(
    r"^ *print\([^\n]*\)  # -> ([^\n]+)$|^```output\n(.*?)^```", re.MULTILINE | re.DOTALL
)  # "..." matches any text
SCRIPTS = [page for page in PAGES if page.parent.name == "docs" and BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", SCRIPTS, ids=lambda page: page.stem)
def test_the_scripts_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path, context: pumice.Context) -> None:
    run_scripts(page, len(BLOCK.findall(page.read_text())), tmp_path, context)


def run_scripts(page: Path, count: int, tmp_path: Path, context: pumice.Context) -> None:
    """Run the first `count` scripts of a page and look for the results that it shows."""
    text = page.read_text()
    for packages in NEEDS.findall(text):
        for package in packages.split():
            if find_spec(package) is None:
                pytest.skip(f"the page needs the package {package}")
    blocks = list(BLOCK.finditer(text))
    if count < len(blocks):
        text = text[: blocks[count].start()]
    folder = Path(shutil.copytree(pumice.demo.DATA, tmp_path / "digits"))
    (folder / "page.py").write_text("\n".join(block[1] for block in blocks[:count]))
    done = python("page.py", cwd=folder, seconds=900)
    if done.returncode and (reason := reason_of_refusal(done.stderr, context)):
        pytest.skip(reason)
    assert done.returncode == 0, done.stdout + done.stderr
    assert missing_result(text, done.stdout) is None


@pytest.mark.parametrize("page", SCRIPTS, ids=lambda page: page.stem)
def test_the_first_script_of_a_page_runs(page: Path, tmp_path: Path, context: pumice.Context) -> None:
    run_scripts(page, 1, tmp_path, context)


def missing_result(page: str, printed: str) -> str | None:
    """Return the first result on a page that its code did not print, in page order."""
    for found in RESULT.finditer(page):
        shown = (found[1] or found[2]).strip()
        pattern = ".*?".join(map(re.escape, shown.split("...")))
        match = re.search(rf"^[ \t]*{pattern}[ \t]*$", printed, re.MULTILINE | re.DOTALL)
        if match is None:
            return shown
        printed = printed[match.end() :]
    return None


def test_the_tests_of_the_tutorial_fail_and_pass_as_it_says(
    tmp_path: Path, context: pumice.Context, plugin_arguments: list[str]
) -> None:
    text = (ROOT / "docs" / "tutorial_validation.md").read_text()
    for block in re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        (tmp_path / block.split()[1]).write_text(block)
    (tmp_path / "model.py").write_text("\n".join(BLOCK.findall(text)))
    assert python("model.py", cwd=tmp_path).returncode == 0
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--pumice-precision", "fp32,fp16"]
    shown = python("-m", "pytest", *plugin_arguments, *options, cwd=tmp_path).stdout
    assert "1 failed, 3 passed" in shown
    assert "FAILED test_energies.py::test_energies[default-fp16]" in shown
    (block,) = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    pattern = ".*".join(map(re.escape, block.replace("\n", "...").split("...")))
    assert re.search(pattern, shown), shown


def messages() -> list[str]:
    """Return the error messages quoted in docs/troubleshooting.md: the first column of its tables."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def all_rules() -> dict[str, str]:
    return {**pumice.binding_rules(), **pumice.graph_rules(), **pumice.nnapi_rules()}


def test_every_rule_that_the_sources_name_is_in_a_table() -> None:
    """An id is a separate string or starts a message, in brackets or not; no id is in two tables."""
    tables = [pumice.binding_rules(), pumice.graph_rules(), pumice.nnapi_rules()]
    assert len(all_rules()) == sum(map(len, tables))
    named = re.compile(r'"\[?([A-Z]{1,2}\d{1,2}(?:\.\d{1,2})?)(?:"|\] |: )')
    unknown = [
        f"{path.relative_to(ROOT)}: {rule}"
        for folder in ("cpp", "src", "python/pumice")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".cpp", ".h", ".py")
        for rule in named.findall(path.read_text())
        if rule not in all_rules()
    ]
    assert not unknown


def test_every_rule_of_bounds_that_a_source_names_is_explained() -> None:
    explained = set(re.findall(r"^\| (V\d+) \|", (ROOT / "docs" / "validation_bounds.md").read_text(), re.MULTILINE))
    sources = (ROOT / "python" / "pumice" / "validation").rglob("*.py")
    named = {rule for path in sources for rule in re.findall(r"\bV\d{1,2}\b", path.read_text())}
    assert named == explained


def source_texts() -> list[str]:
    """Return the sources, with adjacent string literals joined."""
    files = [*(ROOT / "cpp").rglob("*.cpp"), *(ROOT / "python" / "pumice").rglob("*.py")]
    return [re.sub(r'"\s*\n\s*f?"', "", file.read_text()) for file in files]


def test_the_messages_of_troubleshooting_are_those_of_the_code() -> None:
    rules = all_rules()
    sources = source_texts()
    assert len(messages()) >= 30
    for message in messages():
        if rule := re.fullmatch(r"\[(\w+)\]", message):
            assert rule[1] in rules, f"no rule {message}"
            continue
        parts = [part.strip(" ") for part in message.split("...")]
        assert max(map(len, parts)) >= 6, f"{message} has no text to search for"
        assert any(all(part in source for part in parts) for source in sources), f"no source has {message}"


@functools.cache
def whole(page: Path) -> str:
    """Return the text of a page in the site, with its generated list."""
    return page.read_text() + (documents.LISTS[page.stem]() if page.stem in documents.LISTS else "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files_and_their_headings(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", whole(page), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", whole(file), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("name", documents.TABLES)
def test_a_generated_table_is_fresh(name: str) -> None:
    assert (documents.DOCS / name).read_text() == documents.TABLES[name](), "run python tests/documents.py --write"


def public_names() -> set[str]:
    """Return the public names of the imported package, without submodules and its own imports."""
    names = {name for name in dir(pumice) if not name.startswith("_")} - {"annotations", "TYPE_CHECKING", "Any"}
    return {name for name in names if not isinstance(getattr(pumice, name), ModuleType)} | {"__version__"}


def test_the_reference_has_every_public_name_once() -> None:
    told = reference.public_names()
    assert len(told) == len(set(told))
    assert {name for name in told if "." not in name} == public_names()
    for module in pumice._MODULES:
        assert any(name.startswith(f"{module}.") for name in told), f"the reference has nothing of pumice.{module}"
    headings = re.findall(r"^### (?:class )?`?([\w.]+)", reference.page(), re.MULTILINE)
    assert headings == told


def test_names_of_the_reference_lead_to_what_it_describes() -> None:
    for name in reference.public_names():
        if not name.startswith("torch."):  # needs a package that is in none of the test extras
            operator.attrgetter(name)(pumice)


def test_the_operators_of_directml_are_all_told_and_their_attributes_exist() -> None:
    known = {one.name: {attribute.name for attribute in one.attributes} for one in pumice.operators()}
    told = directml.operators()
    names = [name for names in told for name in names.split()]
    assert len(names) == len(set(names)) == 177  # of feature level 6.4
    for ops, remark in told.values():
        for attribute in re.findall(r"`(\w+)=", remark):
            assert attribute == "activation" or all(attribute in known[op] for op in ops), (ops, attribute)


def test_every_macro_of_the_kernel_language_is_on_its_page() -> None:
    names = {name.partition("(")[0] for name in documents.all_macros()}
    types = documents.FLOAT_TYPES.keys() | documents.INTEGER_TYPES.keys()
    told = {name for name in names if name in types or name in documents.SWITCHES or documents.meaning_of(name)}
    assert names == told
    assert types | documents.SWITCHES.keys() <= names, "the page tells of what no mode has"


def without_spaces(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_what_a_page_quotes_is_in_the_tree() -> None:
    """Quotes follow 'In `path`:'; indentation may differ."""
    page = (ROOT / "docs" / "adding_an_operator.md").read_text()
    quoted = re.findall(r"In\s`([^`]+)`:\n\n```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(quoted) >= 12
    missing = [path for path, text in quoted if without_spaces(text) not in without_spaces((ROOT / path).read_text())]
    assert not missing, f"docs/adding_an_operator.md quotes what is no longer in {missing}"


def test_paths_that_a_page_names_exist() -> None:
    for page in PAGES:
        for path in re.findall(r"`((?:cpp|python|shaders|tests|docs|examples|notebooks)/[\w./]+)`", page.read_text()):
            assert (ROOT / path).exists(), f"{page.name} names {path}"
