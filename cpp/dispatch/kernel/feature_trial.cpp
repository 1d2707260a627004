#include "dispatch/kernel/feature_trial.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/half.h"
#include "core/log.h"
#include "device/command_buffer.h"
#include "dispatch/kernel/coopmat_support.h"
#include "dispatch/kernel/kernel_options.h"
#include "dispatch/kernel/trial_run.h"
#include "shader/shader.h"
#include "shader/source/embedded_shaders.h"

namespace pumice {
namespace {

constexpr std::string_view kFeatureShader = "feature_test.comp", kGridShader = "grid_test.comp";
constexpr uint32_t kVersion = 1;  // increment if operands or expected results change, to invalidate cached results
constexpr uint32_t kMarker = 0x600d0000, kInvocations = 64, kOperands = 16, kMaxInvocations = 1024, kScratchWords = 1408;
constexpr uint32_t kEcho = 0x5eed;  // specialization constant that the shader compares with a literal
constexpr uint64_t kMaxPushBytes = 256;

// Sections of feature_test.comp.
enum Section : uint32_t {
  kIntegers,
  kWorkgroup,
  kAtomics,
  kSubgroupSize,
  kSubgroupOperations,
  kStorage8,
  kStorage16,
  kFloat16,
  kInt16,
  kInt8,
  kInt64,
  kInt64Atomics,
  kFloat64,
  kFloatAtomics,
  kDotProduct,
  kMatrix,
  kSections
};

// A section that needs a feature, with the macro that compiles it.
struct FeatureSection {
  Section section;
  std::string_view feature;
  const char* macro;
  Quirk quirk;
};
constexpr FeatureSection kFeatureSections[] = {
    {kStorage8, "storageBuffer8BitAccess", "HAS_STORAGE8", Quirk::wrong_8bit_storage},
    {kStorage16, "storageBuffer16BitAccess", "HAS_STORAGE16", Quirk::wrong_16bit_storage},
    {kFloat16, "shaderFloat16", "HAS_FLOAT16", Quirk::wrong_float16},
    {kInt16, "shaderInt16", "HAS_INT16", Quirk::wrong_int16},
    {kInt8, "shaderInt8", "HAS_INT8", Quirk::wrong_int8},
    {kInt64, "shaderInt64", "HAS_INT64", Quirk::wrong_int64},
    {kInt64Atomics, "shaderBufferInt64Atomics", "HAS_ATOMIC_INT64", Quirk::wrong_int64_atomics},
    {kFloat64, "shaderFloat64", "HAS_FLOAT64", Quirk::wrong_float64},
    {kFloatAtomics, "shaderBufferFloat32AtomicAdd", "HAS_ATOMIC_FLOAT", Quirk::wrong_float_atomics},
    {kDotProduct, "shaderIntegerDotProduct", "HAS_DOT_PRODUCT", Quirk::wrong_dot_product},
};

// Subgroup operations, with the bits of the failed checks of each.
struct SubgroupOperations {
  std::string_view feature;
  const char* macro;
  uint32_t checks;
  Quirk quirk;
};
constexpr SubgroupOperations kSubgroupChecks[] = {
    {"subgroupShuffle", "HAS_SHUFFLE", 0x7, Quirk::wrong_shuffle},
    {"subgroupShuffleRelative", "HAS_SHUFFLE_RELATIVE", 0x18, Quirk::wrong_shuffle},
    {"subgroupArithmetic", "HAS_ARITHMETIC", 0x1f00, Quirk::wrong_subgroup_arithmetic},
    {"subgroupBallot", "HAS_BALLOT", 0x30000, Quirk::wrong_ballot},
    {"subgroupVote", "HAS_VOTE", 0x1000000, Quirk::wrong_ballot},
};

bool has_section(const DeviceInfo& device, const FeatureSection& section) {
  return device.feature(section.feature) && (section.section != kInt64Atomics || device.feature("shaderInt64"));
}

bool has_fp16_matrices(const DeviceInfo& device) {
  return device.feature("shaderFloat16") && device.feature("storageBuffer16BitAccess") && device.matrix_subgroup_size() == 32 &&
         supports_coopmat(device, 16, DType::float16, DType::float32);
}

// Modules compiled from feature_test.comp.
enum class Part { features, workgroup, subgroup, matrix };

Macros make_macros(const DeviceInfo& device, Part part) {
  constexpr const char* kParts[] = {"PART_FEATURES", "PART_WORKGROUP", "PART_SUBGROUP", "PART_MATRIX"};
  Macros macros{{kParts[static_cast<size_t>(part)], "1"},
                {"PUSH_WORDS", std::to_string(std::min(device.limit("maxPushConstantsSize"), kMaxPushBytes) / 4) + "u"}};
  for (const FeatureSection& section : kFeatureSections)
    if (part == Part::features && has_section(device, section)) macros.emplace_back(section.macro, "1");
  for (const SubgroupOperations& operations : kSubgroupChecks)
    if (part == Part::subgroup && device.feature(operations.feature)) macros.emplace_back(operations.macro, "1");
  return macros;
}

// ---- operands and expected results

// The words x[section][operand][64].
class Operands {
 public:
  Operands() : words_(kSections * kOperands * kInvocations) {}
  uint32_t& at(Section section, uint32_t operand, uint32_t i) { return words_[(section * kOperands + operand) * kInvocations + i]; }
  void set_float(Section section, uint32_t operand, uint32_t i, double value) {
    at(section, operand, i) = std::bit_cast<uint32_t>(static_cast<float>(value));
  }
  void set_64(Section section, uint32_t operand, uint32_t i, uint64_t bits) {
    at(section, operand, i) = static_cast<uint32_t>(bits), at(section, operand + 1, i) = static_cast<uint32_t>(bits >> 32);
  }
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  std::vector<uint32_t> words_;
};

uint64_t next_random(uint64_t& state) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

void set_integer_operands(Operands& x, uint32_t i, uint64_t& random) {
  const auto ua = static_cast<uint32_t>(next_random(random)), ub = static_cast<uint32_t>(next_random(random) >> (i % 32 + 8)) | 1u;
  const auto a = static_cast<int32_t>(ua), b = static_cast<int32_t>(ub);
  const uint32_t results[] = {static_cast<uint32_t>(int64_t{a} / b),
                              ua / ub,
                              ua % ub,
                              static_cast<uint32_t>(uint64_t{ua} * ub >> 32),
                              static_cast<uint32_t>(static_cast<int32_t>(ua << (25 - (i & 15u))) >> 25),
                              static_cast<uint32_t>(a >> (i & 31u)),
                              ua >> (i & 31u),
                              static_cast<uint32_t>(std::bit_width(ua)) - 1u,
                              static_cast<uint32_t>(std::popcount(ua))};
  x.at(kIntegers, 0, i) = ua, x.at(kIntegers, 1, i) = ub;
  for (uint32_t k = 0; k < std::size(results); ++k) x.at(kIntegers, 2 + k, i) = results[k];
  const uint16_t halves[] = {static_cast<uint16_t>(0x0400 + next_random(random) % 0x7800),
                             static_cast<uint16_t>(0x8400 + i * 401 % 0x7800)};
  x.at(kIntegers, 11, i) = halves[0] | uint32_t{halves[1]} << 16;
  x.at(kIntegers, 14, i) = 0x7fc00000u | (static_cast<uint32_t>(next_random(random)) & 0x803fffffu);  // NaN
  for (uint32_t k = 0; k < 2; ++k) x.set_float(kIntegers, 12 + k, i, float_from_half(halves[k]));
}

template <typename T>
void set_small_integer_operands(Operands& x, Section section, uint32_t i, uint64_t& random) {
  const auto a = static_cast<T>(next_random(random)), b = static_cast<T>(next_random(random));
  const auto widen = [](T value) { return static_cast<uint32_t>(static_cast<int32_t>(value)); };
  const uint32_t values[] = {widen(a), widen(b), widen(static_cast<T>(a * b)), widen(static_cast<T>(a >> 3)), a < b};
  for (uint32_t k = 0; k < std::size(values); ++k) x.at(section, k, i) = values[k];
}

void set_int64_operands(Operands& x, uint32_t i, uint64_t& random) {
  const uint64_t ua = next_random(random), ub = next_random(random) >> i % 61 | 1u;
  const auto a = static_cast<int64_t>(ua), b = static_cast<int64_t>(ub);
  x.set_64(kInt64, 0, i, ua), x.set_64(kInt64, 2, i, ub), x.set_64(kInt64, 4, i, ua + ub), x.set_64(kInt64, 6, i, ua * ub);
  x.set_64(kInt64, 8, i, static_cast<uint64_t>(a >> (i & 63u)));
  x.set_64(kInt64, 10, i, static_cast<uint64_t>(a / b));
  x.at(kInt64, 12, i) = a < b, x.at(kInt64, 13, i) = ua < ub;
  x.set_float(kInt64, 14, i, std::ldexp(static_cast<double>(a >> 40), 20));
}

void set_float64_operands(Operands& x, uint32_t i, uint64_t& random) {
  const double a = std::ldexp(static_cast<double>(next_random(random) >> 11), static_cast<int>(i % 9) - 60);
  const double b = -std::ldexp(static_cast<double>(next_random(random) >> 11), static_cast<int>(i % 5) - 58);
  const volatile double sum = a + b, product = a * b;
  x.set_64(kFloat64, 0, i, std::bit_cast<uint64_t>(a)), x.set_64(kFloat64, 2, i, std::bit_cast<uint64_t>(b));
  x.set_64(kFloat64, 4, i, std::bit_cast<uint64_t>(double{sum})), x.set_64(kFloat64, 6, i, std::bit_cast<uint64_t>(double{product}));
  x.set_float(kFloat64, 8, i, a);
  x.at(kFloat64, 9, i) = static_cast<uint32_t>(i * 262147);
}

void set_dot_product_operands(Operands& x, uint32_t i, uint64_t& random) {
  const auto a = static_cast<uint32_t>(next_random(random)), b = static_cast<uint32_t>(next_random(random));
  int32_t signed_sum = 0;
  uint32_t sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    sum += (a >> shift & 255) * (b >> shift & 255);
    signed_sum += static_cast<int8_t>(a >> shift & 255) * static_cast<int8_t>(b >> shift & 255);
  }
  x.at(kDotProduct, 0, i) = a, x.at(kDotProduct, 1, i) = b;
  x.at(kDotProduct, 2, i) = static_cast<uint32_t>(signed_sum), x.at(kDotProduct, 3, i) = sum;
}

Operands make_operands() {
  Operands x;
  uint64_t random = 88172645463325252u;
  for (uint32_t i = 0; i < kInvocations; ++i) {
    set_integer_operands(x, i, random);
    // Sums and products that fp16 represents exactly.
    const double a = static_cast<double>(next_random(random) % 63) - 31, b = (static_cast<double>(next_random(random) % 31) - 15) / 4;
    x.set_float(kFloat16, 0, i, a), x.set_float(kFloat16, 1, i, b), x.set_float(kFloat16, 2, i, a + b), x.set_float(kFloat16, 3, i, a * b);
    x.set_float(kFloat16, 4, i, 11.5 + i * 0.25);
    set_small_integer_operands<int16_t>(x, kInt16, i, random);
    set_small_integer_operands<int8_t>(x, kInt8, i, random);
    set_int64_operands(x, i, random);
    set_float64_operands(x, i, random);
    set_dot_product_operands(x, i, random);
  }
  return x;
}

// ---- execution

// A dispatch of consecutive sections, one workgroup each.
struct SectionRun {
  Part part;
  Section first;
  uint32_t count = 1;
  uint32_t invocations = kInvocations;
  uint32_t shared_words = kInvocations;
  uint32_t subgroup_size = 0;           // required size; 0: chosen by the driver
  uint32_t expected_subgroup_size = 0;  // 0: any
};

class FeatureTrial {
 public:
  explicit FeatureTrial(std::shared_ptr<Context> context)
      : context_(std::move(context)),
        info_(context_->info()),
        operands_(make_filled_buffer(context_, make_operands().words())),
        push_(std::min(info_.limit("maxPushConstantsSize"), kMaxPushBytes) / 4) {
    for (uint32_t k = 0; k < push_.size(); ++k) push_[k] = k * 97 + 5;
  }

