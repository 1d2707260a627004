#include "graph/passes/passes.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "graph/description/shape_inference.h"
#include "graph/passes/force_fp32_nodes.h"
#include "graph/passes/fp32_constants.h"
#include "graph/passes/mixed_precision.h"
#include "operators/host/host_evaluate.h"
#include "operators/table/onnx_dtype.h"
#include "operators/table/precision_support.h"
#include "operators/table/result_dtype.h"

namespace pumice {

namespace {

// Returns, for each value, whether its shape is the same for all inputs. A shape that depends on unknown sizes may only seem to be known,
// if all trials happen to agree.
std::vector<bool> find_static_shapes(const ProgramGraph& graph) {
  std::vector<bool> certain(graph.values.size(), false);
  for (size_t i = 0; i < graph.values.size(); ++i) certain[i] = graph.values[i].constant.has_value();
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    certain[static_cast<size_t>(graph.inputs[i])] = graph.value(graph.inputs[i]).is_known() && !graph.dynamic_inputs[i];
  for (const ProgramNode& node : graph.nodes) {
    const auto is_certain = [&](ValueId input) { return input == kAbsent || certain[static_cast<size_t>(input)]; };
    const bool all = std::ranges::all_of(node.inputs, is_certain);
    for (const ValueId output : node.outputs)
      if (output != kAbsent) certain[static_cast<size_t>(output)] = all && graph.value(output).is_known();
  }
  return certain;
}

// Returns the constant inputs of a node, or their descriptions alone if it does not read elements. Returns an empty vector if an input is
// not constant.
std::vector<const HostTensor*> collect_constant_inputs(const ProgramGraph& graph, const ProgramNode& node, const std::vector<bool>& certain,
                                                       std::vector<HostTensor>& shape_only) {
  std::vector<const HostTensor*> inputs(node.inputs.size());
  shape_only.resize(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs[i] == kAbsent) continue;
    const GraphValue& value = graph.value(node.inputs[i]);
    if (value.constant) {
      inputs[i] = &*value.constant;
    } else if (node.row->host.reads_only_shapes && certain[static_cast<size_t>(node.inputs[i])]) {
      shape_only[i].desc = TensorDesc(value.dtype, *value.shape);
      inputs[i] = &shape_only[i];
    } else {
      return {};
    }
  }
  return inputs;
}

// Small constants are always folded, large ones only if folding does not increase their size.
bool is_worth_folding(const ProgramGraph& graph, const ProgramNode& node) {
  int64_t read = 0, produced = 0;
  const std::set<ValueId> inputs(node.inputs.begin(), node.inputs.end());  // counts repeated inputs once
  for (const ValueId input : inputs)
    if (input != kAbsent && graph.value(input).constant) read += graph.value(input).constant->desc.elements();
  for (const ValueId output : node.outputs) {
    if (output == kAbsent) continue;
    if (!graph.value(output).is_known()) return false;
    produced += element_count(*graph.value(output).shape);
  }
  return produced <= kMaxHostElements || produced <= read;
}

bool fold_node(ProgramGraph& graph, const ProgramNode& node, const std::vector<bool>& certain) {
  std::vector<HostTensor> shape_only;
  if (!is_worth_folding(graph, node)) return false;
  const auto inputs = collect_constant_inputs(graph, node, certain, shape_only);
  if (inputs.size() != node.inputs.size()) return false;
  std::optional<std::vector<HostTensor>> results;
  try {
    results = evaluate_on_host(*node.row, node.name, node.attributes, inputs);
  } catch (const GraphError&) {
    if (!node.may_fail) throw;
  }
  if (!results) return false;
  for (size_t i = 0; i < node.outputs.size() && i < results->size(); ++i) {
    if (node.outputs[i] == kAbsent) continue;
    GraphValue& value = graph.value(node.outputs[i]);
    value.constant = std::move((*results)[i]);
    value.producer = -1;
  }
  return true;
}

// Creates a conversion node. `verb`: first word of its name.
ProgramNode make_conversion(ProgramGraph& graph, std::string_view op, const std::string& verb, const Attributes& attributes, ValueId from,
                            ValueId to) {
  GraphNode node;
  node.name = verb + " '" + graph.value(from).name + "' to " + std::string(name(graph.value(to).dtype));
  node.row = find_operator(op);
  node.attributes = validate_attributes(*node.row, node.name, attributes);
  node.inputs = {from};
  node.outputs = {to};
  graph.report.push_back(
      {.node = node.name, .op = std::string(node.row->name), .note = "at the border", .added = true, .dtype = graph.value(to).dtype});
  return {std::move(node), static_cast<uint32_t>(graph.report.size() - 1)};
}

ProgramNode make_cast(ProgramGraph& graph, ValueId from, ValueId to) {
  Attributes attributes;
  attributes.set("to", to_onnx_dtype(graph.value(to).dtype));
  return make_conversion(graph, "Cast", "cast", attributes, from, to);
}

// Casts to 16 bits like make_cast(), but clamps finite values. Scores masked with -3.4e38 would otherwise become -inf, and Softmax of a
// fully masked row NaN.
ProgramNode make_saturating_cast(ProgramGraph& graph, ValueId from, ValueId to) {
  ProgramNode node = make_conversion(graph, "Clip", "saturate", {}, from, to);
  const std::string limit = graph.value(to).dtype == DType::bfloat16 ? "3.3895313892515355e38" : "65504.0";
  node.expression = Expression::parse("abs(x) > " + limit + " && !isinf(x) ? (x > 0 ? " + limit + " : -" + limit + ") : x");
  return node;
}

}  // namespace

