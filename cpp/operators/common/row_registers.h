// Plans for kernels that read each row twice and therefore cache it in registers: see include/row_registers.glsl.
#pragma once

#include <optional>

#include "operators/table/lowering.h"

namespace pumice {

// Whether input 0 starts at a multiple of four of its elements, so that kernels can read vec4s.
bool is_vec4_aligned(const LowerContext& node);

// Distribution of rows over invocations.
struct RowRegisterPlan {
  int64_t threads, rows_per_group, registers;  // invocations per row, rows per workgroup, vec4s per invocation
  bool fp16 = false;                           // rows of 16-bit floats are cached as 16-bit floats
  bool prefetches_factors = false;             // the kernel loads its other operands together with the row

  Macros macros() const;
  std::string name() const;  // of the variant
};
// Name of the variant that reads the row again in each of its loops.
inline constexpr const char* kRowLoopVariant = "rows in loops";
// The plan of a step, and the variant that it replaces because its kernel spills registers ("" if none). Without a plan, the step needs a
// kernel that does not cache rows in registers.
struct RowRegisterChoice {
  std::optional<RowRegisterPlan> plan;
  std::string spilled = {};
};
// Chooses the plan for rows of `size` elements. If its kernel spills registers, it is replaced by one that does not prefetch, or that
// shares a row among more invocations. There is no plan on CPU drivers, for rows that are too long, if the size or start of a row is not a
// multiple of four elements, and if all plans spill. `is_read_only`: the kernel does not modify the cached values. `may_prefetch`: the
// kernel can prefetch its other operands, and there are so few rows that much of the device is idle.
RowRegisterChoice choose_row_registers(const LowerContext& node, int64_t size, bool is_read_only, bool may_prefetch = false);

// has_short_rows: whether rows are so short that only a few invocations share a row (macro SHORT_ROWS of include/row_reduce.glsl).
// count_row_workgroups: number of workgroups of a kernel that does not cache rows in registers.
bool has_short_rows(const NodeContext& node, int64_t size);
uint64_t count_row_workgroups(const KernelVariant& kernel, bool has_short_rows, int64_t rows);

// Returns the number of additions that each value takes part in during a reduction over a thread group: see include/thread_group.glsl.
// `subgroup` and `is_cpu` are the macros SUBGROUP and CPU_VARIANT.
int64_t count_reduction_additions(int64_t threads, int64_t subgroup, bool is_cpu);
// Return how often a term is rounded while a thread group sums a row, for kernels that cache the row in registers
// (make_row_register_step()) and for kernels that loop over it (include/row_reduce.glsl).
int64_t count_register_row_additions(const NodeContext& node, const RowRegisterPlan& plan);
int64_t count_loop_row_additions(const NodeContext& node, const KernelVariant& kernel, bool has_short_rows, int64_t size);

// Returns the step of a kernel that caches rows in registers, with input 0 and output 0 bound. The caller sets all other parameters. The
// choice must have a plan.
StepBuilder make_row_register_step(const LowerContext& node, const RowRegisterChoice& choice, std::string_view shader, Macros macros,
                                   int64_t rows, int64_t size);

}  // namespace pumice
