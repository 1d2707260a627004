#include "operators/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/number_format.h"
#include "core/rounding.h"
#include "operators/attention/attention_slices.h"
#include "operators/attention/attention_tiling.h"
#include "operators/common/strided_copy.h"
#include "operators/table/measured_variants.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr std::string_view kRowsShader = "attention_decode.comp", kRowQuadsShader = "attention_decode_mma.comp";
constexpr int64_t kLeastKeys = 128;  // minimum number of keys per split

// Kernel, grid and key split of an attention.
struct AttentionPlan {
  std::string_view shader;
  Macros macros = {};
  SpecValues spec = {};
  std::shared_ptr<const StepChoice> choice = nullptr;
  uint64_t groups_x = 0, groups_y = 0, groups_z = 1;
  int64_t parts = 1, stretch = 0;  // number of key splits, and of keys per split; 0: the kernel splits them itself
  int64_t part_floats = 0;         // number of floats for the partial results of all rows, if it differs from attention_partials.glsl
  int64_t counters = 1;            // number of counters of finished splits for the rows of a workgroup
  int64_t together = 0;            // heads in a group whose workgroups are ordered by descending key count; 0: not supported by the kernel
  std::string name = {};           // variant name; empty: name of the shader
  std::string spilled = {};        // the plan that this one replaces because its kernel spills
};

std::string flag(bool set) {
  return set ? "1" : "0";
}

std::string number(int64_t value) {
  return std::to_string(value) + "u";
}

// Workgroups that occupy a device: two for each of an H200's 132 multiprocessors.
constexpr int64_t kBusyGroups = 264;

void cut_keys(AttentionPlan& plan, int64_t keys, int64_t parts) {
  plan.stretch = std::max<int64_t>(round_up(ceil_div(keys, std::max<int64_t>(parts, 1)), 4), 4);
  plan.parts = std::max<int64_t>(ceil_div(keys, plan.stretch), 1);
}

// Plan for few queries (decode): a team of invocations reads a key together and scores it against several queries.
AttentionPlan rows_plan(const LowerContext& node, const Attention& a) {
  constexpr int64_t kMostRows = 4, kLaneIterations = 9, kMostIterations = 60000;
  const bool lanes = node.prefers_lanes();
  const int64_t fours = ceil_div(std::max(a.k.size(), a.v.size()), 4), team = lanes ? 8 : fours <= 64 ? 16 : 128;
  const int64_t held = ceil_div(fours, team);
  const int64_t shared_rows = a.q.heads() / a.k.heads() * a.q.rows(), rows = std::min<int64_t>(shared_rows, kMostRows);
  const auto fits = [&](int64_t teams) {
    const int64_t bytes = ((team * teams + 16) + rows * teams * team * held) * 16 + rows * teams * 8;
    return team * teams <= node.most_invocations() && static_cast<uint64_t>(bytes) <= node.context->limit("maxComputeSharedMemorySize");
  };
  int64_t teams = !lanes && team == 16 ? 16 : 1;
  while (teams > 1 && !fits(teams)) teams /= 2;
  AttentionPlan plan{kRowsShader};
  plan.macros = {{"TEAM", number(team)}, {"TEAMS", std::to_string(teams)}, {"HELD", number(held)},
                 {"ROWS", number(rows)}, {"LANES", flag(lanes)},           {"SUBGROUP", std::to_string(node.subgroup())}};
  plan.groups_x = static_cast<uint64_t>(ceil_div(shared_rows, rows));
  plan.groups_y = static_cast<uint64_t>(a.k.batch() * a.k.heads());
  const int64_t groups = static_cast<int64_t>(plan.groups_x * plan.groups_y), keys = a.k.rows();
  int64_t parts = 1;
  if (lanes)  // lavapipe silently ends a loop after 65,535 iterations (docs/drivers.md), so keys are split
    parts = ceil_div(ceil_div(keys, 4) * rows * kLaneIterations, kMostIterations);
  else if (groups < kBusyGroups)
    parts = std::min(ceil_div(kBusyGroups * 2, groups), ceil_div(keys, kLeastKeys));
  cut_keys(plan, keys, parts);
  plan.groups_z = static_cast<uint64_t>(plan.parts);
  return plan;
}