  QuirkSet run() {
    test_features();
    test_workgroups();
    if (info_.feature("subgroupBasic")) test_subgroups();
    if (has_fp16_matrices(info_) && run_sections({Part::matrix, kMatrix, 1, 32, kInvocations, 32})[0] != 0)
      quirks_.add(Quirk::wrong_matrices);
    test_grids();
    test_offsets_and_transfers();
    return quirks_;
  }

 private:
  std::shared_ptr<const Shader> compile_trial(std::string_view name, const Macros& macros = {}) {
    return compile(std::string(get_embedded_shader(name)), std::string(name), make_device_options(*context_, StorageType::fp32), macros);
  }

  std::shared_ptr<const Shader> compile_part(Part part, uint32_t shared_words) {
    Macros macros = make_macros(info_, part);
    if (part == Part::workgroup) macros.emplace_back("SHARED_WORDS", std::to_string(shared_words) + "u");
    return compile_trial(kFeatureShader, macros);
  }

  // Returns the mask of failed checks of each section; all bits are set if an invocation stored nothing.
  std::vector<uint32_t> run_sections(const SectionRun& run) {
    const auto shader = compile_part(run.part, run.shared_words);
    const auto pipeline = make_trial_pipeline(
        *context_, *shader, {{0, 4, run.invocations}, {1, 4, run.first}, {2, 4, kEcho}, {3, 4, run.expected_subgroup_size}},
        run.subgroup_size);
    std::vector<uint32_t> scratch_words(kScratchWords), words(kSections * kMaxInvocations);
    scratch_words[2] = UINT32_MAX;  // for atomicMin
    const std::shared_ptr<Buffer> buffers[] = {operands_, make_filled_buffer(context_, words), make_filled_buffer(context_, scratch_words)};
    std::vector<BufferRange> ranges;
    for (const auto& binding : shader->interface.bindings) {
      const auto& buffer = buffers[binding.binding];
      ranges.push_back({buffer, 0, buffer->bytes()});
    }
    CommandBufferSizes sizes;
    sizes.sets = 1;
    sizes.descriptors[static_cast<size_t>(DescriptorKind::storage_buffer)] = static_cast<uint32_t>(ranges.size());
    CommandBuffer commands(context_, sizes);
    commands.begin();
    commands.write_descriptor_sets(std::array{DispatchResources{pipeline.get(), ranges, {}}});
    commands.dispatch(*pipeline, std::as_bytes(std::span(push_)).first(shader->interface.push_bytes), {run.count, 1, 1});
    commands.end();
    wait_for_trial(*context_, commands.submit());
    download({buffers[1], 0, buffers[1]->bytes()}, std::as_writable_bytes(std::span(words)));
    std::vector<uint32_t> failed(run.count);
    for (uint32_t k = 0; k < run.count; ++k)
      for (uint32_t i = 0; i < run.invocations; ++i) {
        const uint32_t word = words[(run.first + k) * kMaxInvocations + i];
        failed[k] |= word == 0 ? UINT32_MAX : word ^ kMarker;
      }
    return failed;
  }

