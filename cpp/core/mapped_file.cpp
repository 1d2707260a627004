#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace pumice {

std::shared_ptr<MappedFile> MappedFile::map(int descriptor, std::string name) {
  const auto refuse = [&](const char* call) -> Error { return Error("'" + name + "': " + call + ": " + std::strerror(errno)); };
  struct stat status{};
  if (fstat(descriptor, &status) != 0) throw refuse("fstat");
  const auto bytes = static_cast<size_t>(status.st_size);
  const int duplicate = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0) throw refuse("fcntl");
  void* data = bytes ? mmap(nullptr, bytes, PROT_READ, MAP_SHARED, duplicate, 0) : nullptr;  // mmap() rejects length 0
  if (data == MAP_FAILED) {
    const Error error = refuse("mmap");
    close(duplicate);
    throw error;
  }
  return std::shared_ptr<MappedFile>(new MappedFile(std::move(name), duplicate, static_cast<const std::byte*>(data), bytes));
}

MappedFile::~MappedFile() {
  if (bytes_) munmap(const_cast<std::byte*>(data_), bytes_);
  close(descriptor_);
}

void MappedFile::read(const std::byte* source, std::span<std::byte> target) const {
  auto offset = static_cast<uint64_t>(source - data_);
  while (!target.empty()) {
    const ssize_t done = pread(descriptor_, target.data(), target.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw Error("'" + name_ + "': pread: " + std::strerror(errno));
    if (done == 0)
      throw Error("'" + name_ + "': expected " + std::to_string(bytes_) + " bytes; given a file that ends at " + std::to_string(offset) +
                  ", truncated since it was opened");
    offset += static_cast<uint64_t>(done);
    target = target.subspan(static_cast<size_t>(done));
  }
}

}  // namespace pumice