// Plan for CPU drivers: a subgroup of 8 invocations computes 16 queries, without barriers.
AttentionPlan lanes_plan(const Attention& a) {
  // Keys are split to keep loops below the 65,535 iterations after which lavapipe silently ends them (docs/drivers.md).
  constexpr int64_t kRows = 16, kKeys = 16, kMostIterations = 60000;
  AttentionPlan plan{"attention_cpu.comp"};
  plan.groups_x = static_cast<uint64_t>(ceil_div(a.q.rows(), kRows));
  plan.groups_y = static_cast<uint64_t>(a.q.batch() * a.q.heads());
  const int64_t iterations = 1 + ceil_div(a.k.size(), 4) + ceil_div(a.v.size(), 4);
  cut_keys(plan, a.k.rows(), ceil_div(ceil_div(a.k.rows(), kKeys) * iterations, kMostIterations));
  plan.groups_z = static_cast<uint64_t>(plan.parts);
  return plan;
}

// Whether the device supports a workgroup of attention_tiled.
bool has_tiles(const NodeContext& node) {
  constexpr int64_t kInvocations = 256, kQueriesAndKeys = 64 * 17 + 32 * 17,
                    kValues = 16 * 128;  // tile of V, which reuses the memory of Q and K
  constexpr int64_t kFloats =
      std::max(kQueriesAndKeys, kValues) + 64 * 33 + 64 * 4 + 2 * 64;  // size of these, plus scores, reductions, maximum and sum
  return node.most_invocations() >= kInvocations && node.context->limit("maxComputeSharedMemorySize") >= kFloats * 4;
}

AttentionPlan tiled_plan(const LowerContext& node, const Attention& a) {
  constexpr int64_t kRows = 64, kKeys = 32;
  const int64_t fours = a.v.size() <= 64 ? 1 : 2;
  node.check_loops(ceil_div(a.k.rows(), kKeys) * (8 + ceil_div(a.k.size(), 16) * 8 + 2 * (fours * 4 + 16)));
  AttentionPlan plan{"attention_tiled.comp"};
  plan.spec = {{"FOURS", fours}};
  plan.groups_x = static_cast<uint64_t>(ceil_div(a.q.rows(), kRows));
  plan.groups_y = static_cast<uint64_t>(a.q.batch() * a.q.heads());
  plan.groups_z = static_cast<uint64_t>(ceil_div(a.v.size(), fours * 64));
  return plan;
}

// Specialisation of attention_mma' main loop. Heads of more than 64 elements leave no registers for the code of WHOLE_FIRST.
std::string turns_of(const Attention& a, const MatrixShare& share, const AttentionPlan& plan) {
  constexpr int64_t kOfWholeFirst = 64;
  const int64_t keys = a.k.rows(), turn = share.keys * share.shares;
  const bool all_seen = !a.counts && a.first <= 1 - a.q.rows() && a.last >= keys - 1 && (!a.mask || a.mask->keys >= keys);
  const bool is_filled = keys % turn == 0 && (plan.parts == 1 || plan.stretch % turn == 0);
  if (all_seen && is_filled) return "ALL_WHOLE";
  return std::max(a.k.size(), a.v.size()) <= kOfWholeFirst ? "WHOLE_FIRST" : "IN_ANY_ORDER";
}

