"""Subgraphs on strings, shared by several tests."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from onnx_models import node, subgraph, value


def string_loop_body() -> onnx.GraphProto:
    """Return a Loop body that appends "more" to a carried row and scans the columns of an outer `x` with two rows."""
    return subgraph(
        [
            node("Identity", ["go"], ["go_on"]),
            node("Concat", ["row", "c"], ["longer"], axis=0),
            node("Gather", ["x", "i"], ["scanned"], axis=1),
        ],
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("row", ["n"], TensorProto.STRING)],
        [
            value("go_on", [], TensorProto.BOOL),
            value("longer", ["m"], TensorProto.STRING),
            value("scanned", [2], TensorProto.STRING),
        ],
        c=np.array(["more"], object),
    )
