// Lowers the commands that have a dedicated kernel, each to one dispatch.
#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/rounding.h"
#include "dispatch/copy.h"
#include "dv/lowering.h"
#include "operators/table/lowering.h"

namespace pumice::dv {
namespace {

constexpr uint64_t kWordBytes = 4;

// A byte range bound to a kernel: whole words, from a valid offset.
struct BoundByteRange {
  BufferRange range;
  uint64_t first = 0;  // byte of the range where the command's image starts

  BoundByteRange(const pumice::Context& context, const char* name, const MemoryRange& byte_range, uint64_t image_offset) {
    const uint64_t alignment = std::max<uint64_t>(context.limit("minStorageBufferOffsetAlignment"), kWordBytes);
    const uint64_t largest = context.limit("maxStorageBufferRange"), slack = byte_range.offset % alignment;
    first = slack + image_offset - byte_range.offset;
    range = {byte_range.memory->buffer(), byte_range.offset - slack, round_up(slack + byte_range.bytes, kWordBytes)};
    if (range.bytes > largest)
      throw UnsupportedError(std::string(name) + " of " + std::to_string(byte_range.bytes) + " bytes; this device binds at most " +
                             std::to_string(largest) + " bytes (maxStorageBufferRange)");
  }
};

// Returns the byte range that the kernel reads. `snapshot`: copies it first, because the command also writes to it.
BoundByteRange bind_input(Recorder& recorder, const char* name, const MemoryRange& byte_range, uint64_t image_offset, bool snapshot) {
  BoundByteRange bound(*recorder.context(), name, byte_range, image_offset);
  if (!snapshot) return bound;
  const BufferRange copy = recorder.allocate_scratch(bound.range.bytes), target{copy.buffer, copy.offset, bound.range.bytes};
  for (Dispatch& copy_dispatch : make_copy_dispatches(bound.range, target)) recorder.add(std::move(copy_dispatch));
  bound.range = target;
  return bound;
}

Dispatch make_dispatch(Step step, std::string label, std::vector<std::pair<std::string_view, BufferRange>> ranges) {
  Dispatch dispatch{.kernel = step.kernel, .push = std::move(step.push), .groups = step.groups, .label = std::move(label)};
  for (const auto& binding : dispatch.kernel->interface().bindings) {
    const auto range = std::ranges::find(ranges, binding.name, &std::pair<std::string_view, BufferRange>::first);
    dispatch.buffers.push_back(range->second);
  }
  return dispatch;
}

// Returns the positions of red, green, blue and alpha in a pixel, 4 bits each.
uint32_t encode_channel_positions(const dmp_dv_cmdraw_ipu_v0& raw, uint32_t channels) {
  const std::array<int8_t, 4> indices{raw.ridx, raw.gidx, raw.bidx, raw.aidx};
  uint32_t positions = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    const auto rank = std::count_if(indices.begin(), indices.begin() + channels, [&](int8_t other) { return other < indices[i]; });
    positions |= static_cast<uint32_t>(rank) << 4 * i;
  }
  return positions;
}

// Inverse of encode_channel_positions(): the channel at each position.
uint32_t invert_channel_positions(uint32_t positions, uint32_t channels) {
  uint32_t inverse = 0;
  for (uint32_t i = 0; i < channels; ++i) inverse |= i << 4 * (positions >> 4 * i & 0xf);
  return inverse;
}

// Returns the palette that this command uses, including the colours that the command itself sets.
BufferRange update_palette(LoweringState& lowering, const IpuCommand& command) {
  Recorder& recorder = lowering.recorder;
  const BufferRange palette = lowering.context->palette();
  if (const uint64_t colours = command.raw.ncolor_lut; colours > 0) {
    const TensorDesc desc(DType::uint32, {static_cast<int64_t>(colours)});
    const BufferRange colours_buffer = recorder.upload_constant(HostTensor::copy_of(desc, command.raw.lut));
    const uint64_t bytes = colours * sizeof(uint32_t);
    for (Dispatch& copy : make_copy_dispatches({colours_buffer.buffer, 0, bytes}, {palette.buffer, 0, bytes}))
      recorder.add(std::move(copy));
  }
  return palette;
}

}  // namespace

void lower_argmax(LoweringState& lowering, const ArgmaxCommand& command) {
  const auto& context = lowering.recorder.context();
  const uint64_t pixels = uint64_t{command.width} * command.height;
  const MemoryRange input(command.input, pixels * command.classes * sizeof(uint16_t)), output = get_written_range(command);
  const BoundByteRange x = bind_input(lowering.recorder, "input_buf", input, input.offset, input.overlaps(output));
  const BoundByteRange y(*context, "output_buf", output, output.offset);
  StepBuilder step(context->attachment<KernelLibrary>()->get_variant(context, "argmax_channels.comp", StorageType::fp32));
  step.bind("x", {}).bind("y", {}).set("pixels", pixels).set("channels", command.classes);
  step.set("x_offset", x.first / sizeof(uint16_t)).set("y_offset", y.first).set_threads(ceil_div(y.first + pixels, kWordBytes));
  lowering.recorder.add(make_dispatch(step.build(), "maximizer", {{"x", x.range}, {"y", y.range}}));
}