void fold_constants(ProgramGraph& graph) {
  const std::vector<bool> certain = find_static_shapes(graph);
  std::erase_if(graph.nodes, [&](const ProgramNode& node) {
    if (!fold_node(graph, node, certain)) return false;
    graph.report[node.report].note = "folded";
    return true;
  });
}

void remove_dead_nodes(ProgramGraph& graph) {
  std::vector<uint32_t> uses = graph.count_uses();
  const auto is_read = [&](ValueId value) { return value != kAbsent && uses[static_cast<size_t>(value)] > 0; };
  std::vector<ProgramNode> kept;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    ProgramNode& node = graph.nodes[i];
    if (std::none_of(node.outputs.begin(), node.outputs.end(), is_read)) {
      for (const ValueId input : node.inputs)
        if (input != kAbsent) --uses[static_cast<size_t>(input)];
      if (graph.report[node.report].note.empty()) graph.report[node.report].note = "not needed";
      continue;
    }
    const auto& roles = node.row->schema.outputs;
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (!is_read(node.outputs[k]) && (k >= roles.size() || roles[k].optional || roles[k].variadic)) node.outputs[k] = kAbsent;
    const bool counted = !roles.empty() && roles.back().variadic;  // variadic outputs: one per part, none may be dropped
    while (!counted && node.outputs.size() > 1 && node.outputs.back() == kAbsent) node.outputs.pop_back();
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
}

