"""Devices, contexts, buffers and host access."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from features import need_features
from process import NO_DRIVER, python


def test_devices_have_a_stable_identity() -> None:
    first, second = pumice.devices(), pumice.devices()
    assert first
    assert [d.uuid for d in first] == [d.uuid for d in second]
    for device in first:
        assert len(device.uuid) == 32
        assert device.kind in {"discrete", "integrated", "virtual", "software", "other"}
        assert device.limits["maxStorageBufferRange"] >= 1 << 27


def test_a_device_is_found_by_uuid_index_kind_and_part_of_its_name(context: pumice.Context) -> None:
    info = context.info
    for spec in (f"uuid:{info.uuid}", str(info.index), info.name[:5].upper()):
        with pumice.Context(spec) as found:
            assert found.info.uuid == info.uuid
            assert spec in found.choice
    with pumice.Context(info.index) as found:
        assert found.info.uuid == info.uuid


def test_an_unknown_device_lists_those_there_are(context: pumice.Context) -> None:
    with pytest.raises(pumice.DeviceError, match="no Vulkan device matches 'does not exist'") as caught:
        pumice.Context("does not exist")
    assert context.info.uuid in str(caught.value)


def test_masked_features_read_false(context: pumice.Context) -> None:
    need_features(context, "shaderInt64")
    with pumice.Context(f"uuid:{context.info.uuid}", without=["shaderInt64"]) as masked:
        assert not masked.feature("shaderInt64")
        assert not masked.info.features["shaderInt64"]


def test_an_unknown_limit_is_named(context: pumice.Context) -> None:
    with pytest.raises(pumice.Error, match="maxDreams"):
        context.limit("maxDreams")


def test_a_closed_context_says_so(context: pumice.Context) -> None:
    closed = pumice.Context(f"uuid:{context.info.uuid}")
    closed.close()
    closed.close()
    assert closed.closed
    with pytest.raises(pumice.StateError, match="closed"):
        pumice.Buffer(closed, 16)


@pytest.mark.parametrize("heap", ["default", "upload", "readback"])
def test_bytes_survive_the_trip_through_a_buffer(context: pumice.Context, heap: str) -> None:
    given = np.arange(1000, dtype=np.uint8) % 251
    tensor = pumice.Tensor(pumice.TensorDesc("uint8", [1000]), pumice.Buffer(context, 1000, heap))
    tensor.upload(given)
    np.testing.assert_array_equal(tensor.numpy(), given)


@pytest.mark.parametrize("heap", ["upload", "readback"])
def test_a_mapped_buffer_is_a_view(context: pumice.Context, heap: str) -> None:
    buffer = pumice.Buffer(context, 64, heap)
    view = buffer.map()
    assert view.nbytes == 64
    buffer.sync_start(read=True, write=True)
    view[:] = 7
    buffer.sync_end()
    assert (buffer.map() == 7).all()
    buffer.unmap()
    buffer.unmap()
    assert not buffer.mapped


def test_sync_needs_a_mapped_buffer(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 64, "upload")
    with pytest.raises(pumice.StateError, match="map"):
        buffer.sync_start()


def test_an_unknown_heap_is_named(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match="'shared'.*'readback'"):
        pumice.Buffer(context, 64, "shared")


def test_a_buffer_larger_than_the_memory_says_how_large(context: pumice.Context) -> None:
    with pytest.raises(pumice.OutOfMemoryError, match=str(1 << 44)) as caught:
        pumice.Buffer(context, 1 << 44)
    assert isinstance(caught.value, MemoryError)
    assert pumice.Buffer(context, 16).bytes == 16  # the context is still usable


def test_a_closed_buffer_says_so(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 64, "upload")
    buffer.close()
    buffer.close()
    with pytest.raises(pumice.StateError, match="closed"):
        buffer.map()


def test_buffers_are_counted_and_freed(context: pumice.Context) -> None:
    before = context.memory.buffers
    held = [pumice.Buffer(context, 1 << (i % 16)) for i in range(200)]
    assert context.memory.buffers == before + 200
    del held[::2]
    del held
    assert context.memory.buffers == before


def test_a_zero_size_buffer_takes_no_memory(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 0)
    assert buffer.bytes == 0
    assert pumice.empty([0, 3], "float32", context).numpy().shape == (0, 3)


def test_without_a_driver_there_are_no_devices_and_a_clear_error() -> None:
    code = (
        "import pumice\n"
        "assert pumice.devices() == []\n"
        "try: pumice.Context()\n"
        "except pumice.DeviceError as error: print(error)\n"
    )
    done = python("-c", code, **NO_DRIVER, PUMICE_VALIDATION="0")
    assert done.returncode == 0, done.stderr
    assert "no Vulkan driver" in done.stdout


def test_a_forked_child_gets_an_error_and_can_make_its_own_context_where_the_driver_survives() -> None:
    code = """
import os, numpy as np, pumice
parent = pumice.Context()
tensor = pumice.tensor(np.arange(4, dtype="float32"), parent)
survives = all(device.name.startswith("llvmpipe") for device in pumice.devices())
pid = os.fork()
if pid == 0:
    try:
        tensor.numpy()
        os._exit(3)
    except pumice.StateError as error:
        assert "fork" in str(error)
    del tensor, parent
    try:
        own = pumice.Context()
        assert pumice.tensor(np.ones(3, "float32"), own).numpy().sum() == 3
        own.close()
    except pumice.StateError as error:
        assert not survives and "only Mesa's llvmpipe survives a fork" in str(error)
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert tensor.numpy().sum() == 6
print("fine")
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "fine"
