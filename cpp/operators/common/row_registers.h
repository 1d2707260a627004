// Rows cached in registers by kernels that need them twice: see include/row_registers.glsl.
#pragma once

#include <optional>

#include "operators/table/lowering.h"

namespace pumice {

// Whether input 0 starts at a multiple of four of its elements, so that kernels can read vec4s.
bool begins_in_fours(const LowerContext& node);

// How invocations share the rows. held_rows() returns nullopt on CPU drivers, for rows that are too long, and for rows whose size or start
// is not a multiple of four elements.
struct HeldRows {
  int64_t team, teams, held;  // invocations per row, rows per workgroup, vec4s per invocation
  bool halves = false;        // cached in their 16-bit format

  Macros macros() const;
};
// `keeps`: the kernel does not modify the cached values.
std::optional<HeldRows> held_rows(const LowerContext& node, int64_t size, bool keeps);

// Uncached rows so short that a few invocations share each: the macro SHORT of include/row_reduce.glsl, and the number of workgroups.
bool has_short_rows(const NodeContext& node, int64_t size);
uint64_t row_groups(const KernelVariant& kernel, bool has_short_rows, int64_t rows);

// Number of additions per value in a reduction over a team, see include/thread_group.glsl. `subgroup`: SUBGROUP; `lanes`: LANES.
int64_t meeting_additions(int64_t team, int64_t subgroup, bool lanes);
// Number of roundings of a term when teams reduce rows of `size` elements, for held_step() (vec4s) and include/row_reduce.glsl.
int64_t held_additions(const NodeContext& node, const HeldRows& how);
int64_t row_additions(const NodeContext& node, const KernelVariant& kernel, bool has_short_rows, int64_t size);

// A step of a kernel that caches rows, bound to input and output 0, without its other parameters.
StepBuilder held_step(const LowerContext& node, const HeldRows& how, std::string_view shader, Macros macros, int64_t rows, int64_t size);

}  // namespace pumice
