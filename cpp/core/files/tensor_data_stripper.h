// Moves the data of large tensors in an ONNX file to external data.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/mapped_file.h"

namespace pumice {

// Returns a copy of the ModelProto in `bytes` with the data of large tensors moved to external data at `location`; offsets and lengths
// refer to `bytes`. `file`: the file that `bytes` is mapped from, if any; only the bytes between tensor data are read, with read() instead
// of through the mapping. Returns nullopt if the bytes are not a ModelProto or are a very small one; the caller then lets protobuf parse
// the file. Throws Error if the file is truncated while it is read.
std::optional<std::string> strip_tensor_data(std::span<const std::byte> bytes, const MappedFile* file, std::string_view location);

}  // namespace pumice
