#include "dv/activations.h"

#include <algorithm>

#include "dv/weights/whc8_layout.h"

namespace pumice::dv {
namespace {

constexpr uint32_t kGroup = kGroupChannels;

// Channel groups of equal size that form one tensor: all full groups of 8 channels, or the shorter last group.
struct ChannelGroups {
  uint32_t first, groups, channels;
};

std::vector<ChannelGroups> split_channel_groups(uint32_t channels) {
  if (channels <= kGroup) return {{0, 1, channels}};
  std::vector<ChannelGroups> chunks{{0, channels / kGroup, kGroup}};
  if (channels % kGroup != 0) chunks.push_back({channels - channels % kGroup, 1, channels % kGroup});
  return chunks;
}

int64_t to_signed_size(uint64_t value) {
  return static_cast<int64_t>(value);
}

// Returns the part of the activations' range that starts at an element.
BufferRange make_range_from(const Activations& activations, uint64_t element) {
  const uint64_t bytes = element * static_cast<uint64_t>(bits(activations.dtype)) / 8;
  const BufferRange& range = activations.range;
  return {range.buffer, range.offset + bytes, range.bytes - bytes};
}

// How make_group_operands() views the x and y axes. plain: W, H. doubled: W / 2, 2, H / 2, 2. half: W, 2, H, 2, where the axes of size 2
// have stride 0 and repeat each pixel.
enum class SpatialAxes : uint8_t { plain, doubled, half };

std::vector<Operand> make_group_operands(const Activations& a, SpatialAxes axes) {
  std::vector<Operand> operands;
  const auto [width, height, channels] = a.extent;
  for (const ChannelGroups& chunk : split_channel_groups(channels)) {
    const int64_t plane = to_signed_size(uint64_t{width} * height), pixel = a.grouped ? chunk.channels : channels, column = pixel * height;
    const int64_t group = a.grouped ? plane * kGroup : kGroup;
    Shape shape{a.images, chunk.groups, chunk.channels};
    Strides strides{to_signed_size(a.stride), group, 1};
    if (axes == SpatialAxes::plain) {
      shape.insert(shape.end(), {width, height});
      strides.insert(strides.end(), {column, pixel});
    } else if (axes == SpatialAxes::doubled) {
      shape.insert(shape.end(), {width / 2, 2, height / 2, 2});
      strides.insert(strides.end(), {2 * column, column, 2 * pixel, pixel});
    } else {
      shape.insert(shape.end(), {width, 2, height, 2});
      strides.insert(strides.end(), {column, 0, pixel, 0});
    }
    operands.push_back(
        {TensorDesc(a.dtype, std::move(shape), std::move(strides)), make_range_from(a, chunk.first * (a.grouped ? plane : 1))});
  }
  return operands;
}

Operand flatten(const Activations& a) {
  return {TensorDesc(a.dtype, {to_signed_size(a.images * a.extent.elements())}), a.range};
}

// Returns per-channel values as tensors that broadcast with groups of activations.
std::vector<Operand> make_channel_operands(const BufferRange& range, uint32_t channels, size_t trailing_axes) {
  std::vector<Operand> operands;
  for (const ChannelGroups& chunk : split_channel_groups(channels)) {
    Shape shape{1, chunk.groups, chunk.channels};
    shape.insert(shape.end(), trailing_axes, 1);
    const uint64_t first = chunk.first * sizeof(uint16_t);
    operands.push_back({TensorDesc(DType::float16, std::move(shape)), {range.buffer, range.offset + first, range.bytes - first}});
  }
  return operands;
}

bool have_same_layout(const std::vector<Activations>& inputs, const Activations& output) {
  return output.is_packed() && std::ranges::all_of(inputs, [&](const Activations& input) {
           return input.is_packed() && (input.grouped == output.grouped || output.extent.channels <= kGroup);
         });
}

}  // namespace

bool Activations::is_channels_last() const {
  return !grouped || extent.channels <= kGroup;
}

Operand Activations::as_image() const {
  const int64_t channels = extent.channels, height = extent.height;
  return {TensorDesc(dtype, {images, channels, extent.width, height}, Strides{to_signed_size(stride), 1, channels * height, channels}),
          range};
}

std::optional<Operand> Activations::as_planes() const {
  if (!grouped) return {};
  if (extent.channels <= kGroup) return as_image();
  if (extent.channels % kGroup != 0 || !is_packed()) return {};
  const int64_t height = extent.height, plane = extent.width * height;
  return Operand{TensorDesc(dtype, {images * (extent.channels / kGroup), kGroup, extent.width, height},
                            Strides{plane * kGroup, 1, height * kGroup, kGroup}),
                 range};
}

std::vector<Operand> Activations::as_groups(bool doubled) const {
  return make_group_operands(*this, doubled ? SpatialAxes::doubled : SpatialAxes::plain);
}

std::vector<Operand> Activations::as_upsampled_groups() const {
  return make_group_operands(*this, SpatialAxes::half);
}

Activations allocate_scratch_activations(Recorder& recorder, DType dtype, uint32_t images, const Extent& extent, bool grouped) {
  const uint64_t elements = images * extent.elements();
  return {
      dtype, images, extent, grouped, extent.elements(), recorder.allocate_scratch(TensorDesc(dtype, {to_signed_size(elements)}).bytes())};
}

void record_elementwise_expression(Recorder& recorder, const Expression& expression, const std::vector<Activations>& inputs,
                                   const Activations& output, const std::vector<BufferRange>& channel_values, bool doubled) {
  if (!doubled && channel_values.empty() && have_same_layout(inputs, output)) {
    std::vector<Operand> operands;
    for (const Activations& input : inputs) operands.push_back(flatten(input));
    return recorder.record_expression(expression, operands, flatten(output));
  }
  std::vector<std::vector<Operand>> all;  // operands of each input
  const std::vector<Operand> output_groups = output.as_groups(doubled);
  for (const Activations& input : inputs) all.push_back(doubled ? input.as_upsampled_groups() : input.as_groups());
  for (const BufferRange& values : channel_values)
    all.push_back(make_channel_operands(values, output.extent.channels, output_groups[0].desc.shape.size() - 3));
  for (size_t chunk_idx = 0; chunk_idx < output_groups.size(); ++chunk_idx) {
    std::vector<Operand> operands;
    for (const auto& input : all) operands.push_back(input[chunk_idx]);
    recorder.record_expression(expression, operands, output_groups[chunk_idx]);
  }
}

}  // namespace pumice::dv
