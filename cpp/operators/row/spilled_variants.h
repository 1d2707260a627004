// Variants of steps that are not taken, since a driver told that their kernels spill.
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
  // The variants of a node's steps that spill; null where there are none.
  const VariantNames* of(std::string_view node) const {
    const auto found = nodes_.find(node);
    return found == nodes_.end() ? nullptr : &found->second;
  }
  // False where the variant was there before.
  bool add(const std::string& node, const std::string& variant) { return nodes_[node].insert(variant).second; }

 private:
  std::map<std::string, VariantNames, std::less<>> nodes_;
};

}  // namespace pumice
