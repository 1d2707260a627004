// Packs weights for the GEMM and convolution kernels.
#include "operators/conv_gemm/weight_packing.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/rounding.h"

namespace pumice {

// Checks that the source is row-major, because packing reads it row by row.
static void check_packed(const PackContext& node, size_t input) {
  if (!node.input(input).is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': input " + std::to_string(input) + " is repacked and has strides, " +
                           to_string(node.input(input)) + "; give it row-major");
}

namespace {

// Layout that pack_weights writes: rows padded to a multiple of 8, steps of input channels for conv_cpu, or fragments (with the K of one
// step) for gemm_mma or gemm_split_fp16.
struct PackForm {
  enum class Kind : uint8_t { rows, lanes, fragments, halves } kind;
  int64_t step;
  int64_t spread = 0;  // number of x taps of fragments that are folded into N; 0: none

  bool has_rows() const { return kind == Kind::rows; }
  bool has_lanes() const { return kind == Kind::lanes; }
  bool has_halves() const { return kind == Kind::halves; }

  // Number of elements of one group of `weights`.
  int64_t group(const WeightView& weights) const {
    if (spread > 0) return spread_elements(weights, spread);
    if (kind == Kind::fragments || has_halves()) return fragment_elements(weights) * (has_halves() ? 2 : 1);
    if (!has_lanes()) return weights.taps * weights.channels_in * round_up(weights.channels_out, 8);
    return round_up(weights.channels_out, kLaneChannels) * weights.taps * ceil_div(weights.channels_in, step) * 4;
  }
  Macros macros() const {
    const Macros fragments{{"FRAGMENTS", "1"}, {"HALVES", has_halves() ? "1" : "0"}, {"SPREAD", std::to_string(spread) + "u"}};
    if (kind == Kind::fragments || has_halves()) return fragments;
    return {{"LANES", has_lanes() ? "1" : "0"}, {"KV", std::to_string(step)}, {"RUN", std::to_string(kRun)}};
  }
  // Number of vec4s of all groups of `weights`, before each element is split into two fp16 values.
  int64_t fours_of(const WeightView& weights) const { return group(weights) * weights.groups / (has_halves() ? 8 : 4); }
  int64_t invocations(const WeightView& weights) const {
    const int64_t fours = fours_of(weights), steps = std::max<int64_t>(ceil_div(weights.channels_in, step), 1);
    return has_lanes() ? fours / steps * ceil_div(steps, kRun) : fours;
  }

  static constexpr int64_t kRun = 8;  // number of steps per invocation
};

PackForm form_of(const NodeContext& node, const WeightView& weights) {
  return {node.prefers_lanes() ? PackForm::Kind::lanes : PackForm::Kind::rows, step_channels(weights.channels_in)};
}

}  // namespace

int64_t packed_group(const NodeContext& node, const WeightView& weights) {
  return form_of(node, weights).group(weights);
}

int64_t block_channels(const NodeContext& node, const WeightView& weights, DType factors) {
  constexpr int64_t kLeastTile = 8;  // smallest workgroup tile of any kernel, in channels
  const auto most = static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_1"), INT32_MAX)) * kLeastTile;
  WeightView least = weights;
  least.channels_out = kLaneChannels;
  // Floats may be packed from float32 sources.
  const int64_t bytes = packed_group(node, least) * (is_float(factors) ? 4 : 1);
  const int64_t fit = bytes == 0 ? weights.channels_out : largest_range(*node.context) / bytes * kLaneChannels;
  const int64_t block = std::min(most, fit) / kLaneChannels * kLaneChannels;
  return std::min(std::max(block, kLaneChannels), weights.channels_out);
}

std::shared_ptr<const KernelVariant> row_pieces_kernel(const NodeContext& node, DType dtype, std::string_view pad) {
  return node.kernel("pad_rows.comp", DType::int32, {{"UNIT", std::to_string(bits(dtype) / 8) + "u"}, {"PAD", std::string(pad)}});
}

Step row_pieces_step(const std::shared_ptr<const KernelVariant>& kernel, DType dtype, const Operand& x, const Operand& y,
                     const MatrixRows& rows) {
  StepBuilder step(kernel);
  step.bind("x", x).bind("y", y).set("rows", rows.count).set("depth", rows.depth).set("x_row", rows.stride);
  step.threads(static_cast<uint64_t>(rows.count * ceil_div(rows.depth * static_cast<int64_t>(bits(dtype)) / 8, 16)));
  return step.build();
}

// Whether packing only changes the row pitch: 16-bit elements keep their values and order.
static bool keeps_rows(const NodeContext& node, const TensorDesc& source, const WeightView& weights, double scale) {
  return !node.prefers_lanes() && scale == 1 && source.dtype == node.float_dtype && bits(source.dtype) == 16 && weights.taps == 1 &&
         weights.stride_out == 1 && (weights.groups == 1 || weights.stride_group == weights.channels_in * weights.stride_in);
}

namespace {

// A packing job: weights and target layout.
struct Packing {
  WeightView weights;
  PackForm form;
  DType source, made;
  std::optional<double> scale;  // scale factor for floats
  int64_t block;                // number of channels packed together
  int64_t room;                 // maximum bytes of a binding
  std::shared_ptr<const KernelVariant> kernel;

