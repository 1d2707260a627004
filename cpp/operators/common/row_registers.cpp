#include "operators/common/row_registers.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <span>
#include <utility>

#include "core/rounding.h"
#include "operators/common/mixed_precision.h"

namespace pumice {
namespace {

// A group of threads that processes rows of up to `max_vec4` vec4s.
struct ThreadGroup {
  int64_t threads, rows_per_group, max_vec4;
};
constexpr ThreadGroup kThreadGroups[] = {{16, 16, 64},   {16, 8, 64},    {32, 4, 256},   {128, 1, 512},
                                         {256, 1, 2048}, {512, 1, 4096}, {1024, 1, 8192}};
constexpr int64_t kShortRowThreads = 16,
                  kMaxShortRow = 512;  // number of invocations that share a short row, and maximum size of a short row
constexpr ThreadGroup kFp16ThreadGroups[] = {{16, 16, 64},   {16, 8, 64},    {32, 4, 256},   {128, 1, 512},
                                             {256, 1, 8192}, {512, 1, 8192}, {1024, 1, 8192}};

}  // namespace

bool is_vec4_aligned(const LowerContext& node) {
  return node.input_misalignment(0) * 8 % static_cast<uint64_t>(4 * bits(node.input(0).dtype)) == 0;
}

Macros RowRegisterPlan::macros() const {
  const auto number = [](int64_t value) { return std::to_string(value) + "u"; };
  return {{"GROUP_THREADS", number(threads)},
          {"THREAD_GROUPS", number(rows_per_group)},
          {"ITEMS_PER_THREAD", number(registers)},
          {"HOLDS_FP16", fp16 ? "1" : "0"}};
}

std::string RowRegisterPlan::name() const {
  return "registers " + std::to_string(threads) + "x" + std::to_string(registers) + (prefetches_factors ? " prefetch" : "");
}

namespace {

std::vector<RowRegisterPlan> list_row_register_plans(const LowerContext& node, int64_t size, bool is_read_only, bool may_prefetch) {
  constexpr int64_t kMaxPrefetched = 8;  // vec4s per invocation
  if (node.prefers_cpu_kernels() || size % 4 != 0 || !is_vec4_aligned(node)) return {};
  const bool fp16 = is_read_only && is_16bit_float(node.input(0).dtype);
  // Without subgroup operations, a thread group of more than 16 threads must be a whole workgroup: see include/thread_group.glsl.
  const auto can_reduce = [&](const ThreadGroup& threads) {
    return node.subgroup_size() > 0 || threads.threads <= 16 || threads.rows_per_group == 1;
  };
  std::vector<RowRegisterPlan> plans;
  for (const ThreadGroup& threads : fp16 ? std::span<const ThreadGroup>(kFp16ThreadGroups) : kThreadGroups) {
    if (size / 4 > threads.max_vec4 || threads.threads * threads.rows_per_group > node.max_invocations() || !can_reduce(threads)) continue;
    RowRegisterPlan plan{threads.threads, threads.rows_per_group,
                         static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(size / 4, threads.threads)))), fp16};
    if (!plans.empty() && plan.registers == plans.back().registers) continue;
    plan.prefetches_factors = plans.empty() && may_prefetch && plan.registers <= kMaxPrefetched;
    plans.push_back(plan);
    if (std::exchange(plan.prefetches_factors, false)) plans.push_back(plan);
  }
  return plans;
}

}  // namespace

RowRegisterChoice choose_row_registers(const LowerContext& node, int64_t size, bool is_read_only, bool may_prefetch) {
  const std::vector<RowRegisterPlan> plans = list_row_register_plans(node, size, is_read_only, may_prefetch);
  if (plans.empty()) return {};
  const RowRegisterPlan& plan = choose_unspilled(node.spilled, plans, std::mem_fn(&RowRegisterPlan::name));
  if (node.is_spilled(plan.name())) return {{}, plan.name()};
  return {plan, &plan == &plans.front() ? "" : plans.front().name()};
}

bool has_short_rows(const NodeContext& node, int64_t size) {
  return !node.prefers_cpu_kernels() && size <= kMaxShortRow;
}

uint64_t count_row_workgroups(const KernelVariant& kernel, bool has_short_rows, int64_t rows) {
  return static_cast<uint64_t>(has_short_rows ? ceil_div(rows, static_cast<int64_t>(kernel.local_size()[0]) / kShortRowThreads) : rows);
}

int64_t count_reduction_additions(int64_t threads, int64_t subgroup, bool is_cpu) {
  constexpr int64_t kShortRowGroup = 16;
  if (is_cpu) return 7;  // the eight lanes are added one after the other
  const auto log2_of = [](int64_t count) { return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(count))) - 1; };
  if (subgroup > 0) return log2_of(std::min(threads, subgroup)) + std::max<int64_t>(threads / subgroup - 1, 0);
  return (threads > kShortRowGroup ? threads / kShortRowGroup - 1 : 0) + kShortRowGroup - 1;
}

int64_t count_register_row_additions(const NodeContext& node, const RowRegisterPlan& plan) {
  constexpr int64_t kFour = 4;  // additions per vec4: at most one product and three additions
  return kFour + plan.registers + count_reduction_additions(plan.threads, node.subgroup_size(), false);
}

int64_t count_loop_row_additions(const NodeContext& node, const KernelVariant& kernel, bool has_short_rows, int64_t size) {
  const int64_t threads = has_short_rows ? kShortRowThreads : static_cast<int64_t>(kernel.local_size()[0]);
  return ceil_div(size, threads) + count_reduction_additions(threads, 0, node.prefers_cpu_kernels());
}

StepBuilder make_row_register_step(const LowerContext& node, const RowRegisterChoice& choice, std::string_view shader, Macros macros,
                                   int64_t rows, int64_t size) {
  const RowRegisterPlan& plan = choice.plan.value();
  const Macros more = plan.macros();
  macros.insert(macros.end(), more.begin(), more.end());
  macros.emplace_back("SUBGROUP", std::to_string(node.subgroup_size()));
  const DType dtype = node.input(0).dtype;
  const MixedPrecisionArrays arrays =
      make_mixed_precision_arrays({{"X", dtype}, {"Y", node.output(0).dtype}, {"R", node.get_residual_dtype(dtype)}});
  arrays.append_to(macros);
  StepBuilder step(node.kernel(shader, arrays.storage, macros));
  step.bind("x", node.input_operand(0)).bind("y", node.output_operand(0)).set("rows", rows).set("vec4_per_row", size / 4);
  step.set_workgroups(static_cast<uint64_t>(ceil_div(rows, plan.rows_per_group))).set_variant(plan.name(), choice.spilled);
  return step;
}

}  // namespace pumice
