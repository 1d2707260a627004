// Commands of the dv interface: read from their raw structures, checked, and with the sizes of all that they touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "dv/include/dmp_dv_cmdraw_v1.h"
#include "dv/memory.h"

namespace pumice::dv {

// Two numbers, of x and of y.
struct Pair {
  int64_t x = 1, y = 1;
  bool operator==(const Pair&) const = default;
};

struct Pads {
  int64_t left = 0, right = 0, top = 0, bottom = 0;
  bool operator==(const Pads&) const = default;
};

// The size of one image, or of all images of a batch that have this one.
struct Extent {
  int64_t w = 0, h = 0, c = 0;
  int64_t elements() const { return w * h * c; }
  bool operator==(const Extent&) const = default;
};

enum class Pooling : uint8_t { none = 0, maximum = 1, average = 2, upsample = 4 };
enum class Activation : uint8_t { none = 0, tanh = 1, leaky_relu = 2, sigmoid = 3, prelu = 4, elu = 5, relu6 = 6 };

// One run with its sizes.
struct Run {
  Extent input, convolved, output;  // convolved: before pooling
  bool convolves = false, depthwise = false, transposed = false, quantized = false;
  Pair kernel, stride, dilation, window, step;  // window and step: of the pooling
  Pads conv_pads, pool_pads;
  Pooling pooling = Pooling::none;
  float factor = 1;  // of an average pooling's sums
  Activation activation = Activation::none;
  float slope = 0;
  bool rectifies = false, normalizes = false, adds = false;
  bool from_input = false;                        // else from the run before
  bool to_memory = false;                         // else to the run after
  int64_t output_element = 0, added_element = 0;  // of an image, where its part of output_buf and eltwise_buf begins
  MemoryPlace weights;
  uint64_t weight_bytes = 0;

  bool dilates() const { return dilation.x > 1 || dilation.y > 1; }
  // What eltwise_buf is added to: a convolution before it is pooled by maxima or upsampled, or an average.
  const Extent& summed() const { return pooling == Pooling::average ? output : convolved; }
};

struct ConvCommand {
  MemoryPlace input, output, added;  // added: no memory: the input
  int64_t images = 1;
  Extent extent;  // of the input
  std::vector<Run> runs;
  int64_t output_elements = 0, added_elements = 0;  // of an image
  MemoryPlace table;                                // of bytes that are the input
  bool to_bgr = false;
};

struct FcCommand {
  MemoryPlace weights, input, output;
  int64_t inputs = 0, outputs = 0;
  bool quantized = false;
  Activation activation = Activation::none;
  float slope = 0;
  uint64_t weight_bytes = 0;
};

struct MaximizerCommand {
  MemoryPlace input, output;
  int64_t width = 0, height = 0, classes = 0;
};

struct IpuCommand {
  MemoryPlace tex, rd, wr;
  dmp_dv_cmdraw_ipu_v0 raw{};
};

using Command = std::variant<ConvCommand, FcCommand, IpuCommand, MaximizerCommand>;
int device_type(const Command& command);
// Every memory that it names.
std::vector<std::shared_ptr<Memory>> memories_of(const Command& command);

// The memory that a raw structure means by what it has in place of one (never 0). Throws where there is none.
using Resolve = std::function<std::shared_ptr<Memory>(uint64_t handle)>;

// Throws Refusal, which names the run and the field. `strict`: also where the vendor's hardware does not take it.
Command read_command(std::span<const std::byte> raw, const Resolve& resolve, bool strict);

// Bytes of a tensor of float16.
uint64_t half_bytes(int64_t elements);

}  // namespace pumice::dv
