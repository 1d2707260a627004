#include "graph/control_flow/device_loop.h"

#include <cstring>

namespace pumice {

void DeviceLoop::allocate_status(const std::shared_ptr<Context>& context, size_t counters) {
  stride_ = 2 + counters;
  status_buffer_ = Buffer::create(context, 2 * stride_ * sizeof(uint32_t), Heap::readback);
  if (context->compile_only()) std::memset(status_buffer_->map(), 0, status_buffer_->bytes());  // no round ever writes it: 0 trips
  status_ = reinterpret_cast<const uint32_t*>(status_buffer_->map());
}

}  // namespace pumice
