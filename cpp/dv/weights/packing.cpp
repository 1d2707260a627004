#include "dv/weights/packing.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rounding.h"
#include "dv/weights/whc8_layout.h"

namespace pumice::dv {
namespace {

constexpr int kMaxSide = 7;
constexpr size_t kGroup = 8;  // kernels that share a bias header
constexpr size_t kColumns = 6, kCells = 12 * kColumns;
constexpr size_t kVectorBytes = 16, kTableBytes = kTableEntries * sizeof(uint16_t);

size_t multiply_checked(size_t a, size_t b) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product) || product > INT64_MAX)
    throw BindingError("D1", "dimensions", "", "a size that fits in 63 bits", std::to_string(a) + " times " + std::to_string(b));
  return product;
}

void check_dimension(const char* dimension, int actual, int max_value = INT32_MAX) {
  if (actual >= 1 && actual <= max_value) return;
  const std::string range = max_value == INT32_MAX ? "at least 1" : "1 to " + std::to_string(max_value);
  throw BindingError("D1", dimension, "", range, std::to_string(actual));
}

const ConvDims& check_conv_dims(const ConvDims& dims) {
  check_dimension("n_channels", dims.channels), check_dimension("n_kernels", dims.kernels);
  check_dimension("kx", dims.kx, kMaxSide), check_dimension("ky", dims.ky, kMaxSide);
  return dims;
}

// Returns the index in a block of the weight at tap (x, y) of a side x side kernel. `channel` is relative to the block's first channel.
size_t get_weight_index_in_block(int side, int channel, int y, int x) {
  constexpr std::array<uint8_t, 7> kLastColumn = {17, 3, 9, 15, 0, 6, 12};  // for 7 x 7: index in the block of each tap of the last column
  const auto at = [](int row, int column) { return static_cast<size_t>(row) * kColumns + static_cast<size_t>(column); };
  const int in_group = channel % 8, half = in_group / 2, odd = in_group % 2, group = channel / 8;
  switch (side) {
    case 7:
      return x < 6 ? at(5 + y, x) : kLastColumn[static_cast<size_t>(y)];
    case 5:
      return at(7 - 6 * channel + y, x);
    case 3:
      return at(9 - 3 * half + y, 3 * odd + x);
    default:
      return at(11 - 3 * half - group / 3, 3 * odd + group % 3);
  }
}

// Packed layout of a convolution: groups of 8 kernels, each with its biases and slopes followed by its weight blocks.
struct WeightStream {
  size_t kernels, channels, block_channels, chunk_channels, header_bytes, element_bytes, kernel_bytes;
  size_t bytes;                       // padded size, without a table
  size_t taps;                        // taps per channel, contiguous in the source
  std::array<uint8_t, kCells> cells;  // cell of each value in a block, in source order

  WeightStream(const ConvDims& dims, int kx, int ky) : taps(static_cast<size_t>(kx * ky)), cells() {
    constexpr std::array<uint8_t, 4> kBlockChannels = {64, 8, 2, 1};
    const int side = std::max(kx, ky) | 1;
    kernels = static_cast<size_t>(dims.kernels), channels = static_cast<size_t>(dims.channels);
    block_channels = kBlockChannels[static_cast<size_t>(side / 2)];
    chunk_channels = side == 1 ? 64 : 8;
    header_bytes = dims.prelu ? 2 * kVectorBytes : kVectorBytes;
    element_bytes = dims.quantized ? sizeof(uint8_t) : sizeof(uint16_t);
    kernel_bytes = ceil_div(channels, block_channels) * kCells * element_bytes;
    bytes = round_up(header_bytes * ceil_div(kernels, kGroup) + multiply_checked(kernels, kernel_bytes), kVectorBytes);
    auto* cell = cells.data();
    for (int channel = 0; channel < static_cast<int>(block_channels); ++channel)
      for (int y = side - ky; y < side; ++y)
        for (int x = 0; x < kx; ++x) *cell++ = static_cast<uint8_t>(get_weight_index_in_block(side, channel, y, x));
  }

