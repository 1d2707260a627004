#include "graph/binding/placement.h"

#include <algorithm>

#include "graph/binding/arena.h"
#include "operators/geometry/strided_views.h"
#include "operators/table/layout.h"

namespace pumice {
namespace {

constexpr int64_t kVector = 4;  // vector width of kernel loads and stores

bool is_view(const ProgramNode& node) {
  return node.row->skeleton == Skeleton::view;
}

bool accepts_any_strides(const ProgramNode& node, size_t input) {
  return has_bit(node.row->permuted_inputs, input);
}

// Whether the outputs can alias the first input.
bool may_be_view(const ProgramNode& node) {
  return node.row->views != nullptr;
}

// Whether the node reads this input either row-major or channels-last. Operands of its epilogue are converted to the result's strides.
bool accepts_any_layout(const ProgramNode& node, size_t input) {
  if (node.has_residual && input == kResidualInput) return writes_any_layout(*node.row, 0);
  return accepts_any_layout(*node.row, input);
}

// Whether two image shapes have the same batch and channels.
bool keeps_channels(const Shape& x, const Shape& y) {
  return x == y || (x.size() > 2 && y.size() > 2 && x[0] == y[0] && x[1] == y[1]);
}

// Whether a convolution has enough channels to make a copy to channels-last worthwhile.
bool prefers_channels_last(const ProgramNode& node, size_t input, const TensorDesc& desc) {
  constexpr int64_t kLeastChannels = 16;
  return node.row->prefers_channels_last && input == 0 && node.attributes.integer("group", 1) == 1 && desc.rank() > 2 &&
         desc.shape[1] >= kLeastChannels && desc.shape[1] % 8 == 0;
}

class ValuePlacer {
 public:
  ValuePlacer(const ProgramGraph& graph, const Weights& weights, ShapeInference& shapes)
      : graph_(graph), weights_(weights), shapes_(shapes) {}

