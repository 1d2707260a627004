// Checks of a node's inputs in addition to its operator's checks.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// Operator of a node that runs a NodeCheck; it returns its first input.
inline constexpr std::string_view kRequire = "pumice::Require";

class NodeCheck {
 public:
  virtual ~NodeCheck() = default;
  // Throws GraphError naming the node of the caller if a requirement is violated. `inputs` and `elements` are indexed by input. Null
  // elements are not known on the host, and rules about them are skipped.
  virtual void check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements) const = 0;
  // Returns the indices of the inputs, out of `inputs`, whose elements have rules but may be unknown until a call.
  virtual std::vector<size_t> find_inputs_checked_per_call(size_t inputs) const = 0;
};

}  // namespace pumice
