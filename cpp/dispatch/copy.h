// Copies on the device.
#pragma once

#include <vector>

#include "dispatch/kernel/kernel.h"

namespace pumice {

// A copy of bytes as dispatches (copies are kernels: one kind of hazard, usable inside predicated blocks), cut where a range is larger
// than the device binds. Throws BindingError unless offsets and size are multiples of 4 and the sizes are equal.
std::vector<Dispatch> copy_dispatches(const BufferRange& source, const BufferRange& target);

}  // namespace pumice