  // Calls visit(offset, first kernel, kernels) for each group.
  template <typename Visit>
  void visit_headers(const Visit& visit) const {
    size_t offset = 0;
    for (size_t first = 0; first < kernels; first += kGroup) {
      const size_t count = std::min(kGroup, kernels - first);
      visit(offset, first, count);
      offset += header_bytes + count * kernel_bytes;
    }
  }

  // Calls visit(offset, source index, channels) for each block.
  template <typename Visit>
  void visit_blocks(const Visit& visit) const {
    visit_headers([&](size_t offset, size_t group, size_t count) {
      offset += header_bytes;
      for (size_t chunk = 0; chunk < channels; chunk += chunk_channels)
        for (size_t kernel = group; kernel < group + count; ++kernel)
          for (size_t channel = chunk; channel < std::min(chunk + chunk_channels, channels); channel += block_channels) {
            visit(offset, kernel * channels + channel, std::min(block_channels, channels - channel));
            offset += kCells * element_bytes;
          }
    });
  }
};

// The concatenated weight streams of a convolution: a single one, or one per tap if it is dilated.
struct WeightStreams {
  WeightStream stream;
  size_t count, table_bytes;
  size_t bytes;

  static WeightStreams make_single_stream(const ConvDims& dims) { return {dims, WeightStream(check_conv_dims(dims), dims.kx, dims.ky), 1}; }
  static WeightStreams make_stream_per_tap(const ConvDims& dims) {
    return {dims, WeightStream(check_conv_dims(dims), 1, 1), static_cast<size_t>(dims.kx * dims.ky)};
  }

 private:
  WeightStreams(const ConvDims& dims, const WeightStream& single_stream, size_t stream_count)
      : stream(single_stream),
        count(stream_count),
        table_bytes(dims.quantized ? kTableBytes : 0),
        bytes(table_bytes + multiply_checked(count, single_stream.bytes)) {}
};

template <typename Element>
void pack_blocks(const WeightStreams& streams, const Element* values, std::byte* target) {
  const WeightStream& stream = streams.stream;
  stream.visit_blocks([&](size_t offset, size_t before, size_t channels) {
    const Element* source = values + before * stream.taps * streams.count;
    for (size_t tap = 0; tap < streams.count; ++tap) {
      std::array<Element, kCells> block{};
      for (size_t i = 0; i < channels * stream.taps; ++i) block[stream.cells[i]] = source[i * streams.count + tap];
      std::memcpy(target + tap * stream.bytes + offset, block.data(), sizeof(block));
    }
  });
}

template <typename Element, typename Visit>
void unpack_blocks(const WeightStreams& streams, const std::byte* packed, const Visit& store) {
  const WeightStream& stream = streams.stream;
  stream.visit_blocks([&](size_t offset, size_t before, size_t channels) {
    const size_t first = before * stream.taps * streams.count;
    for (size_t tap = 0; tap < streams.count; ++tap) {
      std::array<Element, kCells> block;
      std::memcpy(block.data(), packed + tap * stream.bytes + offset, sizeof(block));
      for (size_t i = 0; i < channels * stream.taps; ++i) store(first + i * streams.count + tap, block[stream.cells[i]]);
    }
  });
}

void write_values(const uint16_t* values, size_t count, std::byte* target) {
  std::memcpy(target, values, count * sizeof(uint16_t));
}

void read_values(const std::byte* source, size_t count, uint16_t* values) {
  if (values) std::memcpy(values, source, count * sizeof(uint16_t));
}

