// Wraps the user's main() in a check that skips invocations beyond the requested threads, for shaders without a declared local size.
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

// Returns whether the invocations of a workgroup cooperate, through barriers, shared memory or subgroup operations.
bool invocations_cooperate(const std::vector<uint32_t>& spirv);
// Returns the error message if a guard is impossible, because the invocations cooperate and all of them must run; empty otherwise. The
// SPIR-V determines this; the source only provides the line number for the message.
std::string make_guard_error(const std::vector<uint32_t>& spirv, std::string_view preprocessed, const SourceSet& sources);

// Text added before and after the user's source for preprocessing. It renames main().
std::string make_guard_prologue();
std::string make_guard_epilogue();

// Name of the specialization constant that enables grid folding (see shaders/include/grid.glsl).
inline constexpr std::string_view kFoldedGrid = "GRID_FOLDED_1";

// Maximum push-constant bytes of a shader with a guard: all devices support 128, and a guard needs 12.
inline constexpr uint32_t kMaxGuardedPushBytes = 116;

// Adds the guard to preprocessed source (with prologue and epilogue): local size, thread counts in the push constants, and main().
// `unguarded`: interface of the same shader without a guard. `declaration`: the local size declaration to add, or empty. A shader that does
// not read its workgroup id can have a folded grid (dispatch/kernel/grid_folding.h).
std::string make_guarded_source(std::string_view preprocessed, const ShaderInterface& unguarded, const SourceSet& sources,
                                const std::string& declaration);

// Returns a GLSL declaration of a local size given by specialization constants.
std::string make_spec_constant_local_size(const ShaderInterface& unguarded);

// Returns a GLSL declaration of this local size.
std::string make_local_size_declaration(const LocalSize& size);

}  // namespace pumice
