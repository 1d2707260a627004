"""The peers: each function runs in its engine's process and creates what is timed there."""

from __future__ import annotations

import glob
import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .contender import Array, Local
from .timing import Absent


def onnxruntime_model(model: Path, x: Array) -> Local:
    onnxruntime: Any = import_module("onnxruntime")
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return Local(lambda: session.run(None, {name: x})[0])


# ---- ncnn


def software_driver() -> str:
    """Return the library of Mesa's software driver from the Vulkan loader's manifests; empty if there is none."""
    named = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    folders = ("/usr/share", "/usr/local/share", "/etc", os.path.expanduser("~/.local/share"))
    manifests = (
        named.split(os.pathsep) if named else [f for one in folders for f in glob.glob(f"{one}/vulkan/icd.d/lvp*.json")]
    )
    for manifest in manifests:
        try:
            library = str(json.loads(Path(manifest).read_text())["ICD"]["library_path"])
        except (OSError, ValueError, KeyError):
            continue
        if "lvp" in library:
            return str(Path(manifest).parent / library) if "/" in library else library
    return ""


def ncnn_device(device: str) -> int:
    """Return ncnn's index of the device that we run on.

    ncnn finds drivers itself; if it finds none, it gets ours. Raise Absent if it does not see the device.
    """
    ncnn: Any = import_module("ncnn")
    if ncnn.get_gpu_count() == 0 and (driver := software_driver()):
        ncnn.destroy_gpu_instance()
        os.environ["NCNN_VULKAN_DRIVER"] = driver
        ncnn.create_gpu_instance()
    names = [ncnn.get_gpu_info(i).device_name() for i in range(ncnn.get_gpu_count())]
    if device not in names:
        raise Absent(f"it sees no '{device}' but {names or 'no device'}")
    return names.index(device)


def ncnn_model(folder: Path, precision: str, inputs: Sequence[Array], device: str) -> Local:
    """Return a model in ncnn; the batch axis of inputs with batch 1 is dropped, as ncnn requires."""
    ncnn: Any = import_module("ncnn")
    net = ncnn.Net()
    net.opt.use_vulkan_compute = True
    for option in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"):
        setattr(net.opt, option, precision == "fp16")
    net.set_vulkan_device(ncnn_device(device))
    if net.load_param(str(folder / "model.ncnn.param")) or net.load_model(str(folder / "model.ncnn.bin")):
        raise Absent("it does not load the converted model")
    batches = len(inputs[0]) > 1
    fed = [np.ascontiguousarray(x if batches else x[0]) for x in inputs]

    def call() -> Array:
        with net.create_extractor() as extractor:
            for i, x in enumerate(fed):
                extractor.input(f"in{i}", ncnn.Mat(x, batch_index=0) if batches else ncnn.Mat(x))
            status, result = extractor.extract("out0")
            if status:
                raise Absent(f"extract returns {status}")
            return np.array(result.numpy(batch_index=0) if batches else result)

    return Local(call)


# ---- PyTorch


def cuda_torch() -> Any:
    torch: Any = import_module("torch")
    if not torch.cuda.is_available():
        raise Absent("no CUDA device")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    return torch


def captured(torch: Any, run: Callable[[], Any]) -> Any:
    """Return a CUDA graph of `run`."""
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def graph_sampler(torch: Any, graph: Any) -> Callable[[int], Sequence[float]]:
    def device(runs: int) -> Sequence[float]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        seconds = []
        for _ in range(runs):
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            seconds.append(begin.elapsed_time(end) * 1e-3)
        return seconds

    return device