  void test_features() {
    const auto failed = run_sections({Part::features, kIntegers, kSections});
    constexpr uint32_t kExpOfNan = 1 << 16;
    if ((failed[kIntegers] & ~kExpOfNan) != 0) quirks_.add(Quirk::wrong_integers);
    if ((failed[kIntegers] & kExpOfNan) != 0) quirks_.add(Quirk::number_for_nan);
    if (failed[kAtomics] != 0) quirks_.add(Quirk::wrong_atomics);
    for (const FeatureSection& section : kFeatureSections)
      if (failed[section.section] != 0 && has_section(info_, section)) quirks_.add(section.quirk);
  }

  // Tests workgroups at the limits of the device. If they fail, finds which limit is wrong.
  void test_workgroups() {
    constexpr uint32_t kMinInvocations = 128, kMinSharedWords = 4095, kPushCheck = 1 << 3;
    const auto invocations = static_cast<uint32_t>(
        std::min<uint64_t>({info_.limit("maxComputeWorkGroupInvocations"), info_.limit("maxComputeWorkGroupSize_0"), kMaxInvocations}));
    // The shader uses one further word of shared memory.
    const auto shared_words = static_cast<uint32_t>(std::min<uint64_t>(info_.limit("maxComputeSharedMemorySize"), 1 << 18) / 4) - 1;
    const auto test = [&](uint32_t size, uint32_t words) { return run_sections({Part::workgroup, kWorkgroup, 1, size, words})[0]; };
    if (test(invocations, shared_words) == 0) return;
    const uint32_t few = std::min(invocations, kMinInvocations), short_words = std::min(shared_words, kMinSharedWords);
    const uint32_t failed = test(few, short_words);
    if ((failed & ~kPushCheck) != 0) return quirks_.add(Quirk::wrong_workgroups);
    if ((test(invocations, short_words) & ~kPushCheck) != 0) quirks_.add(Quirk::small_workgroups);
    if ((test(few, shared_words) & ~kPushCheck) != 0) quirks_.add(Quirk::small_shared_memory);
    if (failed != 0) quirks_.add(push_.size() * 4 > 128 ? Quirk::short_push_constants : Quirk::wrong_workgroups);
  }

