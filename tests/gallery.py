"""Write docs/gallery.md: the title, first paragraph and a picture of each notebook.

python tests/gallery.py --write             write only the page
python tests/gallery.py --write --pictures  also run the notebooks on the default device, and draw docs/images/notebook_*.png
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 60_000
WIDTH = 640  # maximum picture width in pixels
MOST_LINES, MOST_COLUMNS = 18, 96  # limits of text in a picture
HEAD = """# Gallery of the notebooks

The notebooks run from top to bottom on any device, and each checks its own results. To open them, run `./dev notebook`; start with
[the tutorial](tutorial_notebooks.md). The images show results on lavapipe, Mesa's software driver. To update this page, run
`python tests/gallery.py --write --pictures`, which also runs the notebooks.
"""


@dataclass(frozen=True)
class Notebook:
    path: Path
    title: str
    words: str  # first paragraph

    @property
    def picture(self) -> Path:
        return IMAGES / f"notebook_{self.path.stem[:2]}.png"


def cells_of(path: Path, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def notebooks() -> list[Notebook]:
    found = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        title, words, *_ = cells_of(path, "markdown")[0].strip().split("\n\n")
        found.append(Notebook(path, title.removeprefix("# "), " ".join(words.split())))
    return found


def page() -> str:
    parts = [HEAD]
    for one in notebooks():
        parts.append(f"## {one.title}\n")
        parts.append("\n".join(textwrap.wrap(one.words, 140, break_long_words=False, break_on_hyphens=False)) + "\n")
        parts.append(f"![Output of the notebook: {one.title}](images/{one.picture.name})\n")
        parts.append(f"[`notebooks/{one.path.name}`](../notebooks/{one.path.name})\n")
    return "\n".join(parts)


# ---- pictures


def run(path: Path) -> tuple[list[bytes], list[str]]:
    """Return the pictures (PNG) and texts that a notebook's cells display, in order. Raise a cell's errors."""
    shells: Any = import_module("IPython.core.interactiveshell")
    capture: Any = import_module("IPython.utils.capture")
    config: Any = import_module("traitlets.config").Config
    shell = shells.InteractiveShell.instance(config=config({"HistoryManager": {"enabled": False}}))
    pictures, texts = [], []
    try:
        for cell in cells_of(path, "code"):
            with capture.capture_output() as shown:
                done = shell.run_cell(cell)
                done.raise_error()
            told, displayed = [shown.stdout], [output.data for output in shown.outputs]
            if done.result is not None:
                told = [shown.stdout.partition("Out[")[0]]
                displayed.append(shell.display_formatter.format(done.result)[0])
            for data in displayed:
                png = data.get("image/png")
                if png:
                    pictures.append(png if isinstance(png, bytes) else base64.b64decode(png))
                else:
                    told.append(data.get("text/plain", ""))
            texts.append("\n".join(filter(None, (text.strip("\n") for text in told))))
            pictures += figures()
    finally:
        shells.InteractiveShell.clear_instance()
    return pictures, texts


def figures() -> list[bytes]:
    """Return the open matplotlib figures of a cell as PNG."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    pyplot: Any = sys.modules["matplotlib.pyplot"]
    found = []
    for number in pyplot.get_fignums():
        target = io.BytesIO()
        pyplot.figure(number).savefig(target, format="png", dpi=80, bbox_inches="tight")
        found.append(target.getvalue())
    pyplot.close("all")
    return found


def drawn(text: str) -> bytes:
    """Render a text as a picture in a monospaced font; excess lines and columns are cut off."""
    image: Any = import_module("PIL.Image")
    draw: Any = import_module("PIL.ImageDraw")
    fonts: Any = import_module("PIL.ImageFont")
    data: Any = import_module("matplotlib").get_data_path()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    shown = [line if len(line) <= MOST_COLUMNS else line[: MOST_COLUMNS - 1] + "…" for line in lines[:MOST_LINES]]
    shown += ["…"] if len(lines) > MOST_LINES else []
    font = fonts.truetype(os.path.join(data, "fonts", "ttf", "DejaVuSansMono.ttf"), 12)
    columns = max(map(len, shown))
    made = image.new("L", (round(font.getlength("m") * columns) + 24, 16 * len(shown) + 20), 255)
    canvas = draw.Draw(made)
    for i, line in enumerate(shown):
        canvas.text((12, 10 + 16 * i), line, 0, font=font)
    return png_of(made.quantize(8))


def png_of(made: Any) -> bytes:
    target = io.BytesIO()
    made.save(target, "PNG", optimize=True)
    return target.getvalue()


def small(png: bytes) -> bytes:
    """Shrink a picture to at most WIDTH columns and MOST_BYTES bytes."""
    image: Any = import_module("PIL.Image")
    with image.open(io.BytesIO(png)) as opened:
        made = opened.convert("RGB")
    made.thumbnail((WIDTH, WIDTH))
    for colours in (None, 128, 32, 8):
        found = png_of(made if colours is None else made.quantize(colours))
        if len(found) <= MOST_BYTES:
            return found
    raise ValueError(f"a picture of {made.size} has over {MOST_BYTES:,} bytes with eight colours")


def picture_of(one: Notebook) -> bytes:
    """Return the last picture that a notebook displays, else its longest text."""
    pictures, texts = run(one.path)
    if pictures:
        return small(pictures[-1])
    return drawn(max(texts, key=lambda text: min(len(text.splitlines()), MOST_LINES)))


def main() -> int:
    if "--write" not in sys.argv:
        print(__doc__)
        return 1
    PAGE.write_text(page())
    if "--pictures" in sys.argv:
        os.environ["MPLBACKEND"] = "agg"
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)  # notebooks write files
            for one in notebooks():
                found = picture_of(one)
                one.picture.write_bytes(found)
                print(f"{one.picture.name}: {len(found):,} bytes", flush=True)
            os.chdir(before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
