"""Rows timed by `./dev bench operators`: memory-bound operators and matmuls. The tests run them at small sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cases.rows import Case, Given, case, fixed, w, x

# op, M, N, K, dtype, whether B is given at the call
Product = tuple[str, int, int, int, str, bool]
# The matmuls in BERT-base (128 tokens), ViT-B (197 patches) and the encoder of Whisper-tiny (1,500 frames).
TRANSFORMERS: Sequence[tuple[int, int, int]] = (
    *((128, 768, 768), (128, 3072, 768), (128, 768, 3072)),
    *((197, 768, 768), (197, 2304, 768), (197, 3072, 768), (197, 768, 3072)),
    *((1500, 384, 384), (1500, 1152, 384), (1500, 1536, 384), (1500, 384, 1536)),
)
PRODUCTS: Sequence[Product] = (
    ("MatMul", 1024, 1024, 1024, "float16", False),
    ("MatMul", 2048, 2048, 2048, "float16", False),
    ("MatMul", 4096, 4096, 4096, "float16", False),
    ("Gemm", 4096, 4096, 4096, "float16", False),
    ("MatMul", 4095, 4095, 4095, "float16", False),
    ("MatMul", 1, 4096, 4096, "float16", False),
    ("MatMul", 16, 4096, 4096, "float16", False),
    ("MatMul", 64, 4096, 4096, "float16", False),
    *(("MatMul", *shape, "float16", False) for shape in TRANSFORMERS),
    ("MatMulInteger", 1024, 1024, 1024, "int8", False),
    ("MatMulInteger", 2048, 2048, 2048, "int8", False),
    ("MatMulInteger", 4096, 4096, 4096, "int8", False),
    ("MatMulInteger", 4096, 4096, 4096, "uint8", False),
    ("MatMulInteger", 4096, 4096, 4096, "int8", True),
    ("MatMul", 1024, 1024, 1024, "float32", False),
    ("MatMul", 2048, 2048, 2048, "float32", False),
    ("MatMul", 4096, 4096, 4096, "float32", False),
)
PRODUCTS_ON_SOFTWARE: Sequence[Product] = (
    ("MatMul", 256, 256, 256, "float32", False),
    ("MatMul", 512, 512, 512, "float32", False),
    ("MatMul", 512, 512, 512, "float16", False),
    ("MatMul", 1, 1024, 1024, "float32", False),
)


def streamed(size: int, dtypes: Sequence[str], columns: int, side: int) -> Iterator[Case]:
    """The largest tensor of each has about `size` bytes: rows of `columns`, or images of 64 channels of `side` by `side`."""
    for dtype in dtypes:
        elements = size // np.dtype(dtype).itemsize
        rows = elements // columns

        def given(*shape: int, dtype: str = dtype) -> Given:
            return x(*shape, dtype=dtype, low=1 / 64)

        def timed(
            op: str, note: str, torch: str, *inputs: Given, dtype: str = dtype, reads: int = 1, **attributes: object
        ) -> Case:
            note = f"{dtype}, {note}" if note else dtype
            return case(op, f"timed, {note}", *inputs, torch=torch, reads=reads, fp16=(2e-3, 2e-3), **attributes)

        large, row, images = given(rows, columns), given(columns), given(elements // (64 * side * side), 64, side, side)
        ones, zeros = fixed(np.ones(columns), dtype), fixed(np.zeros(columns), dtype)
        scale, shift = fixed(np.ones(64), dtype), fixed(np.zeros(64), dtype)
        for op, torch in (
            ("Relu", "torch.relu(a)"),
            ("Gelu", "F.gelu(a)"),
            ("Tanh", "torch.tanh(a)"),
            ("Sigmoid", "torch.sigmoid(a)"),
            ("Exp", "torch.exp(a)"),
            ("Sqrt", "torch.sqrt(a)"),
            ("Neg", "torch.neg(a)"),
        ):
            yield timed(op, "", torch, large)
        for op, torch in (("Add", "a + b"), ("Mul", "a * b"), ("Div", "a / b"), ("Max", "torch.maximum(a, b)")):
            yield timed(op, "", torch, large, large)
        yield timed("Add", "a row to all", "a + b", large, row)
        yield timed("Greater", "", "a > b", large, large)
        yield timed("Where", "", "torch.where(a, b, c)", x(rows, columns, dtype="bool"), large, large)
        yield timed("Cast", "to int32", "a.to(torch.int32)", large, to=6)
        for op, torch in (("ReduceSum", "a.sum({})"), ("ReduceMax", "a.amax({})"), ("ReduceMean", "a.mean({})")):
            for what, axis in (("rows", -1), ("columns", 0)):
                yield timed(op, what, torch.format(axis), large, fixed([axis]), keepdims=0)
        yield timed("ReduceSum", "all", "a.sum()", large, keepdims=0)
        for what, axis in (("rows", -1), ("columns", 0)):
            yield timed("ArgMax", what, f"a.argmax({axis})", large, axis=axis % 2, keepdims=0)
        yield timed("Softmax", "rows", "F.softmax(a, -1)", large)
        yield timed("Softmax", "columns, read twice", "F.softmax(a, 0)", large, axis=0, reads=2)
        yield timed("LogSoftmax", "rows", "F.log_softmax(a, -1)", large)
        yield timed("LayerNormalization", "", f"F.layer_norm(a, ({columns},))", large, ones, zeros)
        yield timed("RMSNormalization", "", f"F.rms_norm(a, ({columns},))", large, ones)
        yield timed("InstanceNormalization", "", "F.instance_norm(a)", images, scale, shift)
        mean_and_variance = (
            "torch.zeros(64, dtype=a.dtype, device='cuda'), torch.ones(64, dtype=a.dtype, device='cuda')"
        )
        yield timed(
            "BatchNormalization", "", f"F.batch_norm(a, {mean_and_variance})", images, scale, shift, shift, scale
        )
        yield timed("GroupNormalization", "8 groups", "F.group_norm(a, 8)", images, scale, shift, num_groups=8)
        yield timed("Transpose", "matrix", "a.t().contiguous()", large)
        yield timed("Transpose", "NCHW to NHWC", "a.permute(0, 2, 3, 1).contiguous()", images, perm=[0, 2, 3, 1])
        half = given(rows // 2, columns)
        yield timed("Concat", "rows", "torch.cat([a, b])", half, half, axis=0)
        yield timed("Concat", "columns", "torch.cat([a, b], 1)", half, half, axis=1)
        begin, end = fixed([columns // 2]), fixed([columns])
        yield timed("Slice", "half of each row", f"a[:, {columns // 2}:].contiguous()", large, begin, end, fixed([1]))
        yield timed("Tile", "read twice", "a.repeat(2, 1)", half, fixed([2, 1]), reads=2)
        yield timed("Pad", "", "F.pad(a, (8, 8))", large, fixed([0, 8, 0, 8]))
        backwards = f"a[torch.arange({rows - 1}, -1, -1, device='cuda')]"
        yield timed("Gather", "rows", backwards, large, fixed(np.arange(rows - 1, -1, -1)))
        yield timed("Expand", "", f"a.expand({rows}, -1).contiguous()", row, fixed([rows, columns]))
        yield timed("DepthToSpace", "", "F.pixel_shuffle(a, 2)", images, blocksize=2, mode="CRD")


def product(op: str, m: int, n: int, k: int, dtype: str, given: bool, copies: int = 1) -> Case:
    """A matmul that accumulates in float32 or int32. copies: number of B matrices that PyTorch multiplies by in turn."""
    b = (x if given else w)(k, n, dtype=dtype, low=1)
    bias = [fixed(np.ones(n), dtype)] if op == "Gemm" else []
    torch = {"Gemm": "F.relu(a @ b + 1)", "MatMulInteger": "torch._int_mm(a, b)"}.get(op)
    torch = torch or ", ".join("a @ " + chr(98 + i) for i in range(copies))
    note = f"timed, {m}x{n}x{k} {dtype}{', B given at the call' if given else ''}"
    return case(op, note, x(m, k, dtype=dtype, low=1), b, *bias, torch=torch, fp16=(2e-3, 2e-2))


def small() -> Iterator[Case]:
    """The timed cases in sizes for tests: fp16 rows become float32 rows run at precision fp16."""
    yield from streamed(1 << 16, ("float32",), columns=64, side=8)
    shapes = {
        (op, max(m // 16, 1), max(n // 16, 1), max(k // 16, 1), "float32" if dtype == "float16" else dtype, given)
        for op, m, n, k, dtype, given in (*PRODUCTS, *PRODUCTS_ON_SOFTWARE)
    }
    for one in sorted(shapes):
        yield product(*one)
