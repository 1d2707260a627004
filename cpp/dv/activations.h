// Activations on the device, as operands of operators.
#pragma once

#include <optional>
#include <vector>

#include "dv/command_recorder.h"
#include "dv/commands/conv_geometry.h"

namespace pumice::dv {

// Images of the same size. Tensor axes are [N, C, W, H]: x precedes y as in WHC8. A pixel's channels, or its groups of 8, are therefore
// contiguous in both layouts, and the pixel order is the same.
struct Activations {
  DType dtype = DType::float16;
  uint32_t images = 1;
  Extent extent;
  bool grouped = true;  // WHC8; else channels last
  uint64_t stride = 0;  // elements between images
  BufferRange range;

  bool is_packed() const { return images == 1 || stride == extent.elements(); }
  bool is_channels_last() const;  // also true for WHC8 with a single group
  Operand as_image() const;       // channels-last view, [N, C, W, H]
  // Views WHC8 as single-group images, [N * groups, 8, W, H]; nullopt if they are not contiguous.
  std::optional<Operand> as_planes() const;
  // Returns tensors [N, groups, channels per group, W, H]; a shorter last group is a separate tensor. `doubled`: the last axes are W / 2,
  // 2, H / 2, 2.
  std::vector<Operand> as_groups(bool doubled = false) const;
  std::vector<Operand> as_upsampled_groups() const;  // like as_groups(true), with each pixel repeated along both axes, for upsampling by 2
};

// Returns contiguous activations in new scratch memory.
Activations allocate_scratch_activations(Recorder& recorder, DType dtype, uint32_t images, const Extent& extent, bool grouped);

// Evaluates `expression` elementwise. in0, in1, ... are the inputs, followed by per-channel float16 values. The inputs have the output's
// size or, for upsampling (`doubled`), half of it.
void record_elementwise_expression(Recorder& recorder, const Expression& expression, const std::vector<Activations>& inputs,
                                   const Activations& output, const std::vector<BufferRange>& channel_values = {}, bool doubled = false);

}  // namespace pumice::dv
