// Chooses the tile and the key split of the cooperative-matrix attention kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operators/attention/attention_params.h"

namespace pumice {

inline constexpr int64_t kMmaSubgroup = 32;  // subgroup size of attention_mma

struct AttentionTile {
  int64_t subgroups = 0, keys = 0;  // subgroups per workgroup; keys per iteration
  int64_t query_tiles = 1;          // 16-row query tiles per subgroup; with two, K and V are double-buffered in shared memory
  int64_t head_group = 1;           // heads in a group whose workgroups are ordered by descending key count
  int64_t splits = 1;               // number of workgroups that the keys are split over
  int64_t key_slices = 1;           // subgroups that process the same queries and split the keys of an iteration
  double microseconds = 0;          // estimated by the cost model

  std::string spilled = {};  // the faster variant that was rejected because its kernel spills registers

  int64_t rows() const { return subgroups / key_slices * query_tiles * 16; }
  std::string variant_name(bool is_mma) const;
};

// Whether heads are aligned vec8s and short enough for the cooperative-matrix kernels.
bool supports_coopmat(const LowerContext& node, const AttentionParams& a);

// Returns the fastest configuration by a cost model fitted on an H200; nullopt if the device supports none. A kernel that spills registers
// is used only if all kernels spill.
std::optional<AttentionTile> choose_attention_tile(const LowerContext& node, const AttentionParams& a, bool is_mma);

// Returns all configurations of attention_mma, including a small one for tests. Empty if the device has no cooperative matrices and does
// not emulate them.
std::vector<AttentionTile> list_mma_attention_tiles(const LowerContext& node, const AttentionParams& a);

}  // namespace pumice
