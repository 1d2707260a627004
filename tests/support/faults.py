"""Faults that validation must find: shader source texts and their replacements."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One fault. `node`: which has to be named. `spared`: a sample that the fault leaves right, because it shows in some sizes or numbers
    only. `fused_alone`: it is in what fusion adds to a kernel, so that no node is wrong, and the kernel with it is.
    `fp16`: whether it shows in halves too: these have no bit 31, which one turns, 11 bits hide a reciprocal of 12, and weights have no
    other precision. `count`: how often the text occurs in the shader; all of them are replaced. `kernel`: the shader that has to run for
    the fault to show; empty: `path`, or any shader that includes it. `on_gpu`: it is in a kernel for GPUs, so lavapipe runs it without
    subgroupShuffle.
    """

    number: int
    name: str
    path: str
    old: str
    new: str
    sample: str
    node: str
    spared: str = ""
    fused_alone: bool = False
    count: int = 1
    fp16: bool = False
    kernel: str = ""
    on_gpu: bool = False

    @property
    def shader(self) -> str:
        """The shader that has to run; empty: any that includes `path`."""
        return self.kernel or ("" if self.path.startswith("include/") else self.path)


CONV_GEMM = "include/conv_gemm.glsl"

FAULTS = [
    Fault(
        1,
        "wrong epilogue",
        "include/epilogue.glsl",
        "float epilogue(float x) {\n  precise float y = EPILOGUE(x);",
        "float epilogue(float x) {\n  precise float y = x;",
        "conv",
        "conv",
        fused_alone=True,
        fp16=True,
    ),
    Fault(
        2,
        "epilogue twice",
        "include/epilogue.glsl",
        "float epilogue(float x) {\n  precise float y = EPILOGUE(x);",
        "float epilogue(float x) {\n  x = EPILOGUE(x);\n  precise float y = EPILOGUE(x);",
        "gemm",
        "gemm",
        fused_alone=True,
        fp16=True,
    ),
    Fault(
        3,
        "bias of the neighbouring channel",
        CONV_GEMM,
        "return b[p.b_first + grid_group().z * p.channels_out + min(channel, p.channels_out - 1u)];",
        "return b[p.b_first + grid_group().z * p.channels_out + min(channel + 1u, p.channels_out - 1u)];",
        "conv",
        "conv",
        fp16=True,
    ),
    Fault(
        4,
        "alpha for beta",
        "gemm_generic.comp",
        "sum += NUMBER(p.beta) * LOAD_C(",
        "sum += NUMBER(p.alpha) * LOAD_C(",
        "scaled gemm",
        "gemm",
        fp16=True,
    ),
    Fault(
        5,
        "half accumulation",
        "conv_cpu.comp",
        "sum = fused_multiply_add(wx, v[i].x, sum);",
        "sum = unpackHalf2x16(packHalf2x16(vec2(fused_multiply_add(wx, v[i].x, sum), 0.0))).x;",
        "conv",
        "conv",
        fp16=True,
    ),
    Fault(
        6,
        "lost last term of a sum",
        "reduce.comp",
        "element < end; element += GROUP_THREADS",
        "element + 1u < end; element += GROUP_THREADS",
        "reduce",
        "sum",
        fp16=True,
    ),
    Fault(
        7,
        "one term twice",
        "scan.comp",
        "    s = STEP(s, LOAD(from + at * p.x_step), i);",
        "    s = STEP(s, LOAD(from + at * p.x_step), i);\n    if (i == 2u) s = STEP(s, LOAD(from + at * p.x_step), i);",
        "running sum",
        "sum",
        fp16=True,
    ),
    Fault(
        8,
        "wrong sign of zero padding",
        "strided_copy.comp",
        "return bitfieldExtract(p.value[0], 0, BITS);",
        "return bitfieldExtract(p.value[0] ^ 0x80000000u, 0, BITS);",
        "padded",
        "pad",
    ),
    Fault(9, "exp2 for exp", "softmax.comp", "exp(v)", "exp2(v)", "softmax", "softmax", count=2, fp16=True),
    Fault(
        10,
        "reciprocal with 12 bits",
        "layer_norm.comp",
        "const float factor = pm_divide(1.0, pm_sqrt(variance + p.epsilon));",
        "const float factor = uintBitsToFloat(floatBitsToUint(pm_divide(1.0, pm_sqrt(variance + p.epsilon))) & 0xfffff800u);",
        "layer norm",
        "norm",
    ),
    Fault(
        11,
        "round half up",
        "include/math.glsl",
        "float pm_round_even(float x) { return roundEven(x); }",
        "float pm_round_even(float x) { return floor(x + 0.5); }",
        "rounding",
        "round",
        spared="rounding without halves",
        fp16=True,
    ),
    Fault(
        12,
        "truncation for rounding",
        "quantize.comp",
        "const float v = pm_round_even(",
        "const float v = pm_trunc(",
        "quantized",
        "quantize",
        fp16=True,
    ),
    Fault(
        13,
        "saturation of int8 left out",
        "quantize.comp",
        "return !(v > lowest) ? p.lowest : !(v < highest) ? p.highest : int(v) + zero_point(at);",
        "return int(v) + zero_point(at);",
        "quantized beyond the range",
        "quantize",
        spared="quantized",
        fp16=True,
    ),
    Fault(
        14,
        "zero point of the other operand",
        CONV_GEMM,
        "return w_zero[p.w_zero_first + min(channel, p.channels_out - 1u) * p.w_zero_column + grid_group().z * p.w_zero_group];",
        "return x_zero[p.x_zero_first];",
        "integer product",
        "product",
        fp16=True,
    ),
    Fault(
        15,
        "transposed weight",
        CONV_GEMM,
        "return p.tap_first + th * p.tap_row + tw * p.tap_column;",
        "return p.tap_first + tw * p.tap_row + th * p.tap_column;",
        "conv",
        "conv",
        fp16=True,
        kernel="conv_cpu.comp",
    ),
    Fault(
        16,
        "off-by-one pad",
        CONV_GEMM,
        "int(th) * p.tap_step_h + p.base_h;",
        "int(th) * p.tap_step_h + p.base_h + 1;",
        "conv",
        "conv",
        fp16=True,
        kernel="conv_cpu.comp",
    ),
    Fault(
        17,
        "wrong dilation at the border",
        "conv_depthwise.comp",
        "th * p.dilation_h + p.base_h;",
        "th * (row == 0u ? 1 : p.dilation_h) + p.base_h;",
        "depthwise",
        "conv",
        fp16=True,
    ),
    Fault(
        18,
        "wrong broadcast stride",
        "elementwise.comp",
        "at[i] += k * p.t_stride[i * RANK + axis];",
        "at[i] += k * p.t_stride[i * RANK + (i == 1 ? RANK - 1 : axis)];",
        "broadcast",
        "mul",
        fp16=True,
    ),
    Fault(
        19,
        "dropped tail of a row",
        "layer_norm.comp",
        "  FOR_ROW_ELEMENTS(i, size) {\n    precise float delta = (",
        "  FOR_ROW_ELEMENTS(i, size & ~7u) {\n    precise float delta = (",
        "layer norm",
        "norm",
        fp16=True,
    ),
    Fault(
        20,
        "swapped halves of a word",
        "strided_copy.comp",
        "return pm_load_u16(x, i);",
        "return pm_load_u16(x, i ^ 1u);",
        "sliced words",
        "slice",
        fp16=True,
    ),
    Fault(
        21,
        "offset of a view ignored",
        "strided_copy.comp",
        "int source = p.x_first;",
        "int source = 0;",
        "sliced words",
        "slice",
        fp16=True,
    ),
    Fault(
        22,
        "stride of a strided input ignored",
        "softmax.comp",
        "X_AT(from + i * p.x_step)",
        "X_AT(from + i)",
        "softmax inside",
        "softmax",
        spared="softmax",
        count=4,
        fp16=True,
    ),
    Fault(
        23,
        "last tile not written",
        "conv_cpu.comp",
        "if (first + i * kLanes >= p.pixels) continue;",
        "if (first + i * kLanes >= p.pixels / 16u * 16u) continue;",
        "conv",
        "conv",
        fp16=True,
    ),
    Fault(
        25,
        "reading past a row",
        "layer_norm.comp",
        "  FOR_ROW_ELEMENTS(i, size) {\n    precise float delta = X_AT(from + i) - mean;",
        "  FOR_ROW_ELEMENTS(i, size + (row + 1u < p.rows ? 1u : 0u)) {\n    precise float delta = X_AT(from + i) - mean;",
        "layer norm",
        "norm",
        fp16=True,
    ),
    Fault(
        26,
        "groups mixed",
        CONV_GEMM,
        "#define X_GROUP (grid_group().z * p.channels_in * p.x_stride_c)",
        "#define X_GROUP 0u",
        "conv in groups",
        "conv",
        spared="conv",
        fp16=True,
    ),
    Fault(
        27,
        "channels last read as first",
        "pool.comp",
        "rest * p.x_stride_n + c * p.x_stride_c;",
        "rest * p.x_stride_n + c;",
        "average pool",
        "pool",
        fp16=True,
    ),
    Fault(
        33,
        "weights of another precision",
        "conv_cpu.comp",
        "const Acc4 weights = LOAD_W4(w_step + j * kLanes);",
        "const Acc4 exact = LOAD_W4(w_step + j * kLanes);\n"
        "const Acc4 weights = vec4(unpackHalf2x16(packHalf2x16(exact.xy)), unpackHalf2x16(packHalf2x16(exact.zw)));",
        "conv",
        "conv",
    ),
    Fault(
        34,
        "race between two subgroups",
        "sort.comp",
        "barrier();  // wait until all pairs of the previous step have been written",
        "",
        "top of rows",
        "top",
        spared="top of short rows",
        fp16=True,
    ),
    Fault(
        35,
        "result depends on the workgroup's number",
        "layer_norm.comp",
        "float v = delta * factor * scale[i];",
        "float v = delta * factor * scale[i] * (row == 7u ? 1.01 : 1.0);",
        "layer norm",
        "norm",
        spared="layer norm of few rows",
        fp16=True,
    ),
    Fault(
        36,
        "uninitialised shared memory",
        "recurrent_multi_step.comp",
        "    store_hidden(0u, row, old_h[row]);\n",
        "",
        "recurrent",
        "gru",
        fp16=True,
    ),
    Fault(
        37,
        "one lane of a tile wrong where the depth is odd",
        "conv_cpu.comp",
        "const Acc bias = channel_bias(channel);",
        "const Acc bias = channel_bias(channel) + (lane == 3u && p.channels_in % 2u == 1u ? 0.01 : 0.0);",
        "gemm",
        "gemm",
        spared="gemm of even depth",
        fp16=True,
    ),
    Fault(
        38,
        "wrong only at batch > 1",
        "conv_cpu.comp",
        "images[i] = group_x + positions[i].x * p.x_stride_n;",
        "images[i] = group_x;",
        "conv",
        "conv",
        spared="conv of one image",
        fp16=True,
    ),
    Fault(
        39,
        "wrong only for NaN in",
        "include/math.glsl",
        "float pm_max(float a, float b) { return pm_flush_subnormals(a > b || pm_isnan(a) ? a : b); }",
        "float pm_max(float a, float b) { return pm_flush_subnormals(a > b ? a : b); }",
        "max pool",
        "pool",
        spared="max pool without NaN",
        fp16=True,
    ),
    Fault(
        40,
        "wrong above a size",
        "softmax.comp",
        "sum += exp(v);",
        "sum += i < 32u ? exp(v) : 0.0;",
        "softmax",
        "softmax",
        spared="softmax of short rows",
        fp16=True,
    ),
    Fault(
        41,
        "transposed weight of a tile",
        "conv_tiled.comp",
        "p.tap_column == 1u) return k_index;  // all taps, in order\n  const KIndex k_pos = to_k_index(k_index);",
        "p.tap_column == 0u) return k_index;\n  KIndex k_pos = to_k_index(k_index);\n  "
        "k_pos.th = k_pos.tw, k_pos.tw = to_k_index(k_index).th;",
        "conv",
        "conv",
        fp16=True,
        on_gpu=True,
    ),
    Fault(
        42,
        "off-by-one pad of a tile",
        "conv_tiled.comp",
        "int(pixel.y) * p.in_step_h + p.base_h,",
        "int(pixel.y) * p.in_step_h + p.base_h + 1,",
        "conv",
        "conv",
        fp16=True,
        on_gpu=True,
    ),
    Fault(
        43,
        "half accumulation in a tile",
        "conv_tiled.comp",
        "    barrier();  // wait until no invocation is still reading the K tile",
        "    for (uint i = 0u; i < THREAD_M * VEC4_N; ++i)\n"
        "      for (uint k = 0u; k < 4u; ++k) sums[i][k] = unpackHalf2x16(packHalf2x16(vec2(sums[i][k], 0.0))).x;\n"
        "    barrier();",
        "conv",
        "conv",
        fp16=True,
        on_gpu=True,
    ),
    Fault(
        44,
        "last pixels of a tile not written",
        "conv_tiled.comp",
        "if (out_pixel >= p.pixels) break;",
        "if (out_pixel >= p.pixels / 16u * 16u) break;",
        "conv",
        "conv",
        fp16=True,
        on_gpu=True,
    ),
    Fault(
        45,
        "weights of a tile of another precision",
        "conv_tiled.comp",
        "next_w[i] = inside ? loaded : Acc4(0);",
        "next_w[i] = inside ? vec4(unpackHalf2x16(packHalf2x16(loaded.xy)), unpackHalf2x16(packHalf2x16(loaded.zw))) : Acc4(0);",
        "conv",
        "conv",
        on_gpu=True,
    ),
    Fault(
        46,
        "one channel of a tile wrong where the depth is odd",
        "conv_tiled.comp",
        "Acc4 sum = sums[i * VEC4_N + j] + bias[j];",
        "Acc4 sum = sums[i * VEC4_N + j] + bias[j] + (channel == 4u && p.channels_in % 2u == 1u ? 0.01 : 0.0);",
        "gemm",
        "gemm",
        spared="gemm of even depth",
        fp16=True,
        on_gpu=True,
    ),
    Fault(
        47,
        "tile wrong only at batch > 1",
        "conv_tiled.comp",
        "firsts[i] = p.x_offset + X_GROUP + pixel.x * p.x_stride_n;",
        "firsts[i] = p.x_offset + X_GROUP;",
        "conv",
        "conv",
        spared="conv of one image",
        fp16=True,
        on_gpu=True,
    ),
]

# Faults that cannot be made by editing a shader, and why.


class PlanFault(NamedTuple):
    """A fault of plans, enabled with `PUMICE_FAULT`. `node`: must be a member of the first wrong kernel."""

    number: int
    name: str
    fault: str
    node: str
    limits: dict[str, int] = {}  # noqa: RUF012


PLAN_FAULTS = [
    PlanFault(24, "second fold of the grid not computed", "fold", "first", {"maxComputeWorkGroupCount": 3}),
    PlanFault(28, "stale temporary", "stale", "second"),
    # Nothing waits for the third convolution, so its result is read too early.
    PlanFault(29, "missing barrier between two dispatches", "order", "third"),
    PlanFault(30, "in-place where it must not be", "in place", "second"),
    PlanFault(31, "cache of another shape used", "steps", "first"),
    PlanFault(32, "push constant of the last call", "push", "first"),
]
