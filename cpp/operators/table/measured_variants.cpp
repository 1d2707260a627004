#include "operators/table/measured_variants.h"

#include <algorithm>
#include <bit>

namespace pumice {

std::shared_ptr<const StepChoice> find_tuned_choice(const MeasuredVariants* measured, std::string_view kind,
                                                    std::string_view default_variant, std::span<const std::string_view> alternatives,
                                                    const VariantNames* spilled) {
  if (!measured) return nullptr;
  const auto found = measured->fastest.find(kind);
  if (found == measured->fastest.end()) return nullptr;
  const std::string& requested = found->second;
  const bool is_default = requested == default_variant,
             is_alternative = !is_default && std::ranges::find(alternatives, requested) != alternatives.end();
  const bool spills = is_alternative && spilled && spilled->contains(requested), is_selected = is_default || (is_alternative && !spills);
  return std::make_shared<const StepChoice>(StepChoice{.kind = std::string(kind),
                                                       .default_variant = std::string(default_variant),
                                                       .selected = is_selected ? requested : std::string(default_variant),
                                                       .rejected = is_selected ? "" : requested,
                                                       .spills = spills});
}

std::string format_size_class(int64_t size) {
  if (size < 1) return std::to_string(size);
  const auto bits = static_cast<uint64_t>(size);
  return std::to_string(std::bit_ceil(bits)) + "/" + std::to_string(std::min<int64_t>(int64_t{1} << std::countr_zero(bits), 256));
}

}  // namespace pumice
