// Requirements of a node on its inputs beyond those of its row.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// The row of a node that carries a check: its result is its first input.
inline constexpr std::string_view kRequire = "pumice::Require";

class NodeCheck {
 public:
  virtual ~NodeCheck() = default;
  // Checks a node's inputs. Throws GraphError that names the node that the caller knows. `inputs` and `elements` are by input of the node.
  // Elements are null where the host does not know them; then the rules about them are not checked.
  virtual void check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements) const = 0;
  // The inputs, of so many, that are lists, or tensors whose elements have rules, which the device alone may know.
  virtual std::vector<size_t> unread_lists(size_t inputs) const = 0;
};

}  // namespace pumice
