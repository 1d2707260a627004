// Lowers elementwise operators, which apply a scalar expression to broadcast operands.
#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/low_precision_cast.h"
#include "operators/common/strided_copy.h"
#include "operators/elementwise/elementwise_codegen.h"
#include "operators/elementwise/elementwise_expression.h"
#include "operators/elementwise/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kDefaultRank = 4;        // minimum number of axes of a strided kernel; lower ranks use the same kernel
constexpr size_t kMaxInputs = 8;          // maximum number of inputs of a kernel, if the device has a buffer more
constexpr size_t kMaxInputsHighRank = 3;  // maximum number of inputs per kernel of a variadic operator if it needs more axes

// The inputs that a node has, and their names in the expression.
struct ElementwiseInputs {
  std::vector<std::string> names;
  std::vector<size_t> input_indices;  // indices of the node's inputs
};

ElementwiseInputs collect_inputs(const LowerContext& node, size_t count) {
  ElementwiseInputs inputs;
  const auto names = get_elementwise_input_names(*node.row, count);
  for (size_t i = 0; i < count; ++i) {
    if (!node.has_input(i)) continue;
    inputs.names.push_back(names[i]);
    inputs.input_indices.push_back(i);
  }
  return inputs;
}

bool is_dense_or_scalar(const std::vector<int64_t>& strides, const std::vector<int64_t>& sizes) {
  return is_dense(sizes, strides) || std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; });
}

IndexSpace make_index_space(const LowerContext& node, const ElementwiseInputs& inputs) {
  const TensorDesc& y = node.output(0);
  IndexSpace space;
  space.sizes = y.shape;
  for (const size_t i : inputs.input_indices)
    space.strides.push_back(compute_broadcast_strides(node.input(i).shape, node.input(i).strides, y.shape));
  space.strides.push_back(y.strides);
  // Broadcast axes get stride 0.
  for (size_t k = 0; k < inputs.input_indices.size(); ++k) {
    const Shape& input_shape = node.input(inputs.input_indices[k]).shape;
    for (size_t axis = 0; axis < input_shape.size(); ++axis)
      if (input_shape[axis] == 1) space.strides[k][y.shape.size() - input_shape.size() + axis] = 0;
  }
  // Sort the axes by decreasing output stride, so that a dense output is written in memory order.
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

// Returns the maximum number of axes whose strides fit into 128 bytes of push constants.
size_t get_max_kernel_rank(size_t inputs) {
  constexpr size_t kPushWords = 32;
  return (kPushWords - 2 - inputs) / (inputs + 2);
}

// Returns the number of axes that the kernel iterates over.
size_t choose_kernel_rank(const IndexSpace& space, size_t inputs) {
  const size_t max_rank = get_max_kernel_rank(inputs);
  return std::clamp(space.sizes.size(), std::min(kDefaultRank, max_rank), max_rank);
}

// Returns how many vec4s an invocation writes to a contiguous output: 16 bytes, or 32 bytes for 64-bit elements.
int64_t get_num_vec4_per_invocation(DType dtype) {
  return 32 / std::clamp(bits(dtype), 8, 32);
}

// How an invocation reads an operand for four output elements.
enum class OperandAccess : uint8_t { vec4, scalar, strided };

struct ElementwiseSource {
  Macros macros;
  DType storage = DType::float32;
  bool native = false;  // float16 storage that the device supports natively
};

// Returns the kernel's storage type: the 16-bit float type of the output or, without one, of the first operand that has one; else float32.
DType choose_storage_dtype(const LowerContext& node, const ElementwiseInputs& inputs) {
  if (is_16bit_float(node.output(0).dtype)) return node.output(0).dtype;
  for (const size_t i : inputs.input_indices)
    if (is_16bit_float(node.input(i).dtype)) return node.input(i).dtype;
  return DType::float32;
}

// Memory layout that an elementwise kernel is generated for: the macros DENSE, WHOLE_VEC4 and RANK, and the access to each operand.
struct ElementwiseLayout {
  bool dense = false, whole_vec4 = false;
  size_t rank = 0;                    // number of axes; 0: all operands are contiguous or scalar
  std::vector<OperandAccess> access;  // one per operand
};

// `computes_singly`: each invocation computes one element.
ElementwiseLayout plan_layout(const LowerContext& node, const ElementwiseInputs& inputs, const IndexSpace& space, bool computes_singly) {
  ElementwiseLayout layout;
  layout.dense = !computes_singly && is_dense(space.sizes, space.strides.back());
  bool flat = layout.dense;
  for (size_t k = 0; k < inputs.names.size(); ++k) flat = flat && is_dense_or_scalar(space.strides[k], space.sizes);
  layout.rank = flat ? 0 : choose_kernel_rank(space, inputs.names.size());
  layout.whole_vec4 = layout.dense && (flat || space.sizes.back() % 4 == 0);
  for (size_t k = 0; k < inputs.names.size(); ++k) {
    const auto& strides = space.strides[k];
    const bool is_scalar =
        flat ? std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; }) : strides.back() == 0;
    const bool is_vec4_aligned =
        strides.back() == 1 && std::all_of(strides.begin(), strides.end() - 1, [](int64_t stride) { return stride % 4 == 0; });
    const bool is_vec4 = (flat || is_vec4_aligned) && bits(node.input(inputs.input_indices[k]).dtype) < 64 &&
                         node.input_misalignment(inputs.input_indices[k]) == 0;
    layout.access.push_back(is_scalar                      ? OperandAccess::scalar
                            : layout.whole_vec4 && is_vec4 ? OperandAccess::vec4
                                                           : OperandAccess::strided);
  }
  return layout;
}

