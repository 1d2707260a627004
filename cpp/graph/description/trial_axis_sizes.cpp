#include "graph/description/trial_axis_sizes.h"

namespace pumice {
namespace {

// Multiples of 32 stay integral through the halvings of a network; primes leave a remainder for any divisor; large sizes exceed the length
// of audio kernels and common size limits. The first axis is usually the batch; if it is the only axis, the last two large trials treat it
// as a long axis. Of random size expressions (tests/graph/test_shape_trials.py), 1 in 1,600 gives equal results for all of these sizes by
// chance; with only 96, 160, 2 and 0 it was 1 in 30.
constexpr TrialSizes kDefaultSizes = {{96, 160, 1049, 1728, 132640, 92831, 3, 0}, {2, 3, 7, 4, 9, 11, 5, 0}};
TrialSizes current_trial_sizes = kDefaultSizes;

}  // namespace

const TrialSizes& get_trial_sizes() {
  return current_trial_sizes;
}

void set_trial_sizes(const std::optional<TrialSizes>& new_sizes) {
  current_trial_sizes = new_sizes.value_or(kDefaultSizes);
}

}  // namespace pumice
