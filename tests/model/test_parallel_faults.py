"""Slow or stuck devices during a map, and Ctrl-C: no result is lost or duplicated, and nothing waits without need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
import pumice.demo
from pumice.base.element_types import Array

DIGITS = Path(pumice.demo.DATA) / "digits.onnx"
LATE = 60.0  # timeout in seconds of a test that would otherwise hang


class Gate:
    """Blocks the results of one model until opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.held: Any = None  # the model
        self.cases: list[bytes] = []  # cases it has started
        self.on_other: Callable[[Any, Array], None] = lambda model, image: None
        start = pumice.Model.run_async
        gate = self

        def run_async(model: pumice.Model, image: Array, **options: Any) -> Any:
            if model is not gate.held:
                gate.on_other(model, image)
                return start(model, image, **options)
            gate.cases.append(image.tobytes())
            return Held(start(model, image, **options), gate.open)

        monkeypatch.setattr(pumice.Model, "run_async", run_async)
        self._watch = threading.Timer(LATE, self.give_up)
        self._watch.daemon = True
        self.gave_up = False

    def give_up(self) -> None:
        self.gave_up = True
        self.open.set()

    def __enter__(self) -> Gate:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._watch.cancel()


class Held:
    def __init__(self, run: Any, gate: threading.Event) -> None:
        self._run, self._gate = run, gate

    def result(self) -> Any:
        self._gate.wait()
        return self._run.result()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    with Gate(monkeypatch) as new_gate:
        yield new_gate


@pytest.fixture(scope="module")
def images() -> list[Array]:
    return [*np.random.default_rng(2).random((60, 1, 1, 8, 8), np.float32)]


@pytest.fixture(scope="module")
def expected(images: list[Array], pumice_context: pumice.Context) -> Array:
    with pumice.load(DIGITS, pumice_context) as loaded:
        return np.concatenate([loaded(image) for image in images])


def hold(twice: pumice.ParallelModel, gate: Gate, images: list[Array]) -> None:
    """Warm up both devices, then block the second."""
    [*twice.map(images[:16])]
    gate.held = twice.models[1]


def device_threads(device_index: int) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"pumice-device-{device_index}"]


@pytest.mark.parametrize("depth", [1, 3])
def test_a_slow_device_blocks_no_other(
    twice: pumice.ParallelModel, gate: Gate, images: list[Array], expected: Array, depth: int
) -> None:
    hold(twice, gate, images)
    results: list[Array] = []
    while not gate.cases:  # the other device may have been faster
        results = [*twice.map(images, depth)]
        assert len(results) == len(images)
        np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-5, atol=1e-6)
    assert not gate.gave_up, "the results waited for the device that was late"
    assert 1 <= len(gate.cases) <= depth
    assert "device 1 (" in twice.report() and "was late: others also ran" in twice.report()
    assert not twice.lost


def test_a_slow_device_starts_nothing_new_until_it_ends(
    twice: pumice.ParallelModel, gate: Gate, images: list[Array], expected: Array
) -> None:
    hold(twice, gate, images)
    while not gate.cases:
        [*twice.map(images)]
    begun = len(gate.cases)
    for _ in range(3):
        np.testing.assert_allclose(np.concatenate([*twice.map(images)]), expected, rtol=1e-5, atol=1e-6)
    assert not gate.gave_up
    assert len(gate.cases) == begun
    gate.open.set()
    for thread in device_threads(1):
        thread.join()
    while len(gate.cases) == begun:  # it works again
        np.testing.assert_allclose(np.concatenate([*twice.map(images)]), expected, rtol=1e-5, atol=1e-6)


def test_if_the_helping_device_is_lost_the_slow_ones_result_counts(
    twice: pumice.ParallelModel, gate: Gate, images: list[Array], expected: Array
) -> None:
    hold(twice, gate, images)

    def lose(model: Any, image: Array) -> None:
        if image.tobytes() in gate.cases:
            gate.open.set()
            raise pumice.DeviceLostError("gone while it helped")

    gate.on_other = lose
    while not twice.lost:
        np.testing.assert_allclose(np.concatenate([*twice.map(images)]), expected, rtol=1e-5, atol=1e-6)
    assert [loss.place for loss in twice.lost] == [0]
    assert not gate.gave_up


def test_an_error_of_a_case_is_raised_despite_a_slow_device(
    twice: pumice.ParallelModel, gate: Gate, images: list[Array]
) -> None:
    hold(twice, gate, images)
    while not gate.cases:
        results = twice.map([*images, np.zeros(3, np.float32)])
        assert [next(results).shape for _ in images] == [(1, 10)] * len(images)
        with pytest.raises(pumice.BindingError, match="image"):
            next(results)
    assert not gate.gave_up


INTERRUPTED = f"""
import os, signal, threading
import numpy as np
import pumice

signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background shells start processes that ignore it
x = np.random.default_rng(1).random((1, 1, 8, 8), np.float32)
model = pumice.load({str(DIGITS)!r}, devices=[0, 0], progress=False)
expected = model.models[0](x)
[*model.map([x] * 8)]
gate, begun, start = threading.Event(), threading.Semaphore(0), pumice.Model.run_async

class Held:
    def __init__(self, run):
        self.run = run
    def result(self):
        begun.release()
        gate.wait()
        return self.run.result()

def interrupt():
    begun.acquire()
    os.kill(os.getpid(), signal.SIGINT)

pumice.Model.run_async = lambda *given, **options: Held(start(*given, **options))
threading.Thread(target=interrupt, daemon=True).start()
try:
    [*model.map([x] * 40, depth=8)]
except KeyboardInterrupt:
    print("interrupted", flush=True)
pumice.Model.run_async = start
threading.Timer(0.2, gate.set).start()  # what is in flight ends
for y in model.map([x] * 40, depth=8):
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-6)
model.close()
print("usable", flush=True)
"""


def test_ctrl_c_ends_a_map_at_once_and_leaves_the_model_usable() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        out, err = process.communicate(timeout=LATE)
    except subprocess.TimeoutExpired:
        pytest.fail("the interrupt waited for what is in flight")
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.returncode == 0, err
    assert out.split() == ["interrupted", "usable"]
