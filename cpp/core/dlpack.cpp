#include "core/dlpack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "core/error.h"

namespace pumice::dlpack {
namespace {

[[noreturn]] void throw_invalid_array(const std::string& expected, const std::string& description) {
  throw BindingError("K5", "array", "", "a DLPack array with " + expected, description);
}

std::string to_string(const DLDevice& device) {
  return "(" + std::to_string(device.type) + ", " + std::to_string(device.id) + ")";
}

DType to_dtype(const DLDataType& type) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (const auto dtype = static_cast<DType>(i); bits(dtype) >= 8 && to_dl_data_type(dtype) == type) return dtype;
  throw UnsupportedError("from_dlpack: expected elements of a dtype of at least 8 bits, given DLPack's code " + std::to_string(type.code) +
                         " with " + std::to_string(type.bits) + " bits in " + std::to_string(type.lanes) + " lanes");
}

// Libraries disagree on the device id of the CPU, so it is not compared.
void check_device(const DLTensor& array, const DLDevice& device) {
  if (array.device.type == device.type && (device.type == kCpu || array.device.id == device.id)) return;
  throw_invalid_array("the device returned by __dlpack_device__, " + to_string(device), "a capsule of device " + to_string(array.device));
}

Shape read_shape(const DLTensor& array) {
  if (array.rank < 0 || array.rank > kMaxRank)
    throw_invalid_array("0 to " + std::to_string(kMaxRank) + " axes", "ndim " + std::to_string(array.rank));
  if (array.rank == 0) return {};
  if (!array.shape) throw_invalid_array("a shape of " + std::to_string(array.rank) + " sizes", "a null pointer as its shape");
  Shape shape(array.shape, array.shape + array.rank);
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) throw_invalid_array("non-negative sizes", "shape " + pumice::to_string(shape));
    if (__builtin_mul_overflow(count, size, &count)) count = kMaxElements + 1;
  }
  if (std::ranges::find(shape, 0) != shape.end()) return shape;
  if (count > kMaxElements)
    throw_invalid_array("at most " + std::to_string(kMaxElements) + " elements", "shape " + pumice::to_string(shape));
  return shape;
}

// Byte range of a tensor relative to element 0: `first` <= 0 is the first byte, `end` is one past the last.
struct ByteExtent {
  int64_t first = 0, end = 0;
};

ByteExtent compute_byte_extent(const TensorDesc& desc) {
  const int64_t width = bits(desc.dtype) / 8;
  ByteExtent extent{0, width};
  for (size_t axis = 0; axis < desc.shape.size(); ++axis) {
    int64_t distance = 0;
    int64_t& bound = desc.strides[axis] < 0 ? extent.first : extent.end;
    if (__builtin_mul_overflow(desc.strides[axis], desc.shape[axis] - 1, &distance) || __builtin_mul_overflow(distance, width, &distance) ||
        __builtin_add_overflow(bound, distance, &bound))
      throw_invalid_array("strides that span less than 2**63 bytes",
                          "strides " + pumice::to_string(desc.strides) + " for shape " + pumice::to_string(desc.shape));
  }
  return extent;
}

// msync() fails with ENOMEM for unmapped pages; MS_ASYNC writes nothing.
bool is_address_range_mapped(uint64_t first, uint64_t end) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = first / page * page;
  return msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0 || errno != ENOMEM;
}

std::byte* resolve_data_pointer(const DLTensor& array, const TensorDesc& desc) {
  if (!array.data) throw_invalid_array("data for its elements", "a null pointer as the data of " + pumice::to_string(desc));
  const ByteExtent extent = compute_byte_extent(desc);
  uint64_t start = 0, first = 0, end = 0;
  const uint64_t leading_bytes = 0 - static_cast<uint64_t>(extent.first);
  const std::string description = "byte_offset " + std::to_string(array.byte_offset) + " and strides " + pumice::to_string(desc.strides) +
                                  " for " + pumice::to_string(desc);
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(array.data), array.byte_offset, &start) ||
      __builtin_sub_overflow(start, leading_bytes, &first) || __builtin_add_overflow(start, static_cast<uint64_t>(extent.end), &end))
    throw_invalid_array("elements inside the address space", description);
  if (array.device.type == kCpu && !is_address_range_mapped(first, end))
    throw_invalid_array("elements in memory of this process", description + ", which extend over unmapped memory");
  return reinterpret_cast<std::byte*>(start);
}

ValidatedTensor validate_tensor(const DLTensor& array, const DLDevice& device) {
  check_device(array, device);
  ValidatedTensor result{TensorDesc(to_dtype(array.type), read_shape(array)), nullptr, array.device, false};
  if (result.desc.elements() == 0) return result;  // an empty tensor may have any strides and data pointer
  if (array.strides) result.desc.strides.assign(array.strides, array.strides + array.rank);
  result.data = resolve_data_pointer(array, result.desc);
  return result;
}

}  // namespace

DLDataType to_dl_data_type(DType dtype) {
  const auto width = static_cast<uint8_t>(bits(dtype));
  if (dtype == DType::bool_) return {boolean, width, 1};
  if (dtype == DType::bfloat16) return {bfloat, width, 1};
  if (is_float(dtype)) return {real, width, 1};
  return {is_signed_integer(dtype) ? signed_integer : unsigned_integer, width, 1};
}

ValidatedTensor validate_managed_tensor(const DLManagedTensor* managed, const DLDevice& device) {
  if (!managed) throw_invalid_array("a structure", "a null pointer");
  return validate_tensor(managed->array, device);
}

ValidatedTensor validate_managed_tensor(const DLManagedTensorVersioned* managed, const DLDevice& device) {
  if (!managed) throw_invalid_array("a structure", "a null pointer");
  if (managed->version.major != kMajorVersion)  // the layout of the other fields depends on the major version
    throw UnsupportedError("from_dlpack: expected a capsule of DLPack " + std::to_string(kMajorVersion) + ".x, given version " +
                           std::to_string(managed->version.major) + "." + std::to_string(managed->version.minor));
  if (const uint64_t unknown = managed->flags & ~(kReadOnly | kCopied | kPadded); unknown != 0)
    throw UnsupportedError("from_dlpack: expected flags among 1 (read-only), 2 (copied) and 4 (padded), given the flags " +
                           std::to_string(managed->flags) + " of DLPack " + std::to_string(managed->version.major) + "." +
                           std::to_string(managed->version.minor));
  ValidatedTensor result = validate_tensor(managed->array, device);
  result.read_only = (managed->flags & kReadOnly) != 0;
  return result;
}

}  // namespace pumice::dlpack
