// Reductions over axes.
#include "operators/reduction/reduce.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/expression/expression.h"
#include "operators/common/composition.h"
#include "operators/common/row_registers.h"
#include "operators/reduction/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kFoldRank = 4;
constexpr int64_t kMostInOne = 4096;  // maximum number of elements per invocation; hierarchical sums have smaller errors than one long sum
constexpr int64_t kMostInTeam = 65536;  // maximum number of elements per workgroup
constexpr int64_t kGroupSize = 256;     // workgroup size, if the device supports it
constexpr int64_t kSmallTeam = 16;      // number of invocations that share a short row, or a column
constexpr int64_t kHalvesTeam = 64, kFewestInHalvesGroup = 16384;
constexpr int64_t kFewestInTeam = 32, kFewestInGroup = 1024;  // minimum row size for a small team, and for a workgroup
constexpr int64_t kManyInvocations = 262144;                  // number of invocations that fill a large GPU

// GLSL integer type with its minimum and maximum.
struct IntegerText {
  std::string type, lowest, highest;
};

const IntegerText& integer_text(DType dtype) {
  static const std::map<DType, IntegerText> texts = {
      {DType::int8, {"int", "-128", "127"}},
      {DType::uint8, {"uint", "0u", "255u"}},
      {DType::bool_, {"uint", "0u", "1u"}},
      {DType::int16, {"int", "-32768", "32767"}},
      {DType::uint16, {"uint", "0u", "65535u"}},
      {DType::int32, {"int", "(-2147483647 - 1)", "2147483647"}},
      {DType::uint32, {"uint", "0u", "4294967295u"}},
      {DType::int64, {"int64_t", "(-9223372036854775807l - 1l)", "9223372036854775807l"}},
      {DType::uint64, {"uint64_t", "0ul", "18446744073709551615ul"}},
  };
  return texts.at(dtype);
}

constexpr char kNoExponentials[] = "vec2(uintBitsToFloat(0xff800000u), 0.0)";  // initial state of log-sum-exp

// Running maximum and sum of exponentials relative to it.
Fold exponentials_fold(bool wide) {
  const std::string accumulator = wide ? "dvec2" : "vec2", start = wide ? "dvec2(double(-pm_infinity), 0.0LF)" : kNoExponentials;
  return {accumulator, start, "pm_add_exponential(s, v)", "pm_merge_exponentials(s, t)", "((s).x + pm_log((s).y))"};
}

// Returns the initial value of a fold as GLSL; `accumulator` is its type, such as "int".
std::string start_text(FoldStart start, DType dtype, const std::string& accumulator) {
  const bool lowest = start == FoldStart::lowest;
  if (start == FoldStart::zero || start == FoldStart::one) return accumulator + (start == FoldStart::one ? "(1)" : "(0)");
  if (dtype == DType::float64) return lowest ? "double(-pm_infinity)" : "double(pm_infinity)";
  if (is_float(dtype)) return lowest ? "uintBitsToFloat(0xff800000u)" : "uintBitsToFloat(0x7f800000u)";
  return lowest ? integer_text(dtype).lowest : integer_text(dtype).highest;
}

// The sources are macros over s, v, t and n, whose arguments are expressions, so they need parentheses.
Fold text_of(const ReductionFold& fold, DType dtype) {
  if (fold.exponentials) return exponentials_fold(dtype == DType::float64);
  const ExprType type = expr_type(dtype == DType::bool_ ? DType::uint8 : dtype);
  const std::string accumulator(glsl_name(type)), count = accumulator + "(n)";
  const std::map<std::string, Expression> names{
      {"s", Expression::name("(s)")}, {"v", Expression::name("(v)")}, {"t", Expression::name("(t)")}, {"n", Expression::name(count)}};
  const std::map<std::string, ExprType> types{{"(s)", type}, {"(v)", type}, {"(t)", type}, {count, type}};
  const auto glsl = [&](std::string_view text) { return Expression::parse(text).substitute(names).glsl(types); };
  return {accumulator, start_text(fold.start, dtype, accumulator), glsl(fold.step), glsl(fold.merge), glsl(fold.finish)};
}

}  // namespace

uint64_t accumulator_bytes(const Fold& fold) {
  static const std::map<std::string_view, uint64_t> others = {{"vec2", 8},   {"uvec2", 8},   {"uvec4", 16},  {"dvec2", 16},
                                                              {"double", 8}, {"int64_t", 8}, {"uint64_t", 8}};
  const auto found = others.find(fold.accumulator);
  return found == others.end() ? 4 : found->second;
}

