#include <array>

#include "bindings.h"

namespace pumice {
namespace {

struct DeprecatedName {
  std::string_view old_name, new_name, deprecation;  // deprecation: the key in pumice.base.deprecation.RENAMED
};

constexpr std::array kRenamedNames = {
    DeprecatedName{"pumice::BlockMatMul", "pumice::BlockQuantMatMul", "Operator('pumice::BlockMatMul')"},
    DeprecatedName{"pumice::ProductSoftmax", "pumice::MatMulSoftmax", "Operator('pumice::ProductSoftmax')"},
    DeprecatedName{"pumice::SelectBoxes", "pumice::NMS", "Operator('pumice::SelectBoxes')"},
    DeprecatedName{"pumice::SuppressBoxes", "pumice::SoftNMS", "Operator('pumice::SuppressBoxes')"},
    DeprecatedName{"block_products", "block_quant", "load(fuse=['block_products'])"},
    DeprecatedName{"integer_products", "qlinear", "load(fuse=['integer_products'])"},
};

}  // namespace

std::string replace_deprecated_name(const std::string& name) {
  for (const DeprecatedName& make_deprecated_getter : kRenamedNames)
    if (name == make_deprecated_getter.old_name) {
      py::module_::import("pumice.base.deprecation").attr("warn_renamed")(make_deprecated_getter.deprecation);
      return std::string(make_deprecated_getter.new_name);
    }
  return name;
}

}  // namespace pumice