void pack_streams(const WeightStreams& streams, const Weights& weights, std::byte* target) {
  const WeightStream& stream = streams.stream;
  if (streams.table_bytes) write_values(weights.table, kTableEntries, target);
  target += streams.table_bytes;
  for (size_t tap = 0; tap < streams.count; ++tap) {
    std::byte* stream_start = target + tap * stream.bytes;
    const bool last = tap + 1 == streams.count;
    std::memset(stream_start + stream.bytes - kVectorBytes, 0, kVectorBytes);
    stream.visit_headers([&](size_t offset, size_t first, size_t kernels) {
      std::memset(stream_start + offset, 0, stream.header_bytes);
      if (last) write_values(weights.bias + first, kernels, stream_start + offset);
      if (last && weights.prelu) write_values(weights.prelu + first, kernels, stream_start + offset + kVectorBytes);
    });
  }
  if (streams.table_bytes)
    pack_blocks(streams, static_cast<const uint8_t*>(weights.values), target);
  else
    pack_blocks(streams, static_cast<const uint16_t*>(weights.values), target);
}

// Receives quantized weights as indices, values, or both.
struct DequantizingWriter {
  UnpackedWeights target;
  std::array<uint16_t, kTableEntries> table;

  DequantizingWriter(const std::byte* packed, const UnpackedWeights& destination) : target(destination) {
    read_values(packed, kTableEntries, table.data());
    read_values(packed, kTableEntries, target.table);
  }
  void operator()(size_t i, uint8_t index) const {
    if (target.indices) target.indices[i] = index;
    if (target.values) target.values[i] = table[index];
  }
};

void unpack_streams(const WeightStreams& streams, std::span<const std::byte> packed, const UnpackedWeights& target) {
  const WeightStream& stream = streams.stream;
  check_packed_size(streams.bytes, packed.size());
  const std::byte* first_stream = packed.data() + streams.table_bytes;
  const std::byte* last = first_stream + (streams.count - 1) * stream.bytes;
  stream.visit_headers([&](size_t offset, size_t first, size_t kernels) {
    read_values(last + offset, kernels, target.bias ? target.bias + first : nullptr);
    if (stream.header_bytes > kVectorBytes)
      read_values(last + offset + kVectorBytes, kernels, target.prelu ? target.prelu + first : nullptr);
  });
  if (streams.table_bytes)
    unpack_blocks<uint8_t>(streams, first_stream, DequantizingWriter(packed.data(), target));
  else if (target.values)
    unpack_blocks<uint16_t>(streams, first_stream, [&](size_t i, uint16_t value) { target.values[i] = value; });
}

PackedOffsets compute_packed_offsets(const WeightStreams& streams, const ConvDims& dims) {
  if (streams.bytes > INT32_MAX)
    throw UnsupportedError("packed weights of " + std::to_string(streams.bytes) + " bytes; the device unpacks at most " +
                           std::to_string(INT32_MAX) + " bytes");
  const WeightStream& stream = streams.stream;
  const auto fp16_index = [](size_t byte) { return static_cast<int32_t>(byte / sizeof(uint16_t)); };
  PackedOffsets offsets{std::vector<int32_t>(dims.weights()), {}, {}};
  const size_t last = streams.table_bytes + (streams.count - 1) * stream.bytes;
  stream.visit_headers([&](size_t offset, size_t, size_t kernels) {
    for (size_t i = 0; i < kernels; ++i) {
      offsets.bias.push_back(fp16_index(last + offset) + static_cast<int32_t>(i));
      if (dims.prelu) offsets.prelu.push_back(fp16_index(last + offset + kVectorBytes) + static_cast<int32_t>(i));
    }
  });
  stream.visit_blocks([&](size_t offset, size_t before, size_t channels) {
    const size_t first = before * stream.taps * streams.count;
    for (size_t tap = 0; tap < streams.count; ++tap) {
      const size_t block = (streams.table_bytes + tap * stream.bytes + offset) / stream.element_bytes;
      for (size_t i = 0; i < channels * stream.taps; ++i)
        offsets.values[first + i * streams.count + tap] = static_cast<int32_t>(block + stream.cells[i]);
    }
  });
  return offsets;
}

