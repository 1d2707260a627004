// Converts between memory layouts and NumPy dtypes.
#pragma once

#include <memory>

#include "bindings.h"
#include "shader/spirv/memory_layout.h"

namespace pumice {

// Layout of a NumPy dtype. Throws BindingError (K5) naming `what` and the field that shaders do not support: strings, other byte orders.
std::shared_ptr<const MemoryLayout> memory_layout(const py::dtype& dtype, const std::string& what);
// An unsized array gets `length` elements.
py::dtype numpy_dtype(const MemoryLayout& layout, uint64_t length = 0);

}  // namespace pumice
