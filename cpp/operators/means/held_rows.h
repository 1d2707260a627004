// Dense rows that an invocation's registers hold, so that a kernel that needs them twice reads them once: see include/held.glsl.
#pragma once

#include <optional>

#include "operators/row/lowering.h"

namespace pumice {

// Input 0 begins at a multiple of four of its elements, so that kernels may read it as an array of vectors.
bool begins_in_fours(const LowerContext& node);

// The way in which invocations share the rows. held_rows() gives none on devices that prefer lanes, for rows that are too long, and for
// rows whose size is no multiple of four or that do not begin at a boundary.
struct HeldRows {
  int64_t team, teams, held;  // invocations a row, rows a workgroup, fours an invocation
  bool halves = false;        // they are held as they lie, in 16 bits

  Macros macros() const;
};
// `keeps`: the kernel leaves what it holds as it is.
std::optional<HeldRows> held_rows(const LowerContext& node, int64_t size, bool keeps);

// Rows that are not held, but so short that a few invocations share each: the macro SHORT of include/row.glsl, and the workgroups for them.
bool has_short_rows(const NodeContext& node, int64_t size);
uint64_t row_groups(const KernelVariant& kernel, bool has_short_rows, int64_t rows);

// The additions that a number goes through where a team of so many meets: see include/team.glsl. `subgroup`: its SUBGROUP; `lanes`: LANES.
int64_t meeting_additions(int64_t team, int64_t subgroup, bool lanes);
// The roundings of a term where teams fold rows of `size` elements: those of held_step(), in fours, and those of include/row.glsl.
int64_t held_additions(const NodeContext& node, const HeldRows& how);
int64_t row_additions(const NodeContext& node, const KernelVariant& kernel, bool has_short_rows, int64_t size);

// A step of a kernel that holds rows, on input and output 0, without its other parameters.
StepBuilder held_step(const LowerContext& node, const HeldRows& how, std::string_view shader, Macros macros, int64_t rows, int64_t size);

}  // namespace pumice
