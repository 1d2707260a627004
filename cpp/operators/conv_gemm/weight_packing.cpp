// Packs weights for the GEMM and convolution kernels.
#include "operators/conv_gemm/weight_packing.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/rounding.h"

namespace pumice {

// Checks that the input is row-major, because packing reads it row by row.
static void check_row_major(const PackContext& node, size_t input) {
  if (!node.input(input).is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': input " + std::to_string(input) + " is repacked and has strides, " +
                           to_string(node.input(input)) + "; it must be row-major");
}

namespace {

// Layout of packed weights: rows padded to a multiple of 8, steps of input channels for conv_cpu, or fragments (with the K of one step) for
// gemm_mma or gemm_split_fp16.
struct PackLayout {
  enum class LayoutKind : uint8_t { rows, cpu, fragments, split_fp16 } kind;
  int64_t step;
  int64_t folded_taps = 0;  // fragments: number of horizontal taps that are folded into N; 0: none

  bool has_rows() const { return kind == LayoutKind::rows; }
  bool is_cpu_layout() const { return kind == LayoutKind::cpu; }
  bool is_split_fp16() const { return kind == LayoutKind::split_fp16; }

  // Returns the number of elements of one group of `weights`.
  int64_t group_elements(const WeightView& weights) const {
    if (folded_taps > 0) return count_folded_tap_elements(weights, folded_taps);
    if (kind == LayoutKind::fragments || is_split_fp16()) return count_fragment_elements(weights) * (is_split_fp16() ? 2 : 1);
    if (!is_cpu_layout()) return weights.taps * weights.channels_in * round_up(weights.channels_out, 8);
    return round_up(weights.channels_out, kCpuChannels) * weights.taps * ceil_div(weights.channels_in, step) * 4;
  }
  Macros macros() const {
    const Macros fragments{
        {"FRAGMENTS", "1"}, {"SPLIT_FP16", is_split_fp16() ? "1" : "0"}, {"FOLD_TAPS", std::to_string(folded_taps) + "u"}};
    if (kind == LayoutKind::fragments || is_split_fp16()) return fragments;
    return {
        {"CPU_LAYOUT", is_cpu_layout() ? "1" : "0"}, {"KV", std::to_string(step)}, {"STEPS_PER_THREAD", std::to_string(kStepsPerThread)}};
  }
  // Returns the number of vec4s of all groups of `weights`, before each element is split into two fp16 values.
  int64_t count_vec4(const WeightView& weights) const { return group_elements(weights) * weights.groups / (is_split_fp16() ? 8 : 4); }
  int64_t invocations(const WeightView& weights) const {
    const int64_t num_vec4 = count_vec4(weights), steps = std::max<int64_t>(ceil_div(weights.channels_in, step), 1);
    return is_cpu_layout() ? num_vec4 / steps * ceil_div(steps, kStepsPerThread) : num_vec4;
  }

