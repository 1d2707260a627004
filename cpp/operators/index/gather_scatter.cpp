// Gather and scatter with indices known only on the device.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/geometry/window_geometry.h"
#include "operators/index/lowerings.h"
#include "operators/common/composition.h"
#include "operators/common/table_gather.h"
#include "operators/common/strided_copy.h"
#include "operators/table/host_elements.h"
#include "operators/table/operator_table.h"
#include "operators/sort/sort.h"

namespace pumice {
namespace {

constexpr size_t kMostAxes = 8;

std::string number(size_t value) {
  return std::to_string(value);
}

// Addressing parameters of include/gather_scatter.glsl for a dense tensor.
struct Addresses {
  int64_t elements = 0;                           // number of elements to gather or scatter
  std::vector<int64_t> index_size, index_stride;  // one per index of an index tuple
  int64_t inner = 1, count = 1, outer_rows = 1, outer_stride = 0;
  std::optional<IndexSpace> space;  // if there is one index per element: its position on the other axes

  bool has_outer() const { return !space && elements > outer_rows * inner; }

  Macros macros() const {
    return {{"TUPLE", number(index_size.size()) + "u"}, {"RANK", number(space ? kMostAxes : 0)}, {"OUTER", has_outer() ? "1" : "0"}};
  }

  void set(StepBuilder& step, const TensorDesc& indices) const {
    step.set("index_words", bits(indices.dtype) / 32);
    step.set("index_size", index_size).set("index_stride", index_stride);
    if (space) {
      step.set("size", space->sizes).set("stride", space->strides[0]);
      return;
    }
    step.set("inner", inner);
    if (has_outer()) step.set("addresses", count).set("outer_rows", outer_rows).set("outer_stride", outer_stride);
  }
};

// Addressing by indices on axis `axis` of `x`, one per element of a tensor of the indices' shape (GatherElements).
Addresses addresses_of_elements(const LowerContext& node) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const int64_t given = node.attributes->integer("axis", 0);
  const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(x.size()) : given);
  Strides strides = packed_strides(x);
  Addresses found{element_count(indices), {x[axis]}, {strides[axis]}};
  strides[axis] = 0;
  IndexSpace space{indices, {strides}};
  space.coalesce();
  space.pad_to(kMostAxes, "'" + std::string(node.node) + "'");
  found.space = std::move(space);
  return found;
}

// Addressing by index tuples in the last axis of input 1 (GatherND). The first `batch` axes are shared by indices and `x`.
Addresses addresses_of_rows(const LowerContext& node, size_t batch) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const auto length = static_cast<size_t>(indices.back());
  const Strides strides = packed_strides(x);
  Addresses found;
  for (size_t i = batch; i < batch + length; ++i) {
    found.index_size.push_back(x[i]);
    found.index_stride.push_back(strides[i]);
  }
  found.inner = element_count(x, batch + length, x.size());
  found.count = element_count(indices, 0, indices.size() - 1);
  found.outer_rows = element_count(indices, batch, indices.size() - 1);
  found.outer_stride = element_count(x, batch, x.size());
  found.elements = found.count * found.inner;
  return found;
}

// Number of adjacent elements that can be gathered as one of up to 128 bits.
int64_t neighbours(const LowerContext& node, const Addresses& addresses, const Operand& x) {
  const int64_t element_bits = bits(node.input(0).dtype);
  for (int64_t n = 128 / element_bits; n > 1 && n * element_bits >= 32; n /= 2)
    if (!addresses.space && addresses.inner % n == 0 && phase_of(node, x) % static_cast<uint64_t>(n * element_bits / 8) == 0) return n;
  return 1;
}

// Number of elements of `element_bits` bits per binding, rounded down to a multiple of the binding alignment.
int64_t elements_at_once(const LowerContext& node, int64_t element_bits) {
  constexpr int64_t kBoundary = 256 * 8;  // in bits
  return largest_range(*node.context) * 8 / kBoundary * kBoundary / element_bits;
}

