// Exact host numbers, and their encoding in shader scalar types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "shader/preamble/scalar_type.h"

namespace pumice {

struct Number : std::variant<int64_t, uint64_t, double> {
  using Value = std::variant<int64_t, uint64_t, double>;
  template <typename T>
    requires std::is_integral_v<T> && std::is_signed_v<T>
  Number(T value) : Value(static_cast<int64_t>(value)) {}
  template <typename T>
    requires std::is_integral_v<T> && std::is_unsigned_v<T>
  Number(T value) : Value(static_cast<uint64_t>(value)) {}
  template <typename T>
    requires std::is_floating_point_v<T>
  Number(T value) : Value(static_cast<double>(value)) {}

  const Value& value() const { return *this; }
};

std::string to_string(const Number& number);

// Encodes a number as a scalar type; floats round to nearest even. Returns nullopt if it is not representable: an integer out of range, a
// fraction for an integer type, or a finite value that overflows. `scalar` must not be `other`.
std::optional<uint64_t> encode_number(ScalarType scalar, const Number& number);

}  // namespace pumice