  static constexpr int64_t kStepsPerThread = 8;  // steps of input channels per invocation
};

PackLayout choose_layout(const NodeContext& node, const WeightView& weights) {
  return {node.prefers_cpu_kernels() ? PackLayout::LayoutKind::cpu : PackLayout::LayoutKind::rows,
          get_cpu_step_channels(weights.channels_in)};
}

}  // namespace

int64_t count_packed_elements_per_group(const NodeContext& node, const WeightView& weights) {
  return choose_layout(node, weights).group_elements(weights);
}

int64_t get_channels_per_block(const NodeContext& node, const WeightView& weights, DType weight_dtype) {
  constexpr int64_t kMinTile = 8;  // smallest workgroup tile of any kernel, in channels
  const auto max_channels =
      static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_1"), INT32_MAX)) * kMinTile;
  WeightView smallest = weights;
  smallest.channels_out = kCpuChannels;
  // Floats may be packed from float32 sources.
  const int64_t bytes = count_packed_elements_per_group(node, smallest) * (is_float(weight_dtype) ? 4 : 1);
  const int64_t fit = bytes == 0 ? weights.channels_out : max_binding_bytes(*node.context) / bytes * kCpuChannels;
  const int64_t block = std::min(max_channels, fit) / kCpuChannels * kCpuChannels;
  return std::min(std::max(block, kCpuChannels), weights.channels_out);
}

std::shared_ptr<const KernelVariant> make_pad_rows_kernel(const NodeContext& node, DType dtype, std::string_view pad) {
  return node.kernel("pad_rows.comp", DType::int32, {{"UNIT", std::to_string(bits(dtype) / 8) + "u"}, {"PAD", std::string(pad)}});
}

Step make_pad_rows_step(const std::shared_ptr<const KernelVariant>& kernel, DType dtype, const Operand& x, const Operand& y,
                        const MatrixRows& rows) {
  StepBuilder step(kernel);
  step.bind("x", x).bind("y", y).set("rows", rows.count).set("k_size", rows.k).set("x_row", rows.stride);
  step.set_threads(static_cast<uint64_t>(rows.count * ceil_div(rows.k * static_cast<int64_t>(bits(dtype)) / 8, 16)));
  return step.build();
}

// Whether packing only changes the row pitch, because 16-bit elements keep their values and order.
static bool only_pads_rows(const NodeContext& node, const TensorDesc& source, const WeightView& weights, double scale) {
  return !node.prefers_cpu_kernels() && scale == 1 && source.dtype == node.float_dtype && bits(source.dtype) == 16 && weights.taps == 1 &&
         weights.stride_out == 1 && (weights.groups == 1 || weights.stride_group == weights.channels_in * weights.stride_in);
}

namespace {

// A packing job: weights and target layout.
struct WeightPackJob {
  WeightView weights;
  PackLayout layout;
  DType source, packed_dtype;
  std::optional<double> scale;  // scale factor for floats
  int64_t block;                // number of channels packed together
  int64_t max_bytes;            // maximum bytes of a binding
  std::shared_ptr<const KernelVariant> kernel;

