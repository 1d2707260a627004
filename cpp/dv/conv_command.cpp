// Reading convolution commands: checks in the order of the interface, and the sizes that every run has.
#include <bit>

#include "core/half.h"
#include "dv/command_reader.h"
#include "dv/packing.h"

namespace pumice::dv {
namespace {

using RawRun = dmp_dv_cmdraw_conv_v0_run;

constexpr int64_t kMostSide = 65535;         // of the input and the output of a run: what the fields of a next command hold
constexpr uint64_t kTableBytes = 3 * 256 * 2;
constexpr uint16_t kTransposedFlag = 0x8000;  // of input_circular_offset

Pair pair_of(uint16_t bytes) {
  return {bytes & 0xff, bytes >> 8};
}

// 7 bits at the left and at the top, 8 at the right and at the bottom.
Pads conv_pads_of(uint32_t bits) {
  return {bits & 0x7f, bits >> 8 & 0xff, bits >> 16 & 0x7f, bits >> 24};
}

Pads pool_pads_of(uint32_t bits) {
  return {bits & 0xff, bits >> 8 & 0xff, bits >> 16 & 0xff, bits >> 24};
}

int64_t effective(int64_t kernel, int64_t dilation) {
  return (kernel - 1) * dilation + 1;
}

// One command at work. Products of sizes stay below 2^62: sides have 16 bits each, and a batch 15.
class ConvReader {
 public:
  ConvReader(const CommandReader& reader, const dmp_dv_cmdraw_conv_v0& raw) : reader_(reader), raw_(raw) {}

  // `input_bits`: of one element of the input.
  ConvCommand read(int64_t input_bits) {
    check_command();
    const int count = 32 - std::countl_zero(raw_.topo);
    for (int i = 0; i < count; ++i) add_run(i);
    if (raw_.topo != 1)
      for (int i = 0; i < count; ++i)
        reader_.require_strict(!command_.runs[static_cast<size_t>(i)].dilates(), slot(i, "conv_dilation"), "1 in a command of several runs",
                               command_.runs[static_cast<size_t>(i)].dilation);
    check_buffers(input_bits);
    return std::move(command_);
  }

 private:
  static std::string slot(int i, const char* field) { return "run[" + std::to_string(i) + "]." + field; }

  void check_command() {
    command_.input = reader_.place(raw_.input_buf);
    command_.output = reader_.place(raw_.output_buf);
    command_.added = reader_.place(raw_.eltwise_buf);
    reader_.require(command_.input.memory != nullptr, "input_buf.mem", "a memory", "none");
    reader_.require(command_.output.memory != nullptr, "output_buf.mem", "a memory", "none");
    reader_.require(raw_.topo != 0, "topo", "at least one run that writes to memory", "0");
    reader_.require(raw_.z == 1, "z", "1", raw_.z);
    reader_.require(raw_.w > 0, "w", "at least 1", raw_.w);
    reader_.require(raw_.h > 0, "h", "at least 1", raw_.h);
    reader_.require(raw_.c > 0, "c", "at least 1", raw_.c);
    reader_.require((raw_.input_circular_offset & kTransposedFlag) == 0, "input_circular_offset", "a batch of at most 32767 images",
                    raw_.input_circular_offset);
    reader_.require(raw_.output_mode <= 1, "output_mode", "0 or 1", raw_.output_mode);
    command_.images = std::max<int64_t>(raw_.input_circular_offset, 1);
    command_.extent = {raw_.w, raw_.h, raw_.c};
  }