  int64_t source_bits() const { return static_cast<int64_t>(bits(source)); }
  int64_t made_bits() const { return static_cast<int64_t>(bits(made)); }
};

// Number of source elements from the first to the last that these weights read.
int64_t source_span(const WeightView& part) {
  const auto last = [](int64_t count, int64_t stride) { return std::max<int64_t>(count - 1, 0) * stride; };
  return last(part.groups, part.stride_group) + last(part.channels_out, part.stride_out) + last(part.channels_in, part.stride_in) +
         last(part.taps, part.stride_tap) + 1;
}

// A part of the weights: some output channels, and input channels from `first_in` on out of the target's `all_in`. Has the first elements
// in source and target.
struct PackPart {
  WeightView weights;
  int64_t first_in, all_in, source_first, target_first;
};

Step pack_step(const Packing& packing, const PackPart& part, const Operand& source, const Operand& target) {
  WeightView all = part.weights;
  all.channels_in = part.all_in;
  const int64_t elements = packing.form.group(all) * all.groups;
  StepBuilder step(packing.kernel);
  step.bind("x", source, part.source_first, source_span(part.weights), bits(packing.source));
  step.bind("y", target, part.target_first, elements, bits(packing.made));
  step.set("quads", packing.form.fours_of(packing.form.has_lanes() ? all : part.weights));
  step.set("taps", all.taps / std::max<int64_t>(packing.form.spread, 1))
      .set("channels_in", part.weights.channels_in)
      .set("channels_out", all.channels_out);
  step.set("first_in", part.first_in).set("all_in", all.channels_in);
  step.set("x_stride_group", all.stride_group).set("x_stride_out", all.stride_out);
  step.set("x_stride_in", all.stride_in).set("x_stride_tap", all.stride_tap);
  if (packing.scale) step.set("scale", *packing.scale);
  return step.threads(static_cast<uint64_t>(packing.form.invocations(part.weights))).build();
}

// Whether the target's rows are contiguous, so that a range of input channels is contiguous in the target.
bool has_rows(const Packing& packing) {
  return packing.form.has_rows() && packing.weights.taps == 1;
}

// Number of input channels of `block` whose source and target fit into bindings: whole steps, or all channels if they fit.
int64_t channels_at_once(const Packing& packing, const WeightView& block) {
  WeightView one = block;
  one.channels_in = 1;
  int64_t most = block.channels_in;
  const int64_t source_room = packing.room * 8 / packing.source_bits() - source_span(one);
  if (source_span(block) * packing.source_bits() / 8 > packing.room && block.stride_in > 0 && source_room > 0)
    most = std::min(most, source_room / block.stride_in + 1);
  if (has_rows(packing)) most = std::min(most, packing.room * 8 / packing.made_bits() / packing.form.group(one));
  if (most >= block.channels_in) return block.channels_in;
  return std::max<int64_t>(most / packing.form.step, 1) * packing.form.step;
}

// Packs everything in one step if it fits into a binding, else block by block for each group.
void add_pack_steps(std::vector<Step>& steps, const Packing& packing, const Operand& source, const Operand& target) {
  const WeightView& weights = packing.weights;
  const int64_t group_elements = packing.form.group(weights);
  const int64_t most_bits = std::max(group_elements * weights.groups * packing.made_bits(), source_span(weights) * packing.source_bits());
  const bool is_whole = packing.block >= weights.channels_out || packing.form.has_lanes();  // blocks for conv_cpu are contiguous anyway
  if (is_whole && most_bits / 8 <= packing.room)
    return steps.push_back(pack_step(packing, {weights, 0, weights.channels_in, 0, 0}, source, target));
  for (int64_t group = 0; group < weights.groups; ++group)
    for (int64_t first = 0; first < weights.channels_out; first += packing.block) {
      WeightView before = weights, block = weights;
      before.channels_out = first;
      block.groups = 1, block.channels_out = std::min(packing.block, weights.channels_out - first);
      const int64_t each = channels_at_once(packing, block), from = group * weights.stride_group + first * weights.stride_out;
      const int64_t to = group * group_elements + packing.form.group(before);
      for (int64_t first_in = 0; first_in < weights.channels_in; first_in += each) {
        WeightView part = block;
        part.channels_in = std::min(each, weights.channels_in - first_in);
        const int64_t source_first = from + first_in * weights.stride_in;
        if (has_rows(packing))
          steps.push_back(pack_step(packing, {part, 0, part.channels_in, source_first, to + first_in * round_up(part.channels_out, 8)},
                                    source, target));
        else
          steps.push_back(pack_step(packing, {part, first_in, weights.channels_in, source_first, to}, source, target));
      }
    }
}

// Scale for floats (none for integers), and number of channels per block.
struct PackBlocks {
  std::optional<double> scale;
  int64_t channels;
};

void pack(const NodeContext& node, DType source, const WeightView& weights, const PackForm& form, const PackBlocks& blocks,
          PackedWeight& packed) {
  const std::optional<double> scale = blocks.scale;
  const DType made = scale ? node.float_dtype : source;
  Macros macros = form.macros();
  macros.emplace_back(scale ? "SOURCE_FLOAT" : "INTEGER", !scale || source == DType::float32 ? "1" : "0");
  packed.desc = TensorDesc(made, {form.group(weights) * weights.groups});
  const Packing packing{
      weights, form, source, made, scale, blocks.channels, largest_range(*node.context), node.kernel("pack_weights.comp", made, macros)};
  packed.steps = [packing](std::vector<Step>& steps, const Operand& from, const Operand& to) { add_pack_steps(steps, packing, from, to); };
}

void pack_floats_as(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, int64_t block,
                    PackedWeight& packed) {
  const PackForm form = form_of(node, weights);
  const bool fits = form.group(weights) * weights.groups * 2 <= largest_range(*node.context);  // elements have 16 bits
  if (block < weights.channels_out || !fits || !keeps_rows(node, source_desc, weights, scale))
    return pack(node, source_desc.dtype, weights, form, {scale, block}, packed);
  packed.desc = TensorDesc(node.float_dtype, {form.group(weights) * weights.groups});
  const auto kernel = row_pieces_kernel(node, source_desc.dtype, "0u");
  packed.steps = [kernel, weights, dtype = source_desc.dtype](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    const int64_t rows = weights.groups * weights.channels_in;
    steps.push_back(row_pieces_step(kernel, dtype, source, target, {rows, weights.channels_out, weights.stride_in}));
  };
}

}  // namespace

void pack_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed) {
  pack_floats_as(node, source_desc, weights, scale, block_channels(node, weights, node.float_dtype), packed);
}

