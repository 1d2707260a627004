// Lowers gather and scatter operators, whose indices may be known only on the device.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/strided_copy.h"
#include "operators/common/table_gather.h"
#include "operators/geometry/window_geometry.h"
#include "operators/index/lowerings.h"
#include "operators/sort/sort.h"
#include "operators/table/host_tensor_access.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kMaxAxes = 8;

// Addressing parameters of include/gather_scatter.glsl for a dense tensor.
struct GatherAddressing {
  int64_t elements = 0;                           // number of elements to gather or scatter
  std::vector<int64_t> index_size, index_stride;  // one value per element of an index tuple
  int64_t inner = 1, count = 1, outer_rows = 1, outer_stride = 0;
  std::optional<IndexSpace> space;  // set if each element has its own index: describes the element's offset on all other axes

  bool has_outer_axes() const { return !space && elements > outer_rows * inner; }

  Macros make_macros() const {
    return {{"TUPLE", std::to_string(index_size.size()) + "u"},
            {"RANK", std::to_string(space ? kMaxAxes : 0)},
            {"OUTER", has_outer_axes() ? "1" : "0"}};
  }

  void set_push_constants(StepBuilder& step, const TensorDesc& indices) const {
    step.set("index_words", bits(indices.dtype) / 32);
    step.set("index_size", index_size).set("index_stride", index_stride);
    if (space) {
      step.set("size", space->sizes).set("stride", space->strides[0]);
      return;
    }
    step.set("inner", inner);
    if (has_outer_axes()) step.set("addresses", count).set("outer_rows", outer_rows).set("outer_stride", outer_stride);
  }
};

// Returns the addressing of GatherElements: each output element has its own index along `axis` of x.
GatherAddressing make_element_addressing(const LowerContext& node) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const int64_t declared_axis = node.attributes->integer("axis", 0);
  const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + static_cast<int64_t>(x.size()) : declared_axis);
  Strides strides = packed_strides(x);
  GatherAddressing result{element_count(indices), {x[axis]}, {strides[axis]}};
  strides[axis] = 0;
  IndexSpace space{indices, {strides}};
  space.coalesce();
  space.pad_to(kMaxAxes, "'" + std::string(node.node) + "'");
  result.space = std::move(space);
  return result;
}

// Returns the addressing of GatherND: the last axis of input 1 contains index tuples. x and indices share the first `batch` axes.
GatherAddressing make_tuple_addressing(const LowerContext& node, size_t batch) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const auto length = static_cast<size_t>(indices.back());
  const Strides strides = packed_strides(x);
  GatherAddressing result;
  for (size_t i = batch; i < batch + length; ++i) {
    result.index_size.push_back(x[i]);
    result.index_stride.push_back(strides[i]);
  }
  result.inner = element_count(x, batch + length, x.size());
  result.count = element_count(indices, 0, indices.size() - 1);
  result.outer_rows = element_count(indices, batch, indices.size() - 1);
  result.outer_stride = element_count(x, batch, x.size());
  result.elements = result.count * result.inner;
  return result;
}

// Returns how many adjacent elements one load gathers (up to 128 bits).
int64_t choose_gather_load_width(const LowerContext& node, const GatherAddressing& addressing, const Operand& x) {
  const int64_t element_bits = bits(node.input(0).dtype);
  for (int64_t n = 128 / element_bits; n > 1 && n * element_bits >= 32; n /= 2)
    if (!addressing.space && addressing.inner % n == 0 && get_misalignment(node, x) % static_cast<uint64_t>(n * element_bits / 8) == 0)
      return n;
  return 1;
}

// Returns the maximum number of elements per binding, rounded down to a multiple of the binding alignment.
int64_t get_max_elements_per_binding(const LowerContext& node, int64_t element_bits) {
  constexpr int64_t kBoundary = 256 * 8;  // in bits
  return max_binding_bytes(*node.context) * 8 / kBoundary * kBoundary / element_bits;
}

