// Lowers normalisation operators.
#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/number_format.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/mixed_precision.h"
#include "operators/common/nchw_view.h"
#include "operators/common/row_registers.h"
#include "operators/normalization/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr int64_t kMaxChunks = 256;
constexpr int64_t kMaxGroupChannels = 128;   // maximum number of channels per group
constexpr int64_t kMinChunkElements = 4096;  // minimum number of elements per workgroup
constexpr int64_t kMinPixels = 32;           // minimum number of pixels per invocation if many invocations run in parallel

int64_t get_normalized_axis(const LowerContext& node, int64_t fallback) {
  const int64_t axis = node.attributes->integer("axis", fallback);
  return axis < 0 ? axis + node.input(0).rank() : axis;
}

std::string format_bool_macro(bool set) {
  return set ? "1" : "0";
}

// Whether all planes are contiguous, aligned, and consist of whole vec4s.
bool has_vec4_planes(const LowerContext& node, const NchwView& x) {
  return node.input(0).is_packed() && node.output(0).is_packed() && x.h * x.w % 4 == 0 && is_vec4_aligned(node);
}

// Adds the macro for the residual that the epilogue reads, if there is one.
void add_residual_macro(const LowerContext& node, Macros& macros) {
  if (node.residual()) macros.emplace_back("RESIDUAL", "1");
}
void bind_residual(const LowerContext& node, StepBuilder& step) {
  if (const Operand* residual = node.residual()) step.bind("residual", *residual);
}

// Adds the step y = (x - mean) * factor + bias. `factors` contains one vec4 per channel, or per batch item and channel.
void add_norm_apply(LowerContext& node, const NchwView& x, const NchwView& y, const Operand& factors, int64_t factor_stride_n) {
  const bool planes = has_vec4_planes(node, x), vec4 = !planes && x.has_vector_channels(4) && y.has_vector_channels(4);
  const int64_t elements_per_item = planes || vec4 ? 4 : 1;
  const DType dtype = node.input(0).dtype;
  const MixedPrecisionArrays arrays =
      make_mixed_precision_arrays({{"X", dtype}, {"Y", node.output(0).dtype}, {"R", node.get_residual_dtype(dtype)}});
  Macros macros = {{"PLANES", format_bool_macro(planes)}, {"VEC4", format_bool_macro(vec4)}, {"EPILOGUE(x)", node.epilogue()}};
  arrays.append_to(macros);
  add_residual_macro(node, macros);
  StepBuilder step(node.kernel("norm_apply.comp", arrays.storage, macros));
  bind_residual(node, step);
  step.bind("x", node.input_operand(0))
      .bind("factors", factors)
      .bind("y", node.output_operand(0))
      .set("elements", y.elements() / elements_per_item);
  step.set("channels", vec4 ? y.c / 4 : y.c).set("factor_stride_n", factor_stride_n);
  if (planes) {
    step.set("vec4_per_plane", y.h * y.w / 4);
  } else {
    step.set("height", y.h).set("width", y.w).set("channels_fastest", y.sc == 1 && y.c > 1 ? 1 : 0);
    set_strides(step, 'x', x);
    set_strides(step, 'y', y);
  }
  const int64_t each = planes && is_16bit_float(arrays.storage) ? 2 : 1;
  node.add(step.set_threads(static_cast<uint64_t>(ceil_div(y.elements() / elements_per_item, each))).build());
}

}  // namespace

bool pack_instance_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 1 && input != 2) return false;
  pack_as_float32(node, input, 1, packed);
  return true;
}

namespace {

// Plan for NHWC kernels that keep pixels in registers. A thread group processes four channels of a batch item.
struct ChannelRegisterPlan {
  int64_t group_threads, thread_groups, items_per_thread;
  bool fp16;

