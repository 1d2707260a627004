// The map skeleton: any row whose meaning is a scalar expression over broadcast operands.
#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/map/lowerings.h"
#include "operators/map/map_expression.h"
#include "operators/means/compose.h"
#include "operators/means/narrow.h"
#include "operators/means/strided.h"
#include "operators/row/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kMapRank = 4;    // axes of the usual kernel, which has up to four inputs
constexpr size_t kMapInputs = 8;  // inputs of a kernel, at most
constexpr size_t kFewInputs = 3;  // inputs of a kernel that walks more axes

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

bool is_real(ExprType type) {
  return type == ExprType::f32 || type == ExprType::f64;
}

// The GLSL that declares, loads and stores elements of a dtype in a kernel of that storage; `t` is the array, `i` the element.
struct ElementText {
  std::string declared, load, store;
};

ElementText element_text(const NodeContext& node, DType dtype, DType storage, const std::string& t) {
  const auto packed = [&](const std::string& load, const std::string& store, const std::string& value = "v") {
    return ElementText{"uint", "pm_load_" + load + "(" + t + ", i)", "pm_store_" + store + "(" + t + ", i, " + value + ")"};
  };
  const auto direct = [&](const char* type) { return ElementText{type, t + "[i]", t + "[i] = v"}; };
  switch (dtype) {
    case DType::float32:
      return direct("float");
    case DType::float16:
    case DType::bfloat16:
      if (dtype == storage) return {"sfp", "pm_load(" + t + ", i)", "pm_store(" + t + ", i, v)"};
      return packed(dtype == DType::float16 ? "half" : "bfloat16", "");  // the kernel's storage is another float of 16 bits: by words
    case DType::int32:
      return direct("int");
    case DType::uint32:
      return direct("uint");
    case DType::float64:
      node.check_arithmetic(dtype);
      return direct("double");
    case DType::int64:
    case DType::uint64:
      node.check_arithmetic(dtype);
      return direct(dtype == DType::int64 ? "int64_t" : "uint64_t");
    case DType::bool_:
      return packed("bool", "u8", "v ? 1u : 0u");
    case DType::uint8:
      return packed("u8", "u8");
    case DType::int8:
      return packed("i8", "u8");
    case DType::uint16:
      return packed("u16", "u16");
    case DType::int16:
      return packed("i16", "u16");
    default:
      throw UnsupportedError("node '" + std::string(node.node) + "': elementwise arithmetic on " + std::string(name(dtype)));
  }
}

// The GLSL for four neighbours, from a multiple of four on: their declaration where they are read and where they are made, and how they are
// picked apart, read one by one and stored. `q` is what is held, `j` the one of four, `i` the element's index; words past the last of
// `count` are not written.
struct QuadText {
  std::string declared, made, pick, read, store;
};

