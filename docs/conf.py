"""Settings of the site, which `./dev docs` builds from the pages of this folder by Sphinx."""

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