  void add_run(int i) {
    const RawRun& raw = raw_.run[i];
    Run run;
    run.from_input = i == 0 || (raw_.topo >> (i - 1) & 1) != 0;
    run.to_memory = (raw_.topo >> i & 1) != 0;
    run.input = run.from_input ? command_.extent : command_.runs.back().output;
    check_stages(i, raw, run);
    run.convolved = run.input;
    if (run.convolves) convolve(i, raw, run);
    run.output = run.convolved;
    if (run.pooling != Pooling::none) pool(i, raw, run);
    if (run.normalizes) check_normalization(i, raw, run);
    reader_.require(run.output.w <= kMostSide && run.output.h <= kMostSide, slot(i, "output"),
                    "at most " + std::to_string(kMostSide) + " columns and rows", Pair{run.output.w, run.output.h});
    run.adds = run.to_memory && raw_.output_mode == 1;
    if (run.to_memory) {
      run.output_element = command_.output_elements;
      run.added_element = command_.added_elements;
      command_.output_elements += run.output.elements();
      command_.added_elements += run.summed().elements();
    }
    if (run.adds && !command_.added.memory)
      reader_.require(run.summed() == command_.extent, "output_mode", "an eltwise_buf, or a sum of the size of the input",
                      "no eltwise_buf, and another size in run[" + std::to_string(i) + "]");
    command_.runs.push_back(std::move(run));
  }

  // Which stages there are.
  void check_stages(int i, const RawRun& raw, Run& run) {
    constexpr uint16_t kKinds = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 7;
    reader_.require(raw.conv_enable <= 7 && (kKinds >> raw.conv_enable & 1) != 0, slot(i, "conv_enable"), "0, 1, 3, 5 or 7", raw.conv_enable);
    run.convolves = raw.conv_enable != 0;
    run.depthwise = (raw.conv_enable & 2) != 0, run.transposed = (raw.conv_enable & 4) != 0;
    if (run.convolves) {
      reader_.require(raw.pz == 1, slot(i, "pz"), "1", raw.pz);
      reader_.require_strict(raw.pool_enable <= 1, slot(i, "pool_enable"), "0 or 1 beside a convolution", raw.pool_enable);
    }
    const bool normalizes = (raw.lrn & 1) != 0;
    reader_.require(run.convolves || raw.pool_enable != 0 || raw.actfunc != 0 || normalizes,
                    slot(i, "conv_enable, pool_enable, actfunc, lrn"), "a run that does something", "0 of all");
    reader_.require(raw.pool_enable <= 2 || raw.pool_enable == 4, slot(i, "pool_enable"), "0, 1, 2 or 4", raw.pool_enable);
    run.pooling = static_cast<Pooling>(raw.pool_enable);
    reader_.require(raw.actfunc <= 6, slot(i, "actfunc"), "an activation from 0 to 6", raw.actfunc);
    run.activation = static_cast<Activation>(raw.actfunc);
    reader_.require(run.activation != Activation::prelu || run.convolves, slot(i, "actfunc"),
                    "a convolution, whose packed weights have the slopes of PReLU", "none");
    run.slope = float_from_half(raw.actfunc_param);
    run.rectifies = raw.rectifi_en != 0;
    run.normalizes = normalizes;
  }