namespace {

// Returns the GLSL type of `finish`'s result.
std::string result_type(const Fold& fold) {
  if (!fold.result.empty()) return fold.result;
  return fold.accumulator == "vec2" ? "float" : fold.accumulator == "dvec2" ? "double" : fold.accumulator;
}

// Returns the sort key of element v for arg-reduce, reversed if the minimum is sought.
std::string key_text(DType dtype, bool least) {
  if (is_float(dtype)) return "pm_key(v)";
  const bool wide = bits(dtype) == 64, is_signed = is_signed_integer(dtype) || bits(dtype) < 32;
  const std::string key = (wide ? "int64_t(v)" : "int(v)") + std::string(is_signed ? "" : wide ? " ^ (1l << 63)" : " ^ (1 << 31)");
  return least ? "~(" + key + ")" : key;
}

}  // namespace

Macros element_macros(const std::string& array, DType dtype) {
  const bool words = !is_float(dtype) && bits(dtype) < 32, half = is_half_width(dtype), wide = dtype == DType::float64;
  const std::string width = std::to_string(bits(dtype));
  const std::string declared = half ? "sfp" : wide ? "double" : is_float(dtype) ? "float" : words ? "uint" : integer_text(dtype).type;
  if (array == "x") {
    const std::string load = half    ? "pm_load(x, i)"
                             : words ? "pm_load_" + std::string(is_signed_integer(dtype) ? "i" : "u") + width + "(x, i)"
                                     : "x[i]";
    return {{"X_TYPE", declared}, {"LOAD(i)", load}};
  }
  const std::string store = half ? "pm_store(y, i, v)" : words ? "pm_store_u" + width + "(y, i, v)" : "y[i] = (v)";
  return {{"Y_TYPE", declared}, {"STORE(i, v)", store}};
}

Macros width_macros(std::string_view accumulator) {
  Macros macros;
  if (accumulator.find("64") != std::string_view::npos) macros.emplace_back("PM_HAS_INT64", "1");
  if (accumulator == "double" || accumulator == "dvec2") macros.emplace_back("PM_HAS_FLOAT64", "1");
  return macros;
}

namespace {

// A vector of elements as stored, and access to its j-th element.
struct WideText {
  int64_t elements;
  std::string declared, load, pick;
};

// Returns the vector loads that are possible at aligned offsets, widest first.
std::vector<WideText> wide_texts(const LowerContext& node, const Fold& fold, bool first) {
  const std::string fours = "x[(i) >> 2]", each = "(h)[j]";
  if (!first) return fold.accumulator == "float" ? std::vector<WideText>{{4, "vec4", fours, each}} : std::vector<WideText>{};
  std::vector<WideText> texts;
  const DType x = node.input(0).dtype;
  if (is_half_width(x)) {
    if (node.input_phase(0) == 0) texts.push_back({8, "uvec4", "x[(i) >> 3]", "pm_unpack_halves((h)[(j) / 2u])[(j) % 2u]"});
    if (begins_in_fours(node)) texts.push_back({4, "sfpvec4", "pm_load_vec4(x, (i) >> 2)", each});
  } else if (begins_in_fours(node)) {
    if (x == DType::float32) texts.push_back({4, "vec4", fours, each});
    if (x == DType::int32) texts.push_back({4, "ivec4", fours, each});
    if (x == DType::uint32) texts.push_back({4, "uvec4", fours, each});
  }
  return texts;
}

struct Stage {
  Operand x, y;
  IndexSpace kept, reduced;
  bool first = true, last = false;
  bool aligned = true;  // whether x is aligned for vector loads if the node's input is
  int64_t parts = 1, part_size = 1, part_stride = 1;
  int64_t group = kGroupSize;         // workgroup size
  int64_t team = 1;                   // invocations of the workgroup that fold one result
  bool columns = false;               // adjacent invocations compute adjacent results
  std::optional<WideText> wide = {};  // vector load per invocation; nullopt: scalar