  std::string name() const { return "norm_nhwc_registers " + std::to_string(items_per_thread); }
};

constexpr int64_t kMinGroupThreads = 128, kMaxThreadGroups = 4;
constexpr int64_t kChunkPixels = 1024;  // pixels per chunk, which kMinGroupThreads threads keep in registers

// Whether the NHWC kernels support this node: contiguous vec4s of channels, and one dtype for all tensors.
bool supports_nhwc_kernels(const LowerContext& node, const NchwView& x, const NchwView& y) {
  const bool is_dense = x.sh == x.w * x.sw && y.sh == y.w * y.sw;
  const DType dtype = node.input(0).dtype;
  if (node.output(0).dtype != dtype || node.get_residual_dtype(dtype) != dtype) return false;
  return !node.prefers_cpu_kernels() && is_dense && x.has_vector_channels(4) && y.has_vector_channels(4) && is_vec4_aligned(node);
}

// few_per_thread: with more items per thread than this, threads are added while there may be more.
std::optional<ChannelRegisterPlan> plan_channel_registers(const LowerContext& node, const NchwView& x, int64_t few_per_thread) {
  constexpr int64_t kMaxPerThread = 8, kMaxFp16PerThread = 16;
  const bool fp16 = is_16bit_float(node.input(0).dtype);
  const int64_t pixels = x.h * x.w, num_channel_vec4 = x.c / 4, max_per_thread = fp16 ? kMaxFp16PerThread : kMaxPerThread,
                max_threads = node.max_invocations();
  // The thread groups of a workgroup read adjacent channels and so share memory sectors. Use several only if enough workgroups remain to
  // fill the device.
  for (int64_t thread_groups = node.subgroup_size() > 0 ? kMaxThreadGroups : 1; thread_groups >= 1; thread_groups /= 2) {
    if (thread_groups > 1 && (num_channel_vec4 % thread_groups != 0 || x.n * num_channel_vec4 / thread_groups < node.num_multiprocessors()))
      continue;
    int64_t group_threads = kMinGroupThreads;
    while (group_threads * 2 * thread_groups <= max_threads && ceil_div(pixels, group_threads) > few_per_thread) group_threads *= 2;
    const auto items_per_thread = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(pixels, group_threads))));
    if (group_threads * thread_groups <= max_threads && items_per_thread <= max_per_thread)
      return ChannelRegisterPlan{group_threads, thread_groups, items_per_thread, fp16};
  }
  return {};
}

// Returns a plan whose kernel does not spill registers: that with 8 items per thread, else one with fewer items in more threads. nullopt if
// the channels are too large, or if all plans spill and `has_alternative`.
std::optional<ChannelRegisterPlan> plan_unspilled_channel_registers(const LowerContext& node, const NchwView& x, bool has_alternative) {
  std::vector<ChannelRegisterPlan> plans;
  for (const int64_t few_per_thread : {8, 4, 2})
    if (const auto plan = plan_channel_registers(node, x, few_per_thread)) plans.push_back(*plan);
  if (plans.empty()) return {};
  const auto& chosen = choose_unspilled(node.spilled, plans, [](const ChannelRegisterPlan& plan) { return plan.name(); });
  return has_alternative && node.is_spilled(chosen.name()) ? std::nullopt : std::optional(chosen);
}

// Normalises each channel of a batch item in one dispatch.
void add_nhwc_norm_in_registers(LowerContext& node, const NchwView& x, const NchwView& y, const ChannelRegisterPlan& registers,
                                double epsilon) {
  const auto format_uint_literal = [](int64_t value) { return std::to_string(value) + "u"; };
  Macros macros = {{"GROUP_THREADS", format_uint_literal(registers.group_threads)},
                   {"THREAD_GROUPS", format_uint_literal(registers.thread_groups)},
                   {"ITEMS_PER_THREAD", format_uint_literal(registers.items_per_thread)},
                   {"HOLDS_FP16", format_bool_macro(registers.fp16)},
                   {"SUBGROUP", std::to_string(node.subgroup_size())},
                   {"EPILOGUE(x)", node.epilogue()}};
  add_residual_macro(node, macros);
  StepBuilder step(node.kernel("norm_nhwc_registers.comp", node.input(0).dtype, macros));
  bind_residual(node, step);
  step.bind("x", node.input_operand(0))
      .bind("y", node.output_operand(0))
      .bind("scale", node.get_packed_input(1))
      .bind("bias", node.get_packed_input(2));
  step.set("images", x.n).set("num_channel_vec4", x.c / 4).set("pixels", x.h * x.w).set("epsilon", epsilon);
  step.set("x_stride_n", x.sn).set("x_stride_w", x.sw).set("y_stride_n", y.sn).set("y_stride_w", y.sw);
  step.set_variant(registers.name(), "");
  node.report_additions(registers.items_per_thread + count_reduction_additions(registers.group_threads, node.subgroup_size(), false));
  node.add(step.set_workgroups(static_cast<uint64_t>(ceil_div(x.n * x.c / 4, registers.thread_groups))).build());
}

