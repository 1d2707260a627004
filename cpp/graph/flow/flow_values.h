// A value that a step of a routine reads or makes: a tensor on the device, and its elements where the host knows them.
#pragma once

#include <memory>
#include <optional>

#include "core/tensor_desc.h"
#include "graph/region/host_slot_pool.h"

namespace pumice {

struct FlowValue {
  TensorDesc desc;
  BufferRange range;
  std::shared_ptr<const HostSlot> slot;    // the owner of the memory; none for constants
  std::shared_ptr<const HostTensor> host;  // its elements, once they are known

  bool host_visible() const { return slot && slot->bytes; }
};

}  // namespace pumice
