// The map skeleton: any row whose meaning is a scalar expression over broadcast operands.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "operators/families.h"
#include "operators/map_expression.h"
#include "operators/operator_table.h"
#include "operators/strided.h"

namespace pumice {
namespace {

constexpr size_t kMapRank = 4;  // of the usual kernel, which has up to four inputs
constexpr size_t kMapInputs = 8;

std::string number(size_t i) {
  return std::to_string(i);
}

std::string_view glsl_type(ExprType type) {
  switch (type) {
    case ExprType::boolean:
      return "bool";
    case ExprType::i32:
      return "int";
    case ExprType::u32:
      return "uint";
    case ExprType::i64:
      return "int64_t";
    case ExprType::u64:
      return "uint64_t";
    case ExprType::f64:
      return "double";
    default:
      return "float";
  }
}

// How elements of a dtype are declared, loaded and stored in GLSL in a kernel of that storage; `t` is the array, `i` the element.
struct ElementText {
  std::string declared, load, store, store4;
};

std::string four(const std::string& one) {
  std::string text;
  for (int k = 0; k < 4; ++k) {
    std::string copy = one;
    for (size_t at; (at = copy.find('#')) != std::string::npos;) copy.replace(at, 1, std::to_string(k));
    text += copy;
  }
  return text;
}

ElementText element_text(const NodeContext& node, DType dtype, DType storage, const std::string& t) {
  const std::string direct4 = four(t + "[i + #u] = v[#]; ");
  const auto packed = [&](const char* kind, const char* four_lanes) {
    return ElementText{"uint", "pm_load_" + std::string(kind) + "(" + t + ", i)", "pm_store_" + std::string(kind) + "(" + t + ", i, v)",
                       four_lanes};
  };
  switch (dtype) {
    case DType::float32:
      return {"float", t + "[i]", t + "[i] = v", direct4};
    case DType::float16:
    case DType::bfloat16:
      if (dtype != storage)  // the kernel's storage is another float of 16 bits: by words
        return packed(dtype == DType::float16 ? "half" : "bfloat16", "");
      return {"sfp", "pm_load(" + t + ", i)", "pm_store(" + t + ", i, v)", "pm_store4(" + t + ", i, vec4(v[0], v[1], v[2], v[3]))"};
    case DType::int32:
      return {"int", t + "[i]", t + "[i] = v", direct4};
    case DType::uint32:
      return {"uint", t + "[i]", t + "[i] = v", direct4};
    case DType::float64:
      node.check_arithmetic(dtype);
      return {"double", t + "[i]", t + "[i] = v", direct4};
    case DType::int64:
    case DType::uint64:
      node.check_arithmetic(dtype);
      return {dtype == DType::int64 ? "int64_t" : "uint64_t", t + "[i]", t + "[i] = v", direct4};
    case DType::bool_: {
      ElementText text = packed("bool", "");
      text.store = "pm_store_u8(" + t + ", i, v ? 1u : 0u)";
      text.store4 = t + "[(i) >> 2] = pm_pack_u8(uvec4(v[0] ? 1u : 0u, v[1] ? 1u : 0u, v[2] ? 1u : 0u, v[3] ? 1u : 0u))";
      return text;
    }
    case DType::uint8: {
      ElementText text = packed("u8", "");
      text.store4 = t + "[(i) >> 2] = pm_pack_u8(uvec4(v[0], v[1], v[2], v[3]))";
      return text;
    }
    case DType::int8: {
      ElementText text = packed("i8", "");
      text.store = "pm_store_u8(" + t + ", i, v)";
      text.store4 = t + "[(i) >> 2] = pm_pack_i8(ivec4(v[0], v[1], v[2], v[3]))";
      return text;
    }
    case DType::uint16: {
      ElementText text = packed("u16", "");
      text.store4 = t + "[(i) >> 1] = pm_pack_u16(uvec2(v[0], v[1])); " + t + "[((i) >> 1) + 1u] = pm_pack_u16(uvec2(v[2], v[3]))";
      return text;
    }
    case DType::int16: {
      ElementText text = packed("i16", "");
      text.store = "pm_store_u16(" + t + ", i, v)";
      text.store4 = t + "[(i) >> 1] = pm_pack_i16(ivec2(v[0], v[1])); " + t + "[((i) >> 1) + 1u] = pm_pack_i16(ivec2(v[2], v[3]))";
      return text;
    }
    default:
      throw UnsupportedError("node '" + std::string(node.node) + "': elementwise arithmetic on " + std::string(name(dtype)));
  }
}

// The operands that a map reads, by the names that its expression gives them.
struct Inputs {
  std::vector<std::string> names;
  std::vector<size_t> positions;  // of the node's inputs
};

Inputs inputs_of(const LowerContext& node, size_t count) {
  Inputs inputs;
  const auto names = map_input_names(*node.row, count);
  for (size_t i = 0; i < count; ++i) {
    if (!node.has_input(i)) continue;
    inputs.names.push_back(names[i]);
    inputs.positions.push_back(i);
  }
  return inputs;
}

bool is_flat(const std::vector<int64_t>& strides, const std::vector<int64_t>& sizes) {
  return is_dense(sizes, strides) || std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; });
}

