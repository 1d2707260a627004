#include "operators/common/split_node.h"

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/split_axes.h"
#include "operators/common/strided_copy.h"
#include "operators/table/flop.h"

namespace pumice {
namespace {

using Lower = void (*)(LowerContext&);

constexpr int64_t kChunkAlignment = 16;  // alignment of output chunks in bytes, so that kernels can write whole vectors

// Snapshot of a node's lowering, for rewind().
struct LoweringCheckpoint {
  explicit LoweringCheckpoint(const LoweredNode& node)
      : steps(node.steps.size()), temporaries(node.temporaries.size()), blocks(node.host_blocks.size()) {}
  void rewind(LoweredNode& node) const {
    node.steps.resize(steps);
    node.temporaries.resize(temporaries);
    node.host_blocks.resize(blocks);
  }
  size_t steps, temporaries, blocks;
};

bool is_packed_weight(const LowerContext& node, size_t input) {
  return input < node.constant_packed.size() && node.constant_packed[input];
}

// Returns the number of bytes from the operand's byte_offset to its end; 0 for packed weights, which operators split themselves.
uint64_t count_operand_bytes(const LowerContext& node, const Operand& operand) {
  const auto rest = [&](uint64_t bytes) { return bytes > operand.byte_offset ? bytes - operand.byte_offset : 0; };
  switch (operand.memory) {
    case MemoryKind::input:
      return is_packed_weight(node, operand.index) || !node.has_input(operand.index) ? 0 : rest(node.input(operand.index).bytes());
    case MemoryKind::output:
      return node.has_output(operand.index) ? rest(node.output(operand.index).bytes()) : 0;
    case MemoryKind::temporary:
      return rest(node.temporaries.at(operand.index));
    case MemoryKind::host:
      return rest(node.host_blocks.at(operand.index).size());
    default:
      return 0;
  }
}

// Returns the size of the largest binding of the steps since the checkpoint, in bytes.
uint64_t find_max_bound_bytes(const LowerContext& node, const LoweringCheckpoint& checkpoint) {
  uint64_t max_bytes = 0;
  for (size_t i = checkpoint.steps; i < node.steps.size(); ++i)
    for (const Operand& operand : node.steps[i].operands)
      max_bytes = std::max(max_bytes, operand.bytes ? operand.bytes : count_operand_bytes(node, operand));
  return max_bytes;
}

// Sets Operand::bytes for operands that are accessed completely: the memory of a tensor may be larger than the tensor.
void set_full_ranges(LowerContext& node, const LoweringCheckpoint& checkpoint) {
  for (size_t i = checkpoint.steps; i < node.steps.size(); ++i)
    for (Operand& operand : node.steps[i].operands)
      if (operand.bytes == 0 && (operand.memory == MemoryKind::input || operand.memory == MemoryKind::output))
        operand.bytes = round_up(count_operand_bytes(node, operand), uint64_t{kChunkAlignment});
}

// A tensor of the node and the axis along which it is split.
struct SplitTensor {
  bool is_input;
  size_t index;
  const TensorDesc* desc;
  int axis;  // axis to split, or kNotSplit
};

// Splits a node along one axis.
class NodeSplitter {
 public:
  NodeSplitter(LowerContext& node, Lower lower, const SplitAxis& axis) : node_(node), lower_(lower), axis_(axis) {
    const auto add = [&](bool is_input, size_t i, const std::optional<TensorDesc>& desc, int tensor_axis) {
      if (desc) tensors_.push_back({is_input, i, &*desc, tensor_axis});
    };
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if ((!is_packed_weight(node, i) || is_packed_vector(i)) && !has_bit(node.row->host_inputs, i))
        add(true, i, node.inputs[i], axis.inputs[i]);
    for (size_t j = 0; j < node.outputs.size(); ++j) add(false, j, node.outputs[j], axis.outputs[j]);
  }

  // Whether the node can be split along the axis. It cannot if packed weights have this axis, or if an output lacks it.
  bool is_possible() const {
    if (axis_.size < 2) return false;
    for (size_t j = 0; j < axis_.outputs.size(); ++j)
      if (axis_.outputs[j] == kNotSplit && node_.has_output(j)) return false;
    for (size_t i = 0; i < axis_.inputs.size(); ++i)
      if (axis_.inputs[i] != kNotSplit && is_packed_weight(node_, i) && !is_packed_vector(i)) return false;
    return !axis_.window || keeps_packed_layout();
  }

