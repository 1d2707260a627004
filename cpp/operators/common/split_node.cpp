#include "operators/common/split_node.h"

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composition.h"
#include "operators/common/split_axes.h"
#include "operators/common/strided_copy.h"
#include "operators/table/flop.h"

namespace pumice {
namespace {

using Lower = void (*)(LowerContext&);

constexpr int64_t kGrain = 16;  // alignment of parts of an output in bytes, so that kernels can write whole vectors

// Snapshot of a node's lowering, for rewind().
struct Mark {
  explicit Mark(const LoweredNode& node)
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

// Bytes of an operand from its start on; 0 for what the row has split itself.
uint64_t bytes_of(const LowerContext& node, const Operand& operand) {
  const auto rest = [&](uint64_t bytes) { return bytes > operand.byte_offset ? bytes - operand.byte_offset : 0; };
  switch (operand.place) {
    case Place::input:
      return is_packed_weight(node, operand.index) || !node.has_input(operand.index) ? 0 : rest(node.input(operand.index).bytes());
    case Place::output:
      return node.has_output(operand.index) ? rest(node.output(operand.index).bytes()) : 0;
    case Place::temporary:
      return rest(node.temporaries.at(operand.index));
    case Place::host:
      return rest(node.host_blocks.at(operand.index).size());
    default:
      return 0;
  }
}

// Largest size that a step binds of an operand.
uint64_t most_bound(const LowerContext& node, const Mark& mark) {
  uint64_t most = 0;
  for (size_t i = mark.steps; i < node.steps.size(); ++i)
    for (const Operand& operand : node.steps[i].operands) most = std::max(most, operand.bytes ? operand.bytes : bytes_of(node, operand));
  return most;
}

// Sets `bytes` of operands that are accessed completely, because a tensor's memory may be larger than the tensor.
void settle_bytes(LowerContext& node, const Mark& mark) {
  for (size_t i = mark.steps; i < node.steps.size(); ++i)
    for (Operand& operand : node.steps[i].operands)
      if (operand.bytes == 0 && (operand.place == Place::input || operand.place == Place::output))
        operand.bytes = round_up(bytes_of(node, operand), uint64_t{kGrain});
}

// A tensor of the node and the axis to split.
struct CutTensor {
  bool is_input;
  size_t index;
  const TensorDesc* desc;
  int axis;  // or kWhole
};

// A node split along one axis.
class Cutting {
 public:
  Cutting(LowerContext& node, Lower by, const CutAxis& axis) : node_(node), lower_(by), axis_(axis) {
    const auto add = [&](bool is_input, size_t i, const std::optional<TensorDesc>& desc, int along) {
      if (desc) tensors_.push_back({is_input, i, &*desc, along});
    };
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if ((!is_packed_weight(node, i) || is_packed_vector(i)) && !has_bit(node.row->host_inputs, i))
        add(true, i, node.inputs[i], axis.inputs[i]);
    for (size_t j = 0; j < node.outputs.size(); ++j) add(false, j, node.outputs[j], axis.outputs[j]);
  }

  // Whether the node can be split along the axis. A packed weight, or an output without the axis, cannot.
  bool is_possible() const {
    if (axis_.size < 2) return false;
    for (size_t j = 0; j < axis_.outputs.size(); ++j)
      if (axis_.outputs[j] == kWhole && node_.has_output(j)) return false;
    for (size_t i = 0; i < axis_.inputs.size(); ++i)
      if (axis_.inputs[i] != kWhole && is_packed_weight(node_, i) && !is_packed_vector(i)) return false;
    return !axis_.window || keeps_packing();
  }

  // Whether a split reduces a tensor that is too large.
  bool shrinks_excess(int64_t room) const {
    return std::ranges::any_of(tensors_, [&](const CutTensor& tensor) {
      return bytes_with(tensor, axis_.size) > room && bytes_with(tensor, 1) < bytes_with(tensor, axis_.size);
    });
  }

  // Size of a part: at most half, and small enough for all tensors that can be made to fit.
  int64_t part_size(int64_t room) const {
    const auto fits = [&](int64_t count) {
      return std::ranges::all_of(
          tensors_, [&](const CutTensor& tensor) { return bytes_with(tensor, count) <= room || bytes_with(tensor, 1) > room; });
    };
    int64_t least = 1, most = ceil_div(axis_.size, int64_t{2});
    while (least < most) {
      const int64_t middle = (least + most + 1) / 2;
      if (fits(middle))
        least = middle;
      else
        most = middle - 1;
    }
    const int64_t grain = aligned_size();
    return least >= grain ? least / grain * grain : least;
  }

