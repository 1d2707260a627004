#include "dispatch/kernel/scalar_number.h"

#include <bit>
#include <cmath>
#include <utility>

#include "core/half.h"
#include "core/number_format.h"

namespace pumice {
namespace {

double to_double(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number.value());
}

// Encodes a number as an integer type T. Returns nullopt for a fraction, a value out of range, or a double above 2^53, which may already be
// rounded.
template <typename T>
std::optional<uint64_t> encode_integer(const Number& number) {
  if (const double* real = std::get_if<double>(&number.value())) {
    constexpr double kExact = 9007199254740992;  // 2^53
    if (*real != std::floor(*real) || std::abs(*real) > kExact) return {};
    return encode_integer<T>(static_cast<int64_t>(*real));
  }
  const auto fits = [](auto value) { return std::in_range<T>(value); };
  const auto* negative = std::get_if<int64_t>(&number.value());
  if (!(negative ? fits(*negative) : fits(std::get<uint64_t>(number.value())))) return {};
  const uint64_t bits = negative ? static_cast<uint64_t>(*negative) : std::get<uint64_t>(number.value());
  return bits & (~uint64_t{0} >> (64 - 8 * sizeof(T)));
}

// Rounds a double to float32 with round-to-odd, so that rounding the result to 16 bits gives the correctly rounded value.
float round_to_odd(double real) {
  const float nearest = static_cast<float>(real);
  if (!std::isfinite(real) || static_cast<double>(nearest) == real) return nearest;
  const float below = std::abs(static_cast<double>(nearest)) > std::abs(real) ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(below) | 1);
}

template <typename Bits>
std::optional<uint64_t> nullopt_if_overflow(Bits bits, bool is_infinite, double real) {
  if (is_infinite && !std::isinf(real)) return {};
  return bits;
}

}  // namespace

std::string to_string(const Number& number) {
  if (const double* real = std::get_if<double>(&number.value())) return format_general(*real, 9);
  const auto* negative = std::get_if<int64_t>(&number.value());
  return negative ? std::to_string(*negative) : std::to_string(std::get<uint64_t>(number.value()));
}

std::optional<uint64_t> encode_number(ScalarType scalar, const Number& number) {
  const double real = to_double(number);
  switch (scalar) {
    case ScalarType::float16: {
      const uint16_t bits = half_from_float(round_to_odd(real));
      return nullopt_if_overflow(bits, std::isinf(float_from_half(bits)), real);
    }
    case ScalarType::bfloat16: {
      const uint16_t bits = bfloat16_from_float(round_to_odd(real));
      return nullopt_if_overflow(bits, std::isinf(float_from_bfloat16(bits)), real);
    }
    case ScalarType::float32: {
      const float value = static_cast<float>(real);
      return nullopt_if_overflow(std::bit_cast<uint32_t>(value), std::isinf(value), real);
    }
    case ScalarType::float64:
      return std::bit_cast<uint64_t>(real);
    case ScalarType::int8:
      return encode_integer<int8_t>(number);
    case ScalarType::uint8:
      return encode_integer<uint8_t>(number);
    case ScalarType::int16:
      return encode_integer<int16_t>(number);
    case ScalarType::uint16:
      return encode_integer<uint16_t>(number);
    case ScalarType::int32:
      return encode_integer<int32_t>(number);
    case ScalarType::uint32:
      return encode_integer<uint32_t>(number);
    case ScalarType::int64:
      return encode_integer<int64_t>(number);
    case ScalarType::uint64:
      return encode_integer<uint64_t>(number);
    case ScalarType::other:
      break;
  }
  return {};
}

}  // namespace pumice