// Partial statistics over chunks of pixels: a vec2 for each [batch][chunk][channel or group].
struct ChunkStatistics {
  Operand partials;
  int64_t pixels, count;  // pixels per chunk; chunks per image
};

// Adds partial statistics of NHWC tensors: a thread group keeps four channels of a chunk's pixels in registers.
ChunkStatistics add_nhwc_statistics(LowerContext& node, const NchwView& x) {
  const int64_t num_channel_vec4 = x.c / 4, pixels = x.h * x.w, chunk_size = kChunkPixels, count = ceil_div(pixels, chunk_size),
                units = x.n * count * num_channel_vec4;
  int64_t thread_groups =
      node.subgroup_size() > 0 ? kMaxThreadGroups : 1;  // number of thread groups per workgroup, which share memory sectors
  while (thread_groups > 1 && (num_channel_vec4 % thread_groups != 0 || units / thread_groups < node.num_multiprocessors() ||
                               thread_groups * kMinGroupThreads > node.max_invocations()))
    thread_groups /= 2;
  const auto format_uint_literal = [](int64_t value) { return std::to_string(value) + "u"; };
  const Operand partials = node.add_temporary(static_cast<uint64_t>(x.n * count * x.c) * 8);
  StepBuilder step(node.kernel("norm_nhwc_statistics.comp", node.input(0).dtype,
                               {{"GROUP_THREADS", format_uint_literal(kMinGroupThreads)},
                                {"THREAD_GROUPS", format_uint_literal(thread_groups)},
                                {"ITEMS_PER_THREAD", format_uint_literal(kChunkPixels / kMinGroupThreads)},
                                {"SUBGROUP", std::to_string(node.subgroup_size())}}));
  step.bind("x", node.input_operand(0))
      .bind("y", partials)
      .set("images", x.n)
      .set("num_channel_vec4", num_channel_vec4)
      .set("pixels", pixels)
      .set("chunks", count);
  step.set("x_stride_n", x.sn).set("x_stride_w", x.sw);
  node.add(step.set_workgroups(static_cast<uint64_t>(ceil_div(units, thread_groups))).build());
  return {partials, chunk_size, count};
}

// Normalises NHWC tensors from partial statistics. Each workgroup merges the statistics of its channels.
void add_nhwc_norm_from_statistics(LowerContext& node, const NchwView& x, const NchwView& y, const ChunkStatistics& chunks,
                                   double epsilon) {
  constexpr int64_t kPixelsPerThread = 4, kPixels = 64 * kPixelsPerThread,
                    kVec4 = 4;  // pixels, and vec4s of channels, per workgroup
  Macros macros = {{"ITEMS_PER_THREAD", std::to_string(kPixelsPerThread) + "u"},
                   {"SUBGROUP", std::to_string(node.subgroup_size())},
                   {"EPILOGUE(x)", node.epilogue()}};
  add_residual_macro(node, macros);
  StepBuilder step(node.kernel("norm_nhwc_apply.comp", node.input(0).dtype, macros));
  bind_residual(node, step);
  step.bind("x", node.input_operand(0))
      .bind("partials", chunks.partials)
      .bind("scale", node.get_packed_input(1))
      .bind("bias", node.get_packed_input(2));
  step.bind("y", node.output_operand(0))
      .set("images", x.n)
      .set("num_channel_vec4", x.c / 4)
      .set("pixels", x.h * x.w)
      .set("epsilon", epsilon);
  step.set("chunk_size", chunks.pixels).set("chunks", chunks.count);
  step.set("x_stride_n", x.sn).set("x_stride_w", x.sw).set("y_stride_n", y.sn).set("y_stride_w", y.sw);
  node.add(step.set_workgroups(static_cast<uint64_t>(x.n * ceil_div(x.h * x.w, kPixels) * ceil_div(x.c / 4, kVec4))).build());
}

