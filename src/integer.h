// Arbitrary-size Python integers as arguments: the engine, not the type caster, rejects out-of-range values, with its rule id.
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
  bool load(const pybind11::handle& object);
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
  std::string text_;  // text of the number if it exceeds 64 bits, else empty
};

using Integers = std::vector<Integer>;

// Returns repr() of the number, or its leading hexadecimal digits if it is too long.
std::string format_number(const pybind11::handle& number);

// Parses a non-negative byte count. Throws BindingError (`rule`, `slot`).
uint64_t parse_byte_count(const Integer& bytes, const char* rule, const char* slot);
// Parses a non-negative repeat count. Throws BindingError (K12).
size_t parse_count(const Integer& count, const char* name);
// Parses the number of outputs of a node. Throws GraphError.
size_t parse_output_count(const Integer& outputs, const std::string& node);
// Parses the timeline id of an execution. Throws StateError (L7) if it is not a valid id.
uint64_t parse_execution_id(const Integer& id);
// Parse sizes or strides in elements. Throw GraphError (R8) beyond 64 bits.
std::vector<int64_t> parse_sizes(const Integers& sizes, const char* label);
std::optional<Strides> parse_strides(const std::optional<Integers>& strides);
// Parse possibly negative axes. `caller`: function named in errors. Throw GraphError beyond 32 bits.
int parse_axis(const Integer& axis, const char* caller);
std::vector<int> parse_axes(const Integers& axes, const char* caller);
// Parse quantisation parameters. Throw GraphError beyond 32 bits.
std::optional<int32_t> parse_zero_point(const std::optional<Integer>& zero_point);
std::optional<int> parse_channel_axis(const std::optional<Integer>& axis);

}  // namespace pumice

namespace pybind11::detail {

template <>
struct type_caster<pumice::Integer> {
  PYBIND11_TYPE_CASTER(pumice::Integer, const_name("typing.SupportsIndex"));
  bool load(handle object, bool /*convert*/) { return value.load(object); }
};

}  // namespace pybind11::detail