// Plan for cooperative matrices with the given configuration.
AttentionPlan matrix_plan(const LowerContext& node, const Attention& a, const MatrixShare& share, bool is_quads) {
  AttentionPlan plan{is_quads ? "attention_mma.comp" : "attention_coopmat.comp"};
  plan.name = share.name(is_quads), plan.spilled = share.spilled;
  plan.spec = {{"INVOCATIONS", share.subgroups * (is_quads ? kQuadsSubgroup : node.subgroup())}};
  if (is_quads) {
    plan.spec.insert(plan.spec.end(), {{"KEYS", share.keys}, {"STRIPS", share.strips}, {"SHARES", share.shares}});
    plan.together = share.together;
    const bool by_row = a.mask && a.mask->strides[2] != 0;
    plan.macros = {{"EMULATED", flag(!node.has_quads())}, {"MASK_BY_ROW", flag(by_row)}};
  } else {
    plan.macros = {{"SUBGROUP", number(node.subgroup())}};
  }
  plan.groups_x = static_cast<uint64_t>(ceil_div(a.q.rows(), share.rows()));
  plan.groups_y = static_cast<uint64_t>(a.q.batch() * a.q.heads());
  cut_keys(plan, a.k.rows(), share.parts);
  plan.groups_z = static_cast<uint64_t>(plan.parts);
  if (is_quads) plan.macros.emplace_back("TURNS", turns_of(a, share, plan));
  return plan;
}

// Plan for cooperative matrices. Returns nullopt if the device has none, or if heads are too long or not aligned vec8s.
std::optional<AttentionPlan> matrix_plan(const LowerContext& node, const Attention& a) {
  const int64_t subgroup = node.subgroup();
  if (!node.has_matrices() || (subgroup != 32 && subgroup != 64) || !suits_matrices(node, a)) return {};
  const bool is_quads = node.has_quads();
  const auto share = matrix_share(node, a, is_quads);
  return share ? std::optional(matrix_plan(node, a, *share, is_quads)) : std::nullopt;
}

// Step kind used to look up measured variants.
std::string kind_of(const Attention& a) {
  return "attention of " + std::to_string(a.q.rows()) + " rows";
}

constexpr int64_t kFewRows = 16, kMostOfHead = 4;  // queries that share keys, and queries per head if more of them do

