#include "graph/binding/known_register_spills.h"

#include <algorithm>

namespace pumice {

bool add_known_spills(const std::string& node, const std::vector<Step>& steps, SpilledVariants& spilled) {
  bool is_new = false;
  for (const Step& step : steps)
    if (!step.variant.empty() && step.kernel->get_cached_spills().value_or(0) > 0) is_new |= spilled.add(node, step.variant);
  return is_new;
}

bool uses_spilled_variant(const std::vector<Step>& steps, const VariantNames* spilled) {
  return spilled && std::ranges::any_of(steps, [&](const Step& step) { return spilled->contains(step.variant); });
}

}  // namespace pumice