// The GLSL for four elements of a dtype; none for elements of 64 bits, which are loaded one by one. `native`: the kernel's own storage is
// float16, to which the device converts.
std::optional<QuadText> quad_text(DType dtype, const std::string& t, bool native) {
  const std::string at = t + "[i >> 2]", half = at + "[i >> 1 & 1u]";
  const auto words = [&](const std::string& low, const std::string& high) {
    return "if (count > 2u) " + at + " = uvec2(" + low + ", " + high + "); else " + at + ".x = " + low;
  };
  const auto direct = [&](const std::string& type) {
    return QuadText{
        type, type, "q[j]", at + "[i & 3u]",
        "if (count == 4u) " + at + " = " + type + "(v[0], v[1], v[2], v[3]); else for (uint k = 0u; k < count; ++k) " + at + "[k] = v[k]"};
  };
  const auto bytes = [&](const std::string& pick, const std::string& store) {
    const auto of = [&](const std::string& word, const std::string& lane) {
      std::string text = pick;
      text.replace(text.find('W'), 1, word);
      return text.replace(text.find('L'), 1, lane);
    };
    return QuadText{"uint", "uint", of("q", "j"), of(at, "i & 3u"), at + " = " + store};
  };
  switch (dtype) {
    case DType::float32:
      return direct("vec4");
    case DType::int32:
      return direct("ivec4");
    case DType::uint32:
      return direct("uvec4");
    case DType::float16:
    case DType::bfloat16: {
      const bool direct_store = native && dtype == DType::float16;
      const std::string four = "vec4(v[0], v[1], v[2], v[3])";
      const auto one = [&](const std::string& lane, int k) { return at + "." + lane + " = sfp(pm_round(v[" + std::to_string(k) + "])); "; };
      const std::string store = direct_store
                                    ? "if (count == 4u) { pm_store_vec4(" + t + ", i >> 2, " + four + "); } else { " + one("x", 0) +
                                          "if (count > 1u) " + one("y", 1) + "if (count > 2u) " + one("z", 2) + "}"
                                    : "if (count > 2u) " + at + " = pm_pack4(" + four + "); else " + at + ".x = pm_pack2(vec2(v[0], v[1]))";
      const std::string made = direct_store ? "sfpvec4" : "uvec2";
      if (dtype == DType::float16)
        return QuadText{"uvec2", made, "unpackHalf2x16(q[j >> 1])[j & 1u]", "unpackHalf2x16(" + half + ")[i & 1u]", store};
      return QuadText{"uvec2", made, "uintBitsToFloat(q[j >> 1] >> (j & 1u) * 16u << 16)",
                      "uintBitsToFloat(" + half + " >> (i & 1u) * 16u << 16)", store};
    }
    case DType::uint16:
      return QuadText{"uvec2", "uvec2", "bitfieldExtract(q[j >> 1], int(j & 1u) * 16, 16)",
                      "bitfieldExtract(" + half + ", int(i & 1u) * 16, 16)",
                      words("pm_pack_u16(uvec2(v[0], v[1]))", "pm_pack_u16(uvec2(v[2], v[3]))")};
    case DType::int16:
      return QuadText{"uvec2", "uvec2", "bitfieldExtract(int(q[j >> 1]), int(j & 1u) * 16, 16)",
                      "bitfieldExtract(int(" + half + "), int(i & 1u) * 16, 16)",
                      words("pm_pack_i16(ivec2(v[0], v[1]))", "pm_pack_i16(ivec2(v[2], v[3]))")};
    case DType::uint8:
      return bytes("bitfieldExtract(W, int(L) * 8, 8)", "pm_pack_u8(uvec4(v[0], v[1], v[2], v[3]))");
    case DType::int8:
      return bytes("bitfieldExtract(int(W), int(L) * 8, 8)", "pm_pack_i8(ivec4(v[0], v[1], v[2], v[3]))");
    case DType::bool_:
      return bytes("(bitfieldExtract(W, int(L) * 8, 8) != 0u)",
                   "pm_pack_u8(uvec4(v[0] ? 1u : 0u, v[1] ? 1u : 0u, v[2] ? 1u : 0u, v[3] ? 1u : 0u))");
    default:
      return {};
  }
}

// The operands that a map reads, by the names that its expression gives them.
struct Inputs {
  std::vector<std::string> names;
  std::vector<size_t> positions;  // numbers of the node's inputs
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

// Axes that the kernel's 128 bytes of push constants hold strides for.
size_t most_axes(size_t inputs) {
  constexpr size_t kPushWords = 32;
  return (kPushWords - 2 - inputs) / (inputs + 2);
}

// Axes that the kernel walks.
size_t rank_of(const IndexSpace& space, size_t inputs) {
  const size_t most = most_axes(inputs);
  return std::clamp(space.sizes.size(), std::min(kMapRank, most), most);
}

// Fours that an invocation makes of a dense result: 16 bytes.
int64_t quads_of(DType dtype) {
  return 32 / std::clamp(bits(dtype), 8, 32);
}

// The way in which an invocation that makes four elements at once reads an operand.
enum class Met : uint8_t { quad, single, strided };

struct MapText {
  Macros macros;
  DType storage = DType::float32;
  bool native = false;  // float16 as the device stores it
};

// The storage mode of the kernel, which the extension's types follow: the result's 16-bit float, else that of the first operand that is
// one.
DType storage_of_map(const LowerContext& node, const Inputs& inputs) {
  if (is_half_width(node.output(0).dtype)) return node.output(0).dtype;
  for (const size_t i : inputs.positions)
    if (is_half_width(node.input(i).dtype)) return node.input(i).dtype;
  return DType::float32;
}

// The kernel's index space: see map.comp.
struct MapShape {
  bool dense = false, whole = false;
  size_t rank = 0;       // 0: not walked
  std::vector<Met> met;  // by operand
};

MapShape shape_of(const LowerContext& node, const Inputs& inputs, const IndexSpace& space) {
  MapShape shape;
  shape.dense = is_dense(space.sizes, space.strides.back());
  bool flat = shape.dense;
  for (size_t k = 0; k < inputs.names.size(); ++k) flat = flat && is_flat(space.strides[k], space.sizes);
  shape.rank = flat ? 0 : rank_of(space, inputs.names.size());
  shape.whole = shape.dense && (flat || space.sizes.back() % 4 == 0);
  for (size_t k = 0; k < inputs.names.size(); ++k) {
    const auto& strides = space.strides[k];
    const bool is_single =
        flat ? std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; }) : strides.back() == 0;
    const bool in_fours =
        strides.back() == 1 && std::all_of(strides.begin(), strides.end() - 1, [](int64_t stride) { return stride % 4 == 0; });
    const bool is_quad =
        (flat || in_fours) && bits(node.input(inputs.positions[k]).dtype) < 64 && node.input_phase(inputs.positions[k]) == 0;
    shape.met.push_back(is_single ? Met::single : shape.whole && is_quad ? Met::quad : Met::strided);
  }
  return shape;
}

