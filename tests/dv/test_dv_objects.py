"""Contexts, memories and lists of the dv interface: states, destruction in any order, threads, publishing of weights."""

from __future__ import annotations

import gc
import itertools
from itertools import chain
from typing import Any

import numpy as np
import pytest

import pumice
import pumice.dv as dv
from dv_commands import PAGE, committed, doubling
from threads import in_threads


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Free memories of earlier tests that tracebacks keep alive."""
    gc.collect()


def size_in_use() -> int:
    gc.collect()  # frees memories of earlier tests that tracebacks keep alive
    return dv.total_size()


# ---- contexts


def test_a_context_reports_what_it_is(dv_context: dv.Context) -> None:
    assert dv_context.info == {
        "ub_size": 1 << 20,
        "max_kernel_size": 7,
        "conv_freq": 1,
        "fc_freq": 1,
        "max_fc_vector_size": 16384,
    }
    assert dv_context.info_string == "DMP DV: " + " ".join(f"{name}={value}" for name, value in dv_context.info.items())
    assert [dv_context.device_exists(kind) for kind in range(1, 5)] == [True] * 4
    for kind in (0, 5, -1):
        with pytest.raises(pumice.BindingError, match="dev_type_id"):
            dv_context.device_exists(kind)
    assert dv.get_version_string().count(".") == 2
    assert dv_context.device.info.name in repr(dv_context)


def test_a_context_may_be_made_of_a_devices_name(pumice_context: pumice.Context) -> None:
    with dv.Context(f"uuid:{pumice_context.info.uuid}") as made:
        assert made.device.info.uuid == pumice_context.info.uuid
        assert made.device is not pumice_context
        made.device.close()


def test_a_context_remembers_its_last_error(pumice_context: pumice.Context) -> None:
    with dv.Context(pumice_context) as context:
        assert context.last_error == ""
        commands, memory = context.command_list(), context.memory(PAGE)
        for refused in (commands.commit, memory.sync_start, lambda: context.memory(0), lambda: commands.add(dv.Conv())):
            with pytest.raises(pumice.BindingError) as caught:
                refused()
            assert context.last_error == str(caught.value)


# ---- memory


def test_sizes_are_whole_pages(dv_context: dv.Context) -> None:
    before = size_in_use()
    with dv_context.memory(1) as small, dv_context.memory(PAGE + 1) as large:
        assert (small.size, large.size) == (PAGE, 2 * PAGE)
        assert dv.total_size() == before + 3 * PAGE
        assert len(small.map()) == PAGE
    assert dv.total_size() == before
    with pytest.raises(pumice.BindingError, match="at least one byte"):
        dv_context.memory(0)
    with pytest.raises(pumice.OutOfMemoryError):
        dv_context.memory(1 << 60)
    with pytest.raises(pumice.OutOfMemoryError):
        dv_context.memory((1 << 64) - 1)


def test_a_mapping_is_one_until_it_is_unmapped(dv_context: dv.Context) -> None:
    with dv_context.memory(PAGE) as memory:
        first, second = memory.map(), memory.map()
        assert first.ctypes.data == second.ctypes.data
        first[:3] = 1, 2, 3
        memory.unmap()
        memory.unmap()
        assert not memory.mapped
        assert list(memory.map()[:3]) == [1, 2, 3]


def test_a_sync_needs_a_mapping_and_a_direction(dv_context: dv.Context) -> None:
    with dv_context.memory(PAGE) as memory:
        with pytest.raises(pumice.BindingError, match="map\\(\\) first"):
            memory.sync_start()
        memory.sync_end()
        memory.map()
        with pytest.raises(pumice.BindingError, match="neither"):
            memory.sync_start(False, False)
        for read, write in itertools.product([False, True], repeat=2):
            if read or write:
                memory.sync_start(read, write)
        memory.sync_end()
        memory.sync_end()


def test_ranges_of_transfers(dv_context: dv.Context) -> None:
    with dv_context.memory(PAGE) as memory:
        for transfer in (memory.to_device, memory.to_cpu):
            for offset, size in ((0, PAGE + 1), (PAGE + 1, 0), (1 << 63, 1 << 63)):
                with pytest.raises(pumice.BindingError, match="at most 4096 bytes"):
                    transfer(offset, size)
            transfer(PAGE, 0)
            with pytest.raises(pumice.BindingError, match="map\\(\\) first"):
                transfer(0, 1)
        memory.map()
        memory.to_device(8, 16)
        memory.to_cpu(8, 16)


def test_views_are_checked_and_keep_the_memory(dv_context: dv.Context) -> None:
    before = size_in_use()
    memory = dv_context.memory(PAGE)
    view = memory.array(np.float16, (4, 8), 64)
    with pytest.raises(pumice.BindingError, match="at most 4096 bytes"):
        memory.array(np.float32, 1024, 4)
    with pytest.raises(pumice.BindingError, match="at most 4096 bytes"):
        memory.array(np.float32, 1, -4)
    memory.close()
    view[:] = 3
    assert dv.total_size() == before + PAGE
    del view
    gc.collect()
    assert dv.total_size() == before


def test_what_is_closed_says_so(dv_context: dv.Context) -> None:
    memory, commands = dv_context.memory(PAGE), dv_context.command_list()
    for one in (memory, commands):
        one.close()
        one.close()
        assert one.closed and "closed" in repr(one)
    for use in (
        memory.map,
        memory.unmap,
        memory.sync_end,
        lambda: memory.size,
        commands.commit,
        commands.exec,
        lambda: len(commands),
    ):
        with pytest.raises(pumice.StateError, match="closed"):
            use()


# ---- lists


def test_states_of_a_list(dv_context: dv.Context) -> None:
    memory = dv_context.memory(PAGE)
    commands = dv_context.command_list()
    for early in (commands.exec, commands.wait, lambda: commands.dispatch_count):
        with pytest.raises(pumice.StateError, match="commit"):
            early()
    commands.add(doubling(memory))
    assert commands.last_exec_time == 0
    commands.commit()
    with pytest.raises(pumice.StateError, match="already committed"):
        commands.commit()
    with pytest.raises(pumice.StateError, match="is committed"):
        commands.add(doubling(memory))
    assert commands.committed and len(commands) == 1 and commands.dispatch_count == 1
    commands.run(timeout=60)
    assert commands.last_exec_time >= 0


def test_ids_grow_and_may_be_waited_for_in_any_order_and_again(dv_context: dv.Context) -> None:
    memory = dv_context.memory(PAGE)
    first, second = committed(dv_context, doubling(memory)), committed(dv_context, doubling(memory, factor=3.0))
    ids = [commands.exec() for _ in range(20) for commands in (first, second)]
    assert ids == sorted(set(ids)) and ids[0] >= 1
    for i in (ids[-1], ids[0], ids[7], ids[7]):
        first.wait(i, timeout=60)
    second.wait(ids[0], timeout=60)


@pytest.mark.parametrize("wrong", [0, -1, 1 << 62])
def test_an_id_that_was_not_given(dv_context: dv.Context, wrong: int) -> None:
    commands = committed(dv_context, doubling(dv_context.memory(PAGE)))
    with pytest.raises(pumice.BindingError, match="exec_id"):
        commands.wait(wrong, timeout=60)


def test_a_wait_ends_with_its_timeout(dv_context: dv.Context) -> None:
    memory = dv_context.memory(1 << 22)
    commands = committed(dv_context, *[doubling(memory, 1 << 21, pixels=65535) for _ in range(20)])
    for count in (10, 100, 1000, 10_000):  # enough to keep the device busy
        ids = [commands.exec() for _ in range(count)]
        try:
            commands.wait(ids[-1], timeout=0)
        except pumice.TimeoutError:
            break
    else:
        pytest.fail("the device was done at once")
    commands.wait(ids[-1], timeout=60)


def test_the_execution_time_is_that_of_the_execution_waited_for(dv_context: dv.Context) -> None:
    memory = dv_context.memory(1 << 22)
    small = committed(dv_context, doubling(memory, pixels=1))
    large = committed(dv_context, *[doubling(memory, 1 << 21, pixels=65535) for _ in range(8)])
    ids = [small.exec(), large.exec(), small.exec(), large.exec()]
    large.wait(ids[3], timeout=60)
    small.wait(ids[0], timeout=60)
    large.wait(ids[1], timeout=60)
    assert 0 <= small.last_exec_time < large.last_exec_time


def test_a_failed_add_leaves_the_list_as_it_was(dv_context: dv.Context) -> None:
    memory = dv_context.memory(PAGE)
    commands = dv_context.command_list()
    commands.add(doubling(memory))
    with pytest.raises(pumice.BindingError):
        commands.add(dv.Maximizer(input_buf=memory, output_buf=memory, width=0, height=1, nclass=2))
    memory.write(np.ones(1024, np.float16))
    commands.commit()
    commands.run(timeout=60)
    assert (memory.read(np.float16, 1024, 2048)[:1] == 2).all()


@pytest.mark.parametrize("order", list(itertools.permutations(["context", "memory", "list"])))
def test_release_in_every_order(pumice_context: pumice.Context, order: tuple[str, ...]) -> None:
    before = size_in_use()
    context = dv.Context(pumice_context)
    memory = context.memory(PAGE)
    memory.write(np.full(1024, 1.5, np.float16))
    commands = committed(context, doubling(memory))
    view = memory.array(np.float16, 1024, 2048)
    view[:] = 0
    parts = {"context": context, "memory": memory, "list": commands}
    commands.exec()
    for name in order:
        if not commands.closed:
            commands.run(timeout=60)
        if not memory.closed:
            memory.to_cpu(2048, 2048)
        parts[name].close()
    assert (view == 3).all()
    del view, memory, commands, parts
    gc.collect()
    assert dv.total_size() == before


def test_a_memory_may_outlive_its_device() -> None:
    before = size_in_use()
    with pumice.Context() as device:
        memory = dv.Context(device).memory(PAGE)
    memory.close()
    assert dv.total_size() == before


def test_a_list_keeps_what_its_commands_name(dv_context: dv.Context) -> None:
    before = size_in_use()
    memory = dv_context.memory(PAGE)
    handle = memory.handle
    commands = committed(dv_context, doubling(memory))
    memory.close()
    del memory
    gc.collect()
    commands.run(timeout=60)
    assert dv.total_size() == before + PAGE
    assert dv_context.memory(PAGE).handle > handle
    commands.close()
    assert dv.total_size() == before


def test_a_memory_of_another_context_of_the_device_is_taken(
    pumice_context: pumice.Context, dv_context: dv.Context
) -> None:
    with dv.Context(pumice_context) as other:
        memory = other.memory(PAGE)
        memory.write(np.ones(1024, np.float16))
        committed(dv_context, doubling(memory)).run(timeout=60)
        assert (memory.read(np.float16, 16, 2048) == 2).all()


# ---- weights


def test_weights_are_read_at_commit_and_again_where_they_were_published(dv_context: dv.Context) -> None:
    def packed(value: float) -> Any:
        identity = (np.eye(8) * value).astype(np.float16).reshape(8, 8, 1, 1)
        return np.frombuffer(bytes(dv.pack_conv_weights(identity, np.zeros(8, np.float16))), np.uint8)

    memory, weights = dv_context.memory(PAGE), dv_context.memory(PAGE)
    memory.write(np.ones(64, np.float16))
    weights.write(packed(2))
    run = dv.Run(weight_buf=weights, conv_enable=dv.CONVOLUTION, m=8)
    commands = committed(dv_context, dv.Conv(input_buf=memory, output_buf=memory + 2048, w=8, h=1, c=8, run=[run]))

    def result() -> float:
        commands.run(timeout=60)
        values = memory.read(np.float16, 64, 2048)
        assert (values == values[0]).all()
        return float(values[0])

    view = weights.map()
    assert result() == 2
    view[: len(packed(3))] = packed(3)
    assert result() == 2, "not published yet"
    weights.to_device(0, len(packed(3)))
    assert result() == 3
    for value, publish in ((4.0, weights.sync_end), (5.0, weights.unmap)):
        view = weights.map()
        weights.sync_start(read=False, write=True)
        view[: len(packed(value))] = packed(value)
        assert result() == value - 1
        publish()
        assert result() == value
    weights.map()
    weights.to_device(0, 16)  # the same bytes
    assert result() == 5


# ---- threads


def test_lists_run_in_threads(dv_context: dv.Context) -> None:
    def work(number: int) -> None:
        with dv_context.memory(PAGE) as memory:
            memory.write(np.full(1024, number, np.float16))
            with committed(dv_context, doubling(memory)) as commands:
                for _ in range(20):
                    ids = [commands.exec() for _ in range(3)]
                    commands.wait(ids[0], timeout=60)
                    commands.wait(ids[2], timeout=60)
                assert (memory.read(np.float16, 1024, 2048) == 2 * number).all()

    in_threads(work, range(6))


def test_one_list_is_executed_and_waited_for_by_many_threads(dv_context: dv.Context) -> None:
    memory = dv_context.memory(PAGE)
    commands = committed(dv_context, doubling(memory))

    def work(count: int) -> list[int]:
        ids = []
        for _ in range(count):
            ids.append(commands.exec())
            commands.wait(ids[-1], timeout=60)
        return ids

    assert len(set(chain(*in_threads(work, [25] * 4)))) == 100


def test_the_host_of_separate_memory_sees_and_shows_what_it_syncs(pumice_context: pumice.Context) -> None:
    with dv.Context(pumice_context, separate=True) as context, context.memory(PAGE) as memory:
        values, results = memory.array(np.float16, 1024), memory.array(np.float16, 1024, 2048)
        memory.write(np.zeros(2048, np.float16))
        commands = committed(context, doubling(memory))
        values[:] = 1
        commands.run(timeout=60)
        memory.to_cpu(2048, 2048)
        assert (results == 0).all(), "the device saw what was not shown to it"
        memory.to_device(0, 2048)
        commands.run(timeout=60)
        assert (results == 0).all(), "the host saw what it did not ask for"
        memory.sync_start(read=False, write=True)
        assert (results == 2).all(), "what the host does not write would be lost"
        values[:] = 3
        memory.sync_end()
        commands.run(timeout=60)
        memory.sync_start(read=True, write=False)
        assert (results == 6).all()
