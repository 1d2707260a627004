// Packed weights of one run as the operators take them.
#pragma once

#include "core/tensor_desc.h"
#include "dv/command.h"

namespace pumice::dv {

class ConvWeights {
 public:
  ConvWeights(const Run& run, std::span<const std::byte> packed);
  // float16 [out, in, x, y]; `transposed`: of a transposed convolution, [in, out, x, y], turned by 180 degrees.
  HostTensor values(bool transposed) const;
  HostTensor bias() const;    // of each output channel
  HostTensor slopes() const;  // of PReLU

 private:
  ConvDims dims_;
  bool depthwise_;
  std::vector<uint16_t> values_, bias_, slopes_;
};

}  // namespace pumice::dv
