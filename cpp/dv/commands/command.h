// Commands of the dv interface: read from their raw structures, checked, and with the sizes of all that they touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dv/commands/geometry.h"
#include "dv/include/dmp_dv_cmdraw_v1.h"
#include "dv/memory/memory.h"

namespace pumice::dv {

// The bit of a convolution command's input_circular_offset that says that its tensors lie with x innermost, and that its kernels were
// packed with x and y exchanged. The other bits are the number of images.
inline constexpr uint16_t kWeightsTransposed = 0x8000;

enum class Activation : uint8_t { none = 0, tanh = 1, leaky_relu = 2, sigmoid = 3, prelu = 4, elu = 5, relu6 = 6 };

// One run with its sizes.
struct Run {
  RunGeometry shape;
  Extent input, convolved, output;  // convolved: before pooling
  float factor = 1;                 // multiplies an average pooling's sums
  Activation activation = Activation::none;
  float slope = 0;
  bool rectifies = false, normalizes = false, adds = false;
  bool from_input = false;                         // else from the run before
  bool to_memory = false;                          // else to the run after
  uint64_t output_element = 0, added_element = 0;  // elements of an image at which its part of output_buf and eltwise_buf begins
  MemoryPlace weights;

  bool convolves() const { return shape.conv != ConvKind::none; }
  // The extent that eltwise_buf is added to: that of the average for an average pooling, else that of the convolution before it is pooled
  // or upsampled.
  const Extent& summed() const { return shape.pool == PoolKind::average ? output : convolved; }
};

// A command whose tensors lie with x innermost ("weights transposed") is held as the plain command of the transposed tensors: all that has
// an x and a y, its kernels included, has them exchanged here.
struct ConvCommand {
  MemoryPlace input, output, added;  // added: no memory: the input
  bool is_transposed = false;
  uint32_t images = 1;
  Extent extent;  // the size of an image of the input
  std::vector<Run> runs;
  uint64_t output_elements = 0, added_elements = 0;  // elements of one image
  MemoryPlace table;                                 // the table of an input of bytes
  bool to_bgr = false;
};

struct FcCommand {
  MemoryPlace weights, input, output;
  uint32_t inputs = 0, outputs = 0;
  bool quantized = false;
  Activation activation = Activation::none;
  float slope = 0;
};

struct MaximizerCommand {
  MemoryPlace input, output;
  uint32_t width = 0, height = 0, classes = 0;
};

struct IpuCommand {
  MemoryPlace tex, rd, wr;
  dmp_dv_cmdraw_ipu_v0 raw{};

  uint64_t written_row_bytes() const;
  int64_t written_stride() const;  // bytes from one row to the next; rows without gaps where the structure has 0
  MemoryRange written() const { return {wr, written_row_bytes(), raw.rect_height, written_stride()}; }
};

uint64_t pixel_bytes(uint8_t format);  // bytes of a pixel of DMP_DV_RGBA8888, DMP_DV_RGB888, DMP_DV_RGBFP16 or DMP_DV_LUT

using Command = std::variant<ConvCommand, FcCommand, IpuCommand, MaximizerCommand>;
int device_type(const Command& command);
// The whole range that a command may write.
MemoryRange written_by(const Command& command);

// The memory that a raw structure means by what it has in place of one (never 0); null where there is none.
using Resolve = std::function<std::shared_ptr<Memory>(uint64_t handle)>;

FcDims weight_dims(const FcCommand& command);

}  // namespace pumice::dv
