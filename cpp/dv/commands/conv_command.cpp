// Parses convolution commands, checks their fields in order, and computes the sizes of every run.
#include <bit>

#include "core/half.h"
#include "dv/commands/command_reader.h"
#include "dv/weights/packing.h"

namespace pumice::dv {
namespace {

using RawRun = dmp_dv_cmdraw_conv_v0_run;

constexpr uint32_t kMaxSide = 65535;  // maximum width and height of a run's input and output: a following command stores them in 16 bits
constexpr uint64_t kTableBytes = 3 * 256 * 2;

std::string format_size(uint32_t x, uint32_t y) {
  return std::to_string(x) + " x " + std::to_string(y);
}

// Parses one command. Sizes have 16 bits, so the product of three fits in 64 bits; check_batch() prevents overflow for a batch.
class ConvParser {
 public:
  ConvParser(const CommandReader& reader, const dmp_dv_cmdraw_conv_v0& raw) : reader_(reader), raw_(raw) {}

  // `element_bytes`: size of the input's elements.
  ConvCommand parse(uint64_t element_bytes) {
    check_command();
    const int count = 32 - std::countl_zero(raw_.topo);
    for (int i = 0; i < count; ++i) add_run(i);
    if (raw_.topo != 1)
      for (int i = 0; i < count; ++i) {
        const SlidingWindow& window = command_.runs[static_cast<size_t>(i)].shape.conv_window;
        reader_.require_strict(!window.dilated(), field_name(i, "conv_dilation"), "1 in a command of several runs",
                               format_size(window.dilation_x, window.dilation_y));
      }
    check_buffers(element_bytes);
    if ((raw_.input_circular_offset & kWeightsTransposed) != 0) swap_axes();
    return std::move(command_);
  }

 private:
  static std::string field_name(int i, const char* field) { return "run[" + std::to_string(i) + "]." + field; }

  void check_command() {
    command_.input = reader_.read_address(raw_.input_buf, "input_buf");
    command_.output = reader_.read_address(raw_.output_buf, "output_buf");
    command_.eltwise = reader_.read_address(raw_.eltwise_buf, "eltwise_buf");
    reader_.require_memory(raw_.input_buf, "input_buf");
    reader_.require_memory(raw_.output_buf, "output_buf");
    reader_.require(raw_.topo != 0, "topo", "at least one run that writes to memory", "0");
    reader_.require(raw_.z == 1, "z", "1", raw_.z);
    reader_.require(raw_.w > 0, "w", "at least 1", raw_.w);
    reader_.require(raw_.h > 0, "h", "at least 1", raw_.h);
    reader_.require(raw_.c > 0, "c", "at least 1", raw_.c);
    reader_.require(raw_.output_mode <= 1, "output_mode", "0 or 1", raw_.output_mode);
    command_.images = std::max<uint32_t>(raw_.input_circular_offset & ~kWeightsTransposed, 1);
    command_.extent = {raw_.w, raw_.h, raw_.c};
  }

  void add_run(int i) {
    const RawRun& raw = raw_.run[i];
    ConvRun run;
    run.from_input = i == 0 || (raw_.topo >> (i - 1) & 1) != 0;
    run.to_memory = (raw_.topo >> i & 1) != 0;
    run.input = run.from_input ? command_.extent : command_.runs.back().output;
    check_stages(i, raw, run);
    if (run.has_conv()) parse_convolution(i, raw, run);
    run.conv_extent = compute_conv_output(run.input, run.shape);
    if (run.has_conv() && run.shape.conv_window.dilated()) check_dilation(i, raw, run);
    if (run.shape.pool == PoolKind::maximum || run.shape.pool == PoolKind::average) parse_pooling(i, raw, run);
    run.output = compute_run_output(run.input, run.shape);
    if (run.has_lrn) check_lrn(i, raw, run);
    reader_.require(run.output.width <= kMaxSide && run.output.height <= kMaxSide, field_name(i, "output"),
                    "at most " + std::to_string(kMaxSide) + " columns and rows", format_size(run.output.width, run.output.height));
    run.has_eltwise_add = run.to_memory && raw_.output_mode == 1;
    if (run.to_memory) {
      run.output_element = command_.output_elements;
      run.eltwise_element = command_.eltwise_elements;
      command_.output_elements += run.output.elements();
      command_.eltwise_elements += run.eltwise_extent().elements();
    }
    if (run.has_eltwise_add && raw_.eltwise_buf.rsvd == 0)
      reader_.require(run.eltwise_extent() == command_.extent, "output_mode", "an eltwise_buf, or a sum of the size of the input",
                      "no eltwise_buf, and another size in run[" + std::to_string(i) + "]");
    command_.runs.push_back(std::move(run));
  }