  int64_t loaded() const { return wide ? wide->elements : 1; }
  // Number of additions per element: within an invocation, then within its team.
  int64_t additions(const NodeContext& node) const {
    const int64_t own = columns ? 1 : loaded(), each = ceil_div(part_size, team * own) * own;
    if (team == 1) return each;
    return each + (columns ? team - 1 : meeting_additions(team, node.subgroup(), false));
  }
};

// Whether the strides of the first axes are multiples of `count`.
bool in_groups(const IndexSpace& space, size_t axes, int64_t count) {
  for (size_t axis = 0; axis < axes; ++axis)
    if (space.sizes[axis] != 1 && space.strides[0][axis] % count != 0) return false;
  return true;
}

// Number of invocations that fold one of `rows` rows. For fp16, each invocation folds more elements if the rows still occupy the device.
int64_t row_team(int64_t rows, int64_t size, bool halves, int64_t group) {
  if (size < kFewestInTeam) return 1;
  if (size < kFewestInGroup) return kSmallTeam;
  return halves && size < kFewestInHalvesGroup && rows * kHalvesTeam >= kManyInvocations / 4 ? kHalvesTeam : group;
}

// Chooses how many invocations fold a result, and the vector load of each.
void choose_team(const LowerContext& node, const Fold& fold, Stage& stage) {
  const int64_t size = stage.reduced.elements(), step = stage.reduced.strides[0].back();
  stage.columns = stage.kept.strides[0].back() == 1 && stage.kept.sizes.back() >= kFewestColumns && step != 1;
  const bool halves = stage.first && is_half_width(node.input(0).dtype);
  stage.group = node.workgroup(node.prefers_lanes() ? 64 : kGroupSize);
  stage.team = node.prefers_lanes() ? 1
               : stage.columns      ? (halves ? kSmallTeam / 2 : kSmallTeam)
                                    : row_team(stage.kept.elements(), size, halves, stage.group);
  const IndexSpace &across = stage.columns ? stage.kept : stage.reduced, &along = stage.columns ? stage.reduced : stage.kept;
  // On software devices, invocations process columns one by one, which uses their caches better.
  if (!stage.aligned || across.strides[0].back() != 1 || (stage.columns && stage.team == 1)) return;
  for (const WideText& text : wide_texts(node, fold, stage.first)) {
    const int64_t count = text.elements;
    if (across.sizes.back() % count != 0 || !in_groups(across, kFoldRank - 1, count) || !in_groups(along, kFoldRank, count)) continue;
    stage.wide = text;
    return;
  }
}

// Number of elements of a result that a team folds: all, or fewer if that gives too few or too slow teams.
int64_t part_size_of(const Stage& stage) {
  const int64_t results = stage.kept.elements(), size = stage.reduced.elements();
  if (stage.team > 1 && stage.team < stage.group && !stage.columns) return size;
  const bool is_group = stage.team == stage.group, is_column = stage.columns && stage.team > 1;
  const int64_t most = is_group ? kMostInTeam : kMostInOne, least = is_group ? 8 * stage.group : 256;
  const int64_t wanted = is_group    ? 256
                         : is_column ? kManyInvocations * stage.loaded() / stage.team
                                     : 64;  // wanted number of results times parts
  if (size <= least) return std::max<int64_t>(size, 1);
  return round_up(std::clamp(size * results / wanted, least, std::min(most, size)), std::max<int64_t>(stage.loaded(), 4));
}

void add_stage(LowerContext& node, const Fold& fold, const Stage& stage, int64_t count) {
  const DType x = node.input(0).dtype, y = node.output(0).dtype;
  Macros macros = {{"ACCUMULATOR", fold.accumulator}, {"START", fold.start}, {"MERGE(s, t)", fold.merge}};
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  if (stage.wide)
    append({{"X_TYPE", stage.wide->declared},
            {"HELD_TYPE", stage.wide->declared == "sfpvec4" ? "vec4" : stage.wide->declared},
            {"HOLD(i)", stage.wide->load},
            {"PICK(h, j)", stage.wide->pick}});
  else
    append(stage.first ? element_macros("x", x) : Macros{{"X_TYPE", fold.accumulator}, {"LOAD(i)", "x[i]"}});
  if (stage.last && !fold.store.empty())
    append({{"Y_TYPE", fold.y_type}, {"STORE(i, v)", fold.store}});
  else
    append(stage.last ? element_macros("y", y) : Macros{{"Y_TYPE", fold.accumulator}, {"STORE(i, v)", "y[i] = (v)"}});
  append({{"STEP(s, v, i)", stage.first ? fold.step : "MERGE(s, v)"},
          {"FINISH(s, n)", stage.last ? fold.finish : "(s)"},
          {"RESULT_TYPE", stage.last ? result_type(fold) : fold.accumulator},
          {"RESULT(v)", stage.last && is_working_float(y) && fold.store.empty() ? "epilogue(v)" : "(v)"},
          {"EPILOGUE(x)", stage.last ? node.epilogue() : "x"}});
  append(fold.macros);
  const bool one_axis = stage.reduced.sizes[0] * stage.reduced.sizes[1] * stage.reduced.sizes[2] == 1;
  const bool searches_halves = fold.is_position && stage.first && is_half_width(x);  // searching 16-bit elements needs many registers
  const bool is_narrow = width_macros(fold.accumulator).empty();                     // 32-bit subgroup operations are supported everywhere
  append({{"ONE_AXIS", one_axis ? "1" : "0"},
          {"COLUMNS", stage.columns ? "1" : "0"},
          {"TEAM", std::to_string(stage.team)},
          {"WIDE", std::to_string(stage.loaded())},
          {"EXPONENTIALS", stage.first && stage.wide && fold.start == kNoExponentials ? "1" : "0"},
          {"FLOAT_POSITIONS", stage.first && stage.wide && fold.is_position && is_working_float(x) ? "1" : "0"},
          {"LOADS_AHEAD", searches_halves                                   ? "2u"
                          : stage.wide && stage.wide->declared == "sfpvec4" ? "8u"
                                                                            : "4u"},
          {"SUBGROUP", std::to_string(is_narrow ? node.subgroup() : 0)},
          {"LOCAL_SIZE", std::to_string(stage.group)}});
  if (bits(x) == 64) append({{"PM_HAS_INT64", "1"}});
  if (x == DType::float64) append({{"PM_HAS_FLOAT64", "1"}});
  const DType stored = stage.first && is_half_width(x) ? x : stage.last ? y : DType::float32;
  StepBuilder step(node.kernel("reduce.comp", stored, macros));
  const int64_t results = stage.kept.elements(), teams = stage.group / stage.team;
  step.bind("x", stage.x).bind("y", stage.y).set("results", results).set("parts", stage.parts).set("part_size", stage.part_size);
  step.set("part_stride", stage.part_stride)
      .set("kept", stage.kept.sizes)
      .set("kept_stride", stage.kept.strides[0])
      .set("y_stride", stage.kept.strides[1])
      .set("reduced", stage.reduced.sizes)
      .set("reduced_stride", stage.reduced.strides[0]);
  step.set("size", stage.reduced.elements()).set("count", count);
  const int64_t groups = stage.columns ? stage.parts * ceil_div(results, teams * stage.loaded()) : ceil_div(results * stage.parts, teams);
  node.add(step.groups(static_cast<uint64_t>(groups)).build());
}

std::vector<bool> reduced_axes(const LowerContext& node) {
  const TensorDesc& x = node.input(0);
  std::vector<int64_t> axes = node.attributes->integers("axes");
  if (node.has_input(1)) {
    const HostTensor* host = node.host(1);
    if (!host) throw UnsupportedError("node '" + std::string(node.node) + "': axes that are not known on the host");
    axes = host->as_int64();
  }
  const bool none = axes.empty() && node.attributes->integer("noop_with_empty_axes", 0) != 0;
  std::vector<bool> reduced(x.shape.size(), axes.empty() && !none);
  for (const int64_t axis : axes) reduced[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
  return reduced;
}

// Returns the kept axes with strides of x and y, and the reduced axes with strides of x.
std::pair<IndexSpace, IndexSpace> spaces_of(const TensorDesc& x, const TensorDesc& y, const std::vector<bool>& reduced) {
  IndexSpace kept{{}, {{}, {}}}, folded{{}, {{}}};
  const bool keeps_axes = y.rank() == x.rank();
  size_t y_axis = 0;
  for (size_t axis = 0; axis < reduced.size(); ++axis) {
    IndexSpace& space = reduced[axis] ? folded : kept;
    space.sizes.push_back(x.shape[axis]);
    space.strides[0].push_back(x.strides[axis]);
    if (!reduced[axis]) kept.strides[1].push_back(y.strides[y_axis]);
    if (!reduced[axis] || keeps_axes) ++y_axis;
  }
  return {kept, folded};
}

}  // namespace

Fold fold_of(const NodeContext& node, const ReductionFold& fold, DType dtype) {
  if (!is_working_float(dtype) && dtype != DType::float64 && (is_float(dtype) || bits(dtype) < 8))
    throw UnsupportedError("node '" + std::string(node.node) + "': a fold of " + std::string(name(dtype)));
  if (!is_working_float(dtype)) node.check_arithmetic(dtype);
  const DType computed = is_working_float(dtype) ? DType::float32 : dtype;
  // Cached, because a node is lowered again for every new shape.
  static std::mutex mutex;
  static std::map<std::pair<const ReductionFold*, DType>, Fold> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find({&fold, computed});
  return found != known.end() ? found->second : known.emplace(std::pair(&fold, computed), text_of(fold, computed)).first->second;
}

// Coalesces the spaces for the kernel and determines the number of parts.
static void divide(const LowerContext& node, const Fold& fold, Stage& stage) {
  for (IndexSpace* space : {&stage.kept, &stage.reduced}) {
    space->coalesce();
    space->pad_to(kFoldRank, "node '" + std::string(node.node) + "'");
  }
  stage.wide.reset();
  choose_team(node, fold, stage);
  stage.part_size = part_size_of(stage);
  stage.parts = std::max<int64_t>(ceil_div(stage.reduced.elements(), stage.part_size), 1);
}

static int64_t span_of(const IndexSpace& space) {
  int64_t span = 1;
  for (size_t axis = 0; axis < space.sizes.size(); ++axis) span += (space.sizes[axis] - 1) * std::abs(space.strides[0][axis]);
  return span;
}

// Splits a result's elements into runs with a span of at most `most` each, with the offset of the first element.
static void cut_runs(IndexSpace space, int64_t first, int64_t most, std::vector<std::pair<IndexSpace, int64_t>>& runs) {
  constexpr int64_t kGrain = 256;  // number of adjacent elements that stay together for vector loads
  size_t widest = 0;
  for (size_t axis = 1; axis < space.sizes.size(); ++axis)
    if (space.strides[0][axis] * (space.sizes[axis] - 1) > space.strides[0][widest] * (space.sizes[widest] - 1)) widest = axis;
  const int64_t size = space.sizes[widest];
  if (span_of(space) <= most || size < 2) return runs.emplace_back(std::move(space), first), void();
  const int64_t half = size >= 2 * kGrain ? round_up(size / 2, kGrain) : size / 2;
  space.sizes[widest] = half;
  cut_runs(space, first, most, runs);
  space.sizes[widest] = size - half;
  cut_runs(space, first + half * space.strides[0][widest], most, runs);
}

// Folds results over more elements than fit into a binding: each run is folded into its own parts, which are folded afterwards.
static void add_runs(LowerContext& node, const Fold& fold, Stage& whole) {
  const int64_t element_bits = bits(node.input(0).dtype), most = largest_range(*node.context) * 8 / element_bits;
  if (span_of(whole.reduced) <= most || span_of(whole.reduced) <= 1) return;
  std::vector<std::pair<IndexSpace, int64_t>> runs;
  cut_runs(whole.reduced, 0, most, runs);
  std::vector<Stage> stages;
  int64_t parts = 0;
  for (auto& [space, first] : runs) {
    Stage& stage = stages.emplace_back(whole);
    stage.reduced = std::move(space);
    const int64_t bytes = ceil_div((span_of(stage.kept) + span_of(stage.reduced)) * element_bits, int64_t{8});
    stage.aligned = first * element_bits % 128 == 0;
    stage.x.byte_offset += static_cast<uint64_t>(first * element_bits / 8);
    stage.x.bytes = static_cast<uint64_t>(round_up(bytes, int64_t{16}));
    divide(node, fold, stage);
    parts += stage.parts;
  }
  const int64_t results = whole.kept.elements();
  const uint64_t sum_bytes = accumulator_bytes(fold);
  Operand sums = node.temporary(static_cast<uint64_t>(results * parts) * sum_bytes);
  sums.element_bits = static_cast<uint32_t>(sum_bytes * 8);
  for (Stage& stage : stages) {
    stage.y = sums;
    stage.kept.strides[1] = packed_strides(stage.kept.sizes);
    for (int64_t& stride : stage.kept.strides[1]) stride *= parts;
    stage.part_stride = 1;
    add_stage(node, fold, stage, whole.reduced.elements());
    sums.byte_offset += static_cast<uint64_t>(stage.parts) * sum_bytes;
  }
  sums.byte_offset = 0;
  const Strides y_strides = whole.kept.strides[1];
  Strides packed = packed_strides(whole.kept.sizes);
  for (int64_t& stride : packed) stride *= parts;
  whole.x = sums;
  whole.kept.strides = {packed, y_strides};
  whole.reduced = {{parts}, {{1}}};
  whole.first = false;
}

void add_fold(LowerContext& node, const Fold& fold, IndexSpace kept, IndexSpace reduced, const Operand& y) {
  const int64_t results = kept.elements(), count = reduced.elements();
  int64_t additions = 0;
  Stage stage{node.in(0), y, std::move(kept), std::move(reduced)};
  if (!fold.is_position) add_runs(node, fold, stage);
  const bool tells = stage.first && fold.accumulator == "float";  // runs have parts of different sizes
  while (!stage.last) {
    divide(node, fold, stage);
    stage.last = stage.parts == 1;
    // The parts of rows are contiguous; the parts of columns are stored column by column.
    const Strides y_strides = stage.kept.strides[1];
    Strides packed = packed_strides(stage.kept.sizes);
    stage.part_stride = stage.columns ? results : 1;
    if (!stage.columns)
      for (int64_t& stride : packed) stride *= stage.parts;
    if (!stage.last) stage.kept.strides[1] = packed;
    stage.y = stage.last ? y : node.temporary(static_cast<uint64_t>(results * stage.parts) * accumulator_bytes(fold));
    additions += stage.additions(node);
    add_stage(node, fold, stage, count);
    stage.x = stage.y;
    stage.kept.strides = {packed, y_strides};
    stage.reduced = {{stage.parts}, {{stage.part_stride}}};
    stage.first = false;
  }
  node.tell_additions(tells ? additions : kAsLongAsTheSum);
}

// Packs strided tensors whose axes do not merge to the kernel's rank. Returns false if they do merge.
static bool lower_packed(LowerContext& node, const std::vector<bool>& reduced, IndexSpace kept, IndexSpace folded) {
  kept.coalesce();
  folded.coalesce();
  if (std::max(kept.sizes.size(), folded.sizes.size()) <= kFoldRank) return false;
  Attributes attributes = *node.attributes;
  if (node.row->fold) {  // arg-reduce already has its axis as an attribute
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < reduced.size(); ++axis)
      if (reduced[axis]) axes.push_back(static_cast<int64_t>(axis));
    attributes.set("axes", axes);
  }
  const Operand x = dense_input(node, 0), y = dense_output(node, 0);
  Composition(node).add(node.row->name, attributes, {{node.input(0).packed(), x}}, {node.output(0).packed(), y}, true);
  finish_output(node, 0, y);
  return true;
}

