#include "operators/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/number_format.h"
#include "core/rounding.h"
#include "dispatch/kernel/driver_bug_test.h"
#include "operators/attention/attention_slices.h"
#include "operators/attention/attention_tiling.h"
#include "operators/common/strided_copy.h"
#include "operators/table/measured_variants.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr std::string_view kDecodeShader = "attention_decode.comp", kDecodeMmaShader = "attention_decode_mma.comp";
constexpr int64_t kMinDecodeKeysPerSplit = 128;  // minimum number of keys per split

// Kernel, grid and key split of an attention.
struct AttentionPlan {
  std::string_view shader;
  Macros macros = {};
  SpecValues spec = {};
  std::shared_ptr<const StepChoice> choice = nullptr;
  uint64_t groups_x = 0, groups_y = 0, groups_z = 1;
  int64_t splits = 1, split_size = 0;  // number of key splits; keys per split (0: the kernel computes it)
  int64_t partial_floats = 0;          // scratch floats for all partial results; 0: the size of the layout in attention_partials.glsl
  int64_t counters = 1;                // counters of finished splits per workgroup along x and y
  int64_t head_group = 0;    // heads in a group whose workgroups are ordered by descending key count; 0: not supported by the kernel
  std::string name = {};     // variant name; empty: name of the shader
  std::string spilled = {};  // variant that this plan replaces because its kernel spills registers
};

std::string format_bool_macro(bool set) {
  return set ? "1" : "0";
}

std::string format_uint_literal(int64_t value) {
  return std::to_string(value) + "u";
}

// Returns the number of workgroups that occupy the device fully: two for each multiprocessor.
int64_t count_saturating_groups(const LowerContext& node) {
  return 2 * node.num_multiprocessors();
}

void split_keys(AttentionPlan& plan, int64_t keys, int64_t splits) {
  plan.split_size = std::max<int64_t>(round_up(ceil_div(keys, std::max<int64_t>(splits, 1)), 4), 4);
  plan.splits = std::max<int64_t>(ceil_div(keys, plan.split_size), 1);
}

// Plan for few queries (decode): a thread group loads a key once and computes its scores for several queries. If the kernel spills
// registers, it computes fewer, or reduces in shared memory: without subgroup operations, Intel's driver may choose a smaller subgroup,
// which leaves more registers to each invocation.
AttentionPlan make_decode_plan(const LowerContext& node, const AttentionParams& a) {
  constexpr int64_t kMaxQueries = 4, kCpuIterations = 9, kMaxIterations = 60000;
  const bool is_cpu = node.prefers_cpu_kernels();
  const int64_t num_vec4 = ceil_div(std::max(a.k.size(), a.v.size()), 4), group_threads = is_cpu ? 8 : num_vec4 <= 64 ? 16 : 128;
  const int64_t vec4_per_thread = ceil_div(num_vec4, group_threads);
  const int64_t queries_per_kv_head = a.q.heads() / a.k.heads() * a.q.rows(), max_rows = std::min(queries_per_kv_head, kMaxQueries);
  struct Variant {
    int64_t rows, subgroup;
  };
  const auto get_name = [&](const Variant& variant) {
    return "attention_decode" + (variant.rows == max_rows ? "" : " " + std::to_string(variant.rows)) +
           (variant.subgroup == node.subgroup_size() ? "" : " no subgroups");
  };
  std::vector<Variant> variants;
  for (int64_t subgroup = node.subgroup_size();; subgroup = 0) {
    for (int64_t rows = max_rows; rows >= 1; rows /= 2) variants.push_back({rows, subgroup});
    if (subgroup == 0 || is_cpu || get_driver_quirks(node.context).has(Quirk::attention_crash)) break;
  }
  const Variant& chosen = choose_unspilled(node.spilled, variants, get_name);
  const int64_t rows = chosen.rows;
  const auto fits = [&](int64_t thread_groups) {
    const int64_t bytes =
        ((group_threads * thread_groups + 16) + rows * thread_groups * group_threads * vec4_per_thread) * 16 + rows * thread_groups * 8;
    return group_threads * thread_groups <= node.max_invocations() &&
           static_cast<uint64_t>(bytes) <= node.context->limit("maxComputeSharedMemorySize");
  };
  int64_t thread_groups = !is_cpu && group_threads == 16 ? 16 : 1;
  while (thread_groups > 1 && !fits(thread_groups)) thread_groups /= 2;
  AttentionPlan plan{kDecodeShader};
  plan.name = get_name(chosen), plan.spilled = &chosen == &variants.front() ? "" : get_name(variants.front());
  plan.macros = {{"GROUP_THREADS", format_uint_literal(group_threads)},
                 {"THREAD_GROUPS", std::to_string(thread_groups)},
                 {"ITEMS_PER_THREAD", format_uint_literal(vec4_per_thread)},
                 {"ROWS", format_uint_literal(rows)},
                 {"CPU_VARIANT", format_bool_macro(is_cpu)},
                 {"SUBGROUP", std::to_string(chosen.subgroup)}};
  plan.groups_x = static_cast<uint64_t>(ceil_div(queries_per_kv_head, rows));
  plan.groups_y = static_cast<uint64_t>(a.k.batch() * a.k.heads());
  const int64_t groups = static_cast<int64_t>(plan.groups_x * plan.groups_y), keys = a.k.rows();
  int64_t splits = 1;
  if (is_cpu)  // lavapipe silently ends a loop after 65,535 iterations (docs/drivers.md), so keys are split
    splits = ceil_div(ceil_div(keys, 4) * rows * kCpuIterations, kMaxIterations);
  else if (groups < count_saturating_groups(node))
    splits = std::min(ceil_div(count_saturating_groups(node) * 2, groups), ceil_div(keys, kMinDecodeKeysPerSplit));
  split_keys(plan, keys, splits);
  plan.groups_z = static_cast<uint64_t>(plan.splits);
  return plan;
}

