#include "operators/conv_gemm/generic_gemm.h"

#include <bit>
#include <cmath>

#include "core/error.h"
#include "operators/common/mixed_precision.h"
#include "operators/common/strided_copy.h"

namespace pumice {
namespace {

struct GlslElement {
  std::string type, element, load, store, number;
};

// Returns the GLSL of an array element. `storage`: the kernel's float storage type, from which single arrays may differ as float32.
GlslElement describe_glsl_element(const NodeContext& node, DType dtype, DType storage) {
  node.check_arithmetic(dtype);
  const auto plain = [](const std::string& type, const std::string& number) {
    return GlslElement{type, type, "t[i]", "y[i] = (v)", number};
  };
  switch (dtype) {
    case DType::float64:
      return plain("double", "packDouble2x32(uvec2(w[0], w[1]))");
    case DType::int32:
      return plain("int", "int(w[0])");
    case DType::uint32:
      return plain("uint", "w[0]");
    case DType::int64:
      return plain("int64_t", "int64_t(packUint2x32(uvec2(w[0], w[1])))");
    case DType::uint64:
      return plain("uint64_t", "packUint2x32(uvec2(w[0], w[1]))");
    default:
      if (dtype != storage) return plain("float", "uintBitsToFloat(w[0])");
      return {"float", "sfp", "pm_load(t, i)", "pm_store(y, i, v)", "uintBitsToFloat(w[0])"};
  }
}

std::vector<int64_t> encode_scalar(const NodeContext& node, DType dtype, double number) {
  if (!is_float(dtype) && number != std::trunc(number))
    throw UnsupportedError("node '" + std::string(node.node) + "': a product of " + std::string(name(dtype)) + " times " +
                           std::to_string(number));
  const uint64_t bits = dtype == DType::float64 ? std::bit_cast<uint64_t>(number)
                        : is_float(dtype)       ? std::bit_cast<uint32_t>(static_cast<float>(number))
                                                : static_cast<uint64_t>(static_cast<int64_t>(number));
  return {static_cast<int64_t>(bits & 0xffffffffu), static_cast<int64_t>(bits >> 32)};
}

}  // namespace

void add_generic_gemm(LowerContext& node, const TensorDesc& a, const TensorDesc& b, const TensorDesc& y, const std::optional<Strides>& c,
                      const GemmScalars& scalars) {
  if (y.elements() == 0) return;
  const auto batch = [](const std::vector<int64_t>& values) { return std::vector<int64_t>(values.begin(), values.end() - 2); };
  const auto last = [](const std::vector<int64_t>& values, size_t back) { return values[values.size() - back]; };
  IndexSpace space{batch(y.shape),
                   {compute_broadcast_strides(batch(a.shape), batch(a.strides), batch(y.shape)),
                    compute_broadcast_strides(batch(b.shape), batch(b.strides), batch(y.shape)), batch(y.strides)}};
  space.coalesce();
  space.pad_to(2, "node '" + std::string(node.node) + "'");
  std::vector<int64_t> size = space.sizes, a_stride = space.strides[0], b_stride = space.strides[1], y_stride = space.strides[2];
  size.insert(size.end(), {last(y.shape, 2), last(y.shape, 1)});
  a_stride.push_back(last(a.strides, 2));
  b_stride.push_back(last(b.strides, 1));
  y_stride.insert(y_stride.end(), {last(y.strides, 2), last(y.strides, 1)});
  const int64_t k = last(a.shape, 1);
  node.check_loop_limit(k);
  const DType c_dtype = c ? node.input(2).dtype : y.dtype;
  const DType storage = is_operator_float(y.dtype)
                            ? make_mixed_precision_arrays({{"A", a.dtype}, {"B", b.dtype}, {"C", c_dtype}, {"Y", y.dtype}}).storage
                            : y.dtype;
  const GlslElement y_glsl = describe_glsl_element(node, y.dtype, storage);
  Macros macros = {{"TYPE", y_glsl.type}, {"STORE(i, v)", y_glsl.store}, {"NUMBER(w)", y_glsl.number}};
  macros.insert(macros.end(), {{"ADDS", c ? "1" : "0"}, {"Y_ELEMENT", y_glsl.element}});
  for (const auto& [array, dtype] : {std::pair("A", a.dtype), std::pair("B", b.dtype), std::pair("C", c_dtype)}) {
    const GlslElement element = describe_glsl_element(node, dtype, storage);
    macros.emplace_back(std::string(array) + "_ELEMENT", element.element);
    macros.emplace_back("LOAD_" + std::string(array) + "(t, i)", element.load);
  }
  if (bits(y.dtype) == 64) macros.emplace_back(is_float(y.dtype) ? "PM_HAS_FLOAT64" : "PM_HAS_INT64", "1");
  macros.emplace_back("RESULT(v)", is_operator_float(y.dtype) ? "epilogue(v)" : "(v)");
  if (is_operator_float(y.dtype)) macros.emplace_back("EPILOGUE(x)", node.epilogue());
  StepBuilder step(node.kernel("gemm_generic.comp", storage, macros));
  step.bind("a", node.input_operand(0))
      .bind("b", node.input_operand(1))
      .bind("y", node.output_operand(0))
      .set("elements", y.elements())
      .set("k_size", k);
  step.set("size", size).set("a_stride", a_stride).set("b_stride", b_stride).set("y_stride", y_stride);
  step.set("a_step", last(a.strides, 1)).set("b_step", last(b.strides, 2));
  if (c) step.bind("c", node.input_operand(2)).set("c_stride", *c);
  step.set("alpha", encode_scalar(node, y.dtype, scalars.alpha)).set("beta", encode_scalar(node, y.dtype, scalars.beta));
  node.add(step.set_threads(static_cast<uint64_t>(y.elements())).build());
}

}  // namespace pumice