// Plan for few queries on cooperative matrices. Returns nullopt if the device has none, or if heads are too long or not aligned vec8s. The
// keys are split so that the workgroups of all splits are resident at once; registers for prefetched keys leave room for two or three per
// multiprocessor. kv_len may be known only to the device, so the kernel splits the keys.
std::optional<AttentionPlan> row_quads_plan(const LowerContext& node, const Attention& a) {
  constexpr int64_t kSubgroup = 32, kInGroup = 4, kMostHeld = 128, kLongest = 256;
  const int64_t shared_rows = a.q.heads() / a.k.heads() * a.q.rows(), rows = std::min(shared_rows, kFewRows), keys = a.k.rows();
  const auto suits = [&](const Heads& heads, DType dtype) {
    return heads.in_vectors(dtype, 8) && heads.size() <= (rows > 8 ? 128 : kLongest);
  };
  const DType stored = a.in_bytes() ? DType::int8 : node.float_dtype;
  if (!node.has_fragments() || (shared_rows > kFewRows && a.q.rows() > kMostOfHead) || !suits(a.q, node.float_dtype) ||
      !suits(a.k, stored) || !suits(a.v, stored) || a.k.size() == 0)
    return {};
  const int64_t fours = a.v.size() / 4, size = std::max(a.k.size(), a.v.size()), groups_of_core = size > 64 ? 2 : 3;
  const bool in_shared = size > kMostHeld;
  const auto bytes = [&](int64_t subgroups) {
    return std::max(subgroups * rows * fours, subgroups * kSubgroup) * 16 + subgroups * kSubgroup * 8 +
           node.emulated_bytes(subgroups * kSubgroup) + 16 + (in_shared ? round_up(a.k.size(), 32) / 32 * kSubgroup * 16 : 0);
  };
  int64_t subgroups = std::min(kInGroup, node.most_invocations() / kSubgroup);
  while (subgroups > 1 && bytes(subgroups) > static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"))) subgroups /= 2;
  AttentionPlan plan{kRowQuadsShader};
  plan.spec = {{"INVOCATIONS", subgroups * kSubgroup}, {"ROWS", rows}, {"BLOCKS", a.in_bytes() ? 2 : 1}};
  plan.counters = subgroups;
  plan.macros = {{"EMULATED", flag(node.emulates_fragments())}, {"QUERIES_SHARED", flag(in_shared)}};
  plan.groups_x = static_cast<uint64_t>(ceil_div(shared_rows, rows));
  plan.groups_y = static_cast<uint64_t>(a.k.batch() * a.k.heads());
  const auto groups = static_cast<int64_t>(plan.groups_x * plan.groups_y), room = node.multiprocessors() * groups_of_core / groups;
  const int64_t most = std::min(static_cast<int64_t>(node.context->limit("maxComputeWorkGroupCount_2")), ceil_div(keys, subgroups * 16));
  plan.parts = std::clamp<int64_t>(room, 1, std::max<int64_t>(most, 1));
  plan.groups_z = static_cast<uint64_t>(plan.parts);
  plan.part_floats = groups * rows * (a.v.size() + 4);
  return plan;
}

// Plan for few queries. On cooperative matrices, a measured variant may select the kernel for many queries instead (docs/tuning.md).
std::optional<AttentionPlan> few_rows_plan(const LowerContext& node, const Attention& a) {
  std::optional<AttentionPlan> plan = row_quads_plan(node, a);
  if (!plan) return plan;
  const std::optional<AttentionPlan> other = a.in_bytes() ? std::nullopt : matrix_plan(node, a);
  const std::string own = "attention_decode_mma";
  auto choice = told_choice(node.measured, kind_of(a), own, std::array<std::string_view, 1>{other ? "attention_mma" : own});
  if (choice && choice->taken != own) plan = other;
  plan->choice = std::move(choice);
  return plan;
}

AttentionPlan own_plan(const LowerContext& node, const Attention& a) {
  constexpr int64_t kLaneBytes = 64;  // bytes of shared memory per column of V
  const int64_t shared_rows = a.q.heads() / a.k.heads() * a.q.rows();
  if (!node.prefers_lanes()) {
    if (shared_rows <= kFewRows || a.in_bytes()) return rows_plan(node, a);
    const auto plan = matrix_plan(node, a);
    return plan ? *plan : has_tiles(node) ? tiled_plan(node, a) : rows_plan(node, a);
  }
  const auto shared = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
  return a.q.rows() * 2 > kFewRows && a.v.size() * kLaneBytes <= shared ? lanes_plan(a) : rows_plan(node, a);
}

AttentionPlan plan_of(const LowerContext& node, const Attention& a, bool has_terms) {
  if (!has_terms)
    if (const auto plan = few_rows_plan(node, a)) return *plan;
  AttentionPlan plan = own_plan(node, a);
  const std::string kind = kind_of(a);
  if (!node.measured || !node.measured->taken.contains(kind)) return plan;
  const std::vector<MatrixShare> shares = quads_shares(node, a);
  std::vector<std::string> others;
  for (const MatrixShare& share : shares) others.push_back(share.name(true));
  const std::string own = plan.name.empty() ? std::string(plan.shader.substr(0, plan.shader.find('.'))) : plan.name;
  auto choice = told_choice(node.measured, kind, own, std::vector<std::string_view>(others.begin(), others.end()), node.spilled);
  if (const auto found = std::ranges::find(others, choice->taken); choice->taken != own && found != others.end())
    plan = matrix_plan(node, a, shares[static_cast<size_t>(found - others.begin())], true);
  plan.choice = std::move(choice);
  return plan;
}

// A float as a GLSL literal.
std::string literal(double value) {
  if (std::isinf(value)) return value < 0 ? "minus_infinity" : "pm_infinity";
  return "float(" + general_text(value, 9) + ")";
}

// Number of mask elements from the first to the last that is read.
int64_t span_of(const AttentionMask& mask, const Attention& a) {
  const std::array<int64_t, 4> sizes{a.q.batch(), a.q.heads(), a.q.rows(), std::min(mask.keys, a.k.rows())};
  int64_t span = 1;
  for (size_t axis = 0; axis < sizes.size(); ++axis) span += std::max<int64_t>(sizes[axis] - 1, 0) * mask.strides[axis];
  return span;
}

// Binds the scales of int8 rows. The rows are dense, even if the attention is part of another.
void bind_scales(StepBuilder& step, const Attention& a, DType dtype) {
  step.bind("k_scales", *a.k_scales, a.k.first / a.k.size(), ceil_div(a.k.span(), a.k.size()), bits(dtype));
  step.bind("v_scales", *a.v_scales, a.v.first / a.v.size(), ceil_div(a.v.span(), a.v.size()), bits(dtype));
}

constexpr double kLeastUnit = 1e-30;  // smallest scale for which scores are computed as powers of two

// Sets up a kernel that uses include/attention.glsl, except for its output bindings.
StepBuilder attention_step(const LowerContext& node, const Attention& a, std::string_view shader, Macros macros, SpecValues spec) {
  const DType dtype = node.float_dtype, stored = a.in_bytes() ? DType::int8 : dtype;
  const auto more = {std::pair<std::string, std::string>{"MASKED", a.mask ? a.mask->is_bool ? "1" : "2" : "0"},
                     {"COUNTED", flag(a.counts.has_value())},
                     {"ZERO_EMPTY", flag(a.zero_empty)},
                     {"BY_SCORE", flag(a.softcap != 0 || !(a.scale > kLeastUnit))},
                     {"INT8", flag(a.in_bytes())},
                     {"VEC4", flag(a.q.in_vectors(dtype, 4) && a.k.in_vectors(stored, 4) && a.v.in_vectors(stored, 4))}};
  macros.insert(macros.end(), more.begin(), more.end());
  if (a.mask && a.mask->is_bool) {
    macros.emplace_back("MASK_SHOWS", a.mask->hides ? "false" : "true");
    macros.emplace_back("HIDDEN", literal(a.mask->hidden));
  }
  spec.emplace_back("SIZE", a.k.size());
  spec.emplace_back("V_SIZE", a.v.size());
  StepBuilder step(node.kernel(shader, dtype, macros, spec));
  step.bind("q", a.q.operand, a.q.first, a.q.span(), bits(dtype));
  for (const auto& [name, heads] : {std::pair{"k", &a.k}, {"v", &a.v}})
    step.bind(name, heads->operand, heads->first, heads->span(), bits(stored));
  if (a.in_bytes()) bind_scales(step, a, dtype);
  if (a.mask) step.bind("mask", a.mask->operand, a.mask->first, span_of(*a.mask, a), a.mask->is_bool ? 8 : bits(dtype));
  if (a.counts) step.bind("counts", *a.counts, a.first_count, a.q.batch(), 64);
  step.set("rows", a.q.rows()).set("keys", a.k.rows()).set("heads", a.q.heads()).set("group", a.q.heads() / a.k.heads());
  set_strides(step, "q", a.q);
  set_strides(step, "k", a.k);
  set_strides(step, "v", a.v);
  set_strides(step, "y", a.y);
  if (!a.in_bytes()) {
    const AttentionMask mask = a.mask.value_or(AttentionMask{});
    step.set("mask_batch", mask.strides[0]).set("mask_head", mask.strides[1]).set("mask_row", mask.strides[2]);
    step.set("mask_key", mask.strides[3]).set("mask_keys", mask.keys);
  }
  step.set("scale", a.scale).set("softcap", a.softcap);
  const auto bounded = [](int64_t bound) { return std::clamp(bound, -Attention::kUnbounded, Attention::kUnbounded); };
  return step.set("first", bounded(a.first)).set("last", bounded(a.last));
}

// Splits an attention whose grid exceeds the device's limits. With `has_terms`, the rows of a part stay contiguous.
std::vector<AttentionPart> parts_of(const LowerContext& node, const Attention& a, const AttentionPlan& plan, bool has_terms) {
  const auto passes = [&](uint64_t groups, const char* axis) {
    return groups > node.context->limit("maxComputeWorkGroupCount_" + std::string(axis));
  };
  std::vector<AttentionPart> parts;
  if (passes(plan.groups_x, "0") && !has_terms) parts = row_parts(a);
  if (parts.empty() && (passes(plan.groups_x, "0") || passes(plan.groups_y, "1"))) parts = dense_parts(a);
  if (passes(plan.groups_z, "2") || (parts.empty() && (passes(plan.groups_x, "0") || passes(plan.groups_y, "1"))))
    throw UnsupportedError("node '" + std::string(node.node) + "': attention of " + std::to_string(a.q.heads()) + " heads of " +
                           std::to_string(a.v.size()) + " over " + std::to_string(a.k.rows()) + " keys needs " +
                           std::to_string(plan.groups_x) + " by " + std::to_string(plan.groups_y) + " by " + std::to_string(plan.groups_z) +
                           " workgroups, more than the device takes (maxComputeWorkGroupCount)");
  return parts;
}

void set_plan(StepBuilder& step, const Attention& a, const AttentionPlan& plan, bool in_parts) {
  if (!plan.name.empty()) step.variant(plan.name, plan.spilled);
  if (plan.together > 0 && !in_parts)
    step.set("together", plan.together);
  else
    step.set("stretch", std::max<int64_t>(plan.stretch, a.k.rows() * (plan.stretch == 0)));
  step.groups(plan.groups_x, plan.groups_y, plan.groups_z);
}

// Adds the steps of an attention. `terms` receives the softmax maximum and 1/sum of each row, from row `first_term` on.
void add_steps(LowerContext& node, const Attention& a, const std::optional<Operand>& terms, int64_t first_term = 0) {
  if (a.y.batch() * a.y.heads() * a.y.rows() * a.y.size() == 0) return;
  AttentionPlan plan = plan_of(node, a, terms.has_value());
  const bool in_quads = plan.shader == kRowQuadsShader;
  const bool in_parts = plan.parts > 1 || terms;
  if (in_parts && plan.stretch == 0 && !in_quads) plan = rows_plan(node, a);  // the other kernels cannot split keys
  if (const auto parts = parts_of(node, a, plan, terms.has_value()); !parts.empty()) {
    for (const AttentionPart& part : parts) add_steps(node, part.attention, terms, first_term + part.first);
    return;
  }
  const bool y_fours = a.y.in_vectors(node.float_dtype, 4), meets = in_parts && !terms && (in_quads || plan.shader == kRowsShader);
  const int64_t rows = a.y.batch() * a.y.heads() * a.y.rows();
  plan.macros.insert(plan.macros.end(), {{"PARTS", flag(in_parts && !in_quads)}, {"MEETS", flag(meets)}});
  plan.macros.emplace_back("Y_VEC4", flag(y_fours && (!in_parts || meets)));
  if (!in_parts || meets) plan.macros.emplace_back("EPILOGUE(x)", node.epilogue());
  StepBuilder step = attention_step(node, a, plan.shader, std::move(plan.macros), std::move(plan.spec));
  set_plan(step, a, plan, in_parts);
  if (!in_parts || meets) step.bind("y", a.y.operand, a.y.first, a.y.span(), bits(node.float_dtype));
  const auto chosen = [&plan](Step made) {
    made.choice = plan.choice;
    return made;
  };
  if (!in_parts) return node.add(chosen(step.build()));
  const Operand parts = node.temporary(static_cast<uint64_t>(plan.parts * (in_quads ? plan.part_floats : rows * (a.v.size() + 2))) * 4);
  // Counters of finished splits. The last split resets them to zero; executions of a plan do not overlap.
  const uint64_t counters = plan.groups_x * plan.groups_y * static_cast<uint64_t>(plan.counters);
  if (meets) step.bind("finished", node.host_block(std::vector<std::byte>(counters * 4)));
  node.add(chosen(step.bind("parts", parts).build()));
  if (meets) return;
  const Macros macros = {
      {"Y_VEC4", flag(y_fours)}, {"TERMS", flag(terms.has_value())}, {"ZERO_EMPTY", flag(a.zero_empty)}, {"EPILOGUE(x)", node.epilogue()}};
  StepBuilder combine(node.kernel("attention_combine.comp", node.float_dtype, macros));
  combine.bind("parts", parts).bind("y", a.y.operand, a.y.first, a.y.span(), bits(node.float_dtype));
  if (terms) combine.bind("terms", *terms).set("first_term", first_term);
  const int64_t results = rows * ceil_div(a.v.size(), 4);
  combine.set("results", results).set("rows", a.y.rows()).set("heads", a.y.heads()).set("size", a.v.size()).set("parts", plan.parts);
  set_strides(combine, "y", a.y);
  node.add(combine.threads(static_cast<uint64_t>(results)).build());
}

}  // namespace

