// Lowers QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
#include "core/error.h"
#include "operators/common/composition.h"
#include "operators/common/low_precision_cast.h"
#include "operators/quantize/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

// Declared type and load expression of quantised elements.
std::pair<std::string, std::string> quantized_load(DType dtype, const std::string& t) {
  const bool is_signed = is_signed_integer(dtype);
  const std::string code = "NARROW_LOAD(" + t + ", i)", width = std::to_string(bits(dtype));
  if (contains(kNarrowFloats, dtype)) return {"uint", "uintBitsToFloat(pm_narrow_value(" + code + "))"};
  if (is_narrow(dtype)) return {"uint", is_signed ? "bitfieldExtract(int(" + code + "), 0, " + width + ")" : code};
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
  pack_floats(node, input, 1, packed);
  return true;
}

namespace {

// Scale addressing: axis size, inner elements per index, block length along the axis, and strides of the scale.
struct ScalePlaces {
  int64_t size, inner = 1, block, outer_stride = 0, block_stride = 0, inner_stride = 0;
};

ScalePlaces scale_places(const LowerContext& node) {
  const TensorDesc &x = node.input(0), &scale = node.input(1);
  const int64_t length = node.attributes->integer("block_size", 0);
  if (scale.elements() == 1 && length == 0) return {.size = x.elements(), .block = x.elements()};
  const int64_t given = node.attributes->integer("axis", 1);
  const auto axis = static_cast<size_t>(given < 0 ? given + x.rank() : given);
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
  const bool quantizes = node.row->form == kQuantizes;
  const DType codes = quantizes ? y.dtype : x.dtype;
  const ScalePlaces places = scale_places(node);
  const int64_t lanes = quantizes ? 32 / bits(codes) : 1;
  const bool has_zero = node.has_input(2);
  Macros macros = {{"QUANTIZE", quantizes ? "1" : "0"}, {"ZERO", has_zero ? "1" : "0"}, {"LANES", std::to_string(lanes) + "u"}};
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  const auto loads = [&](DType dtype, const std::string& t, const std::string& type, const std::string& load) {
    const auto [declared, text] = quantized_load(dtype, t);
    append({{type, declared}, {load, text}});
  };
  if (is_float(x.dtype))
    append(element_macros("x", x.dtype));
  else
    loads(x.dtype, "x", "X_TYPE", "LOAD(i)");
  if (has_zero) loads(codes, "zero", "ZERO_TYPE", "LOAD_ZERO(i)");
  append({{"NUMBER", contains(kNarrowFloats, codes) ? "float" : "int"}, {"ROUND", "0"}});
  if (is_narrow(codes)) append(narrow_macros(codes));
  append(quantizes ? Macros{{"Y_TYPE", "uint"}} : element_macros("y", y.dtype));
  StepBuilder step(node.kernel("quantize.comp", quantizes ? x.dtype : y.dtype, macros));
  step.bind("x", node.in(0)).bind("scale", node.packed(1)).bind("y", node.out(0));
  if (has_zero) step.bind("zero", node.in(2));
  const int width = bits(codes);
  const bool is_signed = is_signed_integer(codes);
  const int64_t highest = (int64_t{1} << (is_signed ? width - 1 : width)) - 1;
  step.set("saturates", quantizes ? node.attributes->integer("saturate", 1) : 0);
  step.set("lowest", quantizes && is_signed ? -highest - 1 : 0).set("highest", quantizes ? highest : 0);
  step.set("elements", x.elements()).set("size", places.size).set("inner", places.inner).set("block", places.block);
  step.set("s_outer", places.outer_stride).set("s_block", places.block_stride).set("s_inner", places.inner_stride);
  node.add(step.threads(static_cast<uint64_t>((x.elements() + lanes - 1) / lanes)).build());
}

// Computes scale and zero point from the minimum and maximum of x, then quantises like QuantizeLinear. The scale is rounded to its dtype
// first, so that the integers match the returned scale.
void lower_dynamic_quantize(LowerContext& node) {
  Composition parts(node);
  const Piece x = parts.input(0).seen_as({node.input(0).elements()});
  const Piece least = parts.reduce("ReduceMin", x, {0}), most = parts.reduce("ReduceMax", x, {0});
  const auto made = [&](size_t i, DType dtype) { return node.has_output(i) ? parts.output(i) : parts.scratch(dtype, {}); };
  const Piece scale = made(1, DType::float32), zero = made(2, DType::uint8);
  node.add(StepBuilder(node.kernel("dynamic_quantize_scale.comp", scale.desc.dtype))
               .bind("least", least.operand)
               .bind("most", most.operand)
               .bind("scale", scale.operand)
               .bind("zero", zero.operand)
               .build());
  if (node.has_output(0)) parts.add("QuantizeLinear", {}, {x, scale, zero}, parts.output(0).seen_as({node.input(0).elements()}));
}

}  // namespace pumice
