// An ONNX file without its large tensors.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/mapped_file.h"

namespace pumice {

// Takes a ModelProto, given as bytes that may lie in `file`, and returns one in which the elements of large tensors are external data at
// `location`: the offset and length are those in `bytes`. None where the bytes are no ModelProto or a very small one: its own parser has
// the last word. From `file` only the bytes between such elements are read, past the mapping. Throws Error where the file has become
// shorter.
std::optional<std::string> onnx_skeleton(std::span<const std::byte> bytes, const MappedFile* file, std::string_view location);

}  // namespace pumice
