#include "graph/binding/memory_plan.h"

#include <algorithm>

#include "graph/binding/arena.h"
#include "operators/geometry/strided_views.h"
#include "operators/table/value_layout.h"

namespace pumice {
namespace {

constexpr int64_t kVector = 4;  // elements per vector load or store of kernels

bool is_view(const ProgramNode& node) {
  return node.row->skeleton == KernelKind::view;
}

bool accepts_any_strides(const ProgramNode& node, size_t input) {
  return has_bit(node.row->layout.permuted_inputs, input);
}

// Whether the operator can return views of its first input.
bool may_be_view(const ProgramNode& node) {
  return node.row->alias.views != nullptr;
}

// Whether the kernels read this input in both row-major and channels-last layout. A residual is converted to the strides of the result.
bool accepts_any_layout(const ProgramNode& node, size_t input) {
  if (node.has_residual && input == kResidualInput) return writes_any_layout(*node.row, 0);
  return accepts_any_layout(*node.row, input);
}

// Whether two NCHW shapes have the same batch size and channels.
bool has_same_channels(const Shape& x, const Shape& y) {
  return x == y || (x.size() > 2 && y.size() > 2 && x[0] == y[0] && x[1] == y[1]);
}

// Whether the input has enough channels to make a copy to channels-last worthwhile.
bool prefers_channels_last(const ProgramNode& node, size_t input, const TensorDesc& desc) {
  constexpr int64_t kMinChannels = 16;
  return node.row->layout.prefers_channels_last && input == 0 && node.attributes.integer("group", 1) == 1 && desc.rank() > 2 &&
         desc.shape[1] >= kMinChannels && desc.shape[1] % 8 == 0;
}

class MemoryPlanner {
 public:
  MemoryPlanner(const ProgramGraph& graph, const Weights& weights, ShapeInference& shapes)
      : graph_(graph), weights_(weights), shapes_(shapes) {}