  void test_subgroups() {
    const auto size = static_cast<uint32_t>(info_.limit("subgroupSize"));
    const bool has_fixed_size = info_.feature("subgroupSizeControl") && info_.feature("computeFullSubgroups");
    for (const uint32_t required : {0u, size}) {
      if (required != 0 && !has_fixed_size) continue;
      // A driver may choose another size than the one that the engine requires.
      const uint32_t expected = required == 0 && has_fixed_size ? 0 : size;
      const auto failed = run_sections({Part::subgroup, kSubgroupSize, 2, std::max(kInvocations, size), kInvocations, required, expected});
      if (failed[0] != 0) return quirks_.add(Quirk::wrong_subgroup_size);
      for (const SubgroupOperations& operations : kSubgroupChecks)
        if ((failed[1] & operations.checks) != 0 && info_.feature(operations.feature)) quirks_.add(operations.quirk);
    }
  }

  // Binds a range at the smallest offset that the device allows, and fills and copies a buffer.
  void test_offsets_and_transfers() {
    constexpr uint32_t kWords = 1 << 10, kFilled = 0xabcd1234;
    const uint64_t offset = std::max<uint64_t>(info_.limit("minStorageBufferOffsetAlignment"), 4);
    const std::array<uint32_t, 3> groups{1, 1, kWords / 64};
    const auto shader = compile_trial(kGridShader);
    const auto pipeline = make_trial_pipeline(*context_, *shader, {{0, 4, 0}});
    const std::vector<uint32_t> empty(kWords);
    const auto result = make_filled_buffer(context_, std::vector<uint32_t>(kWords + offset / 4)),
               unused = make_filled_buffer(context_, empty);
    const auto filled = make_filled_buffer(context_, empty), copied = make_filled_buffer(context_, empty);
    const std::array<BufferRange, 2> ranges{BufferRange{unused, 0, kWords * 4}, {result, offset, kWords * 4}};
    CommandBufferSizes sizes;
    sizes.sets = 1;
    sizes.descriptors[static_cast<size_t>(DescriptorKind::storage_buffer)] = 2;
    CommandBuffer commands(context_, sizes);
    commands.begin();
    commands.write_descriptor_sets(std::array{DispatchResources{pipeline.get(), ranges, {}}});
    commands.dispatch(*pipeline, std::as_bytes(std::span(&kWords, 1)), groups);
    commands.fill({filled, 0, kWords * 4}, kFilled);
    commands.end();
    wait_for_trial(*context_, commands.submit());
    CommandBuffer copy(context_, {});
    copy.begin();
    const BufferRegion region{0, kWords * 4};
    copy.gather(*filled, std::span(&region, 1), {copied, 0, kWords * 4});
    copy.end();
    wait_for_trial(*context_, copy.submit());
    std::vector<uint32_t> words(kWords), written(kWords);
    for (uint32_t n = 0; n < kWords; ++n) written[n] = 3 * n + 1;
    download({result, offset, kWords * 4}, std::as_writable_bytes(std::span(words)));
    if (words != written) quirks_.add(offset < 256 ? Quirk::coarse_offsets : Quirk::wrong_grids);
    for (const auto& buffer : {filled, copied}) {
      download({buffer, 0, kWords * 4}, std::as_writable_bytes(std::span(words)));
      if (words != std::vector<uint32_t>(kWords, kFilled)) quirks_.add(Quirk::wrong_transfers);
    }
  }

