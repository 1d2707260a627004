#include <array>

#include "bindings.h"

namespace pumice {
namespace {

struct DeprecatedName {
  std::string_view old_name, new_name, deprecation;  // deprecation: the key in pumice.base.deprecation.RENAMED
};

constexpr std::array kDeprecatedNames = {
    DeprecatedName{"pumice::BlockMatMul", "pumice::BlockQuantMatMul", "Operator('pumice::BlockMatMul')"},
    DeprecatedName{"pumice::ProductSoftmax", "pumice::MatMulSoftmax", "Operator('pumice::ProductSoftmax')"},
    DeprecatedName{"pumice::SelectBoxes", "pumice::NMS", "Operator('pumice::SelectBoxes')"},
    DeprecatedName{"pumice::SuppressBoxes", "pumice::SoftNMS", "Operator('pumice::SuppressBoxes')"},
    DeprecatedName{"block_products", "block_quant", "load(fuse=['block_products'])"},
    DeprecatedName{"integer_products", "qlinear", "load(fuse=['integer_products'])"},
};

}  // namespace

void warn_renamed(std::string_view old_name) {
  py::module_::import("pumice.base.deprecation").attr("warn_renamed")(old_name);
}

std::string_view replace_deprecated_name(std::string_view name) {
  for (const DeprecatedName& deprecated : kDeprecatedNames)
    if (name == deprecated.old_name) {
      warn_renamed(deprecated.deprecation);
      return deprecated.new_name;
    }
  return name;
}

}  // namespace pumice