// Generates the GLSL macros of an elementwise kernel.
class ElementwiseEmitter {
 public:
  ElementwiseEmitter(const LowerContext& node, const ElementwiseInputs& inputs, const ElementwiseLayout& layout)
      : node_(node), inputs_(inputs), layout_(layout) {
    source_.storage = choose_storage_dtype(node, inputs);
    source_.native = get_storage_type(node.context->info(), source_.storage) == StorageType::fp16;
  }

  ElementwiseSource emit(const Expression& expression) {
    for (size_t k = 0; k < inputs_.names.size(); ++k) add_input_load(k);
    const DType dtype = node_.output(0).dtype;
    const ElementGlsl element = make_element_glsl(node_, dtype, source_.storage, "y");
    const auto vec4 = layout_.dense ? make_vec4_glsl(dtype, "y", source_.native) : std::nullopt;
    record_64bit_types(dtype);
    declarations_ += "layout(binding = " + std::to_string(inputs_.names.size()) + ") buffer Y_ { " +
                     (vec4 ? vec4->output_type : element.input_type) + " y[]; };";
    const std::string glsl = emit_result(expression, dtype);
    add_macros(glsl, dtype);
    add_store_macros(element, vec4);
    if (to_expr_type(dtype) == ExprType::f32) source_.macros.emplace_back("EPILOGUE(x)", node_.epilogue());
    add_64bit_macros(glsl, dtype);
    return std::move(source_);
  }

 private:
  void record_64bit_types(DType dtype) {
    has_int64_ = has_int64_ || (is_integer(dtype) && bits(dtype) == 64);
    has_float64_ = has_float64_ || dtype == DType::float64;
  }

  void add_input_load(size_t k) {
    const DType dtype = node_.input(inputs_.input_indices[k]).dtype;
    const std::string n = std::to_string(k), t = "t" + n;
    const std::string first = layout_.rank == 0 && layout_.access[k] == OperandAccess::scalar ? "0u" : "at[" + n + "]";
    const ElementGlsl element = make_element_glsl(node_, dtype, source_.storage, t);
    const auto vec4 = layout_.access[k] == OperandAccess::vec4 ? make_vec4_glsl(dtype, t, source_.native) : std::nullopt;
    record_64bit_types(dtype);
    types_[inputs_.names[k]] = to_expr_type(dtype);
    declarations_ +=
        "layout(binding = " + n + ") readonly buffer T" + n + "_ { " + (vec4 ? vec4->input_type : element.input_type) + " " + t + "[]; }; ";
    offsets_ += "uint " + t + "_offset; ";
    loads_ += emit_operand_variable(k, first, vec4 ? vec4->scalar_load : element.load);
    add_vec4_load(k, first, element, vec4);
  }

  // Returns GLSL that declares a variable with the input's name and assigns the input's element to it.
  std::string emit_operand_variable(size_t k, const std::string& index, const std::string& value) const {
    const std::string& name = inputs_.names[k];
    return std::string(get_glsl_type(types_.at(name))) + " " + name + "; { const uint i = " + index + " + p.t" + std::to_string(k) +
           "_offset; " + name + " = " + value + "; } ";
  }

