"""Latency of the four pretrained models, NumPy to NumPy and on the device, beside ONNX Runtime, ncnn and PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import pumice

from .timing import measure, ms, table

MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
CASES = {
    "mnist": ("mnist/mnist.onnx", "mnist/expected/mnist_image1.input.npy"),
    "squeezenet": ("squeezenet/squeezenet.onnx", "squeezenet/expected/dog2.input.npy"),
    "superres 224": ("superres/superres.onnx", "superres/expected/dog2_224.input.npy"),
    "candy 128": ("candy/candy.onnx", "candy/expected/DefaultImage_128.input.npy"),
}


def onnxruntime_row(path: Path, x: np.ndarray) -> list[object]:
    try:
        import onnxruntime
    except ImportError:
        return ["onnxruntime", "absent"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    times = measure(lambda: session.run(None, {name: x}), runs=100)
    return ["onnxruntime CPU fp32, 2 threads", ms(times.best), ms(times.median), "", ""]


def main(context: pumice.Context, models: Path = MODELS) -> None:
    if not models.is_dir():
        print(f"models: absent ({models.name} is not beside the checkout)")
        return
    for label, (file, input_file) in CASES.items():
        x = np.load(models / input_file)
        rows: list[list[object]] = []
        for precision in ("fp32", "fp16"):
            for batch in (1, 4, 64) if context.info.kind != "software" else (1,):
                inputs = np.repeat(x, batch, axis=0)
                model = pumice.load(models / file, context=context, precision=precision)
                times = measure(lambda m=model, i=inputs: m(i), runs=200, budget=4)
                device = sum(nanoseconds for _, nanoseconds in model.program.profile((inputs,))) * 1e-9
                dispatches = model.program.arena([list(inputs.shape)])["dispatches"]
                rows.append(
                    [f"pumice {precision}, batch {batch}", ms(times.best), ms(times.median), ms(device), dispatches]
                )
        rows.append(onnxruntime_row(models / file, x))
        header = ["what", "best", "median", "device, serialised", "dispatches"]
        table(f"{label}, {context.info.name} (ms a call, NumPy to NumPy)", header, rows)