// GLSL that converts a float to an integer of that dtype: truncated, at the ends of the dtype's range where it is beyond them, 0 for NaN.
std::string saturated(const std::string& value, DType dtype) {
  const std::string type(glsl_type(expr_type(dtype)));
  const std::string whole = "pm_to_" + type + "(" + value + ")";
  if (bits(dtype) >= 32) return whole;
  const bool is_signed = is_signed_integer(dtype);
  const int64_t end = int64_t{1} << (bits(dtype) - (is_signed ? 1 : 0));
  const std::string suffix = is_signed ? "" : "u";
  return "clamp(" + whole + ", " + std::to_string(is_signed ? -end : 0) + suffix + ", " + std::to_string(end - 1) + suffix + ")";
}

MapText map_text(const LowerContext& node, const Inputs& inputs, const Expression& expression, const MapShape& shape) {
  MapText text;
  std::map<std::string, ExprType> types;
  std::string declarations, loads, offsets, held, load_quads, picks;
  text.storage = storage_of_map(node, inputs);
  text.native = storage_of(node.context->info(), text.storage) == Storage::fp16;
  bool has_int64 = false, has_float64 = false;
  const auto note_width = [&](DType dtype) {
    has_int64 = has_int64 || (is_integer(dtype) && bits(dtype) == 64);
    has_float64 = has_float64 || dtype == DType::float64;
  };
  for (size_t k = 0; k < inputs.names.size(); ++k) {
    const DType dtype = node.input(inputs.positions[k]).dtype;
    const std::string n = number(k), t = "t" + n, q = "q" + n;
    const std::string first = shape.rank == 0 && shape.met[k] == Met::single ? "0u" : "at[" + n + "]";
    const ElementText element = element_text(node, dtype, text.storage, t);
    const auto quad = shape.met[k] == Met::quad ? quad_text(dtype, t, text.native) : std::nullopt;
    note_width(dtype);
    types[inputs.names[k]] = expr_type(dtype);
    declarations +=
        "layout(binding = " + n + ") readonly buffer T" + n + "_ { " + (quad ? quad->declared : element.declared) + " " + t + "[]; }; ";
    offsets += "uint " + t + "_offset; ";
    const std::string type(glsl_type(types[inputs.names[k]]));
    const auto local = [&](const std::string& index, const std::string& value) {
      return type + " " + inputs.names[k] + "; { const uint i = " + index + " + p." + t + "_offset; " + inputs.names[k] + " = " + value +
             "; } ";
    };
    loads += local(first, quad ? quad->read : element.load);
    if (quad) {
      held += quad->declared + " " + q + "[QUADS]; ";
      load_quads += q + "[k] = " + t + "[(" + first + " + p." + t + "_offset) >> 2]; ";
      picks += type + " " + inputs.names[k] + "; { const " + quad->declared + " q = " + q + "[k]; " + inputs.names[k] + " = " + quad->pick +
               "; } ";
    } else if (shape.met[k] == Met::single) {
      held += type + " " + q + "[QUADS]; ";
      load_quads += "{ const uint i = " + first + " + p." + t + "_offset; " + q + "[k] = " + element.load + "; } ";
      picks += type + " " + inputs.names[k] + " = " + q + "[k]; ";
    } else {
      held += "uint " + q + "[QUADS]; ";
      load_quads += q + "[k] = " + first + "; ";
      picks += local(q + "[k] + j" + (shape.rank == 0 ? "" : " * p.t_stride[" + n + " * RANK + RANK - 1]"), element.load);
    }
  }
  const DType result_dtype = node.output(0).dtype;
  const ElementText result = element_text(node, result_dtype, text.storage, "y");
  const auto result_quad = shape.dense ? quad_text(result_dtype, "y", text.native) : std::nullopt;
  note_width(result_dtype);
  declarations += "layout(binding = " + number(inputs.names.size()) + ") buffer Y_ { " +
                  (result_quad ? result_quad->made : result.declared) + " y[]; };";
  ExprType type = ExprType::f32;
  std::string glsl = expression.glsl(types, &type);
  const ExprType wanted = expr_type(result_dtype);
  if (is_real(type) && is_integer(result_dtype))
    glsl = saturated(glsl, result_dtype);
  else if (type != wanted)
    glsl = (type == ExprType::u32 && wanted == ExprType::f32 ? "pm_" : "") + std::string(glsl_type(wanted)) + "(" + glsl + ")";
  const std::string store4 = result_quad ? result_quad->store : "for (uint k = 0u; k < count; ++k) y[i + k] = v[k]";
  text.macros = {{"DECLARATIONS", declarations},
                 {"LOADS", loads},
                 {"OFFSETS", offsets},
                 {"INPUTS", number(inputs.names.size())},
                 {"RANK", number(shape.rank)},
                 {"DENSE", shape.dense ? "1" : "0"},
                 {"WHOLE", shape.whole ? "1" : "0"},
                 {"QUADS", number(static_cast<size_t>(quads_of(result_dtype)))},
                 {"RESULT_TYPE", std::string(glsl_type(wanted))},
                 {"RESULT", glsl},
                 {"FINISHED(v)", wanted == ExprType::f32 ? "epilogue(v)" : "(v)"}};
  if (shape.dense)
    text.macros.emplace_back("STORE4(index, v, count)", "{ const uint i = (index) + p.y_offset; " + store4 + "; }");
  else
    text.macros.emplace_back("STORE(index, v)", "{ const uint i = index; " + result.store + "; }");
  if (shape.whole) {
    text.macros.emplace_back("QUADS_HELD", held);
    text.macros.emplace_back("LOAD_QUADS", load_quads);
    text.macros.emplace_back("PICKS", picks);
  }
  if (wanted == ExprType::f32) text.macros.emplace_back("EPILOGUE(x)", node.epilogue());
  has_int64 = has_int64 || glsl.find("int64_t") != std::string::npos;  // inside a fused expression
  has_float64 = has_float64 || glsl.find("double") != std::string::npos;
  const bool is_exact = node.attributes && has_exact_functions(*node.attributes);
  if (is_half_width(result_dtype) && !is_exact) text.macros.emplace_back("PM_BRIEF", "1");
  if (has_int64) text.macros.emplace_back("PM_HAS_INT64", "1");
  if (has_float64) text.macros.emplace_back("PM_HAS_FLOAT64", "1");
  return text;
}

