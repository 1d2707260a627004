// Copies between buffers on the device.
#pragma once

#include <vector>

#include "dispatch/kernel/kernel.h"

namespace pumice {

// Returns dispatches that copy a range, split if it exceeds the device's maximum binding size. Copies run as compute kernels, so that they
// need only compute barriers and work inside conditional regions. Throws BindingError unless offsets and size are multiples of 4 and the
// sizes are equal.
std::vector<Dispatch> make_copy_dispatches(const BufferRange& source, const BufferRange& target);

}  // namespace pumice
