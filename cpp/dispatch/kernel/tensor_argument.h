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
  uint64_t bytes;                        // bytes of the elements, without the range's padding
  uint64_t last_axis;                    // its size; 1 of a single element
  const MemoryLayout* layout = nullptr;  // the layout of structures on the host, of which dtype says nothing; lives as long as the call
};

}  // namespace pumice
