// Conv, ConvTranspose, Gemm and MatMul: all of them dispatches of one contraction kernel.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/families.h"
#include "operators/operator_table.h"
#include "operators/planes.h"
#include "operators/product.h"
#include "operators/strided.h"
#include "operators/volume.h"
#include "operators/window_geometry.h"

namespace pumice {
namespace {

constexpr int64_t kLaneChannels = 16, kLanePixels = 16;  // of conv_lanes: output channels and pixels a subgroup

constexpr int64_t kMostRowTaps = 9;  // unrolled by conv_lanes

// Weights as [groups][out][in][taps], with strides in elements of the source.
struct Weights {
  int64_t groups, channels_out, channels_in, taps;
  int64_t stride_group, stride_out, stride_in, stride_tap;
};

int64_t step_channels(int64_t channels_in) {
  return std::clamp<int64_t>(channels_in, 1, 4);
}

// Packing reads the source row by row.
void check_packed(const PackContext& node, size_t input) {
  if (!node.input(input).is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': input " + std::to_string(input) + " is repacked and has strides, " +
                           to_string(node.input(input)) + "; give it row-major");
}

// Elements of the packed weights of one group.
int64_t packed_group(const NodeContext& node, const Weights& weights) {
  if (!node.prefers_lanes()) return weights.taps * weights.channels_in * round_up(weights.channels_out, 8);
  const int64_t steps = (weights.channels_in + step_channels(weights.channels_in) - 1) / step_channels(weights.channels_in);
  return round_up(weights.channels_out, kLaneChannels) * weights.taps * steps * 4;
}

// Lays out any strided source as the kernels read weights.
void pack_weights(const NodeContext& node, const TensorDesc& source_desc, const Weights& weights, double scale, PackedWeight& packed) {
  const int64_t elements = packed_group(node, weights) * weights.groups;
  packed.desc = TensorDesc(node.float_dtype, {elements});
  const Macros macros = {{"LANES", node.prefers_lanes() ? "1" : "0"},
                         {"KV", std::to_string(step_channels(weights.channels_in))},
                         {"SOURCE_FLOAT", source_desc.dtype == DType::float32 ? "1" : "0"}};
  const auto kernel = node.kernel("conv_pack.comp", node.float_dtype, macros);
  packed.steps = [kernel, weights, elements, scale](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    steps.push_back(StepBuilder(kernel)
                        .bind("x", source)
                        .bind("y", target)
                        .set("quads", elements / 4)
                        .set("taps", weights.taps)
                        .set("channels_in", weights.channels_in)
                        .set("channels_out", weights.channels_out)
                        .set("x_stride_group", weights.stride_group)
                        .set("x_stride_out", weights.stride_out)
                        .set("x_stride_in", weights.stride_in)
                        .set("x_stride_tap", weights.stride_tap)
                        .set("scale", scale)
                        .threads(static_cast<uint64_t>(elements / 4))
                        .build());
  };
}

void pack_weights(const PackContext& node, size_t input, const Weights& weights, double scale, PackedWeight& packed) {
  check_packed(node, input);
  pack_weights(node, node.input(input), weights, scale, packed);
}

}  // namespace

void pack_floats(const PackContext& node, size_t input, double scale, PackedWeight& packed) {
  check_packed(node, input);
  const TensorDesc& source_desc = node.input(input);
  packed.desc = TensorDesc(DType::float32, {source_desc.elements()});
  const auto kernel =
      node.kernel("float_pack.comp", source_desc.dtype, {{"SOURCE_FLOAT", source_desc.dtype == DType::float32 ? "1" : "0"}});
  const int64_t count = source_desc.elements();
  packed.steps = [kernel, count, scale](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    steps.push_back(StepBuilder(kernel)
                        .bind("x", source)
                        .bind("y", target)
                        .set("count", count)
                        .set("scale", scale)
                        .threads(static_cast<uint64_t>(count))
                        .build());
  };
}

namespace {

Weights conv_weights(const TensorDesc& desc, int64_t groups) {
  int64_t taps = 1;
  for (size_t i = 2; i < desc.shape.size(); ++i) taps *= desc.shape[i];
  const int64_t out = desc.shape[0] / groups, in = desc.shape[1];
  return {groups, out, in, taps, out * in * taps, in * taps, taps, 1};
}

Weights transposed_weights(const TensorDesc& desc, int64_t groups) {
  int64_t taps = 1;
  for (size_t i = 2; i < desc.shape.size(); ++i) taps *= desc.shape[i];
  const int64_t in = desc.shape[0] / groups, out = desc.shape[1];
  return {groups, out, in, taps, in * out * taps, taps, out * taps, 1};
}

// Everything that one dispatch of the contraction kernel is told.
struct Contraction {
  Planes x, y;
  Weights weights;
  int64_t out_h, out_w;  // of this dispatch
  int64_t in_step_h = 1, in_step_w = 1, tap_step_h = 1, tap_step_w = 1, base_h = 0, base_w = 0;
  int64_t taps_h = 1, taps_w = 1, tap_first = 0, tap_row = 0, tap_column = 0;
  int64_t x_stride_group = 0, y_stride_group = 0, w_stride_group = 0;
  int64_t x_first = 0, w_first = 0, y_first = 0;  // elements where this dispatch begins
  bool matrix = false;                            // a matrix product: no taps
  bool padded = false;                            // x has zeros after its last channel, up to the next eight
};

// What is added: a packed number for each channel, or a matrix.
struct Bias {
  enum class Kind { none, channels, matrix } kind = Kind::none;
  Operand operand;
  int64_t stride_row = 0, stride_column = 0;
  double scale = 1;
};

// Neighbouring channels of a group are aligned vectors of so many.
bool has_vector_channels(Planes planes, int64_t channels, int64_t group_stride, int64_t width) {
  planes.c = channels;
  return planes.has_vector_channels(width) && group_stride % width == 0;
}

// What a workgroup of conv_tiled computes, in how many parts it splits the depth, and the side of an invocation's tile in registers.
struct Tiling {
  int64_t pixels, channels, split = 1, registers = 4;

