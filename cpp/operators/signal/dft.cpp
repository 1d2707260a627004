// Discrete Fourier transforms of any length, as passes of small radices (mixed-radix FFT).
#include "operators/signal/dft.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/strided_copy.h"
#include "operators/signal/lowerings.h"

namespace pumice {
namespace {

// Larger radices need fewer passes over memory, but the number of products per element equals the radix.
constexpr int64_t kTargetRadix = 32;

// Factors the length into radices: products of primes of up to kTargetRadix. A larger prime is a radix by itself.
std::vector<int64_t> choose_radices(int64_t length) {
  std::vector<int64_t> primes, radices;
  for (int64_t p = 2; p * p <= length; ++p)
    for (; length % p == 0; length /= p) primes.push_back(p);
  if (length > 1 || primes.empty()) primes.push_back(length);
  for (auto prime = primes.rbegin(); prime != primes.rend(); ++prime) {
    size_t i = 0;
    while (i < radices.size() && radices[i] * *prime > kTargetRadix) ++i;
    if (i == radices.size()) radices.push_back(1);
    radices[i] *= *prime;
  }
  return radices;
}

std::vector<std::byte> compute_twiddle_factors(int64_t length, bool inverse) {
  std::vector<std::byte> bytes(static_cast<size_t>(length) * 2 * sizeof(float));
  for (int64_t k = 0; k < length; ++k) {
    const double angle = (inverse ? 2 : -2) * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length);
    const float pair[2] = {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
    std::memcpy(bytes.data() + static_cast<size_t>(k) * sizeof pair, pair, sizeof pair);
  }
  return bytes;
}

void add_fft_passes(LowerContext& node, const DftGeometry& t, bool has_window) {
  const TensorDesc& y = node.output(0);
  if (y.elements() == 0) return;
  const auto radices = choose_radices(t.length);
  const int64_t largest = *std::max_element(radices.begin(), radices.end());
  node.check_loop_limit(largest);
  if (t.length > INT64_C(0xffffffff) / largest)
    throw UnsupportedError("node '" + std::string(node.node) + "': a transform of length " + std::to_string(t.length) +
                           ", which has the prime factor " + std::to_string(largest));
  const Operand twiddles = node.add_host_block(compute_twiddle_factors(t.length, t.inverse)), y_dense = get_contiguous_output(node, 0);
  const auto intermediate = static_cast<uint64_t>(t.outer * t.length * t.inner) * 8;
  Operand from = get_contiguous_input(node, 0);
  int64_t transformed = 1;
  for (size_t i = 0; i < radices.size(); ++i) {
    const bool first = i == 0, last = i + 1 == radices.size();
    const Operand to = last ? y_dense : node.add_temporary(intermediate);
    const Macros macros = {{"FIRST", first ? "1" : "0"},
                           {"LAST", last ? "1" : "0"},
                           {"COMPONENTS", std::to_string(t.components)},
                           {"RESULT", std::to_string(t.result)},
                           {"EPILOGUE(x)", last ? node.epilogue() : "x"},
                           {"SYMMETRIC", t.symmetric ? "1" : "0"},
                           {"WINDOW", first && has_window ? "1" : "0"}};
    StepBuilder step(node.kernel("dft.comp", first ? node.input(0).dtype : y.dtype, macros));
    step.bind("twiddles", twiddles).bind("x", from).bind("y", to);
    if (first && has_window) step.bind("window", get_contiguous_input(node, 2));
    const int64_t elements = t.outer * (last ? t.num_results : t.length) * t.inner;
    step.set("elements", elements).set("points", t.length).set("num_results", last ? t.num_results : t.length).set("inner", t.inner);
    step.set("transformed", transformed)
        .set("radix", radices[i])
        .set("scale", last && t.inverse ? 1.0 / static_cast<double>(t.length) : 1.0);
    if (first) step.set("size", t.size).set("frames", t.frames).set("batch_step", t.batch_step).set("frame_step", t.frame_step);
    node.add(step.set_threads(static_cast<uint64_t>(elements)).build());
    from = to;
    transformed *= radices[i];
  }
  copy_contiguous_output(node, 0, y_dense);
}

std::optional<int64_t> read_host_scalar(const LowerContext& node, size_t i) {
  return node.host_tensor(i) ? std::optional(node.host_tensor(i)->as_int64().at(0)) : std::nullopt;
}

}  // namespace

DftGeometry make_dft_geometry(std::string_view node, const Attributes& attributes, const Shape& x, const DftInputs& inputs) {
  const auto fail = [&](const std::string& message) { throw GraphError(std::string(node), message); };
  const auto rank = static_cast<int64_t>(x.size());
  int64_t axis = inputs.axis.value_or(-2);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank - 2)
    fail("a transform along axis " + std::to_string(inputs.axis.value_or(-2)) + " of " + to_string(x) +
         ", whose last axis holds components");
  DftGeometry t;
  const auto at = x.begin() + axis;
  t.outer = element_count({x.begin(), at}), t.size = *at, t.inner = element_count({at + 1, x.end() - 1}), t.components = x.back();
  const bool onesided = attributes.integer("onesided") != 0;
  t.inverse = attributes.integer("inverse") != 0;
  t.symmetric = t.inverse && onesided;
  if (t.components != 1 && t.components != 2) fail("expected 1 or 2 components in the last axis; given " + to_string(x));
  if (onesided && !t.inverse && t.components == 2) fail("onesided=1 needs a real signal, because complex ones have no symmetric spectrum");
  t.length = inputs.length.value_or(t.symmetric ? 2 * (t.size - 1) : t.size);
  if (t.length < 1) fail("expected a transform of at least one element; given a length of " + std::to_string(t.length));
  t.num_results = onesided && !t.inverse ? t.length / 2 + 1 : t.length;
  t.result = t.symmetric ? 1 : 2;
  t.size = std::min(t.size, t.symmetric ? t.length / 2 + 1 : t.length);
  t.batch_step = *at * t.inner;
  return t;
}

