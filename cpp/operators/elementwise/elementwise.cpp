// Lowers elementwise operators (maps): a scalar expression over broadcast operands.
#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/elementwise/lowerings.h"
#include "operators/elementwise/element_glsl.h"
#include "operators/elementwise/elementwise_expression.h"
#include "operators/common/composition.h"
#include "operators/common/low_precision_cast.h"
#include "operators/common/strided_copy.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kMapRank = 4;    // number of axes of the usual kernel, which has up to four inputs
constexpr size_t kMapInputs = 8;  // maximum number of inputs of a kernel
constexpr size_t kFewInputs = 3;  // maximum number of inputs of a kernel with more axes

std::string number(size_t i) {
  return std::to_string(i);
}

// Operands of a map, with their names in the expression.
struct Inputs {
  std::vector<std::string> names;
  std::vector<size_t> positions;  // indices of the node's inputs
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
  // Broadcast axes get stride 0.
  for (size_t k = 0; k < inputs.positions.size(); ++k) {
    const Shape& given = node.input(inputs.positions[k]).shape;
    for (size_t axis = 0; axis < given.size(); ++axis)
      if (given[axis] == 1) space.strides[k][y.shape.size() - given.size() + axis] = 0;
  }
  // Axes sorted by decreasing stride in the output, so that a dense output is written in memory order.
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

// Maximum number of axes whose strides fit into 128 bytes of push constants.
size_t most_axes(size_t inputs) {
  constexpr size_t kPushWords = 32;
  return (kPushWords - 2 - inputs) / (inputs + 2);
}

// Number of axes of the kernel.
size_t rank_of(const IndexSpace& space, size_t inputs) {
  const size_t most = most_axes(inputs);
  return std::clamp(space.sizes.size(), std::min(kMapRank, most), most);
}

// Number of groups of four elements per invocation for a dense result: 16 bytes.
int64_t quads_of(DType dtype) {
  return 32 / std::clamp(bits(dtype), 8, 32);
}

// How an invocation that computes four elements reads an operand.
enum class Met : uint8_t { quad, single, strided };

struct MapText {
  Macros macros;
  DType storage = DType::float32;
  bool native = false;  // float16 storage supported by the device
};

// Returns the storage type of the kernel, which determines the extension's types: the result's 16-bit float type, else the type of the
// first such operand.
DType storage_of_map(const LowerContext& node, const Inputs& inputs) {
  if (is_half_width(node.output(0).dtype)) return node.output(0).dtype;
  for (const size_t i : inputs.positions)
    if (is_half_width(node.input(i).dtype)) return node.input(i).dtype;
  return DType::float32;
}

// Index space of the kernel: see elementwise.comp.
struct MapShape {
  bool dense = false, whole = false;
  size_t rank = 0;       // 0: flat, without axes
  std::vector<Met> met;  // one per operand
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

// Generates the GLSL of a map: its inputs, then the result.
class MapWriter {
 public:
  MapWriter(const LowerContext& node, const Inputs& inputs, const MapShape& shape) : node_(node), inputs_(inputs), shape_(shape) {
    text_.storage = storage_of_map(node, inputs);
    text_.native = storage_of(node.context->info(), text_.storage) == Storage::fp16;
  }

  MapText write(const Expression& expression) {
    for (size_t k = 0; k < inputs_.names.size(); ++k) add_input(k);
    const DType dtype = node_.output(0).dtype;
    const ElementText element = element_text(node_, dtype, text_.storage, "y");
    const auto quad = shape_.dense ? quad_text(dtype, "y", text_.native) : std::nullopt;
    note_width(dtype);
    declarations_ +=
        "layout(binding = " + number(inputs_.names.size()) + ") buffer Y_ { " + (quad ? quad->made : element.declared) + " y[]; };";
    const std::string glsl = result_of(expression, dtype);
    add_macros(glsl, dtype);
    add_stores(element, quad);
    if (expr_type(dtype) == ExprType::f32) text_.macros.emplace_back("EPILOGUE(x)", node_.epilogue());
    add_widths(glsl, dtype);
    return std::move(text_);
  }

