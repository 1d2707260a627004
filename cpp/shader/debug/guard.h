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

// Why a guard is impossible: the invocations of a workgroup work together, by barriers, shared memory or subgroup operations, so that none
// may be left out. The SPIR-V decides; the text gives the place for the message. Empty where a guard is possible.
std::string cooperation(const std::vector<uint32_t>& spirv, std::string_view preprocessed, const SourceSet& sources);

// Texts put before and after the user's own while it is preprocessed: they rename its main().
std::string guard_prologue();
std::string guard_epilogue();

// Preprocessed text (with prologue and epilogue) completed: local size constants, thread counts in the push constants, main().
// `unguarded` is the interface of the same shader without a guard. `given`: the local size, which is then no specialization constant.
std::string guarded_source(std::string_view preprocessed, const Interface& unguarded, const SourceSet& sources,
                           const std::optional<LocalSize>& given);

// The declaration that a text lacks.
std::string declaration(const LocalSize& size);

}  // namespace pumice
