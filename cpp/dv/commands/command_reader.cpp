#include "dv/commands/command_reader.h"

namespace pumice::dv {

void CommandReader::check_place(const std::string& slot, const MemoryPlace& place, uint64_t bytes, uint64_t alignment) const {
  if (needs_) return needs_->emplace_back(slot, bytes), void();
  if (!place.memory) throw Refusal(slot + ".mem", "a memory", "none", EINVAL);
  if (place.offset % 2 != 0) throw Refusal(slot + ".offs", "an even offset", std::to_string(place.offset), EINVAL);
  if (strict && place.offset % alignment != 0)
    throw Refusal(slot + ".offs", "a multiple of " + std::to_string(alignment) + " (hardware limit)", std::to_string(place.offset), EINVAL,
                  "D5");
  const uint64_t size = place.memory->bytes();
  if (place.offset >= size)
    throw Refusal(slot + ".offs", "an offset below the " + std::to_string(size) + " bytes of the memory", std::to_string(place.offset),
                  EINVAL);
  if (size - place.offset < bytes)
    throw Refusal(slot, std::to_string(bytes) + " bytes from offset " + std::to_string(place.offset) + " on",
                  std::to_string(size - place.offset), EINVAL);
}

}  // namespace pumice::dv