namespace {

bool is_fp32_value(const ProgramGraph& graph, ValueId id) {
  if (id == kAbsent || graph.float_dtype == DType::float32) return false;
  const GraphValue& value = graph.value(id);
  return value.constant ? value.fp32 : value.dtype == DType::float32 && !value.owned;
}

// Returns the float dtype that a node produces: that of the program, except float32 for nodes that the caller requested, operators known to
// overflow float16, mixed-precision nodes that read such results, and nodes that only move them. `requested_fp32`: float32 values of nodes
// requested by the caller, which do not make mixed-precision readers float32.
DType choose_float_dtype(const ProgramGraph& graph, const ProgramNode& node, const std::set<ValueId>& requested_fp32) {
  const DType internal_dtype = graph.float_dtype;
  if (internal_dtype == DType::float32 || node.fp32) return DType::float32;
  const auto is_fp32 = [&](ValueId input) { return is_fp32_value(graph, input); };
  bool any = false, spreads = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!is_fp32(node.inputs[i]) || is_inactive_bound(graph, node, i)) continue;
    any = true;
    spreads = spreads || !requested_fp32.contains(node.inputs[i]);
  }
  if (node.row->precision.mixed_precision) return spreads ? DType::float32 : get_result_float_dtype(*node.row, internal_dtype);
  // Constants and owned inputs have the internal dtype.
  bool all = any;
  for (size_t k = 0; k < node.get_data_inputs().size(); ++k) {
    const ValueId input = node.inputs[k];
    const bool read = input != kAbsent && !is_host_input(node, k) && is_operator_float(graph.value(input).dtype);
    all = all && (!read || is_fp32(input));
  }
  return all && moves_elements_unchanged(*node.row) ? DType::float32 : internal_dtype;
}

// Whether the caller requested float32 for the node, or the node moves elements of a node with such a request.
bool keeps_requested_fp32(const ProgramGraph& graph, const ProgramNode& node, const std::set<ValueId>& requested_fp32) {
  if (graph.report[node.report].fp32_requested) return true;
  return moves_elements_unchanged(*node.row) &&
         std::ranges::any_of(node.get_data_inputs(), [&](ValueId input) { return requested_fp32.contains(input); });
}

// Converts each input for which `fits` is false, with a node that `convert` adds. Each value is converted once.
template <typename Fits, typename Convert>
void cast_inputs(const ProgramGraph& graph, ProgramNode& node, const Fits& fits, std::map<ValueId, ValueId>& converted,
                 const Convert& convert) {
  for (size_t k = 0; k < node.get_data_inputs().size(); ++k) {
    ValueId& input = node.inputs[k];
    if (input == kAbsent || is_host_input(node, k) || !is_operator_float(graph.value(input).dtype) || fits(input, k)) continue;
    const auto [found, added] = converted.try_emplace(input, kAbsent);
    if (added) found->second = convert(input);
    input = found->second;
  }
}

// Removes casts of graph inputs without readers, because all nodes read the inputs directly.
void remove_unread_casts(ProgramGraph& graph, std::vector<ProgramNode>& casts) {
  const std::vector<uint32_t> uses = graph.count_uses();
  std::erase_if(casts, [&](const ProgramNode& cast) {
    const bool unread = uses[to_index(cast.outputs[0])] == 0;
    if (unread) graph.report[cast.report].note = "not needed";
    return unread;
  });
}

// Changes all internal floats to one dtype, and adds casts where nodes, inputs or outputs keep another dtype.
class PrecisionPass {
 public:
  // `scores`: values that saturate when rounded to 16 bits.
  PrecisionPass(ProgramGraph& graph, std::set<ValueId> scores)
      : graph_(graph),
        mixed_(graph),
        internal_dtype_(graph.float_dtype),
        is_graph_input_(graph.values.size(), false),
        exceeds_fp16_(std::move(scores)) {
    for (const auto& [name, value] : graph.outputs) declared_outputs_.push_back(graph.value(value).dtype);
  }