def torch_module(torch: Any, folder: Path) -> Any:
    os.chdir(folder)  # the module reads its weights from here
    spec = importlib.util.spec_from_file_location(f"converted_{folder.name}", folder / "model_pnnx.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model().eval()


def torch_model(folder: Path, precision: str, x: Array) -> Local:
    """Return a contender with eager calls, NumPy to NumPy; device time is from a CUDA graph, excluding host copies."""
    torch = cuda_torch()
    dtype = torch.float16 if precision == "fp16" else torch.float32
    net = torch_module(torch, folder).to("cuda", dtype)

    def first(results: Any) -> Any:
        return results[0] if isinstance(results, tuple) else results

    def call() -> Array:
        return np.asarray(first(net(torch.from_numpy(x).cuda().to(dtype))).float().cpu().numpy())

    on_device = torch.from_numpy(x).cuda().to(dtype)
    graph = captured(torch, lambda: net(on_device))
    return Local(call, graph_sampler(torch, graph))


def torch_transfer(count: int, way: str, kind: str) -> Local:
    """Return an upload to existing memory, or a download: to a new tensor, or to a pinned one."""
    torch = cuda_torch()
    host = torch.randint(0, 256, (count,), dtype=torch.uint8)
    if kind == "pinned":
        host = host.pin_memory()
    device = host.cuda()

    def call() -> Array:
        if way == "upload":
            device.copy_(host, non_blocking=True)
        elif kind == "pinned":
            host.copy_(device, non_blocking=True)
        else:
            device.cpu()
        torch.cuda.synchronize()
        return np.empty(0)

    return Local(call)


def torch_operator(expression: str, shapes: Sequence[tuple[Sequence[int], str]]) -> Local:
    """Return an expression over tensors a, b, ... of these shapes and dtypes; its device time is from a CUDA graph."""
    torch = cuda_torch()
    names = {"torch": torch, "F": import_module("torch.nn.functional")}
    for i, (shape, dtype) in enumerate(shapes):
        numbers = torch.rand(*shape, device="cuda") + 0.5
        names[chr(ord("a") + i)] = numbers.to(getattr(torch, dtype)) if dtype != "bool" else numbers > 1.0
    code = compile(expression, "expression", "eval")
    return Local(lambda: np.empty(0), graph_sampler(torch, captured(torch, lambda: eval(code, names))))


def torch_loop(what: str, size: int, iterations: int) -> Local:
    """Return a PyTorch loop with five cumulative sums and softmaxes of a matrix per iteration.

    what: "eager" and "a graph an iteration", whose condition the host reads each time, or "flat", a single CUDA graph.
    """
    torch = cuda_torch()
    x = torch.ones(size, size, device="cuda")
    i, n = (
        torch.zeros(1, dtype=torch.int32, device="cuda"),
        torch.full((1,), iterations, dtype=torch.int32, device="cuda"),
    )

    def body() -> None:
        nonlocal x
        for _ in range(5):
            x = torch.softmax(torch.cumsum(x, 0), -1)
        i.add_(1)

    def all_of_them() -> None:
        for _ in range(iterations):
            body()

    if what == "flat":
        run: Callable[[], object] = captured(torch, all_of_them).replay
    else:
        step = body if what == "eager" else captured(torch, body).replay

        def run() -> None:
            i.zero_()
            while bool(i < n):
                step()

    def call() -> Array:
        run()
        torch.cuda.synchronize()
        return np.empty(0)

    return Local(call)


def torch_launch(what: str) -> Local:
    """Return y = x + 1 on 1,024 floats: "eager", "graph" of one launch, "graph of 100", or from "NumPy" to NumPy."""
    torch = cuda_torch()
    host = np.zeros(1024, "float32")
    x = torch.from_numpy(host).cuda()
    y = torch.empty_like(x)

    def launch() -> None:
        torch.add(x, 1.0, out=y)

    def chain() -> None:
        launch()
        for _ in range(99):
            y.add_(1.0)

    def numpy() -> None:
        (torch.from_numpy(host).cuda() + 1.0).cpu().numpy()

    run: Callable[[], object] = {"eager": launch, "graph": launch, "graph of 100": chain, "NumPy": numpy}[what]
    if what.startswith("graph"):
        run = captured(torch, run).replay

    def call() -> Array:
        run()
        torch.cuda.synchronize()
        return host  # the result is not used

    return Local(call)
