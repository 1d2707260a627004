"""Trains the demo's digit classifier and writes its files into python/pumice/data/digits.

    pip install scikit-learn pillow && python examples/digits/train.py

The data are scikit-learn's bundled 8x8 digits: the test half of "Optical Recognition of Handwritten Digits"
(E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0). Plain NumPy, one fixed seed: with the same versions of
NumPy and BLAS the files come out the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits

Array = npt.NDArray[Any]
Weights = dict[str, Array]

TARGET = Path(__file__).parents[2] / "python" / "pumice" / "data" / "digits"
SEED = 20
CHANNELS = (16, 32)
HIDDEN = 40
EPOCHS = 80
BATCH = 32
PEAK_RATE = 2e-3
SAMPLE_SCALE = 8  # a sample's PNG shows each of the 8x8 values as a square of this many pixels


def split() -> tuple[Array, Array, Array, Array]:
    """Training images and labels, then the held-back pairs: a fifth, chosen by the seed. Values 0..16, uint8."""
    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    order = np.random.default_rng(SEED).permutation(len(images))
    held, kept = order[: len(images) // 5], order[len(images) // 5 :]
    return images[kept], labels[kept], images[held], labels[held]


def scaled(images: Array) -> Array:
    return (images[:, None] / 16).astype(np.float32)


def initial_weights(rng: np.random.Generator) -> Weights:
    shapes = {
        "conv1": (CHANNELS[0], 1, 3, 3),
        "conv2": (CHANNELS[1], CHANNELS[0], 3, 3),
        "fc1": (HIDDEN, CHANNELS[1] * 4 * 4),
        "fc2": (10, HIDDEN),
    }
    weights = {}
    for name, shape in shapes.items():
        fan_in = np.prod(shape[1:])
        weights[f"{name}.weight"] = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return weights


def columns(x: Array) -> Array:
    """[N, C, H, W] -> the 3x3 neighbourhood of every pixel, [N * H * W, C * 9]."""
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1] * 9)


def images_of(columns_: Array, shape: tuple[int, ...]) -> Array:
    """The transpose of `columns`: adds every neighbourhood back into its pixels."""
    n, c, h, w = shape
    padded = np.zeros((n, c, h + 2, w + 2), np.float32)
    parts = columns_.reshape(n, h, w, c, 3, 3).transpose(0, 3, 4, 5, 1, 2)
    for i in range(3):
        for j in range(3):
            padded[:, :, i : i + h, j : j + w] += parts[:, :, i, j]
    return padded[:, :, 1:-1, 1:-1]


def conv(x: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
    cols = columns(x)
    y = cols @ weight.reshape(len(weight), -1).T + bias
    return y.reshape(len(x), *x.shape[2:], -1).transpose(0, 3, 1, 2), cols


def conv_gradients(dy: Array, cols: Array, weight: Array, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    rows = dy.transpose(0, 2, 3, 1).reshape(-1, len(weight))
    return images_of(rows @ weight.reshape(len(weight), -1), shape), (rows.T @ cols).reshape(weight.shape), rows.sum(0)


def pool(x: Array) -> tuple[Array, Array]:
    """2x2 maxima, and which of the four each one was."""
    n, c, h, w = x.shape
    fours = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
    return fours.max(-1), fours.argmax(-1)


def unpool(dy: Array, chosen: Array) -> Array:
    n, c, h, w = dy.shape
    fours = np.eye(4, dtype=np.float32)[chosen] * dy[..., None]
    return fours.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h * 2, w * 2)


def forward(weights: Weights, x: Array) -> tuple[Array, tuple[Array, ...]]:
    """The probabilities, and what the gradients need."""
    a1, cols1 = conv(x, weights["conv1.weight"], weights["conv1.bias"])
    r1 = np.maximum(a1, 0)
    a2, cols2 = conv(r1, weights["conv2.weight"], weights["conv2.bias"])
    pooled, chosen = pool(np.maximum(a2, 0))
    flat = pooled.reshape(len(x), -1)
    r3 = np.maximum(flat @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    logits = r3 @ weights["fc2.weight"].T + weights["fc2.bias"]
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True), (cols1, r1, cols2, a2, chosen, flat, r3)


def gradients(weights: Weights, x: Array, labels: Array) -> Weights:
    """Of the mean cross entropy."""
    p, (cols1, r1, cols2, a2, chosen, flat, r3) = forward(weights, x)
    d4 = (p - np.eye(10, dtype=np.float32)[labels]) / len(x)
    d3 = (d4 @ weights["fc2.weight"]) * (r3 > 0)
    d2 = unpool((d3 @ weights["fc1.weight"]).reshape(len(x), CHANNELS[1], 4, 4), chosen) * (a2 > 0)
    d1, conv2_weight, conv2_bias = conv_gradients(d2, cols2, weights["conv2.weight"], r1.shape)
    _, conv1_weight, conv1_bias = conv_gradients(d1 * (r1 > 0), cols1, weights["conv1.weight"], x.shape)
    return {
        "conv1.weight": conv1_weight,
        "conv1.bias": conv1_bias,
        "conv2.weight": conv2_weight,
        "conv2.bias": conv2_bias,
        "fc1.weight": d3.T @ flat,
        "fc1.bias": d3.sum(0),
        "fc2.weight": d4.T @ r3,
        "fc2.bias": d4.sum(0),
    }


def shifted(x: Array, rng: np.random.Generator) -> Array:
    """Each image moved by up to one pixel, at random."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, cols = rng.integers(0, 3, (2, len(x)))
    return np.stack([p[:, i : i + 8, j : j + 8] for p, i, j in zip(padded, rows, cols, strict=True)])


