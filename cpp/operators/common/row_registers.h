// Rows cached in registers by kernels that need them twice: see include/row_registers.glsl.
#pragma once

#include <optional>

#include "operators/table/lowering.h"

namespace pumice {

// Whether input 0 starts at a multiple of four of its elements, so that kernels can read vec4s.
bool is_vec4_aligned(const LowerContext& node);

// How invocations share the rows. plan_row_registers() returns nullopt on CPU drivers, for rows that are too long, and for rows whose size
// or start is not a multiple of four elements.
struct RowRegisters {
  int64_t threads, rows_per_group, registers;  // invocations per row, rows per workgroup, vec4s per invocation
  bool fp16 = false;                           // cached in their 16-bit format

  Macros macros() const;
};
// `is_read_only`: the kernel does not modify the cached values.
std::optional<RowRegisters> plan_row_registers(const LowerContext& node, int64_t size, bool is_read_only);

// Uncached rows so short that a few invocations share each: the macro SHORT_ROWS of include/row_reduce.glsl, and the number of workgroups.
bool has_short_rows(const NodeContext& node, int64_t size);
uint64_t row_workgroups(const KernelVariant& kernel, bool has_short_rows, int64_t rows);

// Number of additions per value in a reduction over a team, see include/thread_group.glsl. `subgroup`: SUBGROUP; `is_cpu`: CPU_VARIANT.
int64_t reduction_additions(int64_t threads, int64_t subgroup, bool is_cpu);
// Number of roundings of a term when teams reduce rows of `size` elements, for make_row_register_step() (vec4s) and
// include/row_reduce.glsl.
int64_t row_register_additions(const NodeContext& node, const RowRegisters& plan);
int64_t row_loop_additions(const NodeContext& node, const KernelVariant& kernel, bool has_short_rows, int64_t size);

// A step of a kernel that caches rows, bound to input and output 0, without its other parameters.
StepBuilder make_row_register_step(const LowerContext& node, const RowRegisters& plan, std::string_view shader, Macros macros, int64_t rows,
                                   int64_t size);

}  // namespace pumice