// Returns the channels per row that layer_norm_registers.comp has shared memory for: kMaxGroupChannels, or as many as the device's memory
// allows; 0 if those are fewer than `channels`.
int64_t choose_max_group_channels(const LowerContext& node, const RowRegisterPlan& plan, int64_t channels) {
  constexpr int64_t kFactorBytes = 8, kReduceBytes = 12, kReducePadding = 16;  // see the shader's arrays
  const int64_t reduce_bytes = (plan.threads * plan.rows_per_group + kReducePadding) * kReduceBytes;
  const auto limit = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
  int64_t max_channels = kMaxGroupChannels;
  while (max_channels >= channels && plan.rows_per_group * max_channels * kFactorBytes + reduce_bytes > limit) max_channels /= 2;
  return max_channels >= channels ? max_channels : 0;
}

// Normalises each of the `groups` channel groups of a batch item. The memory of a group with several channels must be contiguous.
void add_group_norm(LowerContext& node, const NchwView& x, const NchwView& y, int64_t groups) {
  const int64_t channels = x.c / groups, pixels = channels * x.h * x.w;
  const double epsilon = node.attributes->real("epsilon", 1e-5);
  const Operand scale = node.get_packed_input(1), bias = node.get_packed_input(2);
  const bool is_vec4 = has_vec4_planes(node, x) && !node.prefers_cpu_kernels();
  const RowRegisterChoice registers =
      is_vec4 && channels <= kMaxGroupChannels ? choose_row_registers(node, pixels, true) : RowRegisterChoice{};
  if (const int64_t max_channels = registers.plan ? choose_max_group_channels(node, *registers.plan, channels) : 0; max_channels > 0) {
    Macros macros = {{"CHANNELS", channels == 1 ? "1" : "2"},
                     {"HAS_BIAS", "1"},
                     {"SUBTRACT_MEAN", "1"},
                     {"EPILOGUE(x)", node.epilogue()},
                     {"MAX_CHANNELS", std::to_string(max_channels)}};
    add_residual_macro(node, macros);
    StepBuilder step = make_row_register_step(node, registers, "layer_norm_registers.comp", macros, x.n * groups, pixels);
    bind_residual(node, step);
    step.bind("scale", scale).bind("bias", bias).set("groups", groups).set("epsilon", epsilon);
    const double plane = static_cast<double>(x.h * x.w) / 4;  // vec4s per channel; exact, since planes consist of whole vec4s
    node.report_additions(count_register_row_additions(node, *registers.plan));
    return node.add(step.set("channels", channels).set("plane_inverse", 1 / plane).build());
  }
  if (groups == x.c && supports_nhwc_kernels(node, x, y)) {
    constexpr int64_t kMaxMergedChunks = 64,
                      kFewChunks = 8;  // maximum number of chunks that every workgroup merges, and that one thread group processes alone
    const bool has_few = ceil_div(x.h * x.w, kChunkPixels) <= kMaxMergedChunks && node.max_invocations() >= 256;
    // A few thread groups with large images would leave most of the device idle.
    const bool is_idle = x.h * x.w > kFewChunks * kChunkPixels && x.n * x.c < node.num_multiprocessors();
    const auto channel_plan = has_few && is_idle ? std::nullopt : plan_unspilled_channel_registers(node, x, has_few);
    if (channel_plan) return add_nhwc_norm_in_registers(node, x, y, *channel_plan, epsilon);
    if (has_few) return add_nhwc_norm_from_statistics(node, x, y, add_nhwc_statistics(node, x), epsilon);
  }
  // Planes are split into chunks, so that even one large plane occupies many invocations. Their partial statistics are merged afterwards.
  // Chunks of 60,000 elements stay below the 65,535 iterations after which lavapipe ends a loop.
  const int64_t min_chunk = is_vec4 ? kMinChunkElements : node.prefers_cpu_kernels() ? 64 : kMinPixels;
  const int64_t max_chunks = node.prefers_cpu_kernels() || is_vec4 ? kMaxChunks : kMaxChunks * 4;
  const int64_t chunk_size = round_up(std::clamp<int64_t>(ceil_div(pixels, max_chunks), std::min(pixels, min_chunk), 60000), 4);
  const int64_t chunks = ceil_div(pixels, chunk_size);
  const Operand partials = node.add_temporary(static_cast<uint64_t>(x.n * chunks * groups) * 8),
                factors = node.add_temporary(static_cast<uint64_t>(x.n * x.c) * 16);
  StepBuilder statistics(node.kernel("norm_statistics.comp", node.input(0).dtype,
                                     {{"PLANES", format_bool_macro(is_vec4)}, {"SUBGROUP", std::to_string(node.subgroup_size())}}));
  statistics.bind("x", node.input_operand(0))
      .bind("y", partials)
      .set("images", x.n)
      .set("channels", groups)
      .set("pixels", pixels)
      .set("chunk_size", chunk_size)
      .set("chunks", chunks);
  if (!is_vec4) {
    const NchwView rows = channels == 1 ? x : NchwView{x.n, groups, 1, pixels, x.sn, channels * x.sc, 0, 1};
    statistics.set("width", rows.w);
    set_strides(statistics, 'x', rows);
  }
  const auto units = static_cast<uint64_t>(x.n * chunks * groups);
  node.add((is_vec4 ? statistics.set_workgroups(units) : statistics.set_threads(units)).build());
  constexpr int64_t kWorkgroupSize = 64,
                    kMinSharedThreads = 16;  // workgroup size; minimum number of threads that merge the chunks of a channel
  const int64_t group_threads = node.prefers_cpu_kernels() || chunks <= kMinSharedThreads ? 1
                                : chunks <= kWorkgroupSize                                ? kMinSharedThreads
                                                                                          : kWorkgroupSize;
  StepBuilder combine(node.kernel("norm_combine.comp", DType::float32,
                                  {{"GROUP_THREADS", std::to_string(group_threads)}, {"SUBGROUP", std::to_string(node.subgroup_size())}}));
  combine.bind("x", partials).bind("scale", scale).bind("bias", bias).bind("y", factors);
  combine.set("images", x.n).set("channels", x.c).set("groups", groups).set("pixels", pixels).set("chunk_size", chunk_size);
  combine.set("chunks", chunks);
  combine.set("epsilon", epsilon);
  const auto num_factors = static_cast<uint64_t>(x.n * x.c);
  if (group_threads == 1)
    node.add(combine.set_threads(num_factors).build());
  else
    node.add(combine.set_workgroups(ceil_div(num_factors, static_cast<uint64_t>(kWorkgroupSize / group_threads))).build());
  add_norm_apply(node, x, y, factors, x.c);
}

}  // namespace