def train(images: Array, labels: Array) -> Weights:
    """Adam with a cosine schedule."""
    rng = np.random.default_rng(SEED)
    weights = initial_weights(rng)
    first = {name: np.zeros_like(value) for name, value in weights.items()}
    second = {name: np.zeros_like(value) for name, value in weights.items()}
    batches = len(images) // BATCH
    for step in range(EPOCHS * batches):
        if step % batches == 0:
            order = rng.permutation(len(images))
        chosen = order[step % batches * BATCH :][:BATCH]
        rate = PEAK_RATE * (1 + np.cos(np.pi * step / (EPOCHS * batches))) / 2
        for name, gradient in gradients(weights, shifted(images[chosen], rng), labels[chosen]).items():
            first[name] += 0.1 * (gradient - first[name])
            second[name] += 0.001 * (gradient**2 - second[name])
            unbiased = first[name] / (1 - 0.9 ** (step + 1)), second[name] / (1 - 0.999 ** (step + 1))
            weights[name] -= np.float32(rate) * (unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)).astype(np.float32)
    return weights


def onnx_model(weights: Weights) -> onnx.ModelProto:
    def node(kind: str, x: str, y: str, *parameters: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(kind, [x, *parameters], [y], name=y, **attributes)

    def layer(name: str) -> tuple[str, str]:
        return f"{name}.weight", f"{name}.bias"

    nodes = [
        node("Conv", "image", "conv1", *layer("conv1"), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "conv1", "relu1"),
        node("Conv", "relu1", "conv2", *layer("conv2"), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "conv2", "relu2"),
        node("MaxPool", "relu2", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "pool", "flat", axis=1),
        node("Gemm", "flat", "fc1", *layer("fc1"), transB=1),
        node("Relu", "fc1", "relu3"),
        node("Gemm", "relu3", "logits", *layer("fc2"), transB=1),
        node("Softmax", "logits", "probabilities", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pumice")
    helper.set_model_props(
        model,
        {
            "data": "Optical Recognition of Handwritten Digits, E. Alpaydin, C. Kaynak, 1998, CC BY 4.0",
            "input": "grey image, 8x8, ink 1, paper 0",
        },
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def write_samples(images: Array, labels: Array) -> None:
    """The first held-back image of every class, as a grey PNG."""
    for digit in range(10):
        image = images[np.flatnonzero(labels == digit)[0]]
        grey = np.round(image * (255 / 16)).astype(np.uint8)
        squares = np.kron(grey, np.ones((SAMPLE_SCALE, SAMPLE_SCALE), np.uint8))
        Image.fromarray(squares).save(TARGET / f"sample_{digit}.png")


def main() -> None:
    images, labels, held_images, held_labels = split()
    weights = train(scaled(images), labels)
    right = forward(weights, scaled(held_images))[0].argmax(1) == held_labels
    parameters = sum(w.size for w in weights.values())
    print(f"{parameters} parameters, {right.mean():.2%} of {len(right)} held-back digits right")
    TARGET.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx_model(weights), TARGET / "digits.onnx")
    np.savez_compressed(TARGET / "holdback.npz", images=held_images, labels=held_labels)
    write_samples(held_images, held_labels)


if __name__ == "__main__":
    main()
