"""The arena of each model against the largest sum of simultaneously live tensors, and where the weights are."""

from __future__ import annotations

import pumice

from .models import CASES, MODELS
from .timing import table


def main(context: pumice.Context) -> None:
    import numpy as np

    if not MODELS.is_dir():
        print("memory: absent (no models beside the checkout)")
        return
    rows: list[list[object]] = []
    for label, (file, input_file) in CASES.items():
        shape = list(np.load(MODELS / input_file, mmap_mode="r").shape)
        for precision in ("fp32", "fp16"):
            with pumice.load(MODELS / file, context=context, precision=precision) as model:
                arena = model.program.arena([shape])
                ratio = arena["arena_bytes"] / max(1, arena["lower_bound_bytes"])
                rows.append([label, precision, arena["arena_bytes"], arena["lower_bound_bytes"], f"{ratio:.3f}", arena["persistent_bytes"]])
    header = ["model", "precision", "arena bytes", "lower bound", "ratio", "weights, bytes"]
    table(f"Memory plans, {context.info.name}", header, rows)
