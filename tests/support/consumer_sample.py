"""A program that uses pumice, checked with mypy --strict; see test_package.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

import pumice
import pumice.testing

DOUBLE = """
layout(binding = 0) readonly  buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
void main() { uint i = gl_GlobalInvocationID.x; buffer_st1(y, i, buffer_ld1(x, i) * afp(2)); }
"""


def describe(context: pumice.Context) -> str:
    device: pumice.DeviceInfo = context.info
    return f"{device.name} ({device.kind}), {context.limit('maxStorageBufferRange')} bytes a binding: {context.choice}"


def doubled(x: npt.NDArray[np.float32], context: pumice.Context | None = None) -> npt.NDArray[np.float32]:
    y = np.empty_like(x)
    pumice.Kernel(DOUBLE, context)(x=x, y=y, threads=x.size)
    return y


def recorded(kernel: pumice.Kernel, context: pumice.Context) -> int:
    x: pumice.Tensor = pumice.tensor(np.arange(16, dtype="float32"), context)
    y = pumice.empty(x.shape, "float32", context)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=x, y=y, threads=16))
    commands.commit()
    submission = commands.exec()
    submission.wait(timeout=1.0)
    return int(submission)


def classify(path: Path, images: npt.NDArray[np.float32], precision: str = "fp32") -> list[int]:
    try:
        with pumice.load(path, precision=precision) as model:
            pumice.validate(model, [(images,)]).raise_if_failed()
            probabilities: npt.NDArray[np.float32] = model(images)
    except pumice.UnsupportedError as error:
        raise SystemExit(f"cannot run here: {error}") from error
    pumice.testing.assert_close(probabilities.sum(axis=1), np.ones(len(images), np.float32))
    return [int(index) for index in probabilities.argmax(axis=1)]