  int64_t invocations() const { return pixels * channels / (registers * registers) * split; }
};

// Large tiles reuse more of what they load; small and split ones keep all of the device busy on small outputs.
Tiling tiling_of(const Context& context, int64_t pixels, int64_t channels, int64_t groups, int64_t depth) {
  constexpr int64_t kBusyInvocations = 65536, kMostSplit = 8, kMostInvocations = 512, kSharedBytes = 24576, kManyTiles = 128;
  const auto tiles_of = [&](const Tiling& tiling) {
    return ceil_div(pixels, tiling.pixels) * ceil_div(channels, tiling.channels) * groups;
  };
  Tiling tiling{32, 32};
  if (channels <= 8)
    tiling = {128, 8};
  else if (channels <= 16)
    tiling = {64, 16};
  else if (pixels <= 8)
    tiling = {8, 64};
  else if (const Tiling wide{128, 128, 1, 8}; channels >= 128 && tiles_of(wide) >= kManyTiles)
    return wide;
  else if (const Tiling square{64, 64}; tiles_of(square) >= kManyTiles)
    tiling = square;
  const int64_t tiles = tiles_of(tiling);
  const int64_t shared = std::min<int64_t>(kSharedBytes, static_cast<int64_t>(context.limit("maxComputeSharedMemorySize")));
  const auto fits = [&](int64_t split) {
    const Tiling wider{tiling.pixels, tiling.channels, split, tiling.registers};
    return split <= kMostSplit &&
           wider.invocations() <=
               std::min<int64_t>(kMostInvocations, static_cast<int64_t>(context.limit("maxComputeWorkGroupInvocations"))) &&
           split * ((tiling.pixels + tiling.channels) * 64 + 256) <= shared && depth >= split * 32;
  };
  while (tiles * tiling.invocations() < kBusyInvocations && fits(tiling.split * 2)) tiling.split *= 2;
  return tiling;
}

// What a workgroup of conv_matrix computes, each of its subgroups, how deep at a time, and how many subgroups share that depth.
struct MatrixTiling {
  int64_t pixels, channels, sub_pixels, sub_channels, depth, split = 1;