// Plan for CPU drivers: a subgroup of 8 invocations computes 16 queries, without barriers.
AttentionPlan make_cpu_plan(const AttentionParams& a) {
  // Keys are split to keep loops below the 65,535 iterations after which lavapipe silently ends them (docs/drivers.md).
  constexpr int64_t kRows = 16, kKeys = 16, kMaxIterations = 60000;
  AttentionPlan plan{"attention_cpu.comp"};
  plan.groups_x = static_cast<uint64_t>(ceil_div(a.q.rows(), kRows));
  plan.groups_y = static_cast<uint64_t>(a.q.batch() * a.q.heads());
  const int64_t iterations = 1 + ceil_div(a.k.size(), 4) + ceil_div(a.v.size(), 4);
  split_keys(plan, a.k.rows(), ceil_div(ceil_div(a.k.rows(), kKeys) * iterations, kMaxIterations));
  plan.groups_z = static_cast<uint64_t>(plan.splits);
  return plan;
}

// Whether the device supports a workgroup of attention_tiled.
bool supports_attention_tiled(const NodeContext& node) {
  constexpr int64_t kInvocations = 256, kQueriesAndKeys = 64 * 17 + 32 * 17,
                    kValues = 16 * 128;  // tile of V, which reuses the memory of Q and K
  constexpr int64_t kFloats =
      std::max(kQueriesAndKeys, kValues) + 64 * 33 + 64 * 4 + 2 * 64;  // floats for Q, K and V, scores, reductions, maximum and sum
  return node.max_invocations() >= kInvocations && node.context->limit("maxComputeSharedMemorySize") >= kFloats * 4;
}

AttentionPlan make_tiled_plan(const LowerContext& node, const AttentionParams& a) {
  constexpr int64_t kRows = 64, kKeys = 32;
  const int64_t num_vec4 = a.v.size() <= 64 ? 1 : 2;
  node.check_loop_limit(ceil_div(a.k.rows(), kKeys) * (8 + ceil_div(a.k.size(), 16) * 8 + 2 * (num_vec4 * 4 + 16)));
  AttentionPlan plan{"attention_tiled.comp"};
  plan.spec = {{"VEC4_PER_THREAD", num_vec4}};
  plan.groups_x = static_cast<uint64_t>(ceil_div(a.q.rows(), kRows));
  plan.groups_y = static_cast<uint64_t>(a.q.batch() * a.q.heads());
  plan.groups_z = static_cast<uint64_t>(ceil_div(a.v.size(), num_vec4 * 64));
  return plan;
}