  // Adds the steps of one part. Returns false if the row cannot compute this part. `bound`: bytes that the unsplit steps bind.
  bool lower(const AxisPart& made, uint64_t bound) {
    LowerContext part = node_;
    part.steps.clear(), part.temporaries.clear(), part.host_blocks.clear();
    part.additions = 0;
    part.memo = nullptr;
    part.whole_bound = bound;
    part.input_phases.resize(part.inputs.size(), 0);
    part.residual_operand.reset();
    Attributes attributes = *node_.attributes;
    if (axis_.window) {
      if (axis_.window->read_inside(made).count <= 0) return false;
      axis_.window->set_pads(made, attributes);
    }
    if (!axis_.counts.empty()) attributes.set(std::string(axis_.counts), made.count);
    part.attributes = &attributes;
    std::vector<Operand> inputs, outputs;
    for (size_t i = 0; i < node_.inputs.size(); ++i) inputs.push_back(node_.in(i));
    for (size_t j = 0; j < node_.outputs.size(); ++j) outputs.push_back(node_.out(j));
    for (const CutTensor& tensor : tensors_) {
      const int64_t first = first_of(tensor, made);
      TensorDesc desc = part_desc(tensor, made);
      if (tensor.is_input && tensor.axis != kWhole) {
        inputs[tensor.index] = source(tensor, first, desc, part.input_phases[tensor.index]);
        part.hosts[tensor.index] = nullptr;
        part.inputs[tensor.index] = std::move(desc);
      } else if (!tensor.is_input) {
        outputs[tensor.index] = target(tensor, made, first, desc);
        part.outputs[tensor.index] = std::move(desc);
      }
    }
    if (!has_its_shape(part)) return false;
    lower_ == lower_residual ? lower_in_parts(part, lower_residual) : lower_strided(part);
    node_.epilogue_read = node_.epilogue_read || part.epilogue_read;
    node_.residual_read = node_.residual_read || part.residual_read;
    adopt(node_, part, inputs, outputs);
    node_.tell_additions(part.additions > 0 ? part.additions : kAsLongAsTheSum);
    copy_made(part, made, outputs);
    return true;
  }

 private:
  // Copies results from temporary memory to their part of the output.
  void copy_made(const LowerContext& part, const AxisPart& made, const std::vector<Operand>& outputs) {
    for (const CutTensor& tensor : tensors_)
      if (!tensor.is_input && outputs[tensor.index].place != Place::output)
        add_strided_copy(node_, tensor.desc->dtype,
                         {part.outputs[tensor.index]->shape, {part.outputs[tensor.index]->strides, tensor.desc->strides}},
                         {outputs[tensor.index]}, {.operand = node_.out(tensor.index), .first = first_of(tensor, made), .alone = false});
  }

  // Whether splitting preserves the packing choice. It depends on padding, which a part may not have, but the weights are packed for the
  // whole.
  bool keeps_packing() const {
    const WindowGeometry& geometry = axis_.window->geometry;
    const auto has_none = [](const std::vector<int64_t>& pads) { return std::ranges::all_of(pads, [](int64_t pad) { return pad == 0; }); };
    return !node_.has_matrices() || geometry.strides != geometry.kernel || (has_none(geometry.pads_begin) && has_none(geometry.pads_end));
  }

  bool is_packed_vector(size_t input) const {
    return axis_.packs_vectors && axis_.inputs[input] != kWhole && is_packed_weight(node_, input);
  }

  bool is_windowed(const CutTensor& tensor) const { return axis_.window && tensor.is_input && tensor.index == 0; }

  int64_t count_of(const CutTensor& tensor, int64_t count) const {
    if (tensor.axis == kWhole) return 1;
    return is_windowed(tensor) ? axis_.window->most_read(count) : count * axis_.unit;
  }

  // Bytes of a tensor's part with `count` along the axis, without gaps between its elements.
  int64_t bytes_with(const CutTensor& tensor, int64_t count) const {
    const auto elements = std::max<int64_t>(tensor.desc->elements(), 0);
    const int64_t size = tensor.axis == kWhole ? 1 : tensor.desc->shape[static_cast<size_t>(tensor.axis)];
    return size == 0 ? 0 : ceil_div(elements / size * count_of(tensor, count) * static_cast<int64_t>(bits(tensor.desc->dtype)), int64_t{8});
  }

  int64_t stride_bits(const CutTensor& tensor) const {
    return tensor.desc->strides[static_cast<size_t>(tensor.axis)] * axis_.unit * static_cast<int64_t>(bits(tensor.desc->dtype));
  }

  // Required multiple of the part size: output parts start and end on separate boundaries, input parts on bytes.
  int64_t aligned_size() const {
    int64_t size = 1;
    for (const CutTensor& tensor : tensors_) {
      if (tensor.axis == kWhole) continue;
      const int64_t grain = tensor.is_input ? 8 : 8 * kGrain, stride = std::max<int64_t>(stride_bits(tensor), 1);
      size = std::lcm(size, grain / std::gcd(grain, stride));
    }
    return size;
  }

