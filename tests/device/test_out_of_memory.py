"""A process short of memory: the error names it, and does not claim that there is no driver."""

from __future__ import annotations

import pytest

import pumice
from process import python

CODE = """
import resource, sys
import pumice
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used() + (int(sys.argv[1]) << 20), -1))
try:
    {call}
    print("opened")
except pumice.OutOfMemoryError as error:
    print("OutOfMemoryError", error)
except MemoryError:
    print("MemoryError")
except pumice.Error as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("call", ["pumice.Context()", "pumice.devices()", "pumice.zeros(4)"])
@pytest.mark.parametrize("mebibytes", [4, 32, 64, 128, 192, 320])
def test_short_memory_is_no_missing_driver(call: str, mebibytes: int, context: pumice.Context) -> None:
    """Whether the loader can map a driver depends on the remaining memory."""
    done = python("-c", CODE.replace("{call}", call), str(mebibytes))
    is_mesa = context.info.name.startswith("llvmpipe")
    if done.returncode and not is_mesa:
        pytest.skip("this driver ends the process itself if it can allocate no memory")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("opened", "OutOfMemoryError", "MemoryError")), done.stdout
    if mebibytes <= (64 if is_mesa else 4):  # Mesa with LLVM needs 200, SwiftShader 48
        assert done.stdout.startswith("OutOfMemoryError"), done.stdout
        assert "memory is exhausted or limited" in done.stdout
