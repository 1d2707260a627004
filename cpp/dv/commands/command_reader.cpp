#include "dv/commands/command_reader.h"

namespace pumice::dv {

void CommandReader::check_address(const std::string& slot, const MemoryAddress& address, uint64_t bytes, uint64_t alignment) const {
  if (field_bytes_) return field_bytes_->emplace_back(slot, bytes), void();
  if (!address.memory) throw DvError(slot + ".mem", "a memory", "none", EINVAL);
  if (address.offset % 2 != 0) throw DvError(slot + ".offs", "an even offset", std::to_string(address.offset), EINVAL);
  if (strict && address.offset % alignment != 0)
    throw DvError(slot + ".offs", "a multiple of " + std::to_string(alignment) + " (hardware limit)", std::to_string(address.offset),
                  EINVAL, "D5");
  const uint64_t size = address.memory->bytes();
  if (address.offset >= size)
    throw DvError(slot + ".offs", "an offset below the " + std::to_string(size) + " bytes of the memory", std::to_string(address.offset),
                  EINVAL);
  if (size - address.offset < bytes)
    throw DvError(slot, std::to_string(bytes) + " bytes from offset " + std::to_string(address.offset),
                  std::to_string(size - address.offset), EINVAL);
}

}  // namespace pumice::dv