// Gathers in several dispatches, each of which binds a range of x and a range of y. A dispatch writes the elements whose source is in its
// range of x. The first dispatch for a range of y writes zeros to all other elements.
void add_split_gather(LowerContext& node, const GatherAddressing& addressing, const Operand& x, const Operand& indices, int64_t n) {
  const int64_t element_bits = bits(node.output(0).dtype) * n, each = get_max_elements_per_binding(node, element_bits);
  const int64_t x_elements = node.input(0).elements() / n, lanes = std::max<int64_t>(32 / element_bits, 1);
  const Operand y = get_contiguous_output(node, 0);
  for (int64_t y_begin = 0; y_begin < addressing.elements; y_begin += each)
    for (int64_t x_begin = 0; x_begin < x_elements; x_begin += each) {
      Macros macros = addressing.make_macros();
      for (auto& macro : make_copy_macros(lanes * element_bits)) macros.push_back(std::move(macro));
      macros.insert(macros.end(),
                    {{"BITS", std::to_string(element_bits)}, {"SCALE", std::to_string(n) + "u"}, {"PARTS", x_begin == 0 ? "1" : "2"}});
      const int64_t elements = std::min(each, addressing.elements - y_begin), bound_elements = std::min(each, x_elements - x_begin);
      StepBuilder step(node.kernel("gather.comp", DType::float32, macros));
      step.bind("x", x, x_begin * n, bound_elements * n, bits(node.input(0).dtype))
          .bind("y", y, y_begin * n, elements * n, bits(node.output(0).dtype));
      step.bind("indices", indices)
          .set("elements", elements)
          .set("first_output", y_begin)
          .set("first_offset", x_begin)
          .set("num_offsets", bound_elements);
      addressing.set_push_constants(step, node.input(1));
      node.add(step.set_threads(count_copy_threads(ceil_div(elements, lanes), lanes * element_bits)).build());
    }
  copy_contiguous_output(node, 0, y);
}

void add_gather(LowerContext& node, GatherAddressing addressing) {
  const Operand x = get_contiguous_input(node, 0), indices = get_contiguous_input(node, 1);
  const int64_t n = choose_gather_load_width(node, addressing, x);
  addressing.elements /= n;
  addressing.inner /= n;
  addressing.outer_stride /= n;
  for (int64_t& stride : addressing.index_stride) stride /= n;
  if (std::max(node.input(0).elements(), node.output(0).elements()) > get_max_elements_per_binding(node, bits(node.input(0).dtype)))
    return add_split_gather(node, addressing, x, indices, n);
  const auto set = [&](StepBuilder& step) {
    step.bind("x", x).bind("indices", indices);
    addressing.set_push_constants(step, node.input(1));
  };
  add_contiguous_output(node, 0, "gather.comp", addressing.make_macros(), set, n);
}

// GLSL that converts between the stored bits of an element and the value that a scatter reduction uses.
struct ValueConversions {
  std::string type, from, to;
};

ValueConversions get_value_conversions(const LowerContext& node, DType dtype) {
  static const std::map<DType, ValueConversions> table = {
      {DType::float32, {"float", "uintBitsToFloat(b)", "floatBitsToUint(v)"}},
      {DType::float16, {"float", "pm_fp16_unpack2(b).x", "pm_fp16_bits2(vec2(v, 0.0)).x"}},
      {DType::bfloat16, {"float", "pm_bf16_unpack2(b).x", "pm_bf16_bits2(vec2(v, 0.0)).x"}},
      {DType::int64, {"int64_t", "int64_t(b)", "uint64_t(v)"}},
      {DType::uint64, {"uint64_t", "(b)", "(v)"}},
      {DType::int32, {"int", "int(b)", "uint(v)"}},
      {DType::uint32, {"uint", "(b)", "(v)"}},
      {DType::int16, {"int", "bitfieldExtract(int(b), 0, 16)", "uint(v)"}},
      {DType::uint16, {"uint", "(b)", "(v)"}},
      {DType::int8, {"int", "bitfieldExtract(int(b), 0, 8)", "uint(v)"}},
      {DType::uint8, {"uint", "(b)", "(v)"}},
  };
  const auto entry = table.find(dtype);
  if (entry == table.end())
    throw UnsupportedError("node '" + std::string(node.node) + "': " + std::string(node.row->name) + " with reduction '" +
                           node.attributes->text("reduction") + "' of " + std::string(name(dtype)));
  return entry->second;
}

