"""The site of docs/: its navigation reaches every page; if Sphinx is installed, it is built and its links are followed."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"In\s`[^`]+`:\n\n```\w+\n.*?^```", re.MULTILINE | re.DOTALL)


def test_the_navigation_has_every_page_once() -> None:
    trees = TREE.findall((DOCS / "index.md").read_text())
    named = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    assert sorted(named) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_begins_with_a_title_and_its_python_compiles(page: Path) -> None:
    text = page.read_text()
    own = QUOTED.sub("", text)  # test_documents.py compares quotes with the tree
    for number, block in enumerate(re.findall(r"^```py(?:thon)?\n(.*?)^```", own, re.MULTILINE | re.DOTALL)):
        compile(block, f"{page.name}, block {number}", "exec")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ ", prose, re.MULTILINE)
    assert headings[0] == "# ", f"{page.name} has no title, which the navigation shows"


class Page(HTMLParser):
    """The links and the anchors of a built page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [link for name in ("href", "src") if (link := given.get(name))]
        if anchor := given.get("id"):
            self.anchors.add(anchor)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo"):
        if find_spec(package) is None:
            pytest.skip(f"the site needs the package {package} (the extra `docs`)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", folder / "cache"]
    done = subprocess.run([*command, DOCS, folder / "html"], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def test_links_of_the_built_site_lead_to_files_and_anchors(site: Path) -> None:
    pages = {page: Page(page.read_text()) for page in site.rglob("*.html")}
    lost = []
    for page, read in pages.items():
        for link in read.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchors = pages[target].anchors if target in pages else set()
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                lost.append(f"{page.name}: {link}")
    assert len(pages) > len(list(DOCS.glob("*.md")))
    assert not lost