IndexSpace space_of(const LowerContext& node, const Inputs& inputs) {
  const TensorDesc& y = node.output(0);
  IndexSpace space;
  space.sizes = y.shape;
  for (const size_t i : inputs.positions) space.strides.push_back(broadcast_strides(node.input(i).shape, node.input(i).strides, y.shape));
  space.strides.push_back(y.strides);
  // A broadcast axis of the operand has stride 0 whatever it was in memory.
  for (size_t k = 0; k < inputs.positions.size(); ++k) {
    const Shape& given = node.input(inputs.positions[k]).shape;
    for (size_t axis = 0; axis < given.size(); ++axis)
      if (given[axis] == 1) space.strides[k][y.shape.size() - given.size() + axis] = 0;
  }
  // Axes from the outermost in the output's memory to the innermost, so that a dense output is walked as it lies.
  std::vector<size_t> order(space.sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return y.strides[a] > y.strides[b] && y.shape[a] != 1 && y.shape[b] != 1; });
  IndexSpace sorted = space;
  for (size_t axis = 0; axis < order.size(); ++axis) {
    sorted.sizes[axis] = space.sizes[order[axis]];
    for (size_t t = 0; t < space.strides.size(); ++t) sorted.strides[t][axis] = space.strides[t][order[axis]];
  }
  sorted.coalesce();
  return sorted;
}

struct MapText {
  Macros macros;
  DType storage = DType::float32;
  bool has_int64 = false, has_float64 = false;
};

// The float of 16 bits that the extension's types are: the result's, else that of the first operand that is one.
DType storage_of_map(const LowerContext& node, const Inputs& inputs) {
  if (is_half_width(node.output(0).dtype)) return node.output(0).dtype;
  for (const size_t i : inputs.positions)
    if (is_half_width(node.input(i).dtype)) return node.input(i).dtype;
  return DType::float32;
}

MapText map_text(const LowerContext& node, const Inputs& inputs, const Expression& expression) {
  MapText text;
  std::map<std::string, ExprType> types;
  std::string declarations, loads, offsets;
  text.storage = storage_of_map(node, inputs);
  const auto note_width = [&](DType dtype) {
    text.has_int64 = text.has_int64 || (is_integer(dtype) && bits(dtype) == 64);
    text.has_float64 = text.has_float64 || dtype == DType::float64;
  };
  for (size_t k = 0; k < inputs.names.size(); ++k) {
    const DType dtype = node.input(inputs.positions[k]).dtype;
    const std::string t = "t" + number(k);
    const ElementText element = element_text(node, dtype, text.storage, t);
    note_width(dtype);
    types[inputs.names[k]] = expr_type(dtype);
    declarations += "layout(binding = " + number(k) + ") readonly buffer T" + number(k) + "_ { " + element.declared + " " + t + "[]; }; ";
    offsets += "uint " + t + "_offset; ";
    std::string load = element.load;
    load.replace(load.rfind('i', load.find("i)") != std::string::npos ? load.rfind("i)") : load.rfind("i]")), 1,
                 "at[" + number(k) + "] + p." + t + "_offset");
    loads += std::string(glsl_type(types[inputs.names[k]])) + " " + inputs.names[k] + " = " + load + "; ";
  }
  const DType result_dtype = node.output(0).dtype;
  const ElementText result = element_text(node, result_dtype, text.storage, "y");
  note_width(result_dtype);
  declarations += "layout(binding = " + number(inputs.names.size()) + ") buffer Y_ { " + result.declared + " y[]; };";
  ExprType type = ExprType::f32;
  std::string glsl = expression.glsl(types, &type);
  const ExprType wanted = expr_type(result_dtype);
  if (type != wanted) glsl = std::string(glsl_type(wanted)) + "(" + glsl + ")";
  const auto with_offset = [](const std::string& body, bool many) {
    return "{ const uint i = (index) + " + std::string(many ? "p.y_offset" : "0u") + "; " + body + "; }";
  };
  text.macros = {{"DECLARATIONS", declarations},
                 {"LOADS", loads},
                 {"OFFSETS", offsets},
                 {"INPUTS", number(inputs.names.size())},
                 {"RESULT_TYPE", std::string(glsl_type(wanted))},
                 {"RESULT", glsl},
                 {"STORE(index, v)", with_offset(result.store, false)},
                 {"STORE4(index, v)", with_offset(result.store4, true)}};
  if (wanted == ExprType::f32) text.macros.emplace_back("EPILOGUE(x)", node.epilogue());
  if (text.has_int64) text.macros.emplace_back("PM_HAS_INT64", "1");
  if (text.has_float64) text.macros.emplace_back("PM_HAS_FLOAT64", "1");
  return text;
}

