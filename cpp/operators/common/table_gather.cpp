#include "operators/common/table_gather.h"

#include "operators/common/strided_copy.h"
#include "operators/table/host_tensor_access.h"

namespace pumice {

void add_table_gather(LowerContext& node, const Shape& x, const Shape& y, const IndexTables& tables, const HostTensor& outside) {
  constexpr size_t kLookupRank = 8;
  IndexSpace space{y, {packed_strides(x)}};
  std::vector<int64_t> first;
  std::vector<int32_t> entries;
  for (const auto& table : tables) {
    first.push_back(table ? static_cast<int64_t>(entries.size()) : -1);
    if (table) entries.insert(entries.end(), table->begin(), table->end());
  }
  space.pad_to(kLookupRank, "'" + std::string(node.node) + "'");
  first.insert(first.begin(), kLookupRank - first.size(), -1);
  const auto words = get_first_element_bits(outside);
  add_contiguous_output(node, 0, "table_gather.comp", {{"RANK", std::to_string(kLookupRank)}}, [&](StepBuilder& step) {
    step.bind("x", get_contiguous_input(node, 0))
        .bind("tables", add_host_array(node, entries))
        .set("value", std::vector<int64_t>{words[0], words[1]});
    step.set("size", space.sizes).set("stride", space.strides[0]).set("table", first);
  });
}

}  // namespace pumice