  // Adds the GLSL that loads vec4s of an input and selects an element of them.
  void add_vec4_load(size_t k, const std::string& first, const ElementGlsl& element, const std::optional<Vec4Glsl>& vec4) {
    const std::string n = std::to_string(k), t = "t" + n, q = "q" + n, &name = inputs_.names[k];
    const std::string type(get_glsl_type(types_.at(name)));
    if (vec4) {
      vec4_operands_ += vec4->input_type + " " + q + "[NUM_VEC4]; ";
      load_vec4s_ += q + "[k] = " + t + "[(" + first + " + p." + t + "_offset) >> 2]; ";
      selects_ += type + " " + name + "; { const " + vec4->input_type + " q = " + q + "[k]; " + name + " = " + vec4->component + "; } ";
    } else if (layout_.access[k] == OperandAccess::scalar) {
      vec4_operands_ += type + " " + q + "[NUM_VEC4]; ";
      load_vec4s_ += "{ const uint i = " + first + " + p." + t + "_offset; " + q + "[k] = " + element.load + "; } ";
      selects_ += type + " " + name + " = " + q + "[k]; ";
    } else {
      vec4_operands_ += "uint " + q + "[NUM_VEC4]; ";
      load_vec4s_ += q + "[k] = " + first + "; ";
      selects_ +=
          emit_operand_variable(k, q + "[k] + j" + (layout_.rank == 0 ? "" : " * p.t_stride[" + n + " * RANK + RANK - 1]"), element.load);
    }
  }

  // Returns GLSL for the expression, converted to the type of the result.
  std::string emit_result(const Expression& expression, DType dtype) const {
    ExprType type = ExprType::f32;
    const std::string glsl = expression.to_glsl(types_, &type);
    const ExprType target = to_expr_type(dtype);
    if (is_real(type) && is_integer(dtype)) return emit_saturating_cast(glsl, dtype);
    if (type == target) return glsl;
    return (type == ExprType::u32 && target == ExprType::f32 ? "pm_" : "") + std::string(get_glsl_type(target)) + "(" + glsl + ")";
  }

  void add_macros(const std::string& glsl, DType dtype) {
    const ExprType type = to_expr_type(dtype);
    source_.macros = {{"DECLARATIONS", declarations_},
                      {"LOADS", loads_},
                      {"OFFSETS", offsets_},
                      {"INPUTS", std::to_string(inputs_.names.size())},
                      {"RANK", std::to_string(layout_.rank)},
                      {"DENSE", layout_.dense ? "1" : "0"},
                      {"WHOLE_VEC4", layout_.whole_vec4 ? "1" : "0"},
                      {"NUM_VEC4", std::to_string(static_cast<size_t>(get_num_vec4_per_invocation(dtype)))},
                      {"RESULT_TYPE", std::string(get_glsl_type(type))},
                      {"RESULT", glsl},
                      {"APPLY_EPILOGUE(v)", type == ExprType::f32 ? "epilogue(v)" : "(v)"}};
  }

  void add_store_macros(const ElementGlsl& element, const std::optional<Vec4Glsl>& vec4) {
    const std::string store4 = vec4 ? vec4->store : "for (uint k = 0u; k < count; ++k) y[i + k] = v[k]";
    if (layout_.dense)
      source_.macros.emplace_back("STORE4(index, v, count)", "{ const uint i = (index) + p.y_offset; " + store4 + "; }");
    else
      source_.macros.emplace_back("STORE(index, v)", "{ const uint i = index; " + element.store + "; }");
    if (!layout_.whole_vec4) return;
    source_.macros.emplace_back("VEC4_OPERANDS", vec4_operands_);
    source_.macros.emplace_back("LOAD_VEC4_OPERANDS", load_vec4s_);
    source_.macros.emplace_back("SELECT_ELEMENT", selects_);
  }

  // Adds macros for 64-bit types, which a fused expression may use internally.
  void add_64bit_macros(const std::string& glsl, DType dtype) {
    const bool has_int64 = has_int64_ || glsl.find("int64_t") != std::string::npos;
    const bool has_float64 = has_float64_ || glsl.find("double") != std::string::npos;
    const bool is_exact = node_.exact_epilogue || (node_.attributes && has_exact_functions(*node_.attributes));
    if (is_16bit_float(dtype) && !is_exact) source_.macros.emplace_back("PM_BRIEF", "1");
    if (has_int64) source_.macros.emplace_back("PM_HAS_INT64", "1");
    if (has_float64) source_.macros.emplace_back("PM_HAS_FLOAT64", "1");
  }

