// A tensor argument of a kernel.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/buffer.h"
#include "shader/spirv/memory_layout.h"

namespace pumice {

// A tensor argument; the range starts at the first element.
struct TensorArgument {
  DType dtype;
  BufferRange range;
  uint64_t bytes;                        // total size of the elements, without padding
  uint64_t last_axis;                    // size of the last axis; 1 for a scalar
  const MemoryLayout* layout = nullptr;  // host struct layout, used instead of dtype; must outlive the call
};

}  // namespace pumice