  // Whether the split reduces the size of a tensor that exceeds `max_bytes`.
  bool shrinks_oversized_tensor(int64_t max_bytes) const {
    return std::ranges::any_of(tensors_, [&](const SplitTensor& tensor) {
      return count_chunk_bytes(tensor, axis_.size) > max_bytes && count_chunk_bytes(tensor, 1) < count_chunk_bytes(tensor, axis_.size);
    });
  }

  // Returns the chunk size: at most half of the axis, and small enough that the chunks of all tensors that can fit do fit.
  int64_t chunk_size(int64_t max_bytes) const {
    const auto fits = [&](int64_t count) {
      return std::ranges::all_of(tensors_, [&](const SplitTensor& tensor) {
        return count_chunk_bytes(tensor, count) <= max_bytes || count_chunk_bytes(tensor, 1) > max_bytes;
      });
    };
    int64_t low = 1, high = ceil_div(axis_.size, int64_t{2});
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (fits(middle))
        low = middle;
      else
        high = middle - 1;
    }
    const int64_t grain = compute_chunk_granularity();
    return low >= grain ? low / grain * grain : low;
  }

  // Adds the steps of one chunk. Returns false if the operator cannot compute it. `bound`: size of the largest binding without the split,
  // in bytes.
  bool lower_chunk(const AxisRange& range, uint64_t bound) {
    LowerContext chunk = node_;
    chunk.steps.clear(), chunk.temporaries.clear(), chunk.host_blocks.clear();
    chunk.additions = 0;
    chunk.kernel_cache = nullptr;
    chunk.unsplit_bytes = bound;
    chunk.input_misalignments.resize(chunk.inputs.size(), 0);
    chunk.residual_operand.reset();
    Attributes attributes = *node_.attributes;
    if (axis_.window) {
      if (axis_.window->get_clamped_input_range(range).count <= 0) return false;
      axis_.window->set_pads(range, attributes);
    }
    if (!axis_.counts.empty()) attributes.set(std::string(axis_.counts), range.count);
    chunk.attributes = &attributes;
    std::vector<Operand> inputs, outputs;
    for (size_t i = 0; i < node_.inputs.size(); ++i) inputs.push_back(node_.input_operand(i));
    for (size_t j = 0; j < node_.outputs.size(); ++j) outputs.push_back(node_.output_operand(j));
    for (const SplitTensor& tensor : tensors_) {
      const int64_t first = compute_chunk_offset(tensor, range);
      TensorDesc desc = make_chunk_desc(tensor, range);
      if (tensor.is_input && tensor.axis != kNotSplit) {
        inputs[tensor.index] = make_input_operand(tensor, first, desc, chunk.input_misalignments[tensor.index]);
        chunk.hosts[tensor.index] = nullptr;
        chunk.inputs[tensor.index] = std::move(desc);
      } else if (!tensor.is_input) {
        outputs[tensor.index] = make_output_operand(tensor, range, first, desc);
        chunk.outputs[tensor.index] = std::move(desc);
      }
    }
    if (!infers_same_shapes(chunk)) return false;
    lower_ == lower_with_residual ? lower_with_splits(chunk, lower_with_residual) : lower_strided(chunk);
    node_.epilogue_read = node_.epilogue_read || chunk.epilogue_read;
    node_.residual_read = node_.residual_read || chunk.residual_read;
    append_inner_steps(node_, chunk, inputs, outputs);
    node_.report_additions(chunk.additions > 0 ? chunk.additions : kUnknownAdditions);
    copy_results(chunk, range, outputs);
    return true;
  }

 private:
  // Copies a chunk's results from scratch memory to the outputs.
  void copy_results(const LowerContext& chunk, const AxisRange& range, const std::vector<Operand>& outputs) {
    for (const SplitTensor& tensor : tensors_)
      if (!tensor.is_input && outputs[tensor.index].memory != MemoryKind::output)
        add_strided_copy(
            node_, tensor.desc->dtype, {chunk.outputs[tensor.index]->shape, {chunk.outputs[tensor.index]->strides, tensor.desc->strides}},
            {outputs[tensor.index]},
            {.operand = node_.output_operand(tensor.index), .first = compute_chunk_offset(tensor, range), .owns_words = false});
  }

  // Whether all chunks choose the same packed weight layout as the whole node. The choice depends on padding, and a chunk may have none.
  bool keeps_packed_layout() const {
    const WindowGeometry& geometry = axis_.window->geometry;
    const auto has_none = [](const std::vector<int64_t>& pads) { return std::ranges::all_of(pads, [](int64_t pad) { return pad == 0; }); };
    return !node_.has_coopmat() || geometry.strides != geometry.kernel || (has_none(geometry.pads_begin) && has_none(geometry.pads_end));
  }