  const LowerContext& node_;
  const ElementwiseInputs& inputs_;
  const ElementwiseLayout& layout_;
  ElementwiseSource source_;
  std::map<std::string, ExprType> types_;
  std::string declarations_, loads_, offsets_, vec4_operands_, load_vec4s_, selects_;
  bool has_int64_ = false, has_float64_ = false;
};

ElementwiseSource emit_elementwise(const LowerContext& node, const ElementwiseInputs& inputs, const Expression& expression,
                                   const ElementwiseLayout& layout) {
  return ElementwiseEmitter(node, inputs, layout).emit(expression);
}

// Copies all operands to packed tensors of the output's shape, so that the elementwise kernel needs only one axis. Used if there are too
// many axes for a kernel.
void add_elementwise_on_packed(LowerContext& node, const Expression& expression, const ElementwiseInputs& inputs, const IndexSpace& space) {
  const TensorDesc& y = node.output(0);
  CompositeLowering composition(node);
  std::vector<TensorOperand> operands;
  std::map<std::string, Expression> renamed;
  IndexSpace copy_space{space.sizes, {{}, packed_strides(space.sizes)}};
  for (size_t k = 0; k < inputs.input_indices.size(); ++k) {
    operands.push_back(composition.allocate_scratch(node.input(inputs.input_indices[k]).dtype, space.sizes));
    copy_space.strides[0] = space.strides[k];
    add_strided_copy(node, operands[k].desc.dtype, copy_space, {node.input_operand(inputs.input_indices[k])}, {operands[k].operand});
    renamed.emplace(inputs.names[k], Expression::name("a" + std::to_string(k)));
  }
  const TensorOperand packed_output = composition.allocate_scratch(y.dtype, space.sizes);
  composition.add_elementwise(expression.substitute(renamed), operands, packed_output, true);
  add_strided_copy(node, y.dtype, {space.sizes, {packed_strides(space.sizes), space.strides.back()}}, {packed_output.operand},
                   {node.output_operand(0)});
}

// Returns the cache key of the kernel. It contains all properties that can differ between two lowerings of the node.
std::string make_kernel_key(const LowerContext& node, const ElementwiseInputs& inputs, const ElementwiseLayout& layout) {
  std::string key{static_cast<char>(layout.rank), static_cast<char>(2 * layout.dense + layout.whole_vec4),
                  static_cast<char>(node.output(0).dtype)};
  for (size_t k = 0; k < inputs.names.size(); ++k) {
    key += static_cast<char>(node.input(inputs.input_indices[k]).dtype);
    key += static_cast<char>(layout.access[k]);
  }
  return key;
}

std::shared_ptr<const KernelVariant> get_elementwise_kernel(LowerContext& node, const ElementwiseInputs& inputs,
                                                            const Expression& expression, const ElementwiseLayout& layout) {
  const ElementwiseSource source = emit_elementwise(node, inputs, expression, layout);
  // Dense 16-bit results are stored as packed words, unless the device stores fp16 natively.
  const StorageType storage =
      layout.dense && !source.native ? get_packed_storage_type(source.storage) : get_storage_type(node.context->info(), source.storage);
  return node.library->get_variant(node.context, "elementwise.comp", storage, source.macros);
}

