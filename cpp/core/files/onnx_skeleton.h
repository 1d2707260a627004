// An ONNX file without its large tensors.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/mapped_file.h"

namespace pumice {

// A ModelProto, given as bytes that may lie in `file`, in which the elements of large tensors are external data at `location`: the offset
// and length are those in `bytes`. None where the bytes are no ModelProto or a very small one: its own parser has the last word. Of a file
// only what stands between such elements is read, past the mapping. Throws Error where the file has become shorter.
std::optional<std::string> onnx_skeleton(std::span<const std::byte> bytes, const MappedFile* file, std::string_view location);

}  // namespace pumice