  bool is_packed_vector(size_t input) const {
    return axis_.packs_vectors && axis_.inputs[input] != kNotSplit && is_packed_weight(node_, input);
  }

  bool is_windowed(const SplitTensor& tensor) const { return axis_.window && tensor.is_input && tensor.index == 0; }

  int64_t get_chunk_axis_size(const SplitTensor& tensor, int64_t count) const {
    if (tensor.axis == kNotSplit) return 1;
    return is_windowed(tensor) ? axis_.window->get_max_input_size(count) : count * axis_.unit;
  }

  // Returns the packed size, in bytes, of a tensor's chunk with `count` elements along the axis.
  int64_t count_chunk_bytes(const SplitTensor& tensor, int64_t count) const {
    const auto elements = std::max<int64_t>(tensor.desc->elements(), 0);
    const int64_t size = tensor.axis == kNotSplit ? 1 : tensor.desc->shape[static_cast<size_t>(tensor.axis)];
    return size == 0 ? 0
                     : ceil_div(elements / size * get_chunk_axis_size(tensor, count) * static_cast<int64_t>(bits(tensor.desc->dtype)),
                                int64_t{8});
  }

  int64_t get_stride_bits(const SplitTensor& tensor) const {
    return tensor.desc->strides[static_cast<size_t>(tensor.axis)] * axis_.unit * static_cast<int64_t>(bits(tensor.desc->dtype));
  }

  // Returns the number that chunk sizes must be a multiple of, so that output chunks start at kChunkAlignment and input chunks at whole
  // bytes.
  int64_t compute_chunk_granularity() const {
    int64_t size = 1;
    for (const SplitTensor& tensor : tensors_) {
      if (tensor.axis == kNotSplit) continue;
      const int64_t grain = tensor.is_input ? 8 : 8 * kChunkAlignment, stride = std::max<int64_t>(get_stride_bits(tensor), 1);
      size = std::lcm(size, grain / std::gcd(grain, stride));
    }
    return size;
  }

  int64_t compute_chunk_offset(const SplitTensor& tensor, const AxisRange& range) const {
    if (tensor.axis == kNotSplit) return 0;
    const int64_t begin = is_windowed(tensor) ? axis_.window->get_clamped_input_range(range).begin : range.begin * axis_.unit;
    return begin * tensor.desc->strides[static_cast<size_t>(tensor.axis)];
  }

  TensorDesc make_chunk_desc(const SplitTensor& tensor, const AxisRange& range) const {
    TensorDesc desc(tensor.desc->dtype, tensor.desc->shape, tensor.desc->strides);
    if (tensor.axis == kNotSplit) return desc;
    desc.shape[static_cast<size_t>(tensor.axis)] =
        is_windowed(tensor) ? axis_.window->get_clamped_input_range(range).count : range.count * axis_.unit;
    return desc;
  }

  bool exceeds_binding(const TensorDesc& desc) const {
    return static_cast<int64_t>(desc.bytes()) > max_binding_bytes(*node_.context) &&
           static_cast<int64_t>(desc.packed().bytes()) <= max_binding_bytes(*node_.context);
  }

  // Returns the operand for a chunk of an input: the input itself, or a packed copy if the chunk spans too large a range of it.
  Operand make_input_operand(const SplitTensor& tensor, int64_t first, TensorDesc& desc, uint64_t& misalignment) {
    if (is_packed_vector(tensor.index)) return copy_packed_vector(tensor, first, desc);
    if (!exceeds_binding(desc)) {
      Operand operand = node_.input_operand(tensor.index);
      operand.byte_offset = static_cast<uint64_t>(first * static_cast<int64_t>(bits(desc.dtype)) / 8);
      operand.bytes = round_up(desc.bytes(), uint64_t{kChunkAlignment});
      misalignment = (misalignment + operand.byte_offset) % kChunkAlignment;
      return operand;
    }
    const TensorDesc packed = desc.packed();
    Operand copy = allocate_scratch(packed);
    add_strided_copy(node_, desc.dtype, {desc.shape, {desc.strides, packed.strides}}, {node_.input_operand(tensor.index), first}, {copy});
    desc = packed;
    misalignment = 0;
    return copy;
  }