// Layout of a fully connected layer: a table, a row of weights per output, biases.
struct FcLayout {
  size_t inputs, outputs, row_bytes, table_bytes, bias_offset, bytes;

  explicit FcLayout(const FcDims& dims) {
    check_dimension("c_input", dims.c_input), check_dimension("h_input", dims.h_input), check_dimension("w_input", dims.w_input);
    check_dimension("c_output", dims.c_output), check_dimension("h_output", dims.h_output), check_dimension("w_output", dims.w_output);
    const auto product = [](int c, int h, int w) {
      return multiply_checked(multiply_checked(static_cast<size_t>(c), static_cast<size_t>(h)), static_cast<size_t>(w));
    };
    inputs = product(dims.c_input, dims.h_input, dims.w_input), outputs = product(dims.c_output, dims.h_output, dims.w_output);
    row_bytes = multiply_checked(inputs, dims.quantized ? sizeof(uint8_t) : sizeof(uint16_t));
    multiply_checked(outputs, row_bytes + sizeof(uint16_t));
    table_bytes = dims.quantized ? kTableBytes : 0;
    bias_offset = table_bytes + round_up(row_bytes * outputs, kVectorBytes);
    bytes = bias_offset + round_up(outputs * sizeof(uint16_t), kVectorBytes);
  }
};

// Calls visit(packed index, index in (c, h, w)) for each element.
template <typename Visit>
void visit_packed_order(int channels, int height, int width, const Visit& visit) {
  const Extent extent{static_cast<uint32_t>(width), static_cast<uint32_t>(height), static_cast<uint32_t>(channels)};
  const HostStrides strides{.channel = std::ptrdiff_t{height} * width, .row = width, .column = 1};
  size_t packed_idx = 0;
  visit_whc8(extent, strides, [&](std::ptrdiff_t source) { visit(packed_idx++, static_cast<size_t>(source)); });
}

template <typename Visit>
void visit_inputs(const FcDims& dims, const Visit& visit) {
  visit_packed_order(dims.c_input, dims.h_input, dims.w_input, visit);
}

template <typename Visit>
void visit_outputs(const FcDims& dims, const Visit& visit) {
  visit_packed_order(dims.c_output, dims.h_output, dims.w_output, visit);
}

template <typename Element>
void pack_rows(const FcDims& dims, const FcLayout& layout, const void* values, std::byte* target) {
  std::vector<Element> row(layout.inputs);
  visit_outputs(dims, [&](size_t packed_idx, size_t output) {
    const Element* source = static_cast<const Element*>(values) + output * layout.inputs;
    std::byte* to = target + packed_idx * layout.row_bytes;
    if (dims.h_input * dims.w_input == 1) {
      std::memcpy(to, source, layout.row_bytes);
    } else {
      visit_inputs(dims, [&](size_t at, size_t input) { row[at] = source[input]; });
      std::memcpy(to, row.data(), layout.row_bytes);
    }
  });
}

template <typename Element, typename Store>
void unpack_rows(const FcDims& dims, const FcLayout& layout, const std::byte* packed, const Store& store) {
  std::vector<Element> row(layout.inputs);
  visit_outputs(dims, [&](size_t packed_idx, size_t output) {
    std::memcpy(row.data(), packed + packed_idx * layout.row_bytes, layout.row_bytes);
    visit_inputs(dims, [&](size_t at, size_t input) { store(output * layout.inputs + input, row[at]); });
  });
}

