"""Bugs of drivers that the layer of tests/faults/driver_bugs.cpp simulates, and a kernel or call that each of them makes wrong."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fault_layer

SOURCE = Path(__file__).resolve().parents[1] / "faults" / "driver_bugs.cpp"
NAME = "VK_LAYER_PUMICE_driver_bugs"
LIBRARY = "libpumice_driver_bugs.so"
VARIABLE = "PUMICE_TEST_DRIVER_BUG"
GENERAL = "no single report; seen in general"


def build(folder: Path) -> Path:
    """Compile the layer into a folder, with its manifest."""
    return fault_layer.build(folder, SOURCE, NAME, LIBRARY)


def environment(folder: Path, bug: str = "") -> dict[str, str]:
    """Return the environment variables that load the layer into a new process."""
    return {
        "VK_ADD_LAYER_PATH": str(folder),
        "VK_INSTANCE_LAYERS": NAME,
        "PUMICE_DRIVER_BUG_LAYER": str(folder / LIBRARY),
        "PUMICE_NO_CACHE": "1",
        "PUMICE_VALIDATION": "0",
        "PUMICE_ABANDON_SECONDS": "1",
        VARIABLE: bug,
    }


class Layer:
    """The layer, loaded into this process. It reads the bug from the environment at every call."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.driver_bug_count.restype = ctypes.c_uint64
        self._library.driver_bug_patch.restype = ctypes.c_uint64

    def set(self, bug: str) -> None:
        os.environ[VARIABLE] = bug

    @property
    def count(self) -> int:
        """Return how many instructions and calls the bugs have changed."""
        return int(self._library.driver_bug_count())

    def patched(self, spirv: bytes) -> bytes:
        """Return a module as the current bug compiles it."""
        code = np.frombuffer(spirv, np.uint32)
        arguments = ctypes.c_void_p(code.ctypes.data), ctypes.c_uint64(code.size)
        words = np.zeros(self._library.driver_bug_patch(*arguments, None), np.uint32)
        self._library.driver_bug_patch(*arguments, ctypes.c_void_p(words.ctypes.data))
        return words.tobytes()


class Bug(NamedTuple):
    """A bug of a driver.

    bug: its name and parameter in the layer. report: where it was reported. sample: a key of SAMPLES, or of SPECIAL in
    driver_bug_runner.py. answers: what pumice does, any of these: "-NAME" disables a feature, "NAME<=N" lowers a limit, "NAME>=N" raises
    one, "~NAME" is a quirk, "refused" is an error that names the bug; none if the engine's kernels do not use what is wrong. features:
    what the device needs for it to matter.
    """

    bug: str
    report: str
    sample: str
    answers: tuple[str, ...]
    features: tuple[str, ...] = ()


class Sample(NamedTuple):
    """A kernel over `x` and `y`, arrays of 256 uint32 in four workgroups of 64: what stands before main(), and its statements."""

    body: str
    extensions: tuple[str, ...] = ()
    before: str = ""


def _subgroup(*names: str) -> tuple[str, ...]:
    return tuple(f"GL_KHR_shader_subgroup_{name}" for name in ("basic", *names))


