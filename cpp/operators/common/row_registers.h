// Rows cached in registers by kernels that need them twice: see include/row_registers.glsl.
#pragma once

#include <optional>

#include "operators/table/lowering.h"

namespace pumice {

// Whether input 0 starts at a multiple of four of its elements, so that kernels can read vec4s.
bool is_vec4_aligned(const LowerContext& node);

// Distribution of the rows over invocations. plan_row_registers() returns nullopt on CPU drivers, for rows that are too long, and for rows
// whose size or start is not a multiple of four elements.
struct RowRegisterPlan {
  int64_t threads, rows_per_group, registers;  // invocations per row, rows per workgroup, vec4s per invocation
  bool fp16 = false;                           // cached in their 16-bit format

  Macros macros() const;
};
// `is_read_only`: the kernel does not modify the cached values.
std::optional<RowRegisterPlan> plan_row_registers(const LowerContext& node, int64_t size, bool is_read_only);

// has_short_rows: whether rows are so short that a few invocations share each (macro SHORT_ROWS of include/row_reduce.glsl).
// count_row_workgroups: number of workgroups for uncached rows.
bool has_short_rows(const NodeContext& node, int64_t size);
uint64_t count_row_workgroups(const KernelVariant& kernel, bool has_short_rows, int64_t rows);

// Returns the number of additions per value in a reduction over a thread group, see include/thread_group.glsl. `subgroup`: SUBGROUP;
// `is_cpu`: CPU_VARIANT.
int64_t count_reduction_additions(int64_t threads, int64_t subgroup, bool is_cpu);
// Returns the number of roundings of a term if thread groups reduce rows of `size` elements, for make_row_register_step() and for
// include/row_reduce.glsl.
int64_t count_register_row_additions(const NodeContext& node, const RowRegisterPlan& plan);
int64_t count_loop_row_additions(const NodeContext& node, const KernelVariant& kernel, bool has_short_rows, int64_t size);

// Returns a step of a kernel that caches rows, with input 0 and output 0 bound. The caller sets the other parameters.
StepBuilder make_row_register_step(const LowerContext& node, const RowRegisterPlan& plan, std::string_view shader, Macros macros,
                                   int64_t rows, int64_t size);

}  // namespace pumice