void pack_fc_layer(const FcDims& dims, const FcLayout& layout, const Weights& weights, std::byte* target) {
  if (dims.quantized) write_values(weights.table, kTableEntries, target);
  if (dims.quantized)
    pack_rows<uint8_t>(dims, layout, weights.values, target + layout.table_bytes);
  else
    pack_rows<uint16_t>(dims, layout, weights.values, target + layout.table_bytes);
  const size_t rows_end = layout.table_bytes + layout.row_bytes * layout.outputs,
               biases_end = layout.bias_offset + layout.outputs * sizeof(uint16_t);
  std::memset(target + rows_end, 0, layout.bias_offset - rows_end);
  write_values(weights.bias, layout.outputs, target + layout.bias_offset);
  std::memset(target + biases_end, 0, layout.bytes - biases_end);
}

// Packs directly to the target. If the target is too short, packs to a temporary buffer and copies as much as fits.
template <typename Pack>
size_t pack_into(std::span<std::byte> target, size_t bytes, const Pack& pack) {
  if (target.size() >= bytes) {
    pack(target.data());
  } else if (!target.empty()) {
    std::vector<std::byte> packed(bytes);
    pack(packed.data());
    std::copy_n(packed.begin(), target.size(), target.begin());
  }
  return bytes;
}

size_t pack_convolution(const WeightStreams& streams, const Weights& weights, std::span<std::byte> target) {
  if (target.size() > streams.bytes) std::ranges::fill(target.subspan(streams.bytes), std::byte{0});
  return pack_into(target, streams.bytes, [&](std::byte* destination) { pack_streams(streams, weights, destination); });
}

}  // namespace

void check_packed_size(size_t expected, size_t actual) {
  if (actual < expected) throw BindingError("D2", "packed", "", "at least " + std::to_string(expected) + " bytes", std::to_string(actual));
}

size_t compute_packed_conv_bytes(const ConvDims& dims) {
  return WeightStreams::make_single_stream(dims).bytes;
}

size_t compute_packed_dil_bytes(const ConvDims& dims) {
  return WeightStreams::make_stream_per_tap(dims).bytes;
}

size_t compute_packed_fc_bytes(const FcDims& dims) {
  return FcLayout(dims).bytes;
}

size_t pack_conv_weights(const ConvDims& dims, const Weights& weights, std::span<std::byte> target) {
  return pack_convolution(WeightStreams::make_single_stream(dims), weights, target);
}

size_t pack_dil_weights(const ConvDims& dims, const Weights& weights, std::span<std::byte> target) {
  return pack_convolution(WeightStreams::make_stream_per_tap(dims), weights, target);
}

size_t pack_fc_weights(const FcDims& dims, const Weights& weights, std::span<std::byte> target) {
  const FcLayout layout(dims);
  return pack_into(target, layout.bytes, [&](std::byte* destination) { pack_fc_layer(dims, layout, weights, destination); });
}

void unpack_conv_weights(const ConvDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target) {
  unpack_streams(WeightStreams::make_single_stream(dims), packed, target);
}

void unpack_dil_weights(const ConvDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target) {
  unpack_streams(WeightStreams::make_stream_per_tap(dims), packed, target);
}

PackedOffsets compute_conv_offsets(const ConvDims& dims) {
  return compute_packed_offsets(WeightStreams::make_single_stream(dims), dims);
}

PackedOffsets compute_dil_offsets(const ConvDims& dims) {
  return compute_packed_offsets(WeightStreams::make_stream_per_tap(dims), dims);
}

FcOffsets compute_fc_offsets(const FcDims& dims) {
  const FcLayout layout(dims);
  return {layout.table_bytes, layout.bias_offset};
}

void unpack_fc_weights(const FcDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target) {
  const FcLayout layout(dims);
  check_packed_size(layout.bytes, packed.size());
  const std::byte* rows = packed.data() + layout.table_bytes;
  if (dims.quantized)
    unpack_rows<uint8_t>(dims, layout, rows, DequantizingWriter(packed.data(), target));
  else if (target.values)
    unpack_rows<uint16_t>(dims, layout, rows, [&](size_t i, uint16_t value) { target.values[i] = value; });
  read_values(packed.data() + layout.bias_offset, layout.outputs, target.bias);
}

}  // namespace pumice::dv
