"""Shaders and kernels."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pumice
from pumice.base.progress import Progress
from pumice.device.kernel_times import KernelTimes
from signature_probes.probe import covers, differ, expect_error

# Options of shaders: for each a non-default value, with the other options it needs.
SHADER_OPTIONS: dict[str, dict[str, Any]] = {
    "storage": {"storage": "fp16"},
    "fp16_arithmetic": {"fp16_arithmetic": True, "storage": "fp16"},
    "fp16_uniform": {"fp16_uniform": True, "storage": "fp16"},
    "int8_storage": {"int8_storage": True},
    "int8_packed": {"int8_packed": True},
    "int8_arithmetic": {"int8_arithmetic": True, "int8_storage": True},
    "int8_uniform": {"int8_uniform": True, "int8_storage": True},
    "int16_storage": {"int16_storage": True},
    "int16_packed": {"int16_packed": True},
    "shader_local_memory": {"shader_local_memory": True},
    "generation": {"generation": "2024"},
    "image_storage": {"image_storage": True, "generation": "2024"},
    "subgroup": {"subgroup": {"basic"}, "generation": "2024"},
    "int64": {"int64": False},
    "int16": {"int16": False},
    "int8": {"int8": False},
    "storage_16bit": {"storage_16bit": False, "storage": "fp16_packed"},
    "fp16_rounds_to_even": {"fp16_rounds_to_even": True, "storage": "fp16"},
    "vulkan_minor": {"vulkan_minor": 3},
    "profile": {"profile": {"ncnn_wobble": "7"}},
    "debug": {"debug": True},
    "guard": {"guard": False},
}
PROBE_SHADER = """layout(binding = 0) buffer X { float x[]; };
#ifndef ncnn_wobble
#define ncnn_wobble 1
#endif
void main() { uint i = gl_GlobalInvocationID.x; x[i] = float(ncnn_wobble); }"""


def seen(options: pumice.ShaderOptions) -> tuple[str, bytes]:
    """Return the preamble of a shader with these options, and its SPIR-V."""
    return options.preamble, pumice.compile(PROBE_SHADER, options).spirv


@covers(*(f"ShaderOptions.__init__.{name}" for name in SHADER_OPTIONS))
def shader_options(context: pumice.Context) -> None:
    for name, given in SHADER_OPTIONS.items():
        needed = {key: value for key, value in given.items() if key != name}
        with_it, without = pumice.ShaderOptions(**given), pumice.ShaderOptions(**needed)
        assert with_it != without, name
        assert seen(with_it) != seen(without), name
    for given in (
        {"storage": "wobble"},
        {"generation": "wobble"},
        {"vulkan_minor": 9},
        {"subgroup": {"wobble"}, "generation": "2024"},
        {"subgroup": {"basic"}},
        {"image_storage": True},
    ):
        expect_error(lambda given=given: pumice.ShaderOptions(**given))


@covers(
    "compile.options", "compile.macros", "compile.name", "compile.includes", "compile.profile", "compile.include_dirs"
)
def compiled(context: pumice.Context) -> None:
    source = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = VALUE; }"
    differ(*(pumice.compile(source, macros={"VALUE": value}).spirv for value in ("1.0", "2.0")))
    expect_error(lambda: pumice.compile("wobble", name="named"), "named:1", pumice.ShaderCompileError)
    including = '#include "value.glsl"\n' + source
    with TemporaryDirectory() as folder:
        (Path(folder) / "value.glsl").write_text("#define VALUE 3.0\n")
        made = [
            pumice.compile(including, includes={"value.glsl": "#define VALUE 4.0\n"}).spirv,
            pumice.compile(including, include_dirs=[folder]).spirv,
        ]
    differ(*made)
    expect_error(lambda: pumice.compile(including), "value.glsl")
    differ(*(pumice.compile(PROBE_SHADER, profile=profile).spirv for profile in (None, {"ncnn_wobble": "9"})))
    differ(
        *(
            pumice.compile(PROBE_SHADER, options=one).spirv
            for one in (pumice.ShaderOptions(), pumice.ShaderOptions(debug=True))
        )
    )


FILL = """layout(constant_id = 0) const int count = 1;
layout(binding = 0) buffer Y { float y[]; };
void main() { y[gl_GlobalInvocationID.x] = float(VALUE * count); }"""


def filled(context: pumice.Context, source: str = FILL, **options: Any) -> float:
    y = np.zeros(4, "float32")
    pumice.Kernel(source, context, **{"macros": {"VALUE": "2"}, **options})(y=y, threads=4)
    return float(y[3])


@covers(
    "Kernel.__init__.context",
    "Kernel.__init__.name",
    "Kernel.__init__.macros",
    "Kernel.__init__.spec",
    "Kernel.__init__.includes",
    "Kernel.__init__.options",
    "Kernel.__init__.include_dirs",
    "Kernel.__init__.debug",
    "Kernel.__init__.message_bytes",
)
def kernels(context: pumice.Context) -> None:
    differ(filled(context), filled(context, macros={"VALUE": 5}), filled(context, spec={"count": 7}))
    expect_error(lambda: filled(context, spec={"wobble": 7}), "wobble")
    expect_error(lambda: pumice.Kernel(FILL, "llvmpipe"), "context", TypeError)  # type: ignore[arg-type]
    assert pumice.Kernel(FILL, context, "named", {"VALUE": 1}).name == "named"
    including = '#include "value.glsl"\n' + FILL
    with TemporaryDirectory() as folder:
        (Path(folder) / "value.glsl").write_text("#undef VALUE\n#define VALUE 11\n")
        assert filled(context, including, include_dirs=[folder]) == 11
    assert filled(context, including, includes={"value.glsl": "#undef VALUE\n#define VALUE 13\n"}) == 13
    half = pumice.ShaderOptions(storage="fp16_packed")
    assert list(pumice.Kernel(FILL, context, macros={"VALUE": 1}, options=half).variants) == ["fp16_packed"]
    beyond = "layout(binding = 0) buffer Y { float y[]; };\nvoid main() { y[gl_GlobalInvocationID.x + 8u] = 1.0; }"
    y = pumice.zeros(64, context=context)[:4]
    pumice.Kernel(beyond, context)(y=y, threads=4)
    expect_error(lambda: pumice.Kernel(beyond, context, debug=True)(y=y, threads=4), error=pumice.OutOfBoundsError)
    printing = """layout(binding = 0) buffer Y { float y[]; };