void lower_instance_norm(LowerContext& node) {
  const NchwView x = make_nchw_view(node, node.input(0)), y = make_nchw_view(node, node.output(0));
  if (x.elements() != 0) add_group_norm(node, x, y, x.c);
}

bool pack_batch_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 0) return false;
  pack_as_float32(node, input, 1, packed);
  return true;
}

void lower_batch_norm(LowerContext& node) {
  const NchwView x = make_nchw_view(node, node.input(0)), y = make_nchw_view(node, node.output(0));
  if (x.elements() == 0) return;
  const Operand factors = node.add_temporary(static_cast<uint64_t>(x.c) * 16);
  StepBuilder step(node.kernel("batch_norm_factors.comp", DType::float32));
  step.bind("scale", node.get_packed_input(1))
      .bind("bias", node.get_packed_input(2))
      .bind("mean", node.get_packed_input(3))
      .bind("variance", node.get_packed_input(4))
      .bind("y", factors);
  node.add(
      step.set("channels", x.c).set("epsilon", node.attributes->real("epsilon", 1e-5)).set_threads(static_cast<uint64_t>(x.c)).build());
  add_norm_apply(node, x, y, factors, 0);
}

// Lowers layer normalisation to a sequence of simpler operators, for broadcast scales or biases and for rows that exceed the kernel's
// limit.
static void lower_decomposed_layer_norm(LowerContext& node, bool subtracts_mean) {
  CompositeLowering composition(node);
  TensorOperand source = composition.input(0);
  std::vector<int64_t> axes;
  int64_t count = 1;
  for (int64_t axis = get_normalized_axis(node, -1); axis < source.desc.rank(); ++axis) {
    axes.push_back(axis);
    count *= source.desc.shape[static_cast<size_t>(axis)];
  }
  if (subtracts_mean) {
    const TensorOperand deviation = composition.allocate_scratch(DType::float32, source.desc.shape),
                        mean = composition.add_reduction("ReduceMean", source, axes);
    composition.add_elementwise("a0 - a1", {source, mean}, deviation);
    if (node.has_output(1)) composition.add_elementwise("a0", {mean}, composition.output(1));
    source = deviation;
  }
  const TensorOperand squares = composition.add_reduction("ReduceSumSquare", source, axes);
  const auto root = [&](const std::string& sum) {
    return "sqrt(" + sum + " / " + std::to_string(count) + ".0 + " + format_as_float(node.attributes->real("epsilon", 1e-5), 17) + ")";
  };
  if (node.has_output(2)) composition.add_elementwise("1 / " + root("a0"), {squares}, composition.output(2));
  const auto packed = [&](size_t i) { return TensorOperand{TensorDesc(DType::float32, node.input(i).shape), node.get_packed_input(i)}; };
  std::vector<TensorOperand> operands{source, squares, packed(1)};
  if (node.has_input(2)) operands.push_back(packed(2));
  composition.add_elementwise("a0 / " + root("a1") + (node.has_input(2) ? " * a2 + a3" : " * a2"), operands, composition.output(0), true);
}

