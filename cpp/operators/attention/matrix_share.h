// How an attention's work is shared out among the subgroups of matrix units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operators/attention/attention_terms.h"

namespace pumice {

inline constexpr int64_t kQuadsSubgroup = 32;  // invocations of a subgroup of attention_quads

struct MatrixShare {
  int64_t subgroups = 0, keys = 0;  // of a workgroup; keys of a step
  int64_t strips = 1;               // of a subgroup, 16 rows each; two of them have two buffers of keys and values in shared memory
  int64_t together = 1;             // heads whose tiles of the most keys come first, those of all of them
  int64_t parts = 1;                // of the keys
  int64_t shares = 1;               // subgroups of a workgroup that have the same rows, and other keys of a turn
  double microseconds = 0;          // as the model of a device has it

  std::string spilled = {};  // the name of the quicker one that it stands for, since that one's kernel spills

  int64_t rows() const { return subgroups / shares * strips * 16; }
  std::string name(bool is_quads) const;  // of the variant
};

// Whether heads are aligned eights, and short enough for the kernels on matrix units.
bool suits_matrices(const LowerContext& node, const Attention& a);

// The quickest share by a model of what was measured on an H200; none where the device has no room for any. One whose kernel is known to
// spill is taken only where all others spill too.
std::optional<MatrixShare> matrix_share(const LowerContext& node, const Attention& a, bool is_quads);

// All shares that attention_quads can be told to take, where the device has its matrix units or tests have them emulated: those that it
// takes for some heads, whatever the size of these, and a small one for tests.
std::vector<MatrixShare> quads_shares(const LowerContext& node, const Attention& a);

}  // namespace pumice