INT8 = ("GL_EXT_shader_explicit_arithmetic_types_int8", "GL_EXT_shader_8bit_storage")
INT16 = ("GL_EXT_shader_explicit_arithmetic_types_int16", "GL_EXT_shader_16bit_storage")
FLOAT16 = ("GL_EXT_shader_explicit_arithmetic_types_float16", "GL_EXT_shader_16bit_storage")
INT64 = ("GL_EXT_shader_explicit_arithmetic_types_int64",)
UNROLL = ("GL_EXT_control_flow_attributes",)
MATRIX = (
    "GL_KHR_cooperative_matrix",
    "GL_KHR_memory_scope_semantics",
    "GL_EXT_shader_explicit_arithmetic_types_float16",
    "GL_EXT_shader_16bit_storage",
)
# Numbers of both signs below 4 in magnitude, halves and denormals among them.
NUMBER = (
    "const float a = float(int(x[i])) * 1.862645149230957e-9;"
    " const float b = float(x[(i + 1u) & 255u] >> 8) * 1.1920928955078125e-7 + 0.5;"
)
SAMPLES = {
    "add": Sample("y[i] = subgroupAdd(x[i] & 0xffffu);", _subgroup("arithmetic")),
    "add_float": Sample("y[i] = floatBitsToUint(subgroupAdd(float(x[i] & 0xfffu)));", _subgroup("arithmetic")),
    "scan": Sample("y[i] = subgroupInclusiveAdd(x[i] & 0xffffu);", _subgroup("arithmetic")),
    "max": Sample("y[i] = subgroupMax(x[i]);", _subgroup("arithmetic")),
    "shuffle": Sample(
        "y[i] = subgroupShuffle(x[i], (gl_SubgroupInvocationID * 3u + 1u) % gl_SubgroupSize);", _subgroup("shuffle")
    ),
    "shuffle_xor": Sample("y[i] = subgroupShuffleXor(x[i], gl_SubgroupSize / 2u);", _subgroup("shuffle")),
    "shuffle_down": Sample(
        "y[i] = gl_SubgroupInvocationID == 0u ? subgroupShuffleDown(x[i], 1u) : subgroupShuffleDown(x[i] ^ 1u, 1u);",
        _subgroup("shuffle_relative"),
    ),
    "broadcast": Sample("y[i] = subgroupBroadcast(x[i], 3u);", _subgroup("ballot")),
    "ballot": Sample("y[i] = subgroupBallot((x[i] & 1u) == 1u).x;", _subgroup("ballot")),
    "ballot_count": Sample(
        "y[i] = subgroupBallotExclusiveBitCount(subgroupBallot((x[i] & 1u) == 1u));", _subgroup("ballot")
    ),
    "elect": Sample("y[i] = subgroupElect() ? 1u : 0u;", _subgroup()),
    "vote": Sample(
        "y[i] = subgroupAll((x[i] & 1u) == 1u) ? 1u : subgroupAny((x[i] & 1u) == 1u) ? 2u : 0u;", _subgroup("vote")
    ),
    "store8": Sample("z[i] = uint8_t(x[i]);", INT8, "layout(binding = 2) buffer Z { uint8_t z[]; };"),
    "load8": Sample("y[i] = uint(z[i]);", INT8, "layout(binding = 2) readonly buffer Z { uint8_t z[]; };"),
    "store16": Sample("z[i] = uint16_t(x[i]);", INT16, "layout(binding = 2) buffer Z { uint16_t z[]; };"),
    "load16": Sample("y[i] = uint(z[i]);", INT16, "layout(binding = 2) readonly buffer Z { uint16_t z[]; };"),
    "sign8": Sample("y[i] = uint(int(int8_t(x[i])));", INT8),
    "sign16": Sample("y[i] = uint(int(int16_t(x[i])));", INT16),
    "exp16": Sample("y[i] = floatBitsToUint(float(exp(float16_t(i) / float16_t(8.0))));", FLOAT16),
    "to_fp16": Sample(f"{NUMBER} y[i] = floatBitsToUint(float(float16_t(a)));", FLOAT16),
    "pack_fp16": Sample(f"{NUMBER} y[i] = packHalf2x16(vec2(a, b));"),
    "denormal_fp16": Sample(f"{NUMBER} y[i] = packHalf2x16(vec2(a, b) * 3.814697265625e-6);"),
    "infinity_fp16": Sample(f"{NUMBER} y[i] = packHalf2x16(vec2(a, b) * 30000.0);"),
    "sum": Sample(f"{NUMBER} y[i] = floatBitsToUint(a + b);"),
    "denormal": Sample(f"{NUMBER} precise float tiny = a * 1.1754943508222875e-38; y[i] = floatBitsToUint(tiny);"),
    "fma": Sample(f"{NUMBER} y[i] = floatBitsToUint(fma(a, b, -(a * b)));"),
    "division": Sample(f"{NUMBER} y[i] = floatBitsToUint(a / b);"),
    "square_root": Sample(f"{NUMBER} y[i] = floatBitsToUint(sqrt(b));"),
    "is_nan": Sample("y[i] = isnan(uintBitsToFloat(x[i] | 0x7f800000u)) ? 1u : 0u;"),
    "exp_nan": Sample("y[i] = floatBitsToUint(exp(uintBitsToFloat(x[i] | 0x7fc00000u)));"),
    "tanh": Sample("y[i] = floatBitsToUint(tanh(float(i)));"),
    "floor": Sample(f"{NUMBER} y[i] = floatBitsToUint(floor(a));"),
    "round_even": Sample("y[i] = floatBitsToUint(roundEven(float(i) + 0.5));"),
    "unsigned": Sample("y[i] = floatBitsToUint(float(x[i]));"),
    "double": Sample(f"{NUMBER} const double d = double(a) + double(b) * 1e-9LF; y[i] = unpackDouble2x32(d).x;"),
    "int64_add": Sample(
        "const uint64_t v = uint64_t(x[i]) + uint64_t(x[(i + 1u) & 255u]); y[i] = unpack32(v).y;", INT64
    ),
    "int64_multiply": Sample(
        "const uint64_t v = uint64_t(x[i]) * uint64_t(x[(i + 1u) & 255u]); y[i] = unpack32(v).y;", INT64
    ),
    "int64_shift": Sample(
        "const int64_t v = int64_t(x[i]) << (x[(i + 1u) & 255u] & 31u); y[i] = unpack32(v).y;", INT64
    ),
    "int64_compare": Sample(
        "const i64vec2 v = pack64_pair(x[i], x[(i + 1u) & 255u]); y[i] = v.x < v.y ? 1u : 0u;",
        INT64,
        "i64vec2 pack64_pair(uint a, uint b) { return i64vec2(packInt2x32(ivec2(b, a)), packInt2x32(ivec2(a, b))); }",
    ),
    "int64_convert": Sample("y[i] = floatBitsToUint(float(packInt2x32(ivec2(x[i], x[(i + 1u) & 255u]))));", INT64),
    "integer_division": Sample("y[i] = uint(int(x[i]) / int((x[(i + 1u) & 255u] >> 20) + 1u));"),
    "modulo": Sample("y[i] = uint(int(x[i]) % int((x[(i + 1u) & 255u] >> 20) + 1u));"),
    "shift": Sample("y[i] = uint(int(x[i]) >> (x[(i + 1u) & 255u] & 31u));"),
    "bit_field": Sample("y[i] = uint(bitfieldExtract(int(x[i]), 3, 9));"),
    "vector_and": Sample("const uvec2 v = uvec2(x[i], i) & uvec2(x[(i + 1u) & 255u], 3u); y[i] = v.x + v.y;"),
    "high": Sample("uint low, high; umulExtended(x[i], x[(i + 1u) & 255u], high, low); y[i] = high;"),
    "carry": Sample("uint carry; y[i] = uaddCarry(x[i], x[(i + 1u) & 255u], carry) & 0u; y[i] += carry;"),
    "multiply": Sample("y[i] = x[i] * x[(i + 1u) & 255u];"),
    "atomic_add": Sample("atomicAdd(y[i & 1u], x[i] & 0xffu);"),
    "atomic_old": Sample("atomicAdd(y[i], 7u); y[i] = atomicAdd(y[i], 5u);"),
    "atomic_max": Sample("atomicMax(y[i & 3u], x[i]);"),
    "atomic_float": Sample(
        "atomicAdd(z[i & 1u], float(x[i] & 0xffu));",
        ("GL_EXT_shader_atomic_float",),
        "layout(binding = 2) buffer Z { float z[]; };",
    ),
    "atomic_compare": Sample("y[i] = atomicCompSwap(y[(i + 1u) & 255u], 1u, x[i]) & 0u;"),
    "barrier": Sample(
        "seen[gl_LocalInvocationIndex] = x[i]; barrier(); y[i] = seen[63u - gl_LocalInvocationIndex];",
        before="shared uint seen[64];",
    ),
    "shared_memory": Sample(
        "for (uint k = gl_LocalInvocationIndex; k < 8192u; k += 64u) seen[k] = k * 3u + x[0]; barrier();"
        " y[i] = seen[(x[i] + i) & 8191u];",
        before="shared uint seen[8192];",
    ),
    "unrolled": Sample(
        "uint n = 0u; [[unroll]] for (uint k = 0u; k < 7u; ++k) n += x[(i + k) & 255u]; y[i] = n;", UNROLL
    ),
    "loop": Sample("uint n = 0u; for (uint k = 0u; k < x[0] % 7u + 3u; ++k) n += x[(i + k) & 255u]; y[i] = n;"),
    "matrix": Sample(
        """
  for (uint k = gl_LocalInvocationIndex; k < 256u; k += gl_WorkGroupSize.x) {
    tile[k] = float16_t(float(x[k] & 255u) * 0.5), sums[k] = float(x[k] >> 24) + 40000.0;
  }
  barrier();
  if (gl_SubgroupID == 0u) {
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b;
    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> c;
    coopMatLoad(a, tile, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(b, tile, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(c, sums, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    c = coopMatMulAdd(a, b, c);
    if (gl_WorkGroupID.x == 0u)
      for (uint k = 0u; k < uint(c.length()); ++k) y[gl_SubgroupInvocationID * uint(c.length()) + k] = floatBitsToUint(c[k]);
  }
""",
        (*MATRIX, "GL_KHR_shader_subgroup_basic"),
        "shared float16_t tile[256];\nshared float sums[256];",
    ),
}