  int64_t subgroups() const { return pixels / sub_pixels * (channels / sub_channels) * split; }
  uint64_t shared_bytes() const {  // of the operands' stretches, rows padded by 16 bytes
    return static_cast<uint64_t>(pixels * (depth * 2 + 16) + depth * (channels * 2 + 16));
  }
};

// None where the device has no matrix units for these elements, or where the input's channels do not lie together in aligned eights.
// The largest tile of which there are enough to keep the device busy, and which the channels fill by half.
std::optional<MatrixTiling> matrix_tiling_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  constexpr int64_t kEight = 8, kBusyTiles = 100, kNarrow = 16;
  constexpr MatrixTiling kTilings[] = {
      {128, 128, 64, 64, 32}, {128, 64, 32, 32, 64}, {128, 32, 32, 32, 32}, {128, kNarrow, 32, kNarrow, 64},
      {64, 64, 32, 32, 64},   {32, 64, 16, 32, 64},  {16, 64, 16, 16, 64}};
  // Of matrix products alone, measured apart: deep enough that subgroups share the depth where the rows are few.
  constexpr MatrixTiling kWide{128, 128, 64, 64, 64}, kFew{64, 32, 32, 32, 128, 4}, kFewest{16, 32, 16, 16, 256, 4};
  constexpr int64_t kDeep = 1024;
  const bool all_taps =
      c.matrix || (c.tap_first == 0 && c.tap_row == c.taps_w && c.tap_column == 1 && c.weights.taps == c.taps_h * c.taps_w);
  if (!node.has_matrices() || !all_taps || (node.input_phase(0) != 0 && !c.padded) || c.x_first % kEight != 0 || c.w_first % kEight != 0 ||
      !has_vector_channels(c.x, c.padded ? round_up(c.weights.channels_in, kEight) : c.weights.channels_in, c.x_stride_group, kEight))
    return {};
  const int64_t channels = c.weights.channels_out;
  const auto tiles_of = [&](const MatrixTiling& tiling) {
    return ceil_div(pixels, tiling.pixels) * ceil_div(channels, tiling.channels) * c.weights.groups;
  };
  const uint64_t shared = node.context->limit("maxComputeSharedMemorySize");
  if (c.matrix && tiles_of(kWide) >= kBusyTiles && channels > 64 && pixels > 64 && kWide.shared_bytes() <= shared) return kWide;
  if (c.matrix && kFewest.shared_bytes() <= shared && c.weights.channels_in >= kDeep && channels >= 32) {
    if (pixels <= kFewest.pixels) return kFewest;
    if (pixels <= kFew.pixels && tiles_of(kFew) < 2 * kBusyTiles) return kFew;
  }
  for (const MatrixTiling& tiling : kTilings) {
    const int64_t tiles = tiles_of(tiling);
    if (tiles >= kBusyTiles && (tiling.channels == kNarrow || tiling.channels < 2 * channels)) return tiling;
  }
  return channels < kNarrow ? std::nullopt : std::optional(kTilings[std::size(kTilings) - 1]);
}

// What gemv.comp is told: products of up to four rows take 1, 2 or 4 of them at once.
struct Skinny {
  int64_t rows, invocations;
};

constexpr int64_t kMostSkinny = 4, kSkinnyChannels = 32;

// None where the rows are more, the depth is small, or the lanes of a software device do it.
std::optional<Skinny> skinny_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  constexpr int64_t kLeastDepth = 128, kBytes = 36;  // shared ones of an invocation
  if (node.prefers_lanes() || !c.matrix || pixels > kMostSkinny || c.weights.channels_in < kLeastDepth || c.w_first % 8 != 0) return {};
  const auto limit = [&](std::string_view name) { return static_cast<int64_t>(node.context->limit(name)); };
  const int64_t shared = limit("maxComputeSharedMemorySize"), most = limit("maxComputeWorkGroupInvocations");
  for (const int64_t invocations : {1024, 512})
    if (invocations <= most && invocations * kBytes <= shared) {
      const int64_t rows = pixels == 3 ? 4 : pixels;
      return Skinny{rows, invocations / rows};
    }
  return {};
}

SpecValues specialized(std::initializer_list<std::pair<std::string_view, int64_t>> values) {
  SpecValues spec;
  for (const auto& [name, value] : values) spec.emplace_back(name, value);
  return spec;
}

