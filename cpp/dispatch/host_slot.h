// Memory that the host fills or reads and a recording works on: one buffer where the host sees the device's memory, else two and a copy.
#pragma once

#include <cstddef>
#include <memory>

#include "device/buffer.h"

namespace pumice {

struct HostSlot {
  std::shared_ptr<Buffer> host, device;
  std::byte* bytes = nullptr;  // of the host's

  bool is_copied() const { return host != device && host->bytes() > 0; }
  BufferRange host_range() const { return {host, 0, host->bytes()}; }
  BufferRange device_range() const { return {device, 0, device->bytes()}; }
};

// `heap`: where the host's part lies, upload or readback. `device`: memory that is there already.
HostSlot make_host_slot(const std::shared_ptr<Context>& context, uint64_t bytes, Heap heap, std::shared_ptr<Buffer> device = {});

}  // namespace pumice