  // Returns the operand for a chunk of an output: the output itself, or scratch memory if the chunk spans too large a range or shares a
  // word with another chunk.
  Operand make_output_operand(const SplitTensor& tensor, const AxisRange& range, int64_t first, TensorDesc& desc) {
    const int64_t begin = first * static_cast<int64_t>(bits(desc.dtype)), size = axis_.size;
    const bool ends_on_boundary =
        tensor.axis == kNotSplit || range.begin + range.count == size || range.count * get_stride_bits(tensor) % (8 * kChunkAlignment) == 0;
    if (begin % (8 * kChunkAlignment) == 0 && ends_on_boundary && !exceeds_binding(desc)) {
      Operand operand = node_.output_operand(tensor.index);
      operand.byte_offset = static_cast<uint64_t>(begin / 8);
      operand.bytes = round_up(desc.bytes(), uint64_t{kChunkAlignment});
      return operand;
    }
    desc = desc.packed();
    return allocate_scratch(desc);
  }

  Operand allocate_scratch(const TensorDesc& desc) {
    Operand operand = node_.add_temporary(desc.bytes());
    operand.element_bits = static_cast<uint32_t>(bits(desc.dtype));
    return operand;
  }

  // Copies a chunk of a packed vector to scratch memory, so that the chunk is aligned like the whole vector.
  Operand copy_packed_vector(const SplitTensor& tensor, int64_t first, const TensorDesc& desc) {
    const TensorDesc numbers(DType::float32, {desc.elements()});
    const Operand copy = allocate_scratch(numbers);
    add_strided_copy(node_, numbers.dtype, {numbers.shape, {numbers.strides, numbers.strides}}, {node_.input_operand(tensor.index), first},
                     {copy});
    return copy;
  }

  // Whether shape inference on the chunk's inputs yields the chunk's output shapes.
  bool infers_same_shapes(const LowerContext& chunk) const {
    if (chunk.row->elementwise || !chunk.row->host.fill_attribute.empty())
      return true;  // fused elementwise nodes have no shape rule, and fill operators read their shape from an input
    const size_t count = lower_ == lower_with_residual ? std::min(chunk.inputs.size(), kResidualInput) : chunk.inputs.size();
    std::vector<const TensorDesc*> inputs;
    for (size_t i = 0; i < count; ++i) inputs.push_back(chunk.has_input(i) ? &chunk.input(i) : nullptr);
    std::vector<const HostTensor*> hosts(chunk.hosts.begin(),
                                         chunk.hosts.begin() + static_cast<std::ptrdiff_t>(std::min(count, chunk.hosts.size())));
    ShapeContext shapes(chunk.node, *chunk.attributes, std::move(inputs), std::move(hosts), chunk.outputs.size());
    try {
      infer_outputs(*chunk.row, shapes);
    } catch (const GraphError&) {
      return false;
    }
    const auto inferred = shapes.take_outputs();
    for (size_t j = 0; j < chunk.outputs.size(); ++j)
      if (chunk.outputs[j] && (j >= inferred.size() || !inferred[j] || inferred[j]->shape != chunk.outputs[j]->shape)) return false;
    return true;
  }

  LowerContext& node_;
  Lower lower_;
  const SplitAxis& axis_;
  std::vector<SplitTensor> tensors_;
};

// Adds the axis of the residual to each split axis. The residual has the node's shape or broadcasts to it.
void add_residual_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc &residual = node.input(kResidualInput), &y = node.output(0);
  for (SplitAxis& axis : axes) axis.inputs[kResidualInput] = find_broadcast_axis(residual, axis.outputs[0], y.rank());
}

// Sorts axes by decreasing output stride: chunks along the first axis span the smallest memory ranges.
void sort_by_output_stride(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const auto stride = [&](const SplitAxis& axis) {
    return axis.outputs[0] == kNotSplit ? 0 : node.output(0).strides[static_cast<size_t>(axis.outputs[0])];
  };
  std::ranges::stable_sort(axes, [&](const SplitAxis& a, const SplitAxis& b) { return stride(a) > stride(b); });
}

// Flattens the tensors of an elementwise node to vectors, which can be split anywhere. Returns nullopt for other nodes, for strided or
// broadcast tensors (except scalars), and if the tensors are already vectors.
std::optional<LowerContext> flatten_elementwise(const LowerContext& node) {
  const TensorDesc& y = node.output(0);
  if (!node.row->elementwise || !y.is_packed() || y.rank() == 1) return {};
  LowerContext flat = node;
  flat.outputs[0] = TensorDesc(y.dtype, {y.elements()});
  for (auto& x : flat.inputs) {
    if (!x) continue;
    if (x->elements() != 1 && (x->shape != y.shape || !x->is_packed())) return {};
    x = TensorDesc(x->dtype, {x->elements()});
  }
  return flat;
}

