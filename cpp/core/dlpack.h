// DLPack 1.x structs and validation of arrays from other libraries. Independent of Python.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor_desc.h"

namespace pumice::dlpack {

constexpr int32_t kCpu = 1, kCuda = 2;
constexpr uint32_t kMajorVersion = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2, kPadded = 4;  // kPadded: sub-byte elements are padded to one byte

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
  int64_t *shape, *strides;  // strides are in elements; null means packed
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

// An array whose fields are consistent.
struct CheckedArray {
  TensorDesc desc;            // strides may be negative, unlike those of a tensor
  std::byte* data = nullptr;  // address of the element with index 0 on every axis; null only without elements
  Device device{};
  bool read_only = false;
};

// Validates the array in a capsule. Checks the rank before it reads sizes and strides, and reads no elements. `device`: the result of the
// producer's __dlpack_device__. Throws BindingError (K5) if the fields are inconsistent or out of range, or if CPU memory is not mapped;
// UnsupportedError for another major version, an unknown flag or an element type without a dtype.
CheckedArray check_managed(const Managed* managed, const Device& device);
CheckedArray check_managed(const VersionedManaged* managed, const Device& device);

}  // namespace pumice::dlpack
