"""The Vulkan layers of tests/faults, and the one of fault_layer.cpp, built for this process and controlled through ctypes."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tool_environment import tool_environment

SOURCE = Path(__file__).resolve().parents[1] / "faults" / "fault_layer.cpp"
NAME = "VK_LAYER_PUMICE_faults"
LIBRARY = "libpumice_faults.so"
KINDS = ("none", "drop", "halve", "skip group", "push", "other set", "no barrier", "weights", "overwrite")


def build(folder: Path, source: Path = SOURCE, name: str = NAME, library_name: str = LIBRARY) -> Path:
    """Compile a layer into a folder, with its manifest. Raise CalledProcessError if the compiler or a header is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / library_name
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        building = library.with_suffix(f".{os.getpid()}")
        command = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-o", building, source]
        subprocess.run(command, check=True, capture_output=True, text=True, env=tool_environment())
        building.rename(library)
    layer = {
        "name": name,
        "type": "GLOBAL",
        "library_path": f"./{library_name}",
        "api_version": "1.3.239",
        "implementation_version": "1",
        "description": "Faults for tests of pumice",
    }
    (folder / f"{source.stem}.json").write_text(
        json.dumps({"file_format_version": "1.0.0", "layer": layer}), encoding="utf-8"
    )
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables that load the layer into a new process."""
    return {
        "VK_ADD_LAYER_PATH": str(folder),
        "VK_INSTANCE_LAYERS": NAME,
        "PUMICE_FAULT_LAYER": str(folder / LIBRARY),
        "PUMICE_NO_CACHE": "1",
        "PUMICE_VALIDATION": "0",
    }


class LayerFault(NamedTuple):
    """A fault of one dispatch. a, b, mask: the group, word or binding, the word in the binding, and the bits to flip.

    Of the matching submissions, numbers phase, phase + period, ... have the fault. exact: only in lists without copies after each step.
    """

    kind: str
    dispatch: int
    a: int = 0
    b: int = 0
    mask: int = 0
    period: int = 1
    phase: int = 0
    exact: bool = False


class _Fault(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("kind", "dispatch")),
        *((name, ctypes.c_uint32) for name in ("a", "b", "mask", "period", "phase")),
        ("exact", ctypes.c_int32),
    ]


class Layer:
    """The layer of this process, which was started with environment()."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["PUMICE_FAULT_LAYER"])
        self._library.fault_count.restype = ctypes.c_uint64
        self._library.fault_log.restype = ctypes.c_char_p
        self._library.fault_code.restype = ctypes.c_uint64

    def inject(self, fault: LayerFault, signatures: list[int]) -> None:
        """Set the fault for later submissions of the list whose dispatches have these signatures."""
        result = _Fault(KINDS.index(fault.kind), *fault[1:])
        array = (ctypes.c_uint64 * len(signatures))(*signatures)
        self._library.fault_set(ctypes.byref(result), array, ctypes.c_uint64(len(signatures)))

    def clear(self) -> None:
        """Remove the fault and the replaced module."""
        self.inject(LayerFault("none", 0), [])
        self._library.fault_replace(ctypes.c_uint64(0), None, ctypes.c_uint64(0))

    @property
    def count(self) -> int:
        """Return how many submissions or shader modules had the fault."""
        return int(self._library.fault_count())

    def flip(self, buffer: int, offset: int, mask: int) -> None:
        """Flip bits of a word in device memory."""
        arguments = ctypes.c_uint64(buffer), ctypes.c_uint64(offset), ctypes.c_uint32(mask)
        assert self._library.fault_flip(*arguments), f"buffer {buffer:x} is not known"

    def replace(self, module: int, words: np.ndarray[Any, Any]) -> None:
        """Replace a shader module whenever it is created from now on."""
        code = np.ascontiguousarray(words, np.uint32)
        self._library.fault_replace(
            ctypes.c_uint64(module), ctypes.c_void_p(code.ctypes.data), ctypes.c_uint64(code.size)
        )

    def code(self, module: int) -> np.ndarray[Any, Any]:
        """Return the SPIR-V words of a module created in this process."""
        size = self._library.fault_code(ctypes.c_uint64(module), None)
        words = np.zeros(size, np.uint32)
        self._library.fault_code(ctypes.c_uint64(module), ctypes.c_void_p(words.ctypes.data))
        return words

    def begin_log(self) -> None:
        """Start logging submitted dispatch lists."""
        self._library.fault_log(1)

    def log(self) -> list[list[dict[str, Any]]]:
        """Stop logging; return the dispatches of each list submitted since begin_log()."""
        lines = [json.loads(line) for line in self._library.fault_log(0).decode().splitlines()]
        return [dispatches for line in lines if (dispatches := _with_barriers(line))]


def _with_barriers(items: list[Any]) -> list[dict[str, Any]]:
    """Return the dispatches of a list; `barrier`: whether a barrier separates it from an earlier dispatch."""
    dispatches: list[dict[str, Any]] = []
    is_separate = False
    for item in items:
        if isinstance(item, dict):
            dispatches.append({**item, "barrier": is_separate and bool(dispatches)})
        is_separate = item == "barrier"
    return dispatches
