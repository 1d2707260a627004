"""Time from process start to the first correct result with the digits model, and what the process loaded."""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pumice

from .conversion import converted
from .model_cases import DIGITS
from .rows import Row, Table
from .session import Session
from .timing import Absent

MS = 1e3

# Each program prints the system-wide time of its first correct result; argv: what it should use.
PUMICE = """
import sys, time
marks = {"interpreter": time.monotonic()}
import numpy
marks["numpy"] = time.monotonic()
import pumice
marks["import pumice"] = time.monotonic()
context = pumice.Context()
marks["context"] = time.monotonic()
model = pumice.load(sys.argv[1] + "/digits.onnx", context=context)
marks["load"] = time.monotonic()
with numpy.load(sys.argv[1] + "/holdback.npz") as archive:
    image, label = archive["images"][:1, None].astype("float32") / 16, int(archive["labels"][0])
marks["image"] = time.monotonic()
right = int(model(image).argmax()) == label
marks["call"] = end = time.monotonic()
import json
libraries = {line.rsplit("/", 1)[-1] for line in open("/proc/self/maps")}
print(json.dumps({
    "end": end, "right": right, "marks": marks, "compiled": pumice.compile_counts().compiled,
    "loaded": ["onnx"] * ("onnx" in sys.modules) + ["glslang"] * any("glslang" in name for name in libraries),
}))
"""

ONNXRUNTIME = """
import sys, time
import numpy
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1] + "/digits.onnx", providers=["CPUExecutionProvider"])
with numpy.load(sys.argv[1] + "/holdback.npz") as archive:
    image, label = archive["images"][:1, None].astype("float32") / 16, int(archive["labels"][0])
right = int(session.run(None, {session.get_inputs()[0].name: image})[0].argmax()) == label
end = time.monotonic()
import json
print(json.dumps({"end": end, "right": right}))
"""

NCNN = """
import sys, time
import numpy
import ncnn
names = [ncnn.get_gpu_info(i).device_name() for i in range(ncnn.get_gpu_count())]
net = ncnn.Net()
net.opt.use_vulkan_compute = True
for option in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"):
    setattr(net.opt, option, False)
net.set_vulkan_device(names.index(sys.argv[3]))
net.load_param(sys.argv[2] + "/model.ncnn.param"), net.load_model(sys.argv[2] + "/model.ncnn.bin")
with numpy.load(sys.argv[1] + "/holdback.npz") as archive:
    image, label = archive["images"][:1, None].astype("float32") / 16, int(archive["labels"][0])
with net.create_extractor() as extractor:
    extractor.input("in0", ncnn.Mat(image[0]))
    right = int(numpy.array(extractor.extract("out0")[1]).argmax()) == label
end = time.monotonic()
import json
print(json.dumps({"end": end, "right": right}))
"""


def process(code: str, environment: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """Return the facts that a program prints, and the seconds from its start to its result.

    Raise Absent if it fails or is wrong.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PUMICE_NO_CACHE"}
    command = [sys.executable, "-c", code, str(DIGITS), *arguments]
    begin = time.monotonic()
    done = subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Absent((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not facts["right"]:
        raise Absent("its first result is wrong")
    return {**facts, "begin": begin, "seconds": facts["end"] - begin}


def compile_bytecode() -> None:
    """Compile the package to bytecode, as pip does on install.

    A checkout may run with bytecode writing disabled.
    """
    compileall.compile_dir(Path(pumice.__file__).parent, maxlevels=0, quiet=2)


def caches(folder: Path) -> dict[str, str]:
    """Return the environment variables for the compile caches of the engine and drivers."""
    compile_bytecode()
    paths = {"PUMICE_CACHE_DIR": "pumice", "MESA_SHADER_CACHE_DIR": "mesa", "__GL_SHADER_DISK_CACHE_PATH": "nvidia"}
    for name in paths.values():
        (folder / name).mkdir(parents=True, exist_ok=True)
    return {variable: str(folder / name) for variable, name in paths.items()}


def phases(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the milliseconds of each phase."""
    marks = facts["marks"]
    return {
        name: (at - before) * MS
        for (name, at), before in zip(marks.items(), [facts["begin"], *marks.values()], strict=False)
    }


def row(what: str, runs: Sequence[Mapping[str, Any]], **more: Any) -> Row:
    seconds = [facts["seconds"] * MS for facts in runs]
    return Row(what, min(seconds), statistics.median(seconds), judged="best", **more)


def run(session: Session) -> Iterator[Table]:
    """Yield the table; each first process finds empty caches, later ones its cached data."""
    yield Table(
        f"Start of a process to its first right result, digits, {session.context.info.name}", "ms", list(rows(session))
    )


def rows(session: Session) -> Iterator[Row]:
    count = session.effort.processes
    with tempfile.TemporaryDirectory() as folder:
        environment = {**caches(Path(folder) / "ours"), "PUMICE_DEVICE": f"uuid:{session.context.info.uuid}"}
        try:
            cold, *warm = (process(PUMICE, environment) for _ in range(count + 1))
        except Absent as reason:
            yield Row("pumice", absent=str(reason))
        else:
            yield from our_rows(session, cold, warm)
        for label, make in peers(session, caches(Path(folder) / "peers")).items():
            try:
                cold, *warm = (make() for _ in range(count + 1))
            except Absent as reason:
                yield Row(label, absent=str(reason))
            else:
                yield row(f"{label}, first process", [cold])
                yield row(f"{label}, caches warm", warm)


def our_rows(session: Session, cold: Mapping[str, Any], warm: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    def told(facts: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {value:.0f}" for name, value in phases(facts).items())

    quickest = min(warm, key=lambda facts: facts["seconds"])
    target = 250.0 if session.software else None
    yield row("pumice, first process", [cold], note=told(cold))
    yield row("pumice, caches warm", warm, target=target, note=told(quickest))
    imports = [phases(facts)["import pumice"] for facts in warm]
    yield Row("import pumice beyond NumPy's own", min(imports), statistics.median(imports), target=60, judged="best")
    yield Row("shaders compiled, caches warm (number)", max(facts["compiled"] for facts in warm), target=0)
    loaded = sorted({name for facts in warm for name in facts["loaded"]})
    yield Row("of onnx and glslang loaded, caches warm (number)", len(loaded), target=0, note=", ".join(loaded))


def peers(session: Session, environment: Mapping[str, str]) -> dict[str, Callable[[], dict[str, Any]]]:
    def need(package: str) -> None:
        if importlib.util.find_spec(package) is None:
            raise Absent(f"{package} is not installed")

    def onnxruntime() -> dict[str, Any]:
        need("onnxruntime")
        return process(ONNXRUNTIME, environment)

    def ncnn() -> dict[str, Any]:
        need("ncnn")
        folder = converted(DIGITS / "digits.onnx", (1, 1, 8, 8))
        return process(NCNN, environment, str(folder), session.context.info.name)

    return {"onnxruntime CPU": onnxruntime, "ncnn Vulkan": ncnn}