  void convolve(int i, const RawRun& raw, Run& run) {
    run.weights = reader_.place(raw.weight_buf);
    reader_.require(run.weights.memory != nullptr, slot(i, "weight_buf.mem"), "a memory", "none");
    run.kernel = pair_of(raw.p);
    if (run.kernel.y == 0) run.kernel.y = run.kernel.x;
    reader_.require(run.kernel.x >= 1 && run.kernel.x <= kMostKernel && run.kernel.y <= kMostKernel, slot(i, "p"),
                    "a kernel from 1 to " + std::to_string(kMostKernel) + " on both axes", run.kernel);
    run.stride = pair_of(raw.conv_stride);
    reader_.require(run.stride.x >= 1 && run.stride.y >= 1, slot(i, "conv_stride"), "at least 1 on both axes", run.stride);
    const Pair dilation = pair_of(raw.conv_dilation);
    run.dilation = {std::max<int64_t>(dilation.x, 1), std::max<int64_t>(dilation.y, 1)};
    run.conv_pads = conv_pads_of(raw.conv_pad);
    const Pads& pads = run.conv_pads;
    // Zeros are put between the elements of a transposed convolution's input, which it then walks in steps of one.
    const int64_t w = run.transposed ? (run.input.w - 1) * run.stride.x + 1 : run.input.w;
    const int64_t h = run.transposed ? (run.input.h - 1) * run.stride.y + 1 : run.input.h;
    const Pair padded{pads.left + w + pads.right, pads.top + h + pads.bottom};
    const Pair extent{effective(run.kernel.x, run.dilation.x), effective(run.kernel.y, run.dilation.y)};
    reader_.require(extent.x <= padded.x && extent.y <= padded.y, slot(i, "p"),
                    "a kernel of at most the padded input, " + std::to_string(padded.x) + " x " + std::to_string(padded.y), extent);
    reader_.require(raw.m > 0, slot(i, "m"), "at least 1", raw.m);
    reader_.require(!run.depthwise || raw.m == run.input.c, slot(i, "m"),
                    "as many channels as the input of a depthwise convolution, " + std::to_string(run.input.c), raw.m);
    const Pair step = run.transposed ? Pair{} : run.stride;
    run.convolved = {(padded.x - extent.x) / step.x + 1, (padded.y - extent.y) / step.y + 1, raw.m};
    reader_.require(raw.weight_fmt <= 1 || raw.weight_fmt == 3, slot(i, "weight_fmt"), "0, 1 or 3", raw.weight_fmt);
    run.quantized = raw.weight_fmt == 3;
    if (run.dilates()) check_dilation(i, raw, run, padded, extent);
    reader_.require_strict(run.activation != Activation::prelu || !run.quantized, slot(i, "weight_fmt"), "0 or 1 with PReLU", raw.weight_fmt);
    const ConvDims dims{run.depthwise ? 1 : static_cast<int>(run.input.c),
                        static_cast<int>(run.kernel.x),
                        static_cast<int>(run.kernel.y),
                        raw.m,
                        run.quantized,
                        run.activation == Activation::prelu};
    run.weight_bytes = run.dilates() ? packed_dil_bytes(dims) : packed_conv_bytes(dims);
  }

  void check_dilation(int i, const RawRun& raw, const Run& run, const Pair& padded, const Pair& extent) {
    const auto limit = [&](bool holds, const char* field, const char* expected, const auto& given) {
      reader_.require_strict(holds, slot(i, field), std::string(expected) + " with a dilation", given);
    };
    limit(raw_.topo == 1, "conv_dilation", "a single run", run.dilation);
    limit(run.pooling == Pooling::none, "pool_enable", "0", raw.pool_enable);
    limit(run.kernel.x % 2 == 1 && run.kernel.y % 2 == 1, "p", "an odd kernel", run.kernel);
    limit(padded.x >= extent.x && padded.y >= extent.y, "p", "a kernel of at most the padded input", extent);
    if (run.transposed)
      limit(run.stride == Pair{}, "conv_stride", "1 for a deconvolution", run.stride);
    else
      limit(run.convolved.w * run.stride.x == run.input.w && run.convolved.h * run.stride.y == run.input.h, "conv_pad",
            "an output of the input's size over the stride", Pair{run.convolved.w, run.convolved.h});
    limit(run.activation != Activation::prelu, "actfunc", "no PReLU", raw.actfunc);
  }

