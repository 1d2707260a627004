"""Report records for tests of report views: real ones, and large or hostile ones derived from them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

import pumice
from onnx_models import model, node, value

# A name with HTML, terminal escape sequences, line breaks, text direction overrides, and excessive length.
HOSTILE = (
    "\x1b[31m</script><script>window.taken=1</script><img src=x onerror=window.taken=1>\r\n\"'&\u202e\x00"
    + "n" * 10_000
)


def overflowing(name: str = "squared") -> Any:
    """x * x divided by its sum, plus random numbers: wrong in fp16 for large x, and unproved. After a Softmax nothing overflows."""
    nodes = [
        node("Mul", ["x", "x"], ["big"], name=name),
        node("LpNormalization", ["big"], ["parts"], p=1, axis=-1),
        node("RandomUniformLike", ["x"], ["noise"]),
        node("Add", ["parts", "noise"]),
    ]
    return model(nodes, [value("x", [2, 4])])


def report_of(context: pumice.Context, source: Any, precision: str = "fp16") -> Any:
    """Return the report on a model that reads x [2, 4], filled with 300."""
    return pumice.validate(source, [(np.full((2, 4), 300, np.float32),)], context=context, precision=precision)


def long_record(record: dict[str, Any], count: int) -> dict[str, Any]:
    """Return a chain of `count` nodes with residuals and one long skip connection, with rows copied from a record's first."""
    copied_record = copy.deepcopy(record)
    like = next(row for row in copied_record["rows"] if row["statistics"])
    nodes, rows = [], []
    for i in range(count):
        inputs = [
            f"t{i - 1}" if i else "x",
            *([f"t{i - 6}"] if i % 6 == 5 and i > 6 else []),
            *(["mask"] if i % 40 == 3 else []),
        ]
        nodes.append({"name": f"/layers.{i // 6}/op_{i}", "op": "MatMul", "inputs": inputs, "outputs": [f"t{i}"]})
        row = {**copy.deepcopy(like), "node": nodes[-1]["name"], "output": f"t{i}", "op": "MatMul"}
        size = 1e-6 * 2.0 ** (i % 11)
        row.update(verdict="right", fault="", compared=True, error=size, allowed=4 * size, ratio=0.25, kind="")
        rows.append(row)
    rows[count // 2].update(verdict="wrong", error=1.0, ratio=1e5, kind="wrong value")
    copied_record["graph"] = {"inputs": ["x", "mask"], "outputs": [f"t{count - 1}"], "nodes": nodes}
    copied_record.update(rows=rows, verdict="wrong", ok=False)
    return copied_record
