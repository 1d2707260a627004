// Converts between memory layouts and NumPy dtypes.
#pragma once

#include <memory>

#include "bindings.h"
#include "shader/spirv/memory_layout.h"

namespace pumice {

// Returns the layout of a NumPy dtype. Throws BindingError (K5) naming `label` and the unsupported field: a string or another byte order.
std::shared_ptr<const MemoryLayout> parse_memory_layout(const py::dtype& dtype, const std::string& label);
// Returns the NumPy dtype of a layout. An unsized array gets `length` elements.
py::dtype make_layout_dtype(const MemoryLayout& layout, uint64_t length = 0);

}  // namespace pumice
