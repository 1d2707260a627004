// DLPack's structures, version 1, and the check of those that another library gives. Needs no Python.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor_desc.h"

namespace pumice::dlpack {

constexpr int32_t kCpu = 1, kCuda = 2;
constexpr uint32_t kMajorVersion = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2, kPadded = 4;  // kPadded: elements of less than a byte have a byte each

enum Code : uint8_t { signed_integer = 0, unsigned_integer = 1, real = 2, bfloat = 4, boolean = 6 };

struct Device {
  int32_t type, id;
  bool operator==(const Device&) const = default;
};
struct ElementType {
  uint8_t code, bits;
  uint16_t lanes;
  bool operator==(const ElementType&) const = default;
};
struct Array {
  void* data;
  Device device;
  int32_t rank;
  ElementType type;
  int64_t *shape, *strides;  // in elements; strides may be null: packed
  uint64_t byte_offset;
};
struct Managed {
  Array array;
  void* owner;
  void (*release)(Managed*);
};
struct Version {
  uint32_t major, minor;
};
struct VersionedManaged {
  Version version;
  void* owner;
  void (*release)(VersionedManaged*);
  uint64_t flags;
  Array array;
};

ElementType element_type(DType dtype);

// An array whose fields do not contradict each other.
struct CheckedArray {
  TensorDesc desc;            // its strides may be negative, as no tensor's are
  std::byte* data = nullptr;  // of the element with index 0 on every axis; null only for an array without elements
  Device device{};
  bool read_only = false;
};

// The array in a capsule's structure. Reads sizes and strides only after their count is known to be possible, and no element.
// `device`: what the producer's __dlpack_device__ gave.
// Throws BindingError (K5) for fields that contradict each other or are out of range, and for memory of the CPU that is not mapped;
// UnsupportedError for another major version, a flag that is not known, and elements that no dtype has.
CheckedArray checked(const Managed* managed, const Device& device);
CheckedArray checked(const VersionedManaged* managed, const Device& device);

}  // namespace pumice::dlpack
