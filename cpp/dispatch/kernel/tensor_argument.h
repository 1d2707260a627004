// A tensor as a kernel is called with it.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/buffer.h"
#include "shader/spirv/memory_layout.h"

namespace pumice {

// A tensor given to a kernel: the range starts at its first element.
struct TensorArgument {
  DType dtype;
  BufferRange range;
  uint64_t bytes;                        // of the elements, without what the range is padded with
  uint64_t last_axis;                    // its size; 1 of a single element
  const MemoryLayout* layout = nullptr;  // of structures on the host, which dtype says nothing of; lives as long as the call
};

}  // namespace pumice
