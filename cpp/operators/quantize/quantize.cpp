// Lowers QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
#include "core/error.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/low_precision_cast.h"
#include "operators/quantize/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

// Returns the declared type of an array of quantised elements, and the GLSL that loads one.
std::pair<std::string, std::string> make_quantized_load(DType dtype, const std::string& t) {
  const bool is_signed = is_signed_integer(dtype);
  const std::string code = "LOW_PRECISION_LOAD(" + t + ", i)", width = std::to_string(bits(dtype));
  if (contains(kLowBitFloats, dtype)) return {"uint", "uintBitsToFloat(pm_decode_low_precision(" + code + "))"};
  if (is_low_bit(dtype)) return {"uint", is_signed ? "bitfieldExtract(int(" + code + "), 0, " + width + ")" : code};
  switch (bits(dtype)) {
    case 32:
      return {is_signed ? "int" : "uint", t + "[i]"};
    default:
      return {"uint", std::string("pm_load_") + (is_signed ? "i" : "u") + width + "(" + t + ", i)"};
  }
}

}  // namespace

bool pack_quantize(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 1) return false;
  pack_as_float32(node, input, 1, packed);
  return true;
}

namespace {

// How an element finds its scale: the axis size, the number of inner elements per axis index, the block length along the axis, and the
// strides of the scale.
struct ScaleIndexing {
  int64_t size, inner = 1, block, outer_stride = 0, block_stride = 0, inner_stride = 0;
};

ScaleIndexing compute_scale_indexing(const LowerContext& node) {
  const TensorDesc &x = node.input(0), &scale = node.input(1);
  const int64_t length = node.attributes->integer("block_size", 0);
  if (scale.elements() == 1 && length == 0) return {.size = x.elements(), .block = x.elements()};
  const int64_t declared_axis = node.attributes->integer("axis", 1);
  const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + x.rank() : declared_axis);
  const int64_t size = x.shape[axis], inner = packed_strides(x.shape)[axis];
  if (length == 0) return {.size = size, .inner = inner, .block = 1, .block_stride = 1};
  return {size, inner, length, scale.shape[axis] * inner, inner, 1};
}

}  // namespace

void lower_quantize(LowerContext& node) {
  const TensorDesc &x = node.input(0), &scale = node.input(1), &y = node.output(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !scale.is_packed() || !y.is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': " + std::string(node.row->name) + ": expected dense tensors, given " +
                           to_string(x) + ", the scale " + to_string(scale) + " and the output " + to_string(y));
  const bool quantizes = node.row->form == kQuantize;
  const DType quantized_dtype = quantizes ? y.dtype : x.dtype;
  const ScaleIndexing indexing = compute_scale_indexing(node);
  const int64_t elements_per_word = quantizes ? 32 / bits(quantized_dtype) : 1;
  const bool has_zero = node.has_input(2);
  Macros macros = {{"QUANTIZE", quantizes ? "1" : "0"},
                   {"HAS_ZERO_POINT", has_zero ? "1" : "0"},
                   {"ELEMENTS_PER_WORD", std::to_string(elements_per_word) + "u"}};
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  const auto append_load = [&](DType dtype, const std::string& t, const std::string& type, const std::string& load) {
    const auto [declared, load_glsl] = make_quantized_load(dtype, t);
    append({{type, declared}, {load, load_glsl}});
  };
  if (is_float(x.dtype))
    append(make_element_macros("x", x.dtype));
  else
    append_load(x.dtype, "x", "X_TYPE", "LOAD(i)");
  if (has_zero) append_load(quantized_dtype, "zero", "ZERO_TYPE", "LOAD_ZERO(i)");
  append({{"QUANTIZED_TYPE", contains(kLowBitFloats, quantized_dtype) ? "float" : "int"}, {"ROUND", "0"}});
  if (is_low_bit(quantized_dtype)) append(make_low_precision_macros(quantized_dtype));
  append(quantizes ? Macros{{"Y_TYPE", "uint"}} : make_element_macros("y", y.dtype));
  StepBuilder step(node.kernel("quantize.comp", quantizes ? x.dtype : y.dtype, macros));
  step.bind("x", node.input_operand(0)).bind("scale", node.get_packed_input(1)).bind("y", node.output_operand(0));
  if (has_zero) step.bind("zero", node.input_operand(2));
  const int width = bits(quantized_dtype);
  const bool is_signed = is_signed_integer(quantized_dtype);
  const int64_t highest = (int64_t{1} << (is_signed ? width - 1 : width)) - 1;
  step.set("saturates", quantizes ? node.attributes->integer("saturate", 1) : 0);
  step.set("lowest", quantizes && is_signed ? -highest - 1 : 0).set("highest", quantizes ? highest : 0);
  step.set("elements", x.elements()).set("size", indexing.size).set("inner", indexing.inner).set("block", indexing.block);
  step.set("s_outer", indexing.outer_stride).set("s_block", indexing.block_stride).set("s_inner", indexing.inner_stride);
  node.add(step.set_threads(static_cast<uint64_t>((x.elements() + elements_per_word - 1) / elements_per_word)).build());
}

// Computes scale and zero point from the minimum and maximum of x, and then quantises x like QuantizeLinear. The scale is first rounded to
// its dtype, so that the quantised values match the scale that is returned.
void lower_dynamic_quantize(LowerContext& node) {
  CompositeLowering composition(node);
  const TensorOperand x = composition.input(0).reshaped({node.input(0).elements()});
  const TensorOperand x_min = composition.add_reduction("ReduceMin", x, {0}), x_max = composition.add_reduction("ReduceMax", x, {0});
  const auto output_or_scratch = [&](size_t i, DType dtype) {
    return node.has_output(i) ? composition.output(i) : composition.allocate_scratch(dtype, {});
  };
  const TensorOperand scale = output_or_scratch(1, DType::float32), zero = output_or_scratch(2, DType::uint8);
  node.add(StepBuilder(node.kernel("dynamic_quantize_scale.comp", scale.desc.dtype))
               .bind("x_min", x_min.operand)
               .bind("x_max", x_max.operand)
               .bind("scale", scale.operand)
               .bind("zero", zero.operand)
               .build());
  if (node.has_output(0))
    composition.add_operator("QuantizeLinear", {}, {x, scale, zero}, composition.output(0).reshaped({node.input(0).elements()}));
}

}  // namespace pumice