  void run() {
    cast_graph_inputs();
    for (const GraphValue& value : graph_.values) declared_.push_back(value.dtype);
    for (ProgramNode& node : graph_.nodes) {
      if (node.row->precision.reads_bits)
        keep_bit_patterns(node);
      else
        convert_node(node);
    }
    graph_.nodes = std::move(nodes_);
    remove_unread_casts(graph_, input_casts_);
    cast_graph_outputs();
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(input_casts_.begin()), std::make_move_iterator(input_casts_.end()));
    graph_.nodes.insert(graph_.nodes.end(), std::make_move_iterator(output_casts_.begin()), std::make_move_iterator(output_casts_.end()));
  }

 private:
  bool needs_conversion(DType dtype) const { return is_operator_float(dtype) && dtype != internal_dtype_; }

  ValueId add_value_copy(ValueId value, DType dtype) {
    GraphValue copy = graph_.value(value);
    copy.name += " as " + std::string(name(dtype));
    copy.dtype = dtype;
    copy.owned = false;
    copy.constant.reset();
    return graph_.add_value(std::move(copy));
  }

  ProgramNode make_narrowing_cast(ValueId from, ValueId to) {
    return exceeds_fp16_.contains(from) && is_16bit_float(graph_.value(to).dtype) ? make_saturating_cast(graph_, from, to)
                                                                                  : make_cast(graph_, from, to);
  }

  void cast_graph_inputs() {
    for (const ValueId input : graph_.inputs) {
      is_graph_input_[static_cast<size_t>(input)] = true;
      if (graph_.value(input).owned || !needs_conversion(graph_.value(input).dtype))
        continue;  // owned inputs are converted at initialisation
      const ValueId inner = add_value_copy(input, internal_dtype_);
      input_casts_.push_back(make_narrowing_cast(input, inner));
      replaced_[input] = inner;
    }
  }

  // A node that reads or writes bit patterns keeps its declared dtypes and gets casts around it.
  void keep_bit_patterns(ProgramNode& node) {
    ValueId &input = node.inputs[0], &output = node.outputs[0];
    if (const DType declared = declared_[static_cast<size_t>(input)]; graph_.value(input).dtype != declared) {
      const ValueId copy = add_value_copy(input, declared);
      nodes_.push_back(make_cast(graph_, input, copy));
      input = copy;
    }
    graph_.report[node.report].dtype = graph_.value(output).dtype;
    if (!needs_conversion(graph_.value(output).dtype)) return nodes_.push_back(std::move(node));
    const ValueId result = output;
    output = add_value_copy(result, declared_[static_cast<size_t>(result)]);
    graph_.value(result).dtype = internal_dtype_;
    const ValueId bits = output;
    nodes_.push_back(std::move(node));
    nodes_.push_back(make_cast(graph_, bits, result));
  }

  void convert_node(ProgramNode& node) {
    const bool fp32_requested = graph_.report[node.report].fp32_requested;  // such a node reads graph inputs without a cast
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      ValueId& input = node.inputs[k];
      const auto found = replaced_.find(input);
      // The host reads scales and limits unrounded. Rounding them to 16 bits could change output sizes.
      if (found == replaced_.end() || fp32_requested || is_host_input(node, k) ||
          (is_fp32_value(graph_, input) && mixed_.accepts_fp32(node, k)))
        continue;
      input = found->second;
    }
    const DType result_dtype = choose_float_dtype(graph_, node, requested_fp32_);
    const bool keeps = result_dtype != internal_dtype_ && keeps_requested_fp32(graph_, node, requested_fp32_);
    record_fp16_overflow(node, result_dtype);
    cast_node_inputs(node, result_dtype);
    for (const ValueId output : node.outputs)
      if (output != kAbsent && is_operator_float(graph_.value(output).dtype)) {
        graph_.value(output).dtype = result_dtype;
        if (keeps) requested_fp32_.insert(output);
      }
    const auto first_output = std::ranges::find_if(node.outputs, [](ValueId output) { return output != kAbsent; });
    graph_.report[node.report].dtype = graph_.value(*first_output).dtype;
    for (size_t j = 0; j < node.outputs.size(); ++j)
      if (result_dtype == internal_dtype_ && mixed_.stores_fp32(node, j)) graph_.value(node.outputs[j]).dtype = DType::float32;
    nodes_.push_back(std::move(node));
  }

  // Casts the inputs of a float32 node to float32, and the inputs of a node that needs a single dtype to the internal dtype.
  void cast_node_inputs(ProgramNode& node, DType result_dtype) {
    const auto is_fp32_input = [&](ValueId value, size_t) { return is_fp32_value(graph_, value); };
    const auto is_convertible_input = [&](ValueId value, size_t k) {
      return !is_fp32_value(graph_, value) || mixed_.accepts_fp32(node, k);
    };
    const auto narrow = [&](ValueId value) {
      const ValueId copy = add_value_copy(value, internal_dtype_);
      nodes_.push_back(make_narrowing_cast(value, copy));
      return copy;
    };
    const auto widen = [&](ValueId value) {
      const ValueId copy = add_value_copy(value, DType::float32);
      nodes_.push_back(make_cast(graph_, value, copy));
      return copy;
    };
    if (node.fp32)
      cast_inputs(graph_, node, is_fp32_input, widened_, widen);
    else if (result_dtype == internal_dtype_ && !node.row->precision.mixed_precision)
      cast_inputs(graph_, node, is_convertible_input, narrowed_, narrow);
  }

  // Whether the node is float32 because of a number that float16 cannot represent, not only at the request of the caller.
  bool has_number_beyond_fp16(const ProgramNode& node) const {
    const ReportRow& row = graph_.report[node.report];
    if (!row.fp32_requested) return node.fp32 || !row.fp32.empty();
    return std::ranges::any_of(node.get_data_inputs(), [&](ValueId input) {
      return input != kAbsent && graph_.value(input).constant && find_unrepresentable_fp16(*graph_.value(input).constant);
    });
  }

  // Records results that may be finite but overflow float16: results of nodes with such numbers, and of float32 elementwise nodes and views
  // that read them.
  void record_fp16_overflow(const ProgramNode& node, DType result_dtype) {
    const auto exceeds_fp16 = [&](ValueId input) { return input != kAbsent && exceeds_fp16_.contains(input); };
    if (internal_dtype_ != DType::float16 || result_dtype != DType::float32) return;
    if (!has_number_beyond_fp16(node) && std::ranges::none_of(node.get_data_inputs(), exceeds_fp16)) return;
    for (const ValueId output : node.outputs)
      if (output != kAbsent) exceeds_fp16_.insert(output);
  }

  bool is_internal_value(ValueId value) const {
    const auto at = static_cast<size_t>(value);
    return at >= is_graph_input_.size() || (!is_graph_input_[at] && !graph_.value(value).constant);
  }

  void cast_graph_outputs() {
    std::map<ValueId, ValueId> outer;
    for (size_t j = 0; j < graph_.outputs.size(); ++j) {
      ValueId& value = graph_.outputs[j].second;
      if (!is_internal_value(value) || !is_operator_float(declared_outputs_[j]) || graph_.value(value).dtype == declared_outputs_[j])
        continue;
      const auto [found, added] = outer.try_emplace(value, kAbsent);
      if (added) {
        found->second = add_value_copy(value, declared_outputs_[j]);
        output_casts_.push_back(make_narrowing_cast(value, found->second));
      }
      value = found->second;
    }
  }

  ProgramGraph& graph_;
  const MixedPrecisionAnalysis mixed_;
  const DType internal_dtype_;
  std::vector<bool> is_graph_input_;                             // for each value: whether it is an input of the graph
  std::vector<DType> declared_outputs_;                          // declared dtype of each output of the graph
  std::vector<DType> declared_;                                  // declared dtype of each value of the graph
  std::map<ValueId, ValueId> replaced_;                          // graph inputs -> their casts to the internal dtype
  std::map<ValueId, ValueId> narrowed_, widened_;                // values -> their casts to the internal dtype, and to float32
  std::set<ValueId> requested_fp32_;                             // see choose_float_dtype()
  std::set<ValueId> exceeds_fp16_;                               // see record_fp16_overflow()
  std::vector<ProgramNode> input_casts_, nodes_, output_casts_;  // casts of graph inputs, the nodes, casts of graph outputs
};

}  // namespace