  int64_t source_element_bits() const { return static_cast<int64_t>(bits(source)); }
  int64_t packed_element_bits() const { return static_cast<int64_t>(bits(packed_dtype)); }
};

// Returns the number of source elements from the first to the last that these weights read.
int64_t count_source_elements(const WeightView& slice) {
  const auto last = [](int64_t count, int64_t stride) { return std::max<int64_t>(count - 1, 0) * stride; };
  return last(slice.groups, slice.stride_group) + last(slice.channels_out, slice.stride_out) + last(slice.channels_in, slice.stride_in) +
         last(slice.taps, slice.stride_tap) + 1;
}

// A slice of the weights: some output channels, and the input channels that start at `first_in`, of `all_in` in the packed layout.
// `source_first`, `target_first`: indices of the slice's first elements in source and target.
struct PackSlice {
  WeightView weights;
  int64_t first_in, all_in, source_first, target_first;
};

Step make_pack_step(const WeightPackJob& packing, const PackSlice& slice, const Operand& source, const Operand& target) {
  WeightView all = slice.weights;
  all.channels_in = slice.all_in;
  const int64_t elements = packing.layout.group_elements(all) * all.groups;
  StepBuilder step(packing.kernel);
  step.bind("x", source, slice.source_first, count_source_elements(slice.weights), bits(packing.source));
  step.bind("y", target, slice.target_first, elements, bits(packing.packed_dtype));
  step.set("num_vec4", packing.layout.count_vec4(packing.layout.is_cpu_layout() ? all : slice.weights));
  step.set("taps", all.taps / std::max<int64_t>(packing.layout.folded_taps, 1))
      .set("channels_in", slice.weights.channels_in)
      .set("channels_out", all.channels_out);
  step.set("first_in", slice.first_in).set("all_in", all.channels_in);
  step.set("x_stride_group", all.stride_group).set("x_stride_out", all.stride_out);
  step.set("x_stride_in", all.stride_in).set("x_stride_tap", all.stride_tap);
  if (packing.scale) step.set("scale", *packing.scale);
  return step.set_threads(static_cast<uint64_t>(packing.layout.invocations(slice.weights))).build();
}

// Whether the rows of the packed layout are contiguous, so that a range of input channels is contiguous too.
bool has_rows(const WeightPackJob& packing) {
  return packing.layout.has_rows() && packing.weights.taps == 1;
}

// Returns the number of input channels of `block` whose source and packed elements fit into bindings: all channels, or a multiple of a
// step.
int64_t get_channels_per_binding(const WeightPackJob& packing, const WeightView& block) {
  WeightView single = block;
  single.channels_in = 1;
  int64_t max_channels = block.channels_in;
  const int64_t source_capacity = packing.max_bytes * 8 / packing.source_element_bits() - count_source_elements(single);
  if (count_source_elements(block) * packing.source_element_bits() / 8 > packing.max_bytes && block.stride_in > 0 && source_capacity > 0)
    max_channels = std::min(max_channels, source_capacity / block.stride_in + 1);
  if (has_rows(packing))
    max_channels = std::min(max_channels, packing.max_bytes * 8 / packing.packed_element_bits() / packing.layout.group_elements(single));
  if (max_channels >= block.channels_in) return block.channels_in;
  return std::max<int64_t>(max_channels / packing.layout.step, 1) * packing.layout.step;
}

// Packs all weights in one step if they fit into a binding. Otherwise packs each group block by block.
void add_pack_steps(std::vector<Step>& steps, const WeightPackJob& packing, const Operand& source, const Operand& target) {
  const WeightView& weights = packing.weights;
  const int64_t group_elements = packing.layout.group_elements(weights);
  const int64_t max_bits = std::max(group_elements * weights.groups * packing.packed_element_bits(),
                                    count_source_elements(weights) * packing.source_element_bits());
  const bool is_whole =
      packing.block >= weights.channels_out || packing.layout.is_cpu_layout();  // blocks for conv_cpu are contiguous anyway
  if (is_whole && max_bits / 8 <= packing.max_bytes)
    return steps.push_back(make_pack_step(packing, {weights, 0, weights.channels_in, 0, 0}, source, target));
  for (int64_t group = 0; group < weights.groups; ++group)
    for (int64_t first = 0; first < weights.channels_out; first += packing.block) {
      WeightView before = weights, block = weights;
      before.channels_out = first;
      block.groups = 1, block.channels_out = std::min(packing.block, weights.channels_out - first);
      const int64_t each = get_channels_per_binding(packing, block), from = group * weights.stride_group + first * weights.stride_out;
      const int64_t to = group * group_elements + packing.layout.group_elements(before);
      for (int64_t first_in = 0; first_in < weights.channels_in; first_in += each) {
        WeightView slice = block;
        slice.channels_in = std::min(each, weights.channels_in - first_in);
        const int64_t source_first = from + first_in * weights.stride_in;
        if (has_rows(packing))
          steps.push_back(make_pack_step(
              packing, {slice, 0, slice.channels_in, source_first, to + first_in * round_up(slice.channels_out, 8)}, source, target));
        else
          steps.push_back(make_pack_step(packing, {slice, first_in, weights.channels_in, source_first, to}, source, target));
      }
    }
}

// Packing options: the scale factor of floats (nullopt for integers), and the number of channels per block.
struct PackOptions {
  std::optional<double> scale;
  int64_t channels;
};

void pack_with_layout(const NodeContext& node, DType source, const WeightView& weights, const PackLayout& layout, const PackOptions& blocks,
                      PackedWeight& packed) {
  const std::optional<double> scale = blocks.scale;
  const DType packed_dtype = scale ? node.float_dtype : source;
  Macros macros = layout.macros();
  macros.emplace_back(scale ? "SOURCE_FLOAT" : "INTEGER", !scale || source == DType::float32 ? "1" : "0");
  packed.desc = TensorDesc(packed_dtype, {layout.group_elements(weights) * weights.groups});
  const WeightPackJob packing{weights,
                              layout,
                              source,
                              packed_dtype,
                              scale,
                              blocks.channels,
                              max_binding_bytes(*node.context),
                              node.kernel("pack_weights.comp", packed_dtype, macros)};
  packed.steps = [packing](std::vector<Step>& steps, const Operand& from, const Operand& to) { add_pack_steps(steps, packing, from, to); };
}

void pack_float_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, int64_t block,
                        PackedWeight& packed) {
  const PackLayout layout = choose_layout(node, weights);
  const bool fits =
      layout.group_elements(weights) * weights.groups * 2 <= max_binding_bytes(*node.context);  // packed elements have 16 bits
  if (block < weights.channels_out || !fits || !only_pads_rows(node, source_desc, weights, scale))
    return pack_with_layout(node, source_desc.dtype, weights, layout, {scale, block}, packed);
  packed.desc = TensorDesc(node.float_dtype, {layout.group_elements(weights) * weights.groups});
  const auto kernel = make_pad_rows_kernel(node, source_desc.dtype, "0u");
  packed.steps = [kernel, weights, dtype = source_desc.dtype](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    const int64_t rows = weights.groups * weights.channels_in;
    steps.push_back(make_pad_rows_step(kernel, dtype, source, target, {rows, weights.channels_out, weights.stride_in}));
  };
}

}  // namespace

