"""libdmpdv.so: its exported symbols and return codes."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest

import pumice.dv as dv
from dv_library import Calls, doubling, load_library
from process import NO_DRIVER, output_of
from threads import in_threads

EINVAL, ENODATA, ENOTSUP, EALREADY = 22, 61, 95, 114
SANITIZED = "PUMICE_SANITIZED" in os.environ  # the sanitizer runtime must be loaded before the library
PAGE = 4096


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return load_library()


@pytest.fixture
def c(library: ctypes.CDLL) -> Iterator[Calls]:
    calls = Calls(library)
    yield calls
    assert calls.mem_get_total_size() == 0, "a test left memory behind"


@pytest.fixture
def context(c: Calls) -> Iterator[int]:
    made = c.context_create()
    assert made, c.error
    yield made
    assert c.context_release(made) == 0, "a test left something of the context"


def test_all_32_functions_and_nothing_else_is_exported(library: ctypes.CDLL) -> None:
    header = "".join(path.read_text() for path in dv.include_path().glob("*.h"))
    declared = set(re.findall(r"^[\w *]+[ *](dmp_dv_\w+)\(", header, re.MULTILINE))
    assert len(declared) == 32
    for name in declared:
        getattr(library, name)
    tool = shutil.which("nm")
    if not tool:
        pytest.skip("no nm to list symbols")
    listing = subprocess.run(
        [tool, "-D", "--defined-only", dv.library_path()], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[-1] for line in listing.splitlines()} == declared


def test_the_library_needs_neither_python_nor_vulkan_to_load() -> None:
    tool = shutil.which("readelf")
    if not tool:
        pytest.skip("no readelf")
    text = subprocess.run([tool, "-d", dv.library_path()], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", text)
    assert not [name for name in needed if re.search("python|vulkan|glslang", name)]
    assert "SONAME" not in text


def test_no_device_is_an_error() -> None:
    code = (
        "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); lib.dmp_dv_get_last_error_message.restype = ctypes.c_char_p\n"
        "print(lib.dmp_dv_context_create(), lib.dmp_dv_get_last_error_message().decode())"
    )
    assert output_of("-c", code, str(dv.library_path()), **NO_DRIVER).startswith("0 ")


def test_the_error_message_is_set_like_printf_and_is_never_null(c: Calls) -> None:
    c.set_last_error_message(b"%d and %s", 42, b"text")
    assert c.error == "42 and text"
    c.set_last_error_message(b"%s", b"x" * 1000)
    assert c.error == "x" * 255


def test_null_handles(c: Calls) -> None:
    for kind in ("context", "mem", "cmdlist"):
        assert getattr(c, f"{kind}_retain")(None) == getattr(c, f"{kind}_release")(None) == 0
    assert c.mem_alloc(None, 1) is None
    assert c.cmdlist_create(None) is None
    assert c.mem_map(None) is None
    c.mem_unmap(None)
    assert c.mem_get_size(None) == 0
    assert c.context_get_info_string(None) == b""
    assert c.device_exists(None, 1) == c.fpga_device_exists(None, 1) == -1
    assert c.context_get_info(None, None) == EINVAL
    assert c.mem_sync_start(None, 1, 1) == c.mem_sync_end(None) == c.mem_to_device(None, 0, 0, 0) == EINVAL
    assert c.cmdlist_add_raw(None, b"") == c.cmdlist_commit(None) == c.cmdlist_wait(None, 1) == EINVAL
    assert c.cmdlist_exec(None) == -EINVAL
    assert c.cmdlist_get_last_exec_time(None) == -1


def test_information(c: Calls, context: int) -> None:
    info = np.zeros(8, np.int32)
    for size, expected in ((7, -1), (8, 0), (31, 0), (32, 0), (40, 0)):
        info = np.full(10, -7, np.int32)
        info[0] = size
        assert c.context_get_info(context, info.ctypes.data) == expected
        assert info[0] == size
        assert info[1] == (-7 if size < 8 else 0)
        filled = size >= 32
        assert (info[2:8] != -7).all() == filled and (info[8:] == -7).all()
    text = c.context_get_info_string(context).decode()
    assert (
        text
        == f"DMP DV: ub_size={info[2]} max_kernel_size={info[3]} conv_freq={info[4]} fc_freq={info[5]} max_fc_vector_size={info[6]}"
    )
    assert info[2] >= 618272
    assert c.get_version_string().decode() == dv.get_version_string() == "7.2.20201106"
    assert [c.device_exists(context, kind) for kind in (1, 2, 3, 4)] == [1] * 4
    for kind in (0, 5, -3):
        assert c.fpga_device_exists(context, kind) == -1 and "dev_type_id" in c.error


def test_counts_are_those_after_the_call(c: Calls, context: int) -> None:
    memory = c.mem_alloc(context, 1)
    assert (c.mem_retain(memory), c.mem_release(memory), c.mem_release(memory)) == (2, 1, 0)
    commands = c.cmdlist_create(context)
    assert (c.cmdlist_retain(commands), c.cmdlist_release(commands)) == (2, 1)
    assert (c.context_retain(context), c.context_release(context)) == (3, 2), "the list retains its context"
    assert c.cmdlist_release(commands) == 0
    assert (c.context_retain(context), c.context_release(context)) == (2, 1)


def test_a_list_retains_what_its_commands_name(c: Calls, context: int) -> None:
    memory = c.mem_alloc(context, PAGE)
    commands = c.cmdlist_create(context)
    assert c.cmdlist_add_raw(commands, doubling(memory)) == 0
    assert c.mem_retain(memory) == 4, "as input and as output"
    assert c.context_retain(context) == 5, "of the memory, of the list and of its device"
    c.context_release(context)
    c.mem_release(memory)
    c.mem_release(memory)
    assert c.cmdlist_commit(commands) == 0
    assert c.cmdlist_wait(commands, c.cmdlist_exec(commands)) == 0
    assert c.mem_get_total_size() == PAGE
    assert c.cmdlist_release(commands) == 0
    assert c.mem_get_total_size() == 0


def every_call(c: Calls, kind: str, handle: Any) -> dict[str, Any]:
    """Return the result of each function that takes a handle of this kind."""
    info = np.full(8, 32, np.int32)
    calls: dict[str, dict[str, list[Any]]] = {
        "context": {
            "context_get_info_string": [],
            "context_get_info": [info.ctypes.data],
            "context_retain": [],
            "context_release": [],
            "device_exists": [1],
            "fpga_device_exists": [1],
            "mem_alloc": [PAGE],
            "cmdlist_create": [],
        },
        "mem": {
            "mem_retain": [],
            "mem_release": [],
            "mem_map": [],
            "mem_unmap": [],
            "mem_sync_start": [1, 1],
            "mem_sync_end": [],
            "mem_get_size": [],
            "mem_to_device": [0, 16, 0],
            "mem_to_cpu": [0, 16, 0],
        },
        "cmdlist": {
            "cmdlist_retain": [],
            "cmdlist_release": [],
            "cmdlist_add_raw": [doubling(0)],
            "cmdlist_commit": [],
            "cmdlist_exec": [],
            "cmdlist_wait": [1],
            "cmdlist_get_last_exec_time": [],
        },
    }
    results = {}
    for name, arguments in calls[kind].items():
        c.set_last_error_message(b"nothing")
        results[name] = getattr(c, name)(handle, *arguments)
        assert "an invalid handle" in c.error, name
    return results


DEAD = {
    "context": {
        "context_get_info_string": b"",
        "context_get_info": EINVAL,
        "context_retain": -1,
        "context_release": -1,
        "device_exists": -1,
        "fpga_device_exists": -1,
        "mem_alloc": None,
        "cmdlist_create": None,
    },
    "mem": {
        "mem_retain": -1,
        "mem_release": -1,
        "mem_map": None,
        "mem_unmap": None,
        "mem_sync_start": EINVAL,
        "mem_sync_end": EINVAL,
        "mem_get_size": 0,
        "mem_to_device": EINVAL,
        "mem_to_cpu": EINVAL,
    },
    "cmdlist": {
        "cmdlist_retain": -1,
        "cmdlist_release": -1,
        "cmdlist_add_raw": EINVAL,
        "cmdlist_commit": EINVAL,
        "cmdlist_exec": -EINVAL,
        "cmdlist_wait": EINVAL,
        "cmdlist_get_last_exec_time": -1,
    },
}


@pytest.mark.parametrize("kind", DEAD)
def test_a_dead_handle_is_an_error_of_every_function(c: Calls, context: int, kind: str) -> None:
    made = {
        "context": c.context_create,
        "mem": lambda: c.mem_alloc(context, PAGE),
        "cmdlist": lambda: c.cmdlist_create(context),
    }
    handle = made[kind]()
    assert getattr(c, f"{kind}_release")(handle) == 0
    newer = made[kind]()  # a new handle does not reuse the released one
    assert newer != handle
    assert every_call(c, kind, handle) == DEAD[kind]
    assert getattr(c, f"{kind}_release")(newer) == 0
    assert every_call(c, kind, handle) == DEAD[kind]


@pytest.mark.parametrize("kind", DEAD)
@pytest.mark.parametrize("wrong", [1, 16, 0x7FFF_0000_1234, (1 << 64) - 1, "another kind"])
def test_a_number_that_is_no_handle_is_an_error(c: Calls, context: int, kind: str, wrong: Any) -> None:
    others = {"context": c.cmdlist_create(context), "mem": context, "cmdlist": context}
    handle = others[kind] if wrong == "another kind" else wrong
    assert every_call(c, kind, handle) == DEAD[kind]
    assert c.cmdlist_release(others["context"]) == 0


def test_a_command_names_live_memories(c: Calls, context: int) -> None:
    memory, dead, commands = c.mem_alloc(context, PAGE), c.mem_alloc(context, PAGE), c.cmdlist_create(context)
    assert c.mem_release(dead) == 0
    for number in (dead, 12345, context):
        for slot in ("input_buf", "output_buf", "eltwise_buf"):
            assert c.cmdlist_add_raw(commands, doubling(memory, **{slot: (number, 0)})) == EINVAL
            assert f"{slot}.mem" in c.error and str(number) in c.error
    assert c.mem_retain(memory) == 2, "what is refused retains nothing"
    c.mem_release(memory)
    blit = {"use_tex": 1, "tex_width": 1, "tex_height": 1, "rect_width": 1, "rect_height": 1}
    places = {"tex": (memory, 0), "wr": (memory, 64), "rd": (dead, 0)}
    assert c.cmdlist_add_raw(commands, bytes(dv.Ipu(**blit, **places))) == 0, "a place that is not used may be anything"
    assert (c.cmdlist_release(commands), c.mem_release(memory)) == (0, 0)


def test_handles_are_released_and_used_by_many_threads(c: Calls, context: int) -> None:
    """Four threads release each handle: one release succeeds, later calls are errors, and none crashes."""
    handles = [c.mem_alloc(context, PAGE) for _ in range(40)]

    def work(seed: int) -> list[int]:
        counts = []
        for handle in np.random.default_rng(seed).permutation(handles):
            c.mem_map(int(handle))
            c.mem_sync_start(int(handle), 1, 1)
            counts.append(c.mem_release(int(handle)))
            c.mem_unmap(int(handle))
        return counts

    assert sorted(chain(*in_threads(work, range(4)))) == [-1] * 120 + [0] * 40


def test_memory_calls(c: Calls, context: int) -> None:
    assert c.mem_alloc(context, 0) is None and "at least one byte" in c.error
    memory = c.mem_alloc(context, PAGE + 1)
    assert c.mem_get_size(memory) == c.mem_get_total_size() == 2 * PAGE
    assert c.mem_sync_start(memory, 1, 0) == EINVAL and c.mem_sync_end(memory) == 0
    assert c.mem_to_device(memory, 0, 1, 0) == EINVAL and c.mem_to_device(memory, 0, 0, 0) == 0
    assert c.mem_to_cpu(memory, 0, 1, 0) == EINVAL and c.mem_to_cpu(memory, 0, 1 << 40, 4) == 0
    mapped = c.mem_map(memory)
    assert mapped % 64 == 0 and c.mem_map(memory) == mapped
    assert c.mem_sync_start(memory, 0, 0) == EINVAL
    assert [c.mem_sync_start(memory, *way) for way in ((1, 0), (1, 0), (0, 1), (1, 1))] == [0] * 4
    assert c.mem_to_device(memory, 0, 2 * PAGE + 1, 0) == c.mem_to_cpu(memory, 1, 2 * PAGE, 0) == EINVAL
    assert c.mem_to_device(memory, 1, 2 * PAGE - 1, 3) == c.mem_to_cpu(memory, 2 * PAGE, 0, 0) == 0
    c.mem_unmap(memory)
    c.mem_unmap(memory)
    assert c.mem_release(memory) == 0


def test_list_calls(c: Calls, context: int) -> None:
    memory = c.mem_alloc(context, PAGE)
    commands = c.cmdlist_create(context)
    good = doubling(memory)
    assert c.cmdlist_add_raw(commands, None) == -1
    assert c.cmdlist_commit(commands) == ENODATA
    for raw, code in (
        ((7).to_bytes(4, "little") + bytes(8), EINVAL),
        (good[:4] + b"\0" + good[5:], EINVAL),
        (good[:4] + b"\5" + good[5:], EINVAL),
        (good[:5] + b"\2" + good[6:], ENOTSUP),
        ((1860).to_bytes(4, "little") + good[4:], -1),
        (doubling(memory, topo=0), -1),
        (doubling(memory, output=4095), EINVAL),
        (doubling(memory, output=4094), EINVAL),
    ):
        assert c.cmdlist_add_raw(commands, raw) == code, c.error
    assert c.cmdlist_commit(commands) == EINVAL
    assert (c.cmdlist_exec(commands), c.cmdlist_wait(commands, 1), c.cmdlist_wait(commands, -1)) == (
        -EINVAL,
        -1,
        EINVAL,
    )
    assert c.cmdlist_get_last_exec_time(commands) == -1
    assert c.cmdlist_add_raw(commands, good) == 0
    assert (c.cmdlist_commit(commands), c.cmdlist_commit(commands)) == (0, EALREADY)
    assert c.cmdlist_add_raw(commands, good) == -1
    assert c.cmdlist_get_last_exec_time(commands) == 0
    values = np.ctypeslib.as_array(ctypes.cast(c.mem_map(memory), ctypes.POINTER(ctypes.c_uint16)), (PAGE // 2,)).view(
        np.float16
    )
    assert c.mem_sync_start(memory, 0, 1) == 0
    values[:512] = np.arange(512) / 8
    assert c.mem_sync_end(memory) == 0
    ids = [c.cmdlist_exec(commands) for _ in range(20)]
    assert ids == sorted(set(ids)) and ids[0] >= 1
    assert c.cmdlist_wait(commands, ids[-1]) == c.cmdlist_wait(commands, ids[0]) == 0
    assert c.cmdlist_wait(commands, ids[-1] + 1000) == c.cmdlist_wait(commands, 1 << 62) == -EINVAL
    assert "exec_id" in c.error
    assert c.cmdlist_wait(commands, 0) == 0, "ids finish in order, and the first is 1"
    assert c.cmdlist_get_last_exec_time(commands) >= 0
    assert c.mem_sync_start(memory, 1, 0) == 0
    assert (values[1024:1536] == np.arange(512) / 4).all()
    assert c.mem_release(memory) == 2
    assert c.cmdlist_release(commands) == 0


def test_a_memory_of_another_context(c: Calls, context: int) -> None:
    other = c.context_create()
    memory = c.mem_alloc(other, PAGE)
    assert c.context_release(other) == 1
    commands = c.cmdlist_create(context)
    assert c.cmdlist_add_raw(commands, doubling(memory)) == 0
    assert c.mem_release(memory) == 2
    assert c.cmdlist_commit(commands) == 0
    assert c.cmdlist_wait(commands, c.cmdlist_exec(commands)) == 0
    assert c.cmdlist_release(commands) == 0


def test_packers_return_as_specified(c: Calls) -> None:
    size = ctypes.c_size_t(0)
    weights, bias = np.arange(8 * 8 * 9, dtype=np.uint16), np.arange(8, dtype=np.uint16)
    room = np.zeros(2048, np.uint8)
    at = -room.ctypes.data % 16
    aligned = room[at:]

    def pack(
        function: Any,
        *dims: int,
        target: int | None = None,
        slopes: bool = True,
        source: int | None = weights.ctypes.data,
    ) -> int:
        pointers: list[Any] = [None, source, bias.ctypes.data, *([None] if slopes else []), target]
        return int(function(*dims, *[p if p is None else ctypes.c_void_p(p) for p in pointers], ctypes.byref(size)))

    for function in (c.pack_conv_weights, c.pack_dil_weights):
        size.value = 0
        assert pack(function, 8, 3, 3, 8) == 0
        need = size.value
        assert need == (1168 if function is c.pack_conv_weights else 9 * (16 + 8 * 144))
        size.value = 16
        assert pack(function, 8, 3, 3, 8) == -1, "no memory"
        assert pack(function, 8, 3, 3, 8, target=aligned.ctypes.data + 2) == EINVAL
        assert pack(function, 8, 3, 3, 8, target=aligned.ctypes.data) == -1 and size.value == need
        size.value = 0
        for dims in ((0, 3, 3, 8), (8, 8, 3, 8), (8, 3, 0, 8), (8, 3, 3, -1)):
            assert pack(function, *dims) == -1
        assert function(8, 3, 3, 8, None, None, None, None, None, None) == -1
    size.value = 1168
    assert pack(c.pack_conv_weights, 8, 3, 3, 8, target=aligned.ctypes.data) == 0
    expected = dv.pack_conv_weights(weights.reshape(8, 8, 3, 3).view(np.float16), bias.view(np.float16))
    assert aligned[:1168].tobytes() == bytes(expected)
    size.value = 0
    assert pack(c.pack_fc_weights, 4, 1, 1, 2, 1, 1, slopes=False) == 0 and size.value == 16 + 16
    for code, dims in ((EINVAL, (0, 1, 1, 2, 1, 1)), (0, (4, 1, 1, 2, 1, 1))):
        size.value = 32
        assert pack(c.pack_fc_weights, *dims, target=aligned.ctypes.data, slopes=False) == code
    assert c.pack_fc_weights(4, 1, 1, 2, 1, 1, None, None, None, None, None) == EINVAL