 private:
  void note_width(DType dtype) {
    has_int64_ = has_int64_ || (is_integer(dtype) && bits(dtype) == 64);
    has_float64_ = has_float64_ || dtype == DType::float64;
  }

  void add_input(size_t k) {
    const DType dtype = node_.input(inputs_.positions[k]).dtype;
    const std::string n = number(k), t = "t" + n;
    const std::string first = shape_.rank == 0 && shape_.met[k] == Met::single ? "0u" : "at[" + n + "]";
    const ElementText element = element_text(node_, dtype, text_.storage, t);
    const auto quad = shape_.met[k] == Met::quad ? quad_text(dtype, t, text_.native) : std::nullopt;
    note_width(dtype);
    types_[inputs_.names[k]] = expr_type(dtype);
    declarations_ +=
        "layout(binding = " + n + ") readonly buffer T" + n + "_ { " + (quad ? quad->declared : element.declared) + " " + t + "[]; }; ";
    offsets_ += "uint " + t + "_offset; ";
    loads_ += local_of(k, first, quad ? quad->read : element.load);
    add_quads(k, first, element, quad);
  }

  // Declares an input's element as a variable with its name.
  std::string local_of(size_t k, const std::string& index, const std::string& value) const {
    const std::string& name = inputs_.names[k];
    return std::string(glsl_type(types_.at(name))) + " " + name + "; { const uint i = " + index + " + p.t" + number(k) + "_offset; " +
           name + " = " + value + "; } ";
  }

  // Adds the loads of an input for a whole invocation, before the loop over its elements.
  void add_quads(size_t k, const std::string& first, const ElementText& element, const std::optional<QuadText>& quad) {
    const std::string n = number(k), t = "t" + n, q = "q" + n, &name = inputs_.names[k];
    const std::string type(glsl_type(types_.at(name)));
    if (quad) {
      held_ += quad->declared + " " + q + "[QUADS]; ";
      load_quads_ += q + "[k] = " + t + "[(" + first + " + p." + t + "_offset) >> 2]; ";
      picks_ += type + " " + name + "; { const " + quad->declared + " q = " + q + "[k]; " + name + " = " + quad->pick + "; } ";
    } else if (shape_.met[k] == Met::single) {
      held_ += type + " " + q + "[QUADS]; ";
      load_quads_ += "{ const uint i = " + first + " + p." + t + "_offset; " + q + "[k] = " + element.load + "; } ";
      picks_ += type + " " + name + " = " + q + "[k]; ";
    } else {
      held_ += "uint " + q + "[QUADS]; ";
      load_quads_ += q + "[k] = " + first + "; ";
      picks_ += local_of(k, q + "[k] + j" + (shape_.rank == 0 ? "" : " * p.t_stride[" + n + " * RANK + RANK - 1]"), element.load);
    }
  }

  // Returns the expression in GLSL, converted to the result's type.
  std::string result_of(const Expression& expression, DType dtype) const {
    ExprType type = ExprType::f32;
    const std::string glsl = expression.glsl(types_, &type);
    const ExprType wanted = expr_type(dtype);
    if (is_real(type) && is_integer(dtype)) return saturated(glsl, dtype);
    if (type == wanted) return glsl;
    return (type == ExprType::u32 && wanted == ExprType::f32 ? "pm_" : "") + std::string(glsl_type(wanted)) + "(" + glsl + ")";
  }

  void add_macros(const std::string& glsl, DType dtype) {
    const ExprType type = expr_type(dtype);
    text_.macros = {{"DECLARATIONS", declarations_},
                    {"LOADS", loads_},
                    {"OFFSETS", offsets_},
                    {"INPUTS", number(inputs_.names.size())},
                    {"RANK", number(shape_.rank)},
                    {"DENSE", shape_.dense ? "1" : "0"},
                    {"WHOLE", shape_.whole ? "1" : "0"},
                    {"QUADS", number(static_cast<size_t>(quads_of(dtype)))},
                    {"RESULT_TYPE", std::string(glsl_type(type))},
                    {"RESULT", glsl},
                    {"FINISHED(v)", type == ExprType::f32 ? "epilogue(v)" : "(v)"}};
  }