  // Runs a grid, and after a barrier two that read its results: one indirect, one conditional.
  void test_grids() {
    constexpr std::array<uint32_t, 3> kGroups{19, 5, 3};
    constexpr uint32_t kCount = 19 * 5 * 3 * 64;
    const auto shader = compile_trial(kGridShader);
    const auto first = make_trial_pipeline(*context_, *shader, {{0, 4, 0}}), second = make_trial_pipeline(*context_, *shader, {{0, 4, 1}});
    const std::vector<uint32_t> empty(kCount);
    std::vector<std::shared_ptr<Buffer>> buffers;
    for (int k = 0; k < 5; ++k) buffers.push_back(make_filled_buffer(context_, empty));
    const auto control = make_filled_buffer(context_, std::vector<uint32_t>{kGroups[0], kGroups[1], kGroups[2], 0, 1});
    const bool has_conditional = info_.feature("conditionalRendering");
    CommandBufferSizes sizes;
    sizes.sets = has_conditional ? 5 : 3;
    sizes.descriptors[static_cast<size_t>(DescriptorKind::storage_buffer)] = sizes.sets * 2;
    sizes.guards = true;
    CommandBuffer commands(context_, sizes);
    commands.begin();
    const auto range = [&](int k) { return BufferRange{buffers[static_cast<size_t>(k)], 0, kCount * 4}; };
    const std::array<std::array<BufferRange, 2>, 5> ranges{
        {{range(1), range(0)}, {range(0), range(1)}, {range(0), range(2)}, {range(0), range(3)}, {range(0), range(4)}}};
    std::vector<DispatchResources> uses;
    for (uint32_t k = 0; k < sizes.sets; ++k) uses.push_back({k == 0 ? first.get() : second.get(), ranges[k], {}});
    commands.write_descriptor_sets(uses);
    const auto push = std::as_bytes(std::span(&kCount, 1));
    commands.dispatch(*first, push, kGroups);
    commands.barrier(true);
    commands.dispatch(*second, push, kGroups);
    commands.dispatch_indirect(*second, push, {control, 0, 12});
    for (uint64_t word = 0; has_conditional && word < 2; ++word) {
      commands.begin_conditional({control, 12 + 4 * word, 4});
      commands.dispatch(*second, push, kGroups);
      commands.end_conditional();
    }
    commands.end();
    wait_for_trial(*context_, commands.submit());
    judge_grids(buffers, kCount, has_conditional);
  }

