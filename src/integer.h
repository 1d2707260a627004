// Whole numbers of any size, as Python has them. A number out of a rule's bounds is thus refused by that rule, and not by the type of an
// argument.
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

// One argument: an int, or an object that gives one (__index__). Its text is kept for messages where 64 bits do not hold it.
class Integer {
 public:
  Integer() = default;
  Integer(int64_t value) : magnitude_(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value)), negative_(value < 0) {}

  // Takes what Python gave. False, with no Python error set, where it is no whole number.
  bool load(const pybind11::handle& given);
  std::string text() const;
  // The number; none where a T does not hold it.
  template <typename T>
  std::optional<T> as() const {
    if (!text_.empty()) return {};
    constexpr auto most = static_cast<uint64_t>(std::numeric_limits<T>::max());
    if (!negative_) return magnitude_ <= most ? std::optional(static_cast<T>(magnitude_)) : std::nullopt;
    if constexpr (std::is_unsigned_v<T>)
      return {};
    else
      return magnitude_ <= most + 1 ? std::optional(static_cast<T>(-static_cast<int64_t>(magnitude_ - 1) - 1)) : std::nullopt;
  }

 private:
  uint64_t magnitude_ = 0;
  bool negative_ = false;
  std::string text_;  // the text of a number beyond 64 bits; else empty
};

using Integers = std::vector<Integer>;

// The number as repr() writes it, or, where it has too many digits for that, its beginning in base 16.
std::string number_text(const pybind11::handle& number);

// A number of bytes, from 0 on. Throws BindingError: `rule`, `slot`.
uint64_t bytes_argument(const Integer& bytes, const char* rule, const char* slot);
// A number of repetitions, from 0 on. Throws BindingError (K12).
size_t count_argument(const Integer& count, const char* name);
// The number of outputs that a node is asked for. Throws GraphError.
size_t outputs_argument(const Integer& outputs, const std::string& node);
// An id of the timeline. Throws StateError (L7) for a number that no execution can have.
uint64_t execution_argument(const Integer& id);
// Sizes or strides in elements. Throw GraphError (R8) for numbers beyond 64 bits.
std::vector<int64_t> sizes_argument(const Integers& sizes, const char* what);
std::optional<Strides> strides_argument(const std::optional<Integers>& strides);
// An axis, which may be negative; `what` is the user of it. Throw GraphError for numbers beyond 32 bits.
int axis_argument(const Integer& axis, const char* what);
std::vector<int> axes_argument(const Integers& axes, const char* what);
// Parameters of a quantized tensor. Throws GraphError for numbers beyond 32 bits.
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
