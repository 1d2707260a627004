// DLPack 1.x structs and validation of arrays from other libraries. Independent of Python.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor_desc.h"

namespace pumice::dlpack {

constexpr int32_t kCpu = 1, kCuda = 2;
constexpr uint32_t kMajorVersion = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2, kPadded = 4;  // kPadded: sub-byte elements are padded to one byte

enum DLDataTypeCode : uint8_t { signed_integer = 0, unsigned_integer = 1, real = 2, bfloat = 4, boolean = 6 };

struct DLDevice {
  int32_t type, id;
  bool operator==(const DLDevice&) const = default;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
  bool operator==(const DLDataType&) const = default;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t rank;
  DLDataType type;
  int64_t *shape, *strides;  // strides are in elements; null means packed
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor array;
  void* owner;
  void (*release)(DLManagedTensor*);
};
struct DLPackVersion {
  uint32_t major, minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* owner;
  void (*release)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor array;
};

DLDataType to_dl_data_type(DType dtype);

// A DLPack tensor that passed validation.
struct ValidatedTensor {
  TensorDesc desc;            // strides may be negative here
  std::byte* data = nullptr;  // address of the element with index 0 on every axis; null only if the tensor has no elements
  DLDevice device{};
  bool read_only = false;
};

// Validates the tensor in a capsule. Checks the rank before it reads sizes and strides, and reads no elements. `device`: the result of the
// producer's __dlpack_device__. Throws BindingError (K5) if the fields are inconsistent or out of range, or if CPU memory is not mapped;
// UnsupportedError for another major version, an unknown flag or an element type without a dtype.
ValidatedTensor validate_managed_tensor(const DLManagedTensor* managed, const DLDevice& device);
ValidatedTensor validate_managed_tensor(const DLManagedTensorVersioned* managed, const DLDevice& device);

}  // namespace pumice::dlpack
