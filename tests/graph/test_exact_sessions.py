"""The ONNX Runtime sessions that tests use as a reference for integer matmuls are exact on every CPU."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from exact_sessions import exact_session

KINDS = {np.dtype(dtype): helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in ("uint8", "int8", "int32")}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("zero", [None, -3])
@pytest.mark.parametrize("second", ["int8", "uint8"])
@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_matmuls_of_the_largest_integers_do_not_saturate(
    op: str, second: str, zero: int | None, constant: bool
) -> None:
    pytest.importorskip("onnxruntime")
    limits = np.iinfo(second)
    random = np.random.default_rng(1)
    a = random.integers(200, 256, (5, 64), dtype=np.uint8)
    b = random.choice(np.array([limits.min, limits.max], second), (64, 7))
    zeros = [] if zero is None else [np.array(100, np.uint8), np.array(zero % 128, second)]
    wide = [array.astype(np.int64) for array in (a, b)]
    expected = (wide[0] - int(zeros[0] if zeros else 0)) @ (wide[1] - int(zeros[1] if zeros else 0))
    given = {"a": a, "b": b}
    if op == "ConvInteger":  # over single pixels it is the same product, transposed
        given = {"a": a[:, :, None, None], "b": np.ascontiguousarray(b.T)[:, :, None, None]}
        expected = expected[:, :, None, None]
    fixed = dict(zip(["az", "bz"], zeros, strict=False)) | ({"b": given.pop("b")} if constant else {})
    graph = helper.make_graph(
        [helper.make_node(op, ["a", "b", "az", "bz"][: 2 + len(zeros)], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, KINDS[array.dtype], array.shape) for name, array in given.items()],
        [helper.make_tensor_value_info("y", KINDS[np.dtype("int32")], None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in fixed.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for optimize in (True, False):
        np.testing.assert_array_equal(exact_session(model, optimize=optimize).run(None, given)[0], expected)
