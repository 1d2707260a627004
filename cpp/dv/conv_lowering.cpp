// Lowers convolution commands to operators. A run accumulates in float32 and rounds once, when its result is stored: a single fused kernel
// reads and writes float16, otherwise intermediates are float32.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/half.h"
#include "dv/weight_operands.h"
#include "dv/weights/layout.h"

namespace pumice::dv {
namespace {

constexpr int64_t kTableEntriesOfChannel = 256;

// Returns whether a run's activation is monotonically increasing, so that it commutes with max pooling.
bool is_monotone(const Run& run) {
  return !run.rectifies && run.activation != Activation::prelu && (run.activation != Activation::leaky_relu || run.slope >= 0);
}

// Returns whether every pooling window covers some input; an all-padding maximum would be minus infinity.
bool meets_input(const Window& window) {
  return window.left < window.kx && window.right < window.kx && window.top < window.ky && window.bottom < window.ky;
}

// Returns whether activation and rounding may directly follow the convolution without changing the run's result.
bool activates_first(const Run& run) {
  if (run.adds || run.shape.prelu) return false;
  if (run.shape.pool == PoolKind::maximum) return is_monotone(run) && meets_input(run.shape.pool_window);
  return run.shape.pool != PoolKind::average;
}

// Returns whether the pooling is a 1 x 1 average with stride 1, which only scales.
bool only_scales(const Run& run) {
  return run.shape.pool == PoolKind::average && run.shape.pool_window == Window{};
}

Attributes window_attributes(const Window& window, bool is_pool) {
  Attributes attributes;
  const auto set = [&](const char* name, std::vector<int64_t> values) { attributes.set(name, std::move(values)); };
  set("kernel_shape", {window.kx, window.ky});
  set("strides", {window.stride_x, window.stride_y});
  set("pads", {window.left, window.top, window.right, window.bottom});
  if (!is_pool) set("dilations", {window.dilation_x, window.dilation_y});
  return attributes;
}

// Returns the LRN factor of x as a function of S, the sum of squares over five channels: f(S) = (1 + 2e-5 S)^-0.75, interpolated linearly
// between powers of 4.
Expression normalizing_factor() {
  constexpr int kLines = 12;
  const auto f = [](double sum) { return std::pow(1 + 2e-5 * sum, -0.75); };
  const auto line = [&](int k) {
    const double low = std::pow(4, k), high = 4 * low;
    return Expression::parse("y + (x - low) * slope")
        .substitute({{"y", Expression::literal(f(low))},
                     {"low", Expression::literal(low)},
                     {"slope", Expression::literal((f(high) - f(low)) / (high - low))}});
  };
  Expression all = line(kLines - 1);
  for (int k = kLines - 2; k >= 0; --k)
    all = Expression::parse("x < end ? line : rest")
              .substitute({{"end", Expression::literal(std::pow(4, k + 1))}, {"line", line(k)}, {"rest", all}});
  return all;
}

class ConvLowering {
 public:
  ConvLowering(Lowering& lowering, const ConvCommand& command) : lowering_(lowering), recorder_(lowering.recorder), command_(command) {}

  void lower() {
    read_inputs();
    Activations last;
    for (const Run& run : command_.runs) {
      const Activations& x = run.from_input ? input_ : last;
      if (!run.to_memory) {
        Activations y = scratch_activations(recorder_, DType::float16, command_.images, run.output, true);
        lower_run(run, x, y);
        last = y;
      } else {
        lower_to_memory(run, x);
      }
    }
  }

 private:
  void read_inputs() {
    const uint64_t images = command_.images;
    const MemoryRange written = written_by(command_);
    const auto read = [&](const MemoryPlace& place, uint64_t bytes) {
      return readable(recorder_, place, bytes, written.overlaps({place, bytes}));
    };
    const uint64_t elements = images * command_.extent.elements();
    input_ = {DType::float16, command_.images, command_.extent, true, command_.extent.elements(), {}};
    if (command_.table.memory)
      input_.range = looked_up(read(command_.input, elements), read(command_.table, 3 * kTableEntriesOfChannel * sizeof(uint16_t)));
    else
      input_.range = read(command_.input, elements * sizeof(uint16_t));
    for (const Run& run : command_.runs) {
      if (!run.convolves()) continue;
      const MemoryRange packed(run.weights, weight_bytes(run.input, run.shape));
      packed_.emplace(&run, PackedWeights(lowering_, packed, packed.overlaps(written)));
    }
    if (command_.added.memory && std::ranges::any_of(command_.runs, &Run::adds))
      added_ = read(command_.added, images * command_.added_elements * sizeof(uint16_t));
  }