bool pack_layer_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 1 && input != 2) return false;
  pack_as_float32(node, input, 1, packed);
  return true;
}

void lower_layer_norm(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !y.is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': layer normalisation of a strided tensor");
  int64_t size = 1;
  for (size_t i = static_cast<size_t>(get_normalized_axis(node, -1)); i < x.shape.size(); ++i) size *= x.shape[i];
  const bool has_bias = node.has_input(2), subtracts_mean = node.row->form == kLayerNorm;
  const int64_t iterations = size / 8 * 3 + 16, row_bytes = size * static_cast<int64_t>(bits(x.dtype)) / 8;
  const bool is_long = iterations > node.loop_limit().value_or(iterations) || row_bytes > max_binding_bytes(*node.context);
  const bool broadcasts = node.input(1).elements() != size || (has_bias && node.input(2).elements() != size);
  if (broadcasts || (is_long && !node.has_output(1) && !node.has_output(2))) return lower_decomposed_layer_norm(node, subtracts_mean);
  Macros macros = {{"HAS_BIAS", format_bool_macro(has_bias)},
                   {"SUBTRACT_MEAN", format_bool_macro(subtracts_mean)},
                   {"HAS_MEAN", format_bool_macro(node.has_output(1))},
                   {"HAS_DEVIATION", format_bool_macro(node.has_output(2))},
                   {"EPILOGUE(x)", node.epilogue()}};
  for (const size_t i : {1, 2}) {
    if (!node.has_output(i)) continue;
    const bool is_fp32 = node.output(i).dtype == DType::float32;
    macros.emplace_back("STATISTIC", is_fp32 ? "float" : "sfp");
    macros.emplace_back("STORE_STATISTIC(t, i, v)", is_fp32 ? "t[i] = (v)" : "pm_store(t, i, v)");
    if (node.has_output(1)) break;  // both outputs have the same dtype
  }
  const int64_t rows = x.elements() / size;
  const auto finish = [&](StepBuilder step) {
    step.bind("scale", node.get_packed_input(1)).set("epsilon", node.attributes->real("epsilon", 1e-5));
    if (has_bias) step.bind("bias", node.get_packed_input(2));
    if (node.has_output(1)) step.bind("mean_of", node.output_operand(1));
    if (node.has_output(2)) step.bind("deviation_of", node.output_operand(2));
    node.add(step.build());
  };
  constexpr int64_t kFewElements = 1 << 21;  // below this, much of the device is idle
  const RowRegisterChoice registers = choose_row_registers(node, size, true, x.elements() <= kFewElements);
  if (registers.plan) {
    macros.emplace_back("CHANNELS", "0");
    macros.emplace_back("PREFETCH_FACTORS", format_bool_macro(registers.plan->prefetches_factors));
    node.report_additions(count_register_row_additions(node, *registers.plan));
    return finish(make_row_register_step(node, registers, "layer_norm_registers.comp", macros, rows, size));
  }
  node.check_loop_limit(iterations);
  macros.emplace_back("CPU_VARIANT", format_bool_macro(node.prefers_cpu_kernels()));
  const bool is_short = has_short_rows(node, size);
  macros.emplace_back("SHORT_ROWS", format_bool_macro(is_short));
  const MixedPrecisionArrays arrays = make_mixed_precision_arrays({{"X", x.dtype}, {"Y", y.dtype}});
  arrays.append_to(macros);
  const auto kernel = node.kernel("layer_norm.comp", arrays.storage, macros);
  node.report_additions(count_loop_row_additions(node, *kernel, is_short, size));
  StepBuilder step(kernel);
  step.bind("x", node.input_operand(0))
      .bind("y", node.output_operand(0))
      .set("rows", rows)
      .set("size", size)
      .set_workgroups(count_row_workgroups(*kernel, is_short, rows));
  if (!registers.spilled.empty()) step.set_variant(kRowLoopVariant, registers.spilled);
  finish(std::move(step));
}

