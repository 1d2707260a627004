// Values, nodes and constants; validated node by node, compiled into a Program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/operator_table.h"

namespace pumice {

inline constexpr int64_t kUnknownSize = -1;

using ValueId = int32_t;
inline constexpr ValueId kAbsent = -1;

struct GraphValue {
  std::string name;
  DType dtype = DType::float32;
  std::optional<Shape> shape;         // kUnknownSize for unknown sizes; none: unknown rank
  std::vector<std::string> dimension_names;  // symbolic names of input dimensions ("N"), empty where none
  std::optional<HostTensor> constant;
  int32_t producer = -1;              // node index; -1 for inputs and constants
};

struct GraphNode {
  std::string name;
  const OperatorRow* row = nullptr;
  Attributes attributes;
  std::vector<ValueId> inputs, outputs;  // kAbsent for optional ones left out
};

class Program;
struct ProgramOptions {
  std::string precision = "fp32";        // "fp32" or "fp16"
  bool keep_all = false;                 // every node's outputs become outputs of the program (validation)
  bool fuse = true;
};

class Graph {
 public:
  explicit Graph(std::string name = {});

  ValueId input(std::string name, DType dtype, std::optional<Shape> shape, std::vector<std::string> dimension_names = {});
  ValueId constant(HostTensor value, std::string name = {});
  // Throws UnsupportedError (no such operator, or dtype) and GraphError (wrong inputs, attributes, shapes where known).
  std::vector<ValueId> add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes = {},
                           size_t outputs = 1, std::string name = {}, std::vector<std::string> output_names = {});
  void output(std::string name, ValueId value);
  void finish();  // idempotent; later changes throw StateError
  bool finished() const { return finished_; }
  std::shared_ptr<Program> compile(std::shared_ptr<Context> context, const ProgramOptions& options = {});

  const std::string& name() const { return name_; }
  const std::vector<GraphValue>& values() const { return values_; }
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<std::pair<std::string, ValueId>>& outputs() const { return outputs_; }

 private:
  std::string name_;
  std::vector<GraphValue> values_;
  std::vector<GraphNode> nodes_;
  std::vector<ValueId> inputs_;
  std::vector<std::pair<std::string, ValueId>> outputs_;
  bool finished_ = false;
};

}  // namespace pumice
