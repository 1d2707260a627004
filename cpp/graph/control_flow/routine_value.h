// A value of a routine: a tensor on the device and, if known, its elements on the host.
#pragma once

#include <memory>
#include <optional>

#include "core/tensor_desc.h"
#include "graph/region/staging_slot_pool.h"

namespace pumice {

struct RoutineValue {
  TensorDesc desc;
  BufferRange range;
  std::shared_ptr<const StagingSlot> slot;  // owner of the memory; null for constants
  std::shared_ptr<const HostTensor> host;   // elements, if known

  bool is_host_visible() const { return slot && slot->bytes; }
};

}  // namespace pumice
