// Commands that are one dispatch of a kernel of their own. Throw UnsupportedError where a buffer's range is larger than the device binds.
#pragma once

#include <memory>

#include "dispatch/kernel.h"
#include "dv/command.h"

namespace pumice::dv {

// The input at an even byte, the output at any: bytes beside it are not written.
Dispatch maximizer_dispatch(const std::shared_ptr<pumice::Context>& context, const MaximizerCommand& command);

uint32_t pixel_bytes(uint8_t format);  // of DMP_DV_RGBA8888, DMP_DV_RGB888, DMP_DV_RGBFP16 or DMP_DV_LUT

// Images at any byte; only the pixels of `wr` are written, whose rows must not overlap. What the interface leaves open:
// - Pixel (x, y) of the rectangle is the texture's at ((x + 1/2) * tex_width / rect_width, ...), where `transpose` is set with the
//   rectangle's x and y exchanged: rounded down, or bilinear between the middles of texels, with weights in 256ths and edges continued.
// - A texture has red, green, blue and alpha in this order, as has a palette's entry from its lowest byte on; an index counts modulo 32.
//   ridx .. aidx are the places of the colours in `rd` and `wr`; in pixels without alpha the other three close up.
// - Alpha is use_const_alpha's, else the pixel's, 255 where it has none. With both images the result is
//   (tex * alpha + rd * (255 - alpha)) / 255, rounded to nearest, whose own alpha is that of tex = 255.
// - stride_wr of 0 is that of rows without gaps.
Dispatch ipu_dispatch(const std::shared_ptr<pumice::Context>& context, const IpuCommand& command);

}  // namespace pumice::dv
