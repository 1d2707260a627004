// Expands one NNAPI operation into graph nodes: checks and reads its operands.
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

// Fused activations, by NNAPI code.
enum class Activation : uint8_t { none, relu, relu1, relu6 };

// A size: known, or computed by the program as an int64 vector of one element.
struct Length {
  int64_t number = kUnknownSize;
  ValueId value = kAbsent;

  bool is_known() const { return value == kAbsent; }
};

using Output = CompoundOutput;
struct Requirement;

// Throws UnknownShapeError if a required rank or size is unknown; with `infers_types_only`, unknown sizes are replaced with an arbitrary
// one. `declared`: scale, zero_point and dtype of the output. Throws GraphError naming the operation, the operand and what was expected;
// UnsupportedError if an operand is not supported.
class Expansion {
 public:
  Expansion(Graph& graph, const Operation& operation, std::string node, std::vector<ValueId> operands, const Attributes& declared,
            bool infers_types_only);
  std::vector<Output> run();

  // ---- operands; references are valid until the next node or constant is added
  const Operands& rules() const { return rules_; }
  size_t count() const { return operands_.size(); }
  bool is_implicit() const { return rules_.is_implicit(); }      // the implicit-padding form
  bool infers_types_only() const { return infers_types_only_; }  // only the output types are needed
  bool has(size_t i) const { return i < operands_.size() && operands_[i] != kAbsent; }
  ValueId operator[](size_t i) const { return operands_.at(i); }
  const GraphValue& value(size_t i) const { return of(operands_.at(i)); }
  const GraphValue& of(ValueId id) const { return graph_.values()[static_cast<size_t>(id)]; }
  DType dtype(size_t i) const { return value(i).dtype; }
  Quantization quantization(size_t i) const { return value(i).quantization; }
  bool is_quantized(size_t i) const { return is_quantized(value(i)); }
  static bool is_quantized(const GraphValue& value);
  const Shape& shape(size_t i) const;  // throws UnknownShapeError if the rank is unknown
  size_t rank(size_t i) const { return shape(i).size(); }
  int64_t size(size_t i, size_t axis) const;                  // throws UnknownShapeError if the size is unknown
  std::optional<std::vector<int64_t>> known(size_t i) const;  // the elements, if known now
  std::vector<int64_t> list(size_t i) const;                  // throws UnsupportedError if the elements are unknown
  int64_t integer(size_t i, int64_t fallback = 0) const { return rules_.integer(i, fallback); }
  double real(size_t i) const;
  size_t axis(size_t i, size_t rank, int64_t fallback = 0) const { return rules_.axis(i, rank, fallback); }
  // Returns an axis in the form that operators accept, possibly negative. Checks it against the rank of operand `x` plus `more`, if known.
  int64_t any_axis(size_t i, size_t x, size_t more = 0, int64_t fallback = 0) const;
  Activation activation(size_t i) const;
  [[noreturn]] void fail(size_t i, std::string_view rule, const std::string& message) const { rules_.fail(i, rule, message); }
  [[noreturn]] void fail(std::string_view rule, const std::string& message) const { rules_.fail(rule, message); }
  [[noreturn]] void fail(size_t i, const std::string& message) const { rules_.fail(i, message); }
  [[noreturn]] void fail(const std::string& message) const { rules_.fail(message); }
  [[noreturn]] void reject(size_t i, const std::string& message) const { rules_.reject(i, message); }

