#include "operators/table/operator_table.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "operators/table/row_builders.h"

namespace pumice {

// Each operator family defines one of these functions. They are declared here to avoid circular includes.
OperatorRows define_elementwise_operators();
OperatorRows define_conv_gemm_operators();
OperatorRows define_fused_conv_gemm_operators();
OperatorRows define_attention_operators();
OperatorRows define_quantized_cache_operators();
OperatorRows define_pooling_operators();
OperatorRows define_normalization_operators();
OperatorRows define_reduce_operators();
OperatorRows define_scan_operators();
OperatorRows define_recurrent_operators();
OperatorRows define_quantize_operators();
OperatorRows define_index_operators();
OperatorRows define_gather_scatter_operators();
OperatorRows define_fill_operators();
OperatorRows define_resize_operators();
OperatorRows define_sort_operators();
OperatorRows define_view_operators();
OperatorRows define_random_operators();
OperatorRows define_signal_operators();
OperatorRows define_image_region_operators();
OperatorRows define_ml_operators();
OperatorRows define_user_operators();

namespace {

std::vector<OperatorRow> build_operator_table() {
  std::vector<OperatorRow> rows;
  for (const auto make : {define_elementwise_operators,
                          define_conv_gemm_operators,
                          define_fused_conv_gemm_operators,
                          define_attention_operators,
                          define_quantized_cache_operators,
                          define_pooling_operators,
                          define_normalization_operators,
                          define_reduce_operators,
                          define_scan_operators,
                          define_recurrent_operators,
                          define_quantize_operators,
                          define_index_operators,
                          define_gather_scatter_operators,
                          define_fill_operators,
                          define_resize_operators,
                          define_sort_operators,
                          define_view_operators,
                          define_random_operators,
                          define_signal_operators,
                          define_image_region_operators,
                          define_ml_operators,
                          define_user_operators})
    for (OperatorRow& row : make()) rows.push_back(std::move(row));
  std::sort(rows.begin(), rows.end(), [](const OperatorRow& a, const OperatorRow& b) { return a.name < b.name; });
  return rows;
}

std::string format_count(size_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

// Returns the role of input or output i; null if there are fewer roles.
const ValueRole* find_role(const std::vector<ValueRole>& roles, size_t i) {
  if (i < roles.size()) return &roles[i];
  return !roles.empty() && roles.back().variadic ? &roles.back() : nullptr;
}

// Converts the value to the kind in the schema: integers to reals, and empty lists to lists of any kind.
AttributeValue convert_attribute(const AttributeSchema& schema, std::string_view node, const AttributeValue& value) {
  const auto value_kind = static_cast<AttributeKind>(value.index());
  if (value_kind == schema.kind) return value;
  if (schema.kind == AttributeKind::real && value_kind == AttributeKind::integer) return static_cast<double>(std::get<int64_t>(value));
  const auto* integers = std::get_if<std::vector<int64_t>>(&value);
  if (integers && schema.kind == AttributeKind::reals) return std::vector<double>(integers->begin(), integers->end());
  if (integers && integers->empty() && schema.kind == AttributeKind::texts) return std::vector<std::string>();
  throw GraphError(std::string(node), "attribute '" + std::string(schema.name) + "': expected " +
                                          std::string(get_attribute_kind_name(schema.kind)) + "; given " +
                                          std::string(get_attribute_kind_name(value_kind)));
}

void check_no_unknown_attributes(const OperatorRow& row, std::string_view node, const Attributes& node_attributes) {
  for (const auto& [key, value] : node_attributes.all()) {
    const std::string_view attribute_name = key;
    if (std::none_of(row.schema.attributes.begin(), row.schema.attributes.end(),
                     [&](const AttributeSchema& schema) { return schema.name == attribute_name; }))
      throw GraphError(std::string(node), std::string(row.name) + " has no attribute '" + key + "'");
  }
}

std::string format_attribute(const AttributeValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return "'" + *text + "'";
  return std::to_string(std::get<int64_t>(value));
}

// Throws if the operator does not support the value.
void check_attribute_choice(const OperatorRow& row, const AttributeSchema& schema, std::string_view node, const AttributeValue& value) {
  const auto same = [&](const AttributeValue& choice) {
    if (const auto* text = std::get_if<std::string>(&choice)) return *text == std::get<std::string>(value);
    return std::get<int64_t>(choice) == std::get<int64_t>(value);
  };
  if (schema.choices.empty() || std::any_of(schema.choices.begin(), schema.choices.end(), same)) return;
  std::string choices;
  for (const AttributeValue& choice : schema.choices) choices += (choices.empty() ? "" : ", ") + format_attribute(choice);
  throw UnsupportedError("node '" + std::string(node) + "': " + std::string(row.name) + " with " + std::string(schema.name) + " = " +
                         format_attribute(value) + "; supported: " + choices);
}

void check_dtype(const OperatorRow& row, std::string_view node, const ValueRole& role, DType dtype) {
  if (role.dtypes == 0)
    throw UnsupportedError("node '" + std::string(node) + "': input '" + std::string(role.name) + "' of " + std::string(row.name));
  if (!contains(role.dtypes, dtype))
    throw UnsupportedError("node '" + std::string(node) + "': input '" + std::string(role.name) + "' of " + std::string(row.name) + " as " +
                           std::string(name(dtype)) + "; supported: " + join_dtype_names(role.dtypes));
}

}  // namespace

std::string_view get_kernel_kind_name(KernelKind kind) {
  constexpr std::string_view names[] = {"map",     "reduce", "scan",   "contraction", "window", "index_map",
                                        "scatter", "sort",   "random", "copy",        "view",   "user"};
  return names[static_cast<size_t>(kind)];
}

bool OperatorSchema::supports_in_place(size_t input, size_t output) const {
  if (output != 0 || inputs.empty()) return false;
  return in_place >> std::min(input, inputs.size() - 1) & 1;
}

std::span<const OperatorRow> operators() {
  static const std::vector<OperatorRow> rows = build_operator_table();
  return rows;
}

const OperatorRow* find_operator(std::string_view name) {
  const auto rows = operators();
  const auto found = std::lower_bound(rows.begin(), rows.end(), name,
                                      [](const OperatorRow& row, std::string_view operator_name) { return row.name < operator_name; });
  return found != rows.end() && found->name == name ? &*found : nullptr;
}

Attributes validate_attributes(const OperatorRow& row, std::string_view node, const Attributes& node_attributes) {
  check_no_unknown_attributes(row, node, node_attributes);
  Attributes checked;
  for (const AttributeSchema& schema : row.schema.attributes) {
    const auto found = node_attributes.all().find(schema.name);
    if (found != node_attributes.all().end()) {
      AttributeValue value = convert_attribute(schema, node, found->second);
      check_attribute_choice(row, schema, node, value);
      checked.set(std::string(schema.name), std::move(value));
    } else if (schema.fallback) {
      checked.set(std::string(schema.name), *schema.fallback);
    } else if (!schema.optional) {
      throw GraphError(std::string(node), std::string(row.name) + " needs the attribute '" + std::string(schema.name) + "'");
    }
  }
  return checked;
}

// Inputs with the same type letter must have the same dtype.
static void check_same_dtypes(const OperatorRow& row, std::string_view node, const std::vector<const TensorDesc*>& inputs) {
  std::map<char, std::pair<size_t, DType>> known;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const char letter = find_role(row.schema.inputs, i)->type;
    if (!inputs[i] || letter == 0) continue;
    const auto& [first, dtype] = known.emplace(letter, std::pair(i, inputs[i]->dtype)).first->second;
    if (dtype != inputs[i]->dtype)
      throw GraphError(std::string(node), "input " + std::to_string(i) + " is " + std::string(name(inputs[i]->dtype)) + " and input " +
                                              std::to_string(first) + " is " + std::string(name(dtype)) + "; " + std::string(row.name) +
                                              " needs them to have the same dtype");
  }
}

static void check_rank(const OperatorRow& row, std::string_view node, const TensorDesc& first) {
  const int rank = first.rank(), lowest_rank = row.schema.min_rank, highest_rank = row.schema.max_rank;
  if (rank < lowest_rank || rank > highest_rank)
    throw GraphError(std::string(node), std::string(row.name) + " of a tensor of rank " + std::to_string(rank) + "; expected " +
                                            std::to_string(lowest_rank) + " to " + std::to_string(highest_rank));
}

void infer_outputs(const OperatorRow& row, ShapeContext& node) {
  if (node.has(0)) check_rank(row, node.node(), node.input(0));
  row.shape(node);
}

void check_inputs(const OperatorRow& row, std::string_view node, const std::vector<const TensorDesc*>& inputs, size_t outputs) {
  const OperatorSchema& schema = row.schema;
  const auto fail = [&](const std::string& message) { throw GraphError(std::string(node), message); };
  for (size_t i = 0; i < std::max(inputs.size(), schema.inputs.size()); ++i) {
    const ValueRole* role = find_role(schema.inputs, i);
    if (!role)
      fail(std::string(row.name) + " takes at most " + format_count(schema.inputs.size(), "input") + "; given " +
           std::to_string(inputs.size()));
    if (i < inputs.size() && inputs[i])
      check_dtype(row, node, *role, inputs[i]->dtype);
    else if (!role->optional)
      throw GraphError(std::string(node),
                       std::string(row.name) + " needs input " + std::to_string(i) + ", '" + std::string(role->name) + "'", "G1");
  }
  for (size_t i = 0; i < std::min(outputs, schema.outputs.size()); ++i)
    if (schema.outputs[i].dtypes == 0)
      throw UnsupportedError("node '" + std::string(node) + "': output '" + std::string(schema.outputs[i].name) + "' of " +
                             std::string(row.name));
  if (outputs == 0 || !find_role(schema.outputs, outputs - 1))
    fail(std::string(row.name) + " has " + format_count(schema.outputs.size(), "output") + "; requested " + std::to_string(outputs));
  check_same_dtypes(row, node, inputs);
  if (!inputs.empty() && inputs[0]) check_rank(row, node, *inputs[0]);
}

}  // namespace pumice