Macros make_reduction_macros(const LowerContext& node, DType dtype) {
  static const std::map<std::string, std::string> combinations = {
      {"add", "((a) + (b))"}, {"mul", "((a) * (b))"}, {"max", "pm_max(a, b)"}, {"min", "pm_min(a, b)"}};
  const std::string reduction = node.attributes->text("reduction", "none");
  if (reduction == "none") return {{"REDUCE", "0"}};
  const ValueConversions conversions = get_value_conversions(node, dtype);
  Macros macros = {{"REDUCE", "1"},
                   {"VALUE", conversions.type},
                   {"FROM(b)", conversions.from},
                   {"TO(v)", conversions.to},
                   {"COMBINE(a, b)", combinations.at(reduction)}};
  if (bits(dtype) == 64) macros.emplace_back("PM_HAS_INT64", "1");
  return macros;
}

// Adds a deterministic scatter: sorts the updates by destination, then reduces the updates of each destination in order, or keeps the last
// one. The driver's loop limit also limits the number of updates per dispatch, because all updates may have the same destination.
void add_sorted_scatter(LowerContext& node, const GatherAddressing& addressing, const Operand& indices, const Operand& updates,
                        const Operand& y) {
  const DType dtype = node.input(0).dtype;
  const int64_t count = addressing.elements;
  const Operand targets = node.add_temporary(static_cast<uint64_t>(count) * 4);
  constexpr std::pair<const char*, const char*> kInvalidTarget{"INVALID_TARGET", "0xffffffffu"};
  Macros macros = addressing.make_macros();
  macros.push_back(kInvalidTarget);
  StepBuilder target_step(node.kernel("scatter_targets.comp", DType::float32, macros));
  target_step.bind("indices", indices).bind("y", targets).set("elements", count);
  addressing.set_push_constants(target_step, node.input(1));
  node.add(target_step.set_threads(static_cast<uint64_t>(count)).build());
  Macros combine_macros = make_reduction_macros(node, dtype);
  for (auto& [macro, glsl] : combine_macros) {  // 64-bit elements are two words
    if (macro == "FROM(b)" && bits(dtype) == 64) glsl = dtype == DType::int64 ? "packInt2x32(ivec2(b))" : "packUint2x32(b)";
    if (macro == "TO(v)" && bits(dtype) == 64) glsl = dtype == DType::int64 ? "uvec2(unpackInt2x32(v))" : "unpackUint2x32(v)";
  }
  if (combine_macros.size() == 1) combine_macros = {{"VALUE", "WORD"}, {"FROM(b)", "(b)"}, {"TO(v)", "(v)"}, {"COMBINE(a, b)", "(b)"}};
  combine_macros.push_back(kInvalidTarget);
  combine_macros.emplace_back("BITS", std::to_string(bits(dtype)));
  const Operand order = add_argsort(node, targets, count);
  const int64_t max_updates = node.loop_limit().value_or(count);
  for (int64_t first = 0; first < count; first += max_updates) {
    const int64_t end = std::min(count, first + max_updates);
    StepBuilder step(node.kernel("scatter_sorted.comp", DType::float32, combine_macros));
    step.bind("x", updates).bind("y", y).bind("targets", targets).bind("order", order).set("first", first).set("end", end);
    node.add(step.set_threads(static_cast<uint64_t>(end - first)).build());
  }
}

// Whether several updates to the same element must be applied in order. Their order matters, except in reductions of integers. 64-bit
// integers need sorting only if the device has no 64-bit atomics.
bool needs_ordered_updates(const LowerContext& node) {
  const DType dtype = node.input(0).dtype;
  const bool combines = node.attributes->text("reduction", "none") != "none";
  if (combines && !is_float(dtype) && bits(dtype) == 64)
    return !node.context->feature("shaderInt64") || !node.context->feature("shaderBufferInt64Atomics");
  return node.deterministic && (is_float(dtype) || !combines);
}

