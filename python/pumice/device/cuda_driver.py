"""ctypes bindings for the CUDA driver functions that import memory and semaphores of a Vulkan device."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_uint64, c_void_p
from typing import Any

from .._pumice import DeviceError, UnsupportedError
from ..base.log import log_warning

_HANDLE_OPAQUE_FD, _HANDLE_TIMELINE_FD = 1, 9
_FLAG_DEDICATED = 1
_SHUTDOWN_ERRORS = (4, 709)  # CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_CONTEXT_IS_DESTROYED: the resource is already freed


class _HandleUnion(ctypes.Union):
    _fields_ = [("fd", c_int), ("size", c_void_p * 2)]


class ExternalMemoryHandleDesc(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC."""

    _fields_ = [
        ("type", c_int),
        ("handle", _HandleUnion),
        ("size", c_uint64),
        ("flags", c_uint),
        ("reserved", c_uint * 16),
    ]


class ExternalMemoryBufferDesc(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = [("offset", c_uint64), ("size", c_uint64), ("flags", c_uint), ("reserved", c_uint * 16)]


class ExternalSemaphoreHandleDesc(ctypes.Structure):
    """CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC."""

    _fields_ = [("type", c_int), ("handle", _HandleUnion), ("flags", c_uint), ("reserved", c_uint * 16)]


class ExternalSemaphoreParams(ctypes.Structure):
    """CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, which both begin with the value."""

    _fields_ = [("value", c_uint64), ("others", c_uint64 * 8), ("flags", c_uint), ("reserved", c_uint * 16)]


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetUuid": (c_char_p, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxGetCurrent": (POINTER(c_void_p),),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuCtxSynchronize": (),
    "cuMemFree_v2": (c_uint64,),
    "cuStreamGetId": (c_void_p, POINTER(c_uint64)),
    "cuStreamIsCapturing": (c_void_p, POINTER(c_int)),
    "cuImportExternalMemory": (POINTER(c_void_p), POINTER(ExternalMemoryHandleDesc)),
    "cuExternalMemoryGetMappedBuffer": (POINTER(c_uint64), c_void_p, POINTER(ExternalMemoryBufferDesc)),
    "cuDestroyExternalMemory": (c_void_p,),
    "cuImportExternalSemaphore": (POINTER(c_void_p), POINTER(ExternalSemaphoreHandleDesc)),
    "cuDestroyExternalSemaphore": (c_void_p,),
    "cuSignalExternalSemaphoresAsync": (POINTER(c_void_p), POINTER(ExternalSemaphoreParams), c_uint, c_void_p),
    "cuWaitExternalSemaphoresAsync": (POINTER(c_void_p), POINTER(ExternalSemaphoreParams), c_uint, c_void_p),
}