// Returns the value of macro KEY_LOOP, which specialises the main loop of attention_mma. With more than 64 elements per head, the variant
// FULL_TILES_FIRST would not have enough registers.
std::string choose_key_loop_macro(const AttentionParams& a, const AttentionTile& tile, const AttentionPlan& plan) {
  constexpr int64_t kMaxFullFirstSize = 64;
  const int64_t keys = a.k.rows(), keys_per_iteration = tile.keys * tile.key_slices;
  const bool all_visible = !a.kv_lengths && a.first <= 1 - a.q.rows() && a.last >= keys - 1 && (!a.mask || a.mask->keys >= keys);
  const bool has_full_tiles = keys % keys_per_iteration == 0 && (plan.splits == 1 || plan.split_size % keys_per_iteration == 0);
  if (all_visible && has_full_tiles) return "ALL_TILES_FULL";
  return std::max(a.k.size(), a.v.size()) <= kMaxFullFirstSize ? "FULL_TILES_FIRST" : "MIXED_TILES";
}

// Plan for a cooperative-matrix kernel with this tile.
AttentionPlan make_coopmat_plan(const LowerContext& node, const AttentionParams& a, const AttentionTile& tile, bool is_mma) {
  AttentionPlan plan{is_mma ? "attention_mma.comp" : "attention_coopmat.comp"};
  plan.name = tile.variant_name(is_mma), plan.spilled = tile.spilled;
  plan.spec = {{"INVOCATIONS", tile.subgroups * (is_mma ? kMmaSubgroup : node.matrix_subgroup_size())}};
  if (is_mma) {
    plan.spec.insert(plan.spec.end(), {{"KEY_TILE", tile.keys}, {"QUERY_TILES", tile.query_tiles}, {"KEY_SLICES", tile.key_slices}});
    plan.head_group = tile.head_group;
    const bool by_row = a.mask && a.mask->strides[2] != 0;
    plan.macros = {{"EMULATED", format_bool_macro(!node.has_mma())}, {"MASK_BY_ROW", format_bool_macro(by_row)}};
  } else {
    plan.macros = {{"SUBGROUP", format_uint_literal(node.matrix_subgroup_size())}};
  }
  plan.groups_x = static_cast<uint64_t>(ceil_div(a.q.rows(), tile.rows()));
  plan.groups_y = static_cast<uint64_t>(a.q.batch() * a.q.heads());
  split_keys(plan, a.k.rows(), tile.splits);
  plan.groups_z = static_cast<uint64_t>(plan.splits);
  if (is_mma) plan.macros.emplace_back("KEY_LOOP", choose_key_loop_macro(a, tile, plan));
  return plan;
}

// Chooses a cooperative-matrix plan. Returns nullopt if the device has no cooperative matrices, or if heads are too long or not aligned
// vec8s.
std::optional<AttentionPlan> choose_coopmat_plan(const LowerContext& node, const AttentionParams& a) {
  const int64_t subgroup = node.matrix_subgroup_size();
  if (!node.has_coopmat() || (subgroup != 32 && subgroup != 64) || !supports_coopmat(node, a)) return {};
  const bool is_mma = node.has_mma();
  const auto tile = choose_attention_tile(node, a, is_mma);
  return tile ? std::optional(make_coopmat_plan(node, a, *tile, is_mma)) : std::nullopt;
}

// Step kind used to look up measured variants.
std::string format_step_kind(const AttentionParams& a) {
  return "attention of " + std::to_string(a.q.rows()) + " rows";
}

constexpr int64_t kMaxDecodeQueries = 16,
                  kMaxQueriesPerHead = 4;  // maximum queries per KV head; more are allowed with up to kMaxQueriesPerHead queries per head

