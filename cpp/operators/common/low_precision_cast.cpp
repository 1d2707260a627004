// Casts from and to 2-bit, 4-bit and 8-bit elements. Casts between integers go through int32, all other casts through float32.
#include "operators/common/low_precision_cast.h"

#include "core/low_bit_float.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/strided_copy.h"

namespace pumice {
namespace {

// Whether a cast is between integers and therefore goes through int32.
bool is_integer_cast(DType x, DType y) {
  return (is_integer(x) || x == DType::bool_) && is_integer(y);
}

void add_cast_step(LowerContext& node, const TensorOperand& x, const TensorOperand& y) {
  const bool encodes = is_low_bit(y.desc.dtype);
  const DType packed_dtype = encodes ? y.desc.dtype : x.desc.dtype, unpacked_dtype = encodes ? x.desc.dtype : y.desc.dtype;
  const int64_t elements_per_word = 32 / bits(packed_dtype), elements = x.desc.elements();
  Macros macros = make_low_precision_macros(packed_dtype);
  const std::string round = node.attributes->text("round_mode", "up");
  macros.insert(macros.end(), {{"ENCODE", encodes ? "1" : "0"},
                               {"X_TYPE", "uint"},
                               {"INTEGERS", unpacked_dtype == DType::int32 ? "1" : "0"},
                               {"SIGNED", is_signed_integer(packed_dtype) ? "1" : "0"},
                               {"SATURATE", node.attributes->integer("saturate", 1) != 0 ? "1" : "0"},
                               {"ROUND", packed_dtype != DType::float8_e8m0fnu ? "0"
                                         : round == "nearest"                  ? "3"
                                         : round == "down"                     ? "2"
                                                                               : "1"}});
  StepBuilder step(node.kernel("cast_low_precision.comp", DType::float32, macros));
  step.bind("x", x.operand).bind("y", y.operand).set("elements", elements);
  node.add(step.set_threads(static_cast<uint64_t>(encodes ? ceil_div(elements, elements_per_word) : elements)).build());
}

}  // namespace

Macros make_low_precision_macros(DType dtype) {
  Macros macros{{"LOW_PRECISION_BITS", std::to_string(bits(dtype))}};
  if (!contains(kLowBitFloats, dtype)) return macros;
  const LowBitFloatFormat& format = get_low_bit_float_format(dtype);
  macros.insert(macros.end(), {{"LOW_PRECISION_EXPONENT", std::to_string(format.exponent)},
                               {"LOW_PRECISION_MANTISSA", std::to_string(format.mantissa)},
                               {"LOW_PRECISION_BIAS", std::to_string(format.bias)},
                               {"LOW_PRECISION_MAX_CODE", std::to_string(format.largest) + "u"},
                               {"LOW_PRECISION_SPECIALS", std::to_string(static_cast<int>(format.specials))},
                               {"LOW_PRECISION_HAS_SIGN", format.has_sign ? "1" : "0"}});
  return macros;
}

void lower_low_precision_cast(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  CompositeLowering composition(node);
  const TensorOperand x{node.input(0).packed(), get_contiguous_input(node, 0)}, y{node.output(0).packed(), get_contiguous_output(node, 0)};
  const DType from = x.desc.dtype, to = y.desc.dtype, between = is_integer_cast(from, to) ? DType::int32 : DType::float32;
  const bool decodes = is_low_bit(from), encodes = is_low_bit(to);
  TensorOperand unpacked = x;
  if (decodes) {
    unpacked = !encodes && to == between ? y : composition.allocate_scratch(between, x.desc.shape);
    add_cast_step(node, x, unpacked);
  }
  if (!decodes && from != between) {
    unpacked = composition.allocate_scratch(between, x.desc.shape);
    composition.add_elementwise("a0", {x}, unpacked);
  }
  if (encodes)
    add_cast_step(node, unpacked, y);
  else if (to != between)
    composition.add_elementwise(to == DType::bool_ ? "a0 != 0" : "a0", {unpacked}, y);
  copy_contiguous_output(node, 0, y.operand);
}

}  // namespace pumice
