// Activations on the device, as the operators see them.
#pragma once

#include <optional>
#include <vector>

#include "dv/commands/geometry.h"
#include "dv/recorder.h"

namespace pumice::dv {

// Images of one size. The axes of their tensors are [N, C, W, H]: x comes before y, as in WHC8, so that with channels last a pixel of
// either layout has its channels, or groups of 8 of them, side by side, in one order of pixels.
struct Activations {
  DType dtype = DType::float16;
  uint32_t images = 1;
  Extent extent;
  bool grouped = true;  // WHC8; else channels last
  uint64_t stride = 0;  // elements from one image to the next
  BufferRange range;

  bool is_packed() const { return images == 1 || stride == extent.elements(); }
  bool is_channels_last() const;  // also WHC8 of a single group
  Operand image() const;          // [N, C, W, H] of channels last
  // WHC8 as images of one group each, [N * groups, 8, W, H]; none where they do not follow one another.
  std::optional<Operand> planes() const;
  // Tensors [N, groups, channels of a group, W, H]; a last group that has fewer channels than the others is a tensor of its own. `doubled`:
  // with the axes W / 2, 2, H / 2, 2 at the end.
  std::vector<Operand> groups(bool doubled = false) const;
  std::vector<Operand> half_of_doubled() const;  // the same of half the size, each pixel seen twice on either axis
};

// Scratch memory for images one after the other.
Activations scratch_activations(Recorder& recorder, DType dtype, uint32_t images, const Extent& extent, bool grouped);

// Writes `expression` of every element. It is over in0, in1, .. for the inputs, followed by values of float16 for each channel. The inputs
// have the output's size or, to be upsampled (`doubled`), half of it.
void map_activations(Recorder& recorder, const Expression& expression, const std::vector<Activations>& inputs, const Activations& output,
                     const std::vector<BufferRange>& by_channel = {}, bool doubled = false);

}  // namespace pumice::dv
