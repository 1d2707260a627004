"""DLPack capsules that claim to be on other devices."""

from __future__ import annotations

import ctypes
from typing import Any

_NAMES = {b"dltensor": 8, b"dltensor_versioned": 40}  # capsule name: byte offset of DLTensor.device in its struct


def on_device(capsule: Any, device: tuple[int, int]) -> Any:
    """Return the capsule with its array's device set to this DLPack (type, id)."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name = get_name(capsule)
    address = get_pointer(capsule, name) + _NAMES[name]
    (ctypes.c_int32 * 2).from_address(address)[:] = device
    return capsule
