#include <array>

#include "bindings.h"

namespace pumice {
namespace {

struct RenamedName {
  std::string_view old_name, new_name, deprecation;  // deprecation: the key in pumice.base.deprecation.RENAMED
};

constexpr std::array kRenamedNames = {
    RenamedName{"pumice::BlockMatMul", "pumice::BlockQuantMatMul", "Operator('pumice::BlockMatMul')"},
    RenamedName{"pumice::ProductSoftmax", "pumice::MatMulSoftmax", "Operator('pumice::ProductSoftmax')"},
    RenamedName{"pumice::SelectBoxes", "pumice::NMS", "Operator('pumice::SelectBoxes')"},
    RenamedName{"pumice::SuppressBoxes", "pumice::SoftNMS", "Operator('pumice::SuppressBoxes')"},
    RenamedName{"block_products", "block_quant", "load(fuse=['block_products'])"},
    RenamedName{"integer_products", "qlinear", "load(fuse=['integer_products'])"},
};

}  // namespace

std::string replace_old_name(const std::string& name) {
  for (const RenamedName& renamed : kRenamedNames)
    if (name == renamed.old_name) {
      py::module_::import("pumice.base.deprecation").attr("warn_renamed")(renamed.deprecation);
      return std::string(renamed.new_name);
    }
  return name;
}

}  // namespace pumice
