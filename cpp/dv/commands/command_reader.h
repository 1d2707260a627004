// Helpers shared by the readers of raw commands.
#pragma once

#include <cstring>

#include "dv/commands/command.h"
#include "dv/memory/dv_error.h"

namespace pumice::dv {

// Bytes that a command needs at each of its memory fields.
using FieldBytes = std::vector<std::pair<std::string, uint64_t>>;

class CommandReader {
 public:
  CommandReader(std::span<const std::byte> raw, const MemoryResolver& resolve, bool is_strict)
      : strict(is_strict), raw_(raw), resolve_(resolve) {}
  // Constructs a reader that only collects the bytes required at each field.
  CommandReader(std::span<const std::byte> raw, FieldBytes& field_bytes, bool is_strict)
      : strict(is_strict), raw_(raw), field_bytes_(&field_bytes) {}

  // Returns the whole command as its structure. Throws DvError if its size differs from the structure's.
  template <typename Raw>
  Raw parse_struct() const {
    Raw value;
    if (raw_.size() != sizeof value) throw DvError("header.size", std::to_string(sizeof value) + " bytes", std::to_string(raw_.size()));
    std::memcpy(&value, raw_.data(), sizeof value);
    return value;
  }

  // Returns the memory and offset of a field; the memory is null if the field is unset. Throws DvError (EINVAL) for an invalid handle.
  MemoryAddress read_address(const dmp_dv_buf& buffer, const std::string& slot) const {
    if (buffer.rsvd == 0 || field_bytes_) return {nullptr, buffer.offs};
    auto memory = resolve_(buffer.rsvd);
    require(memory != nullptr, slot + ".mem", "the handle of a live Memory of this device", std::to_string(buffer.rsvd), EINVAL);
    return {std::move(memory), buffer.offs};
  }
  // Throws DvError if the command does not set this memory field.
  void require_memory(const dmp_dv_buf& field, const std::string& slot, int code = kRejected) const {
    require(field.rsvd != 0 || field_bytes_, slot + ".mem", "a memory", "none", code);
  }

  // Throws DvError (EINVAL) if the offset is not a multiple of `alignment`, or if fewer than `bytes` bytes follow it in the memory.
  void check_address(const std::string& slot, const MemoryAddress& address, uint64_t bytes, uint64_t alignment = 2) const;

  // Throw DvError if `holds` is false; require_strict() throws only for strict lists.
  template <typename Value>
  void require(bool holds, const std::string& slot, const std::string& expected, const Value& actual, int code = kRejected) const {
    if (!holds) throw DvError(slot, expected, to_text(actual), code);
  }
  template <typename Value>
  void require_strict(bool holds, const std::string& slot, const std::string& expected, const Value& actual) const {
    if (strict && !holds) throw DvError(slot, expected + " (hardware limit)", to_text(actual), kRejected, "D5");
  }

  const bool strict;

 private:
  static std::string to_text(const std::string& actual) { return actual; }
  static std::string to_text(const char* actual) { return actual; }
  static std::string to_text(int64_t actual) { return std::to_string(actual); }

  std::span<const std::byte> raw_;
  MemoryResolver resolve_;
  FieldBytes* field_bytes_ = nullptr;
};

constexpr uint64_t kVendorAlignment = 16;  // alignment of weights, tables and images

ConvCommand parse_conv(const CommandReader& reader, const dmp_dv_cmdraw_conv_v0& raw);
ConvCommand parse_conv_v1(const CommandReader& reader, const dmp_dv_cmdraw_conv_v1& raw);
FcCommand parse_fc(const CommandReader& reader, const dmp_dv_cmdraw_fc_v0& raw);
ArgmaxCommand parse_argmax(const CommandReader& reader, const dmp_dv_cmdraw_maximizer_v0& raw);
IpuCommand parse_ipu(const CommandReader& reader, const dmp_dv_cmdraw_ipu_v0& raw);

}  // namespace pumice::dv
