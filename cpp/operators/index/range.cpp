// Lowers Range, an arithmetic sequence whose start, limit and delta the host knows.
#include <algorithm>
#include <bit>

#include "core/error.h"
#include "operators/index/lowerings.h"
#include "operators/reduction/reduce.h"

namespace pumice {
namespace {

struct RangeGlsl {
  const char *type, *value, *count;
};

RangeGlsl get_range_glsl(DType dtype) {
  if (dtype == DType::float64) return {"double", "packDouble2x32(uvec2(v[0], v[1]))", "double(i)"};
  if (dtype == DType::int64) return {"int64_t", "int64_t(packUint2x32(uvec2(v[0], v[1])))", "int64_t(i)"};
  if (is_float(dtype)) return {"float", "uintBitsToFloat(v[0])", "float(i)"};
  return {"int", "int(v[0])", "int(i)"};
}

// Returns the bits of a scalar as 32-bit words.
std::vector<int64_t> split_into_words(const HostTensor& number, DType dtype) {
  const bool is_fp64 = dtype == DType::float64;
  const uint64_t bits = is_fp64           ? std::bit_cast<uint64_t>(number.as_double()[0])
                        : is_float(dtype) ? std::bit_cast<uint32_t>(static_cast<float>(number.as_double()[0]))
                                          : static_cast<uint64_t>(number.as_int64()[0]);
  return {static_cast<int64_t>(bits & 0xffffffffu), static_cast<int64_t>(bits >> 32)};
}

}  // namespace

void lower_range(LowerContext& node) {
  const TensorDesc& y = node.output(0);
  if (y.elements() == 0) return;
  if (!y.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': a range into a strided tensor");
  node.check_arithmetic(y.dtype);
  for (const size_t i : {0, 2})
    if (!node.host_tensor(i)) throw UnsupportedError("node '" + std::string(node.node) + "': a range whose ends are not known on the host");
  const RangeGlsl types = get_range_glsl(y.dtype);
  Macros macros = make_element_macros("y", y.dtype);
  macros.insert(macros.end(), {{"VALUE(v)", types.value}, {"COUNT(i)", types.count}, {"NUMBER", types.type}});
  const auto kernel = node.kernel("range.comp", y.dtype, macros);
  constexpr int64_t kBindingGranularity = 256;  // bindings start at multiples of this, in elements
  const int64_t element_bits = bits(y.dtype),
                max_elements = max_binding_bytes(*node.context) * 8 / element_bits / kBindingGranularity * kBindingGranularity;
  for (int64_t begin = 0; begin < y.elements(); begin += max_elements) {
    const int64_t count = std::min(max_elements, y.elements() - begin);
    StepBuilder step(kernel);
    step.bind("y", node.output_operand(0), begin, count, static_cast<size_t>(element_bits)).set("elements", count).set("begin", begin);
    step.set("first", split_into_words(*node.host_tensor(0), y.dtype)).set("step", split_into_words(*node.host_tensor(2), y.dtype));
    node.add(step.set_threads(static_cast<uint64_t>(count)).build());
  }
}

}  // namespace pumice