void set_taps(StepBuilder& step, const Contraction& c) {
  step.set("in_h", c.x.h).set("in_w", c.x.w);
  step.set("in_step_h", c.in_step_h).set("in_step_w", c.in_step_w).set("tap_step_h", c.tap_step_h).set("tap_step_w", c.tap_step_w);
  step.set("base_h", c.base_h).set("base_w", c.base_w).set("taps_h", c.taps_h).set("taps_w", c.taps_w);
  step.set("tap_first", c.tap_first).set("tap_row", c.tap_row).set("tap_column", c.tap_column).set("kernel_taps", c.weights.taps);
}

void add_contraction(LowerContext& node, const Contraction& c, const Operand& x, const Operand& w, const Bias& bias, const Operand& y) {
  const int64_t pixels = c.x.n * c.out_h * c.out_w;
  if (pixels == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return;
  const bool lanes = node.prefers_lanes();
  const int64_t depth = c.taps_h * c.taps_w * c.weights.channels_in;
  node.check_loops(lanes ? c.taps_h * (1 + c.taps_w * (2 + c.weights.channels_in / 4)) : ceil_div(depth, 16) * 32);
  const int64_t kv = step_channels(c.weights.channels_in);
  const bool x_vec4 = kv == 4 && has_vector_channels(c.x, c.weights.channels_in, c.x_stride_group, 4) && c.x_first % 4 == 0;
  const bool y_vec4 = has_vector_channels(c.y, c.weights.channels_out, c.y_stride_group, 4) && c.y_first % 4 == 0;
  const auto skinny = skinny_of(node, c, pixels);
  const auto matrix = skinny ? std::nullopt : matrix_tiling_of(node, c, pixels);
  Macros macros = {{"MATRIX", c.matrix ? "1" : "0"},
                   {"Y_VEC4", y_vec4 && !skinny ? "1" : "0"},
                   {"HAS_BIAS", std::to_string(static_cast<int>(bias.kind))},
                   {"EPILOGUE(x)", node.epilogue()}};
  SpecValues spec;
  std::string_view shader = "conv_matrix.comp";
  int64_t tile_pixels = kLanePixels, tile_channels = kLaneChannels;
  if (matrix) {
    tile_pixels = matrix->pixels, tile_channels = matrix->channels;
    spec = specialized({{"INVOCATIONS", matrix->subgroups() * node.context->info().limit("subgroupSize")},
                        {"TILE_P", matrix->pixels},
                        {"TILE_C", matrix->channels},
                        {"SUB_P", matrix->sub_pixels},
                        {"SUB_C", matrix->sub_channels},
                        {"DEPTH", matrix->depth},
                        {"WHOLE", depth % matrix->depth == 0 ? 1 : 0},
                        {"SPLIT", matrix->split}});
  } else if (skinny) {
    shader = "gemv.comp";
    tile_pixels = kMostSkinny, tile_channels = kSkinnyChannels;
    spec = specialized({{"INVOCATIONS", skinny->invocations}, {"ROWS", skinny->rows}});
  } else if (lanes) {
    const bool is_narrow = c.weights.channels_in > 0 && c.weights.channels_in <= 4 && c.taps_w <= kMostRowTaps;
    shader = "conv_lanes.comp";
    macros.emplace_back("X_VEC4", x_vec4 ? "1" : "0");
    macros.emplace_back("KV", std::to_string(kv));
    macros.emplace_back("ROW_TAPS", std::to_string(is_narrow ? c.taps_w : 0));
  } else {
    const Tiling tiling = tiling_of(*node.context, pixels, c.weights.channels_out, c.weights.groups, depth);
    shader = "conv_tiled.comp";
    tile_pixels = tiling.pixels, tile_channels = tiling.channels;
    macros.emplace_back("X_VEC4", x_vec4 ? "1" : "0");
    spec = specialized({{"INVOCATIONS", tiling.invocations()},
                        {"TILE_P", tiling.pixels},
                        {"TILE_C", tiling.channels},
                        {"SPLIT", tiling.split},
                        {"REGISTERS", tiling.registers}});
  }
  const auto kernel = node.kernel(shader, node.float_dtype, macros, spec);
  const auto from = [&](Operand operand, int64_t element) {
    operand.byte_offset += static_cast<uint64_t>(element * bits(node.float_dtype) / 8);
    return operand;
  };
  StepBuilder step(kernel);
  step.bind("x", from(x, c.x_first)).bind("w", from(w, c.w_first)).bind("y", from(y, c.y_first));
  if (bias.kind != Bias::Kind::none) step.bind("b", bias.operand);
  step.set("pixels", pixels).set("out_h", c.out_h).set("out_w", c.out_w);
  if (c.matrix)
    step.set("b_scale", bias.scale).set("b_stride_row", bias.stride_row).set("b_stride_column", bias.stride_column);
  else
    set_taps(step, c);
  step.set("channels_in", c.weights.channels_in).set("channels_out", c.weights.channels_out);
  set_strides(step, 'x', c.x);
  set_strides(step, 'y', c.y);
  step.set("x_stride_group", c.x_stride_group).set("y_stride_group", c.y_stride_group).set("w_stride_group", c.w_stride_group);
  step.groups(static_cast<uint64_t>(ceil_div(pixels, tile_pixels)), static_cast<uint64_t>(ceil_div(c.weights.channels_out, tile_channels)),
              static_cast<uint64_t>(c.weights.groups));
  node.add(step.build());
}

// The optional input 2 of a convolution.
Bias bias_of(LowerContext& node) {
  if (!node.has_input(2)) return {};
  return {Bias::Kind::channels, node.packed(2)};
}

// The geometry of the last two spatial axes; a single one is the width of one row.
struct Axes {
  int64_t h, w;
};
Axes axes_of(const std::vector<int64_t>& values, int64_t missing) {
  return values.size() == 1 ? Axes{missing, values[0]} : Axes{values[0], values[1]};
}

int64_t groups_of(const NodeContext& node) {
  return node.attributes->integer("group", 1);
}

void set_groups(LowerContext& node, Contraction& c) {
  c.x_stride_group = c.weights.channels_in * c.x.sc;
  c.y_stride_group = c.weights.channels_out * c.y.sc;
  c.w_stride_group = packed_group(node, c.weights);
}

}  // namespace