Heads heads_of(LowerContext& node, const TensorDesc& desc, const Operand& operand, const std::vector<int64_t>& perm) {
  Heads heads{operand, {1, 1, 1, 1}, {0, 0, 0}, phase_of(node, operand)};
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
    const Operand copy = node.temporary(buffer_size(desc.dtype, shape));
    add_strided_copy(node, desc.dtype, {shape, {Strides(strides.begin(), strides.end()), packed}}, {operand}, {copy});
    heads.operand = copy, heads.phase = 0;
    std::copy(packed.begin(), packed.end(), strides.begin());
  }
  std::copy_n(strides.begin(), 3, heads.strides.begin());
  return heads;
}

TensorDesc by_heads(const TensorDesc& desc, int64_t heads) {
  if (desc.rank() == 4) return desc;
  const int64_t size = desc.shape[2] / heads;
  return TensorDesc(desc.dtype, {desc.shape[0], heads, desc.shape[1], size},
                    Strides{desc.strides[0], desc.strides[2] * size, desc.strides[1], desc.strides[2]});
}

void set_strides(StepBuilder& step, const std::string& name, const Heads& heads) {
  step.set(name + "_batch", heads.strides[0]).set(name + "_head", heads.strides[1]).set(name + "_row", heads.strides[2]);
}

