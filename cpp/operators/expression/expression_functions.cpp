#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/saturating_cast.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

int64_t wrap_to_signed(uint64_t value) {
  return static_cast<int64_t>(value);
}

double sign(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : x;
}
double maximum(double a, double b) {
  return a > b || std::isnan(a) ? a : b;
}
double minimum(double a, double b) {
  return a < b || std::isnan(a) ? a : b;
}

double floored_mod(double a, double b) {
  const double r = std::fmod(a, b);
  if (r == 0) return std::copysign(r, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

double round_even(double x) {
  return std::nearbyint(x);
}

int64_t truncated_mod(int64_t a, int64_t b) {
  if (b == 0) throw Error("the remainder of a division by zero");
  return b == -1 ? 0 : a % b;
}

int64_t floored_mod(int64_t a, int64_t b) {
  const int64_t r = truncated_mod(a, b);
  return r != 0 && (r ^ b) < 0 ? r + b : r;
}

double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double r = std::fmod(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0) ? 1 : 0);
  if (q == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(q);
  return q - whole > 0.5 ? whole + 1 : whole;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrap_to_signed(0 - static_cast<uint64_t>(a));
  const int64_t q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

// Shifts an integer. Counts below 0 or above 63 yield 0, or -1 if a negative number is shifted right. Callers pass only unsigned values
// below 2^63.
int64_t shift_integer(int64_t x, int64_t count, bool left) {
  if (count < 0 || count > 63) return left || x >= 0 ? 0 : -1;
  return left ? wrap_to_signed(static_cast<uint64_t>(x) << count) : x >> count;
}

int64_t integer_power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1, base = static_cast<uint64_t>(x);
  for (; y != 0; y >>= 1, base *= base)
    if (y & 1) result *= base;
  return wrap_to_signed(result);
}

template <typename T>
double truncate_saturated(double x) {
  return static_cast<double>(saturating_cast<T>(x));
}

using D = double;
using I = int64_t;

constexpr std::array kExprFunctions{
    ExprFunction{"abs",
                 Signature::same,
                 1,
                 "pm_abs",
                 {4, 7},
                 [](D x, D) { return std::fabs(x); },
                 [](I x, I) { return x < 0 ? wrap_to_signed(0 - static_cast<uint64_t>(x)) : x; }},
    ExprFunction{
        "sign", Signature::same, 1, "pm_sign", {12, 12}, [](D x, D) { return sign(x); }, [](I x, I) -> I { return (x > 0) - (x < 0); }},
    ExprFunction{"min", Signature::same, 2, "pm_min", {16, 19}, minimum, [](I a, I b) { return std::min(a, b); }},
    ExprFunction{"max", Signature::same, 2, "pm_max", {16, 19}, maximum, [](I a, I b) { return std::max(a, b); }},
    ExprFunction{"divide", Signature::same, 2, "pm_divide", {25, 4}, [](D a, D b) { return a / b; }, nullptr},
    ExprFunction{"pow", Signature::same, 2, "pm_pow", {466, 454}, [](D a, D b) { return std::pow(a, b); }, integer_power},
    ExprFunction{"fmod", Signature::same, 2, "pm_fmod", {143, 137}, [](D a, D b) { return std::fmod(a, b); }, truncated_mod},
    ExprFunction{"mod", Signature::same, 2, "pm_mod", {183, 172}, floored_mod, floored_mod},
    ExprFunction{"floor_divide", Signature::same, 2, "pm_floor_divide", {203, 253}, floor_divide, floor_divide},
    ExprFunction{"shift_left", Signature::same, 2, "pm_shift_left", {13, 13}, nullptr, [](I a, I b) { return shift_integer(a, b, true); }},
    ExprFunction{
        "shift_right", Signature::same, 2, "pm_shift_right", {13, 13}, nullptr, [](I a, I b) { return shift_integer(a, b, false); }},
    ExprFunction{"exp", Signature::real, 1, "pm_exp", {51, 136}, [](D x, D) { return std::exp(x); }, nullptr, true},
    ExprFunction{"expm1", Signature::real, 1, "pm_expm1", {117, 170}, [](D x, D) { return std::expm1(x); }, nullptr, true},
    ExprFunction{"log", Signature::real, 1, "pm_log", {86, 121}, [](D x, D) { return std::log(x); }, nullptr, true},
    ExprFunction{"log1p", Signature::real, 1, "pm_log1p", {215, 176}, [](D x, D) { return std::log1p(x); }, nullptr, true},
    ExprFunction{"sqrt", Signature::real, 1, "pm_sqrt", {1, 1}, [](D x, D) { return std::sqrt(x); }, nullptr, true},
    ExprFunction{"erf", Signature::real, 1, "pm_erf", {115, 247}, [](D x, D) { return std::erf(x); }, nullptr, true},
    ExprFunction{"normal_cdf",
                 Signature::real,
                 1,
                 "pm_normal_cdf",
                 {89, 251},
                 [](D x, D) { return std::erfc(-x * std::numbers::sqrt2 / 2) / 2; },
                 nullptr,
                 true},
    ExprFunction{"sigmoid", Signature::real, 1, "pm_sigmoid", {57, 142}, [](D x, D) { return 1 / (1 + std::exp(-x)); }, nullptr, true},
    ExprFunction{"softplus",
                 Signature::real,
                 1,
                 "pm_softplus",
                 {271, 316},
                 [](D x, D) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); },
                 nullptr,
                 true},
    ExprFunction{"floor", Signature::real, 1, "pm_floor", {1, 56}, [](D x, D) { return std::floor(x); }, nullptr, true},
    ExprFunction{"ceil", Signature::real, 1, "pm_ceil", {1, 56}, [](D x, D) { return std::ceil(x); }, nullptr, true},
    ExprFunction{"trunc", Signature::real, 1, "pm_trunc", {1, 45}, [](D x, D) { return std::trunc(x); }, nullptr, true},
    ExprFunction{"round_even", Signature::real, 1, "pm_round_even", {1, 121}, [](D x, D) { return round_even(x); }, nullptr, true},
    ExprFunction{"sin", Signature::real, 1, "pm_sin", {322, 214}, [](D x, D) { return std::sin(x); }, nullptr, true},
    ExprFunction{"cos", Signature::real, 1, "pm_cos", {321, 210}, [](D x, D) { return std::cos(x); }, nullptr, true},
    ExprFunction{"tan", Signature::real, 1, "pm_tan", {322, 429}, [](D x, D) { return std::tan(x); }, nullptr, true},
    ExprFunction{"asin", Signature::real, 1, "pm_asin", {61, 115}, [](D x, D) { return std::asin(x); }, nullptr, true},
    ExprFunction{"acos", Signature::real, 1, "pm_acos", {68, 104}, [](D x, D) { return std::acos(x); }, nullptr, true},
    ExprFunction{"atan", Signature::real, 1, "pm_atan", {56, 80}, [](D x, D) { return std::atan(x); }, nullptr, true},
    ExprFunction{"sinh", Signature::real, 1, "pm_sinh", {145, 340}, [](D x, D) { return std::sinh(x); }, nullptr, true},
    ExprFunction{"cosh", Signature::real, 1, "pm_cosh", {119, 155}, [](D x, D) { return std::cosh(x); }, nullptr, true},
    ExprFunction{"tanh", Signature::real, 1, "pm_tanh", {90, 193}, [](D x, D) { return std::tanh(x); }, nullptr, true},
    ExprFunction{"asinh", Signature::real, 1, "pm_asinh", {325, 337}, [](D x, D) { return std::asinh(x); }, nullptr, true},
    ExprFunction{"acosh", Signature::real, 1, "pm_acosh", {329, 321}, [](D x, D) { return std::acosh(x); }, nullptr, true},
    ExprFunction{"atanh", Signature::real, 1, "pm_atanh", {260, 239}, [](D x, D) { return std::atanh(x); }, nullptr, true},
    ExprFunction{"isnan", Signature::real_test, 1, "pm_isnan", {4, 7}, [](D x, D) -> D { return std::isnan(x); }, nullptr, true},
    ExprFunction{"isinf", Signature::real_test, 1, "pm_isinf", {4, 15}, [](D x, D) -> D { return std::isinf(x); }, nullptr, true},
    ExprFunction{"bool", Signature::cast, 1, "bool", {2, 2}, [](D x, D) -> D { return x != 0; }, [](I x, I) -> I { return x != 0; }},
    ExprFunction{"i32",
                 Signature::cast,
                 1,
                 "int",
                 {24, 24},
                 [](D x, D) { return truncate_saturated<int32_t>(x); },
                 [](I x, I) -> I { return static_cast<int32_t>(x); }},
    ExprFunction{"u32",
                 Signature::cast,
                 1,
                 "uint",
                 {24, 24},
                 [](D x, D) { return truncate_saturated<uint32_t>(x); },
                 [](I x, I) -> I { return static_cast<uint32_t>(x); }},
    ExprFunction{
        "i64", Signature::cast, 1, "int64_t", {24, 24}, [](D x, D) { return truncate_saturated<int64_t>(x); }, [](I x, I) { return x; }},
    ExprFunction{
        "u64", Signature::cast, 1, "uint64_t", {24, 24}, [](D x, D) { return truncate_saturated<uint64_t>(x); }, [](I x, I) { return x; }},
    ExprFunction{"f32", Signature::cast, 1, "float", {2, 2}, [](D x, D) { return x; }, [](I x, I) { return x; }},
    ExprFunction{"f64", Signature::cast, 1, "double", {2, 2}, [](D x, D) { return x; }, [](I x, I) { return x; }},
};

}  // namespace

const ExprFunction* find_expr_function(std::string_view name) {
  const auto found =
      std::find_if(kExprFunctions.begin(), kExprFunctions.end(), [&](const ExprFunction& function) { return function.name == name; });
  return found == kExprFunctions.end() ? nullptr : &*found;
}

}  // namespace pumice