// Over three axes the weights stay as they are.
static bool packs_weights(const PackContext& node) {
  return node.input(1).rank() <= 4;
}

bool pack_conv(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 1 && !packs_weights(node)) return false;
  if (input == 1) pack_weights(node, input, conv_weights(node.input(1), groups_of(node)), 1, packed);
  if (input == 2) pack_floats(node, input, 1, packed);
  return input == 1 || input == 2;
}

void lower_conv(LowerContext& node) {
  check_volume(node);
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, node.input(0).shape, node.input(1).shape);
  if (node.input(0).rank() == 5) return add_volume_conv(node, window, false);
  Contraction c{planes_of(node, node.input(0)), planes_of(node, node.output(0)), conv_weights(node.input(1), groups_of(node)), 0, 0};
  const Axes kernel = axes_of(window.kernel, 1), steps = axes_of(window.strides, 1), dilations = axes_of(window.dilations, 1),
             pads = axes_of(window.pads_begin, 0);
  c.out_h = c.y.h, c.out_w = c.y.w;
  c.in_step_h = steps.h, c.in_step_w = steps.w, c.tap_step_h = dilations.h, c.tap_step_w = dilations.w;
  c.base_h = -pads.h, c.base_w = -pads.w;
  c.taps_h = kernel.h, c.taps_w = kernel.w, c.tap_row = kernel.w, c.tap_column = 1;
  set_groups(node, c);
  const Operand weights = node.packed(1);
  add_contraction(node, c, node.in(0), weights, bias_of(node), node.out(0));
}

bool pack_conv_transpose(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 1 && !packs_weights(node)) return false;
  if (input == 1) pack_weights(node, input, transposed_weights(node.input(1), groups_of(node)), 1, packed);
  if (input == 2) pack_floats(node, input, 1, packed);
  return input == 1 || input == 2;
}

// One axis of a transposed convolution's phase: output positions first, first + stride, .. meet the taps tap, tap + tap_step, ..
struct Phase {
  int64_t outputs, taps, tap, tap_step, in_step, base;
};