  // ---- nodes
  ValueId add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes = {});
  std::vector<ValueId> add_many(std::string_view op, std::vector<ValueId> inputs, size_t outputs, const Attributes& attributes);
  ValueId integers(const std::vector<int64_t>& values);             // adds an int64 vector
  ValueId scalar(double value, DType dtype);                        // adds a constant of rank 0
  ValueId numbers(const std::vector<double>& values, DType dtype);  // adds a constant vector
  ValueId scales(const Quantization& quantization);                 // adds a constant: a scalar, or a vector with a value per channel
  ValueId as_int64(size_t i);                                       // operand i as int64
  ValueId runtime_axes(size_t i, ValueId x);                        // operand i, a list known only at run time, as distinct axes of x
  ValueId cast(ValueId id, DType dtype);
  ValueId bit_cast_to(ValueId id, DType dtype);  // bit cast to a dtype of the same width
  // Sizes of operands and of values with known rank (known or computed), and arithmetic on them.
  Length length(size_t i, size_t axis) { return shape(i), length_of(operands_[i], axis); }
  Length length_of(ValueId id, size_t axis);
  Length product(const Length& a, const Length& b);
  Length quotient(const Length& a, const Length& divisor);
  Length min_length(const Length& a, const Length& b);
  Length element(ValueId list, int64_t position);     // an element of an int64 vector
  ValueId sizes(const std::vector<Length>& lengths);  // the lengths as an int64 vector
  // Reshapes `id`; at most one length may be -1.
  ValueId reshaped(ValueId id, const std::vector<Length>& lengths);
  // Returns `id`, or a vector of one element if it turns out to be a scalar.
  ValueId at_least_1d(ValueId id);
  // Adds known sizes to a value's shape.
  void refine(ValueId id, const Shape& shape) { graph_.refine(id, shape); }
  // Non-negative indices on an axis of `x`; check_indices reports others at run time unless constants already did.
  ValueId checked_indices(ValueId indices, ValueId x, int64_t axis);
  ValueId transposed(ValueId id, const std::vector<int64_t>& permutation);
  // Returns operand i as real numbers: itself, or dequantized.
  ValueId reals(size_t i);
  ValueId dequantized(ValueId id, const Quantization& quantization);
  ValueId quantized(ValueId id, const Quantization& quantization, DType dtype);
  ValueId activated(ValueId id, Activation activation);
  // Applies the activation to the integers of a quantized tensor.
  ValueId activated(ValueId id, Activation activation, const Quantization& quantization);

  // ---- outputs
  // Returns the declared parameters of the output; required if nothing else determines them.
  Quantization declared();
  Quantization declared_or(const Quantization& otherwise);
  // Return the output's quantization parameters: those of operand i, or fixed ones. Throw GraphError if other parameters were declared.
  Quantization operand_quantization(size_t i);
  Quantization fixed_quantization(float scale, int32_t zero_point);
  void expect_quantization_in(
      const std::vector<Quantization>& outputs);  // checks that the declared parameters match one of several outputs
  std::optional<DType> declared_dtype();
  void add_output(ValueId id, Quantization quantization = {});
  // Adds an output of operand i's kind: quantized with the declared parameters, or real.
  void add_real_output(ValueId id, size_t i);

 private:
  void check_count() const;
  void check_operand(size_t i) const;
  void check_letters() const;
  void check_rules();
  ValueId add_check_node(size_t passed_operand, const std::shared_ptr<const Requirement>& requirement,
                         const std::vector<size_t>& checked_operands, std::optional<size_t> unread);
  bool is_declared(const Quantization& expected) const;  // true also if nothing is declared
  Quantization require_quantization(const Quantization& expected, const std::string& why);

  Graph& graph_;
  const ValueId first_new_value_;  // first value of this operation
  const Operation& operation_;
  std::string node_;
  std::vector<ValueId> operands_;
  Operands rules_;
  const bool infers_types_only_;
  std::optional<float> declared_scale_;
  std::optional<int32_t> declared_zero_;
  std::optional<DType> declared_dtype_;
  bool takes_quantization_ = false, takes_dtype_ = false;
  std::vector<Output> outputs_;
};

// Returns what the graph knows of the operands.
std::vector<OperandFacts> facts_of(const Graph& graph, const std::vector<ValueId>& operands);

// Builds a node's attributes.
Attributes with(std::initializer_list<std::pair<std::string, AttributeValue>> named);

}  // namespace pumice::nnapi