void pack_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed) {
  pack_float_weights(node, source_desc, weights, scale, get_channels_per_block(node, weights, node.float_dtype), packed);
}

void pack_rows(const NodeContext& node, const TensorDesc& source_desc, const WeightView& rows, double scale, PackedWeight& packed) {
  pack_float_weights(node, source_desc, rows, scale, rows.channels_out, packed);
}

int64_t get_columns_per_binding(const NodeContext& node, const WeightView& weights, uint32_t element_bits) {
  WeightView eight_columns = weights;
  eight_columns.channels_out = 8;
  const int64_t bytes = count_fragment_elements(eight_columns) * static_cast<int64_t>(element_bits) / 8;
  return std::min(std::max<int64_t>(max_binding_bytes(*node.context) / bytes, 1) * 8, weights.channels_out);
}

void pack_fragments(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed) {
  const int64_t block = get_columns_per_binding(node, weights, bits(node.float_dtype));
  pack_with_layout(node, source_desc.dtype, weights, {PackLayout::LayoutKind::fragments, 32}, {scale, block}, packed);
}

void pack_folded_taps(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, int64_t width,
                      PackedWeight& packed) {
  pack_with_layout(node, source_desc.dtype, weights, {PackLayout::LayoutKind::fragments, 32, width}, {1, weights.channels_out}, packed);
}

void pack_split_fp16(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, int exponent,
                     PackedWeight& packed) {
  NodeContext split_fp16 = node;
  split_fp16.float_dtype = DType::float16;
  const int64_t block = get_columns_per_binding(node, weights, kSplitFp16Bits);
  pack_with_layout(split_fp16, source_desc.dtype, weights, {PackLayout::LayoutKind::split_fp16, 32}, {std::ldexp(1.0, -exponent), block},
                   packed);
}

void pack_cpu_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed) {
  constexpr int64_t kStep = 4;
  const int64_t block_bytes = kCpuChannels * round_up(std::max<int64_t>(weights.channels_in, 1), kStep) * weights.taps * 4;
  const int64_t block = std::max<int64_t>(max_binding_bytes(*node.context) / block_bytes, 1) * kCpuChannels;
  pack_with_layout(node, source_desc.dtype, weights, {PackLayout::LayoutKind::cpu, kStep}, {1, std::min(block, weights.channels_out)},
                   packed);
}

void pack_integer_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed) {
  pack_with_layout(node, source_desc.dtype, weights, choose_layout(node, weights),
                   {{}, get_channels_per_block(node, weights, source_desc.dtype)}, packed);
}

void pack_weights(const PackContext& node, size_t input, const WeightView& weights, double scale, PackedWeight& packed) {
  check_row_major(node, input);
  pack_weights(node, node.input(input), weights, scale, packed);
}

void pack_as_float32(const PackContext& node, size_t input, double scale, PackedWeight& packed) {
  check_row_major(node, input);
  const TensorDesc& source_desc = node.input(input);
  packed.desc = TensorDesc(DType::float32, {source_desc.elements()});
  const auto kernel =
      node.kernel("pack_float32.comp", source_desc.dtype, {{"SOURCE_FLOAT", source_desc.dtype == DType::float32 ? "1" : "0"}});
  const int64_t count = source_desc.elements();
  packed.steps = make_elementwise_packing(kernel, count, [=](StepBuilder& step) { step.set("count", count).set("scale", scale); });
}

}  // namespace pumice
