// Attribute values of a node, by ONNX name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

using AttributeValue =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, std::vector<std::string>, HostTensor>;

// The kinds, in the order of the variant's alternatives.
enum class AttributeKind : uint8_t { integer, real, text, integers, reals, texts, tensor };
std::string_view name(AttributeKind kind);  // "a number"

// ONNX's attributes are float32: operators of float64 compute with that number, 0.00999999977648258 where a file says 0.01.
inline double attribute_real(double value) {
  return static_cast<double>(static_cast<float>(value));
}

class Attributes {
 public:
  void set(std::string name, AttributeValue value);
  bool has(std::string_view name) const;
  // Each returns the given value, or `fallback`. Throws GraphError where the value is of another kind.
  int64_t integer(std::string_view name, int64_t fallback = 0) const;
  double real(std::string_view name, double fallback = 0) const;
  std::string text(std::string_view name, std::string_view fallback = {}) const;
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> fallback = {}) const;
  std::vector<double> reals(std::string_view name, std::vector<double> fallback = {}) const;
  const HostTensor* tensor(std::string_view name) const;
  const std::map<std::string, AttributeValue, std::less<>>& all() const { return values_; }

 private:
  std::map<std::string, AttributeValue, std::less<>> values_;
};

}  // namespace pumice