DftGeometry make_stft_geometry(std::string_view node, const Attributes& attributes, const Shape& x, const Shape* window,
                               const DftInputs& inputs) {
  const auto fail = [&](const std::string& message) { throw GraphError(std::string(node), message); };
  if (x.size() == 3 && x[2] != 1 && x[2] != 2) fail("expected 1 or 2 components in the last axis; given " + to_string(x));
  if (window && window->size() != 1) fail("a window of shape " + to_string(*window));
  const bool onesided = attributes.integer("onesided") != 0;
  DftGeometry t;
  t.components = x.size() == 3 ? x[2] : 1;  // exporters omit the axis of components for real inputs
  t.length = inputs.length ? *inputs.length : window ? (*window)[0] : x[1];
  if (window && (*window)[0] != t.length) fail("a window of " + to_string(*window) + " for frames of " + std::to_string(t.length));
  if (t.length < 1 || t.length > x[1] || *inputs.step < 1)
    fail("frames of " + std::to_string(t.length) + " every " + std::to_string(*inputs.step) + " in a signal of " + std::to_string(x[1]));
  if (onesided && t.components == 2) fail("onesided=1 needs a real signal, because complex ones have no symmetric spectrum");
  t.size = t.length;
  t.frames = (x[1] - t.length) / *inputs.step + 1;
  t.batch_step = x[1], t.frame_step = *inputs.step;
  t.outer = x[0] * t.frames;
  t.num_results = onesided ? t.length / 2 + 1 : t.length;
  return t;
}

static DftGeometry make_dft_geometry(const LowerContext& node) {
  return make_dft_geometry(node.node, *node.attributes, node.input(0).shape, {read_host_scalar(node, 1), read_host_scalar(node, 2), {}});
}

static DftGeometry make_stft_geometry(const LowerContext& node) {
  const Shape* window = node.has_input(2) ? &node.input(2).shape : nullptr;
  return make_stft_geometry(node.node, *node.attributes, node.input(0).shape, window,
                            {read_host_scalar(node, 3), {}, read_host_scalar(node, 1)});
}

// Counts the FLOPs of the passes of add_fft_passes(). Each output element of a pass is a sum of as many products as the radix. A complex
// product takes 4 multiplications and 4 additions, or half of that if a factor or the result is real.
static uint64_t count_fft_flops(const DftGeometry& t) {
  const auto radices = choose_radices(t.length);
  int64_t flop = 0;
  for (size_t i = 0; i < radices.size(); ++i) {
    const bool last = i + 1 == radices.size(), is_real = (i == 0 && t.components == 1) || (last && t.result == 1);
    flop += t.outer * (last ? t.num_results : t.length) * t.inner * radices[i] * (is_real ? 4 : 8);
  }
  return static_cast<uint64_t>(flop);
}

uint64_t count_dft_flops(const LowerContext& node) {
  return count_fft_flops(make_dft_geometry(node));
}

uint64_t count_stft_flops(const LowerContext& node) {
  return count_fft_flops(make_stft_geometry(node));
}

void lower_dft(LowerContext& node) {
  add_fft_passes(node, make_dft_geometry(node), false);
}

void lower_stft(LowerContext& node) {
  add_fft_passes(node, make_stft_geometry(node), node.has_input(2));
}

// Lowers MelWeightMatrix. The band edges are equidistant on the mel scale, and are rounded down to spectrum bins.
void lower_mel_weights(LowerContext& node) {
  const auto real = [&](size_t i) { return node.host_tensor(i)->as_double().at(0); };
  const int64_t bins = node.output(0).shape[1];
  const double length = real(1), rate = real(2);
  const auto mel = [](double hertz) { return 2595 * std::log1p(hertz / 700) / std::numbers::ln10; };
  const double low = mel(real(3)), step = (mel(real(4)) - low) / static_cast<double>(bins + 2);
  std::vector<std::byte> edges(static_cast<size_t>(bins + 2) * sizeof(int32_t));
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * std::expm1((static_cast<double>(i) * step + low) / 2595 * std::numbers::ln10);
    const auto edge = static_cast<int32_t>(std::floor((length + 1) * hertz / rate));
    std::memcpy(edges.data() + static_cast<size_t>(i) * sizeof edge, &edge, sizeof edge);
  }
  add_contiguous_float_output(node, 0, "mel_weights.comp", {},
                              [&](StepBuilder& builder) { builder.bind("edge", node.add_host_block(edges)).set("bins", bins); });
}

}  // namespace pumice
