// Variants that are skipped because the driver reports register spills in their kernels.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace pumice {

using VariantNames = std::set<std::string, std::less<>>;

// Returns the first of the candidates, in order of preference, whose variant is not in `spilled`; the first if all are. `get_name` returns
// the name of a candidate's variant.
template <typename Candidates, typename GetName>
const auto& choose_unspilled(const VariantNames* spilled, const Candidates& candidates, const GetName& get_name) {
  if (spilled)
    for (const auto& candidate : candidates)
      if (!spilled->contains(get_name(candidate))) return candidate;
  return candidates.front();
}

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