  int64_t first_of(const CutTensor& tensor, const AxisPart& made) const {
    if (tensor.axis == kWhole) return 0;
    const int64_t begin = is_windowed(tensor) ? axis_.window->read_inside(made).begin : made.begin * axis_.unit;
    return begin * tensor.desc->strides[static_cast<size_t>(tensor.axis)];
  }

  TensorDesc part_desc(const CutTensor& tensor, const AxisPart& made) const {
    TensorDesc desc(tensor.desc->dtype, tensor.desc->shape, tensor.desc->strides);
    if (tensor.axis == kWhole) return desc;
    desc.shape[static_cast<size_t>(tensor.axis)] = is_windowed(tensor) ? axis_.window->read_inside(made).count : made.count * axis_.unit;
    return desc;
  }

  bool reaches_too_far(const TensorDesc& desc) const {
    return static_cast<int64_t>(desc.bytes()) > largest_range(*node_.context) &&
           static_cast<int64_t>(desc.packed().bytes()) <= largest_range(*node_.context);
  }

  // Operand for a part of an input: the input itself, or a packed copy if the part's range is too large.
  Operand source(const CutTensor& tensor, int64_t first, TensorDesc& desc, uint64_t& phase) {
    if (is_packed_vector(tensor.index)) return packed_numbers(tensor, first, desc);
    if (!reaches_too_far(desc)) {
      Operand operand = node_.in(tensor.index);
      operand.byte_offset = static_cast<uint64_t>(first * static_cast<int64_t>(bits(desc.dtype)) / 8);
      operand.bytes = round_up(desc.bytes(), uint64_t{kGrain});
      phase = (phase + operand.byte_offset) % kGrain;
      return operand;
    }
    const TensorDesc packed = desc.packed();
    Operand copy = scratch(packed);
    add_strided_copy(node_, desc.dtype, {desc.shape, {desc.strides, packed.strides}}, {node_.in(tensor.index), first}, {copy});
    desc = packed;
    phase = 0;
    return copy;
  }

  // Operand for a part of an output: the output itself, or scratch memory if the part's range is too large or shares a word with another.
  Operand target(const CutTensor& tensor, const AxisPart& made, int64_t first, TensorDesc& desc) {
    const int64_t begin = first * static_cast<int64_t>(bits(desc.dtype)), size = axis_.size;
    const bool ends_alone =
        tensor.axis == kWhole || made.begin + made.count == size || made.count * stride_bits(tensor) % (8 * kGrain) == 0;
    if (begin % (8 * kGrain) == 0 && ends_alone && !reaches_too_far(desc)) {
      Operand operand = node_.out(tensor.index);
      operand.byte_offset = static_cast<uint64_t>(begin / 8);
      operand.bytes = round_up(desc.bytes(), uint64_t{kGrain});
      return operand;
    }
    desc = desc.packed();
    return scratch(desc);
  }

  Operand scratch(const TensorDesc& desc) {
    Operand operand = node_.temporary(desc.bytes());
    operand.element_bits = static_cast<uint32_t>(bits(desc.dtype));
    return operand;
  }

  // Copies a part of a packed vector to scratch memory, so that it starts at a boundary like the whole.
  Operand packed_numbers(const CutTensor& tensor, int64_t first, const TensorDesc& desc) {
    const TensorDesc numbers(DType::float32, {desc.elements()});
    const Operand copy = scratch(numbers);
    add_strided_copy(node_, numbers.dtype, {numbers.shape, {numbers.strides, numbers.strides}}, {node_.in(tensor.index), first}, {copy});
    return copy;
  }

  // Whether the row's shape rule gives the part's outputs for its inputs.
  bool has_its_shape(const LowerContext& part) const {
    if (part.row->elementwise || !part.row->filled_with.empty()) return true;  // fused maps have no rule; a fill's shape is a list of sizes
    const size_t count = lower_ == lower_residual ? std::min(part.inputs.size(), kResidualInput) : part.inputs.size();
    std::vector<const TensorDesc*> inputs;
    for (size_t i = 0; i < count; ++i) inputs.push_back(part.has_input(i) ? &part.input(i) : nullptr);
    std::vector<const HostTensor*> hosts(part.hosts.begin(),
                                         part.hosts.begin() + static_cast<std::ptrdiff_t>(std::min(count, part.hosts.size())));
    ShapeContext shapes(part.node, *part.attributes, std::move(inputs), std::move(hosts), part.outputs.size());
    try {
      find_outputs(*part.row, shapes);
    } catch (const GraphError&) {
      return false;
    }
    const auto made = shapes.take_outputs();
    for (size_t j = 0; j < part.outputs.size(); ++j)
      if (part.outputs[j] && (j >= made.size() || !made[j] || made[j]->shape != part.outputs[j]->shape)) return false;
    return true;
  }