  // Parses and checks the stages of a run.
  void check_stages(int i, const RawRun& raw, ConvRun& run) {
    constexpr uint16_t kConvKinds = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 7;
    reader_.require(raw.conv_enable <= 7 && (kConvKinds >> raw.conv_enable & 1) != 0, field_name(i, "conv_enable"), "0, 1, 3, 5 or 7",
                    raw.conv_enable);
    run.shape.conv = static_cast<ConvKind>(raw.conv_enable);
    if (run.has_conv()) {
      reader_.require(raw.pz == 1, field_name(i, "pz"), "1", raw.pz);
      reader_.require_strict(raw.pool_enable <= 1, field_name(i, "pool_enable"), "0 or 1 with a convolution", raw.pool_enable);
    }
    run.has_lrn = (raw.lrn & 1) != 0;
    reader_.require(run.has_conv() || raw.pool_enable != 0 || raw.actfunc != 0 || run.has_lrn,
                    field_name(i, "conv_enable, pool_enable, actfunc, lrn"), "a run that does something", "all are 0");
    reader_.require(raw.pool_enable <= 2 || raw.pool_enable == 4, field_name(i, "pool_enable"), "0, 1, 2 or 4", raw.pool_enable);
    run.shape.pool = static_cast<PoolKind>(raw.pool_enable);
    reader_.require(raw.actfunc <= 6, field_name(i, "actfunc"), "an activation from 0 to 6", raw.actfunc);
    run.activation = static_cast<Activation>(raw.actfunc);
    run.shape.prelu = run.activation == Activation::prelu;
    reader_.require(!run.shape.prelu || run.has_conv(), field_name(i, "actfunc"),
                    "a convolution, whose packed weights have the slopes of PReLU", "none");
    run.slope = float_from_half(raw.actfunc_param);
    run.has_abs = raw.rectifi_en != 0;
  }

  void parse_convolution(int i, const RawRun& raw, ConvRun& run) {
    run.weights = reader_.read_address(raw.weight_buf, field_name(i, "weight_buf"));
    reader_.require_memory(raw.weight_buf, field_name(i, "weight_buf"));
    const SlidingWindow& window = run.shape.conv_window = decode_conv_window(raw.p, raw.conv_pad, raw.conv_stride, raw.conv_dilation);
    constexpr uint32_t kMax = kMaxKernelSide;
    reader_.require(window.kx >= 1 && window.kx <= kMax && window.ky <= kMax, field_name(i, "p"),
                    "a kernel from 1 to " + std::to_string(kMax) + " on both axes", format_size(window.kx, window.ky));
    reader_.require(window.stride_x >= 1 && window.stride_y >= 1, field_name(i, "conv_stride"), "at least 1 on both axes",
                    format_size(window.stride_x, window.stride_y));
    reader_.require(raw.m > 0, field_name(i, "m"), "at least 1", raw.m);
    reader_.require(!is_depthwise(run.shape.conv) || raw.m == run.input.channels, field_name(i, "m"),
                    "as many channels as the input of a depthwise convolution, " + std::to_string(run.input.channels), raw.m);
    run.shape.kernels = raw.m;
    reader_.require(!compute_conv_output(run.input, run.shape).empty(), field_name(i, "p"),
                    "a kernel of at most the padded input of " + format_size(run.input.width, run.input.height),
                    format_size(window.dilated_width(), window.dilated_height()));
    reader_.require(raw.weight_fmt <= 1 || raw.weight_fmt == 3, field_name(i, "weight_fmt"), "0, 1 or 3", raw.weight_fmt);
    run.shape.quantized = raw.weight_fmt == 3;
    reader_.require_strict(!run.shape.prelu || !run.shape.quantized, field_name(i, "weight_fmt"), "0 or 1 with PReLU", raw.weight_fmt);
  }

  void check_dilation(int i, const RawRun& raw, const ConvRun& run) {
    const auto require_with_dilation = [&](bool holds, const char* field, const char* expected, const auto& actual) {
      reader_.require_strict(holds, field_name(i, field), std::string(expected) + " with a dilation", actual);
    };
    const SlidingWindow& window = run.shape.conv_window;
    require_with_dilation(raw_.topo == 1, "conv_dilation", "a single run", format_size(window.dilation_x, window.dilation_y));
    require_with_dilation(run.shape.pool == PoolKind::none, "pool_enable", "0", raw.pool_enable);
    require_with_dilation(window.kx % 2 == 1 && window.ky % 2 == 1, "p", "an odd kernel", format_size(window.kx, window.ky));
    if (is_transposed(run.shape.conv))
      require_with_dilation(window.stride_x == 1 && window.stride_y == 1, "conv_stride", "1 for a deconvolution",
                            format_size(window.stride_x, window.stride_y));
    else
      require_with_dilation(
          run.conv_extent.width * window.stride_x == run.input.width && run.conv_extent.height * window.stride_y == run.input.height,
          "conv_pad", "an output of the input's size over the stride", format_size(run.conv_extent.width, run.conv_extent.height));
    require_with_dilation(!run.shape.prelu, "actfunc", "no PReLU", raw.actfunc);
  }

