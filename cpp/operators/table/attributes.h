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

// Kinds of attributes, in the order of the alternatives of AttributeValue.
enum class AttributeKind : uint8_t { integer, real, text, integers, reals, texts, tensor };
std::string_view get_attribute_kind_name(AttributeKind kind);  // name for error messages, such as "a number"

// Rounds to float32, the type of ONNX attributes. float64 operators also compute with the rounded value: 0.01 becomes 0.00999999977648258.
inline double round_to_float32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

class Attributes {
 public:
  void set(std::string name, AttributeValue value);
  bool has(std::string_view name) const;
  // These functions return the attribute, or `fallback` if it is not set. They throw GraphError if the attribute has another kind.
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