void lower_flattened(LowerContext& node, LowerContext flat) {
  flat.steps.clear(), flat.temporaries.clear(), flat.host_blocks.clear();
  lower_operator_row(flat);
  std::vector<Operand> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(node.input_operand(i));
  node.epilogue_read = node.epilogue_read || flat.epilogue_read;
  append_inner_steps(node, flat, inputs, {node.output_operand(0)});
}

// Tries to split the node along the axis. Returns false and adds no steps if that fails.
bool try_split_along(LowerContext& node, Lower lower, const SplitAxis& axis, uint64_t bound) {
  const LoweringCheckpoint checkpoint(node);
  const int64_t max_bytes = max_binding_bytes(*node.context);
  NodeSplitter node_split(node, lower, axis);
  const int64_t size = node_split.chunk_size(max_bytes);
  for (AxisRange range{0, size}; range.begin < axis.size; range.begin += size) {
    range.count = std::min(size, axis.size - range.begin);
    try {
      if (node_split.lower_chunk(range, bound) && find_max_bound_bytes(node, checkpoint) < bound) continue;
    } catch (const UnsupportedError&) {  // the operator does not support the chunk; the caller reports the size of the whole node
    }
    checkpoint.rewind(node);
    return false;
  }
  return true;
}

bool has_oversized_tensor(const LowerContext& node, int64_t max_bytes) {
  const auto is_large = [&](const std::optional<TensorDesc>& desc) { return desc && static_cast<int64_t>(desc->bytes()) > max_bytes; };
  return std::ranges::any_of(node.inputs, is_large) || std::ranges::any_of(node.outputs, is_large);
}

}  // namespace

void lower_with_splits(LowerContext& node, Lower lower) {
  node.flop = count_node_flops(node);
  const LoweringCheckpoint checkpoint(node);
  const int64_t max_bytes = max_binding_bytes(*node.context);
  std::exception_ptr error;
  try {
    lower(node);
  } catch (const UnsupportedError&) {  // the size may be the cause, so try to split
    if (!has_oversized_tensor(node, max_bytes) || node.unsplit_bytes != ~uint64_t{0}) throw;
    error = std::current_exception();
    checkpoint.rewind(node);
  }
  const uint64_t bound = error ? ~uint64_t{0} - 1 : find_max_bound_bytes(node, checkpoint);
  set_full_ranges(node, checkpoint);
  if (bound <= static_cast<uint64_t>(max_bytes) || bound >= node.unsplit_bytes) return;
  std::vector<SplitAxis> axes = node.has_output(0) ? find_split_axes(node) : std::vector<SplitAxis>();
  if (lower == lower_with_residual) add_residual_axes(node, axes);
  sort_by_output_stride(node, axes);
  LoweredNode whole{{std::make_move_iterator(node.steps.begin() + static_cast<std::ptrdiff_t>(checkpoint.steps)),
                     std::make_move_iterator(node.steps.end())},
                    {node.temporaries.begin() + static_cast<std::ptrdiff_t>(checkpoint.temporaries), node.temporaries.end()},
                    {node.host_blocks.begin() + static_cast<std::ptrdiff_t>(checkpoint.blocks), node.host_blocks.end()}};
  checkpoint.rewind(node);
  if (const auto flat = node.has_output(0) ? flatten_elementwise(node) : std::nullopt; flat && lower != lower_with_residual)
    return lower_flattened(node, *flat);
  for (const bool oversized_only : {true, false})
    for (const SplitAxis& axis : axes) {
      const NodeSplitter node_split(node, lower, axis);
      if (node_split.is_possible() && node_split.shrinks_oversized_tensor(max_bytes) == oversized_only &&
          try_split_along(node, lower, axis, bound))
        return;
    }
  if (error) std::rethrow_exception(error);
  std::ranges::move(whole.steps, std::back_inserter(node.steps));
  node.temporaries.insert(node.temporaries.end(), whole.temporaries.begin(), whole.temporaries.end());
  std::ranges::move(whole.host_blocks, std::back_inserter(node.host_blocks));
}

void lower_operator_row(LowerContext& node) {
  lower_with_splits(node, node.row->lower);
}

}  // namespace pumice
