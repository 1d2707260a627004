// Inputs and outputs of programs, and the shapes of a call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// An input or output of a program, as seen by the caller.
struct ProgramValue {
  std::string name;
  DType dtype;
  std::optional<Shape> shape;  // kUnknownSize for unknown sizes; nullopt: unknown rank
  std::vector<std::string> dimension_names;
};

// The shape of one input.
using ShapeView = std::span<const int64_t>;

}  // namespace pumice
