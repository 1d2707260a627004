#include "operators/strided.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

constexpr size_t kIndexMapRanks[] = {6, 8};  // axes that a variant of the kernel walks

}  // namespace

bool is_dense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

int64_t IndexSpace::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

void IndexSpace::coalesce() {
  IndexSpace merged;
  merged.strides.resize(strides.size());
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] == 1) continue;
    const bool joins = !merged.sizes.empty() && [&] {
      for (size_t t = 0; t < strides.size(); ++t)
        if (merged.strides[t].back() != strides[t][axis] * sizes[axis]) return false;
      return true;
    }();
    if (joins) {
      merged.sizes.back() *= sizes[axis];
      for (size_t t = 0; t < strides.size(); ++t) merged.strides[t].back() = strides[t][axis];
    } else {
      merged.sizes.push_back(sizes[axis]);
      for (size_t t = 0; t < strides.size(); ++t) merged.strides[t].push_back(strides[t][axis]);
    }
  }
  if (merged.sizes.empty()) {
    merged.sizes = {1};
    for (auto& of_tensor : merged.strides) of_tensor = {1};
  }
  *this = std::move(merged);
}

void IndexSpace::pad_to(size_t rank, std::string_view what) {
  if (sizes.size() > rank)
    throw UnsupportedError(std::string(what) + ": the index space has " + std::to_string(sizes.size()) +
                           " axes that do not merge; this kernel walks at most " + std::to_string(rank));
  const size_t missing = rank - sizes.size();
  sizes.insert(sizes.begin(), missing, 1);
  for (auto& of_tensor : strides) of_tensor.insert(of_tensor.begin(), missing, 0);
}

void add_strided_copy(LowerContext& node, DType dtype, IndexSpace space, const Operand& x, int64_t x_first, const Operand& y,
                      int64_t y_first, bool alone) {
  const int64_t elements = space.elements();
  if (elements == 0) return;
  space.coalesce();
  const int element_bits = bits(dtype);
  if (element_bits < 8) throw UnsupportedError("'" + std::string(node.node) + "': moving elements of " + std::string(name(dtype)));
  const int64_t lanes = std::max(32 / element_bits, 1);
  const bool words = alone && is_dense(space.sizes, space.strides[1]) && y_first % lanes == 0;
  const size_t rank = kIndexMapRanks[space.sizes.size() > kIndexMapRanks[0] ? 1 : 0];
  space.pad_to(rank, "'" + std::string(node.node) + "'");
  const auto kernel =
      node.kernel("index_map.comp", DType::float32,
                  {{"BITS", std::to_string(element_bits)}, {"WORDS", words ? "1" : "0"}, {"RANK", std::to_string(rank)}, {"PAD", "0"}});
  const int64_t invocations = words ? (elements + lanes - 1) / lanes : elements;
  node.add(StepBuilder(kernel)
               .bind("x", x)
               .bind("y", y)
               .set("elements", elements)
               .set("size", space.sizes)
               .set("x_stride", space.strides[0])
               .set("y_stride", space.strides[1])
               .set("x_first", x_first)
               .set("y_first", y_first)
               .threads(static_cast<uint64_t>(invocations))
               .build());
}

Operand dense_input(LowerContext& node, size_t i) {
  const TensorDesc& x = node.input(i);
  if (x.is_packed()) return node.in(i);
  const Operand copy = node.temporary(buffer_size(x.dtype, x.shape));
  add_strided_copy(node, x.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, node.in(i), 0, copy, 0, true);
  return copy;
}

Operand dense_output(LowerContext& node, size_t i) {
  const TensorDesc& y = node.output(i);
  return y.is_packed() ? node.out(i) : node.temporary(buffer_size(y.dtype, y.shape));
}

void finish_output(LowerContext& node, size_t i, const Operand& dense) {
  const TensorDesc& y = node.output(i);
  if (dense.place != Place::output)
    add_strided_copy(node, y.dtype, {y.shape, {packed_strides(y.shape), y.strides}}, dense, 0, node.out(i), 0, false);
}

void add_dense(LowerContext& node, std::string_view shader, Macros macros, const std::function<void(StepBuilder&)>& set) {
  const TensorDesc& y = node.output(0);
  const int64_t elements = y.elements(), lanes = std::max(32 / bits(y.dtype), 1);
  if (elements == 0) return;
  macros.emplace_back("BITS", std::to_string(bits(y.dtype)));
  StepBuilder step(node.kernel(shader, DType::float32, macros));
  const Operand dense = dense_output(node, 0);
  set(step.bind("y", dense).set("elements", elements).threads(static_cast<uint64_t>((elements + lanes - 1) / lanes)));
  node.add(step.build());
  finish_output(node, 0, dense);
}

}  // namespace pumice
