// Sizes that shape inference tries for unknown axes, see shape_inference.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace pumice {

inline constexpr size_t kTrialCount = 8;

// Sizes by trial: `batches` for the first axis, `sizes` for the others. Tests use other sizes: whether a graph is accepted must not
// depend on them.
struct TrialSizes {
  std::array<int64_t, kTrialCount> sizes, batches;
};
const TrialSizes& trial_sizes();
// None restores the default. Must not run while another thread adds nodes to a graph.
void set_trial_sizes(const std::optional<TrialSizes>& new_sizes);

}  // namespace pumice
