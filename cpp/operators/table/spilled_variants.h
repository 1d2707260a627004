// Variants that are skipped because the driver reports register spills in their kernels.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace pumice {

using VariantNames = std::set<std::string, std::less<>>;

class SpilledVariants {
 public:
  // Returns the spilling variants of a node's steps; null if there are none.
  const VariantNames* find(std::string_view node) const {
    const auto found = nodes_.find(node);
    return found == nodes_.end() ? nullptr : &found->second;
  }
  // Returns false if the variant was already known.
  bool add(const std::string& node, const std::string& variant) { return nodes_[node].insert(variant).second; }

 private:
  std::map<std::string, VariantNames, std::less<>> nodes_;
};

}  // namespace pumice