  MemoryPlan run() {
    const size_t count = graph_.values.size();
    result_.values.resize(count);
    result_.concat_slices.resize(graph_.nodes.size());
    result_.views.resize(graph_.nodes.size());
    find_accepted_layouts(count);
    choose_layouts(count);
    for (size_t i = 0; i < graph_.inputs.size(); ++i) result_.values[to_index(graph_.inputs[i])] = locate_graph_input(i);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) place_node(i);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].row->alias.concatenates && !is_on_host(graph_.nodes[i])) place_concat(i);
    assign_output_buffers();
    return std::move(result_);
  }

 private:
  TensorDesc& desc(ValueId value) { return *shapes_.mutable_desc(value); }
  bool is_on_host(const ProgramNode& node) const {
    return std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId output) { return output == kAbsent || shapes_.host_elements(output); });
  }

  void find_accepted_layouts(size_t count) {
    any_layout_.assign(count, true);
    any_strides_.assign(count, true);
    prefers_channels_last_.assign(count, true);
    producer_.assign(count, -1);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const ProgramNode& node = graph_.nodes[i];
      for (const ValueId output : node.outputs)
        if (output != kAbsent) producer_[to_index(output)] = static_cast<int32_t>(i);
    }
    for (const auto& [name, value] : graph_.outputs)
      any_layout_[to_index(value)] = any_strides_[to_index(value)] = prefers_channels_last_[to_index(value)] = false;
    // Walks the nodes backwards, so that the readers of a value are visited before its producer.
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const ProgramNode& node = graph_.nodes[i];
      if (is_on_host(node)) continue;
      for (size_t k = 0; k < node.get_data_inputs().size(); ++k) {
        const ValueId input = node.inputs[k];
        if (input == kAbsent) continue;
        const bool same_channels = k == 0 && is_view(node) && has_same_channels(desc(input).shape, desc(node.outputs[0]).shape);
        if (same_channels ? !any_layout_[to_index(node.outputs[0])] : !accepts_any_layout(node, k)) any_layout_[to_index(input)] = false;
        const bool passes = k == 0 && may_be_view(node) && std::ranges::all_of(node.outputs, [&](ValueId output) {
                              return output != kAbsent && any_strides_[to_index(output)];
                            });
        if (!passes && !accepts_any_strides(node, k)) any_strides_[to_index(input)] = false;
        if (!prefers_channels_last(node, k, desc(input))) prefers_channels_last_[to_index(input)] = false;
      }
    }
  }

  // Convolutions, matmuls and pooling request channels-last results, and so do elementwise nodes that feed convolutions. All other nodes
  // keep the layout of their inputs.
  void choose_layouts(size_t count) {
    channels_last_.assign(count, false);
    for (const ProgramNode& node : graph_.nodes) {
      if (is_on_host(node)) continue;
      if (may_be_view(node) && node.outputs.size() == 1) {
        choose_view_layout(node);
        continue;
      }
      const bool feeds_convolution = node.row->skeleton == KernelKind::map && prefers_channels_last_[to_index(node.outputs[0])];
      const bool requests_channels_last =
          node.row->skeleton == KernelKind::contraction || node.row->skeleton == KernelKind::window || feeds_convolution;
      const bool follows_input = std::any_of(node.inputs.begin(), node.inputs.end(),
                                             [&](ValueId input) { return input != kAbsent && channels_last_[to_index(input)]; });
      if (!requests_channels_last && !follows_input) continue;
      for (size_t j = 0; j < node.outputs.size(); ++j) {
        const ValueId output = node.outputs[j];
        if (output == kAbsent || !any_layout_[to_index(output)] || !writes_any_layout(*node.row, j)) continue;
        TensorDesc& result_desc = desc(output);
        if (!fits_channels_last(result_desc.dtype, result_desc.shape)) continue;
        result_desc.strides = make_channels_last_strides(result_desc.shape);
        channels_last_[to_index(output)] = true;
      }
    }
  }

  // A view gets a channels-last result if its input already has that order in memory, because nothing is then copied.
  void choose_view_layout(const ProgramNode& node) {
    TensorDesc& result_desc = desc(node.outputs[0]);
    if (!any_layout_[to_index(node.outputs[0])] || !fits_channels_last(result_desc.dtype, result_desc.shape)) return;
    const auto views = node.row->alias.views(node.attributes, desc(node.inputs[0]), {&result_desc});
    const Strides strides = make_channels_last_strides(result_desc.shape);
    if (!views || !have_same_strides(result_desc.shape, (*views)[0].strides, strides)) return;
    result_desc.strides = strides;
    channels_last_[to_index(node.outputs[0])] = true;
  }

  ValueLocation locate_graph_input(size_t i) const {
    if (!graph_.value(graph_.inputs[i]).owned) return {MemoryKind::input, static_cast<uint32_t>(i), 0};
    const auto& use = weights_.by_input[i];
    return use ? ValueLocation{MemoryKind::persistent, 0, use->offset} : ValueLocation{};
  }

  uint32_t add_storage_root(uint64_t bytes) {
    result_.roots.push_back({bytes});
    members_.push_back(0);
    return static_cast<uint32_t>(result_.roots.size() - 1);
  }

  void place_node(size_t i) {
    const ProgramNode& node = graph_.nodes[i];
    if (is_on_host(node)) return;
    if ((may_be_view(node) && try_alias_as_views(node)) || (node.row->alias.is_identity && try_alias_input(node))) {
      result_.views[i] = true;
      return;
    }
    for (const ValueId output : node.outputs) {
      if (output == kAbsent || shapes_.host_elements(output)) continue;
      const uint32_t root = add_storage_root(round_up(desc(output).bytes(), kTensorSizeAlignment));
      ++members_[root];
      result_.values[to_index(output)] = {MemoryKind::temporary, root, 0};
    }
  }

  // Makes a node's outputs views of its input. Returns false if the strides differ and a reader does not accept arbitrary strides.
  bool try_alias_as_views(const ProgramNode& node) {
    const ValueLocation viewed = result_.values[to_index(node.inputs[0])];
    if (viewed.memory == MemoryKind::none) return false;
    const TensorDesc& x = desc(node.inputs[0]);
    std::vector<const TensorDesc*> outputs;
    for (const ValueId output : node.outputs)
      outputs.push_back(output == kAbsent || shapes_.host_elements(output) ? nullptr : &desc(output));
    const auto views = node.row->alias.views(node.attributes, x, outputs);
    if (!views) return false;
    const auto offset_of = [&](const StridedView& view) { return static_cast<uint64_t>(view.first * bits(x.dtype) / 8); };
    for (size_t j = 0; j < outputs.size(); ++j) {
      const bool has_view_strides = have_same_strides(outputs[j]->shape, (*views)[j].strides, outputs[j]->strides);
      if (offset_of((*views)[j]) % kTensorSizeAlignment != 0 || (!has_view_strides && !any_strides_[to_index(node.outputs[j])]))
        return false;
    }
    for (size_t j = 0; j < outputs.size(); ++j) {
      if (!have_same_strides(outputs[j]->shape, (*views)[j].strides, outputs[j]->strides))
        desc(node.outputs[j]).strides = (*views)[j].strides;
      result_.values[to_index(node.outputs[j])] = {viewed.memory, viewed.index, viewed.offset + offset_of((*views)[j]),
                                                   viewed.covers_root && outputs[j]->elements() == x.elements()};
      if (viewed.memory == MemoryKind::temporary) ++members_[viewed.index];
    }
    return true;
  }

  // Makes the output an alias of the first input. Returns false unless the node is an identity: same elements in the same order.
  bool try_alias_input(const ProgramNode& node) {
    const ValueLocation viewed = result_.values[to_index(node.inputs[0])];
    const TensorDesc &x = desc(node.inputs[0]), &result_desc = desc(node.outputs[0]);
    const bool needs_own_memory = viewed.memory == MemoryKind::none || node.epilogue != "x" || node.has_residual;
    if (needs_own_memory || x.dtype != result_desc.dtype || x.elements() != result_desc.elements() || !x.is_packed() ||
        !result_desc.is_packed())
      return false;
    if (!node.row->alias.is_identity(node.attributes, x, desc(node.inputs[1]))) return false;
    result_.values[to_index(node.outputs[0])] = viewed;
    if (viewed.memory == MemoryKind::temporary) ++members_[viewed.index];
    return true;
  }

  // Lets the producers of a Concat's inputs write directly to its output, where possible.
  void place_concat(size_t i) {
    const ProgramNode& node = graph_.nodes[i];
    const TensorDesc& concat_output = desc(node.outputs[0]);
    const int64_t declared_axis = node.attributes.integer("axis");
    const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + concat_output.rank() : declared_axis);
    result_.concat_slices[i].resize(node.inputs.size());
    int64_t begin = 0;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] == kAbsent) continue;
      const OutputSlice slice = compute_slice(concat_output, desc(node.inputs[k]).shape, axis, begin);
      begin += desc(node.inputs[k]).shape[axis];
      if (slice.elements == 0) continue;
      ConcatSlice& concat_slice = result_.concat_slices[i][k];
      concat_slice.whole_words = slice.whole_words;
      concat_slice.written_in_place = can_write_in_place(node, k, slice);
      const ValueLocation& location = result_.values[to_index(node.inputs[k])];
      concat_slice.root = static_cast<int32_t>(concat_slice.written_in_place ? location.index : add_storage_root(0));
      if (concat_slice.written_in_place && !slice.is_contiguous) desc(node.inputs[k]).strides = concat_output.strides;
      StorageRoot& root = result_.roots[static_cast<size_t>(concat_slice.root)];
      const uint32_t output_root = result_.values[to_index(node.outputs[0])].index;
      root.parent = static_cast<int32_t>(output_root);
      root.offset = slice.offset;
      root.bytes = slice.is_last ? result_.roots[output_root].bytes - slice.offset : slice.bytes;
      root.interleaved = slice.interleaved;
      ++members_[output_root];
    }
  }

  // The slice of a Concat's output that one input fills.
  struct OutputSlice {
    uint64_t offset = 0, bytes = 0;
    int64_t first = 0, elements = 0;  // start and size of the slice, in elements
    bool is_contiguous = false;       // whether the slice is contiguous and row-major
    bool is_last = false, whole_words = false;
    InterleavedRange interleaved;
  };

  static OutputSlice compute_slice(const TensorDesc& concat_output, const Shape& shape, size_t axis, int64_t begin) {
    OutputSlice slice;
    const int64_t first = begin * concat_output.strides[axis], length = shape[axis] * concat_output.strides[axis];
    const auto bytes = [&](int64_t elements) {
      return static_cast<uint64_t>(elements) * static_cast<uint64_t>(bits(concat_output.dtype)) / 8;
    };
    slice.first = first;
    slice.elements = element_count(shape);
    slice.offset = bytes(first);
    slice.is_contiguous = concat_output.is_packed() && element_count(shape, 0, axis) == 1;
    const uint64_t span_bytes =
        slice.is_contiguous ? bytes(slice.elements) : buffer_size(concat_output.dtype, shape, &concat_output.strides);
    slice.bytes = round_up(slice.offset + span_bytes, 4) - slice.offset;  // rounded up to a 32-bit word, which the next slice may share
    slice.is_last = begin + shape[axis] == concat_output.shape[axis];
    slice.whole_words = first * bits(concat_output.dtype) % 32 == 0 &&
                        ((slice.is_contiguous && slice.is_last) || length * bits(concat_output.dtype) % 32 == 0);
    if (!slice.is_contiguous && slice.whole_words)
      slice.interleaved = {0, bytes(concat_output.shape[axis] * concat_output.strides[axis]), bytes(first), bytes(first + length)};
    return slice;
  }

  // Whether the producer of input `k` can write directly to the slice. The slice must be contiguous, or the producer must accept any
  // strides, and no vector store may cross the end of the slice.
  bool can_write_in_place(const ProgramNode& node, size_t k, const OutputSlice& slice) {
    const ValueId concat_input = node.inputs[k];
    const ValueLocation& location = result_.values[to_index(concat_input)];
    const ValueLocation& concat_output = result_.values[to_index(node.outputs[0])];
    if (location.memory != MemoryKind::temporary || producer_[to_index(concat_input)] < 0 || !location.covers_root) return false;
    const StorageRoot& root = result_.roots[location.index];
    if (root.parent >= 0 || location.index == find_outermost_root(concat_output.index) || slice.offset % kTensorSizeAlignment != 0 ||
        !slice.whole_words)
      return false;
    if (slice.is_contiguous)
      return desc(concat_input).is_packed() &&
             (slice.is_last || slice.elements % kVector == 0);  // a vector store must not overwrite the next slice
    const ProgramNode& producer = graph_.nodes[static_cast<size_t>(producer_[to_index(concat_input)])];
    const auto output = static_cast<size_t>(std::ranges::find(producer.outputs, concat_input) - producer.outputs.begin());
    return members_[location.index] == 1 && any_layout_[to_index(concat_input)] && desc(concat_input).rank() == 4 &&
           writes_any_layout(*producer.row, output);
  }

  uint32_t find_outermost_root(uint32_t root) const {
    while (result_.roots[root].parent >= 0) root = static_cast<uint32_t>(result_.roots[root].parent);
    return root;
  }

  // Lets kernels write program outputs directly to the output buffers.
  void assign_output_buffers() {
    for (size_t j = 0; j < graph_.outputs.size(); ++j) {
      const ValueLocation& location = result_.values[to_index(graph_.outputs[j].second)];
      if (location.memory != MemoryKind::temporary) continue;
      StorageRoot& root = result_.roots[location.index];
      if (root.parent < 0 && root.output < 0 && location.covers_root) root.output = static_cast<int32_t>(j);
    }
  }

  const ProgramGraph& graph_;
  const Weights& weights_;
  ShapeInference& shapes_;
  MemoryPlan result_;
  std::vector<int32_t> producer_;  // node index of the producer of each value; -1: none
  std::vector<uint32_t> members_;  // number of values and slices stored in each StorageRoot
  std::vector<bool> any_layout_, channels_last_;
  std::vector<bool> any_strides_;            // for each value: whether all readers accept any strides
  std::vector<bool> prefers_channels_last_;  // for each value: whether all readers prefer channels-last
};

}  // namespace

MemoryPlan plan_memory(const ProgramGraph& graph, const Weights& weights, ShapeInference& shapes) {
  return MemoryPlanner(graph, weights, shapes).run();
}

std::pair<uint32_t, uint64_t> find_outermost_storage(const MemoryPlan& memory_plan, uint32_t root) {
  uint64_t offset = 0;
  while (memory_plan.roots[root].parent >= 0) {
    offset += memory_plan.roots[root].offset;
    root = static_cast<uint32_t>(memory_plan.roots[root].parent);
  }
  return {root, offset};
}

}  // namespace pumice
