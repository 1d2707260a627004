// Whether what the host gives for a buffer lies as the shader's structures do.
#pragma once

#include <string>

#include "dispatch/kernel/tensor_argument.h"
#include "shader/spirv/interface.h"

namespace pumice {

// Checks that structures of the host lie as the shader's. Throws BindingError (K5) naming the first field that differs, with both types and
// offsets.
void check_structured(const BindingInterface& binding, const TensorArgument& given);
// Checks an array of one scalar type, which was found to agree with the shader's element type: it must have the gaps that the shader's
// elements have.
void check_plain(const BindingInterface& binding, const TensorArgument& given);
// Checks the gaps of an array of the storage type, which the fp32 build may not have: the variant's layout is `binding`'s.
void check_stored(const BindingInterface& binding, const TensorArgument& given);
// Raw bytes are taken for structures: rows of uint8, as long as whole structures.
bool are_raw_structures(const BindingInterface& binding, const TensorArgument& given);

}  // namespace pumice