class CudaDriver:
    """The CUDA driver library. Creation raises UnsupportedError if the library, one of its functions or every device is missing."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        try:
            loaded = ctypes.CDLL(library)
        except OSError as error:
            raise UnsupportedError(
                f'share="cuda": the CUDA driver library, {library}, cannot be loaded: {error}'
            ) from None
        self.functions: dict[str, Any] = {}
        for name, types in _SIGNATURES.items():
            function = getattr(loaded, name, None)
            if function is None:
                raise UnsupportedError(f'share="cuda": {library} has no {name}: expected a CUDA 12 driver or later')
            function.argtypes, function.restype = types, c_int
            self.functions[name] = function
        if code := self.functions["cuInit"](0):
            raise UnsupportedError(f'share="cuda": {self.describe_failure("cuInit", code)}')

    def describe_failure(self, name: str, code: int) -> str:
        """Describe a failed call: the function's name, and the error's name, number and text."""
        names_and_texts = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            is_known = self.functions[function](code, byref(text)) == 0 and text.value
            names_and_texts.append(text.value.decode() if is_known and text.value else "an error unknown to the driver")
        return f"{name} failed: {names_and_texts[0]} ({code}): {names_and_texts[1]}"

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raise DeviceError naming it and CUDA's error."""
        if code := self.functions[name](*arguments):
            raise DeviceError(self.describe_failure(name, code))

    def call_and_log_failure(self, name: str, *arguments: Any) -> None:
        """Call a function that frees a resource, and log a failure, because finalizers must not raise."""
        code = self.functions[name](*arguments)
        if code and code not in _SHUTDOWN_ERRORS:
            log_warning(f"shared memory: {self.describe_failure(name, code)}")

    def find_device(self, uuid: str) -> tuple[int, int]:
        """Return the index of the device with this UUID (32 hexadecimal digits), and its CUdevice.

        Raise UnsupportedError listing the available devices.
        """
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        uuids = []
        for number in range(count.value):
            device, uuid_bytes = c_int(), ctypes.create_string_buffer(16)
            self.call("cuDeviceGet", byref(device), number)
            self.call("cuDeviceGetUuid", uuid_bytes, device)
            if uuid_bytes.raw.hex() == uuid:
                return number, device.value
            uuids.append(uuid_bytes.raw.hex())
        raise UnsupportedError(
            f'share="cuda": CUDA has no device with the UUID {uuid}; it has {", ".join(uuids) or "none"} '
            "(CUDA_VISIBLE_DEVICES hides others)"
        )


_lock = threading.Lock()
_drivers: dict[str, CudaDriver] = {}
LIBRARY = "libcuda.so.1"  # replaced by a stub in tests


def get_cuda_driver() -> CudaDriver:
    """Return the process-wide CudaDriver, created on first use. Raise UnsupportedError like CudaDriver."""
    with _lock:
        if LIBRARY not in _drivers:
            _drivers[LIBRARY] = CudaDriver(LIBRARY)
        return _drivers[LIBRARY]


class PrimaryContext:
    """The primary context of one CUDA device, shared with torch and the CUDA runtime."""

    def __init__(self, cuda: CudaDriver, uuid: str) -> None:
        self.cuda = cuda
        self.device_index, self._device = cuda.find_device(uuid)
        handle = c_void_p()
        cuda.call("cuDevicePrimaryCtxRetain", byref(handle), self._device)
        self.handle = handle.value

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.cuda.call_and_log_failure("cuDevicePrimaryCtxRelease_v2", self._device)

    def is_current(self) -> bool:
        """Return whether this context is current on the calling thread."""
        current = c_void_p()
        return self.cuda.functions["cuCtxGetCurrent"](byref(current)) == 0 and current.value == self.handle

    @contextmanager
    def make_current(self) -> Iterator[None]:
        """Make this context current on the calling thread for the duration of the block."""
        self.cuda.call("cuCtxPushCurrent_v2", self.handle)
        try:
            yield
        finally:
            self.cuda.call_and_log_failure("cuCtxPopCurrent_v2", byref(c_void_p()))

    @contextmanager
    def make_current_or_close_fd(self, descriptor: int) -> Iterator[None]:
        """Make this context current like make_current(); close the file descriptor if that fails."""
        try:
            self.cuda.call("cuCtxPushCurrent_v2", self.handle)
        except DeviceError:
            os.close(descriptor)
            raise
        try:
            yield
        finally:
            self.cuda.call_and_log_failure("cuCtxPopCurrent_v2", byref(c_void_p()))

    def is_capturing(self, stream: int) -> bool:
        """Return whether a stream is capturing a CUDA graph. Raise DeviceError if the call fails."""
        status = c_int()
        self.cuda.call("cuStreamIsCapturing", stream, byref(status))
        return status.value != 0


def _call_or_close_fd(cuda: CudaDriver, name: str, descriptor: int, *arguments: Any) -> None:
    """Call a function that takes ownership of a file descriptor, and close the descriptor if the call fails."""
    try:
        cuda.call(name, *arguments)
    except DeviceError:
        os.close(descriptor)
        raise


