// A file as read-only memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace pumice {

// Pages of the mapping are read as they are touched; the file may be larger than memory. Unmapped when the last owner drops it.
class MappedFile {
 public:
  // Maps an open file, which may be closed afterwards. `name` is for messages. Throws Error where the system refuses.
  static std::shared_ptr<MappedFile> map(int descriptor, std::string name);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, bytes_}; }
  bool contains(const std::byte* data) const { return data >= data_ && data < data_ + bytes_; }
  // Copies the mapped bytes from `source` on, read past the mapping: its pages do not become part of the process. Throws Error where the
  // file has become shorter.
  void read(const std::byte* source, std::span<std::byte> target) const;

 private:
  MappedFile(std::string name, int descriptor, const std::byte* data, size_t bytes)
      : name_(std::move(name)), descriptor_(descriptor), data_(data), bytes_(bytes) {}

  std::string name_;
  int descriptor_;
  const std::byte* data_;
  size_t bytes_;
};

}  // namespace pumice
