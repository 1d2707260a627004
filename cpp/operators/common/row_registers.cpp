#include "operators/common/row_registers.h"

#include <algorithm>
#include <bit>
#include <span>

#include "core/rounding.h"
#include "operators/common/mixed_precision.h"

namespace pumice {
namespace {

// Teams by increasing size, each for rows of up to `most` vec4s.
struct Team {
  int64_t team, teams, most;
};
constexpr Team kTeams[] = {{16, 16, 64}, {32, 4, 256}, {128, 1, 512}, {256, 1, 2048}, {512, 1, 4096}, {1024, 1, 8192}};
constexpr int64_t kShortTeam = 16, kMostShort = 512;  // number of invocations that share an uncached row, and maximum size of the row
constexpr Team kHalvesTeams[] = {{16, 16, 64}, {32, 4, 256}, {128, 1, 512}, {256, 1, 8192}};

}  // namespace

bool begins_in_fours(const LowerContext& node) {
  return node.input_phase(0) * 8 % static_cast<uint64_t>(4 * bits(node.input(0).dtype)) == 0;
}

Macros HeldRows::macros() const {
  const auto number = [](int64_t value) { return std::to_string(value) + "u"; };
  return {{"TEAM", number(team)}, {"TEAMS", number(teams)}, {"HELD", number(held)}, {"HOLDS_HALVES", halves ? "1" : "0"}};
}

std::optional<HeldRows> held_rows(const LowerContext& node, int64_t size, bool keeps) {
  if (node.prefers_lanes() || size % 4 != 0 || !begins_in_fours(node)) return {};
  const auto largest = static_cast<int64_t>(node.context->info().limit("maxComputeWorkGroupInvocations"));
  const bool halves = keeps && is_half_width(node.input(0).dtype);
  // Without subgroup operations, a large thread group must be a whole workgroup: see include/thread_group.glsl.
  const auto meets = [&](const Team& team) { return node.subgroup() > 0 || team.team <= 16 || team.teams == 1; };
  for (const Team& team : halves ? std::span<const Team>(kHalvesTeams) : kTeams)
    if (size / 4 <= team.most && team.team * team.teams <= largest && meets(team))
      return HeldRows{team.team, team.teams, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(size / 4, team.team)))),
                      halves};
  return {};
}

bool has_short_rows(const NodeContext& node, int64_t size) {
  return !node.prefers_lanes() && size <= kMostShort;
}

uint64_t row_groups(const KernelVariant& kernel, bool has_short_rows, int64_t rows) {
  return static_cast<uint64_t>(has_short_rows ? ceil_div(rows, static_cast<int64_t>(kernel.local_size()[0]) / kShortTeam) : rows);
}

int64_t meeting_additions(int64_t team, int64_t subgroup, bool lanes) {
  constexpr int64_t kSixteen = 16;
  if (lanes) return 7;  // the eight lanes are added one after the other
  const auto halvings = [](int64_t count) { return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(count))) - 1; };
  if (subgroup > 0) return halvings(std::min(team, subgroup)) + std::max<int64_t>(team / subgroup - 1, 0);
  return (team > kSixteen ? team / kSixteen - 1 : 0) + kSixteen - 1;
}

int64_t held_additions(const NodeContext& node, const HeldRows& how) {
  constexpr int64_t kFour = 4;  // additions per vec4: at most one product and three additions
  return kFour + how.held + meeting_additions(how.team, node.subgroup(), false);
}

int64_t row_additions(const NodeContext& node, const KernelVariant& kernel, bool has_short_rows, int64_t size) {
  const int64_t team = has_short_rows ? kShortTeam : static_cast<int64_t>(kernel.local_size()[0]);
  return ceil_div(size, team) + meeting_additions(team, 0, node.prefers_lanes());
}

StepBuilder held_step(const LowerContext& node, const HeldRows& how, std::string_view shader, Macros macros, int64_t rows, int64_t size) {
  const Macros more = how.macros();
  macros.insert(macros.end(), more.begin(), more.end());
  macros.emplace_back("SUBGROUP", std::to_string(node.subgroup()));
  const DType dtype = node.input(0).dtype;
  const MixedArrays arrays = mixed_arrays({{"X", dtype}, {"Y", node.output(0).dtype}, {"R", node.residual_dtype(dtype)}});
  arrays.tell(macros);
  StepBuilder step(node.kernel(shader, arrays.storage, macros));
  step.bind("x", node.in(0)).bind("y", node.out(0)).set("rows", rows).set("quads", size / 4);
  step.groups(static_cast<uint64_t>(ceil_div(rows, how.teams)));
  return step;
}

}  // namespace pumice