class ImportedMemory:
    """Memory imported from a file descriptor and mapped into CUDA's address space, until this object is destroyed."""

    def __init__(self, primary: PrimaryContext, descriptor: int, size: int) -> None:
        """Import and map the memory. Take ownership of the descriptor, also on failure.

        size: bytes of the Vulkan allocation, which is dedicated to one buffer. Raise DeviceError if CUDA cannot import the memory.
        """
        self._primary = primary
        self._memory, address = c_void_p(), c_uint64()
        handle_desc = ExternalMemoryHandleDesc(type=_HANDLE_OPAQUE_FD, size=size, flags=_FLAG_DEDICATED)
        handle_desc.handle.fd = descriptor
        with primary.make_current_or_close_fd(descriptor):
            _call_or_close_fd(
                primary.cuda, "cuImportExternalMemory", descriptor, byref(self._memory), byref(handle_desc)
            )
            self.address = 0
            buffer_desc = ExternalMemoryBufferDesc(offset=0, size=size)
            primary.cuda.call("cuExternalMemoryGetMappedBuffer", byref(address), self._memory, byref(buffer_desc))
        self.address = address.value

    def __del__(self) -> None:
        """Wait for CUDA's work, which may still use the memory, and free it."""
        memory = getattr(self, "_memory", None)
        if not memory:
            return
        cuda = self._primary.cuda
        if cuda.functions["cuCtxPushCurrent_v2"](self._primary.handle) != 0:
            return  # CUDA has shut down and freed all memory
        if self.address:
            cuda.call_and_log_failure("cuCtxSynchronize")
            cuda.call_and_log_failure("cuMemFree_v2", self.address)
        cuda.call_and_log_failure("cuDestroyExternalMemory", memory)
        cuda.call_and_log_failure("cuCtxPopCurrent_v2", byref(c_void_p()))


class ImportedSemaphore:
    """A timeline semaphore imported from a file descriptor, which CUDA streams can signal and wait for."""

    def __init__(self, primary: PrimaryContext, descriptor: int) -> None:
        """Take ownership of the descriptor, also on failure. Raise DeviceError if CUDA cannot import the semaphore."""
        self._primary = primary
        self._semaphore = c_void_p()
        handle_desc = ExternalSemaphoreHandleDesc(type=_HANDLE_TIMELINE_FD)
        handle_desc.handle.fd = descriptor
        with primary.make_current_or_close_fd(descriptor):
            _call_or_close_fd(
                primary.cuda, "cuImportExternalSemaphore", descriptor, byref(self._semaphore), byref(handle_desc)
            )
        self._value = ExternalSemaphoreParams()
        self._signal = primary.cuda.functions["cuSignalExternalSemaphoresAsync"]
        self._wait = primary.cuda.functions["cuWaitExternalSemaphoresAsync"]

    def signal(self, value: int, stream: int) -> None:
        """Make the stream signal the value after its current work. The primary context must be current. Not thread-safe.

        Raise DeviceError if the call fails.
        """
        self._value.value = value
        if code := self._signal(byref(self._semaphore), byref(self._value), 1, stream):
            raise DeviceError(self._primary.cuda.describe_failure("cuSignalExternalSemaphoresAsync", code))

    def wait(self, value: int, stream: int) -> None:
        """Make the stream's later work wait for the value. The primary context must be current. Raise DeviceError if the call fails."""
        if code := self._wait(byref(self._semaphore), byref(ExternalSemaphoreParams(value)), 1, stream):
            raise DeviceError(self._primary.cuda.describe_failure("cuWaitExternalSemaphoresAsync", code))

    def __del__(self) -> None:
        semaphore = getattr(self, "_semaphore", None)
        if not semaphore:
            return
        cuda = self._primary.cuda
        if cuda.functions["cuCtxPushCurrent_v2"](self._primary.handle) == 0:
            cuda.call_and_log_failure("cuCtxSynchronize")  # work in flight may still signal the semaphore
            cuda.call_and_log_failure("cuDestroyExternalSemaphore", semaphore)
            cuda.call_and_log_failure("cuCtxPopCurrent_v2", byref(c_void_p()))
