// One operation of NNAPI on its way into a graph: its operands, checked and read, and the nodes that it becomes.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/nnapi/operations.h"

namespace pumice::nnapi {

// Fused activation functions, by their codes.
enum class Activation : uint8_t { none, relu, relu1, relu6 };

class Expansion {
 public:
  Expansion(Graph& graph, const Operation& operation, std::string node, std::vector<ValueId> operands, const Attributes& declared);
  std::vector<Output> run();

  // ---- operands; references are good until the next node or constant is made
  size_t count() const { return operands_.size(); }
  bool is_implicit() const { return &roles_ == &operation_.implicit; }  // in the other form
  bool has(size_t i) const { return i < operands_.size() && operands_[i] != kAbsent; }
  ValueId operator[](size_t i) const { return operands_.at(i); }
  const GraphValue& value(size_t i) const { return of(operands_.at(i)); }
  const GraphValue& of(ValueId id) const { return graph_.values()[static_cast<size_t>(id)]; }
  DType dtype(size_t i) const { return value(i).dtype; }
  Quantization quantization(size_t i) const { return value(i).quantization; }
  bool is_quantized(size_t i) const { return is_quantized(value(i)); }
  static bool is_quantized(const GraphValue& value);
  const Shape& shape(size_t i) const;  // UnsupportedError where the rank is not known
  size_t rank(size_t i) const { return shape(i).size(); }
  int64_t size(size_t i, size_t axis) const;                  // UnsupportedError where it is not known
  std::optional<std::vector<int64_t>> known(size_t i) const;  // elements of a constant
  std::vector<int64_t> list(size_t i) const;                  // UnsupportedError where they are not constant
  int64_t integer(size_t i, int64_t fallback = 0) const;      // of a scalar; `fallback` where it is left out
  double real(size_t i) const;
  size_t axis(size_t i, size_t rank, int64_t fallback = 0) const;  // 0 .. rank - 1
  Activation activation(size_t i) const;
  [[noreturn]] void fail(size_t i, const std::string& message) const;  // GraphError about operand i
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void refuse(size_t i, const std::string& message) const;  // UnsupportedError about operand i

  // ---- nodes
  ValueId add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes = {});
  std::vector<ValueId> add_many(std::string_view op, std::vector<ValueId> inputs, size_t outputs, const Attributes& attributes);
  ValueId integers(const std::vector<int64_t>& values);  // an int64 vector
  ValueId scalar(double value, DType dtype);             // a constant of rank 0
  ValueId scales(const Quantization& quantization);      // a constant: a scalar, or a vector of the channels'
  ValueId as_int64(size_t i);                            // operand i as int64
  ValueId cast(ValueId id, DType dtype);
  ValueId transposed(ValueId id, const std::vector<int64_t>& permutation);
  // Operand i as the reals that it stands for: itself, or dequantized.
  ValueId reals(size_t i);
  ValueId dequantized(ValueId id, const Quantization& quantization);
  ValueId quantized(ValueId id, const Quantization& quantization, DType dtype);
  ValueId activated(ValueId id, Activation activation);
  // The same on the integers of a quantized tensor.
  ValueId activated(ValueId id, Activation activation, const Quantization& quantization);

  // ---- outputs
  // Of the output operand as it was declared: needed where nothing else fixes them.
  Quantization declared();
  Quantization declared_or(const Quantization& otherwise);
  // Those of operand i, or the ones that the operation fixes; GraphError where others were declared.
  Quantization as_operand(size_t i);
  Quantization fixed(float scale, int32_t zero_point);
  std::optional<DType> declared_dtype();
  void give(ValueId id, Quantization quantization = {});
  // Reals that become an output of operand i's kind: quantized as declared, or as they are.
  void give_reals(ValueId id, size_t i);

 private:
  const std::vector<Operand>& form() const;
  const Operand& role(size_t i) const;
  void check_count() const;
  void check_operand(size_t i) const;
  void check_letters() const;
  Quantization must_be(const Quantization& expected, const std::string& why);
  std::string called(size_t i) const;

  Graph& graph_;
  const ValueId first_value_;  // of those that are made here
  const Operation& operation_;
  std::string node_;
  std::vector<ValueId> operands_;
  const std::vector<Operand>& roles_;  // in the form that is used
  std::optional<float> declared_scale_;
  std::optional<int32_t> declared_zero_;
  std::optional<DType> declared_dtype_;
  bool takes_quantization_ = false, takes_dtype_ = false;
  std::vector<Output> outputs_;
};

// Attributes of a node.
Attributes with(std::initializer_list<std::pair<std::string, AttributeValue>> named);

// Short forms for the tables.
inline constexpr DTypeSet kFloat = set_of(DType::float32, DType::float16);
inline constexpr DTypeSet kQuant = set_of(DType::uint8, DType::int8);
inline constexpr DTypeSet kInt = set_of(DType::int32);
inline constexpr DTypeSet kTruth = set_of(DType::bool_);

inline Operand tensor(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {{name, dtypes, false, false, type}, OperandKind::tensor};
}
inline Operand tensors(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {{name, dtypes, false, true, type}, OperandKind::tensor};
}
inline Operand list(std::string_view name, bool optional = false) {
  return {{name, kInt, optional}, OperandKind::list};
}
inline Operand scalar(std::string_view name, DTypeSet dtypes = kInt, bool optional = false) {
  return {{name, dtypes, optional}, OperandKind::scalar};
}

}  // namespace pumice::nnapi