// Outputs o = phase + stride * i meet tap k where (o + pad - k * dilation) is a multiple of the stride; the input is that quotient.
static Phase phase_of(int64_t phase, int64_t output, int64_t stride, int64_t dilation, int64_t pad, int64_t kernel) {
  Phase result{output > phase ? (output - phase + stride - 1) / stride : 0, 0, 0, 1, 0, 0};
  for (int64_t k = 0; k < kernel; ++k) {
    if ((phase + pad - k * dilation) % stride != 0) continue;
    if (result.taps == 0) {
      result.tap = k;
      result.base = (phase + pad - k * dilation) / stride;
    } else if (result.taps == 1) {
      result.tap_step = k - result.tap;
      result.in_step = -result.tap_step * dilation / stride;
    }
    ++result.taps;
  }
  return result;
}

void lower_conv_transpose(LowerContext& node) {
  check_volume(node);
  const WindowGeometry window = conv_transpose_geometry(*node.attributes, node.node, node.input(0).shape, node.input(1).shape);
  if (node.input(0).rank() == 5) return add_volume_conv(node, window, true);
  Contraction c{planes_of(node, node.input(0)), planes_of(node, node.output(0)), transposed_weights(node.input(1), groups_of(node)), 0, 0};
  const Axes kernel = axes_of(window.kernel, 1), steps = axes_of(window.strides, 1), dilations = axes_of(window.dilations, 1),
             pads = axes_of(window.pads_begin, 0);
  set_groups(node, c);
  const Operand weights = node.packed(1);
  const Bias bias = bias_of(node);
  for (int64_t h = 0; h < steps.h; ++h) {
    for (int64_t w = 0; w < steps.w; ++w) {
      const Phase rows = phase_of(h, c.y.h, steps.h, dilations.h, pads.h, kernel.h),
                  columns = phase_of(w, c.y.w, steps.w, dilations.w, pads.w, kernel.w);
      Contraction part = c;
      part.out_h = rows.outputs, part.out_w = columns.outputs;
      part.tap_step_h = rows.in_step, part.tap_step_w = columns.in_step;
      part.base_h = rows.base, part.base_w = columns.base;
      part.taps_h = rows.taps, part.taps_w = columns.taps;
      part.tap_first = rows.tap * kernel.w + columns.tap, part.tap_row = rows.tap_step * kernel.w, part.tap_column = columns.tap_step;
      part.y_first = h * c.y.sh + w * c.y.sw;
      part.y.sh *= steps.h, part.y.sw *= steps.w;
      add_contraction(node, part, node.in(0), weights, bias, node.out(0));
    }
  }
}

// B of a matrix product [.., K, N] (or [.., N, K] where `transposed`) as the weights of a 1x1 convolution, its batch as groups.
static Weights matrix_weights(const TensorDesc& b, bool transposed) {
  const size_t rank = b.shape.size();
  const int64_t k = b.shape[rank - (transposed ? 1 : 2)], n = b.shape[rank - (transposed ? 2 : 1)];
  int64_t batch = 1;
  for (size_t i = 0; i + 2 < rank; ++i) batch *= b.shape[i];
  return {batch, n, k, 1, k * n, transposed ? k : 1, transposed ? 1 : n, 1};
}

// C of a Gemm is one number for each column of the result, which packs to float32; any other C stays the matrix that it is.
static bool is_row(const TensorDesc& c, int64_t columns) {
  return c.rank() > 0 && c.shape.back() == columns && c.elements() == columns;
}

// B lies as packing would lay it: rows of whole eights.
static bool is_as_packed(const NodeContext& node, const TensorDesc& b, const Weights& weights, double scale) {
  return !node.prefers_lanes() && scale == 1 && b.dtype == node.float_dtype && b.is_packed() && weights.stride_out == 1 &&
         weights.channels_out % 8 == 0;
}

static bool pack_matrix(const PackContext& node, const Weights& weights, double scale, PackedWeight& packed) {
  if (is_as_packed(node, node.input(1), weights, scale)) return false;
  pack_weights(node, 1, weights, scale, packed);
  return true;
}