  void add_stores(const ElementText& element, const std::optional<QuadText>& quad) {
    const std::string store4 = quad ? quad->store : "for (uint k = 0u; k < count; ++k) y[i + k] = v[k]";
    if (shape_.dense)
      text_.macros.emplace_back("STORE4(index, v, count)", "{ const uint i = (index) + p.y_offset; " + store4 + "; }");
    else
      text_.macros.emplace_back("STORE(index, v)", "{ const uint i = index; " + element.store + "; }");
    if (!shape_.whole) return;
    text_.macros.emplace_back("QUADS_HELD", held_);
    text_.macros.emplace_back("LOAD_QUADS", load_quads_);
    text_.macros.emplace_back("PICKS", picks_);
  }

  // Adds macros for 64-bit types, which a fused expression may use internally.
  void add_widths(const std::string& glsl, DType dtype) {
    const bool has_int64 = has_int64_ || glsl.find("int64_t") != std::string::npos;
    const bool has_float64 = has_float64_ || glsl.find("double") != std::string::npos;
    const bool is_exact = node_.exact_epilogue || (node_.attributes && has_exact_functions(*node_.attributes));
    if (is_half_width(dtype) && !is_exact) text_.macros.emplace_back("PM_BRIEF", "1");
    if (has_int64) text_.macros.emplace_back("PM_HAS_INT64", "1");
    if (has_float64) text_.macros.emplace_back("PM_HAS_FLOAT64", "1");
  }

  const LowerContext& node_;
  const Inputs& inputs_;
  const MapShape& shape_;
  MapText text_;
  std::map<std::string, ExprType> types_;
  std::string declarations_, loads_, offsets_, held_, load_quads_, picks_;
  bool has_int64_ = false, has_float64_ = false;
};

MapText map_text(const LowerContext& node, const Inputs& inputs, const Expression& expression, const MapShape& shape) {
  return MapWriter(node, inputs, shape).write(expression);
}

// Adds a map over packed tensors of the output's shape, to which operands are expanded first. It needs only one axis.
void add_expanded(LowerContext& node, const Expression& expression, const Inputs& inputs, const IndexSpace& space) {
  const TensorDesc& y = node.output(0);
  Composition parts(node);
  std::vector<Piece> operands;
  std::map<std::string, Expression> renamed;
  IndexSpace copied{space.sizes, {{}, packed_strides(space.sizes)}};
  for (size_t k = 0; k < inputs.positions.size(); ++k) {
    operands.push_back(parts.scratch(node.input(inputs.positions[k]).dtype, space.sizes));
    copied.strides[0] = space.strides[k];
    add_strided_copy(node, operands[k].desc.dtype, copied, {node.in(inputs.positions[k])}, {operands[k].operand});
    renamed.emplace(inputs.names[k], Expression::name("a" + number(k)));
  }
  const Piece made = parts.scratch(y.dtype, space.sizes);
  parts.map(expression.substitute(renamed), operands, made, true);
  add_strided_copy(node, y.dtype, {space.sizes, {packed_strides(space.sizes), space.strides.back()}}, {made.operand}, {node.out(0)});
}

// Returns the cache key of the kernel: everything that can change between bindings of the node.
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
  // Dense 16-bit results are stored as words, unless the device converts to them.
  const Storage storage = shape.dense && !text.native ? packed_storage_of(text.storage) : storage_of(node.context->info(), text.storage);
  return node.library->find(node.context, "elementwise.comp", storage, text.macros);
}

// `count`: number of inputs that are operands. `expression()` must return the same for the same node and dtypes.
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
    (void)node.epilogue();  // the epilogue is already compiled in
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

// Folds the operands of a variadic operator, `most` at a time, with intermediate results in scratch memory.
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
  // The store converts to the output's dtype, except for bool, which needs a comparison with zero.
  const bool to_bool = node.output(0).dtype == DType::bool_ && node.input(0).dtype != DType::bool_;
  add_map(node, [&] { return Expression::parse(map_input_names(*node.row, 1)[0] + (to_bool ? " != 0" : "")); }, 1);
}

}  // namespace pumice
