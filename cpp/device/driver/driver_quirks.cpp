#include "device/driver/driver_quirks.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/error.h"
#include "device/driver/vulkan.h"

namespace pumice {
namespace {

constexpr std::array kKinds = {
    QuirkKind{"unrolled_contraction",
              "In loops that the driver unrolls it takes operations that are marked NoContraction for those of real numbers.",
              "No loop is marked to be unrolled.", "test_driver_quirks.py: unrolled loops"},
    QuirkKind{"loop_limit", "A loop ends silently after 65,535 iterations, inner ones counted.",
              "Kernels that would loop more often are refused, and users' kernels that did so raise UnsupportedError; a WHILE on the "
              "device goes on in "
              "its next dispatch.",
              "test_driver_quirks.py: long loops"},
    QuirkKind{"inexact_division", "A quotient of float32 is not always the nearest number.",
              "The quotient is put right by what is left of the division.", "test_driver_quirks.py: quotients"},
    QuirkKind{"inexact_square_root", "A square root of float32 is not always the nearest number.",
              "The root is put right by what is left of its square.", "test_driver_quirks.py: roots"},
    QuirkKind{"inexact_rounding", "floor, ceil, trunc or roundEven of a float32 is another integer, or a zero of the other sign.",
              "Floats are rounded to integers by their bits.", "test_driver_quirks.py: integers"},
    QuirkKind{"inexact_unsigned", "The float32 of a uint32 is not always the nearest number.", "It is the sum of those of its halves.",
              "test_driver_quirks.py: unsigned"},
    QuirkKind{"unfused_multiply_add", "fma() rounds the product.",
              "What is left of a division or a square root is found by parts of the factors.", "test_driver_quirks.py: quotients"},
    QuirkKind{"flushed_denormals", "Numbers below the smallest normal float32 count as zero in some operations.",
              "What an operation takes for zero, it gives as zero.", "test_driver_quirks.py: denormal"},
    QuirkKind{"inexact_arithmetic", "A sum, a product or a conversion is not the nearest number.",
              "None: the engine's kernels are refused.", "test_driver_quirks.py: sums"},
    QuirkKind{"texel_overflow",
              "Infinity and numbers beyond halves are NaN as texels of halves, and they and NaN change the texel's next element.",
              "The image functions store numbers of which the driver makes infinity and NaN.", "test_image_functions.py"},
    QuirkKind{"number_of_nan", "Exponentials and logarithms of NaN are numbers.", "NaN is told apart from what they are taken of.",
              "test_driver_quirks.py: NaN"},
    QuirkKind{"int64_comparison", "The comparison of an int64 that was converted from an int32 with a constant is wrong.",
              "The complements are compared.", "test_int64_comparisons.py"},
    QuirkKind{"other_matrix_layout",
              "The components of a matrix are not held by the invocations that attention_quads.comp and product_quads.comp take them to be "
              "held by.",
              "Scores of attention and operands of products and convolutions pass through shared memory.",
              "test_driver_quirks.py: matrices"},
    QuirkKind{"emulated_fragments", "None: for tests of what matrix units would do, where there are none.",
              "Products with matrices in blocks, products in float32 as sums of two halves, convolutions of several taps, and attention "
              "emulate the units in shared memory, slowly.",
              "test_block_fragments.py, test_product_halves.py, test_conv_halo.py, test_conv_taps.py, test_attention_row_quads.py, "
              "test_attention_quads.py"},
    QuirkKind{"told_spills", "None: for tests of what is done about kernels that spill, as a driver tells it.",
              "Kernels with workgroups of 256 invocations and more count as such.", "test_spilled_variants.py"},
};
static_assert(kKinds.size() == static_cast<size_t>(Quirk::told_spills) + 1);

// A range of driver versions [first, end), encoded as VkPhysicalDeviceProperties::driverVersion.
struct Known {
  uint32_t driver;
  uint32_t first, end;
  Quirk quirk;
};

constexpr Known kKnown[] = {
    {VK_DRIVER_ID_GOOGLE_SWIFTSHADER, 0, UINT32_MAX, Quirk::unrolled_contraction},
    {VK_DRIVER_ID_GOOGLE_SWIFTSHADER, 0, UINT32_MAX, Quirk::texel_overflow},
    {VK_DRIVER_ID_GOOGLE_SWIFTSHADER, 0, UINT32_MAX, Quirk::number_of_nan},
    // Mesa 22.3 is wrong and 25.0 is right; versions between were not tried, and the answer costs two instructions.
    {VK_DRIVER_ID_MESA_LLVMPIPE, 0, VK_MAKE_API_VERSION(0, 25, 0, 0), Quirk::int64_comparison},
};

}  // namespace

std::span<const QuirkKind> quirk_kinds() {
  return kKinds;
}

std::string_view name(Quirk quirk) {
  return kKinds[static_cast<size_t>(quirk)].name;
}

QuirkSet QuirkSet::named(const std::vector<std::string>& names) {
  QuirkSet set;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(kKinds, name, &QuirkKind::name);
    if (found == kKinds.end()) {
      std::string all;
      for (const QuirkKind& kind : kKinds) all += (all.empty() ? "" : ", ") + std::string(kind.name);
      throw UnsupportedError("quirks: some of " + all + " expected; given '" + name + "'");
    }
    set.add(static_cast<Quirk>(found - kKinds.begin()));
  }
  return set;
}

QuirkSet known_quirks(const DeviceInfo& device) {
  QuirkSet set;
  for (const Known& known : kKnown)
    if (known.driver == device.driver_id && device.driver_version >= known.first && device.driver_version < known.end) set.add(known.quirk);
  return set;
}

}  // namespace pumice