void main() { y[0] = 1.0; debugPrintfEXT("number %u", gl_GlobalInvocationID.x); }"""
    large, small = (pumice.Kernel(printing, context, message_bytes=size) for size in (1 << 16, 256))
    for kernel in (large, small):
        kernel(y=np.zeros(4, "float32"), threads=200)
    differ(large.messages_lost > 0, small.messages_lost > 0)


@covers("Kernel.from_file.context", "Kernel.from_file.reload", "Kernel.from_file.**options")
def of_files(context: pumice.Context) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "fill.comp"
        path.write_text(FILL)
        once, anew = (
            pumice.Kernel.from_file(path, context, reload=reload, macros={"VALUE": 2}) for reload in (False, True)
        )
        path.write_text(FILL.replace("VALUE * count", "VALUE * count + 1"))
        results = []
        for kernel in (once, anew):
            y = np.zeros(4, "float32")
            kernel(y=y, threads=4)
            results.append(y[0])
        assert results == [2, 3]
        expect_error(lambda: pumice.Kernel.from_file(path, "llvmpipe", macros={"VALUE": 2}), "context", TypeError)
        expect_error(lambda: pumice.Kernel.from_file(path, context, wobble=1), "wobble", TypeError)


@covers("Kernel.from_body.context", "Kernel.from_body.name", "Kernel.from_body.header", "Kernel.from_body.**options")
def of_bodies(context: pumice.Context) -> None:
    def made(header: str, **options: Any) -> pumice.Kernel:
        body, shape = "y[i] = f(1.0);", {"y": ("float32", 4)}
        return pumice.Kernel.from_body(body, {}, shape, context, "named", header, **options)

    assert made("float f(float v) { return v + 1.0; }").name == "named"
    differ(*(made(f"float f(float v) {{ return v + {k}; }}")() for k in ("1.0", "2.0")))
    differ(*(made("float f(float v) { return v + K; }", macros={"K": k})() for k in ("1.0", "2.0")))
    expect_error(lambda: made("", wobble=1), "wobble", TypeError)
    expect_error(lambda: pumice.Kernel.from_body("y[i] = 1.0;", {}, {"y": "float32"}, "llvmpipe"), "context", TypeError)  # type: ignore[arg-type]


@covers(
    "Kernel.__call__.given",
    "Kernel.__call__.**arguments",
    "Kernel.bind.given",
    "Kernel.bind.**arguments",
    "Kernel.run.**kwargs",
    "Kernel.dtype.length",
)
def calls(context: pumice.Context) -> None:
    kernel = pumice.Kernel(FILL, context, macros={"VALUE": 1})
    y = pumice.zeros(4, context=context)
    for call in (kernel, kernel.bind, kernel.run):
        call({"y": y}, threads=4)
        expect_error(lambda call=call: call({"y": y, "wobble": 1}, threads=4), "wobble")
        expect_error(lambda call=call: call(y=y, wobble=1, threads=4), "wobble")
        expect_error(lambda call=call: call(y=y), "threads")
    block = pumice.Kernel(
        "layout(binding = 0) buffer B { uint n; float v[]; } b;\nvoid main() { b.v[0] = float(b.n); }", context
    )
    name = block.shader.interface["bindings"][0]["name"]
    differ(block.dtype(name, 3).itemsize, block.dtype(name, 4).itemsize)
    expect_error(lambda: kernel.dtype("y", 3), "length")


@covers("Kernel.__init__.local_size", "compile.local_size")
def local_sizes(context: pumice.Context) -> None:
    text = """layout(binding = 0) buffer X { uint x[]; };
    void main() { barrier(); x[gl_GlobalInvocationID.x] = gl_WorkGroupSize.x; }"""
    made = []
    for size in ((2, 1, 1), (4, 1, 1)):
        x = np.zeros(4, "uint32")
        pumice.Kernel(text, context, local_size=size)(x=x, threads=4)
        made.append(x)
    differ(*made)
    assert pumice.compile(text, local_size=(2, 1, 1)).spirv != pumice.compile(text, local_size=(4, 1, 1)).spirv


@covers("Kernel.__init__.source", "Kernel.__init__.spirv")
def modules(context: pumice.Context) -> None:
    text = "layout(local_size_x = 4) in;\nlayout(binding = 0) buffer X { uint x[]; };\nvoid main() { x[gl_LocalInvocationID.x] = 3u; }"
    made = [np.zeros(4, "uint32") for _ in range(3)]
    pumice.Kernel(text, context)(x=made[0], groups=1)
    for number, x in zip((5, 3), made[1:], strict=True):
        module = pumice.compile(text.replace("3u", f"{number}u"), pumice.ShaderOptions(guard=False))
        pumice.Kernel(spirv=module.spirv, context=context)(x=x, groups=1)
    differ(*made[:2])
    assert made[0].tolist() == made[2].tolist()


@covers("Kernel.statistics.storage")
def kernel_statistics(context: pumice.Context) -> None:
    scale = pumice.Kernel(
        "layout(binding = 0) buffer X { sfp x[]; };\n"
        "void main() { buffer_st1(x, gl_GlobalInvocationID.x, buffer_ld1(x, gl_GlobalInvocationID.x) * afp(2)); }",
        context,
    )
    scale(x=np.ones(4, "float16"), threads=4)
    (half,) = set(scale.variants) - {"fp32"}
    differ(*(scale.statistics(storage).storage for storage in (None, half)))
    expect_error(lambda: scale.statistics("fp12"), "fp12")


@covers("Kernel.time.given", "Kernel.time.runs", "Kernel.time.**arguments")
def kernel_times(context: pumice.Context) -> None:
    kernel = pumice.Kernel("layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 1; }", context)
    differ(*(len(kernel.time(runs=runs, x=np.ones(4, "float32"), threads=1).seconds) for runs in (1, 3)))
    expect_error(lambda: kernel.time(runs=0, x=np.ones(4, "float32"), threads=1), "runs")
    expect_error(lambda: kernel.time(x=np.ones(4, "float32"), threads=1, wobble=1), "wobble")
    x = pumice.zeros((4,), context=context)
    kernel.time({"x": x}, threads=1)
    assert x.numpy()[0] == 1


def _ones(x: Any) -> Any:
    return np.ones_like(x)


@covers(
    "Kernel.tune.check",
    "Kernel.tune.tolerance",
    "Kernel.tune.allow_spills",
    "Kernel.tune.runs",
    "Kernel.tune.again",
    "Kernel.tune.progress",
)
def tunings(context: pumice.Context) -> None:
    text = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = VALUE; }"
    kernel = pumice.Kernel(text, context, macros={"VALUE": 1.0})

    def tuned(**options: Any) -> Any:
        return kernel.tune({"VALUE": [1.0, 1.5]}, {"x": np.zeros(1, "float32"), "threads": 1}, **options)

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.delenv("PUMICE_NO_CACHE", raising=False)
        patched.setenv("PUMICE_CACHE_DIR", folder)
        differ(*(len(tuned(check=check).rejected) for check in (None, _ones)))
        differ(*(len(tuned(check=_ones, tolerance=tolerance).rejected) for tolerance in (None, 0.6)))
        differ(*(tuned(again=again).measured for again in (False, True)))
        runs: list[int] = []
        patched.setattr(
            "pumice.device.kernel_times.measure_kernel_times",
            lambda *given: runs.append(given[-1]) or KernelTimes((1e-6,)),
        )
        tuned(runs=3, again=True)
        assert runs == [3, 3]
        bars: list[bool] = []
        patched.setattr(
            "pumice.base.progress.Progress", lambda what, wanted: bars.append(wanted) or Progress(what, False)
        )
        for progress in (True, False):
            tuned(progress=progress, again=True)
        assert bars == [True, False]
        patched.setattr(pumice.Kernel, "statistics", lambda self, storage=None: SimpleNamespace(refusal=None, spills=1))
        assert not tuned(allow_spills=True, again=True).rejected
        expect_error(lambda: tuned(again=True), "spills")
    expect_error(lambda: tuned(runs=0), "runs")
    expect_error(lambda: tuned(tolerance=-1), "tolerance")


@covers("show_versions.file")
def shown_versions(context: pumice.Context) -> None:
    file = StringIO()
    pumice.show_versions(file)
    assert context.info.name in file.getvalue()