void pack_rows(const NodeContext& node, const TensorDesc& source_desc, const WeightView& rows, double scale, PackedWeight& packed) {
  pack_floats_as(node, source_desc, rows, scale, rows.channels_out, packed);
}

int64_t block_of_fragments(const NodeContext& node, const WeightView& weights, uint32_t element_bits) {
  WeightView eight = weights;
  eight.channels_out = 8;
  const int64_t bytes = fragment_elements(eight) * static_cast<int64_t>(element_bits) / 8;
  return std::min(std::max<int64_t>(largest_range(*node.context) / bytes, 1) * 8, weights.channels_out);
}

void pack_fragments(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed) {
  const int64_t block = block_of_fragments(node, weights, bits(node.float_dtype));
  pack(node, source_desc.dtype, weights, {PackForm::Kind::fragments, 32}, {scale, block}, packed);
}

void pack_spread(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, int64_t width, PackedWeight& packed) {
  pack(node, source_desc.dtype, weights, {PackForm::Kind::fragments, 32, width}, {1, weights.channels_out}, packed);
}

void pack_halves(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, int exponent, PackedWeight& packed) {
  NodeContext halves = node;
  halves.float_dtype = DType::float16;
  const int64_t block = block_of_fragments(node, weights, kHalvesBits);
  pack(halves, source_desc.dtype, weights, {PackForm::Kind::halves, 32}, {std::ldexp(1.0, -exponent), block}, packed);
}

void pack_weight_lanes(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed) {
  constexpr int64_t kStep = 4;
  const int64_t lanes_bytes = kLaneChannels * round_up(std::max<int64_t>(weights.channels_in, 1), kStep) * weights.taps * 4;
  const int64_t block = std::max<int64_t>(largest_range(*node.context) / lanes_bytes, 1) * kLaneChannels;
  pack(node, source_desc.dtype, weights, {PackForm::Kind::lanes, kStep}, {1, std::min(block, weights.channels_out)}, packed);
}

void pack_integer_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed) {
  pack(node, source_desc.dtype, weights, form_of(node, weights), {{}, block_channels(node, weights, source_desc.dtype)}, packed);
}

void pack_weights(const PackContext& node, size_t input, const WeightView& weights, double scale, PackedWeight& packed) {
  check_packed(node, input);
  pack_weights(node, node.input(input), weights, scale, packed);
}

void pack_floats(const PackContext& node, size_t input, double scale, PackedWeight& packed) {
  check_packed(node, input);
  const TensorDesc& source_desc = node.input(input);
  packed.desc = TensorDesc(DType::float32, {source_desc.elements()});
  const auto kernel =
      node.kernel("pack_float32.comp", source_desc.dtype, {{"SOURCE_FLOAT", source_desc.dtype == DType::float32 ? "1" : "0"}});
  const int64_t count = source_desc.elements();
  packed.steps = packing_each(kernel, count, [=](StepBuilder& step) { step.set("count", count).set("scale", scale); });
}

}  // namespace pumice
