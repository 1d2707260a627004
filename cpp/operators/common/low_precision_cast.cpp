// Casts from and to 2-bit, 4-bit and 8-bit elements, via float32 or, between integers, via int32.
#include "operators/common/low_precision_cast.h"

#include "core/low_bit_float.h"
#include "core/rounding.h"
#include "operators/common/composition.h"
#include "operators/common/strided_copy.h"

namespace pumice {
namespace {

// Whether a cast is between integers and therefore goes through int32.
bool passes_integers(DType x, DType y) {
  return (is_integer(x) || x == DType::bool_) && is_integer(y);
}

void add_step(LowerContext& node, const Piece& x, const Piece& y) {
  const bool encodes = is_narrow(y.desc.dtype);
  const DType narrow = encodes ? y.desc.dtype : x.desc.dtype, wide = encodes ? x.desc.dtype : y.desc.dtype;
  const int64_t lanes = 32 / bits(narrow), elements = x.desc.elements();
  Macros macros = narrow_macros(narrow);
  const std::string round = node.attributes->text("round_mode", "up");
  macros.insert(macros.end(), {{"ENCODE", encodes ? "1" : "0"},
                               {"X_TYPE", "uint"},
                               {"INTEGERS", wide == DType::int32 ? "1" : "0"},
                               {"SIGNED", is_signed_integer(narrow) ? "1" : "0"},
                               {"SATURATE", node.attributes->integer("saturate", 1) != 0 ? "1" : "0"},
                               {"ROUND", narrow != DType::float8_e8m0fnu ? "0"
                                         : round == "nearest"            ? "3"
                                         : round == "down"               ? "2"
                                                                         : "1"}});
  StepBuilder step(node.kernel("cast_low_precision.comp", DType::float32, macros));
  step.bind("x", x.operand).bind("y", y.operand).set("elements", elements);
  node.add(step.threads(static_cast<uint64_t>(encodes ? ceil_div(elements, lanes) : elements)).build());
}

}  // namespace

Macros narrow_macros(DType dtype) {
  Macros macros{{"NARROW_BITS", std::to_string(bits(dtype))}};
  if (!contains(kNarrowFloats, dtype)) return macros;
  const NarrowFormat& format = narrow_format(dtype);
  macros.insert(macros.end(), {{"NARROW_EXPONENT", std::to_string(format.exponent)},
                               {"NARROW_MANTISSA", std::to_string(format.mantissa)},
                               {"NARROW_BIAS", std::to_string(format.bias)},
                               {"NARROW_LARGEST", std::to_string(format.largest) + "u"},
                               {"NARROW_SPECIALS", std::to_string(static_cast<int>(format.specials))},
                               {"NARROW_SIGN", format.has_sign ? "1" : "0"}});
  return macros;
}

void lower_narrow_cast(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  Composition parts(node);
  const Piece x{node.input(0).packed(), dense_input(node, 0)}, y{node.output(0).packed(), dense_output(node, 0)};
  const DType from = x.desc.dtype, to = y.desc.dtype, between = passes_integers(from, to) ? DType::int32 : DType::float32;
  const bool decodes = is_narrow(from), encodes = is_narrow(to);
  Piece wide = x;
  if (decodes) {
    wide = !encodes && to == between ? y : parts.scratch(between, x.desc.shape);
    add_step(node, x, wide);
  }
  if (!decodes && from != between) {
    wide = parts.scratch(between, x.desc.shape);
    parts.map("a0", {x}, wide);
  }
  if (encodes)
    add_step(node, wide, y);
  else if (to != between)
    parts.map(to == DType::bool_ ? "a0 != 0" : "a0", {wide}, y);
  finish_output(node, 0, y.operand);
}

}  // namespace pumice
