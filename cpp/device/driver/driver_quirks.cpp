#include "device/driver/driver_quirks.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/error.h"
#include "device/driver/vulkan.h"

namespace pumice {
namespace {

constexpr std::string_view kTest = "test_driver_bugs.py";

// A quirk for which the context uses only part of a limit.
constexpr QuirkKind make_limit_quirk(std::string_view name, std::string_view summary, std::string_view answer, std::string_view limit,
                                     uint64_t value) {
  return {name, summary, answer, kTest, {}, limit, value};
}

// A quirk that no workaround can replace.
constexpr QuirkKind make_fatal_quirk(std::string_view name, std::string_view summary) {
  return {name, summary, "The engine's kernels are refused.", kTest, {}, {}, 0, true};
}

constexpr std::array kKinds = {
    QuirkKind{"unrolled_contraction", "Ignores NoContraction in loops that it unrolls.", "No loop is marked for unrolling.",
              "test_driver_quirks.py: unrolled loops"},
    QuirkKind{"loop_limit", "Ends a loop silently after 65,535 iterations, inner loops included.",
              "The engine's kernels that would exceed this are refused, and user kernels that did raise UnsupportedError; a WHILE on the "
              "device continues in its next dispatch.",
              "test_driver_quirks.py: long loops"},
    QuirkKind{"inexact_division", "Does not round a float32 quotient to nearest.", "The remainder corrects the quotient.",
              "test_driver_quirks.py: quotients"},
    QuirkKind{"inexact_square_root", "Does not round a float32 square root to nearest.", "The residual of its square corrects the root.",
              "test_driver_quirks.py: roots"},
    QuirkKind{"inexact_rounding", "floor, ceil, trunc or roundEven of a float32 is a wrong integer, or a zero with the wrong sign.",
              "Rounding uses bit operations.", "test_driver_quirks.py: integers"},
    QuirkKind{"inexact_unsigned", "Does not round to nearest when it converts uint32 to float32.",
              "The two 16-bit halves are converted and added.", "test_driver_quirks.py: unsigned"},
    QuirkKind{"unfused_multiply_add", "Rounds the product in fma().", "Remainders and residuals are computed from split factors.",
              "test_driver_quirks.py: quotients"},
    QuirkKind{"flushed_denormals", "Flushes float32 denormals to zero in some operations.",
              "An operation that treats its operand as zero returns zero.", "test_driver_quirks.py: denormal"},
    QuirkKind{"inexact_arithmetic",
              "Does not round a sum, a product or a conversion to nearest.",
              "The engine's kernels are refused.",
              "test_driver_quirks.py: sums",
              {},
              {},
              0,
              true},
    QuirkKind{
        "texel_overflow",
        "Stores infinity and numbers beyond the fp16 range as NaN in fp16 texels; these and NaN also change the texel's next element.",
        "The image functions store numbers that the driver converts to infinity and NaN.", "test_image_functions.py"},
    QuirkKind{"number_of_nan", "Returns a number for exp and log of NaN.", "Kernels test for NaN explicitly.",
              "test_driver_quirks.py: NaN"},
    QuirkKind{"int64_comparison", "Compares an int64 that was converted from an int32 wrong with constants.",
              "The bitwise complements are compared.", "test_int64_comparisons.py"},
    QuirkKind{"other_matrix_layout", "Uses another fragment layout for cooperative matrices than attention_mma.comp and gemm_mma.comp.",
              "Attention scores and operands of GEMM and convolutions pass through shared memory.", "test_driver_quirks.py: matrices"},
    QuirkKind{
        "emulated_fragments", "None: simulates cooperative matrices in tests.",
        "GEMM with block-quantised weights, split-fp16 GEMM for float32, convolutions with several taps, and attention emulate "
        "fragments in shared memory, slowly.",
        "test_gemm_quant_mma.py, test_gemm_split_fp16.py, test_conv_halo.py, test_conv_few_channels.py, test_attention_decode_mma.py, "
        "test_attention_mma.py"},
    QuirkKind{"told_spills", "None: simulates register spills in tests.",
              "Kernels with workgroups of 256 invocations and more count as spilling.", "test_register_spills.py"},
    QuirkKind{"wrong_subgroup_size", "Runs subgroups of another size than it reports, or elects several invocations.",
              "Subgroup operations are not used.", kTest,
              "subgroupBasic subgroupVote subgroupArithmetic subgroupBallot subgroupShuffle subgroupShuffleRelative subgroupClustered "
              "subgroupQuad "
              "subgroupRotate subgroupPartitioned subgroupSizeControl computeFullSubgroups cooperativeMatrix"},
    QuirkKind{"wrong_shuffle", "subgroupShuffle, subgroupShuffleXor or a relative shuffle reads another invocation.",
              "Shuffles are not used: invocations exchange values through shared memory.", kTest,
              "subgroupShuffle subgroupShuffleRelative subgroupClustered subgroupRotate"},
    QuirkKind{"wrong_subgroup_arithmetic", "A subgroup sum, minimum, maximum or scan is wrong.", "Subgroup arithmetic is not used.", kTest,
              "subgroupArithmetic subgroupClustered"},
    QuirkKind{"wrong_ballot", "A subgroup ballot, vote or broadcast is wrong.", "Ballots, votes and broadcasts are not used.", kTest,
              "subgroupBallot subgroupVote subgroupBroadcastDynamicId"},
    QuirkKind{"wrong_8bit_storage", "A store of 8 bits changes its neighbours, or a load reads them.",
              "Elements of 8 bits are packed into words.", kTest, "storageBuffer8BitAccess uniformAndStorageBuffer8BitAccess"},
    QuirkKind{"wrong_16bit_storage", "A store of 16 bits changes its neighbour, or a load reads it.",
              "Elements of 16 bits are packed into words.", kTest, "storageBuffer16BitAccess uniformAndStorageBuffer16BitAccess"},
    QuirkKind{"wrong_float16", "fp16 arithmetic is wrong, or exp does not overflow to infinity.", "fp16 arithmetic is not used.", kTest,
              "shaderFloat16"},
    QuirkKind{"wrong_int16", "16-bit integer arithmetic is wrong.", "16-bit integer arithmetic is not used.", kTest, "shaderInt16"},
    QuirkKind{"wrong_int8", "8-bit integer arithmetic is wrong.", "8-bit integer arithmetic is not used.", kTest, "shaderInt8"},
    QuirkKind{"wrong_int64", "64-bit integer arithmetic is wrong.", "64-bit integers are emulated with pairs of words.", kTest,
              "shaderInt64 shaderBufferInt64Atomics shaderSharedInt64Atomics"},
    QuirkKind{"wrong_int64_atomics", "Atomic operations on 64-bit integers are wrong.", "They are not used.", kTest,
              "shaderBufferInt64Atomics shaderSharedInt64Atomics"},
    QuirkKind{"wrong_float64", "float64 arithmetic is wrong.", "float64 arithmetic is not used.", kTest, "shaderFloat64"},
    QuirkKind{"wrong_float_atomics", "Atomic additions of floats are wrong.", "They are not used.", kTest,
              "shaderBufferFloat32AtomicAdd shaderSharedFloat32AtomicAdd"},
    QuirkKind{"wrong_dot_product", "Integer dot products are wrong.", "They are not used.", kTest, "shaderIntegerDotProduct"},
    QuirkKind{"wrong_matrices", "A product of cooperative matrices is wrong.", "Cooperative matrices are not used.", kTest,
              "cooperativeMatrix shaderBFloat16CooperativeMatrix"},
    QuirkKind{"wrong_conditional_rendering", "Ignores the condition of a dispatch, or skips it although the condition holds.",
              "Conditional dispatches use indirect workgroup counts.", kTest, "conditionalRendering"},
    make_limit_quirk("small_workgroups", "Does not run workgroups of the size that it reports.", "Workgroups have at most 128 invocations.",
                     "maxComputeWorkGroupInvocations", 128),
    make_limit_quirk("small_shared_memory", "Has less shared memory than it reports.", "Kernels use at most 16 KiB of shared memory.",
                     "maxComputeSharedMemorySize", 16384),
    make_limit_quirk("short_push_constants", "Drops push constants within the limit that it reports.", "Kernels use at most 128 bytes.",
                     "maxPushConstantsSize", 128),
    make_limit_quirk("coarse_offsets", "Rounds the offset of a bound buffer range.", "Ranges begin at multiples of 256 bytes.",
                     "minStorageBufferOffsetAlignment", 256),
    make_fatal_quirk("wrong_integers", "32-bit integer arithmetic or the conversion of packed fp16 pairs is wrong."),
    make_fatal_quirk("wrong_workgroups", "Barriers, shared memory, push constants or specialization constants are wrong."),
    make_fatal_quirk("wrong_atomics", "Atomic operations on 32-bit integers are wrong."),
    make_fatal_quirk("wrong_grids", "A direct or indirect dispatch does not run all its workgroups, or runs them at wrong places."),
    make_fatal_quirk("missing_barriers", "A dispatch reads memory before an earlier dispatch has written it, despite a barrier."),
    make_fatal_quirk("wrong_transfers", "A fill or a copy of a buffer does not write all bytes."),
    QuirkKind{"attention_crash", "Crashes in decode attention that reduces in shared memory.",
              "Decode attention uses subgroup operations, even if it spills registers.", "test_register_spills.py"},
};
static_assert(kKinds.size() == static_cast<size_t>(Quirk::attention_crash) + 1);
static_assert(kKinds.size() <= 64);

// A range of driver versions [first, end), encoded as VkPhysicalDeviceProperties::driverVersion.
struct KnownQuirk {
  uint32_t driver;
  uint32_t first, end;
  Quirk quirk;
};

constexpr KnownQuirk kKnownQuirks[] = {
    {VK_DRIVER_ID_GOOGLE_SWIFTSHADER, 0, UINT32_MAX, Quirk::unrolled_contraction},
    {VK_DRIVER_ID_GOOGLE_SWIFTSHADER, 0, UINT32_MAX, Quirk::texel_overflow},
    {VK_DRIVER_ID_GOOGLE_SWIFTSHADER, 0, UINT32_MAX, Quirk::number_for_nan},
    // Wrong in Mesa 22.3, right in 25.0; versions between are untested. The workaround costs two instructions.
    {VK_DRIVER_ID_MESA_LLVMPIPE, 0, VK_MAKE_API_VERSION(0, 25, 0, 0), Quirk::int64_comparison},
    // Seen on an H200 with 580.159.04, in heads of 32 elements.
    {VK_DRIVER_ID_NVIDIA_PROPRIETARY, 0, UINT32_MAX, Quirk::attention_crash},
};

}  // namespace

std::span<const QuirkKind> list_quirk_kinds() {
  return kKinds;
}

std::string_view name(Quirk quirk) {
  return kKinds[static_cast<size_t>(quirk)].name;
}

QuirkSet QuirkSet::from_names(const std::vector<std::string>& names) {
  QuirkSet set;
  for (const std::string& name : names) {
    const auto kind = std::ranges::find(kKinds, name, &QuirkKind::name);
    if (kind == kKinds.end()) {
      std::string all;
      for (const QuirkKind& known_kind : kKinds) all += (all.empty() ? "" : ", ") + std::string(known_kind.name);
      throw UnsupportedError("quirks: expected names among " + all + "; given '" + name + "'");
    }
    set.add(static_cast<Quirk>(kind - kKinds.begin()));
  }
  return set;
}

QuirkSet find_known_quirks(const DeviceInfo& device) {
  QuirkSet set;
  for (const KnownQuirk& entry : kKnownQuirks)
    if (entry.driver == device.driver_id && device.driver_version >= entry.first && device.driver_version < entry.end) set.add(entry.quirk);
  return set;
}

}  // namespace pumice
