// Fuzzes the reader of ONNX files that separates large tensors from the model: see core/files/tensor_data_stripper.h.
//
// Besides memory errors it checks that a skeleton's skeleton is itself, that a skeleton is no longer than its file plus the references to
// the tensors' data, and that a mapped file gives the same result as its bytes.
#include "core/files/tensor_data_stripper.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

namespace {

constexpr size_t kMinTensorBytes = 1024, kReferenceBytes = 256;

void require(bool condition) {
  if (!condition) std::abort();
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::optional<std::string> skeleton_of_file(std::span<const std::byte> bytes) {
  static const int descriptor = memfd_create("fuzz", 0);
  require(descriptor >= 0 && ftruncate(descriptor, 0) == 0);
  require(pwrite(descriptor, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  const auto file = pumice::MappedFile::map(descriptor, "fuzz");
  return pumice::strip_tensor_data(file->bytes(), file.get(), "weights");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto skeleton = pumice::strip_tensor_data(bytes, nullptr, "weights");
  if (size > 0) require(skeleton_of_file(bytes) == skeleton);
  if (!skeleton) return 0;
  require(skeleton->size() <= size + size / kMinTensorBytes * kReferenceBytes);
  const auto again = pumice::strip_tensor_data(bytes_of(*skeleton), nullptr, "weights");
  require(!again || *again == *skeleton);
  return 0;
}