// Scatters `updates` into y at the indices in input 1. y has the dtype of input 0.
void add_scatter_updates(LowerContext& node, const GatherAddressing& addressing, const Operand& indices, const Operand& updates,
                         const Operand& y) {
  const DType dtype = node.input(0).dtype;
  if (needs_ordered_updates(node)) return add_sorted_scatter(node, addressing, indices, updates, y);
  Macros macros = addressing.make_macros();
  macros.emplace_back("BITS", std::to_string(bits(dtype)));
  for (auto& macro : make_reduction_macros(node, dtype)) macros.push_back(std::move(macro));
  StepBuilder step(node.kernel("scatter.comp", DType::float32, macros));
  step.bind("x", updates).bind("indices", indices).bind("y", y).set("elements", addressing.elements);
  addressing.set_push_constants(step, node.input(1));
  node.add(step.set_threads(static_cast<uint64_t>(addressing.elements)).build());
}

void add_scatter(LowerContext& node, const GatherAddressing& addressing) {
  const TensorDesc& x = node.input(0);
  if (x.elements() == 0) return;
  const Operand y = get_contiguous_output(node, 0);
  add_strided_copy(node, x.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, {node.input_operand(0)}, {y});
  if (addressing.elements > 0) add_scatter_updates(node, addressing, get_contiguous_input(node, 1), get_contiguous_input(node, 2), y);
  copy_contiguous_output(node, 0, y);
}

}  // namespace

void lower_gather(LowerContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t declared_axis = node.attributes->integer("axis", 0);
  const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + static_cast<int64_t>(x.size()) : declared_axis);
  GatherAddressing addressing{node.output(0).elements(), {x[axis]}, {packed_strides(x)[axis]}};
  addressing.inner = element_count(x, axis + 1, x.size());
  addressing.count = addressing.outer_rows = node.input(1).elements();
  addressing.outer_stride = element_count(x, axis, x.size());
  add_gather(node, addressing);
}

void lower_compress(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  const bool flat = !node.attributes->has("axis");
  const int64_t declared_axis = node.attributes->integer("axis", 0);
  const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + x.rank() : declared_axis);
  IndexTables tables(flat ? 1 : x.shape.size());
  std::vector<int32_t>& selected = tables[axis].emplace();
  const auto condition = node.host_tensor(1)->as_int64();
  for (size_t i = 0; i < condition.size(); ++i)
    if (condition[i] != 0) selected.push_back(static_cast<int32_t>(i));
  add_table_gather(node, flat ? Shape{x.elements()} : x.shape, node.output(0).shape, tables,
                   HostTensorWriter(TensorDesc(x.dtype, {})).take());
}

void lower_gather_elements(LowerContext& node) {
  add_gather(node, make_element_addressing(node));
}

void lower_gather_nd(LowerContext& node) {
  add_gather(node, make_tuple_addressing(node, static_cast<size_t>(node.attributes->integer("batch_dims", 0))));
}

void lower_scatter_elements(LowerContext& node) {
  add_scatter(node, make_element_addressing(node));
}

void lower_scatter_nd(LowerContext& node) {
  add_scatter(node, make_tuple_addressing(node, 0));
}

// The indices refer to the tensor before pooling. An output that is larger than this tensor contains it at its origin, and zeros elsewhere.
void lower_max_unpool(LowerContext& node) {
  CompositeLowering composition(node);
  const TensorOperand y = composition.output(0);
  Shape pooled = node.input(0).shape;
  const auto sizes = compute_unpool_geometry(*node.attributes, node.node, pooled).output;
  std::copy(sizes.begin(), sizes.end(), pooled.begin() + 2);
  const bool is_full_size = pooled == y.desc.shape;
  const TensorOperand unpooled = is_full_size ? y : composition.allocate_scratch(y.desc.dtype, pooled);
  composition.add_operator("ConstantOfShape", {}, {composition.input(0)}, unpooled);
  const int64_t total = element_count(pooled), count = node.input(1).elements();
  GatherAddressing addressing{count, {total}, {1}};
  addressing.count = addressing.outer_rows = count;
  if (count > 0 && total > 0) add_scatter_updates(node, addressing, node.input_operand(1), node.input_operand(0), unpooled.operand);
  if (is_full_size) return;
  composition.add_operator("ConstantOfShape", {}, {composition.input(0)}, y);
  if (total > 0)
    add_strided_copy(node, y.desc.dtype, {pooled, {packed_strides(pooled), y.desc.strides}}, {unpooled.operand},
                     {.operand = y.operand, .owns_words = false});
}

}  // namespace pumice
