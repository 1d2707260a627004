// SHA-256 (FIPS 180-4), the keys of content-addressed cache entries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pumice {

// Hashes a sequence of fields. Each field is preceded by its length, so that the same bytes split differently give another hash.
class Sha256 {
 public:
  Sha256& add_bytes(std::span<const std::byte> data);
  Sha256& add_field(std::string_view text);
  Sha256& add_field(uint64_t value);
  std::array<uint8_t, 32> digest();  // call once, at the end
  std::string hex();                 // digest() as 64 lower-case digits

 private:
  void process_block(const std::byte* data);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  uint64_t total_ = 0;
};

}  // namespace pumice
