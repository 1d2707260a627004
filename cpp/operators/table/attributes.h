// Attribute values of a node, keyed by ONNX name.
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

// In the order of the variant's alternatives.
enum class AttributeKind : uint8_t { integer, real, text, integers, reals, texts, tensor };
std::string_view name(AttributeKind kind);  // Name for messages: "a number"

// ONNX attributes are float32. float64 operators compute with the rounded value: 0.01 in a file becomes 0.00999999977648258.
inline double attribute_real(double value) {
  return static_cast<double>(static_cast<float>(value));
}

class Attributes {
 public:
  void set(std::string name, AttributeValue value);
  bool has(std::string_view name) const;
  // Each function returns the attribute, or `fallback` if it is not set. Throw GraphError if the value has another kind.
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
