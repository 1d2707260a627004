"""Tests of models on several devices: batches split by rows, results in order, devices lost during a map."""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
import pumice.demo
from onnx_models import model, node, value
from process import python
from pumice._pumice import DeviceLostError, lose_device_after
from pumice.base.element_types import Array
from pumice.base.errors import InputError
from pumice.model.multi_device_scheduler import LostDevice, MultiDeviceScheduler, _RunningCase

DIGITS = Path(pumice.demo.DATA) / "digits.onnx"


@pytest.fixture(scope="module")
def images() -> Array:
    held_back = np.load(Path(pumice.demo.DATA) / "holdback.npz")["images"][:40]
    return (held_back[:, None] / 16).astype(np.float32)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 40])
def test_a_calls_rows_are_divided(twice: pumice.ParallelModel, images: Array, expected: Array, rows: int) -> None:
    np.testing.assert_allclose(twice(images[:rows]), expected[:rows], rtol=1e-5, atol=1e-6)
    assert twice(image=images[:rows]).shape == (rows, 10)


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_cases_come_in_their_order(twice: pumice.ParallelModel, images: Array, expected: Array, depth: int) -> None:
    sizes = [1, 3, 1, 8, 2, 5, 1, 1, 9, 9]
    begins = np.cumsum([0, *sizes])
    cases = [images[a:b] for a, b in itertools.pairwise(begins)]
    for argument in (cases, [(case,) for case in cases], [{"image": item} for item in cases]):
        results = [*twice.map(iter(argument), depth)]
        assert [len(result) for result in results] == sizes
        np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-5, atol=1e-6)


