// Checks whether host data matches the memory layout of shader structs.
#pragma once

#include <string>

#include "dispatch/kernel/tensor_argument.h"
#include "shader/spirv/interface.h"

namespace pumice {

// Checks that the host struct layout matches the shader's. Throws BindingError (K5) naming the first field that differs, with both types
// and offsets.
void check_struct_layout(const BindingInterface& binding, const TensorArgument& tensor);
// Checks the stride of an array of scalars whose type already matches the shader's element type: it must include any padding of the
// shader's elements.
void check_array_stride(const BindingInterface& binding, const TensorArgument& tensor);
// Checks the padding of an array of the storage type; the fp32 variant may have none. `binding`: a binding of the selected variant.
void check_storage_stride(const BindingInterface& binding, const TensorArgument& tensor);
// Whether raw bytes are acceptable as structs: uint8 rows that are a multiple of the struct size.
bool are_raw_struct_bytes(const BindingInterface& binding, const TensorArgument& tensor);

}  // namespace pumice
