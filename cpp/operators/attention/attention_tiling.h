// Chooses the tile and the key split of attention on cooperative matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operators/attention/attention_params.h"

namespace pumice {

inline constexpr int64_t kQuadsSubgroup = 32;  // subgroup size of attention_mma

struct MatrixShare {
  int64_t subgroups = 0, keys = 0;  // subgroups per workgroup; keys per iteration
  int64_t strips = 1;               // 16-row query tiles per subgroup; with two, K and V are double-buffered in shared memory
  int64_t together = 1;             // heads in a group whose workgroups are ordered by descending key count
  int64_t parts = 1;                // number of workgroups that the keys are split over
  int64_t shares = 1;               // subgroups of a workgroup that have the same queries and split the keys of an iteration
  double microseconds = 0;          // estimated by the cost model

  std::string spilled = {};  // the faster variant that this one replaces because its kernel spills

  int64_t rows() const { return subgroups / shares * strips * 16; }
  std::string name(bool is_quads) const;  // variant name
};

// Whether heads are aligned vec8s and short enough for the cooperative-matrix kernels.
bool suits_matrices(const LowerContext& node, const Attention& a);

// Returns the fastest configuration by a cost model fitted on an H200; nullopt if the device supports none. A configuration whose kernel
// spills is used only if all others spill too.
std::optional<MatrixShare> matrix_share(const LowerContext& node, const Attention& a, bool is_quads);

// Returns all configurations of attention_mma, if the device has fragments or tests emulate them: those selected for any head size, and a
// small one for tests.
std::vector<MatrixShare> quads_shares(const LowerContext& node, const Attention& a);

}  // namespace pumice