// Adds a map of packed tensors of the result's shape, to which operands are expanded first: those have one axis.
void add_expanded(LowerContext& node, const Expression& expression, const Inputs& inputs, const IndexSpace& space) {
  const TensorDesc& y = node.output(0);
  Composition parts(node);
  std::vector<Piece> operands;
  std::map<std::string, Expression> renamed;
  IndexSpace copied{space.sizes, {{}, packed_strides(space.sizes)}};
  for (size_t k = 0; k < inputs.positions.size(); ++k) {
    operands.push_back(parts.scratch(node.input(inputs.positions[k]).dtype, space.sizes));
    copied.strides[0] = space.strides[k];
    add_strided_copy(node, operands[k].desc.dtype, copied, node.in(inputs.positions[k]), 0, operands[k].operand, 0, true);
    renamed.emplace(inputs.names[k], Expression::name("a" + number(k)));
  }
  const Piece made = parts.scratch(y.dtype, space.sizes);
  parts.map(expression.substitute(renamed), operands, made, true);
  add_strided_copy(node, y.dtype, {space.sizes, {packed_strides(space.sizes), space.strides.back()}}, made.operand, 0, node.out(0), 0,
                   true);
}

// A key of everything that the kernel of one node depends on and that may change from one binding to the next.
std::string memo_key(const LowerContext& node, const Inputs& inputs, const MapShape& shape) {
  std::string key{static_cast<char>(shape.rank), static_cast<char>(2 * shape.dense + shape.whole), static_cast<char>(node.output(0).dtype)};
  for (size_t k = 0; k < inputs.names.size(); ++k) {
    key += static_cast<char>(node.input(inputs.positions[k]).dtype);
    key += static_cast<char>(shape.met[k]);
  }
  return key;
}