void set_precision(ProgramGraph& graph) {
  keep_positions_fp32(graph);
  std::set<ValueId> scores = keep_attention_scores_finite(graph);
  force_fp32_nodes(graph);
  keep_fp32_constants(graph);
  PrecisionPass(graph, std::move(scores)).run();
}

// Removes casts at inputs and outputs whose dtypes already match. A KV cache that is input and output can then share memory, whatever the
// float dtype of the model file.
void remove_redundant_casts(ProgramGraph& graph) {
  std::map<ValueId, ValueId> same;  // output of a removed cast -> its input
  std::set<ValueId> outputs;
  for (const auto& [name, value] : graph.outputs) outputs.insert(value);
  const std::set<ValueId> inputs(graph.inputs.begin(), graph.inputs.end());
  std::erase_if(graph.nodes, [&](const ProgramNode& node) {
    if (!node.row->casts || graph.value(node.inputs[0]).constant) return false;
    const auto before = same.find(node.inputs[0]);
    const ValueId from = before == same.end() ? node.inputs[0] : before->second, to = node.outputs[0];
    const bool from_input = inputs.contains(from), is_output = outputs.contains(to);
    const DType dtype = graph.value(from).dtype;
    if (from_input == is_output || !is_operator_float(dtype) || dtype != graph.value(to).dtype || outputs.contains(from)) return false;
    same[to] = from;
    graph.report[node.report].note = "not needed";
    return true;
  });
  const auto replace = [&](ValueId& value) {
    if (const auto found = same.find(value); found != same.end()) value = found->second;
  };
  for (ProgramNode& node : graph.nodes) std::ranges::for_each(node.inputs, replace);
  for (auto& [name, value] : graph.outputs) replace(value);
}