// Adds an elementwise kernel whose operands are the first `count` inputs. `expression()` returns its expression, which must depend only on
// the node and its dtypes.
template <class MakeExpression>
void add_elementwise(LowerContext& node, const MakeExpression& expression, size_t count) {
  const ElementwiseInputs inputs = collect_inputs(node, count);
  const int64_t elements = node.output(0).elements();
  if (elements == 0) return;
  IndexSpace space = make_index_space(node, inputs);
  if (space.sizes.size() > get_max_kernel_rank(inputs.names.size())) return add_elementwise_on_packed(node, expression(), inputs, space);
  // A 64-bit division takes hundreds of instructions on most GPUs, and drivers interleave the divisions of an invocation's elements. With
  // several divisions, Honeykrisp has too few registers for four elements.
  constexpr std::string_view kSingle = "elementwise single", kVec4 = "elementwise vec4";
  const auto is_integer64 = [](DType dtype) { return dtype == DType::int64 || dtype == DType::uint64; };
  const DType dtype = node.output(0).dtype;
  const bool has_variants =
      !node.prefers_cpu_kernels() &&
      (is_integer64(dtype) || std::ranges::any_of(inputs.input_indices, [&](size_t i) { return is_integer64(node.input(i).dtype); }));
  const bool computes_singly = has_variants && node.is_spilled(kVec4);
  const ElementwiseLayout layout = plan_layout(node, inputs, space, computes_singly);
  std::shared_ptr<const KernelVariant> kernel;
  std::string key = node.kernel_cache ? make_kernel_key(node, inputs, layout) : "";
  if (const auto* cached = node.kernel_cache ? node.kernel_cache->find(key) : nullptr) {
    kernel = *cached;
    (void)node.epilogue();  // the cached kernel already contains the epilogue
  } else {
    kernel = get_elementwise_kernel(node, inputs, expression(), layout);
    if (node.kernel_cache) node.kernel_cache->add(std::move(key), kernel);
  }
  StepBuilder step(kernel);
  for (size_t k = 0; k < inputs.names.size(); ++k) step.bind("t" + std::to_string(k), node.input_operand(inputs.input_indices[k]));
  step.bind("y", node.output_operand(0)).set("elements", elements);
  if (layout.rank > 0) {
    space.pad_to(layout.rank, "node '" + std::string(node.node) + "'");
    std::vector<int64_t> strides;
    for (size_t k = 0; k < inputs.names.size(); ++k) strides.insert(strides.end(), space.strides[k].begin(), space.strides[k].end());
    step.set("size", space.sizes).set("t_stride", strides);
    if (!layout.dense) step.set("y_stride", space.strides.back());
  }
  if (has_variants && (layout.dense || computes_singly))
    step.set_variant(std::string(computes_singly ? kSingle : kVec4), computes_singly ? std::string(kVec4) : "");
  const int64_t each = layout.dense ? 4 * get_num_vec4_per_invocation(dtype) : 1;
  node.add(step.set_threads(static_cast<uint64_t>(ceil_div(elements, each))).build());
}

// Folds the operands of a variadic operator, `max_inputs` at a time, with intermediate results in scratch memory.
void add_variadic_folds(LowerContext& node, size_t max_inputs) {
  const TensorDesc& y = node.output(0);
  const size_t count = node.inputs.size();
  CompositeLowering composition(node);
  const TensorOperand accumulator = composition.allocate_scratch(is_16bit_float(y.dtype) ? DType::float32 : y.dtype, y.shape);
  for (size_t next = 0; next < count;) {
    std::vector<TensorOperand> operands;
    if (next > 0) operands.push_back(accumulator);
    for (; operands.size() < max_inputs && next < count; ++next) operands.push_back({node.input(next), node.input_operand(next)});
    const bool last = next == count;
    std::vector<std::string> names;
    for (size_t k = 0; k < operands.size(); ++k) names.push_back("a" + std::to_string(k));
    composition.add_elementwise(make_fold_expression(node.row->expression, names, last ? count : 0), operands,
                                last ? TensorOperand{y, node.output_operand(0)} : accumulator, last);
  }
}

}  // namespace

void lower_elementwise(LowerContext& node) {
  if (node.expression) return add_elementwise(node, [&]() -> const Expression& { return *node.expression; }, node.inputs.size());
  if (const size_t count = node.inputs.size(); count > kMaxInputsHighRank && node.row->schema.inputs.back().variadic) {
    const size_t axes = make_index_space(node, collect_inputs(node, count)).sizes.size();
    const size_t max_inputs = std::min<size_t>(kMaxInputs, node.context->limit("maxPerStageDescriptorStorageBuffers") - 1);
    if (axes > get_max_kernel_rank(std::min(count, max_inputs))) return add_variadic_folds(node, kMaxInputsHighRank);
    if (count > max_inputs) return add_variadic_folds(node, max_inputs);
  }
  std::vector<bool> present;
  for (size_t i = 0; i < node.inputs.size(); ++i) present.push_back(node.has_input(i));
  add_elementwise(node, [&] { return make_elementwise_expression(*node.row, *node.attributes, present); }, node.inputs.size());
}

void lower_cast(LowerContext& node) {
  if (is_low_bit(node.input(0).dtype) || is_low_bit(node.output(0).dtype)) return lower_low_precision_cast(node);
  // The store converts to the output's dtype. Only bool needs an explicit comparison with zero.
  const bool to_bool = node.output(0).dtype == DType::bool_ && node.input(0).dtype != DType::bool_;
  add_elementwise(node, [&] { return Expression::parse(get_elementwise_input_names(*node.row, 1)[0] + (to_bool ? " != 0" : "")); }, 1);
}

}  // namespace pumice
