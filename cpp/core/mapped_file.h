// A read-only memory-mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace pumice {

// Pages are loaded on access, so the file may be larger than memory. The last owner unmaps it.
class MappedFile {
 public:
  // Maps an open file; the caller may close the descriptor afterwards. `name` is used in messages. Throws Error if mmap() fails.
  static std::shared_ptr<MappedFile> map(int descriptor, std::string name);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, bytes_}; }
  bool contains(const std::byte* data) const { return data >= data_ && data < data_ + bytes_; }
  // Copies bytes starting at `source`, a pointer into the mapping, with pread(), so that they do not add to the resident memory of the
  // process. Throws Error if the file was truncated.
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
