// One operation of NNAPI on its way into a graph: its operands, checked and read, and the nodes that it becomes.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/description/compound_operation.h"
#include "graph/description/graph.h"
#include "graph/nnapi/operands.h"

namespace pumice::nnapi {

// Fused activation functions, by their codes.
enum class Activation : uint8_t { none, relu, relu1, relu6 };

// A size that is known, or a value that the program computes: a vector of one int64.
struct Length {
  int64_t number = kUnknownSize;
  ValueId value = kAbsent;

  bool is_known() const { return value == kAbsent; }
};

using Output = CompoundOutput;
struct Requirement;

// UnknownShapeError where a rank or size has to be known and is not; with `assumes` any size will do. `declared`: scale, zero_point and
// dtype of the output operand. Throws GraphError that names the operation, the operand and what was expected; UnsupportedError.
class Expansion {
 public:
  Expansion(Graph& graph, const Operation& operation, std::string node, std::vector<ValueId> operands, const Attributes& declared,
            bool assumes);
  std::vector<Output> run();

  // ---- operands; references are good until the next node or constant is made
  const Operands& rules() const { return rules_; }
  size_t count() const { return operands_.size(); }
  bool is_implicit() const { return rules_.is_implicit(); }  // in the other form
  bool assumes() const { return assumes_; }                  // only the types of the outputs are asked for
  bool has(size_t i) const { return i < operands_.size() && operands_[i] != kAbsent; }
  ValueId operator[](size_t i) const { return operands_.at(i); }
  const GraphValue& value(size_t i) const { return of(operands_.at(i)); }
  const GraphValue& of(ValueId id) const { return graph_.values()[static_cast<size_t>(id)]; }
  DType dtype(size_t i) const { return value(i).dtype; }
  Quantization quantization(size_t i) const { return value(i).quantization; }
  bool is_quantized(size_t i) const { return is_quantized(value(i)); }
  static bool is_quantized(const GraphValue& value);
  const Shape& shape(size_t i) const;  // UnknownShapeError where the rank is not known
  size_t rank(size_t i) const { return shape(i).size(); }
  int64_t size(size_t i, size_t axis) const;                  // UnknownShapeError where it is not known
  std::optional<std::vector<int64_t>> known(size_t i) const;  // elements, where they are known now
  std::vector<int64_t> list(size_t i) const;                  // UnsupportedError where they are not
  int64_t integer(size_t i, int64_t fallback = 0) const { return rules_.integer(i, fallback); }
  double real(size_t i) const;
  size_t axis(size_t i, size_t rank, int64_t fallback = 0) const { return rules_.axis(i, rank, fallback); }
  // An axis as rows count it, from the end too. It is checked against the rank of operand `x` plus `more`, where that is known.
  int64_t any_axis(size_t i, size_t x, size_t more = 0, int64_t fallback = 0) const;
  Activation activation(size_t i) const;
  [[noreturn]] void fail(size_t i, std::string_view rule, const std::string& message) const { rules_.fail(i, rule, message); }
  [[noreturn]] void fail(std::string_view rule, const std::string& message) const { rules_.fail(rule, message); }
  [[noreturn]] void fail(size_t i, const std::string& message) const { rules_.fail(i, message); }
  [[noreturn]] void fail(const std::string& message) const { rules_.fail(message); }
  [[noreturn]] void refuse(size_t i, const std::string& message) const { rules_.refuse(i, message); }

  // ---- nodes
  ValueId add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes = {});
  std::vector<ValueId> add_many(std::string_view op, std::vector<ValueId> inputs, size_t outputs, const Attributes& attributes);
  ValueId integers(const std::vector<int64_t>& values);             // an int64 vector
  ValueId scalar(double value, DType dtype);                        // a constant of rank 0
  ValueId numbers(const std::vector<double>& values, DType dtype);  // a constant vector
  ValueId scales(const Quantization& quantization);                 // a constant: a scalar, or a vector of the channels'
  ValueId as_int64(size_t i);                                       // operand i as int64
  ValueId axes_of(size_t i, ValueId x);                             // operand i, a list that the program is given, as axes of x, each once
  ValueId cast(ValueId id, DType dtype);
  ValueId bits_as(ValueId id, DType dtype);  // the same bits, of a dtype of as many
  // Sizes, known or computed: of an axis of operand i or of a value of known rank, and what follows from them.
  Length length(size_t i, size_t axis) { return shape(i), length_of(operands_[i], axis); }
  Length length_of(ValueId id, size_t axis);
  Length product(const Length& a, const Length& b);
  Length quotient(const Length& a, const Length& divisor);
  Length least_of(const Length& a, const Length& b);
  Length element(ValueId list, int64_t place);        // of an int64 vector
  ValueId sizes(const std::vector<Length>& lengths);  // as an int64 vector
  // `id` in another shape, of which one length may be -1.
  ValueId reshaped(ValueId id, const std::vector<Length>& lengths);
  // `id` itself, or as a vector of one element where it turns out to have no axis.
  ValueId with_an_axis(ValueId id);
  // Tells a value's shape beyond what its node tells.
  void refine(ValueId id, const Shape& shape) { graph_.refine(id, shape); }
  // Indices on an axis of `x`, which count from its first element alone: check_indices reports others, where constants did not tell.
  ValueId from_first(ValueId indices, ValueId x, int64_t axis);
  ValueId transposed(ValueId id, const std::vector<int64_t>& permutation);
  // Operand i as the reals that it stands for: itself, or dequantized.
  ValueId reals(size_t i);
  ValueId dequantized(ValueId id, const Quantization& quantization);
  ValueId quantized(ValueId id, const Quantization& quantization, DType dtype);
  ValueId activated(ValueId id, Activation activation);
  // The activation on the integers of a quantized tensor.
  ValueId activated(ValueId id, Activation activation, const Quantization& quantization);

  // ---- outputs
  // The parameters of the output operand as they were declared: needed where nothing else fixes them.
  Quantization declared();
  Quantization declared_or(const Quantization& otherwise);
  // The output's parameters: those of operand i, or the ones that the operation fixes; GraphError where others were declared.
  Quantization as_operand(size_t i);
  Quantization fixed(float scale, int32_t zero_point);
  void fixed_in(const std::vector<Quantization>& outputs);  // what is declared has to be that of one of several outputs
  std::optional<DType> declared_dtype();
  void give(ValueId id, Quantization quantization = {});
  // Reals that become an output of operand i's kind: quantized as declared, or as they are.
  void give_reals(ValueId id, size_t i);

 private:
  void check_count() const;
  void check_operand(size_t i) const;
  void check_letters() const;
  void check_rules();
  ValueId guarded(size_t passed, const std::shared_ptr<const Requirement>& requirement, const std::vector<size_t>& asked,
                  std::optional<size_t> unread);
  bool is_declared(const Quantization& expected) const;  // or nothing else is
  Quantization must_be(const Quantization& expected, const std::string& why);

  Graph& graph_;
  const ValueId first_value_;  // the first value that this operation makes
  const Operation& operation_;
  std::string node_;
  std::vector<ValueId> operands_;
  Operands rules_;
  const bool assumes_;
  std::optional<float> declared_scale_;
  std::optional<int32_t> declared_zero_;
  std::optional<DType> declared_dtype_;
  bool takes_quantization_ = false, takes_dtype_ = false;
  std::vector<Output> outputs_;
};

// The facts that the graph knows of operands.
std::vector<Fact> facts_of(const Graph& graph, const std::vector<ValueId>& operands);

// Attributes of a node.
Attributes with(std::initializer_list<std::pair<std::string, AttributeValue>> named);

}  // namespace pumice::nnapi
