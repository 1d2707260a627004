// Trial sizes that shape inference uses for unknown axes; see shape_inference.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace pumice {

inline constexpr size_t kTrialCount = 8;

// Sizes by trial: `batches` for the first axis, `sizes` for the others. Tests set other sizes, because the result of validation must not
// depend on them.
struct TrialSizes {
  std::array<int64_t, kTrialCount> sizes, batches;
};
const TrialSizes& get_trial_sizes();
// nullopt restores the defaults. Must not run while another thread adds nodes to a graph.
void set_trial_sizes(const std::optional<TrialSizes>& new_sizes);

}  // namespace pumice