  // Converts input bytes to float16 by per-channel tables.
  BufferRange looked_up(const BufferRange& bytes, const BufferRange& table) {
    const int64_t channels = command_.extent.channels, pixels = size(command_.images * command_.extent.elements()) / channels;
    const Operand given{TensorDesc(DType::uint8, {pixels, channels}), bytes};
    const Operand places{TensorDesc(DType::int32, {pixels, channels}),
                         recorder_.scratch(TensorDesc(DType::int32, {pixels, channels}).bytes())};
    const int32_t firsts[] = {0, kTableEntriesOfChannel, 2 * kTableEntriesOfChannel}, backwards[] = {2, 1, 0};
    const auto constant = [&](const int32_t* values, int64_t count) {
      const TensorDesc desc(DType::int32, {count});
      return Operand{desc, recorder_.constant(HostTensor::copy_of(desc, values))};
    };
    recorder_.map(Expression::parse("i32(in0) + in1"), {given, constant(firsts, channels)}, places);
    const TensorDesc values(DType::float16, {pixels, channels});
    Operand found{values, recorder_.scratch(values.bytes())};
    recorder_.run("Gather", {}, {{TensorDesc(DType::float16, {3 * kTableEntriesOfChannel}), table}, places}, found);
    if (!command_.to_bgr) return found.range;
    const Operand swapped{values, recorder_.scratch(values.bytes())};
    Attributes attributes;
    attributes.set("axis", int64_t{1});
    recorder_.run("Gather", attributes, {found, constant(backwards, channels)}, swapped);
    return swapped.range;
  }

  void lower_to_memory(const Run& run, const Activations& x) {
    const uint64_t image_bytes = run.output.bytes(), step = command_.output_elements * sizeof(uint16_t);
    const BufferRange first{command_.output.memory->buffer(), command_.output.offset + run.output_element * sizeof(uint16_t), image_bytes};
    Activations y{DType::float16, command_.images, run.output, true, command_.output_elements, {}};
    const uint64_t bytes = (command_.images - 1) * step + image_bytes;
    y.range = writable(recorder_, {first.buffer, first.offset, bytes});
    if (y.range.buffer == first.buffer) return lower_run(run, x, y);
    y = scratch_activations(recorder_, DType::float16, command_.images, run.output, true);
    lower_run(run, x, y);
    for (uint64_t i = 0; i < command_.images; ++i)
      recorder_.move({y.range.buffer, y.range.offset + i * image_bytes, image_bytes}, {first.buffer, first.offset + i * step, image_bytes});
  }

  // Returns the activations that a run adds, copied to an address that operators can read if necessary.
  Activations added(const Run& run) {
    if (!command_.added.memory) return input_;
    const uint64_t first = run.added_element * sizeof(uint16_t);
    BufferRange range{added_.buffer, added_.offset + first, added_.bytes - first};
    if (range.offset % kTensorAlignment != 0) {
      const BufferRange moved = recorder_.scratch(range.bytes);
      recorder_.move(range, moved);
      range = moved;
    }
    return {DType::float16, command_.images, run.summed(), true, command_.added_elements, range};
  }

  // Returns the activated and rectified x.
  static Expression finished(const Run& run, const Expression& x) {
    const Expression made = activated(x, run.activation, run.slope);
    return run.rectifies ? Expression::parse("abs(x)").substitute({{"x", made}}) : made;
  }