// Plan for few queries on cooperative matrices. Returns nullopt if the device has none, or if heads are too long or not aligned vec8s. The
// keys are split so that the workgroups of all splits are resident at once; registers for prefetched keys leave room for two or three per
// multiprocessor. kv_len may be known only to the device, so the kernel splits the keys.
std::optional<AttentionPlan> make_decode_mma_plan(const LowerContext& node, const AttentionParams& a) {
  constexpr int64_t kSubgroup = 32, kMaxSubgroups = 4, kMaxRegisterSize = 128, kMaxDecodeHeadSize = 256;
  const int64_t queries_per_kv_head = a.q.heads() / a.k.heads() * a.q.rows(), rows = std::min(queries_per_kv_head, kMaxDecodeQueries),
                keys = a.k.rows();
  const auto suits = [&](const HeadTensor& heads, DType dtype) {
    return heads.has_aligned_vectors(dtype, 8) && heads.size() <= (rows > 8 ? 128 : kMaxDecodeHeadSize);
  };
  const DType stored = a.has_int8_kv() ? DType::int8 : node.float_dtype;
  if (!node.has_or_emulates_mma() || (queries_per_kv_head > kMaxDecodeQueries && a.q.rows() > kMaxQueriesPerHead) ||
      !suits(a.q, node.float_dtype) || !suits(a.k, stored) || !suits(a.v, stored) || a.k.size() == 0)
    return {};
  const int64_t num_vec4 = a.v.size() / 4, size = std::max(a.k.size(), a.v.size()), groups_per_sm = size > 64 ? 2 : 3;
  const bool queries_in_shared = size > kMaxRegisterSize;
  const auto bytes = [&](int64_t subgroups) {
    return std::max(subgroups * rows * num_vec4, subgroups * kSubgroup) * 16 + subgroups * kSubgroup * 8 +
           node.count_emulation_shared_bytes(subgroups * kSubgroup) + 16 +
           (queries_in_shared ? round_up(a.k.size(), 32) / 32 * kSubgroup * 16 : 0);
  };
  int64_t subgroups = std::min(kMaxSubgroups, node.max_invocations() / kSubgroup);
  while (subgroups > 1 && bytes(subgroups) > static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"))) subgroups /= 2;
  AttentionPlan plan{kDecodeMmaShader};
  plan.spec = {{"INVOCATIONS", subgroups * kSubgroup}, {"ROWS", rows}, {"KEY_BLOCKS", a.has_int8_kv() ? 2 : 1}};
  plan.counters = subgroups;
  plan.macros = {{"EMULATED", format_bool_macro(node.emulates_mma())}, {"QUERIES_SHARED", format_bool_macro(queries_in_shared)}};
  plan.groups_x = static_cast<uint64_t>(ceil_div(queries_per_kv_head, rows));
  plan.groups_y = static_cast<uint64_t>(a.k.batch() * a.k.heads());
  const auto groups = static_cast<int64_t>(plan.groups_x * plan.groups_y),
             resident_splits = node.num_multiprocessors() * groups_per_sm / groups;
  const int64_t max_splits =
      std::min(static_cast<int64_t>(node.context->limit("maxComputeWorkGroupCount_2")), ceil_div(keys, subgroups * 16));
  plan.splits = std::clamp<int64_t>(resident_splits, 1, std::max<int64_t>(max_splits, 1));
  plan.groups_z = static_cast<uint64_t>(plan.splits);
  plan.partial_floats = groups * rows * (a.v.size() + 4);
  return plan;
}

// Plan for few queries. On cooperative matrices, a measured variant may select the kernel for many queries instead (docs/tuning.md).
std::optional<AttentionPlan> choose_decode_plan(const LowerContext& node, const AttentionParams& a) {
  std::optional<AttentionPlan> plan = make_decode_mma_plan(node, a);
  if (!plan) return plan;
  const std::optional<AttentionPlan> other = a.has_int8_kv() ? std::nullopt : choose_coopmat_plan(node, a);
  const std::string default_variant = "attention_decode_mma";
  auto choice = find_tuned_choice(node.measured, format_step_kind(a), default_variant,
                                  std::array<std::string_view, 1>{other ? "attention_mma" : default_variant});
  if (choice && choice->selected != default_variant) plan = other;
  plan->choice = std::move(choice);
  return plan;
}

AttentionPlan choose_default_plan(const LowerContext& node, const AttentionParams& a) {
  constexpr int64_t kBytesPerColumn = 64;  // bytes of shared memory per column of V
  const int64_t queries_per_kv_head = a.q.heads() / a.k.heads() * a.q.rows();
  if (!node.prefers_cpu_kernels()) {
    if (queries_per_kv_head <= kMaxDecodeQueries || a.has_int8_kv()) return make_decode_plan(node, a);
    const auto plan = choose_coopmat_plan(node, a);
    return plan ? *plan : supports_attention_tiled(node) ? make_tiled_plan(node, a) : make_decode_plan(node, a);
  }
  const auto shared = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
  return a.q.rows() * 2 > kMaxDecodeQueries && a.v.size() * kBytesPerColumn <= shared ? make_cpu_plan(a) : make_decode_plan(node, a);
}

AttentionPlan choose_plan(const LowerContext& node, const AttentionParams& a, bool has_softmax_stats) {
  if (!has_softmax_stats)
    if (const auto plan = choose_decode_plan(node, a)) return *plan;
  AttentionPlan plan = choose_default_plan(node, a);
  const std::string kind = format_step_kind(a);
  if (!node.measured || !node.measured->fastest.contains(kind)) return plan;
  const std::vector<AttentionTile> tiles = list_mma_attention_tiles(node, a);
  std::vector<std::string> alternatives;
  for (const AttentionTile& tile : tiles) alternatives.push_back(tile.variant_name(true));
  const std::string default_variant = plan.name.empty() ? std::string(plan.shader.substr(0, plan.shader.find('.'))) : plan.name;
  auto choice = find_tuned_choice(node.measured, kind, default_variant,
                                  std::vector<std::string_view>(alternatives.begin(), alternatives.end()), node.spilled);
  if (const auto found = std::ranges::find(alternatives, choice->selected);
      choice->selected != default_variant && found != alternatives.end())
    plan = make_coopmat_plan(node, a, tiles[static_cast<size_t>(found - alternatives.begin())], true);
  plan.choice = std::move(choice);
  return plan;
}

// Formats a float as a GLSL literal.
std::string format_float32_literal(double value) {
  if (std::isinf(value)) return value < 0 ? "minus_infinity" : "pm_infinity";
  return "float(" + format_general(value, 9) + ")";
}

// Returns the number of mask elements from the first to the last one that the kernel reads.
int64_t count_mask_elements(const AttentionMask& mask, const AttentionParams& a) {
  const std::array<int64_t, 4> sizes{a.q.batch(), a.q.heads(), a.q.rows(), std::min(mask.keys, a.k.rows())};
  int64_t span = 1;
  for (size_t axis = 0; axis < sizes.size(); ++axis) span += std::max<int64_t>(sizes[axis] - 1, 0) * mask.strides[axis];
  return span;
}

// Binds the scales of int8 rows. The rows are dense, even in a slice of an attention.
void bind_scales(StepBuilder& step, const AttentionParams& a, DType dtype) {
  step.bind("k_scales", *a.k_scales, a.k.first / a.k.size(), ceil_div(a.k.count_spanned_elements(), a.k.size()), bits(dtype));
  step.bind("v_scales", *a.v_scales, a.v.first / a.v.size(), ceil_div(a.v.count_spanned_elements(), a.v.size()), bits(dtype));
}

constexpr double kMinScale = 1e-30;  // scales up to this are applied to the scores before the softmax, not inside it

// Builds the step of a kernel that uses include/attention.glsl. The caller binds the outputs.
StepBuilder make_attention_step(const LowerContext& node, const AttentionParams& a, std::string_view shader, Macros macros,
                                SpecValues spec) {
  const DType dtype = node.float_dtype, stored = a.has_int8_kv() ? DType::int8 : dtype;
  const auto more = {std::pair<std::string, std::string>{"MASKED", a.mask ? a.mask->is_bool ? "1" : "2" : "0"},
                     {"HAS_KV_LENGTHS", format_bool_macro(a.kv_lengths.has_value())},
                     {"ZERO_EMPTY", format_bool_macro(a.zero_empty)},
                     {"SCALE_FIRST", format_bool_macro(a.softcap != 0 || !(a.scale > kMinScale))},
                     {"INT8", format_bool_macro(a.has_int8_kv())},
                     {"VEC4", format_bool_macro(a.q.has_aligned_vectors(dtype, 4) && a.k.has_aligned_vectors(stored, 4) &&
                                                a.v.has_aligned_vectors(stored, 4))}};
  macros.insert(macros.end(), more.begin(), more.end());
  if (a.mask && a.mask->is_bool) {
    macros.emplace_back("MASK_VISIBLE", a.mask->true_is_masked ? "false" : "true");
    macros.emplace_back("MASKED_SCORE", format_float32_literal(a.mask->masked_score));
  }
  spec.emplace_back("SIZE", a.k.size());
  spec.emplace_back("V_SIZE", a.v.size());
  StepBuilder step(node.kernel(shader, dtype, macros, spec));
  step.bind("q", a.q.operand, a.q.first, a.q.count_spanned_elements(), bits(dtype));
  for (const auto& [name, heads] : {std::pair{"k", &a.k}, {"v", &a.v}})
    step.bind(name, heads->operand, heads->first, heads->count_spanned_elements(), bits(stored));
  if (a.has_int8_kv()) bind_scales(step, a, dtype);
  if (a.mask) step.bind("mask", a.mask->operand, a.mask->first, count_mask_elements(*a.mask, a), a.mask->is_bool ? 8 : bits(dtype));
  if (a.kv_lengths) step.bind("kv_lengths", *a.kv_lengths, a.first_kv_length, a.q.batch(), 64);
  step.set("rows", a.q.rows()).set("keys", a.k.rows()).set("heads", a.q.heads()).set("group", a.q.heads() / a.k.heads());
  set_strides(step, "q", a.q);
  set_strides(step, "k", a.k);
  set_strides(step, "v", a.v);
  set_strides(step, "y", a.y);
  if (!a.has_int8_kv()) {
    const AttentionMask mask = a.mask.value_or(AttentionMask{});
    step.set("mask_batch", mask.strides[0]).set("mask_head", mask.strides[1]).set("mask_row", mask.strides[2]);
    step.set("mask_key", mask.strides[3]).set("mask_keys", mask.keys);
  }
  step.set("scale", a.scale).set("softcap", a.softcap);
  const auto bounded = [](int64_t bound) { return std::clamp(bound, -AttentionParams::kUnbounded, AttentionParams::kUnbounded); };
  return step.set("first", bounded(a.first)).set("last", bounded(a.last));
}

// Splits an attention whose grid exceeds the device's limits. With `has_softmax_stats`, each slice is a contiguous range of rows.
std::vector<AttentionSlice> split_for_grid_limits(const LowerContext& node, const AttentionParams& a, const AttentionPlan& plan,
                                                  bool has_softmax_stats) {
  const auto exceeds_limit = [&](uint64_t groups, const char* axis) {
    return groups > node.context->limit("maxComputeWorkGroupCount_" + std::string(axis));
  };
  std::vector<AttentionSlice> slices;
  if (exceeds_limit(plan.groups_x, "0") && !has_softmax_stats) slices = split_queries(a);
  if (slices.empty() && (exceeds_limit(plan.groups_x, "0") || exceeds_limit(plan.groups_y, "1"))) slices = split_batch_or_heads(a);
  if (exceeds_limit(plan.groups_z, "2") || (slices.empty() && (exceeds_limit(plan.groups_x, "0") || exceeds_limit(plan.groups_y, "1"))))
    throw UnsupportedError("node '" + std::string(node.node) + "': attention of " + std::to_string(a.q.heads()) + " heads of " +
                           std::to_string(a.v.size()) + " over " + std::to_string(a.k.rows()) + " keys needs " +
                           std::to_string(plan.groups_x) + " by " + std::to_string(plan.groups_y) + " by " + std::to_string(plan.groups_z) +
                           " workgroups, more than the device supports (maxComputeWorkGroupCount)");
  return slices;
}

void set_launch_parameters(StepBuilder& step, const AttentionParams& a, const AttentionPlan& plan, bool has_splits) {
  if (!plan.name.empty()) step.set_variant(plan.name, plan.spilled);
  if (plan.head_group > 0 && !has_splits)
    step.set("head_group", plan.head_group);
  else
    step.set("split_size", std::max<int64_t>(plan.split_size, a.k.rows() * (plan.split_size == 0)));
  step.set_workgroups(plan.groups_x, plan.groups_y, plan.groups_z);
}

// Adds the steps of an attention. `softmax_stats` receives the softmax maximum and 1/sum of each row, from row `first_stats_row` on.
void add_attention_steps(LowerContext& node, const AttentionParams& a, const std::optional<Operand>& softmax_stats,
                         int64_t first_stats_row = 0) {
  if (a.y.batch() * a.y.heads() * a.y.rows() * a.y.size() == 0) return;
  AttentionPlan plan = choose_plan(node, a, softmax_stats.has_value());
  const bool is_decode_mma = plan.shader == kDecodeMmaShader;
  const bool has_splits = plan.splits > 1 || softmax_stats;
  if (has_splits && plan.split_size == 0 && !is_decode_mma) plan = make_decode_plan(node, a);  // the kernel of this plan cannot split keys
  if (const auto slices = split_for_grid_limits(node, a, plan, softmax_stats.has_value()); !slices.empty()) {
    for (const AttentionSlice& slice : slices) add_attention_steps(node, slice.attention, softmax_stats, first_stats_row + slice.first);
    return;
  }
  const bool y_vec4 = a.y.has_aligned_vectors(node.float_dtype, 4),
             merges_splits = has_splits && !softmax_stats && (is_decode_mma || plan.shader == kDecodeShader);
  const int64_t rows = a.y.batch() * a.y.heads() * a.y.rows();
  plan.macros.insert(plan.macros.end(), {{"SPLIT_KEYS", format_bool_macro(has_splits && !is_decode_mma)},
                                         {"MERGES_SPLITS", format_bool_macro(merges_splits)}});
  plan.macros.emplace_back("Y_VEC4", format_bool_macro(y_vec4 && (!has_splits || merges_splits)));
  if (!has_splits || merges_splits) plan.macros.emplace_back("EPILOGUE(x)", node.epilogue());
  StepBuilder step = make_attention_step(node, a, plan.shader, std::move(plan.macros), std::move(plan.spec));
  set_launch_parameters(step, a, plan, has_splits);
  if (!has_splits || merges_splits) step.bind("y", a.y.operand, a.y.first, a.y.count_spanned_elements(), bits(node.float_dtype));
  const auto with_choice = [&plan](Step built) {
    built.choice = plan.choice;
    return built;
  };
  if (!has_splits) return node.add(with_choice(step.build()));
  const Operand splits =
      node.add_temporary(static_cast<uint64_t>(plan.splits * (is_decode_mma ? plan.partial_floats : rows * (a.v.size() + 2))) * 4);
  // Counters of finished splits. The last split resets them to zero; executions of a plan do not overlap.
  const uint64_t counters = plan.groups_x * plan.groups_y * static_cast<uint64_t>(plan.counters);
  if (merges_splits) step.bind("finished", node.add_host_block(std::vector<std::byte>(counters * 4)));
  node.add(with_choice(step.bind("partials", splits).build()));
  if (merges_splits) return;
  const Macros macros = {{"Y_VEC4", format_bool_macro(y_vec4)},
                         {"STORES_STATS", format_bool_macro(softmax_stats.has_value())},
                         {"ZERO_EMPTY", format_bool_macro(a.zero_empty)},
                         {"EPILOGUE(x)", node.epilogue()}};
  StepBuilder combine(node.kernel("attention_combine.comp", node.float_dtype, macros));
  combine.bind("partials", splits).bind("y", a.y.operand, a.y.first, a.y.count_spanned_elements(), bits(node.float_dtype));
  if (softmax_stats) combine.bind("softmax_stats", *softmax_stats).set("first_stats_row", first_stats_row);
  const int64_t results = rows * ceil_div(a.v.size(), 4);
  combine.set("results", results)
      .set("rows", a.y.rows())
      .set("heads", a.y.heads())
      .set("size", a.v.size())
      .set("num_partials", plan.splits);
  set_strides(combine, "y", a.y);
  node.add(combine.set_threads(static_cast<uint64_t>(results)).build());
}

}  // namespace