  void parse_pooling(int i, const RawRun& raw, ConvRun& run) {
    const SlidingWindow& window = run.shape.pool_window = decode_pool_window(raw.pool_size, raw.pool_pad, raw.pool_stride);
    run.factor = float_from_half(raw.pool_avg_param);
    const std::string actual = format_size(window.kx, window.ky);
    reader_.require(window.kx >= 1 && window.ky >= 1, field_name(i, "pool_size"), "at least 1 on both axes", actual);
    if (run.shape.pool == PoolKind::maximum)
      reader_.require_strict(window.kx >= 2 && window.kx <= 3 && window.ky <= 3, field_name(i, "pool_size"),
                             "2 or 3 columns and 1 to 3 rows", actual);
    else
      reader_.require_strict(window.kx <= kMaxKernelSide && window.ky <= kMaxKernelSide, field_name(i, "pool_size"),
                             "at most " + std::to_string(kMaxKernelSide) + " on both axes", actual);
    reader_.require(window.stride_x >= 1 && window.stride_y >= 1, field_name(i, "pool_stride"), "at least 1 on both axes",
                    format_size(window.stride_x, window.stride_y));
    reader_.require(!compute_run_output(run.input, run.shape).empty(), field_name(i, "pool_size"),
                    "at most the padded input of " + format_size(run.conv_extent.width, run.conv_extent.height), actual);
  }

  void check_lrn(int i, const RawRun& raw, const ConvRun& run) {
    reader_.require_strict(run.input.channels % 16 == 0, field_name(i, "lrn"), "a multiple of 16 channels", run.input.channels);
    reader_.require(!run.has_conv(), field_name(i, "conv_enable"), "0 with lrn", raw.conv_enable);
    reader_.require(run.shape.pool == PoolKind::none, field_name(i, "pool_enable"), "0 with lrn", raw.pool_enable);
    reader_.require_strict(raw_.topo == 1, field_name(i, "lrn"), "a single run", "topo " + std::to_string(raw_.topo));
    reader_.require((raw.lrn & 2) != 0, field_name(i, "lrn"), "bit 1, the power function, which is the only one specified", raw.lrn);
  }

  void check_buffers(uint64_t element_bytes) {
    check_batch("input_buf", command_.input, command_.extent.elements() * element_bytes);
    for (size_t i = 0; i < command_.runs.size(); ++i) {
      const ConvRun& run = command_.runs[i];
      if (run.has_conv())
        reader_.check_address(field_name(static_cast<int>(i), "weight_buf"), run.weights, compute_weight_bytes(run.input, run.shape),
                              kVendorAlignment);
    }
    check_batch("output_buf", command_.output, command_.output_elements * sizeof(uint16_t));
    if (raw_.eltwise_buf.rsvd != 0) check_batch("eltwise_buf", command_.eltwise, command_.eltwise_elements * sizeof(uint16_t));
  }

  // Swaps x and y. This runs last, so that error messages use the command's x and y. Packed weights for the swapped kernel have the same
  // size.
  void swap_axes() {
    command_.is_transposed = true;
    command_.extent = command_.extent.transposed();
    for (ConvRun& run : command_.runs) {
      for (Extent* const extent : {&run.input, &run.conv_extent, &run.output}) *extent = extent->transposed();
      for (SlidingWindow* const window : {&run.shape.conv_window, &run.shape.pool_window}) *window = window->transposed();
    }
  }

  // Checks that one image fits into the memory before the whole batch, so that the batch size cannot overflow 64 bits.
  void check_batch(const char* name, const MemoryAddress& address, uint64_t image_bytes) {
    if (command_.images > 1) reader_.check_address(name, address, image_bytes);
    reader_.check_address(name, address, image_bytes * command_.images);
  }

  const CommandReader& reader_;
  const dmp_dv_cmdraw_conv_v0& raw_;
  ConvCommand command_;
};

}  // namespace

ConvCommand parse_conv(const CommandReader& reader, const dmp_dv_cmdraw_conv_v0& raw) {
  return ConvParser(reader, raw).parse(sizeof(uint16_t));
}

ConvCommand parse_conv_v1(const CommandReader& reader, const dmp_dv_cmdraw_conv_v1& raw) {
  const auto& inner = raw.conv_cmd;
  reader.require(inner.header.size == sizeof inner, "conv_cmd.header.size", std::to_string(sizeof inner), inner.header.size);
  const MemoryAddress table = reader.read_address(raw.u8tofp16_table, "u8tofp16_table");
  if (raw.u8tofp16_table.rsvd == 0) {
    reader.require(raw.to_bgr == 0, "to_bgr", "0 without a table", raw.to_bgr);
    return parse_conv(reader, inner);
  }
  reader.check_address("u8tofp16_table", table, kTableBytes, kVendorAlignment);
  reader.require(inner.c <= 3, "conv_cmd.c", "at most 3 channels with a table", inner.c);
  reader.require(raw.to_bgr == 0 || inner.c == 3, "to_bgr", "0 unless there are 3 channels", raw.to_bgr);
  ConvCommand command = ConvParser(reader, inner).parse(1);
  command.table = table;
  command.to_bgr = raw.to_bgr != 0;
  return command;
}

}  // namespace pumice::dv