  void pool(int i, const RawRun& raw, Run& run) {
    if (run.pooling == Pooling::upsample) {
      run.output.w *= 2, run.output.h *= 2;
      return;
    }
    run.window = pair_of(raw.pool_size), run.step = pair_of(raw.pool_stride);
    run.pool_pads = pool_pads_of(raw.pool_pad);
    run.factor = float_from_half(raw.pool_avg_param);
    const auto& [x, y] = run.window;
    reader_.require(x >= 1 && y >= 1, slot(i, "pool_size"), "at least 1 on both axes", run.window);
    if (run.pooling == Pooling::maximum)
      reader_.require_strict(x >= 2 && x <= 3 && y <= 3, slot(i, "pool_size"), "2 or 3 columns and 1 to 3 rows", run.window);
    else
      reader_.require_strict(x <= kMostKernel && y <= kMostKernel, slot(i, "pool_size"), "at most " + std::to_string(kMostKernel) + " on both axes",
                             run.window);
    reader_.require(run.step.x >= 1 && run.step.y >= 1, slot(i, "pool_stride"), "at least 1 on both axes", run.step);
    const Pads& pads = run.pool_pads;
    const Pair padded{pads.left + run.convolved.w + pads.right, pads.top + run.convolved.h + pads.bottom};
    reader_.require(x <= padded.x && y <= padded.y, slot(i, "pool_size"),
                    "at most the padded input, " + std::to_string(padded.x) + " x " + std::to_string(padded.y), run.window);
    run.output.w = (padded.x - x) / run.step.x + 1, run.output.h = (padded.y - y) / run.step.y + 1;
  }

  void check_normalization(int i, const RawRun& raw, const Run& run) {
    reader_.require_strict(run.input.c % 16 == 0, slot(i, "lrn"), "a multiple of 16 channels", run.input.c);
    reader_.require(!run.convolves, slot(i, "conv_enable"), "0 beside lrn", raw.conv_enable);
    reader_.require(run.pooling == Pooling::none, slot(i, "pool_enable"), "0 beside lrn", raw.pool_enable);
    reader_.require_strict(raw_.topo == 1, slot(i, "lrn"), "a single run", "topo " + std::to_string(raw_.topo));
    reader_.require((raw.lrn & 2) != 0, slot(i, "lrn"), "bit 1, the power function, which alone is specified", raw.lrn);
  }

  void check_buffers(int64_t input_bits) {
    const auto images = static_cast<uint64_t>(command_.images);
    const uint64_t input = images * static_cast<uint64_t>(command_.extent.elements()) * static_cast<uint64_t>(input_bits) / 8;
    reader_.check_place("input_buf", command_.input, input);
    for (size_t i = 0; i < command_.runs.size(); ++i) {
      const Run& run = command_.runs[i];
      if (run.convolves) reader_.check_place(slot(static_cast<int>(i), "weight_buf"), run.weights, run.weight_bytes, kVendorAlignment);
    }
    reader_.check_place("output_buf", command_.output, images * half_bytes(command_.output_elements));
    if (command_.added.memory) reader_.check_place("eltwise_buf", command_.added, images * half_bytes(command_.added_elements));
  }

  const CommandReader& reader_;
  const dmp_dv_cmdraw_conv_v0& raw_;
  ConvCommand command_;
};

}  // namespace

ConvCommand read_conv(const CommandReader& reader, const dmp_dv_cmdraw_conv_v0& raw) {
  return ConvReader(reader, raw).read(16);
}

ConvCommand read_conv_v1(const CommandReader& reader, const dmp_dv_cmdraw_conv_v1& raw) {
  const auto& inner = raw.conv_cmd;
  reader.require(inner.header.size == sizeof inner, "conv_cmd.header.size", std::to_string(sizeof inner), inner.header.size);
  const MemoryPlace table = reader.place(raw.u8tofp16_table);
  if (!table.memory) {
    reader.require(raw.to_bgr == 0, "to_bgr", "0 without a table", raw.to_bgr);
    return read_conv(reader, inner);
  }
  reader.check_place("u8tofp16_table", table, kTableBytes, kVendorAlignment);
  reader.require(inner.c <= 3, "conv_cmd.c", "at most 3 channels with a table", inner.c);
  reader.require(raw.to_bgr == 0 || inner.c == 3, "to_bgr", "0 where there are not 3 channels", raw.to_bgr);
  ConvCommand command = ConvReader(reader, inner).read(8);
  command.table = table;
  command.to_bgr = raw.to_bgr != 0;
  return command;
}

}  // namespace pumice::dv
