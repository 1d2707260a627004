// Lowers elementwise operators (maps): a scalar expression over broadcast operands.
#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composition.h"
#include "operators/common/low_precision_cast.h"
#include "operators/common/strided_copy.h"
#include "operators/elementwise/element_glsl.h"
#include "operators/elementwise/elementwise_expression.h"
#include "operators/elementwise/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kDefaultRank = 4;        // number of axes of the usual kernel, which has up to four inputs
constexpr size_t kMaxInputs = 8;          // maximum number of inputs of a kernel
constexpr size_t kMaxInputsHighRank = 3;  // maximum number of inputs of a kernel with more axes

std::string number(size_t i) {
  return std::to_string(i);
}

// Operands of a map, with their names in the expression.
struct Inputs {
  std::vector<std::string> names;
  std::vector<size_t> positions;  // indices of the node's inputs
};

Inputs collect_inputs(const LowerContext& node, size_t count) {
  Inputs inputs;
  const auto names = elementwise_input_names(*node.row, count);
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

IndexSpace make_index_space(const LowerContext& node, const Inputs& inputs) {
  const TensorDesc& y = node.output(0);
  IndexSpace space;
  space.sizes = y.shape;
  for (const size_t i : inputs.positions) space.strides.push_back(broadcast_strides(node.input(i).shape, node.input(i).strides, y.shape));
  space.strides.push_back(y.strides);
  // Broadcast axes get stride 0.
  for (size_t k = 0; k < inputs.positions.size(); ++k) {
    const Shape& input_shape = node.input(inputs.positions[k]).shape;
    for (size_t axis = 0; axis < input_shape.size(); ++axis)
      if (input_shape[axis] == 1) space.strides[k][y.shape.size() - input_shape.size() + axis] = 0;
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
size_t max_axes(size_t inputs) {
  constexpr size_t kPushWords = 32;
  return (kPushWords - 2 - inputs) / (inputs + 2);
}

// Number of axes of the kernel.
size_t rank_of(const IndexSpace& space, size_t inputs) {
  const size_t max_rank = max_axes(inputs);
  return std::clamp(space.sizes.size(), std::min(kDefaultRank, max_rank), max_rank);
}

// Number of groups of four elements per invocation for a dense result: 16 bytes.
int64_t vec4s_per_invocation(DType dtype) {
  return 32 / std::clamp(bits(dtype), 8, 32);
}

// How an invocation that computes four elements reads an operand.
enum class OperandAccess : uint8_t { vec4, scalar, strided };

struct ElementwiseSource {
  Macros macros;
  DType storage = DType::float32;
  bool native = false;  // float16 storage supported by the device
};

// Returns the storage type of the kernel, which determines the extension's types: the result's 16-bit float type, else the type of the
// first such operand.
DType elementwise_storage(const LowerContext& node, const Inputs& inputs) {
  if (is_16bit_float(node.output(0).dtype)) return node.output(0).dtype;
  for (const size_t i : inputs.positions)
    if (is_16bit_float(node.input(i).dtype)) return node.input(i).dtype;
  return DType::float32;
}

// Index space of the kernel: see elementwise.comp.
struct ElementwiseLayout {
  bool dense = false, whole = false;
  size_t rank = 0;                    // 0: flat, without axes
  std::vector<OperandAccess> access;  // one per operand
};

ElementwiseLayout shape_of(const LowerContext& node, const Inputs& inputs, const IndexSpace& space) {
  ElementwiseLayout shape;
  shape.dense = is_dense(space.sizes, space.strides.back());
  bool flat = shape.dense;
  for (size_t k = 0; k < inputs.names.size(); ++k) flat = flat && is_flat(space.strides[k], space.sizes);
  shape.rank = flat ? 0 : rank_of(space, inputs.names.size());
  shape.whole = shape.dense && (flat || space.sizes.back() % 4 == 0);
  for (size_t k = 0; k < inputs.names.size(); ++k) {
    const auto& strides = space.strides[k];
    const bool is_scalar =
        flat ? std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; }) : strides.back() == 0;
    const bool is_vec4_aligned =
        strides.back() == 1 && std::all_of(strides.begin(), strides.end() - 1, [](int64_t stride) { return stride % 4 == 0; });
    const bool is_vec4 =
        (flat || is_vec4_aligned) && bits(node.input(inputs.positions[k]).dtype) < 64 && node.input_misalignment(inputs.positions[k]) == 0;
    shape.access.push_back(is_scalar ? OperandAccess::scalar : shape.whole && is_vec4 ? OperandAccess::vec4 : OperandAccess::strided);
  }
  return shape;
}

// Generates the GLSL of a map: its inputs, then the result.
class ElementwiseEmitter {
 public:
  ElementwiseEmitter(const LowerContext& node, const Inputs& inputs, const ElementwiseLayout& shape)
      : node_(node), inputs_(inputs), shape_(shape) {
    source_.storage = elementwise_storage(node, inputs);
    source_.native = storage_of(node.context->info(), source_.storage) == Storage::fp16;
  }

  ElementwiseSource write(const Expression& expression) {
    for (size_t k = 0; k < inputs_.names.size(); ++k) add_input(k);
    const DType dtype = node_.output(0).dtype;
    const ElementGlsl element = element_glsl(node_, dtype, source_.storage, "y");
    const auto vec4 = shape_.dense ? vec4_glsl(dtype, "y", source_.native) : std::nullopt;
    note_dtype_width(dtype);
    declarations_ += "layout(binding = " + number(inputs_.names.size()) + ") buffer Y_ { " +
                     (vec4 ? vec4->output_type : element.input_type) + " y[]; };";
    const std::string glsl = emit_result(expression, dtype);
    add_macros(glsl, dtype);
    add_stores(element, vec4);
    if (expr_type(dtype) == ExprType::f32) source_.macros.emplace_back("EPILOGUE(x)", node_.epilogue());
    add_width_macros(glsl, dtype);
    return std::move(source_);
  }

 private:
  void note_dtype_width(DType dtype) {
    has_int64_ = has_int64_ || (is_integer(dtype) && bits(dtype) == 64);
    has_float64_ = has_float64_ || dtype == DType::float64;
  }

  void add_input(size_t k) {
    const DType dtype = node_.input(inputs_.positions[k]).dtype;
    const std::string n = number(k), t = "t" + n;
    const std::string first = shape_.rank == 0 && shape_.access[k] == OperandAccess::scalar ? "0u" : "at[" + n + "]";
    const ElementGlsl element = element_glsl(node_, dtype, source_.storage, t);
    const auto vec4 = shape_.access[k] == OperandAccess::vec4 ? vec4_glsl(dtype, t, source_.native) : std::nullopt;
    note_dtype_width(dtype);
    types_[inputs_.names[k]] = expr_type(dtype);
    declarations_ +=
        "layout(binding = " + n + ") readonly buffer T" + n + "_ { " + (vec4 ? vec4->input_type : element.input_type) + " " + t + "[]; }; ";
    offsets_ += "uint " + t + "_offset; ";
    loads_ += declare_local(k, first, vec4 ? vec4->scalar_load : element.load);
    add_vec4_operand(k, first, element, vec4);
  }

  // Declares an input's element as a variable with its name.
  std::string declare_local(size_t k, const std::string& index, const std::string& value) const {
    const std::string& name = inputs_.names[k];
    return std::string(glsl_type(types_.at(name))) + " " + name + "; { const uint i = " + index + " + p.t" + number(k) + "_offset; " +
           name + " = " + value + "; } ";
  }

  // Adds the loads of an input for a whole invocation, before the loop over its elements.
  void add_vec4_operand(size_t k, const std::string& first, const ElementGlsl& element, const std::optional<Vec4Glsl>& vec4) {
    const std::string n = number(k), t = "t" + n, q = "q" + n, &name = inputs_.names[k];
    const std::string type(glsl_type(types_.at(name)));
    if (vec4) {
      vec4_operands_ += vec4->input_type + " " + q + "[NUM_VEC4]; ";
      load_vec4s_ += q + "[k] = " + t + "[(" + first + " + p." + t + "_offset) >> 2]; ";
      selects_ += type + " " + name + "; { const " + vec4->input_type + " q = " + q + "[k]; " + name + " = " + vec4->component + "; } ";
    } else if (shape_.access[k] == OperandAccess::scalar) {
      vec4_operands_ += type + " " + q + "[NUM_VEC4]; ";
      load_vec4s_ += "{ const uint i = " + first + " + p." + t + "_offset; " + q + "[k] = " + element.load + "; } ";
      selects_ += type + " " + name + " = " + q + "[k]; ";
    } else {
      vec4_operands_ += "uint " + q + "[NUM_VEC4]; ";
      load_vec4s_ += q + "[k] = " + first + "; ";
      selects_ += declare_local(k, q + "[k] + j" + (shape_.rank == 0 ? "" : " * p.t_stride[" + n + " * RANK + RANK - 1]"), element.load);
    }
  }

  // Returns the expression in GLSL, converted to the result's type.
  std::string emit_result(const Expression& expression, DType dtype) const {
    ExprType type = ExprType::f32;
    const std::string glsl = expression.glsl(types_, &type);
    const ExprType target = expr_type(dtype);
    if (is_real(type) && is_integer(dtype)) return saturating_cast(glsl, dtype);
    if (type == target) return glsl;
    return (type == ExprType::u32 && target == ExprType::f32 ? "pm_" : "") + std::string(glsl_type(target)) + "(" + glsl + ")";
  }

  void add_macros(const std::string& glsl, DType dtype) {
    const ExprType type = expr_type(dtype);
    source_.macros = {{"DECLARATIONS", declarations_},
                      {"LOADS", loads_},
                      {"OFFSETS", offsets_},
                      {"INPUTS", number(inputs_.names.size())},
                      {"RANK", number(shape_.rank)},
                      {"DENSE", shape_.dense ? "1" : "0"},
                      {"WHOLE_VEC4", shape_.whole ? "1" : "0"},
                      {"NUM_VEC4", number(static_cast<size_t>(vec4s_per_invocation(dtype)))},
                      {"RESULT_TYPE", std::string(glsl_type(type))},
                      {"RESULT", glsl},
                      {"APPLY_EPILOGUE(v)", type == ExprType::f32 ? "epilogue(v)" : "(v)"}};
  }

  void add_stores(const ElementGlsl& element, const std::optional<Vec4Glsl>& vec4) {
    const std::string store4 = vec4 ? vec4->store : "for (uint k = 0u; k < count; ++k) y[i + k] = v[k]";
    if (shape_.dense)
      source_.macros.emplace_back("STORE4(index, v, count)", "{ const uint i = (index) + p.y_offset; " + store4 + "; }");
    else
      source_.macros.emplace_back("STORE(index, v)", "{ const uint i = index; " + element.store + "; }");
    if (!shape_.whole) return;
    source_.macros.emplace_back("VEC4_OPERANDS", vec4_operands_);
    source_.macros.emplace_back("LOAD_VEC4_OPERANDS", load_vec4s_);
    source_.macros.emplace_back("SELECT_ELEMENT", selects_);
  }

  // Adds macros for 64-bit types, which a fused expression may use internally.
  void add_width_macros(const std::string& glsl, DType dtype) {
    const bool has_int64 = has_int64_ || glsl.find("int64_t") != std::string::npos;
    const bool has_float64 = has_float64_ || glsl.find("double") != std::string::npos;
    const bool is_exact = node_.exact_epilogue || (node_.attributes && has_exact_functions(*node_.attributes));
    if (is_16bit_float(dtype) && !is_exact) source_.macros.emplace_back("PM_BRIEF", "1");
    if (has_int64) source_.macros.emplace_back("PM_HAS_INT64", "1");
    if (has_float64) source_.macros.emplace_back("PM_HAS_FLOAT64", "1");
  }

  const LowerContext& node_;
  const Inputs& inputs_;
  const ElementwiseLayout& shape_;
  ElementwiseSource source_;
  std::map<std::string, ExprType> types_;
  std::string declarations_, loads_, offsets_, vec4_operands_, load_vec4s_, selects_;
  bool has_int64_ = false, has_float64_ = false;
};

ElementwiseSource emit_elementwise(const LowerContext& node, const Inputs& inputs, const Expression& expression,
                                   const ElementwiseLayout& shape) {
  return ElementwiseEmitter(node, inputs, shape).write(expression);
}

// Adds a map over packed tensors of the output's shape, to which operands are expanded first. It needs only one axis.
void add_expanded(LowerContext& node, const Expression& expression, const Inputs& inputs, const IndexSpace& space) {
  const TensorDesc& y = node.output(0);
  Composition parts(node);
  std::vector<TensorOperand> operands;
  std::map<std::string, Expression> renamed;
  IndexSpace copy_space{space.sizes, {{}, packed_strides(space.sizes)}};
  for (size_t k = 0; k < inputs.positions.size(); ++k) {
    operands.push_back(parts.scratch(node.input(inputs.positions[k]).dtype, space.sizes));
    copy_space.strides[0] = space.strides[k];
    add_strided_copy(node, operands[k].desc.dtype, copy_space, {node.in(inputs.positions[k])}, {operands[k].operand});
    renamed.emplace(inputs.names[k], Expression::name("a" + number(k)));
  }
  const TensorOperand packed_output = parts.scratch(y.dtype, space.sizes);
  parts.map(expression.substitute(renamed), operands, packed_output, true);
  add_strided_copy(node, y.dtype, {space.sizes, {packed_strides(space.sizes), space.strides.back()}}, {packed_output.operand},
                   {node.out(0)});
}

// Returns the cache key of the kernel: everything that can change between bindings of the node.
std::string memo_key(const LowerContext& node, const Inputs& inputs, const ElementwiseLayout& shape) {
  std::string key{static_cast<char>(shape.rank), static_cast<char>(2 * shape.dense + shape.whole), static_cast<char>(node.output(0).dtype)};
  for (size_t k = 0; k < inputs.names.size(); ++k) {
    key += static_cast<char>(node.input(inputs.positions[k]).dtype);
    key += static_cast<char>(shape.access[k]);
  }
  return key;
}

std::shared_ptr<const KernelVariant> kernel_of(LowerContext& node, const Inputs& inputs, const Expression& expression,
                                               const ElementwiseLayout& shape) {
  const ElementwiseSource source = emit_elementwise(node, inputs, expression, shape);
  // Dense 16-bit results are stored as words, unless the device converts to them.
  const Storage storage =
      shape.dense && !source.native ? packed_storage_of(source.storage) : storage_of(node.context->info(), source.storage);
  return node.library->find(node.context, "elementwise.comp", storage, source.macros);
}

// `count`: number of inputs that are operands. `expression()` must return the same for the same node and dtypes.
template <class MakeExpression>
void add_elementwise(LowerContext& node, const MakeExpression& expression, size_t count) {
  const Inputs inputs = collect_inputs(node, count);
  const int64_t elements = node.output(0).elements();
  if (elements == 0) return;
  IndexSpace space = make_index_space(node, inputs);
  if (space.sizes.size() > max_axes(inputs.names.size())) return add_expanded(node, expression(), inputs, space);
  const ElementwiseLayout shape = shape_of(node, inputs, space);
  std::shared_ptr<const KernelVariant> kernel;
  std::string key = node.memo ? memo_key(node, inputs, shape) : "";
  if (const auto* cached = node.memo ? node.memo->find(key) : nullptr) {
    kernel = *cached;
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
  const int64_t each = shape.dense ? 4 * vec4s_per_invocation(node.output(0).dtype) : 1;
  node.add(step.threads(static_cast<uint64_t>(ceil_div(elements, each))).build());
}

// Folds the operands of a variadic operator, `most` at a time, with intermediate results in scratch memory.
void add_variadic_folds(LowerContext& node, size_t max_inputs) {
  const TensorDesc& y = node.output(0);
  const size_t count = node.inputs.size();
  Composition parts(node);
  const TensorOperand accumulator = parts.scratch(is_16bit_float(y.dtype) ? DType::float32 : y.dtype, y.shape);
  for (size_t next = 0; next < count;) {
    std::vector<TensorOperand> operands;
    if (next > 0) operands.push_back(accumulator);
    for (; operands.size() < max_inputs && next < count; ++next) operands.push_back({node.input(next), node.in(next)});
    const bool last = next == count;
    std::vector<std::string> names;
    for (size_t k = 0; k < operands.size(); ++k) names.push_back("a" + number(k));
    parts.map(fold_expression(node.row->expression, names, last ? count : 0), operands, last ? TensorOperand{y, node.out(0)} : accumulator,
              last);
  }
}

}  // namespace

void lower_elementwise(LowerContext& node) {
  if (node.expression) return add_elementwise(node, [&]() -> const Expression& { return *node.expression; }, node.inputs.size());
  if (const size_t count = node.inputs.size(); count > kMaxInputsHighRank && node.row->schema.inputs.back().variadic) {
    const size_t axes = make_index_space(node, collect_inputs(node, count)).sizes.size();
    if (axes > max_axes(std::min(count, kMaxInputs))) return add_variadic_folds(node, kMaxInputsHighRank);
    if (count > kMaxInputs) return add_variadic_folds(node, kMaxInputs);
  }
  std::vector<bool> present;
  for (size_t i = 0; i < node.inputs.size(); ++i) present.push_back(node.has_input(i));
  add_elementwise(node, [&] { return elementwise_expression(*node.row, *node.attributes, present); }, node.inputs.size());
}

void lower_cast(LowerContext& node) {
  if (is_low_bit(node.input(0).dtype) || is_low_bit(node.output(0).dtype)) return lower_low_precision_cast(node);
  // The store converts to the output's dtype, except for bool, which needs a comparison with zero.
  const bool to_bool = node.output(0).dtype == DType::bool_ && node.input(0).dtype != DType::bool_;
  add_elementwise(node, [&] { return Expression::parse(elementwise_input_names(*node.row, 1)[0] + (to_bool ? " != 0" : "")); }, 1);
}

}  // namespace pumice