  void lower_run(const Run& run, const Activations& x, const Activations& y) {
    if (run.normalizes) return normalize(run, x, y);
    const bool doubles = run.shape.pool == PoolKind::upsample;
    const bool pools = run.shape.pool == PoolKind::maximum || (run.shape.pool == PoolKind::average && !only_scales(run));
    Activations made = x;
    bool is_added = !run.adds, is_finished = false;
    if (run.convolves()) {
      is_finished = activates_first(run);
      made = convolve(run, x, y, is_finished);
    }
    if (!is_added && run.shape.pool != PoolKind::average && (pools || doubles)) {
      const Activations sum = scratch_activations(recorder_, DType::float32, command_.images, run.convolved, made.grouped);
      map_activations(recorder_, Expression::parse("in0 + in1"), {made, added(run)}, sum);
      made = sum;
      is_added = true;
    }
    if (pools) {
      const bool finishes = is_added && !is_finished && !run.shape.prelu && made.dtype == DType::float16;
      made = pool(run, made, y, finishes);
      is_finished = is_finished || finishes;
    }
    if (is_finished && made.range.buffer == y.range.buffer && made.range.offset == y.range.offset) return;
    Expression result = Expression::name("in0");
    std::vector<Activations> operands{made};
    if (only_scales(run)) result = scaled(result, run.factor);
    if (!is_added) {
      result = Expression::parse("in0 + in1").substitute({{"in0", result}});
      operands.push_back(added(run));
    }
    std::vector<BufferRange> by_channel;
    if (!is_finished) {
      result = finished(run, result);
      if (run.shape.prelu) {
        by_channel.push_back(slopes_);
        result = result.substitute({{std::string(kSlopes), Expression::name("in" + std::to_string(operands.size()))}});
      }
    }
    map_activations(recorder_, result, operands, y, by_channel, doubles);
  }

  static Expression scaled(const Expression& x, float factor) {
    return Expression::parse("x * factor").substitute({{"x", x}, {"factor", Expression::literal(factor)}});
  }

  Activations converted(const Activations& x, DType dtype, bool grouped) {
    const Activations y = scratch_activations(recorder_, dtype, x.images, x.extent, grouped);
    map_activations(recorder_, Expression::name("in0"), {x}, y);
    return y;
  }

  // Returns `x` in this dtype, channels last or, if the operator supports it, in whole groups.
  Activations in_layout(const Activations& x, DType dtype, bool takes_groups) {
    const bool grouped = takes_groups && x.extent.channels % kGroupChannels == 0;
    if (x.dtype == dtype && (x.is_channels_last() || grouped)) return x;
    return converted(x, dtype, grouped && x.grouped);
  }

  // `finishes`: fuses all following stages of the run, and writes `y` directly if its layout permits.
  Activations convolve(const Run& run, const Activations& x, const Activations& y, bool finishes) {
    const DType dtype = finishes ? DType::float16 : DType::float32;
    const bool takes_groups = run.shape.conv == ConvKind::convolution;
    Activations from = in_layout(x, dtype, takes_groups);
    const bool makes_groups = takes_groups && run.shape.kernels % kGroupChannels == 0;
    const bool is_last = finishes && run.shape.pool == PoolKind::none && (makes_groups || y.is_channels_last());
    const Activations to = is_last ? y : scratch_activations(recorder_, dtype, command_.images, run.convolved, makes_groups);
    std::optional<Expression> epilogue;
    if (finishes) epilogue = finished(run, Expression::name("x"));
    Window window = run.shape.conv_window;
    const bool is_transposed_window = is_transposed(run.shape.conv) && becomes_transposed(window);
    if (is_transposed(run.shape.conv) && !is_transposed_window) {
      from = spread(from, window);
      window.stride_x = window.stride_y = 1;
    }
    if (is_transposed_window) window = transposed(window);
    Attributes attributes = window_attributes(window, false);
    if (is_depthwise(run.shape.conv)) attributes.set("group", int64_t{run.input.channels});
    const ConvOperands operands = conv_operands(recorder_, run, packed_.at(&run), dtype, is_transposed_window);
    slopes_ = operands.slopes;
    recorder_.run(takes_groups           ? "pumice::GroupedConv"
                  : is_transposed_window ? "ConvTranspose"
                                         : "Conv",
                  attributes, {from.is_channels_last() ? from.image() : from.groups()[0], operands.weights, operands.bias},
                  makes_groups ? to.groups()[0] : to.image(), epilogue);
    return to;
  }

