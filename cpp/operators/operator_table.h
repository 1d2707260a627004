// The one table of operators: exact ONNX name, schema, shape rule, lowering. Adding an operator is a row here, a shader (or an
// expression) and a row in the test table.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/attributes.h"
#include "operators/lowering.h"

namespace pumice {

// The skeleton that a row lowers to. Fusion is stated between these, never between operators.
enum class Skeleton : uint8_t { map, reduce, scan, contraction, window, index_map, scatter, sort, random, copy, view };
std::string_view name(Skeleton skeleton);

struct ValueRole {
  std::string_view name;
  DTypeSet dtypes = 0;
  bool optional = false;
  bool variadic = false;  // only the last
};

struct AttributeSchema {
  std::string_view name;
  AttributeKind kind;
  std::optional<AttributeValue> fallback;  // none: required unless `optional`
  bool optional = false;
};

struct Schema {
  std::vector<ValueRole> inputs, outputs;
  std::vector<AttributeSchema> attributes;
  int min_rank = 0, max_rank = kMaxRank;  // of input 0
  bool in_place = false;                  // output 0 may be the memory of input 0 (elementwise, one read per element)
};

// Shapes and dtypes of the outputs from those of the inputs. All sizes are known here.
class ShapeContext {
 public:
  ShapeContext(std::string_view node, const Attributes& attributes, std::vector<const TensorDesc*> inputs,
               std::vector<const HostTensor*> hosts, size_t output_count);
  const Attributes& attributes() const { return attributes_; }
  std::string_view node() const { return node_; }
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const TensorDesc& input(size_t i) const;                 // GraphError where absent
  const HostTensor* host(size_t i) const;                  // nullptr where input i has no host side
  std::vector<int64_t> host_integers(size_t i) const;      // GraphError naming node and input where there is none
  void output(size_t i, DType dtype, Shape shape);
  std::vector<std::optional<TensorDesc>> take_outputs() { return std::move(outputs_); }
  [[noreturn]] void fail(const std::string& message) const;  // GraphError with the node's name

 private:
  std::string_view node_;
  const Attributes& attributes_;
  std::vector<const TensorDesc*> inputs_;
  std::vector<const HostTensor*> hosts_;
  std::vector<std::optional<TensorDesc>> outputs_;
};

struct OperatorRow {
  std::string_view name;
  Skeleton skeleton;
  Schema schema;
  void (*shape)(ShapeContext&) = nullptr;
  void (*lower)(LowerContext&) = nullptr;
  // For map rows: the scalar expression over the inputs' names and attributes ("x < 0 ? alpha * x : x").
  std::string_view expression;
  // Inputs whose values the shape rule or the lowering reads on the host (axes, pads, target shapes): bit i for input i.
  uint32_t host_inputs = 0;
  // Describes how constant input `i` is repacked once for this device; false: used as it is. Free of data shapes.
  bool (*pack)(const PackContext&, size_t input, PackedWeight&) = nullptr;
};

std::span<const OperatorRow> operators();
const OperatorRow* find_operator(std::string_view name);

// Checks inputs, dtypes, rank and attributes against the schema; fills defaults. Throws GraphError (wrong) or UnsupportedError (dtype).
Attributes checked_attributes(const OperatorRow& row, std::string_view node, const Attributes& given);
void check_inputs(const OperatorRow& row, std::string_view node, const std::vector<const TensorDesc*>& inputs, size_t outputs);

}  // namespace pumice
