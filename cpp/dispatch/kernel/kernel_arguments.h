// Binds a user kernel's named arguments to form a dispatch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "dispatch/kernel/kernel.h"
#include "dispatch/kernel/tensor_argument.h"

namespace pumice {

// Values of a push constant: a scalar, or all elements of its vector, matrix (column-major) or array. One-dimensional input fills it in
// memory order.
struct PushConstantValues {
  std::vector<Number> values;
  std::vector<uint32_t> shape;  // empty if it is a scalar
};
// Argument that leaves a buffer unbound; allowed only if the variant does not use the buffer.
struct NoBinding {};
using KernelArgument = std::variant<TensorArgument, PushConstantValues, std::shared_ptr<Image>, NoBinding>;
using KernelArguments = std::vector<std::pair<std::string, KernelArgument>>;

// Invocations or workgroups on three axes.
struct LaunchSize {
  bool in_groups = false;
  std::array<uint64_t, 3> count{1, 1, 1};
  // Three group counts that the device reads at launch, instead of `count`; a null buffer if unused.
  BufferRange counts = {};
};

// Creates a dispatch from a kernel and its arguments. Arrays declared with a storage type (`sfp x[]`) adopt the dtype of the tensors
// passed; numbers are converted to the reflected type and range-checked. Throws BindingError for a missing (K3) or unknown (K4) argument, a
// wrong dtype (K5), number (K6), alignment (K7), launch size (K8) or kind of image (K11), or an image of another context (M3);
// UnsupportedError for an image that the device cannot store to.
Dispatch bind_kernel(Kernel& kernel, const KernelArguments& arguments, const LaunchSize& size, const Macros& macros = {},
                     const SpecValues& spec = {});

// Whether an array of the kernel is declared with the storage type, based on its type in that storage mode. Returns false if there is no
// such array.
bool uses_storage_type_for_array(Kernel& kernel, std::string_view array, StorageType storage, const Macros& macros = {},
                                 const SpecValues& spec = {});

}  // namespace pumice
