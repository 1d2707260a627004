// A main() around the user's, for shaders that leave the workgroup size to the engine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shader/spirv/interface.h"
#include "shader/text/source_set.h"

namespace pumice {

// Does preprocessed text declare a local size?
bool declares_local_size(std::string_view preprocessed);

// Whether the invocations of a workgroup work together, by barriers, shared memory or subgroup operations.
bool works_together(const std::vector<uint32_t>& spirv);
// Why a guard is impossible: the invocations of a workgroup work together, by barriers, shared memory or subgroup operations, so that none
// may be left out. The SPIR-V decides; the text gives the place for the message. Empty where a guard is possible.
std::string cooperation(const std::vector<uint32_t>& spirv, std::string_view preprocessed, const SourceSet& sources);

// Texts put before and after the user's own while it is preprocessed: they rename its main().
std::string guard_prologue();
std::string guard_epilogue();

// The specialization constant that tells a guarded shader that its grid is folded, as those of shaders/include/grid.glsl.
inline constexpr std::string_view kFoldedGrid = "GRID_FOLDED_1";

// The push constants of a shader that can have a guard, in bytes: all devices take 128, and a guard needs 12.
inline constexpr uint32_t kMaxGuardedPushBytes = 116;

// Preprocessed text (with prologue and epilogue) completed: local size constants, thread counts in the push constants, main().
// `unguarded` is the interface of the same shader without a guard. `declaration`: of the local size, where the text has none: empty where
// it has one. Where the text does not ask for its workgroup, its grid can be folded (dispatch/kernel/grid.h).
std::string guarded_source(std::string_view preprocessed, const Interface& unguarded, const SourceSet& sources,
                           const std::string& declaration);

// The declaration of a local size that specialization constants choose.
std::string chosen_local_size(const Interface& unguarded);

// The declaration that a text lacks.
std::string declaration(const LocalSize& size);

}  // namespace pumice
