// Helpers shared by the readers of raw commands.
#pragma once

#include <cstring>

#include "dv/commands/command.h"
#include "dv/memory/dv_error.h"

namespace pumice::dv {

// Bytes that a command needs at each of its memory fields.
using Needs = std::vector<std::pair<std::string, uint64_t>>;

class CommandReader {
 public:
  CommandReader(std::span<const std::byte> raw, const Resolve& resolve, bool is_strict) : strict(is_strict), raw_(raw), resolve_(resolve) {}
  // Constructs a reader that only collects the bytes required at each field.
  CommandReader(std::span<const std::byte> raw, Needs& needs, bool is_strict) : strict(is_strict), raw_(raw), needs_(&needs) {}

  // Returns the whole command as its structure. Throws Refusal if its size differs from the structure's.
  template <typename Raw>
  Raw whole() const {
    Raw value;
    if (raw_.size() != sizeof value) throw Refusal("header.size", std::to_string(sizeof value) + " bytes", std::to_string(raw_.size()));
    std::memcpy(&value, raw_.data(), sizeof value);
    return value;
  }

  // Returns the memory and offset of a field; without a memory if the structure has none. Throws Refusal (EINVAL) for an invalid handle.
  MemoryPlace place(const dmp_dv_buf& buffer, const std::string& slot) const {
    if (buffer.rsvd == 0 || needs_) return {nullptr, buffer.offs};
    auto memory = resolve_(buffer.rsvd);
    require(memory != nullptr, slot + ".mem", "the handle of a live Memory of this device", std::to_string(buffer.rsvd), EINVAL);
    return {std::move(memory), buffer.offs};
  }
  // `given`: the structure's field for a memory.
  void require_memory(const dmp_dv_buf& given, const std::string& slot, int code = kRefused) const {
    require(given.rsvd != 0 || needs_, slot + ".mem", "a memory", "none", code);
  }

  // Throws Refusal (EINVAL) unless the memory has that many bytes from the offset, a multiple of `alignment`.
  void check_place(const std::string& slot, const MemoryPlace& place, uint64_t bytes, uint64_t alignment = 2) const;

  // Throw Refusal unless `holds`; require_strict() does so only for strict lists.
  template <typename Given>
  void require(bool holds, const std::string& slot, const std::string& expected, const Given& given, int code = kRefused) const {
    if (!holds) throw Refusal(slot, expected, text(given), code);
  }
  template <typename Given>
  void require_strict(bool holds, const std::string& slot, const std::string& expected, const Given& given) const {
    if (strict && !holds) throw Refusal(slot, expected + " (hardware limit)", text(given), kRefused, "D5");
  }

  const bool strict;

 private:
  static std::string text(const std::string& given) { return given; }
  static std::string text(const char* given) { return given; }
  static std::string text(int64_t given) { return std::to_string(given); }

  std::span<const std::byte> raw_;
  Resolve resolve_;
  Needs* needs_ = nullptr;
};

constexpr uint64_t kVendorAlignment = 16;  // alignment of weights, tables and images

ConvCommand read_conv(const CommandReader& reader, const dmp_dv_cmdraw_conv_v0& raw);
ConvCommand read_conv_v1(const CommandReader& reader, const dmp_dv_cmdraw_conv_v1& raw);
FcCommand read_fc(const CommandReader& reader, const dmp_dv_cmdraw_fc_v0& raw);
MaximizerCommand read_maximizer(const CommandReader& reader, const dmp_dv_cmdraw_maximizer_v0& raw);
IpuCommand read_ipu(const CommandReader& reader, const dmp_dv_cmdraw_ipu_v0& raw);

}  // namespace pumice::dv
