"""The demo, `python -m pumice.demo`: a small digit classifier on this machine's Vulkan device, checked node by node."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import pumice

Array = npt.NDArray[Any]

DATA = Path(__file__).parent / "data" / "digits"
SHADES = " ░▒▓█"
BAR_CELLS = 8  # two digits fit side by side in 80 columns
NUM_SHOWN_CLASSES = 3

KERNEL = """\
layout(binding = 0) readonly  buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
layout(push_constant) uniform Parameters { float factor; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  buffer_st1(y, i, buffer_ld1(x, i) * afp(factor));
}
"""


def print_devices(console: Console) -> None:
    table = Table("index", "device", "kind", title="Vulkan devices", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("uuid", no_wrap=True)
    for device in pumice.devices():
        driver = f"{device.driver} {device.driver_info}".strip()
        table.add_row(str(device.index), Text(f"{device.name}\n{driver}"), device.kind, device.uuid)
    console.print(table)


def sample_images() -> Array:
    """Return the sample images as model inputs: float32 [10, 1, 8, 8], 0 to 1, bright ink."""
    paths = sorted(DATA.glob("sample_*.png"))
    return np.concatenate([pumice.load_image(path, mode="L", size=8, resample="box", scale="1/255") for path in paths])


def render_image_as_text(image: Array) -> str:
    """Draw the image as text, two characters per pixel."""
    levels = np.rint(image * (len(SHADES) - 1)).astype(int)
    return "\n".join("".join(SHADES[level] * 2 for level in row) for row in levels)


def format_bars(probabilities: Array) -> str:
    best = np.argsort(-probabilities)[:NUM_SHOWN_CLASSES]
    return "\n".join(
        f"{digit} {'█' * round(float(probabilities[digit]) * BAR_CELLS):<{BAR_CELLS}} {probabilities[digit]:7.2%}"
        for digit in best
    )


def classify_samples(console: Console, model: pumice.Model, images: Array) -> None:
    panels = []
    for (image,), probabilities in zip(images, model(images), strict=True):
        content = Table.grid(padding=(0, 1))
        content.add_row(Text(render_image_as_text(image)), Text(format_bars(probabilities)))
        panels.append(Panel(content, title=f"it is a {probabilities.argmax()}", expand=False))
    console.print(Columns(panels))


def print_accuracy(console: Console, model: pumice.Model) -> None:
    holdout = np.load(DATA / "holdback.npz")
    images = (holdout["images"][:, None] / 16).astype("float32")
    start = time.perf_counter()
    is_correct = model(images).argmax(axis=1) == holdout["labels"]
    seconds = time.perf_counter() - start
    console.print(
        f"Held-back digits: {is_correct.sum()} of {is_correct.size} right ({is_correct.mean():.2%}), one batch, {seconds:.4f} s"
    )


def validate_nodes(console: Console, model: pumice.Model, images: Array) -> bool:
    """Compare every node with a reference on the CPU; return whether all agree."""
    report = pumice.validate(model, [(images,)])
    console.print(report.table())
    return report.ok


def run_kernel(console: Console, context: pumice.Context) -> bool:
    """Run the README's kernel on float32 and float16 arrays; return whether all results equal NumPy's."""
    console.print("The README's GLSL kernel, y = factor * x on 1000 numbers:")
    scale = pumice.Kernel(KERNEL, context)
    exact = True
    for dtype in ("float32", "float16"):
        x = np.arange(1000, dtype=dtype)
        y = np.empty_like(x)
        scale(x=x, y=y, factor=2.5, threads=x.size)
        wrong = int((y != x * np.asarray(2.5, dtype)).sum())
        console.print(f"  {dtype}: {x.size - wrong} of {x.size} equal to NumPy's")
        exact = exact and wrong == 0
    return exact


def run_demo(console: Console) -> bool:
    """Run the demo; return whether all checks passed."""
    print_devices(console)
    with pumice.Context() as context:
        console.print(f"Using [bold]{context.info.name}[/bold] ({context.info.kind}): {context.choice}\n")
        with pumice.load(DATA / "digits.onnx", context) as model:
            images = sample_images()
            classify_samples(console, model, images)
            print_accuracy(console, model)
            console.print()
            nodes_ok = validate_nodes(console, model, images)
        console.print()
        return run_kernel(console, context) and nodes_ok


def main() -> int:
    console = Console(highlight=False)
    console.print(f"[bold]pumice {pumice.__version__}[/bold]")
    if not pumice.devices():
        console.print("No Vulkan device. `apt-get install libvulkan1 mesa-vulkan-drivers` gives one that needs no GPU.")
        return 1
    try:
        return 0 if run_demo(console) else 1
    except pumice.Error as error:
        console.print(f"[bold red]{type(error).__name__}[/bold red]: ", end="")
        console.print(str(error), markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