bool reads_bytes(const LowerContext& node, const Attention& a) {
  const int64_t shared_rows = a.q.heads() / a.k.heads() * a.q.rows();
  return node.prefers_lanes() ? a.q.rows() * 2 <= kFewRows : shared_rows <= kFewRows || (node.has_fragments() && a.q.rows() <= kMostOfHead);
}

void add_attention(LowerContext& node, const Attention& attention) {
  add_steps(node, attention, {});
}

void add_attention(LowerContext& node, const Attention& a, Scores wanted, const Operand& scores) {
  const int64_t rows = a.q.batch() * a.q.heads() * a.q.rows();
  std::optional<Operand> terms;
  if (wanted == Scores::shares && rows > 0) terms = node.temporary(static_cast<uint64_t>(rows) * 8);
  add_steps(node, a, terms);
  if (rows * a.k.rows() == 0) return;
  const Macros macros = {{"STAGE", std::to_string(static_cast<int>(wanted))}, {"PARTS", "0"}, {"Y_VEC4", "0"}};
  StepBuilder step = attention_step(node, a, "attention_scores.comp", macros, {});
  if (terms) step.bind("terms", *terms);
  const int64_t planes = a.q.batch() * a.q.heads();
  step.bind("y", scores)
      .set("planes", planes)
      .threads(static_cast<uint64_t>(a.k.rows()), static_cast<uint64_t>(a.q.rows()), static_cast<uint64_t>(planes));
  node.add(step.build());
}

}  // namespace pumice
