"""A mock of the CUDA driver library: imports memory and semaphores from file descriptors, and records its calls."""

from __future__ import annotations

import ctypes
from pathlib import Path

from stand_in_gpus import compiled_library

_CUDA = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long u64;
static char calls[1 << 16], failing[64];
static int code, current;
static const unsigned char uuids[][16] = {%(uuids)s};
static int log_call(const char* name, const char* what) {
  size_t used = strlen(calls);
  snprintf(calls + used, sizeof calls - used, "%%s%%s%%s\\n", name, *what ? " " : "", what);
  return strcmp(name, failing) ? 0 : code;
}
#define LOG(...) char what[128]; snprintf(what, sizeof what, __VA_ARGS__); int failed = log_call(__func__, what); if (failed) return failed
const char* stand_in_calls(void) { return calls; }
void stand_in_reset(const char* name, int number) { *calls = 0; snprintf(failing, sizeof failing, "%%s", name); code = number; }
struct Memory { int fd; u64 size; };
struct ExternalMemoryHandleDesc { int type; union { int fd; void* both[2]; } handle; u64 size; unsigned flags, reserved[16]; };
struct ExternalSemaphoreHandleDesc { int type; union { int fd; void* both[2]; } handle; unsigned flags, reserved[16]; };
struct Range { u64 offset, size; unsigned flags, reserved[16]; };
static struct Memory kept[1024];
static int count;
int cuInit(unsigned flags) { return strcmp("cuInit", failing) ? 0 : code; }
int cuGetErrorName(int given, const char** text) { *text = "CUDA_ERROR_STAND_IN"; return 0; }
int cuGetErrorString(int given, const char** text) { *text = "a failure on purpose"; return 0; }
int cuDeviceGetCount(int* devices) { *devices = sizeof uuids / sizeof *uuids; return 0; }
int cuDeviceGet(int* device, int number) { *device = 40 + number; return 0; }
int cuDeviceGetUuid(void* uuid, int device) { memcpy(uuid, uuids[device - 40], 16); return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { LOG("%%d", device); *context = (void*)0x51; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { LOG("%%d", device); return 0; }
int cuCtxGetCurrent(void** context) { *context = current ? (void*)0x51 : 0; return 0; }
int cuCtxPushCurrent_v2(void* context) { if (context != (void*)0x51) return 201; ++current; return 0; }
int cuCtxPopCurrent_v2(void** context) { if (!current) return 201; --current; return 0; }
int cuCtxSynchronize(void) { LOG(""); return current ? 0 : 201; }
int cuStreamGetId(void* stream, u64* number) { *number = 1000 + (u64)stream; return 0; }
int cuImportExternalMemory(void** memory, const struct ExternalMemoryHandleDesc* given) {
  LOG("type %%d size %%llu flags %%u", given->type, given->size, given->flags);
  if (!current) return 201;
  kept[count].fd = given->handle.fd, kept[count].size = given->size;
  *memory = &kept[count++];
  return 0;
}
int cuExternalMemoryGetMappedBuffer(u64* address, struct Memory* memory, const struct Range* range) {
  LOG("offset %%llu size %%llu", range->offset, range->size);
  *address = 0x7f0000000000ull + ((u64)(memory - kept) << 32);
  return 0;
}
int cuMemFree_v2(u64 address) { LOG(""); return 0; }
int cuDestroyExternalMemory(struct Memory* memory) { LOG(""); return close(memory->fd); }
int cuImportExternalSemaphore(void** semaphore, const struct ExternalSemaphoreHandleDesc* given) {
  LOG("type %%d flags %%u", given->type, given->flags);
  kept[count].fd = given->handle.fd;
  *semaphore = &kept[count++];
  return 0;
}
int cuDestroyExternalSemaphore(struct Memory* semaphore) { LOG(""); return close(semaphore->fd); }
int cuStreamIsCapturing(void* stream, int* status) {
  *status = (size_t)stream == 99;
  return current ? 0 : 201;
}
int cuSignalExternalSemaphoresAsync(void* const* semaphores, const u64* value, unsigned number, void* stream) {
  LOG("%%llu of %%u on %%zu", *value, number, (size_t)stream);
  return current ? 0 : 201;
}
int cuWaitExternalSemaphoresAsync(void* const* semaphores, const u64* value, unsigned number, void* stream) {
  LOG("%%llu of %%u on %%zu", *value, number, (size_t)stream);
  return current ? 0 : 201;
}
"""


class StandInCuda:
    """The mock library in a folder, with devices of these UUIDs."""

    def __init__(self, folder: Path, uuids: list[str], without: str = "") -> None:
        """without: name of a function that the library lacks."""
        bytes_of = (", ".join(f"0x{uuid[i : i + 2]}" for i in range(0, 32, 2)) for uuid in uuids)
        text = _CUDA % {"uuids": ", ".join(f"{{{item}}}" for item in bytes_of)}
        if without:
            text = text.replace(f"int {without}(", f"static int {without}(")
        self.path = str(compiled_library(text, folder / "libcuda.so.1"))
        self._library = ctypes.CDLL(self.path)
        self._library.stand_in_calls.restype = ctypes.c_char_p

    def reset(self, failing: str = "", code: int = 0) -> None:
        """Forget earlier calls; the function of this name fails from now on."""
        self._library.stand_in_reset(failing.encode(), code)

    @property
    def calls(self) -> list[str]:
        """Return the calls since the last reset, with their arguments."""
        return self._library.stand_in_calls().decode().splitlines()  # type: ignore[no-any-return]
