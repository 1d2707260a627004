// Layouts in memory as NumPy's dtypes.
#pragma once

#include <memory>

#include "bindings.h"
#include "shader/spirv/memory_layout.h"

namespace pumice {

// The layout of a NumPy dtype. Throws BindingError (K5) naming `what` and the field that no shader has: strings, other byte orders.
std::shared_ptr<const MemoryLayout> memory_layout(const py::dtype& dtype, const std::string& what);
// An axis of any length is `length` long.
py::dtype numpy_dtype(const MemoryLayout& layout, uint64_t length = 0);

}  // namespace pumice