BUGS = (
    # ---- subgroups
    Bug(
        "subgroup_size",
        "ggml-org/llama.cpp#20029 (MoltenVK: 64 reported, 32 executed)",
        "subgroup_size",
        ("subgroupSize<=executed", "-subgroupBasic", "refused"),
    ),
    Bug(
        "subgroup_add_own",
        "ericcurtin/vllm-vulkan#22 and #57 (KosmicKrisp)",
        "add_float",
        ("-subgroupArithmetic",),
        ("subgroupArithmetic",),
    ),
    Bug(
        "subgroup_add_partial",
        "ggml-org/llama.cpp#15846 (MoltenVK on RDNA1)",
        "add",
        ("-subgroupArithmetic",),
        ("subgroupArithmetic", "subgroupShuffle"),
    ),
    Bug("subgroup_scan", GENERAL, "scan", ("-subgroupArithmetic",), ("subgroupArithmetic",)),
    Bug(
        "subgroup_max_own",
        "apache/tvm#14641 (Softmax wrong with subgroups)",
        "max",
        ("-subgroupArithmetic",),
        ("subgroupArithmetic",),
    ),
    Bug(
        "shuffle_own",
        "Tencent/ncnn#6778 (Adreno: subgroupShuffle)",
        "shuffle",
        ("-subgroupShuffle",),
        ("subgroupShuffle",),
    ),
    Bug(
        "shuffle_xor_own",
        "ggml-org/llama.cpp#23218 (MoltenVK on AMD: subgroupShuffleXor)",
        "shuffle_xor",
        ("-subgroupShuffle",),
        ("subgroupShuffle",),
    ),
    Bug(
        "shuffle_xor_half",
        "ggml-org/llama.cpp#20029 (MoltenVK: 64 reported, 32 executed)",
        "shuffle_xor",
        ("-subgroupShuffle",),
        ("subgroupShuffle",),
    ),
    Bug("shuffle_up_down", GENERAL, "shuffle_down", ("-subgroupShuffleRelative",), ("subgroupShuffleRelative",)),
    Bug("broadcast_first", GENERAL, "broadcast", ("-subgroupBallot",), ("subgroupBallot",)),
    Bug(
        "ballot_none",
        "ggml-org/llama.cpp#15846 (MoltenVK on RDNA1)",
        "ballot",
        ("-subgroupBallot",),
        ("subgroupBallot",),
    ),
    Bug(
        "ballot_all",
        "ggml-org/llama.cpp#15846 (MoltenVK on RDNA1)",
        "ballot",
        ("-subgroupBallot",),
        ("subgroupBallot",),
    ),
    Bug("ballot_count", GENERAL, "ballot_count", ("-subgroupBallot",), ("subgroupBallot",)),
    # A ballot counts the elected invocations.
    Bug("elect_all", GENERAL, "elect", ("-subgroupBasic",), ("subgroupBasic", "subgroupBallot")),
    Bug("vote_own", GENERAL, "vote", ("-subgroupVote",), ("subgroupVote",)),
    # ---- integer dot products
    Bug(
        "dot_sign",
        "ggml-org/ggml#1601 (Adreno X2-90: relative error 1.9)",
        "dot_product",
        ("-shaderIntegerDotProduct",),
        ("shaderIntegerDotProduct",),
    ),
    Bug(
        "dot_accumulator",
        "ggml-org/ggml#1601 (Adreno X2-90)",
        "dot_product_sum",
        ("-shaderIntegerDotProduct",),
        ("shaderIntegerDotProduct",),
    ),
    Bug(
        "dot_three",
        "ggml-org/ggml#1601 (Adreno X2-90)",
        "dot_product",
        ("-shaderIntegerDotProduct",),
        ("shaderIntegerDotProduct",),
    ),
    # ---- 8- and 16-bit storage
    Bug("store8_word", GENERAL, "store8", ("-storageBuffer8BitAccess",), ("storageBuffer8BitAccess", "shaderInt8")),
    Bug(
        "load8_word",
        "iree-org/iree#14675 (zeros from int8 constants)",
        "load8",
        ("-storageBuffer8BitAccess",),
        ("storageBuffer8BitAccess", "shaderInt8"),
    ),
    Bug(
        "store16_word", GENERAL, "store16", ("-storageBuffer16BitAccess",), ("storageBuffer16BitAccess", "shaderInt16")
    ),
    Bug("load16_word", GENERAL, "load16", ("-storageBuffer16BitAccess",), ("storageBuffer16BitAccess", "shaderInt16")),
    Bug(
        "sign_extension:8",
        "ggml-org/llama.cpp#12472 (AMD: unpack8 of 16 bits)",
        "sign8",
        ("-shaderInt8",),
        ("shaderInt8",),
    ),
    Bug(
        "sign_extension:16",
        "ggml-org/llama.cpp#12472 (AMD: unpack8 of 16 bits)",
        "sign16",
        ("-shaderInt16",),
        ("shaderInt16",),
    ),
    Bug("offset_rounded:256", GENERAL, "offset", ("minStorageBufferOffsetAlignment>=256", "refused")),
    # ---- fp16
    Bug(
        "exp16_clamped",
        "ggml-org/llama.cpp#16116 (V100, T4: 65,504 instead of infinity)",
        "exp16",
        ("-shaderFloat16",),
        ("shaderFloat16",),
    ),
    Bug(
        "fp16_truncated",
        "HansKristian-Work/vkd3d-proton#964 (AMD and NVIDIA round differently)",
        "pack_fp16",
        (),
    ),
    Bug(
        "fp16_flushed",
        "HansKristian-Work/vkd3d-proton#3293 (A7xx), llvm/offload-test-suite#563 (NVIDIA)",
        "denormal_fp16",
        (),
    ),
    Bug(
        "fp16_saturated",
        "HansKristian-Work/vkd3d-proton#1648 (AMD truncates, NVIDIA gives infinity)",
        "infinity_fp16",
        (),
    ),
    # ---- float32 and float64
    Bug("sum_in_fp16", "ggml-org/llama.cpp#18969 (Intel: fp16 accumulator)", "sum", ("refused",)),
    Bug("fp32_flushed", GENERAL, "denormal", ("~flushed_denormals",)),
    Bug("fma_unfused", GENERAL, "fma", ("~unfused_multiply_add",)),
    Bug("division_rounded_twice", GENERAL, "division", ("~inexact_division",)),
    Bug("square_root_inexact", GENERAL, "square_root", ("~inexact_square_root",)),
    Bug("nan_unseen", "ggml-org/llama.cpp#26921 (Mali: NaN logits)", "is_nan", ()),
    Bug("exp_of_nan", GENERAL, "exp_nan", ("~number_of_nan",)),
    Bug("tanh_overflow", "docs/drivers.md (SwiftShader: NaN above 44)", "tanh", ()),
    Bug("floor_truncates", GENERAL, "floor", ("~inexact_rounding",)),
    Bug("round_half_up", GENERAL, "round_even", ("~inexact_rounding",)),
    Bug("unsigned_to_float", GENERAL, "unsigned", ("~inexact_unsigned",)),
    Bug("float64_in_32_bits", GENERAL, "double", ("-shaderFloat64",), ("shaderFloat64",)),
    # ---- integers
    Bug("int64_add", GENERAL, "int64_add", ("-shaderInt64",), ("shaderInt64",)),
    Bug("int64_multiply", GENERAL, "int64_multiply", ("-shaderInt64",), ("shaderInt64",)),
    Bug("int64_shift", GENERAL, "int64_shift", ("-shaderInt64",), ("shaderInt64",)),
    Bug("int64_compare", GENERAL, "int64_compare", ("-shaderInt64", "~int64_comparison"), ("shaderInt64",)),
    Bug("int64_convert", GENERAL, "int64_convert", ("-shaderInt64",), ("shaderInt64",)),
    Bug("division_unsigned", GENERAL, "integer_division", ("refused",)),
    Bug("modulo_unsigned", GENERAL, "modulo", ()),
    Bug("shift_logical", "dolphin-emu/dolphin#2151 (Adreno: shifts of vectors)", "shift", ("refused",)),
    Bug("bit_field_sign", GENERAL, "bit_field", ("refused",)),
    Bug("vector_and_first", "dolphin-emu/dolphin#9636 (Mali: bitwise and of vectors)", "vector_and", ("refused",)),
    Bug("high_product", GENERAL, "high", ("refused",)),
    Bug("carry_lost", GENERAL, "carry", ("refused",)),
    Bug("multiply_24_bits", GENERAL, "multiply", ("refused",)),
    # ---- atomics, barriers, shared memory, loops
    Bug("atomic_add_split", "gpuweb/gpuweb#2229 (AMD: atomics not coherent)", "atomic_add", ("refused",)),
    Bug(
        "atomic_add_split:float",
        GENERAL,
        "atomic_float",
        ("-shaderBufferFloat32AtomicAdd",),
        ("shaderBufferFloat32AtomicAdd",),
    ),
    Bug("atomic_add_new", GENERAL, "atomic_old", ("refused",)),
    Bug("atomic_max_sign", GENERAL, "atomic_max", ("refused",)),
    Bug("atomic_compare_ignored", GENERAL, "atomic_compare", ("refused",)),
    Bug("barrier_dropped", "gfx-rs/wgpu#3181 (M1: barrier left out)", "barrier", ("refused",)),
    Bug(
        "shared_memory_wraps:16384",
        "ggml-org/llama.cpp#26213 (V3D: 16 KB)",
        "shared_memory",
        ("maxComputeSharedMemorySize<=16384",),
    ),
    Bug("loop_short", GENERAL, "unrolled", ("~unrolled_contraction", "refused")),
    Bug("loop_short:all", GENERAL, "loop", ("refused",)),
    Bug(
        "unrolling_fails",
        "ggml-org/llama.cpp#5237 (V3D: unrolling crashes the compiler)",
        "unrolled",
        ("~unrolled_contraction", "refused"),
    ),
    Bug("unrolling_fails:all", "ggml-org/llama.cpp#28635 (Adreno 830: no pipeline)", "loop", ("refused",)),
    # ---- launches
    Bug(
        "workgroup_too_large:256",
        "ggml-org/llama.cpp#26213 (V3D: 256 invocations)",
        "large_workgroup",
        ("maxComputeWorkGroupInvocations<=256",),
    ),
    Bug(
        "workgroup_too_large:128",
        "pytorch/executorch#20138 (PowerVR: zeros beyond a limit)",
        "large_workgroup",
        ("maxComputeWorkGroupInvocations<=128",),
    ),
    Bug("push_constants_lost:64", GENERAL, "push_constants", ("maxPushConstantsSize<=64", "refused")),
    Bug("push_constants_lost:128", GENERAL, "reported_push_constants", ("maxPushConstantsSize<=128",)),
    Bug("last_workgroups", "pytorch/executorch#22327 (Adreno: blocks unwritten)", "groups", ("refused",)),
    Bug(
        "depth_ignored",
        "pytorch/executorch#22328 (Adreno: wrong for some numbers of channels)",
        "groups",
        ("maxComputeWorkGroupCount_2<=1", "refused"),
    ),
    Bug("recordings_differ", "pytorch/executorch#21938 (24 of 25 replays differ)", "two_recordings", ("refused",)),
    Bug("runs_skipped:2", "ggml-org/llama.cpp#15274 (sums differ from run to run)", "two_runs", ("refused",)),
    Bug(
        "barriers_ignored",
        "ggml-org/llama.cpp#28991 (gfx1151: races hidden by serial launches)",
        "dependent",
        ("refused",),
    ),
    Bug("indirect_ignored", GENERAL, "indirect", ("refused",)),
    Bug("condition_ignored", GENERAL, "conditional", ("-conditionalRendering",), ("conditionalRendering",)),
    Bug(
        "constants_ignored",
        "KhronosGroup/MoltenVK#188 (sizes), Tencent/ncnn#6972 (Adreno)",
        "constants",
        ("refused",),
    ),
    Bug("copy_short", GENERAL, "copy", ("refused",)),
    Bug("fill_short", GENERAL, "fill", ("refused",)),
    Bug("never_ends", "ggml-org/llama.cpp#10037 (freezes)", "never_ends", ("refused",)),
    Bug("device_lost", "ggml-org/llama.cpp#17389 (Intel: device lost)", "device_lost", ("refused",)),
    # ---- cooperative matrices
    Bug("matrix_accumulator", GENERAL, "matrix", ("-cooperativeMatrix",), ("cooperativeMatrix",)),
    Bug(
        "matrix_in_fp16",
        "ggml-org/llama.cpp#18969 (Intel: accumulator overflows)",
        "matrix",
        ("-cooperativeMatrix",),
        ("cooperativeMatrix",),
    ),
    Bug(
        "matrix_transposed",
        "Tencent/ncnn#6972 (Adreno: stride of loads)",
        "matrix",
        ("-cooperativeMatrix",),
        ("cooperativeMatrix",),
    ),
    Bug("matrix_layout", GENERAL, "matrix", ("~other_matrix_layout",), ("cooperativeMatrix",)),
)


def kernel_source(sample: Sample) -> str:
    """Return the GLSL of a sample."""
    extensions = "\n".join(f"#extension {name} : require" for name in sample.extensions)
    return f"""{extensions}
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X {{ uint x[]; }};
layout(binding = 1) buffer Y {{ uint y[]; }};
{sample.before}
void main() {{
  const uint i = gl_GlobalInvocationID.x;
  {sample.body}
}}
"""
