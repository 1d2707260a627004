#include "graph/flow/device_loop.h"

#include "core/error.h"
#include "graph/flow/rounds_loop.h"
#include "graph/flow/scalar_loop.h"

namespace pumice {

void DeviceLoop::make_status(const std::shared_ptr<Context>& context, size_t counters) {
  stride_ = 2 + counters;
  status_buffer_ = Buffer::create(context, 2 * stride_ * sizeof(uint32_t), Heap::readback);
  status_ = reinterpret_cast<const uint32_t*>(status_buffer_->map());
}

std::unique_ptr<DeviceLoop> DeviceLoop::create(const FlowProgram& program, const RoutineStep& step, std::span<const FlowValue> values,
                                               SlotPool& pool, const RecordingOptions& options) {
  try {
    if (auto loop = ScalarLoop::create(program, step, values, options)) return loop;
    return RoundsLoop::create(program, step, values, pool, options);
  } catch (const GraphError&) {  // of a body that may never run, or a branch: the host finds out
  } catch (const BindingError&) {
  } catch (const UnsupportedError&) {
  }
  return {};
}

}  // namespace pumice