// Lowers an IPU command. Choices for behaviour that the interface does not specify:
// - Pixel (x, y) of the rectangle samples the texture at ((x + 1/2) * tex_width / rect_width, ...), with the rectangle's x and y swapped if
//   `transpose` is set. Nearest rounds down; bilinear interpolates between texel centres, with weights in 256ths and clamped edges.
// - A texture has red, green, blue and alpha in this order, and so does a palette entry, from its lowest byte on; indices wrap modulo 32.
//   ridx ... aidx are the channel positions in `rd` and `wr`; without alpha, the other three are adjacent.
// - Alpha is the constant if use_const_alpha is set, else the pixel's alpha, or 255 if it has none. Blending computes
//   (tex * alpha + rd * (255 - alpha)) / 255, rounded to nearest; the result's alpha is computed with tex = 255.
// - stride_wr = 0 means tightly packed rows. All lists of a context share one palette, in execution order.
void lower_ipu(LoweringState& lowering, const IpuCommand& command) {
  const auto& context = lowering.recorder.context();
  const dmp_dv_cmdraw_ipu_v0& raw = command.raw;
  const uint64_t tex_bytes = raw.use_tex ? get_bytes_per_pixel(raw.fmt_tex) : 0,
                 rd_bytes = raw.use_rd ? get_bytes_per_pixel(raw.fmt_rd) : 0;
  const uint64_t wr_bytes = get_bytes_per_pixel(raw.fmt_wr), wr_channels = raw.fmt_wr == DMP_DV_RGBA8888 ? 4 : 3;
  const int64_t wr_stride = command.output_stride();
  const MemoryRange written = command.output_range();
  const BoundByteRange wr(*context, "wr", written, command.wr.offset);
  std::vector<std::pair<std::string_view, BufferRange>> ranges{{"wr", wr.range}};
  uint64_t tex_first = 0, rd_first = 0;
  if (tex_bytes > 0) {
    const MemoryRange read(command.tex, tex_bytes * raw.tex_width * raw.tex_height);
    const BoundByteRange tex = bind_input(lowering.recorder, "tex", read, read.offset, read.overlaps(written));
    ranges.emplace_back("tex", tex.range), tex_first = tex.first;
  }
  if (tex_bytes == 1) ranges.emplace_back("palette", update_palette(lowering, command));
  if (rd_bytes > 0) {
    const MemoryRange read(command.rd, rd_bytes * raw.rect_width, raw.rect_height, raw.stride_rd);
    // In-place execution is safe if both images have the same address, format and stride.
    const bool in_place = command.rd.offset == command.wr.offset && raw.fmt_rd == raw.fmt_wr && raw.stride_rd == wr_stride;
    const BoundByteRange rd = bind_input(lowering.recorder, "rd", read, command.rd.offset, read.overlaps(written) && !in_place);
    ranges.emplace_back("rd", rd.range), rd_first = rd.first;
  }
  const Macros macros{{"TEX", std::to_string(tex_bytes)}, {"RD", std::to_string(rd_bytes)}, {"WR", std::to_string(wr_bytes)}};
  StepBuilder step(context->attachment<KernelLibrary>()->get_variant(context, "dv_ipu.comp", StorageType::fp32, macros));
  for (const auto& [name, range] : ranges) step.bind(name, {});
  step.set("tex_width", raw.tex_width).set("tex_height", raw.tex_height).set("width", raw.rect_width).set("height", raw.rect_height);
  step.set("tex_first", tex_first).set("rd_first", rd_first).set("wr_first", wr.first);
  step.set("rd_stride", static_cast<uint32_t>(raw.stride_rd)).set("wr_stride", static_cast<uint32_t>(wr_stride));
  step.set("bilinear", raw.blf != 0 ? 1 : 0).set("transposed", raw.transpose != 0 ? 1 : 0);
  step.set("alpha", raw.use_const_alpha ? raw.alpha : 256).set("by_255", raw.cnv_type == DMP_DV_CNV_FP16_DIV_255 ? 1 : 0);
  step.set("rd_byte_index", encode_channel_positions(raw, rd_bytes))
      .set("wr_channel", invert_channel_positions(encode_channel_positions(raw, wr_channels), wr_channels));
  step.set("subtracted", raw.cnv_param[0] | raw.cnv_param[1] << 8 | raw.cnv_param[2] << 16);
  const uint64_t words = ceil_div(command.output_row_bytes() + kWordBytes - 1, kWordBytes);  // maximum number of words that overlap a row
  lowering.recorder.add(make_dispatch(step.set_threads(words, raw.rect_height).build(), "ipu", std::move(ranges)));
}

}  // namespace pumice::dv