// Axes that the kernel walks: as many as its 128 bytes of push constants hold strides for.
size_t rank_of(const IndexSpace& space, size_t inputs) {
  constexpr size_t kPushWords = 32;
  const size_t most = (kPushWords - 2 - inputs) / (inputs + 2);
  return std::clamp(space.sizes.size(), std::min(kMapRank, most), most);
}

// `count`: the first inputs, which are the operands.
void add_map(LowerContext& node, const Expression& expression, size_t count) {
  const Inputs inputs = inputs_of(node, count);
  if (inputs.names.size() > kMapInputs)
    throw UnsupportedError("node '" + std::string(node.node) + "': " + std::string(node.row->name) + " of " + number(inputs.names.size()) +
                           " inputs; at most " + number(kMapInputs) + " are supported");
  const int64_t elements = node.output(0).elements();
  if (elements == 0) return;
  IndexSpace space = space_of(node, inputs);
  bool flat = is_dense(space.sizes, space.strides.back());
  const bool dense = flat;
  for (size_t k = 0; k < inputs.names.size(); ++k) flat = flat && is_flat(space.strides[k], space.sizes);
  MapText text = map_text(node, inputs, expression);
  text.macros.emplace_back("FLAT", flat ? "1" : "0");
  text.macros.emplace_back("DENSE", dense ? "1" : "0");
  text.macros.emplace_back("WIDE", bits(node.output(0).dtype) == 64 ? "1" : "0");
  const size_t rank = rank_of(space, inputs.names.size());
  text.macros.emplace_back("RANK", number(rank));
  StepBuilder step(node.kernel("map.comp", text.storage, text.macros));
  for (size_t k = 0; k < inputs.names.size(); ++k) step.bind("t" + number(k), node.in(inputs.positions[k]));
  step.bind("y", node.out(0)).set("elements", elements);
  std::vector<int64_t> strides;
  if (flat) {
    for (size_t k = 0; k < inputs.names.size(); ++k)
      strides.push_back(
          elements > 1 && std::all_of(space.strides[k].begin(), space.strides[k].end(), [](int64_t s) { return s == 0; }) ? 0 : 1);
    if (elements == 1) std::fill(strides.begin(), strides.end(), 0);
  } else {
    space.pad_to(rank, "node '" + std::string(node.node) + "'");
    for (size_t k = 0; k < inputs.names.size(); ++k) strides.insert(strides.end(), space.strides[k].begin(), space.strides[k].end());
    step.set("size", space.sizes).set("y_stride", space.strides.back());
  }
  step.set("t_stride", strides).threads(static_cast<uint64_t>(dense ? (elements + 3) / 4 : elements));
  node.add(step.build());
}

}  // namespace

void lower_map(LowerContext& node) {
  if (node.expression) return add_map(node, *node.expression, node.inputs.size());
  std::vector<bool> present;
  for (size_t i = 0; i < node.inputs.size(); ++i) present.push_back(node.has_input(i));
  add_map(node, map_expression(*node.row, *node.attributes, present), node.inputs.size());
}

void lower_cast(LowerContext& node) {
  // The result's own type does the conversion; what is not zero is true.
  const bool to_bool = node.output(0).dtype == DType::bool_ && node.input(0).dtype != DType::bool_;
  add_map(node, Expression::parse(map_input_names(*node.row, 1)[0] + (to_bool ? " != 0" : "")), 1);
}

}  // namespace pumice
