#include "operators/elementwise/elementwise_codegen.h"

#include "core/error.h"

namespace pumice {

std::string_view get_glsl_type(ExprType type) {
  switch (type) {
    case ExprType::boolean:
      return "bool";
    case ExprType::i32:
      return "int";
    case ExprType::u32:
      return "uint";
    case ExprType::i64:
      return "int64_t";
    case ExprType::u64:
      return "uint64_t";
    case ExprType::f64:
      return "double";
    default:
      return "float";
  }
}

bool is_real(ExprType type) {
  return type == ExprType::f32 || type == ExprType::f64;
}

ElementGlsl make_element_glsl(const NodeContext& node, DType dtype, DType storage, const std::string& array) {
  const auto packed = [&](const std::string& load, const std::string& store, const std::string& value = "v") {
    return ElementGlsl{"uint", "pm_load_" + load + "(" + array + ", i)", "pm_store_" + store + "(" + array + ", i, " + value + ")"};
  };
  const auto direct = [&](const char* type) { return ElementGlsl{type, array + "[i]", array + "[i] = v"}; };
  switch (dtype) {
    case DType::float32:
      return direct("float");
    case DType::float16:
    case DType::bfloat16:
      if (dtype == storage) return {"sfp", "pm_load(" + array + ", i)", "pm_store(" + array + ", i, v)"};
      return packed(dtype == DType::float16 ? "half" : "bfloat16",
                    "");  // the kernel has another storage type, so the array is accessed as 32-bit words
    case DType::int32:
      return direct("int");
    case DType::uint32:
      return direct("uint");
    case DType::float64:
      node.check_arithmetic(dtype);
      return direct("double");
    case DType::int64:
    case DType::uint64:
      node.check_arithmetic(dtype);
      return direct(dtype == DType::int64 ? "int64_t" : "uint64_t");
    case DType::bool_:
      return packed("bool", "u8", "v ? 1u : 0u");
    case DType::uint8:
      return packed("u8", "u8");
    case DType::int8:
      return packed("i8", "u8");
    case DType::uint16:
      return packed("u16", "u16");
    case DType::int16:
      return packed("i16", "u16");
    default:
      throw UnsupportedError("node '" + std::string(node.node) + "': elementwise arithmetic on " + std::string(name(dtype)));
  }
}

std::optional<Vec4Glsl> make_vec4_glsl(DType dtype, const std::string& array, bool native) {
  const std::string at = array + "[i >> 2]", half = at + "[i >> 1 & 1u]";
  const auto words = [&](const std::string& low, const std::string& high) {
    return "if (count > 2u) " + at + " = uvec2(" + low + ", " + high + "); else " + at + ".x = " + low;
  };
  const auto direct = [&](const std::string& type) {
    return Vec4Glsl{
        type, type, "q[j]", at + "[i & 3u]",
        "if (count == 4u) " + at + " = " + type + "(v[0], v[1], v[2], v[3]); else for (uint k = 0u; k < count; ++k) " + at + "[k] = v[k]"};
  };
  const auto bytes = [&](const std::string& component, const std::string& store) {
    const auto with_lane = [&](const std::string& word, const std::string& lane) {
      std::string text = component;
      text.replace(text.find('W'), 1, word);
      return text.replace(text.find('L'), 1, lane);
    };
    return Vec4Glsl{"uint", "uint", with_lane("q", "j"), with_lane(at, "i & 3u"), at + " = " + store};
  };
  switch (dtype) {
    case DType::float32:
      return direct("vec4");
    case DType::int32:
      return direct("ivec4");
    case DType::uint32:
      return direct("uvec4");
    case DType::float16:
    case DType::bfloat16: {
      const bool direct_store = native && dtype == DType::float16;
      const std::string four = "vec4(v[0], v[1], v[2], v[3])";
      const auto store_lane = [&](const std::string& lane, int k) {
        return at + "." + lane + " = sfp(pm_round(v[" + std::to_string(k) + "])); ";
      };
      const std::string store =
          direct_store ? "if (count == 4u) { pm_store_vec4(" + array + ", i >> 2, " + four + "); } else { " + store_lane("x", 0) +
                             "if (count > 1u) " + store_lane("y", 1) + "if (count > 2u) " + store_lane("z", 2) + "}"
                       : "if (count > 2u) " + at + " = pm_pack4(" + four + "); else " + at + ".x = pm_pack2(vec2(v[0], v[1]))";
      const std::string output_type = direct_store ? "sfpvec4" : "uvec2";
      if (dtype == DType::float16)
        return Vec4Glsl{"uvec2", output_type, "unpackHalf2x16(q[j >> 1])[j & 1u]", "unpackHalf2x16(" + half + ")[i & 1u]", store};
      return Vec4Glsl{"uvec2", output_type, "uintBitsToFloat(q[j >> 1] >> (j & 1u) * 16u << 16)",
                      "uintBitsToFloat(" + half + " >> (i & 1u) * 16u << 16)", store};
    }
    case DType::uint16:
      return Vec4Glsl{"uvec2", "uvec2", "bitfieldExtract(q[j >> 1], int(j & 1u) * 16, 16)",
                      "bitfieldExtract(" + half + ", int(i & 1u) * 16, 16)",
                      words("pm_pack_u16(uvec2(v[0], v[1]))", "pm_pack_u16(uvec2(v[2], v[3]))")};
    case DType::int16:
      return Vec4Glsl{"uvec2", "uvec2", "bitfieldExtract(int(q[j >> 1]), int(j & 1u) * 16, 16)",
                      "bitfieldExtract(int(" + half + "), int(i & 1u) * 16, 16)",
                      words("pm_pack_i16(ivec2(v[0], v[1]))", "pm_pack_i16(ivec2(v[2], v[3]))")};
    case DType::uint8:
      return bytes("bitfieldExtract(W, int(L) * 8, 8)", "pm_pack_u8(uvec4(v[0], v[1], v[2], v[3]))");
    case DType::int8:
      return bytes("bitfieldExtract(int(W), int(L) * 8, 8)", "pm_pack_i8(ivec4(v[0], v[1], v[2], v[3]))");
    case DType::bool_:
      return bytes("(bitfieldExtract(W, int(L) * 8, 8) != 0u)",
                   "pm_pack_u8(uvec4(v[0] ? 1u : 0u, v[1] ? 1u : 0u, v[2] ? 1u : 0u, v[3] ? 1u : 0u))");
    default:
      return {};
  }
}

std::string emit_saturating_cast(const std::string& value, DType dtype) {
  const std::string type(get_glsl_type(to_expr_type(dtype)));
  const std::string whole = "pm_to_" + type + "(" + value + ")";
  if (bits(dtype) >= 32) return whole;
  const bool is_signed = is_signed_integer(dtype);
  const int64_t end = int64_t{1} << (bits(dtype) - (is_signed ? 1 : 0));
  const std::string suffix = is_signed ? "" : "u";
  return "clamp(" + whole + ", " + std::to_string(is_signed ? -end : 0) + suffix + ", " + std::to_string(end - 1) + suffix + ")";
}

}  // namespace pumice
