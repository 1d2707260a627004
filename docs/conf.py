"""Settings of the site, which `./dev docs` builds from the pages of this folder by Sphinx."""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import documents

project = "pumice"
copyright = "the pumice authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "pumice"
html_show_sphinx = False
smartquotes = False  # what stands in quotation marks is mostly to be typed

# Headings have the anchors that they have where the repository is read, so that one link serves both.
myst_heading_anchors = 6
# A link that leads nowhere is an error: the build turns warnings into errors.
nitpicky = True


def append_list(_: Any, page: str, source: list[str]) -> None:
    """Append the generated list to a page that has one."""
    if page in documents.LISTS:
        source[0] += "\n" + documents.LISTS[page]()


def setup(app: Any) -> None:
    app.connect("source-read", append_list)
