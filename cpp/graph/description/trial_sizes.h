// The sizes that shape inference tries for unknown axes: see shape_inference.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace pumice {

inline constexpr size_t kTrialCount = 8;

// Sizes for an axis, and for a first axis, by trial. Tests try others: whether a graph is accepted must not depend on the choice.
struct TrialSizes {
  std::array<int64_t, kTrialCount> sizes, batches;
};
const TrialSizes& trial_sizes();
// None: the default. Not while another thread adds nodes to a graph.
void set_trial_sizes(const std::optional<TrialSizes>& tried);

}  // namespace pumice
