// A value of a routine: a tensor on the device, and its elements if the host knows them.
#pragma once

#include <memory>
#include <optional>

#include "core/tensor_desc.h"
#include "graph/region/host_slot_pool.h"

namespace pumice {

struct RoutineValue {
  TensorDesc desc;
  BufferRange range;
  std::shared_ptr<const HostSlot> slot;    // owns the memory; null for constants
  std::shared_ptr<const HostTensor> host;  // elements, if known

  bool host_visible() const { return slot && slot->bytes; }
};

}  // namespace pumice
