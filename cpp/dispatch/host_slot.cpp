#include "dispatch/host_slot.h"

namespace pumice {

HostSlot make_host_slot(const std::shared_ptr<Context>& context, uint64_t bytes, Heap heap, std::shared_ptr<Buffer> device) {
  HostSlot slot;
  slot.device = device ? std::move(device) : Buffer::create(context, bytes);
  slot.host = slot.device->mappable() ? slot.device : Buffer::create(context, bytes, heap);
  slot.bytes = slot.host->map();
  return slot;
}

}  // namespace pumice
