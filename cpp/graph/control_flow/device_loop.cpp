#include "graph/control_flow/device_loop.h"

namespace pumice {

void DeviceLoop::allocate_status(const std::shared_ptr<Context>& context, size_t counters) {
  stride_ = 2 + counters;
  status_buffer_ = Buffer::create(context, 2 * stride_ * sizeof(uint32_t), Heap::readback);
  status_ = reinterpret_cast<const uint32_t*>(status_buffer_->map());
}

}  // namespace pumice