  Placement place() {
    const size_t count = graph_.values.size();
    result_.values.resize(count);
    result_.concat_slices.resize(graph_.nodes.size());
    result_.views.resize(graph_.nodes.size());
    find_uses(count);
    choose_layouts(count);
    for (size_t i = 0; i < graph_.inputs.size(); ++i) result_.values[index(graph_.inputs[i])] = input_place(i);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) place_node(i);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].row->concatenates && !is_on_host(graph_.nodes[i])) place_concat(i);
    claim_outputs();
    return std::move(result_);
  }

 private:
  TensorDesc& desc(ValueId value) { return *shapes_.mutable_desc(value); }
  bool is_on_host(const ProgramNode& node) const {
    return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) { return output == kAbsent || shapes_.host(output); });
  }

  void find_uses(size_t count) {
    any_layout_.assign(count, true);
    any_strides_.assign(count, true);
    wants_channels_last_.assign(count, true);
    producer_.assign(count, -1);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const ProgramNode& node = graph_.nodes[i];
      for (const ValueId output : node.outputs)
        if (output != kAbsent) producer_[index(output)] = static_cast<int32_t>(i);
    }
    for (const auto& [name, value] : graph_.outputs)
      any_layout_[index(value)] = any_strides_[index(value)] = wants_channels_last_[index(value)] = false;
    // Visits nodes backwards to find whether all readers of a value accept any strides.
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const ProgramNode& node = graph_.nodes[i];
      if (is_on_host(node)) continue;
      for (size_t k = 0; k < node.read().size(); ++k) {
        const ValueId input = node.inputs[k];
        if (input == kAbsent) continue;
        const bool same_channels = k == 0 && is_view(node) && keeps_channels(desc(input).shape, desc(node.outputs[0]).shape);
        if (same_channels ? !any_layout_[index(node.outputs[0])] : !accepts_any_layout(node, k)) any_layout_[index(input)] = false;
        const bool passes = k == 0 && may_be_view(node) && std::ranges::all_of(node.outputs, [&](ValueId output) {
                              return output != kAbsent && any_strides_[index(output)];
                            });
        if (!passes && !accepts_any_strides(node, k)) any_strides_[index(input)] = false;
        if (!prefers_channels_last(node, k, desc(input))) wants_channels_last_[index(input)] = false;
      }
    }
  }

  // Contractions and window operators request channels-last images, and so do elementwise nodes that feed convolutions. All other nodes
  // follow their inputs.
  void choose_layouts(size_t count) {
    channels_last_.assign(count, false);
    for (const ProgramNode& node : graph_.nodes) {
      if (is_on_host(node)) continue;
      if (may_be_view(node) && node.outputs.size() == 1) {
        choose_rearranged(node);
        continue;
      }
      const bool feeds_convolution = node.row->skeleton == Skeleton::map && wants_channels_last_[index(node.outputs[0])];
      const bool requests_channels_last =
          node.row->skeleton == Skeleton::contraction || node.row->skeleton == Skeleton::window || feeds_convolution;
      const bool follows_input = std::any_of(node.inputs.begin(), node.inputs.end(),
                                             [&](ValueId input) { return input != kAbsent && channels_last_[index(input)]; });
      if (!requests_channels_last && !follows_input) continue;
      for (size_t j = 0; j < node.outputs.size(); ++j) {
        const ValueId output = node.outputs[j];
        if (output == kAbsent || !any_layout_[index(output)] || !writes_any_layout(*node.row, j)) continue;
        TensorDesc& result_desc = desc(output);
        if (!fits_channels_last(result_desc.dtype, result_desc.shape)) continue;
        result_desc.strides = channels_last_strides(result_desc.shape);
        channels_last_[index(output)] = true;
      }
    }
  }

  // A node that only rearranges gets a channels-last result if the input's memory order already matches, because nothing is then copied.
  void choose_rearranged(const ProgramNode& node) {
    TensorDesc& result_desc = desc(node.outputs[0]);
    if (!any_layout_[index(node.outputs[0])] || !fits_channels_last(result_desc.dtype, result_desc.shape)) return;
    const auto views = node.row->views(node.attributes, desc(node.inputs[0]), {&result_desc});
    const Strides strides = channels_last_strides(result_desc.shape);
    if (!views || !same_strides(result_desc.shape, (*views)[0].strides, strides)) return;
    result_desc.strides = strides;
    channels_last_[index(node.outputs[0])] = true;
  }

  ValueLocation input_place(size_t i) const {
    if (!graph_.value(graph_.inputs[i]).owned) return {MemoryKind::input, static_cast<uint32_t>(i), 0};
    const auto& use = weights_.by_input[i];
    return use ? ValueLocation{MemoryKind::persistent, 0, use->offset} : ValueLocation{};
  }

  uint32_t add_root(uint64_t bytes) {
    result_.roots.push_back({bytes});
    members_.push_back(0);
    return static_cast<uint32_t>(result_.roots.size() - 1);
  }

  void place_node(size_t i) {
    const ProgramNode& node = graph_.nodes[i];
    if (is_on_host(node)) return;
    if ((may_be_view(node) && place_views(node)) || (node.row->is_identity && place_over_input(node))) {
      result_.views[i] = true;
      return;
    }
    for (const ValueId output : node.outputs) {
      if (output == kAbsent || shapes_.host(output)) continue;
      const uint32_t root = add_root(round_up(desc(output).bytes(), kTensorSizeAlignment));
      ++members_[root];
      result_.values[index(output)] = {MemoryKind::temporary, root, 0};
    }
  }

  // Places a node's outputs as views of its input. Returns false if their strides differ and a reader cannot take any strides.
  bool place_views(const ProgramNode& node) {
    const ValueLocation viewed = result_.values[index(node.inputs[0])];
    if (viewed.place == MemoryKind::none) return false;
    const TensorDesc& x = desc(node.inputs[0]);
    std::vector<const TensorDesc*> outputs;
    for (const ValueId output : node.outputs) outputs.push_back(output == kAbsent || shapes_.host(output) ? nullptr : &desc(output));
    const auto views = node.row->views(node.attributes, x, outputs);
    if (!views) return false;
    const auto offset_of = [&](const StridedView& view) { return static_cast<uint64_t>(view.first * bits(x.dtype) / 8); };
    for (size_t j = 0; j < outputs.size(); ++j) {
      const bool has_view_strides = same_strides(outputs[j]->shape, (*views)[j].strides, outputs[j]->strides);
      if (offset_of((*views)[j]) % kTensorSizeAlignment != 0 || (!has_view_strides && !any_strides_[index(node.outputs[j])])) return false;
    }
    for (size_t j = 0; j < outputs.size(); ++j) {
      if (!same_strides(outputs[j]->shape, (*views)[j].strides, outputs[j]->strides)) desc(node.outputs[j]).strides = (*views)[j].strides;
      result_.values[index(node.outputs[j])] = {viewed.place, viewed.index, viewed.offset + offset_of((*views)[j]),
                                                viewed.whole && outputs[j]->elements() == x.elements()};
      if (viewed.place == MemoryKind::temporary) ++members_[viewed.index];
    }
    return true;
  }

  // Places a node's result over its first input. Returns false unless both have the same elements in the same order.
  bool place_over_input(const ProgramNode& node) {
    const ValueLocation viewed = result_.values[index(node.inputs[0])];
    const TensorDesc &x = desc(node.inputs[0]), &result_desc = desc(node.outputs[0]);
    const bool needs_own_memory = viewed.place == MemoryKind::none || node.epilogue != "x" || node.has_residual;
    if (needs_own_memory || x.dtype != result_desc.dtype || x.elements() != result_desc.elements() || !x.is_packed() ||
        !result_desc.is_packed())
      return false;
    if (!node.row->is_identity(node.attributes, x, desc(node.inputs[1]))) return false;
    result_.values[index(node.outputs[0])] = viewed;
    if (viewed.place == MemoryKind::temporary) ++members_[viewed.index];
    return true;
  }

  // Lets the producers of a Concat's inputs write directly into its output.
  void place_concat(size_t i) {
    const ProgramNode& node = graph_.nodes[i];
    const TensorDesc& whole = desc(node.outputs[0]);
    const int64_t declared_axis = node.attributes.integer("axis");
    const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + whole.rank() : declared_axis);
    result_.concat_slices[i].resize(node.inputs.size());
    int64_t begin = 0;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] == kAbsent) continue;
      const Slice slice = slice_of(whole, desc(node.inputs[k]).shape, axis, begin);
      begin += desc(node.inputs[k]).shape[axis];
      if (slice.elements == 0) continue;
      ConcatSlice& concat_slice = result_.concat_slices[i][k];
      concat_slice.whole_words = slice.whole_words;
      concat_slice.written_in_place = can_write_in_place(node, k, slice);
      const ValueLocation& place = result_.values[index(node.inputs[k])];
      concat_slice.root = static_cast<int32_t>(concat_slice.written_in_place ? place.index : add_root(0));
      if (concat_slice.written_in_place && !slice.is_solid) desc(node.inputs[k]).strides = whole.strides;
      StorageRoot& root = result_.roots[static_cast<size_t>(concat_slice.root)];
      const uint32_t whole_root = result_.values[index(node.outputs[0])].index;
      root.parent = static_cast<int32_t>(whole_root);
      root.offset = slice.offset;
      root.bytes = slice.is_last ? result_.roots[whole_root].bytes - slice.offset : slice.bytes;
      root.lane = slice.lane;
      ++members_[whole_root];
    }
  }

  // The slice of a Concat's output that an input fills.
  struct Slice {
    uint64_t offset = 0, bytes = 0;
    int64_t first = 0, elements = 0;  // both in elements
    bool is_solid = false;            // contiguous and row-major
    bool is_last = false, whole_words = false;
    InterleavedRange lane;
  };

  static Slice slice_of(const TensorDesc& whole, const Shape& shape, size_t axis, int64_t begin) {
    Slice slice;
    const int64_t first = begin * whole.strides[axis], length = shape[axis] * whole.strides[axis];
    const auto bytes = [&](int64_t elements) { return static_cast<uint64_t>(elements) * static_cast<uint64_t>(bits(whole.dtype)) / 8; };
    slice.first = first;
    slice.elements = element_count(shape);
    slice.offset = bytes(first);
    slice.is_solid = whole.is_packed() && element_count(shape, 0, axis) == 1;
    const uint64_t span_bytes = slice.is_solid ? bytes(slice.elements) : buffer_size(whole.dtype, shape, &whole.strides);
    slice.bytes =
        round_up(slice.offset + span_bytes, 4) - slice.offset;  // extends to the end of its last word, which the next slice may share
    slice.is_last = begin + shape[axis] == whole.shape[axis];
    slice.whole_words = first * bits(whole.dtype) % 32 == 0 && ((slice.is_solid && slice.is_last) || length * bits(whole.dtype) % 32 == 0);
    if (!slice.is_solid && slice.whole_words)
      slice.lane = {0, bytes(whole.shape[axis] * whole.strides[axis]), bytes(first), bytes(first + length)};
    return slice;
  }

  // Whether the producer can write into the slice: it takes any strides or the slice is contiguous, and no vector store crosses its end.
  bool can_write_in_place(const ProgramNode& node, size_t k, const Slice& slice) {
    const ValueId concat_input = node.inputs[k];
    const ValueLocation& place = result_.values[index(concat_input)];
    const ValueLocation& whole = result_.values[index(node.outputs[0])];
    if (place.place != MemoryKind::temporary || producer_[index(concat_input)] < 0 || !place.whole) return false;
    const StorageRoot& root = result_.roots[place.index];
    if (root.parent >= 0 || place.index == root_of(whole.index) || slice.offset % kTensorSizeAlignment != 0 || !slice.whole_words)
      return false;
    if (slice.is_solid)
      return desc(concat_input).is_packed() &&
             (slice.is_last || slice.elements % kVector == 0);  // vector stores would spill into the next slice
    const ProgramNode& producer = graph_.nodes[static_cast<size_t>(producer_[index(concat_input)])];
    const auto output = static_cast<size_t>(std::ranges::find(producer.outputs, concat_input) - producer.outputs.begin());
    return members_[place.index] == 1 && any_layout_[index(concat_input)] && desc(concat_input).rank() == 4 &&
           writes_any_layout(*producer.row, output);
  }

  uint32_t root_of(uint32_t root) const {
    while (result_.roots[root].parent >= 0) root = static_cast<uint32_t>(result_.roots[root].parent);
    return root;
  }

  // Program outputs are computed directly in the output buffer.
  void claim_outputs() {
    for (size_t j = 0; j < graph_.outputs.size(); ++j) {
      const ValueLocation& place = result_.values[index(graph_.outputs[j].second)];
      if (place.place != MemoryKind::temporary) continue;
      StorageRoot& root = result_.roots[place.index];
      if (root.parent < 0 && root.output < 0 && place.whole) root.output = static_cast<int32_t>(j);
    }
  }

  const ProgramGraph& graph_;
  const Weights& weights_;
  ShapeInference& shapes_;
  Placement result_;
  std::vector<int32_t> producer_;  // node that computes each value
  std::vector<uint32_t> members_;  // values and slices stored in each root
  std::vector<bool> any_layout_, channels_last_;
  std::vector<bool> any_strides_;          // whether all readers of the value accept any strides
  std::vector<bool> wants_channels_last_;  // likewise, and whether they are faster with channels-last
};

}  // namespace

Placement place_values(const ProgramGraph& graph, const Weights& weights, ShapeInference& shapes) {
  return ValuePlacer(graph, weights, shapes).place();
}

std::pair<uint32_t, uint64_t> outermost_storage(const Placement& placement, uint32_t root) {
  uint64_t offset = 0;
  while (placement.roots[root].parent >= 0) {
    offset += placement.roots[root].offset;
    root = static_cast<uint32_t>(placement.roots[root].parent);
  }
  return {root, offset};
}

}  // namespace pumice
