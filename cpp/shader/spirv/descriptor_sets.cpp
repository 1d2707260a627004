#include "shader/spirv/descriptor_sets.h"

#include <algorithm>
#include <map>
#include <utility>

#include "shader/spirv/spirv.h"

namespace pumice {

using namespace spirv;

void flatten_descriptor_sets(std::vector<uint32_t>& spirv) {
  struct SetBinding {
    uint32_t set = 0, binding = 0;
    bool has_binding = false;
  };
  const std::vector<Instruction> all = parse_instructions(spirv);
  std::map<uint32_t, SetBinding> locations;  // keyed by variable
  for (const auto& instruction : all) {
    if (instruction.op != OpDecorate || instruction.size() < 3) continue;
    if (instruction[1] == DescriptorSet) locations[instruction[0]].set = instruction[2];
    if (instruction[1] == Binding) locations[instruction[0]].binding = instruction[2], locations[instruction[0]].has_binding = true;
  }
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> new_bindings;  // (set, binding) -> new binding number
  uint32_t next = 0;
  for (const auto& [variable, location] : locations) {
    if (!location.has_binding) continue;
    if (location.set == 0) next = std::max(next, location.binding + 1);
    if (location.set != 0) new_bindings[{location.set, location.binding}] = 0;
  }
  for (auto& [location, number] : new_bindings) number = next++;
  for (const auto& instruction : all) {
    if (instruction.op != OpDecorate || instruction.size() < 3) continue;
    const auto location = locations.find(instruction[0]);
    if (location == locations.end() || location->second.set == 0 || !location->second.has_binding) continue;
    uint32_t& operand = spirv[static_cast<size_t>(&instruction.operands[2] - spirv.data())];
    if (instruction[1] == Binding) operand = new_bindings.at({location->second.set, location->second.binding});
    if (instruction[1] == DescriptorSet) operand = 0;
  }
}

}  // namespace pumice
