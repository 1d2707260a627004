#include "shader/spirv/descriptor_sets.h"

#include <algorithm>
#include <map>
#include <utility>

#include "shader/spirv/spirv.h"

namespace pumice {

using namespace spirv;

void flatten_sets(std::vector<uint32_t>& spirv) {
  struct Place {
    uint32_t set = 0, binding = 0;
    bool has_binding = false;
  };
  const std::vector<Instruction> all = instructions(spirv);
  std::map<uint32_t, Place> places;  // keyed by variable
  for (const auto& instruction : all) {
    if (instruction.op != OpDecorate || instruction.size() < 3) continue;
    if (instruction[1] == DescriptorSet) places[instruction[0]].set = instruction[2];
    if (instruction[1] == Binding) places[instruction[0]].binding = instruction[2], places[instruction[0]].has_binding = true;
  }
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> moved;  // (set, binding) -> new binding number
  uint32_t next = 0;
  for (const auto& [variable, place] : places) {
    if (!place.has_binding) continue;
    if (place.set == 0) next = std::max(next, place.binding + 1);
    if (place.set != 0) moved[{place.set, place.binding}] = 0;
  }
  for (auto& [place, number] : moved) number = next++;
  for (const auto& instruction : all) {
    if (instruction.op != OpDecorate || instruction.size() < 3) continue;
    const auto place = places.find(instruction[0]);
    if (place == places.end() || place->second.set == 0 || !place->second.has_binding) continue;
    uint32_t& operand = spirv[static_cast<size_t>(&instruction.operands[2] - spirv.data())];
    if (instruction[1] == Binding) operand = moved.at({place->second.set, place->second.binding});
    if (instruction[1] == DescriptorSet) operand = 0;
  }
}

}  // namespace pumice