// Gathers in several dispatches, each binding a range of x and of y. A dispatch writes the elements whose source is in its range; the first
// dispatch writes zeros for all others.
void add_gather_parts(LowerContext& node, const Addresses& addresses, const Operand& x, const Operand& indices, int64_t n) {
  const int64_t element_bits = bits(node.output(0).dtype) * n, each = elements_at_once(node, element_bits);
  const int64_t places = node.input(0).elements() / n, lanes = std::max<int64_t>(32 / element_bits, 1);
  const Operand y = dense_output(node, 0);
  for (int64_t made = 0; made < addresses.elements; made += each)
    for (int64_t place = 0; place < places; place += each) {
      Macros macros = addresses.macros();
      for (auto& macro : moving_macros(lanes * element_bits)) macros.push_back(std::move(macro));
      macros.insert(macros.end(),
                    {{"BITS", std::to_string(element_bits)}, {"SCALE", std::to_string(n) + "u"}, {"PARTS", place == 0 ? "1" : "2"}});
      const int64_t elements = std::min(each, addresses.elements - made), bound = std::min(each, places - place);
      StepBuilder step(node.kernel("gather.comp", DType::float32, macros));
      step.bind("x", x, place * n, bound * n, bits(node.input(0).dtype)).bind("y", y, made * n, elements * n, bits(node.output(0).dtype));
      step.bind("indices", indices).set("elements", elements).set("first_made", made).set("first_place", place).set("places", bound);
      addresses.set(step, node.input(1));
      node.add(step.threads(moving_threads(ceil_div(elements, lanes), lanes * element_bits)).build());
    }
  finish_output(node, 0, y);
}

void add_gather(LowerContext& node, Addresses addresses) {
  const Operand x = dense_input(node, 0), indices = dense_input(node, 1);
  const int64_t n = neighbours(node, addresses, x);
  addresses.elements /= n;
  addresses.inner /= n;
  addresses.outer_stride /= n;
  for (int64_t& stride : addresses.index_stride) stride /= n;
  if (std::max(node.input(0).elements(), node.output(0).elements()) > elements_at_once(node, bits(node.input(0).dtype)))
    return add_gather_parts(node, addresses, x, indices, n);
  const auto set = [&](StepBuilder& step) {
    step.bind("x", x).bind("indices", indices);
    addresses.set(step, node.input(1));
  };
  add_dense(node, 0, "gather.comp", addresses.macros(), set, n);
}

// GLSL to convert between an element's bits and the value that is reduced.
struct ValueText {
  std::string type, from, to;
};

ValueText value_text(const LowerContext& node, DType dtype) {
  static const std::map<DType, ValueText> texts = {
      {DType::float32, {"float", "uintBitsToFloat(b)", "floatBitsToUint(v)"}},
      {DType::float16, {"float", "pm_half_unpack2(b).x", "pm_half_bits2(vec2(v, 0.0)).x"}},
      {DType::bfloat16, {"float", "pm_bfloat_unpack2(b).x", "pm_bfloat_bits2(vec2(v, 0.0)).x"}},
      {DType::int64, {"int64_t", "int64_t(b)", "uint64_t(v)"}},
      {DType::uint64, {"uint64_t", "(b)", "(v)"}},
      {DType::int32, {"int", "int(b)", "uint(v)"}},
      {DType::uint32, {"uint", "(b)", "(v)"}},
      {DType::int16, {"int", "bitfieldExtract(int(b), 0, 16)", "uint(v)"}},
      {DType::uint16, {"uint", "(b)", "(v)"}},
      {DType::int8, {"int", "bitfieldExtract(int(b), 0, 8)", "uint(v)"}},
      {DType::uint8, {"uint", "(b)", "(v)"}},
  };
  const auto found = texts.find(dtype);
  if (found == texts.end())
    throw UnsupportedError("node '" + std::string(node.node) + "': " + std::string(node.row->name) + " with reduction '" +
                           node.attributes->text("reduction") + "' of " + std::string(name(dtype)));
  return found->second;
}