void lower_reduce(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  const auto reduced = reduced_axes(node);
  const auto [kept, folded] = spaces_of(x, y, reduced);
  if (lower_packed(node, reduced, kept, folded)) return;
  add_fold(node, fold_of(node, *node.row->fold, x.dtype), kept, folded, node.out(0));
}

void lower_arg(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  const int64_t axis = node.attributes->integer("axis", 0);
  std::vector<bool> reduced(x.shape.size(), false);
  if (!reduced.empty()) reduced[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
  const auto [kept, folded] = spaces_of(x, y, reduced);
  if (lower_packed(node, reduced, kept, folded)) return;
  node.check_arithmetic(x.dtype);
  const bool least = node.row->form == kArgMin, wide = bits(x.dtype) == 64;
  Fold fold{wide ? "uvec4" : "uvec2", wide ? "uvec4(0u, 1u << 31, 0u, 0u)" : "uvec2(1u << 31, 0u)",
            "pm_better(s, PLACE(" + key_text(x.dtype, least) + ", i))", "pm_best(s, t)", wide ? "(s).z" : "(s).y"};
  fold.y_type = "uvec2";  // int64, regardless of the element dtype
  fold.store = "y[i] = uvec2(v, 0u)";
  fold.result = "uint";
  fold.is_position = true;
  fold.macros = {{"POSITION", "1"},
                 {"WIDE_KEYS", wide ? "1" : "0"},
                 {"LEAST", least ? "1" : "0"},
                 {"LAST", node.attributes->integer("select_last_index", 0) != 0 ? "true" : "false"}};
  add_fold(node, fold, kept, folded, node.out(0));
}

}  // namespace pumice
