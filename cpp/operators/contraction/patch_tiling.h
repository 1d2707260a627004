// Chooses how conv_patch, which holds what all taps of a convolution read in shared memory, shares out a convolution of few channels.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/contraction/contraction_terms.h"

namespace pumice {

// The tile that a workgroup of conv_patch computes, the neighbouring pixels of an invocation, and the input channels that it has in shared
// memory: `chunk` of them for each of `split` parts of its invocations.
struct PatchTiling {
  int64_t rows, columns, channels, pixels, split = 1, chunk = 1;

  int64_t invocations() const { return rows * columns / pixels * (channels / 4) * split; }
  int64_t tiles(const Contraction& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, columns); }
  int64_t area(const Contraction& c) const;          // elements of a channel that lie in shared memory
  int64_t shared_bytes(const Contraction& c) const;  // those, or sums on their way out
  int64_t rounds(const Contraction& c) const { return ceil_div(c.weights.channels_in, split * chunk); }
  int64_t loads(const Contraction& c) const;  // of an invocation in a round, in fours of channels where these lie together
  // How often an invocation's loops run at most.
  int64_t iterations(const Contraction& c) const {
    const int64_t row = 2 + c.taps_w * (1 + pixels) + area(c) / (rows * columns);
    return rounds(c) * (2 + 6 * loads(c) + chunk * (1 + c.taps_h * row)) + pixels * (4 + split) + pooling_iterations(c);
  }
  int64_t pooling_iterations(const Contraction& c) const {
    if (!pools(c)) return 0;
    const int64_t windows = rows * columns * (channels / 4) / (c.pool.rows * c.pool.columns);
    return ceil_div(windows, invocations()) * (5 + c.pool.rows * (1 + c.pool.columns));
  }
};

// The tilings that the device can run, of whole windows where they are pooled; empty for contractions that are no convolution of few
// channels with several taps.
std::vector<PatchTiling> patch_tilings(const NodeContext& node, const Contraction& c);

// The one for convolutions of so many taps that it is the quickest kernel, where there are no matrix units for them. Of one that pools:
// the best tiling, whether another kernel with a pooling of its own behind it is quicker or not.
std::optional<PatchTiling> patch_tiling_of(const NodeContext& node, const Contraction& c);

}  // namespace pumice
