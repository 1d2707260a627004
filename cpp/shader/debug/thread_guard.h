// Wraps the user's main() in shaders that leave the workgroup size to the engine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shader/source/source_set.h"
#include "shader/spirv/interface.h"

namespace pumice {

// Returns whether preprocessed source declares a local size.
bool declares_local_size(std::string_view preprocessed);

// Returns whether the invocations of a workgroup cooperate: barriers, shared memory or subgroup operations.
bool invocations_cooperate(const std::vector<uint32_t>& spirv);
// Returns why a guard is impossible: the invocations cooperate, so all of them must run. The decision is based on the SPIR-V; the source
// only provides the line for the message. Empty if a guard is possible.
std::string make_guard_error(const std::vector<uint32_t>& spirv, std::string_view preprocessed, const SourceSet& sources);

// Text added before and after the user's source for preprocessing. It renames main().
std::string guard_prologue();
std::string guard_epilogue();

// Specialization constant for a folded grid, like those of shaders/include/grid.glsl.
inline constexpr std::string_view kFoldedGrid = "GRID_FOLDED_1";

// Maximum push-constant bytes of a shader with a guard: all devices support 128, and a guard needs 12.
inline constexpr uint32_t kMaxGuardedPushBytes = 116;

// Completes preprocessed source (with prologue and epilogue): local size constants, thread counts in the push constants, main().
// `unguarded`: interface of the same shader without a guard. `declaration`: the local size declaration to add, or empty. A shader that does
// not read its workgroup id can have a folded grid (dispatch/kernel/grid.h).
std::string guarded_source(std::string_view preprocessed, const Interface& unguarded, const SourceSet& sources,
                           const std::string& declaration);

// Returns a local size declaration with specialization constants.
std::string spec_constant_local_size(const Interface& unguarded);

// Returns the local size declaration.
std::string local_size_declaration(const LocalSize& size);

}  // namespace pumice