// Marks nodes whose output shapes are used, but not the output elements.
static void find_shape_only_nodes(ProgramGraph& graph) {
  std::vector<bool> read(graph.values.size(), false);
  for (const auto& [name, output] : graph.outputs) read[static_cast<size_t>(output)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    ProgramNode& node = graph.nodes[i];
    node.only_shape =
        std::ranges::none_of(node.outputs, [&](ValueId output) { return output != kAbsent && read[static_cast<size_t>(output)]; });
    if (node.only_shape || node.row->host.reads_only_shapes) continue;
    for (const ValueId input : node.get_data_inputs())
      if (input != kAbsent) read[static_cast<size_t>(input)] = true;
  }
}

void find_host_nodes(ProgramGraph& graph) {
  std::vector<bool> host_required(graph.values.size(), false), known(graph.values.size(), false);
  for (size_t j = 0; j < graph.host_outputs.size(); ++j)
    if (graph.host_outputs[j]) host_required[static_cast<size_t>(graph.outputs[j].second)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    ProgramNode& node = graph.nodes[i];
    const bool required = !node.row->lower || std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
      return output != kAbsent && host_required[static_cast<size_t>(output)];
    });
    node.on_host = node.host_required = required;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != kAbsent &&
          (is_host_input(node, k) || (required && k < node.get_data_inputs().size() && !node.row->host.reads_only_shapes)))
        host_required[static_cast<size_t>(node.inputs[k])] = true;
  }
  for (size_t i = 0; i < graph.values.size(); ++i) known[i] = graph.values[i].constant.has_value();
  for (const ValueId input : graph.inputs) {
    graph.shape_value_inputs.push_back(host_required[static_cast<size_t>(input)]);
    known[static_cast<size_t>(input)] = host_required[static_cast<size_t>(input)];
  }
  // Walks forwards: nodes that depend only on host values also run on the host.
  for (ProgramNode& node : graph.nodes) {
    const auto read = node.get_data_inputs();
    const bool follows =
        std::all_of(read.begin(), read.end(), [&](ValueId input) { return input == kAbsent || known[static_cast<size_t>(input)]; });
    node.on_host = node.on_host || follows;
    for (const ValueId output : node.outputs)
      if (output != kAbsent) known[static_cast<size_t>(output)] = node.on_host;
  }
  find_shape_only_nodes(graph);
}

}  // namespace pumice
