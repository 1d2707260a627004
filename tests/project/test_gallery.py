"""docs/gallery.md lists every notebook, with its first words, an image and a link to its file."""

from __future__ import annotations

import struct

import gallery


def test_the_page_is_what_the_notebooks_say() -> None:
    assert gallery.PAGE.read_text() == gallery.page(), "python tests/gallery.py --write"


def test_every_notebook_is_in_the_gallery() -> None:
    text = gallery.PAGE.read_text()
    named = gallery.notebooks()
    assert {one.path.name for one in named} == {path.name for path in (gallery.ROOT / "notebooks").glob("*.ipynb")}
    for one in named:
        assert f"## {one.title}\n" in text
        assert f"](../notebooks/{one.path.name})" in text
        assert f"](images/{one.picture.name})" in text
        assert one.words.endswith("."), "the first paragraph is whole sentences"


def test_the_pictures_are_there_and_small() -> None:
    for one in gallery.notebooks():
        data = one.picture.read_bytes()
        assert data.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", data[16:24])
        assert len(data) <= gallery.MOST_BYTES
        assert width <= 800 and height >= 32


def test_no_picture_is_of_a_notebook_that_is_gone() -> None:
    kept = {one.picture.name for one in gallery.notebooks()}
    assert {path.name for path in gallery.IMAGES.glob("notebook_*.png")} == kept
