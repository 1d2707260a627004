// Expands one NNAPI operation into graph nodes: checks and reads its operands, and adds nodes and outputs.
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

// Fused activation, by NNAPI code.
enum class Activation : uint8_t { none, relu, relu1, relu6 };

// A size: a known number, or an int64 vector of one element that the program computes.
struct AxisLength {
  int64_t number = kUnknownSize;
  ValueId value = kAbsent;

  bool is_known() const { return value == kAbsent; }
};

using Output = CompoundOutput;
struct DeferredOperandCheck;

// Expands one operation. Throws UnknownShapeError if a required rank or size is unknown; with `infers_types_only`, an arbitrary number
// replaces an unknown size. `declared`: scale, zero_point and dtype of the output. Throws GraphError naming the operation, the operand and
// the expected facts; UnsupportedError if an operand is not supported.
class Expansion {
 public:
  Expansion(Graph& graph, const Operation& operation, std::string node, std::vector<ValueId> operands, const Attributes& declared,
            bool infers_types_only);
  std::vector<Output> run();

  // ---- operands; references are valid until the next node or constant is added
  const Operands& rules() const { return rules_; }
  size_t count() const { return operands_.size(); }
  bool is_implicit() const { return rules_.is_implicit(); }      // whether it is the form with implicit padding
  bool infers_types_only() const { return infers_types_only_; }  // whether only the output types are needed
  bool has(size_t i) const { return i < operands_.size() && operands_[i] != kAbsent; }
  ValueId operator[](size_t i) const { return operands_.at(i); }
  const GraphValue& value(size_t i) const { return value_of(operands_.at(i)); }
  const GraphValue& value_of(ValueId id) const { return graph_.values()[static_cast<size_t>(id)]; }
  DType dtype(size_t i) const { return value(i).dtype; }
  Quantization quantization(size_t i) const { return value(i).quantization; }
  bool is_quantized(size_t i) const { return is_quantized(value(i)); }
  static bool is_quantized(const GraphValue& value);
  const Shape& shape(size_t i) const;  // throws UnknownShapeError if the rank is unknown
  size_t rank(size_t i) const { return shape(i).size(); }
  int64_t size(size_t i, size_t axis) const;                       // throws UnknownShapeError if the size is unknown
  std::optional<std::vector<int64_t>> known_ints(size_t i) const;  // elements of an integer operand, if known now
  std::vector<int64_t> read_list(size_t i) const;                  // throws UnsupportedError if the elements are unknown
  int64_t read_int(size_t i, int64_t fallback = 0) const { return rules_.read_int(i, fallback); }
  double read_real(size_t i) const;
  size_t read_axis(size_t i, size_t rank, int64_t fallback = 0) const { return rules_.read_axis(i, rank, fallback); }
  // Returns an axis in the form that ONNX operators accept, possibly negative. Checks it against the rank of operand `x` plus `more`, if
  // known.
  int64_t read_onnx_axis(size_t i, size_t x, size_t more = 0, int64_t fallback = 0) const;
  Activation read_activation(size_t i) const;
  [[noreturn]] void fail(size_t i, std::string_view rule, const std::string& message) const { rules_.fail(i, rule, message); }
  [[noreturn]] void fail(std::string_view rule, const std::string& message) const { rules_.fail(rule, message); }
  [[noreturn]] void fail(size_t i, const std::string& message) const { rules_.fail(i, message); }
  [[noreturn]] void fail(const std::string& message) const { rules_.fail(message); }
  [[noreturn]] void reject(size_t i, const std::string& message) const { rules_.reject(i, message); }

