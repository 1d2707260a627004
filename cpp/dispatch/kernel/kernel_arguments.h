// A user's kernel with its arguments by name, made into one dispatch.
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

// Numbers for a push constant: one, or as many as its vector, matrix (by columns) or array has. Numbers on one axis fill it in the order of
// memory.
struct Numbers {
  std::vector<Number> values;
  std::vector<uint32_t> shape;  // none of a single number
};
// Nothing is bound: only where no instruction of the variant that runs names the buffer.
struct NoArray {};
using KernelArgument = std::variant<TensorArgument, Numbers, std::shared_ptr<Image>, NoArray>;
using KernelArguments = std::vector<std::pair<std::string, KernelArgument>>;

// Invocations or workgroups on three axes.
struct LaunchSize {
  bool in_groups = false;
  std::array<uint64_t, 3> count{1, 1, 1};
  // Three words with the workgroups in place of `count`, which the device reads when the kernel starts; or no buffer.
  BufferRange counts = {};
};

// Makes one dispatch of a kernel and its arguments. Arrays declared with a storage type (`sfp x[]`) take the dtype of the tensors they are
// called with; numbers are converted to the reflected type and range-checked. Throws BindingError: K3 missing, K4 unknown, K5 dtype, K6
// number, K7 alignment, K8 launch size, K11 image of another kind, M3 image of another context; UnsupportedError for an image that the
// device cannot store to.
Dispatch bind_kernel(Kernel& kernel, const KernelArguments& arguments, const LaunchSize& size, const Macros& macros = {},
                     const SpecValues& spec = {});

// Whether an array of the kernel is declared with the storage type, by what it becomes in that mode. False where there is no such array.
bool follows_storage(Kernel& kernel, std::string_view array, Storage storage, const Macros& macros = {}, const SpecValues& spec = {});

}  // namespace pumice