Macros reduction_macros(const LowerContext& node, DType dtype) {
  static const std::map<std::string, std::string> combinations = {
      {"add", "((a) + (b))"}, {"mul", "((a) * (b))"}, {"max", "pm_max(a, b)"}, {"min", "pm_min(a, b)"}};
  const std::string reduction = node.attributes->text("reduction", "none");
  if (reduction == "none") return {{"REDUCE", "0"}};
  const ValueText text = value_text(node, dtype);
  Macros macros = {
      {"REDUCE", "1"}, {"VALUE", text.type}, {"FROM(b)", text.from}, {"TO(v)", text.to}, {"COMBINE(a, b)", combinations.at(reduction)}};
  if (bits(dtype) == 64) macros.emplace_back("PM_HAS_INT64", "1");
  return macros;
}

// Adds scatter updates deterministically: sorts them by destination, then combines the updates of each destination in order, or keeps the
// last one. The loop limit also limits the number of updates per dispatch, because all may have the same destination.
void add_ordered_updates(LowerContext& node, const Addresses& addresses, const Operand& indices, const Operand& updates, const Operand& y) {
  const DType dtype = node.input(0).dtype;
  const int64_t count = addresses.elements;
  const Operand places = node.temporary(static_cast<uint64_t>(count) * 4);
  constexpr std::pair<const char*, const char*> kNowhere{"NOWHERE", "0xffffffffu"};
  Macros macros = addresses.macros();
  macros.push_back(kNowhere);
  StepBuilder find(node.kernel("scatter_targets.comp", DType::float32, macros));
  find.bind("indices", indices).bind("y", places).set("elements", count);
  addresses.set(find, node.input(1));
  node.add(find.threads(static_cast<uint64_t>(count)).build());
  Macros combining = reduction_macros(node, dtype);
  for (auto& [macro, text] : combining) {  // 64-bit elements are two words
    if (macro == "FROM(b)" && bits(dtype) == 64) text = dtype == DType::int64 ? "packInt2x32(ivec2(b))" : "packUint2x32(b)";
    if (macro == "TO(v)" && bits(dtype) == 64) text = dtype == DType::int64 ? "uvec2(unpackInt2x32(v))" : "unpackUint2x32(v)";
  }
  if (combining.size() == 1) combining = {{"VALUE", "WORD"}, {"FROM(b)", "(b)"}, {"TO(v)", "(v)"}, {"COMBINE(a, b)", "(b)"}};
  combining.push_back(kNowhere);
  combining.emplace_back("BITS", std::to_string(bits(dtype)));
  const Operand order = add_ascending_order(node, places, count);
  const int64_t stretch = node.loop_limit().value_or(count);
  for (int64_t first = 0; first < count; first += stretch) {
    const int64_t end = std::min(count, first + stretch);
    StepBuilder step(node.kernel("scatter_sorted.comp", DType::float32, combining));
    step.bind("x", updates).bind("y", y).bind("places", places).bind("order", order).set("first", first).set("end", end);
    node.add(step.threads(static_cast<uint64_t>(end - first)).build());
  }
}

// Whether updates must be applied in order. The result of several updates to one element depends on their order, unless they combine
// integers. 64-bit integers use atomics, or sorting if the device lacks them.
bool needs_order(const LowerContext& node) {
  const DType dtype = node.input(0).dtype;
  const bool combines = node.attributes->text("reduction", "none") != "none";
  if (combines && !is_float(dtype) && bits(dtype) == 64)
    return !node.context->feature("shaderInt64") || !node.context->feature("shaderBufferInt64Atomics");
  return node.deterministic && (is_float(dtype) || !combines);
}