  void judge_grids(const std::vector<std::shared_ptr<Buffer>>& buffers, uint32_t count, bool has_conditional) {
    std::vector<uint32_t> written(count), read(count);
    for (uint32_t n = 0; n < count; ++n) written[n] = 3 * n + 1;
    for (uint32_t n = 0; n < count; ++n) read[n] = written[7919 * n % count] + n;
    const auto holds = [&](size_t buffer, const std::vector<uint32_t>& expected) {
      std::vector<uint32_t> words(count);
      download({buffers[buffer], 0, buffers[buffer]->bytes()}, std::as_writable_bytes(std::span(words)));
      return words == expected;
    };
    if (!holds(0, written)) return quirks_.add(Quirk::wrong_grids);
    if (!holds(1, read))
      quirks_.add(Quirk::missing_barriers);
    else if (!holds(2, read))
      quirks_.add(Quirk::wrong_grids);
    if (has_conditional && (!holds(3, std::vector<uint32_t>(count)) || !holds(4, read))) quirks_.add(Quirk::wrong_conditional_rendering);
  }

  std::shared_ptr<Context> context_;
  const DeviceInfo& info_;
  std::shared_ptr<Buffer> operands_;
  std::vector<uint32_t> push_;
  QuirkSet quirks_;
};

// ---- results

QuirkSet find_feature_quirks(const std::shared_ptr<Context>& context) {
  const DeviceInfo& info = context->info();
  Sha256 key = hash_driver(info);
  key.add_field(get_embedded_shader(kFeatureShader)).add_field(get_embedded_shader(kGridShader)).add_field(static_cast<uint64_t>(kVersion));
  for (const char* limit :
       {"maxComputeWorkGroupInvocations", "maxComputeWorkGroupSize_0", "maxComputeSharedMemorySize", "maxPushConstantsSize"})
    key.add_field(info.limit(limit));
  return find_cached_quirks(info, std::move(key), [&] { return FeatureTrial(context).run(); });
}

// The quirks that the trial detected in a context's driver.
struct FeatureTrialQuirks {
  QuirkSet quirks;
};

}  // namespace

QuirkSet get_feature_trial_quirks(Context& context) {
  return context.attachment<FeatureTrialQuirks>()->quirks;
}

std::shared_ptr<Context> open_context(const ContextOptions& options) {
  auto context = Context::create(options);
  if (context->compile_only()) return context;
  const QuirkSet quirks = [&] {
    try {
      return find_feature_quirks(context);
    } catch (const DeviceLostError& error) {
      throw DeviceError("the driver '" + context->info().driver + "' of '" + context->info().name +
                        "' lost the device in the driver trial: " + error.what());
    }
  }();
  if (quirks.bits() != 0) {
    ContextOptions safe_options = options;
    for (size_t i = 0; i < list_quirk_kinds().size(); ++i)
      if (quirks.has(static_cast<Quirk>(i))) safe_options.quirks.emplace_back(list_quirk_kinds()[i].name);
    context->close();
    context = Context::create(safe_options);
  }
  context->attachment<FeatureTrialQuirks>()->quirks = quirks;
  return context;
}

}  // namespace pumice