// Input 1 as weights; one that lies right, but does not begin at a boundary, is brought to one.
static Operand matrix_operand(LowerContext& node, const Weights& weights, double scale) {
  if (!is_as_packed(node, node.input(1), weights, scale) || node.input_phase(1) == 0) return node.packed(1);
  PackedWeight packed;
  pack_weights(node, node.input(1), weights, scale, packed);
  const Operand target = node.temporary(packed.desc.bytes());
  packed.steps(node.steps, node.in(1), target);
  return target;
}

bool pack_gemm(const PackContext& node, size_t input, PackedWeight& packed) {
  const bool transposed = node.attributes->integer("transB", 0) != 0;
  if (!is_working_float(node.input(input).dtype)) return false;
  if (input == 1) return pack_matrix(node, matrix_weights(node.input(1), transposed), node.attributes->real("alpha", 1), packed);
  if (input != 2 || !node.inputs[1]) return false;
  if (!is_row(node.input(2), node.input(1).shape[transposed ? 0 : 1])) return false;
  pack_floats(node, input, node.attributes->real("beta", 1), packed);
  return true;
}

// Rows of a matrix as the pixels of one image.
static Planes matrix_planes(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return {1, columns, 1, rows, 0, column_stride, 0, row_stride};
}

static Contraction matrix_product(const Planes& a, const Weights& b, const Planes& y) {
  Contraction c{a, y, b, 1, a.w};
  c.matrix = true;
  return c;
}

static TensorDesc transposed(const TensorDesc& matrix, bool is_transposed) {
  if (!is_transposed) return matrix;
  return TensorDesc(matrix.dtype, {matrix.shape[1], matrix.shape[0]}, Strides{matrix.strides[1], matrix.strides[0]});
}

// The rows of A. Matrix units want whole eights that begin at a boundary: any other rows are brought into that form first, where the
// product is large enough to be worth a pass over them.
static Operand matrix_rows(LowerContext& node, Contraction& c) {
  constexpr int64_t kEight = 8, kLeast = 64;
  const int64_t rows = c.x.w, depth = c.weights.channels_in;
  const bool ready = node.input_phase(0) == 0 && c.x.sc == 1 && depth % kEight == 0 && c.x.sw % kEight == 0;
  if (ready || !node.has_matrices() || std::min({rows, depth, c.weights.channels_out}) < kLeast) return node.in(0);
  PackedWeight packed;
  pack_weights(node, node.input(0), {1, depth, rows, 1, 0, c.x.sc, c.x.sw, 0}, 1, packed);
  const Operand target = node.temporary(packed.desc.bytes());
  packed.steps(node.steps, node.in(0), target);
  c.x = matrix_planes(rows, depth, round_up(depth, kEight), 1);
  c.padded = true;
  return target;
}

void lower_gemm(LowerContext& node) {
  const bool transposed_a = node.attributes->integer("transA", 0) != 0, transposed_b = node.attributes->integer("transB", 0) != 0;
  const TensorDesc &a = node.input(0), &y = node.output(0);
  const size_t row = transposed_a ? 1 : 0, column = 1 - row;
  const bool adds = node.has_input(2) && node.attributes->real("beta", 1) != 0;  // times zero, not even a NaN counts
  const auto c_strides = [&] { return broadcast_strides(node.input(2).shape, node.input(2).strides, y.shape); };
  if (!is_working_float(y.dtype)) {
    const std::optional<Strides> c = adds ? std::optional(c_strides()) : std::nullopt;
    return add_product(node, transposed(a, transposed_a), transposed(node.input(1), transposed_b), y, c, node.attributes->real("alpha", 1),
                       node.attributes->real("beta", 1));
  }
  Contraction c =
      matrix_product(matrix_planes(a.shape[row], a.shape[column], a.strides[row], a.strides[column]),
                     matrix_weights(node.input(1), transposed_b), matrix_planes(y.shape[0], y.shape[1], y.strides[0], y.strides[1]));
  const Operand left = matrix_rows(node, c);
  const Operand weights = matrix_operand(node, c.weights, node.attributes->real("alpha", 1));
  Bias bias = adds ? bias_of(node) : Bias{};
  if (adds && !is_row(node.input(2), y.shape[1])) {
    const Strides strides = c_strides();
    bias = {Bias::Kind::matrix, node.in(2), strides[0], strides[1], node.attributes->real("beta", 1)};
  }
  add_contraction(node, c, left, weights, bias, node.out(0));
}