HeadTensor view_heads(LowerContext& node, const TensorDesc& desc, const Operand& operand, const std::vector<int64_t>& perm) {
  HeadTensor heads{operand, {1, 1, 1, 1}, {0, 0, 0}, get_misalignment(node, operand)};
  std::array<int64_t, 4> strides{};
  const size_t rank = desc.shape.size();
  if (rank < 2 || rank > 4)
    throw UnsupportedError("node '" + std::string(node.node) + "': attention of a tensor of rank " + std::to_string(rank));
  for (size_t i = 0; i < rank; ++i) {
    const size_t axis = perm.empty() ? i : static_cast<size_t>(perm[i]);
    heads.sizes[4 - rank + i] = desc.shape[axis];
    strides[4 - rank + i] = desc.strides[axis];
  }
  if (strides[3] != 1 && heads.size() > 1) {
    const Shape shape(heads.sizes.begin(), heads.sizes.end());
    const Strides packed = packed_strides(shape);
    const Operand copy = node.add_temporary(buffer_size(desc.dtype, shape));
    add_strided_copy(node, desc.dtype, {shape, {Strides(strides.begin(), strides.end()), packed}}, {operand}, {copy});
    heads.operand = copy, heads.misalignment = 0;
    std::copy(packed.begin(), packed.end(), strides.begin());
  }
  std::copy_n(strides.begin(), 3, heads.strides.begin());
  return heads;
}