// Adds updates: scatters the elements of `updates` by the indices in input 1 into y, which has input 0's dtype.
void add_updates(LowerContext& node, const Addresses& addresses, const Operand& indices, const Operand& updates, const Operand& y) {
  const DType dtype = node.input(0).dtype;
  if (needs_order(node)) return add_ordered_updates(node, addresses, indices, updates, y);
  Macros macros = addresses.macros();
  macros.emplace_back("BITS", std::to_string(bits(dtype)));
  for (auto& macro : reduction_macros(node, dtype)) macros.push_back(std::move(macro));
  StepBuilder step(node.kernel("scatter.comp", DType::float32, macros));
  step.bind("x", updates).bind("indices", indices).bind("y", y).set("elements", addresses.elements);
  addresses.set(step, node.input(1));
  node.add(step.threads(static_cast<uint64_t>(addresses.elements)).build());
}

void add_scatter(LowerContext& node, const Addresses& addresses) {
  const TensorDesc& x = node.input(0);
  if (x.elements() == 0) return;
  const Operand y = dense_output(node, 0);
  add_strided_copy(node, x.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, {node.in(0)}, {y});
  if (addresses.elements > 0) add_updates(node, addresses, dense_input(node, 1), dense_input(node, 2), y);
  finish_output(node, 0, y);
}

}  // namespace

void lower_gather(LowerContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t given = node.attributes->integer("axis", 0);
  const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(x.size()) : given);
  Addresses addresses{node.output(0).elements(), {x[axis]}, {packed_strides(x)[axis]}};
  addresses.inner = element_count(x, axis + 1, x.size());
  addresses.count = addresses.outer_rows = node.input(1).elements();
  addresses.outer_stride = element_count(x, axis, x.size());
  add_gather(node, addresses);
}

void lower_compress(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  const bool flat = !node.attributes->has("axis");
  const int64_t given = node.attributes->integer("axis", 0);
  const auto axis = static_cast<size_t>(given < 0 ? given + x.rank() : given);
  AxisTables tables(flat ? 1 : x.shape.size());
  std::vector<int32_t>& kept = tables[axis].emplace();
  const auto condition = node.host(1)->as_int64();
  for (size_t i = 0; i < condition.size(); ++i)
    if (condition[i] != 0) kept.push_back(static_cast<int32_t>(i));
  add_lookup(node, flat ? Shape{x.elements()} : x.shape, node.output(0).shape, tables, HostWriter(TensorDesc(x.dtype, {})).take());
}

void lower_gather_elements(LowerContext& node) {
  add_gather(node, addresses_of_elements(node));
}

void lower_gather_nd(LowerContext& node) {
  add_gather(node, addresses_of_rows(node, static_cast<size_t>(node.attributes->integer("batch_dims", 0))));
}

void lower_scatter_elements(LowerContext& node) {
  add_scatter(node, addresses_of_elements(node));
}

void lower_scatter_nd(LowerContext& node) {
  add_scatter(node, addresses_of_rows(node, 0));
}

// Indices refer to the tensor before pooling; a larger output contains it at the origin, with zeros elsewhere.
void lower_max_unpool(LowerContext& node) {
  Composition parts(node);
  const Piece y = parts.output(0);
  Shape pooled = node.input(0).shape;
  const auto sizes = unpool_geometry(*node.attributes, node.node, pooled).output;
  std::copy(sizes.begin(), sizes.end(), pooled.begin() + 2);
  const bool whole = pooled == y.desc.shape;
  const Piece made = whole ? y : parts.scratch(y.desc.dtype, pooled);
  parts.add("ConstantOfShape", {}, {parts.input(0)}, made);
  const int64_t total = element_count(pooled), count = node.input(1).elements();
  Addresses addresses{count, {total}, {1}};
  addresses.count = addresses.outer_rows = count;
  if (count > 0 && total > 0) add_updates(node, addresses, node.in(1), node.in(0), made.operand);
  if (whole) return;
  parts.add("ConstantOfShape", {}, {parts.input(0)}, y);
  if (total > 0)
    add_strided_copy(node, y.desc.dtype, {pooled, {packed_strides(pooled), y.desc.strides}}, {made.operand},
                     {.operand = y.operand, .alone = false});
}

}  // namespace pumice