void lower_group_norm(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !node.output(0).is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': expected a dense input and output, given " + to_string(x) + " and " +
                           to_string(node.output(0)));
  add_group_norm(node, make_nchw_view(node, x), make_nchw_view(node, node.output(0)), node.attributes->integer("num_groups"));
}

void lower_mean_variance_norm(LowerContext& node) {
  if (node.input(0).elements() == 0) return;
  CompositeLowering composition(node);
  const TensorOperand source = composition.input(0);
  std::vector<int64_t> axes = node.attributes->integers("axes");
  int64_t count = 1;
  for (int64_t& axis : axes) {
    if (axis < 0) axis += source.desc.rank();
    count *= source.desc.shape[static_cast<size_t>(axis)];
  }
  const TensorOperand mean = composition.add_reduction("ReduceMean", source, axes),
                      deviation = composition.allocate_scratch(DType::float32, source.desc.shape);
  composition.add_elementwise("a0 - a1", {source, mean}, deviation);
  const TensorOperand power = composition.add_reduction("ReduceSumSquare", deviation, axes);
  composition.add_elementwise("a0 / (sqrt(a1 / " + std::to_string(count) + ".0) + 0.000000001)", {deviation, power}, composition.output(0),
                              true);
}

void lower_lp_norm(LowerContext& node) {
  if (node.input(0).elements() == 0) return;
  CompositeLowering composition(node);
  const TensorOperand source = composition.input(0);
  const TensorOperand norm =
      composition.add_reduction(node.attributes->integer("p", 2) == 1 ? "ReduceL1" : "ReduceL2", source, {get_normalized_axis(node, -1)});
  composition.add_elementwise("a1 == 0 ? 0 : a0 / a1", {source, norm}, composition.output(0), true);
}

// Lowers LRN. The mean of squares over adjacent channels is computed as an average pooling, with channels as rows.
void lower_lrn(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  if (x.elements() == 0) return;
  CompositeLowering composition(node);
  const int64_t size = node.attributes->integer("size"), channels = x.shape[1];
  const Shape rows{x.shape[0], 1, channels, x.elements() / x.shape[0] / channels};
  const TensorOperand source = composition.input(0).reshaped(rows), squares = composition.allocate_scratch(DType::float32, rows),
                      means = composition.allocate_scratch(DType::float32, rows);
  composition.add_elementwise("a0 * a0", {source}, squares);
  Attributes window;
  window.set("kernel_shape", std::vector<int64_t>{size, 1});
  window.set("pads", std::vector<int64_t>{(size - 1) / 2, 0, size / 2, 0});
  window.set("count_include_pad", int64_t{1});
  composition.add_operator("AveragePool", window, {squares}, means);
  const auto number = [&](std::string_view name) { return format_as_float(node.attributes->real(name), 17); };
  composition.add_elementwise("a0 / pow(" + number("bias") + " + " + number("alpha") + " * a1, " + number("beta") + ")", {source, means},
                              composition.output(0).reshaped(rows), true);
}

}  // namespace pumice