TensorDesc split_into_heads(const TensorDesc& desc, int64_t heads) {
  if (desc.rank() == 4) return desc;
  const int64_t size = desc.shape[2] / heads;
  return TensorDesc(desc.dtype, {desc.shape[0], heads, desc.shape[1], size},
                    Strides{desc.strides[0], desc.strides[2] * size, desc.strides[1], desc.strides[2]});
}

void set_strides(StepBuilder& step, const std::string& name, const HeadTensor& heads) {
  step.set(name + "_batch", heads.strides[0]).set(name + "_head", heads.strides[1]).set(name + "_row", heads.strides[2]);
}

bool reads_int8_kv(const LowerContext& node, const AttentionParams& a) {
  const int64_t queries_per_kv_head = a.q.heads() / a.k.heads() * a.q.rows();
  return node.prefers_cpu_kernels()
             ? a.q.rows() * 2 <= kMaxDecodeQueries
             : queries_per_kv_head <= kMaxDecodeQueries || (node.has_or_emulates_mma() && a.q.rows() <= kMaxQueriesPerHead);
}

void add_attention(LowerContext& node, const AttentionParams& attention) {
  add_attention_steps(node, attention, {});
}

void add_attention(LowerContext& node, const AttentionParams& a, ScoreStage stage, const Operand& scores) {
  const int64_t rows = a.q.batch() * a.q.heads() * a.q.rows();
  std::optional<Operand> softmax_stats;
  if (stage == ScoreStage::probabilities && rows > 0) softmax_stats = node.add_temporary(static_cast<uint64_t>(rows) * 8);
  add_attention_steps(node, a, softmax_stats);
  if (rows * a.k.rows() == 0) return;
  const Macros macros = {{"SCORE_STAGE", std::to_string(static_cast<int>(stage))}, {"SPLIT_KEYS", "0"}, {"Y_VEC4", "0"}};
  StepBuilder step = make_attention_step(node, a, "attention_scores.comp", macros, {});
  if (softmax_stats) step.bind("softmax_stats", *softmax_stats);
  const int64_t planes = a.q.batch() * a.q.heads();
  step.bind("y", scores)
      .set("planes", planes)
      .set_threads(static_cast<uint64_t>(a.k.rows()), static_cast<uint64_t>(a.q.rows()), static_cast<uint64_t>(planes));
  node.add(step.build());
}

}  // namespace pumice
