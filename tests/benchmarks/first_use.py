"""From process start to the first right result of the digits model, cold and with warm caches, in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

import pumice

from .timing import table

FIRST_RESULT = """
import json, sys, time
start = time.time()
import numpy
numpy_ready = time.time()
import pumice
imported = time.time()
from pathlib import Path
data = Path(pumice.__file__).parent / "data" / "digits"
model = pumice.load(data / "digits.onnx")
loaded = time.time()
images = numpy.load(data / "holdback.npz")
x = (images["images"][:1].astype("float32") / 16).reshape(1, 1, 8, 8)
ready = time.time()
probabilities = model(x)
done = time.time()
assert int(probabilities[0].argmax()) == int(images["labels"][0])
counts = pumice.compile_counts()
print(json.dumps({
    "numpy": numpy_ready - start, "import pumice": imported - numpy_ready, "load": loaded - imported,
    "first call": done - ready, "end": done, "compiled": counts.compiled,
    "onnx loaded": "onnx" in sys.modules, "glslang loaded": "libglslang" in open("/proc/self/maps").read(),
}))
"""

ORT = """
import json, time, pathlib, sys
import numpy, onnxruntime
data = pathlib.Path(sys.argv[1])
session = onnxruntime.InferenceSession(str(data / "digits.onnx"), providers=["CPUExecutionProvider"])
x = (numpy.load(data / "holdback.npz")["images"][:1].astype("float32") / 16).reshape(1, 1, 8, 8)
session.run(None, {session.get_inputs()[0].name: x})
print(json.dumps({"end": time.time()}))
"""


def run(code: str, environment: dict[str, str], *arguments: str) -> tuple[float, dict[str, object]] | None:
    begin = time.time()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        return None
    facts = json.loads(done.stdout.splitlines()[-1])
    return facts.pop("end") - begin, facts


def main(context: pumice.Context) -> None:
    from pathlib import Path

    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "PUMICE_CACHE_DIR": f"{folder}/pumice",
            "MESA_SHADER_CACHE_DIR": f"{folder}/mesa",
            "PUMICE_DEVICE": f"uuid:{context.info.uuid}",
        }
        cold = run(FIRST_RESULT, environment)
        warm = min((r for r in (run(FIRST_RESULT, environment) for _ in range(10)) if r), key=lambda r: r[0], default=None)
        for label, result in (("pumice, cold caches", cold), ("pumice, warm caches (best of 10)", warm)):
            if result is None:
                rows.append([label, "failed"])
                continue
            seconds, facts = result
            phases = ", ".join(f"{k} {v * 1e3:.0f}" for k, v in facts.items() if isinstance(v, float))
            rest = ", ".join(f"{k}: {v}" for k, v in facts.items() if not isinstance(v, float))
            rows.append([label, f"{seconds * 1e3:.0f}", f"{phases}; {rest}"])
        data = str(Path(pumice.__file__).parent / "data" / "digits")
        peer = min((r for r in (run(ORT, {}, data) for _ in range(5)) if r), key=lambda r: r[0], default=None)
        rows.append(["onnxruntime CPU (best of 5)", f"{peer[0] * 1e3:.0f}" if peer else "absent", ""])
    rows = [[*row, ""][:3] for row in rows]
    table("Process start to first right result, digits model (ms)", ["what", "ms", "phases (ms) and facts"], rows)