// An operand of MatMul as matrices: a vector is one row on the left, one column on the right.
static TensorDesc as_matrices(const TensorDesc& desc, bool is_right) {
  if (desc.rank() != 1) return desc;
  const int64_t size = desc.shape[0], stride = desc.strides[0];
  return is_right ? TensorDesc(desc.dtype, {size, 1}, Strides{stride, 1})
                  : TensorDesc(desc.dtype, {1, size}, Strides{std::max<int64_t>(size, 1), stride});
}

bool pack_matmul(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 1 || !is_working_float(node.input(1).dtype)) return false;
  return pack_matrix(node, matrix_weights(as_matrices(node.input(1), true), false), 1, packed);
}

// The batches of all three as one index space, counted in matrices.
static IndexSpace batch_space(const TensorDesc& a, const TensorDesc& b) {
  const auto batch_of = [](const TensorDesc& desc) { return Shape(desc.shape.begin(), desc.shape.end() - 2); };
  const Shape a_batch = batch_of(a), b_batch = batch_of(b), batch = broadcast_shape(a_batch, b_batch);
  IndexSpace space{batch,
                   {broadcast_strides(a_batch, packed_strides(a_batch), batch), broadcast_strides(b_batch, packed_strides(b_batch), batch),
                    packed_strides(batch)}};
  space.coalesce();
  return space;
}

void lower_matmul(LowerContext& node) {
  const TensorDesc a = as_matrices(node.input(0), false), b = as_matrices(node.input(1), true), &y = node.output(0);
  const bool is_strided = !a.is_packed() || !b.is_packed() || !y.is_packed(),
             b_packed = node.constant_packed.size() > 1 && node.constant_packed[1];
  if (!is_working_float(y.dtype) || (is_strided && !b_packed)) {
    TensorDesc matrices = y;  // with the axes that vectors lose
    const auto insert = [&](size_t back) {
      matrices.shape.insert(matrices.shape.end() - static_cast<std::ptrdiff_t>(back), 1);
      matrices.strides.insert(matrices.strides.end() - static_cast<std::ptrdiff_t>(back), 0);
    };
    if (node.input(1).rank() == 1) insert(0);
    if (node.input(0).rank() == 1) insert(1);
    return add_product(node, a, b, matrices);
  }
  if (is_strided) throw UnsupportedError("node '" + std::string(node.node) + "': MatMul of strided tensors with a constant on the right");
  const Weights all = matrix_weights(b, false);
  const Operand weights = matrix_operand(node, all, 1);
  const auto planes = [](int64_t rows, int64_t columns) { return matrix_planes(rows, columns, columns, 1); };
  const int64_t k = all.channels_in, n = all.channels_out;
  if (all.groups == 1) {  // one B for all: the batch of A becomes more rows
    const int64_t rows = element_count({a.shape.begin(), a.shape.end() - 1});
    Contraction c = matrix_product(planes(rows, k), all, planes(rows, n));
    const Operand left = matrix_rows(node, c);
    return add_contraction(node, c, left, weights, {}, node.out(0));
  }
  const int64_t m = a.shape[a.shape.size() - 2], group = packed_group(node, all);
  // The last axis of the batch is the grid's; each index of the others is a dispatch.
  IndexSpace space = batch_space(a, b);
  Contraction c = matrix_product(planes(m, k), all, planes(m, n));
  c.weights.groups = space.sizes.back();
  c.x_stride_group = space.strides[0].back() * m * k, c.w_stride_group = space.strides[1].back() * group,
  c.y_stride_group = space.strides[2].back() * m * n;
  const Shape outer(space.sizes.begin(), space.sizes.end() - 1);
  for (int64_t i = 0; i < element_count(outer); ++i) {
    c.x_first = c.w_first = c.y_first = 0;
    int64_t rest = i;
    for (size_t axis = outer.size(); axis-- > 0; rest /= outer[axis]) {
      const int64_t at = rest % outer[axis];
      c.x_first += at * space.strides[0][axis] * m * k, c.w_first += at * space.strides[1][axis] * group,
          c.y_first += at * space.strides[2][axis] * m * n;
    }
    add_contraction(node, c, node.in(0), weights, {}, node.out(0));
  }
}

}  // namespace pumice
