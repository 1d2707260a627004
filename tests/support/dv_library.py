"""libdmpdv.so through ctypes, and a raw command for it."""

from __future__ import annotations

import ctypes
from typing import Any

import pumice.dv as dv


def load_library() -> ctypes.CDLL:
    """Load libdmpdv.so with the types of its functions' arguments and results."""
    loaded = ctypes.CDLL(str(dv.library_path()))
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "get_version_string": (text, []),
        "get_last_error_message": (text, []),
        "context_create": (pointer, []),
        "context_get_info_string": (text, [pointer]),
        "mem_alloc": (pointer, [pointer, size]),
        "mem_map": (pointer, [pointer]),
        "mem_unmap": (None, [pointer]),
        "mem_get_size": (size, [pointer]),
        "mem_get_total_size": (ctypes.c_int64, []),
        "cmdlist_create": (pointer, [pointer]),
        "cmdlist_exec": (ctypes.c_int64, [pointer]),
        "cmdlist_get_last_exec_time": (ctypes.c_int64, [pointer]),
        "cmdlist_wait": (ctypes.c_int, [pointer, ctypes.c_int64]),
        "cmdlist_add_raw": (ctypes.c_int, [pointer, ctypes.c_char_p]),
        "mem_to_device": (ctypes.c_int, [pointer, size, size, ctypes.c_int]),
        "mem_to_cpu": (ctypes.c_int, [pointer, size, size, ctypes.c_int]),
        "mem_sync_start": (ctypes.c_int, [pointer, ctypes.c_int, ctypes.c_int]),
        "context_get_info": (ctypes.c_int, [pointer, pointer]),
        "set_last_error_message": (None, [text]),
        "device_exists": (ctypes.c_int, [pointer, ctypes.c_int]),
        "fpga_device_exists": (ctypes.c_int, [pointer, ctypes.c_int]),
        **{
            name: (ctypes.c_int, [pointer])
            for name in (
                *("context_retain", "context_release", "mem_retain", "mem_release", "mem_sync_end"),
                *("cmdlist_retain", "cmdlist_release", "cmdlist_commit"),
            )
        },
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, f"dmp_dv_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


class Calls:
    """The library's functions without their prefix."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, f"dmp_dv_{name}")

    @property
    def error(self) -> str:
        return str(self.get_last_error_message().decode())


def doubling(memory: int, output: int = 2048, **fields: Any) -> bytes:
    """Return a raw command that doubles 8 channels of 64 pixels, with the memory given by its handle."""
    run = dv.Run(pool_enable=dv.POOL_AVERAGE, pool_size=(1, 1), pool_avg_param=2.0, m=8)
    places = {"input_buf": (memory, 0), "output_buf": (memory, output)}
    return bytes(dv.Conv(**(places | {"w": 64, "h": 1, "c": 8, "run": [run]} | fields)))
