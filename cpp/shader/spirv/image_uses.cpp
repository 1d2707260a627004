#include "shader/spirv/image_uses.h"

#include <optional>
#include <set>

#include "core/error.h"

namespace pumice::spirv {
namespace {

constexpr uint32_t kBias = 1, kOffsets = 8 | 16 | 32;  // Image Operands bits: Bias; ConstOffset, Offset and ConstOffsets

// Tracks the variables that an id may refer to, because textures are passed to functions.
class ImageVariableTracker {
 public:
  explicit ImageVariableTracker(const Module& module) : module_(module) {
    read_parameters();
    while (propagate_origins()) {
    }
  }

  const std::set<uint32_t>& get_variables(uint32_t id) { return origins_[id]; }

 private:
  void read_parameters() {
    uint32_t function = 0;
    for (const auto& instruction : module_.instructions()) {
      if (instruction.op == OpFunction) function = instruction[1];
      if (instruction.op == OpFunctionParameter) parameters_[function].push_back(instruction[1]);
      if (instruction.op == OpVariable && instruction[2] == kUniformConstant) origins_[instruction[1]] = {instruction[1]};
    }
  }

  bool propagate_origins() {
    bool is_changed = false;
    for (const auto& instruction : module_.instructions()) {
      if (instruction.op == OpLoad || instruction.op == OpCopyObject)
        is_changed = merge_origins(instruction[1], instruction[2]) || is_changed;
      if (instruction.op != OpFunctionCall) continue;
      const auto& parameters = parameters_[instruction[2]];
      for (size_t i = 0; i < parameters.size() && i + 3 < instruction.size(); ++i)
        is_changed = merge_origins(parameters[i], instruction[i + 3]) || is_changed;
    }
    return is_changed;
  }

  bool merge_origins(uint32_t id, uint32_t from) {
    const auto found = origins_.find(from);
    if (found == origins_.end() || id == from) return false;
    const std::set<uint32_t> added = found->second;
    auto& targets = origins_[id];
    const size_t previous_size = targets.size();
    targets.insert(added.begin(), added.end());
    return targets.size() > previous_size;
  }

  const Module& module_;
  std::map<uint32_t, std::set<uint32_t>> origins_;
  std::map<uint32_t, std::vector<uint32_t>> parameters_;  // function id -> ids of its parameters
};

// Returns the index of the Image Operands mask of a sampling instruction; nullopt for other instructions.
std::optional<size_t> find_mask_operand(uint16_t op) {
  if (op == OpImageGather) return 5;
  const bool samples = op == OpImageSampleImplicitLod || op == OpImageSampleExplicitLod || op == OpImageSampleProjImplicitLod ||
                       op == OpImageSampleProjExplicitLod;
  return samples ? std::optional<size_t>(4) : std::nullopt;
}

std::string describe_normalized_coordinate_use(const Instruction& instruction, uint32_t mask) {
  if (instruction.op == OpImageSampleProjImplicitLod || instruction.op == OpImageSampleProjExplicitLod) return "a projection";
  if (instruction.op == OpImageSampleImplicitLod) return "a level of detail from derivatives";
  return mask & kOffsets ? "an offset" : "";
}

}  // namespace

std::map<uint32_t, std::string> find_normalized_coordinate_uses(const Module& module) {
  std::map<uint32_t, std::string> uses;
  std::optional<ImageVariableTracker> origins;
  for (const auto& instruction : module.instructions()) {
    const auto operand = find_mask_operand(instruction.op);
    if (!operand) continue;
    if (!origins) origins.emplace(module);
    const uint32_t mask = instruction.size() > *operand ? instruction[*operand] : 0;
    const std::string use = describe_normalized_coordinate_use(instruction, mask);
    for (const uint32_t variable : origins->get_variables(instruction[2])) {
      if (mask & kBias)
        throw ShaderCompileError("'" + module.name(variable) +
                                 "' is sampled with a bias, but a compute shader has no level of detail to add it to: use textureLod()");
      if (!use.empty()) uses.emplace(variable, use);
    }
  }
  return uses;
}

}  // namespace pumice::spirv
