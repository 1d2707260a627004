// Arbitrary-size Python integers as arguments: out-of-range values are rejected by the engine's rules instead of the type caster.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/strides.h"

namespace pumice {

// An int, or an object with __index__. Keeps its text for messages if it does not fit into 64 bits.
class Integer {
 public:
  Integer() = default;
  Integer(int64_t value) : magnitude_(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value)), negative_(value < 0) {}

  // Loads a Python value. Returns false, without a Python error, if it is not an integer.
  bool load(const pybind11::handle& given);
  std::string text() const;
  // Returns the value, or nullopt if it does not fit into T.
  template <typename T>
  std::optional<T> as() const {
    if (!text_.empty()) return {};
    constexpr auto max_value = static_cast<uint64_t>(std::numeric_limits<T>::max());
    if (!negative_) return magnitude_ <= max_value ? std::optional(static_cast<T>(magnitude_)) : std::nullopt;
    if constexpr (std::is_unsigned_v<T>)
      return {};
    else
      return magnitude_ <= max_value + 1 ? std::optional(static_cast<T>(-static_cast<int64_t>(magnitude_ - 1) - 1)) : std::nullopt;
  }

 private:
  uint64_t magnitude_ = 0;
  bool negative_ = false;
  std::string text_;  // decimal text if beyond 64 bits, else empty
};

using Integers = std::vector<Integer>;

// repr() of the number; if it has too many digits, its leading digits in base 16.
std::string number_text(const pybind11::handle& number);

// A non-negative byte count. Throws BindingError (`rule`, `slot`).
uint64_t bytes_argument(const Integer& bytes, const char* rule, const char* slot);
// A non-negative repeat count. Throws BindingError (K12).
size_t count_argument(const Integer& count, const char* name);
// The requested number of outputs of a node. Throws GraphError.
size_t outputs_argument(const Integer& outputs, const std::string& node);
// A timeline id. Throws StateError (L7) if no execution can have it.
uint64_t execution_argument(const Integer& id);
// Sizes or strides in elements. Throw GraphError (R8) beyond 64 bits.
std::vector<int64_t> sizes_argument(const Integers& sizes, const char* what);
std::optional<Strides> strides_argument(const std::optional<Integers>& strides);
// A possibly negative axis; `what`: the function that uses it. Throw GraphError beyond 32 bits.
int axis_argument(const Integer& axis, const char* what);
std::vector<int> axes_argument(const Integers& axes, const char* what);
// Quantisation parameters. Throw GraphError beyond 32 bits.
std::optional<int32_t> zero_point_argument(const std::optional<Integer>& zero_point);
std::optional<int> channel_axis_argument(const std::optional<Integer>& axis);

}  // namespace pumice

namespace pybind11::detail {

template <>
struct type_caster<pumice::Integer> {
  PYBIND11_TYPE_CASTER(pumice::Integer, const_name("typing.SupportsIndex"));
  bool load(handle given, bool /*convert*/) { return value.load(given); }
};

}  // namespace pybind11::detail
