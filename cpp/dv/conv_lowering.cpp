// Lowers convolution commands to operators. A run accumulates in float32 and rounds once, when its result is stored: a single fused kernel
// reads and writes float16, otherwise intermediates are float32.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/half.h"
#include "dv/weight_operands.h"
#include "dv/weights/whc8_layout.h"

namespace pumice::dv {
namespace {

constexpr int64_t kTableEntriesPerChannel = 256;

// Returns whether a run's activation is monotonically increasing, so that it commutes with max pooling.
bool has_monotonic_activation(const ConvRun& run) {
  return !run.has_abs && run.activation != Activation::prelu && (run.activation != Activation::leaky_relu || run.slope >= 0);
}

// Returns whether every pooling window covers some input; the maximum of a window that is all padding would be minus infinity.
bool all_windows_overlap_input(const SlidingWindow& window) {
  return window.left < window.kx && window.right < window.kx && window.top < window.ky && window.bottom < window.ky;
}

// Returns whether activation and rounding may directly follow the convolution without changing the run's result.
bool can_fuse_activation(const ConvRun& run) {
  if (run.has_eltwise_add || run.shape.prelu) return false;
  if (run.shape.pool == PoolKind::maximum) return has_monotonic_activation(run) && all_windows_overlap_input(run.shape.pool_window);
  return run.shape.pool != PoolKind::average;
}

// Returns whether the pooling is a 1 x 1 average with stride 1, which only scales.
bool is_scaling_only(const ConvRun& run) {
  return run.shape.pool == PoolKind::average && run.shape.pool_window == SlidingWindow{};
}

Attributes make_window_attributes(const SlidingWindow& window, bool is_pool) {
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
Expression make_lrn_factor_expression() {
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
  ConvLowering(LoweringState& lowering, const ConvCommand& command)
      : lowering_(lowering), recorder_(lowering.recorder), command_(command) {}

  void lower() {
    read_inputs();
    Activations last;
    for (const ConvRun& run : command_.runs) {
      const Activations& x = run.from_input ? input_ : last;
      if (!run.to_memory) {
        Activations y = allocate_scratch_activations(recorder_, DType::float16, command_.images, run.output, true);
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
    const MemoryRange written = get_written_range(command_);
    const auto read = [&](const MemoryAddress& address, uint64_t bytes) {
      return make_readable_range(recorder_, address, bytes, written.overlaps({address, bytes}));
    };
    const uint64_t elements = images * command_.extent.elements();
    input_ = {DType::float16, command_.images, command_.extent, true, command_.extent.elements(), {}};
    if (command_.table.memory)
      input_.range =
          apply_lookup_table(read(command_.input, elements), read(command_.table, 3 * kTableEntriesPerChannel * sizeof(uint16_t)));
    else
      input_.range = read(command_.input, elements * sizeof(uint16_t));
    for (const ConvRun& run : command_.runs) {
      if (!run.has_conv()) continue;
      const MemoryRange packed(run.weights, compute_weight_bytes(run.input, run.shape));
      packed_.emplace(&run, PackedWeights(lowering_, packed, packed.overlaps(written)));
    }
    if (command_.eltwise.memory && std::ranges::any_of(command_.runs, &ConvRun::has_eltwise_add))
      eltwise_input_ = read(command_.eltwise, images * command_.eltwise_elements * sizeof(uint16_t));
  }

  // Converts input bytes to float16 by per-channel tables.
  BufferRange apply_lookup_table(const BufferRange& bytes, const BufferRange& table) {
    const int64_t channels = command_.extent.channels, pixels = to_signed(command_.images * command_.extent.elements()) / channels;
    const Operand source{TensorDesc(DType::uint8, {pixels, channels}), bytes};
    const Operand indices{TensorDesc(DType::int32, {pixels, channels}),
                          recorder_.allocate_scratch(TensorDesc(DType::int32, {pixels, channels}).bytes())};
    const int32_t channel_offsets[] = {0, kTableEntriesPerChannel, 2 * kTableEntriesPerChannel}, reversed_channels[] = {2, 1, 0};
    const auto constant = [&](const int32_t* values, int64_t count) {
      const TensorDesc desc(DType::int32, {count});
      return Operand{desc, recorder_.upload_constant(HostTensor::copy_of(desc, values))};
    };
    recorder_.record_expression(Expression::parse("i32(in0) + in1"), {source, constant(channel_offsets, channels)}, indices);
    const TensorDesc values(DType::float16, {pixels, channels});
    Operand values_found{values, recorder_.allocate_scratch(values.bytes())};
    recorder_.record_operator("Gather", {}, {{TensorDesc(DType::float16, {3 * kTableEntriesPerChannel}), table}, indices}, values_found);
    if (!command_.to_bgr) return values_found.range;
    const Operand swapped{values, recorder_.allocate_scratch(values.bytes())};
    Attributes attributes;
    attributes.set("axis", int64_t{1});
    recorder_.record_operator("Gather", attributes, {values_found, constant(reversed_channels, channels)}, swapped);
    return swapped.range;
  }

  void lower_to_memory(const ConvRun& run, const Activations& x) {
    const uint64_t image_bytes = run.output.bytes(), step = command_.output_elements * sizeof(uint16_t);
    const BufferRange first{command_.output.memory->buffer(), command_.output.offset + run.output_element * sizeof(uint16_t), image_bytes};
    Activations y{DType::float16, command_.images, run.output, true, command_.output_elements, {}};
    const uint64_t bytes = (command_.images - 1) * step + image_bytes;
    y.range = make_writable_range(recorder_, {first.buffer, first.offset, bytes});
    if (y.range.buffer == first.buffer) return lower_run(run, x, y);
    y = allocate_scratch_activations(recorder_, DType::float16, command_.images, run.output, true);
    lower_run(run, x, y);
    for (uint64_t i = 0; i < command_.images; ++i)
      recorder_.copy_bytes({y.range.buffer, y.range.offset + i * image_bytes, image_bytes},
                           {first.buffer, first.offset + i * step, image_bytes});
  }

  // Returns the second operand of a run's elementwise addition, copied to an aligned address if necessary.
  Activations get_eltwise_input(const ConvRun& run) {
    if (!command_.eltwise.memory) return input_;
    const uint64_t first = run.eltwise_element * sizeof(uint16_t);
    BufferRange range{eltwise_input_.buffer, eltwise_input_.offset + first, eltwise_input_.bytes - first};
    if (range.offset % kTensorAlignment != 0) {
      const BufferRange aligned_copy = recorder_.allocate_scratch(range.bytes);
      recorder_.copy_bytes(range, aligned_copy);
      range = aligned_copy;
    }
    return {DType::float16, command_.images, run.eltwise_extent(), true, command_.eltwise_elements, range};
  }

  // Applies the run's activation to x and, if enabled, takes the absolute value.
  static Expression apply_activation_and_abs(const ConvRun& run, const Expression& x) {
    const Expression activated_x = apply_activation(x, run.activation, run.slope);
    return run.has_abs ? Expression::parse("abs(x)").substitute({{"x", activated_x}}) : activated_x;
  }

  void lower_run(const ConvRun& run, const Activations& x, const Activations& y) {
    if (run.has_lrn) return lower_lrn(run, x, y);
    const bool has_upsample = run.shape.pool == PoolKind::upsample;
    const bool has_pool = run.shape.pool == PoolKind::maximum || (run.shape.pool == PoolKind::average && !is_scaling_only(run));
    Activations current = x;
    bool is_added = !run.has_eltwise_add, is_activated = false;
    if (run.has_conv()) {
      is_activated = can_fuse_activation(run);
      current = lower_convolution(run, x, y, is_activated);
    }
    if (!is_added && run.shape.pool != PoolKind::average && (has_pool || has_upsample)) {
      const Activations sum = allocate_scratch_activations(recorder_, DType::float32, command_.images, run.conv_extent, current.grouped);
      record_elementwise_expression(recorder_, Expression::parse("in0 + in1"), {current, get_eltwise_input(run)}, sum);
      current = sum;
      is_added = true;
    }
    if (has_pool) {
      const bool is_fused = is_added && !is_activated && !run.shape.prelu && current.dtype == DType::float16;
      current = lower_pooling(run, current, y, is_fused);
      is_activated = is_activated || is_fused;
    }
    if (is_activated && current.range.buffer == y.range.buffer && current.range.offset == y.range.offset) return;
    Expression result = Expression::name("in0");
    std::vector<Activations> operands{current};
    if (is_scaling_only(run)) result = scale_expression(result, run.factor);
    if (!is_added) {
      result = Expression::parse("in0 + in1").substitute({{"in0", result}});
      operands.push_back(get_eltwise_input(run));
    }
    std::vector<BufferRange> channel_values;
    if (!is_activated) {
      result = apply_activation_and_abs(run, result);
      if (run.shape.prelu) {
        channel_values.push_back(slopes_);
        result = result.substitute({{std::string(kSlopes), Expression::name("in" + std::to_string(operands.size()))}});
      }
    }
    record_elementwise_expression(recorder_, result, operands, y, channel_values, has_upsample);
  }

  static Expression scale_expression(const Expression& x, float factor) {
    return Expression::parse("x * factor").substitute({{"x", x}, {"factor", Expression::literal(factor)}});
  }

  Activations convert(const Activations& x, DType dtype, bool grouped) {
    const Activations y = allocate_scratch_activations(recorder_, dtype, x.images, x.extent, grouped);
    record_elementwise_expression(recorder_, Expression::name("in0"), {x}, y);
    return y;
  }

  // Returns `x` converted to this dtype, in channels-last layout or, if the operator supports it, in whole groups.
  Activations convert_layout(const Activations& x, DType dtype, bool supports_groups) {
    const bool grouped = supports_groups && x.extent.channels % kGroupChannels == 0;
    if (x.dtype == dtype && (x.is_channels_last() || grouped)) return x;
    return convert(x, dtype, grouped && x.grouped);
  }

  // `is_fused`: fuses all following stages of the run, and writes `y` directly if its layout permits.
  Activations lower_convolution(const ConvRun& run, const Activations& x, const Activations& y, bool is_fused) {
    const DType dtype = is_fused ? DType::float16 : DType::float32;
    const bool supports_groups = run.shape.conv == ConvKind::convolution;
    Activations from = convert_layout(x, dtype, supports_groups);
    const bool outputs_groups = supports_groups && run.shape.kernels % kGroupChannels == 0;
    const bool is_last = is_fused && run.shape.pool == PoolKind::none && (outputs_groups || y.is_channels_last());
    const Activations to = is_last ? y : allocate_scratch_activations(recorder_, dtype, command_.images, run.conv_extent, outputs_groups);
    std::optional<Expression> epilogue;
    if (is_fused) epilogue = apply_activation_and_abs(run, Expression::name("x"));
    SlidingWindow window = run.shape.conv_window;
    const bool is_transposed_window = is_transposed(run.shape.conv) && can_use_conv_transpose(window);
    if (is_transposed(run.shape.conv) && !is_transposed_window) {
      from = insert_zeros(from, window);
      window.stride_x = window.stride_y = 1;
    }
    if (is_transposed_window) window = compute_conv_transpose_padding(window);
    Attributes attributes = make_window_attributes(window, false);
    if (is_depthwise(run.shape.conv)) attributes.set("group", int64_t{run.input.channels});
    const ConvOperands operands = make_conv_operands(recorder_, run, packed_.at(&run), dtype, is_transposed_window);
    slopes_ = operands.slopes;
    recorder_.record_operator(supports_groups        ? "pumice::GroupedConv"
                              : is_transposed_window ? "ConvTranspose"
                                                     : "Conv",
                              attributes,
                              {from.is_channels_last() ? from.as_image() : from.as_groups()[0], operands.weights, operands.bias},
                              outputs_groups ? to.as_groups()[0] : to.as_image(), epilogue);
    return to;
  }

  // Returns the padding of a transposed convolution, derived from the padding of the equivalent convolution over a zero-stuffed input.
  static SlidingWindow compute_conv_transpose_padding(SlidingWindow window) {
    window.left = window.dilated_width() - 1 - window.left, window.right = window.dilated_width() - 1 - window.right;
    window.top = window.dilated_height() - 1 - window.top, window.bottom = window.dilated_height() - 1 - window.bottom;
    return window;
  }

  static bool can_use_conv_transpose(const SlidingWindow& window) {
    return std::max(window.left, window.right) < window.dilated_width() && std::max(window.top, window.bottom) < window.dilated_height();
  }

  // Inserts stride - 1 zeros between neighbouring pixels.
  Activations insert_zeros(const Activations& x, const SlidingWindow& window) {
    const Extent extent{(x.extent.width - 1) * window.stride_x + 1, (x.extent.height - 1) * window.stride_y + 1, x.extent.channels};
    const Activations y = allocate_scratch_activations(recorder_, x.dtype, x.images, extent, false);
    const TensorDesc number(DType::float32, {1});
    const float zero = 0;
    const Operand target = y.as_image();
    const BufferRange zeros = recorder_.upload_constant(HostTensor::copy_of(number, &zero));
    recorder_.record_expression(Expression::name("in0"), {{number.broadcast_to(target.desc.shape), zeros}}, target);
    const Operand source = x.as_image();
    Strides strides = target.desc.strides;
    strides[2] *= window.stride_x, strides[3] *= window.stride_y;
    recorder_.record_expression(Expression::name("in0"), {source}, {TensorDesc(x.dtype, source.desc.shape, strides), target.range});
    return y;
  }

  Activations lower_pooling(const ConvRun& run, const Activations& x, const Activations& y, bool is_fused) {
    const bool averages = run.shape.pool == PoolKind::average;
    const DType dtype = averages && !is_fused ? DType::float32 : x.dtype;
    Activations from = x.dtype == dtype ? x : convert(x, dtype, x.grouped);
    if (!from.as_planes() && !from.is_channels_last()) from = convert(from, dtype, false);
    const bool is_in_groups = from.as_planes().has_value(), is_last = is_in_groups && dtype == DType::float16 && y.as_planes();
    const Activations to = is_last ? y : allocate_scratch_activations(recorder_, dtype, command_.images, run.output, is_in_groups);
    Expression result = Expression::name("x");
    if (averages) result = scale_expression(result, run.factor);
    if (is_fused) result = apply_activation_and_abs(run, result);
    recorder_.record_operator(averages ? "pumice::SumPool" : "MaxPool", make_window_attributes(run.shape.pool_window, true),
                              {is_in_groups ? *from.as_planes() : from.as_image()}, is_in_groups ? *to.as_planes() : to.as_image(),
                              averages || is_fused ? std::optional(result) : std::nullopt);
    return to;
  }

  void lower_lrn(const ConvRun& run, const Activations& x, const Activations& y) {
    const Activations squares = allocate_scratch_activations(recorder_, DType::float32, x.images, x.extent, false);
    record_elementwise_expression(recorder_, Expression::parse("in0 * in0"), {x}, squares);
    const Activations factors = allocate_scratch_activations(recorder_, DType::float32, x.images, x.extent, false);
    // Views the channels as the rows of an image, so that pooling computes the sum over five channels.
    const auto rows = [&](const Activations& a) {
      const int64_t channels = a.extent.channels, pixels = to_signed(a.extent.elements()) / channels;
      return Operand{TensorDesc(a.dtype, {a.images, 1, channels, pixels}, Strides{to_signed(a.stride), to_signed(a.stride), 1, channels}),
                     a.range};
    };
    recorder_.record_operator("pumice::SumPool", make_window_attributes({.kx = 5, .left = 2, .right = 2}, true), {rows(squares)},
                              rows(factors), make_lrn_factor_expression());
    std::vector<Activations> operands{x, factors};
    Expression result = Expression::parse("in0 * in1");
    if (run.has_eltwise_add) {
      operands.push_back(get_eltwise_input(run));
      result = Expression::parse("in0 * in1 + in2");
    }
    record_elementwise_expression(recorder_, apply_activation_and_abs(run, result), operands, y);
  }

  static int64_t to_signed(uint64_t value) { return static_cast<int64_t>(value); }

  LoweringState& lowering_;
  Recorder& recorder_;
  const ConvCommand& command_;
  std::map<const ConvRun*, PackedWeights> packed_;  // weights of the runs that have a convolution
  Activations input_;
  BufferRange eltwise_input_, slopes_;
};

}  // namespace

void lower_conv(LoweringState& lowering, const ConvCommand& command) {
  ConvLowering(lowering, command).lower();
}

}  // namespace pumice::dv
