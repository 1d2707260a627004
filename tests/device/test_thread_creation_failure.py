"""A process that cannot create threads: kernels are compiled on the calling thread."""

from __future__ import annotations

from process import output_of

# Thread stacks are 1 GiB, which exceeds the address space limit; everything else has 768 MiB.
CODE = """
import os, resource, sys
if len(sys.argv) == 1:
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 30, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], "again"])
import threading
import numpy as np
import pumice
context = pumice.Context()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (768 << 20), -1))
try:
    threading.Thread(target=print).start()
    print("a thread")
except RuntimeError:
    print("no thread")
graph = pumice.Graph("maps")
x = graph.input("x", "float32", [64])
for k, op in enumerate(("Relu", "Softmax", "CumSum")):
    graph.output(f"y{k}", graph.add(op, x, *([np.array(0)] if op == "CumSum" else [])))
graph.compile(context).plan([[64]])
print("compiled")
"""


def test_kernels_are_compiled_without_more_threads() -> None:
    said = output_of("-c", CODE, PUMICE_VALIDATION="0", PUMICE_NO_CACHE="1")
    assert said == "no thread\ncompiled\n"
