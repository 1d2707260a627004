// Fuzzes the validation of DLPack capsules from other libraries: see core/dlpack.h.
//
// The input is a byte of flags, a device, the non-pointer fields of the structure, then sizes and strides. The shape and stride arrays have
// exactly `ndim` elements, to detect reads past the end, or none if ndim is not a possible rank.
#include "core/dlpack.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace {

using namespace pumice;

constexpr int kMaxPossibleRank = 64;

enum Choice : uint8_t { kVersioned = 1, kNullShape = 2, kHasStrides = 4, kNullData = 8, kRawAddress = 16, kNullStructure = 32 };

void require(bool condition) {
  if (!condition) std::abort();
}

// Reads zeros past the end of the input.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  template <typename T>
  T next() {
    T value{};
    const size_t bytes = std::min(sizeof value, size_);
    if (bytes > 0) std::memcpy(&value, data_, bytes);
    data_ += bytes;
    size_ -= bytes;
    return value;
  }

  std::vector<int64_t> numbers(int32_t count) {
    std::vector<int64_t> values(count > 0 && count <= kMaxPossibleRank ? static_cast<size_t>(count) : 0);
    for (int64_t& value : values) value = next<int64_t>();
    return values;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

template <typename Structure>
void check(const Structure* structure, const dlpack::DLDevice& device) {
  dlpack::ValidatedTensor result;
  try {
    result = dlpack::validate_managed_tensor(structure, device);
  } catch (const Error&) {
    return;
  }
  const dlpack::DLTensor& array = structure->array;
  require(result.desc.shape.size() == static_cast<size_t>(array.rank));
  for (const int64_t size : result.desc.shape) require(size >= 0);
  if (result.desc.elements() == 0) return;
  require(result.data != nullptr && array.data != nullptr);
  require(!array.strides || result.desc.strides == Strides(array.strides, array.strides + array.rank));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::vector<std::byte> memory(1 << 16);
  Reader reader(data, size);
  const auto choice = reader.next<uint8_t>();
  const auto device = reader.next<dlpack::DLDevice>();
  dlpack::DLManagedTensorVersioned versioned{};
  versioned.version = reader.next<dlpack::DLPackVersion>();
  versioned.flags = reader.next<uint64_t>();
  dlpack::DLTensor& array = versioned.array;
  array.device = reader.next<dlpack::DLDevice>();
  array.rank = reader.next<int32_t>();
  array.type = reader.next<dlpack::DLDataType>();
  array.byte_offset = reader.next<uint64_t>();
  const auto address = reader.next<uint64_t>();
  auto shape = reader.numbers(array.rank), strides = reader.numbers(array.rank);
  array.shape = choice & kNullShape ? nullptr : shape.data();
  array.strides = choice & kHasStrides ? strides.data() : nullptr;
  if (!(choice & kNullData)) array.data = choice & kRawAddress ? reinterpret_cast<void*>(address) : memory.data();
  const dlpack::DLManagedTensor managed{array, nullptr, nullptr};
  if (choice & kVersioned)
    check(choice & kNullStructure ? nullptr : &versioned, device);
  else
    check(choice & kNullStructure ? nullptr : &managed, device);
  return 0;
}