def forgotten(model: pumice.ParallelModel) -> list[threading.Thread]:
    """Return device threads still running, except threads whose case a faster device repeated (normal on a busy machine)."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("pumice-device") and thread not in model._unfinished_threads.values()
    ]


def test_both_devices_work(twice: pumice.ParallelModel, images: Array) -> None:
    before = [item.context.memory for item in twice.models]
    assert all(memory.buffers > 0 for memory in before)
    ids = [len([*element.map([images[:1]])]) for element in twice.models]
    assert ids == [1, 1]
    names: set[str] = set()
    for _ in twice.map([images[:8]] * 40):
        names |= {thread.name for thread in threading.enumerate()}
    assert {"pumice-device-0", "pumice-device-1"} <= names
    assert not forgotten(twice)


def test_an_error_comes_in_its_place_and_ends_the_generator(twice: pumice.ParallelModel, images: Array) -> None:
    results = twice.map([images[:2], images[:3], images[0], images[:4]])
    assert [len(next(results)), len(next(results))] == [2, 3]
    with pytest.raises(pumice.BindingError, match="image"):
        next(results)
    assert [*results] == []

    def failing() -> Iterator[Array]:
        yield images[:1]
        raise KeyError("no more")

    results = twice.map(failing())
    assert len(next(results)) == 1
    with pytest.raises(KeyError, match="no more"):
        next(results)
    assert twice(images[:2]).shape == (2, 10)


def test_a_generator_may_be_left_early(twice: pumice.ParallelModel, images: Array) -> None:
    results = twice.map(images[i : i + 1] for i in range(40))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert not forgotten(twice)


# ---- lost devices


@pytest.mark.parametrize("after", [0, 1, 2, 5, 11])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_lost_devices_work_is_done_by_the_other(
    twice: pumice.ParallelModel,
    images: Array,
    expected: Array,
    caplog: pytest.LogCaptureFixture,
    after: int,
    depth: int,
) -> None:
    [*twice.map([images[:1]] * 8)]
    lose_device_after(twice.models[1].context, after)
    cases = [images[i : i + 1] for i in range(40)]
    with caplog.at_level(logging.WARNING, "pumice"):
        for _ in range(20):  # the loss needs `after` cases on this device, however many the other runs
            results = [*twice.map(cases, depth)]
            np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-5, atol=1e-6)
            if twice.lost:
                break
    (lost,) = twice.lost
    assert lost.place == 1
    assert 1 <= lost.redone <= depth
    assert "VK_ERROR_DEVICE_LOST" in lost.error or "was lost" in lost.error
    assert sum("was lost" in record.message for record in caplog.records) == 1
    assert str(lost) in twice.report()
    np.testing.assert_allclose(twice(images), expected, rtol=1e-5, atol=1e-6)  # the other device continues alone
    assert len(twice.lost) == 1


def test_cases_that_another_device_has_too_are_not_counted_as_done_again(twice: pumice.ParallelModel) -> None:
    noted: list[LostDevice] = []
    work = MultiDeviceScheduler([*enumerate(twice.models)], 2, noted.append, lambda _: None, {})
    work._running_cases = {3: _RunningCase("a", {0, 1}, 0.0), 4: _RunningCase("b", {1}, 0.0)}
    work._handle_device_loss(1, twice.models[1], DeviceLostError("gone"), [(3, "a"), (4, "b"), (5, "already given")])
    assert [event.redone for event in noted] == [1]
    assert [*work._waiting] == [(4, "b")]
    assert work._running_cases[3].device_indices == {0}


def test_a_lost_device_is_noted_once(
    twice: pumice.ParallelModel, images: Array, caplog: pytest.LogCaptureFixture
) -> None:
    [*twice.map([images[:1]] * 8)]
    earlier = [twice.map([images[:1]] * 16) for _ in range(3)]
    loss = LostDevice(1, "it", "gone", 1)
    with caplog.at_level(logging.WARNING, "pumice"), concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert [*pool.map(twice._record_device_loss, [loss] * 8)] == [None] * 8
        assert twice.lost == [loss]
        lose_device_after(twice.models[1].context, 0)
        for results in earlier:  # created while there were two devices
            assert len([*results]) == 16
    assert twice.lost == [loss]
    assert sum("was lost" in record.message for record in caplog.records) == 1


def test_where_all_devices_are_lost_the_error_says_so(twice: pumice.ParallelModel, images: Array) -> None:
    for item in twice.models:
        lose_device_after(item.context, 0)
    with pytest.raises(pumice.DeviceLostError, match="all 2 devices were lost"):
        [*twice.map([images[:1]] * 8)]
    assert sorted(loss.place for loss in twice.lost) == [0, 1]
    with pytest.raises(pumice.DeviceLostError, match="device 0.*device 1|device 1.*device 0"):
        twice(images)


def test_a_context_says_that_its_device_was_lost(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as other:
        tensor = pumice.full(4, 2.0, context=other)
        assert tensor.numpy().sum() == 8
        lose_device_after(other, 0)
        with pytest.raises(pumice.DeviceLostError, match="vkQueueSubmit"):
            pumice.full(4, 2.0, context=other).numpy(), tensor.copy()
        with pytest.raises(pumice.DeviceLostError, match="create a new Context"):
            tensor.copy()


# ---- errors, and properties of the group


def test_rejections(context: pumice.Context, images: Array) -> None:
    with pytest.raises(pumice.BindingError, match="a context or devices"):
        pumice.load(DIGITS, context, devices="all")  # type: ignore[call-overload]
    with pytest.raises(pumice.BindingError, match="overridable"):
        pumice.load(DIGITS, devices="all", overridable=["a"])  # type: ignore[call-overload]
    with pytest.raises(pumice.Error, match="'all' or a list of devices"):
        pumice.load(DIGITS, devices="discrete")
    with pytest.raises(pumice.Error, match="at least one device"):
        pumice.load(DIGITS, devices=[])
    with pytest.raises(pumice.DeviceError, match="no Vulkan device matches 'gone'"):
        pumice.load(DIGITS, devices=["gone"])
    with pumice.load(DIGITS, devices=[context]) as loaded:
        with pytest.raises(pumice.Error, match="a depth of 1 to 8"):
            loaded.map([], depth=0)
        with pytest.raises(TypeError, match="BatchPredictor"):
            pickle.dumps(loaded)
        with pytest.raises(pumice.BindingError, match="image"):
            loaded()
    assert not context.closed, "a context that was given stays open"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "devices: expected 'all' or a list of devices; given 0"),
        ((item for item in "ab"), "devices: expected 'all' or a list of devices; given generator"),
        (b"a", "devices: expected 'all' or a list of devices; given bytes"),
        ([None], "devices: expected names, indices and contexts in the list; given NoneType"),
        ([True], "devices: expected names, indices and contexts in the list; given bool"),
    ],
)
def test_what_is_no_list_of_devices_is_rejected(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        pumice.load(DIGITS, devices=given)


def test_a_context_is_no_list_of_devices(context: pumice.Context) -> None:
    with pytest.raises(InputError, match="devices: expected 'all' or a list of devices; given Context"):
        pumice.load(DIGITS, devices=context)  # type: ignore[call-overload]


def test_options_that_several_devices_do_not_take_are_not_offered(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match="'wobble': expected one of folder, progress, seed") as caught:
        pumice.load(DIGITS, devices=[context], wobble=1)  # type: ignore[call-overload]
    assert "overridable" not in str(caught.value)
    with pytest.raises(pumice.BindingError, match="devices=.* lists the devices"):
        pumice.load(DIGITS, devices=[context], device="cpu")  # type: ignore[call-overload]
    with pumice.load(DIGITS, devices=[context], overridable=False) as loaded:  # type: ignore[call-overload]
        assert len(loaded.models) == 1
    with pytest.raises(pumice.BindingError, match=r"pumice\.load\(model, devices=\.\.\.\)"):
        pumice.Model(DIGITS, devices=[context])  # type: ignore[arg-type]


def test_what_holds_a_model_says_where_it_is(context: pumice.Context, images: Array) -> None:
    with pumice.load(DIGITS, devices=[context]) as loaded:
        with pytest.raises(TypeError, match=r"not ParallelModel: its \.models\[0\] is the model on the first device"):
            pumice.validate(loaded, [images[:1]])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not ParallelModel"):
            pumice.BatchPredictor(loaded)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not BatchPredictor: its \.model is the model"):
        pumice.validate(pumice.BatchPredictor(DIGITS), [images[:1]])  # type: ignore[arg-type]


def test_a_fixed_number_of_rows(context: pumice.Context) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", shape=[4, 3])], ["y"])
    x = np.arange(-12, 12, dtype=np.float32).reshape(8, 3)
    with pumice.load(proto, devices=[f"uuid:{context.info.uuid}"] * 2) as loaded:
        np.testing.assert_array_equal(loaded(x), np.maximum(x, 0))
        with pytest.raises(pumice.Error, match="4 rows; expected a multiple of that, given 7"):
            loaded(x[:7])
        assert (loaded.name, loaded.precision) == (loaded.models[0].name, "fp32")
        assert loaded.report().count("device ") == 2


def test_an_output_without_rows_is_rejected_although_each_device_has_one_row(context: pumice.Context) -> None:
    proto = model([node("ReduceMean", axes=[0], keepdims=1)], [value("x", shape=["N", 3])])
    with (
        pumice.load(proto, devices=[f"uuid:{context.info.uuid}"] * 2) as loaded,
        pytest.raises(pumice.BindingError, match="output 'y'.*rows along the first axis"),
    ):
        loaded(np.zeros((2, 3), np.float32))


def test_a_seed_is_rejected_where_devices_would_make_the_same_noise(context: pumice.Context) -> None:
    name = f"uuid:{context.info.uuid}"
    noise = model([node("RandomNormalLike")], [value("x", shape=["N", 3])])
    with pytest.raises(
        InputError, match="seed: expected no seed for a model with random numbers on 2 devices; given 7"
    ):
        pumice.load(noise, devices=[name] * 2, seed=7)
    with pumice.load(noise, devices=[name] * 2) as loaded:
        first, second = (item(np.zeros((8, 3), np.float32)) for item in loaded.models)
        assert not np.array_equal(first, second)
    with pumice.load(noise, devices=[name], seed=7) as loaded, pumice.load(noise, context, seed=7) as alone:
        x = np.zeros((8, 3), np.float32)
        np.testing.assert_array_equal(loaded(x), alone(x))
    with pumice.load(DIGITS, devices=[name] * 2, seed=7) as loaded:
        assert loaded.models[0].seed is None


def test_several_outputs(context: pumice.Context) -> None:
    nodes = [node("Add", ["a", "b"], ["sum"]), node("Max", ["a", "b"], ["most"])]
    proto = model(nodes, [value("a", shape=["N", 3]), value("b", shape=["N", 3])], ["sum", "most"])
    a, b = np.arange(21, dtype=np.float32).reshape(7, 3), np.full((7, 3), 9, np.float32)
    with pumice.load(proto, devices=[f"uuid:{context.info.uuid}"] * 2) as loaded:
        results = loaded(a, b=b)
        np.testing.assert_array_equal(results.sum, a + b)
        np.testing.assert_array_equal(results["most"], np.maximum(a, b))


def test_all_devices_of_a_machine(tmp_path: Path, images: Array, expected: Array) -> None:
    """Use two drivers if PUMICE_TEST_DRIVERS lists their manifests, else the same device alone."""
    manifests = [os.environ.get("VK_DRIVER_FILES", ""), *os.environ.get("PUMICE_TEST_DRIVERS", "").split(":")]
    named = ":".join(filter(None, manifests))
    code = f"""
import numpy as np, pumice
images = np.load({str(tmp_path / "images.npy")!r})
found = pumice.devices()
with pumice.load({str(DIGITS)!r}, devices="all", progress=False) as model:
    assert [one.device.uuid for one in model.models] == [one.uuid for one in found], model.report()
    np.save({str(tmp_path / "results.npy")!r}, np.concatenate([*model.map(np.array_split(images, 20))]))
print(len(found))
"""
    np.save(tmp_path / "images.npy", images)
    drivers: dict[str, Any] = {"VK_DRIVER_FILES": named, "VK_ICD_FILENAMES": named} if named else {}
    done = python("-c", code, **drivers)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "results.npy"), expected, rtol=1e-4, atol=1e-5)