  // ---- nodes
  ValueId add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes = {});
  std::vector<ValueId> add_multi_output(std::string_view op, std::vector<ValueId> inputs, size_t outputs, const Attributes& attributes);
  ValueId add_int64_vector(const std::vector<int64_t>& values);        // adds a constant int64 vector
  ValueId add_scalar(double value, DType dtype);                       // adds a constant of rank 0
  ValueId add_vector(const std::vector<double>& values, DType dtype);  // adds a constant vector
  ValueId add_scales(const Quantization& quantization);                // adds the scales: a scalar, or a vector with one scale per channel
  ValueId cast_to_int64(size_t i);                                     // returns operand i as int64
  ValueId add_runtime_axes(size_t i, ValueId x);  // returns operand i, a list known only at run time, as distinct axes of x
  ValueId cast(ValueId id, DType dtype);
  ValueId bit_cast_to(ValueId id, DType dtype);  // bit cast to a dtype of the same size
  // Sizes of operands and of values with known rank, and arithmetic on these sizes.
  AxisLength length(size_t i, size_t axis) { return shape(i), get_length(operands_[i], axis); }
  AxisLength get_length(ValueId id, size_t axis);
  AxisLength mul_lengths(const AxisLength& a, const AxisLength& b);
  AxisLength div_lengths(const AxisLength& a, const AxisLength& divisor);
  AxisLength min_lengths(const AxisLength& a, const AxisLength& b);
  AxisLength get_element(ValueId list, int64_t position);     // returns an element of an int64 vector
  ValueId add_sizes(const std::vector<AxisLength>& lengths);  // returns the lengths as an int64 vector
  // Adds a Reshape; at most one length may be -1.
  ValueId reshape(ValueId id, const std::vector<AxisLength>& lengths);
  // Returns `id` or, if it may be a scalar at run time, its reshape to a vector of one element.
  ValueId ensure_vector(ValueId id);
  // Sets unknown sizes of the shape of a value.
  void refine_shape(ValueId id, const Shape& shape) { graph_.refine_shape(id, shape); }
  // Returns `indices` with a run-time check that they are non-negative and within the axis of `x`. Constant indices have already been
  // checked.
  ValueId add_index_check(ValueId indices, ValueId x, int64_t axis);
  ValueId transpose(ValueId id, const std::vector<int64_t>& permutation);
  // Returns operand i as real numbers, dequantized if it is quantized.
  ValueId to_real(size_t i);
  ValueId dequantize(ValueId id, const Quantization& quantization);
  ValueId quantize(ValueId id, const Quantization& quantization, DType dtype);
  ValueId apply_activation(ValueId id, Activation activation);
  // Applies the activation to the integers of a quantized tensor.
  ValueId apply_activation(ValueId id, Activation activation, const Quantization& quantization);

  // ---- outputs

  // Returns the declared parameters of the output; required if nothing else determines them.
  Quantization declared_quantization();
  Quantization declared_quantization_or(const Quantization& fallback);
  // Return the quantization parameters of the output: operand i's, or fixed ones. Throw GraphError if other parameters were
  // declared.
  Quantization operand_quantization(size_t i);
  Quantization fixed_quantization(float scale, int32_t zero_point);
  void expect_one_of_quantizations(
      const std::vector<Quantization>& outputs);  // throws GraphError unless the declared parameters match one of several outputs
  std::optional<DType> declared_dtype();
  void add_output(ValueId id, Quantization quantization = {});
  // Adds an output of the same kind as operand i: quantized with the declared parameters, or real.
  void add_real_output(ValueId id, size_t i);

 private:
  void check_operand_count() const;
  void check_operand(size_t i) const;
  void check_type_letters() const;
  void check_rules();
  ValueId add_check_node(size_t passed_operand, const std::shared_ptr<const DeferredOperandCheck>& requirement,
                         const std::vector<size_t>& checked_operands, std::optional<size_t> unread);
  bool is_declared(const Quantization& expected) const;  // also true if nothing is declared
  Quantization require_quantization(const Quantization& expected, const std::string& why);

  Graph& graph_;
  const ValueId first_new_value_;  // first value that this expansion adds
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

// Returns the facts that the graph knows about the operands.
std::vector<OperandInfo> collect_operand_info(const Graph& graph, const std::vector<ValueId>& operands);

// Creates node attributes from (name, value) pairs.
Attributes make_attrs(std::initializer_list<std::pair<std::string, AttributeValue>> named);

}  // namespace pumice::nnapi