  // Returns the padding of a transposed convolution, derived from the padding of the equivalent convolution over a zero-stuffed input.
  static Window transposed(Window window) {
    window.left = window.reach_x() - 1 - window.left, window.right = window.reach_x() - 1 - window.right;
    window.top = window.reach_y() - 1 - window.top, window.bottom = window.reach_y() - 1 - window.bottom;
    return window;
  }

  static bool becomes_transposed(const Window& window) {
    return std::max(window.left, window.right) < window.reach_x() && std::max(window.top, window.bottom) < window.reach_y();
  }

  // Inserts stride - 1 zeros between neighbours.
  Activations spread(const Activations& x, const Window& window) {
    const Extent extent{(x.extent.width - 1) * window.stride_x + 1, (x.extent.height - 1) * window.stride_y + 1, x.extent.channels};
    const Activations y = scratch_activations(recorder_, x.dtype, x.images, extent, false);
    const TensorDesc number(DType::float32, {1});
    const float zero = 0;
    const Operand whole = y.image();
    const BufferRange zeros = recorder_.constant(HostTensor::copy_of(number, &zero));
    recorder_.map(Expression::name("in0"), {{number.broadcast_to(whole.desc.shape), zeros}}, whole);
    const Operand given = x.image();
    Strides strides = whole.desc.strides;
    strides[2] *= window.stride_x, strides[3] *= window.stride_y;
    recorder_.map(Expression::name("in0"), {given}, {TensorDesc(x.dtype, given.desc.shape, strides), whole.range});
    return y;
  }

  Activations pool(const Run& run, const Activations& x, const Activations& y, bool finishes) {
    const bool averages = run.shape.pool == PoolKind::average;
    const DType dtype = averages && !finishes ? DType::float32 : x.dtype;
    Activations from = x.dtype == dtype ? x : converted(x, dtype, x.grouped);
    if (!from.planes() && !from.is_channels_last()) from = converted(from, dtype, false);
    const bool is_in_groups = from.planes().has_value(), is_last = is_in_groups && dtype == DType::float16 && y.planes();
    const Activations to = is_last ? y : scratch_activations(recorder_, dtype, command_.images, run.output, is_in_groups);
    Expression result = Expression::name("x");
    if (averages) result = scaled(result, run.factor);
    if (finishes) result = finished(run, result);
    recorder_.run(averages ? "pumice::SumPool" : "MaxPool", window_attributes(run.shape.pool_window, true),
                  {is_in_groups ? *from.planes() : from.image()}, is_in_groups ? *to.planes() : to.image(),
                  averages || finishes ? std::optional(result) : std::nullopt);
    return to;
  }

  void normalize(const Run& run, const Activations& x, const Activations& y) {
    const Activations squares = scratch_activations(recorder_, DType::float32, x.images, x.extent, false);
    map_activations(recorder_, Expression::parse("in0 * in0"), {x}, squares);
    const Activations factors = scratch_activations(recorder_, DType::float32, x.images, x.extent, false);
    // One image per batch item, with channels as its rows; sums of five channels are a pooling.
    const auto rows = [&](const Activations& a) {
      const int64_t channels = a.extent.channels, pixels = size(a.extent.elements()) / channels;
      return Operand{TensorDesc(a.dtype, {a.images, 1, channels, pixels}, Strides{size(a.stride), size(a.stride), 1, channels}), a.range};
    };
    recorder_.run("pumice::SumPool", window_attributes({.kx = 5, .left = 2, .right = 2}, true), {rows(squares)}, rows(factors),
                  normalizing_factor());
    std::vector<Activations> operands{x, factors};
    Expression result = Expression::parse("in0 * in1");
    if (run.adds) {
      operands.push_back(added(run));
      result = Expression::parse("in0 * in1 + in2");
    }
    map_activations(recorder_, finished(run, result), operands, y);
  }

  static int64_t size(uint64_t value) { return static_cast<int64_t>(value); }

  Lowering& lowering_;
  Recorder& recorder_;
  const ConvCommand& command_;
  std::map<const Run*, PackedWeights> packed_;  // weights of the runs that have a convolution
  Activations input_;
  BufferRange added_, slopes_;
};

}  // namespace

void lower_conv(Lowering& lowering, const ConvCommand& command) {
  ConvLowering(lowering, command).lower();
}

}  // namespace pumice::dv
