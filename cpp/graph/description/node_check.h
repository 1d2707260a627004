// Requirements on a node's inputs beyond those of its operator.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// The operator of a node that runs a check; it returns its first input.
inline constexpr std::string_view kRequire = "pumice::Require";

class NodeCheck {
 public:
  virtual ~NodeCheck() = default;
  // Checks a node's inputs. Throws GraphError naming the caller's node if a requirement is not met. `inputs` and `elements` are indexed by
  // input of the node. Null elements are not known on the host; rules about them are skipped.
  virtual void check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements) const = 0;
  // Returns which of the `inputs` inputs are lists, or tensors with rules about elements that may be known only on the device.
  virtual std::vector<size_t> unread_lists(size_t inputs) const = 0;
};

}  // namespace pumice