std::shared_ptr<const KernelVariant> kernel_of(LowerContext& node, const Inputs& inputs, const Expression& expression,
                                               const MapShape& shape) {
  const MapText text = map_text(node, inputs, expression, shape);
  // Dense results of 16 bits are made of words, but where the device converts to them.
  const Storage storage = shape.dense && !text.native ? packed_storage_of(text.storage) : storage_of(node.context->info(), text.storage);
  return node.library->find(node.context, "map.comp", storage, text.macros);
}

// `count`: the first inputs, which are the operands. `expression()`: the same whenever this node is lowered with such dtypes.
template <class MakeExpression>
void add_map(LowerContext& node, const MakeExpression& expression, size_t count) {
  const Inputs inputs = inputs_of(node, count);
  const int64_t elements = node.output(0).elements();
  if (elements == 0) return;
  IndexSpace space = space_of(node, inputs);
  if (space.sizes.size() > most_axes(inputs.names.size())) return add_expanded(node, expression(), inputs, space);
  const MapShape shape = shape_of(node, inputs, space);
  std::shared_ptr<const KernelVariant> kernel;
  std::string key = node.memo ? memo_key(node, inputs, shape) : "";
  if (const auto* known = node.memo ? node.memo->find(key) : nullptr) {
    kernel = *known;
    (void)node.epilogue();  // is in it
  } else {
    kernel = kernel_of(node, inputs, expression(), shape);
    if (node.memo) node.memo->add(std::move(key), kernel);
  }
  StepBuilder step(kernel);
  for (size_t k = 0; k < inputs.names.size(); ++k) step.bind("t" + number(k), node.in(inputs.positions[k]));
  step.bind("y", node.out(0)).set("elements", elements);
  if (shape.rank > 0) {
    space.pad_to(shape.rank, "node '" + std::string(node.node) + "'");
    std::vector<int64_t> strides;
    for (size_t k = 0; k < inputs.names.size(); ++k) strides.insert(strides.end(), space.strides[k].begin(), space.strides[k].end());
    step.set("size", space.sizes).set("t_stride", strides);
    if (!shape.dense) step.set("y_stride", space.strides.back());
  }
  const int64_t each = shape.dense ? 4 * quads_of(node.output(0).dtype) : 1;
  node.add(step.threads(static_cast<uint64_t>(ceil_div(elements, each))).build());
}

// Folds a variadic row, `most` operands at a time: the result of each fold goes through scratch memory.
void add_folds(LowerContext& node, size_t most) {
  const TensorDesc& y = node.output(0);
  const size_t count = node.inputs.size();
  Composition parts(node);
  const Piece made = parts.scratch(is_half_width(y.dtype) ? DType::float32 : y.dtype, y.shape);
  for (size_t next = 0; next < count;) {
    std::vector<Piece> operands;
    if (next > 0) operands.push_back(made);
    for (; operands.size() < most && next < count; ++next) operands.push_back({node.input(next), node.in(next)});
    const bool last = next == count;
    std::vector<std::string> names;
    for (size_t k = 0; k < operands.size(); ++k) names.push_back("a" + number(k));
    parts.map(folded_expression(node.row->expression, names, last ? count : 0), operands, last ? Piece{y, node.out(0)} : made, last);
  }
}

}  // namespace

void lower_map(LowerContext& node) {
  if (node.expression) return add_map(node, [&]() -> const Expression& { return *node.expression; }, node.inputs.size());
  if (const size_t count = node.inputs.size(); count > kFewInputs && node.row->schema.inputs.back().variadic) {
    const size_t axes = space_of(node, inputs_of(node, count)).sizes.size();
    if (axes > most_axes(std::min(count, kMapInputs))) return add_folds(node, kFewInputs);
    if (count > kMapInputs) return add_folds(node, kMapInputs);
  }
  std::vector<bool> present;
  for (size_t i = 0; i < node.inputs.size(); ++i) present.push_back(node.has_input(i));
  add_map(node, [&] { return map_expression(*node.row, *node.attributes, present); }, node.inputs.size());
}

void lower_cast(LowerContext& node) {
  if (is_narrow(node.input(0).dtype) || is_narrow(node.output(0).dtype)) return lower_narrow_cast(node);
  // The store converts to the result's own type. To bool it needs a comparison: what is not zero is true.
  const bool to_bool = node.output(0).dtype == DType::bool_ && node.input(0).dtype != DType::bool_;
  add_map(node, [&] { return Expression::parse(map_input_names(*node.row, 1)[0] + (to_bool ? " != 0" : "")); }, 1);
}

}  // namespace pumice
