#include "dispatch/kernel/driver_bug_test.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/half.h"
#include "core/log.h"
#include "device/buffer.h"
#include "device/command_buffer.h"
#include "device/pipeline.h"
#include "dispatch/kernel/coopmat_support.h"
#include "dispatch/kernel/feature_trial.h"
#include "dispatch/kernel/kernel_options.h"
#include "dispatch/kernel/trial_run.h"
#include "shader/shader.h"
#include "shader/source/embedded_shaders.h"

namespace pumice {
namespace {

constexpr std::string_view kShader = "driver_test.comp", kMatrixShader = "coopmat_layout_test.comp";
constexpr uint32_t kPoints = 1024, kSmall = 0x00012345;
constexpr uint32_t kIterations = 70000;  // exceeds the limit of drivers that truncate long loops
constexpr size_t kTrials = 17;
constexpr uint32_t kVersion = 3;  // increment if points or expected results change, to invalidate cached results

struct BugTestInputs {
  std::vector<float> a, b;
  std::vector<int32_t> n;
};

// Test inputs: varied mantissas, quotients and roots close to rounding midpoints, and integers, half-integers and their neighbours.
BugTestInputs make_bug_test_inputs() {
  uint64_t state = 88172645463325252u;
  const auto random = [&](int bits) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<uint32_t>(state >> (64 - bits));
  };
  const auto mantissa = [&] { return static_cast<double>(random(23) | 0x800000u); };
  BugTestInputs points;
  for (uint32_t i = 0; i < kPoints; ++i) {
    const double sign = random(1) != 0 ? -1 : 1, odd = static_cast<double>(random(24) | 0x1000001u);
    const double mantissa_a = mantissa(), mantissa_b = mantissa();
    double a = std::ldexp(mantissa_a, static_cast<int>(random(5)) - 40);
    const double b = std::ldexp(mantissa_b, static_cast<int>(random(5)) - 40);
    if (i % 4 == 1) a = static_cast<float>(odd * b);
    if (i % 4 == 2) a = std::ldexp(mantissa_a - 0x7fffff, -2 - static_cast<int>(random(5)));
    if (i % 16 == 2) a = std::floor(a) + 0.5;
    if (i % 4 == 3) a = static_cast<float>(std::ldexp(odd * odd, -40));
    if (i % 8 == 6) a = std::nextafter(static_cast<float>(a), random(1) != 0 ? 0.0f : 1e30f);
    points.a.push_back(static_cast<float>(sign * a));
    points.b.push_back(static_cast<float>(b));
    const uint32_t n = random(32);
    points.n.push_back(static_cast<int32_t>(n) >> random(4));
  }
  points.a[0] = -0.0f, points.a[1] = 0.0f, points.a[2] = -0.5f, points.a[3] = 0.5f;
  points.n[0] = INT32_MAX, points.n[1] = INT32_MIN, points.n[2] = 16777217, points.n[3] = 33554434;
  return points;
}

bool is_same_float(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Rounds to fp32. `volatile` prevents excess precision between operations.
float to_float(double value) {
  const volatile float result = static_cast<float>(value);
  return result;
}

float round_half_to_even(float x) {
  return static_cast<float>(std::nearbyint(static_cast<double>(x)));
}

// Returns the quirks revealed by the results y[trial][point].
QuirkSet find_quirks_in_test_results(const BugTestInputs& points, const std::vector<float>& y) {
  QuirkSet quirks;
  const auto expect = [&](size_t trial, size_t point, float expected, Quirk quirk) {
    if (!is_same_float(y[trial * kPoints + point], expected)) quirks.add(quirk);
  };
  for (size_t i = 0; i < kPoints; ++i) {
    const float a = points.a[i], b = points.b[i], product = to_float(static_cast<double>(a) * b);
    const int32_t n = points.n[i];
    expect(0, i, to_float(static_cast<double>(a) + b), Quirk::inexact_arithmetic);
    expect(1, i, to_float(static_cast<double>(a) - b), Quirk::inexact_arithmetic);
    expect(2, i, product, Quirk::inexact_arithmetic);
    expect(3, i, to_float(n), Quirk::inexact_arithmetic);
    expect(4, i, to_float(static_cast<uint32_t>(n)), Quirk::inexact_unsigned);
    // Ignores the sign of zero: Mesa compiles this conversion pair to trunc().
    if (std::fabs(a) < 2147483648.0f && y[5 * kPoints + i] != static_cast<float>(static_cast<int32_t>(a)))
      quirks.add(Quirk::inexact_arithmetic);
    expect(6, i, to_float(static_cast<double>(a) / b), Quirk::inexact_division);
    expect(7, i, std::sqrt(std::fabs(a)), Quirk::inexact_square_root);
    expect(8, i, std::floor(a), Quirk::inexact_rounding);
    expect(9, i, std::ceil(a), Quirk::inexact_rounding);
    expect(10, i, std::trunc(a), Quirk::inexact_rounding);
    expect(11, i, round_half_to_even(a), Quirk::inexact_rounding);
    expect(12, i, to_float(static_cast<double>(a) * b - product), Quirk::unfused_multiply_add);
    const float v = points.a[(i + i % 4) % kPoints], next = to_float(1.0 + v), back = to_float(static_cast<double>(next) - 1.0);
    const float shifted = to_float(v + 12582912.0);
    expect(13, i, to_float(shifted - 12582912.0), Quirk::unrolled_contraction);
    expect(14, i, to_float(static_cast<double>(v) - back), Quirk::unrolled_contraction);
    expect(15, i, 7.0f, Quirk::flushed_denormals);
  }
  expect(16, 0, static_cast<float>(kIterations), Quirk::loop_limit);
  return quirks;
}

// Runs the trial in one workgroup and waits for it.
void run_one_workgroup(const std::shared_ptr<Context>& context, const Pipeline& pipeline, std::span<const BufferRange> ranges,
                       std::span<const std::byte> push) {
  CommandBufferSizes sizes;
  sizes.sets = 1;
  for (const auto& binding : pipeline.bindings()) ++sizes.descriptors[static_cast<size_t>(binding.kind)];
  CommandBuffer commands(context, sizes);
  commands.begin();
  commands.write_descriptor_sets(std::array{DispatchResources{&pipeline, ranges, {}}});
  commands.dispatch(pipeline, push, {1, 1, 1});
  commands.end();
  wait_for_trial(*context, commands.submit());
}

// Runs a trial shader and returns its output array, which is the binding after the inputs.
std::vector<float> run_test_shader(const std::shared_ptr<Context>& context, const Shader& shader, const Pipeline& pipeline,
                                   std::vector<std::shared_ptr<Buffer>> buffers, size_t elements, std::span<const std::byte> push) {
  std::vector<float> y(elements);
  const auto result = make_filled_buffer(context, y);
  buffers.push_back(result);
  std::vector<BufferRange> ranges;
  for (const auto& binding : shader.interface.bindings) {
    const auto& buffer = buffers.at(binding.binding);
    ranges.push_back({buffer, 0, buffer->bytes()});
  }
  run_one_workgroup(context, pipeline, ranges, push);
  download({result, 0, result->bytes()}, std::as_writable_bytes(std::span(y)));
  return y;
}

// Element index (in a 16x16 matrix) of a component of an invocation's fragment, as assumed by attention_mma.comp and gemm_mma.comp.
size_t get_mma_element_index(size_t invocation, size_t component) {
  const size_t row = invocation / 4 + component / 4 * 8, column = invocation % 4 * 2 + component % 2 + component / 2 % 2 * 8;
  return row * 16 + column;
}

// Whether the device has fp16 cooperative matrices of 16x16x16 with subgroups of 32, whose layout can be tested.
bool has_fp16_coopmat(const DeviceInfo& device) {
  return device.feature("shaderFloat16") && device.limit("subgroupSize") == 32 &&
         get_storage_type(device, DType::float16) == StorageType::fp16 && supports_coopmat(device, 16, DType::float16, DType::float32);
}

// Whether cooperative matrices have the fragment layout of get_mma_element_index().
bool has_mma_fragment_layout(const std::shared_ptr<Context>& context) {
  constexpr size_t kElements = 256;
  std::vector<float> numbers(kElements);
  std::vector<uint16_t> fp16_values(kElements);
  for (size_t i = 0; i < kElements; ++i) numbers[i] = static_cast<float>(i), fp16_values[i] = half_from_float(numbers[i]);
  std::vector<float> y;
  try {
    const auto shader = compile(std::string(get_embedded_shader(kMatrixShader)), std::string(kMatrixShader),
                                make_device_options(*context, StorageType::fp16));
    const auto pipeline = make_trial_pipeline(*context, *shader, {}, 32);
    y = run_test_shader(context, *shader, *pipeline, {make_filled_buffer(context, fp16_values), make_filled_buffer(context, numbers)},
                        2 * kElements, {});
  } catch (const DeviceLostError&) {
    throw;
  } catch (const Error& error) {  // other kernels work without cooperative matrices
    log(LogLevel::info, "the layout of cooperative matrices is not tested: " + std::string(error.what()));
    return false;
  }
  for (size_t i = 0; i < 2 * kElements; ++i)
    if (y[i] != static_cast<float>(get_mma_element_index(i % kElements / 8, i % 8))) return false;
  return true;
}

QuirkSet run_driver_bug_test(const std::shared_ptr<Context>& context) {
  const BugTestInputs points = make_bug_test_inputs();
  const auto shader =
      compile(std::string(get_embedded_shader(kShader)), std::string(kShader), make_device_options(*context, StorageType::fp32));
  const auto pipeline = make_trial_pipeline(*context, *shader);
  const std::array<uint32_t, 3> push{kPoints, kSmall, kIterations};
  const auto y =
      run_test_shader(context, *shader, *pipeline,
                      {make_filled_buffer(context, points.a), make_filled_buffer(context, points.b), make_filled_buffer(context, points.n)},
                      kTrials * kPoints, std::as_bytes(std::span(push)));
  QuirkSet quirks = find_quirks_in_test_results(points, y);
  if (has_fp16_coopmat(context->info()) && !has_mma_fragment_layout(context)) quirks.add(Quirk::other_matrix_layout);
  return quirks;
}

QuirkSet detect_quirks(const std::shared_ptr<Context>& context) {
  Sha256 key = hash_driver(context->info());
  key.add_field(get_embedded_shader(kShader)).add_field(get_embedded_shader(kMatrixShader));
  key.add_field(static_cast<uint64_t>(kPoints)).add_field(static_cast<uint64_t>(kVersion));
  return find_cached_quirks(context->info(), std::move(key), [&] { return run_driver_bug_test(context); });
}

// The trial result of a context, computed on first use.
struct CachedDetectedQuirks {
  std::once_flag once;
  QuirkSet detected;
};

}  // namespace

QuirkSet get_detected_quirks(const std::shared_ptr<Context>& context) {
  const auto trial = context->attachment<CachedDetectedQuirks>();
  if (context->compile_only()) return {};
  std::call_once(trial->once, [&] {
    trial->detected = detect_quirks(context) | get_feature_trial_quirks(*context);
    for (size_t i = 0; i < list_quirk_kinds().size(); ++i)
      if (trial->detected.has(static_cast<Quirk>(i)))
        log(LogLevel::info, "driver '" + context->info().driver + "', " + std::string(list_quirk_kinds()[i].name) + ": " +
                                std::string(list_quirk_kinds()[i].summary) + " " + std::string(list_quirk_kinds()[i].answer));
  });
  return trial->detected;
}

QuirkSet get_driver_quirks(const std::shared_ptr<Context>& context) {
  return get_detected_quirks(context) | context->assumed_quirks();
}

}  // namespace pumice
