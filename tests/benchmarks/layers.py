"""Single fp32 layers with constant weights, NumPy to NumPy, compared with ncnn's Vulkan path."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pumice

from . import peers
from .contender import Array, Contender, Local
from .rows import Row, Table
from .session import Session
from .timing import Absent, Times, measure

MS = 1e3
SHARE = 2.0  # maximum time relative to ncnn


@dataclass(frozen=True)
class Layer:
    name: str
    shape: tuple[int, ...]  # input shape, without a convolution's batch
    weights: tuple[int, ...]  # [out, in] or [out, in, height, width]
    group: int = 1

    @property
    def is_product(self) -> bool:
        return len(self.weights) == 2

    def ncnn(self) -> str:
        """Return an ncnn net file with only this layer."""
        count = int(np.prod(self.weights))
        if self.is_product:
            layer = f"InnerProduct layer 1 1 in0 out0 0={self.weights[0]} 1=0 2={count}"
        else:
            kind = "Convolution" if self.group == 1 else "ConvolutionDepthWise"
            side = self.weights[2]
            layer = f"{kind} layer 1 1 in0 out0 0={self.weights[0]} 1={side} 4={side // 2} 5=0 6={count} 7={self.group}"
        return f"7767517\n2 2\nInput in0 0 1 in0\n{layer}\n"


LAYERS = (
    Layer("MatMul 256x256x256", (256, 256), (256, 256)),
    Layer("MatMul 512x512x512", (512, 512), (512, 512)),
    Layer("MatMul 64x1024x1024", (64, 1024), (1024, 1024)),
    Layer("Conv 3x3, 64 to 64, 56x56", (64, 56, 56), (64, 64, 3, 3)),
    Layer("Conv 3x3, 256 to 256, 14x14", (256, 14, 14), (256, 256, 3, 3)),
    Layer("Conv 1x1, 256 to 64, 56x56", (256, 56, 56), (64, 256, 1, 1)),
    Layer("Conv 5x5, 3 to 32, 112x112", (3, 112, 112), (32, 3, 5, 5)),
    Layer("Conv 3x3 depthwise, 128, 56x56", (128, 56, 56), (128, 1, 3, 3), 128),
)


def ours(session: Session, layer: Layer, x: Array, weights: Array) -> Contender:
    graph = pumice.Graph(layer.name)
    if layer.is_product:
        data, value = x, graph.constant(np.ascontiguousarray(weights.T))
        y = graph.add("MatMul", graph.input("x", "float32", list(data.shape)), value)
    else:
        data, side = x[np.newaxis], layer.weights[2] // 2
        y = graph.add(
            "Conv",
            graph.input("x", "float32", list(data.shape)),
            graph.constant(weights),
            pads=[side] * 4,
            group=layer.group,
        )
    graph.output("y", y)
    program = graph.compile(session.context)
    return Local(lambda: program.call((data,))[0])


def ncnn(session: Session, layer: Layer, x: Array, weights: Array) -> Contender:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.ncnn.param").write_text(layer.ncnn())
        (Path(folder) / "model.ncnn.bin").write_bytes(bytes(4) + weights.tobytes())  # four zeros: float32
        # The peer's calls drop the batch axis.
        return session.ncnn.make(peers.ncnn_model, Path(folder), "fp32", [x[np.newaxis]], session.context.info.name)


def run(session: Session) -> Iterator[Table]:
    table = Table(f"Single layers, float32, NumPy to NumPy, {session.context.info.name}", "ms")
    for layer in LAYERS:
        random = np.random.default_rng(0)
        x = random.uniform(-1, 1, layer.shape).astype("float32")
        weights = random.uniform(-1, 1, layer.weights).astype("float32")
        row, theirs = Row(layer.name), Row("")
        made: dict[str, Contender] = {"pumice": ours(session, layer, x, weights)}
        try:
            made["ncnn"] = ncnn(session, layer, x, weights)
            difference = np.abs(made["ncnn"].call().reshape(-1) - made["pumice"].call().reshape(-1)).max()
            row.wrong = bool(difference > 1e-3 * np.sqrt(weights[0].size))
        except Absent as reason:
            theirs.absent = str(reason)
        times: dict[str, Times] = measure({label: one.sample for label, one in made.items()}, session.effort, 50)
        row.best, row.median = times["pumice"].best * MS, times["pumice"].median * MS
        if "ncnn" in times:
            row.target = SHARE * times["ncnn"].median * MS
            row.note = f"ncnn Vulkan {times['ncnn'].median * MS:.4g}"
        else:
            row.note = f"ncnn Vulkan: {theirs.absent}"
        table.rows.append(row)
    yield table