  LowerContext& node_;
  Lower lower_;
  const CutAxis& axis_;
  std::vector<CutTensor> tensors_;
};

// Splits the residual too, which has the node's shape or broadcasts to it.
void add_residual(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc &residual = node.input(kResidualInput), &y = node.output(0);
  for (CutAxis& axis : axes) axis.inputs[kResidualInput] = broadcast_axis(residual, axis.outputs[0], y.rank());
}

// Sorts axes by decreasing stride in the output: splitting the first gives the smallest ranges.
void sort_by_distance(const LowerContext& node, std::vector<CutAxis>& axes) {
  const auto stride = [&](const CutAxis& axis) {
    return axis.outputs[0] == kWhole ? 0 : node.output(0).strides[static_cast<size_t>(axis.outputs[0])];
  };
  std::ranges::stable_sort(axes, [&](const CutAxis& a, const CutAxis& b) { return stride(a) > stride(b); });
}

// A map of packed tensors of equal shape and of scalars, flattened to vectors, which can be split anywhere. None for other nodes, or if
// already flat.
std::optional<LowerContext> flattened(const LowerContext& node) {
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

void lower_flat(LowerContext& node, LowerContext flat) {
  flat.steps.clear(), flat.temporaries.clear(), flat.host_blocks.clear();
  lower_row(flat);
  std::vector<Operand> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(node.in(i));
  node.epilogue_read = node.epilogue_read || flat.epilogue_read;
  adopt(node, flat, inputs, {node.out(0)});
}

// Splits along the axis. Returns false, adding nothing, if that fails.
bool lower_along(LowerContext& node, Lower lower, const CutAxis& axis, uint64_t bound) {
  const Mark mark(node);
  const int64_t room = largest_range(*node.context);
  Cutting cutting(node, lower, axis);
  const int64_t size = cutting.part_size(room);
  for (AxisPart made{0, size}; made.begin < axis.size; made.begin += size) {
    made.count = std::min(size, axis.size - made.begin);
    try {
      if (cutting.lower(made, bound) && most_bound(node, mark) < bound) continue;
    } catch (const UnsupportedError&) {  // the row does not support the part; report the whole's size instead
    }
    mark.rewind(node);
    return false;
  }
  return true;
}

bool has_excess(const LowerContext& node, int64_t room) {
  const auto is_large = [&](const std::optional<TensorDesc>& desc) { return desc && static_cast<int64_t>(desc->bytes()) > room; };
  return std::ranges::any_of(node.inputs, is_large) || std::ranges::any_of(node.outputs, is_large);
}

}  // namespace

void lower_in_parts(LowerContext& node, Lower lower) {
  node.flop = node_flop(node);
  const Mark mark(node);
  const int64_t room = largest_range(*node.context);
  std::exception_ptr refused;
  try {
    lower(node);
  } catch (const UnsupportedError&) {  // possibly caused by the excessive size too
    if (!has_excess(node, room) || node.whole_bound != ~uint64_t{0}) throw;
    refused = std::current_exception();
    mark.rewind(node);
  }
  const uint64_t bound = refused ? ~uint64_t{0} - 1 : most_bound(node, mark);
  settle_bytes(node, mark);
  if (bound <= static_cast<uint64_t>(room) || bound >= node.whole_bound) return;
  std::vector<CutAxis> axes = node.has_output(0) ? cut_axes(node) : std::vector<CutAxis>();
  if (lower == lower_residual) add_residual(node, axes);
  sort_by_distance(node, axes);
  LoweredNode whole{
      {std::make_move_iterator(node.steps.begin() + static_cast<std::ptrdiff_t>(mark.steps)), std::make_move_iterator(node.steps.end())},
      {node.temporaries.begin() + static_cast<std::ptrdiff_t>(mark.temporaries), node.temporaries.end()},
      {node.host_blocks.begin() + static_cast<std::ptrdiff_t>(mark.blocks), node.host_blocks.end()}};
  mark.rewind(node);
  if (const auto flat = node.has_output(0) ? flattened(node) : std::nullopt; flat && lower != lower_residual)
    return lower_flat(node, *flat);
  for (const bool by_excess : {true, false})
    for (const CutAxis& axis : axes) {
      const Cutting cutting(node, lower, axis);
      if (cutting.is_possible() && cutting.shrinks_excess(room) == by_excess && lower_along(node, lower, axis, bound)) return;
    }
  if (refused) std::rethrow_exception(refused);
  std::ranges::move(whole.steps, std::back_inserter(node.steps));
  node.temporaries.insert(node.temporaries.end(), whole.temporaries.begin(), whole.temporaries.end());
  std::ranges::move(whole.host_blocks, std::back_inserter(node.host_blocks));
}

void lower_row(LowerContext& node) {
  lower_in_parts(node, node.row->lower);
}

}  // namespace pumice
