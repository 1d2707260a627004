// Parsed and checked commands of the dv interface.
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

#include "dv/commands/conv_geometry.h"
#include "dv/include/dmp_dv_cmdraw_v1.h"
#include "dv/memory/memory.h"

namespace pumice::dv {

// Flag in a convolution command's input_circular_offset: tensors have x innermost, and kernels were packed with x and y swapped. The other
// bits are the number of images.
inline constexpr uint16_t kWeightsTransposed = 0x8000;

enum class Activation : uint8_t { none = 0, tanh = 1, leaky_relu = 2, sigmoid = 3, prelu = 4, elu = 5, relu6 = 6 };

// One run of a convolution command, with its sizes.
struct ConvRun {
  ConvRunGeometry shape;
  Extent input, conv_extent, output;  // conv_extent: output of the convolution, before pooling
  float factor = 1;                   // scales the sum of an average pooling
  Activation activation = Activation::none;
  float slope = 0;
  bool has_abs = false, has_lrn = false, has_eltwise_add = false;
  bool from_input = false;                           // reads the command's input; if false, the previous run's output
  bool to_memory = false;                            // writes to output_buf; if false, the output is only the next run's input
  uint64_t output_element = 0, eltwise_element = 0;  // element offsets of its slices in an image of output_buf and eltwise_buf
  MemoryAddress weights;

  bool has_conv() const { return shape.conv != ConvKind::none; }
  // Size of the tensor that eltwise_buf is added to: the average pooling's output, else the convolution's output before pooling or
  // upsampling.
  const Extent& eltwise_extent() const { return shape.pool == PoolKind::average ? output : conv_extent; }
};

// A command with x innermost ("weights transposed") is stored as the equivalent plain command, with x and y swapped in tensors and kernels.
struct ConvCommand {
  MemoryAddress input, output, eltwise;  // if `eltwise` has no memory, the elementwise addition adds the input
  bool is_transposed = false;
  uint32_t images = 1;
  Extent extent;  // size of an input image
  std::vector<ConvRun> runs;
  uint64_t output_elements = 0, eltwise_elements = 0;  // elements per image
  MemoryAddress table;                                 // lookup table of a uint8 input
  bool to_bgr = false;
};

struct FcCommand {
  MemoryAddress weights, input, output;
  uint32_t inputs = 0, outputs = 0;
  bool quantized = false;
  Activation activation = Activation::none;
  float slope = 0;
};

struct ArgmaxCommand {
  MemoryAddress input, output;
  uint32_t width = 0, height = 0, classes = 0;
};

struct IpuCommand {
  MemoryAddress tex, rd, wr;
  dmp_dv_cmdraw_ipu_v0 raw{};

  uint64_t output_row_bytes() const;
  int64_t output_stride() const;  // row stride in bytes; 0 in the struct means tightly packed
  MemoryRange output_range() const { return {wr, output_row_bytes(), raw.rect_height, output_stride()}; }
};

uint64_t get_bytes_per_pixel(uint8_t format);  // bytes per pixel of DMP_DV_RGBA8888, DMP_DV_RGB888, DMP_DV_RGBFP16 or DMP_DV_LUT

using Command = std::variant<ConvCommand, FcCommand, IpuCommand, ArgmaxCommand>;
int get_device_type(const Command& command);
// Returns the range that a command may write.
MemoryRange get_written_range(const Command& command);

// Resolves a raw structure's handle (never 0) to a memory; null if unknown.
using MemoryResolver = std::function<std::shared_ptr<Memory>(uint64_t handle)>;

FcDims make_weight_dims(const FcCommand& command);

}  // namespace pumice::dv
